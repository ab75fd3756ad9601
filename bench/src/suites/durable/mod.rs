// SPDX-License-Identifier: MIT OR Apache-2.0
//! Durable maps on an ext4 file system: the rate and the time of sets by several processes beside SQLite and Redis on the same
//! disk, volatile sets beside an idle durable map, and the time to restore a map.

mod commits;
mod daemon;
mod disk;
mod durable_map;
mod redis;
mod resources;
mod restore;
mod sets;
mod sqlite;
mod wakeups;

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use sluice_testkit::module::SLUICE;

use self::resources::{DurableStore, Resources};
use self::restore::{Means, Restore};
use self::sets::{Beside, Sets};
use self::wakeups::Wakeups;
use super::map::sluice_map::CTL;
use super::map::store::VALUE_SIZE;
use super::{Plan, Scale};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Metric, Skipped, Subject};
use crate::harness::waiting::Waiting;
use crate::reports::durable::{
    self as report, ALONE, ALWAYS, ATTACH, BATCHES, BESIDE, IMPORT, INTERVAL, PROCESSES,
    REDIS_ALWAYS, REDIS_EVERYSEC, SQLITE, SUITE, VOLATILE_PROCESSES, WAKEUPS,
};

/// Keys in each store.
const KEYS: u64 = 1000;
/// Sets that wait for the disk take long: a round has this many times the duration of others, up to a second.
const DURATION_FACTOR: u32 = 6;
const LONGEST_DURATION: Duration = Duration::from_secs(1);

/// A mechanism that stores values under keys.
#[derive(Clone, Copy)]
pub struct Way {
    name: &'static str,
    /// The reason why it cannot be measured here.
    unavailable: fn(&Resources) -> Option<Skipped>,
    /// With these many keys, each of which has a value.
    create: fn(u64, &Resources) -> Result<Box<dyn DurableStore>>,
}

/// The first one is the reference.
#[rustfmt::skip]
const WAYS: [Way; 5] = [
    Way { name: SQLITE, unavailable: no_disk, create: sqlite::create },
    Way { name: ALWAYS, unavailable: no_daemon, create: durable_map::create_always },
    Way { name: REDIS_ALWAYS, unavailable: redis::unavailable, create: redis::create_always },
    Way { name: INTERVAL, unavailable: no_daemon, create: durable_map::create_interval },
    Way { name: REDIS_EVERYSEC, unavailable: redis::unavailable, create: redis::create_everysec },
];
const VOLATILE: Way = Way {
    name: ALONE,
    unavailable: no_daemon,
    create: durable_map::create_volatile,
};
/// The durable map that is idle.
const IDLE: Way = WAYS[1];

pub fn mechanisms() -> Vec<&'static str> {
    let ways = WAYS.iter().map(|way| way.name);
    ways.chain([WAKEUPS, ALONE, BESIDE, IMPORT, ATTACH, BATCHES])
        .collect()
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    if plan.one_placement() == Placement::SameCpu {
        let skip = Skipped::unavailable(SUITE, "it needs two processors");
        let title = "durable maps".into();
        return Ok(vec![Case {
            skipped: vec![skip],
            ..Case::new(SUITE, title, Placement::SameCpu, Metric::Operations)
        }]);
    }
    let suite = Suite {
        plan,
        duration: (plan.duration * DURATION_FACTOR).min(LONGEST_DURATION),
        resources: Rc::new(Resources::new(
            plan.tree.clone(),
            plan.confinement(Placement::TwoCpus)?,
            plan.disk.clone(),
            plan.sluiced.clone(),
        )),
    };
    let mut cases = vec![suite.volatile(), suite.wakeups()];
    cases.extend(processes(plan.scale).iter().map(|&count| suite.sets(count)));
    cases.push(suite.restore(entries(plan.scale)));
    Ok(cases)
}

fn processes(scale: Scale) -> &'static [usize] {
    match scale {
        Scale::Quick => &[8],
        Scale::Standard | Scale::ThirdParty => &[1, 8, 10],
        Scale::Full => &PROCESSES,
    }
}

fn entries(scale: Scale) -> u64 {
    match scale {
        Scale::Quick => 2_000,
        Scale::Standard | Scale::ThirdParty => 20_000,
        Scale::Full => 1_000_000,
    }
}

struct Suite<'a> {
    plan: &'a Plan,
    duration: Duration,
    resources: Rc<Resources>,
}

/// A mechanism of a case: its name, its label, why it may be unavailable, and what is measured.
type Entrant = (
    &'static str,
    &'static str,
    fn(&Resources) -> Option<Skipped>,
    Box<dyn Job>,
);

impl Suite<'_> {
    fn sets(&self, processes: usize) -> Case {
        let entrants = WAYS.map(|way| {
            let sets = self.set_job(way, processes, Beside::Any);
            (way.name, way.name, way.unavailable, sets)
        });
        let mut case = self.case(report::sets_title(processes), Metric::Operations, entrants);
        case.size = Some(VALUE_SIZE);
        for subject in &mut case.subjects {
            subject.processes = processes;
            subject.operation = Some(report::OPERATION);
        }
        case
    }

    fn volatile(&self) -> Case {
        let job = |beside| self.set_job(VOLATILE, VOLATILE_PROCESSES, beside);
        let entrants = [
            (ALONE, "alone", VOLATILE.unavailable, job(Beside::None)),
            (
                BESIDE,
                "beside an idle durable map",
                VOLATILE.unavailable,
                job(Beside::Idle(IDLE)),
            ),
        ];
        let title = format!("volatile sets by {VOLATILE_PROCESSES} processes");
        let mut case = self.case(title, Metric::Operations, entrants);
        case.size = Some(VALUE_SIZE);
        for subject in &mut case.subjects {
            subject.processes = VOLATILE_PROCESSES;
            subject.operation = Some("volatile sets");
        }
        case
    }

    fn wakeups(&self) -> Case {
        let job = Box::new(Wakeups {
            resources: Rc::clone(&self.resources),
            duration: self.duration,
        });
        let available: fn(&Resources) -> Option<Skipped> = |_| None;
        let entrants = [(WAKEUPS, WAKEUPS, available, job as Box<dyn Job>)];
        self.case("two wake-ups".into(), Metric::Time, entrants)
    }

    fn restore(&self, entries: u64) -> Case {
        let job = |means| -> Box<dyn Job> {
            let resources = Rc::clone(&self.resources);
            Box::new(Restore::new(means, entries, resources))
        };
        let entrants = [
            (IMPORT, "import of a file", Means::Import),
            (ATTACH, "attach", Means::Attach),
            (BATCHES, "batches from memory", Means::Batches),
        ];
        let unavailable: fn(&Resources) -> Option<Skipped> = no_daemon;
        let entrants = entrants.map(|(name, label, means)| (name, label, unavailable, job(means)));
        let title = format!("restoring {entries} entries, each");
        let mut case = self.case(title, Metric::Time, entrants);
        case.size = Some(restore::ENTRY);
        case
    }

    fn set_job(&self, way: Way, processes: usize, beside: Beside) -> Box<dyn Job> {
        Box::new(Sets {
            way,
            resources: Rc::clone(&self.resources),
            processes,
            duration: self.duration,
            beside,
        })
    }

    /// The first mechanism is always measured.
    fn case<const N: usize>(&self, title: String, metric: Metric, entrants: [Entrant; N]) -> Case {
        let mut case = Case::new(SUITE, title, Placement::TwoCpus, metric);
        case.reference = entrants.first().map(|(name, ..)| *name);
        for (number, (name, label, unavailable, job)) in entrants.into_iter().enumerate() {
            if number > 0 && !self.plan.wants(name) {
                continue;
            }
            if let Some(skip) = unavailable(&self.resources) {
                case.skipped.push(Skipped {
                    label: label.into(),
                    ..skip.of(name)
                });
                continue;
            }
            case.subjects.push(Subject {
                processes: 1,
                ..Subject::new(name, label.into(), Waiting::Sleep, job)
            });
        }
        case
    }
}

fn no_disk(resources: &Resources) -> Option<Skipped> {
    let reason = "no disk for its files; give an empty one with --disk, as 'make bench' does";
    match resources.disk {
        Some(_) => None,
        None => Some(Skipped::unavailable(SUITE, reason)),
    }
}

fn no_daemon(resources: &Resources) -> Option<Skipped> {
    if let Some(skip) = no_disk(resources) {
        return Some(skip);
    }
    if !Path::new(CTL).exists() {
        return Some(Skipped::unavailable(SUITE, SLUICE.how_to_load()));
    }
    if !resources.daemon.exists() {
        let reason = format!(
            "{} does not exist; build it, or give its path with --sluiced",
            resources.daemon.display()
        );
        return Some(Skipped::unavailable(SUITE, reason));
    }
    resources.cgroups.as_ref().err().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::plan::tests::plan;

    fn plan_on_two() -> Plan {
        Plan {
            placements: vec![Placement::TwoCpus],
            ..plan()
        }
    }

    #[test]
    fn without_a_disk_everything_is_skipped_with_the_reason() {
        if Placement::TwoCpus.cpus().unwrap().is_none() {
            return;
        }
        let cases = cases(&plan_on_two()).unwrap();
        let stores = cases.iter().filter(|case| case.title != "two wake-ups");
        for case in stores {
            assert!(case.subjects.is_empty(), "{}", case.title);
            let mut skipped = case.skipped.iter();
            assert!(skipped.all(|skip| skip.reason.contains("--disk")));
        }
    }

    #[test]
    fn two_processes_wake_each_other() {
        let _serial = sluice_testkit::workers::serial();
        let plan = plan();
        let resources = Rc::new(Resources::new(
            plan.tree.clone(),
            plan.confinement(Placement::SameCpu).unwrap(),
            None,
            plan.sluiced.clone(),
        ));
        let job = Wakeups {
            resources,
            duration: Duration::from_millis(5),
        };
        job.check().unwrap();
        let done = job.measure().unwrap();
        assert!(done.messages > 0 && done.elapsed_ns >= 5_000_000);
        assert_eq!(done.samples.len() as u64, done.messages);
    }

    #[test]
    fn one_processor_is_not_enough() {
        let cases = cases(&plan()).unwrap();
        assert!(cases[0].subjects.is_empty());
        assert!(cases[0].skipped[0].reason.contains("two"));
    }
}
