// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real-time signal with a value: sigqueue(3) to sigwaitinfo(2). A value carries a byte, or says that nothing more will
//! come. Nobody can sleep until there is room for one more signal, so it is only good for question and answer.

use std::fs::File;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr::without_provenance_mut;

use anyhow::{Context, Result, ensure};
use libc::{c_int, pid_t, sigval};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::SigSet;
use nix::unistd::{getpid, pipe2};

use super::{Link, Mechanism, Receiver, Sender, Shape, Task, Waiting};

/// In place of a byte: nothing more will come.
const END: usize = 0x100;

pub struct Signal;

impl Mechanism for Signal {
    fn name(&self) -> &'static str {
        "signal"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    fn obstacle(&self, task: &Task) -> Option<String> {
        (task.size > 1 || task.shape != Shape::Question).then(|| {
            "it carries single bytes, and a sender cannot wait for room in the queue of signals"
                .into()
        })
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        let (output, input) = pipe2(OFlag::O_CLOEXEC).context("cannot make a pipe")?;
        Ok(Box::new(Introduction {
            output: output.into(),
            input: input.into(),
        }))
    }
}

/// A signal goes to a process, which is only known when it has been forked: here the receiver says which it is.
struct Introduction {
    output: File,
    input: File,
}

impl Link for Introduction {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        let Self { mut output, input } = *self;
        // Or this process would wait for itself if the receiver died.
        drop(input);
        let mut receiver = pid_t::default().to_ne_bytes();
        output
            .read_exact(&mut receiver)
            .context("the receiver ended before it said which process it is")?;
        Ok(Box::new(Input {
            receiver: pid_t::from_ne_bytes(receiver),
        }))
    }

    fn receiver(mut self: Box<Self>) -> Result<Box<dyn Receiver>> {
        let output = Output { awaited: awaited() };
        // What is not blocked when it comes ends the process.
        output.awaited.thread_block()?;
        self.input.write_all(&getpid().as_raw().to_ne_bytes())?;
        Ok(Box::new(output))
    }
}

fn number() -> c_int {
    libc::SIGRTMIN()
}

fn awaited() -> SigSet {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call makes a whole set, to which the second adds a signal that exists.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), number());
        SigSet::from_sigset_t_unchecked(set.assume_init())
    }
}

struct Input {
    receiver: pid_t,
}

impl Input {
    fn put(&self, content: usize) -> Result<()> {
        let value = sigval {
            sival_ptr: without_provenance_mut(content),
        };
        // SAFETY: a signal to another process touches no memory of this one.
        let sent = unsafe { libc::sigqueue(self.receiver, number(), value) };
        Errno::result(sent).context("cannot queue a signal")?;
        Ok(())
    }
}

impl Sender for Input {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        ensure!(
            message.len() == 1,
            "a signal carries messages of 1 byte, not of {}",
            message.len()
        );
        self.put(message[0].into())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // An error here means that no receiver is left to be told.
        let _ = self.put(END);
    }
}

struct Output {
    awaited: SigSet,
}

impl Receiver for Output {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let mut info = MaybeUninit::uninit();
        // SAFETY: both are valid for as long as the call takes.
        let got = unsafe { libc::sigwaitinfo(self.awaited.as_ref(), info.as_mut_ptr()) };
        Errno::result(got).context("cannot wait for a signal")?;
        // SAFETY: the call succeeded, so the kernel has filled it in; what sigqueue sends has a value.
        let content = unsafe { info.assume_init().si_value() }.sival_ptr.addr();
        if content == END {
            return Ok(0);
        }
        message[0] = content as u8;
        Ok(1)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_other_sizes_are_refused() {
        // It would go to nobody: no process has this number.
        let mut sender = Input {
            receiver: pid_t::MAX,
        };
        let error = sender.send(b"two").unwrap_err().to_string();
        assert!(error.contains("not of 3"), "{error}");
    }
}
