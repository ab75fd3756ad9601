// SPDX-License-Identifier: MIT OR Apache-2.0
//! One pair of files for each receiver: a pipe(2) that is written for each receiver, or written once and duplicated with tee(2); or
//! AF_UNIX sockets. Pipes and send buffers are enlarged so that a burst fits.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::mem::take;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice, tee};
use nix::sys::socket::SockType;

use super::channel::{CAPACITY, Create, End, Visit};
use super::conditions::Conditions;
use crate::mechanisms::pipe::large_pipe;
use crate::mechanisms::stream::Ends;
use crate::mechanisms::unix_socket::large_pair;

/// The kernel counts the memory of a message, which is several times as much as the bytes of a short one.
const SEND_BUFFER: usize = 4 * CAPACITY;

pub fn pipe() -> Result<Ends> {
    large_pipe(CAPACITY)
}

pub fn socket_pair(kind: SockType) -> Result<Ends> {
    large_pair(kind, SEND_BUFFER)
}

/// Fails if this process cannot have pipes or buffers of the needed size. A stream may be read in parts of messages.
pub fn of_pairs(
    pair: impl Fn() -> Result<Ends> + 'static,
    sender: fn(Vec<File>) -> Result<End>,
    is_stream: bool,
) -> Result<Create> {
    pair()?;
    Ok(Rc::new(move |conditions: &Conditions| {
        let (mut receiving, mut sending) = (Vec::new(), Vec::new());
        for _ in 0..conditions.receivers {
            let (from, to) = pair()?;
            if !conditions.blocks() {
                let set = fcntl(&from, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
                set.context("cannot set O_NONBLOCK")?;
            }
            receiving.push(File::from(from));
            sending.push(File::from(to));
        }
        let size = conditions.size;
        let least = if is_stream { size } else { 1 };
        Ok(Box::new(move |number| match number {
            None => sender(sending),
            Some(number) => receiver(receiving.swap_remove(number), size, least),
        }))
    }))
}

pub fn to_each(mut files: Vec<File>) -> Result<End> {
    End::sender(move |message| {
        let mut files = files.iter_mut();
        let sent = files.try_for_each(|file| file.write_all(message));
        sent.context("cannot send a message")
    })
}

/// Writes each message once. The pipes of the receivers get references to its pages, the last one by a move.
pub fn duplicate(pipes: Vec<File>) -> Result<End> {
    let (from, to) = pipe()?;
    let mut to = File::from(to);
    End::sender(move |message| {
        let size = message.len();
        to.write_all(message).context("cannot send a message")?;
        let (last, others) = pipes.split_last().context("there is no receiver")?;
        for pipe in others {
            let copied = tee(&from, pipe, size, SpliceFFlags::empty());
            expect_all(copied.context("cannot tee a message")?, size)?;
        }
        let moved = splice(&from, None, last, None, size, SpliceFFlags::empty());
        expect_all(moved.context("cannot splice a message")?, size)
    })
}

fn expect_all(moved: usize, size: usize) -> Result<()> {
    ensure!(moved == size, "{moved} of {size} bytes fit into a pipe");
    Ok(())
}

/// Reads messages of at most this size, each with one call or, if a part of it may arrive first, until it has `least` bytes.
pub fn receiver(mut file: File, size: usize, least: usize) -> Result<End> {
    let mut message = vec![0; size];
    let mut filled = 0;
    End::receiver(move |visit: Visit| {
        while filled < least {
            match file.read(&mut message[filled..]) {
                Ok(length) => {
                    ensure!(length > 0, "the sender closed its end unexpectedly");
                    filled += length;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error).context("cannot receive a message"),
            }
        }
        visit(&message[..take(&mut filled)])?;
        Ok(true)
    })
}
