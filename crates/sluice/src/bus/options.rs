// SPDX-License-Identifier: MIT OR Apache-2.0

use std::os::fd::OwnedFd;

use sluice_abi::{self as abi, bus};

use super::error::OpenError;
use super::info::BusInfo;
use super::mapped::MappedSubscriber;
use super::policy::{Mode, Policies, Policy};
use super::requests::{Client, Server};
use super::sender::Sender;
use super::subscriber::Subscriber;
use crate::channel::Channel;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::options::{self, ChannelKind, Creatable, sealed};
use crate::sys::Params;

/// The default limit of a server is this part of the capacity.
const SERVER_LIMIT_DIVISOR: u64 = 16;

/// The kind of buses: where their chains begin.
#[derive(Debug)]
pub enum Bus {}

impl Bus {
    /// The bus of this name.
    pub fn named(name: impl AsRef<[u8]>) -> Options {
        Options::new(name)
    }
}

/// The options to open a bus with.
///
/// ```no_run
/// use sluice::Bus;
/// use sluice::bus::Policy;
///
/// let jobs = Bus::named("jobs").create(true).permissions(0o660).multicast().policies([Policy::Block]);
/// let worker = jobs.subscriber()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Options = options::Options<Bus>;

/// The options that only buses have.
#[derive(Clone, Debug, Default)]
pub struct Own {
    delivery: Mode,
    policies: Policies,
    mappable: bool,
    policy: Option<Policy>,
    limit: u64,
    monitor: bool,
}

impl sealed::Sealed for Bus {}

impl ChannelKind for Bus {
    const KIND: Kind = Kind::Bus;
    type Info = BusInfo;
    type OpenError = OpenError;
    type Own = Own;

    fn query(channel: &Channel) -> Result<BusInfo> {
        channel.state::<bus::Info>().map(BusInfo::from)
    }
}

impl Creatable for Bus {
    fn open_new(options: &Options) -> std::result::Result<OwnedFd, OpenError> {
        options.open_bus(abi::OPEN_WRITE, 0)
    }
}

impl Options {
    /// All subscribers receive a message: [`delivery`](Self::delivery) by [`Mode::Broadcast`], the default.
    pub fn broadcast(self) -> Self {
        self.delivery(Mode::Broadcast)
    }

    /// One subscriber in turn receives a message: [`delivery`](Self::delivery) by [`Mode::Multicast`].
    pub fn multicast(self) -> Self {
        self.delivery(Mode::Multicast)
    }

    /// The first subscriber that asks receives a message: [`delivery`](Self::delivery) by [`Mode::Unicast`].
    pub fn unicast(self) -> Self {
        self.delivery(Mode::Unicast)
    }

    /// Who receives a message. The open that creates the bus decides.
    pub fn delivery(mut self, mode: Mode) -> Self {
        self.own.delivery = mode;
        self
    }

    /// The policies that subscribers may have, [`Policy::Drop`] and [`Policy::Evict`] by default. The open that creates the bus
    /// decides. Not in the mode unicast.
    pub fn policies(mut self, policies: impl Into<Policies>) -> Self {
        self.own.policies = policies.into();
        self
    }

    /// Lets subscribers map the memory of the bus, as [`MappedSubscriber`]. The open that creates the bus decides. Only in the mode
    /// broadcast, with the policy [`Policy::Block`] among those of the bus. Messages of such a bus cannot be addressed.
    pub fn mappable(mut self, mappable: bool) -> Self {
        self.own.mappable = mappable;
        self
    }

    /// The policy of this subscriber; by default [`Policy::Drop`], or what the bus permits instead. Not in the mode unicast.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.own.policy = Some(policy);
        self
    }

    /// The number of unread bytes above which this subscriber of a multicast bus is full; half of the capacity by default.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.own.limit = bytes;
        self
    }

    /// Subscribes to all messages, including those that others receive, and delays no sender. Needs CAP_SYS_ADMIN in the initial user
    /// namespace. Not mapped.
    pub fn monitor(mut self, monitor: bool) -> Self {
        self.own.monitor = monitor;
        self
    }

    /// Calls of the endpoint that wait fail with [`SendError::Full`](super::SendError::Full) or
    /// [`RecvError::Empty`](super::RecvError::Empty) instead.
    pub fn nonblocking(self, nonblocking: bool) -> Self {
        self.flag(abi::OPEN_NONBLOCK, nonblocking)
    }

    /// Opens the bus to send.
    pub fn sender(&self) -> std::result::Result<Sender, OpenError> {
        Sender::attach(self.open_bus(abi::OPEN_WRITE, 0)?)
    }

    /// Opens the bus to receive.
    pub fn subscriber(&self) -> std::result::Result<Subscriber, OpenError> {
        Subscriber::attach(self.open_bus(abi::OPEN_READ, 0)?)
    }

    /// Opens the bus to receive through mapped memory.
    pub fn mapped_subscriber(&self) -> std::result::Result<MappedSubscriber, OpenError> {
        MappedSubscriber::attach(self.open_bus(abi::OPEN_READ, bus::MAPPED)?)
    }

    /// Opens the bus to send and to receive, through one endpoint with one id. The subscriber also receives what it sends itself in the
    /// mode broadcast. The endpoint is closed when both are dropped.
    pub fn endpoint(&self) -> std::result::Result<(Sender, Subscriber), OpenError> {
        self.open_both(0)
    }

    /// Opens a multicast bus to send requests to its servers and receive their replies. Fails with
    /// [`Error::NotFound`](crate::Error::NotFound) if no server has created the bus yet. With [`create`](Self::create) it creates the bus as
    /// [`server`](Self::server) does, and calls fail with [`CallError::NoServer`](super::CallError::NoServer) until there is a server.
    pub fn client(&self) -> std::result::Result<Client, OpenError> {
        let (sender, subscriber) = self.of_requests().open_both(bus::ADDRESSED)?;
        Ok(Client::new(sender, subscriber))
    }

    /// Opens a multicast bus to receive requests and send replies. If it creates the bus, the subscribers may have every policy, unless
    /// [`policies`](Self::policies) says otherwise. The [policy](Self::policy) of a server cannot be [`Policy::Drop`]: a request that it
    /// loses would have no reply.
    pub fn server(&self) -> std::result::Result<Server, OpenError> {
        let existing = self.info().ok();
        match (existing.map(|info| info.mode), self.own.policy) {
            (Some(Mode::Multicast) | None, None | Some(Policy::Block | Policy::Evict)) => {}
            (Some(Mode::Multicast) | None, _) => return Err(OpenError::DroppingServer),
            (Some(mode), _) => {
                let option = "requests";
                return Err(OpenError::NotInMode { mode, option });
            }
        }
        let capacity = match existing {
            Some(info) => info.capacity,
            None if self.capacity == 0 => bus::DEFAULT_CAPACITY,
            // As the module rounds it. What is out of range fails in the open.
            None => self
                .capacity
                .clamp(bus::CAPACITY_MIN, bus::CAPACITY_MAX)
                .next_power_of_two(),
        };
        let mut blocking = self.of_requests();
        blocking.own.policy = self.own.policy.or(Some(Policy::Block));
        if blocking.own.limit == 0 {
            blocking.own.limit = capacity / SERVER_LIMIT_DIVISOR;
        }
        let (sender, subscriber) = match blocking.open_both(0) {
            Err(error @ OpenError::PolicyNotPermitted { .. }) if self.own.policy.is_none() => {
                let mut evicting = self.of_requests();
                evicting.own.policy = Some(Policy::Evict);
                evicting.open_both(0).map_err(|_| error)?
            }
            opened => opened?,
        };
        Ok(Server::new(sender, subscriber, capacity))
    }

    /// What clients and servers have in common. The endpoint is blocking: calls that must not wait say so each time.
    fn of_requests(&self) -> Self {
        let mut options = self.clone().multicast().nonblocking(false);
        if options.own.policies.is_empty() {
            options.own.policies = Policies::from([Policy::Drop, Policy::Block, Policy::Evict]);
        }
        options
    }

    fn open_both(&self, flags: u32) -> std::result::Result<(Sender, Subscriber), OpenError> {
        let endpoint = self.open_bus(abi::OPEN_READ | abi::OPEN_WRITE, flags)?;
        let subscriber = Subscriber::attach(endpoint)?;
        let endpoint = subscriber.endpoint.try_clone()?;
        Ok((Sender { endpoint }, subscriber))
    }

    fn open_bus(&self, access: u32, flags: u32) -> std::result::Result<OwnedFd, OpenError> {
        let bytes = self.capacity;
        if bytes > bus::CAPACITY_MAX {
            return Err(OpenError::CapacityRange { bytes });
        }
        let params = self.own.params(access, flags);
        self.open_endpoint(access, bytes, Params::Bus(&params))
            .map_err(|error| self.own.open_error(&params, error, || self.info().ok()))
    }
}

impl Own {
    fn params(&self, access: u32, flags: u32) -> bus::Params {
        let flag = |flag, set| if set { flag } else { 0 };
        let mut params = bus::Params {
            flags: flags | flag(bus::MAPPABLE, self.mappable),
            mode: self.delivery.number(),
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

    /// `existing` returns the state of the bus, if it exists.
    fn open_error(
        &self,
        params: &bus::Params,
        error: Error,
        existing: impl FnOnce() -> Option<BusInfo>,
    ) -> OpenError {
        let errno = match &error {
            Error::NotOwner { .. } => libc::EPERM,
            Error::Io { source, .. } => source.raw_os_error().unwrap_or_default(),
            _ => 0,
        };
        match errno {
            libc::EPERM => self
                .permission_error(params, existing())
                .unwrap_or(error.into()),
            libc::EINVAL => self.invalid(params, existing()),
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
        let mode = existing.map_or(self.delivery, |info| info.mode);
        let mappable = existing.map_or(self.mappable, |info| info.mappable);
        let policies = existing.is_none() && !self.policies.is_empty();
        let is_mapped = params.flags & bus::MAPPED != 0;
        let is_client = params.flags & bus::ADDRESSED != 0;
        let missing = |option| OpenError::NotInMode { mode, option };
        match mode {
            Mode::Unicast | Mode::Broadcast if is_client => missing("requests"),
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

    fn own(options: Options) -> Own {
        options.own
    }

    #[test]
    fn the_chain_sets_what_the_kernel_gets() {
        let options = Bus::named("prices")
            .policies([Policy::Block])
            .mappable(true)
            .policy(Policy::Block)
            .limit(5);
        let params = options.own.params(abi::OPEN_READ, bus::MAPPED);
        let expected = bus::Params {
            flags: bus::MAPPABLE | bus::MAPPED,
            policies: bus::BLOCK,
            policy: bus::BLOCK,
            limit: 5,
            ..bus::Params::default()
        };
        assert_eq!(params, expected);
        assert!(options.nonblocking(true).has_flag(abi::OPEN_NONBLOCK));
        for (options, mode) in [
            (Bus::named("prices"), bus::BROADCAST),
            (Bus::named("prices").multicast(), bus::MULTICAST),
            (Bus::named("prices").unicast(), bus::UNICAST),
            (Bus::named("prices").unicast().broadcast(), bus::BROADCAST),
        ] {
            assert_eq!(own(options).params(abi::OPEN_WRITE, 0).mode, mode);
        }
    }

    #[test]
    fn only_a_subscriber_has_the_options_of_one() {
        let options = Bus::named("prices").policy(Policy::Block).limit(5);
        let options = own(options.monitor(true).multicast());
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
        let options = own(Bus::named("prices").policy(Policy::Block));
        let params = options.params(abi::OPEN_READ, 0);
        let error = options.permission_error(&params, info(bus::BROADCAST, bus::DROP));
        assert!(error.unwrap().to_string().contains("'block'"));
        let error = options.permission_error(&params, info(bus::BROADCAST, bus::BLOCK));
        assert!(error.is_none());
        let error = options.invalid(&params, info(bus::UNICAST, 0));
        assert!(error.to_string().contains("unicast bus has no policies"));
        let error = options.invalid(&params, info(bus::BROADCAST, bus::BLOCK));
        assert!(matches!(error, OpenError::InvalidOptions));
        let params = Own::default().params(abi::OPEN_READ, bus::MAPPED);
        let error = Own::default().invalid(&params, info(bus::BROADCAST, bus::BLOCK));
        assert!(matches!(error, OpenError::NotMappable));
        let error = Own::default().invalid(&params, info(bus::MULTICAST, bus::BLOCK));
        assert!(matches!(error, OpenError::NotInMode { .. }));
    }

    #[test]
    fn the_capacity_is_limited_before_the_open() {
        let prices = Bus::named("prices").capacity(u64::MAX);
        for error in [prices.sender().map(drop), prices.server().map(drop)] {
            assert!(matches!(error, Err(OpenError::CapacityRange { .. })));
        }
    }
}
