// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows a device ring between the containers: the host opens its endpoints and passes them as file descriptors. The death
//! of a side is seen by the other.

use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Result, ensure};
use sluice::{Ring, Scope};
use sluice_testkit::units::megabytes;

use crate::containers::Containers;
use crate::named;
use crate::process::Output;
use crate::ring::{receive_script, send_script};
use crate::staging::Staged;
use crate::story::detail;
use crate::verify;

const NAME: &str = "records";
/// The descriptor that each container gets.
const ENDPOINT: &str = "--endpoint 3";
/// Kills the receiver of the records, which then waits for its output to be read.
const KILL_SCRIPT: &str = "
    sh -c 'echo $$ >/output/pid; exec sluice ring recv --endpoint 3' |
        { dd bs=65536 count=1 of=/dev/null status=none; kill -KILL $(cat /output/pid); }";

/// Container a sends its file to container b, twice; the second receiver is killed.
pub fn show(containers: &Containers, file: &Staged) -> Result<String> {
    detail!(
        "Connected by a device ring: the host opens the ring '{NAME}' in the cgroup above both, and passes an endpoint to\n\
         each, as file descriptor 3:"
    );
    transfer(containers, file)?;
    detail!("Again, with a receiver that is killed after the first records:");
    let message = kill_receiver(containers)?;
    detail!("  the sender in a fails: '{message}'\n");
    Ok(format!(
        "a sends {} as records, b receives them intact; b is killed: a reports '{}'",
        megabytes(file.bytes),
        what_happened(&message)
    ))
}

fn transfer(containers: &Containers, file: &Staged) -> Result<()> {
    let [a, b] = &containers.both;
    let [producer, consumer] = open_both(containers.parent_cgroup())?;
    for container in [a, b] {
        named::check_not_found(container, "ring", NAME)?;
    }
    let (send, receive) = (send_script(ENDPOINT), receive_script(ENDPOINT));
    detail!(
        "  'sluice ring info {NAME}' finds no such channel in either container\n  b runs '{receive}'\n  a runs '{send}'"
    );
    let receiver = b.exec_with_fd(consumer, &["sh", "-c", &receive])?;
    let sender = a.exec_with_fd(producer, &["sh", "-c", &send])?;
    verify::await_transfer("the passed endpoints", b, file, &mut [sender, receiver])
}

/// Returns the message of the sender.
fn kill_receiver(containers: &Containers) -> Result<String> {
    let [a, b] = &containers.both;
    let [producer, consumer] = open_both(containers.parent_cgroup())?;
    let receiver = b.exec_with_fd(consumer, &["sh", "-c", KILL_SCRIPT])?;
    let sender = a.exec_with_fd(producer, &["sh", "-c", &send_script(ENDPOINT)])?;
    receiver.wait_success()?;
    death_message(&sender.wait()?)
}

/// The message without the name of the command and without the advice.
fn what_happened(message: &str) -> &str {
    let text = message.trim_start_matches("sluice: ");
    text.split_once(',').map_or(text, |(happened, _)| happened)
}

/// Fails unless the sender has seen the death.
fn death_message(sender: &Output) -> Result<String> {
    let message = sender.stderr.trim();
    ensure!(
        sender.status.code() == Some(1) && message.contains("the receiver died after"),
        "the receiver was killed, but the sender ended with {} and printed '{message}'; report this as a bug",
        sender.status
    );
    Ok(message.to_string())
}

/// The endpoints of the producer and the consumer. The ring exists as long as one of them.
fn open_both(cgroup: &Path) -> Result<[OwnedFd; 2]> {
    let ring = Ring::named(NAME).scope(Scope::at(cgroup)?);
    let producer = ring.clone().create(true).producer_endpoint()?;
    Ok([producer, ring.consumer_endpoint()?])
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn only_a_sender_that_reports_the_death_passes() {
        let ended = |code: i32, stderr: &str| {
            death_message(&Output {
                status: ExitStatus::from_raw(code << 8),
                stdout: String::new(),
                stderr: stderr.into(),
            })
        };
        let message = "sluice: the receiver died after 7 records";
        assert_eq!(
            what_happened(&format!("{message}, some perhaps unwritten")),
            "the receiver died after 7 records"
        );
        assert_eq!(ended(1, &format!("{message}\n")).unwrap(), message);
        assert!(ended(0, "").is_err());
        assert!(ended(0, message).is_err());
        assert!(ended(1, "sluice: the receiver closed the ring").is_err());
    }
}
