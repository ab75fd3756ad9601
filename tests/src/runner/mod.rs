// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs each test in its own process and environment with a time limit, and cleans up after it.

pub mod fixture;
pub mod process;
pub mod report;

use std::time::{Duration, Instant};

use crate::registry::{Applicability, Target, Test, Topic};
use crate::support::kernel;
use fixture::RunFixture;
use report::{Outcome, Verdict};

/// A test with its full name, `topic::test`.
pub struct NamedTest {
    pub name: String,
    pub test: &'static Test,
}

/// The tests of these topics that apply to the target and match a filter; without filters all match.
pub fn select(topics: &'static [Topic], target: Target, filters: &[String]) -> Vec<NamedTest> {
    all(topics)
        .filter(|named| target == Target::Pipe || named.test.applies_to == Applicability::Fifo)
        .filter(|named| filters.is_empty() || filters.iter().any(|f| named.name.contains(f)))
        .collect()
}

/// Whether the filter matches a test, on any target. One that does not is an error of the caller.
pub fn matches_any(topics: &'static [Topic], filter: &str) -> bool {
    all(topics).any(|named| named.name.contains(filter))
}

fn all(topics: &'static [Topic]) -> impl Iterator<Item = NamedTest> {
    topics.iter().flat_map(|topic| {
        topic.tests.iter().map(move |test| NamedTest {
            name: format!("{}::{}", topic.name, test.name),
            test,
        })
    })
}

/// Runs one test with setup and teardown; any error on the way is a failure of the test.
pub fn run_one(named: &NamedTest, run: &RunFixture, limit: Duration) -> Outcome {
    let started = Instant::now();
    if run.target() != Target::Fifo {
        kernel::mark_log(&named.name);
    }
    let mut notes = Vec::new();
    let verdict = match run.set_up_test() {
        Ok(fixture) => {
            let ended = process::run(named.test.run, &fixture.context, limit);
            notes = ended.notes;
            match (ended.verdict, fixture.teardown()) {
                (Verdict::Failed(message), Err(error)) => {
                    Verdict::Failed(format!("{message}\nafterwards: {error:#}"))
                }
                (_, Err(error)) => {
                    Verdict::Failed(format!("cleaning up after the test: {error:#}"))
                }
                (verdict, Ok(())) => verdict,
            }
        }
        Err(error) => Verdict::Failed(format!("preparing the test: {error:#}")),
    };
    Outcome {
        name: named.name.clone(),
        verdict,
        notes,
        seconds: started.elapsed().as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Result;

    fn nothing(_: &crate::registry::Context) -> Result<()> {
        Ok(())
    }

    static TOPICS: &[Topic] = &[
        Topic {
            name: "open",
            tests: &[
                Test {
                    name: "waits",
                    applies_to: Applicability::Fifo,
                    run: nothing,
                },
                Test {
                    name: "isolates",
                    applies_to: Applicability::PipeOnly,
                    run: nothing,
                },
            ],
        },
        Topic {
            name: "poll",
            tests: &[Test {
                name: "waits_too",
                applies_to: Applicability::Fifo,
                run: nothing,
            }],
        },
    ];

    fn names(target: Target, filters: &[&str]) -> Vec<String> {
        let filters: Vec<String> = filters.iter().map(|f| (*f).to_owned()).collect();
        select(TOPICS, target, &filters)
            .into_iter()
            .map(|n| n.name)
            .collect()
    }

    #[test]
    fn without_a_filter_every_test_runs_on_the_pipe() {
        assert_eq!(
            names(Target::Pipe, &[]),
            ["open::waits", "open::isolates", "poll::waits_too"]
        );
    }

    #[test]
    fn only_tests_of_fifo_7_run_on_a_fifo() {
        assert_eq!(names(Target::Fifo, &[]), ["open::waits", "poll::waits_too"]);
    }

    #[test]
    fn a_filter_matches_anywhere_in_the_full_name() {
        assert_eq!(
            names(Target::Pipe, &["open::w", "too"]),
            ["open::waits", "poll::waits_too"]
        );
        assert!(names(Target::Pipe, &["no such"]).is_empty());
    }

    #[test]
    fn a_filter_for_another_target_is_known() {
        assert!(matches_any(TOPICS, "isolates"));
        assert!(!matches_any(TOPICS, "isolated"));
    }
}
