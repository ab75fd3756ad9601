// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows how files grow: a bar for each on a terminal, lines elsewhere.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use sluice_testkit::{interrupt, terminal};

use crate::process::Process;

/// The maximum time without growth.
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

/// Shows the lengths of the files until all processes have succeeded. The failure of one is an error.
pub fn watch(title: &str, files: &[Growing], processes: &mut [Process]) -> Result<()> {
    let target = terminal::draw_target();
    let mut lines = target.is_none().then(|| Lines::new(title));
    let bars = bars(
        title,
        files,
        target.unwrap_or_else(ProgressDrawTarget::hidden),
    );
    let mut last_growth = Instant::now();
    loop {
        let mut is_done = true;
        for process in processes.iter_mut() {
            is_done &= process.succeeded()?;
        }
        for (bar, file) in bars.iter().zip(files) {
            let length = fs::metadata(&file.path).map_or(0, |metadata| metadata.len());
            if length != bar.position() {
                bar.set_position(length);
                last_growth = Instant::now();
            }
        }
        if let Some(line) = lines.as_mut().and_then(|lines| lines.next(&bars)) {
            eprintln!("{line}");
        }
        if is_done {
            bars.iter().for_each(ProgressBar::finish_and_clear);
            return Ok(());
        }
        interrupt::check()?;
        ensure!(
            last_growth.elapsed() < TIMEOUT,
            "{title}: no byte has arrived for {} s; 'dmesg | tail' may give the reason",
            TIMEOUT.as_secs()
        );
        sleep(POLL_INTERVAL);
    }
}

fn bars(title: &str, files: &[Growing], target: ProgressDrawTarget) -> Vec<ProgressBar> {
    let screen = MultiProgress::with_draw_target(target);
    let style = ProgressStyle::with_template(
        "  {msg}, {prefix} {bar:30} {percent:>3} % of {decimal_total_bytes}",
    )
    .expect("the template is a constant");
    let width = files
        .iter()
        .map(|file| file.label.chars().count())
        .max()
        .unwrap_or(0);
    let bar = |file: &Growing| {
        let bar = screen.add(ProgressBar::new(file.bytes).with_style(style.clone()));
        bar.with_message(title.to_string())
            .with_prefix(format!("{:<width$}", file.label))
    };
    files.iter().map(bar).collect()
}

/// Makes a line each time that the slowest file has reached the next step.
struct Lines {
    title: String,
    last_percent: u64,
}

impl Lines {
    fn new(title: &str) -> Self {
        Self {
            title: title.into(),
            last_percent: 0,
        }
    }

    fn next(&mut self, bars: &[ProgressBar]) -> Option<String> {
        let slowest = bars.iter().map(percent).min()?;
        if slowest < self.last_percent + STEP {
            return None;
        }
        self.last_percent = slowest - slowest % STEP;
        let parts = bars
            .iter()
            .map(|bar| format!("{} {:3} %", bar.prefix(), percent(bar)));
        Some(format!(
            "  {}: {}",
            self.title,
            parts.collect::<Vec<_>>().join(", ")
        ))
    }
}

fn percent(bar: &ProgressBar) -> u64 {
    let total = bar.length().unwrap_or(0);
    (bar.position() * 100).checked_div(total).unwrap_or(100)
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
    fn lines_follow_the_slower_of_the_two_in_columns() {
        let files = [growing("a", 100), growing("bcd", 200)];
        let bars = bars("copying", &files, ProgressDrawTarget::hidden());
        let mut lines = Lines::new("copying");
        bars[0].set_position(100);
        assert_eq!(lines.next(&bars), None);
        bars[1].set_position(110);
        assert_eq!(
            lines.next(&bars).unwrap(),
            "  copying: a   100 %, bcd  55 %"
        );
        assert_eq!(lines.next(&bars), None);
    }

    #[test]
    fn an_empty_file_is_complete() {
        assert_eq!(percent(&ProgressBar::new(0)), 100);
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
