// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that are not what a ring's memory has to be.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, OFlags, SealFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use sluice::ring::{Options, SetupError, Socket};
use sluice_hostile::{DATA, Hello, Peer, SEALS, SIDE, UNSEALED, memfd, seal, verdict};

use crate::support::{CAPACITY, assert_error, consumer, producer, small};

fn consumer_gets(hello: Hello, files: &[BorrowedFd]) -> (Result<(), SetupError>, Option<u32>) {
    let (peer, socket) = Peer::pair();
    peer.say(&hello.bytes(), files).expect("not said");
    peer.say(&verdict(0), &[]).expect("not said");
    (consumer(socket), peer.last_verdict())
}

fn producer_gets(files: &[BorrowedFd]) -> (Result<(), SetupError>, Option<u32>) {
    let (peer, socket) = Peer::pair();
    peer.say(&Hello::consumer().bytes(), files)
        .expect("not said");
    peer.say(&verdict(0), &[]).expect("not said");
    (producer(socket), peer.last_verdict())
}

#[track_caller]
fn assert_unsafe((result, told): (Result<(), SetupError>, Option<u32>)) {
    assert_error(result, |error| matches!(error, SetupError::InvalidMemfd(_)));
    assert_eq!(told, Some(Errno::ACCESS.raw_os_error() as u32));
}

#[track_caller]
fn assert_no_ring((result, told): (Result<(), SetupError>, Option<u32>)) {
    assert_error(result, |error| {
        matches!(error, SetupError::ProtocolMismatch(_))
    });
    assert_eq!(told, Some(Errno::PROTO.raw_os_error() as u32));
}

fn sealed(bytes: u64) -> OwnedFd {
    let file = memfd(bytes);
    seal(&file, SEALS);
    file
}

const WHOLE: u64 = (DATA + CAPACITY) as u64;

#[test]
fn exactly_one_file_comes_with_a_greeting() {
    let files: Vec<OwnedFd> = (0..8).map(|_| sealed(WHOLE)).collect();
    let files: Vec<BorrowedFd> = files.iter().map(AsFd::as_fd).collect();
    for count in [0, 2, 3, 8] {
        assert_no_ring(consumer_gets(Hello::producer(CAPACITY), &files[..count]));
    }
    let files: Vec<OwnedFd> = (0..8).map(|_| sealed(SIDE as u64)).collect();
    let files: Vec<BorrowedFd> = files.iter().map(AsFd::as_fd).collect();
    for count in [0, 2, 3, 8] {
        assert_no_ring(producer_gets(&files[..count]));
    }
}

#[test]
fn a_verdict_comes_without_a_file() {
    let (peer, socket) = Peer::pair();
    let file = sealed(WHOLE);
    let hello = Hello::producer(CAPACITY).bytes();
    peer.say(&hello, &[file.as_fd()]).expect("not said");
    peer.say(&verdict(0), &[file.as_fd()]).expect("not said");
    assert_error(consumer(socket), |error| {
        matches!(error, SetupError::ProtocolMismatch(_))
    });
}

#[test]
fn what_is_no_memfd_is_refused() {
    let path = std::env::temp_dir().join(format!("sluice-hostile-{}", std::process::id()));
    let regular = File::create_new(&path).expect("no file");
    regular.set_len(WHOLE).expect("no such size");
    std::fs::remove_file(&path).expect("not removed");
    let (pipe, _end) = rustix::pipe::pipe().expect("no pipe");
    let zero = File::open("/dev/zero").expect("no /dev/zero");
    let directory = File::open("/").expect("no /");
    let (_, socket) = Peer::pair();
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
    let epoll = epoll.expect("no epoll");
    let memory = sealed(WHOLE);
    let path_only = rustix::fs::open(
        format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory)),
        OFlags::PATH | OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .expect("not opened");
    let files = [
        regular.as_fd(),
        pipe.as_fd(),
        zero.as_fd(),
        directory.as_fd(),
        socket.as_fd(),
        epoll.as_fd(),
        path_only.as_fd(),
    ];
    for file in files {
        assert_unsafe(consumer_gets(Hello::producer(CAPACITY), &[file]));
        assert_unsafe(producer_gets(&[file]));
    }
}

#[test]
fn every_seal_is_needed() {
    for lacking in SEALS.iter().chain([SEALS]) {
        for bytes in [WHOLE, SIDE as u64] {
            let file = memfd(bytes);
            seal(&file, SEALS.difference(lacking));
            let file = [file.as_fd()];
            assert_unsafe(match bytes {
                WHOLE => consumer_gets(Hello::producer(CAPACITY), &file),
                _ => producer_gets(&file),
            });
        }
    }
    let file = memfd_create("sluice-liar", MemfdFlags::CLOEXEC).expect("no memfd");
    ftruncate(&file, WHOLE).expect("no such size");
    assert_unsafe(consumer_gets(Hello::producer(CAPACITY), &[file.as_fd()]));
}

#[test]
fn more_seals_do_no_harm() {
    let file = memfd(WHOLE);
    seal(&file, SealFlags::WRITE);
    seal(&file, SEALS);
    let (result, told) = consumer_gets(Hello::producer(CAPACITY), &[file.as_fd()]);
    result.expect("no ring");
    assert_eq!(told, Some(0));
}

#[test]
fn another_size_than_was_told_is_refused() {
    for bytes in [0, 1, 4096, WHOLE - 1, WHOLE + 1, WHOLE + 4096, 1 << 40] {
        let file = sealed(bytes);
        assert_unsafe(consumer_gets(Hello::producer(CAPACITY), &[file.as_fd()]));
    }
    for bytes in [0, 1, 255, 257, 4096, 1 << 40] {
        assert_unsafe(producer_gets(&[sealed(bytes).as_fd()]));
    }
}

#[test]
fn a_file_that_cannot_be_read_is_refused() {
    let file = sealed(WHOLE);
    let write_only = rustix::fs::open(
        format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)),
        OFlags::WRONLY | OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .expect("not opened");
    assert_unsafe(consumer_gets(
        Hello::producer(CAPACITY),
        &[write_only.as_fd()],
    ));
}

/// Not a failure of this side, which allows it.
#[test]
fn a_sealed_file_that_is_said_to_be_unsealed_is_refused() {
    let file = sealed(WHOLE);
    let hello = Hello {
        flags: UNSEALED,
        ..Hello::producer(CAPACITY)
    };
    let (peer, socket) = Peer::pair();
    peer.say(&hello.bytes(), &[file.as_fd()]).expect("not said");
    peer.say(&verdict(0), &[]).expect("not said");
    let options = small().allow_unsealed(true);
    let result = options.consumer(Socket::from(socket)).map(drop);
    assert_unsafe((result, peer.last_verdict()));
}

/// Files are as long as they are said to be, and nothing is in them: whoever touched all of such a one would need the memory.
#[test]
fn data_far_behind_its_beginning_is_not_touched() {
    for data in [8192, 1 << 21, 1 << 30, 1 << 31_u32] {
        let file = sealed(u64::from(data) + CAPACITY as u64);
        let hello = Hello {
            data,
            ..Hello::producer(CAPACITY)
        };
        let (result, told) = consumer_gets(hello, &[file.as_fd()]);
        assert_error(result, |error| {
            matches!(
                error,
                SetupError::PeerCapacity(_) | SetupError::InvalidMemfd(_)
            )
        });
        assert!(matches!(told, Some(error) if error != 0), "{told:?}");
        let taken = rustix::fs::fstat(&file).expect("no file").st_blocks;
        assert_eq!(taken, 0, "blocks of a file of {data} bytes and more");
    }
}

/// What a producer that leaves its file open to writing says of a file of so large pages, and what a consumer that allows that finds.
fn unsealed(
    page: u32,
    flags: MemfdFlags,
    options: &Options,
) -> Option<(Result<(), SetupError>, Option<u32>)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags;
    let file = memfd_create("sluice-liar", flags).ok()?;
    let capacity = page.max(CAPACITY as u32);
    ftruncate(&file, u64::from(page + capacity)).expect("no such size");
    seal(&file, SEALS.difference(SealFlags::FUTURE_WRITE));
    let hello = Hello {
        data: page,
        flags: UNSEALED,
        ..Hello::producer(capacity as usize)
    };
    let (peer, socket) = Peer::pair();
    peer.say(&hello.bytes(), &[file.as_fd()]).expect("not said");
    peer.say(&verdict(0), &[]).expect("not said");
    let result = options.consumer(Socket::from(socket)).map(drop);
    Some((result, peer.last_verdict()))
}

#[test]
fn an_unsealed_file_needs_the_consumers_consent() {
    let heard = unsealed(DATA as u32, MemfdFlags::empty(), &small());
    assert_unsafe(heard.expect("no memfd"));
    let consents = small().allow_unsealed(true);
    let (result, told) = unsealed(DATA as u32, MemfdFlags::empty(), &consents).expect("no memfd");
    result.expect("no ring");
    assert_eq!(told, Some(0));
}

/// Its owner could punch a hole into it while it is read, and if no huge page is free then, the reader gets a SIGBUS.
#[test]
fn huge_pages_without_a_seal_against_writing_are_refused_in_any_case() {
    let flags = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    for options in [small(), small().allow_unsealed(true)] {
        match unsealed(2 << 20, flags, &options) {
            Some(heard) => assert_unsafe(heard),
            None => eprintln!("skipped: this kernel makes no files of huge pages"),
        }
    }
}

#[test]
fn huge_pages_that_are_not_there_are_an_error() {
    const HUGE: u64 = 2 << 20;
    let flags = MemfdFlags::CLOEXEC
        | MemfdFlags::ALLOW_SEALING
        | MemfdFlags::HUGETLB
        | MemfdFlags::HUGE_2MB;
    let file = match memfd_create("sluice-liar", flags) {
        Ok(file) => file,
        Err(errno) => {
            eprintln!("skipped: this kernel makes no files of huge pages ({errno})");
            return;
        }
    };
    ftruncate(&file, 2 * HUGE).expect("no such size");
    seal(&file, SEALS);
    let hello = Hello {
        data: HUGE as u32,
        ..Hello::producer(HUGE as usize)
    };
    let (result, told) = consumer_gets(hello, &[file.as_fd()]);
    match result {
        // Where there are free ones, the consumer has got them now.
        Ok(()) => assert_eq!(told, Some(0)),
        Err(SetupError::InvalidMemfd(_)) => {
            assert_eq!(told, Some(Errno::ACCESS.raw_os_error() as u32))
        }
        other => panic!("{other:?}"),
    }
    // As if its pages were normal: no such length can be had of huge ones.
    let (result, _) = consumer_gets(Hello::producer(HUGE as usize), &[file.as_fd()]);
    assert_error(result, |error| matches!(error, SetupError::InvalidMemfd(_)));
}
