// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library, and the implementation in Python that was written from docs/abi/ alone, with each other.

use std::process::Command;

const PYTHON: &str = concat!(
    "python3 -B -S ",
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/interop/python/conform.py"
);

fn run(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice-conform"))
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
