// SPDX-License-Identifier: MIT OR Apache-2.0
//! tests/kfuzz refuses wrong arguments, with an error that names them, before it builds or starts anything.

use std::path::Path;
use std::process::Command;

fn refusal(arguments: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/kfuzz");
    let output = Command::new(script)
        .args(arguments)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn wrong_arguments_are_refused() {
    for (arguments, expected) in [
        (
            &["--minutes", "0"][..],
            "--minutes wants a number from 1 to 9999",
        ),
        (
            &["--minutes", "ten"],
            "--minutes wants a number from 1 to 9999",
        ),
        (&["--minutes"], "--minutes wants a number from 1 to 9999"),
        (&["--seed", "-1"], "--seed wants a number"),
        (&["--kernel", "none"], "there is no kernel 'none'"),
        (
            &["--replay", "/none"],
            "--replay wants a file, and there is no '/none'",
        ),
        (&["--replay"], "--replay wants a file"),
        (&["--hours", "1"], "unknown argument '--hours'"),
        (&["1"], "unknown argument '1'"),
    ] {
        let error = refusal(arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
