// SPDX-License-Identifier: MIT OR Apache-2.0

use sluice_abi::{KIND_RING, ring};

use super::calls::*;
use crate::program::{Call, Value};

pub fn all() -> Vec<Vec<Call>> {
    vec![records_of_a_ring(), waits()]
}

/// Opens a producer as file 1 and a consumer as file 2.
fn open_both() -> Vec<Call> {
    [(1, WRITE | CREATE | PERSIST), (2, READ)]
        .into_iter()
        .map(|(file, flags)| {
            let params = structure("sluice_ring_params", &[("node", n(u64::MAX))]);
            open(file, KIND_RING, flags, Some(params))
        })
        .collect()
}

fn wait_for(file: u8, timeout: u64) -> Call {
    ioctl("SLUICE_RING_WAIT", file, &[("timeout_ns", n(timeout))])
}

fn records_of_a_ring() -> Vec<Call> {
    let mut calls = open_both();
    // The control pages of both, and the data of the producer, in which a record is published.
    calls.extend([
        mmap(0, 1, 4096, 3, ring::MMAP_PRODUCER),
        mmap(1, 2, 4096, 3, ring::MMAP_CONSUMER),
        mmap(2, 1, 32768, 3, ring::MMAP_DATA),
        mmap(3, 2, 32768, 1, ring::MMAP_DATA),
        store(2, 0, 8 | 1 << 32),
        store(0, 0, 16),
        store(1, 128, 2),
        on_thread(1, wait_for(2, 10_000_000)),
        ioctl("SLUICE_RING_WAKE", 1, &[]),
        poll(2),
        ioctl("SLUICE_RING_INFO", 1, &[]),
        state(KIND_RING, "sluice_ring_info"),
        store(1, 0, 16),
        call("madvise", 0, vec![Value::Mapping(2, 0), n(32768), n(4)]),
        call("mprotect", 0, vec![Value::Mapping(3, 0), n(4096), n(3)]),
        call("fork", 0, vec![n(1)]),
        ioctl("SLUICE_RING_DETACH", 1, &[]),
        call("munmap", 0, vec![Value::Mapping(2, 4096), n(4096)]),
        remove(KIND_RING, "SLUICE_CTL_DESTROY"),
    ]);
    calls
}

/// Ended by a wake-up, by the end of the peer, by a close of the own file, and by the end of the ring.
fn waits() -> Vec<Call> {
    let mut calls = open_both();
    calls.extend([
        mmap(0, 1, 4096, 3, ring::MMAP_PRODUCER),
        mmap(1, 2, 4096, 3, ring::MMAP_CONSUMER),
        store(1, 128, 2),
        on_thread(1, wait_for(2, u64::MAX)),
        pause(),
        ioctl("SLUICE_RING_WAKE", 1, &[]),
        on_thread(1, wait_for(2, u64::MAX)),
        pause(),
        close(1),
        poll(2),
        wait_for(2, u64::MAX),
        close(2),
    ]);
    calls.extend(open_both());
    calls.extend([
        on_thread(1, wait_for(2, u64::MAX)),
        pause(),
        close(2),
        on_thread(2, wait_for(1, u64::MAX)),
        pause(),
        remove(KIND_RING, "SLUICE_CTL_DESTROY"),
        poll(1),
    ]);
    calls
}
