// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace buffer of a test.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

pub const TRACING: &str = "/sys/kernel/tracing";

/// Separate from the others, and removed on drop, which ends the tracing.
pub struct TraceBuffer(PathBuf);

impl TraceBuffer {
    pub fn new() -> Result<Self> {
        let name = format!("instances/sluice-tests-{}", std::process::id());
        let path = Path::new(TRACING).join(name);
        fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(TraceBuffer(path))
    }

    /// Writes to one of its files.
    pub fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.0.join(file);
        fs::write(&path, value).with_context(|| format!("writing {value:?} to {}", path.display()))
    }

    /// Traces these events, such as `timer/hrtimer_start`, while `body` runs, and returns the text.
    pub fn during(&self, events: &[&str], body: impl FnOnce() -> Result<()>) -> Result<String> {
        self.set("trace", "")?;
        for event in events {
            self.set(&format!("events/{event}/enable"), "1")?;
        }
        let ran = body();
        for event in events {
            self.set(&format!("events/{event}/enable"), "0")?;
        }
        ran?;
        let path = self.0.join("trace");
        let trace =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        expect_complete(&trace)?;
        Ok(trace)
    }
}

impl Drop for TraceBuffer {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            let path = self.0.display();
            eprintln!("the kernel goes on tracing: removing {path}: {error}");
        }
    }
}

/// The header has the numbers of events kept and written: `entries-in-buffer/entries-written: 557/557`.
fn expect_complete(trace: &str) -> Result<()> {
    let numbers = trace
        .lines()
        .find_map(|line| line.strip_prefix("# entries-in-buffer/entries-written: "))
        .and_then(|rest| rest.split_whitespace().next()?.split_once('/'));
    let (kept, written) = numbers.context("the trace has no number of events")?;
    ensure!(
        kept == written,
        "the trace kept {kept} of {written} events; it needs a larger buffer_size_kb"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_with_a_gap_is_rejected() {
        let trace = "# entries-in-buffer/entries-written: 3/3   #P:2\n";
        expect_complete(trace).expect("whole");
        let message = expect_complete(&trace.replace("3/3", "3/4")).expect_err("a gap");
        assert!(message.to_string().contains("3 of 4"), "{message}");
    }
}
