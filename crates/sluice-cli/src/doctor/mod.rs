// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice doctor`: one line for each thing that has to be right, and how to mend what is not.

mod checks;
mod rings;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

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
    /// What to do, if it is not ok.
    mend: Option<String>,
}

impl Finding {
    fn good(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            ok: true,
            found: found.into(),
            mend: None,
        }
    }

    fn bad(check: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self {
            check,
            ok: false,
            found: found.into(),
            mend: Some(mend.into()),
        }
    }
}

/// Exit status 1 says that something is wrong.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let findings = checks::all();
    match arguments.json {
        true => output::print_json(&findings)?,
        false => output::print(&lines(&findings))?,
    }
    let well = findings.iter().all(|finding| finding.ok);
    Ok(if well {
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
        let verdict = if finding.ok { "ok" } else { "problem" };
        text += &format!("{verdict:7}  {:width$}  {}", finding.check, finding.found);
        if let Some(mend) = &finding.mend {
            text += &format!("; {mend}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_a_line_and_a_problem_says_how_to_mend_it() {
        let findings = [
            Finding::good("kernel", "Linux 6.12"),
            Finding::bad("module", "it is not loaded", "load it"),
        ];
        let expected = "\
ok       kernel  Linux 6.12
problem  module  it is not loaded; load it
";
        assert_eq!(lines(&findings), expected);
    }
}
