// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings: records from one producer to one consumer through shared memory.

mod channel;
mod consumer;
mod inlined;
mod options;
mod producer;
mod socket;
