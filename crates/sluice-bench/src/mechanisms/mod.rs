// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is compared, one file each. A mechanism makes a link in the parent; of the two processes forked from it one takes
//! the sender's end and the other the receiver's, which closes the end that is not its own.

mod aeron;
mod apart;
mod cacheline;
mod eventfd_shm;
mod fifo;
mod futex_shm;
#[cfg(feature = "iceoryx2")]
mod iceoryx2;
mod mmap;
mod myipc;
mod packets;
mod peers;
mod pipe;
mod places;
mod posix_mq;
mod programs;
mod roster;
mod shared_ring;
mod shm_sem;
mod shm_spin;
mod signal;
mod sleeping;
mod sluice_pipe;
mod sluice_ring;
mod stream;
mod sysctl;
mod sysv_mq;
#[cfg(feature = "tachyon")]
mod tachyon;
mod tcp;
mod unix_dgram;
mod unix_seqpacket;
mod unix_stream;
mod zeromq;
mod zmq_library;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::harness::pinning::Placement;

pub use apart::Apart;
pub use cacheline::Cacheline;
pub use myipc::MyIpc;
pub use pipe::Pipe;
pub use programs::{Errand, Programs};
pub use roster::Roster;
pub use sluice_pipe::SluicePipe;
pub use sluice_ring::SluiceRing;
#[cfg(test)]
pub(crate) use stream::{StreamReceiver, StreamSender};

/// What a waiting process does meanwhile. Only like is compared with like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    Spin,
    Sleep,
}

/// What a mechanism is wanted for.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// Of each message, in bytes.
    pub size: usize,
    pub placement: Placement,
    pub shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Never more than one message on the way.
    Question,
    /// As many as fit.
    Stream,
    /// As many as fit, beside pairs whose senders sleep until someone receives.
    Stalled,
    /// As many as fit, of several pairs that know nothing of each other and use the same name.
    Strangers,
    /// Programs that know nothing of us read and write it as a file.
    File,
}

/// How messages go where several at once are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// Together, as its interface allows.
    Together,
    /// Each by itself, as it knows no other way.
    OneByOne,
}

pub trait Mechanism {
    /// As in the rows of the results.
    fn name(&self) -> &'static str;

    fn waiting(&self) -> Waiting;

    /// How tables call it.
    fn label(&self) -> String {
        match self.waiting() {
            Waiting::Sleep => self.name().to_string(),
            Waiting::Spin => format!("{} (spins)", self.name()),
        }
    }

    /// Why it cannot do this here, with what to do about it where something can be done.
    fn obstacle(&self, _task: &Task) -> Option<String> {
        None
    }

    /// How it takes part where batches are compared; None for those who would only repeat what they do without.
    fn batching(&self) -> Option<Batching> {
        None
    }

    /// A new link for messages of so many bytes, made before the two processes are.
    fn link(&self, size: usize) -> Result<Box<dyn Link>>;

    /// A link for each of so many processes, all of one channel; None where only two can use one.
    fn shared(&self, _users: usize, _size: usize) -> Result<Option<Vec<Box<dyn Link>>>> {
        Ok(None)
    }

    /// What takes the place of a link for a mechanism that cannot be called from here.
    fn programs(&self, _size: usize, _errand: Errand) -> Result<Option<Box<dyn Programs>>> {
        Ok(None)
    }

    /// Whether strangers find each other by its name.
    fn meets_strangers(&self) -> bool {
        false
    }

    /// A link for each of several pairs that are in cgroups of their own and have nothing but the name in common. None of
    /// them is ever ended: all are killed.
    fn strangers(&self, _pairs: usize, _size: usize) -> Result<Vec<Box<dyn Link>>> {
        bail!("{} has no name by which strangers could meet", self.name())
    }
}

/// One direction between two processes.
pub trait Link {
    /// Runs in the sending process. May wait until the receiver takes its end.
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>>;

    /// Runs in the receiving process. May wait until the sender takes its end.
    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>>;
}

/// Dropping it ends the stream.
pub trait Sender {
    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// Several messages of this size, one behind the other.
    fn send_batch(&mut self, messages: &[u8], size: usize) -> Result<()> {
        let mut messages = messages.chunks_exact(size);
        messages.try_for_each(|message| self.send(message))
    }

    /// The file behind it, for programs that are to use it as their standard output.
    fn file(&self) -> Option<BorrowedFd<'_>>;
}

pub trait Receiver {
    /// A whole message, or what was left of the stream when it ended; 0 after its end.
    fn receive(&mut self, message: &mut [u8]) -> Result<usize>;

    /// Messages of this size, one behind the other: one at least, and more where they are there already and have room.
    /// Returns how many bytes they have; 0 after the end of the stream.
    fn receive_batch(&mut self, messages: &mut [u8], size: usize) -> Result<usize> {
        self.receive(&mut messages[..size])
    }

    fn file(&self) -> Option<BorrowedFd<'_>>;
}

/// Why a mechanism without files leaves out what is done with them.
fn no_file(task: &Task) -> Option<String> {
    (task.shape == Shape::File).then(|| "it is no file that programs could read or write".into())
}

/// Why a mechanism that never sleeps does not take part on one processor.
fn spinning_alone(task: &Task) -> Option<String> {
    (task.placement == Placement::SameCpu)
        .then(|| "spinning for another process needs a processor for each of the two".into())
}

/// What keeps a mechanism of messages out that never sleeps.
fn never_sleeping(task: &Task) -> Option<String> {
    match task.shape {
        Shape::Stalled => Some("it never sleeps, so that its pairs never stand still".into()),
        _ => no_file(task).or_else(|| spinning_alone(task)),
    }
}

/// For files that are only to be in memory.
fn memory_folder() -> PathBuf {
    let tmpfs = Path::new("/dev/shm");
    match tmpfs.is_dir() {
        true => tmpfs.into(),
        false => std::env::temp_dir(),
    }
}
