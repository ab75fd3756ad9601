// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of io_uring on each kind.

use sluice_abi::{KIND_BUS, KIND_MAP, KIND_PIPE, KIND_RING, bus, feed, map};

use super::calls::*;
use crate::program::{Call, Content, Value};

/// IORING_OP_*.
const POLL_ADD: u64 = 6;
const POLL_REMOVE: u64 = 7;
const CANCEL: u64 = 14;
const CLOSE: u64 = 19;
const READ_OP: u64 = 22;
const WRITE_OP: u64 = 23;
const SPLICE: u64 = 30;
const TEE: u64 = 33;
const COMMAND: u64 = 46;
/// IOSQE_ASYNC.
const ASYNC: u64 = 16;

pub fn all() -> Vec<Vec<Call>> {
    vec![pipe_and_bus(), pipe(), ring_and_map(), feed_and_keeper()]
}

fn submit_with(flags: u64, operation: u64, file: u8, length: u32, name: u64) -> Call {
    let arguments = vec![
        n(operation),
        Value::File(file),
        at(Content::Fill(b'u', length)),
        n(length.into()),
        n(u64::MAX),
        n(flags),
        n(name),
        n(1),
    ];
    call("submit", 0, arguments)
}

fn submit(operation: u64, file: u8, length: u32, name: u64) -> Call {
    submit_with(0, operation, file, length, name)
}

fn complete() -> Call {
    call("complete", 0, vec![n(1)])
}

fn unicast() -> Option<Content> {
    let fields = [("mode", n(bus::UNICAST.into()))];
    Some(structure("sluice_bus_params", &fields))
}

fn pipe_and_bus() -> Vec<Call> {
    vec![
        open(1, KIND_PIPE, READ | WRITE | CREATE, None),
        open(2, KIND_BUS, READ | WRITE | CREATE, unicast()),
        submit(READ_OP, 1, 100, 1),
        submit(POLL_ADD, 2, 0, 2),
        submit(WRITE_OP, 1, 100, 2),
        submit(WRITE_OP, 2, 100, 2),
        complete(),
        submit(READ_OP, 2, 4096, 1),
        submit(READ_OP, 1, 100, 1),
        submit(CANCEL, 1, 0, 1),
        submit_with(ASYNC, READ_OP, 2, 4096, 3),
        complete(),
        remove(KIND_BUS, "SLUICE_CTL_DESTROY"),
        complete(),
    ]
}

fn pipe() -> Vec<Call> {
    vec![
        open(1, KIND_PIPE, READ | WRITE | CREATE, None),
        call("pipe2", 2, vec![at(Content::Fill(0, 8)), n(0)]),
        submit_with(ASYNC, READ_OP, 1, 5000, 1),
        submit(WRITE_OP, 1, 5000, 2),
        complete(),
        submit(WRITE_OP, 1, 9000, 2),
        // To the system's pipe from this one, the file 100 + 1.
        submit(SPLICE, 3, 1, 4096),
        submit(TEE, 3, 1, 4096),
        complete(),
        submit_with(ASYNC, WRITE_OP, 1, 20000, 3),
        submit(POLL_ADD, 1, 0, 3),
        submit(POLL_REMOVE, 1, 0, 3),
        submit(COMMAND, 1, 0, 1),
        submit(CLOSE, 1, 0, 1),
        remove(KIND_PIPE, "SLUICE_CTL_DESTROY"),
        complete(),
    ]
}

fn ring_and_map() -> Vec<Call> {
    vec![
        open(1, KIND_RING, WRITE | CREATE, None),
        open(2, KIND_RING, READ, None),
        submit(POLL_ADD, 2, 0, 1),
        submit(READ_OP, 2, 100, 2),
        submit(COMMAND, 1, 0, 2),
        close(1),
        complete(),
        open(3, KIND_MAP, READ | WRITE | CREATE, None),
        ioctl("SLUICE_MAP_WATCH", 3, &[("value", n(map::NOW))]),
        submit(READ_OP, 3, 4096, 1),
        submit_with(ASYNC, READ_OP, 3, 4096, 2),
        submit(POLL_ADD, 3, 0, 3),
        ioctl(
            "SLUICE_MAP_SET",
            3,
            &[("key", bytes(b"k")), ("key_length", n(1))],
        ),
        complete(),
        submit(WRITE_OP, 3, 100, 1),
        submit(POLL_ADD, 3, 0, 3),
        remove(KIND_MAP, "SLUICE_CTL_DESTROY"),
        complete(),
    ]
}

fn feed_and_keeper() -> Vec<Call> {
    let path = bytes(b"/dev/sluice/feed\0");
    let arguments = vec![n(libc::AT_FDCWD as u64), path, n(libc::O_RDWR as u64), n(0)];
    let start = [
        ("interval_ns", n(100_000)),
        ("count", n(20)),
        ("length", n(64)),
        ("cpu", n(feed::CPU_ANY as u64)),
    ];
    let mut keep = ioctl("SLUICE_CTL_KEEP", 0, &[]);
    keep.to = 2;
    vec![
        call("openat", 1, arguments),
        ioctl("SLUICE_FEED_CLAIM", 1, &[("value", n(1))]),
        submit_with(ASYNC, READ_OP, 1, 4128, 1),
        submit(POLL_ADD, 1, 0, 2),
        ioctl("SLUICE_FEED_START", 1, &start),
        complete(),
        submit(READ_OP, 1, 4128, 1),
        submit(WRITE_OP, 1, 100, 1),
        keep,
        submit(READ_OP, 2, 4096, 1),
        submit(POLL_ADD, 2, 0, 2),
        submit(CANCEL, 2, 0, 1),
        complete(),
        close(2),
        close(1),
        complete(),
    ]
}
