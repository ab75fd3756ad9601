// SPDX-License-Identifier: MIT OR Apache-2.0
use nix::errno::Errno;
use sluiced_protocol::{FailureKind, MapState};

use super::fake_kernel::Opened;
use super::*;
use crate::store::StoreErrorKind;
use crate::store_memory::Failing;

const KINDS: [(StoreErrorKind, Errno); 3] = [
    (StoreErrorKind::Full, Errno::ENOSPC),
    (StoreErrorKind::ReadOnly, Errno::EROFS),
    (StoreErrorKind::Other, Errno::EIO),
];

fn fail(world: &World, failing: Option<Failing>) {
    world.store.0.borrow_mut().failing = failing;
}

#[test]
fn changes_are_kept_and_refused_until_the_store_works_again() {
    for (kind, errno) in KINDS {
        for failing in [Failing::Before(kind), Failing::After(kind)] {
            let mut world = World::new();
            let (stream, idle) = (world.open("/a", "x"), world.open("/b", "y"));
            world.kernel.set(stream, "k", "1").unwrap();
            fail(&world, Some(failing));
            world.run();
            assert_eq!(world.kernel.state.borrow().copies[&stream].acknowledged, 0);
            assert_eq!(world.kernel.set(stream, "k", "2"), Err(errno));
            assert_eq!(world.kernel.set(idle, "k", "2"), Err(errno));
            world.pass(Duration::from_secs(60));
            let status = world.status();
            assert!(status[0].reason.is_some());
            fail(&world, None);
            world.pass(Duration::from_secs(5));
            assert_eq!(world.kernel.state.borrow().copies[&stream].acknowledged, 1);
            assert_eq!(world.value(1, "k").as_deref(), Some("1"));
            assert_eq!(world.kernel.set(stream, "k", "2"), Ok(2));
            assert_eq!(world.kernel.set(idle, "k", "2"), Ok(1));
        }
    }
}

#[test]
fn an_open_of_a_new_map_fails_with_the_error_of_the_store_and_leaves_nothing() {
    for (kind, errno) in KINDS {
        for failing in [Failing::Before(kind), Failing::After(kind)] {
            let mut world = World::new();
            fail(&world, Some(failing));
            let first = world.kernel.open("/a", "x", 1000);
            world.run();
            assert_eq!(world.kernel.opened(first), Opened::Failed(errno));
            let second = world.kernel.open("/a", "x", 1000);
            world.run();
            assert_eq!(world.kernel.opened(second), Opened::Failed(errno));
            fail(&world, None);
            world.pass(Duration::from_secs(5));
            assert_eq!(world.stored(), []);
            world.open("/a", "x");
        }
    }
}

#[test]
fn a_store_works_again_only_if_something_was_written() {
    let mut world = World::new();
    let stream = world.open("/a", "x");
    fail(&world, Some(Failing::Before(StoreErrorKind::Full)));
    let new = world.kernel.open("/b", "y", 1000);
    world.run();
    assert_eq!(world.kernel.opened(new), Opened::Failed(Errno::ENOSPC));
    // Nothing is left to store.
    for _ in 0..100 {
        world.pass(Duration::from_millis(100));
        assert_eq!(world.kernel.set(stream, "k", "1"), Err(Errno::ENOSPC));
    }
}

/// The store fails with a change, works for the next attempt, and so on. Returns how long changes were refused the last time.
fn flap(world: &mut World, stream: u64, times: usize) -> Duration {
    let mut refused = Duration::ZERO;
    for _ in 0..times {
        fail(world, Some(Failing::Before(StoreErrorKind::Full)));
        world.kernel.set(stream, "k", "1").unwrap();
        world.run();
        fail(world, None);
        let began = world.now.monotonic;
        while world.kernel.state.borrow().copies[&stream].error.is_some() {
            world.pass(Duration::from_millis(50));
        }
        refused = world.now.monotonic - began;
    }
    refused
}

#[test]
fn a_store_that_fails_again_and_again_is_tried_less_often() {
    let mut world = World::new();
    let stream = world.open("/a", "x");
    assert_eq!(flap(&mut world, stream, 1), Duration::from_millis(100));
    assert_eq!(flap(&mut world, stream, 10), Duration::from_secs(5));
    world.pass(Duration::from_secs(60));
    assert_eq!(flap(&mut world, stream, 1), Duration::from_millis(100));
}

#[test]
fn an_unlink_fails_if_the_map_is_still_stored() {
    let mut world = World::new();
    let stream = world.open("/a", "x");
    fail(&world, Some(Failing::Before(StoreErrorKind::Full)));
    world.kernel.unlink(stream);
    world.run();
    let answer = world.kernel.state.borrow().unlinked[&stream];
    assert_eq!(answer, Some(Errno::ENOSPC));
    fail(&world, None);
    world.pass(Duration::from_secs(5));
    assert_eq!(world.stored().len(), 1);
    assert_eq!(world.kernel.set(stream, "k", "1"), Ok(1));
    world.run();
    assert_eq!(world.value(1, "k").as_deref(), Some("1"));
}

#[test]
fn an_unlink_that_was_stored_in_spite_of_the_error_is_carried_out() {
    let mut world = World::new();
    let stream = world.open("/a", "x");
    fail(&world, Some(Failing::After(StoreErrorKind::Other)));
    world.kernel.unlink(stream);
    world.run();
    assert!(world.kernel.state.borrow().unlinked.is_empty());
    fail(&world, None);
    world.pass(Duration::from_secs(5));
    assert_eq!(world.kernel.state.borrow().unlinked[&stream], None);
    assert_eq!(world.stored(), []);
}

#[test]
fn a_store_that_lost_acknowledged_changes_takes_no_more() {
    let mut world = World::new();
    let stream = world.open("/a", "x");
    world.kernel.set(stream, "k", "1").unwrap();
    world.run();
    fail(&world, Some(Failing::Before(StoreErrorKind::Other)));
    world.store.0.borrow_mut().forget_everything();
    // The clock is stored again, which fails.
    world.pass(Duration::from_secs(1));
    world.kernel.set(stream, "k", "2").unwrap();
    world.run();
    fail(&world, None);
    world.pass(Duration::from_secs(5));
    assert_eq!(world.kernel.set(stream, "k", "3"), Err(Errno::EIO));
    assert_eq!(world.kernel.state.borrow().copies[&stream].acknowledged, 1);
}

/// A map with a change that is not acknowledged, of which the store has lost another one.
fn lost(world: &mut World) -> u64 {
    let stream = world.open("/a", "x");
    world.kernel.set(stream, "k", "1").unwrap();
    world.run();
    let progress = Write::Progress {
        map: MapId(1),
        applied: 0,
        reserved: 100_000,
    };
    world.store.commit(&[progress]).unwrap();
    world.kernel.set(stream, "k", "2").unwrap();
    world.restart();
    world.run();
    assert_eq!(world.states(), [MapState::Error]);
    stream
}

#[test]
fn a_map_of_which_changes_are_lost_ends_with_its_cgroup() {
    let mut world = World::new();
    let stream = lost(&mut world);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.kernel.named("/a", "x"), Some(stream));
    world.remove_cgroup("/a");
    world.pass(Duration::from_secs(10));
    assert!(world.kernel.state.borrow().copies.is_empty());
    assert_eq!(world.states(), [MapState::Orphan]);
}

#[test]
fn a_map_of_which_changes_are_lost_is_opened_in_a_new_cgroup() {
    let mut world = World::new();
    let stream = lost(&mut world);
    world.kernel.remove_cgroup("/a");
    let open = world.kernel.open("/a", "x", 1000);
    world.run();
    assert_eq!(world.kernel.opened(open), Opened::Ready);
    assert!(!world.kernel.state.borrow().copies.contains_key(&stream));
    assert_eq!(world.kernel.set(open, "k", "3"), Ok(100_001));
}

#[test]
fn requests_fail_with_the_error_of_the_store() {
    let mut world = World::new();
    let stream = world.open("/a", "x");
    fail(&world, Some(Failing::Before(StoreErrorKind::ReadOnly)));
    let text = world.outcome(Request::Detach(one("/a", "x"))).unwrap();
    assert!(text.contains("told to"), "{text}");
    match world.request(Request::Attach(Selection::All)) {
        Response::Failed(failure) => assert_eq!(failure.kind, FailureKind::Store),
        other => panic!("{other:?}"),
    }
    assert_eq!(world.states(), [MapState::Attached]);
    fail(&world, None);
    world.pass(Duration::from_secs(5));
    assert_eq!(world.states(), [MapState::Attached]);
    assert!(!world.stored()[0].detached);
    assert_eq!(world.kernel.set(stream, "k", "1"), Ok(1));
}

#[test]
fn maps_that_could_not_be_attached_are_attached_when_the_store_works() {
    let mut world = World::new();
    world.open("/a", "x");
    world.reboot();
    fail(&world, Some(Failing::Before(StoreErrorKind::Full)));
    world.run();
    assert_eq!(world.kernel.named("/a", "x"), None);
    fail(&world, None);
    world.pass(Duration::from_secs(5));
    assert!(world.kernel.named("/a", "x").is_some());
}
