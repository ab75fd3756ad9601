// SPDX-License-Identifier: MIT OR Apache-2.0

use std::os::fd::OwnedFd;

use sluice_abi::{self as abi, bus};

use super::error::OpenError;
use super::info::BusInfo;
use super::mapped::MappedSubscriber;
use super::policy::{Mode, Policies, Policy};
use super::sender::Sender;
use super::subscriber::Subscriber;
use crate::channel::OpenOptions;
use crate::error::Error;
use crate::ring::SystemError;

/// The options to open a bus with. The scope, the name, the permission bits and persistence are those of
/// [`Channel::bus`](crate::Channel::bus) and of its [`OpenOptions`].
///
/// ```no_run
/// use sluice::bus::{Mode, Options, Policy};
///
/// let bus = sluice::Channel::bus("jobs")?;
/// let options = Options::new().mode(Mode::Multicast).policies([Policy::Block]);
/// let worker = options.open_subscriber(&bus.options().create(true).mode(0o660))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Options {
    mode: Mode,
    policies: Policies,
    mappable: bool,
    capacity: u64,
    policy: Option<Policy>,
    limit: u64,
    monitor: bool,
}

impl Options {
    pub fn new() -> Self {
        Self::default()
    }

    /// Who receives a message; all subscribers by default. The open that creates the bus decides.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The policies that subscribers may have, [`Policy::Drop`] and [`Policy::Evict`] by default. The open that creates the bus
    /// decides. Not in the mode unicast.
    pub fn policies(mut self, policies: impl Into<Policies>) -> Self {
        self.policies = policies.into();
        self
    }

    /// Lets subscribers map the memory of the bus, as [`MappedSubscriber`]. The open that creates the bus decides. Only in the mode
    /// broadcast, with the policy [`Policy::Block`] among those of the bus. Messages of such a bus cannot be addressed.
    pub fn mappable(mut self, mappable: bool) -> Self {
        self.mappable = mappable;
        self
    }

    /// The capacity in bytes, rounded up to a power of two from a page to 256 MiB; 1 MiB by default. A message has at most half of
    /// it less 64 bytes, and at most 1 MiB, or 64 KiB on a PREEMPT_RT kernel. The open that creates the bus decides.
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// The policy of this subscriber; by default [`Policy::Drop`], or what the bus permits instead. Not in the mode unicast.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The number of unread bytes above which this subscriber of a multicast bus is full; half of the capacity by default.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// Subscribes to all messages, including those that others receive, and delays no sender. Needs CAP_SYS_ADMIN in the initial user
    /// namespace. Not mapped.
    pub fn monitor(mut self, monitor: bool) -> Self {
        self.monitor = monitor;
        self
    }

    /// Creates a bus that exists until it is removed. Fails if it exists.
    pub fn create(&self, open: &OpenOptions<'_>) -> Result<(), OpenError> {
        let open = open.clone().create(true).exclusive(true).persistent(true);
        self.endpoint(&open, abi::OPEN_WRITE, 0).map(drop)
    }

    /// Opens the bus to send.
    pub fn open_sender(&self, open: &OpenOptions<'_>) -> Result<Sender, OpenError> {
        Sender::attach(self.endpoint(open, abi::OPEN_WRITE, 0)?)
    }

    /// Opens the bus to receive.
    pub fn open_subscriber(&self, open: &OpenOptions<'_>) -> Result<Subscriber, OpenError> {
        Subscriber::attach(self.endpoint(open, abi::OPEN_READ, 0)?)
    }

    /// Opens the bus to send and to receive, through one endpoint with one id. The subscriber also receives what it sends itself in the
    /// mode broadcast. The endpoint is closed when both are dropped.
    pub fn open(&self, open: &OpenOptions<'_>) -> Result<(Sender, Subscriber), OpenError> {
        let endpoint = self.endpoint(open, abi::OPEN_READ | abi::OPEN_WRITE, 0)?;
        let duplicate = endpoint
            .try_clone()
            .map_err(|error| SystemError::new("duplicating the descriptor of the bus", error))?;
        let subscriber = Subscriber::attach(endpoint)?;
        Ok((Sender::attach(duplicate)?, subscriber))
    }

    /// Opens the bus to receive through mapped memory.
    pub fn open_mapped(&self, open: &OpenOptions<'_>) -> Result<MappedSubscriber, OpenError> {
        MappedSubscriber::attach(self.endpoint(open, abi::OPEN_READ, bus::MAPPED)?)
    }

    fn endpoint(
        &self,
        open: &OpenOptions<'_>,
        access: u32,
        flags: u32,
    ) -> Result<OwnedFd, OpenError> {
        if open.has_capacity() {
            return Err(OpenError::UnsupportedOption {
                option: "OpenOptions::capacity",
                instead: "bus::Options::capacity",
            });
        }
        if self.capacity > bus::CAPACITY_MAX {
            return Err(OpenError::CapacityRange {
                bytes: self.capacity,
            });
        }
        let params = self.params(access, flags);
        open.bus(access, self.capacity, &params)
            .map_err(|error| self.open_error(open, &params, error))
    }

    fn params(&self, access: u32, flags: u32) -> bus::Params {
        let flag = |flag, set| if set { flag } else { 0 };
        let mut params = bus::Params {
            flags: flags | flag(bus::MAPPABLE, self.mappable),
            mode: self.mode.number(),
            policies: self.policies.bits(),
            ..bus::Params::default()
        };
        // A sender has none of these.
        if access & abi::OPEN_READ != 0 {
            params.flags |= flag(bus::MONITOR, self.monitor);
            params.policy = self.policy.map_or(0, Policy::bit);
            params.limit = self.limit;
        }
        params
    }

    fn open_error(&self, open: &OpenOptions<'_>, params: &bus::Params, error: Error) -> OpenError {
        let errno = match &error {
            Error::NotOwner { .. } => libc::EPERM,
            Error::Io { source, .. } => source.raw_os_error().unwrap_or_default(),
            _ => 0,
        };
        let existing = open.channel().bus_info().ok();
        match errno {
            libc::EPERM => self
                .permission_error(params, existing)
                .unwrap_or(error.into()),
            libc::EINVAL => self.invalid(params, existing),
            libc::EUSERS => OpenError::TooManySubscribers,
            _ => error.into(),
        }
    }

    /// None: another user's bus was to be made persistent.
    fn permission_error(
        &self,
        params: &bus::Params,
        existing: Option<BusInfo>,
    ) -> Option<OpenError> {
        if params.flags & bus::MONITOR != 0 {
            return Some(OpenError::MonitorNotPermitted);
        }
        let permitted = existing.map_or(self.policies, |info| info.policies);
        let policy = self.policy?;
        (!permitted.contains(policy)).then_some(OpenError::PolicyNotPermitted { policy })
    }

    /// The contradiction, if it is one with the bus.
    fn invalid(&self, params: &bus::Params, existing: Option<BusInfo>) -> OpenError {
        let mode = existing.map_or(self.mode, |info| info.mode);
        let mappable = existing.map_or(self.mappable, |info| info.mappable);
        let policies = existing.is_none() && !self.policies.is_empty();
        let is_mapped = params.flags & bus::MAPPED != 0;
        let missing = |option| OpenError::NotInMode { mode, option };
        match mode {
            Mode::Unicast if params.policy != 0 || policies => missing("policies"),
            Mode::Unicast | Mode::Multicast if is_mapped || existing.is_none() && mappable => {
                missing("mapped memory")
            }
            _ if is_mapped && !mappable => OpenError::NotMappable,
            _ => OpenError::InvalidOptions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(mode: u32, policies: u32) -> Option<BusInfo> {
        Some(BusInfo::from(bus::Info {
            mode,
            policies,
            ..bus::Info::default()
        }))
    }

    #[test]
    fn only_a_subscriber_has_the_options_of_one() {
        let options = Options::new()
            .policy(Policy::Block)
            .limit(5)
            .monitor(true)
            .mode(Mode::Multicast);
        let sender = options.params(abi::OPEN_WRITE, 0);
        let expected = bus::Params {
            mode: bus::MULTICAST,
            ..bus::Params::default()
        };
        assert_eq!(sender, expected);
        let both = options.params(abi::OPEN_READ | abi::OPEN_WRITE, 0);
        assert_eq!((both.policy, both.limit), (bus::BLOCK, 5));
        assert_eq!(both.flags, bus::MONITOR);
    }

    #[test]
    fn a_refused_open_has_its_cause() {
        let options = Options::new().policy(Policy::Block);
        let params = options.params(abi::OPEN_READ, 0);
        let error = options.permission_error(&params, info(bus::BROADCAST, bus::DROP));
        assert!(error.unwrap().to_string().contains("'block'"));
        let error = options.permission_error(&params, info(bus::BROADCAST, bus::BLOCK));
        assert!(error.is_none());
        let error = options.invalid(&params, info(bus::UNICAST, 0));
        assert!(error.to_string().contains("unicast bus has no policies"));
        let error = options.invalid(&params, info(bus::BROADCAST, bus::BLOCK));
        assert!(matches!(error, OpenError::InvalidOptions));
        let params = Options::new().params(abi::OPEN_READ, bus::MAPPED);
        let error = Options::new().invalid(&params, info(bus::BROADCAST, bus::BLOCK));
        assert!(matches!(error, OpenError::NotMappable));
        let error = Options::new().invalid(&params, info(bus::MULTICAST, bus::BLOCK));
        assert!(matches!(error, OpenError::NotInMode { .. }));
    }

    #[test]
    fn the_capacity_is_that_of_the_bus() {
        let channel = crate::Channel::bus("prices").unwrap();
        let error = Options::new().create(&channel.options().capacity(4096));
        assert!(matches!(error, Err(OpenError::UnsupportedOption { .. })));
        let error = Options::new().capacity(u64::MAX).create(&channel.options());
        assert!(matches!(error, Err(OpenError::CapacityRange { .. })));
    }
}
