// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};

use sluice_abi::{self as abi, ring};

use crate::ring::error::SetupError;
use crate::ring::role::Role;
use crate::sys;
use crate::system_error::SystemError;

/// The state of a device ring, as the [`info`](crate::Options::info) of its chain returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RingInfo {
    pub producer: RoleState,
    pub consumer: RoleState,
    /// The memory node that was chosen for the data.
    pub numa_node: Option<u32>,
    /// Bytes.
    pub capacity: u64,
    /// The position up to which the producer says that it has published.
    pub published: u64,
    /// The position up to which the consumer says that it has released.
    pub released: u64,
}

/// The state of one side of a device ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RoleState {
    /// No process has opened this side.
    Vacant,
    Taken,
    /// It has closed the ring.
    Closed,
    /// It ended without closing the ring.
    Died,
    Destroyed,
    /// The number of a state that this library does not know.
    Other(u32),
}

impl From<u32> for RoleState {
    fn from(number: u32) -> Self {
        match number {
            ring::ROLE_VACANT => Self::Vacant,
            ring::ROLE_TAKEN => Self::Taken,
            ring::ROLE_CLOSED => Self::Closed,
            ring::ROLE_DIED => Self::Died,
            ring::ROLE_DESTROYED => Self::Destroyed,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for RoleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vacant => f.write_str("vacant"),
            Self::Taken => f.write_str("taken"),
            Self::Closed => f.write_str("closed"),
            Self::Died => f.write_str("died"),
            Self::Destroyed => f.write_str("destroyed"),
            Self::Other(number) => write!(f, "state {number}"),
        }
    }
}

impl From<abi::RingInfo> for RingInfo {
    fn from(info: abi::RingInfo) -> Self {
        Self {
            producer: info.producer.into(),
            consumer: info.consumer.into(),
            numa_node: u32::try_from(info.node).ok(),
            capacity: info.capacity,
            published: info.published,
            released: info.released,
        }
    }
}

/// What a side needs to know of its endpoint.
pub(super) struct EndpointInfo {
    pub role: Option<Role>,
    pub capacity: u64,
}

/// Fails if the descriptor is not an endpoint of a ring.
pub(super) fn query(endpoint: &OwnedFd) -> Result<EndpointInfo, SetupError> {
    let info = sys::query::<abi::RingInfo>(endpoint.as_fd()).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ENOTTY | libc::EINVAL | libc::EBADF) => SetupError::NotAnEndpoint,
            _ => SystemError::new("querying the endpoint", error).into(),
        }
    })?;
    Ok(EndpointInfo {
        role: match info.role {
            ring::PRODUCER => Some(Role::Producer),
            ring::CONSUMER => Some(Role::Consumer),
            _ => None,
        },
        capacity: info.capacity,
    })
}
