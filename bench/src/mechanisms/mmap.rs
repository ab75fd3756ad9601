// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring of bytes in a file on tmpfs that both processes map. Memory has no blocking wait, so both sides poll and call
//! sched_yield(2) between two polls: on one processor it runs the peer, and on two it costs little more than the poll.
//! Sleeping between polls would add its duration to every reply, so a side sleeps only after a long unsuccessful wait,
//! which leaves the processor to others. Between sleeps it tests the lock of the peer on the file to detect its death.

use std::cell::UnsafeCell;
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libc::{c_int, c_short, off_t};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sched::sched_yield;
use sluice_testkit::shared_memory::SharedMemory;

use super::mechanism::{memory_directory, no_file};
use super::{Link, Mechanism, Receiver, Sender};
use crate::harness::waiting::Waiting;

/// The capacity of pipe(2), so that the capacity makes no difference.
const CAPACITY: usize = 64 * 1024;
/// Bytes are published in pieces of this size, so that the peer copies while more are written.
const MAX_PIECE: usize = CAPACITY / 4;
/// About one millisecond, far longer than a reply takes.
const YIELDS_BEFORE_SLEEP: usize = 2000;
const SLEEP: Duration = Duration::from_millis(1);

pub fn mechanism() -> Mechanism {
    Mechanism {
        unsupported_reason: Box::new(no_file),
        ..Mechanism::new("mmap", Waiting::Spin, |_| {
            Ok(Link::new(
                file()?,
                |file| Ok(Input(Side::attach(file, Role::Sender)?)),
                |file| Ok(Output(Side::attach(file, Role::Receiver)?)),
            ))
        })
    }
}

/// A file that holds an empty ring, without a name, so that nothing is left behind.
fn file() -> Result<File> {
    let directory = memory_directory();
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .mode(0o600)
        .open(&directory)
        .with_context(|| format!("cannot create a file in {}", directory.display()))?;
    // Written once, so that a full tmpfs is an error here and not a SIGBUS later.
    file.write_all_at(&[0; LENGTH.get()], 0)
        .with_context(|| format!("cannot fill a file in {}", directory.display()))?;
    Ok(file)
}

/// The two positions count all bytes ever written and read, each in its own cache line.
#[repr(C)]
struct Ring {
    written: Position,
    read: Position,
    bytes: [UnsafeCell<u8>; CAPACITY],
}

#[repr(C, align(128))]
struct Position {
    count: AtomicUsize,
    /// The state of the side that advances it: one of the values below.
    state: AtomicU8,
}

const NOT_ATTACHED: u8 = 0;
const ATTACHED: u8 = 1;
const DETACHED: u8 = 2;

/// The side that advances a position holds a lock on the byte of the file with this number while it lives.
#[derive(Clone, Copy)]
enum Role {
    Sender,
    Receiver,
}

impl Role {
    fn position(self, ring: &Ring) -> &Position {
        match self {
            Self::Sender => &ring.written,
            Self::Receiver => &ring.read,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }

    fn lock(self) -> libc::flock {
        libc::flock {
            l_type: libc::F_WRLCK as c_short,
            l_whence: libc::SEEK_SET as c_short,
            l_start: self as off_t,
            l_len: 1,
            l_pid: 0,
        }
    }
}

struct Mapping {
    ring: NonNull<Ring>,
    file: File,
    /// Unmaps the ring when dropped.
    _memory: SharedMemory,
}

const LENGTH: NonZeroUsize = NonZeroUsize::new(size_of::<Ring>()).expect("a ring is not empty");

impl Mapping {
    fn new(file: File) -> Result<Self> {
        let memory = SharedMemory::of_file(&file, 0, LENGTH)?;
        Ok(Self {
            ring: memory.at(0).cast(),
            file,
            _memory: memory,
        })
    }

    fn ring(&self) -> &Ring {
        // SAFETY: the mapping is page-aligned, as long as a ring and as long-lived as self, and zeros are an empty
        // ring.
        unsafe { self.ring.as_ref() }
    }

    /// The two pieces of the ring that hold these bytes; `count` is their position in the stream.
    fn pieces(&self, count: usize, len: usize) -> [NonNull<[u8]>; 2] {
        let at = count % CAPACITY;
        let first = len.min(CAPACITY - at);
        let bytes = self.ring().bytes.as_ptr().cast_mut().cast::<u8>();
        let piece = |at: usize, len: usize| {
            // SAFETY: both pieces are within the ring.
            let start = unsafe { bytes.add(at) };
            NonNull::slice_from_raw_parts(NonNull::new(start).expect("the ring is mapped"), len)
        };
        [piece(at, first), piece(0, len - first)]
    }
}

/// One of the two sides of a ring.
struct Side {
    mapping: Mapping,
    role: Role,
    /// The position of this side, which no other process advances.
    count: usize,
    /// The cached position of the peer, which avoids accesses to its cache line.
    other: usize,
}

impl Side {
    fn attach(file: File, role: Role) -> Result<Self> {
        let mapping = Mapping::new(file)?;
        fcntl(&mapping.file, FcntlArg::F_SETLK(&role.lock()))
            .context("cannot lock a byte of the file")?;
        let position = role.position(mapping.ring());
        position.state.store(ATTACHED, Ordering::Release);
        Ok(Self {
            mapping,
            role,
            count: 0,
            other: 0,
        })
    }

    /// Waits until `enough` accepts the position of the peer; false if the peer ended before.
    fn wait_for_other(&mut self, enough: impl Fn(usize) -> bool) -> Result<bool> {
        let mut polls = 0;
        while !enough(self.other) {
            // In this order, so that positions published before the end are seen.
            let ended = polls >= YIELDS_BEFORE_SLEEP && self.other_has_ended()?;
            self.other = self.other_position().count.load(Ordering::Acquire);
            match enough(self.other) {
                true => break,
                false if ended => return Ok(false),
                false if polls < YIELDS_BEFORE_SLEEP => sched_yield()?,
                false => sleep(SLEEP),
            }
            polls += 1;
        }
        Ok(true)
    }

    fn other_position(&self) -> &Position {
        self.role.other().position(self.mapping.ring())
    }

    fn other_has_ended(&self) -> Result<bool> {
        match self.other_position().state.load(Ordering::Acquire) {
            NOT_ATTACHED => Ok(false),
            ATTACHED => Ok(!self.other_holds_its_lock()?),
            _ => Ok(true),
        }
    }

    fn other_holds_its_lock(&self) -> Result<bool> {
        let mut lock = self.role.other().lock();
        fcntl(&self.mapping.file, FcntlArg::F_GETLK(&mut lock))
            .context("cannot test a lock on the file")?;
        Ok(c_int::from(lock.l_type) != libc::F_UNLCK)
    }

    fn advance(&mut self, len: usize) {
        self.count += len;
        let position = self.role.position(self.mapping.ring());
        position.count.store(self.count, Ordering::Release);
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let position = self.role.position(self.mapping.ring());
        position.state.store(DETACHED, Ordering::Release);
    }
}

struct Input(Side);

impl Sender for Input {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let mut remaining = message;
        while !remaining.is_empty() {
            let count = self.0.count;
            let has_space = self.0.wait_for_other(|read| count - read < CAPACITY)?;
            ensure!(has_space, "cannot send a message: the receiver has ended");
            let space = CAPACITY - (count - self.0.other);
            let (now, later) = remaining.split_at(remaining.len().min(space).min(MAX_PIECE));
            let [first, second] = self.0.mapping.pieces(count, now.len());
            let (before, after) = now.split_at(first.len());
            for (mut piece, bytes) in [(first, before), (second, after)] {
                // SAFETY: the receiver has read the old bytes, and does not read new ones before they are published.
                unsafe { piece.as_mut() }.copy_from_slice(bytes);
            }
            self.0.advance(now.len());
            remaining = later;
        }
        Ok(())
    }
}

struct Output(Side);

impl Receiver for Output {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < message.len() {
            let count = self.0.count;
            if !self.0.wait_for_other(|written| written > count)? {
                break;
            }
            let available = self.0.other - count;
            let len = available.min(message.len() - filled).min(MAX_PIECE);
            for piece in self.0.mapping.pieces(count, len) {
                // SAFETY: the sender has published these bytes, and does not overwrite them before they are released.
                let bytes = unsafe { piece.as_ref() };
                message[filled..][..bytes.len()].copy_from_slice(bytes);
                filled += bytes.len();
            }
            self.0.advance(len);
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Locks belong to a process, and both ends are in one here, so the second end maps the same file again.
    fn ends() -> (Input, Output) {
        let file = file().unwrap();
        let other = file.try_clone().unwrap();
        (
            Input(Side::attach(file, Role::Sender).unwrap()),
            Output(Side::attach(other, Role::Receiver).unwrap()),
        )
    }

    #[test]
    fn bytes_survive_the_wrap() {
        let (mut sender, mut receiver) = ends();
        let sent: Vec<u8> = (0..CAPACITY - 1).map(|at| at as u8).collect();
        let mut message = vec![0; sent.len()];
        for _ in 0..3 {
            sender.send(&sent).unwrap();
            assert_eq!(receiver.receive(&mut message).unwrap(), sent.len());
            assert!(message == sent);
        }
    }

    #[test]
    fn bytes_are_received_after_the_sender_has_ended() {
        let (mut sender, mut receiver) = ends();
        sender.send(b"abc").unwrap();
        drop(sender);
        let mut message = [0; 8];
        assert_eq!(receiver.receive(&mut message).unwrap(), 3);
        assert_eq!(&message[..3], b"abc");
        assert_eq!(receiver.receive(&mut message).unwrap(), 0);
    }

    #[test]
    fn a_ring_without_a_receiver_fills_and_then_fails() {
        let (mut sender, receiver) = ends();
        drop(receiver);
        sender.send(&vec![0; CAPACITY]).unwrap();
        let error = sender.send(b"a").unwrap_err();
        assert!(error.to_string().contains("has ended"));
    }
}
