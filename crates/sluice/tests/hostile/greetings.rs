// SPDX-License-Identifier: MIT OR Apache-2.0
//! Greetings and verdicts that are not as they should be.

use std::os::fd::AsFd;

use rustix::io::Errno;
use sluice::ring::SetupError;
use sluice_hostile::{DATA, Hello, Peer, SEALS, SIDE, memfd, seal, verdict};

use crate::support::{CAPACITY, assert_error, consumer, producer};

/// What an honest consumer says of this greeting, with a file that nothing is wrong with, and which verdict it gives.
fn consumer_hears(greeting: &[u8]) -> (Result<(), SetupError>, Option<u32>) {
    hears(greeting, DATA + CAPACITY, consumer)
}

/// As consumer_hears, of an honest producer.
fn producer_hears(greeting: &[u8]) -> (Result<(), SetupError>, Option<u32>) {
    hears(greeting, SIDE, producer)
}

fn hears(
    greeting: &[u8],
    bytes: usize,
    honest: fn(std::os::fd::OwnedFd) -> Result<(), SetupError>,
) -> (Result<(), SetupError>, Option<u32>) {
    let (peer, socket) = Peer::pair();
    let file = memfd(bytes as u64);
    seal(&file, SEALS);
    peer.say(greeting, &[file.as_fd()]).expect("not said");
    peer.say(&verdict(0), &[]).expect("not said");
    (honest(socket), peer.last_verdict())
}

#[track_caller]
fn assert_refused(
    (result, told): (Result<(), SetupError>, Option<u32>),
    errno: Errno,
    is: impl FnOnce(&SetupError) -> bool,
) {
    assert_error(result, is);
    assert_eq!(
        told,
        Some(errno.raw_os_error() as u32),
        "what the liar was told"
    );
}

#[test]
fn the_greetings_that_are_spoilt_here_are_good_at_first() {
    let (result, told) = consumer_hears(&Hello::producer(CAPACITY).bytes());
    result.expect("no ring");
    assert_eq!(told, Some(0));
    let (result, told) = producer_hears(&Hello::consumer().bytes());
    result.expect("no ring");
    assert_eq!(told, Some(0));
}

#[test]
fn another_magic_size_or_flag_is_no_greeting() {
    let spoils: [fn(&mut Hello); 8] = [
        |hello| hello.magic = 0,
        |hello| hello.magic = hello.magic.swap_bytes(),
        |hello| hello.size = 0,
        |hello| hello.size = 31,
        |hello| hello.size = 40,
        |hello| hello.size = u32::MAX,
        |hello| hello.flags = 0x04,
        |hello| hello.flags = 0x8000_0001,
    ];
    for spoil in spoils {
        let (mut sending, mut receiving) = (Hello::producer(CAPACITY), Hello::consumer());
        spoil(&mut sending);
        spoil(&mut receiving);
        for heard in [
            consumer_hears(&sending.bytes()),
            producer_hears(&receiving.bytes()),
        ] {
            assert_refused(heard, Errno::PROTO, |error| {
                matches!(error, SetupError::ProtocolMismatch(_))
            });
        }
    }
}

#[test]
fn another_version_is_named() {
    for version in [0, 2, u32::MAX] {
        let hello = Hello {
            version,
            ..Hello::producer(CAPACITY)
        };
        assert_refused(
            consumer_hears(&hello.bytes()),
            Errno::PROTONOSUPPORT,
            |error| matches!(error, SetupError::Version { theirs } if *theirs == version),
        );
    }
}

/// As long as it likes, with as many files, and with fields that mean something else.
#[test]
fn a_later_version_is_named_whatever_its_hello_is_like() {
    let mut hello = Hello::producer(CAPACITY);
    hello.version = 2;
    hello.size = 96;
    hello.role = 77;
    hello.flags = u32::MAX;
    let mut bytes = hello.bytes();
    for length in [12, 13, 31, 32, 33, 96, 4096] {
        bytes.resize(length, 0xff);
        let is = |error: &SetupError| matches!(error, SetupError::Version { theirs: 2 });
        assert_refused(consumer_hears(&bytes), Errno::PROTONOSUPPORT, is);
        assert_refused(producer_hears(&bytes), Errno::PROTONOSUPPORT, is);
    }
    let (peer, socket) = Peer::pair();
    peer.say(&hello.bytes(), &[]).expect("not said");
    assert_error(consumer(socket), |error| {
        matches!(error, SetupError::Version { theirs: 2 })
    });
}

#[test]
fn a_role_that_is_none_or_the_same_is_named() {
    for role in [0, 3, u32::MAX] {
        let hello = Hello {
            role,
            ..Hello::producer(CAPACITY)
        };
        assert_refused(consumer_hears(&hello.bytes()), Errno::PROTO, |error| {
            matches!(error, SetupError::ProtocolMismatch(_))
        });
    }
    let same = consumer_hears(&Hello::consumer().bytes());
    assert_refused(same, Errno::ALREADY, |error| {
        matches!(error, SetupError::RoleConflict { role: "consumer" })
    });
    let same = producer_hears(&Hello::producer(CAPACITY).bytes());
    assert_refused(same, Errno::ALREADY, |error| {
        matches!(error, SetupError::RoleConflict { role: "producer" })
    });
}

#[test]
fn a_greeting_of_another_length_is_none() {
    let whole = Hello::producer(CAPACITY).bytes();
    // The first eight bytes are what a verdict looks like.
    for length in (1..8).chain(9..whole.len()).chain([33, 40, 4096]) {
        let mut greeting = whole.clone();
        greeting.resize(length, 0);
        assert_refused(consumer_hears(&greeting), Errno::PROTO, |error| {
            matches!(error, SetupError::ProtocolMismatch(_))
        });
    }
}

#[test]
fn a_message_without_bytes_is_no_greeting_and_no_end_either() {
    assert_refused(consumer_hears(&[]), Errno::PROTO, |error| {
        matches!(error, SetupError::ProtocolMismatch(_))
    });
}

#[test]
fn capacities_that_cannot_be_are_named() {
    let too_large = [1 << 29, 1 << 40, 1 << 47, 1 << 63, u64::MAX];
    for capacity in [0, 1, 2048, 4095, 4097, 12288, (1 << 28) + 1]
        .into_iter()
        .chain(too_large)
    {
        let hello = Hello {
            capacity,
            ..Hello::producer(CAPACITY)
        };
        assert_refused(consumer_hears(&hello.bytes()), Errno::RANGE, |error| {
            matches!(error, SetupError::PeerCapacity(_))
        });
    }
}

/// The data is mapped twice in a row, by whole pages.
#[test]
fn a_capacity_of_less_than_a_page_is_named() {
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
            consumer_hears(&hello.bytes()),
            Errno::RANGE,
            |error| matches!(error, SetupError::PeerCapacity(invalid) if invalid.min == u64::from(data)),
        );
    }
}

#[test]
fn a_consumer_that_claims_data_is_refused() {
    for (data, capacity) in [(4096, 0), (0, 4096), (4096, 4096), (u32::MAX, u64::MAX)] {
        let hello = Hello {
            data,
            capacity,
            ..Hello::consumer()
        };
        assert_refused(producer_hears(&hello.bytes()), Errno::PROTO, |error| {
            matches!(error, SetupError::ProtocolMismatch(_))
        });
    }
}

#[test]
fn data_that_begins_nowhere_is_refused() {
    for data in [0, 1, 8, 255, 256, 2048, 4095, 4097, 12288, u32::MAX] {
        let hello = Hello {
            data,
            ..Hello::producer(CAPACITY)
        };
        assert_refused(consumer_hears(&hello.bytes()), Errno::PROTO, |error| {
            matches!(error, SetupError::ProtocolMismatch(_))
        });
    }
}

/// What an honest consumer makes of what comes after a good greeting.
fn consumer_is_told(verdict: &[u8]) -> Result<(), SetupError> {
    let (peer, socket) = Peer::pair();
    let file = memfd((DATA + CAPACITY) as u64);
    seal(&file, SEALS);
    peer.say(&Hello::producer(CAPACITY).bytes(), &[file.as_fd()])
        .expect("not said");
    peer.say(verdict, &[]).expect("not said");
    consumer(socket)
}

#[test]
fn any_number_in_a_verdict_is_a_refusal() {
    let known = [1, 13, 34, 71, 93, 114, 125];
    let absurd = [4095, 4096, 5000, 0xf000, 0xffff, 0x10000, 1 << 31, u32::MAX];
    for error in known.into_iter().chain(absurd) {
        assert_error(consumer_is_told(&verdict(error)), |error| {
            matches!(error, SetupError::Refused(_))
        });
    }
}

#[test]
fn garbage_in_place_of_a_verdict_is_named() {
    let mut other_magic = verdict(0);
    other_magic[0] ^= 1;
    let long = [verdict(0), vec![0]].concat();
    let greeting = Hello::producer(CAPACITY).bytes();
    for garbage in [
        &other_magic,
        &long,
        &greeting,
        &verdict(0)[..7].into(),
        &Vec::new(),
    ] {
        assert_error(consumer_is_told(garbage), |error| {
            matches!(error, SetupError::ProtocolMismatch(_))
        });
    }
}

#[test]
fn a_verdict_in_place_of_the_greeting_is_heard() {
    let (peer, socket) = Peer::pair();
    let stranger = Errno::PERM.raw_os_error() as u32;
    peer.say(&verdict(stranger), &[]).expect("not said");
    assert_error(
        consumer(socket),
        |error| matches!(error, SetupError::Refused(why) if why.contains("user")),
    );
    // One that agrees to nothing is nothing.
    let (peer, socket) = Peer::pair();
    peer.say(&verdict(0), &[]).expect("not said");
    assert_error(consumer(socket), |error| {
        matches!(error, SetupError::ProtocolMismatch(_))
    });
}
