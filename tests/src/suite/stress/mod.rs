// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything at once, for as long as `--stress` says: many writers and readers, random sizes, signals, kills.

mod buffers;
mod bytes;
mod crowd;
mod records;

use crate::registry::topic;
use bytes::every_byte_is_accounted_for_at_any_size;
use records::every_record_is_accounted_for_under_signals_and_kills;

topic!(
    "stress",
    fifo: [
        every_record_is_accounted_for_under_signals_and_kills,
        every_byte_is_accounted_for_at_any_size,
    ],
    pipe_only: [],
);
