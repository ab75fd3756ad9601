// SPDX-License-Identifier: MIT OR Apache-2.0
use nix::errno::Errno;
use sluiced_protocol::{FailureKind, MapState};

use super::*;

#[test]
fn a_detached_map_stays_stored_until_it_is_attached_or_opened() {
    let mut world = World::new();
    let stream = world.open("/a", "x");
    world.kernel.set(stream, "k", "1").unwrap();
    assert_eq!(world.outcome(Request::Detach(one("/a", "x"))), None);
    assert_eq!(world.kernel.named("/a", "x"), None);
    assert_eq!(world.states(), [MapState::Detached]);
    world.reboot();
    world.run();
    assert_eq!(world.states(), [MapState::Detached]);
    assert_eq!(world.outcome(Request::Attach(one("/a", "x"))), None);
    assert_eq!(world.states(), [MapState::Attached]);
    let stream = world.kernel.named("/a", "x").unwrap();
    assert_eq!(world.kernel.state.borrow().copies[&stream].entries.len(), 1);
    assert_eq!(world.outcome(Request::Detach(one("/a", "x"))), None);
    world.open("/a", "x");
    assert!(!world.stored()[0].detached);
}

#[test]
fn a_map_that_is_changed_meanwhile_is_detached_with_all_changes() {
    let mut world = World::new();
    let stream = world.open("/a", "x");
    world.engine.request(1, Request::Detach(one("/a", "x")));
    let mut last = 0;
    while let Ok(number) = world.kernel.set(stream, "k", "1") {
        last = number;
        world.turn();
        assert!(last < 100);
    }
    world.pass(Duration::from_secs(1));
    let responses = std::mem::take(&mut world.responses);
    assert!(
        matches!(&responses[..], [(1, Response::Done(_))]),
        "{responses:?}"
    );
    assert_eq!(world.kernel.named("/a", "x"), None);
    assert_eq!(world.stored()[0].applied, last);
}

#[test]
fn a_detach_is_completed_by_the_next_daemon() {
    let mut world = World::new();
    world.open("/a", "x");
    let map = MapId(1);
    let detached = true;
    world
        .store
        .commit(&[Write::Detached { map, detached }])
        .unwrap();
    world.restart();
    world.run();
    assert_eq!(world.kernel.named("/a", "x"), None);
    assert_eq!(world.states(), [MapState::Detached]);
}

#[test]
fn all_maps_are_detached_and_attached() {
    let mut world = World::new();
    for path in ["/a", "/b", "/c"] {
        world.open(path, "x");
    }
    world.remove_cgroup("/c");
    let done = |response| match response {
        Response::Done(outcomes) => {
            let failed = outcomes.iter().filter(|outcome| outcome.error.is_some());
            (outcomes.len(), failed.count())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(done(world.request(Request::Detach(Selection::All))), (2, 0));
    assert!(world.kernel.state.borrow().copies.is_empty());
    assert_eq!(done(world.request(Request::Attach(Selection::All))), (2, 0));
    use MapState::{Attached, Orphan};
    assert_eq!(world.states(), [Attached, Attached, Orphan]);
    assert_eq!(done(world.request(Request::Attach(Selection::All))), (0, 0));
}

#[test]
fn maps_are_attached_when_there_are_files_again() {
    use MapState::{Attached, Stored};
    // The first is missing when maps are looked up, or when they are attached.
    for files in 0..6 {
        let mut world = World::new();
        for path in ["/a", "/b", "/c"] {
            world.open(path, "x");
        }
        world.gone.set_files(Some(files));
        world.reboot();
        world.run();
        let states = world.states();
        assert!(states.contains(&Stored), "{states:?}");
        assert!(
            states
                .iter()
                .all(|state| [Attached, Stored].contains(state))
        );
        world.gone.set_files(None);
        world.pass(Duration::from_secs(5));
        assert_eq!(world.states(), [Attached; 3]);
    }
}

#[test]
fn what_prevents_an_attach_is_in_the_status() {
    let mut world = World::new();
    world.open("/a", "x");
    world.reboot();
    world.kernel.state.borrow_mut().create_error = Some(Errno::EDQUOT);
    world.run();
    let status = world.status();
    assert_eq!(status[0].state, MapState::OverQuota);
    assert!(
        status[0]
            .reason
            .as_ref()
            .unwrap()
            .contains("user_max_channels")
    );
    world.kernel.state.borrow_mut().create_error = Some(Errno::EEXIST);
    let text = world.outcome(Request::Attach(one("/a", "x"))).unwrap();
    assert!(text.contains("sluice map rm"), "{text}");
    assert_eq!(world.states(), [MapState::Error]);
    assert_eq!(world.outcome(Request::Attach(one("/a", "x"))), None);
    assert_eq!(world.states(), [MapState::Attached]);
}

#[test]
fn only_a_map_that_is_not_attached_is_forgotten() {
    let mut world = World::new();
    world.open("/a", "x");
    let kind = |response| match response {
        Response::Failed(failure) => failure.kind,
        other => panic!("{other:?}"),
    };
    let forget = || Request::Forget(map_name("/a", "x"));
    assert_eq!(kind(world.request(forget())), FailureKind::Attached);
    assert_eq!(world.outcome(Request::Detach(one("/a", "x"))), None);
    assert_eq!(world.outcome(forget()), None);
    assert_eq!(world.stored(), []);
    assert_eq!(kind(world.request(forget())), FailureKind::NotFound);
    world.open("/a", "x");
}
