// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use sluice_abi::bus;

use super::calls;
use super::policy::{Mode, Policies, Policy};

/// The state of a bus, and of the queried endpoint. The counts are totals since the bus was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BusInfo {
    pub mode: Mode,
    /// Those that subscribers may have; none in the mode unicast.
    pub policies: Policies,
    /// Whether subscribers can map it.
    pub mappable: bool,
    /// Bytes.
    pub capacity: u64,
    /// The largest message, in bytes.
    pub message_max: u64,
    /// Without clients and monitors.
    pub subscribers: u32,
    pub senders: u32,
    /// Messages; also the sequence of the next one.
    pub sent: u64,
    /// Messages of a broadcast bus that were sent while it had no subscriber.
    pub unsubscribed: u64,
    /// Messages that subscribers have lost.
    pub lost: u64,
    /// Subscribers.
    pub evicted: u64,
    /// Messages that the subscriber furthest behind has not received.
    pub lag: u64,
    /// None if the bus was not queried through an endpoint.
    pub endpoint: Option<EndpointInfo>,
}

/// The state of an endpoint of a bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointInfo {
    /// Never used for another endpoint of the bus.
    pub id: u64,
    /// Of a subscriber, except in the mode unicast.
    pub policy: Option<Policy>,
    pub mapped: bool,
    pub monitor: bool,
    /// Sends requests and receives replies, and takes no turn: see [`Client`](super::Client).
    pub client: bool,
    /// Messages that this subscriber has lost.
    pub lost: u64,
    /// Messages that this subscriber has not received.
    pub lag: u64,
    /// See [`Sender::set_spin_limit`](super::Sender::set_spin_limit).
    pub spin_limit: Duration,
}

/// A subscriber in the list of a bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberInfo {
    pub id: u64,
    pub policy: Option<Policy>,
    pub mapped: bool,
    pub monitor: bool,
    /// Sends requests and receives replies, and takes no turn: see [`Client`](super::Client).
    pub client: bool,
    /// Messages that it has not received.
    pub lag: u64,
    /// Messages that it has lost.
    pub lost: u64,
    /// The process that opened it, if it is visible here.
    pub pid: Option<u32>,
    /// The user that opened it.
    pub uid: u32,
}

fn policy(bits: u32) -> Option<Policy> {
    Policies::from_bits(bits).iter().next()
}

impl From<bus::Info> for BusInfo {
    fn from(info: bus::Info) -> Self {
        let endpoint = EndpointInfo {
            id: info.id,
            policy: policy(info.policy),
            mapped: info.flags & bus::MAPPED != 0,
            monitor: info.flags & bus::MONITOR != 0,
            client: info.flags & bus::ADDRESSED != 0,
            lost: info.own_lost,
            lag: info.own_lag,
            spin_limit: Duration::from_nanos(info.spin_limit_ns),
        };
        let mode = Mode::from_number(info.mode);
        Self {
            mode,
            policies: match mode {
                Mode::Unicast => Policies::default(),
                _ => Policies::from_bits(info.policies),
            },
            mappable: info.flags & bus::MAPPABLE != 0,
            capacity: info.capacity,
            message_max: info.message_max,
            subscribers: info.subscribers,
            senders: info.senders,
            sent: info.sent,
            unsubscribed: info.unsubscribed,
            lost: info.lost,
            evicted: info.evicted,
            lag: info.lag,
            endpoint: (info.id != 0).then_some(endpoint),
        }
    }
}

impl From<bus::SubscriberInfo> for SubscriberInfo {
    fn from(info: bus::SubscriberInfo) -> Self {
        Self {
            id: info.id,
            policy: policy(info.policy),
            mapped: info.flags & bus::MAPPED != 0,
            monitor: info.flags & bus::MONITOR != 0,
            client: info.flags & bus::ADDRESSED != 0,
            lag: info.lag,
            lost: info.lost,
            pid: (info.pid != 0).then_some(info.pid),
            uid: info.uid,
        }
    }
}

/// All subscribers, by id.
pub(super) fn subscribers(endpoint: BorrowedFd<'_>) -> io::Result<Vec<SubscriberInfo>> {
    let mut all = Vec::new();
    let mut page = [bus::SubscriberInfo::default(); bus::SUBSCRIBERS_MAX];
    let mut after = 0;
    loop {
        let filled = calls::subscribers(endpoint, after, &mut page)?;
        all.extend(page[..filled].iter().copied().map(SubscriberInfo::from));
        match page[..filled].last() {
            Some(last) if filled == page.len() => after = last.id,
            _ => return Ok(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_endpoint_has_a_state_of_its_own() {
        let info = bus::Info {
            flags: bus::MAPPABLE | bus::MAPPED,
            policies: bus::BLOCK | bus::DROP,
            policy: bus::BLOCK,
            ..bus::Info::default()
        };
        let of_bus = BusInfo::from(info);
        assert!(of_bus.mappable && of_bus.endpoint.is_none());
        assert_eq!(of_bus.policies.to_string(), "drop,block");
        let endpoint = BusInfo::from(bus::Info { id: 3, ..info }).endpoint.unwrap();
        assert_eq!((endpoint.id, endpoint.policy), (3, Some(Policy::Block)));
        assert!(endpoint.mapped && !endpoint.monitor);
    }

    #[test]
    fn a_unicast_bus_has_no_policies() {
        let info = BusInfo::from(bus::Info {
            mode: bus::UNICAST,
            policies: bus::DROP | bus::EVICT,
            ..bus::Info::default()
        });
        assert!(info.policies.is_empty());
    }
}
