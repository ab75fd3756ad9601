// SPDX-License-Identifier: MIT OR Apache-2.0
//! A child blocked in a page fault in the middle of a system call until the test resolves the fault: with userfaultfd(2)
//! or FUSE, user space resolves faults, including those of the kernel's copies.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use serde::{Serialize, de::DeserializeOwned};

use super::child::{Child, spawn_keeping};
use super::event::Event;
use super::fuse;
use super::memory::{Mapping, PAGE};
use super::proc::Call;
use super::time::{Deadline, eventually};
use super::userfault::UserFault;

/// What makes the access to a page wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    Userfaultfd,
    /// A page of a file, which a FUSE server provides.
    FuseRead,
    /// A page that is present, while it is written back to a FUSE server. Only writes to it wait.
    FuseWriteback,
}

/// Resident pages, followed by one whose first access blocks until `resume`.
pub struct FaultingBuffer(Mapping);

impl FaultingBuffer {
    fn make_resident(&self) {
        for at in (0..self.len() - PAGE).step_by(PAGE) {
            // SAFETY: within our own mapping.
            unsafe { self.start().add(at).write_volatile(0) };
        }
    }

    fn slow_page(&self) -> *mut u8 {
        self.start().wrapping_add(self.len() - PAGE)
    }

    /// Makes it read-only until the server has answered the request to write it.
    fn write_back(&self, file: &File) -> Result<()> {
        let page = self.slow_page();
        // SAFETY: our own page, to which no reference exists.
        unsafe { page.write_volatile(page.read_volatile()) };
        let (fd, flags) = (file.as_raw_fd(), libc::SYNC_FILE_RANGE_WRITE);
        // SAFETY: takes numbers only.
        let ret = unsafe { libc::sync_file_range(fd, 0, 0, flags) };
        Errno::result(ret).context("writing a page back").map(drop)
    }

    pub fn start(&self) -> *mut u8 {
        self.0.start()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The content of the buffer; only after the fault.
    pub fn to_vec(&self, count: usize) -> Vec<u8> {
        assert!(count <= self.len(), "the buffer has fewer bytes");
        // SAFETY: our own readable memory, which is not written meanwhile.
        unsafe { std::slice::from_raw_parts(self.start(), count) }.to_vec()
    }
}

/// A child whose buffer has a missing page.
pub struct Faulting<T> {
    what: String,
    fuse: Option<(Child<()>, File)>,
    child: Child<T>,
    faulted: Event,
    resume: Event,
}

/// A child blocked in a page fault.
pub struct FaultBlocked<T> {
    /// The server ends first, because only that ends some waits.
    fuse: Option<(Child<()>, File)>,
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
    spawn_faulting_with(
        what,
        Provider::Userfaultfd,
        keep,
        ready_pages,
        content,
        body,
    )
}

/// As `spawn_faulting_keeping`; after the fault the missing page has the content that `content` returns for its address.
pub fn spawn_faulting_with<T, F>(
    what: &str,
    provider: Provider,
    keep: &[BorrowedFd],
    ready_pages: usize,
    content: impl FnOnce(*mut u8) -> [u8; PAGE],
    body: F,
) -> Result<Faulting<T>>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce(&FaultingBuffer) -> Result<T>,
{
    let faulted = Event::new()?;
    let resume = Event::new()?;
    let buffer = FaultingBuffer(Mapping::new(ready_pages + 1)?);
    let content = content(buffer.slow_page());
    let serve = |held| fuse::serve(&content, held, &faulted, &resume).map(Some);
    let fuse = match provider {
        Provider::Userfaultfd => UserFault::open().map(|_| None),
        Provider::FuseRead => serve(fuse::READ),
        Provider::FuseWriteback => serve(fuse::WRITE),
    }?;
    let mut keep = [keep, &faulted.fds(), &resume.fds()].concat();
    keep.extend(fuse.iter().map(|(_, file)| file.as_fd()));
    let child = spawn_keeping(what, &keep, || {
        buffer.make_resident();
        if let Some((_, file)) = &fuse {
            buffer.0.map_last_page(file)?;
            if provider == Provider::FuseWriteback {
                buffer.write_back(file)?;
            }
            return body(&buffer);
        }
        let faults = UserFault::open()?;
        faults.watch(buffer.slow_page(), PAGE)?;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                answer_fault(&faults, &faulted, &resume, &content).expect("the fault is resolved")
            });
            body(&buffer)
        })
    })?;
    Ok(Faulting {
        what: what.to_owned(),
        fuse,
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
            fuse,
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
        Ok(FaultBlocked {
            fuse,
            child,
            resume,
        })
    }
}

fn answer_fault(
    faults: &UserFault,
    faulted: &Event,
    resume: &Event,
    content: &[u8; PAGE],
) -> Result<()> {
    let deadline = Deadline::for_event();
    let page = faults
        .next(&deadline)?
        .with_context(|| format!("no page fault within {:?}", deadline.span()))?;
    faulted.notify()?;
    resume.wait("the test resolves the fault")?;
    faults.fill(page, content)
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

    /// Kills the FUSE server instead, and returns the result of the child.
    pub fn kill_server(self) -> Result<T> {
        let (server, _file) = self.fuse.context("there is no server")?;
        server.kill()?;
        self.child.finish()
    }

    /// Waits until the child waits for the writeback of its page, or has a result; returns whether it waits. `None` if it
    /// waits outside of the tested call, because the writeback has begun before that call.
    pub fn waits_for_write(&self) -> Result<Option<bool>> {
        let stack = format!("/proc/{}/stack", self.child.pid());
        eventually("it waits for a page or has a result", || {
            if self.child.has_reported()? {
                return Ok(Some(Some(false)));
            }
            let stack = fs::read_to_string(&stack).context("reading the stack of a process")?;
            let is_in_call = stack.contains("[sluice]").then_some(true);
            Ok(stack.contains("fuse_page_mkwrite").then_some(is_in_call))
        })
    }

    /// Sends SIGKILL to the child, and does not wait for its end: nothing interrupts a wait for writeback.
    pub fn abandon(self) -> Result<()> {
        self.child.signal(Signal::SIGKILL)
    }

    pub fn expect_still_blocked(&self) -> Result<()> {
        ensure!(
            !self.child.has_ended()?,
            "the child left its page fault by itself"
        );
        Ok(())
    }
}
