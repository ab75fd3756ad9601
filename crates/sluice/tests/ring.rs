// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings over memfd, between two threads or two processes of this machine. No module is needed.

#[path = "ring/support.rs"]
mod support;

#[path = "ring/batches.rs"]
mod batches;
#[path = "ring/calls.rs"]
mod calls;
#[path = "ring/ending.rs"]
mod ending;
#[path = "ring/forking.rs"]
mod forking;
#[path = "ring/handshake.rs"]
mod handshake;
#[path = "ring/records.rs"]
mod records;
#[path = "ring/runtime.rs"]
mod runtime;
#[path = "ring/waiting.rs"]
mod waiting;
