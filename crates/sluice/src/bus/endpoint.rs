// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all endpoints of a bus have in common.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl};
use sluice_abi::bus;

use super::calls;
use super::error::OpenError;
use super::info::{self, BusInfo, SubscriberInfo};
use crate::error::{Error, Result};
use crate::sys::{self, query, set};
use crate::system_error::SystemError;

const DUPLICATING: &str = "duplicating the descriptor of the bus";

/// What an endpoint is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Sender,
    Subscriber,
}

impl Role {
    fn is_of(self, flags: OFlags) -> bool {
        let other = match self {
            Self::Sender => OFlags::RDONLY,
            Self::Subscriber => OFlags::WRONLY,
        };
        flags & OFlags::RWMODE != other
    }

    fn wrong(self) -> OpenError {
        let (purpose, role) = match self {
            Self::Sender => ("sending", "Sender"),
            Self::Subscriber => ("receiving", "Subscriber"),
        };
        OpenError::WrongRole { purpose, role }
    }
}

#[derive(Debug)]
pub(super) struct Endpoint {
    pub fd: OwnedFd,
    pub id: u64,
    pub message_max: u64,
}

impl Endpoint {
    /// Returns the state too.
    pub fn new(fd: OwnedFd, role: Role) -> std::result::Result<(Self, bus::Info), OpenError> {
        let info = query::<bus::Info>(fd.as_fd()).map_err(OpenError::of_query)?;
        let flags = fcntl_getfl(&fd)
            .map_err(|errno| SystemError::new("querying the flags of the bus", errno))?;
        if !role.is_of(flags) {
            return Err(role.wrong());
        }
        let endpoint = Self {
            fd,
            id: info.id,
            message_max: info.message_max,
        };
        Ok((endpoint, info))
    }

    pub fn try_clone(&self) -> std::result::Result<Self, SystemError> {
        let fd = self.fd.try_clone();
        Ok(Self {
            fd: fd.map_err(|error| SystemError::new(DUPLICATING, error))?,
            ..*self
        })
    }

    pub fn set_format(&self, format: u32) -> std::result::Result<(), SystemError> {
        set(self.as_fd(), bus::SET_FORMAT, format.into())
            .map(drop)
            .map_err(|error| SystemError::new("setting the format of the bus", error))
    }

    pub fn info(&self) -> Result<BusInfo> {
        query::<bus::Info>(self.as_fd())
            .map(BusInfo::from)
            .map_err(|error| Error::io("querying the bus", error))
    }

    pub fn subscribers(&self) -> Result<Vec<SubscriberInfo>> {
        info::subscribers(self.as_fd())
            .map_err(|error| Error::io("listing the subscribers of the bus", error))
    }

    /// Whether the subscriber with this id has not ended.
    pub fn has_subscriber(&self, id: u64) -> std::result::Result<bool, SystemError> {
        let mut next = [bus::SubscriberInfo::default()];
        let filled = calls::subscribers(self.as_fd(), id - 1, &mut next)
            .map_err(|error| SystemError::new("listing the subscribers of the bus", error))?;
        Ok(filled > 0 && next[0].id == id)
    }

    /// The state of the bus and of this endpoint, as the structure of the ABI.
    pub fn raw_info(&self) -> std::result::Result<bus::Info, SystemError> {
        query(self.as_fd()).map_err(|error| SystemError::new("querying the bus", error))
    }

    pub fn set_spin_limit(&self, limit: Duration) -> Result<Duration> {
        sys::set_spin_limit(self.as_fd(), bus::SET_SPIN, limit)
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The calls of a type with a field `endpoint`. With a path, for types whose endpoint lies deeper, and which have no conversion to a
/// descriptor.
macro_rules! common_calls {
    ($end:ident) => {
        $crate::bus::endpoint::common_calls!($end, endpoint);

        impl From<$end> for std::os::fd::OwnedFd {
            fn from(end: $end) -> Self {
                end.endpoint.fd
            }
        }
    };
    ($end:ident, $($path:ident).+) => {
        impl $end {
            /// The id of the endpoint, which no other endpoint of the bus ever has.
            pub fn id(&self) -> u64 {
                self.$($path).+.id
            }

            /// The largest message of the bus, in bytes.
            pub fn message_max(&self) -> u64 {
                self.$($path).+.message_max
            }

            /// The state of the bus and of this endpoint.
            pub fn info(&self) -> $crate::Result<$crate::bus::BusInfo> {
                self.$($path).+.info()
            }

            /// The subscribers of the bus, by id. In the mode unicast only monitors have ids.
            pub fn subscribers(&self) -> $crate::Result<Vec<$crate::bus::SubscriberInfo>> {
                self.$($path).+.subscribers()
            }

            /// Sets how long a blocking call on this endpoint spins at most before it sleeps, and returns the effective limit: at
            /// most the module's limit. Zero disables spinning. Calls with a timeout never spin.
            pub fn set_spin_limit(
                &self,
                limit: std::time::Duration,
            ) -> $crate::Result<std::time::Duration> {
                self.$($path).+.set_spin_limit(limit)
            }
        }

        impl std::os::fd::AsFd for $end {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.$($path).+.as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $end {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                self.$($path).+.fd.as_raw_fd()
            }
        }
    };
}

pub(super) use common_calls;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::bus::{MappedSubscriber, Sender, Subscriber};

    #[test]
    fn another_descriptor_is_not_a_bus() {
        let socket = || UnixStream::pair().unwrap().0.into();
        let errors = [
            Sender::attach(socket()).map(drop),
            Subscriber::attach(socket()).map(drop),
            MappedSubscriber::attach(socket()).map(drop),
        ];
        for error in errors {
            assert!(matches!(error, Err(OpenError::NotABus)), "{error:?}");
        }
    }

    #[test]
    fn a_role_needs_its_access_mode() {
        for (flags, sends, receives) in [
            (OFlags::RDONLY, false, true),
            (OFlags::WRONLY, true, false),
            (OFlags::RDWR | OFlags::NONBLOCK, true, true),
        ] {
            assert_eq!(Role::Sender.is_of(flags), sends, "{flags:?}");
            assert_eq!(Role::Subscriber.is_of(flags), receives, "{flags:?}");
        }
    }
}
