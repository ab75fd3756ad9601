// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mechanisms, one file each. A mechanism creates a link before the fork; of the two processes one takes the
//! sending end and the other the receiving end, and each closes the end that it does not use.

mod aeron;
mod cacheline_pingpong;
mod eventfd_shm;
mod fifo;
mod futex_shm;
#[cfg(feature = "iceoryx2")]
mod iceoryx2;
mod mmap;
mod myipc;
mod no_ipc;
mod packets;
mod pipe;
mod posix_mq;
mod programs;
mod registry;
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
mod temp_paths;
mod third_party;
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

pub use cacheline_pingpong::CachelinePingPong;
pub use myipc::MyIpc;
pub use no_ipc::NoIpc;
pub use pipe::Pipe;
pub use programs::{ExternalWorkload, Programs};
pub use registry::Registry;
pub use sluice_pipe::SluicePipe;
pub use sluice_ring::SluiceRing;
#[cfg(test)]
pub(crate) use stream::{StreamReceiver, StreamSender};

/// How a process waits. Ratios between the two kinds are labelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    Spin,
    Sleep,
}

/// The conditions of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// Message size in bytes.
    pub size: usize,
    pub placement: Placement,
    pub workload: Workload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// At most one message in flight.
    RequestReply,
    /// As many messages in flight as fit.
    Stream,
    /// A stream, next to pairs whose senders sleep until a message is received.
    Stalled,
    /// Streams of several unrelated pairs that open the same name.
    SharedName,
    /// Unmodified programs read and write it as a file.
    File,
}

/// How a mechanism sends several messages at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// With its batch interface.
    Together,
    /// One call for each message.
    OneByOne,
}

pub trait Mechanism {
    /// The name in the results.
    fn name(&self) -> &'static str;

    fn waiting(&self) -> Waiting;

    /// The name in tables.
    fn label(&self) -> String {
        match self.waiting() {
            Waiting::Sleep => self.name().to_string(),
            Waiting::Spin => format!("{} (spins)", self.name()),
        }
    }

    /// The reason why this task is not supported here, with a remedy if there is one.
    fn unsupported_reason(&self, _task: &Task) -> Option<String> {
        None
    }

    /// How batches are sent; None for mechanisms whose batches are not measured.
    fn batching(&self) -> Option<Batching> {
        None
    }

    /// Creates a link for messages of this size, before the fork.
    fn link(&self, size: usize) -> Result<Box<dyn Link>>;

    /// A link for each of several processes, all of one channel; None where only two processes can use one.
    fn shared_links(&self, _users: usize, _size: usize) -> Result<Option<Vec<Box<dyn Link>>>> {
        Ok(None)
    }

    /// The programs that replace a link, for a mechanism that cannot be called from this process.
    fn programs(
        &self,
        _size: usize,
        _workload: ExternalWorkload,
    ) -> Result<Option<Box<dyn Programs>>> {
        Ok(None)
    }

    /// Whether unrelated processes open it by the same name.
    fn is_opened_by_name(&self) -> bool {
        false
    }

    /// A link for each of several pairs in separate cgroups that share only the name. They are killed, never ended.
    fn links_by_name(&self, _pairs: usize, _size: usize) -> Result<Vec<Box<dyn Link>>> {
        bail!("{} is not opened by name", self.name())
    }
}

/// One direction between two processes.
pub trait Link {
    /// Called in the sending process. May wait until the receiver takes its end.
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>>;

    /// Called in the receiving process. May wait until the sender takes its end.
    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>>;
}

/// Dropping it ends the stream.
pub trait Sender {
    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// Sends several messages of this size, stored contiguously.
    fn send_batch(&mut self, messages: &[u8], size: usize) -> Result<()> {
        let mut messages = messages.chunks_exact(size);
        messages.try_for_each(|message| self.send(message))
    }

    /// The underlying file, for programs that use it as standard output.
    fn file(&self) -> Option<BorrowedFd<'_>>;
}

pub trait Receiver {
    /// Receives a whole message, or the rest of the stream at its end; returns 0 after the end.
    fn receive(&mut self, message: &mut [u8]) -> Result<usize>;

    /// Receives at least one message of this size, and more if they have arrived and fit, stored contiguously. Returns
    /// the number of bytes; 0 after the end of the stream.
    fn receive_batch(&mut self, messages: &mut [u8], size: usize) -> Result<usize> {
        self.receive(&mut messages[..size])
    }

    fn file(&self) -> Option<BorrowedFd<'_>>;
}

/// The reason of mechanisms without a file.
fn no_file(task: &Task) -> Option<String> {
    (task.workload == Workload::File)
        .then(|| "it is not a file that programs can read or write".into())
}

/// The reason of mechanisms that never sleep, on a single processor.
fn spinning_on_one_cpu(task: &Task) -> Option<String> {
    (task.placement == Placement::SameCpu)
        .then(|| "spinning needs a processor for each of the two processes".into())
}

/// The reasons of message-based mechanisms that never sleep.
fn never_sleeping(task: &Task) -> Option<String> {
    match task.workload {
        Workload::Stalled => Some("it never sleeps, so its pairs cannot be stalled".into()),
        _ => no_file(task).or_else(|| spinning_on_one_cpu(task)),
    }
}

/// The directory for files in memory.
fn memory_directory() -> PathBuf {
    let tmpfs = Path::new("/dev/shm");
    match tmpfs.is_dir() {
        true => tmpfs.into(),
        false => std::env::temp_dir(),
    }
}
