// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice doctor`: one line per check, with the fix of each problem.

mod cgroups;
mod checks;
mod durable;
mod features;
mod kernel;
mod module;
mod nodes;
mod quota;
mod rings;
mod signature;
mod system;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use self::system::System;
use crate::output;

#[derive(Args)]
pub struct Arguments {
    /// Print a JSON array instead of lines
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
pub struct Finding {
    check: &'static str,
    ok: bool,
    found: String,
    /// What to do, unless ok.
    fix: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            ok: true,
            found: found.into(),
            fix: None,
        }
    }

    fn problem(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            check,
            ok: false,
            found: found.into(),
            fix: Some(fix.into()),
        }
    }
}

/// Exits with status 1 if there is a problem.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let findings = checks::all(&System::this());
    match arguments.json {
        true => output::print_json(&findings)?,
        false => output::print(&lines(&findings))?,
    }
    let ok = findings.iter().all(|finding| finding.ok);
    Ok(if ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn lines(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max();
    let width = width.unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let status = if finding.ok { "ok" } else { "problem" };
        text += &format!("{status:7}  {:width$}  {}", finding.check, finding.found);
        if let Some(fix) = &finding.fix {
            text += &format!("; {fix}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_a_line_and_a_problem_has_a_fix() {
        let findings = [
            Finding::ok("kernel", "Linux 6.12"),
            Finding::problem("module", "not loaded", "load it"),
        ];
        let expected = "\
ok       kernel  Linux 6.12
problem  module  not loaded; load it
";
        assert_eq!(lines(&findings), expected);
    }
}
