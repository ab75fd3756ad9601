// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of the netlink family on the map "a", by its name or by a handle.

use sluice_abi::KIND_MAP;
use sluice_abi::map::{NOW, STEP_DELETE, STEP_GET, STEP_SET};
use sluice_abi::netlink::{
    MAP_BATCH, MAP_CLOSE, MAP_DELETE, MAP_DUMP, MAP_GET, MAP_INFO, MAP_OPEN, MAP_SET, MAP_WATCH,
    attr as number,
};

use super::calls::*;
use super::map::mapped;
use crate::memory::length_of;
use crate::program::AttributeContent::{Bytes, Fill, Large, Nest, Small};
use crate::program::{Attribute, AttributeContent, Call, Content, Request, Value};

/// NLM_F_REQUEST with NLM_F_ACK or NLM_F_DUMP.
const ACK: u16 = 0x5;
const DUMP: u16 = 0x301;
const NETLINK_GENERIC: u64 = 16;

pub fn all() -> Vec<Vec<Call>> {
    vec![
        commands(|| attr(number::HANDLE, Small(1))),
        commands(|| attr(number::NAME, Bytes(b"a\0".to_vec()))),
        large_values(),
        handles(),
        table(),
        errors(),
    ]
}

fn attr(number: u16, content: AttributeContent) -> Attribute {
    Attribute { number, content }
}

fn key(key: &[u8]) -> Attribute {
    attr(number::KEY, Bytes(key.to_vec()))
}

fn value(length: u16) -> Attribute {
    attr(number::VALUE, Fill(b'v', length))
}

fn step(command: u32, of: &[u8], length: u16) -> Attribute {
    let mut step = vec![attr(number::COMMAND, Small(command)), key(of)];
    if command == STEP_SET {
        step.push(value(length));
    }
    attr(number::STEP, Nest(step))
}

fn request(command: u8, flags: u16, attributes: Vec<Attribute>) -> Call {
    let content = Content::Requests(vec![Request {
        command,
        flags,
        sequence: 1,
        attributes,
    }]);
    let length = length_of(&content) as u64;
    let arguments = vec![Value::File(1), at(content), n(length), n(0), n(0), n(0)];
    call("request", 0, arguments)
}

fn receive(length: u32) -> Call {
    let arguments = vec![
        Value::File(1),
        at(Content::Fill(0, length)),
        n(length.into()),
        n(libc::MSG_DONTWAIT as u64),
        n(0),
        n(0),
    ];
    call("receive", 0, arguments)
}

fn socket() -> Call {
    let arguments = vec![
        n(libc::AF_NETLINK as u64),
        n(libc::SOCK_RAW as u64),
        n(NETLINK_GENERIC),
    ];
    call("netlink", 1, arguments)
}

fn open_handle(flags: u32) -> Call {
    let attributes = vec![
        attr(number::NAME, Bytes(b"a\0".to_vec())),
        attr(number::FLAGS, Small(flags)),
    ];
    request(MAP_OPEN, ACK, attributes)
}

/// Each command on a map that is named by this attribute, after it was opened.
fn commands(map: fn() -> Attribute) -> Vec<Call> {
    let on_map = |others: Vec<Attribute>| [vec![map()], others].concat();
    let expiring = attr(number::TTL_NS, Large(1 << 40));
    let if_none = attr(number::IF_VERSION, Large(0));
    let steps = vec![
        step(STEP_SET, b"k", 100),
        step(STEP_GET, b"k", 0),
        step(STEP_DELETE, b"k", 0),
        step(STEP_GET, b"k", 0),
    ];
    let watched = vec![
        attr(number::HANDLE, Small(1)),
        attr(number::AFTER, Large(0)),
    ];
    vec![
        socket(),
        open_handle(READ | WRITE | CREATE | PERSIST),
        request(MAP_WATCH, ACK, watched),
        request(MAP_SET, ACK, on_map(vec![key(b"k"), value(100), expiring])),
        request(MAP_GET, ACK, on_map(vec![key(b"k")])),
        request(MAP_BATCH, ACK, on_map(steps)),
        request(MAP_SET, ACK, on_map(vec![key(b"k"), value(100), if_none])),
        request(MAP_DUMP, DUMP, on_map(vec![])),
        receive(32768),
        request(MAP_INFO, ACK, on_map(vec![])),
        request(MAP_DELETE, ACK, on_map(vec![key(b"k")])),
        request(MAP_CLOSE, ACK, vec![attr(number::HANDLE, Small(1))]),
        receive(32768),
        remove(KIND_MAP, "SLUICE_CTL_DESTROY"),
        receive(32768),
    ]
}

/// For which the first buffer of an answer is too short.
fn large_values() -> Vec<Call> {
    let map = || attr(number::HANDLE, Small(1));
    let set = |name: &[u8]| request(MAP_SET, ACK, vec![map(), key(name), value(16_000)]);
    let mut gets = vec![map()];
    gets.extend([b"k", b"l", b"m"].map(|name| step(STEP_GET, name, 0)));
    gets.push(step(STEP_SET, b"n", 9000));
    gets.push(step(STEP_GET, b"n", 0));
    vec![
        socket(),
        open_handle(READ | WRITE | CREATE | PERSIST),
        set(b"k"),
        set(b"l"),
        set(b"m"),
        request(MAP_GET, ACK, vec![map(), key(b"k")]),
        request(MAP_BATCH, ACK, gets),
        request(MAP_DUMP, DUMP, vec![map()]),
        receive(100),
        receive(32768),
        receive(32768),
        request(
            MAP_DUMP,
            DUMP,
            vec![map(), attr(number::KEYS, Bytes(vec![]))],
        ),
        receive(32768),
        receive(32768),
        receive(32768),
        request(MAP_DUMP, DUMP, vec![map()]),
        remove(KIND_MAP, "SLUICE_CTL_DESTROY"),
        receive(32768),
        receive(32768),
    ]
}

/// Two of one socket, which reads no event, and one that may only read.
fn handles() -> Vec<Call> {
    let watch = |handle, after| {
        let attributes = vec![
            attr(number::HANDLE, Small(handle)),
            attr(number::AFTER, Large(after)),
        ];
        request(MAP_WATCH, ACK, attributes)
    };
    let set = |handle| {
        let map = attr(number::HANDLE, Small(handle));
        request(MAP_SET, ACK, vec![map, key(b"k"), value(4000)])
    };
    vec![
        socket(),
        open_handle(READ | WRITE | CREATE | PERSIST),
        open_handle(READ),
        open_handle(READ | WRITE),
        watch(1, NOW),
        watch(2, NOW),
        watch(3, 99),
        set(1),
        set(2),
        set(3),
        set(1),
        set(3),
        pause(),
        receive(32768),
        receive(32768),
        watch(2, 1),
        close(1),
        socket(),
        set(1),
        receive(32768),
    ]
}

/// A map with a table, which requests cannot create.
fn table() -> Vec<Call> {
    let params = structure("sluice_map_params", &mapped(4096, 64));
    let map = || attr(number::NAME, Bytes(b"a\0".to_vec()));
    vec![
        open(2, KIND_MAP, READ | WRITE | CREATE | PERSIST, Some(params)),
        socket(),
        request(MAP_SET, ACK, vec![map(), key(b"k"), value(10)]),
        request(MAP_SET, ACK, vec![map(), key(b"k"), value(100)]),
        request(MAP_INFO, ACK, vec![map()]),
        request(MAP_DELETE, ACK, vec![map(), key(b"k")]),
        receive(32768),
        open_handle(READ),
        receive(32768),
    ]
}

/// Requests that are refused.
fn errors() -> Vec<Call> {
    let map = |handle| attr(number::HANDLE, Small(handle));
    let other_version = attr(number::IF_VERSION, Large(77));
    let large = [
        ("key", bytes(b"k")),
        ("key_length", n(1)),
        ("value", at(Content::Fill(b'v', 20_000))),
        ("value_length", n(20_000)),
    ];
    vec![
        open(2, KIND_MAP, READ | WRITE | CREATE, None),
        socket(),
        request(
            MAP_GET,
            ACK,
            vec![attr(number::NAME, Bytes(b"a\0".to_vec())), key(b"k")],
        ),
        request(MAP_GET, ACK, vec![map(99), key(b"k")]),
        request(MAP_GET, ACK, vec![key(b"k")]),
        open_handle(READ),
        request(MAP_SET, ACK, vec![map(1), key(b"k"), value(10)]),
        open_handle(READ | WRITE),
        request(
            MAP_SET,
            ACK,
            vec![map(2), key(b"k"), value(10), other_version],
        ),
        request(MAP_GET, ACK, vec![map(2), key(b"none")]),
        request(MAP_SET, ACK, vec![map(2), key(b"k")]),
        ioctl("SLUICE_MAP_SET", 2, &large),
        request(MAP_GET, ACK, vec![map(2), key(b"k")]),
        request(MAP_DUMP, DUMP, vec![map(2)]),
        receive(32768),
        request(MAP_BATCH, ACK, vec![map(2)]),
        remove(KIND_MAP, "SLUICE_CTL_DESTROY"),
        request(MAP_GET, ACK, vec![map(2), key(b"k")]),
        receive(32768),
    ]
}
