// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::Ordering;
use std::time::Duration;

use arbitrary::Arbitrary;
use sluice::ring::{Consumer, ProtocolViolation, RecvError, Socket, SocketOptions};

use super::{CAPACITY, Length, Steps, pattern};
use crate::memory::Memory;
use crate::producer::MaliciousProducer;
use crate::{CLOSED, DATA, POS, WAIT_FLAGS, WAKE_SEQ, max_record_len, next_pos};

/// Writes of a malicious producer to its memory, interleaved with calls of the library's consumer.
#[derive(Arbitrary, Debug)]
pub struct ProducerInput {
    steps: Steps<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// A valid record after the last valid one.
    Send(Length),
    /// A valid record at the consumer's position.
    SendAtConsumer(Length),
    /// Headers of records of this length in the whole ring.
    Fill(u8),
    /// A header at the consumer's position, or this many units of 8 bytes after it.
    WriteHeader {
        offset: Option<u8>,
        length: LengthField,
        state: StateField,
    },
    WriteWord {
        at: u16,
        value: u32,
    },
    SetPos(u64),
    SetWaitFlags(u32),
    SetWakeSeq(u32),
    SetClosed(bool),
    SendMessage(u8),
    Recv(Length),
    RecvTimeout,
    Peek {
        offset: Length,
        len: Length,
        releases: bool,
    },
    Batch(Vec<BatchRecv>),
    Pending,
}

#[derive(Arbitrary, Debug)]
enum BatchRecv {
    Take,
    Recv(Length),
    /// Take until that fails, or more often than records fit.
    All,
}

#[derive(Arbitrary, Debug)]
enum LengthField {
    Valid(Length),
    Any(u32),
}

#[derive(Arbitrary, Debug)]
enum StateField {
    None,
    Ready,
    Any(u32),
}

impl super::FuzzInput for ProducerInput {
    fn run(self) {
        let mut model = Model::new();
        for step in self.steps.0 {
            model.step(step);
        }
    }
}

struct Model {
    malicious: MaliciousProducer,
    consumer: Consumer,
    /// The consumer's file: the control structure.
    consumer_memory: Memory,
    /// The position of the consumer's next record.
    position: u64,
    /// The position up to which the consumer has released records.
    released: u64,
    /// The first violation, which every later call reports.
    violation: Option<ProtocolViolation>,
    /// The position after the last valid record.
    next: u64,
}

/// The expected result of a receiving call.
#[derive(Debug, PartialEq)]
enum Expected {
    Record(u32),
    Empty,
    End,
    Violation(ProtocolViolation),
}

impl Model {
    fn new() -> Self {
        let (malicious, socket) = MaliciousProducer::new(CAPACITY);
        let options = SocketOptions::new()
            .spin_limit(Duration::ZERO)
            .handshake_timeout(Duration::ZERO);
        let consumer = options
            .consumer(Socket::from(socket))
            .expect("handshake failed");
        Self {
            consumer_memory: malicious.map_consumer(),
            malicious,
            consumer,
            position: 0,
            released: 0,
            violation: None,
            next: 0,
        }
    }

    fn step(&mut self, step: Step) {
        let memory = &self.malicious.memory;
        match step {
            Step::Send(length) => {
                self.next = self.malicious.send(self.next, &record(self.next, length));
            }
            Step::SendAtConsumer(length) => {
                self.next = self
                    .malicious
                    .send(self.position, &record(self.position, length));
            }
            Step::Fill(length) => {
                let mut at = self.position;
                while at < self.position + CAPACITY as u64 {
                    self.malicious.write_header(at, length.into(), 1);
                    at = next_pos(at, length.into());
                }
            }
            Step::WriteHeader {
                offset,
                length,
                state,
            } => {
                let at = self.position + u64::from(offset.unwrap_or(0)) * 8;
                self.malicious
                    .write_header(at, length.bytes(), state.word());
            }
            Step::WriteWord { at, value } => {
                let at = usize::from(at) * 4 % CAPACITY;
                memory.word(DATA + at).store(value, Ordering::Relaxed);
            }
            Step::SetPos(pos) => memory.long(POS).store(pos, Ordering::Relaxed),
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
            Step::Recv(len) => self.recv(len.0, Consumer::try_recv_into),
            Step::RecvTimeout => self.recv(CAPACITY, |consumer, buffer| {
                match consumer.recv_into_timeout(buffer, Duration::from_micros(1)) {
                    Err(RecvError::TimedOut(_)) => Err(RecvError::Empty),
                    other => other,
                }
            }),
            Step::Peek {
                offset,
                len,
                releases,
            } => self.peek(offset.0, len.0, releases),
            Step::Batch(calls) => self.batch(&calls),
            Step::Pending => {
                let pos = self.malicious.memory.long(POS).load(Ordering::Relaxed);
                let expected = pos.saturating_sub(self.position).min(CAPACITY as u64);
                assert_eq!(self.consumer.pending(), expected);
            }
        }
        assert_eq!(
            self.consumer_memory.long(POS).load(Ordering::Acquire),
            self.released
        );
    }

    /// The expected result of a call. Records a violation, because every later call reports it.
    fn expect_call(&mut self) -> Expected {
        let expected = self.expected();
        if let Expected::Violation(violation) = expected {
            self.violation = Some(violation);
        }
        expected
    }

    fn expected(&self) -> Expected {
        if let Some(violation) = self.violation {
            return Expected::Violation(violation);
        }
        let at = self.position;
        let header = self.malicious.offset_of(at);
        let word = |at| self.malicious.memory.word(at).load(Ordering::Relaxed);
        let (length, state) = (word(header), word(header + 4));
        let max = max_record_len(CAPACITY);
        match state {
            0 if word(CLOSED) != 0 => Expected::End,
            0 => Expected::Empty,
            1 if length > max => Expected::Violation(ProtocolViolation::Length {
                at,
                len: length,
                max,
            }),
            1 => self.check_space(length),
            _ => Expected::Violation(ProtocolViolation::State { at, state }),
        }
    }

    fn check_space(&self, length: u32) -> Expected {
        let (end, released, capacity) = (
            next_pos(self.position, length),
            self.released,
            CAPACITY as u64,
        );
        match end + 8 - released > capacity {
            true => Expected::Violation(ProtocolViolation::TooMany {
                end,
                released,
                capacity,
            }),
            false => Expected::Record(length),
        }
    }

    /// The bytes of the record at the consumer's position.
    fn bytes(&self, length: usize) -> Vec<u8> {
        (0..length as u64)
            .map(|offset| self.malicious.offset_of(self.position + 8 + offset))
            .map(|at| self.malicious.memory.byte(at).load(Ordering::Relaxed))
            .collect()
    }

    fn advance(&mut self, length: u32) {
        self.position = next_pos(self.position, length);
    }

    fn recv(
        &mut self,
        len: usize,
        call: impl FnOnce(&mut Consumer, &mut [u8]) -> Result<Option<usize>, RecvError>,
    ) {
        let mut buffer = vec![0xdd; len];
        let got = call(&mut self.consumer, &mut buffer);
        if self.check_recv(got, &buffer) {
            self.released = self.position;
        }
    }

    /// Compares a result with the expected one. Returns whether a record was received.
    fn check_recv(&mut self, got: Result<Option<usize>, RecvError>, buffer: &[u8]) -> bool {
        let expected = self.expect_call();
        match got {
            Ok(Some(length)) => {
                assert_eq!(expected, Expected::Record(length as u32));
                assert_eq!(buffer[..length], self.bytes(length));
                assert!(buffer[length..].iter().all(|&byte| byte == 0xdd));
                self.advance(length as u32);
                return true;
            }
            Err(RecvError::BufferTooSmall { len: length, room }) => {
                assert_eq!((expected, room), (Expected::Record(length), buffer.len()));
                assert!(length as usize > room);
            }
            other => assert_eq!(outcome(other), expected),
        }
        false
    }

    fn peek(&mut self, offset: usize, len: usize, releases: bool) {
        let expected = self.expect_call();
        let record = match self.consumer.try_recv() {
            Ok(Some(record)) => record,
            other => return assert_eq!(outcome(other.map(|_| None)), expected),
        };
        let (length, whole) = (record.len(), record.to_vec());
        let mut part = vec![0; len];
        let copied = record.copy_to(offset, &mut part);
        match releases {
            true => drop(record),
            false => record.keep(),
        }
        assert_eq!(expected, Expected::Record(length as u32));
        assert_eq!(whole, self.bytes(length));
        assert_eq!(part[..copied], whole[offset.min(length)..][..copied]);
        if releases {
            self.advance(length as u32);
            self.released = self.position;
        }
    }

    fn batch(&mut self, calls: &[BatchRecv]) {
        // recv_batch() would block.
        if self.expected() == Expected::Empty {
            return;
        }
        // The batch borrows self.consumer, so its results are compared after it. No step runs in between.
        let mut results = Vec::new();
        match self.consumer.recv_batch() {
            Ok(Some(mut batch)) => {
                let all = calls.iter().flat_map(|call| match call {
                    BatchRecv::All => vec![&BatchRecv::Take; CAPACITY / 8 + 1],
                    other => vec![other],
                });
                for call in all {
                    let mut buffer = vec![0xdd; CAPACITY];
                    let got = match call {
                        BatchRecv::Take | BatchRecv::All => batch
                            .recv()
                            .map(|bytes| bytes.map(|bytes| bytes.copy_to(0, &mut buffer))),
                        BatchRecv::Recv(len) => {
                            buffer.truncate(len.0);
                            batch.recv_into(&mut buffer)
                        }
                    };
                    let is_last = matches!(got, Ok(None) | Err(RecvError::ProtocolViolation(_)));
                    results.push((got, buffer));
                    if is_last {
                        break;
                    }
                }
            }
            other => {
                let failure = outcome(other.map(|_| None));
                return assert_eq!(failure, self.expect_call());
            }
        }
        for (got, buffer) in results {
            match (got, self.expect_call()) {
                // A batch does not check whether the producer has closed.
                (Ok(None), Expected::End | Expected::Empty) => {}
                (got, _) => drop(self.check_recv(got, &buffer)),
            }
        }
        self.released = self.position;
    }
}

/// The result of a call that received no record.
fn outcome(got: Result<Option<usize>, RecvError>) -> Expected {
    match got {
        Ok(None) => Expected::End,
        Err(RecvError::Empty) => Expected::Empty,
        Err(RecvError::ProtocolViolation(violation)) => Expected::Violation(violation),
        other => panic!("{other:?}"),
    }
}

/// Limited to the maximum length, because send() also writes the header after the record.
fn record(number: u64, Length(length): Length) -> Vec<u8> {
    pattern(number, length.min(max_record_len(CAPACITY) as usize))
}

impl LengthField {
    fn bytes(&self) -> u32 {
        match *self {
            Self::Valid(Length(bytes)) => bytes as u32,
            Self::Any(bytes) => bytes,
        }
    }
}

impl StateField {
    fn word(&self) -> u32 {
        match *self {
            Self::None => 0,
            Self::Ready => 1,
            Self::Any(state) => state,
        }
    }
}
