// SPDX-License-Identifier: MIT OR Apache-2.0
//! A consumer of memory in which a producer of this process stands for the kernel.

use std::os::unix::net::UnixStream;
use std::thread;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use sluice_abi::feed;

use super::*;

struct Publisher {
    core: sluice_ring::Producer<Mapping>,
    sequence: u64,
}

impl Publisher {
    fn publish(&mut self, lost: u64, bytes: &[u8]) {
        let sequence = self.sequence + lost;
        self.sequence = sequence + 1;
        let header = [sequence, lost, 1_500, 7].map(u64::to_ne_bytes).concat();
        self.publish_record(&[&header[..], bytes].concat());
    }

    fn publish_record(&mut self, record: &[u8]) {
        let len = record.len() as u32;
        assert!(self.has_room(len));
        let at = self.core.reserve(len);
        let room = self.core.memory().bytes(at);
        // SAFETY: the room has the length of the record, and nobody else accesses it before it is published.
        unsafe { room.copy_from(std::ptr::NonNull::from(record).cast(), record.len()) };
        self.core.write(len);
        self.core.publish();
        self.core.prezero();
    }

    fn has_room(&mut self, len: u32) -> bool {
        self.core.has_room(len).unwrap()
    }

    fn end(&self, closed: u32) {
        let kernel = self.core.memory().producer();
        kernel.closed.store(closed, Ordering::Release);
    }
}

/// A consumer that never sleeps: its descriptor is a socket.
fn pair() -> (Publisher, Consumer) {
    let capacity = Capacity::at_least(1, page_size()).unwrap();
    let (page, bytes) = (page_size() as usize, capacity.bytes() as usize);
    let file = memfd_create("feed", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, 2 * page_size() + capacity.bytes()).unwrap();
    let region = |offset| Region::map(&file, offset, page, Access::ReadWrite).unwrap();
    let data = Region::map_mirrored(&file, 2 * page_size(), bytes, page, Access::ReadWrite);
    let producer = ProducerMemory {
        ctrl: region(0),
        data: data.unwrap(),
        capacity,
    };
    let mapping = Mapping::new(producer, region(page_size()));
    let (socket, _) = UnixStream::pair().unwrap();
    let consumer = Consumer {
        core: sluice_ring::Consumer::new(mapping.clone()),
        device: Device::new(socket.into()),
        process: SetupProcess::current(),
        spin: AdaptiveSpin::new(Duration::MAX),
        parker: Parker::acknowledging(false),
    };
    let publisher = Publisher {
        core: sluice_ring::Producer::new(mapping),
        sequence: 0,
    };
    (publisher, consumer)
}

#[test]
fn a_packet_has_its_header_and_its_bytes() {
    let (mut publisher, mut consumer) = pair();
    publisher.publish(0, b"first");
    publisher.publish(3, b"");
    let packet = consumer.recv().unwrap();
    let expected = Header::from_bytes(&[0; Header::LEN]);
    let time = Duration::from_nanos(1_500);
    assert_eq!(
        *packet,
        Header {
            time,
            cycles: 7,
            ..expected
        }
    );
    assert_eq!(packet.bytes().to_vec(), b"first");
    drop(packet);
    let packet = consumer.try_recv().unwrap();
    assert_eq!((packet.sequence, packet.lost), (4, 3));
    assert!(packet.bytes().is_empty());
    drop(packet);
    assert!(matches!(consumer.try_recv(), Err(RecvError::Empty)));
}

#[test]
fn a_dropped_packet_gives_its_room_back() {
    let (mut publisher, mut consumer) = pair();
    let len = consumer.core.memory().capacity().max_record_len();
    for _ in 0..100 {
        publisher.publish(0, &vec![1; len as usize - Header::LEN]);
        assert!(!publisher.has_room(len));
        let _ = consumer.recv().unwrap();
        assert!(publisher.has_room(len));
    }
}

#[test]
fn the_end_comes_after_all_packets() {
    for (closed, name) in [(ring::CLOSED, "Closed"), (ring::REJECTED, "Rejected")] {
        let (mut publisher, mut consumer) = pair();
        publisher.publish(0, b"last");
        assert!(!consumer.is_closed());
        publisher.end(closed);
        assert!(consumer.is_closed());
        assert_eq!(consumer.recv().unwrap().bytes().to_vec(), b"last");
        for _ in 0..2 {
            assert_eq!(format!("{:?}", consumer.recv().unwrap_err()), name);
            assert_eq!(format!("{:?}", consumer.try_recv().unwrap_err()), name);
        }
    }
}

#[cfg(feature = "tokio")]
#[test]
fn a_stream_yields_all_packets_and_ends_with_the_feed() {
    use std::future::poll_fn;
    use std::pin::Pin;

    use futures_core::Stream;

    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_io().build().unwrap();
    let (mut publisher, consumer) = pair();
    publisher.publish(0, b"first");
    publisher.publish(2, b"");
    publisher.end(ring::CLOSED);
    let received = runtime.block_on(async {
        let mut consumer = crate::feed::AsyncConsumer::new(consumer).unwrap();
        let mut received = Vec::new();
        while let Some(packet) = poll_fn(|cx| Pin::new(&mut consumer).poll_next(cx)).await {
            let (header, bytes) = packet.unwrap();
            received.push((header.sequence, header.lost, bytes));
        }
        received
    });
    assert_eq!(received, [(0, 0, b"first".to_vec()), (3, 2, vec![])]);
}

#[test]
fn a_wait_spins_until_a_packet_the_end_or_the_timeout() {
    let (mut publisher, mut consumer) = pair();
    let time = Duration::from_millis(2);
    let timeout = consumer.recv_timeout(time).map(drop);
    assert!(matches!(timeout, Err(RecvError::TimedOut(limit)) if limit == time));
    let thread = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        publisher.publish(0, b"late");
        thread::sleep(Duration::from_millis(5));
        publisher.end(ring::CLOSED);
    });
    assert_eq!(consumer.recv().unwrap().bytes().to_vec(), b"late");
    assert!(matches!(consumer.recv(), Err(RecvError::Closed)));
    thread.join().unwrap();
}

#[test]
fn a_record_without_a_header_is_invalid() {
    let (mut publisher, mut consumer) = pair();
    publisher.publish_record(&[0; feed::Packet::SIZE - 1]);
    let invalid = consumer.recv().map(drop);
    assert!(matches!(invalid, Err(RecvError::InvalidPacket { len: 31 })));
}

#[test]
fn a_wait_for_the_descriptor_is_prepared_only_without_a_packet_and_an_end() {
    let (mut publisher, mut consumer) = pair();
    assert!(consumer.prepare_wait().unwrap());
    consumer.finish_wait();
    publisher.publish(0, b"one");
    assert!(!consumer.prepare_wait().unwrap());
    consumer.finish_wait();
    drop(consumer.recv().unwrap());
    publisher.end(ring::CLOSED);
    assert!(!consumer.prepare_wait().unwrap());
}
