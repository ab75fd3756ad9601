// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::Ordering;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use sluice::ring::{Consumer, Options, ProtocolViolation, RecvError, Socket};

use super::{CAPACITY, Length, pattern, steps};
use crate::memory::Memory;
use crate::producer::LyingProducer;
use crate::{BELL, CLOSED, DATA, POSITION, WAITING, behind, longest};

/// A hostile producer writes into its memory, and an honest consumer calls, in turn.
#[derive(Debug)]
pub struct Fraud {
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// A record as it should be, behind the last of these.
    Send(Length),
    /// Where the consumer stands.
    SendHere(Length),
    /// Records all over the ring, all of this length.
    Flood(u8),
    /// A header where the consumer stands, or so many bytes further.
    Header {
        further: Option<u8>,
        length: Claim,
        state: State,
    },
    Word {
        at: u16,
        value: u32,
    },
    Position(u64),
    Waiting(u32),
    Bell(u32),
    Closed(bool),
    Message(u8),
    Recv(Length),
    RecvTimeout,
    Peek {
        offset: Length,
        room: Length,
        releases: bool,
    },
    Batch(Vec<Taking>),
    Pending,
}

#[derive(Arbitrary, Debug)]
enum Taking {
    Take,
    Recv(Length),
    /// Until there is none, or no more can be.
    All,
}

#[derive(Arbitrary, Debug)]
enum Claim {
    Fair(Length),
    Any(u32),
}

#[derive(Arbitrary, Debug)]
enum State {
    None,
    Record,
    Any(u32),
}

impl<'a> Arbitrary<'a> for Fraud {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Self {
            steps: steps(bytes)?,
        })
    }
}

impl super::Scenario for Fraud {
    fn run(self) {
        let mut scene = Scene::new();
        for step in self.steps {
            scene.step(step);
        }
    }
}

struct Scene {
    liar: LyingProducer,
    consumer: Consumer,
    /// The consumer's side, as the liar sees it.
    theirs: Memory,
    /// Where the consumer is, and what it has released.
    position: u64,
    released: u64,
    /// The first violation that the consumer found. It finds no other.
    violation: Option<ProtocolViolation>,
    /// Where the liar sends its next good record.
    next: u64,
}

/// What an honest consumer has to find.
#[derive(Debug, PartialEq)]
enum Truth {
    Record(u32),
    Nothing,
    End,
    Violation(ProtocolViolation),
}

impl Scene {
    fn new() -> Self {
        let (liar, socket) = LyingProducer::new(CAPACITY);
        let options = Options::new()
            .spin(Duration::ZERO)
            .handshake_timeout(Duration::ZERO);
        let consumer = options.consumer(Socket::from(socket)).expect("no ring");
        Self {
            theirs: liar.theirs(),
            liar,
            consumer,
            position: 0,
            released: 0,
            violation: None,
            next: 0,
        }
    }

    fn step(&mut self, step: Step) {
        let memory = &self.liar.memory;
        match step {
            Step::Send(length) => {
                self.next = self.liar.send(self.next, &record(self.next, length));
            }
            Step::SendHere(length) => {
                self.next = self
                    .liar
                    .send(self.position, &record(self.position, length));
            }
            Step::Flood(length) => {
                let mut at = self.position;
                while at < self.position + CAPACITY as u64 {
                    self.liar.header(at, length.into(), 1);
                    at = behind(at, length.into());
                }
            }
            Step::Header {
                further,
                length,
                state,
            } => {
                let at = self.position + u64::from(further.unwrap_or(0)) * 8;
                self.liar.header(at, length.bytes(), state.word());
            }
            Step::Word { at, value } => {
                let at = usize::from(at) * 4 % CAPACITY;
                memory.word(DATA + at).store(value, Ordering::Relaxed);
            }
            Step::Position(said) => memory.long(POSITION).store(said, Ordering::Relaxed),
            Step::Waiting(how) => memory.word(WAITING).store(how, Ordering::Relaxed),
            Step::Bell(value) => memory.word(BELL).store(value, Ordering::Relaxed),
            Step::Closed(closed) => memory.word(CLOSED).store(closed.into(), Ordering::Relaxed),
            // It may be full.
            Step::Message(length) => drop(self.liar.peer.say(&[0; 255][..length.into()], &[])),
            Step::Recv(room) => self.recv(room.0, Consumer::try_recv),
            Step::RecvTimeout => self.recv(CAPACITY, |consumer, room| {
                match consumer.recv_timeout(room, Duration::from_micros(1)) {
                    Err(RecvError::TimedOut(_)) => Err(RecvError::Empty),
                    other => other,
                }
            }),
            Step::Peek {
                offset,
                room,
                releases,
            } => self.peek(offset.0, room.0, releases),
            Step::Batch(takings) => self.batch(&takings),
            Step::Pending => {
                let said = self.liar.memory.long(POSITION).load(Ordering::Relaxed);
                let most = said.saturating_sub(self.position).min(CAPACITY as u64);
                assert_eq!(self.consumer.pending(), most);
            }
        }
        assert_eq!(
            self.theirs.long(POSITION).load(Ordering::Acquire),
            self.released
        );
    }

    /// What a call finds. A violation is found by every later call, too.
    fn finds(&mut self) -> Truth {
        let truth = self.truth();
        if let Truth::Violation(violation) = truth {
            self.violation = Some(violation);
        }
        truth
    }

    fn truth(&self) -> Truth {
        if let Some(violation) = self.violation {
            return Truth::Violation(violation);
        }
        let at = self.position;
        let header = self.liar.at(at);
        let word = |at| self.liar.memory.word(at).load(Ordering::Relaxed);
        let (length, state) = (word(header), word(header + 4));
        let max = longest(CAPACITY);
        match state {
            0 if word(CLOSED) != 0 => Truth::End,
            0 => Truth::Nothing,
            1 if length > max => Truth::Violation(ProtocolViolation::Length {
                at,
                len: length,
                max,
            }),
            1 => self.judge_room(length),
            _ => Truth::Violation(ProtocolViolation::State { at, state }),
        }
    }

    fn judge_room(&self, length: u32) -> Truth {
        let (end, released, capacity) = (
            behind(self.position, length),
            self.released,
            CAPACITY as u64,
        );
        match end + 8 - released > capacity {
            true => Truth::Violation(ProtocolViolation::TooMany {
                end,
                released,
                capacity,
            }),
            false => Truth::Record(length),
        }
    }

    /// What lies where the consumer is.
    fn bytes(&self, length: usize) -> Vec<u8> {
        (0..length as u64)
            .map(|offset| self.liar.at(self.position + 8 + offset))
            .map(|at| self.liar.memory.byte(at).load(Ordering::Relaxed))
            .collect()
    }

    fn take(&mut self, length: u32) {
        self.position = behind(self.position, length);
    }

    fn recv(
        &mut self,
        room: usize,
        call: impl FnOnce(&mut Consumer, &mut [u8]) -> Result<Option<usize>, RecvError>,
    ) {
        let mut into = vec![0xdd; room];
        let got = call(&mut self.consumer, &mut into);
        if self.received(got, &into) {
            self.released = self.position;
        }
    }

    /// Whether a record was taken, which was the one that was there.
    fn received(&mut self, got: Result<Option<usize>, RecvError>, into: &[u8]) -> bool {
        let truth = self.finds();
        match got {
            Ok(Some(length)) => {
                assert_eq!(truth, Truth::Record(length as u32));
                assert_eq!(into[..length], self.bytes(length));
                assert!(into[length..].iter().all(|&byte| byte == 0xdd));
                self.take(length as u32);
                return true;
            }
            Err(RecvError::BufferTooSmall { len: length, room }) => {
                assert_eq!((truth, room), (Truth::Record(length), into.len()));
                assert!(length as usize > room);
            }
            other => assert_eq!(found(other), truth),
        }
        false
    }

    fn peek(&mut self, offset: usize, room: usize, releases: bool) {
        let truth = self.finds();
        let record = match self.consumer.try_peek() {
            Ok(Some(record)) => record,
            other => return assert_eq!(found(other.map(|_| None)), truth),
        };
        let (length, whole) = (record.len(), record.to_vec());
        let mut part = vec![0; room];
        let copied = record.copy_to(offset, &mut part);
        if releases {
            record.release();
        }
        assert_eq!(truth, Truth::Record(length as u32));
        assert_eq!(whole, self.bytes(length));
        assert_eq!(part[..copied], whole[offset.min(length)..][..copied]);
        if releases {
            self.take(length as u32);
            self.released = self.position;
        }
    }

    fn batch(&mut self, takings: &[Taking]) {
        // The call waits where there is nothing.
        if self.truth() == Truth::Nothing {
            return;
        }
        // What is in a batch is compared when the consumer is free again: nothing changes meanwhile.
        let mut taken = Vec::new();
        match self.consumer.batch() {
            Ok(Some(mut batch)) => {
                let all = takings.iter().flat_map(|taking| match taking {
                    Taking::All => vec![&Taking::Take; CAPACITY / 8 + 1],
                    other => vec![other],
                });
                for taking in all {
                    let mut into = vec![0xdd; CAPACITY];
                    let got = match taking {
                        Taking::Take | Taking::All => batch
                            .take()
                            .map(|bytes| bytes.map(|bytes| bytes.copy_to(0, &mut into))),
                        Taking::Recv(room) => {
                            into.truncate(room.0);
                            batch.recv(&mut into)
                        }
                    };
                    let ends = matches!(got, Ok(None) | Err(RecvError::ProtocolViolation(_)));
                    taken.push((got, into));
                    if ends {
                        break;
                    }
                }
            }
            other => {
                let found = found(other.map(|_| None));
                return assert_eq!(found, self.finds());
            }
        }
        for (got, into) in taken {
            match (got, self.finds()) {
                // A batch does not ask whether the other end is done.
                (Ok(None), Truth::End | Truth::Nothing) => {}
                (got, _) => drop(self.received(got, &into)),
            }
        }
        self.released = self.position;
    }
}

/// What a call found that took nothing.
fn found(got: Result<Option<usize>, RecvError>) -> Truth {
    match got {
        Ok(None) => Truth::End,
        Err(RecvError::Empty) => Truth::Nothing,
        Err(RecvError::ProtocolViolation(violation)) => Truth::Violation(violation),
        other => panic!("{other:?}"),
    }
}

/// None is longer than the longest: the memory behind it is the record's that lies there.
fn record(number: u64, Length(length): Length) -> Vec<u8> {
    pattern(number, length.min(longest(CAPACITY) as usize))
}

impl Claim {
    fn bytes(&self) -> u32 {
        match *self {
            Self::Fair(Length(bytes)) => bytes as u32,
            Self::Any(bytes) => bytes,
        }
    }
}

impl State {
    fn word(&self) -> u32 {
        match *self {
            Self::None => 0,
            Self::Record => 1,
            Self::Any(state) => state,
        }
    }
}
