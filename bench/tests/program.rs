// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program as its users start it: its exit status.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use sluice_bench::harness::pinning::Placement;
use sluice_bench::harness::rows::Results;

const PROGRAM: &str = env!("CARGO_BIN_EXE_sluice-bench");
const SHORT: [&str; 5] = ["--quick", "--rounds", "1", "--duration", "0.01"];

/// The exit status and all text.
fn run(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let parts = [&output.stdout, &output.stderr].map(|part| String::from_utf8_lossy(part));
    (output.status.code(), parts.concat())
}

#[test]
fn a_rival_whose_server_never_starts_is_a_row_with_the_reason() {
    if Placement::TwoCpus.cpus().unwrap().is_none() {
        return;
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // The server of Redis, by the name under which it is started.
    let server = directory.join("redis-check-rdb");
    fs::write(&server, "#!/bin/sh\nexit 7\n").unwrap();
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
    let [json, html] = ["results.json", "report.html"].map(|name| directory.join(name));
    let path = std::env::var("PATH").unwrap();
    let (status, text) = run(Command::new(PROGRAM)
        .args(SHORT)
        .args(["--suite", "map", "--mechanism", "redis,bpf-map", "--json"])
        .arg(&json)
        .arg("--html")
        .arg(&html)
        .env("PATH", format!("{}:{path}", directory.display())));
    assert_eq!(status, Some(0), "{text}");
    let reason = "redis-server did not start: it ended: exit status: 7";
    assert!(text.contains(&format!("FAILED: redis: {reason}")), "{text}");
    let mut rows = Results::read(&json).unwrap().rows.into_iter();
    let redis = rows.find(|row| row.mechanism == "redis").unwrap();
    assert!(redis.failed && redis.skipped.as_deref() == Some(reason));
    assert!(fs::read_to_string(&html).unwrap().contains(reason));
}

#[test]
fn a_mechanism_of_sluice_that_fails_makes_the_run_fail() {
    // No file may have any bytes, nor the memory of the ring.
    let script = "ulimit -f 0; trap '' XFSZ; exec \"$0\" \"$@\"";
    let (status, text) = run(Command::new("sh")
        .args(["-c", script, PROGRAM])
        .args(SHORT)
        .args(["--suite", "rtt", "--placement", "same-cpu", "--size", "64"])
        .args(["--mechanism", "sluice-ring-memfd"]));
    assert_eq!(status, Some(1), "{text}");
    let failed = "sluice-bench: failed (reasons below the table): sluice-ring-memfd";
    assert!(text.contains(failed), "{text}");
}
