// SPDX-License-Identifier: MIT OR Apache-2.0

use sluice_abi::KIND_MAP;
use sluice_abi::map::{
    Cursor, KEYS, MAPPED, MMAP_HEADER, MMAP_TABLE, NOW, STEP_DELETE, STEP_GET, STEP_SET, Step,
};

use super::calls::*;
use crate::program::{Call, Content, Value};

const TABLE: u64 = 4096;

pub fn all() -> Vec<Vec<Call>> {
    vec![
        operations(&[]),
        operations(&mapped(65536, 128)),
        table_that_is_full(),
        map_that_is_full(),
        expiry(&[]),
        expiry(&mapped(TABLE, 64)),
        watchers(),
        faults(),
    ]
}

pub fn mapped(table: u64, cell: u64) -> [(&'static str, Value); 3] {
    [
        ("flags", n(MAPPED.into())),
        ("table", n(table)),
        ("cell", n(cell)),
    ]
}

pub fn open_map(to: u8, capacity: u64, fields: &[(&str, Value)]) -> Call {
    let params = structure("sluice_map_params", fields);
    let flags = READ | WRITE | CREATE | PERSIST;
    open_sized(to, KIND_MAP, flags, capacity, Some(params))
}

/// On the map in slot 1.
pub fn operation(name: &str, fields: &[(&str, Value)]) -> Call {
    let ordinary = [
        ("key", bytes(b"k")),
        ("key_length", n(1)),
        ("value", at(Content::Fill(b'v', 100))),
        ("value_length", n(100)),
    ];
    ioctl(name, 1, &[&ordinary, fields].concat())
}

pub fn set(key: u8, length: u32) -> Call {
    let fields = [
        ("key", bytes(&[key])),
        ("value", at(Content::Fill(b'v', length))),
        ("value_length", n(length.into())),
    ];
    operation("SLUICE_MAP_SET", &fields)
}

fn step(command: u32, key: u8) -> Content {
    let fields = [
        ("command", n(command.into())),
        ("key", bytes(&[key])),
        ("key_length", n(1)),
        ("value", at(Content::Fill(b'v', 16))),
        ("value_length", n(16)),
    ];
    structure("sluice_map_step", &fields)
}

fn batch(steps: Vec<Content>) -> Call {
    let fields = [
        ("count", n(steps.len() as u64)),
        ("steps", at(Content::Joined(steps))),
        ("step_size", n(Step::SIZE as u64)),
    ];
    ioctl("SLUICE_MAP_BATCH", 1, &fields)
}

/// The cursor is that of the beginning.
fn dump(length: u32, flags: u32) -> Call {
    let fields = [
        ("flags", n(flags.into())),
        ("records", at(Content::Fill(0, length))),
        ("length", n(length.into())),
        ("cursor", Value::Bytes(vec![0; Cursor::SIZE])),
    ];
    ioctl("SLUICE_MAP_DUMP", 1, &fields)
}

fn watch(after: u64) -> Call {
    ioctl("SLUICE_MAP_WATCH", 1, &[("value", n(after))])
}

fn operations(params: &[(&str, Value)]) -> Vec<Call> {
    let if_version = [("flags", n(1)), ("version", n(1)), ("ttl_ns", n(1_000_000))];
    vec![
        open_map(1, 0, &[params, &[("events", n(16))]].concat()),
        watch(NOW),
        set(b'k', 100),
        operation("SLUICE_MAP_GET", &[]),
        operation("SLUICE_MAP_SET", &if_version),
        batch(vec![
            step(STEP_SET, b's'),
            step(STEP_GET, b's'),
            step(STEP_DELETE, b's'),
        ]),
        dump(4096, 0),
        poll(1),
        read(1, 4096),
        operation("SLUICE_MAP_DELETE", &[]),
        ioctl("SLUICE_MAP_INFO", 1, &[]),
        state(KIND_MAP, "sluice_map_info"),
        mmap(0, 1, 4096, 1, MMAP_HEADER),
        mmap(1, 1, 65536, 1, MMAP_TABLE),
        on_thread(1, set(b'k', 10)),
        operation("SLUICE_MAP_DELETE", &[]),
        remove(KIND_MAP, "SLUICE_CTL_UNLINK"),
    ]
}

/// The table has fewer cells than the map has entries, and cells that are too short for some values.
fn table_that_is_full() -> Vec<Call> {
    let sets = |from: u8| (from..from + 18).map(|key| step(STEP_SET, key)).collect();
    let deletes = (b'a'..b'r').map(|key| step(STEP_DELETE, key)).collect();
    vec![
        open_map(1, 0, &mapped(TABLE, 256)),
        mmap(0, 1, 4096, 1, MMAP_HEADER),
        mmap(1, 1, TABLE, 1, MMAP_TABLE),
        set(b'k', 10),
        set(b'k', 200),
        set(b'k', 5),
        set(b'k', 3000),
        set(b'k', 8),
        batch(sets(b'a')),
        batch(sets(b'A')),
        dump(8192, KEYS),
        batch(deletes),
        batch(sets(b'a')),
        call("load", 0, vec![Value::Mapping(1, 0), n(4096)]),
        ioctl("SLUICE_MAP_INFO", 1, &[]),
        open_map(2, 0, &mapped(TABLE, 256)),
        open_map(3, 0, &mapped(TABLE, 128)),
        remove(KIND_MAP, "SLUICE_CTL_DESTROY"),
        set(b'k', 10),
    ]
}

/// Memory that readers may use, or the log, is not free at once.
fn map_that_is_full() -> Vec<Call> {
    let mut calls = vec![
        open_map(1, 65536, &[("events", n(64)), ("entries", n(6))]),
        watch(NOW),
    ];
    calls.extend((b'a'..b'e').map(|key| set(key, 14_000)));
    calls.extend([
        set(b'a', 20_000),
        set(b'e', 14_000),
        operation("SLUICE_MAP_DELETE", &[("key", bytes(b"a"))]),
        operation("SLUICE_MAP_DELETE", &[("key", bytes(b"b"))]),
        set(b'e', 14_000),
        set(b'f', 14_000),
        on_thread(1, set(b'c', 15_000)),
        on_thread(2, set(b'd', 16_000)),
        set(b'g', 14_000),
        dump(100, 0),
        dump(20_000, 0),
    ]);
    calls
}

fn expiry(params: &[(&str, Value)]) -> Vec<Call> {
    let expiring = |key: u8, ttl: u64| {
        let fields = [("key", bytes(&[key])), ("ttl_ns", n(ttl))];
        operation("SLUICE_MAP_SET", &fields)
    };
    vec![
        open_map(1, 65536, params),
        watch(NOW),
        expiring(b'a', 3_000_000),
        expiring(b'b', 2_000_000),
        expiring(b'c', 1_000_000),
        expiring(b'd', 4_000_000),
        expiring(b'd', 1_000),
        operation("SLUICE_MAP_GET", &[("key", bytes(b"d"))]),
        pause(),
        expiring(b'e', 1_000),
        set(b'e', 40_000),
        operation("SLUICE_MAP_GET", &[("key", bytes(b"a"))]),
        read(1, 4096),
        ioctl("SLUICE_MAP_INFO", 1, &[]),
    ]
}

/// Of a log that is too short, with buffers that are too short.
fn watchers() -> Vec<Call> {
    vec![
        open_map(1, 0, &[("events", n(2))]),
        watch(NOW),
        on_thread(1, read(1, 4096)),
        pause(),
        set(b'a', 10),
        set(b'b', 10),
        set(b'a', 20),
        set(b'b', 20),
        read(1, 20),
        read(1, 4096),
        read(1, 4096),
        watch(1),
        watch(99),
        poll(1),
        on_thread(2, read(1, 4096)),
        on_thread(1, read(1, 4096)),
        pause(),
        remove(KIND_MAP, "SLUICE_CTL_DESTROY"),
        read(1, 4096),
    ]
}

fn faults() -> Vec<Call> {
    let to_space = |name| {
        let fields = [("value", Value::Mapping(0, 0)), ("value_length", n(40_000))];
        operation(name, &fields)
    };
    vec![
        open_map(1, 0, &[]),
        fresh_memory(0, 65536),
        to_space("SLUICE_MAP_SET"),
        fresh_memory(0, 65536),
        to_space("SLUICE_MAP_GET"),
        operation("SLUICE_MAP_GET", &[]),
        fresh_memory(0, 65536),
        ioctl(
            "SLUICE_MAP_DUMP",
            1,
            &[("records", Value::Mapping(0, 0)), ("length", n(65536))],
        ),
    ]
}
