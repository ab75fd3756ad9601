// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice ring …` as a user types it, between two processes of this machine. No module is needed.

#[path = "ring/support.rs"]
mod support;

#[path = "ring/ending.rs"]
mod ending;
#[path = "ring/meeting.rs"]
mod meeting;
#[path = "ring/records.rs"]
mod records;
