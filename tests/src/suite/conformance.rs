// SPDX-License-Identifier: MIT OR Apache-2.0
//! A few of the behaviours of rings, buses and maps in spec/conformance/, between processes of the library and of the implementation in Python.
//! `tests/conform` runs all of them, with all languages.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::registry::{Context, topic};
use crate::support::cli::tools;

topic!(
    "conformance",
    fifo: [],
    pipe_only: [
        processes_of_two_languages_agree,
    ],
);

const PYTHON: &str = concat!(
    "python3 -B -S ",
    env!("CARGO_MANIFEST_DIR"),
    "/interop/python/conform.py"
);

const BEHAVIOURS: [&str; 6] = [
    "records arrive whole and in order",
    "each role is taken once",
    "every message is received or counted as lost",
    "a request has a reply",
    "a set may require a version",
    "a watcher receives changes in order",
];

fn processes_of_two_languages_agree(_: &Context) -> Result<()> {
    let mut command = Command::new(tools()?.join("sluice-conform"));
    command.args(["run", "--module", "--peer", PYTHON]);
    for name in BEHAVIOURS {
        command.args(["--only", name]);
    }
    let output = command.output().context("starting sluice-conform")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{text}");
    // Of rings each producer with each consumer; Python has no buses and maps.
    ensure!(text.contains("12 passed, 0 failed"), "{text}");
    Ok(())
}
