// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a measurement, as text and as JSON.

use serde::Serialize;
use sluice::feed::FeedInfo;

use super::histogram::Snapshot;
use super::receive::{Mode, Stats};

/// Characters of the longest bar.
const BAR: u64 = 40;

/// The JSON object that sluice-feed(1) describes.
#[derive(Serialize)]
pub struct Report {
    mode: Mode,
    interval_ns: u64,
    size: u32,
    cpu: Option<u32>,
    pin: Option<usize>,
    seconds: f64,
    received: u64,
    lost: u64,
    missed: u64,
    rate: f64,
    latency_ns: Option<Quantiles>,
    latency_cycles: Option<Quantiles>,
    histogram: Vec<Bar>,
}

/// What does not change during a measurement.
#[derive(Clone, Copy)]
pub struct Setting {
    pub mode: Mode,
    pub size: u32,
    pub pin: Option<usize>,
    /// `lost` of the feed before the measurement.
    pub lost_before: u64,
}

#[derive(Serialize)]
struct Quantiles {
    p50: u64,
    p99: u64,
    p99_9: u64,
    max: u64,
}

impl Quantiles {
    fn of(snapshot: &Snapshot) -> Option<Self> {
        Some(Self {
            p50: snapshot.quantile(0.5)?,
            p99: snapshot.quantile(0.99)?,
            p99_9: snapshot.quantile(0.999)?,
            max: snapshot.max,
        })
    }
}

/// Packets whose latency is below a limit, and not below that of the previous bar.
#[derive(Serialize)]
struct Bar {
    below_ns: u64,
    packets: u64,
}

impl Report {
    pub fn new(setting: &Setting, stats: &Stats, info: &FeedInfo) -> Self {
        let (nanoseconds, cycles) = (stats.nanoseconds.snapshot(), stats.cycles.snapshot());
        let (seconds, received) = (info.elapsed.as_secs_f64(), stats.received());
        Self {
            mode: setting.mode,
            interval_ns: u64::try_from(info.interval.as_nanos()).unwrap_or(u64::MAX),
            size: setting.size,
            cpu: info.cpu,
            pin: setting.pin,
            seconds,
            received,
            lost: info.lost.saturating_sub(setting.lost_before),
            missed: info.missed,
            rate: if seconds > 0.0 {
                received as f64 / seconds
            } else {
                0.0
            },
            latency_ns: Quantiles::of(&nanoseconds),
            latency_cycles: Quantiles::of(&cycles),
            histogram: nanoseconds
                .octaves()
                .into_iter()
                .map(|(below_ns, packets)| Bar { below_ns, packets })
                .collect(),
        }
    }

    pub fn text(&self) -> String {
        let way = match self.mode {
            Mode::Read => "read(2)",
            Mode::Map => "mapped ring",
        };
        let mut text = format!(
            "{way}: {:.0} packets/s, {} received, {} lost, {} missed, {:.1} s\n",
            self.rate, self.received, self.lost, self.missed, self.seconds
        );
        text += &format!(
            "{:<8} {:>10} {:>10} {:>10} {:>10}\n",
            "LATENCY", "P50", "P99", "P99.9", "MAX"
        );
        text += &line("ns", self.latency_ns.as_ref());
        text += &line("cycles", self.latency_cycles.as_ref());
        text + &self.bars()
    }

    fn bars(&self) -> String {
        let longest = self.histogram.iter().map(|bar| bar.packets).max();
        let longest = longest.unwrap_or(0).max(1);
        let bars = self.histogram.iter().map(|bar| {
            // A bar of few packets is not invisible.
            let length = (bar.packets * BAR).div_ceil(longest) as usize;
            let share = 100.0 * bar.packets as f64 / self.received.max(1) as f64;
            let bar_text = "#".repeat(length);
            let limit = format!("< {}", time(bar.below_ns));
            format!("{limit:>11} {share:6.2} % {bar_text}\n")
        });
        bars.collect()
    }
}

fn line(unit: &str, quantiles: Option<&Quantiles>) -> String {
    match quantiles {
        Some(found) => format!(
            "{unit:<8} {:>10} {:>10} {:>10} {:>10}\n",
            found.p50, found.p99, found.p99_9, found.max
        ),
        None => format!("{unit:<8} {0:>10} {0:>10} {0:>10} {0:>10}\n", "-"),
    }
}

fn time(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        ..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{:.1} µs", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.1} s", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            mode: Mode::Map,
            interval_ns: 1_000_000,
            size: 64,
            cpu: Some(1),
            pin: None,
            seconds: 2.0,
            received: 4,
            lost: 1,
            missed: 2,
            rate: 2.0,
            latency_ns: Some(Quantiles {
                p50: 900,
                p99: 1100,
                p99_9: 1100,
                max: 1100,
            }),
            latency_cycles: None,
            histogram: vec![
                Bar {
                    below_ns: 1024,
                    packets: 3,
                },
                Bar {
                    below_ns: 2048,
                    packets: 1,
                },
            ],
        }
    }

    #[test]
    fn the_text_has_a_line_per_unit_and_per_bar() {
        let expected = "\
mapped ring: 2 packets/s, 4 received, 1 lost, 2 missed, 2.0 s
LATENCY         P50        P99      P99.9        MAX
ns              900       1100       1100       1100
cycles            -          -          -          -
   < 1.0 µs  75.00 % ########################################
   < 2.0 µs  25.00 % ##############
";
        assert_eq!(report().text(), expected);
    }

    #[test]
    fn json_has_null_for_what_was_not_measured() {
        let object = serde_json::to_value(report()).unwrap();
        assert_eq!(object["mode"], "map");
        assert_eq!(object["latency_ns"]["p99_9"], 1100);
        assert_eq!(object["latency_cycles"], serde_json::Value::Null);
        assert_eq!(object["histogram"][1]["packets"], 1);
    }
}
