// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use sluice::ring::{Options, Producer, ProtocolViolation, SendError, Socket};

use super::{CAPACITY, Length, pattern, steps};
use crate::consumer::LyingConsumer;
use crate::memory::Memory;
use crate::{BELL, CLOSED, DATA, POSITION, WAITING, behind, longest};

/// A hostile consumer writes into its memory, and an honest producer calls, in turn.
#[derive(Debug)]
pub struct Robbery {
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// As it should be: up to the end of the oldest record.
    Release,
    ReleaseAll,
    Position(Said),
    Waiting(u32),
    Bell(u32),
    Closed(bool),
    Message(u8),
    Send(Length),
    SendTimeout(Length),
    Reserve {
        length: Length,
        then: Then,
    },
    Batch(Vec<Part>),
    Pending,
}

#[derive(Arbitrary, Debug)]
enum Said {
    Any(u64),
    /// So far from what was published.
    Near(Distance),
}

#[derive(Debug)]
struct Distance(i64);

impl<'a> Arbitrary<'a> for Distance {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let ring = CAPACITY as i64 + 8;
        Ok(Self(bytes.int_in_range(-ring..=16)?))
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Then {
    Commit,
    CommitFirst(Length),
    Drop,
}

#[derive(Arbitrary, Debug)]
enum Part {
    Send(Length),
    Reserve(Length, Then),
}

impl<'a> Arbitrary<'a> for Robbery {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Self {
            steps: steps(bytes)?,
        })
    }
}

impl super::Scenario for Robbery {
    fn run(self) {
        let (mut producer, mut scene) = Scene::new();
        for step in self.steps {
            scene.step(&mut producer, step);
            scene.assert_nothing_was_overwritten();
        }
    }
}

struct Scene {
    liar: LyingConsumer,
    /// The producer's side and data, as the liar sees them.
    theirs: Memory,
    published: u64,
    written: u64,
    /// The last position of the liar that could be true.
    released: u64,
    /// The first violation that the producer found. It finds no other.
    violation: Option<ProtocolViolation>,
    /// Where they begin, and what is in them: records that were sent and not released.
    records: VecDeque<(u64, Vec<u8>)>,
}

/// What an honest producer has to find when it wants room.
#[derive(Debug, PartialEq)]
enum Truth {
    Room,
    Full,
    TooLong,
    Closed,
    Violation(ProtocolViolation),
}

impl Scene {
    fn new() -> (Producer, Self) {
        let (liar, socket) = LyingConsumer::new();
        let options = Options::new()
            .capacity(CAPACITY as u64)
            .spin(Duration::ZERO)
            .handshake_timeout(Duration::ZERO);
        let producer = options.producer(Socket::from(socket)).expect("no ring");
        let scene = Self {
            theirs: liar.theirs(CAPACITY),
            liar,
            published: 0,
            written: 0,
            released: 0,
            violation: None,
            records: VecDeque::new(),
        };
        (producer, scene)
    }

    fn step(&mut self, producer: &mut Producer, step: Step) {
        let memory = &self.liar.memory;
        let say = |position| memory.long(POSITION).store(position, Ordering::Relaxed);
        match step {
            Step::Release => {
                let said = memory.long(POSITION).load(Ordering::Relaxed);
                let records = self.records.iter();
                let mut ends = records.map(|(at, record)| behind(*at, record.len() as u32));
                if let Some(end) = ends.find(|&end| end > said) {
                    say(end);
                }
            }
            Step::ReleaseAll => say(self.published),
            Step::Position(Said::Any(said)) => say(said),
            Step::Position(Said::Near(by)) => say(self.published.wrapping_add_signed(by.0)),
            Step::Waiting(how) => memory.word(WAITING).store(how, Ordering::Relaxed),
            Step::Bell(value) => memory.word(BELL).store(value, Ordering::Relaxed),
            Step::Closed(closed) => memory.word(CLOSED).store(closed.into(), Ordering::Relaxed),
            // It may be full.
            Step::Message(length) => drop(self.liar.peer.say(&[0; 255][..length.into()], &[])),
            Step::Send(length) => self.send(length.0, |record| producer.try_send(record)),
            Step::SendTimeout(length) => self.send(length.0, |record| {
                match producer.send_timeout(record, Duration::from_micros(1)) {
                    Err(SendError::TimedOut(_)) => Err(SendError::Full),
                    other => other,
                }
            }),
            Step::Reserve { length, then } => {
                let truth = self.look(length.0);
                let number = self.written;
                match producer.try_reserve(length.0) {
                    Ok(room) => {
                        assert_eq!(truth, Truth::Room);
                        self.fill(room, number, then);
                    }
                    Err(error) => assert_eq!(found(error), truth),
                }
                self.publish();
            }
            Step::Batch(parts) => {
                let mut batch = producer.batch();
                for part in parts {
                    self.part(&mut batch, &part);
                }
                drop(batch);
                self.publish();
            }
            Step::Pending => match producer.pending() {
                Ok(pending) => {
                    assert_eq!(self.believe(), None);
                    assert_eq!(pending, self.published - self.released);
                }
                Err(error) => {
                    let violation = self.believe().expect("no violation");
                    assert_eq!(found(error), Truth::Violation(violation));
                }
            },
        }
        let told = self.theirs.long(POSITION).load(Ordering::Acquire);
        assert_eq!(told, self.published);
    }

    /// What the liar has released from now on, as far as it can be true.
    fn believe(&mut self) -> Option<ProtocolViolation> {
        if self.violation.is_some() {
            return self.violation;
        }
        let pos = self.liar.memory.long(POSITION).load(Ordering::Relaxed);
        let (min, max) = (self.released, self.published);
        if pos < min || pos > max || pos % 8 != 0 {
            self.violation = Some(ProtocolViolation::Released { pos, min, max });
            return self.violation;
        }
        self.released = pos;
        // What it gave away in the middle of a record is no longer one.
        self.records.retain(|(at, _)| *at >= pos);
        None
    }

    fn look(&mut self, length: usize) -> Truth {
        if length > longest(CAPACITY) as usize {
            return Truth::TooLong;
        }
        let room = match self.look_for_room(length) {
            Ok(room) => room,
            Err(violation) => return Truth::Violation(violation),
        };
        match self.liar.memory.word(CLOSED).load(Ordering::Relaxed) {
            0 if room => Truth::Room,
            0 => Truth::Full,
            _ => Truth::Closed,
        }
    }

    fn look_for_room(&mut self, length: usize) -> Result<bool, ProtocolViolation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        let end = behind(self.written, length as u32) + 8;
        let fits = |released| end - released <= CAPACITY as u64;
        if fits(self.released) {
            return Ok(true);
        }
        if let Some(violation) = self.believe() {
            return Err(violation);
        }
        if !fits(self.released) && self.written != self.published {
            // A batch is sent, and looked again.
            self.publish();
            if let Some(violation) = self.believe() {
                return Err(violation);
            }
        }
        Ok(fits(self.released))
    }

    fn send(&mut self, length: usize, call: impl FnOnce(&[u8]) -> Result<(), SendError>) {
        let truth = self.look(length);
        let record = pattern(self.written, length);
        match call(&record) {
            Ok(()) => {
                assert_eq!(truth, Truth::Room);
                self.wrote(record);
            }
            Err(error) => assert_eq!(found(error), truth),
        }
        self.publish();
    }

    fn part(&mut self, batch: &mut sluice::ring::WriteBatch, part: &Part) {
        match part {
            Part::Send(length) => {
                let truth = self.look(length.0);
                let record = pattern(self.written, length.0);
                match batch.try_send(&record) {
                    Ok(()) => {
                        assert_eq!(truth, Truth::Room);
                        self.wrote(record);
                    }
                    Err(error) => assert_eq!(found(error), truth),
                }
            }
            Part::Reserve(length, then) => {
                let (length, number) = (length.0, self.written);
                match self.look(length) {
                    // That call waits where there is no room.
                    Truth::Full => {
                        let full = batch.try_send(&pattern(number, length));
                        assert!(matches!(full, Err(SendError::Full)), "{full:?}");
                    }
                    truth => match batch.reserve(length) {
                        Ok(room) => {
                            assert_eq!(truth, Truth::Room);
                            self.fill(room, number, *then);
                        }
                        Err(error) => assert_eq!(found(error), truth),
                    },
                }
            }
        }
    }

    fn fill(&mut self, mut room: sluice::ring::Reservation, number: u64, then: Then) {
        let record = pattern(number, room.len());
        room.copy_from_slice(&record);
        match then {
            Then::Commit => {
                room.commit();
                self.wrote(record);
            }
            Then::CommitFirst(length) => {
                let length = length.0 % (record.len() + 1);
                room.commit_len(length);
                self.wrote(record[..length].to_vec());
            }
            // Room that is not committed is none.
            Then::Drop => {}
        }
    }

    fn wrote(&mut self, record: Vec<u8>) {
        let at = self.written;
        self.written = behind(at, record.len() as u32);
        self.records.push_back((at, record));
    }

    fn publish(&mut self) {
        self.published = self.written;
    }

    /// What was sent and not released is there as it was sent, and nothing behind it.
    fn assert_nothing_was_overwritten(&self) {
        let at = |position: u64| DATA + position as usize % CAPACITY;
        let word = |at| self.theirs.word(at).load(Ordering::Acquire);
        for (position, record) in &self.records {
            let header = at(*position);
            assert_eq!((word(header), word(header + 4)), (record.len() as u32, 1));
            for (offset, &byte) in (8..).zip(record) {
                let there = self.theirs.byte(at(*position + offset));
                assert_eq!(there.load(Ordering::Relaxed), byte);
            }
        }
        assert_eq!(word(at(self.published) + 4), 0, "the state behind the last");
    }
}

/// What a call found that sent nothing.
fn found(error: SendError) -> Truth {
    match error {
        SendError::Full => Truth::Full,
        SendError::Closed => Truth::Closed,
        SendError::RecordTooLong { .. } => Truth::TooLong,
        SendError::ProtocolViolation(violation) => Truth::Violation(violation),
        other => panic!("{other:?}"),
    }
}
