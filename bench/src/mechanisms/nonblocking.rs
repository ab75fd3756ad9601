// SPDX-License-Identifier: MIT OR Apache-2.0
//! pipe(2) and a socketpair(2) of AF_UNIX stream sockets, both ends with O_NONBLOCK and polled all the time: a system
//! call for each look, but no sleep and no wake-up. Beside the mechanisms that spin in shared memory.

use std::fs::File;
use std::hint::spin_loop;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::mechanism::never_sleeping;
use super::{Link, Mechanism, Receiver, Sender, pipe};
use crate::harness::waiting::Waiting;

pub fn of_pipe() -> Mechanism {
    mechanism("pipe-nonblock", || {
        let (receiver, sender) = pipe::pipe()?;
        link(receiver, sender)
    })
}

pub fn of_unix_stream() -> Mechanism {
    mechanism("unix-nonblock", || {
        let (receiver, sender) = UnixStream::pair().context("cannot create a socket pair")?;
        link(receiver.into(), sender.into())
    })
}

fn mechanism(name: &'static str, link: impl Fn() -> Result<Link> + 'static) -> Mechanism {
    Mechanism {
        unsupported_reason: Box::new(never_sleeping),
        ..Mechanism::new(name, Waiting::Spin, move |_| link())
    }
}

fn link(receiver: OwnedFd, sender: OwnedFd) -> Result<Link> {
    for end in [&receiver, &sender] {
        fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).context("cannot set O_NONBLOCK")?;
    }
    Ok(Link::new(
        (receiver, sender),
        |(_, sender)| Ok(PollingSender(sender.into())),
        |(receiver, _)| Ok(PollingReceiver(receiver.into())),
    ))
}

/// Repeats the call until it does not have to wait.
fn poll(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => spin_loop(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

struct PollingSender(File);

impl Sender for PollingSender {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let mut sent = 0;
        while sent < message.len() {
            let written = poll(|| self.0.write(&message[sent..]));
            sent += written.context("cannot write a message")?;
        }
        Ok(())
    }
}

struct PollingReceiver(File);

impl Receiver for PollingReceiver {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < message.len() {
            match poll(|| self.0.read(&mut message[filled..])).context("cannot read a message")? {
                0 => break,
                n => filled += n,
            }
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_wait_without_sleeping_until_all_is_transferred() {
        // More than either holds, so that the sender has to wait as well.
        let sent: Vec<u8> = (0..3 << 20).map(|at| (at % 251) as u8).collect();
        let (pipe_receiver, pipe_sender) = pipe::pipe().unwrap();
        let (socket_receiver, socket_sender) = UnixStream::pair().unwrap();
        for (receiver, sender) in [
            (pipe_receiver, pipe_sender),
            (socket_receiver.into(), socket_sender.into()),
        ] {
            for end in [&receiver, &sender] {
                fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
            }
            let mut receiver = PollingReceiver(receiver.into());
            let bytes = sent.clone();
            let sending = std::thread::spawn(move || PollingSender(sender.into()).send(&bytes));
            let mut received = vec![0; sent.len()];
            assert_eq!(receiver.receive(&mut received).unwrap(), sent.len());
            assert!(received == sent);
            sending.join().unwrap().unwrap();
            assert_eq!(receiver.receive(&mut received).unwrap(), 0);
        }
    }
}
