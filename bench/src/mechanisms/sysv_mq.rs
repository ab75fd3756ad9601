// SPDX-License-Identifier: MIT OR Apache-2.0
//! A System V message queue with the default capacity. An empty message marks the end. A queue outlives its processes,
//! so the receiver removes it, which also makes the sender fail; the process that created the links removes the queues
//! of killed receivers. Only a killed benchmark leaves queues for ipcrm(1).

use std::cell::RefCell;

use anyhow::{Context, Result};
use libc::{c_int, c_long};
use nix::errno::Errno;

use super::mechanism::no_file;
use super::{Link, Mechanism, Receiver, Sender, sysctl};
use crate::harness::waiting::Waiting;

const MAX_BYTES: [&str; 2] = ["kernel.msgmax", "kernel.msgmnb"];
/// The type that precedes every message; any positive value will do.
const TYPE: [u8; size_of::<c_long>()] = (1 as c_long).to_ne_bytes();

pub fn mechanism() -> Mechanism {
    let queues = Queues::default();
    Mechanism {
        unsupported_reason: Box::new(|task| {
            no_file(task).or_else(|| sysctl::unsupported_reason(&MAX_BYTES, task.size))
        }),
        ..Mechanism::new("sysv-mq", Waiting::Sleep, move |size| queues.link(size))
    }
}

/// All queues that were created; most have been removed by the time of the drop.
#[derive(Default)]
struct Queues(RefCell<Vec<Id>>);

impl Queues {
    fn link(&self, size: usize) -> Result<Link> {
        let id = Id::new()?;
        self.0.borrow_mut().push(id);
        Ok(Link::new(
            id,
            move |id| Ok(Input::new(id, size)),
            move |id| Ok(Output::new(id, size)),
        ))
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        self.0.borrow().iter().for_each(|id| id.remove());
    }
}

#[derive(Clone, Copy)]
struct Id(c_int);

impl Id {
    fn new() -> Result<Self> {
        // SAFETY: msgget takes and returns plain numbers.
        let id = unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600) };
        Ok(Self(Errno::result(id).context(
            "cannot create a System V message queue; remove unused ones with ipcrm, or raise kernel.msgmni",
        )?))
    }

    fn remove(self) {
        // An error means that it has been removed. SAFETY: IPC_RMID takes no buffer.
        unsafe { libc::msgctl(self.0, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

struct Input {
    id: Id,
    /// The kernel takes a message and its type in one piece.
    buffer: Vec<u8>,
}

impl Input {
    fn new(id: Id, size: usize) -> Self {
        let buffer = Vec::with_capacity(TYPE.len() + size);
        Self { id, buffer }
    }
}

impl Sender for Input {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.buffer.clear();
        self.buffer.extend_from_slice(&TYPE);
        self.buffer.extend_from_slice(message);
        // SAFETY: the buffer holds the type and `len` bytes after it.
        let sent =
            unsafe { libc::msgsnd(self.id.0, self.buffer.as_ptr().cast(), message.len(), 0) };
        Errno::result(sent).context("cannot send a message")?;
        Ok(())
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // An error means that the receiver has removed the queue.
        let _ = self.send(&[]);
    }
}

struct Output {
    id: Id,
    buffer: Vec<u8>,
}

impl Output {
    fn new(id: Id, size: usize) -> Self {
        let buffer = vec![0; TYPE.len() + size];
        Self { id, buffer }
    }
}

impl Receiver for Output {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let space = self.buffer.len() - TYPE.len();
        // SAFETY: the buffer has space for the type and this number of bytes after it.
        let n = unsafe { libc::msgrcv(self.id.0, self.buffer.as_mut_ptr().cast(), space, 0, 0) };
        let n = Errno::result(n).context("cannot receive a message")? as usize;
        message[..n].copy_from_slice(&self.buffer[TYPE.len()..][..n]);
        Ok(n)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.id.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exists(id: Id) -> bool {
        // SAFETY: a zeroed msqid_ds is valid, and the kernel writes one.
        unsafe { libc::msgctl(id.0, libc::IPC_STAT, &mut std::mem::zeroed()) == 0 }
    }

    #[test]
    fn queues_of_killed_processes_are_removed() {
        let queues = Queues::default();
        let links = [queues.link(10).unwrap(), queues.link(10).unwrap()];
        let ids = queues.0.borrow().clone();
        drop(links);
        assert!(ids.len() == 2 && ids.iter().all(|&id| exists(id)));
        drop(queues);
        assert!(!ids.iter().any(|&id| exists(id)));
    }

    #[test]
    fn dropping_the_receiver_removes_the_queue_and_fails_the_sender() {
        let id = Id::new().unwrap();
        let (mut sender, receiver) = (Input::new(id, 1), Output::new(id, 1));
        sender.send(b"a").unwrap();
        drop(receiver);
        assert!(!exists(id));
        assert!(sender.send(b"b").is_err());
    }
}
