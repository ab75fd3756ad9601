// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits for files to grow, for as long as they do.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sluice_testkit::{interrupt, time};

use crate::process::Process;
use crate::story::detail;

/// The maximum time without growth, on a machine of ordinary speed.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Percent between two lines.
const STEP: u64 = 25;

/// A file that grows.
pub struct Growing {
    pub label: String,
    pub path: PathBuf,
    /// Its length at the end.
    pub bytes: u64,
}

impl Growing {
    fn length(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |metadata| metadata.len())
    }
}

/// Waits until all processes have succeeded. The failure of one is an error.
pub fn watch(title: &str, files: &[Growing], processes: &mut [Process]) -> Result<()> {
    let timeout = time::scaled(TIMEOUT);
    let mut lengths = vec![0; files.len()];
    let mut last_growth = Instant::now();
    let mut last_percent = 0;
    loop {
        let mut is_done = true;
        for process in processes.iter_mut() {
            is_done &= process.succeeded()?;
        }
        let now: Vec<u64> = files.iter().map(Growing::length).collect();
        if now != lengths {
            lengths = now;
            last_growth = Instant::now();
        }
        if let Some(line) = next_line(title, files, &lengths, &mut last_percent) {
            detail!("{line}");
        }
        if is_done {
            return Ok(());
        }
        interrupt::check()?;
        ensure!(
            last_growth.elapsed() < timeout,
            "{title}: no byte has arrived for {} s; 'dmesg | tail' may give the reason",
            timeout.as_secs()
        );
        sleep(POLL_INTERVAL);
    }
}

/// A line each time that the slowest file has reached the next step.
fn next_line(
    title: &str,
    files: &[Growing],
    lengths: &[u64],
    last_percent: &mut u64,
) -> Option<String> {
    let percents = || files.iter().zip(lengths).map(percent);
    let slowest = percents().min()?;
    if slowest < *last_percent + STEP {
        return None;
    }
    *last_percent = slowest - slowest % STEP;
    let parts = files.iter().zip(percents());
    let parts = parts.map(|(file, percent)| format!("{} {percent:3} %", file.label));
    Some(format!(
        "  {title}: {}",
        parts.collect::<Vec<_>>().join(", ")
    ))
}

fn percent((file, length): (&Growing, &u64)) -> u64 {
    (length * 100).checked_div(file.bytes).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn growing(label: &str, bytes: u64) -> Growing {
        Growing {
            label: label.into(),
            path: "/proc/self/exe".into(),
            bytes,
        }
    }

    #[test]
    fn lines_follow_the_slower_of_the_two() {
        let files = [growing("a", 100), growing("b", 200)];
        let mut last = 0;
        assert_eq!(next_line("copying", &files, &[100, 0], &mut last), None);
        assert_eq!(
            next_line("copying", &files, &[100, 110], &mut last).unwrap(),
            "  copying: a 100 %, b  55 %"
        );
        assert_eq!(next_line("copying", &files, &[100, 110], &mut last), None);
    }

    #[test]
    fn an_empty_file_is_complete() {
        assert_eq!(percent((&growing("a", 0), &0)), 100);
    }

    #[test]
    fn the_end_of_all_and_the_failure_of_one_end_the_watch() {
        let process = |script| {
            let mut command = Command::new("sh");
            Process::start(script, command.args(["-c", script])).unwrap()
        };
        let files = [growing("a", 1)];
        watch(
            "copying",
            &files,
            &mut [process("true"), process("sleep 0.1")],
        )
        .unwrap();
        let error = watch(
            "copying",
            &files,
            &mut [process("sleep 9"), process("false")],
        );
        assert!(error.unwrap_err().to_string().contains("false failed"));
    }
}
