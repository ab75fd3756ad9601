// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets up one side of a device ring.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use sluice_abi::{self as abi, ring};
use sluice_ring::{Capacity, Notifier, Parker};

use super::{Device, info};
use crate::channel::OpenOptions;
use crate::error::Error;
use crate::ring::carrier::Carrier;
use crate::ring::connection::Connection;
use crate::ring::consumer::Consumer;
use crate::ring::error::SetupError;
use crate::ring::mapping::{Mapping, ProducerMemory};
use crate::ring::membarrier::register;
use crate::ring::memfd::file::{Pages, SealPolicy};
use crate::ring::options::{HANDSHAKE_TIMEOUT, Options, Users};
use crate::ring::producer::Producer;
use crate::ring::region::{Access, Region, page_size};
use crate::ring::role::Role;

impl Options {
    /// Creates a device ring whose two sides are vacant, and which exists until it is removed. Fails if it exists.
    pub fn create(&self, open: &OpenOptions<'_>) -> Result<(), SetupError> {
        let open = open.clone().create(true).exclusive(true).persistent(true);
        // An endpoint that was not mapped gives its role back.
        self.open(&open, Role::Producer).map(drop)
    }

    /// Opens a device ring for sending. Does not wait for the consumer.
    pub fn open_producer(&self, open: &OpenOptions<'_>) -> Result<Producer, SetupError> {
        self.attach_producer(self.open_producer_endpoint(open)?)
    }

    /// Opens a device ring for receiving. Does not wait for the producer.
    pub fn open_consumer(&self, open: &OpenOptions<'_>) -> Result<Consumer, SetupError> {
        self.attach_consumer(self.open_consumer_endpoint(open)?)
    }

    /// Opens an endpoint of the sending side for another process, which [attaches](Self::attach_producer) it.
    pub fn open_producer_endpoint(&self, open: &OpenOptions<'_>) -> Result<OwnedFd, SetupError> {
        self.open(open, Role::Producer)
    }

    /// Opens an endpoint of the receiving side for another process, which [attaches](Self::attach_consumer) it.
    pub fn open_consumer_endpoint(&self, open: &OpenOptions<'_>) -> Result<OwnedFd, SetupError> {
        self.open(open, Role::Consumer)
    }

    /// Sets up the sending side with an endpoint that another process opened and did not use.
    pub fn attach_producer(&self, endpoint: OwnedFd) -> Result<Producer, SetupError> {
        Ok(Producer::new(self.attach(endpoint, Role::Producer)?))
    }

    /// Sets up the receiving side with an endpoint that another process opened and did not use.
    pub fn attach_consumer(&self, endpoint: OwnedFd) -> Result<Consumer, SetupError> {
        Ok(Consumer::new(self.attach(endpoint, Role::Consumer)?))
    }

    fn open(&self, open: &OpenOptions<'_>, role: Role) -> Result<OwnedFd, SetupError> {
        self.reject_unsupported()?;
        if open.has_capacity() {
            let option = "OpenOptions::capacity";
            return Err(SetupError::UnsupportedOption { option });
        }
        let capacity = Capacity::at_least(self.capacity, page_size())?;
        let node = self
            .numa_node
            .map(|node| i32::try_from(node).map_err(|_| SetupError::NoSuchNode { node }));
        let params = abi::RingParams::new(node.transpose()?.unwrap_or(ring::NODE_ANY));
        let side = match role {
            Role::Producer => abi::OPEN_WRITE,
            Role::Consumer => abi::OPEN_READ,
        };
        open.ring(side, capacity.bytes(), &params)
            .map_err(|error| self.open_error(error, role))
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

    fn attach(&self, endpoint: OwnedFd, role: Role) -> Result<Connection, SetupError> {
        self.reject_unsupported()?;
        let info = info::query(&endpoint)?;
        if info.role != Some(role) {
            return Err(wrong_role(info.role));
        }
        let capacity = Capacity::exactly(info.capacity, page_size())?;
        if capacity.bytes() > self.max_capacity {
            let max = self.max_capacity;
            return Err(SetupError::CapacityTooLarge { capacity, max });
        }
        let mapping = self.map(&endpoint, role, capacity)?;
        let (own, _) = role.ctrls(&mapping);
        if own.is_closed() {
            return Err(SetupError::Ended);
        }
        if !own.is_new() {
            return Err(SetupError::EndpointUsed);
        }
        let registered = register();
        if registered {
            own.announce_membarrier();
        }
        Ok(Connection::new(
            Carrier::Device(Device::new(endpoint)),
            mapping,
            role,
            Parker::acknowledging(registered),
            Notifier::expecting_announcement(registered),
            self,
        ))
    }

    /// Maps all regions, and locks them if the options say so.
    fn map(
        &self,
        endpoint: &OwnedFd,
        role: Role,
        capacity: Capacity,
    ) -> Result<Mapping, SetupError> {
        let (producers, consumers) = match role {
            Role::Producer => (Access::ReadWrite, Access::ReadOnly),
            Role::Consumer => (Access::ReadOnly, Access::ReadWrite),
        };
        let map = |offset, bytes, access| {
            let bytes = usize::try_from(bytes).map_err(|_| unmappable(Errno::OVERFLOW))?;
            let region = Region::map(endpoint, offset, bytes, access).map_err(unmappable)?;
            self.lock(&region, capacity)?;
            Ok::<_, SetupError>(region)
        };
        let producer = ProducerMemory {
            ctrl: map(ring::MMAP_PRODUCER, page_size(), producers)?,
            data: map(ring::MMAP_DATA, 2 * capacity.bytes(), producers)?,
            capacity,
        };
        let consumer = map(ring::MMAP_CONSUMER, page_size(), consumers)?;
        Ok(Mapping::new(producer, consumer))
    }

    /// Fails if an option is set that applies to rings over memfd only.
    fn reject_unsupported(&self) -> Result<(), SetupError> {
        let is_set = [
            ("huge_pages", self.pages == Pages::Huge),
            ("unsealed", self.seals == SealPolicy::Unsealed),
            ("allow_unsealed", self.allows_unsealed),
            (
                "handshake_timeout",
                self.handshake_timeout != HANDSHAKE_TIMEOUT,
            ),
            ("allow_user", matches!(self.users, Users::OwnAnd(_))),
            ("allow_everyone", matches!(self.users, Users::Everyone)),
        ];
        match is_set.into_iter().find(|(_, set)| *set) {
            Some((option, _)) => Err(SetupError::UnsupportedOption { option }),
            None => Ok(()),
        }
    }
}

fn wrong_role(role: Option<Role>) -> SetupError {
    match role {
        Some(role) => SetupError::WrongRole { role: role.name() },
        None => SetupError::NotAnEndpoint,
    }
}

fn unmappable(errno: Errno) -> SetupError {
    match errno {
        Errno::PIPE => SetupError::Ended,
        errno => SetupError::system("mapping the ring's memory")(errno),
    }
}
