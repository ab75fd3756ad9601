// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use arbitrary::Arbitrary;
use rustix::fs::SealFlags;
use sluice::ring::{Options, RecvError, SetupError, Socket};

use super::CAPACITY;
use crate::greeting::{Hello, verdict};
use crate::memory::{SEALS, memfd, seal};
use crate::socket::Peer;
use crate::{DATA, SIDE};

/// What one end says, all of it before the other end begins.
#[derive(Arbitrary, Debug)]
pub struct Meeting {
    honest_sends: bool,
    first: Saying,
    second: Option<Saying>,
    third: Option<Saying>,
    hangs_up: bool,
}

#[derive(Arbitrary, Debug)]
struct Saying {
    message: Message,
    files: Files,
}

#[derive(Arbitrary, Debug)]
enum Message {
    /// As it should be.
    Good,
    /// As it should be but for one field.
    Spoilt(Field, u64),
    Hello(Hello),
    Verdict(u32),
    Bytes(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
enum Field {
    Magic,
    Size,
    Version,
    Role,
    Flags,
    Data,
    Capacity,
}

#[derive(Arbitrary, Debug)]
enum Files {
    None,
    /// As long as the greeting says.
    Fitting,
    One(Memory),
    Two(Memory, Memory),
    Null,
}

#[derive(Arbitrary, Debug)]
struct Memory {
    length: Length,
    seals: u8,
}

#[derive(Arbitrary, Debug)]
enum Length {
    Any(u64),
    Side(i8),
    Whole(i8),
}

impl super::Scenario for Meeting {
    fn run(self) {
        let (peer, socket) = Peer::pair();
        let hello = self.first.hello(self.honest_sends);
        self.first.say(&peer, &hello, hello.bytes());
        for more in [&self.second, &self.third].into_iter().flatten() {
            more.say(&peer, &hello, verdict(0));
        }
        if self.hangs_up {
            peer.says_no_more();
        }
        let options = Options::new()
            .capacity(CAPACITY as u64)
            .handshake_timeout(Duration::ZERO);
        let socket = Socket::from(socket);
        match self.honest_sends {
            true => {
                if let Some(mut producer) = met(options.producer(socket)) {
                    producer.try_send(b"hello").map_or_else(gone, |()| ());
                }
            }
            false => {
                if let Some(mut consumer) = met(options.consumer(socket)) {
                    // All of its memory is there, to its end.
                    assert_eq!(consumer.capacity(), hello.capacity);
                    assert_eq!(consumer.pending(), 0);
                    match consumer.try_recv(&mut []) {
                        Err(RecvError::Empty) => {}
                        other => other.map_or_else(gone, |got| panic!("{got:?} of nothing")),
                    }
                }
            }
        }
    }
}

/// Of the errors, those that a peer can cause.
fn met<T>(side: Result<T, SetupError>) -> Option<T> {
    match side {
        Ok(side) => Some(side),
        Err(
            SetupError::ProtocolMismatch(_)
            | SetupError::Version { .. }
            | SetupError::RoleConflict { .. }
            | SetupError::InvalidMemfd(_)
            | SetupError::PeerCapacity(_)
            | SetupError::Refused(_)
            | SetupError::HandshakeTimeout(_)
            | SetupError::HandshakeAborted,
        ) => None,
        Err(other) => panic!("{other:?}"),
    }
}

fn gone(error: impl Into<io::Error>) {
    let error = error.into();
    let kinds = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    assert!(kinds.contains(&error.kind()), "{error:?}");
}

impl Saying {
    fn hello(&self, to_a_producer: bool) -> Hello {
        let good = match to_a_producer {
            true => Hello::consumer(),
            false => Hello::producer(CAPACITY),
        };
        match &self.message {
            Message::Hello(hello) => *hello,
            Message::Spoilt(field, value) => spoilt(good, field, *value),
            _ => good,
        }
    }

    fn say(&self, peer: &Peer, hello: &Hello, good: Vec<u8>) {
        let message = match &self.message {
            Message::Good => good,
            Message::Spoilt(..) | Message::Hello(_) => hello.bytes(),
            Message::Verdict(error) => verdict(*error),
            Message::Bytes(bytes) => bytes.clone(),
        };
        let files = self.files.open(hello, message.len() == hello.bytes().len());
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        peer.say(&message, &files).expect("the socket is full");
    }
}

fn spoilt(good: Hello, field: &Field, value: u64) -> Hello {
    let mut hello = good;
    match field {
        Field::Magic => hello.magic = value as u32,
        Field::Size => hello.size = value as u32,
        Field::Version => hello.version = value as u32,
        Field::Role => hello.role = value as u32,
        Field::Flags => hello.flags = value as u32,
        // Powers of two, which are the interesting ones, are seldom among arbitrary numbers.
        Field::Data => hello.data = 1_u32.rotate_left(value as u32) ^ (value >> 32) as u32,
        Field::Capacity => hello.capacity = 1_u64.rotate_left(value as u32) ^ (value >> 32),
    }
    hello
}

impl Files {
    fn open(&self, hello: &Hello, greets: bool) -> Vec<OwnedFd> {
        match self {
            Self::Fitting if greets => {
                let bytes = match hello.role {
                    1 => u64::from(hello.data).saturating_add(hello.capacity),
                    _ => SIDE as u64,
                };
                let file = memfd(bytes.min(1 << 62));
                seal(&file, SEALS);
                vec![file]
            }
            Self::None | Self::Fitting => Vec::new(),
            Self::One(one) => vec![one.make()],
            Self::Two(one, other) => vec![one.make(), other.make()],
            Self::Null => vec![File::open("/dev/null").expect("no /dev/null").into()],
        }
    }
}

impl Memory {
    fn make(&self) -> OwnedFd {
        let near = |length: usize, by: i8| (length as u64).saturating_add_signed(by.into());
        let file = memfd(match self.length {
            Length::Any(bytes) => bytes >> 2,
            Length::Side(by) => near(SIDE, by),
            Length::Whole(by) => near(DATA + CAPACITY, by),
        });
        // The five oldest; the bits that no seal has stand for all that a ring needs.
        let seals = match self.seals & 0xe0 {
            0 => SealFlags::from_bits_truncate(self.seals.into()),
            _ => SEALS,
        };
        seal(&file, seals);
        file
    }
}
