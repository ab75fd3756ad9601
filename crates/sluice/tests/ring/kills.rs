// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that are killed at random points: during the set-up, a transfer or a wait. SLUICE_KILLS is their number,
//! SLUICE_SEED what the random points depend on.

use std::os::fd::OwnedFd;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use sluice::ring::{Consumer, Producer, RecvError, SendError};

use super::carrier;
use super::support::{LONG, pattern, peer_arguments, small, start_peer};

/// Lengths of records repeat after this many.
const LENGTHS: usize = 500;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("no number"))
}

/// A process that has one side of a ring, and uses it until it is killed.
fn busy_peer(role: &str, end: OwnedFd) -> Child {
    start_peer(module_path!(), "busy_peer_process", role, end)
}

/// The process of busy_peer(). As a test it does nothing.
#[test]
fn busy_peer_process() {
    let Some((role, end)) = peer_arguments() else {
        return;
    };
    if role == "producer" {
        send_all(&mut carrier::producer(&small(), end).expect("no ring"));
    } else {
        receive_all(&mut carrier::consumer(&small(), end).expect("no ring"));
    }
}

/// Until the consumer has died.
fn send_all(producer: &mut Producer) -> SendError {
    (0..)
        .find_map(|number| {
            let record = pattern(number, number % LENGTHS);
            producer.send_timeout(&record, LONG).err()
        })
        .expect("it never ends")
}

/// Until the producer has died.
fn receive_all(consumer: &mut Consumer) -> RecvError {
    let mut room = [0; LENGTHS];
    (0..)
        .find_map(|number| match consumer.recv_into_timeout(&mut room, LONG) {
            Ok(length) => {
                let length = length.expect("closed");
                assert_eq!(
                    room[..length],
                    pattern(number, number % LENGTHS),
                    "record {number}"
                );
                None
            }
            Err(error) => Some(error),
        })
        .expect("it never ends")
}

/// Uses the other side until the peer has died, and fails if it is not told. Returns whether the set-up succeeded,
/// during which the peer may die.
fn meet(peer: &str, end: OwnedFd) -> bool {
    if peer == "producer" {
        let Ok(mut consumer) = carrier::consumer(&small(), end) else {
            return false;
        };
        let error = receive_all(&mut consumer);
        assert!(matches!(error, RecvError::PeerDied), "{error:?}");
    } else {
        let Ok(mut producer) = carrier::producer(&small(), end) else {
            return false;
        };
        let error = send_all(&mut producer);
        assert!(matches!(error, SendError::PeerDied), "{error:?}");
    }
    true
}

/// The time from the start of a peer to its first record.
fn measure_start() -> Duration {
    let (there, here) = carrier::ends();
    let since = Instant::now();
    let mut child = busy_peer("producer", there);
    let mut consumer = carrier::consumer(&small(), here).expect("no ring");
    let first = consumer.recv_into_timeout(&mut [0; LENGTHS], LONG);
    first.expect("no record");
    let start = since.elapsed();
    child.kill().expect("not killed");
    child.wait().expect("not waited for");
    start
}

#[test]
fn a_peer_killed_at_any_point_is_noticed() {
    let seed = setting("SLUICE_SEED", std::process::id().into());
    let kills = setting("SLUICE_KILLS", 40);
    println!("SLUICE_SEED={seed} SLUICE_KILLS={kills}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut longest = Duration::ZERO;
    let measured = measure_start();
    let mut start = measured;
    let mut met = 0;
    for _ in 0..kills {
        let role = ["producer", "consumer"][random.usize(..2)];
        let (there, here) = match role {
            "producer" => carrier::ends(),
            _ => {
                let (producer, consumer) = carrier::ends();
                (consumer, producer)
            }
        };
        let mut child = busy_peer(role, there);
        let meeting = thread::spawn(move || meet(role, here));
        thread::sleep(start.mul_f64(2.0 * random.f64()));
        child.kill().expect("not killed");
        child.wait().expect("not waited for");
        let since = Instant::now();
        let set_up = meeting.join().expect("the survivor failed");
        met += u64::from(set_up);
        // About half of the peers are killed after the set-up, also when the machine has become slower.
        start = match set_up {
            true => start.mul_f64(0.875).max(measured),
            false => start.mul_f64(1.125),
        };
        longest = longest.max(since.elapsed());
    }
    println!("longest until the survivor was told: {longest:?}");
    println!("{met} of {kills} peers set up a ring");
    assert!(longest < LONG / 2, "{longest:?}");
    assert!(
        met * 4 >= kills,
        "only {met} of {kills} peers set up a ring"
    );
}
