// SPDX-License-Identifier: MIT OR Apache-2.0
//! A System V message queue with the default capacity. An empty message marks the end. A queue outlives its processes,
//! so the receiver removes it, which also makes the sender fail; the process that created the links removes the queues
//! of killed receivers. Only a killed benchmark leaves queues for ipcrm(1).

use std::cell::RefCell;
use std::os::fd::BorrowedFd;

use anyhow::{Context, Result};
use libc::{c_int, c_long};
use nix::errno::Errno;

use super::{Link, Mechanism, Receiver, Sender, Task, Waiting, no_file, sysctl};

const MAX_BYTES: [&str; 2] = ["kernel.msgmax", "kernel.msgmnb"];
/// The type that precedes every message; any positive value will do.
const TYPE: [u8; size_of::<c_long>()] = (1 as c_long).to_ne_bytes();

#[derive(Default)]
pub struct SysvMq {
    /// All queues that were created; most have been removed by the time of the drop.
    created: RefCell<Vec<Id>>,
}

impl Mechanism for SysvMq {
    fn name(&self) -> &'static str {
        "sysv-mq"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    fn unsupported_reason(&self, task: &Task) -> Option<String> {
        no_file(task).or_else(|| sysctl::unsupported_reason(&MAX_BYTES, task.size))
    }

    fn link(&self, size: usize) -> Result<Box<dyn Link>> {
        let id = Id::new()?;
        self.created.borrow_mut().push(id);
        Ok(Box::new(Queue { id, size }))
    }
}

impl Drop for SysvMq {
    fn drop(&mut self) {
        self.created.borrow().iter().for_each(|id| id.remove());
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

struct Queue {
    id: Id,
    size: usize,
}

impl Link for Queue {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        let buffer = Vec::with_capacity(TYPE.len() + self.size);
        Ok(Box::new(Input {
            id: self.id,
            buffer,
        }))
    }

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
        let buffer = vec![0; TYPE.len() + self.size];
        Ok(Box::new(Output {
            id: self.id,
            buffer,
        }))
    }
}

struct Input {
    id: Id,
    /// The kernel takes a message and its type in one piece.
    buffer: Vec<u8>,
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

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
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

impl Receiver for Output {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let space = self.buffer.len() - TYPE.len();
        // SAFETY: the buffer has space for the type and this number of bytes after it.
        let n = unsafe { libc::msgrcv(self.id.0, self.buffer.as_mut_ptr().cast(), space, 0, 0) };
        let n = Errno::result(n).context("cannot receive a message")? as usize;
        message[..n].copy_from_slice(&self.buffer[TYPE.len()..][..n]);
        Ok(n)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
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
        let mechanism = SysvMq::default();
        let links = [mechanism.link(10).unwrap(), mechanism.link(10).unwrap()];
        let ids = mechanism.created.borrow().clone();
        drop(links);
        assert!(ids.len() == 2 && ids.iter().all(|&id| exists(id)));
        drop(mechanism);
        assert!(!ids.iter().any(|&id| exists(id)));
    }

    #[test]
    fn dropping_the_receiver_removes_the_queue_and_fails_the_sender() {
        let id = Id::new().unwrap();
        let mut sender = Box::new(Queue { id, size: 1 }).sender().unwrap();
        let receiver = Box::new(Queue { id, size: 1 }).receiver().unwrap();
        sender.send(b"a").unwrap();
        drop(receiver);
        assert!(!exists(id));
        assert!(sender.send(b"b").is_err());
    }
}
