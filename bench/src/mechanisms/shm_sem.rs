// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared memory with named POSIX semaphores, as in textbooks: a ring of 1024 messages of one size, with one semaphore
//! for the empty slots, one for the full slots, and one as a mutex. A reference implementation, deliberately not
//! optimized.

use std::ffi::CString;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::mman::{shm_open, shm_unlink};
use nix::sys::stat::Mode;
use nix::sys::statvfs::statvfs;
use nix::unistd::ftruncate;
use sluice_testkit::shared_memory::SharedMemory;
use sluice_testkit::units;

use super::link::ensure_fits;
use super::mechanism::no_file;
use super::temp_paths::unique_name;
use super::{Link, Mechanism, Receiver, Sender};
use crate::harness::waiting::Waiting;

const BUFFER_SIZE: usize = 1024;
/// The directory in which the C library creates named objects.
const DIRECTORY: &str = "/dev/shm";
/// A round trip has one ring per direction.
const MOST_RINGS: u64 = 2;

pub fn mechanism() -> Mechanism {
    Mechanism {
        unsupported_reason: Box::new(|task| no_file(task).or_else(|| too_little_memory(task.size))),
        ..Mechanism::new("shm-sem", Waiting::Sleep, |size| {
            let receiver = |buffer| {
                Ok(BufferReceiver {
                    buffer,
                    ended: false,
                })
            };
            let sender = |buffer| Ok(BufferSender(buffer));
            Ok(Link::new(Buffer::new(size)?, sender, receiver))
        })
    }
}

/// Touching shared memory beyond a full tmpfs raises SIGBUS.
fn too_little_memory(size: usize) -> Option<String> {
    let needed = Layout::of(size).len() as u64 * MOST_RINGS;
    let free = match statvfs(DIRECTORY) {
        Ok(status) => status.blocks_available() * status.fragment_size(),
        Err(error) => {
            return Some(format!(
                "cannot use {DIRECTORY}: {error}; mount a tmpfs there"
            ));
        }
    };
    (free < needed).then(|| {
        format!(
            "{BUFFER_SIZE} messages of {} need {needed} bytes, but {DIRECTORY} has {free}; remount it with a larger size",
            units::size(size)
        )
    })
}

/// `struct { struct { char data[size]; int len; } buffer[1024]; int head, tail; }`
#[derive(Clone, Copy)]
struct Layout {
    len_at: usize,
    message: usize,
}

impl Layout {
    fn of(size: usize) -> Self {
        let len_at = size.next_multiple_of(align_of::<i32>());
        Self {
            len_at,
            message: len_at + size_of::<i32>(),
        }
    }

    fn head(self) -> usize {
        BUFFER_SIZE * self.message
    }

    fn tail(self) -> usize {
        self.head() + size_of::<i32>()
    }

    fn len(self) -> usize {
        self.tail() + size_of::<i32>()
    }
}

struct Buffer {
    memory: SharedMemory,
    layout: Layout,
    size: usize,
    empty: Semaphore,
    full: Semaphore,
    mutex: Semaphore,
}

impl Buffer {
    /// The names are removed before this returns: the two processes inherit the objects.
    fn new(size: usize) -> Result<Self> {
        let layout = Layout::of(size);
        Ok(Self {
            memory: named_memory(layout.len())?,
            layout,
            size,
            empty: Semaphore::new(BUFFER_SIZE as u32)?,
            full: Semaphore::new(0)?,
            mutex: Semaphore::new(1)?,
        })
    }

    fn put(&self, message: &[u8]) -> Result<()> {
        ensure!(
            message.len() <= self.size,
            "this ring carries messages of up to {} bytes, not {}",
            self.size,
            message.len()
        );
        self.empty.wait()?;
        self.mutex.wait()?;
        let slot = self.next_slot(self.layout.tail());
        // SAFETY: the slot has space for a message of this size and its length, and this process holds the mutex.
        unsafe {
            slot.copy_from_nonoverlapping(message.as_ptr(), message.len());
            slot.add(self.layout.len_at)
                .cast::<i32>()
                .write(message.len() as i32);
        }
        self.mutex.post()?;
        self.full.post()
    }

    fn get(&self, message: &mut [u8]) -> Result<usize> {
        self.full.wait()?;
        self.mutex.wait()?;
        let slot = self.next_slot(self.layout.head());
        // SAFETY: the sender has written the slot, and this process holds the mutex.
        let len = unsafe { slot.add(self.layout.len_at).cast::<i32>().read() } as usize;
        ensure_fits(len, message.len().min(self.size))?;
        // SAFETY: as above; both buffers have at least `len` bytes.
        unsafe { slot.copy_to_nonoverlapping(message.as_mut_ptr(), len) };
        self.mutex.post()?;
        self.empty.post()?;
        Ok(len)
    }

    /// Returns the slot at the head or the tail, and advances that index. Requires the mutex.
    fn next_slot(&self, index_at: usize) -> *mut u8 {
        let index = self.memory.at(index_at).cast::<i32>();
        // SAFETY: the layout has an aligned, zeroed index here, and this process holds the mutex.
        let at = unsafe { index.read() } as usize % BUFFER_SIZE;
        // SAFETY: as above.
        unsafe { index.write(((at + 1) % BUFFER_SIZE) as i32) };
        self.memory.at(at * self.layout.message).as_ptr()
    }
}

fn named_memory(len: usize) -> Result<SharedMemory> {
    let name = unique_name();
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_RDWR;
    let file = shm_open(name.as_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR)
        .with_context(|| format!("cannot create {name:?} in {DIRECTORY}"))?;
    shm_unlink(name.as_str()).with_context(|| format!("cannot remove {name:?}"))?;
    let len = NonZeroUsize::new(len).context("a ring is never empty")?;
    ftruncate(&file, len.get() as i64)
        .with_context(|| format!("cannot allocate {len} bytes of shared memory"))?;
    SharedMemory::of_file(&file, 0, len)
}

struct Semaphore(NonNull<libc::sem_t>);

impl Semaphore {
    fn new(value: u32) -> Result<Self> {
        let name = CString::new(unique_name())?;
        let mode = libc::S_IRUSR | libc::S_IWUSR;
        // SAFETY: the name is NUL-terminated, and O_CREAT is followed by a mode and a value.
        let semaphore =
            unsafe { libc::sem_open(name.as_ptr(), libc::O_CREAT | libc::O_EXCL, mode, value) };
        let semaphore = NonNull::new(semaphore)
            .ok_or_else(Errno::last)
            .with_context(|| format!("cannot create the semaphore {name:?}"))?;
        let semaphore = Self(semaphore);
        // SAFETY: the name is NUL-terminated.
        Errno::result(unsafe { libc::sem_unlink(name.as_ptr()) })
            .with_context(|| format!("cannot remove the semaphore {name:?}"))?;
        Ok(semaphore)
    }

    fn wait(&self) -> Result<()> {
        loop {
            // SAFETY: the semaphore is open as long as self.
            match Errno::result(unsafe { libc::sem_wait(self.0.as_ptr()) }) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error).context("cannot wait for a semaphore"),
            }
        }
    }

    fn post(&self) -> Result<()> {
        // SAFETY: the semaphore is open as long as self.
        Errno::result(unsafe { libc::sem_post(self.0.as_ptr()) })
            .context("cannot post a semaphore")?;
        Ok(())
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        // SAFETY: it was opened once and is closed once. The call cannot fail with a valid semaphore.
        unsafe { libc::sem_close(self.0.as_ptr()) };
    }
}

struct BufferSender(Buffer);

impl Sender for BufferSender {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.0.put(message)
    }
}

impl Drop for BufferSender {
    /// An empty message marks the end. If the receiver misses it, the harness kills the receiver.
    fn drop(&mut self) {
        let _ = self.0.put(&[]);
    }
}

struct BufferReceiver {
    buffer: Buffer,
    ended: bool,
}

impl Receiver for BufferReceiver {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        if self.ended {
            return Ok(0);
        }
        let len = self.buffer.get(message)?;
        self.ended = len == 0;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_remains_while_the_buffer_is_used() {
        let buffer = Buffer::new(64).unwrap();
        let prefix = format!("sluice-bench-{}-", std::process::id());
        let names = std::fs::read_dir(DIRECTORY).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let left: Vec<_> = names.filter(|name| name.contains(&prefix)).collect();
        assert!(left.is_empty(), "{left:?}");
        buffer.put(b"it works").unwrap();
        assert_eq!(buffer.get(&mut [0; 64]).unwrap(), 8);
    }

    #[test]
    fn a_size_beyond_the_memory_is_unsupported() {
        assert!(too_little_memory(1 << 40).unwrap().contains(DIRECTORY));
        assert_eq!(too_little_memory(64), None);
    }

    #[test]
    fn the_layout_is_that_of_the_structures() {
        let layout = Layout::of(5);
        assert_eq!((layout.len_at, layout.message), (8, 12));
        assert_eq!((layout.head(), layout.tail()), (12288, 12292));
        assert_eq!(layout.len(), 12296);
    }
}
