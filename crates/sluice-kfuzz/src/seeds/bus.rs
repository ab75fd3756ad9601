// SPDX-License-Identifier: MIT OR Apache-2.0

use sluice_abi::KIND_BUS;
use sluice_abi::bus::{
    self, ADDRESSED, BATCHED, BLOCK, BROADCAST, DROP, EVICT, Entry, FRAMED, Frame, MAPPABLE,
    MAPPED, MONITOR, MULTICAST, SubscriberInfo, UNICAST,
};

use super::calls::*;
use crate::program::{Call, Content, Value};

const FRAME: u64 = Frame::SIZE as u64;
/// The least capacity: few messages fill it.
const SMALL: u64 = bus::CAPACITY_MIN;
const FIONREAD: u64 = 0x541b;

pub fn all() -> Vec<Vec<Call>> {
    let mut all = vec![mapped(), mapped_that_wait(), faults(), turns()];
    for mode in [BROADCAST, MULTICAST, UNICAST] {
        all.extend([messages(mode), waits(mode)]);
    }
    for policy in [DROP, EVICT, BLOCK] {
        all.push(overflow(BROADCAST, policy));
        all.push(overflow(MULTICAST, policy));
    }
    all
}

fn params(fields: &[(&str, u32)]) -> Option<Content> {
    let fields: Vec<_> = fields
        .iter()
        .map(|field| (field.0, n(field.1.into())))
        .collect();
    Some(structure("sluice_bus_params", &fields))
}

/// One frame with its message for each target.
fn frames(targets: &[u64]) -> Content {
    let one = |target: &u64| {
        let fields = [("length", n(8)), ("target", n(*target)), ("tag", n(7))];
        [
            structure("sluice_bus_frame", &fields),
            Content::Fill(b'm', 8),
        ]
    };
    Content::Joined(targets.iter().flat_map(one).collect())
}

fn write_frames(file: u8, targets: &[u64]) -> Call {
    write(file, frames(targets), targets.len() as u64 * (FRAME + 8))
}

fn message(file: u8, length: u32) -> Call {
    write(file, Content::Fill(b'm', length), length.into())
}

fn subscribers() -> Call {
    let size = SubscriberInfo::SIZE as u32;
    let fields = [
        ("count", n(4)),
        ("entries", at(Content::Fill(0, 4 * size))),
        ("entry_size", n(size.into())),
    ];
    ioctl("SLUICE_BUS_SUBSCRIBERS", 1, &fields)
}

fn messages(mode: u32) -> Vec<Call> {
    let client = if mode == MULTICAST { ADDRESSED } else { 0 };
    let flags = READ | WRITE | CREATE | NONBLOCK;
    let end = |file, fields: &[(&str, u32)]| {
        let fields = [&[("mode", mode)], fields].concat();
        open(file, KIND_BUS, flags, params(&fields))
    };
    vec![
        end(1, &[("format", BATCHED), ("limit", 4096)]),
        end(2, &[("format", FRAMED), ("flags", client)]),
        end(3, &[("flags", MONITOR)]),
        write_frames(1, &[0, 0]),
        write_frames(1, &[0, 2, 1, 99]),
        write_frames(2, &[1]),
        read(1, 4128),
        read(2, 4128),
        read(3, 4128),
        poll(2),
        ioctl("SLUICE_BUS_SET_FORMAT", 2, &[("value", n(BATCHED.into()))]),
        write_frames(1, &[0, 0, 0]),
        read(2, 200),
        call(
            "ioctl",
            0,
            vec![Value::File(2), n(FIONREAD), at(Content::Fill(0, 4))],
        ),
        read(2, 4128),
        ioctl("SLUICE_BUS_SET_SPIN", 2, &[("value", n(0))]),
        message(2, 4000),
        ioctl("SLUICE_BUS_INFO", 2, &[]),
        state(KIND_BUS, "sluice_bus_info"),
        subscribers(),
        remove(KIND_BUS, "SLUICE_CTL_DESTROY"),
        read(1, 4128),
    ]
}

/// More messages than a small bus has room for.
fn overflow(mode: u32, policy: u32) -> Vec<Call> {
    let all = DROP | BLOCK | EVICT;
    let sender = params(&[("mode", mode), ("policies", all)]);
    let subscriber = params(&[("mode", mode), ("policy", policy), ("format", FRAMED)]);
    let send = || message(1, 900);
    vec![
        open_sized(1, KIND_BUS, WRITE | CREATE | NONBLOCK, SMALL, sender),
        open_sized(2, KIND_BUS, READ | NONBLOCK, SMALL, subscriber.clone()),
        open_sized(3, KIND_BUS, READ | NONBLOCK, SMALL, subscriber),
        send(),
        send(),
        read(2, 4128),
        send(),
        send(),
        send(),
        send(),
        poll(1),
        subscribers(),
        poll(2),
        read(2, 4128),
        read(2, 4128),
        write_frames(1, &[2, 2, 2]),
        send(),
        send(),
        read(3, 4128),
        close(2),
        send(),
        read(3, 4128),
    ]
}

fn waits(mode: u32) -> Vec<Call> {
    let end = |file, flags| {
        let policies = if mode == UNICAST { 0 } else { BLOCK };
        let params = params(&[("mode", mode), ("policies", policies)]);
        open_sized(file, KIND_BUS, flags, SMALL, params)
    };
    vec![
        end(1, WRITE | CREATE),
        end(2, READ),
        end(3, READ),
        on_thread(1, read(2, 4096)),
        on_thread(2, read(3, 4096)),
        pause(),
        message(1, 900),
        message(1, 900),
        message(1, 900),
        on_thread(1, message(1, 900)),
        on_thread(1, message(1, 900)),
        on_thread(2, message(1, 1000)),
        pause(),
        read(2, 4096),
        read(3, 4096),
        close(3),
        pause(),
        close(2),
        on_thread(1, message(1, 900)),
        end(2, READ),
        on_thread(2, read(2, 4096)),
        pause(),
        remove(KIND_BUS, "SLUICE_CTL_DESTROY"),
    ]
}

/// Requests to servers in turn, and a full server.
fn turns() -> Vec<Call> {
    let end = |file, flags, own: u32| {
        let params = params(&[("mode", MULTICAST), ("limit", 64), ("flags", own)]);
        open_sized(file, KIND_BUS, flags | NONBLOCK, SMALL, params)
    };
    let turn = || ioctl("SLUICE_BUS_TURN", 1, &[]);
    vec![
        end(1, READ | WRITE | CREATE, ADDRESSED),
        turn(),
        end(2, READ | WRITE, 0),
        end(3, READ | WRITE, 0),
        turn(),
        message(1, 60),
        message(1, 60),
        message(1, 60),
        turn(),
        poll(1),
        poll(2),
        write_frames(2, &[1, 1]),
        read(2, 4096),
        turn(),
        remove(KIND_BUS, "SLUICE_CTL_DESTROY"),
        turn(),
    ]
}

fn receive(released: u64) -> Call {
    let size = Entry::SIZE as u32;
    let fields = [
        ("count", n(4)),
        ("entries", at(Content::Fill(0, 4 * size))),
        ("released", n(released)),
        ("entry_size", n(size.into())),
    ];
    ioctl("SLUICE_BUS_RECEIVE", 2, &fields)
}

fn mappable(flags: u32) -> Option<Content> {
    params(&[("flags", flags), ("policies", BLOCK)])
}

fn mapped() -> Vec<Call> {
    vec![
        open(1, KIND_BUS, WRITE | CREATE | NONBLOCK, mappable(MAPPABLE)),
        open(2, KIND_BUS, READ | NONBLOCK, mappable(MAPPED)),
        mmap(0, 2, 32768, 1, bus::MMAP_DATA),
        mmap(1, 2, 16384, 1, bus::MMAP_DATA),
        message(1, 1000),
        message(1, 1),
        receive(0),
        receive(1),
        call("load", 0, vec![Value::Mapping(0, 0), n(4096)]),
        receive(2),
    ]
}

fn mapped_that_wait() -> Vec<Call> {
    vec![
        open_sized(1, KIND_BUS, WRITE | CREATE, SMALL, mappable(MAPPABLE)),
        open_sized(2, KIND_BUS, READ, SMALL, mappable(MAPPED)),
        on_thread(1, receive(0)),
        pause(),
        message(1, 1000),
        pause(),
        message(1, 1000),
        message(1, 1000),
        on_thread(2, message(1, 1000)),
        receive(1),
        receive(2),
        poll(2),
        pause(),
        on_thread(1, receive(4)),
        pause(),
        close(1),
        remove(KIND_BUS, "SLUICE_CTL_DESTROY"),
        receive(0),
    ]
}

/// Copies from and to pages that are not present; the long ones are too long for a copy without a buffer.
fn faults() -> Vec<Call> {
    const LONG: u64 = 100_000;
    let end = |file, flags| open_sized(file, KIND_BUS, flags, 1 << 20, None);
    vec![
        end(1, WRITE | CREATE | NONBLOCK),
        end(2, READ | NONBLOCK),
        end(3, READ | NONBLOCK),
        fresh_memory(0, 2 * LONG),
        write_from(1, 0, 3000),
        write_from(1, 0, LONG),
        fresh_memory(0, 2 * LONG),
        read_to(2, 0, 4096),
        read_to(2, 0, 2 * LONG),
        fresh_memory(0, 8192),
        fresh_memory(1, 8192),
        read_to(3, 0, 3000),
        read_to(3, 1, 100),
        call("madvise", 0, vec![Value::Mapping(0, 0), n(4096), n(4)]),
        write_frames(1, &[0]),
    ]
}
