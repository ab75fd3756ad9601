// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use sluice::ring::{Producer, ProtocolViolation, SendError, Socket, SocketOptions};

use super::{BatchStep, CAPACITY, Completion, Length, Steps, pattern};
use crate::consumer::MaliciousConsumer;
use crate::memory::Memory;
use crate::{CLOSED, DATA, POS, WAIT_FLAGS, WAKE_SEQ, max_record_len, next_pos};

/// Writes of a malicious consumer to its memory, interleaved with calls of the library's producer.
#[derive(Arbitrary, Debug)]
pub struct ConsumerInput {
    steps: Steps<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// Valid: releases the oldest record.
    Release,
    ReleaseAll,
    SetPos(PosValue),
    SetWaitFlags(u32),
    SetWakeSeq(u32),
    SetClosed(bool),
    SendMessage(u8),
    Send(Length),
    SendTimeout(Length),
    Reserve {
        length: Length,
        completion: Completion,
    },
    Batch(Vec<BatchStep>),
    Pending,
}

#[derive(Arbitrary, Debug)]
enum PosValue {
    Any(u64),
    /// Relative to the published position.
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

impl super::FuzzInput for ConsumerInput {
    fn run(self) {
        let (mut producer, mut model) = Model::new();
        for step in self.steps.0 {
            model.step(&mut producer, step);
            model.assert_nothing_overwritten();
        }
    }
}

struct Model {
    malicious: MaliciousConsumer,
    /// The producer's file: control structure and data.
    producer_memory: Memory,
    published: u64,
    written: u64,
    /// The consumer's last valid position.
    released: u64,
    /// The first violation, which every later call reports.
    violation: Option<ProtocolViolation>,
    /// The records that were sent and not released: position and content.
    records: VecDeque<(u64, Vec<u8>)>,
}

/// The expected result of a call that needs free space.
#[derive(Debug, PartialEq)]
enum Expected {
    Fits,
    Full,
    TooLong,
    Closed,
    Violation(ProtocolViolation),
}

impl Model {
    fn new() -> (Producer, Self) {
        let (malicious, socket) = MaliciousConsumer::new();
        let options = SocketOptions::new()
            .capacity(CAPACITY as u64)
            .spin_limit(Duration::ZERO)
            .handshake_timeout(Duration::ZERO);
        let producer = options
            .producer(Socket::from(socket))
            .expect("handshake failed");
        let model = Self {
            producer_memory: malicious.map_producer(CAPACITY),
            malicious,
            published: 0,
            written: 0,
            released: 0,
            violation: None,
            records: VecDeque::new(),
        };
        (producer, model)
    }

    fn step(&mut self, producer: &mut Producer, step: Step) {
        let memory = &self.malicious.memory;
        let set_pos = |pos| memory.long(POS).store(pos, Ordering::Relaxed);
        match step {
            Step::Release => {
                let pos = memory.long(POS).load(Ordering::Relaxed);
                let records = self.records.iter();
                let mut ends = records.map(|(at, record)| next_pos(*at, record.len() as u32));
                if let Some(end) = ends.find(|&end| end > pos) {
                    set_pos(end);
                }
            }
            Step::ReleaseAll => set_pos(self.published),
            Step::SetPos(PosValue::Any(pos)) => set_pos(pos),
            Step::SetPos(PosValue::Near(by)) => set_pos(self.published.wrapping_add_signed(by.0)),
            Step::SetWaitFlags(value) => memory.word(WAIT_FLAGS).store(value, Ordering::Relaxed),
            Step::SetWakeSeq(value) => memory.word(WAKE_SEQ).store(value, Ordering::Relaxed),
            Step::SetClosed(closed) => memory.word(CLOSED).store(closed.into(), Ordering::Relaxed),
            // The socket may be full.
            Step::SendMessage(length) => {
                let _ = self
                    .malicious
                    .carrier
                    .peer
                    .send(&[0; 255][..length.into()], &[]);
            }
            Step::Send(length) => self.send(length.0, |record| producer.try_send(record)),
            Step::SendTimeout(length) => self.send(length.0, |record| {
                match producer.send_timeout(record, Duration::from_micros(1)) {
                    Err(SendError::TimedOut(_)) => Err(SendError::Full),
                    other => other,
                }
            }),
            Step::Reserve { length, completion } => {
                let expected = self.expected(length.0);
                let number = self.written;
                match producer.try_reserve(length.0) {
                    Ok(reservation) => {
                        assert_eq!(expected, Expected::Fits);
                        self.fill(reservation, number, completion);
                    }
                    Err(error) => assert_eq!(outcome(error), expected),
                }
                self.publish();
            }
            Step::Batch(steps) => {
                let mut batch = producer.send_batch();
                for step in steps {
                    self.batch_step(&mut batch, &step);
                }
                drop(batch);
                self.publish();
            }
            Step::Pending => match producer.pending() {
                Ok(pending) => {
                    assert_eq!(self.load_pos(), None);
                    assert_eq!(pending, self.published - self.released);
                }
                Err(error) => {
                    let violation = self.load_pos().expect("no violation");
                    assert_eq!(outcome(error), Expected::Violation(violation));
                }
            },
        }
        let published = self.producer_memory.long(POS).load(Ordering::Acquire);
        assert_eq!(published, self.published);
    }

    /// Models the producer's load of the consumer's position. Returns the violation, if any.
    fn load_pos(&mut self) -> Option<ProtocolViolation> {
        if self.violation.is_some() {
            return self.violation;
        }
        let pos = self.malicious.memory.long(POS).load(Ordering::Relaxed);
        let (min, max) = (self.released, self.published);
        if pos < min || pos > max || pos % 8 != 0 {
            self.violation = Some(ProtocolViolation::Released { pos, min, max });
            return self.violation;
        }
        self.released = pos;
        // A position within a record releases that record, too.
        self.records.retain(|(at, _)| *at >= pos);
        None
    }

    /// Models the checks of a call for a record of this length, in their order.
    fn expected(&mut self, length: usize) -> Expected {
        if length > max_record_len(CAPACITY) as usize {
            return Expected::TooLong;
        }
        let fits = match self.check_space(length) {
            Ok(fits) => fits,
            Err(violation) => return Expected::Violation(violation),
        };
        match self.malicious.memory.word(CLOSED).load(Ordering::Relaxed) {
            0 if fits => Expected::Fits,
            0 => Expected::Full,
            _ => Expected::Closed,
        }
    }

    /// Whether the record fits, with publication of a batch if it does not.
    fn check_space(&mut self, length: usize) -> Result<bool, ProtocolViolation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        let end = next_pos(self.written, length as u32) + 8;
        let fits = |released| end - released <= CAPACITY as u64;
        if fits(self.released) {
            return Ok(true);
        }
        if let Some(violation) = self.load_pos() {
            return Err(violation);
        }
        if !fits(self.released) && self.written != self.published {
            // The library publishes the batch and loads the position again.
            self.publish();
            if let Some(violation) = self.load_pos() {
                return Err(violation);
            }
        }
        Ok(fits(self.released))
    }

    fn send(&mut self, length: usize, call: impl FnOnce(&[u8]) -> Result<(), SendError>) {
        let expected = self.expected(length);
        let record = pattern(self.written, length);
        match call(&record) {
            Ok(()) => {
                assert_eq!(expected, Expected::Fits);
                self.note_written(record);
            }
            Err(error) => assert_eq!(outcome(error), expected),
        }
        self.publish();
    }

    fn batch_step(&mut self, batch: &mut sluice::ring::WriteBatch, step: &BatchStep) {
        match step {
            BatchStep::Send(length) => {
                let expected = self.expected(length.0);
                let record = pattern(self.written, length.0);
                match batch.try_send(&record) {
                    Ok(()) => {
                        assert_eq!(expected, Expected::Fits);
                        self.note_written(record);
                    }
                    Err(error) => assert_eq!(outcome(error), expected),
                }
            }
            BatchStep::Reserve(length, completion) => {
                let (length, number) = (length.0, self.written);
                match self.expected(length) {
                    // reserve() would block.
                    Expected::Full => {
                        let full = batch.try_send(&pattern(number, length));
                        assert!(matches!(full, Err(SendError::Full)), "{full:?}");
                    }
                    expected => match batch.reserve(length) {
                        Ok(reservation) => {
                            assert_eq!(expected, Expected::Fits);
                            self.fill(reservation, number, *completion);
                        }
                        Err(error) => assert_eq!(outcome(error), expected),
                    },
                }
            }
        }
    }

    fn fill(
        &mut self,
        mut reservation: sluice::ring::Reservation,
        number: u64,
        completion: Completion,
    ) {
        let record = pattern(number, reservation.len());
        reservation.copy_from_slice(&record);
        match completion {
            Completion::Commit => {
                reservation.commit();
                self.note_written(record);
            }
            Completion::CommitLen(length) => {
                let length = length.0 % (record.len() + 1);
                reservation.commit_len(length);
                self.note_written(record[..length].to_vec());
            }
            Completion::Drop => {}
        }
    }

    fn note_written(&mut self, record: Vec<u8>) {
        let at = self.written;
        self.written = next_pos(at, record.len() as u32);
        self.records.push_back((at, record));
    }

    fn publish(&mut self) {
        self.published = self.written;
    }

    /// Unreleased records are intact, and the state after the last is 0.
    fn assert_nothing_overwritten(&self) {
        let at = |position: u64| DATA + position as usize % CAPACITY;
        let word = |at| self.producer_memory.word(at).load(Ordering::Acquire);
        for (position, record) in &self.records {
            let header = at(*position);
            assert_eq!((word(header), word(header + 4)), (record.len() as u32, 1));
            for (offset, &byte) in (8..).zip(record) {
                let stored = self.producer_memory.byte(at(*position + offset));
                assert_eq!(stored.load(Ordering::Relaxed), byte);
            }
        }
        assert_eq!(
            word(at(self.published) + 4),
            0,
            "state after the last record"
        );
    }
}

/// The result of a call that failed.
fn outcome(error: SendError) -> Expected {
    match error {
        SendError::Full => Expected::Full,
        SendError::Closed => Expected::Closed,
        SendError::RecordTooLong { .. } => Expected::TooLong,
        SendError::ProtocolViolation(violation) => Expected::Violation(violation),
        other => panic!("{other:?}"),
    }
}
