// SPDX-License-Identifier: MIT OR Apache-2.0
//! The states of buses and of their subscribers.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

use sluice::Bus;
use sluice::bus::{BusInfo, SubscriberInfo};

use super::options::{mode_number, policy_bit, policy_bits};
use crate::input::{nanoseconds, text};
use crate::options::in_scope;
use crate::result::put;

/// The state of a bus, and of the queried endpoint. The counts are totals since the bus was created.
#[repr(C)]
pub struct BusState {
    /// SLUICE_BUS_BROADCAST and others.
    pub mode: u32,
    /// The policies that subscribers may have, added up.
    pub policies: u32,
    /// 1 if subscribers can map it.
    pub mappable: u32,
    /// Without clients and monitors.
    pub subscribers: u32,
    pub senders: u32,
    pub reserved_word: u32,
    /// Bytes.
    pub capacity: u64,
    /// The largest message, in bytes.
    pub message_max: u64,
    /// Messages; also the sequence of the next one.
    pub sent: u64,
    /// Messages of a broadcast bus that were sent while it had no subscriber.
    pub unsubscribed: u64,
    /// Messages that subscribers have lost.
    pub lost: u64,
    /// Subscribers that were evicted.
    pub evicted: u64,
    /// Messages that the subscriber furthest behind has not received.
    pub lag: u64,
    /// The queried endpoint. Its id is never used for another endpoint of the bus. The id is 0 if the bus was queried by its name.
    pub endpoint: SubscriberState,
    pub reserved: [u64; 4],
}

/// A subscriber of a bus, or another endpoint.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct SubscriberState {
    pub id: u64,
    /// SLUICE_POLICY_DROP and others, or 0.
    pub policy: u32,
    /// 1 if it maps the bus.
    pub mapped: u32,
    /// 1 if it is a monitor.
    pub monitor: u32,
    /// 1 if it is a client.
    pub client: u32,
    /// Messages that it has not received.
    pub lag: u64,
    /// Messages that it has lost.
    pub lost: u64,
    /// Of the queried endpoint.
    pub spin_limit_ns: u64,
    /// In a list: the process that opened it, or 0 if it is not visible here.
    pub pid: u32,
    /// In a list: the user that opened it.
    pub uid: u32,
    pub reserved: [u64; 2],
}

impl From<BusInfo> for BusState {
    fn from(info: BusInfo) -> Self {
        let endpoint = info.endpoint.map(|endpoint| SubscriberState {
            id: endpoint.id,
            policy: endpoint.policy.map_or(0, policy_bit),
            mapped: endpoint.mapped.into(),
            monitor: endpoint.monitor.into(),
            client: endpoint.client.into(),
            lag: endpoint.lag,
            lost: endpoint.lost,
            spin_limit_ns: nanoseconds(endpoint.spin_limit),
            ..SubscriberState::default()
        });
        Self {
            mode: mode_number(info.mode),
            policies: policy_bits(info.policies),
            mappable: info.mappable.into(),
            subscribers: info.subscribers,
            senders: info.senders,
            reserved_word: 0,
            capacity: info.capacity,
            message_max: info.message_max,
            sent: info.sent,
            unsubscribed: info.unsubscribed,
            lost: info.lost,
            evicted: info.evicted,
            lag: info.lag,
            endpoint: endpoint.unwrap_or_default(),
            reserved: [0; 4],
        }
    }
}

impl From<SubscriberInfo> for SubscriberState {
    fn from(info: SubscriberInfo) -> Self {
        Self {
            id: info.id,
            policy: info.policy.map_or(0, policy_bit),
            mapped: info.mapped.into(),
            monitor: info.monitor.into(),
            client: info.client.into(),
            lag: info.lag,
            lost: info.lost,
            pid: info.pid.unwrap_or(0),
            uid: info.uid,
            ..Self::default()
        }
    }
}

/// Stores as many subscribers as there is room for, and returns the number of all.
pub fn list(all: &[SubscriberInfo], into: &mut [MaybeUninit<SubscriberState>]) -> usize {
    for (room, info) in into.iter_mut().zip(all) {
        room.write(SubscriberState::from(*info));
    }
    all.len()
}

/// Queries the state of the bus of this name, which is not opened for it. The scope has the meaning of `scope` in struct sluice_channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_bus_query(
    name: *const c_char,
    scope: *const c_char,
    state: Option<&mut MaybeUninit<BusState>>,
) -> c_int {
    put(state, || {
        // SAFETY: the conventions.
        Ok(unsafe { in_scope(Bus::named(text(name)?), scope) }?.info()?)
    })
}
