// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `sluice doctor` says of a set-up that does not work, and that its advice mends it.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::cli::{Run, shell, tools};
use crate::support::crun::Runtime;
use crate::support::kernel::expect_no_objects;
use crate::support::parameter::{Parameter, scope_limit};

topic!(
    "cli_doctor",
    fifo: [],
    pipe_only: [
        a_node_of_an_earlier_load_is_made_anew,
        a_missing_node_is_made,
        a_mode_that_refuses_a_user_is_changed,
        a_node_on_a_mount_without_devices_is_named,
        the_device_policy_of_a_container_is_named,
        a_full_cgroup_and_a_full_user_are_told_apart,
        channels_of_another_cgroup_are_reached_by_the_advice,
    ],
);

/// In a mount namespace with nodes of its own, `advised CHECK` executes the advice for a check, and `unprivileged` runs doctor without the
/// capabilities to open any file.
const NODES: &str = r#"
    major=$(cut -d : -f 1 /sys/class/sluice/ctl/dev)
    minor=$(cut -d : -f 2 /sys/class/sluice/ctl/dev)
    mount -t tmpfs none /dev/sluice
    sudo() { "$@"; }
    unprivileged() { setpriv --bounding-set=-dac_override,-dac_read_search sluice doctor --json; }
    advised() {
        local command
        sluice doctor | grep "^problem *$1 " | cut -d \; -f 2- | grep -o "'[^']*'" | tr -d \' > advice
        while read -r command; do eval "$command"; done < advice
    }"#;

/// Runs a script whose last output is that of doctor.
fn doctor(context: &Context, script: &str) -> Result<Vec<Value>> {
    findings(&shell(context, script)?)
}

fn findings(run: &Run) -> Result<Vec<Value>> {
    serde_json::from_slice(&run.output.stdout)
        .with_context(|| format!("no JSON; stderr: {}", run.stderr()))
}

fn with_nodes(context: &Context, script: &str) -> Result<Vec<Value>> {
    let inner = context.scratch.join("script");
    std::fs::write(&inner, format!("{NODES}\n{script}")).context("writing a script")?;
    doctor(context, &format!("unshare -m bash {}", inner.display()))
}

/// What doctor has found, of the check with this name.
fn found<'a>(findings: &'a [Value], check: &str) -> Result<&'a str> {
    let finding = findings.iter().find(|one| one["check"] == check);
    let finding = finding.with_context(|| format!("no check '{check}'"))?;
    finding["found"].as_str().context("no text")
}

fn expect_problem(findings: &[Value], check: &str, words: &[&str]) -> Result<()> {
    let text = found(findings, check)?;
    let finding = findings.iter().find(|one| one["check"] == check);
    let fix = finding.and_then(|one| one["fix"].as_str());
    let text = format!("{text}; {}", fix.context("it is no problem")?);
    for word in words {
        ensure!(text.contains(word), "'{word}' is not in: {text}");
    }
    Ok(())
}

fn expect_ok(findings: &[Value], check: &str) -> Result<()> {
    let finding = findings.iter().find(|one| one["check"] == check);
    let finding = finding.with_context(|| format!("no check '{check}'"))?;
    ensure!(finding["ok"] == true, "{finding}");
    Ok(())
}

fn a_node_of_an_earlier_load_is_made_anew(context: &Context) -> Result<()> {
    let stale = "mknod -m 666 /dev/sluice/ctl c $((major + 1)) $minor";
    let before = with_nodes(context, &format!("{stale}; sluice doctor --json"))?;
    let words = [
        "made for an earlier load",
        "sudo mknod -m 666 /dev/sluice/ctl",
    ];
    expect_problem(&before, "ctl node", &words)?;
    let mended = with_nodes(context, &format!("{stale}; advised ctl; unprivileged"))?;
    expect_ok(&mended, "ctl node")?;
    expect_ok(&mended, "features")
}

fn a_missing_node_is_made(context: &Context) -> Result<()> {
    let mended = with_nodes(context, "advised ctl; advised pipe; unprivileged")?;
    expect_ok(&mended, "ctl node")?;
    expect_ok(&mended, "pipe node")
}

fn a_mode_that_refuses_a_user_is_changed(context: &Context) -> Result<()> {
    let node = "mknod -m 600 /dev/sluice/ctl c $major $minor; chown 7 /dev/sluice/ctl";
    let before = with_nodes(context, &format!("{node}; unprivileged"))?;
    let words = [
        "mode 600: only the user 7",
        "sudo chmod 666 /dev/sluice/ctl",
    ];
    expect_problem(&before, "ctl node", &words)?;
    let mended = with_nodes(
        context,
        &format!("{node}; chmod 666 /dev/sluice/ctl; unprivileged"),
    )?;
    expect_ok(&mended, "ctl node")
}

fn a_node_on_a_mount_without_devices_is_named(context: &Context) -> Result<()> {
    let script = "mknod -m 666 /dev/sluice/ctl c $major $minor; mount -o remount,nodev /dev/sluice; sluice doctor --json";
    expect_problem(&with_nodes(context, script)?, "ctl node", &["nodev"])
}

/// The mode permits it.
fn the_device_policy_of_a_container_is_named(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    home.create_child("host")?.enter()?;
    let script = format!("exec {}/sluice doctor --json", tools()?.display());
    let runtime = Runtime::new(&context.scratch, home)?;
    let start = runtime.prepare_without_devices("denied", "/dev/sluice", &script)?;
    let found = doctor(context, &start)?;
    let words = ["mode 666: the device policy", "--device /dev/sluice/ctl"];
    expect_problem(&found, "ctl node", &words)?;
    expect_problem(&found, "pipe node", &["the device policy"])
}

fn a_full_cgroup_and_a_full_user_are_told_apart(context: &Context) -> Result<()> {
    let with_a_pipe = |run: &str| {
        let script =
            format!("{run} pipe create frames; {run} doctor --json || {run} pipe rm frames");
        doctor(context, &script)
    };
    let limit = scope_limit("scope_max_channels", 1)?;
    let words = [
        "this cgroup has used up scope_max_channels: 1 of 1",
        "echo 2 | sudo tee",
    ];
    expect_problem(&with_a_pipe("sluice")?, "usage", &words)?;
    drop(limit);
    expect_no_objects()?;
    let _limit = Parameter::set("user_max_channels", 1)?;
    let words = ["this user has used up user_max_channels: 1 of 1"];
    let limited = with_a_pipe("setpriv --bounding-set=-sys_resource sluice")?;
    expect_problem(&limited, "usage", &words)?;
    expect_ok(&doctor(context, "sluice doctor --json")?, "usage")
}

/// As from two terminals.
fn channels_of_another_cgroup_are_reached_by_the_advice(context: &Context) -> Result<()> {
    let other = context.cgroup()?.create_child("other")?;
    let there = "bash -c 'echo $$ > $SCOPE/other/cgroup.procs && exec \"$@\"' -";
    let line = format!("{there} sluice doctor --json");
    let found_there = doctor(context, &line)?;
    let text = found(&found_there, "own cgroup")?;
    let (_, advice) = text
        .split_once("root reaches these from there with ")
        .context("no advice")?;
    let directory = other.path().display();
    expect(
        "the advice",
        advice,
        format!("--scope {directory}").as_str(),
    )?;
    shell(context, &format!("{there} sluice pipe create frames"))?.stdout()?;
    shell(context, "sluice pipe info frames")?.expect_failure(3, &["no pipe named 'frames'"])?;
    shell(
        context,
        &format!("sluice pipe info frames {advice} && sluice pipe rm frames {advice}"),
    )?
    .stdout()
    .map(drop)
}
