// SPDX-License-Identifier: MIT OR Apache-2.0

use sluice_abi::{KIND_FEED, feed, ring};

use super::calls::*;
use crate::program::Call;

pub fn all() -> Vec<Vec<Call>> {
    vec![readers_and_mappings(), ends_of_a_wait()]
}

/// Opens the feed of the simulator.
fn node(to: u8) -> Call {
    let path = bytes(b"/dev/sluice/feed\0");
    let arguments = vec![n(libc::AT_FDCWD as u64), path, n(libc::O_RDWR as u64), n(0)];
    call("openat", to, arguments)
}

fn start(file: u8, count: u64) -> Call {
    let fields = [
        ("interval_ns", n(100_000)),
        ("count", n(count)),
        ("length", n(64)),
        ("cpu", n(feed::CPU_ANY as u64)),
    ];
    ioctl("SLUICE_FEED_START", file, &fields)
}

fn claim(file: u8, role: u32) -> Call {
    ioctl("SLUICE_FEED_CLAIM", file, &[("value", n(role.into()))])
}

fn readers_and_mappings() -> Vec<Call> {
    vec![
        node(1),
        claim(1, feed::CONSUMER_READS),
        start(1, 20),
        read(1, 4128),
        read(1, 4128),
        ioctl("SLUICE_FEED_INFO", 1, &[]),
        ioctl("SLUICE_FEED_SET_SPIN", 1, &[("value", n(1000))]),
        poll(1),
        ioctl("SLUICE_FEED_STOP", 1, &[]),
        close(1),
        node(2),
        mmap(0, 2, 4096, 1, ring::MMAP_PRODUCER),
        mmap(1, 2, 4096, 3, ring::MMAP_CONSUMER),
        mmap(2, 2, 2 << 20, 1, ring::MMAP_DATA),
        start(2, 20),
        on_thread(
            1,
            ioctl("SLUICE_RING_WAIT", 2, &[("timeout_ns", n(10_000_000))]),
        ),
        store(1, 0, 128),
        open(3, KIND_FEED, READ, None),
        state(KIND_FEED, "sluice_feed_info"),
    ]
}

fn ends_of_a_wait() -> Vec<Call> {
    vec![
        node(1),
        claim(1, feed::CONSUMER_READS),
        on_thread(1, read(1, 4128)),
        pause(),
        node(2),
        claim(2, feed::CONSUMER_READS),
        start(2, 100),
        pause(),
        on_thread(2, read(1, 4128)),
        claim(1, feed::CONSUMER_NONE),
        claim(2, feed::CONSUMER_MAPS),
        mmap(0, 2, 4096, 1, ring::MMAP_PRODUCER),
        on_thread(
            1,
            ioctl("SLUICE_RING_WAIT", 2, &[("timeout_ns", n(u64::MAX))]),
        ),
        pause(),
        close(2),
        close(1),
    ]
}
