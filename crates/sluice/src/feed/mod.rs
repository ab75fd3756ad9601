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
//! | waits | spin in the kernel ([`Feed::set_spin_limit`]), then block | spin in the process ([`Consumer::set_spin`]), then block |
//!
//! Publishing never waits: a packet for which there is no room is lost, and the next one tells how many were lost before it.
//!
//! The packet simulator of the module publishes in the feed of `/dev/sluice/feed`, to measure the way from an interrupt to a process:
//!
//! ```no_run
//! use std::time::Duration;
//! use sluice::feed::{Feed, Simulation};
//!
//! let feed = Feed::simulator()?;
//! let mut reader = feed.reader()?; // claims the feed before the first packet
//! feed.start(&Simulation { count: 1000, ..Simulation::every(Duration::from_millis(1)) })?;
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
#[cfg(feature = "tokio")]
mod tokio;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use sluice_abi::feed;

use crate::error::{Error, Result};
use crate::sys::{self, FEED_NODE, ioctl, ioctl_without_argument, node_error, query, set};
use crate::system_error::SystemError;

#[cfg(feature = "tokio")]
pub use self::tokio::AsyncConsumer;
pub use consumer::{Consumer, Packet};
pub use error::{RecvError, SimulatorError};
pub use info::{FeedInfo, Receiver};
pub use options::Options;
pub use packet::Header;
pub use reader::{PacketCopy, Reader};

/// An endpoint of a feed. The reader, the consumer and the simulator use the same endpoint: the claim and a running simulation end
/// when all of them are dropped.
#[derive(Debug)]
pub struct Feed {
    endpoint: OwnedFd,
}

/// What the packet simulator publishes: packets of zeros, by a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simulation {
    /// The time between two packets, from 10 µs to 10 s.
    pub interval: Duration,
    /// Bytes of a packet, up to 4096.
    pub length: u32,
    /// The number of expiries of the timer, of which each publishes a packet. 0: no limit.
    pub count: u64,
    /// The processor of the timer; by default that of the caller.
    pub cpu: Option<u32>,
}

impl Simulation {
    /// Packets of 64 bytes without end, on the caller's processor.
    pub fn every(interval: Duration) -> Self {
        Self {
            interval,
            length: 64,
            count: 0,
            cpu: None,
        }
    }
}

impl Feed {
    /// Opens the feed of the packet simulator, `/dev/sluice/feed`.
    pub fn simulator() -> Result<Self> {
        match File::options().read(true).write(true).open(FEED_NODE) {
            Ok(file) => Ok(OwnedFd::from(file).into()),
            Err(error) => Err(node_error(FEED_NODE, error)),
        }
    }

    /// Claims the feed to receive by read(2). The first packet is the next one that is published.
    pub fn reader(&self) -> std::result::Result<Reader, RecvError> {
        Reader::new(self.duplicate()?)
    }

    /// Claims the feed to receive through mapped memory. The first packet is the next one that is published.
    pub fn map(&self) -> std::result::Result<Consumer, RecvError> {
        Consumer::new(self.duplicate()?)
    }

    /// Starts the packet simulator. It needs CAP_SYS_NICE in the initial user namespace.
    pub fn start(&self, simulation: &Simulation) -> std::result::Result<(), SimulatorError> {
        let interval = u64::try_from(simulation.interval.as_nanos());
        let cpu = simulation.cpu.map_or(Ok(feed::CPU_ANY), i32::try_from);
        let (Ok(interval), Ok(cpu)) = (interval, cpu) else {
            return Err(SimulatorError::OutOfRange);
        };
        let mut start = feed::Start {
            cpu,
            ..feed::Start::new(interval, simulation.count, simulation.length)
        };
        ioctl(self.as_fd(), feed::START, &mut start)
            .map(drop)
            .map_err(SimulatorError::of_start)
    }

    /// Stops the packet simulator, which this endpoint has started.
    pub fn stop(&self) -> std::result::Result<(), SimulatorError> {
        ioctl_without_argument(self.as_fd(), feed::STOP)
            .map(drop)
            .map_err(SimulatorError::of_stop)
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
        let start = feed.start(&Simulation::every(Duration::from_millis(1)));
        assert!(matches!(start, Err(SimulatorError::NotASimulator)));
        assert!(matches!(feed.stop(), Err(SimulatorError::NotASimulator)));
    }

    #[test]
    fn numbers_that_no_field_can_hold_are_out_of_range() {
        let simulation = Simulation::every(Duration::MAX);
        let processor = Simulation {
            cpu: Some(u32::MAX),
            ..Simulation::every(Duration::from_millis(1))
        };
        for simulation in [simulation, processor] {
            let started = socket().start(&simulation);
            assert!(matches!(started, Err(SimulatorError::OutOfRange)));
        }
    }
}
