// SPDX-License-Identifier: MIT OR Apache-2.0
//! Durable maps, with a keeper that answers when the program says so.

use sluice_abi::KIND_MAP;
use sluice_abi::keeper::{Entry, TABLES, UNLINKED};
use sluice_abi::map::{DURABLE, INTERVAL, MAPPED, NOWAIT, REFUSE};

use super::calls::*;
use super::map::{operation, set};
use crate::program::{Call, Content, Value};

pub fn all() -> Vec<Vec<Call>> {
    let mut all = vec![keeper_that_ends(), errors(), restore_without_an_open()];
    for flags in [0, INTERVAL, REFUSE, MAPPED, MAPPED | INTERVAL] {
        all.push(changes(DURABLE | flags));
    }
    all
}

fn keep() -> Call {
    let mut keep = ioctl("SLUICE_CTL_KEEP", 0, &[("flags", n(TABLES.into()))]);
    keep.to = 2;
    keep
}

/// Answers the messages that there are.
fn answer() -> Call {
    call("answer", 0, vec![Value::File(2), n(1)])
}

fn open_durable(flags: u32) -> Call {
    let (table, cell) = if flags & MAPPED != 0 {
        (4096, 64)
    } else {
        (0, 0)
    };
    let fields = [
        ("flags", n(flags.into())),
        ("deadline_ms", n(1000)),
        ("table", n(table)),
        ("cell", n(cell)),
    ];
    let params = structure("sluice_map_params", &fields);
    open(1, KIND_MAP, READ | WRITE | CREATE, Some(params))
}

fn opened(flags: u32) -> Vec<Call> {
    vec![
        keep(),
        on_thread(1, open_durable(flags)),
        pause(),
        answer(),
        pause(),
    ]
}

fn nowait() -> Vec<(&'static str, Value)> {
    vec![("flags", n(NOWAIT.into()))]
}

fn changes(flags: u32) -> Vec<Call> {
    let mut calls = opened(flags);
    let expiring = [nowait(), vec![("ttl_ns", n(1_000_000))]].concat();
    calls.extend([
        on_thread(1, set(b'k', 100)),
        operation("SLUICE_MAP_SET", &nowait()),
        operation("SLUICE_MAP_SET", &expiring),
        poll(1),
        answer(),
        pause(),
        on_thread(2, ioctl("SLUICE_MAP_SYNC", 1, &[])),
        pause(),
        operation("SLUICE_MAP_DELETE", &nowait()),
        answer(),
        ioctl("SLUICE_MAP_INFO", 1, &[]),
        on_thread(1, remove(KIND_MAP, "SLUICE_CTL_UNLINK")),
        pause(),
        answer(),
        call("close", 0, vec![Value::File(1)]),
        answer(),
    ]);
    calls
}

/// While changes wait; the next one goes on with the streams.
fn keeper_that_ends() -> Vec<Call> {
    let mut calls = opened(DURABLE);
    calls.extend([
        on_thread(1, set(b'k', 100)),
        operation("SLUICE_MAP_SET", &nowait()),
        call("answer", 0, vec![Value::File(2), n(0)]),
        close(2),
        poll(1),
        operation("SLUICE_MAP_SET", &nowait()),
        keep(),
        answer(),
        pause(),
        answer(),
        on_thread(2, remove(KIND_MAP, "SLUICE_CTL_UNLINK")),
        pause(),
        close(2),
        keep(),
        answer(),
    ]);
    calls
}

/// Answers with errors, or of nothing that was asked.
fn errors() -> Vec<Call> {
    let stream = ("stream", Value::Stream);
    let with_error = |name, more: &[(&str, Value)]| {
        let fields = [&[stream.clone(), ("error", n(libc::EIO as u64))], more].concat();
        ioctl(name, 2, &fields)
    };
    vec![
        keep(),
        on_thread(1, open_durable(DURABLE)),
        pause(),
        call("answer", 0, vec![Value::File(2), n(0)]),
        with_error("SLUICE_KEEP_READY", &[]),
        pause(),
        on_thread(1, open_durable(DURABLE)),
        pause(),
        answer(),
        pause(),
        operation("SLUICE_MAP_SET", &nowait()),
        with_error("SLUICE_KEEP_ACK", &[("sequence", n(11))]),
        on_thread(1, set(b'l', 100)),
        ioctl("SLUICE_KEEP_ACK", 2, &[stream.clone(), ("sequence", n(99))]),
        answer(),
        on_thread(2, remove(KIND_MAP, "SLUICE_CTL_UNLINK")),
        pause(),
        with_error("SLUICE_KEEP_END", &[("flags", n(UNLINKED.into()))]),
        ioctl("SLUICE_KEEP_END", 2, std::slice::from_ref(&stream)),
        answer(),
    ]
}

/// A map that was stored, in a scope that the keeper names.
fn restore_without_an_open() -> Vec<Call> {
    let fields = [
        ("flags", n(DURABLE.into())),
        ("open_flags", n((READ | WRITE | CREATE | PERSIST).into())),
        ("mode", n(0o666)),
        ("name", name(b'a')),
        ("capacity", n(65536)),
        ("deadline_ms", n(1000)),
    ];
    let map = at(structure("sluice_keep_map", &fields));
    let entry = |key: u8, version| {
        let fields = [
            ("key", bytes(&[key])),
            ("key_length", n(1)),
            ("value", at(Content::Fill(b'v', 300))),
            ("value_length", n(300)),
            ("version", n(version)),
        ];
        structure("sluice_keep_entry", &fields)
    };
    let entries = at(Content::Joined(vec![entry(b'k', 3), entry(b'l', 5)]));
    let restore = [
        ("stream", Value::Stream),
        ("count", n(2)),
        ("entries", entries),
        ("entry_size", n(Entry::SIZE as u64)),
    ];
    let create = [("map", map), ("sequence", n(7)), ("limit", n(1 << 20))];
    vec![
        keep(),
        ioctl("SLUICE_KEEP_CREATE", 2, &create),
        answer(),
        ioctl("SLUICE_KEEP_RESTORE", 2, &restore),
        ioctl("SLUICE_KEEP_READY", 2, &[("stream", Value::Stream)]),
        on_thread(1, open_durable(DURABLE)),
        pause(),
        answer(),
        pause(),
        operation("SLUICE_MAP_GET", &[]),
        operation("SLUICE_MAP_SET", &nowait()),
        answer(),
    ]
}
