// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice unload` while the module is in use: what it says, and that it ends nothing. tests/guest/unit-file unloads the module.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::cli::{NAME_TAKEN, NO_PERMISSION, TIMED_OUT, shell};

topic!(
    "cli_unload",
    fifo: [],
    pipe_only: [
        processes_and_persistent_channels_are_listed,
        nothing_is_removed_while_something_else_uses_the_module,
        a_wait_ends_at_its_time,
        only_root_may_unload,
    ],
);

/// Runs the command, while a process has the default pipe open, and a persistent pipe is there.
fn while_in_use(arguments: &str) -> String {
    format!(
        "sluice pipe create frames
        sleep 1000 <> /dev/sluice/pipe &
        until [[ $(</proc/$!/comm) == sleep ]]; do sleep 0.01; done
        status=0
        sluice unload {arguments} || status=$?
        kill $!
        wait
        sluice pipe rm frames || exit 99
        exit $status"
    )
}

fn processes_and_persistent_channels_are_listed(context: &Context) -> Result<()> {
    let run = shell(context, &while_in_use("--json"))?;
    let words = ["the module is in use", "--wait", "--remove-channels"];
    run.expect_failure(NAME_TAKEN, &words)?;
    let rows: Vec<Value> = serde_json::from_slice(&run.output.stdout).context("no JSON")?;
    let scope = context.cgroup()?.path().display().to_string();
    let row = |what| {
        let mut rows = rows.iter();
        let row = rows.find(|row| row["held_by"] == what && row["scope"] == scope);
        row.with_context(|| format!("no {what} in {rows:?}"))
    };
    let process = row("process")?;
    expect("its command", &process["command"], &json!("sleep"))?;
    expect("its kind", &process["kind"], &json!("pipe"))?;
    let channel = row("persistent channel")?;
    expect("its name", &channel["name"], &json!("frames"))?;
    expect("its process", &channel["pid"], &Value::Null)
}

/// The pipe is still there to be removed, with status 99 otherwise.
fn nothing_is_removed_while_something_else_uses_the_module(context: &Context) -> Result<()> {
    let run = shell(context, &while_in_use("--remove-channels --detach"))?;
    run.expect_failure(NAME_TAKEN, &["the module is in use"])?;
    let printed = String::from_utf8_lossy(&run.output.stdout);
    ensure!(
        !printed.contains("frames"),
        "what the option ends: {printed}"
    );
    ensure!(printed.contains("sleep"), "the process: {printed}");
    Ok(())
}

fn a_wait_ends_at_its_time(context: &Context) -> Result<()> {
    let started = Instant::now();
    let run = shell(context, &while_in_use("--wait=300ms"))?;
    run.expect_failure(TIMED_OUT, &["in use after 300ms"])?;
    ensure!(started.elapsed().as_millis() >= 300, "it did not wait");
    Ok(())
}

fn only_root_may_unload(context: &Context) -> Result<()> {
    shell(context, "unshare --user sluice unload")?
        .expect_failure(NO_PERMISSION, &["sudo sluice unload"])
}
