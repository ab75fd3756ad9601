// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that its owner cannot take away any more.

use std::ffi::c_void;
use std::ptr;

use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate};
use rustix::io::{Errno, pwrite};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use sluice::ring::RecvError;
use sluice_hostile::{DATA, Memory, SIDE};

use crate::support::{CAPACITY, LONG, assert_error, lied_back, lied_to};

#[test]
fn a_liar_cannot_change_the_size_of_its_file() {
    let (liar, mut consumer) = lied_to();
    liar.send(0, b"record");
    for bytes in [0, 4096, (DATA + CAPACITY - 1) as u64, 1 << 30] {
        assert_eq!(ftruncate(&liar.file, bytes), Err(Errno::PERM));
    }
    let more = fallocate(&liar.file, FallocateFlags::empty(), 0, 1 << 20);
    assert_eq!(more, Err(Errno::PERM));
    assert_eq!(consumer.recv(&mut [0; 8]).expect("not there"), Some(6));
}

#[test]
fn a_liar_cannot_punch_holes_into_its_file() {
    let (liar, mut consumer) = lied_to();
    liar.send(0, b"record");
    let whole = (DATA + CAPACITY) as u64;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(fallocate(&liar.file, punch, 0, whole), Err(Errno::PERM));
    let page = ptr::from_ref(liar.memory.byte(DATA)).cast_mut();
    // SAFETY: what would be taken away is only ever used as atomics.
    let removed = unsafe { madvise(page.cast::<c_void>(), CAPACITY, Advice::LinuxRemove) };
    assert!(removed.is_err(), "{removed:?}");
    assert_eq!(consumer.recv(&mut [0; 8]).expect("not there"), Some(6));
}

#[test]
fn a_liar_cannot_take_a_seal_off_or_write_by_another_way() {
    let (liar, _consumer) = lied_to();
    let none = fcntl_add_seals(&liar.file, SealFlags::WRITE);
    assert_eq!(none, Err(Errno::PERM));
    assert_eq!(pwrite(&liar.file, b"x", 0), Err(Errno::PERM));
}

#[test]
fn a_liar_that_unmaps_and_closes_all_takes_nothing_away() {
    let (liar, mut consumer) = lied_to();
    liar.send(0, b"record");
    let sluice_hostile::LyingProducer {
        peer, file, memory, ..
    } = liar;
    drop(memory);
    drop(file);
    let mut room = [0; 8];
    assert_eq!(consumer.recv(&mut room).expect("not there"), Some(6));
    assert_error(consumer.try_recv(&mut room), |error| {
        matches!(error, RecvError::Empty)
    });
    drop(peer);
    assert_error(consumer.recv_timeout(&mut room, LONG), |error| {
        matches!(error, RecvError::PeerDied)
    });

    let (liar, mut producer) = lied_back();
    let sluice_hostile::LyingConsumer { peer, file, memory } = liar;
    drop(memory);
    drop(file);
    producer.send(b"into the void").expect("not sent");
    drop(peer);
}

#[test]
fn a_liar_that_maps_and_never_looks_changes_nothing() {
    let (liar, mut producer) = lied_back();
    let theirs = liar.theirs(CAPACITY);
    while producer.try_send(&[1; 500]).is_ok() {}
    drop(theirs);
    drop(producer);
}

/// Maps what the honest side sent, for writing.
fn for_writing(file: &impl std::os::fd::AsFd, bytes: usize) -> Result<(), Errno> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses a place where nothing is.
    let start = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0)? };
    // SAFETY: nobody was told of it.
    unsafe { munmap(start, bytes) }
}

#[test]
fn nobody_can_write_to_the_memory_of_the_honest_side() {
    let (liar, _consumer) = lied_to();
    let (_, files) = liar.peer.hear().expect("it said nothing");
    assert_eq!(for_writing(&files[0], SIDE), Err(Errno::PERM));
    assert_eq!(pwrite(&files[0], b"x", 0), Err(Errno::PERM));
    assert_eq!(ftruncate(&files[0], 0), Err(Errno::PERM));

    let (liar, _producer) = lied_back();
    let (_, files) = liar.peer.hear().expect("it said nothing");
    assert_eq!(for_writing(&files[0], DATA + CAPACITY), Err(Errno::PERM));
    assert_eq!(pwrite(&files[0], b"x", DATA as u64), Err(Errno::PERM));
    assert_eq!(ftruncate(&files[0], 0), Err(Errno::PERM));
    // It is not a mapping of its own that could be made writable later, either.
    let theirs = Memory::theirs(&files[0], DATA + CAPACITY);
    let start = ptr::from_ref(theirs.byte(0)).cast_mut().cast::<c_void>();
    let access = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
    // SAFETY: it is mapped, and used for nothing else.
    let writable = unsafe { rustix::mm::mprotect(start, DATA, access) };
    assert_eq!(writable, Err(Errno::ACCESS));
}
