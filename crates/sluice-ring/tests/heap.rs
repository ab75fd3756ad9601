// SPDX-License-Identifier: MIT OR Apache-2.0
//! The algorithm on ordinary memory, without system calls, so that Miri and the sanitizers can check it.
#![cfg(not(sluice_loom))]

#[path = "heap/memory.rs"]
mod memory;
#[path = "heap/model.rs"]
mod model;
#[path = "heap/parking.rs"]
mod parking;
#[path = "heap/positions.rs"]
mod positions;
#[path = "heap/records.rs"]
mod records;
#[path = "heap/violations.rs"]
mod violations;
