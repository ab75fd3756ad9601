// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the subscribers of a bus have received and lost, and whether that is all that was sent.

use std::io::{BufRead, Read, Seek, SeekFrom};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use sluice::bus::BusInfo;
use sluice_testkit::table::{Align, Table};

/// Bytes per message. Only the last one of a file is shorter.
pub const MESSAGE: usize = 16 << 10;

/// What one subscriber has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    container: &'static str,
    policy: &'static str,
    was_stopped: bool,
    counts: Counts,
}

/// As `sluice bus sub --summary` prints them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
struct Counts {
    messages: u64,
    lost: u64,
}

impl Counts {
    fn sum(self) -> u64 {
        self.messages + self.lost
    }
}

impl Report {
    /// `stderr` is that of `sluice bus sub --summary`.
    pub fn new(
        container: &'static str,
        policy: &'static str,
        was_stopped: bool,
        stderr: &str,
    ) -> Result<Self> {
        // An error message may follow.
        let mut values = serde_json::Deserializer::from_str(stderr).into_iter();
        let counts = values.next().and_then(Result::ok).with_context(|| {
            let text = stderr.trim();
            format!(
                "'sluice bus sub --summary' in container {container} printed no counts, but '{text}'"
            )
        })?;
        Ok(Self {
            container,
            policy,
            was_stopped,
            counts,
        })
    }
}

/// Fails unless each subscriber has received or lost each message, and only the one that was stopped has lost any.
pub fn check(reports: &[Report], sent: u64, bus: &BusInfo) -> Result<()> {
    check_counts(reports, sent)?;
    let lost: u64 = reports.iter().map(|report| report.counts.lost).sum();
    ensure!(
        bus.sent == sent && bus.lost == lost && bus.evicted == 0,
        "the bus has counted {} messages, {} losses and {} evictions instead of {sent}, {lost} and 0; report this as a bug",
        bus.sent,
        bus.lost,
        bus.evicted
    );
    Ok(())
}

fn check_counts(reports: &[Report], sent: u64) -> Result<()> {
    for Report {
        container,
        was_stopped,
        counts,
        ..
    } in reports
    {
        let Counts { messages, lost } = counts;
        ensure!(
            counts.sum() == sent,
            "a subscriber in container {container} has received {messages} and lost {lost} of {sent} messages; report this as a bug"
        );
        ensure!(
            (*lost > 0) == *was_stopped,
            "a subscriber in container {container} was {}stopped and has lost {lost} messages; report this as a bug",
            if *was_stopped { "" } else { "not " }
        );
    }
    Ok(())
}

/// A line of `sluice bus sub --json`.
#[derive(Deserialize)]
struct Received {
    sequence: u64,
    lost: u64,
    message: Option<String>,
    message_base64: Option<String>,
}

impl Received {
    fn bytes(self) -> Result<Vec<u8>> {
        match (self.message, self.message_base64) {
            (Some(text), _) => Ok(text.into_bytes()),
            (_, Some(text)) => Ok(STANDARD.decode(text)?),
            _ => bail!("a line has no message"),
        }
    }
}

/// Fails unless `received`, printed by `sluice bus sub --json`, contains the messages of `file` that its sequence numbers say, in order,
/// and gaps only where losses are reported.
pub fn check_messages(
    received: impl BufRead,
    mut file: impl Read + Seek,
    report: &Report,
) -> Result<()> {
    let mut counts = Counts::default();
    let mut expected = Vec::new();
    for line in received.lines() {
        let line = line?;
        let message: Received =
            serde_json::from_str(&line).with_context(|| format!("'{line}' is not a message"))?;
        let sequence = message.sequence;
        counts.lost += message.lost;
        ensure!(
            sequence == counts.sum(),
            "message {sequence} was received after {} messages and {} losses",
            counts.messages,
            counts.lost
        );
        counts.messages += 1;
        file.seek(SeekFrom::Start(sequence * MESSAGE as u64))?;
        expected.clear();
        (&mut file)
            .take(MESSAGE as u64)
            .read_to_end(&mut expected)?;
        ensure!(
            message.bytes()? == expected,
            "message {sequence} has other bytes"
        );
    }
    ensure!(
        counts == report.counts,
        "counted {counts:?} instead of {:?} in what it received",
        report.counts
    );
    Ok(())
}

/// That nothing is lost silently, in a sentence.
pub fn proof(reports: &[Report], containers: usize) -> String {
    let stopped: Counts = reports
        .iter()
        .find(|report| report.was_stopped)
        .map_or_else(Counts::default, |report| report.counts);
    format!(
        "{} messages to {} subscribers in {containers} containers: one, stopped by SIGSTOP, is told that it lost {}; no other lost any",
        stopped.sum(),
        reports.len(),
        stopped.lost
    )
}

/// A line for successive reports that are equal.
pub fn table(reports: &[Report]) -> Table {
    let mut table = Table::new(&[
        ("container", Align::Left),
        ("subscribers", Align::Right),
        ("policy", Align::Left),
        ("received", Align::Right),
        ("lost", Align::Right),
        ("sum", Align::Right),
    ]);
    for equal in reports.chunk_by(|a, b| a == b) {
        let Report {
            container,
            policy,
            was_stopped,
            counts,
        } = equal[0];
        let stopped = if was_stopped { ", stopped" } else { "" };
        table.row([
            container.to_string(),
            equal.len().to_string(),
            format!("{policy}{stopped}"),
            counts.messages.to_string(),
            counts.lost.to_string(),
            counts.sum().to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn report(was_stopped: bool, messages: u64, lost: u64) -> Report {
        let json = format!(r#"{{"id": 2, "messages": {messages}, "bytes": 0, "lost": {lost}}}"#);
        let stderr = format!("{json}\nsluice: the bus was destroyed after {messages} messages\n");
        Report::new("c", "drop", was_stopped, &stderr).unwrap()
    }

    /// Three messages.
    fn file() -> Vec<u8> {
        (0..2 * MESSAGE + 5)
            .map(|byte| (byte / 100) as u8)
            .collect()
    }

    /// The message with this number, as it is printed.
    fn printed(number: usize, lost: u64) -> Vec<u8> {
        let file = file();
        let bytes = file.chunks(MESSAGE).nth(number).unwrap();
        let base64 = STANDARD.encode(bytes);
        let line =
            format!(r#"{{"sequence": {number}, "lost": {lost}, "message_base64": "{base64}"}}"#);
        (line + "\n").into_bytes()
    }

    fn check_printed(parts: &[Vec<u8>], report: &Report) -> Result<()> {
        check_messages(parts.concat().as_slice(), Cursor::new(file()), report)
    }

    #[test]
    fn received_and_lost_messages_are_all_that_were_sent() {
        let whole = report(false, 10, 0);
        check_counts(&[report(true, 3, 7), whole.clone()], 10).unwrap();
        for wrong in [
            report(true, 3, 6),
            report(true, 3, 8),
            report(true, 10, 0),
            report(false, 9, 0),
            report(false, 9, 1),
            report(false, 11, 0),
        ] {
            let error = check_counts(&[whole.clone(), wrong], 10).unwrap_err();
            assert!(error.to_string().contains("container c"), "{error}");
        }
    }

    #[test]
    fn counts_are_read_from_json_and_nothing_else() {
        let error = Report::new("c", "drop", false, "sluice: no such channel\n").unwrap_err();
        assert!(error.to_string().contains("no such channel"), "{error}");
        assert!(Report::new("c", "drop", false, "").is_err());
    }

    #[test]
    fn messages_with_counted_gaps_pass() {
        let all = [printed(0, 0), printed(1, 0), printed(2, 0)];
        check_printed(&all, &report(false, 3, 0)).unwrap();
        check_printed(&[printed(0, 0), printed(2, 1)], &report(true, 2, 1)).unwrap();
        check_printed(&[printed(2, 2)], &report(true, 1, 2)).unwrap();
    }

    #[test]
    fn missing_repeated_and_wrong_messages_are_found() {
        let two_of_three = report(true, 2, 1);
        let error = |parts: &[Vec<u8>]| {
            let error = check_printed(parts, &two_of_three).unwrap_err();
            error.to_string()
        };
        assert!(error(&[printed(0, 0), printed(2, 0)]).contains("after 1 messages"));
        assert!(error(&[printed(0, 0), printed(0, 0)]).contains("message 0"));
        assert!(error(&[printed(0, 0), printed(1, 1)]).contains("message 1"));
        assert!(error(&[printed(2, 2), printed(1, 0)]).contains("message 1"));
        assert!(error(&[printed(0, 0)]).contains("counted"));
        let wrong = br#"{"sequence": 0, "lost": 0, "message": "other"}"#.to_vec();
        assert!(error(&[wrong]).contains("other bytes"));
        let lost = br#"{"sequence": 0, "lost": 0}"#.to_vec();
        assert!(error(&[lost]).contains("no message"));
        assert!(error(&[b"text\n".to_vec()]).contains("not a message"));
    }

    #[test]
    fn equal_reports_share_a_line() {
        let (stopped, whole) = (report(true, 3, 7), report(false, 10, 0));
        let lines = table(&[stopped, whole.clone(), whole]).to_string();
        let last = lines.lines().last().unwrap();
        assert_eq!(lines.lines().count(), 4);
        let words: Vec<&str> = last.split_whitespace().collect();
        assert_eq!(words, ["c", "2", "drop", "10", "0", "10"]);
    }
}
