// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use sluice_ring::{Capacity, InvalidCapacity, ProtocolViolation};

pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong with a ring, and what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Capacity(#[from] InvalidCapacity),

    #[error(
        "a record of {length} bytes is too long: the ring carries up to {most}, half of its capacity; make it larger, or send the record in parts"
    )]
    TooLong { length: usize, most: u32 },

    #[error(
        "the next record has {length} bytes, and there is room for {room}; it is still there, give it more"
    )]
    TooLittleRoom { length: u32, room: usize },

    #[error("there is nothing to take now; try again later, or use a call that waits")]
    Empty,

    #[error("there is no room for it now; try again later, or use a call that waits")]
    Full,

    #[error(
        "nothing happened for {0:?}; wait longer, or see what keeps the process at the other end"
    )]
    TimedOut(Duration),

    #[error("the other end has been closed; connect again if there is more to send")]
    Closed,

    #[error(
        "the process at the other end died, or closed its socket without a word; what it had sent before was delivered"
    )]
    Died,

    #[error("the peer violated the protocol: {0}; connect again")]
    Broken(#[from] ProtocolViolation),

    #[error(
        "this ring belongs to the process that set it up, not to its children; set up another one"
    )]
    Forked,

    #[error("cannot listen at {}: {source}; remove what is there if nobody uses it, or choose a path in a directory that you may write to", path.display())]
    Listen { path: PathBuf, source: io::Error },

    #[error("cannot connect to {}: {source}; start the side that listens first, and see that you may write to the socket", path.display())]
    Connect { path: PathBuf, source: io::Error },

    #[error(
        "the other end runs as user {uid}, who is not allowed here; run both as one user, or allow that one"
    )]
    Stranger { uid: u32 },

    #[error(
        "the other end said nothing for {0:?} while the ring was being set up; see whether it speaks this protocol, and whether it hangs"
    )]
    Silent(Duration),

    #[error(
        "the other end closed the connection while the ring was being set up; see what it says"
    )]
    HungUp,

    #[error(
        "what is at the other end does not set up a ring: {0}; see that both ends use the same version of this library"
    )]
    NoRing(&'static str),

    #[error("the other end speaks version {theirs} of the protocol, this one {ours}; bring both to the same version of this library", ours = sluice_abi::ring::VERSION)]
    Version { theirs: u32 },

    #[error("both ends want to be the {role}; one has to be the other side")]
    SameRole { role: &'static str },

    #[error("the memory that the other end sent cannot be used: {0}; nothing can be done here")]
    Unsafe(String),

    #[error("the other end refuses this one: {0}")]
    Refused(String),

    #[error("{what} failed: {source}; {}", next_step(source))]
    System {
        what: &'static str,
        source: io::Error,
    },

    #[error("huge pages cannot be left unsealed; leave out one of the two")]
    UnsealedHugePages,

    #[error(
        "there are not enough free huge pages of 2 MiB for a ring of {0} bytes; have root raise /proc/sys/vm/nr_hugepages, or do without"
    )]
    NoHugePages(Capacity),

    #[error(
        "a ring of {0} bytes cannot be locked into memory: {1}; raise the limit (ulimit -l), or do without"
    )]
    NotLocked(Capacity, io::Error),
}

impl Error {
    pub(super) fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::System {
            what,
            source: errno.into(),
        }
    }
}

fn next_step(failure: &io::Error) -> &'static str {
    match failure.raw_os_error() {
        Some(libc::EMFILE) => {
            "close what is not needed, or raise the limit on open files (ulimit -n)"
        }
        Some(libc::ENFILE) => "have root raise /proc/sys/fs/file-max",
        Some(libc::ENOMEM) => {
            "raise the memory limit of this cgroup (memory.max), or end what uses it up"
        }
        Some(libc::EAGAIN) => {
            "raise the limit on processes and threads (ulimit -u, or pids.max of this cgroup)"
        }
        Some(libc::EPERM | libc::ENOSYS) => {
            "see whether a seccomp filter forbids it, or the kernel is older than Linux 6.1"
        }
        _ => "'sluice doctor' tells whether something is wrong with this system",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_says_what_to_do_next() {
        let of = |errno| Error::System {
            what: "mapping the ring",
            source: io::Error::from_raw_os_error(errno),
        };
        for (errno, word) in [
            (libc::EMFILE, "ulimit -n"),
            (libc::ENFILE, "file-max"),
            (libc::ENOMEM, "memory.max"),
            (libc::EAGAIN, "pids.max"),
            (libc::EPERM, "seccomp"),
            (libc::EIO, "sluice doctor"),
        ] {
            let said = of(errno).to_string();
            assert!(said.starts_with("mapping the ring failed: "), "{said}");
            assert!(said.contains(word), "{said}");
        }
    }
}
