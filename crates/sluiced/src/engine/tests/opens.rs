// SPDX-License-Identifier: MIT OR Apache-2.0
use nix::errno::Errno;
use sluiced_protocol::MapState;

use super::fake_kernel::Opened;
use super::*;
use crate::engine::RESERVATION;
use crate::kernel::Open;
use crate::store::Params;

#[test]
fn a_new_map_is_stored_before_it_is_there() {
    let mut world = World::new();
    let stream = world.open("/a", "x");
    let maps = world.stored();
    assert_eq!(maps.len(), 1);
    assert_eq!(
        (maps[0].path.as_slice(), maps[0].name.as_slice()),
        (&b"/a"[..], &b"x"[..])
    );
    assert_eq!((maps[0].applied, maps[0].reserved), (0, RESERVATION));
    assert_eq!(maps[0].params.uid, 1000);
    assert_eq!(world.kernel.named("/a", "x"), Some(stream));
    assert_eq!(world.states(), [MapState::Attached]);
}

#[test]
fn two_opens_of_a_new_map_get_one_map() {
    let mut world = World::new();
    let first = world.kernel.open("/a", "x", 1000);
    let second = world.kernel.open("/a", "x", 1000);
    let other = world.kernel.open("/b", "x", 1000);
    world.run();
    assert_eq!(world.kernel.opened(first), Opened::Ready);
    assert_eq!(world.kernel.opened(second), Opened::Failed(Errno::ESTALE));
    assert_eq!(world.kernel.opened(other), Opened::Ready);
    assert_eq!(world.stored().len(), 2);
}

fn fill(world: &mut World, entries: usize) {
    let stream = world.open("/a", "x");
    for number in 0..entries {
        let key = format!("key{number:05}");
        world.kernel.set(stream, &key, "value").unwrap();
    }
    world.run();
}

#[test]
fn a_stored_map_is_restored_with_its_entries_and_new_numbers() {
    let mut world = World::new();
    fill(&mut world, 1000);
    world.gone.0.borrow_mut().insert(b"/a".to_vec());
    world.reboot();
    world.run();
    world.gone.0.borrow_mut().clear();
    let stream = world.open("/a", "x");
    let state = world.kernel.state.borrow();
    let copy = &state.copies[&stream];
    assert_eq!(copy.entries.len(), 1000);
    assert_eq!(copy.entries[&b"key00007"[..]].0, 8);
    assert_eq!((copy.sequence, copy.limit), (RESERVATION, 2 * RESERVATION));
    assert_eq!(state.restored, [256, 256, 256, 232]);
}

#[test]
fn only_the_owner_or_an_administrator_opens_a_stored_map() {
    let mut world = World::new();
    world.open("/a", "x");
    world.gone.0.borrow_mut().insert(b"/a".to_vec());
    world.reboot();
    let other = world.kernel.open("/a", "x", 1001);
    let exclusive = world.kernel.open_as(|stream| Open {
        exclusive: true,
        ..request(stream, 1000)
    });
    world.run();
    assert_eq!(world.kernel.opened(other), Opened::Failed(Errno::EACCES));
    assert_eq!(
        world.kernel.opened(exclusive),
        Opened::Failed(Errno::EEXIST)
    );
    let administrator = world.kernel.open_as(|stream| Open {
        administrator: true,
        ..request(stream, 0)
    });
    world.run();
    assert_eq!(world.kernel.opened(administrator), Opened::Ready);
    assert_eq!(world.stored()[0].params.uid, 1000);
}

fn request(stream: u64, uid: u32) -> Open {
    Open {
        stream,
        path: b"/a".to_vec(),
        name: b"x".to_vec(),
        params: Params {
            uid,
            ..Params::default()
        },
        exclusive: false,
        administrator: false,
    }
}

#[test]
fn an_open_waits_until_an_older_stream_is_stored() {
    let mut world = World::new();
    let older = world.kernel.open_as(interval_open);
    world.run();
    world.kernel.set(older, "k", "1").unwrap();
    world.run();
    // The cgroup is removed and created again.
    world.kernel.remove_cgroup("/a");
    let newer = world.kernel.open("/a", "x", 1000);
    world.run();
    assert_eq!(world.kernel.opened(newer), Opened::Ready);
    assert_eq!(world.value(1, "k").as_deref(), Some("1"));
    let state = world.kernel.state.borrow();
    assert_eq!(state.copies[&newer].entries.len(), 1);
}

fn interval_open(stream: u64) -> Open {
    Open {
        params: Params {
            uid: 1000,
            flags: 3,
            interval_ms: 60_000,
            ..Params::default()
        },
        ..request(stream, 1000)
    }
}

#[test]
fn an_opener_that_gives_up_leaves_nothing() {
    let mut world = World::new();
    let stream = world.kernel.open("/a", "x", 1000);
    world.kernel.give_up(stream);
    world.run();
    assert_eq!(world.stored(), []);
    assert!(world.kernel.state.borrow().copies.is_empty());
}

#[test]
fn a_new_map_whose_name_another_channel_gets_leaves_nothing() {
    let mut world = World::new();
    for _ in 0..3 {
        let stream = world.open("/a", "x");
        world.kernel.give_up(stream);
        world.run();
        assert_eq!(world.stored(), []);
    }
    // One that was changed stays, and one whose cgroup was removed.
    let stream = world.open("/a", "x");
    world.kernel.set(stream, "k", "1").unwrap();
    world.run();
    world.kernel.give_up(stream);
    world.run();
    world.open("/b", "y");
    world.remove_cgroup("/b");
    assert_eq!(world.stored().len(), 2);
}

#[test]
fn an_opener_that_gives_up_during_a_restoration_leaves_the_stored_map() {
    let mut world = World::new();
    fill(&mut world, 5000);
    world.gone.0.borrow_mut().insert(b"/a".to_vec());
    world.reboot();
    let stream = world.kernel.open("/a", "x", 1000);
    world.turn();
    assert_eq!(world.states(), [MapState::Restoring]);
    world.kernel.give_up(stream);
    world.run();
    assert_eq!(world.states(), [MapState::Orphan]);
    let stream = world.open("/a", "x");
    let state = world.kernel.state.borrow();
    assert_eq!(state.copies[&stream].entries.len(), 5000);
    drop(state);
    assert_eq!(world.stored()[0].orphaned, None);
}

#[test]
fn a_new_map_that_the_kernel_refuses_is_not_stored() {
    let mut world = World::new();
    world.kernel.state.borrow_mut().create_error = Some(Errno::EDQUOT);
    let stream = world.kernel.open("/a", "x", 1000);
    world.run();
    assert_eq!(world.kernel.opened(stream), Opened::Failed(Errno::EDQUOT));
    assert_eq!(world.stored(), []);
    world.open("/a", "x");
}

/// The kernel asks for the table that is stored, and the open asks again.
#[test]
fn an_open_with_another_table_looks_again() {
    let mut world = World::new();
    fill(&mut world, 1);
    world.gone.0.borrow_mut().insert(b"/a".to_vec());
    world.reboot();
    world.run();
    world.gone.0.borrow_mut().clear();
    world.kernel.state.borrow_mut().create_error = Some(Errno::ESTALE);
    let stream = world.kernel.open("/a", "x", 1000);
    world.run();
    assert_eq!(world.kernel.opened(stream), Opened::Failed(Errno::ESTALE));
    let status = world.status();
    assert_eq!(
        (status[0].state, &status[0].reason),
        (MapState::Stored, &None)
    );
    let again = world.open("/a", "x");
    assert_eq!(world.kernel.state.borrow().copies[&again].entries.len(), 1);
}

#[test]
fn an_unlinked_map_is_deleted_first() {
    let mut world = World::new();
    let stream = world.open("/a", "x");
    world.kernel.set(stream, "k", "1").unwrap();
    world.kernel.unlink(stream);
    world.run();
    assert_eq!(world.kernel.state.borrow().unlinked[&stream], None);
    assert_eq!(world.stored(), []);
    assert_eq!(world.value(1, "k"), None);
    world.open("/a", "x");
    assert_eq!(world.stored()[0].usage.entries, 0);
}

#[test]
fn a_restoration_does_not_delay_the_changes_of_other_maps() {
    let mut world = World::new();
    fill(&mut world, 10_000);
    world.gone.0.borrow_mut().insert(b"/a".to_vec());
    world.reboot();
    let busy = world.open("/b", "y");
    let stream = world.kernel.open("/a", "x", 1000);
    world.turn();
    let mut commits = 0;
    while world.kernel.opened(stream) == Opened::Waiting {
        let number = world.kernel.set(busy, "k", "1").unwrap();
        world.turn();
        let state = world.kernel.state.borrow();
        assert_eq!(state.copies[&busy].acknowledged, number);
        commits += 1;
    }
    assert!(commits >= 9, "{commits}");
}

#[test]
fn a_map_that_a_process_waits_for_is_restored_before_others() {
    let mut world = World::new();
    fill(&mut world, 20_000);
    let small = world.open("/b", "y");
    world.kernel.set(small, "k", "1").unwrap();
    world.run();
    world.reboot();
    world.turn();
    let open = world.kernel.open("/b", "y", 1000);
    world.turn();
    world.turn();
    assert_eq!(world.kernel.opened(open), Opened::Failed(Errno::ESTALE));
    assert!(world.kernel.named("/b", "y").is_some());
    assert_eq!(world.kernel.named("/a", "x"), None);
}
