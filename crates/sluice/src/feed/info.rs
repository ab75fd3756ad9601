// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::Duration;

use sluice_abi::feed;

/// The state of a feed. The counts are totals since the feed was created, those of the simulator since its last start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedInfo {
    /// How the consumer receives, if there is one.
    pub receiver: Option<Receiver>,
    /// Bytes.
    pub capacity: u64,
    /// The number of the next packet.
    pub sequence: u64,
    /// Packets delivered to a consumer.
    pub published: u64,
    /// Packets lost.
    pub lost: u64,
    /// Consumers that were rejected.
    pub violations: u64,
    /// The spin limit of this endpoint for read(2).
    pub spin_limit: Duration,
    /// Whether the simulator runs.
    pub running: bool,
    /// The processor of the simulator, if it has been started.
    pub cpu: Option<u32>,
    /// The interval of the simulator.
    pub interval: Duration,
    /// Expiries of the simulator, of which each has published a packet.
    pub expired: u64,
    /// Expiries that the simulator has skipped.
    pub missed: u64,
    /// From the start of the simulator to its last expiry.
    pub elapsed: Duration,
}

/// How the consumer of a feed receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Receiver {
    /// By read(2).
    Reads,
    /// Through mapped memory.
    Maps,
    /// The number of a way that this library does not know.
    Other(u32),
}

impl Receiver {
    fn from_number(number: u32) -> Option<Self> {
        match number {
            feed::CONSUMER_NONE => None,
            feed::CONSUMER_READS => Some(Self::Reads),
            feed::CONSUMER_MAPS => Some(Self::Maps),
            other => Some(Self::Other(other)),
        }
    }
}

impl From<feed::Info> for FeedInfo {
    fn from(info: feed::Info) -> Self {
        Self {
            receiver: Receiver::from_number(info.consumer),
            capacity: info.capacity,
            sequence: info.sequence,
            published: info.published,
            lost: info.lost,
            violations: info.violations,
            spin_limit: Duration::from_nanos(info.spin_limit_ns),
            running: info.running != 0,
            cpu: u32::try_from(info.cpu).ok(),
            interval: Duration::from_nanos(info.interval_ns),
            expired: info.expired,
            missed: info.missed,
            elapsed: Duration::from_nanos(info.elapsed_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_without_consumer_and_simulation_has_none() {
        let info = FeedInfo::from(feed::Info {
            cpu: feed::CPU_ANY,
            ..feed::Info::default()
        });
        assert_eq!((info.receiver, info.cpu, info.running), (None, None, false));
        let info = FeedInfo::from(feed::Info {
            consumer: 7,
            cpu: 2,
            running: 1,
            ..feed::Info::default()
        });
        assert_eq!(info.receiver, Some(Receiver::Other(7)));
        assert_eq!((info.cpu, info.running), (Some(2), true));
    }
}
