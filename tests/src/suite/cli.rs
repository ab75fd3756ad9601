// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `sluice`, run as from a shell.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes};
use crate::support::cli::{
    NAME_TAKEN, NO_CHANNEL, NO_PERMISSION, NOT_SET_UP, expect_destroyed, expect_table, shell,
    sluice,
};

topic!(
    "cli",
    fifo: [],
    pipe_only: [
        a_file_is_transferred_by_name,
        a_file_is_transferred_over_the_default_pipe,
        a_stream_between_programs_is_transferred,
        a_terminal_shows_transfer_progress,
        a_process_in_a_descendant_cgroup_opens_by_scope_directory,
        a_pipe_is_created_shown_listed_and_removed,
        a_persistent_pipe_outlives_its_endpoints,
        a_destroyed_pipe_ends_its_transfers,
        a_blocked_open_prints_what_it_waits_for,
        a_sender_fails_when_its_receiver_exits,
        a_missing_pipe_is_status_3,
        a_missing_pipe_leaves_the_output_file_unchanged,
        an_existing_name_is_status_4,
        permission_denied_is_status_5,
        missing_nodes_are_status_6_and_reported_by_doctor,
        a_usage_error_is_status_2,
        doctor_finds_no_problem,
        a_shell_completes_names_of_the_kind,
        a_shell_completes_keys,
        a_completion_has_a_limit,
    ],
);

/// Runs a transfer of $BASH to the file `copy`.
fn expect_copied(context: &Context, script: &str) -> Result<()> {
    let original = shell(context, &format!("{script}\necho -n \"$BASH\""))?.stdout()?;
    let read = |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
    let copy = read(&context.scratch.join("copy"))?;
    expect_bytes("the copy", &copy, &read(Path::new(&original))?)
}

fn a_file_is_transferred_by_name(context: &Context) -> Result<()> {
    let script = r#"
        sluice pipe send --create frames "$BASH" &
        sluice pipe recv --create frames copy
        wait $!"#;
    expect_copied(context, script)?;
    expect(
        "what remains",
        sluice(context, "ls --json")?.json()?,
        json!([]),
    )
}

fn a_file_is_transferred_over_the_default_pipe(context: &Context) -> Result<()> {
    let script = r#"sluice pipe send < "$BASH" & sluice pipe recv > copy; wait $!"#;
    expect_copied(context, script)
}

fn a_stream_between_programs_is_transferred(context: &Context) -> Result<()> {
    let script = r#"
        cat "$BASH" | sluice pipe send --create --capacity 1M frames &
        sluice pipe recv --create --capacity 1M frames | cat > copy
        wait $!"#;
    expect_copied(context, script)
}

/// Half of the bytes have arrived when the receiver slows down.
fn a_terminal_shows_transfer_progress(context: &Context) -> Result<()> {
    let script = r#"
        truncate --size 4M zeros
        script --quiet --return --command 'sluice pipe send --create --capacity 2M frames zeros' screen < /dev/null > /dev/null &
        sluice pipe recv --create --capacity 2M frames | { sleep 0.5; cat > copy; }
        wait $!
        cmp zeros copy >&2
        cat screen"#;
    let screen = shell(context, script)?.stdout()?;
    for shown in ["/4.00 MiB", "MiB/s", " left"] {
        ensure!(
            screen.contains(shown),
            "no {shown:?} on the screen: {screen:?}"
        );
    }
    Ok(())
}

fn a_process_in_a_descendant_cgroup_opens_by_scope_directory(context: &Context) -> Result<()> {
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

fn a_pipe_is_created_shown_listed_and_removed(context: &Context) -> Result<()> {
    let expected = json!({
        "kind": "pipe", "name": "frames", "mode": "0640", "uid": 0, "gid": 0, "readers": 0, "writers": 0,
        "bytes": 0, "capacity": 131072, "persistent": true,
    });
    let json = |arguments| sluice(context, arguments)?.json();
    let made = json("pipe create frames --permissions 640 --capacity 128K --json")?;
    expect("made", made, expected.clone())?;
    let shown = json("pipe info frames --json")?;
    expect("shown", shown, expected.clone())?;
    for list in ["ls --json", "pipe ls --json"] {
        expect(list, json(list)?, json!([expected]))?;
    }
    let listed = json("ls --all --json")?;
    let own = context.cgroup()?.path();
    let found = listed.as_array().into_iter().flatten();
    let found = found.filter(|channel| channel["scope"] == json!(own));
    let names: Vec<_> = found.map(|channel| &channel["name"]).collect();
    expect("ls --all", names, vec![&json!("frames")])?;
    let listed = sluice(context, "list --all")?.stdout()?;
    let heading = format!("{}:\nKIND", own.display());
    ensure!(listed.contains(&heading), "no '{heading}' in {listed}");
    expect_pipe(context, "ls", "root")?;
    expect_pipe(context, "pipe info frames", "root")?;
    expect_pipe(context, "ls -n", "0")?;
    expect_pipe(context, "pipe info frames --numeric", "0")?;
    let removed = sluice(context, "pipe rm frames")?.stdout()?;
    expect("output of rm", removed, String::new())?;
    expect("afterwards", json("ls --json")?, json!([]))
}

/// The table of the persistent pipe `frames`, with `root` as its user and group.
fn expect_pipe(context: &Context, arguments: &str, root: &str) -> Result<()> {
    let headings = "KIND MODE USER GROUP READERS WRITERS BYTES CAPACITY PERSISTENT NAME";
    let row = format!("pipe 0640 {root} {root} 0 0 0 131072 yes frames");
    expect_table(&sluice(context, arguments)?, &[headings, &row])
}

fn a_persistent_pipe_outlives_its_endpoints(context: &Context) -> Result<()> {
    let script = r#"
        sluice pipe send --create --persist frames <<< hello &
        sluice pipe recv --create --persist frames
        wait $!"#;
    let came = shell(context, script)?.stdout()?;
    expect("bytes received", came, "hello\n".to_owned())?;
    let left = sluice(context, "pipe info frames --json")?.json()?;
    let ends = (&left["readers"], &left["writers"]);
    expect("its ends", ends, (&json!(0), &json!(0)))?;
    sluice(context, "pipe rm frames")?.stdout().map(drop)
}

fn a_destroyed_pipe_ends_its_transfers(context: &Context) -> Result<()> {
    let error = "the pipe was destroyed after 6 bytes";
    expect_destroyed(context, "pipe", "frames", error)
}

fn a_blocked_open_prints_what_it_waits_for(context: &Context) -> Result<()> {
    let script = r#"
        sluice pipe recv --create frames 2> log &
        until grep -q "sluice pipe send frames" log; do sleep 0.1; done
        sluice pipe send frames <<< hello
        wait $!
        sed -n 's/^0:://p' /proc/self/cgroup
        cat log"#;
    let printed = shell(context, script)?.stdout()?;
    let mut lines = printed.lines();
    let mut next = || lines.next().context("the output has three lines");
    let (came, cgroup, log) = (next()?, next()?, next()?);
    expect("bytes received", came, "hello")?;
    for word in ["waiting for a sender at 'frames'", cgroup] {
        ensure!(log.contains(word), "'{word}' is not in: {log}");
    }
    Ok(())
}

fn a_sender_fails_when_its_receiver_exits(context: &Context) -> Result<()> {
    let script = r#"
        sluice pipe create frames
        sluice pipe recv frames 2> log | head -c 1000 > copy &
        sluice pipe send frames /dev/zero"#;
    let sender = shell(context, script)?;
    sender.expect_failure(1, &["receiver closed the pipe after", "send again"])?;
    let log = fs::read_to_string(context.scratch.join("log")).context("reading")?;
    ensure!(
        log.contains("the reader of standard output closed it"),
        "stderr of the receiver: {log}"
    );
    sluice(context, "pipe rm frames")?.stdout().map(drop)
}

fn a_missing_pipe_is_status_3(context: &Context) -> Result<()> {
    for verb in ["recv", "send", "info", "rm"] {
        let words = ["no pipe named 'frames' in", "sluice pipe create frames"];
        sluice(context, &format!("pipe {verb} frames"))?.expect_failure(NO_CHANNEL, &words)?;
    }
    Ok(())
}

fn a_missing_pipe_leaves_the_output_file_unchanged(context: &Context) -> Result<()> {
    let copy = context.scratch.join("copy");
    fs::write(&copy, "original").context("writing")?;
    sluice(context, "pipe recv frames copy")?.expect_failure(NO_CHANNEL, &[])?;
    expect_bytes(
        "the file",
        &fs::read(&copy).context("reading")?,
        b"original",
    )
}

fn an_existing_name_is_status_4(context: &Context) -> Result<()> {
    sluice(context, "pipe create frames")?.stdout()?;
    let words = ["'frames' already exists in", "sluice pipe rm frames"];
    sluice(context, "pipe create frames")?.expect_failure(NAME_TAKEN, &words)?;
    sluice(context, "pipe rm frames")?.stdout().map(drop)
}

/// As root without the administrator's capability.
fn permission_denied_is_status_5(context: &Context) -> Result<()> {
    let unprivileged = |arguments: &str| {
        let unprivileged = "setpriv --bounding-set=-sys_admin,-sys_resource sluice";
        shell(context, &format!("{unprivileged} {arguments}"))
    };
    context.cgroup()?.create_child("other")?;
    sluice(context, "pipe create frames --permissions 000")?.stdout()?;
    let words = ["permission denied for the pipe 'frames'", "permissions 000"];
    unprivileged("pipe recv frames")?.expect_failure(NO_PERMISSION, &words)?;
    unprivileged("pipe rm frames")?.stdout()?;
    unprivileged("ls --scope $SCOPE/other")?.expect_failure(NO_PERMISSION, &["outside of it"])?;
    unprivileged("pipe create large --capacity 512M")?
        .expect_failure(NO_PERMISSION, &["pipe_max_size"])
}

fn missing_nodes_are_status_6_and_reported_by_doctor(context: &Context) -> Result<()> {
    let hidden = |arguments: &str| {
        let hide = "mount -t tmpfs none /dev/sluice";
        shell(
            context,
            &format!("unshare -m bash -c '{hide} && exec sluice {arguments}'"),
        )
    };
    let words = ["no /dev/sluice/", "modprobe sluice"];
    for arguments in ["pipe recv frames", "pipe recv", "ls"] {
        hidden(arguments)?.expect_failure(NOT_SET_UP, &words)?;
    }
    let doctor = hidden("doctor --json")?;
    doctor.expect_failure(1, &[])?;
    let findings: Vec<Value> = serde_json::from_slice(&doctor.output.stdout).context("no JSON")?;
    let bad: Vec<_> = findings.iter().filter(|one| one["ok"] == false).collect();
    let checks: Vec<_> = bad.iter().map(|one| one["check"].clone()).collect();
    expect(
        "failed checks",
        checks,
        ["pipe node", "ctl node", "features", "usage"]
            .map(Value::from)
            .to_vec(),
    )?;
    ensure!(bad.iter().all(|one| one["fix"].is_string()), "{bad:?}");
    Ok(())
}

fn a_usage_error_is_status_2(context: &Context) -> Result<()> {
    sluice(context, "pipe create a/b")?.expect_failure(2, &["contains '/'"])?;
    sluice(context, "pipe send --create")?.expect_failure(2, &["NAME"])
}

fn doctor_finds_no_problem(context: &Context) -> Result<()> {
    let report = sluice(context, "doctor")?.stdout()?;
    expect("number of checks", report.lines().count(), 11)?;
    ensure!(
        report.lines().all(|line| line.starts_with("ok ")),
        "it reports problems: {report}"
    );
    Ok(())
}

/// Prints the candidates of bash for a line, whose last word is completed, in a line: `complete_line sluice pipe rm ""`.
const COMPLETE: &str = r#"
    source <(sluice completion bash)
    complete_line() {
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        COMP_TYPE=9
        _clap_complete_sluice sluice "${@: -1}" "${@: -2:1}"
        echo "${COMPREPLY[*]}"
    }"#;

/// Expects the candidates of each line; fails if a completion prints an error.
fn expect_candidates(context: &Context, lines: &[(&str, &str)]) -> Result<()> {
    let calls: Vec<_> = lines
        .iter()
        .map(|(line, _)| format!("complete_line {line}"))
        .collect();
    let run = shell(context, &format!("{COMPLETE}\n{}", calls.join("\n")))?;
    let printed = run.stdout()?;
    expect("standard error", run.stderr(), String::new())?;
    let expected: Vec<_> = lines.iter().map(|(_, candidates)| *candidates).collect();
    expect("candidates", printed.lines().collect(), expected)
}

fn a_shell_completes_names_of_the_kind(context: &Context) -> Result<()> {
    let script = r#"
        for kind in pipe ring bus map; do sluice $kind create $kind-b; done
        sluice pipe create pipe-a
        sluice pipe create 'not plain'
        mkdir "$SCOPE/below"
        sluice pipe create below --scope "$SCOPE/below""#;
    shell(context, script)?.stdout()?;
    let all = [
        (r#"sluice pipe rm """#, "pipe-a pipe-b"),
        (r#"sluice pipe send pipe-b"#, "pipe-b"),
        (r#"sluice pipe create p"#, ""),
        (r#"sluice ring send """#, "ring-b"),
        (r#"sluice bus sub """#, "bus-b"),
        (r#"sluice map get """#, "map-b"),
        (r#"sluice pipe rm --scope "$SCOPE/below" """#, "below"),
    ];
    expect_candidates(context, &all)
}

fn a_shell_completes_keys(context: &Context) -> Result<()> {
    let script = r#"
        sluice map create entries
        for key in color code user:4711 'not plain' -n; do sluice map set entries -- "$key" value; done
        mkdir "$SCOPE/below"
        sluice map create entries --scope "$SCOPE/below"
        sluice map set --scope "$SCOPE/below" entries other value"#;
    shell(context, script)?.stdout()?;
    let all = [
        (r#"sluice map get entries """#, "code color user:4711"),
        (r#"sluice map get entries col"#, "color"),
        (r#"sluice map del -e entries co"#, "code color"),
        (
            r#"sluice map cas --scope "$SCOPE/below" entries """#,
            "other",
        ),
        (r#"sluice map get missing x"#, ""),
    ];
    expect_candidates(context, &all)
}

fn a_completion_has_a_limit(context: &Context) -> Result<()> {
    let script = r#"
        sluice map create entries
        for number in $(seq 300); do echo "{\"key\":\"$number\",\"value\":\"\"}"; done | sluice map import entries
        complete_line sluice map get entries "" | wc -w"#;
    let count = shell(context, &format!("{COMPLETE}\n{script}"))?.stdout()?;
    expect("the number of candidates", count.trim(), "256")
}
