// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows the latencies of packets from an interrupt of the kernel: through the mapped ring of a feed, and by read(2).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sluice_testkit::units::nanoseconds;

use crate::process::Process;
use crate::story::detail;

const PACKETS: u64 = 1000;
/// The mapped ring is polled without sleep, the read blocks.
const WAYS: [(&str, [&str; 3]); 2] = [
    ("mapped ring", ["--map", "--spin", "2ms"]),
    ("read(2)", ["--read", "--spin", "0"]),
];

/// The host receives, because the node of the simulator is not for containers.
pub fn show(sluice: &Path) -> Result<String> {
    detail!(
        "A timer of the kernel publishes a packet per millisecond in /dev/sluice/feed, and the host receives {PACKETS} in either way:"
    );
    let mut medians = Vec::new();
    for (way, options) in WAYS {
        let report = measure(sluice, &options)?;
        let [median, tail, max] = ["p50", "p99", "max"].map(|rank| latency(&report, rank));
        let median = median?;
        let lost = report["lost"].as_u64().context("no number of losses")?;
        detail!(
            "  {way:<12} P50 {:>8}, P99 {:>8}, maximum {:>8}, {lost} lost",
            median,
            tail?,
            max?
        );
        let received = report["received"]
            .as_u64()
            .context("no number of packets")?;
        ensure!(
            received + lost == PACKETS,
            "{received} of {PACKETS} packets were received, and {lost} lost"
        );
        medians.push(format!("{median} by {way}"));
    }
    Ok(format!(
        "{PACKETS} packets of a kernel timer arrive; median delay {}",
        medians.join(", ")
    ))
}

fn measure(sluice: &Path, options: &[&str]) -> Result<Value> {
    let count = PACKETS.to_string();
    let mut command = Command::new(sluice);
    command
        .args(["feed", "run", "--json", "--size", "64", "--count", &count])
        .args(options);
    let output = Process::start("sluice feed run", &mut command)?.wait_success()?;
    serde_json::from_str(&output.stdout).context("'sluice feed run --json' printed no JSON")
}

fn latency(report: &Value, rank: &str) -> Result<String> {
    let found = report["latency_ns"][rank].as_f64();
    Ok(nanoseconds(found.with_context(|| {
        format!("'sluice feed run' reported no {rank}")
    })?))
}
