// SPDX-License-Identifier: MIT OR Apache-2.0
//! What only device rings have: sides that come at any time, endpoints of other processes, and destruction.

use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use sluice::Ring;
use sluice::ring::{
    AsyncConsumer, AsyncProducer, Consumer, Producer, RecvError, RoleState, SendError, SetupError,
};
use sluice_hostile::{Endpoint, Role, destroy, unused_name};

use super::carrier;
use super::ending::idle_peer;
use super::support::{LONG, SHORT, small};

/// The options of a ring of its own name.
fn unused() -> sluice::Options<Ring> {
    small().named(&unused_name())
}

/// A ring of its own name, with these spin limits.
fn named_ring(spin: Duration) -> (sluice::Options<Ring>, Producer, Consumer) {
    let ring = unused().spin_limit(spin);
    let producer = ring.clone().create(true).producer();
    let consumer = ring.consumer();
    (
        ring,
        producer.expect("no producer"),
        consumer.expect("no consumer"),
    )
}

#[test]
fn records_wait_in_a_persistent_channel_for_the_consumer() {
    let ring = unused().create(true).persistent(true);
    let mut producer = ring.producer().expect("no ring");
    producer.send(b"one").expect("not sent");
    producer.send(b"two").expect("not sent");
    drop(producer);
    let existing = ring.clone().create(false).persistent(false);
    let mut consumer = existing.consumer().expect("no ring");
    let mut room = [0; 3];
    for record in [b"one", b"two"] {
        assert_eq!(
            consumer.recv_into(&mut room).expect("not received"),
            Some(3)
        );
        assert_eq!(&room, record);
    }
    assert_eq!(consumer.recv_into(&mut room).expect("no end"), None);
    ring.unlink().expect("not unlinked");
}

#[test]
fn either_side_may_come_first_and_sleep() {
    for (first, second) in [
        (Role::Producer, Role::Consumer),
        (Role::Consumer, Role::Producer),
    ] {
        let ring = unused().create(true).spin_limit(Duration::ZERO);
        let transfer = |role| match role {
            Role::Producer => {
                let mut producer = ring.producer().expect("no ring");
                for _ in 0..20 {
                    producer.send_timeout(&[7; 500], LONG).expect("not sent");
                }
                producer.flush_timeout(LONG).expect("not flushed");
            }
            Role::Consumer => {
                let mut consumer = ring.consumer().expect("no ring");
                for _ in 0..20 {
                    let got = consumer.recv_into_timeout(&mut [0; 500], LONG);
                    assert_eq!(got.expect("not received"), Some(500));
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| transfer(first));
            thread::sleep(SHORT);
            transfer(second);
        });
    }
}

/// The text of a peer that has not come names the ring and the scope, and the hint the cgroup; of one that is slow, neither.
#[test]
fn a_timeout_tells_a_slow_peer_from_one_that_has_not_come() {
    let ring = unused().create(true);
    let channel = ring.channel().expect("no name");
    let mut consumer = ring.consumer().expect("no consumer");
    let absent = |peer| {
        let (name, scope) = (channel.name(), channel.scope());
        format!("no {peer} has the ring '{name}' open in {scope}; start it in the same cgroup")
    };
    let late = consumer
        .recv_timeout(SHORT)
        .map(drop)
        .expect_err("a record");
    let text = sluice::explain(&late);
    assert!(text.contains(&absent("producer")), "{text}");
    assert_eq!(late.raw_os_error(), Some(libc::ETIMEDOUT));

    let mut producer = ring.producer().expect("no producer");
    let late = consumer
        .recv_timeout(SHORT)
        .map(drop)
        .expect_err("a record");
    let text = sluice::explain(&late);
    assert!(text.contains("sent nothing for"), "{text}");
    assert!(!text.contains("cgroup"), "{text}");
    drop(consumer);
    let sent = producer.send(b"late");
    assert!(matches!(sent, Err(SendError::Closed)), "{sent:?}");

    let mut producer = unused().create(true).producer().expect("no producer");
    producer.send(b"early").expect("not sent");
    let late = producer.flush_timeout(SHORT).expect_err("flushed");
    let text = sluice::explain(&late);
    assert!(text.contains("no consumer has the ring"), "{text}");
}

#[test]
fn a_killed_producer_leaves_its_records() {
    let (producer, consumer) = carrier::ends();
    let mut child = idle_peer("producer", producer);
    let mut consumer = carrier::consumer(&small(), consumer).expect("no ring");
    let first = consumer.recv_timeout(LONG).expect("no record");
    first.expect("no end").keep();
    child.kill().expect("not killed");
    child.wait().expect("not waited for");
    assert!(consumer.is_closed());
    let mut room = [0; 8];
    assert_eq!(
        consumer.recv_into(&mut room).expect("not received"),
        Some(6)
    );
    let died = consumer.recv_into_timeout(&mut room, LONG);
    assert!(matches!(died, Err(RecvError::PeerDied)), "{died:?}");
}

#[test]
fn a_destruction_ends_both_sides_wherever_they_wait() {
    for spin in [Duration::ZERO, Duration::MAX] {
        let (ring, mut producer, mut consumer) = named_ring(spin);
        let receiver = thread::spawn(move || consumer.recv_into_timeout(&mut [0; 8], LONG));
        thread::sleep(SHORT);
        ring.destroy().expect("not destroyed");
        let got = receiver.join().expect("panicked");
        assert!(matches!(got, Err(RecvError::Destroyed)), "{got:?}");
        let sent = producer.send(b"late");
        assert!(matches!(sent, Err(SendError::Destroyed)), "{sent:?}");

        let (ring, mut producer, mut consumer) = named_ring(spin);
        let mut sent = 0;
        while producer.try_send(&[0; 500]).is_ok() {
            sent += 1;
        }
        let sender = thread::spawn(move || producer.send_timeout(&[0; 500], LONG));
        thread::sleep(SHORT);
        ring.destroy().expect("not destroyed");
        let late = sender.join().expect("panicked");
        assert!(matches!(late, Err(SendError::Destroyed)), "{late:?}");
        // What was sent before is received.
        let mut received = 0;
        let end = loop {
            match consumer.recv_into_timeout(&mut [0; 500], LONG) {
                Ok(Some(_)) => received += 1,
                other => break other,
            }
        };
        assert!(matches!(end, Err(RecvError::Destroyed)), "{end:?}");
        assert_eq!(received, sent);
    }
}

#[test]
fn a_destruction_ends_both_sides_in_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("no runtime");
    runtime.block_on(async {
        let (ring, producer, consumer) = named_ring(Duration::ZERO);
        let mut producer = AsyncProducer::new(producer).expect("no runtime");
        let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
        while producer.try_send(&[0; 500]).is_ok() {}
        let destroying = async {
            tokio::time::sleep(SHORT).await;
            ring.destroy().expect("not destroyed");
        };
        let (sent, ()) = tokio::join!(producer.send(&[0; 500]), destroying);
        assert!(matches!(sent, Err(SendError::Destroyed)), "{sent:?}");
        while consumer.try_recv_into(&mut [0; 500]).is_ok() {}
        let got = consumer.recv_into(&mut []).await;
        assert!(matches!(got, Err(RecvError::Destroyed)), "{got:?}");
    });
}

#[test]
fn a_side_can_be_ended_through_another_descriptor() {
    for spin in [Duration::ZERO, Duration::MAX] {
        let (ring, mut producer, mut consumer) = named_ring(spin);
        let copy = producer.as_fd().try_clone_to_owned().expect("no copy");
        producer.send(b"last").expect("not sent");
        let receiver = thread::spawn(move || {
            let first = consumer.recv_into_timeout(&mut [0; 8], LONG);
            (
                first,
                consumer.recv_into_timeout(&mut [0; 8], LONG),
                consumer,
            )
        });
        thread::sleep(SHORT);
        Endpoint::from(copy).detach().expect("not detached");
        let (first, second, consumer) = receiver.join().expect("panicked");
        assert_eq!(first.expect("not received"), Some(4));
        assert_eq!(second.expect("no end"), None);
        let info = ring.info().expect("no channel");
        let roles = (info.producer, info.consumer);
        assert_eq!(roles, (RoleState::Closed, RoleState::Taken));
        drop(consumer);
    }
}

#[test]
fn a_side_that_was_ended_by_others_gets_an_error() {
    let (_ring, mut producer, mut consumer) = named_ring(Duration::ZERO);
    let copies = [producer.as_fd(), consumer.as_fd()].map(|fd| fd.try_clone_to_owned());
    assert!(consumer.prepare_wait().expect("no ring"));
    for copy in copies {
        let copy = Endpoint::from(copy.expect("no copy"));
        copy.detach().expect("not detached");
    }
    consumer.finish_wait();
    // Each peer has ended, too, which is the first thing that a side finds.
    assert_eq!(consumer.try_recv_into(&mut []).expect("no end"), None);
    let sent = producer.send(b"late");
    assert!(matches!(sent, Err(SendError::Closed)), "{sent:?}");

    let (_ring, _producer, mut consumer) = named_ring(Duration::ZERO);
    let copy = consumer.as_fd().try_clone_to_owned().expect("no copy");
    let receiver = thread::spawn(move || {
        let slept = consumer.recv_into_timeout(&mut [], LONG);
        (slept, consumer.prepare_wait())
    });
    thread::sleep(SHORT);
    Endpoint::from(copy).detach().expect("not detached");
    let (slept, prepared) = receiver.join().expect("panicked");
    assert!(matches!(slept, Err(RecvError::System(_))), "{slept:?}");
    assert!(
        matches!(prepared, Err(RecvError::System(_))),
        "{prepared:?}"
    );
}

#[test]
fn an_endpoint_has_one_role_and_is_used_once() {
    let (producer, consumer) = carrier::ends();
    let copy = producer.try_clone().expect("no copy");
    let wrong = Ring::attach().consumer(copy).map(drop);
    assert!(
        matches!(wrong, Err(SetupError::WrongRole { role: "producer" })),
        "{wrong:?}"
    );
    let copy = producer.try_clone().expect("no copy");
    let mut first = Ring::attach().producer(producer).expect("no ring");
    first.send(b"used").expect("not sent");
    let again = Ring::attach().producer(copy).map(drop);
    assert!(matches!(again, Err(SetupError::EndpointUsed)), "{again:?}");
    let copy = consumer.try_clone().expect("no copy");
    Endpoint::from(copy).detach().expect("not detached");
    let ended = Ring::attach().consumer(consumer).map(drop);
    assert!(matches!(ended, Err(SetupError::Ended)), "{ended:?}");
}

#[test]
fn a_role_is_taken_once() {
    let (ring, producer, _consumer) = named_ring(Duration::ZERO);
    let second = ring.producer().map(drop);
    assert!(
        matches!(second, Err(SetupError::RoleTaken { role: "producer" })),
        "{second:?}"
    );
    drop(producer);
    // The other side goes on, so the role stays taken.
    let second = ring.producer().map(drop);
    assert!(
        matches!(second, Err(SetupError::RoleTaken { .. })),
        "{second:?}"
    );
}

#[test]
fn a_ring_is_reused_by_a_new_session() {
    let ring = unused().create(true).persistent(true);
    for number in 0..5 {
        let mut producer = ring.producer().expect("no ring");
        let mut consumer = ring.consumer().expect("no ring");
        producer.send(&[number; 100]).expect("not sent");
        producer.send(&[number; 100]).expect("not sent");
        let mut room = [0; 100];
        assert_eq!(
            consumer.recv_into(&mut room).expect("not received"),
            Some(100)
        );
        assert_eq!(room, [number; 100]);
    }
    ring.unlink().expect("not unlinked");
}

#[test]
fn memory_cannot_be_bound_to_a_node_that_does_not_exist() {
    let ring = unused().create(true).numa_node(1023);
    let nowhere = ring.producer().map(drop);
    assert!(
        matches!(nowhere, Err(SetupError::NoSuchNode { node: 1023 })),
        "{nowhere:?}"
    );
}

#[test]
fn a_destroyed_name_can_be_used_again() {
    let (ring, producer, consumer) = named_ring(Duration::ZERO);
    let name = ring.channel().expect("an invalid name").name().to_string();
    destroy(&name);
    let again = ring.create(true).exclusive(true).producer();
    let again = again.expect("no ring");
    drop((producer, consumer, again));
}
