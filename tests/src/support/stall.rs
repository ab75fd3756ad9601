// SPDX-License-Identifier: MIT OR Apache-2.0
//! A child that is stopped inside a page fault in the middle of a system call, for as long as the test wants:
//! userfaultfd(2) lets user space answer faults, even those that the kernel takes while it copies.

use anyhow::{Context, Result, bail, ensure};
use serde::{Serialize, de::DeserializeOwned};

use super::child::{Child, spawn_keeping};
use super::memory::{Mapping, PAGE};
use super::notice::Notice;
use super::time::Deadline;
use super::userfault::UserFault;

/// Pages that are there, and behind them one whose first touch waits until `resolve`.
pub struct SlowBuffer {
    mapping: Mapping,
    faults: UserFault,
}

impl SlowBuffer {
    fn new(ready_pages: usize) -> Result<Self> {
        let faults = UserFault::open()?;
        let mapping = Mapping::new(ready_pages + 1)?;
        for page in 0..ready_pages {
            // SAFETY: within our own mapping.
            unsafe { mapping.start().add(page * PAGE).write_volatile(0) };
        }
        let slow = mapping.start().wrapping_add(ready_pages * PAGE);
        faults.watch(slow, PAGE)?;
        Ok(SlowBuffer { mapping, faults })
    }

    pub fn start(&self) -> *mut u8 {
        self.mapping.start()
    }

    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// What the buffer holds; only once nothing faults any more.
    pub fn to_vec(&self, count: usize) -> Vec<u8> {
        assert!(count <= self.len(), "the buffer has fewer bytes");
        // SAFETY: readable memory of ours that nobody writes meanwhile.
        unsafe { std::slice::from_raw_parts(self.start(), count) }.to_vec()
    }

    fn wait_fault(&self) -> Result<*mut u8> {
        let deadline = Deadline::for_event();
        self.faults
            .next(&deadline)?
            .with_context(|| format!("no page fault within {:?}", deadline.span()))
    }
}

/// A child in a page fault.
pub struct Stalled<T> {
    child: Child<T>,
    resume: Notice,
}

/// The byte that the slow page turns out to hold.
pub const SLOW_BYTE: u8 = 0x5a;

/// Runs `body` in a child with a buffer of `ready_pages` pages and a slow one behind them, and returns once the child
/// is in the fault.
pub fn spawn_stalled<T, F>(what: &str, ready_pages: usize, body: F) -> Result<Stalled<T>>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce(&SlowBuffer) -> Result<T>,
{
    UserFault::open()?;
    let faulted = Notice::new()?;
    let resume = Notice::new()?;
    let keep = [faulted.fds(), resume.fds()].concat();
    let child = spawn_keeping(what, &keep, || {
        let buffer = SlowBuffer::new(ready_pages)?;
        std::thread::scope(|scope| {
            scope
                .spawn(|| answer_fault(&buffer, &faulted, &resume).expect("the fault is answered"));
            body(&buffer)
        })
    })?;
    if let Err(error) = faulted.wait(&format!("{what}: takes its page fault")) {
        if child.has_ended()? {
            child
                .finish()
                .context("the child ended instead of faulting")?;
            bail!("{what}: returned without touching its buffer");
        }
        return Err(error);
    }
    Ok(Stalled { child, resume })
}

fn answer_fault(buffer: &SlowBuffer, faulted: &Notice, resume: &Notice) -> Result<()> {
    let page = buffer.wait_fault()?;
    faulted.give()?;
    resume.wait("the test lets the fault end")?;
    buffer.faults.fill(page, &[SLOW_BYTE; PAGE])
}

impl<T: Serialize + DeserializeOwned> Stalled<T> {
    /// Ends the fault and returns what the child returns.
    pub fn resume(self) -> Result<T> {
        self.resume.give()?;
        self.child.finish()
    }

    pub fn kill(self) -> Result<()> {
        self.child.kill()
    }

    pub fn expect_still_stalled(&self) -> Result<()> {
        ensure!(
            !self.child.has_ended()?,
            "the child left its page fault by itself"
        );
        Ok(())
    }
}
