// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of rings with names, and of the endpoints of such rings.

use std::os::fd::OwnedFd;
use std::time::Duration;

use sluice_abi::{self as abi, ring};
use sluice_ring::Capacity;

use super::RingInfo;
use crate::channel::Channel;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::options::{ChannelKind, Creatable, Options, sealed};
use crate::ring::consumer::Consumer;
use crate::ring::error::SetupError;
use crate::ring::options::{SideOptions, side_options};
use crate::ring::producer::Producer;
use crate::ring::role::Role;
use crate::shared::region::page_size;
use crate::sys::Params;

type Setup<T> = std::result::Result<T, SetupError>;

/// The kind of rings: where the chains of those in the module begin. Without the module,
/// [`ring::SocketOptions`](crate::ring::SocketOptions) set up a ring over a socket.
#[derive(Debug)]
pub enum Ring {}

impl Ring {
    /// The ring of this name.
    pub fn named(name: impl AsRef<[u8]>) -> Options<Self> {
        Options::new(name)
    }

    /// The options to use an endpoint with that another process has opened.
    pub fn attach() -> Attach {
        Attach::default()
    }
}

/// The options that only rings with names have.
#[derive(Clone, Debug, Default)]
pub struct Own {
    side: SideOptions,
    numa_node: Option<u32>,
}

impl sealed::Sealed for Ring {}

impl ChannelKind for Ring {
    const KIND: Kind = Kind::Ring;
    const DEFAULT_CAPACITY: u64 = ring::DEFAULT_CAPACITY;
    type Info = RingInfo;
    type OpenError = SetupError;
    type Own = Own;

    fn query(channel: &Channel) -> Result<RingInfo> {
        channel.state::<abi::RingInfo>().map(RingInfo::from)
    }
}

impl Creatable for Ring {
    /// An endpoint that was not mapped gives its role back.
    fn open_new(options: &Options<Self>) -> Setup<OwnedFd> {
        options.producer_endpoint()
    }
}

side_options!(Options<Ring>, own.side);
side_options!(Attach, side);

/// Both sides open the ring independently, and neither waits for the other.
impl Options<Ring> {
    /// Binds the memory of both sides to a NUMA node. The open that creates the ring decides.
    pub fn numa_node(mut self, node: u32) -> Self {
        self.own.numa_node = Some(node);
        self
    }

    /// Opens the ring for sending.
    pub fn producer(&self) -> Setup<Producer> {
        self.own.side.producer(self.producer_endpoint()?)
    }

    /// Opens the ring for receiving.
    pub fn consumer(&self) -> Setup<Consumer> {
        self.own.side.consumer(self.consumer_endpoint()?)
    }

    /// Opens an endpoint of the sending side for another process, which [attaches](Ring::attach) it.
    pub fn producer_endpoint(&self) -> Setup<OwnedFd> {
        self.open_ring(Role::Producer)
    }

    /// Opens an endpoint of the receiving side for another process, which [attaches](Ring::attach) it.
    pub fn consumer_endpoint(&self) -> Setup<OwnedFd> {
        self.open_ring(Role::Consumer)
    }

    fn open_ring(&self, role: Role) -> Setup<OwnedFd> {
        let capacity = Capacity::at_least(self.capacity, page_size())?;
        let params = self.own.params()?;
        let access = match role {
            Role::Producer => abi::OPEN_WRITE,
            Role::Consumer => abi::OPEN_READ,
        };
        self.open_endpoint(access, capacity.bytes(), Params::Ring(&params))
            .map_err(|error| self.own.open_error(error, role))
    }
}

impl Own {
    fn params(&self) -> Setup<abi::RingParams> {
        let node = self
            .numa_node
            .map(|node| i32::try_from(node).map_err(|_| SetupError::NoSuchNode { node }));
        Ok(abi::RingParams::new(
            node.transpose()?.unwrap_or(ring::NODE_ANY),
        ))
    }

    fn open_error(&self, error: Error, role: Role) -> SetupError {
        let Error::Io { source, .. } = &error else {
            return SetupError::Open(error);
        };
        match (source.raw_os_error(), self.numa_node) {
            (Some(libc::EBUSY), _) => SetupError::RoleTaken { role: role.name() },
            (Some(libc::EINVAL), Some(node)) => SetupError::NoSuchNode { node },
            _ => SetupError::Open(error),
        }
    }
}

/// The options to use an endpoint of a ring with that another process has opened, and has not used.
///
/// ```no_run
/// use std::os::fd::OwnedFd;
/// use sluice::Ring;
///
/// # fn example(endpoint: OwnedFd) -> Result<(), Box<dyn std::error::Error>> {
/// let mut producer = Ring::attach().mlock(true).producer(endpoint)?;
/// producer.send(b"4711 99.50")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Attach {
    side: SideOptions,
}

impl Attach {
    /// Sets up the sending side.
    pub fn producer(&self, endpoint: OwnedFd) -> Setup<Producer> {
        self.side.producer(endpoint)
    }

    /// Sets up the receiving side.
    pub fn consumer(&self, endpoint: OwnedFd) -> Setup<Consumer> {
        self.side.consumer(endpoint)
    }
}

impl SideOptions {
    fn producer(&self, endpoint: OwnedFd) -> Setup<Producer> {
        Ok(Producer::new(self.attach(endpoint, Role::Producer)?))
    }

    fn consumer(&self, endpoint: OwnedFd) -> Setup<Consumer> {
        Ok(Consumer::new(self.attach(endpoint, Role::Consumer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_sets_what_the_side_and_the_kernel_get() {
        let second = Duration::from_secs(1);
        let options = Ring::named("prices")
            .spin_limit(second)
            .max_capacity(5)
            .mlock(true)
            .numa_node(3);
        let side = &options.own.side;
        assert_eq!(
            (side.spin_limit, side.max_capacity, side.mlock),
            (second, 5, true)
        );
        assert_eq!(options.own.params().unwrap().node, 3);
        let default = Ring::named("prices");
        assert_eq!(default.capacity, ring::DEFAULT_CAPACITY);
        assert_eq!(default.own.params().unwrap().node, ring::NODE_ANY);
        let side = Ring::attach()
            .spin_limit(second)
            .max_capacity(5)
            .mlock(true)
            .side;
        assert_eq!(
            (side.spin_limit, side.max_capacity, side.mlock),
            (second, 5, true)
        );
    }
}
