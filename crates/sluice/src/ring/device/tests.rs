// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both sides on memory of this process, with a descriptor on which every call of the module fails.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use sluice_abi::ring;
use sluice_ring::ProtocolViolation::EndHidden;
use sluice_ring::sync::Ordering;
use sluice_ring::{Capacity, Ctrl, Memory, Notifier, Parker};

use crate::ring::carrier::Carrier;
use crate::ring::connection::Connection;
use crate::ring::memfd::file::{self, Pages};
use crate::ring::options::SideOptions;
use crate::ring::role::Role;
use crate::ring::{Consumer, Producer, RecvError, Ring, SendError, SetupError};
use crate::shared::device::Device;
use crate::shared::mapping::{Mapping, ProducerMemory};
use crate::shared::region::{Access, Region, page_size};

fn no_endpoint() -> OwnedFd {
    File::open("/dev/null").unwrap().into()
}

fn memory() -> Mapping {
    let capacity = Capacity::at_least(1, page_size()).unwrap();
    let page = page_size() as usize;
    let file = file::create(page_size() + capacity.bytes(), Pages::Normal).unwrap();
    let other = file::create(page_size(), Pages::Normal).unwrap();
    let bytes = capacity.bytes() as usize;
    let producer = ProducerMemory {
        ctrl: Region::map(&file, 0, page, Access::ReadWrite).unwrap(),
        data: Region::map_mirrored(&file, page_size(), bytes, page, Access::ReadWrite).unwrap(),
        capacity,
    };
    let consumer = Region::map(&other, 0, page, Access::ReadWrite).unwrap();
    Mapping::new(producer, consumer)
}

fn connection(memory: &Mapping, role: Role, endpoint: OwnedFd) -> Connection {
    Connection::new(
        Carrier::Device(Device::new(endpoint)),
        memory.clone(),
        role,
        Parker::acknowledging(false),
        Notifier::expecting_announcement(false),
        &SideOptions {
            spin_limit: Duration::ZERO,
            ..SideOptions::default()
        },
    )
}

fn sides() -> (Mapping, Producer, Consumer) {
    sides_at([no_endpoint(), no_endpoint()])
}

fn sides_at([producer, consumer]: [OwnedFd; 2]) -> (Mapping, Producer, Consumer) {
    let memory = memory();
    let producer = Producer::new(connection(&memory, Role::Producer, producer));
    let consumer = Consumer::new(connection(&memory, Role::Consumer, consumer));
    (memory, producer, consumer)
}

/// A descriptor that reports the end of a peer.
fn hung_up() -> OwnedFd {
    let (here, there) = UnixStream::pair().unwrap();
    drop(there);
    here.into()
}

fn is_readable(own: &Ctrl, peer: &Ctrl) -> bool {
    peer.wake_seq.load(Ordering::Relaxed) != own.wake_ack.load(Ordering::Relaxed)
}

#[test]
fn a_wait_for_the_descriptor_ends_with_an_acknowledgement() {
    let (memory, mut producer, mut consumer) = sides();
    let (own, peer) = (memory.consumer(), memory.producer());
    for number in 0..3 {
        assert!(consumer.prepare_wait().unwrap());
        assert!(!is_readable(own, peer));
        producer.send(&[number]).unwrap();
        assert!(is_readable(own, peer));
        consumer.finish_wait();
        assert!(!is_readable(own, peer));
        assert_eq!(consumer.try_recv_into(&mut [0]).unwrap(), Some(1));
    }
}

#[test]
fn a_consumer_learns_from_the_page_how_the_producer_ended() {
    for (closed, end) in [
        (ring::CLOSED, None),
        (ring::DIED, Some("died")),
        (ring::DESTROYED, Some("destroyed")),
    ] {
        let (memory, mut producer, mut consumer) = sides();
        producer.send(b"last").unwrap();
        memory.producer().closed.store(closed, Ordering::Release);
        let mut room = [0; 4];
        assert_eq!(consumer.recv_into(&mut room).unwrap(), Some(4));
        let ended = consumer.recv_into(&mut room);
        match end {
            None => assert_eq!(ended.unwrap(), None),
            Some(word) => assert!(ended.unwrap_err().to_string().contains(word)),
        }
        assert!(consumer.is_closed());
    }
}

#[test]
fn a_producer_learns_from_the_page_how_the_consumer_ended() {
    for (closed, word) in [
        (ring::CLOSED, "closed"),
        (ring::DIED, "died"),
        (ring::DESTROYED, "destroyed"),
    ] {
        let (memory, mut producer, _consumer) = sides();
        producer.send(b"first").unwrap();
        memory.consumer().closed.store(closed, Ordering::Release);
        for error in [producer.flush(), producer.try_send(b"second")] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}

#[test]
fn a_drop_closes_an_abort_does_not_and_neither_hides_a_destruction() {
    let (memory, producer, consumer) = sides();
    drop(producer);
    consumer.abort();
    let closed = |ctrl: &Ctrl| ctrl.closed.load(Ordering::Relaxed);
    assert_eq!(closed(memory.producer()), ring::CLOSED);
    assert_eq!(closed(memory.consumer()), 0);
    let (memory, producer, _consumer) = sides();
    let destroyed = ring::DESTROYED;
    memory.producer().closed.store(destroyed, Ordering::Relaxed);
    drop(producer);
    assert_eq!(closed(memory.producer()), destroyed);
}

#[test]
fn an_end_that_the_control_page_hides_is_a_violation() {
    let (memory, mut producer, mut consumer) = sides_at([hung_up(), hung_up()]);
    assert!(consumer.prepare_wait().unwrap());
    consumer.finish_wait();
    assert!(consumer.is_closed());
    let is_violation = |error: &RecvError| matches!(error, RecvError::ProtocolViolation(EndHidden));
    assert!(consumer.try_recv().is_err_and(|error| is_violation(&error)));
    assert!(
        consumer
            .prepare_wait()
            .is_err_and(|error| is_violation(&error))
    );

    while producer.try_send(&[0; 1000]).is_ok() {}
    assert!(producer.prepare_wait(1000).unwrap());
    producer.finish_wait();
    let sent = producer.send(&[0; 1000]);
    assert!(
        matches!(sent, Err(SendError::ProtocolViolation(EndHidden))),
        "{sent:?}"
    );
    // What the consumer stores later does not matter.
    let published = memory.producer().pos.load(Ordering::Relaxed);
    memory.consumer().pos.store(published, Ordering::Release);
    let sent = producer.try_send(&[]);
    assert!(
        matches!(sent, Err(SendError::ProtocolViolation(EndHidden))),
        "{sent:?}"
    );
}

#[test]
fn an_end_that_one_of_the_control_pages_contains_is_not_hidden() {
    let (memory, _producer, mut consumer) = sides_at([hung_up(), hung_up()]);
    assert!(consumer.prepare_wait().unwrap());
    memory
        .producer()
        .closed
        .store(ring::CLOSED, Ordering::Release);
    consumer.finish_wait();
    assert_eq!(consumer.try_recv_into(&mut []).unwrap(), None);

    let (memory, _producer, mut consumer) = sides_at([hung_up(), hung_up()]);
    assert!(consumer.prepare_wait().unwrap());
    let destroyed = ring::DESTROYED;
    memory.consumer().closed.store(destroyed, Ordering::Release);
    consumer.finish_wait();
    let ended = consumer.try_recv_into(&mut []);
    assert!(matches!(ended, Err(RecvError::Destroyed)), "{ended:?}");
}

#[test]
fn a_failed_query_of_the_peer_is_an_error() {
    let (_memory, producer, consumer) = sides();
    assert!(producer.has_consumer().is_err());
    assert!(consumer.has_producer().is_err());
}

#[test]
fn a_failed_wait_is_an_error() {
    let (_memory, mut producer, mut consumer) = sides();
    let failed = consumer.recv_into(&mut []);
    assert!(matches!(failed, Err(RecvError::System(_))), "{failed:?}");
    while producer.try_send(&[0; 100]).is_ok() {}
    let failed = producer.send(&[0; 100]);
    assert!(matches!(failed, Err(SendError::System(_))), "{failed:?}");
}

#[test]
fn only_an_endpoint_of_a_ring_can_be_attached() {
    for fd in [
        no_endpoint(),
        file::create(page_size(), Pages::Normal).unwrap(),
    ] {
        let copy = fd.as_fd().try_clone_to_owned().unwrap();
        for error in [
            Ring::attach().producer(fd).map(drop),
            Ring::attach().consumer(copy).map(drop),
        ] {
            assert!(matches!(error, Err(SetupError::NotAnEndpoint)), "{error:?}");
        }
    }
}

#[test]
fn invalid_values_are_rejected_before_the_open() {
    let error = Ring::named("frames").capacity(0).producer();
    assert!(
        matches!(error, Err(SetupError::InvalidCapacity(_))),
        "{error:?}"
    );
    let error = Ring::named("frames").numa_node(u32::MAX).consumer();
    assert!(
        matches!(error, Err(SetupError::NoSuchNode { node: u32::MAX })),
        "{error:?}"
    );
}
