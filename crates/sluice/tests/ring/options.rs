// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of both carriers.

use std::fs;
use std::time::Duration;

use sluice::ring::SetupError;

use super::carrier::{Options, set_up};
use super::support::{ring, small};

#[test]
fn each_side_has_its_own_options() {
    let spins = Options::new()
        .capacity(8192)
        .spin_limit(Duration::from_millis(1));
    let sleeps = Options::new().capacity(1 << 20).spin_limit(Duration::ZERO);
    let (producer, consumer) = set_up(&spins, &sleeps);
    assert_eq!(producer.expect("no ring").capacity(), 8192);
    assert_eq!(
        consumer.expect("no ring").capacity(),
        8192,
        "the producer decides; in a channel, its creator"
    );
}

#[test]
fn the_memory_of_the_peer_is_mapped_read_only() {
    let (producer, consumer) = ring(&small());
    let maps = fs::read_to_string("/proc/self/maps").expect("no /proc");
    let ours: Vec<&str> = maps
        .lines()
        .filter(|line| line.contains("sluice-ring"))
        .collect();
    // Both sides are in this process: each maps its own memory for writing, and that of the peer read-only.
    assert!(ours.iter().any(|line| line.contains(" rw-s ")), "{ours:?}");
    assert!(ours.iter().any(|line| line.contains(" r--s ")), "{ours:?}");
    drop((producer, consumer));
}

#[test]
fn memory_can_be_bound_to_a_node() {
    let (producer, consumer) = set_up(&small().numa_node(0), &small().numa_node(0));
    producer.expect("no ring").send(b"near").expect("not sent");
    let mut consumer = consumer.expect("no ring");
    assert_eq!(
        consumer.recv_into(&mut [0; 4]).expect("not received"),
        Some(4)
    );
}

#[test]
fn a_consumer_limits_the_capacity() {
    let (_producer, receiving) = set_up(&small().capacity(8192), &small().max_capacity(4096));
    assert!(
        matches!(
            receiving,
            Err(SetupError::CapacityTooLarge { max: 4096, .. })
        ),
        "{receiving:?}"
    );
}
