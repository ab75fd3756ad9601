// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use sluice::ring::{Consumer, Options, Producer, RecvError, SendError, Socket};

use super::{CAPACITY, Length, pattern, steps};
use crate::{behind, longest};

/// Two honest sides, and a queue that says what has to come out.
#[derive(Debug)]
pub struct Trade {
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Send(Length),
    Reserve(Length, Then),
    SendBatch(Vec<Part>),
    Recv(Length),
    Peek(bool),
    RecvBatch(Vec<Taking>),
    Pending,
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

#[derive(Arbitrary, Debug)]
enum Taking {
    Take,
    Recv(Length),
}

impl<'a> Arbitrary<'a> for Trade {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Self {
            steps: steps(bytes)?,
        })
    }
}

impl super::Scenario for Trade {
    fn run(self) {
        let (mut producer, mut consumer) = ring();
        let mut model = Model::default();
        for step in self.steps {
            model.step(&mut producer, &mut consumer, step);
        }
        drop(producer);
        while model.receive_one(&mut consumer) {}
        assert_eq!(consumer.recv(&mut []).expect("broken"), None, "the end");
        assert_eq!(model.records.len(), 0, "records were lost");
    }
}

fn ring() -> (Producer, Consumer) {
    let (here, there) = Socket::pair().expect("no sockets");
    let options = Options::new()
        .capacity(CAPACITY as u64)
        .spin(Duration::ZERO);
    thread::scope(|scope| {
        let producer = scope.spawn(|| options.producer(here));
        let consumer = options.consumer(there).expect("no ring");
        let producer = producer.join().expect("it panicked");
        (producer.expect("no ring"), consumer)
    })
}

/// What the ring has to be like.
#[derive(Default)]
struct Model {
    written: u64,
    taken: u64,
    released: u64,
    /// Sent, and not taken.
    records: VecDeque<Vec<u8>>,
}

impl Model {
    fn step(&mut self, producer: &mut Producer, consumer: &mut Consumer, step: Step) {
        match step {
            Step::Send(length) => {
                let record = self.record(length);
                self.sent(producer.try_send(&record), record);
            }
            Step::Reserve(length, then) => {
                let record = self.record(length);
                match producer.try_reserve(record.len()) {
                    Ok(room) => self.fill(room, record, then),
                    Err(error) => self.refused(&error, record.len()),
                }
            }
            Step::SendBatch(parts) => self.send_batch(producer, &parts),
            Step::Recv(room) => {
                self.receive(room.0, |into| consumer.try_recv(into));
                self.release();
            }
            Step::Peek(releases) => self.peek(consumer, releases),
            Step::RecvBatch(takings) => self.receive_batch(consumer, &takings),
            Step::Pending => {
                let pending = self.written - self.released;
                assert_eq!(producer.pending().expect("broken"), pending);
                assert_eq!(consumer.pending(), pending);
            }
        }
    }

    fn record(&self, Length(length): Length) -> Vec<u8> {
        pattern(self.written, length)
    }

    fn fits(&self, length: usize) -> bool {
        behind(self.written, length as u32) + 8 - self.released <= CAPACITY as u64
    }

    fn sent(&mut self, sent: Result<(), SendError>, record: Vec<u8>) {
        match sent {
            Ok(()) => self.wrote(record),
            Err(error) => self.refused(&error, record.len()),
        }
    }

    fn wrote(&mut self, record: Vec<u8>) {
        assert!(record.len() <= longest(CAPACITY) as usize);
        self.written = behind(self.written, record.len() as u32);
        assert!(self.written + 8 - self.released <= CAPACITY as u64);
        self.records.push_back(record);
    }

    fn refused(&self, error: &SendError, length: usize) {
        match error {
            SendError::RecordTooLong { .. } => assert!(length > longest(CAPACITY) as usize),
            SendError::Full => assert!(!self.fits(length)),
            other => panic!("{other:?}"),
        }
    }

    fn fill(&mut self, mut room: sluice::ring::Reservation, mut record: Vec<u8>, then: Then) {
        room.copy_from_slice(&record);
        match then {
            Then::Commit => room.commit(),
            Then::CommitFirst(length) => {
                record.truncate(length.0 % (record.len() + 1));
                room.commit_len(record.len());
            }
            Then::Drop => return,
        }
        self.wrote(record);
    }

    fn send_batch(&mut self, producer: &mut Producer, parts: &[Part]) {
        let mut batch = producer.batch();
        for part in parts {
            match part {
                Part::Send(length) => {
                    let record = self.record(*length);
                    self.sent(batch.try_send(&record), record);
                }
                // The call waits where there is no room.
                Part::Reserve(length, _) if !self.fits(length.0) => {}
                Part::Reserve(length, then) => {
                    let record = self.record(*length);
                    match batch.reserve(record.len()) {
                        Ok(room) => self.fill(room, record, *then),
                        Err(error) => self.refused(&error, record.len()),
                    }
                }
            }
        }
    }

    /// Whether there was one; with enough room for it.
    fn receive_one(&mut self, consumer: &mut Consumer) -> bool {
        let before = self.records.len();
        if before > 0 {
            self.receive(CAPACITY, |into| consumer.try_recv(into));
        }
        self.records.len() < before
    }

    fn receive(
        &mut self,
        room: usize,
        call: impl FnOnce(&mut [u8]) -> Result<Option<usize>, RecvError>,
    ) {
        let mut into = vec![0; room];
        match call(&mut into) {
            Ok(Some(length)) => self.took(&into[..length]),
            Ok(None) | Err(RecvError::Empty) => assert_eq!(self.records.len(), 0),
            Err(RecvError::BufferTooSmall { len: length, .. }) => {
                assert_eq!(self.records[0].len(), length as usize);
                assert!(length as usize > room);
            }
            other => panic!("{other:?}"),
        }
    }

    fn took(&mut self, bytes: &[u8]) {
        let record = self.records.pop_front().expect("nothing was sent");
        assert_eq!(bytes, record);
        self.taken = behind(self.taken, record.len() as u32);
    }

    fn release(&mut self) {
        self.released = self.taken;
    }

    fn peek(&mut self, consumer: &mut Consumer, releases: bool) {
        match consumer.try_peek() {
            Ok(Some(record)) => {
                assert_eq!(record.to_vec(), self.records[0]);
                if releases {
                    let bytes = record.to_vec();
                    record.release();
                    self.took(&bytes);
                    self.release();
                }
            }
            Err(RecvError::Empty) => assert_eq!(self.records.len(), 0),
            other => panic!("{other:?}"),
        }
    }

    fn receive_batch(&mut self, consumer: &mut Consumer, takings: &[Taking]) {
        // The call waits where there is nothing.
        if self.records.is_empty() {
            return;
        }
        let mut batch = consumer.batch().expect("broken").expect("no end");
        for taking in takings {
            match taking {
                Taking::Take => self.receive(CAPACITY, |into| {
                    let bytes = batch.take()?;
                    Ok(bytes.map(|bytes| bytes.copy_to(0, into)))
                }),
                Taking::Recv(room) => self.receive(room.0, |into| batch.recv(into)),
            }
        }
        drop(batch);
        self.release();
    }
}
