// SPDX-License-Identifier: MIT OR Apache-2.0
//! Durable maps on an ext4 file system: the rate and the time of sets by several processes beside SQLite and Redis on the same
//! disk, volatile sets beside an idle durable map, and the time to restore a map.

mod daemon;
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

use self::resources::DurableResources;
use self::restore::{ENTRY, Prepare, Restore};
use self::wakeups::Wakeups;
use super::map::access::{Kind, Process};
use super::map::redis::{self, Redis};
use super::map::store::{Store, StoreResources, filled};
use super::map::{self, PROCESSES, StoreMechanism, Suite};
use super::plan::{Plan, Scale, without_two_cpus};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Metric, Skipped};

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

#[rustfmt::skip]
static STORES: [StoreMechanism<DurableResources>; 7] = [
    StoreMechanism { name: SQLITE, unavailable: no_disk, create: sqlite::create },
    StoreMechanism { name: ALWAYS, unavailable: no_daemon, create: |keys, resources| sluice_map::create(keys, resources, Some(Durability::always())) },
    StoreMechanism { name: REDIS_ALWAYS, unavailable: no_redis, create: |keys, resources| redis_store(keys, resources, "always") },
    StoreMechanism { name: INTERVAL, unavailable: no_daemon,
        create: |keys, resources| sluice_map::create(keys, resources, Some(Durability::interval(COMMIT_INTERVAL))) },
    StoreMechanism { name: REDIS_EVERYSEC, unavailable: no_redis, create: |keys, resources| redis_store(keys, resources, "everysec") },
    StoreMechanism { name: ALONE, unavailable: no_daemon, create: |keys, resources| sluice_map::create(keys, resources, None) },
    StoreMechanism { name: BESIDE, unavailable: no_daemon, create: |keys, resources| sluice_map::create(keys, resources, None) },
];
static IDLE: &StoreMechanism<DurableResources> = &STORES[1];
static VOLATILE: &StoreMechanism<DurableResources> = &STORES[5];

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

const RESTORES: [(&str, &str, Prepare); 3] = [
    ("sluice-import", "import of a file", restore::import),
    ("sluice-attach", "attach", restore::attach),
    ("sluice-batches", "batches from memory", restore::batches),
];

pub fn mechanisms() -> Vec<&'static str> {
    let stores = STORES.iter().map(|mechanism| mechanism.name);
    let restores = RESTORES.map(|(name, ..)| name);
    stores.chain([WAKEUPS]).chain(restores).collect()
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    if let Some(case) = without_two_cpus(plan, SUITE, "durable maps", Metric::Operations) {
        return Ok(vec![case]);
    }
    let confinement = plan.confinement(Placement::TwoCpus)?;
    let common = StoreResources::new(plan.tree.clone(), confinement.clone());
    let suite = Suite {
        name: SUITE,
        plan,
        confinement,
        duration: (plan.duration * DURATION_FACTOR).min(LONGEST_DURATION),
        stores: &STORES,
        resources: Rc::new(DurableResources::new(plan, common)),
        store,
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

fn wakeups(suite: &Suite<DurableResources>) -> Case {
    let job = Wakeups {
        confinement: suite.confinement.clone(),
        duration: suite.duration,
    };
    let title = "two wake-ups".into();
    let case = Case::new(SUITE, title, Placement::TwoCpus, Metric::Time);
    suite.enter(case, [(WAKEUPS, WAKEUPS, None, job)])
}

fn restore(suite: &Suite<DurableResources>, entries: u64) -> Case {
    let title = format!("restoring {entries} entries, each");
    let case = Case::new(SUITE, title, Placement::TwoCpus, Metric::Time);
    let entrants = RESTORES.map(|(name, label, prepare)| {
        let job = Restore {
            prepare,
            entries,
            resources: Rc::clone(&suite.resources),
            restoring: OnceCell::new(),
        };
        (name, label, no_daemon(&suite.resources), job)
    });
    suite.enter(case.of_size(ENTRY), entrants)
}

fn redis_store(keys: u64, resources: &DurableResources, fsync: &str) -> Result<Rc<dyn Store>> {
    let folder = resources.disk()?.folder(&format!("redis-{fsync}"))?;
    let confinement = &resources.common.confinement;
    let (path, cpus) = (folder.join("socket"), &confinement.cpus);
    filled(Redis::start(path, Some(fsync), confinement, cpus)?, keys)
}

/// Stays from round to round. The same volatile map is measured without any durable map, and beside one that nobody uses.
fn store(
    resources: &DurableResources,
    mechanism: &StoreMechanism<DurableResources>,
    keys: u64,
) -> Result<Rc<dyn Store>> {
    match mechanism.name {
        ALONE => resources.drop_stores(&[ALWAYS, INTERVAL]),
        BESIDE => drop(resources.kept(IDLE, keys)?),
        _ => return resources.kept(mechanism, keys),
    }
    resources.daemon()?.await_idle()?;
    resources.kept(VOLATILE, keys)
}

fn no_disk(resources: &DurableResources) -> Option<Skipped> {
    let reason = "no disk for its files; give an empty one with --disk, as 'make bench' does";
    let is_missing = resources.device.is_none();
    is_missing.then(|| Skipped::unavailable(SUITE, reason))
}

fn no_redis(resources: &DurableResources) -> Option<Skipped> {
    no_disk(resources).or_else(redis::missing)
}

fn no_daemon(resources: &DurableResources) -> Option<Skipped> {
    let (sluiced, path) = (&resources.sluiced, resources.sluiced.display());
    let reason = format!("{path} does not exist; build it, or give its path with --sluiced");
    no_disk(resources)
        .or_else(|| map::sluice_map::unavailable(&resources.common))
        .or_else(|| (!sluiced.exists()).then(|| Skipped::unavailable(SUITE, reason)))
}
