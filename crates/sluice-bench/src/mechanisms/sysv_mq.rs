// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message queue of System V, which holds as many bytes as everyone's may. An empty message is the end. A queue outlives
//! its processes, so the receiver removes it, which also makes its sender fail; what a receiver that was killed leaves, the
//! process that made the links removes at the end. Only a benchmark that is killed itself leaves queues for ipcrm(1).

use std::cell::RefCell;
use std::os::fd::BorrowedFd;

use anyhow::{Context, Result};
use libc::{c_int, c_long};
use nix::errno::Errno;

use super::{Link, Mechanism, Receiver, Sender, Task, Waiting, no_file, sysctl};

const MOST_BYTES: [&str; 2] = ["kernel.msgmax", "kernel.msgmnb"];
/// The type that every message starts with; which one does not matter as long as it is positive.
const TYPE: [u8; size_of::<c_long>()] = (1 as c_long).to_ne_bytes();

#[derive(Default)]
pub struct SysvMq {
    /// Of all that were made; most are gone when it is.
    made: RefCell<Vec<Id>>,
}

impl Mechanism for SysvMq {
    fn name(&self) -> &'static str {
        "sysv-mq"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    fn obstacle(&self, task: &Task) -> Option<String> {
        no_file(task).or_else(|| sysctl::obstacle(&MOST_BYTES, task.size))
    }

    fn link(&self, size: usize) -> Result<Box<dyn Link>> {
        let id = Id::new()?;
        self.made.borrow_mut().push(id);
        Ok(Box::new(Queue { id, size }))
    }
}

impl Drop for SysvMq {
    fn drop(&mut self) {
        self.made.borrow().iter().for_each(|id| id.remove());
    }
}

#[derive(Clone, Copy)]
struct Id(c_int);

impl Id {
    fn new() -> Result<Self> {
        // SAFETY: msgget takes and gives plain numbers.
        let id = unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600) };
        Ok(Self(Errno::result(id).context(
            "cannot make a System V message queue; remove unused ones with ipcrm, or raise kernel.msgmni with sysctl",
        )?))
    }

    fn remove(self) {
        // An error here means that it was removed already. SAFETY: removing takes no buffer.
        unsafe { libc::msgctl(self.0, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

struct Queue {
    id: Id,
    size: usize,
}

impl Link for Queue {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        let envelope = Vec::with_capacity(TYPE.len() + self.size);
        Ok(Box::new(Input {
            id: self.id,
            envelope,
        }))
    }

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
        let envelope = vec![0; TYPE.len() + self.size];
        Ok(Box::new(Output {
            id: self.id,
            envelope,
        }))
    }
}

struct Input {
    id: Id,
    /// The kernel takes a message with its type before it, in one piece.
    envelope: Vec<u8>,
}

impl Sender for Input {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.envelope.clear();
        self.envelope.extend_from_slice(&TYPE);
        self.envelope.extend_from_slice(message);
        // SAFETY: behind the type the envelope holds as many bytes as are said.
        let sent =
            unsafe { libc::msgsnd(self.id.0, self.envelope.as_ptr().cast(), message.len(), 0) };
        Errno::result(sent).context("cannot send a message")?;
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // An error here means that the receiver has removed the queue.
        let _ = self.send(&[]);
    }
}

struct Output {
    id: Id,
    envelope: Vec<u8>,
}

impl Receiver for Output {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let room = self.envelope.len() - TYPE.len();
        // SAFETY: behind the type the envelope has room for as many bytes as are said.
        let n = unsafe { libc::msgrcv(self.id.0, self.envelope.as_mut_ptr().cast(), room, 0, 0) };
        let n = Errno::result(n).context("cannot receive a message")? as usize;
        message[..n].copy_from_slice(&self.envelope[TYPE.len()..][..n]);
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

    fn is_there(id: Id) -> bool {
        // SAFETY: an msqid_ds of zeros is valid, and the kernel writes one.
        unsafe { libc::msgctl(id.0, libc::IPC_STAT, &mut std::mem::zeroed()) == 0 }
    }

    #[test]
    fn nothing_is_left_of_links_whose_processes_did_not_clean_up() {
        let mechanism = SysvMq::default();
        let links = [mechanism.link(10).unwrap(), mechanism.link(10).unwrap()];
        let ids = mechanism.made.borrow().clone();
        drop(links);
        assert!(ids.len() == 2 && ids.iter().all(|&id| is_there(id)));
        drop(mechanism);
        assert!(!ids.iter().any(|&id| is_there(id)));
    }

    #[test]
    fn a_receiver_takes_the_queue_with_it_and_the_sender_fails() {
        let id = Id::new().unwrap();
        let mut sender = Box::new(Queue { id, size: 1 }).sender().unwrap();
        let receiver = Box::new(Queue { id, size: 1 }).receiver().unwrap();
        sender.send(b"a").unwrap();
        drop(receiver);
        assert!(!is_there(id));
        assert!(sender.send(b"b").is_err());
    }
}
