// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring of bytes in a file that both processes map, in a tmpfs so that no disk is written: what programs do that share a
//! file. There is no call to wait for a change of memory, so both sides look again and again and offer their processor between
//! two looks with sched_yield(2), which on one processor runs the other side and on two costs little more than looking. A nap
//! between looks, the other custom, would add its length to every answer; here only who waited in vain for long takes
//! naps, so that a pair that stands still leaves the machine to others. A look at the other side's lock on the file, between
//! naps, tells whether it is still alive.

use std::cell::UnsafeCell;
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libc::{c_int, c_short, off_t};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sched::sched_yield;
use nix::sys::mman::{MapFlags, ProtFlags, munmap};

use super::{Link, Mechanism, Receiver, Sender, Task, Waiting, memory_folder, no_file};

/// What pipe(2) holds, so that the room is not what makes the difference.
const CAPACITY: usize = 64 * 1024;
/// What is put is told after so many bytes, so that the other side takes them while more are put.
const PIECE: usize = CAPACITY / 4;
/// Around a millisecond, far longer than an answer takes.
const LOOKS_BEFORE_NAPS: usize = 2000;
const NAP: Duration = Duration::from_millis(1);

pub struct Mmap;

impl Mechanism for Mmap {
    fn name(&self) -> &'static str {
        "mmap"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Spin
    }

    fn obstacle(&self, task: &Task) -> Option<String> {
        no_file(task)
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        Ok(Box::new(Mapping::new()?))
    }
}

/// Where a process puts and takes; the two places count all bytes ever, each on a cache line of its own.
#[repr(C)]
struct Ring {
    put: Place,
    taken: Place,
    bytes: [UnsafeCell<u8>; CAPACITY],
}

#[repr(C, align(128))]
struct Place {
    count: AtomicUsize,
    /// Of the one side that moves it: one of the values below.
    state: AtomicU8,
}

const EXPECTED: u8 = 0;
const PRESENT: u8 = 1;
const GONE: u8 = 2;

/// Who moves the place holds a lock on the byte of the file with this number for as long as it lives.
#[derive(Clone, Copy)]
enum Role {
    Sender,
    Receiver,
}

impl Role {
    fn place(self, ring: &Ring) -> &Place {
        match self {
            Self::Sender => &ring.put,
            Self::Receiver => &ring.taken,
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
}

const LENGTH: NonZeroUsize = NonZeroUsize::new(size_of::<Ring>()).expect("a ring is not empty");

impl Mapping {
    fn new() -> Result<Self> {
        let folder = memory_folder();
        // Without a name nothing can be left behind.
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_TMPFILE)
            .mode(0o600)
            .open(&folder)
            .with_context(|| format!("cannot make a file in {}", folder.display()))?;
        // Written once, so that a full tmpfs is an error here and not the death of who touches the memory.
        file.write_all_at(&[0; LENGTH.get()], 0)
            .with_context(|| format!("cannot fill a file in {}", folder.display()))?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing.
        let ring =
            unsafe { nix::sys::mman::mmap(None, LENGTH, access, MapFlags::MAP_SHARED, &file, 0) };
        Ok(Self {
            ring: ring.context("cannot map a file")?.cast(),
            file,
        })
    }

    fn ring(&self) -> &Ring {
        // SAFETY: the mapping is aligned to pages, as long as a ring and as long-lived as self, and zeros are an empty ring.
        unsafe { self.ring.as_ref() }
    }

    /// The two pieces of the ring that hold these bytes, counted from the first ever put.
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

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing borrowed from the mapping outlives self.
        unsafe { munmap(self.ring.cast(), LENGTH.get()) }.expect("the mapping is ours");
    }
}

impl Link for Mapping {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        Ok(Box::new(Input(Side::enter(*self, Role::Sender)?)))
    }

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
        Ok(Box::new(Output(Side::enter(*self, Role::Receiver)?)))
    }
}

/// One of the two processes at a ring.
struct Side {
    mapping: Mapping,
    role: Role,
    /// Where this side is, which no one else moves.
    count: usize,
    /// Where the other side was when last looked, so that its cache line stays there until there is need.
    other: usize,
}

impl Side {
    fn enter(mapping: Mapping, role: Role) -> Result<Self> {
        fcntl(&mapping.file, FcntlArg::F_SETLK(&role.lock()))
            .context("cannot lock a byte of the file")?;
        let place = role.place(mapping.ring());
        place.state.store(PRESENT, Ordering::Release);
        Ok(Self {
            mapping,
            role,
            count: 0,
            other: 0,
        })
    }

    /// Waits until `enough` says so of where the other side is; false if it went before.
    fn await_other(&mut self, enough: impl Fn(usize) -> bool) -> Result<bool> {
        let mut looks = 0;
        while !enough(self.other) {
            // In this order: what it did before it went counts.
            let gone = looks >= LOOKS_BEFORE_NAPS && self.other_is_gone()?;
            self.other = self.other_place().count.load(Ordering::Acquire);
            match enough(self.other) {
                true => break,
                false if gone => return Ok(false),
                false if looks < LOOKS_BEFORE_NAPS => sched_yield()?,
                false => sleep(NAP),
            }
            looks += 1;
        }
        Ok(true)
    }

    fn other_place(&self) -> &Place {
        self.role.other().place(self.mapping.ring())
    }

    fn other_is_gone(&self) -> Result<bool> {
        match self.other_place().state.load(Ordering::Acquire) {
            EXPECTED => Ok(false),
            PRESENT => Ok(!self.other_holds_its_lock()?),
            _ => Ok(true),
        }
    }

    fn other_holds_its_lock(&self) -> Result<bool> {
        let mut lock = self.role.other().lock();
        fcntl(&self.mapping.file, FcntlArg::F_GETLK(&mut lock))
            .context("cannot ask for a lock on the file")?;
        Ok(c_int::from(lock.l_type) != libc::F_UNLCK)
    }

    fn advance(&mut self, len: usize) {
        self.count += len;
        let place = self.role.place(self.mapping.ring());
        place.count.store(self.count, Ordering::Release);
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let place = self.role.place(self.mapping.ring());
        place.state.store(GONE, Ordering::Release);
    }
}

struct Input(Side);

impl Sender for Input {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let mut rest = message;
        while !rest.is_empty() {
            let count = self.0.count;
            let has_room = self.0.await_other(|taken| count - taken < CAPACITY)?;
            ensure!(has_room, "cannot put a message: the receiver is gone");
            let room = CAPACITY - (count - self.0.other);
            let (now, later) = rest.split_at(rest.len().min(room).min(PIECE));
            let [first, second] = self.0.mapping.pieces(count, now.len());
            let (before, after) = now.split_at(first.len());
            for (mut piece, bytes) in [(first, before), (second, after)] {
                // SAFETY: the receiver has taken what was there, and does not look before it is told.
                unsafe { piece.as_mut() }.copy_from_slice(bytes);
            }
            self.0.advance(now.len());
            rest = later;
        }
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

struct Output(Side);

impl Receiver for Output {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < message.len() {
            let count = self.0.count;
            if !self.0.await_other(|put| put > count)? {
                break;
            }
            let there = self.0.other - count;
            let len = there.min(message.len() - filled).min(PIECE);
            for piece in self.0.mapping.pieces(count, len) {
                // SAFETY: the sender has put this, and leaves it alone before it is told that it was taken.
                let bytes = unsafe { piece.as_ref() };
                message[filled..][..bytes.len()].copy_from_slice(bytes);
                filled += bytes.len();
            }
            self.0.advance(len);
        }
        Ok(filled)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Locks are a process's, and both ends are in this one here: the other mapping is of the same file.
    fn ends() -> (Input, Output) {
        let mapping = Mapping::new().unwrap();
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let file = mapping.file.try_clone().unwrap();
        // SAFETY: both mappings are used as the two processes of a pair use theirs.
        let ring =
            unsafe { nix::sys::mman::mmap(None, LENGTH, access, MapFlags::MAP_SHARED, &file, 0) };
        let ring = ring.unwrap().cast();
        (
            Input(Side::enter(mapping, Role::Sender).unwrap()),
            Output(Side::enter(Mapping { ring, file }, Role::Receiver).unwrap()),
        )
    }

    #[test]
    fn bytes_survive_the_end_of_the_ring() {
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
    fn what_was_put_before_the_end_is_taken_after_it() {
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
        assert!(sender.send(b"a").unwrap_err().to_string().contains("gone"));
    }
}
