// SPDX-License-Identifier: MIT OR Apache-2.0
//! All interleavings of small cases, and all values that the memory model permits a load to return. Run with
//! `RUSTFLAGS="--cfg sluice_loom" cargo test --release -p sluice-ring --test interleavings`.
#![cfg(sluice_loom)]

#[path = "interleavings/attach.rs"]
mod attach;
#[path = "interleavings/bus.rs"]
mod bus;
#[path = "interleavings/descriptor.rs"]
mod descriptor;
#[path = "interleavings/end.rs"]
mod end;
#[path = "interleavings/futex.rs"]
mod futex;
#[path = "interleavings/kernel.rs"]
mod kernel;
#[path = "interleavings/memory.rs"]
mod memory;
#[path = "interleavings/records.rs"]
mod records;
#[path = "interleavings/sides.rs"]
mod sides;

/// Room for one record of eight bytes and the state after it, so that every record waits for the previous one.
const TINY: u64 = 32;
/// Room for several records.
const SMALL: u64 = 64;

/// The length of each record: a word with its number, and FILLER, which equals the state of a record, to detect stale bytes
/// that are taken for a header.
const LENGTH: u32 = 8;
const FILLER: u32 = sluice_abi::ring::RECORD_READY;

fn explore(case: impl Fn() + Sync + Send + 'static) {
    loom::model(case);
}

/// The limit of preemptions in cases with repeated sleeps, which otherwise have too many interleavings. It exceeds the
/// number that any seeded lost wake-up needs.
const PREEMPTIONS: usize = 4;

fn explore_with_sleepers(case: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(case);
}
