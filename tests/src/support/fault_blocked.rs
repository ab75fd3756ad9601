// SPDX-License-Identifier: MIT OR Apache-2.0
//! A child blocked in a page fault in the middle of a system call until the test resolves the fault: with
//! userfaultfd(2) user space resolves faults, including those of the kernel's copies.

use std::os::fd::BorrowedFd;

use anyhow::{Context, Result, bail, ensure};
use serde::{Serialize, de::DeserializeOwned};

use super::child::{Child, spawn_keeping};
use super::event::Event;
use super::memory::{Mapping, PAGE};
use super::proc::Call;
use super::time::Deadline;
use super::userfault::UserFault;

/// Resident pages, followed by one whose first access blocks until `resume`.
pub struct FaultingBuffer {
    mapping: Mapping,
    faults: UserFault,
}

impl FaultingBuffer {
    fn new(ready_pages: usize) -> Result<Self> {
        let faults = UserFault::open()?;
        let mapping = Mapping::new(ready_pages + 1)?;
        for page in 0..ready_pages {
            // SAFETY: within our own mapping.
            unsafe { mapping.start().add(page * PAGE).write_volatile(0) };
        }
        let slow = mapping.start().wrapping_add(ready_pages * PAGE);
        faults.watch(slow, PAGE)?;
        Ok(FaultingBuffer { mapping, faults })
    }

    pub fn start(&self) -> *mut u8 {
        self.mapping.start()
    }

    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// The content of the buffer; only after the fault.
    pub fn to_vec(&self, count: usize) -> Vec<u8> {
        assert!(count <= self.len(), "the buffer has fewer bytes");
        // SAFETY: our own readable memory, which is not written meanwhile.
        unsafe { std::slice::from_raw_parts(self.start(), count) }.to_vec()
    }

    fn wait_fault(&self) -> Result<*mut u8> {
        let deadline = Deadline::for_event();
        self.faults
            .next(&deadline)?
            .with_context(|| format!("no page fault within {:?}", deadline.span()))
    }
}

/// A child whose buffer has a missing page.
pub struct Faulting<T> {
    what: String,
    child: Child<T>,
    faulted: Event,
    resume: Event,
}

/// A child blocked in a page fault.
pub struct FaultBlocked<T> {
    child: Child<T>,
    resume: Event,
}

/// The content of the missing page after the fault.
pub const FAULT_BYTE: u8 = 0x5a;

/// Runs `body` in a child with a buffer of `ready_pages` resident pages and a missing one, and returns once the child
/// is blocked in the fault.
pub fn spawn_fault_blocked<T, F>(what: &str, ready_pages: usize, body: F) -> Result<FaultBlocked<T>>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce(&FaultingBuffer) -> Result<T>,
{
    spawn_fault_blocked_keeping(what, &[], ready_pages, body)
}

/// As `spawn_fault_blocked`, with the files in `keep` open in the child.
pub fn spawn_fault_blocked_keeping<T, F>(
    what: &str,
    keep: &[BorrowedFd],
    ready_pages: usize,
    body: F,
) -> Result<FaultBlocked<T>>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce(&FaultingBuffer) -> Result<T>,
{
    spawn_faulting_keeping(what, keep, ready_pages, body)?.wait_blocked()
}

/// As `spawn_fault_blocked_keeping`, but returns before the fault.
pub fn spawn_faulting_keeping<T, F>(
    what: &str,
    keep: &[BorrowedFd],
    ready_pages: usize,
    body: F,
) -> Result<Faulting<T>>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce(&FaultingBuffer) -> Result<T>,
{
    let content = |_: *mut u8| [FAULT_BYTE; PAGE];
    spawn_faulting_with(what, keep, ready_pages, content, body)
}

/// As `spawn_faulting_keeping`; after the fault the missing page has the content that `content` returns for its address.
pub fn spawn_faulting_with<T, F>(
    what: &str,
    keep: &[BorrowedFd],
    ready_pages: usize,
    content: impl FnOnce(*mut u8) -> [u8; PAGE],
    body: F,
) -> Result<Faulting<T>>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce(&FaultingBuffer) -> Result<T>,
{
    UserFault::open()?;
    let faulted = Event::new()?;
    let resume = Event::new()?;
    let keep = [keep, &faulted.fds(), &resume.fds()].concat();
    let child = spawn_keeping(what, &keep, || {
        let buffer = FaultingBuffer::new(ready_pages)?;
        let content = content(buffer.start().wrapping_add(ready_pages * PAGE));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                answer_fault(&buffer, &faulted, &resume, &content).expect("the fault is resolved")
            });
            body(&buffer)
        })
    })?;
    Ok(Faulting {
        what: what.to_owned(),
        child,
        faulted,
        resume,
    })
}

impl<T: Serialize + DeserializeOwned> Faulting<T> {
    pub fn wait_asleep_in(&self, call: Call) -> Result<()> {
        self.child.wait_asleep_in(call)
    }

    pub fn wait_blocked(self) -> Result<FaultBlocked<T>> {
        let Faulting {
            what,
            child,
            faulted,
            resume,
        } = self;
        if let Err(error) = faulted.wait(&format!("{what}: takes its page fault")) {
            if child.has_ended()? {
                child
                    .finish()
                    .context("the child ended instead of faulting")?;
                bail!("{what}: returned without touching its buffer");
            }
            return Err(error);
        }
        Ok(FaultBlocked { child, resume })
    }
}

fn answer_fault(
    buffer: &FaultingBuffer,
    faulted: &Event,
    resume: &Event,
    content: &[u8; PAGE],
) -> Result<()> {
    let page = buffer.wait_fault()?;
    faulted.notify()?;
    resume.wait("the test resolves the fault")?;
    buffer.faults.fill(page, content)
}

impl<T: Serialize + DeserializeOwned> FaultBlocked<T> {
    /// Resolves the fault and returns the result of the child.
    pub fn resume(self) -> Result<T> {
        self.resume.notify()?;
        self.child.finish()
    }

    pub fn kill(self) -> Result<()> {
        self.child.kill()
    }

    pub fn expect_still_blocked(&self) -> Result<()> {
        ensure!(
            !self.child.has_ended()?,
            "the child left its page fault by itself"
        );
        Ok(())
    }
}
