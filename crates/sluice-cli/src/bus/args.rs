// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments that several commands share.

use clap::{Args, ValueEnum};
use sluice::bus::{Mode, Options, Policies, Policy};
use sluice::{Bus, Name};

use crate::args::{self, OpenChannelArgs, With};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeliveryMode {
    /// Each message to every subscriber
    Broadcast,
    /// Each message to one subscriber, in turn
    Multicast,
    /// Each message to the first subscriber that receives it
    Unicast,
}

impl From<DeliveryMode> for Mode {
    fn from(mode: DeliveryMode) -> Self {
        match mode {
            DeliveryMode::Broadcast => Self::Broadcast,
            DeliveryMode::Multicast => Self::Multicast,
            DeliveryMode::Unicast => Self::Unicast,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyName {
    /// A subscriber that does not keep up loses its oldest messages
    Drop,
    /// Senders wait for it
    Block,
    /// It loses its subscription
    Evict,
}

impl From<PolicyName> for Policy {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::Drop => Self::Drop,
            PolicyName::Block => Self::Block,
            PolicyName::Evict => Self::Evict,
        }
    }
}

/// Sets the properties of a new bus.
pub fn new_bus(
    bus: Options,
    mode: Option<DeliveryMode>,
    policies: &[PolicyName],
    mappable: bool,
    capacity: Option<u64>,
) -> Options {
    let policies = policies.iter().copied().map(Policy::from);
    bus.with(mode.map(Mode::from), Options::delivery)
        .policies(policies.collect::<Policies>())
        .mappable(mappable)
        .with(capacity, Options::capacity)
}

/// The capacity of a bus that an open creates.
#[derive(Args)]
pub struct CapacityArgs {
    /// Capacity of a new bus, up to {BUS_CAPACITY_MAX} [default: {BUS_CAPACITY}]
    ///
    /// Rounded up to a power of two of pages. The suffixes K, M and G are units of 1024. A message has at most half of it less 64 bytes, and
    /// at most {BUS_MESSAGE_MAX}.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, requires = "create", value_parser = args::size)]
    capacity: Option<u64>,
}

impl CapacityArgs {
    pub fn apply(&self, bus: Options) -> Options {
        bus.with(self.capacity, Options::capacity)
    }
}

/// How `pub` and `sub` open a bus.
#[derive(Args)]
pub struct OpenBusArgs {
    /// The name of the bus
    #[arg(id = "channel", value_name = "NAME", value_parser = args::name())]
    name: Name,

    #[command(flatten)]
    open: OpenChannelArgs,

    /// Who receives a message of a new bus [default: {BUS_MODE}]
    #[arg(long, value_name = "MODE", requires = "create", value_enum)]
    mode: Option<DeliveryMode>,

    /// Policies that subscribers of a new bus may choose [default: drop,evict]
    ///
    /// By default no subscriber can delay senders. A unicast bus has no policies.
    #[arg(
        long,
        value_name = "POLICY,...",
        value_delimiter = ',',
        requires = "create"
    )]
    policies: Vec<PolicyName>,

    /// Let subscribers of a new bus map its memory
    ///
    /// Only of a broadcast bus with block among its policies.
    #[arg(long, requires = "create")]
    mappable: bool,

    #[command(flatten)]
    capacity: CapacityArgs,
}

impl OpenBusArgs {
    pub fn options(&self) -> sluice::Result<Options> {
        let bus = self.open.apply(Bus::named(self.name))?;
        let (mode, policies) = (self.mode, &self.policies);
        Ok(new_bus(
            bus,
            mode,
            policies,
            self.mappable,
            self.capacity.capacity,
        ))
    }
}
