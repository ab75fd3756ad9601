// SPDX-License-Identifier: MIT OR Apache-2.0
//! The environment of the measurement, and a glossary.

use sluice_testkit::host::Host;

use super::text::escape;
use crate::harness::rows::{Results, Row};

pub fn environment(results: &Results) -> String {
    let Host {
        name,
        kernel,
        cpu,
        cpus,
        clocksource,
        clock_ns,
        ..
    } = &results.host;
    let entries = [
        ("Host", format!("{name}, {}", machine(&results.host))),
        ("Kernel", format!("Linux {kernel}")),
        ("Processors", format!("{cpus} × {cpu}")),
        (
            "Clock",
            format!(
                "{clocksource}; a reading takes {clock_ns} ns, which every latency includes once"
            ),
        ),
        ("Rounds", rounds(&results.rows)),
        ("Rows", counts(&results.rows)),
    ];
    let entries: String = entries
        .iter()
        .map(|(term, value)| format!("<div><dt>{term}</dt><dd>{}</dd></div>", escape(value)))
        .collect();
    format!(
        "<dl class=\"environment\">{entries}</dl>{}",
        caution(&results.host)
    )
}

fn machine(host: &Host) -> &str {
    match host.accelerator.as_str() {
        "tcg" => "an emulated machine (QEMU TCG)",
        "kvm" => "a virtual machine (KVM)",
        "virtual" => "a virtual machine",
        "none" => "a physical machine",
        other => other,
    }
}

fn caution(host: &Host) -> &'static str {
    match host.accelerator.as_str() {
        "tcg" => {
            "<p class=\"caution\">Emulated: a context switch takes about 15 times as long as natively, a system call about 3 times. Compare the mechanisms with each other, not these times with those of another machine.</p>"
        }
        _ => "",
    }
}

fn rounds(rows: &[Row]) -> String {
    let rounds = rows.iter().filter_map(|row| row.rounds);
    match (rounds.clone().min(), rounds.max()) {
        (Some(fewest), Some(most)) if fewest == most => format!("{most} for each mechanism"),
        (Some(fewest), Some(most)) => {
            format!("{fewest} to {most} comparable ones for each mechanism")
        }
        _ => "none".into(),
    }
}

fn counts(rows: &[Row]) -> String {
    let measured = rows.iter().filter(|row| row.median.is_some()).count();
    let noisy = rows.iter().filter(|row| row.noisy_rounds.is_some()).count();
    let failed = rows.iter().filter(|row| row.failed == Some(true)).count();
    let skipped = rows.iter().filter(|row| row.skipped.is_some()).count() - failed;
    format!("{measured} measured, of which {noisy} noisy; {skipped} skipped, {failed} failed")
}

/// Terms and their definitions.
const GLOSSARY: [(&str, &str); 9] = [
    (
        "round",
        "One measurement of every mechanism under the same conditions. Mechanisms alternate, A B C A B C …, so that a slowdown of the machine affects all of them.",
    ),
    (
        "median, its rounds",
        "Each round has one value: the median of its latencies, or the rate of the stream. Tables show the median of the rounds, and the smallest and the largest round.",
    ),
    (
        "ratio",
        "Relative to pipe(2), unless the table names another reference; taken within each round. Below 1 is faster for times, above 1 for rates.",
    ),
    (
        "faster, slower",
        "Only if the rounds of the two do not overlap. Otherwise the difference is within spread.",
    ),
    (
        "same-cpu, two-cpus",
        "Both processes share one processor, or each has one of its own.",
    ),
    (
        "one-core, near, far",
        "The probe class: the distance of the two processors, measured by a cache-line ping-pong before and after each round. Only rounds of one class are compared, because a virtual machine migrates its processors.",
    ),
    (
        "noisy",
        "The class changed during the round and in all five repetitions. Marks of such rows are hollow.",
    ),
    (
        "spins, spin vs sleep",
        "A waiting process that spins keeps its processor busy; one that sleeps releases it. Spinning trades processor time for latency, so ratios between the two are labelled.",
    ),
    (
        "skipped, failed",
        "Skipped: not available or not supported here. Failed: an error during the measurement. Reasons are listed below the figures.",
    ),
];

pub fn glossary() -> String {
    let entries: String = GLOSSARY
        .iter()
        .map(|(term, definition)| format!("<div><dt>{term}</dt><dd>{definition}</dd></div>"))
        .collect();
    format!("<dl class=\"glossary\">{entries}</dl>")
}
