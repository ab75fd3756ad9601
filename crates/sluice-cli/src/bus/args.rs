// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments that several commands share.

use clap::{Args, ValueEnum};
use sluice::bus::{Mode, Options, Policy};
use sluice::{Channel, Name, OpenOptions};

use crate::args::{self, OpenChannelArgs};

/// The mode of a bus. `--mode` has the permission bits, as for channels of all kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Delivery {
    /// Each message to every subscriber
    Broadcast,
    /// Each message to one subscriber, in turn
    Multicast,
    /// Each message to the first subscriber that receives it
    Unicast,
}

impl From<Delivery> for Mode {
    fn from(delivery: Delivery) -> Self {
        match delivery {
            Delivery::Broadcast => Self::Broadcast,
            Delivery::Multicast => Self::Multicast,
            Delivery::Unicast => Self::Unicast,
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

/// The properties of a new bus.
pub fn new_bus(
    delivery: Option<Delivery>,
    policies: &[PolicyName],
    mappable: bool,
    capacity: Option<u64>,
) -> Options {
    let policies = policies.iter().copied().map(Policy::from);
    let mode = delivery.map_or(Mode::default(), Mode::from);
    let options = Options::new().mode(mode).mappable(mappable);
    let options = options.policies(policies.collect::<sluice::bus::Policies>());
    match capacity {
        Some(bytes) => options.capacity(bytes),
        None => options,
    }
}

/// How `pub` and `sub` open a bus.
#[derive(Args)]
pub struct OpenBusArgs {
    /// The name of the bus
    #[arg(id = "channel", value_name = "NAME", value_parser = args::name)]
    name: Name,

    #[command(flatten)]
    open: OpenChannelArgs,

    /// Who receives a message of a new bus [default: broadcast]
    #[arg(long, value_name = "MODE", requires = "create")]
    delivery: Option<Delivery>,

    /// Policies that subscribers of a new bus may have [default: drop,evict]
    #[arg(
        long,
        value_name = "POLICY,...",
        value_delimiter = ',',
        requires = "create"
    )]
    policies: Vec<PolicyName>,

    /// Let subscribers of a new bus map its memory
    #[arg(long, requires = "create")]
    mappable: bool,

    /// Capacity of a new bus, up to 256M [default: 1M]
    #[arg(long, value_name = "BYTES", requires = "create", value_parser = args::size)]
    capacity: Option<u64>,
}

impl OpenBusArgs {
    pub fn channel(&self) -> sluice::Result<Channel> {
        Ok(Channel::bus(self.name.as_bytes())?.in_scope(self.open.scope()?))
    }

    pub fn open_options<'a>(&self, channel: &'a Channel) -> OpenOptions<'a> {
        self.open.options(channel)
    }

    pub fn options(&self) -> Options {
        new_bus(self.delivery, &self.policies, self.mappable, self.capacity)
    }
}
