// SPDX-License-Identifier: MIT OR Apache-2.0
//! Feeds: packets from a kernel module to one consumer, which reads them or receives them through mapped memory.
//!
//! ```no_run
//! let mut consumer = sluice::Feed::named("frames").open()?.map()?;
//! loop {
//!     let packet = consumer.recv()?; // in place, released when it is dropped
//!     println!("{}, {} lost: {:?}", packet.sequence, packet.lost, packet.bytes().to_vec());
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Feed`] is an open endpoint. It receives in one of two ways, and the first one that is used claims the feed:
//!
//! | | [`Feed::reader`] | [`Feed::map`] |
//! |---|---|---|
//! | a packet costs | a system call and a copy | neither, while the consumer does not sleep |
//! | waits | spin in the kernel ([`Feed::set_spin_limit`]), then block | spin in the process ([`Consumer::set_spin_limit`]), then block |
//!
//! Publishing never waits: a packet for which there is no room is lost, and the next one tells how many were lost before it.
//!
//! The packet simulator of the module publishes in the feed of `/dev/sluice/feed`, to measure the way from an interrupt to a process:
//!
//! ```no_run
//! use std::time::Duration;
//! use sluice::feed::{Simulation, Simulator};
//!
//! let simulator = Simulator::open()?;
//! let mut reader = simulator.reader()?; // claims the feed before the first packet
//! simulator.start(&Simulation { count: 1000, ..Simulation::every(Duration::from_millis(1)) })?;
//! for _ in 0..1000 {
//!     println!("{:?}", reader.recv()?.latency());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod consumer;
mod error;
mod info;
mod options;
mod packet;
mod reader;
mod simulator;
#[cfg(feature = "tokio")]
mod tokio;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use sluice_abi::feed;

use crate::error::{Error, Result};
use crate::sys::{self, query, set};
use crate::system_error::SystemError;

#[cfg(feature = "tokio")]
pub use self::tokio::AsyncConsumer;
pub use consumer::{Consumer, Packet};
pub use error::RecvError;
pub use info::{FeedInfo, Receiver};
pub use options::Options;
pub use packet::Header;
pub use reader::{PacketCopy, Reader};
pub use simulator::{Simulation, Simulator, SimulatorError};

/// An endpoint of a feed. The reader and the consumer use the same endpoint: the claim, and a simulation that it has started, end when all
/// of them are dropped.
#[derive(Debug)]
pub struct Feed {
    endpoint: OwnedFd,
}

impl Feed {
    /// Claims the feed to receive by read(2). The first packet is the next one that is published.
    pub fn reader(&self) -> std::result::Result<Reader, RecvError> {
        Reader::new(self.duplicate()?)
    }

    /// Claims the feed to receive through mapped memory. The first packet is the next one that is published.
    pub fn map(&self) -> std::result::Result<Consumer, RecvError> {
        Consumer::new(self.duplicate()?)
    }

    /// The state of the feed.
    pub fn info(&self) -> Result<FeedInfo> {
        query::<feed::Info>(self.as_fd())
            .map(FeedInfo::from)
            .map_err(|error| Error::io("querying the feed", error))
    }

    /// Sets how long a read of this endpoint spins at most before it blocks, and returns the effective limit: at most the module's
    /// limit. Zero disables spinning.
    pub fn set_spin_limit(&self, limit: Duration) -> Result<Duration> {
        sys::set_spin_limit(self.as_fd(), feed::SET_SPIN, limit)
    }

    /// Another descriptor of the same endpoint.
    fn duplicate(&self) -> std::result::Result<OwnedFd, SystemError> {
        self.endpoint
            .try_clone()
            .map_err(|error| SystemError::new("duplicating the descriptor of the feed", error))
    }
}

/// Makes the endpoint the consumer of its feed.
fn claim(endpoint: BorrowedFd<'_>, consumer: u32) -> std::result::Result<(), Errno> {
    set(endpoint, feed::CLAIM, consumer.into())
        .map(drop)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

impl AsFd for Feed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoint.as_fd()
    }
}

impl From<Feed> for OwnedFd {
    fn from(feed: Feed) -> Self {
        feed.endpoint
    }
}

/// An inherited or received endpoint. The first use fails if the descriptor is not one.
impl From<OwnedFd> for Feed {
    fn from(endpoint: OwnedFd) -> Self {
        Self { endpoint }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A socket, which fails every ioctl of a feed.
    fn socket() -> Feed {
        let (end, _) = UnixStream::pair().unwrap();
        OwnedFd::from(end).into()
    }

    #[test]
    fn another_descriptor_is_not_a_feed() {
        let feed = socket();
        assert!(matches!(feed.reader(), Err(RecvError::NotAFeed)));
        assert!(matches!(feed.map(), Err(RecvError::NotAFeed)));
        assert!(matches!(feed.info(), Err(Error::Io { .. })));
    }
}
