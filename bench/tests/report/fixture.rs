// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of a large run: all kinds of rows, more mechanisms than colours, and text that must be escaped. The values
//! are synthetic, the same in every run.

mod fanout;
mod stores;

use sluice_bench::harness::class::Class;
use sluice_bench::harness::pinning::Placement;
use sluice_bench::harness::rounds::{Activity, Neighbours};
use sluice_bench::harness::rows::{Calibration, Ratio, Results, Row};
use sluice_bench::harness::samples::{Samples, distribution_function, summarize};
use sluice_bench::harness::waiting::Waiting;
use sluice_testkit::host::Host;
use sluice_testkit::spread::Spread;

/// A mechanism, and the time of its fastest round trip in nanoseconds.
const MECHANISMS: [(&str, Waiting, f64); 19] = [
    ("pipe", Waiting::Sleep, 9000.0),
    ("fifo", Waiting::Sleep, 9100.0),
    ("unix-stream", Waiting::Sleep, 11_000.0),
    ("unix-seqpacket", Waiting::Sleep, 11_800.0),
    ("unix-dgram", Waiting::Sleep, 12_500.0),
    ("tcp", Waiting::Sleep, 24_000.0),
    ("posix-mq", Waiting::Sleep, 10_200.0),
    ("sysv-mq", Waiting::Sleep, 10_900.0),
    ("eventfd-shm", Waiting::Sleep, 8200.0),
    ("shm-spin", Waiting::Spin, 310.0),
    ("futex-shm", Waiting::Sleep, 7400.0),
    ("mmap", Waiting::Spin, 420.0),
    ("signal", Waiting::Sleep, 15_000.0),
    ("shm-sem", Waiting::Sleep, 7900.0),
    ("myipc", Waiting::Sleep, 9900.0),
    ("zeromq", Waiting::Sleep, 61_000.0),
    ("sluice-pipe", Waiting::Sleep, 7600.0),
    ("sluice-pipe", Waiting::Spin, 1300.0),
    ("cacheline", Waiting::Spin, 140.0),
];
const PLACEMENTS: [Placement; 2] = [Placement::SameCpu, Placement::TwoCpus];
const ROUNDS: usize = 5;

/// Pseudo-random results.
struct Random(fastrand::Rng);

impl Random {
    /// A latency near this value, with a long tail.
    fn latency(&mut self, best: f64) -> u64 {
        let tail = (1.0 - self.0.f64()).powf(-0.35) - 1.0;
        (best * (1.0 + 0.08 * self.0.f64() + 0.12 * tail * self.0.f64())) as u64
    }

    fn round(&mut self, value: f64) -> f64 {
        value * (0.94 + 0.12 * self.0.f64())
    }
}

pub fn results() -> Results {
    let mut random = Random(fastrand::Rng::with_seed(1));
    let mut rows = Vec::new();
    for placement in PLACEMENTS {
        for size in [1, 1024, 4096] {
            rows.extend(latencies("rtt", size, placement, &mut random));
        }
        rows.extend(latencies("wakeup", 64, placement, &mut random));
        for size in [64, 256, 1024, 4096, 16_384, 65_536] {
            rows.extend(rates(size, placement, &mut random));
        }
    }
    rows.extend(batches(&mut random));
    rows.extend(tar(&mut random));
    rows.extend(isolation(&mut random));
    rows.extend(fanout::rows(&mut random));
    rows.extend(stores::map(&mut random));
    rows.extend(stores::durable(&mut random));
    rows.extend(stores::names(&mut random));
    for share in [10, 50, 90] {
        rows.extend(loads(share, &mut random));
    }
    for size in [8, 64, 512] {
        rows.extend(touched(size, &mut random));
    }
    rows.push(failed());
    Results {
        host: host(),
        clock_ns: 40,
        versions: std::collections::BTreeMap::from([("ZeroMQ".into(), "4.3.4".into())]),
        rows,
        date: "2026-11-28".into(),
    }
}

fn host() -> Host {
    Host {
        name: "<bench & co>".into(),
        kernel: "6.12.48".into(),
        cpu: "AMD EPYC 7B13".into(),
        cpus: 2,
        accelerator: "tcg".into(),
        clocksource: "tsc".into(),
        clock_ns: 42,
        waking_ns: Some(85_000),
    }
}

fn label(mechanism: &str, waiting: Waiting) -> String {
    match waiting {
        Waiting::Spin => format!("{mechanism} (spins)"),
        Waiting::Sleep => mechanism.into(),
    }
}

/// Measured and skipped mechanisms.
fn each(
    suite: &str,
    title: &str,
    size: Option<usize>,
    placement: Placement,
    mut measure: impl FnMut(Row, f64) -> Row,
) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (mechanism, waiting, best) in MECHANISMS {
        let row = Row {
            suite: suite.into(),
            mechanism: mechanism.into(),
            label: label(mechanism, waiting),
            title: title.into(),
            size,
            placement: Some(placement),
            ..Row::default()
        };
        rows.push(match (waiting, placement) {
            (Waiting::Spin, Placement::SameCpu) => Row {
                skipped: Some("spinning for another process needs a processor for each".into()),
                ..row
            },
            _ => {
                let row = Row {
                    waiting: Some(waiting),
                    processes: Some(2),
                    rounds: Some(ROUNDS),
                    probe_class: (placement == Placement::TwoCpus).then_some(Class::SharedCache),
                    noisy_rounds: (mechanism == "tcp" && placement == Placement::TwoCpus)
                        .then_some(2),
                    cpu_ns_per_msg: Some(best / 2.5),
                    calibration: calibration(mechanism),
                    ..row
                };
                let mut row = measure(row, best);
                row.ratio = rows.first().map(|pipe| ratio(&row, pipe));
                row
            }
        });
    }
    rows
}

fn calibrated(ratio: f64) -> Calibration {
    Calibration {
        to: "its own benchmark".into(),
        median: ratio,
        min: ratio,
        max: ratio,
        reason: None,
    }
}

/// One rival with a ratio, one with a reason.
fn calibration(mechanism: &str) -> Option<Calibration> {
    match mechanism {
        "zeromq" => Some(Calibration {
            reason: None,
            ..calibrated(0.97)
        }),
        "myipc" => Some(Calibration {
            reason: Some("its own benchmark does not check the messages".into()),
            ..calibrated(0.42)
        }),
        _ => None,
    }
}

fn ratio(row: &Row, to: &Row) -> Ratio {
    let ([min, max], median) = (row.spread.unwrap(), row.median.unwrap());
    let reference = to.median.unwrap();
    Ratio {
        to: to.label.clone(),
        across_waiting: row.waiting != to.waiting,
        median: median / reference,
        min: min / reference,
        max: max / reference,
        common_rounds: None,
    }
}

/// A row whose median is near this value.
fn quoted(row: Row, unit: &str, value: f64, random: &mut Random) -> Row {
    let rounds: Vec<f64> = (0..ROUNDS).map(|_| random.round(value)).collect();
    let Spread { median, min, max } = Spread::of(&rounds).unwrap();
    Row {
        unit: Some(unit.into()),
        median: Some(median),
        spread: Some([min, max]),
        ..row
    }
}

fn latencies(suite: &str, size: usize, placement: Placement, random: &mut Random) -> Vec<Row> {
    let title = match size {
        1024 => format!("1 KiB {}", placement.name()),
        4096 => format!("4 KiB {}", placement.name()),
        _ => format!("{size} B {}", placement.name()),
    };
    each(suite, &title, Some(size), placement, |row, best| {
        let best = best + size as f64 * 0.2;
        let samples: Samples = (0..4000).map(|_| random.latency(best)).collect();
        Row {
            cdf: distribution_function(&[&samples]),
            distribution: summarize(&[&samples]),
            ..quoted(row, "ns", best * 1.05, random)
        }
    })
}

fn rates(size: usize, placement: Placement, random: &mut Random) -> Vec<Row> {
    let size_words = match size {
        0..1024 => format!("{size} B"),
        _ => format!("{} KiB", size / 1024),
    };
    let title = format!("{size_words} {}", placement.name());
    each("throughput", &title, Some(size), placement, |row, best| {
        let rate = size as f64 * 1e9 / (best.powf(0.7) + size as f64 * 0.3);
        Row {
            msgs_per_s: Some(rate / size as f64),
            ..quoted(row, "bytes/s", rate, random)
        }
    })
}

/// Latencies at a share of the saturation.
fn loads(percent: u32, random: &mut Random) -> Vec<Row> {
    let title = format!("64 B {percent} %, {percent}.0 k/s two-cpus");
    each("load", &title, Some(64), Placement::TwoCpus, |row, best| {
        let slowed = best / (1.0 - percent as f64 / 100.0);
        let samples: Samples = (0..4000).map(|_| random.latency(slowed)).collect();
        Row {
            load_percent: Some(percent),
            msgs_per_s: Some(percent as f64 * 1e7 / best),
            cdf: distribution_function(&[&samples]),
            distribution: summarize(&[&samples]),
            ..quoted(row, "ns", slowed * 1.05, random)
        }
    })
}

/// Streams whose data is touched.
fn touched(size: usize, random: &mut Random) -> Vec<Row> {
    let title = format!("{size} B touched two-cpus");
    each(
        "sizes",
        &title,
        Some(size),
        Placement::TwoCpus,
        |row, best| quoted(row, "bytes/s", size as f64 * 1e9 / best, random),
    )
}

/// Some mechanisms have a batch interface; the reference does not.
fn batches(random: &mut Random) -> Vec<Row> {
    let title = "64 B in batches of 32 two-cpus";
    let two = Placement::TwoCpus;
    let mut rows = each("throughput", title, Some(64), two, |row, best| Row {
        batch: Some(32),
        ..quoted(row, "bytes/s", 64e9 / best.powf(0.6), random)
    });
    rows.retain(|row| matches!(row.mechanism.as_str(), "pipe" | "sluice-pipe"));
    for row in &mut rows {
        match (row.mechanism.as_str(), &mut row.ratio) {
            ("pipe", _) => row.label += ", one by one",
            (_, Some(ratio)) => ratio.to += ", one by one",
            _ => {}
        }
    }
    rows
}

fn tar(random: &mut Random) -> Vec<Row> {
    let title = "4.68 MB in 763 files two-cpus";
    let mut rows = each("tar", title, None, Placement::TwoCpus, |row, best| {
        quoted(row, "ns", 1.1e8 + best * 5000.0, random)
    });
    rows.retain(|row| {
        matches!(
            row.mechanism.as_str(),
            "pipe" | "fifo" | "unix-stream" | "sluice-pipe"
        )
    });
    let floor = Row {
        mechanism: "no-pipe".into(),
        label: "no-pipe".into(),
        ..quoted(rows[0].clone(), "ns", 9e7, random)
    };
    rows.push(floor);
    rows
}

fn isolation(random: &mut Random) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (mechanism, waiting, best) in MECHANISMS {
        let title = format!("{} 1 KiB two-cpus", label(mechanism, waiting));
        let row = Row {
            suite: "isolation".into(),
            mechanism: mechanism.into(),
            title,
            size: Some(1024),
            placement: Some(Placement::TwoCpus),
            waiting: Some(waiting),
            rounds: Some(ROUNDS),
            ..Row::default()
        };
        let rate = 1024e9 / best.powf(0.7);
        let alone = Row {
            label: "alone".into(),
            neighbours: Some(Neighbours::NONE),
            processes: Some(2),
            ..quoted(row.clone(), "bytes/s", rate, random)
        };
        rows.push(alone.clone());
        for (activity, cost) in [(Activity::Stalled, 0.01), (Activity::Busy, 0.5)] {
            for pairs in [1, 3, 5, 7] {
                let neighbours = Neighbours {
                    pairs,
                    activity: Some(activity),
                };
                let mut beside = Row {
                    label: neighbours.to_string(),
                    neighbours: Some(neighbours),
                    processes: Some(2 + 2 * pairs),
                    ..quoted(
                        row.clone(),
                        "bytes/s",
                        rate / (1.0 + cost * pairs as f64),
                        random,
                    )
                };
                beside.ratio = Some(ratio(&beside, &alone));
                rows.push(beside);
            }
        }
    }
    rows
}

fn failed() -> Row {
    Row {
        suite: "tar".into(),
        mechanism: "<script>alert(1)</script>".into(),
        label: "<script>alert(1)</script>".into(),
        title: "4.68 MB in 763 files two-cpus".into(),
        placement: Some(Placement::TwoCpus),
        skipped: Some("message 7 came back \"changed\" & late".into()),
        failed: Some(true),
        ..Row::default()
    }
}
