// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows that names are isolated: each container has a pipe of a common name and one of its own, and looks for the pipes
//! of the other with every command that takes a name.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use sluice_testkit::table::{Align, Table};

use crate::at_once::at_once;
use crate::container::Container;
use crate::isolation::secret;
use crate::process::{Process, wait_until};
use crate::rootfs::CGROUPS;
use crate::story::detail;

/// Both containers have a pipe of this name.
const COMMON: &str = "frames";
/// Each of these is in one container only.
const OWN: [&str; 2] = ["for-a-only", "for-b-only"];
const SEND_SCRIPT: &str = "printf %s \"$1\" | sluice pipe send \"$2\"";
/// A line for each directory that could be a cgroup, of the mounted hierarchy and above it: the exit status, and what was printed.
const LIST_SCRIPT: &str = "
    for scope in $(find $1 -type d) $1/.. /sys/fs /sys /; do
        list=$(sluice ls --json --scope $scope); echo $? $list
    done";
/// A line for each command on the pipe $1: the exit status, and what was printed.
const FIND_SCRIPT: &str =
    "for verb in info recv rm; do found=$(sluice pipe $verb $1); echo $? $found; done";
/// Stands for exit status 3, see sluice(1).
const NOT_FOUND: &str = "no such channel";

/// A channel as `sluice ls --json` prints it.
#[derive(Deserialize)]
struct Channel {
    name: String,
    writers: u32,
}

/// What a command has found in a container.
struct Finding {
    /// How the table names it.
    command: String,
    found: String,
    expected: String,
}

impl Finding {
    fn new(command: impl Into<String>, found: String, expected: &str) -> Self {
        let (command, expected) = (command.into(), expected.into());
        Self {
            command,
            found,
            expected,
        }
    }

    fn check(&self) -> Result<()> {
        let Self {
            command,
            found,
            expected,
        } = self;
        ensure!(
            found == expected,
            "{command}: '{found}' instead of '{expected}'; report this as a bug"
        );
        Ok(())
    }
}

pub fn show(containers: &[Container; 2]) -> Result<String> {
    detail!(
        "Named pipes: each container creates '{COMMON}' and a pipe that the other does not have, and sends a secret to both:"
    );
    let secrets = [secret()?, secret()?];
    let senders = at_once([0, 1], |index| {
        start_senders(&containers[index], OWN[index], &secrets[index])
    })?;
    detail!("Then each looks for the pipes of the other:\n");
    let mut findings = at_once([0, 1], |index| search(containers, index, &secrets))?;
    for (index, findings) in findings.iter_mut().enumerate() {
        let container = &containers[index];
        let found = sluice(container, &["pipe", "recv", OWN[index]])?;
        findings.push(Finding::new(
            "sluice pipe recv of its own",
            found,
            &secrets[index],
        ));
        findings
            .iter()
            .try_for_each(Finding::check)
            .with_context(|| not_isolated(container))?;
    }
    for sender in senders.into_iter().flatten() {
        sender.wait_success()?;
    }
    for line in table(findings).to_string().lines() {
        detail!("  {line}");
    }
    detail!("");
    Ok(format!(
        "'{COMMON}' is another pipe in each container; '{}' is found only in a, '{}' only in b",
        OWN[0], OWN[1]
    ))
}

/// Fails unless the container has no channel of this kind and name.
pub fn check_not_found(container: &Container, kind: &str, name: &str) -> Result<()> {
    let found = sluice(container, &[kind, "info", name])?;
    let finding = Finding::new(format!("sluice {kind} info {name}"), found, NOT_FOUND);
    finding.check().with_context(|| not_isolated(container))
}

/// Exit statuses of the command: see sluice(1).
const NO_CGROUP: i32 = 1;
const NO_PERMISSION: i32 = 5;

fn not_isolated(container: &Container) -> String {
    format!("container {} is not isolated", container.name)
}

/// Waits until both senders have opened their pipes, so that a receiver in the wrong container would get the secret.
fn start_senders(container: &Container, own: &str, secret: &str) -> Result<[Process; 2]> {
    let send = |name| {
        container.run_success(&["sluice", "pipe", "create", name])?;
        container.exec(&["sh", "-c", SEND_SCRIPT, "sh", secret, name])
    };
    let mut senders = [send(COMMON)?, send(own)?];
    wait_until(
        &format!("opening the pipes in container {}", container.name),
        || {
            for sender in &mut senders {
                sender.succeeded()?;
            }
            let channels = parse(&sluice(container, &["ls", "--json"])?)?;
            Ok(channels.len() == senders.len()
                && channels.iter().all(|channel| channel.writers > 0))
        },
    )?;
    detail!(
        "  container {} sends {secret} to '{COMMON}' and '{own}'",
        container.name
    );
    Ok(senders)
}

fn search(
    containers: &[Container; 2],
    index: usize,
    secrets: &[String; 2],
) -> Result<Vec<Finding>> {
    let container = &containers[index];
    let own = format!("{}, {COMMON}", OWN[index]);
    let (directories, in_scopes) = list_scopes(container)?;
    let in_all = format!("sluice ls --scope, in {directories} directories");
    let received = sluice(container, &["pipe", "recv", COMMON])?;
    let mut findings = vec![
        Finding::new("sluice ls", list(container)?, &own),
        Finding::new(in_all, in_scopes, &own),
        Finding::new(
            format!("sluice pipe recv {COMMON}"),
            received,
            &secrets[index],
        ),
    ];
    let found = container.run_success(&["sh", "-c", FIND_SCRIPT, "sh", OWN[1 - index]])?;
    let none = ["3"; 3].join(", ");
    findings.push(Finding::new(
        "sluice pipe info, recv, rm of the other's: exit statuses",
        found.lines().map(str::trim).collect::<Vec<_>>().join(", "),
        &none,
    ));
    let script = "sluice pipe rm $1 && sluice ls --json";
    let found = names(&container.run_success(&["sh", "-c", script, "sh", COMMON])?)?;
    findings.push(Finding::new(
        format!("sluice pipe rm {COMMON}; sluice ls"),
        found,
        OWN[index],
    ));
    Ok(findings)
}

/// How many directories could be cgroups, and the different lists in those that are.
fn list_scopes(container: &Container) -> Result<(usize, String)> {
    let output = container.run_success(&["sh", "-c", LIST_SCRIPT, "sh", CGROUPS])?;
    let mut lists = Vec::new();
    for line in output.lines() {
        let (status, json) = line.split_once(' ').unwrap_or((line, ""));
        match status.parse() {
            Ok(0) => lists.push(names(json)?),
            Ok(NO_CGROUP | NO_PERMISSION) => {}
            _ => bail!(
                "'sluice ls --scope' failed in container {} with exit status {status}",
                container.name
            ),
        }
    }
    lists.dedup();
    Ok((output.lines().count(), lists.join("; ")))
}

fn list(container: &Container) -> Result<String> {
    names(&sluice(container, &["ls", "--json"])?)
}

fn names(json: &str) -> Result<String> {
    let names: Vec<String> = parse(json)?
        .into_iter()
        .map(|channel| channel.name)
        .collect();
    Ok(names.join(", "))
}

fn parse(json: &str) -> Result<Vec<Channel>> {
    serde_json::from_str(json).with_context(|| {
        format!("'sluice ls --json' in a container printed '{json}'; try it in 'make shell'")
    })
}

/// The output of the command `sluice`, or how it failed.
fn sluice(container: &Container, arguments: &[&str]) -> Result<String> {
    let output = container.run(&[&["sluice"], arguments].concat())?;
    Ok(match output.status.code() {
        Some(0) => output.stdout,
        Some(3) => NOT_FOUND.into(),
        _ => format!("{}: {}", output.status, output.stderr.trim()),
    })
}

fn table(findings: Vec<Vec<Finding>>) -> Table {
    let mut table = Table::new(&[
        ("command", Align::Left),
        ("in container a", Align::Left),
        ("in container b", Align::Left),
    ]);
    let mut of_each = findings.into_iter();
    let (a, b) = (of_each.next(), of_each.next());
    for (a, b) in a.into_iter().flatten().zip(b.into_iter().flatten()) {
        table.row([a.command, a.found, b.found]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_but_what_is_expected_is_an_error() {
        let finding = |found: &str| Finding::new("sluice ls", found.into(), "for-a-only, frames");
        finding("for-a-only, frames").check().unwrap();
        for wrong in [
            "for-a-only, for-b-only, frames",
            "frames",
            "",
            NOT_FOUND,
            "exit status: 5: permission denied",
        ] {
            let error = finding(wrong).check().unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn channels_are_read_from_json_and_nothing_else() {
        let channels =
            parse(r#"[{"kind": "pipe", "name": "frames", "readers": 0, "writers": 1}]"#).unwrap();
        assert_eq!(
            (channels[0].name.as_str(), channels[0].writers),
            ("frames", 1)
        );
        assert!(parse(NOT_FOUND).is_err());
    }
}
