// SPDX-License-Identifier: MIT OR Apache-2.0
use nix::errno::Errno;
use sluiced_protocol::MapState;

use super::fake_kernel::Opened;
use super::*;
use crate::engine::RESERVATION;

#[test]
fn changes_that_were_not_acknowledged_are_stored_by_the_next_daemon() {
    let mut world = World::new();
    let stream = world.open("/a", "x");
    world.kernel.set(stream, "k", "1").unwrap();
    world.run();
    world.restart();
    world.kernel.set(stream, "k", "2").unwrap();
    world.restart();
    world.run();
    assert_eq!(world.kernel.state.borrow().copies[&stream].acknowledged, 2);
    assert_eq!(world.value(1, "k").as_deref(), Some("2"));
    assert_eq!(world.states(), [MapState::Attached]);
    assert_eq!(world.stored().len(), 1);
}

#[test]
fn changes_that_were_stored_but_not_acknowledged_are_only_acknowledged() {
    let mut world = World::new();
    let stream = world.open("/a", "x");
    for value in ["1", "2", "3"] {
        world.kernel.set(stream, "k", value).unwrap();
    }
    // As if the daemon had died between the commit and the acknowledgement.
    let writes = [
        Write::Set {
            map: MapId(1),
            key: b"k",
            value: b"3",
            version: 3,
            expires_ns: 0,
        },
        Write::Progress {
            map: MapId(1),
            applied: 3,
            reserved: RESERVATION,
        },
    ];
    world.store.commit(&writes).unwrap();
    world.restart();
    world.run();
    assert_eq!(world.kernel.state.borrow().copies[&stream].acknowledged, 3);
    assert_eq!(world.value(1, "k").as_deref(), Some("3"));
}

#[test]
fn a_map_that_is_not_in_the_store_takes_no_changes() {
    let mut world = World::new();
    let stream = world.open("/a", "x");
    world.kernel.set(stream, "k", "1").unwrap();
    world.run();
    world.store.0.borrow_mut().forget_everything();
    world.restart();
    world.run();
    assert_eq!(world.kernel.set(stream, "k", "2"), Err(Errno::EIO));
    assert_eq!(world.states(), [MapState::Error]);
    world.kernel.unlink(stream);
    world.run();
    assert_eq!(world.kernel.state.borrow().unlinked[&stream], None);
}

#[test]
fn a_map_of_which_the_store_is_older_takes_no_changes() {
    let mut world = World::new();
    let stream = world.open("/a", "x");
    for value in ["1", "2"] {
        world.kernel.set(stream, "k", value).unwrap();
    }
    world.run();
    let progress = Write::Progress {
        map: MapId(1),
        applied: 1,
        reserved: RESERVATION,
    };
    world.store.commit(&[progress]).unwrap();
    world.restart();
    world.run();
    assert_eq!(world.kernel.set(stream, "k", "3"), Err(Errno::EIO));
    assert_eq!(world.states(), [MapState::Error]);
    let reason = world.status()[0].reason.clone().unwrap();
    assert!(reason.contains("export it"), "{reason}");
    // Removing it is the way out.
    world.kernel.unlink(stream);
    world.run();
    assert_eq!(world.stored(), []);
    world.open("/a", "x");
}

#[test]
fn a_restart_before_the_first_change_of_a_restored_map_is_no_loss() {
    let mut world = World::new();
    world.open("/a", "x");
    world.reboot();
    world.run();
    let stream = world.kernel.named("/a", "x").unwrap();
    world.restart();
    world.run();
    assert_eq!(world.states(), [MapState::Attached]);
    assert_eq!(world.kernel.set(stream, "k", "1"), Ok(RESERVATION + 1));
}

#[test]
fn an_open_does_not_overtake_the_stream_of_an_earlier_daemon() {
    let mut world = World::new();
    let older = world.open("/a", "x");
    world.kernel.set(older, "k", "1").unwrap();
    world.kernel.remove_cgroup("/a");
    let open = world.kernel.open("/a", "x", 1000);
    world.restart();
    world.run();
    let state = world.kernel.state.borrow();
    assert!(!state.opened.contains_key(&open));
    let (newer, _) = state.opened.last_key_value().unwrap();
    assert_eq!(state.opened[newer], Opened::Ready);
    assert_eq!(state.copies[newer].entries.len(), 1);
}

#[test]
fn stored_maps_are_attached_at_the_start() {
    let mut world = World::new();
    let stream = world.open("/a", "x");
    world.kernel.set(stream, "k", "1").unwrap();
    world.open("/b", "y");
    world.gone.0.borrow_mut().insert(b"/b".to_vec());
    world.reboot();
    world.run();
    let stream = world.kernel.named("/a", "x").unwrap();
    assert_eq!(world.kernel.state.borrow().copies[&stream].entries.len(), 1);
    assert_eq!(world.kernel.named("/b", "y"), None);
    assert_eq!(world.states(), [MapState::Attached, MapState::Stored]);
}

#[test]
fn numbers_do_not_recur_after_any_restart() {
    let mut world = World::new();
    let mut stream = world.open("/a", "x");
    let mut last = 0;
    for _ in 0..5 {
        for _ in 0..10 {
            let number = world.kernel.set(stream, "k", "1").unwrap();
            assert!(number > last);
            last = number;
        }
        // Those of the last round are lost with the kernel.
        world.reboot();
        world.run();
        stream = world.kernel.named("/a", "x").unwrap();
    }
}
