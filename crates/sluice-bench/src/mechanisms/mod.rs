// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is compared, one file each. A mechanism makes a link in the parent; of the two processes forked from it one takes
//! the sender's end and the other the receiver's, which closes the end that is not its own.

mod apart;
mod cacheline;
mod pipe;
mod sluice_pipe;
mod stream;

use std::os::fd::BorrowedFd;

use anyhow::Result;
use serde::Serialize;

pub use apart::Apart;
pub use cacheline::Cacheline;
pub use pipe::Pipe;
pub use sluice_pipe::SluicePipe;

/// What a waiting process does meanwhile. Only like is compared with like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    Spin,
    Sleep,
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

    /// A new link, made before the two processes are.
    fn link(&self) -> Result<Box<dyn Link>>;
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

    /// The file behind it, for programs that are to use it as their standard output.
    fn file(&self) -> Option<BorrowedFd<'_>>;
}

pub trait Receiver {
    /// A whole message, or what was left of the stream when it ended; 0 after its end.
    fn receive(&mut self, message: &mut [u8]) -> Result<usize>;

    fn file(&self) -> Option<BorrowedFd<'_>>;
}
