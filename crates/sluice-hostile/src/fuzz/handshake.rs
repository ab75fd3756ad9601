// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use arbitrary::Arbitrary;
use rustix::fs::SealFlags;
use sluice::ring::{RecvError, SetupError, Socket, SocketOptions};

use super::CAPACITY;
use crate::handshake::{Hello, reply};
use crate::memory::{SEALS, memfd, seal};
use crate::socket::Peer;
use crate::{CTRL_SIZE, DATA};

/// The messages of one end. All are sent before the library starts its handshake.
#[derive(Arbitrary, Debug)]
pub struct HandshakeInput {
    to_producer: bool,
    first: SentMessage,
    second: Option<SentMessage>,
    third: Option<SentMessage>,
    shuts_down: bool,
}

#[derive(Arbitrary, Debug)]
struct SentMessage {
    message: Message,
    files: Files,
}

#[derive(Arbitrary, Debug)]
enum Message {
    Valid,
    /// A valid hello with one field changed.
    Modified(Field, u64),
    Hello(Hello),
    Reply(u32),
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
    /// A file of the announced size, with a hello only.
    Matching,
    One(Memfd),
    Two(Memfd, Memfd),
    Null,
}

#[derive(Arbitrary, Debug)]
struct Memfd {
    length: Length,
    seals: u8,
}

#[derive(Arbitrary, Debug)]
enum Length {
    Any(u64),
    /// Relative to the size of a consumer's file.
    NearConsumer(i8),
    /// Relative to the size of a producer's file.
    NearProducer(i8),
}

impl super::FuzzInput for HandshakeInput {
    fn run(self) {
        let (peer, socket) = Peer::pair();
        let hello = self.first.hello(self.to_producer);
        self.first.send(&peer, &hello, hello.bytes());
        for message in [&self.second, &self.third].into_iter().flatten() {
            message.send(&peer, &hello, reply(0));
        }
        if self.shuts_down {
            peer.shutdown();
        }
        let options = SocketOptions::new()
            .capacity(CAPACITY as u64)
            .handshake_timeout(Duration::ZERO);
        let socket = Socket::from(socket);
        match self.to_producer {
            true => {
                if let Some(mut producer) = accepted(options.producer(socket)) {
                    producer
                        .try_send(b"hello")
                        .map_or_else(assert_hang_up, |()| ());
                }
            }
            false => {
                if let Some(mut consumer) = accepted(options.consumer(socket)) {
                    assert_eq!(consumer.capacity(), hello.capacity);
                    assert_eq!(consumer.pending(), 0);
                    match consumer.try_recv_into(&mut []) {
                        Err(RecvError::Empty) => {}
                        other => other.map_or_else(assert_hang_up, |got| panic!("{got:?}")),
                    }
                }
            }
        }
    }
}

/// Panics on errors that a peer cannot cause.
fn accepted<T>(side: Result<T, SetupError>) -> Option<T> {
    match side {
        Ok(side) => Some(side),
        Err(
            SetupError::ProtocolMismatch(_)
            | SetupError::Version { .. }
            | SetupError::RoleConflict { .. }
            | SetupError::InvalidMemfd(_)
            | SetupError::PeerCapacity(_)
            | SetupError::NotAllowedByPeer
            | SetupError::Refused(_)
            | SetupError::HandshakeTimeout(_)
            | SetupError::HandshakeAborted,
        ) => None,
        Err(other) => panic!("{other:?}"),
    }
}

fn assert_hang_up(error: impl Into<io::Error>) {
    let error = error.into();
    let kinds = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    assert!(kinds.contains(&error.kind()), "{error:?}");
}

impl SentMessage {
    fn hello(&self, to_producer: bool) -> Hello {
        let valid = match to_producer {
            true => Hello::consumer(),
            false => Hello::producer(CAPACITY),
        };
        match &self.message {
            Message::Hello(hello) => *hello,
            Message::Modified(field, value) => modified(valid, field, *value),
            _ => valid,
        }
    }

    fn send(&self, peer: &Peer, hello: &Hello, valid: Vec<u8>) {
        let message = match &self.message {
            Message::Valid => valid,
            Message::Modified(..) | Message::Hello(_) => hello.bytes(),
            Message::Reply(error) => reply(*error),
            Message::Bytes(bytes) => bytes.clone(),
        };
        let files = self.files.open(hello, message.len() == hello.bytes().len());
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        peer.send(&message, &files).expect("the socket is full");
    }
}

fn modified(mut hello: Hello, field: &Field, value: u64) -> Hello {
    match field {
        Field::Magic => hello.magic = value as u32,
        Field::Size => hello.size = value as u32,
        Field::Version => hello.version = value as u32,
        Field::Role => hello.role = value as u32,
        Field::Flags => hello.flags = value as u32,
        // Arbitrary numbers are seldom powers of two, which are the valid values.
        Field::Data => hello.data = 1_u32.rotate_left(value as u32) ^ (value >> 32) as u32,
        Field::Capacity => hello.capacity = 1_u64.rotate_left(value as u32) ^ (value >> 32),
    }
    hello
}

impl Files {
    fn open(&self, hello: &Hello, with_hello: bool) -> Vec<OwnedFd> {
        match self {
            Self::Matching if with_hello => {
                let bytes = match hello.role {
                    1 => u64::from(hello.data).saturating_add(hello.capacity),
                    _ => CTRL_SIZE as u64,
                };
                let file = memfd(bytes.min(1 << 62));
                seal(&file, SEALS);
                vec![file]
            }
            Self::None | Self::Matching => Vec::new(),
            Self::One(one) => vec![one.create()],
            Self::Two(one, other) => vec![one.create(), other.create()],
            Self::Null => vec![File::open("/dev/null").expect("no /dev/null").into()],
        }
    }
}

impl Memfd {
    fn create(&self) -> OwnedFd {
        let near = |length: usize, by: i8| (length as u64).saturating_add_signed(by.into());
        let file = memfd(match self.length {
            Length::Any(bytes) => bytes >> 2,
            Length::NearConsumer(by) => near(CTRL_SIZE, by),
            Length::NearProducer(by) => near(DATA + CAPACITY, by),
        });
        // Bits 0 to 4 are the five oldest seals. Any other bit selects the seals that a ring requires.
        let seals = match self.seals & 0xe0 {
            0 => SealFlags::from_bits_truncate(self.seals.into()),
            _ => SEALS,
        };
        seal(&file, seals);
        file
    }
}
