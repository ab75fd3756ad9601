// SPDX-License-Identifier: MIT OR Apache-2.0
//! poll(2) and epoll(7), with the flags that nix does not define.

use std::os::fd::AsFd;

use anyhow::{Context, Result};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

pub use sluice_testkit::poll::{wait, wait_readable};

pub const IN: i16 = libc::POLLIN | libc::POLLRDNORM;
pub const OUT: i16 = libc::POLLOUT | libc::POLLWRNORM;
pub const HUP: i16 = libc::POLLHUP;
pub const ERR: i16 = libc::POLLERR;
pub const RDHUP: i16 = libc::POLLRDHUP;

const EVERYTHING: i16 = IN | OUT | libc::POLLPRI | libc::POLLRDBAND | libc::POLLWRBAND | RDHUP;

/// The state now, in words, so that a failure can be read.
pub fn state(fd: &impl AsFd) -> Result<String> {
    Ok(name(wait(fd, EVERYTHING, 0).context("poll")?))
}

/// `IN|OUT` and so on; two flags that always occur together have one name.
pub fn name(mask: i16) -> String {
    let named = [
        (IN, "IN"),
        (OUT, "OUT"),
        (ERR, "ERR"),
        (HUP, "HUP"),
        (RDHUP, "RDHUP"),
    ];
    let known = named.iter().fold(0, |all, (bits, _)| all | bits);
    let mut words: Vec<String> = named
        .iter()
        .filter(|(bits, _)| mask & bits == *bits)
        .map(|(_, word)| (*word).to_owned())
        .collect();
    let named_bits = named
        .iter()
        .filter(|(bits, _)| mask & bits == *bits)
        .fold(0, |all, (bits, _)| all | bits);
    let rest = mask & !(known & named_bits);
    if rest != 0 {
        words.push(format!("{rest:#x}"));
    }
    if words.is_empty() {
        "nothing".to_owned()
    } else {
        words.join("|")
    }
}

/// An epoll instance that watches one file.
pub fn epoll_on(fd: &impl AsFd, flags: EpollFlags) -> Result<Epoll> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create1")?;
    epoll
        .add(fd, EpollEvent::new(flags, 0))
        .context("adding the file to the epoll instance")?;
    Ok(epoll)
}

/// The pending event, or `None` after `timeout`.
pub fn epoll_event(epoll: &Epoll, timeout: EpollTimeout) -> nix::Result<Option<EpollFlags>> {
    let mut events = [EpollEvent::empty()];
    let count = epoll.wait(&mut events, timeout)?;
    Ok((count == 1).then(|| events[0].events()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_shown_as_names() {
        assert_eq!(name(0), "nothing");
        assert_eq!(name(IN | HUP), "IN|HUP");
        assert_eq!(name(OUT | ERR), "OUT|ERR");
    }

    #[test]
    fn half_of_a_pair_is_shown_as_a_number() {
        assert_eq!(name(libc::POLLIN), format!("{:#x}", libc::POLLIN));
    }
}
