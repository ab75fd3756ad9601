// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `sluice`, as a user types it in a shell.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes};

topic!(
    "command",
    fifo: [],
    pipe_only: [
        a_file_arrives_whole_by_name,
        a_file_arrives_whole_by_the_cgroups_own_pipe,
        a_stream_between_programs_arrives_whole,
        a_terminal_shows_how_far_a_transfer_is,
        a_process_further_down_reaches_a_scope_by_its_directory,
        a_pipe_is_made_shown_listed_and_removed,
        a_pipe_that_is_kept_outlives_both_sides,
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

/// What one command, or one script, did.
struct Run {
    line: String,
    output: Output,
}

/// Runs `sluice` alone: a shell would take longer to start than the command takes.
fn sluice(context: &Context, arguments: &str) -> Result<Run> {
    let mut command = Command::new(tools()?.join("sluice"));
    command.args(arguments.split_whitespace());
    run(context, &format!("sluice {arguments}"), &mut command)
}

/// Runs a script that finds `sluice` in its PATH, the directory of its cgroup as $SCOPE, and the shell's own program, a real
/// file, as $BASH.
fn shell(context: &Context, script: &str) -> Result<Run> {
    let path = env::var("PATH").context("PATH")?;
    let mut command = Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", script])
        .env("PATH", format!("{}:{path}", tools()?.display()))
        .env("SCOPE", context.cgroup()?.path());
    run(context, script, &mut command)
}

fn tools() -> Result<PathBuf> {
    let own = env::current_exe().context("where the tests are")?;
    let tools = own.parent().context("the directory of the tests")?;
    ensure!(
        tools.join("sluice").exists(),
        "{} has no sluice; run these tests in the VM: make test-vm TESTS=command::",
        tools.display()
    );
    Ok(tools.to_owned())
}

fn run(context: &Context, line: &str, command: &mut Command) -> Result<Run> {
    let command = command.current_dir(&context.scratch).stdin(Stdio::null());
    Ok(Run {
        line: line.to_owned(),
        output: command
            .output()
            .with_context(|| format!("running {line}"))?,
    })
}

impl Run {
    fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// What it printed; it must have succeeded.
    fn printed(&self) -> Result<String> {
        ensure!(
            self.output.status.success(),
            "'{}' ended with {}; it said: {}",
            self.line,
            self.output.status,
            self.said()
        );
        Ok(String::from_utf8_lossy(&self.output.stdout).into_owned())
    }

    fn json(&self) -> Result<Value> {
        let text = self.printed()?;
        serde_json::from_str(&text)
            .with_context(|| format!("'{}' printed no JSON: {text}", self.line))
    }

    /// It must have ended with this status and said all of these.
    fn failed(&self, status: i32, words: &[&str]) -> Result<()> {
        let said = self.said();
        expect(
            &format!("the status of '{}', which said: {said}", self.line),
            self.output.status.code(),
            Some(status),
        )?;
        for word in words {
            ensure!(
                said.contains(word),
                "'{}' did not say '{word}': {said}",
                self.line
            );
        }
        Ok(())
    }
}

/// Runs a transfer of $BASH to the file `copy`.
fn expect_copied(context: &Context, script: &str) -> Result<()> {
    let original = shell(context, &format!("{script}\necho -n \"$BASH\""))?.printed()?;
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
        sluice(context, "ls --json")?.json()?,
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

/// Half of it is there when the receiver begins to dawdle.
fn a_terminal_shows_how_far_a_transfer_is(context: &Context) -> Result<()> {
    let script = r#"
        truncate --size 4M zeros
        script --quiet --return --command 'sluice pipe send --create --size 2M frames zeros' screen < /dev/null > /dev/null &
        sluice pipe recv --create --size 2M frames | { sleep 0.5; cat > copy; }
        wait $!
        cmp zeros copy >&2
        cat screen"#;
    let screen = shell(context, script)?.printed()?;
    for shown in ["/4.00 MiB", "MiB/s", " left"] {
        ensure!(
            screen.contains(shown),
            "no {shown:?} on the screen: {screen:?}"
        );
    }
    Ok(())
}

fn a_process_further_down_reaches_a_scope_by_its_directory(context: &Context) -> Result<()> {
    let script = r#"
        mkdir "$SCOPE/below"
        sluice pipe create frames
        (echo "$BASHPID" > "$SCOPE/below/cgroup.procs"
         if sluice pipe send frames "$BASH"; then exit 9; fi
         exec sluice pipe send --scope "$SCOPE" frames "$BASH") &
        sluice pipe recv frames copy
        wait $!"#;
    expect_copied(context, script)
}

fn a_pipe_is_made_shown_listed_and_removed(context: &Context) -> Result<()> {
    let expected = json!({
        "kind": "pipe", "name": "frames", "mode": "0640", "uid": 0, "gid": 0, "readers": 0, "writers": 0,
        "bytes": 0, "capacity": 131072, "persistent": true,
    });
    let json = |arguments| sluice(context, arguments)?.json();
    let made = json("pipe create frames --mode 640 --size 128K --json")?;
    expect("made", made, expected.clone())?;
    let shown = json("pipe info frames --json")?;
    expect("shown", shown, expected.clone())?;
    for list in ["ls --json", "pipe ls --json"] {
        expect(list, json(list)?, json!([expected]))?;
    }
    expect_table(&sluice(context, "ls")?, "root")?;
    expect_table(&sluice(context, "pipe info frames")?, "root")?;
    expect_table(&sluice(context, "ls -n")?, "0")?;
    expect_table(&sluice(context, "pipe info frames --numeric")?, "0")?;
    let removed = sluice(context, "pipe rm frames")?.printed()?;
    expect("what rm prints", removed, String::new())?;
    expect("afterwards", json("ls --json")?, json!([]))
}

/// The table of the persistent pipe `frames`, with `root` as its user and group.
fn expect_table(listed: &Run, root: &str) -> Result<()> {
    let table = listed.printed()?;
    let cells: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let headings = "KIND MODE USER GROUP READERS WRITERS BYTES CAPACITY PERSISTENT NAME";
    let row = format!("pipe 0640 {root} {root} 0 0 0 131072 yes frames");
    let expected: Vec<Vec<&str>> = [headings, &row]
        .map(|line| line.split(' ').collect())
        .into();
    expect(&format!("the table of '{}'", listed.line), cells, expected)
}

fn a_pipe_that_is_kept_outlives_both_sides(context: &Context) -> Result<()> {
    let script = r#"
        sluice pipe send --create --persist frames <<< hello &
        sluice pipe recv --create --persist frames
        wait $!"#;
    let came = shell(context, script)?.printed()?;
    expect("what came", came, "hello\n".to_owned())?;
    let left = sluice(context, "pipe info frames --json")?.json()?;
    let ends = (&left["readers"], &left["writers"]);
    expect("its ends", ends, (&json!(0), &json!(0)))?;
    sluice(context, "pipe rm frames")?.printed().map(drop)
}

fn who_waits_for_the_other_side_is_told_where(context: &Context) -> Result<()> {
    let script = r#"
        sluice pipe recv --create frames 2> told &
        until grep -q "sluice pipe send frames" told; do sleep 0.1; done
        sluice pipe send frames <<< hello
        wait $!
        sed -n 's/^0:://p' /proc/self/cgroup
        cat told"#;
    let printed = shell(context, script)?.printed()?;
    let mut lines = printed.lines();
    let mut next = || lines.next().context("three lines");
    let (came, cgroup, told) = (next()?, next()?, next()?);
    expect("what came", came, "hello")?;
    for word in ["waiting for a sender at 'frames'", cgroup] {
        ensure!(told.contains(word), "it does not say '{word}': {told}");
    }
    Ok(())
}

fn a_sender_whose_receiver_leaves_fails(context: &Context) -> Result<()> {
    let script = r#"
        sluice pipe create frames
        sluice pipe recv frames 2> told | head -c 1000 > copy &
        sluice pipe send frames /dev/zero"#;
    let sender = shell(context, script)?;
    sender.failed(1, &["receiver closed the pipe after", "send again"])?;
    let told = fs::read_to_string(context.scratch.join("told")).context("reading")?;
    ensure!(
        told.contains("the reader of standard output closed it"),
        "the receiver said: {told}"
    );
    sluice(context, "pipe rm frames")?.printed().map(drop)
}

fn a_pipe_that_is_not_there_is_status_3(context: &Context) -> Result<()> {
    for verb in ["recv", "send", "info", "rm"] {
        let words = ["no channel named 'frames' in", "sluice pipe create frames"];
        sluice(context, &format!("pipe {verb} frames"))?.failed(NO_CHANNEL, &words)?;
    }
    Ok(())
}

fn an_output_file_is_left_alone_when_the_pipe_is_not_there(context: &Context) -> Result<()> {
    let copy = context.scratch.join("copy");
    fs::write(&copy, "precious").context("writing")?;
    sluice(context, "pipe recv frames copy")?.failed(NO_CHANNEL, &[])?;
    expect_bytes(
        "the file",
        &fs::read(&copy).context("reading")?,
        b"precious",
    )
}

fn a_taken_name_is_status_4(context: &Context) -> Result<()> {
    sluice(context, "pipe create frames")?.printed()?;
    let words = ["'frames' already exists in", "sluice pipe rm frames"];
    sluice(context, "pipe create frames")?.failed(NAME_TAKEN, &words)?;
    sluice(context, "pipe rm frames")?.printed().map(drop)
}

/// As root without the capability that makes an administrator.
fn what_is_not_permitted_is_status_5(context: &Context) -> Result<()> {
    let humble = |arguments: &str| {
        let humble = "setpriv --bounding-set=-sys_admin,-sys_resource sluice";
        shell(context, &format!("{humble} {arguments}"))
    };
    context.cgroup()?.create_child("other")?;
    sluice(context, "pipe create frames --mode 000")?.printed()?;
    let words = ["permission denied for 'frames'"];
    humble("pipe recv frames")?.failed(NO_PERMISSION, &words)?;
    humble("pipe rm frames")?.printed()?;
    humble("ls --scope $SCOPE/other")?.failed(NO_PERMISSION, &["outside of it"])?;
    humble("pipe create large --size 512M")?.failed(NO_PERMISSION, &["pipe_max_size"])
}

fn without_the_nodes_it_is_status_6_and_the_doctor_says_so(context: &Context) -> Result<()> {
    let hidden = |arguments: &str| {
        let hide = "mount -t tmpfs none /dev/sluice";
        shell(
            context,
            &format!("unshare -m bash -c '{hide} && exec sluice {arguments}'"),
        )
    };
    let words = ["no /dev/sluice/", "modprobe sluice"];
    for arguments in ["pipe recv frames", "pipe recv", "ls"] {
        hidden(arguments)?.failed(NOT_SET_UP, &words)?;
    }
    let doctor = hidden("doctor --json")?;
    doctor.failed(1, &[])?;
    let findings: Vec<Value> = serde_json::from_slice(&doctor.output.stdout).context("no JSON")?;
    let bad: Vec<_> = findings.iter().filter(|one| one["ok"] == false).collect();
    let checks: Vec<_> = bad.iter().map(|one| one["check"].clone()).collect();
    expect(
        "what is wrong",
        checks,
        vec![json!("pipe node"), json!("ctl node"), json!("features")],
    )?;
    ensure!(bad.iter().all(|one| one["fix"].is_string()), "{bad:?}");
    Ok(())
}

fn a_usage_error_is_status_2(context: &Context) -> Result<()> {
    sluice(context, "pipe create a/b")?.failed(2, &["contains '/'"])?;
    sluice(context, "pipe send --create")?.failed(2, &["NAME"])
}

fn the_doctor_finds_nothing_wrong_here(context: &Context) -> Result<()> {
    let report = sluice(context, "doctor")?.printed()?;
    expect("how many checks", report.lines().count(), 9)?;
    ensure!(
        report.lines().all(|line| line.starts_with("ok ")),
        "it has complaints: {report}"
    );
    Ok(())
}
