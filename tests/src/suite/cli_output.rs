// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of the command `sluice` that is not written: no command takes it for written, and no record is released.

use std::time::Duration;

use anyhow::Result;
use sluice::feed::{Simulation, Simulator};

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::cli::{expect_output, script, sluice};

topic!(
    "cli_output",
    fifo: [],
    pipe_only: [
        a_result_that_is_not_written_is_a_failure,
        a_receiver_that_cannot_write_fails,
        records_that_were_not_written_are_not_released,
        a_receiver_ends_with_the_reader_of_its_output,
        a_value_is_not_read_from_a_closed_input,
    ],
);

/// Descriptor 9 is a pipe that nobody reads.
const NOBODY: &str = r"
    mkfifo nobody
    exec 8<> nobody 9> nobody 8>&-
    rm nobody";

/// `fails COMMAND` runs it with a standard output that is full, and with one that nobody reads. Prints the two statuses, and how many of
/// the errors are about the output.
const FAILS: &str = r#"
    fails() {
        local full=0 unread=0
        "$@" > /dev/full 2> log || full=$?
        "$@" >&9 2>> log || unread=$?
        echo $full $unread $(grep -c 'output\|free space' log)
    }"#;

fn a_result_that_is_not_written_is_a_failure(context: &Context) -> Result<()> {
    sluice(context, "map create entries")?.stdout()?;
    sluice(context, "map set entries key value")?.stdout()?;
    sluice(context, "bus create news")?.stdout()?;
    let text = r#"
        while read -r arguments; do
            for output in '> /dev/full' '>&-'; do
                eval "sluice $arguments $output" 2> log && echo "succeeded: $arguments $output"
                [[ -s log ]] || echo "said nothing: $arguments $output"
            done
        done <<'COMMANDS'
ls
ls --json
bus info news
bus info news --json
map info entries
map ls entries
map ls entries --json
map get entries key
map get entries key --json
map export entries
completion bash
--help
map get --help
COMMANDS"#;
    expect_output(context, text, "")
}

/// What was received is gone: a pipe, a bus and a feed do not keep it. A map does.
fn a_receiver_that_cannot_write_fails(context: &Context) -> Result<()> {
    let feed = Simulator::open()?;
    feed.start(&Simulation::every(Duration::from_millis(1)))?;
    sluice(context, "map create entries")?.stdout()?;
    sluice(context, "map set entries key value")?.stdout()?;
    let text = format!(
        r#"{NOBODY}{FAILS}
        fails sluice feed recv
        fails sluice map watch entries --after 0
        fails sluice map export entries
        sluice map get entries key
        echo"#
    );
    expect_output(context, &text, "1 1 2\n1 1 2\n1 1 2\nvalue\n")?;
    let text = format!(
        r#"{NOBODY}
        for output in '> /dev/full' '>&9'; do
            eval "sluice pipe recv --create frames $output" 2> log &
            sluice pipe send --create frames <<< hello 2> sender || true
            wait $! || echo $? $(grep -c again log)
        done
        sluice bus sub news --create > /dev/full 2> log &
        await bus news readers 1
        sluice bus pub news <<< hello
        wait $! || echo $? $(grep -c 'standard output' log)
        # It needs no message to see that nobody reads.
        sluice bus sub news --create >&9 2> log || echo $? $(grep -c 'standard output' log)"#
    );
    expect_output(context, &text, &"1 1\n".repeat(4))
}

fn records_that_were_not_written_are_not_released(context: &Context) -> Result<()> {
    let text = format!(
        r#"{NOBODY}
        for output in '> /dev/full' '>&9'; do
            eval "sluice ring recv frames --create $output" 2> log &
            sluice ring send frames --create <<< hello 2> sender || echo $?
            wait $! || echo $? $(grep -c 'standard output' log) $(grep -c 'send again' sender)
        done"#
    );
    expect_output(context, &text, "1\n1 1 1\n1\n1 1 1\n")
}

/// Without another message or change, which would fail to be written.
fn a_receiver_ends_with_the_reader_of_its_output(context: &Context) -> Result<()> {
    let text = r#"
        sluice map create entries
        sluice map set entries key value
        sluice map watch entries --after 0 2> log | head -n 1 || echo ${PIPESTATUS[0]} $(grep -c closed log)
        (sluice bus sub news --create 2> log || echo $? $(grep -c closed log) >&2) | head -n 1 &
        await bus news readers 1
        sluice bus pub news hello
        wait $!"#;
    let run = script(context, text)?;
    let errors = run.stderr();
    expect(
        "the output",
        run.stdout()?,
        "1 created 0 key\n1 1\nhello\n".to_owned(),
    )?;
    expect("the status of the subscriber", errors, "1 1\n".to_owned())
}

fn a_value_is_not_read_from_a_closed_input(context: &Context) -> Result<()> {
    let text = r#"
        sluice map create entries
        sluice map set entries key <&- 2> log || echo $? $(grep -c 'standard input is closed' log)
        sluice map get entries key 2> /dev/null || echo $?"#;
    expect_output(context, text, "1 1\n3\n")
}
