// SPDX-License-Identifier: MIT OR Apache-2.0
//! A socketpair(2) of AF_UNIX stream sockets, with the default buffers and with larger ones.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt};

use super::{Mechanism, stream};
use crate::harness::waiting::Waiting;

/// The kernel doubles it, because its own structures count, too. The default is 208 KiB after that.
const LARGE: usize = 1 << 20;

pub fn mechanism() -> Mechanism {
    Mechanism::new("unix-stream", Waiting::Sleep, |_| {
        let (sender, receiver) = pair()?;
        Ok(stream::link(receiver, sender))
    })
}

/// Beyond net.core.wmem_max, which only root may exceed.
pub fn with_large_buffer() -> Mechanism {
    Mechanism {
        label: "unix-stream-large (2 MiB)".into(),
        unsupported_reason: Box::new(|_| large_pair().err().map(|error| format!("{error:#}"))),
        ..Mechanism::new("unix-stream-large", Waiting::Sleep, |_| {
            let (sender, receiver) = large_pair()?;
            Ok(stream::link(receiver, sender))
        })
    }
}

fn pair() -> Result<(UnixStream, UnixStream)> {
    UnixStream::pair().context("cannot create a socket pair")
}

/// Only the buffer of the sender counts.
fn large_pair() -> Result<(UnixStream, UnixStream)> {
    let (sender, receiver) = pair()?;
    enlarge_send_buffer(&sender, LARGE)?;
    Ok((sender, receiver))
}

/// Also beyond net.core.wmem_max.
pub fn enlarge_send_buffer(socket: &impl AsFd, bytes: usize) -> Result<()> {
    setsockopt(socket, sockopt::SndBufForce, &bytes)
        .context("cannot enlarge the send buffer of a socket; run as root")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_large_buffer_takes_more_before_anything_is_received_or_says_who_may() {
        let fits = |(mut sender, _receiver): (UnixStream, UnixStream)| {
            sender.set_nonblocking(true).unwrap();
            let writes = std::iter::repeat_with(|| sender.write(&[0; 4096]).ok());
            writes.map_while(|written| written).sum::<usize>()
        };
        let usual = fits(pair().unwrap());
        match large_pair() {
            Ok(pair) => assert!(fits(pair) > 4 * usual, "{usual}"),
            Err(error) => assert!(format!("{error:#}").contains("root"), "{error:#}"),
        }
    }
}
