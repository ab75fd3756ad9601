// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets up one side of a device ring with its endpoint.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use sluice_abi::ring;
use sluice_ring::{Capacity, Notifier, Parker};

use super::info;
use crate::ring::carrier::Carrier;
use crate::ring::connection::Connection;
use crate::ring::error::SetupError;
use crate::ring::membarrier::register;
use crate::ring::options::SideOptions;
use crate::ring::role::Role;
use crate::shared::device::Device;
use crate::shared::mapping::{Mapping, ProducerMemory};
use crate::shared::region::{Access, Region, page_size};

impl SideOptions {
    pub(super) fn attach(&self, endpoint: OwnedFd, role: Role) -> Result<Connection, SetupError> {
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
