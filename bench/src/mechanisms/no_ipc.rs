// SPDX-License-Identifier: MIT OR Apache-2.0
//! No IPC: the sender writes one file while the receiver reads another, existing one. This is the time that the two
//! programs take themselves, the lower bound of a workload with any mechanism.

use std::fs::File;
use std::path::PathBuf;

use anyhow::Context;

use super::{Mechanism, stream};

/// The receiver reads `input`; `output` is truncated for each sender. No side ever waits; the results are compared with
/// those of sleeping mechanisms.
pub fn mechanism(input: PathBuf, output: PathBuf) -> Mechanism {
    stream::mechanism("no-pipe", move || {
        let receiver = File::open(&input);
        let receiver = receiver.with_context(|| format!("cannot open {}", input.display()))?;
        let sender = File::create(&output);
        let sender = sender.with_context(|| format!("cannot open {}", output.display()))?;
        Ok((receiver, sender))
    })
}
