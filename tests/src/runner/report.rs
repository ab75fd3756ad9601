// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output of a run: a line per test, the failures again at the end, and totals; or all of it as JSON.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "verdict", content = "message")]
pub enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

#[derive(Debug, Serialize)]
pub struct Outcome {
    pub name: String,
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Results that the test reports in addition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    pub seconds: f64,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
}

impl Totals {
    pub fn of(outcomes: &[Outcome]) -> Self {
        let mut totals = Totals::default();
        for outcome in outcomes {
            match outcome.verdict {
                Verdict::Passed => totals.passed += 1,
                Verdict::Failed(_) => totals.failed += 1,
                Verdict::Skipped(_) => totals.skipped += 1,
            }
        }
        totals
    }
}

/// Receives the outcomes while the tests run.
pub trait Reporter {
    fn begin(&mut self, name: &str) -> io::Result<()>;
    fn end(&mut self, outcome: &Outcome) -> io::Result<()>;
    fn close(&mut self, outcomes: &[Outcome]) -> io::Result<()>;
}

/// Human-readable lines.
pub struct Lines<W> {
    out: W,
    width: usize,
}

impl<W: Write> Lines<W> {
    /// `width` is the length of the longest name.
    pub fn new(out: W, width: usize) -> Self {
        Lines { out, width }
    }
}

impl<W: Write> Reporter for Lines<W> {
    /// The name is printed before the test runs: if the machine crashes, the last line names the test.
    fn begin(&mut self, name: &str) -> io::Result<()> {
        write!(self.out, "{name:<width$}  ", width = self.width)?;
        self.out.flush()
    }

    fn end(&mut self, outcome: &Outcome) -> io::Result<()> {
        let (word, reason) = match &outcome.verdict {
            Verdict::Passed => ("ok", ""),
            Verdict::Failed(_) => ("FAILED", ""),
            Verdict::Skipped(reason) => ("skipped", reason.as_str()),
        };
        let line = format!("{word:<7} {:>7.2} s  {reason}", outcome.seconds);
        writeln!(self.out, "{}", line.trim_end())?;
        for note in &outcome.notes {
            writeln!(self.out, "    {note}")?;
        }
        Ok(())
    }

    fn close(&mut self, outcomes: &[Outcome]) -> io::Result<()> {
        for outcome in outcomes {
            if let Verdict::Failed(message) = &outcome.verdict {
                writeln!(self.out, "\n{} failed:", outcome.name)?;
                for line in message.lines() {
                    writeln!(self.out, "    {line}")?;
                }
            }
        }
        let totals = Totals::of(outcomes);
        writeln!(
            self.out,
            "\n{} passed, {} failed, {} skipped",
            totals.passed, totals.failed, totals.skipped
        )
    }
}

/// One JSON document at the end.
pub struct Json<W> {
    out: W,
}

impl<W: Write> Json<W> {
    pub fn new(out: W) -> Self {
        Json { out }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    tests: &'a [Outcome],
    #[serde(flatten)]
    totals: Totals,
}

impl<W: Write> Reporter for Json<W> {
    fn begin(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, _: &Outcome) -> io::Result<()> {
        Ok(())
    }

    fn close(&mut self, outcomes: &[Outcome]) -> io::Result<()> {
        let document = Document {
            tests: outcomes,
            totals: Totals::of(outcomes),
        };
        serde_json::to_writer_pretty(&mut self.out, &document)?;
        writeln!(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, verdict: Verdict) -> Outcome {
        Outcome {
            name: name.to_owned(),
            verdict,
            notes: Vec::new(),
            seconds: 0.25,
        }
    }

    fn outcomes() -> Vec<Outcome> {
        vec![
            outcome("a::long_name", Verdict::Passed),
            outcome("b::x", Verdict::Failed("saw 1\nand 2".to_owned())),
            outcome("c::y", Verdict::Skipped("no reason".to_owned())),
        ]
    }

    fn report_all(mut reporter: impl Reporter, outcomes: &[Outcome]) {
        for outcome in outcomes {
            reporter.begin(&outcome.name).expect("write to memory");
            reporter.end(outcome).expect("write to memory");
        }
        reporter.close(outcomes).expect("write to memory");
    }

    #[test]
    fn lines_are_aligned_and_failures_are_repeated_at_the_end() {
        let mut out = Vec::new();
        report_all(Lines::new(&mut out, 12), &outcomes());
        let expected = "\
a::long_name  ok         0.25 s
b::x          FAILED     0.25 s
c::y          skipped    0.25 s  no reason

b::x failed:
    saw 1
    and 2

1 passed, 1 failed, 1 skipped
";
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }

    #[test]
    fn json_is_one_document() {
        let mut out = Vec::new();
        report_all(Json::new(&mut out), &outcomes());
        let document: serde_json::Value = serde_json::from_slice(&out).expect("valid JSON");
        assert_eq!(document["passed"], 1);
        assert_eq!(document["tests"][1]["verdict"], "failed");
        assert_eq!(document["tests"][1]["message"], "saw 1\nand 2");
        assert_eq!(document["tests"][0]["seconds"], 0.25);
    }
}
