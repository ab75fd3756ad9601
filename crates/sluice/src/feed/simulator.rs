// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packet simulator of the module, which publishes in a feed of its own.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use sluice_abi::feed;

use super::Feed;
use crate::diagnosis::{Diagnose as _, Diagnosis, diagnosed};
use crate::error::Result;
use crate::sys::{FEED_NODE, ioctl, ioctl_without_argument, node_error};
use crate::system_error::SystemError;

/// An endpoint of the feed of the packet simulator. Dereferences to the feed.
#[derive(Debug)]
pub struct Simulator {
    feed: Feed,
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

impl Simulator {
    /// Opens the feed of the packet simulator, `/dev/sluice/feed`.
    pub fn open() -> Result<Self> {
        match File::options().read(true).write(true).open(FEED_NODE) {
            Ok(file) => Ok(OwnedFd::from(file).into()),
            Err(error) => Err(node_error(FEED_NODE, error)),
        }
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
}

impl Deref for Simulator {
    type Target = Feed;

    fn deref(&self) -> &Feed {
        &self.feed
    }
}

impl AsFd for Simulator {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.feed.as_fd()
    }
}

impl From<Simulator> for Feed {
    fn from(simulator: Simulator) -> Self {
        simulator.feed
    }
}

/// An inherited or received endpoint. The first use fails if the descriptor is not one.
impl From<OwnedFd> for Simulator {
    fn from(endpoint: OwnedFd) -> Self {
        let feed = endpoint.into();
        Self { feed }
    }
}

/// Why the packet simulator was not started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulatorError {
    /// The packet simulator runs already.
    #[error("the packet simulator runs already")]
    Running,

    /// Permission denied for the packet simulator: it needs CAP_SYS_NICE on the host.
    #[error("permission denied for the packet simulator: it needs CAP_SYS_NICE on the host")]
    NotPermitted,

    /// Another endpoint has started the packet simulator.
    #[error("another endpoint has started the packet simulator")]
    StartedByAnother,

    /// Invalid simulation.
    #[error("invalid simulation")]
    OutOfRange,

    /// The descriptor is not that of the packet simulator.
    #[error("the descriptor is not that of the packet simulator")]
    NotASimulator,

    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl SimulatorError {
    fn of_start(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EBUSY) => Self::Running,
            Some(libc::EPERM) => Self::NotPermitted,
            Some(libc::EINVAL) => Self::OutOfRange,
            Some(libc::ENOTTY) => Self::NotASimulator,
            _ => SystemError::new("starting the packet simulator", error).into(),
        }
    }

    fn of_stop(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM) => Self::StartedByAnother,
            Some(libc::ENOTTY) => Self::NotASimulator,
            _ => SystemError::new("stopping the packet simulator", error).into(),
        }
    }

    fn diagnosis(&self) -> Diagnosis {
        let (errno, hint) = match self {
            Self::Running => (
                libc::EBUSY,
                "stop it, or wait until it has reached its count",
            ),
            Self::NotPermitted => (libc::EPERM, "run it as root, outside of a container"),
            Self::StartedByAnother => (libc::EPERM, "stop it there, or close that endpoint"),
            Self::OutOfRange => (
                libc::EINVAL,
                "give an interval of 10 µs to 10 s, up to 4096 bytes, and an online processor",
            ),
            Self::NotASimulator => (libc::ENOTTY, "pass one of /dev/sluice/feed"),
            Self::System(error) => return error.diagnose(),
        };
        Diagnosis::new(errno, hint)
    }
}

diagnosed!(SimulatorError);

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A socket, which fails every ioctl of a feed.
    fn socket() -> Simulator {
        let (end, _) = UnixStream::pair().unwrap();
        OwnedFd::from(end).into()
    }

    #[test]
    fn another_descriptor_is_not_a_simulator() {
        let start = socket().start(&Simulation::every(Duration::from_millis(1)));
        assert!(matches!(start, Err(SimulatorError::NotASimulator)));
        let stop = socket().stop();
        assert!(matches!(stop, Err(SimulatorError::NotASimulator)));
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

    #[test]
    fn each_failure_of_the_simulator_has_its_own_error() {
        let of = |errno| io::Error::from_raw_os_error(errno);
        for (errno, word) in [
            (libc::EBUSY, "runs already"),
            (libc::EPERM, "CAP_SYS_NICE"),
            (libc::EINVAL, "10 µs"),
            (libc::ENOTTY, "/dev/sluice/feed"),
            (libc::EIO, "sluice doctor"),
        ] {
            let text = crate::explain(&SimulatorError::of_start(of(errno)));
            assert!(text.contains(word), "{text}");
        }
        let stop = SimulatorError::of_stop(of(libc::EPERM));
        assert!(matches!(stop, SimulatorError::StartedByAnother));
    }

    #[test]
    fn an_error_becomes_that_of_io() {
        let error = io::Error::from(SimulatorError::NotPermitted);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    }
}
