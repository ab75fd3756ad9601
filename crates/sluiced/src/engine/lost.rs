// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a map of which the store has lost changes. Its records are never acknowledged, so the kernel keeps the stream, with the
//! map's memory and its share of the limits, and does not report that the cgroup was removed. The daemon asks for it by a detach: the
//! kernel refuses that while the map has its name, and drops the records after that.

use std::time::Duration;

use nix::errno::Errno;

use super::Engine;
use super::stream::Stream;
use crate::cgroup::Cgroups;
use crate::kernel::Kernel;
use crate::log;
use crate::store::Store;

const PERIOD: Duration = Duration::from_secs(10);

impl<K: Kernel, S: Store, C: Cgroups> Engine<K, S, C> {
    /// Ends lost streams whose maps have lost their names.
    pub(super) fn end_lost(&mut self) {
        if self
            .next_end_lost()
            .is_none_or(|at| at > self.now.monotonic)
        {
            return;
        }
        self.end_lost_at = self.now.monotonic + PERIOD;
        let lost = self
            .streams
            .iter()
            .filter(|(_, stream)| has_lost_records(stream));
        let lost: Vec<u64> = lost.map(|(id, _)| *id).collect();
        for id in lost {
            self.end_if_lost(id);
        }
    }

    pub(super) fn next_end_lost(&self) -> Option<Duration> {
        let has_lost = self.streams.values().any(has_lost_records);
        has_lost.then_some(self.end_lost_at)
    }

    /// Returns whether it was one, and has ended.
    pub(super) fn end_if_lost(&mut self, id: u64) -> bool {
        let Some(stream) = self
            .streams
            .get(&id)
            .filter(|stream| has_lost_records(stream))
        else {
            return false;
        };
        let name = stream.name.clone();
        match self.kernel.detach(id) {
            Ok(()) | Err(Errno::ENOENT) => {
                log::line(format_args!(
                    "{name} has ended; its last changes, up to {}, are lost",
                    stream.delivered
                ));
                self.close_stream(id);
                true
            }
            // It has its name.
            Err(_) => false,
        }
    }
}

/// Without records the kernel reports the end, and a detach would succeed before it.
fn has_lost_records(stream: &Stream) -> bool {
    stream.is_lost() && stream.delivered > stream.acknowledged
}
