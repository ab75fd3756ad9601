// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where and how it was measured, and what the words mean.

use super::text::escape;
use crate::harness::host::Host;
use crate::harness::rows::{Results, Row};

pub fn facts(results: &Results) -> String {
    let Host {
        name,
        kernel,
        cpu,
        cpus,
        clocksource,
        clock_ns,
        ..
    } = &results.host;
    let facts = [
        ("Taken on", format!("{name}, {}", machine(&results.host))),
        ("Kernel", format!("Linux {kernel}")),
        ("Processors", format!("{cpus} × {cpu}")),
        (
            "Clock",
            format!(
                "{clocksource}; reading it takes {clock_ns} ns, which every latency contains once"
            ),
        ),
        ("Rounds", rounds(&results.rows)),
        ("Rows", counts(&results.rows)),
    ];
    let facts: String = facts
        .iter()
        .map(|(term, fact)| format!("<div><dt>{term}</dt><dd>{}</dd></div>", escape(fact)))
        .collect();
    format!("<dl class=\"facts\">{facts}</dl>{}", caution(&results.host))
}

fn machine(host: &Host) -> &str {
    match host.accelerator.as_str() {
        "tcg" => "an emulated machine (QEMU TCG)",
        "kvm" => "a virtual machine (KVM)",
        "virtual" => "a virtual machine",
        "none" => "the bare machine",
        other => other,
    }
}

fn caution(host: &Host) -> &'static str {
    match host.accelerator.as_str() {
        "tcg" => {
            "<p class=\"caution\">Emulated: a context switch is about 15 times dearer than natively, a system call about 3 times. Compare the mechanisms with each other, not these times with those of another machine.</p>"
        }
        _ => "",
    }
}

fn rounds(rows: &[Row]) -> String {
    let rounds = rows.iter().filter_map(|row| row.rounds);
    match (rounds.clone().min(), rounds.max()) {
        (Some(fewest), Some(most)) if fewest == most => format!("{most} of each"),
        (Some(fewest), Some(most)) => format!("{fewest} to {most} of each that could be compared"),
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

/// Pairs of a word and its meaning.
const WORDS: [(&str, &str); 9] = [
    (
        "round",
        "One turn of every mechanism under the same conditions. They take turns, A B C A B C …, so that a machine that becomes slower does so for all of them.",
    ),
    (
        "median, its rounds",
        "Each round has one figure: of latencies their median, of a stream its rate. Quoted is the median of the rounds and beside it the smallest and the largest.",
    ),
    (
        "ratio",
        "To pipe(2), unless the table says to what else, taken within each round. Of times less than 1 is faster, of rates more than 1.",
    ),
    (
        "faster, slower",
        "Only where no round of the one reaches any round of the other. Otherwise the two are within spread, and nothing is claimed.",
    ),
    (
        "same-cpu, two-cpus",
        "Both processes share one processor, or each has one of its own.",
    ),
    (
        "one-core, near, far",
        "The probe class: how far apart two processors are, told by the round trip of a bare cache line just before and after each turn. Only turns of one class are compared, for a virtual machine moves its processors about.",
    ),
    (
        "noisy",
        "The class changed during the turn, and again each of the five times that it was repeated. Marks of such rows are hollow.",
    ),
    (
        "spins, spin vs sleep",
        "While it waits, a spinning process keeps its processor busy, a sleeping one leaves it to others. A spinner is quicker to notice and pays with processor time, so that comparison is labelled.",
    ),
    (
        "skipped, failed",
        "What could not be had here was skipped. What should have worked and did not has failed. Each is listed with its reason.",
    ),
];

pub fn words() -> String {
    let words: String = WORDS
        .iter()
        .map(|(word, meaning)| format!("<div><dt>{word}</dt><dd>{meaning}</dd></div>"))
        .collect();
    format!("<dl class=\"words\">{words}</dl>")
}
