// SPDX-License-Identifier: MIT OR Apache-2.0
//! Durable maps on an ext4 file system: the rate and the time of sets by several processes beside SQLite and Redis on the same
//! disk, volatile sets beside an idle durable map, and the time to restore a map.

mod daemon;
mod disk;
mod resources;
mod restore;
mod sluice_map;
mod sqlite;
mod wakeups;

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use sluice::map::Durability;

use self::resources::Resources;
use self::restore::{ENTRY, Restore, Source};
use self::wakeups::Wakeups;
use super::map::access::{Kind, Process};
use super::map::redis::{self, Redis};
use super::map::store::{self, Store, filled};
use super::map::suite::{self, Suite, Way, without_two_cpus};
use super::map::{self, PROCESSES};
use super::plan::{Plan, Scale};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Metric, Skipped};

const SUITE: &str = "durable";
const SQLITE: &str = "sqlite";
const ALWAYS: &str = "sluice-durable-always";
const INTERVAL: &str = "sluice-durable-interval";
const REDIS_ALWAYS: &str = "redis-always";
const REDIS_EVERYSEC: &str = "redis-everysec";
const ALONE: &str = "sluice-volatile";
const BESIDE: &str = "sluice-volatile-beside-durable";
const WAKEUPS: &str = "eventfd";
/// Several commits in each round. That of Redis is a second.
const COMMIT_INTERVAL: Duration = Duration::from_millis(100);
/// Sets that wait for the disk take long: a round has this many times the duration of others, up to a second.
const DURATION_FACTOR: u32 = 6;
const LONGEST_DURATION: Duration = Duration::from_secs(1);

/// The first one that a case has is its reference.
#[rustfmt::skip]
static WAYS: [Way<Resources>; 7] = [
    Way { name: SQLITE, unavailable: no_disk, create: sqlite::create },
    Way { name: ALWAYS, unavailable: no_daemon, create: |keys, resources| sluice_map::create(keys, resources, Some(Durability::always())) },
    Way { name: REDIS_ALWAYS, unavailable: no_redis, create: |keys, resources| redis_store(keys, resources, "always") },
    Way { name: INTERVAL, unavailable: no_daemon,
        create: |keys, resources| sluice_map::create(keys, resources, Some(Durability::interval(COMMIT_INTERVAL))) },
    Way { name: REDIS_EVERYSEC, unavailable: no_redis, create: |keys, resources| redis_store(keys, resources, "everysec") },
    Way { name: ALONE, unavailable: no_daemon, create: |keys, resources| sluice_map::create(keys, resources, None) },
    Way { name: BESIDE, unavailable: no_daemon, create: |keys, resources| sluice_map::create(keys, resources, None) },
];
/// The durable map that is idle beside volatile sets.
static IDLE: &Way<Resources> = &WAYS[1];
/// The volatile map.
static VOLATILE: &Way<Resources> = &WAYS[5];

const SETS: Kind = Kind {
    name: "durable sets",
    metric: Metric::Operations,
    checked: 10,
    warm_up: 0,
    step: Process::set_next,
    // Where a set waits for the disk, the time of the whole wait.
    has_samples: true,
    mechanisms: &[SQLITE, ALWAYS, REDIS_ALWAYS, INTERVAL, REDIS_EVERYSEC],
    ..map::GET
};
static VOLATILE_SETS: Kind = Kind {
    name: "volatile sets",
    mechanisms: &[ALONE, BESIDE],
    labels: &[(ALONE, "alone"), (BESIDE, "beside an idle durable map")],
    ..SETS
};

type MakeSource = fn(&Restore) -> Result<Source>;

/// The ways to restore a map, with their labels; the first one is the reference.
const RESTORES: [(&str, &str, MakeSource); 3] = [
    ("sluice-import", "import of a file", Restore::write_file),
    ("sluice-attach", "attach", Restore::store),
    ("sluice-batches", "batches from memory", |_| {
        Ok(Source::Memory)
    }),
];

pub fn mechanisms() -> Vec<&'static str> {
    let ways = WAYS.iter().map(|way| way.name);
    let restores = RESTORES.map(|(name, ..)| name);
    ways.chain([WAKEUPS]).chain(restores).collect()
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    if let Some(case) = without_two_cpus(plan, SUITE, ("durable maps", Metric::Operations)) {
        return Ok(vec![case]);
    }
    let confinement = plan.confinement(Placement::TwoCpus)?;
    let common = store::Resources::new(plan.tree.clone(), confinement.clone());
    let suite = Suite {
        name: SUITE,
        plan,
        confinement,
        duration: (plan.duration * DURATION_FACTOR).min(LONGEST_DURATION),
        ways: &WAYS,
        resources: Rc::new(Resources::new(plan, common)),
    };
    let (processes, entries) = match plan.scale {
        Scale::Quick => (&[8][..], 2_000),
        Scale::Standard | Scale::ThirdParty => (&[1, 8, 10][..], 20_000),
        Scale::Full => (&PROCESSES[..], 1_000_000),
    };
    let mut cases = vec![suite.case(&VOLATILE_SETS, Some(2)), wakeups(&suite)];
    for count in processes {
        cases.push(suite.case(&SETS, Some(*count)));
    }
    cases.push(restore(&suite, entries));
    Ok(cases)
}

fn wakeups(suite: &Suite<Resources>) -> Case {
    let job: Box<dyn Job> = Box::new(Wakeups {
        confinement: suite.confinement.clone(),
        duration: suite.duration,
    });
    let title = "two wake-ups".into();
    let case = Case::new(SUITE, title, Placement::TwoCpus, Metric::Time);
    suite.enter(case, [(WAKEUPS, WAKEUPS, None, job)])
}

fn restore(suite: &Suite<Resources>, entries: u64) -> Case {
    let title = format!("restoring {entries} entries, each");
    let mut case = Case::new(SUITE, title, Placement::TwoCpus, Metric::Time);
    case.size = Some(ENTRY);
    let entrants = RESTORES.map(|(name, label, make_source)| {
        let job: Box<dyn Job> = Box::new(Restore {
            make_source,
            entries,
            resources: Rc::clone(&suite.resources),
            source: OnceCell::new(),
        });
        (name, label, no_daemon(&suite.resources), job)
    });
    suite.enter(case, entrants)
}

fn redis_store(keys: u64, resources: &Resources, fsync: &str) -> Result<Rc<dyn Store>> {
    let folder = resources.disk()?.folder(&format!("redis-{fsync}"))?;
    let confinement = &resources.common.confinement;
    let (path, cpus) = (folder.join("socket"), &confinement.cpus);
    filled(Redis::start(path, Some(fsync), confinement, cpus)?, keys)
}

impl suite::Resources for Resources {
    /// Stays from round to round. The same volatile map is measured without any durable map, and beside one that nobody uses.
    fn store(&self, way: &'static Way<Self>, keys: u64) -> Result<Rc<dyn Store>> {
        match way.name {
            ALONE => self.drop_stores(&[ALWAYS, INTERVAL]),
            BESIDE => drop(self.store(IDLE, keys)?),
            _ => return self.kept(way, keys),
        }
        self.daemon()?.await_idle()?;
        self.kept(VOLATILE, keys)
    }
}

fn no_disk(resources: &Resources) -> Option<Skipped> {
    let reason = "no disk for its files; give an empty one with --disk, as 'make bench' does";
    let is_missing = resources.device.is_none();
    is_missing.then(|| Skipped::unavailable(SUITE, reason))
}

fn no_redis(resources: &Resources) -> Option<Skipped> {
    no_disk(resources).or_else(redis::missing)
}

fn no_daemon(resources: &Resources) -> Option<Skipped> {
    let (sluiced, path) = (&resources.sluiced, resources.sluiced.display());
    let reason = format!("{path} does not exist; build it, or give its path with --sluiced");
    no_disk(resources)
        .or_else(|| map::sluice_map::unavailable(&resources.common))
        .or_else(|| (!sluiced.exists()).then(|| Skipped::unavailable(SUITE, reason)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::plan::tests::plan;

    #[test]
    fn without_a_disk_everything_is_skipped_with_the_reason() {
        let mut plan = plan();
        let case = &cases(&plan).unwrap()[0];
        assert!(case.subjects.is_empty() && case.skipped[0].reason.contains("two"));
        plan.placements = vec![Placement::TwoCpus];
        if Placement::TwoCpus.cpus().unwrap().is_none() {
            return;
        }
        let cases = cases(&plan).unwrap();
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
        let job = Wakeups {
            confinement: plan().confinement(Placement::SameCpu).unwrap(),
            duration: Duration::from_millis(5),
        };
        job.check().unwrap();
        let done = job.measure().unwrap();
        assert!(done.messages > 0 && done.elapsed_ns >= 5_000_000);
        assert_eq!(done.samples.len() as u64, done.messages);
    }
}
