// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of the demo. Each runs alone with --step, so that one that failed can be repeated.

use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::story::{detail, tell};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Step {
    Files,
    Named,
    Passed,
    DeviceRing,
    Ring,
    Bus,
    Requests,
    Map,
    Feed,
    Durable,
}

impl Step {
    /// In their order. The last one, durable, unloads the module, so that nothing may use it.
    pub const WITH_CONTAINERS: [Self; 9] = [
        Self::Files,
        Self::Named,
        Self::Passed,
        Self::DeviceRing,
        Self::Ring,
        Self::Bus,
        Self::Requests,
        Self::Map,
        Self::Feed,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::Files => "one node",
            Self::Named => "named pipe",
            Self::Passed => "passed pipe",
            Self::DeviceRing => "device ring",
            Self::Ring => "ring",
            Self::Bus => "bus",
            Self::Requests => "requests",
            Self::Map => "map",
            Self::Feed => "feed",
            Self::Durable => "durable map",
        }
    }

    /// As --step takes it.
    fn argument(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().into())
    }
}

/// Runs a step, which returns what it has proved, and prints that. A failure names the step and how to repeat it.
pub fn run<T>(step: Step, show: impl FnOnce() -> Result<(String, T)>) -> Result<T> {
    let begin = Instant::now();
    let (proof, value) = show().with_context(|| {
        format!(
            "the step '{0}' FAILED; repeat only this step with: make demo STEP={0}",
            step.argument()
        )
    })?;
    tell(&format!("  {:<12} {proof}", step.title()));
    detail!("  took {:.1} s\n", begin.elapsed().as_secs_f64());
    Ok(value)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_failure_names_the_step_and_the_command_that_repeats_it() {
        let failed: Result<()> = run(Step::DeviceRing, || bail!("no space"));
        let error = format!("{:#}", failed.unwrap_err());
        assert!(
            error.contains("make demo STEP=device-ring") && error.contains("no space"),
            "{error}"
        );
    }
}
