// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sluice_abi::feed;

/// What precedes the bytes of each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// The number of the packet: that of the previous one plus one plus `lost`.
    pub sequence: u64,
    /// Packets lost directly before this one.
    pub lost: u64,
    /// The CLOCK_MONOTONIC of the host, just before the packet became visible.
    pub time: Duration,
    /// The counter of the processor, read after `time`. x86: the TSC.
    pub cycles: u64,
}

impl Header {
    pub const LEN: usize = feed::Packet::SIZE;

    pub(super) fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let packet = feed::Packet::from_bytes(bytes);
        Self {
            sequence: packet.sequence,
            lost: packet.lost,
            time: Duration::from_nanos(packet.time_ns),
            cycles: packet.cycles,
        }
    }

    /// The time since the packet became visible.
    pub fn latency(&self) -> Duration {
        now().saturating_sub(self.time)
    }
}

/// CLOCK_MONOTONIC.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock is never negative.
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_never_negative() {
        let header = |time| Header {
            sequence: 0,
            lost: 0,
            time,
            cycles: 0,
        };
        let before = now();
        assert_eq!(header(Duration::MAX).latency(), Duration::ZERO);
        assert!(header(Duration::ZERO).latency() >= before);
    }
}
