// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs of the command `sluice`, and its exit statuses.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::registry::Context;
use crate::support::check::expect;
use crate::support::shell::bash;

pub const NO_CHANNEL: i32 = 3;
pub const NAME_TAKEN: i32 = 4;
pub const NO_PERMISSION: i32 = 5;
pub const NOT_SET_UP: i32 = 6;
pub const TIMED_OUT: i32 = 8;

/// The result of one command or script.
pub struct Run {
    line: String,
    pub output: Output,
}

/// Runs `sluice` without a shell, which takes longer to start than the command takes.
pub fn sluice(context: &Context, arguments: &str) -> Result<Run> {
    let mut command = Command::new(tools()?.join("sluice"));
    command.args(arguments.split_whitespace());
    run(context, &format!("sluice {arguments}"), &mut command)
}

/// Runs a script with `sluice` in its PATH, the directory of its cgroup in $SCOPE, and the path of the shell's program,
/// used as a file to transfer, in $BASH.
pub fn shell(context: &Context, script: &str) -> Result<Run> {
    let path = env::var("PATH").context("PATH")?;
    let mut command = bash(script);
    command
        .env("PATH", format!("{}:{path}", tools()?.display()))
        .env("SCOPE", context.cgroup()?.path());
    run(context, script, &mut command)
}

/// `await bus frames readers 2` waits until the JSON object of the bus `frames` has that number of readers.
const AWAIT: &str = r#"
    await() {
        until sluice "$1" info "$2" --json 2> /dev/null | grep -Eq "\"$3\": \"?$4\"?,"; do sleep 0.05; done
    }"#;

/// As `shell`, of a script that can use `await`.
pub fn script(context: &Context, text: &str) -> Result<Run> {
    shell(context, &format!("{AWAIT}\n{text}"))
}

pub fn expect_output(context: &Context, text: &str, expected: &str) -> Result<()> {
    let printed = script(context, text)?.stdout()?;
    expect("the output", printed, expected.to_owned())
}

/// Destroys the channel `frames` of this kind during a transfer. Both sides, which have the channel as `argument`, end with this error.
pub fn expect_destroyed(context: &Context, kind: &str, argument: &str, error: &str) -> Result<()> {
    let text = format!(
        r#"
        mkfifo stdin
        sluice {kind} create frames
        sluice {kind} recv {argument} > received 2> log.recv &
        receiver=$!
        sluice {kind} send {argument} < stdin 2> log.send &
        sender=$!
        exec 3> stdin
        echo hello >&3
        until grep -q hello received; do sleep 0.05; done
        sluice {kind} rm --destroy frames
        echo again >&3
        wait $receiver || echo $?
        wait $sender || echo $?
        cat log.*"#
    );
    let printed = shell(context, &text)?.stdout()?;
    let mut lines = printed.lines();
    for whose in ["the receiver's", "the sender's"] {
        expect(&format!("{whose} status"), lines.next(), Some("1"))?;
    }
    let logs: Vec<&str> = lines.collect();
    expect("the number of messages", logs.len(), 2)?;
    for line in logs {
        ensure!(line.contains(error), "'{error}' is not in: {line}");
    }
    sluice(context, &format!("{kind} rm --destroy frames"))?.expect_failure(NO_CHANNEL, &[])
}

/// The directory of the programs.
pub fn tools() -> Result<PathBuf> {
    let own = env::current_exe().context("the path of the tests")?;
    let tools = own.parent().context("the directory of the tests")?;
    ensure!(
        tools.join("sluice").exists(),
        "{} has no sluice; run these tests in the VM: make test-vm TESTS=cli::",
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
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// Its standard output; fails unless the command succeeded.
    pub fn stdout(&self) -> Result<String> {
        ensure!(
            self.output.status.success(),
            "'{}' ended with {}; stderr: {}",
            self.line,
            self.output.status,
            self.stderr()
        );
        Ok(String::from_utf8_lossy(&self.output.stdout).into_owned())
    }

    pub fn json(&self) -> Result<Value> {
        let text = self.stdout()?;
        serde_json::from_str(&text)
            .with_context(|| format!("'{}' printed no JSON: {text}", self.line))
    }

    /// Fails unless it exited with this status and its standard error contains all of these words.
    pub fn expect_failure(&self, status: i32, words: &[&str]) -> Result<()> {
        let stderr = self.stderr();
        expect(
            &format!("the status of '{}'; stderr: {stderr}", self.line),
            self.output.status.code(),
            Some(status),
        )?;
        for word in words {
            ensure!(
                stderr.contains(word),
                "'{}' does not print '{word}': {stderr}",
                self.line
            );
        }
        Ok(())
    }
}

/// Fails unless a table has these lines, with any number of spaces between the words.
pub fn expect_table(printed: &Run, lines: &[&str]) -> Result<()> {
    let table = printed.stdout()?;
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    let found: Vec<Vec<String>> = table.lines().map(words).collect();
    let expected: Vec<Vec<String>> = lines.iter().map(|line| words(line)).collect();
    expect(&format!("the table of '{}'", printed.line), found, expected)
}
