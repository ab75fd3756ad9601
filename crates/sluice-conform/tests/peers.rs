// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library, and the implementation in Python that was written from docs/abi/ alone, with each other, with each way to wait.

use std::process::Command;

const LIBRARY: &str = env!("CARGO_BIN_EXE_sluice-conform");

const PYTHON: &str = concat!(
    "python3 -B -S ",
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/interop/python/conform.py"
);

fn run(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(LIBRARY)
        .arg("run")
        .args(arguments)
        .output()
        .unwrap();
    (
        output.status.success(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

#[test]
fn both_implementations_behave_as_listed() {
    let (success, text) = run(&["--peer", PYTHON]);
    assert!(success, "{text}");
    // All with the library alone, and most with Python.
    let passed = text.lines().last().and_then(|line| line.split(' ').next());
    assert!(passed.unwrap().parse::<u32>().unwrap() > 100, "{text}");
}

#[test]
fn every_way_to_wait_carries_all_records() {
    let peers = [
        format!("{LIBRARY} peer --spin never"),
        format!("{LIBRARY} peer --spin always"),
        format!("{PYTHON} --socket futex --spins 100"),
        format!("{PYTHON} --socket socket"),
        format!("{PYTHON} --socket futex --unregistered"),
        format!("{PYTHON} --socket socket --unregistered --spins 100"),
    ];
    let mut arguments = vec!["--only", "pass the end"];
    for peer in &peers {
        arguments.extend(["--peer", peer]);
    }
    let (success, text) = run(&arguments);
    assert!(success, "{text}");
    assert!(text.contains("49 passed"), "{text}");
}

#[test]
fn a_peer_that_answers_wrongly_fails() {
    let (success, text) = run(&[
        "--limit",
        "5",
        "--only",
        "whole and in order",
        "--peer",
        "sed -u s/.*/ok/",
    ]);
    assert!(!success, "{text}");
    assert!(
        text.contains("FAILED: records arrive whole and in order"),
        "{text}"
    );
    assert!(text.contains("consumer: sed"), "{text}");
    assert!(text.contains("instead of"), "{text}");
}
