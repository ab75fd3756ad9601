// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random operations, failures of the store and crashes of the daemon. The fake kernel checks each acknowledgement; here, that
//! what was acknowledged is there after everything.

use std::collections::BTreeMap;

use super::fake_kernel::Opened;
use super::*;
use crate::store::StoreErrorKind;
use crate::store_memory::Failing;

const PATHS: [&str; 3] = ["/a", "/b", "/c"];
const KEYS: [&str; 5] = ["1", "2", "3", "4", "5"];

fn step(world: &mut World, random: &mut fastrand::Rng, streams: &mut Vec<u64>) {
    let path = random.choice(PATHS).unwrap_or(PATHS[0]);
    let key = random.choice(KEYS).unwrap_or(KEYS[0]);
    let stream = random.choice(streams.iter().copied());
    match (random.u8(..40), stream) {
        (0..4, _) => streams.push(world.kernel.open(path, "x", 1000)),
        (4..20, Some(stream)) => drop(world.kernel.set(stream, key, &random.u16(..).to_string())),
        (20..24, Some(stream)) => drop(world.kernel.delete(stream, key)),
        (24, Some(stream)) if random.u8(..4) == 0 => world.kernel.unlink(stream),
        (25, Some(stream)) => world.kernel.sync(stream),
        (26, _) => {
            let kind = StoreErrorKind::Full;
            let failing = match random.bool() {
                true => Failing::Before(kind),
                false => Failing::After(kind),
            };
            world.store.0.borrow_mut().failing = Some(failing);
        }
        (27..29, _) => world.store.0.borrow_mut().failing = None,
        (29, _) if random.bool() => {
            world.restart();
        }
        (30, _) if random.u8(..4) == 0 => {
            world.gone.0.borrow_mut().insert(path.into());
            world.kernel.remove_cgroup(path);
        }
        (31, _) => drop(world.gone.0.borrow_mut().remove(path.as_bytes())),
        (32, _) => {
            let which = one(path, "x");
            let request = match random.bool() {
                true => Request::Attach(which),
                false => Request::Detach(which),
            };
            world.engine.request(0, request);
        }
        (33..37, _) => world.now.monotonic += Duration::from_millis(random.u64(..2000)),
        _ => world.turn(),
    }
}

/// By path: the entries of the copy that has the name.
fn copies(world: &World) -> BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<u8>>> {
    let state = world.kernel.state.borrow();
    let of = |path| {
        let stream = world.kernel.named(path, "x")?;
        let entries = state.copies[&stream].entries.iter();
        let values = entries.map(|(key, (_, value))| (key.clone(), value.bytes.clone()));
        Some((path, values.collect()))
    };
    PATHS.iter().filter_map(|path| of(*path)).collect()
}

#[test]
fn what_was_acknowledged_survives_everything() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World::new();
        let mut streams = Vec::new();
        for _ in 0..400 {
            step(&mut world, &mut random, &mut streams);
        }
        world.store.0.borrow_mut().failing = None;
        world.pass(Duration::from_secs(120));
        assert!(world.engine.is_stored(), "{seed}");
        for stream in streams {
            let state = world.kernel.state.borrow();
            let opened = state.opened.get(&stream);
            assert_ne!(opened, Some(&Opened::Waiting), "{seed}");
        }
        let known = world
            .status()
            .into_iter()
            .map(|map| (map.entries, map.bytes));
        let stored = world.stored().into_iter().map(|map| map.usage);
        let stored = stored.map(|usage| (usage.entries, usage.bytes));
        assert!(known.eq(stored), "{seed}");
        // The copies of the kernel are what the store has: that of a reboot is the same.
        let before = copies(&world);
        world.reboot();
        world.run();
        let after = copies(&world);
        for (path, entries) in before {
            if !world.gone.0.borrow().contains(path.as_bytes()) {
                assert_eq!(after.get(path), Some(&entries), "{seed}: {path}");
            }
        }
    }
}
