// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real-time signal with a value: sigqueue(3) and sigwaitinfo(2). The value carries one byte or the end of the
//! stream. A sender cannot sleep until the queue has space, so only request and reply are supported.

use std::fs::File;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::ptr::without_provenance_mut;

use anyhow::{Context, Result, ensure};
use libc::{c_int, pid_t, sigval};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::SigSet;
use nix::unistd::{getpid, pipe2};

use super::{Link, Mechanism, Receiver, Sender, Workload};
use crate::harness::waiting::Waiting;

/// The end of the stream.
const END: usize = 0x100;

pub fn mechanism() -> Mechanism {
    Mechanism {
        unsupported_reason: Box::new(|task| {
            (task.size > 1 || task.workload != Workload::RequestReply).then(|| {
                "it carries single bytes, and a sender cannot wait for space in the signal queue"
                    .into()
            })
        }),
        ..Mechanism::new("signal", Waiting::Sleep, |_| {
            // The receiver sends its process id, which is known only after the fork.
            let (output, input) = pipe2(OFlag::O_CLOEXEC).context("cannot create a pipe")?;
            let ids: (File, File) = (output.into(), input.into());
            Ok(Link::new(ids, sender, receiver))
        })
    }
}

fn sender((mut output, input): (File, File)) -> Result<Input> {
    // Otherwise the read below would not end if the receiver died.
    drop(input);
    let mut receiver = pid_t::default().to_ne_bytes();
    output
        .read_exact(&mut receiver)
        .context("the receiver ended before it sent its process id")?;
    Ok(Input {
        receiver: pid_t::from_ne_bytes(receiver),
    })
}

fn receiver((_, mut input): (File, File)) -> Result<Output> {
    let output = Output { awaited: awaited() };
    // An unblocked signal would kill the process.
    output.awaited.thread_block()?;
    input.write_all(&getpid().as_raw().to_ne_bytes())?;
    Ok(output)
}

fn number() -> c_int {
    libc::SIGRTMIN()
}

fn awaited() -> SigSet {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call initializes the set, and the second adds a valid signal.
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
        // SAFETY: a signal to another process accesses no memory of this one.
        let sent = unsafe { libc::sigqueue(self.receiver, number(), value) };
        Errno::result(sent).context("cannot queue a signal")?;
        Ok(())
    }
}

impl Sender for Input {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        ensure!(
            message.len() == 1,
            "a signal carries 1 byte, not {}",
            message.len()
        );
        self.put(message[0].into())
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // An error means that the receiver has ended.
        let _ = self.put(END);
    }
}

struct Output {
    awaited: SigSet,
}

impl Receiver for Output {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let mut info = MaybeUninit::uninit();
        // SAFETY: both pointers are valid during the call.
        let got = unsafe { libc::sigwaitinfo(self.awaited.as_ref(), info.as_mut_ptr()) };
        Errno::result(got).context("cannot wait for a signal")?;
        // SAFETY: the call succeeded, so the structure is initialized, and sigqueue sets a value.
        let content = unsafe { info.assume_init().si_value() }.sival_ptr.addr();
        if content == END {
            return Ok(0);
        }
        message[0] = content as u8;
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_other_sizes_are_rejected() {
        // No process has this id.
        let mut sender = Input {
            receiver: pid_t::MAX,
        };
        let error = sender.send(b"two").unwrap_err().to_string();
        assert!(error.contains("not 3"), "{error}");
    }
}
