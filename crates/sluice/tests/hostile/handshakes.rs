// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invalid hellos and replies.

use std::os::fd::AsFd;

use rustix::io::Errno;
use sluice::ring::SetupError;
use sluice_hostile::{CTRL_SIZE, DATA, Hello, Peer, SEALS, memfd, reply, seal};

use super::carrier::{consumer, producer};
use super::support::{CAPACITY, assert_error};

/// The result of a consumer that receives this hello with a valid file, and the error number in its reply.
fn consumer_result(hello: &[u8]) -> (Result<(), SetupError>, Option<u32>) {
    handshake_result(hello, DATA + CAPACITY, consumer)
}

/// As consumer_result, for a producer.
fn producer_result(hello: &[u8]) -> (Result<(), SetupError>, Option<u32>) {
    handshake_result(hello, CTRL_SIZE, producer)
}

fn handshake_result(
    hello: &[u8],
    file_size: usize,
    connect: fn(std::os::fd::OwnedFd) -> Result<(), SetupError>,
) -> (Result<(), SetupError>, Option<u32>) {
    let (peer, socket) = Peer::pair();
    let file = memfd(file_size as u64);
    seal(&file, SEALS);
    peer.send(hello, &[file.as_fd()]).expect("not sent");
    peer.send(&reply(0), &[]).expect("not sent");
    (connect(socket), peer.last_reply())
}

#[track_caller]
fn assert_refused(
    (result, reply_error): (Result<(), SetupError>, Option<u32>),
    errno: Errno,
    is: impl FnOnce(&SetupError) -> bool,
) {
    assert_error(result, is);
    assert_eq!(
        reply_error,
        Some(errno.raw_os_error() as u32),
        "error number in the reply"
    );
}

#[test]
fn unmodified_hellos_are_accepted() {
    let (result, reply_error) = consumer_result(&Hello::producer(CAPACITY).bytes());
    result.expect("handshake failed");
    assert_eq!(reply_error, Some(0));
    let (result, reply_error) = producer_result(&Hello::consumer().bytes());
    result.expect("handshake failed");
    assert_eq!(reply_error, Some(0));
}

#[test]
fn an_invalid_magic_size_or_flag_is_refused() {
    let changes: [fn(&mut Hello); 8] = [
        |hello| hello.magic = 0,
        |hello| hello.magic = hello.magic.swap_bytes(),
        |hello| hello.size = 0,
        |hello| hello.size = 31,
        |hello| hello.size = 40,
        |hello| hello.size = u32::MAX,
        |hello| hello.flags = 0x04,
        |hello| hello.flags = 0x8000_0001,
    ];
    for change in changes {
        let (mut sending, mut receiving) = (Hello::producer(CAPACITY), Hello::consumer());
        change(&mut sending);
        change(&mut receiving);
        for result in [
            consumer_result(&sending.bytes()),
            producer_result(&receiving.bytes()),
        ] {
            assert_refused(result, Errno::PROTO, |error| {
                matches!(error, SetupError::ProtocolMismatch(_))
            });
        }
    }
}

#[test]
fn another_version_is_reported() {
    for version in [0, 2, u32::MAX] {
        let hello = Hello {
            version,
            ..Hello::producer(CAPACITY)
        };
        assert_refused(
            consumer_result(&hello.bytes()),
            Errno::PROTONOSUPPORT,
            |error| matches!(error, SetupError::Version { theirs } if *theirs == version),
        );
    }
}

/// A later version may change the length of the hello, the number of files and the meaning of the fields.
#[test]
fn a_later_version_is_reported_whatever_its_hello_contains() {
    let mut hello = Hello::producer(CAPACITY);
    hello.version = 2;
    hello.size = 96;
    hello.role = 77;
    hello.flags = u32::MAX;
    let mut bytes = hello.bytes();
    for length in [12, 13, 31, 32, 33, 96, 4096] {
        bytes.resize(length, 0xff);
        let is = |error: &SetupError| matches!(error, SetupError::Version { theirs: 2 });
        assert_refused(consumer_result(&bytes), Errno::PROTONOSUPPORT, is);
        assert_refused(producer_result(&bytes), Errno::PROTONOSUPPORT, is);
    }
    let (peer, socket) = Peer::pair();
    peer.send(&hello.bytes(), &[]).expect("not sent");
    assert_error(consumer(socket), |error| {
        matches!(error, SetupError::Version { theirs: 2 })
    });
}

#[test]
fn an_unknown_or_equal_role_is_reported() {
    for role in [0, 3, u32::MAX] {
        let hello = Hello {
            role,
            ..Hello::producer(CAPACITY)
        };
        assert_refused(consumer_result(&hello.bytes()), Errno::PROTO, |error| {
            matches!(error, SetupError::ProtocolMismatch(_))
        });
    }
    let same = consumer_result(&Hello::consumer().bytes());
    assert_refused(same, Errno::ALREADY, |error| {
        matches!(error, SetupError::RoleConflict { role: "consumer" })
    });
    let same = producer_result(&Hello::producer(CAPACITY).bytes());
    assert_refused(same, Errno::ALREADY, |error| {
        matches!(error, SetupError::RoleConflict { role: "producer" })
    });
}

#[test]
fn a_hello_of_another_length_is_refused() {
    let whole = Hello::producer(CAPACITY).bytes();
    // A message of 8 bytes is a reply.
    for length in (1..8).chain(9..whole.len()).chain([33, 40, 4096]) {
        let mut hello = whole.clone();
        hello.resize(length, 0);
        assert_refused(consumer_result(&hello), Errno::PROTO, |error| {
            matches!(error, SetupError::ProtocolMismatch(_))
        });
    }
}

#[test]
fn an_empty_message_is_neither_a_hello_nor_a_hang_up() {
    assert_refused(consumer_result(&[]), Errno::PROTO, |error| {
        matches!(error, SetupError::ProtocolMismatch(_))
    });
}

#[test]
fn invalid_capacities_are_reported() {
    let too_large = [1 << 29, 1 << 40, 1 << 47, 1 << 63, u64::MAX];
    for capacity in [0, 1, 2048, 4095, 4097, 12288, (1 << 28) + 1]
        .into_iter()
        .chain(too_large)
    {
        let hello = Hello {
            capacity,
            ..Hello::producer(CAPACITY)
        };
        assert_refused(consumer_result(&hello.bytes()), Errno::RANGE, |error| {
            matches!(error, SetupError::PeerCapacity(_))
        });
    }
}

/// The data is mapped twice in a row, which requires whole pages.
#[test]
fn a_capacity_below_the_page_size_is_reported() {
    for (data, capacity) in [
        (8192, 4096),
        (65_536, 4096),
        (65_536, 32_768),
        (2 << 20, 1 << 20),
    ] {
        let hello = Hello {
            data,
            ..Hello::producer(capacity)
        };
        assert_refused(
            consumer_result(&hello.bytes()),
            Errno::RANGE,
            |error| matches!(error, SetupError::PeerCapacity(invalid) if invalid.min == u64::from(data)),
        );
    }
}

#[test]
fn a_consumer_with_data_is_refused() {
    for (data, capacity) in [(4096, 0), (0, 4096), (4096, 4096), (u32::MAX, u64::MAX)] {
        let hello = Hello {
            data,
            capacity,
            ..Hello::consumer()
        };
        assert_refused(producer_result(&hello.bytes()), Errno::PROTO, |error| {
            matches!(error, SetupError::ProtocolMismatch(_))
        });
    }
}

#[test]
fn an_invalid_data_offset_is_refused() {
    for data in [0, 1, 8, 255, 256, 2048, 4095, 4097, 12288, u32::MAX] {
        let hello = Hello {
            data,
            ..Hello::producer(CAPACITY)
        };
        assert_refused(consumer_result(&hello.bytes()), Errno::PROTO, |error| {
            matches!(error, SetupError::ProtocolMismatch(_))
        });
    }
}

/// The result of a consumer that receives a valid hello and then this message.
fn consumer_result_of_reply(message: &[u8]) -> Result<(), SetupError> {
    let (peer, socket) = Peer::pair();
    let file = memfd((DATA + CAPACITY) as u64);
    seal(&file, SEALS);
    peer.send(&Hello::producer(CAPACITY).bytes(), &[file.as_fd()])
        .expect("not sent");
    peer.send(message, &[]).expect("not sent");
    consumer(socket)
}

#[test]
fn any_error_number_in_a_reply_is_a_refusal() {
    let known = [1, 13, 34, 71, 93, 114, 125];
    let undefined = [4095, 4096, 5000, 0xf000, 0xffff, 0x10000, 1 << 31, u32::MAX];
    for error in known.into_iter().chain(undefined) {
        assert_error(consumer_result_of_reply(&reply(error)), |error| {
            matches!(error, SetupError::Refused(_) | SetupError::NotAllowedByPeer)
        });
    }
}

#[test]
fn an_invalid_reply_is_reported() {
    let mut other_magic = reply(0);
    other_magic[0] ^= 1;
    let long = [reply(0), vec![0]].concat();
    let hello = Hello::producer(CAPACITY).bytes();
    for invalid in [
        &other_magic,
        &long,
        &hello,
        &reply(0)[..7].into(),
        &Vec::new(),
    ] {
        assert_error(consumer_result_of_reply(invalid), |error| {
            matches!(error, SetupError::ProtocolMismatch(_))
        });
    }
}

#[test]
fn a_reply_in_place_of_the_hello_is_received() {
    let (peer, socket) = Peer::pair();
    let not_permitted = Errno::PERM.raw_os_error() as u32;
    peer.send(&reply(not_permitted), &[]).expect("not sent");
    assert_error(consumer(socket), |error| {
        matches!(error, SetupError::NotAllowedByPeer)
    });
    // A reply without an error is invalid in place of a hello.
    let (peer, socket) = Peer::pair();
    peer.send(&reply(0), &[]).expect("not sent");
    assert_error(consumer(socket), |error| {
        matches!(error, SetupError::ProtocolMismatch(_))
    });
}
