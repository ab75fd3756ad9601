// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs each test in a process of its own, in a place of its own, for no longer than its limit, and leaves nothing of
//! it behind.

pub mod place;
pub mod process;
pub mod report;

use std::time::{Duration, Instant};

use crate::registry::{Scope, Target, Test, Topic};
use crate::support::kernel;
use place::Ground;
use report::{Outcome, Verdict};

/// A test with its full name, `topic::test`.
pub struct Named {
    pub name: String,
    pub test: &'static Test,
}

/// The tests of these topics that make sense on the target and match a filter; no filter matches all.
pub fn select(topics: &'static [Topic], target: Target, filters: &[String]) -> Vec<Named> {
    topics
        .iter()
        .flat_map(|topic| topic.tests.iter().map(move |test| (topic, test)))
        .filter(|(_, test)| target == Target::Pipe || test.scope == Scope::Fifo)
        .map(|(topic, test)| Named {
            name: format!("{}::{}", topic.name, test.name),
            test,
        })
        .filter(|named| filters.is_empty() || filters.iter().any(|f| named.name.contains(f)))
        .collect()
}

/// Runs one test from making its place to removing it; whatever goes wrong on the way is a failure of the test.
pub fn run_one(named: &Named, ground: &Ground, limit: Duration) -> Outcome {
    let started = Instant::now();
    if ground.target() != Target::Fifo {
        kernel::mark_log(&named.name);
    }
    let mut notes = Vec::new();
    let verdict = match ground.prepare() {
        Ok(place) => {
            let ended = process::run(named.test.run, &place.context, limit);
            notes = ended.notes;
            match (ended.verdict, place.clear()) {
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
                    scope: Scope::Fifo,
                    run: nothing,
                },
                Test {
                    name: "isolates",
                    scope: Scope::PipeOnly,
                    run: nothing,
                },
            ],
        },
        Topic {
            name: "poll",
            tests: &[Test {
                name: "waits_too",
                scope: Scope::Fifo,
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
    fn without_a_filter_the_pipe_gets_every_test() {
        assert_eq!(
            names(Target::Pipe, &[]),
            ["open::waits", "open::isolates", "poll::waits_too"]
        );
    }

    #[test]
    fn a_fifo_gets_only_what_it_can_pass() {
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
}
