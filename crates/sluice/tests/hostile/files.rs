// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that do not meet the requirements for a ring's memory.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, OFlags, SealFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use sluice::ring::{SetupError, Socket, SocketOptions};
use sluice_hostile::{CTRL_SIZE, DATA, Hello, Peer, SEALS, UNSEALED, memfd, reply, seal};

use super::carrier::{consumer, producer};
use super::support::{CAPACITY, assert_error, small};

/// The result of a consumer that receives this hello with these files, and the error number in its reply.
fn consumer_result(hello: Hello, files: &[BorrowedFd]) -> (Result<(), SetupError>, Option<u32>) {
    let (peer, socket) = Peer::pair();
    peer.send(&hello.bytes(), files).expect("not sent");
    peer.send(&reply(0), &[]).expect("not sent");
    (consumer(socket), peer.last_reply())
}

/// As consumer_result, for a producer that receives a valid hello.
fn producer_result(files: &[BorrowedFd]) -> (Result<(), SetupError>, Option<u32>) {
    let (peer, socket) = Peer::pair();
    peer.send(&Hello::consumer().bytes(), files)
        .expect("not sent");
    peer.send(&reply(0), &[]).expect("not sent");
    (producer(socket), peer.last_reply())
}

#[track_caller]
fn assert_invalid_memfd((result, reply_error): (Result<(), SetupError>, Option<u32>)) {
    assert_error(result, |error| matches!(error, SetupError::InvalidMemfd(_)));
    assert_eq!(reply_error, Some(Errno::ACCESS.raw_os_error() as u32));
}

#[track_caller]
fn assert_protocol_mismatch((result, reply_error): (Result<(), SetupError>, Option<u32>)) {
    assert_error(result, |error| {
        matches!(error, SetupError::ProtocolMismatch(_))
    });
    assert_eq!(reply_error, Some(Errno::PROTO.raw_os_error() as u32));
}

fn sealed(bytes: u64) -> OwnedFd {
    let file = memfd(bytes);
    seal(&file, SEALS);
    file
}

const PRODUCER_FILE_SIZE: u64 = (DATA + CAPACITY) as u64;

#[test]
fn a_hello_has_exactly_one_file() {
    let files: Vec<OwnedFd> = (0..8).map(|_| sealed(PRODUCER_FILE_SIZE)).collect();
    let files: Vec<BorrowedFd> = files.iter().map(AsFd::as_fd).collect();
    for count in [0, 2, 3, 8] {
        assert_protocol_mismatch(consumer_result(Hello::producer(CAPACITY), &files[..count]));
    }
    let files: Vec<OwnedFd> = (0..8).map(|_| sealed(CTRL_SIZE as u64)).collect();
    let files: Vec<BorrowedFd> = files.iter().map(AsFd::as_fd).collect();
    for count in [0, 2, 3, 8] {
        assert_protocol_mismatch(producer_result(&files[..count]));
    }
}

#[test]
fn a_reply_with_a_file_is_refused() {
    let (peer, socket) = Peer::pair();
    let file = sealed(PRODUCER_FILE_SIZE);
    let hello = Hello::producer(CAPACITY).bytes();
    peer.send(&hello, &[file.as_fd()]).expect("not sent");
    peer.send(&reply(0), &[file.as_fd()]).expect("not sent");
    assert_error(consumer(socket), |error| {
        matches!(error, SetupError::ProtocolMismatch(_))
    });
}

#[test]
fn files_other_than_memfds_are_refused() {
    let path = std::env::temp_dir().join(format!("sluice-hostile-{}", std::process::id()));
    let regular = File::create_new(&path).expect("no file");
    regular.set_len(PRODUCER_FILE_SIZE).expect("not resized");
    std::fs::remove_file(&path).expect("not removed");
    let (pipe, _end) = rustix::pipe::pipe().expect("no pipe");
    let zero = File::open("/dev/zero").expect("no /dev/zero");
    let directory = File::open("/").expect("no /");
    let (_, socket) = Peer::pair();
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
    let epoll = epoll.expect("no epoll");
    let memory = sealed(PRODUCER_FILE_SIZE);
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
        assert_invalid_memfd(consumer_result(Hello::producer(CAPACITY), &[file]));
        assert_invalid_memfd(producer_result(&[file]));
    }
}

#[test]
fn every_seal_is_required() {
    for missing in SEALS.iter().chain([SEALS]) {
        for bytes in [PRODUCER_FILE_SIZE, CTRL_SIZE as u64] {
            let file = memfd(bytes);
            seal(&file, SEALS.difference(missing));
            let file = [file.as_fd()];
            assert_invalid_memfd(match bytes {
                PRODUCER_FILE_SIZE => consumer_result(Hello::producer(CAPACITY), &file),
                _ => producer_result(&file),
            });
        }
    }
    let file = memfd_create("sluice-malicious", MemfdFlags::CLOEXEC).expect("no memfd");
    ftruncate(&file, PRODUCER_FILE_SIZE).expect("not resized");
    assert_invalid_memfd(consumer_result(Hello::producer(CAPACITY), &[file.as_fd()]));
}

#[test]
fn additional_seals_are_accepted() {
    let file = memfd(PRODUCER_FILE_SIZE);
    seal(&file, SealFlags::WRITE);
    seal(&file, SEALS);
    let (result, reply_error) = consumer_result(Hello::producer(CAPACITY), &[file.as_fd()]);
    result.expect("handshake failed");
    assert_eq!(reply_error, Some(0));
}

#[test]
fn a_size_other_than_announced_is_refused() {
    for bytes in [
        0,
        1,
        4096,
        PRODUCER_FILE_SIZE - 1,
        PRODUCER_FILE_SIZE + 1,
        PRODUCER_FILE_SIZE + 4096,
        1 << 40,
    ] {
        let file = sealed(bytes);
        assert_invalid_memfd(consumer_result(Hello::producer(CAPACITY), &[file.as_fd()]));
    }
    for bytes in [0, 1, 255, 257, 4096, 1 << 40] {
        assert_invalid_memfd(producer_result(&[sealed(bytes).as_fd()]));
    }
}

#[test]
fn a_write_only_file_is_refused() {
    let file = sealed(PRODUCER_FILE_SIZE);
    let write_only = rustix::fs::open(
        format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)),
        OFlags::WRONLY | OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .expect("not opened");
    assert_invalid_memfd(consumer_result(
        Hello::producer(CAPACITY),
        &[write_only.as_fd()],
    ));
}

/// The consumer allows unsealed files, so the refusal is for the wrong flag.
#[test]
fn a_sealed_file_announced_as_unsealed_is_refused() {
    let file = sealed(PRODUCER_FILE_SIZE);
    let hello = Hello {
        flags: UNSEALED,
        ..Hello::producer(CAPACITY)
    };
    let (peer, socket) = Peer::pair();
    peer.send(&hello.bytes(), &[file.as_fd()])
        .expect("not sent");
    peer.send(&reply(0), &[]).expect("not sent");
    let options = small().allow_unsealed(true);
    let result = options.consumer(Socket::from(socket)).map(drop);
    assert_invalid_memfd((result, peer.last_reply()));
}

/// The files have the announced size and no pages. Prefaulting one before it is validated would allocate all of its memory.
#[test]
fn a_large_data_offset_allocates_no_memory() {
    for data in [8192, 1 << 21, 1 << 30, 1 << 31_u32] {
        let file = sealed(u64::from(data) + CAPACITY as u64);
        let hello = Hello {
            data,
            ..Hello::producer(CAPACITY)
        };
        let (result, reply_error) = consumer_result(hello, &[file.as_fd()]);
        assert_error(result, |error| {
            matches!(
                error,
                SetupError::PeerCapacity(_) | SetupError::InvalidMemfd(_)
            )
        });
        assert!(
            matches!(reply_error, Some(error) if error != 0),
            "{reply_error:?}"
        );
        let blocks = rustix::fs::fstat(&file).expect("no file").st_blocks;
        assert_eq!(blocks, 0, "data at {data}");
    }
}

/// The result of a consumer with these options for an unsealed file with pages of this size, and the error number in its reply.
fn unsealed_result(
    page: u32,
    flags: MemfdFlags,
    options: &SocketOptions,
) -> Option<(Result<(), SetupError>, Option<u32>)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags;
    let file = memfd_create("sluice-malicious", flags).ok()?;
    let capacity = page.max(CAPACITY as u32);
    ftruncate(&file, u64::from(page + capacity)).expect("not resized");
    seal(&file, SEALS.difference(SealFlags::FUTURE_WRITE));
    let hello = Hello {
        data: page,
        flags: UNSEALED,
        ..Hello::producer(capacity as usize)
    };
    let (peer, socket) = Peer::pair();
    peer.send(&hello.bytes(), &[file.as_fd()])
        .expect("not sent");
    peer.send(&reply(0), &[]).expect("not sent");
    let result = options.consumer(Socket::from(socket)).map(drop);
    Some((result, peer.last_reply()))
}

#[test]
fn an_unsealed_file_needs_the_consumers_consent() {
    let result = unsealed_result(DATA as u32, MemfdFlags::empty(), &small());
    assert_invalid_memfd(result.expect("no memfd"));
    let options = small().allow_unsealed(true);
    let (result, reply_error) =
        unsealed_result(DATA as u32, MemfdFlags::empty(), &options).expect("no memfd");
    result.expect("handshake failed");
    assert_eq!(reply_error, Some(0));
}

/// The owner could punch a hole into the file, and the reader would get a SIGBUS if no huge page is free then.
#[test]
fn unsealed_huge_pages_are_always_refused() {
    let flags = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    for options in [small(), small().allow_unsealed(true)] {
        match unsealed_result(2 << 20, flags, &options) {
            Some(result) => assert_invalid_memfd(result),
            None => eprintln!("skipped: this kernel does not support memfds of huge pages"),
        }
    }
}

#[test]
fn unavailable_huge_pages_are_an_error() {
    const HUGE: u64 = 2 << 20;
    let flags = MemfdFlags::CLOEXEC
        | MemfdFlags::ALLOW_SEALING
        | MemfdFlags::HUGETLB
        | MemfdFlags::HUGE_2MB;
    let file = match memfd_create("sluice-malicious", flags) {
        Ok(file) => file,
        Err(errno) => {
            eprintln!("skipped: this kernel does not support memfds of huge pages ({errno})");
            return;
        }
    };
    ftruncate(&file, 2 * HUGE).expect("not resized");
    seal(&file, SEALS);
    let hello = Hello {
        data: HUGE as u32,
        ..Hello::producer(HUGE as usize)
    };
    let (result, reply_error) = consumer_result(hello, &[file.as_fd()]);
    match result {
        // There were free huge pages, and the consumer has prefaulted them.
        Ok(()) => assert_eq!(reply_error, Some(0)),
        Err(SetupError::InvalidMemfd(_)) => {
            assert_eq!(reply_error, Some(Errno::ACCESS.raw_os_error() as u32))
        }
        other => panic!("{other:?}"),
    }
    // A hello for 4 KiB pages announces a size that a file of huge pages cannot have.
    let (result, _) = consumer_result(Hello::producer(HUGE as usize), &[file.as_fd()]);
    assert_error(result, |error| matches!(error, SetupError::InvalidMemfd(_)));
}
