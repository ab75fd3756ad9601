// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many writers and readers with random sizes, signals and kills, for as long as `--stress` says.

mod buffers;
mod bytes;
mod records;
mod workers;

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
