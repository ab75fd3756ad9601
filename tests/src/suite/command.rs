// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `sluice`, as a user types it in a shell.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes};
use crate::support::time::eventually;

topic!(
    "command",
    fifo: [],
    pipe_only: [
        a_file_arrives_whole_by_name,
        a_file_arrives_whole_by_the_cgroups_own_pipe,
        a_stream_between_programs_arrives_whole,
        a_process_further_down_reaches_a_scope_by_its_directory,
        a_pipe_is_made_shown_listed_and_removed,
        bytes_stay_in_a_pipe_that_is_kept,
        who_waits_for_the_other_side_is_told_where,
        a_sender_whose_receiver_leaves_fails,
        a_pipe_that_is_not_there_is_status_3,
        an_output_file_is_left_alone_when_the_pipe_is_not_there,
        a_taken_name_is_status_4,
        what_is_not_permitted_is_status_5,
        without_the_nodes_it_is_status_6_and_the_doctor_says_so,
        a_usage_error_is_status_2,
        the_doctor_finds_nothing_wrong_here,
    ],
);

const NO_CHANNEL: i32 = 3;
const NAME_TAKEN: i32 = 4;
const NO_PERMISSION: i32 = 5;
const NOT_SET_UP: i32 = 6;

/// Runs a script that finds `sluice` in its PATH and the shell's own program, a real file, as $BASH.
fn shell(context: &Context, script: &str) -> Result<Output> {
    let own = env::current_exe().context("where the tests are")?;
    let tools = own.parent().context("the directory of the tests")?;
    ensure!(
        tools.join("sluice").exists(),
        "{} has no sluice; build it: cargo build --release --locked",
        tools.display()
    );
    let path = env::var("PATH").context("PATH")?;
    Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .env("PATH", format!("{}:{path}", tools.display()))
        .current_dir(&context.scratch)
        .stdin(Stdio::null())
        .output()
        .context("running bash")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What a script prints that succeeds.
fn succeed(context: &Context, script: &str) -> Result<String> {
    let output = shell(context, script)?;
    ensure!(
        output.status.success(),
        "'{script}' ended with {}; it said: {}",
        output.status,
        said(&output)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A script ends with this status and says all of these.
fn fail(context: &Context, script: &str, status: i32, words: &[&str]) -> Result<()> {
    let output = shell(context, script)?;
    let said = said(&output);
    expect(
        &format!("the status of '{script}', which said: {said}"),
        output.status.code(),
        Some(status),
    )?;
    for word in words {
        ensure!(
            said.contains(word),
            "'{script}' did not say '{word}': {said}"
        );
    }
    Ok(())
}

fn answer(context: &Context, script: &str) -> Result<Value> {
    let text = succeed(context, script)?;
    serde_json::from_str(&text).with_context(|| format!("'{script}' printed no JSON: {text}"))
}

/// Runs a transfer of $BASH to the file `copy`.
fn expect_copied(context: &Context, script: &str) -> Result<()> {
    let original = succeed(context, &format!("{script}\necho -n \"$BASH\""))?;
    let read = |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
    let copy = read(&context.scratch.join("copy"))?;
    expect_bytes("the copy", &copy, &read(Path::new(&original))?)
}

fn a_file_arrives_whole_by_name(context: &Context) -> Result<()> {
    let script = r#"
        sluice pipe send --create frames "$BASH" &
        sluice pipe recv --create frames copy
        wait $!"#;
    expect_copied(context, script)?;
    expect(
        "what is left",
        answer(context, "sluice ls --json")?,
        json!([]),
    )
}

fn a_file_arrives_whole_by_the_cgroups_own_pipe(context: &Context) -> Result<()> {
    let script = r#"sluice pipe send < "$BASH" & sluice pipe recv > copy; wait $!"#;
    expect_copied(context, script)
}

fn a_stream_between_programs_arrives_whole(context: &Context) -> Result<()> {
    let script = r#"
        cat "$BASH" | sluice pipe send --create --size 1M frames &
        sluice pipe recv --create --size 1M frames | cat > copy
        wait $!"#;
    expect_copied(context, script)
}

fn a_process_further_down_reaches_a_scope_by_its_directory(context: &Context) -> Result<()> {
    let script = r#"
        scope=$(findmnt -rno TARGET -t cgroup2 | tail -n 1)$(sed -n 's/^0:://p' /proc/self/cgroup)
        mkdir "$scope/below"
        sluice pipe create frames
        (echo "$BASHPID" > "$scope/below/cgroup.procs"
         if sluice pipe send frames "$BASH"; then exit 9; fi
         exec sluice pipe send --scope "$scope" frames "$BASH") &
        sluice pipe recv frames copy
        wait $!"#;
    expect_copied(context, script)
}

fn a_pipe_is_made_shown_listed_and_removed(context: &Context) -> Result<()> {
    let expected = json!({
        "kind": "pipe", "name": "frames", "mode": "0640", "uid": 0, "gid": 0, "readers": 0, "writers": 0,
        "bytes": 0, "capacity": 131072, "persistent": true,
    });
    let made = "sluice pipe create frames --mode 640 --size 128K --json";
    expect("made", answer(context, made)?, expected.clone())?;
    let shown = answer(context, "sluice pipe info frames --json")?;
    expect("shown", shown, expected.clone())?;
    for list in ["sluice ls --json", "sluice pipe ls --json"] {
        expect(list, answer(context, list)?, json!([expected]))?;
    }
    let table = succeed(context, "sluice ls")?;
    ensure!(table.contains("frames"), "the table lacks it: {table}");
    expect(
        "rm",
        succeed(context, "sluice pipe rm frames")?,
        String::new(),
    )?;
    expect(
        "afterwards",
        answer(context, "sluice ls --json")?,
        json!([]),
    )
}

fn bytes_stay_in_a_pipe_that_is_kept(context: &Context) -> Result<()> {
    let script = r#"
        sluice pipe send --create --persist frames <<< first &
        sluice pipe recv --create --persist frames | head -c 6
        wait $!
        sluice pipe info frames --json
        sluice pipe rm frames"#;
    let printed = succeed(context, script)?;
    let (first, info) = printed.split_once('\n').context("two answers")?;
    expect("what was sent", first, "first")?;
    let info: Value = serde_json::from_str(info).context("no JSON")?;
    expect("whether it is kept", &info["persistent"], &json!(true))
}

fn who_waits_for_the_other_side_is_told_where(context: &Context) -> Result<()> {
    let own = fs::read_to_string("/proc/self/cgroup").context("the own cgroup")?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::"));
    let own = own.context("no cgroup v2")?.to_owned();
    std::thread::scope(|threads| {
        let both = threads.spawn(|| {
            let script = r#"
                sluice pipe recv --create frames 2> told > got &
                until grep -q waiting told; do sleep 0.1; done
                sluice pipe send frames <<< hello
                wait $!"#;
            succeed(context, script)
        });
        let told = eventually("a word about waiting", || {
            let told = fs::read_to_string(context.scratch.join("told")).unwrap_or_default();
            Ok(told.ends_with('\n').then_some(told))
        })?;
        for word in [
            "waiting for a sender at 'frames'",
            own.as_str(),
            "sluice pipe send frames",
        ] {
            ensure!(told.contains(word), "it does not say '{word}': {told}");
        }
        both.join().expect("the thread returns its errors")?;
        let got = fs::read(context.scratch.join("got")).context("reading what came")?;
        expect_bytes("what came", &got, b"hello\n")
    })
}

fn a_sender_whose_receiver_leaves_fails(context: &Context) -> Result<()> {
    let script = r#"
        sluice pipe create frames
        sluice pipe recv frames 2> told | head -c 1000 > copy &
        sluice pipe send frames /dev/zero"#;
    fail(context, script, 1, &["receiver left after", "send anew"])?;
    let told = fs::read_to_string(context.scratch.join("told")).context("reading")?;
    ensure!(
        told.contains("whoever read standard output left"),
        "the receiver said: {told}"
    );
    succeed(context, "sluice pipe rm frames").map(drop)
}

fn a_pipe_that_is_not_there_is_status_3(context: &Context) -> Result<()> {
    for command in ["recv frames", "send frames", "info frames", "rm frames"] {
        let words = ["no channel named 'frames' in", "sluice pipe create frames"];
        fail(
            context,
            &format!("sluice pipe {command}"),
            NO_CHANNEL,
            &words,
        )?;
    }
    Ok(())
}

fn an_output_file_is_left_alone_when_the_pipe_is_not_there(context: &Context) -> Result<()> {
    let script = "echo precious > copy; sluice pipe recv frames copy";
    fail(context, script, NO_CHANNEL, &[])?;
    let kept = fs::read(context.scratch.join("copy")).context("reading")?;
    expect_bytes("the file", &kept, b"precious\n")
}

fn a_taken_name_is_status_4(context: &Context) -> Result<()> {
    succeed(context, "sluice pipe create frames")?;
    let words = ["'frames' is already in", "sluice pipe rm frames"];
    fail(context, "sluice pipe create frames", NAME_TAKEN, &words)?;
    succeed(context, "sluice pipe rm frames").map(drop)
}

/// As root without the capability that makes an administrator.
fn what_is_not_permitted_is_status_5(context: &Context) -> Result<()> {
    const HUMBLE: &str = "setpriv --bounding-set=-sys_admin,-sys_resource sluice";
    succeed(context, "sluice pipe create frames --mode 000")?;
    let words = ["permission denied for 'frames'"];
    fail(
        context,
        &format!("{HUMBLE} pipe recv frames"),
        NO_PERMISSION,
        &words,
    )?;
    succeed(context, &format!("{HUMBLE} pipe rm frames"))?;
    let root = r#"scope=$(findmnt -rno TARGET -t cgroup2 | tail -n 1)
        mkdir -p "$scope$(sed -n 's/^0:://p' /proc/self/cgroup)/other""#;
    let other = r#""$scope$(sed -n 's/^0:://p' /proc/self/cgroup)/other""#;
    let script = format!("{root}\n{HUMBLE} ls --scope {other}");
    fail(context, &script, NO_PERMISSION, &["outside of it"])?;
    let large = format!("{HUMBLE} pipe create large --size 512M");
    fail(context, &large, NO_PERMISSION, &["pipe_max_size"])
}

fn without_the_nodes_it_is_status_6_and_the_doctor_says_so(context: &Context) -> Result<()> {
    let hidden = |command: &str| {
        format!("unshare -m bash -c 'mount -t tmpfs none /dev/sluice && exec {command}'")
    };
    let words = ["there is no /dev/sluice/", "modprobe sluice"];
    for command in ["sluice pipe recv frames", "sluice pipe recv", "sluice ls"] {
        fail(context, &hidden(command), NOT_SET_UP, &words)?;
    }
    let output = shell(context, &hidden("sluice doctor --json"))?;
    expect("the doctor's status", output.status.code(), Some(1))?;
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout).context("no JSON")?;
    let bad: Vec<_> = findings.iter().filter(|one| one["ok"] == false).collect();
    let checks: Vec<_> = bad.iter().map(|one| one["check"].clone()).collect();
    expect(
        "what is wrong",
        checks,
        vec![json!("pipe node"), json!("ctl node"), json!("features")],
    )?;
    ensure!(bad.iter().all(|one| one["mend"].is_string()), "{bad:?}");
    Ok(())
}

fn a_usage_error_is_status_2(context: &Context) -> Result<()> {
    fail(context, "sluice pipe create a/b", 2, &["a '/' in it"])?;
    fail(context, "sluice pipe send --create", 2, &["NAME"])
}

fn the_doctor_finds_nothing_wrong_here(context: &Context) -> Result<()> {
    let report = succeed(context, "sluice doctor")?;
    expect("how many checks", report.lines().count(), 8)?;
    ensure!(
        report.lines().all(|line| line.starts_with("ok ")),
        "it has complaints: {report}"
    );
    Ok(())
}
