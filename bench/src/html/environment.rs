// SPDX-License-Identifier: MIT OR Apache-2.0
//! The environment of the measurement.

use sluice_testkit::host::Host;

use crate::harness::rows::{Results, Row};

/// Terms and their values.
pub fn entries(results: &Results) -> Vec<(&'static str, String)> {
    let Host {
        name,
        kernel,
        cpu,
        cpus,
        clocksource,
        ..
    } = &results.host;
    let clock = format!(
        "{clocksource}; a reading takes {} ns, which every latency includes once",
        results.clock_ns
    );
    vec![
        ("Host", format!("{name}, {}", machine(&results.host))),
        ("Kernel", format!("Linux {kernel}")),
        ("Processors", format!("{cpus} × {cpu}")),
        ("Clock", clock),
        ("Versions", versions(results)),
        ("Rounds", rounds(&results.rows)),
        ("Rows", counts(&results.rows)),
    ]
}

fn versions(results: &Results) -> String {
    let versions = results.versions.iter();
    let versions = versions.map(|(name, version)| format!("{name} {version}"));
    versions.collect::<Vec<_>>().join(", ")
}

/// The machine, its kernel and the day, for the title.
pub fn summary(Results { host, date, .. }: &Results) -> String {
    let what = format!("{}, Linux {}", machine(host), host.kernel);
    match date.as_str() {
        // Results of older versions have none.
        "" => what,
        date => format!("{what}, {date}"),
    }
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
