// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times to live across restarts and steps of the system clock.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A map with the entries "hour" and "week", which live as long, and "never".
fn world(synchronised: bool) -> World {
    let mut world = World::new();
    world.now.synchronised = synchronised;
    let stream = world.open("/a", "x");
    for (key, time) in [("hour", HOUR), ("week", 7 * DAY)] {
        let expires = nanoseconds(world.now.boottime + time);
        world.kernel.set_until(stream, key, expires).unwrap();
    }
    world.kernel.set(stream, "never", "1").unwrap();
    world.run();
    world
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

/// The keys of the map in the kernel, and how long they live.
fn restored(world: &World) -> Vec<(String, Option<Duration>)> {
    let stream = world.kernel.named("/a", "x").unwrap();
    let state = world.kernel.state.borrow();
    let left = |expires: u64| match expires {
        0 => None,
        expires => Some(Duration::from_nanos(expires) - world.now.boottime),
    };
    let entries = state.copies[&stream].entries.iter();
    let entry = |(key, (_, value)): (&Vec<u8>, &(u64, crate::kernel::Value))| {
        let key = String::from_utf8(key.clone()).unwrap();
        (key, left(value.expires_ns))
    };
    entries.map(entry).collect()
}

fn expected(hour: Option<Duration>, week: Duration) -> Vec<(String, Option<Duration>)> {
    let hour = hour.map(|time| ("hour".to_owned(), Some(time)));
    let others = [("never".to_owned(), None), ("week".to_owned(), Some(week))];
    hour.into_iter().chain(others).collect()
}

fn detach_and_attach(world: &mut World) {
    assert_eq!(world.outcome(Request::Detach(one("/a", "x"))), None);
    assert_eq!(world.outcome(Request::Attach(one("/a", "x"))), None);
}

#[test]
fn within_a_boot_the_clock_of_the_day_changes_nothing() {
    for synchronised in [false, true] {
        for realtime in [1000, 1_700_000_000 + 10 * YEAR.as_secs()] {
            let mut world = world(synchronised);
            world.pass(HOUR / 2);
            world.now.realtime = Duration::from_secs(realtime);
            detach_and_attach(&mut world);
            let left = (HOUR / 2, 7 * DAY - HOUR / 2);
            assert_eq!(restored(&world), expected(Some(left.0), left.1));
            // Also for the next daemon.
            world.restart();
            world.run();
            detach_and_attach(&mut world);
            assert_eq!(restored(&world), expected(Some(left.0), left.1));
        }
    }
}

#[test]
fn after_a_boot_the_time_between_has_passed_and_what_has_expired_is_deleted() {
    let mut world = world(true);
    world.now.realtime += 2 * HOUR;
    world.reboot();
    world.run();
    assert_eq!(restored(&world), expected(None, 7 * DAY - 2 * HOUR));
    assert_eq!(world.value(1, "hour"), None);
    assert_eq!(world.status()[0].entries, 2);
}

#[test]
fn a_clock_that_is_synchronised_is_believed_after_any_time() {
    let mut world = world(true);
    world.now.realtime += YEAR;
    world.reboot();
    world.run();
    assert_eq!(restored(&world), [("never".to_owned(), None)]);
    assert_eq!(world.status()[0].entries, 1);
}

#[test]
fn a_clock_that_is_not_plausible_after_a_boot_lets_no_time_pass() {
    for realtime in [0, 1_700_000_000 + YEAR.as_secs()] {
        let mut world = world(false);
        world.now.realtime = Duration::from_secs(realtime);
        world.reboot();
        world.run();
        assert_eq!(restored(&world), expected(Some(HOUR), 7 * DAY));
        world.pass(2 * HOUR);
        assert_eq!(world.status()[0].entries, 3);
    }
}

#[test]
fn what_expires_by_a_clock_that_is_not_synchronised_is_kept_for_an_hour() {
    let mut world = world(true);
    world.now.realtime += 2 * HOUR;
    world.now.synchronised = false;
    world.reboot();
    world.run();
    assert_eq!(restored(&world), expected(None, 7 * DAY - 2 * HOUR));
    world.pass(HOUR - Duration::from_secs(1));
    assert!(world.value(1, "hour").is_some());
    world.pass(Duration::from_secs(1));
    assert_eq!(world.value(1, "hour"), None);
    assert_eq!(world.status()[0].entries, 2);
}

#[test]
fn what_expires_by_a_clock_that_was_ahead_is_restored_when_it_is_synchronised() {
    for restarted in [false, true] {
        let mut world = world(true);
        world.now.synchronised = false;
        world.now.realtime += 20 * DAY;
        world.reboot();
        world.run();
        assert_eq!(restored(&world), [("never".to_owned(), None)]);
        if restarted {
            world.restart();
            world.run();
        }
        // In truth it was half an hour.
        world.now.realtime -= 20 * DAY - HOUR / 2;
        world.now.synchronised = true;
        world.pass(Duration::from_secs(10));
        assert_eq!(world.status()[0].entries, 3);
        detach_and_attach(&mut world);
        let passed = HOUR / 2 + Duration::from_secs(10);
        assert_eq!(
            restored(&world),
            expected(Some(HOUR - passed), 7 * DAY - passed)
        );
    }
}

#[test]
fn entries_of_a_store_without_a_clock_have_expired_by_the_clock_of_the_day() {
    let mut world = World::new();
    world.now.synchronised = false;
    let map = MapId(1);
    let entry = |key: &'static [u8], time: Duration| Write::Set {
        map,
        key,
        value: b"value",
        version: 1,
        expires_ns: nanoseconds(time),
    };
    let realtime = world.now.realtime;
    let mut writes = vec![
        entry(b"hour", realtime + HOUR),
        entry(b"week", realtime + 7 * DAY),
        entry(b"never", Duration::ZERO),
    ];
    let stored = crate::store_conformance::sample(1, "/a", "x");
    writes.insert(0, Write::Create(&stored));
    world.store.commit(&writes).unwrap();
    // A clock that is ahead.
    world.now.realtime += YEAR;
    world.restart();
    world.run();
    assert_eq!(restored(&world), [("never".to_owned(), None)]);
    world.now.realtime -= YEAR;
    world.now.synchronised = true;
    world.pass(Duration::from_secs(10));
    detach_and_attach(&mut world);
    let passed = Duration::from_secs(10);
    assert_eq!(
        restored(&world),
        expected(Some(HOUR - passed), 7 * DAY - passed)
    );
}

#[test]
fn an_orphan_is_not_removed_by_a_clock_that_may_be_ahead() {
    let mut world = world(true);
    world.remove_cgroup("/a");
    world.pass(10 * DAY);
    world.now.realtime += 25 * DAY;
    world.now.synchronised = false;
    world.reboot();
    world.run();
    assert_eq!(world.states(), [MapState::Orphan]);
}
