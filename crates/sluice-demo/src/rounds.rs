// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both containers send their files at the same time, in turns over pipe(2) and over the device.
//!
//! Two processes of dd copy INPUT to RECEIVED. The measured time is that of the sending dd: it begins when both ends are open
//! and ends with the last write, when all but the content of the pipe has been read.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use sluice_testkit::units::bytes_per_second;

use crate::container::Container;
use crate::containers::NAMES;
use crate::process::Process;
use crate::progress;
use crate::staging::Staged;
use crate::story::detail;
use crate::verify;

/// In both scripts the receiver starts before the sender, which waits for a line. $1 is the size of reads and writes.
const PIPE_SCRIPT: &str = "
    { echo ready >&2; read line; exec dd if=/input bs=$1; } | dd of=/output/received bs=$1 status=none";
const SLUICE_SCRIPT: &str = "
    dd if=/dev/sluice/pipe of=/output/received bs=$1 status=none & receiver=$!
    echo ready >&2; read line
    dd if=/input of=/dev/sluice/pipe bs=$1 || { kill $receiver; exit 1; }
    wait $receiver";
/// For the receivers to start and to wait for bytes: 'ready' precedes their first read.
const START_TIME: Duration = Duration::from_millis(300);

#[derive(Clone, Copy)]
enum Mechanism {
    Pipe,
    Sluice,
}

impl Mechanism {
    fn label(self) -> &'static str {
        match self {
            Self::Pipe => "pipe(2)",
            Self::Sluice => "/dev/sluice/pipe",
        }
    }

    fn script(self) -> &'static str {
        match self {
            Self::Pipe => PIPE_SCRIPT,
            Self::Sluice => SLUICE_SCRIPT,
        }
    }
}

/// What one container has sent in one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    pub bytes: u64,
    pub seconds: f64,
}

impl Transfer {
    pub fn rate(self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}

pub type Round = [Transfer; 2];

/// Both bytes per the longer time: they begin at the same time.
pub fn total_rate([a, b]: &Round) -> f64 {
    (a.bytes + b.bytes) as f64 / a.seconds.max(b.seconds)
}

#[derive(Default)]
pub struct Results {
    pub pipe: Vec<Round>,
    pub sluice: Vec<Round>,
}

/// One mechanism in turn with the other, for comparison, or the device alone.
pub fn run(
    containers: &[Container; 2],
    files: &[Staged; 2],
    rounds: usize,
    compare: bool,
    size: usize,
) -> Result<Results> {
    let mut results = Results::default();
    let mechanisms: &[_] = match compare {
        true => &[Mechanism::Pipe, Mechanism::Sluice],
        false => &[Mechanism::Sluice],
    };
    for number in 1..=rounds {
        for &mechanism in mechanisms {
            let title = format!("round {number} of {rounds}, {}", mechanism.label());
            let round = transfer(containers, files, mechanism, size, &title)?;
            verify::check_received(containers, files, mechanism.label())?;
            detail!("  {title}: {}", rates(&round));
            match mechanism {
                Mechanism::Pipe => results.pipe.push(round),
                Mechanism::Sluice => results.sluice.push(round),
            }
        }
    }
    Ok(results)
}

fn transfer(
    containers: &[Container; 2],
    files: &[Staged; 2],
    mechanism: Mechanism,
    size: usize,
    title: &str,
) -> Result<Round> {
    let size = size.to_string();
    let script = ["sh", "-c", mechanism.script(), "sh", &size];
    let mut processes = [containers[0].exec(&script)?, containers[1].exec(&script)?];
    processes.iter_mut().try_for_each(Process::wait_ready)?;
    sleep(START_TIME);
    processes.iter_mut().try_for_each(Process::resume)?;
    let growing = [0, 1].map(|index| verify::growing(&containers[index], &files[index]));
    progress::watch(title, &growing, &mut processes)?;
    let [a, b] = processes.map(|process| result(&process.wait_success()?.stderr));
    Ok([a?, b?])
}

/// The result in what dd prints: '58818256 bytes (59 MB, 56 MiB) copied, 0.560923 s, 105 MB/s'.
fn result(text: &str) -> Result<Transfer> {
    parse(text).with_context(|| {
        format!(
            "dd printed no result, but '{}'; check 'dd --version'",
            text.trim()
        )
    })
}

fn parse(text: &str) -> Option<Transfer> {
    let (bytes, time) = text.lines().find_map(|line| line.split_once(" copied, "))?;
    Some(Transfer {
        bytes: bytes.split(' ').next()?.parse().ok()?,
        seconds: time.split(' ').next()?.parse().ok()?,
    })
}

fn rates(round: &Round) -> String {
    let [a, b] = round.map(|transfer| bytes_per_second(transfer.rate()));
    format!(
        "{} {a}, {} {b}, both {}",
        NAMES[0],
        NAMES[1],
        bytes_per_second(total_rate(round))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_over_the_longer_time() {
        let transfer = |seconds| Transfer {
            bytes: 1000,
            seconds,
        };
        assert_eq!(total_rate(&[transfer(0.5), transfer(2.0)]), 1000.0);
        assert_eq!(transfer(0.5).rate(), 2000.0);
    }

    #[test]
    fn bytes_and_seconds_are_found_in_what_dd_prints() {
        let text = "ready\n897+1 records in\n897+1 records out\n\
                    58818256 bytes (59 MB, 56 MiB) copied, 0.560923 s, 105 MB/s\n";
        let expected = Transfer {
            bytes: 58_818_256,
            seconds: 0.560_923,
        };
        assert_eq!(result(text).unwrap(), expected);
        let error = result("ready\ndd: no space\n").unwrap_err().to_string();
        assert!(error.contains("no space"), "{error}");
    }
}
