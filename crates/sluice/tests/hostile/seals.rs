// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sealed memory, which its owner can neither resize nor remove.

use std::ffi::c_void;
use std::ptr;

use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate};
use rustix::io::{Errno, pwrite};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use sluice::ring::RecvError;
use sluice_hostile::{CTRL_SIZE, DATA, MaliciousConsumer, MaliciousProducer, Memfd, Memory};

use super::support::{CAPACITY, LONG, assert_error, malicious_consumer, malicious_producer};

#[test]
fn a_malicious_peer_cannot_resize_its_file() {
    let (malicious, mut consumer) = malicious_producer();
    malicious.send(0, b"record");
    for bytes in [0, 4096, (DATA + CAPACITY - 1) as u64, 1 << 30] {
        assert_eq!(ftruncate(&malicious.carrier.file, bytes), Err(Errno::PERM));
    }
    let more = fallocate(&malicious.carrier.file, FallocateFlags::empty(), 0, 1 << 20);
    assert_eq!(more, Err(Errno::PERM));
    assert_eq!(
        consumer.recv_into(&mut [0; 8]).expect("not received"),
        Some(6)
    );
}

#[test]
fn a_malicious_peer_cannot_punch_holes_into_its_file() {
    let (malicious, mut consumer) = malicious_producer();
    malicious.send(0, b"record");
    let whole = (DATA + CAPACITY) as u64;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(
        fallocate(&malicious.carrier.file, punch, 0, whole),
        Err(Errno::PERM)
    );
    let page = ptr::from_ref(malicious.memory.byte(DATA)).cast_mut();
    // SAFETY: the bytes that it would remove are only accessed as atomics.
    let removed = unsafe { madvise(page.cast::<c_void>(), CAPACITY, Advice::LinuxRemove) };
    assert!(removed.is_err(), "{removed:?}");
    assert_eq!(
        consumer.recv_into(&mut [0; 8]).expect("not received"),
        Some(6)
    );
}

#[test]
fn a_malicious_peer_cannot_change_its_seals_or_write_with_pwrite() {
    let (malicious, _consumer) = malicious_producer();
    let added = fcntl_add_seals(&malicious.carrier.file, SealFlags::WRITE);
    assert_eq!(added, Err(Errno::PERM));
    assert_eq!(pwrite(&malicious.carrier.file, b"x", 0), Err(Errno::PERM));
}

#[test]
fn unmapping_and_closing_its_file_leaves_the_ring_usable() {
    let (malicious, mut consumer) = malicious_producer();
    malicious.send(0, b"record");
    let MaliciousProducer {
        carrier, memory, ..
    } = malicious;
    let Memfd { peer, file } = carrier;
    drop(memory);
    drop(file);
    let mut buffer = [0; 8];
    assert_eq!(
        consumer.recv_into(&mut buffer).expect("not received"),
        Some(6)
    );
    assert_error(consumer.try_recv_into(&mut buffer), |error| {
        matches!(error, RecvError::Empty)
    });
    drop(peer);
    assert_error(consumer.recv_into_timeout(&mut buffer, LONG), |error| {
        matches!(error, RecvError::PeerDied)
    });

    let (malicious, mut producer) = malicious_consumer();
    let MaliciousConsumer { carrier, memory } = malicious;
    let Memfd { peer, file } = carrier;
    drop(memory);
    drop(file);
    producer.send(b"record").expect("not sent");
    drop(peer);
}

#[test]
fn a_consumer_that_maps_without_reading_has_no_effect() {
    let (malicious, mut producer) = malicious_consumer();
    let producer_memory = malicious.map_producer(CAPACITY);
    while producer.try_send(&[1; 500]).is_ok() {}
    drop(producer_memory);
    drop(producer);
}

/// Tries to map a file for writing.
fn try_map_writable(file: &impl std::os::fd::AsFd, bytes: usize) -> Result<(), Errno> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses an unused address range.
    let start = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0)? };
    // SAFETY: nothing refers to the mapping.
    unsafe { munmap(start, bytes) }
}

#[test]
fn the_peer_cannot_write_to_the_memory_of_the_library() {
    let (malicious, _consumer) = malicious_producer();
    let (_, files) = malicious.carrier.peer.receive().expect("no hello");
    assert_eq!(try_map_writable(&files[0], CTRL_SIZE), Err(Errno::PERM));
    assert_eq!(pwrite(&files[0], b"x", 0), Err(Errno::PERM));
    assert_eq!(ftruncate(&files[0], 0), Err(Errno::PERM));

    let (malicious, _producer) = malicious_consumer();
    let (_, files) = malicious.carrier.peer.receive().expect("no hello");
    assert_eq!(
        try_map_writable(&files[0], DATA + CAPACITY),
        Err(Errno::PERM)
    );
    assert_eq!(pwrite(&files[0], b"x", DATA as u64), Err(Errno::PERM));
    assert_eq!(ftruncate(&files[0], 0), Err(Errno::PERM));
    // A read-only mapping cannot be made writable later.
    let producer_memory = Memory::map_read_only(&files[0], DATA + CAPACITY);
    let start = ptr::from_ref(producer_memory.byte(0))
        .cast_mut()
        .cast::<c_void>();
    let access = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
    // SAFETY: the range is mapped and not used otherwise.
    let writable = unsafe { rustix::mm::mprotect(start, DATA, access) };
    assert_eq!(writable, Err(Errno::ACCESS));
}
