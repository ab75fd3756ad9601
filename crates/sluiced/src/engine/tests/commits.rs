// SPDX-License-Identifier: MIT OR Apache-2.0
use sluiced_protocol::SyncMode;

use super::*;
use crate::engine::RESERVATION;
use crate::kernel::Open;
use crate::store::Params;

fn acknowledged(world: &World, stream: u64) -> u64 {
    world.kernel.state.borrow().copies[&stream].acknowledged
}

fn open_interval(world: &mut World, name: &str, milliseconds: u32) -> u64 {
    let stream = world.kernel.open_as(|stream| Open {
        stream,
        path: b"/a".to_vec(),
        name: name.into(),
        params: Params {
            uid: 1000,
            flags: 3,
            interval_ms: milliseconds,
            ..Params::default()
        },
        exclusive: false,
        administrator: false,
    });
    world.run();
    stream
}

#[test]
fn changes_are_stored_and_acknowledged_in_one_transaction() {
    let mut world = World::new();
    let (first, second) = (world.open("/a", "x"), world.open("/b", "y"));
    let before = world.store.0.borrow().commits;
    for number in 0..10 {
        world.kernel.set(first, &number.to_string(), "1").unwrap();
        world.kernel.set(second, "k", &number.to_string()).unwrap();
    }
    world.kernel.delete(first, "3").unwrap();
    world.run();
    assert_eq!(world.store.0.borrow().commits, before + 1);
    assert_eq!(acknowledged(&world, first), 11);
    assert_eq!(acknowledged(&world, second), 10);
    assert_eq!(world.value(1, "3"), None);
    assert_eq!(world.value(2, "k").as_deref(), Some("9"));
    let status = world.status();
    let fields = |index: usize| {
        (
            status[index].entries,
            status[index].stored,
            status[index].sync,
        )
    };
    assert_eq!(fields(0), (9, 11, SyncMode::Always));
    assert_eq!(fields(1), (1, 10, SyncMode::Always));
}

#[test]
fn an_interval_map_is_stored_when_its_interval_has_passed_since_its_first_change() {
    let mut world = World::new();
    let stream = open_interval(&mut world, "x", 500);
    world.kernel.set(stream, "k", "1").unwrap();
    world.run();
    world.pass(Duration::from_millis(400));
    world.kernel.set(stream, "k", "2").unwrap();
    world.run();
    assert_eq!(acknowledged(&world, stream), 0);
    world.pass(Duration::from_millis(100));
    assert_eq!(acknowledged(&world, stream), 2);
    assert_eq!(world.value(1, "k").as_deref(), Some("2"));
    assert_eq!(world.status()[0].interval_ms, Some(500));
}

#[test]
fn an_interval_map_is_stored_at_once_if_a_process_waits_for_it() {
    let mut world = World::new();
    let stream = open_interval(&mut world, "x", 60_000);
    world.kernel.set(stream, "k", "1").unwrap();
    world.run();
    world.kernel.sync(stream);
    world.run();
    assert_eq!(acknowledged(&world, stream), 1);
}

#[test]
fn an_interval_map_is_stored_together_with_others() {
    let mut world = World::new();
    let stream = open_interval(&mut world, "x", 60_000);
    let other = world.open("/b", "y");
    world.kernel.set(stream, "k", "1").unwrap();
    world.run();
    assert_eq!(acknowledged(&world, stream), 0);
    world.kernel.set(other, "k", "1").unwrap();
    world.run();
    assert_eq!(acknowledged(&world, stream), 1);
}

#[test]
fn an_interval_map_is_stored_before_the_kernel_has_no_room_for_its_changes() {
    let mut world = World::new();
    let stream = open_interval(&mut world, "x", 60_000);
    for number in 0..17_000 {
        world.kernel.set(stream, "k", &number.to_string()).unwrap();
    }
    world.run();
    assert!(acknowledged(&world, stream) > 10_000);
}

#[test]
fn numbers_are_reserved_before_half_of_them_are_used() {
    let mut world = World::new();
    let stream = open_interval(&mut world, "x", 60_000);
    let half = RESERVATION / 2;
    for number in 1..=3 * RESERVATION {
        world.kernel.delete(stream, "k").unwrap();
        if number % 1000 == 0 {
            world.run();
            let limit = world.kernel.state.borrow().copies[&stream].limit;
            assert!(limit >= number + half, "{limit} at {number}");
        }
    }
    assert!(world.stored()[0].reserved >= 3 * RESERVATION);
}

#[test]
fn the_end_of_the_daemon_stores_what_was_read() {
    let mut world = World::new();
    let stream = open_interval(&mut world, "x", 60_000);
    world.kernel.set(stream, "k", "1").unwrap();
    world.run();
    assert!(!world.engine.is_stored());
    world.engine.finish(world.now);
    assert!(world.engine.is_stored());
    assert_eq!(acknowledged(&world, stream), 1);
}

#[test]
fn a_commit_of_changes_whose_processes_wait_ends_waits() {
    let mut world = World::new();
    let (always, interval) = (world.open("/a", "x"), open_interval(&mut world, "y", 1));
    world.kernel.set(always, "a", "1").unwrap();
    world.turn();
    assert!(world.engine.has_ended_waits());
    world.turn();
    assert!(!world.engine.has_ended_waits());
    world.kernel.set(interval, "a", "1").unwrap();
    world.turn();
    world.now.monotonic += Duration::from_millis(1);
    world.turn();
    assert_eq!(acknowledged(&world, interval), 1);
    assert!(!world.engine.has_ended_waits());
}
