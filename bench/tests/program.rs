// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program as its users start it: exit status and help.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use sluice_bench::harness::pinning::Placement;
use sluice_bench::harness::rows::{Results, Row};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sluice-bench");
/// The server of Redis, by the name under which it is started.
const SERVER: &str = "redis-check-rdb";

fn text(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr].map(|part| String::from_utf8_lossy(part));
    parts.concat()
}

/// A directory, removed when dropped.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_rival_whose_server_never_starts_is_a_row_with_the_reason() {
    if Placement::TwoCpus.cpus().unwrap().is_none() {
        return;
    }
    let name = format!("sluice-bench-program-{}", std::process::id());
    let directory = Directory(std::env::temp_dir().join(name));
    fs::create_dir(&directory.0).unwrap();
    let server = directory.0.join(SERVER);
    fs::write(&server, "#!/bin/sh\nexit 7\n").unwrap();
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
    let [json, html] = ["json", "html"].map(|name| directory.0.join(name));
    let path = std::env::var("PATH").unwrap();
    let output = Command::new(PROGRAM)
        .args(["--quick", "--suite", "map", "--mechanism", "redis,bpf-map"])
        .args(["--rounds", "1", "--duration", "0.01", "--json"])
        .arg(&json)
        .arg("--html")
        .arg(&html)
        .env("PATH", format!("{}:{path}", directory.0.display()))
        .output()
        .unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let reason = "redis-server did not start: it ended: exit status: 7";
    assert!(text.contains(&format!("FAILED: redis: {reason}")), "{text}");
    let rows = Results::read(&json).unwrap().rows;
    let is_failed = |row: &Row| {
        (row.mechanism == "redis" && row.failed == Some(true))
            && row.skipped.as_deref() == Some(reason)
    };
    assert!(rows.iter().any(is_failed));
    assert!(fs::read_to_string(&html).unwrap().contains(reason));
}

#[test]
fn a_mechanism_of_sluice_that_fails_makes_the_run_fail() {
    // No file may have any bytes, nor the memory of the ring.
    let script = "ulimit -f 0; trap '' XFSZ; exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .args(["-c", script, PROGRAM])
        .args(["--quick", "--suite", "rtt", "--placement", "same-cpu"])
        .args(["--mechanism", "sluice-ring-memfd", "--size", "64"])
        .args(["--rounds", "1", "--duration", "0.01"])
        .output()
        .unwrap();
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let failed = "sluice-bench: failed (reasons below the table): sluice-ring-memfd";
    assert!(text.contains(failed), "{text}");
}

#[test]
fn help_fits_the_terminal() {
    for columns in [60, 80] {
        let output = Command::new(PROGRAM)
            .arg("--help")
            .env("COLUMNS", columns.to_string())
            .output()
            .unwrap();
        let text = text(&output);
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest <= columns), "{text}");
    }
}
