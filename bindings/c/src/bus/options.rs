// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of buses.

use std::ffi::{c_char, c_int};

use sluice::Bus;
use sluice::bus::{Mode, Policies, Policy};

use crate::error::{Failure, Result};
use crate::input::{check_flags, has, options, options_of_c, text};
use crate::options::Channel;
use crate::result::call;

/// A mode in struct sluice_bus_options: every subscriber receives a message.
pub const SLUICE_BUS_BROADCAST: u32 = 0;
/// One subscriber in turn receives a message.
pub const SLUICE_BUS_MULTICAST: u32 = 1;
/// The first subscriber that asks receives a message.
pub const SLUICE_BUS_UNICAST: u32 = 2;

/// A subscriber that does not keep up loses its oldest messages, and learns their number.
pub const SLUICE_POLICY_DROP: u32 = 1;
/// Senders wait for a subscriber that does not keep up.
pub const SLUICE_POLICY_BLOCK: u32 = 2;
/// A subscriber that does not keep up loses its subscription.
pub const SLUICE_POLICY_EVICT: u32 = 4;

/// Lets subscribers map the memory of the bus. The open that creates the bus decides. Only of a broadcast bus that permits
/// SLUICE_POLICY_BLOCK.
pub const SLUICE_MAPPABLE: u32 = 1;
/// Subscribes to all messages, including those that others receive, and delays no sender. Needs CAP_SYS_ADMIN on the host.
pub const SLUICE_MONITOR: u32 = 2;

const POLICIES: [(u32, Policy); 3] = [
    (SLUICE_POLICY_DROP, Policy::Drop),
    (SLUICE_POLICY_BLOCK, Policy::Block),
    (SLUICE_POLICY_EVICT, Policy::Evict),
];

/// The options of buses. Mode, policies and SLUICE_MAPPABLE apply to a bus that the call creates.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct BusOptions {
    /// sizeof(struct sluice_bus_options), as SLUICE_BUS_OPTIONS_INIT sets it.
    pub size: usize,
    pub channel: Channel,
    /// SLUICE_BUS_BROADCAST and others.
    pub mode: u32,
    /// The policies that subscribers may have, added up. 0: drop and evict. None in the mode unicast.
    pub policies: u32,
    /// The policy of this subscriber. 0: drop; if the bus does not permit that, a policy that it permits.
    pub policy: u32,
    /// SLUICE_MAPPABLE, SLUICE_MONITOR.
    pub flags: u32,
    /// Unread bytes above which this subscriber of a multicast bus is full. 0: half of the capacity.
    pub limit: u64,
    /// Zero.
    pub reserved: [u64; 4],
}

options_of_c! { BusOptions(104): reserved; }

/// The policies of added numbers.
fn policies(bits: u32) -> impl Iterator<Item = Policy> {
    let all = POLICIES.into_iter();
    all.filter_map(move |(bit, policy)| has(bits, bit).then_some(policy))
}

pub fn policy_bits(policies: Policies) -> u32 {
    let bits = policies.iter().map(policy_bit);
    bits.fold(0, |all, bit| all | bit)
}

pub fn policy_bit(policy: Policy) -> u32 {
    let found = POLICIES.iter().find(|(_, known)| *known == policy);
    found.map_or(0, |(bit, _)| *bit)
}

pub fn mode_number(mode: Mode) -> u32 {
    match mode {
        Mode::Broadcast => SLUICE_BUS_BROADCAST,
        Mode::Multicast => SLUICE_BUS_MULTICAST,
        Mode::Unicast => SLUICE_BUS_UNICAST,
        Mode::Other(number) => number,
        _ => u32::MAX,
    }
}

impl BusOptions {
    fn mode(&self) -> Result<Mode> {
        match self.mode {
            SLUICE_BUS_BROADCAST => Ok(Mode::Broadcast),
            SLUICE_BUS_MULTICAST => Ok(Mode::Multicast),
            SLUICE_BUS_UNICAST => Ok(Mode::Unicast),
            _ => {
                let hint = c"use SLUICE_BUS_BROADCAST, SLUICE_BUS_MULTICAST or SLUICE_BUS_UNICAST";
                Err(Failure::invalid(c"unknown mode of a bus", hint))
            }
        }
    }

    /// # Safety
    /// The scope is NULL or a text.
    unsafe fn named(&self, name: &[u8]) -> Result<sluice::bus::Options> {
        check_flags(self.flags, SLUICE_MAPPABLE | SLUICE_MONITOR)?;
        let known = SLUICE_POLICY_DROP | SLUICE_POLICY_BLOCK | SLUICE_POLICY_EVICT;
        check_flags(self.policies | self.policy, known)?;
        if self.policy.count_ones() > 1 {
            let message = c"a subscriber has one policy";
            return Err(Failure::invalid(
                message,
                c"set `policies` to permit several",
            ));
        }
        // SAFETY: as the caller guarantees.
        let bus = unsafe { self.channel.apply(Bus::named(name)) }?
            .delivery(self.mode()?)
            .mappable(has(self.flags, SLUICE_MAPPABLE))
            .monitor(has(self.flags, SLUICE_MONITOR))
            .policies(policies(self.policies).collect::<Policies>())
            .limit(self.limit);
        Ok(match policies(self.policy).next() {
            Some(policy) => bus.policy(policy),
            None => bus,
        })
    }
}

/// # Safety
/// As of sluice_bus_create().
pub unsafe fn named(
    name: *const c_char,
    passed: *const BusOptions,
) -> Result<sluice::bus::Options> {
    // SAFETY: as the caller guarantees.
    unsafe { options(passed)?.named(text(name)?) }
}

/// Creates a bus that exists until it is removed. Fails with -EEXIST if it exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_bus_create(
    name: *const c_char,
    options: *const BusOptions,
) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        unsafe { named(name, options) }?.create_persistent()?;
        Ok(())
    })
}
