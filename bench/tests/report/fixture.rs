// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of a large run: all kinds of figures, more mechanisms than colours, and text that must be escaped. The values
//! are synthetic, the same in every run.

use std::sync::LazyLock;

use fastrand::Rng;
use sluice_bench::harness::class::Class;
use sluice_bench::harness::figures::Unit::{
    self, BytesPerSecond, Nanoseconds, OperationsPerSecond,
};
use sluice_bench::harness::figures::{self, Axes, Value, Values};
use sluice_bench::harness::pinning::Placement::TwoCpus;
use sluice_bench::harness::rows::{Calibration, Ratio, Results, Row};
use sluice_bench::harness::samples::{Samples, distribution_function, summarize};
use sluice_bench::harness::waiting::Waiting::{Sleep, Spin};
use sluice_testkit::host::Host;

/// The labels of more mechanisms than there are colours. The first one is the reference.
const LABELS: &str = "pipe,fifo,unix-stream,unix-seqpacket,unix-dgram,tcp,posix-mq,eventfd-shm,futex-shm,mmap,\
    shm-sem,myipc,zeromq,shm-spin (spins),mmap (spins),cacheline (spins),sluice-pipe,sluice-pipe (spins)";

/// The suite, the title, the message size, what is measured, and the axes.
#[rustfmt::skip]
const CASES: [(&str, &str, usize, Unit, &str); 24] = [
    ("rtt", "1 B two-cpus", 1, Nanoseconds, ""),
    ("rtt", "64 B two-cpus", 64, Nanoseconds, ""),
    ("throughput", "64 B two-cpus", 64, BytesPerSecond, ""),
    ("throughput", "1 KiB two-cpus", 1024, BytesPerSecond, ""),
    ("throughput", "64 KiB two-cpus", 65_536, BytesPerSecond, ""),
    ("throughput", "64 B in batches of 32 two-cpus", 64, BytesPerSecond, "batch=32"),
    ("sizes", "64 B touched two-cpus", 64, BytesPerSecond, "data=touched"),
    ("sizes", "4 KiB touched two-cpus", 4096, BytesPerSecond, "data=touched"),
    ("load", "64 B 10 % two-cpus", 64, Nanoseconds, "load_percent=10"),
    ("load", "64 B 50 % two-cpus", 64, Nanoseconds, "load_percent=50"),
    ("contention", "8 × 1 64 B two-cpus", 64, BytesPerSecond, "writers=8 receivers=1"),
    ("contention", "8 × 1 4 KiB two-cpus", 4096, BytesPerSecond, "writers=8 receivers=1"),
    ("fanout", "1 receiver 64 B busy, cost of sending", 64, Nanoseconds, "receivers=1 receiver_state=busy"),
    ("fanout", "16 receivers 64 B busy, cost of sending", 64, Nanoseconds, "receivers=16 receiver_state=busy"),
    ("fanout", "16 receivers 64 B streaming", 64, BytesPerSecond, "receivers=16 receiver_state=streaming"),
    ("fanout", "16 receivers 32 KiB streaming", 32_768, BytesPerSecond, "receivers=16 receiver_state=streaming"),
    ("map", "gets by 1 process", 64, OperationsPerSecond, "operation=gets"),
    ("map", "gets by 8 processes", 64, OperationsPerSecond, "operation=gets"),
    ("map", "gets by 10 processes", 64, OperationsPerSecond, "operation=gets"),
    ("durable", "durable sets by 10 processes", 64, OperationsPerSecond, "operation=sets"),
    ("names", "create", 1, Nanoseconds, "names"),
    ("names", "list by 10, a name", 1, Nanoseconds, "names"),
    ("tar", "4.68 MB in 763 files two-cpus", 1, Nanoseconds, ""),
    ("a suite of an older version", "64 B", 64, BytesPerSecond, ""),
];

pub static RESULTS: LazyLock<Results> = LazyLock::new(|| {
    let mut random = Rng::with_seed(1);
    let skipped = |mechanism: &str, reason: &str, failed: Option<bool>| Row {
        suite: "rtt".into(),
        mechanism: mechanism.into(),
        label: mechanism.into(),
        skipped: Some(reason.into()),
        failed,
        ..Row::default()
    };
    let mut rows = vec![
        skipped(
            "<script>alert(1)</script>",
            "message 7 is \"changed\" & late",
            Some(true),
        ),
        skipped("zeromq", "libzmq is missing", None),
    ];
    for case in &CASES {
        let (first, is_names) = (rows.len(), case.0 == "names");
        for (number, label) in LABELS
            .split(',')
            .enumerate()
            .take(if is_names { 4 } else { 19 })
        {
            let mut row = row(case, label, 9000.0 + 800.0 * number as f64, &mut random);
            if is_names {
                let names = 10_usize.pow(number as u32 + 1);
                (row.mechanism, row.label) = ("sluice-pipe".into(), format!("among {names} names"));
                row.axes = [("names".into(), names.into())].into();
            }
            let to = rows.get(first).unwrap_or(&row).clone();
            row.ratio = row.ratio_within_rounds(&to).map(|values| Ratio {
                to: to.label,
                across_waiting: row.waiting != to.waiting,
                values,
            });
            rows.push(row);
        }
        rows[first].ratio = None;
    }
    Results {
        host: Host {
            name: "<bench & co>".into(),
            accelerator: "tcg".into(),
            ..Host::probe()
        },
        clock_ns: 40,
        versions: [("ZeroMQ".into(), "4.3.4".into())].into(),
        rows,
        date: "2026-11-28".into(),
    }
});

fn row(
    &(suite, title, size, unit, axes): &(&str, &str, usize, Unit, &str),
    label: &str,
    best: f64,
    random: &mut Rng,
) -> Row {
    let spins = label.ends_with("(spins)");
    let best = if spins || label.starts_with("sluice") {
        best / 3.0
    } else {
        best
    };
    let times: Vec<f64> = (0..5)
        .map(|_| best * (0.94 + 0.12 * random.f64()))
        .collect();
    let values = |of: &dyn Fn(f64) -> f64| Values::of(times.iter().copied().map(of).enumerate());
    let rate = values(&|time| size as f64 * 1e9 / time);
    // A distribution with a long tail.
    let count = if matches!(suite, "rtt" | "load") {
        2000
    } else {
        0
    };
    let samples: Samples = (0..count)
        .map(|_| (best * (0.9 + 0.1 * (1.0 - random.f64()).powf(-0.35))) as u64)
        .collect();
    let load = axes
        .split('=')
        .find_map(|word| word.parse().ok())
        .unwrap_or(1.0);
    let figures = match suite {
        "contention" => [
            (figures::IMBALANCE, 2.5),
            (figures::SWITCHES_PER_MESSAGE, 0.5),
        ]
        .to_vec(),
        "durable" => vec![(figures::MESSAGES_PER_COMMIT, 3.0)],
        "rtt" => vec![(figures::LOST, 2.0)],
        "load" => vec![
            (figures::P99, best * load),
            (figures::MESSAGES_PER_SECOND, load * 1e9 / best),
        ],
        _ => Vec::new(),
    };
    let figures = figures.into_iter();
    let axes = axes
        .split(' ')
        .filter_map(|axis| axis.split_once('='))
        .map(|(name, value)| {
            let number = value.parse().map(Value::Number);
            (name.to_string(), number.unwrap_or(value.into()))
        });
    let axes: Axes = axes.collect();
    Row {
        suite: suite.into(),
        mechanism: label.split(' ').next().unwrap_or(label).into(),
        label: label.into(),
        title: title.into(),
        size: Some(size),
        placement: Some(TwoCpus),
        processes: title
            .split(' ')
            .find_map(|word| word.parse().ok())
            .filter(|_| size == 64),
        waiting: Some(if spins { Spin } else { Sleep }),
        axes,
        unit: Some(unit),
        value: if unit == Nanoseconds {
            values(&|time| time)
        } else {
            rate
        },
        figures: figures
            .filter_map(|(name, value)| Some((name.into(), values(&|_| value)?)))
            .collect(),
        probe_class: Some(if label == "mmap" {
            Class::Remote
        } else {
            Class::SharedCache
        }),
        other_class: (label == "mmap").then_some(true),
        noisy_rounds: (label == "tcp").then_some(2),
        distribution: summarize(&[&samples]),
        cdf: distribution_function(&[&samples]),
        calibration: (label == "myipc").then(|| Calibration {
            to: "its own benchmark".into(),
            median: 0.42,
            spread: [0.4, 0.5],
            reason: Some("its own benchmark does not check the messages".into()),
        }),
        ..Row::default()
    }
}
