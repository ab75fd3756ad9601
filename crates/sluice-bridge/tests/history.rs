// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checker of histories that the test with a cluster uses.

#[path = "cluster/history.rs"]
#[allow(dead_code, reason = "a part is for the cluster")]
mod history;

use fastrand::Rng;
use history::{DAMAGES, History, Id, Origin, Promise, Sender, Stored};

/// Three senders with 50 messages each, of which one uses no stream; the other two send in turn.
fn history() -> History {
    let promises = [
        Promise::StoredOnce,
        Promise::StoredAtMostOnce,
        Promise::Core,
    ];
    let sender = |promise| Sender {
        bus: "orders",
        uid: 1000,
        promise,
        in_flight: 4,
        sent: (0..50).map(|number| number * 10).collect(),
    };
    let id = |sender, number| Id { sender, number };
    let stored = |sequence: u64| Stored {
        id: Some(id(sequence as usize % 2, sequence / 2)),
        sequence,
        origin: Origin {
            bus: "orders".to_owned(),
            uid: 1000,
            gid: 0,
            pid: 7,
            bridge: "a".to_owned(),
        },
    };
    let stored: Vec<Stored> = (0..100).map(stored).collect();
    History {
        senders: promises.map(sender).into(),
        pid: 7,
        bridge: "a".to_owned(),
        received: stored.iter().map(|stored| stored.id).collect(),
        stored,
        core: (0..50)
            .map(|number| (Some(id(2, number)), number * 10 + 5))
            .collect(),
        kills: vec![200],
    }
}

/// The one violation of a history.
fn violation(history: &History) -> String {
    let mut found = history.check();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn a_correct_history_has_no_violation() {
    assert_eq!(history().check(), [""; 0]);
}

#[test]
fn each_damage_is_found() {
    for (name, damage) in DAMAGES {
        for seed in 0..200 {
            let mut damaged = history();
            damage(&mut damaged, &mut Rng::with_seed(seed));
            assert!(!damaged.check().is_empty(), "{name}, seed {seed}");
        }
    }
}

#[test]
fn a_lost_message_is_named() {
    let mut history = history();
    let lost = history.stored.remove(20).id;
    history.received.retain(|id| *id != lost);
    assert!(violation(&history).contains("number: 10 } was sent, and is not stored"));
    // One that the bus may have dropped.
    let mut history = self::history();
    let lost = history.stored.remove(21).id;
    history.received.retain(|id| *id != lost);
    assert_eq!(history.check(), [""; 0]);
}

#[test]
fn a_body_in_part_was_never_sent() {
    let id = Id {
        sender: 2,
        number: 34,
    };
    let body = id.body();
    assert_eq!(Id::of(&body), Some(id));
    assert_eq!(Id::of(&body[..body.len() - 1]), None);
    let mut history = history();
    history.stored[3].id = None;
    history.received[3] = None;
    let found = history.check();
    assert!(found[0].contains("None at 3 of the stream was never sent"));
    assert!(found.iter().any(|text| text.contains("None came in")));
}

#[test]
fn messages_change_places_only_in_flight() {
    let late = |places: usize| {
        let mut history = history();
        for all in [20, 21, 22, 23, 24, 25].windows(2).take(places) {
            history.stored.swap(all[0], all[1]);
            history.received.swap(all[0], all[1]);
        }
        history
    };
    assert_eq!(late(3).check(), [""; 0]);
    assert_eq!(late(3).late().len(), 1);
    assert!(violation(&late(4)).contains("with the sequence 20 is stored after 24"));
}

#[test]
fn a_sequence_is_of_one_message_and_in_the_order_of_its_sender() {
    let mut history = history();
    history.stored[30].sequence = 32;
    let found = history.check();
    assert!(
        found
            .iter()
            .any(|text| text.contains("has the sequence of"))
    );
    assert!(
        found
            .iter()
            .any(|text| text.contains("has the sequence 32, after 32"))
    );
}

#[test]
fn what_was_not_acknowledged_comes_in_again_in_order() {
    let mut history = history();
    let again: Vec<_> = history.received[10..15].to_vec();
    history.received.splice(15..15, again);
    assert_eq!(history.check(), [""; 0]);
    history.received.truncate(50);
    assert!(violation(&history).contains("from 45 on did not come in"));
}

#[test]
fn without_a_stream_a_message_comes_in_again_only_after_a_kill() {
    let copy = |number, at| {
        let mut history = history();
        let id = Id { sender: 2, number };
        history.core.push((Some(id), at));
        history
    };
    // Sent at 190 and 210; the kill was at 200.
    assert_eq!(copy(19, 205).check(), [""; 0]);
    for (number, at) in [(19, 195), (21, 220)] {
        assert!(violation(&copy(number, at)).contains("without a kill"));
    }
}
