// SPDX-License-Identifier: MIT OR Apache-2.0
use sluiced_protocol::MapState;

use super::*;

const LIMITS: OrphanLimits = OrphanLimits {
    count: 2,
    bytes: 100,
    age: DAY,
};

fn names(world: &World) -> Vec<String> {
    let maps = world.stored();
    let name = |map: &StoredMap| String::from_utf8(map.path.clone()).unwrap();
    maps.iter().map(name).collect()
}

#[test]
fn the_oldest_orphans_go_first() {
    let mut world = World::with_limits(LIMITS);
    for path in ["/d", "/c", "/b", "/a"] {
        world.open(path, "x");
    }
    for path in ["/a", "/b", "/c"] {
        world.remove_cgroup(path);
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(names(&world), ["/d", "/c", "/b"]);
    use MapState::{Attached, Orphan};
    assert_eq!(world.states(), [Attached, Orphan, Orphan]);
}

#[test]
fn orphans_are_limited_by_their_bytes() {
    let mut world = World::with_limits(LIMITS);
    for path in ["/a", "/b"] {
        let stream = world.open(path, "x");
        world.kernel.set(stream, "k", &"v".repeat(59)).unwrap();
        world.run();
        world.remove_cgroup(path);
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(names(&world), ["/b"]);
}

#[test]
fn orphans_are_limited_by_their_age() {
    let mut world = World::with_limits(LIMITS);
    world.open("/a", "x");
    world.remove_cgroup("/a");
    world.pass(DAY / 2);
    assert_eq!(names(&world), ["/a"]);
    world.pass(DAY);
    world.pass(DAY);
    assert_eq!(names(&world), Vec::<String>::new());
}

#[test]
fn after_a_boot_a_map_without_a_cgroup_has_time() {
    let mut world = World::with_limits(LIMITS);
    for path in ["/a", "/b", "/c", "/d"] {
        world.open(path, "x");
        world.gone.0.borrow_mut().insert(path.into());
    }
    world.reboot();
    world.run();
    assert_eq!(world.states(), [MapState::Stored; 4]);
    world.gone.0.borrow_mut().remove(&b"/a"[..]);
    world.open("/a", "x");
    world.pass(Duration::from_secs(3600));
    assert_eq!(names(&world), ["/a", "/c", "/d"]);
}

#[test]
fn an_orphan_whose_cgroup_exists_again_is_none() {
    let mut world = World::with_limits(LIMITS);
    world.open("/a", "x");
    world.remove_cgroup("/a");
    assert_eq!(world.states(), [MapState::Orphan]);
    world.gone.0.borrow_mut().clear();
    world.open("/a", "x");
    assert_eq!(world.states(), [MapState::Attached]);
    world.pass(30 * DAY);
    assert_eq!(names(&world), ["/a"]);
}

#[test]
fn a_removed_orphan_leaves_no_entries() {
    let mut world = World::with_limits(OrphanLimits { count: 0, ..LIMITS });
    let stream = world.open("/a", "x");
    for number in 0..3000 {
        world.kernel.set(stream, &number.to_string(), "").unwrap();
    }
    world.run();
    world.remove_cgroup("/a");
    assert_eq!(names(&world), Vec::<String>::new());
    assert_eq!(world.value(1, "7"), None);
}

#[test]
fn orphans_of_a_path_that_is_used_again_are_limited() {
    let mut world = World::with_limits(OrphanLimits { count: 1, ..LIMITS });
    for name in ["x1", "x2", "x3"] {
        world.gone.0.borrow_mut().clear();
        world.open("/a", name);
        world.remove_cgroup("/a");
    }
    world.gone.0.borrow_mut().clear();
    world.open("/a", "x4");
    world.pass(DAY);
    let states = world.states();
    assert_eq!(states, [MapState::Orphan, MapState::Attached]);
}
