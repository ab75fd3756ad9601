// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use arbitrary::Arbitrary;
use sluice::ring::{Consumer, Producer, RecvError, SendError, Socket, SocketOptions};

use super::{BatchStep, CAPACITY, Completion, Length, Steps, pattern};
use crate::{max_record_len, next_pos};

/// Calls of a producer and a consumer, checked against a queue of the expected records.
#[derive(Arbitrary, Debug)]
pub struct RoundTripInput {
    steps: Steps<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Send(Length),
    Reserve(Length, Completion),
    SendBatch(Vec<BatchStep>),
    Recv(Length),
    Peek(bool),
    RecvBatch(Vec<BatchRecv>),
    Pending,
}

#[derive(Arbitrary, Debug)]
enum BatchRecv {
    Take,
    Recv(Length),
}

impl super::FuzzInput for RoundTripInput {
    fn run(self) {
        let (mut producer, mut consumer) = ring();
        let mut model = Model::default();
        for step in self.steps.0 {
            model.step(&mut producer, &mut consumer, step);
        }
        drop(producer);
        while model.receive_one(&mut consumer) {}
        assert_eq!(consumer.recv_into(&mut []).expect("not received"), None);
        assert_eq!(model.records.len(), 0, "records were lost");
    }
}

fn ring() -> (Producer, Consumer) {
    let (producer_socket, consumer_socket) = Socket::pair().expect("no socket pair");
    let options = SocketOptions::new()
        .capacity(CAPACITY as u64)
        .spin_limit(Duration::ZERO);
    thread::scope(|scope| {
        let producer = scope.spawn(|| options.producer(producer_socket));
        let consumer = options.consumer(consumer_socket).expect("handshake failed");
        let producer = producer.join().expect("panicked");
        (producer.expect("handshake failed"), consumer)
    })
}

/// The expected state of the ring.
#[derive(Default)]
struct Model {
    written: u64,
    received: u64,
    released: u64,
    /// Records that were sent and not received.
    records: VecDeque<Vec<u8>>,
}

impl Model {
    fn step(&mut self, producer: &mut Producer, consumer: &mut Consumer, step: Step) {
        match step {
            Step::Send(length) => {
                let record = self.record(length);
                self.check_send(producer.try_send(&record), record);
            }
            Step::Reserve(length, completion) => {
                let record = self.record(length);
                match producer.try_reserve(record.len()) {
                    Ok(reservation) => self.fill(reservation, record, completion),
                    Err(error) => self.check_send_error(&error, record.len()),
                }
            }
            Step::SendBatch(steps) => self.send_batch(producer, &steps),
            Step::Recv(len) => {
                self.receive(len.0, |buffer| consumer.try_recv_into(buffer));
                self.release();
            }
            Step::Peek(releases) => self.peek(consumer, releases),
            Step::RecvBatch(calls) => self.receive_batch(consumer, &calls),
            Step::Pending => {
                let pending = self.written - self.released;
                assert_eq!(producer.pending().expect("not readable"), pending);
                assert_eq!(consumer.pending(), pending);
            }
        }
    }

    fn record(&self, Length(length): Length) -> Vec<u8> {
        pattern(self.written, length)
    }

    fn fits(&self, length: usize) -> bool {
        next_pos(self.written, length as u32) + 8 - self.released <= CAPACITY as u64
    }

    fn check_send(&mut self, result: Result<(), SendError>, record: Vec<u8>) {
        match result {
            Ok(()) => self.note_written(record),
            Err(error) => self.check_send_error(&error, record.len()),
        }
    }

    fn note_written(&mut self, record: Vec<u8>) {
        assert!(record.len() <= max_record_len(CAPACITY) as usize);
        self.written = next_pos(self.written, record.len() as u32);
        assert!(self.written + 8 - self.released <= CAPACITY as u64);
        self.records.push_back(record);
    }

    fn check_send_error(&self, error: &SendError, length: usize) {
        match error {
            SendError::RecordTooLong { .. } => assert!(length > max_record_len(CAPACITY) as usize),
            SendError::Full => assert!(!self.fits(length)),
            other => panic!("{other:?}"),
        }
    }

    fn fill(
        &mut self,
        mut reservation: sluice::ring::Reservation,
        mut record: Vec<u8>,
        completion: Completion,
    ) {
        reservation.copy_from_slice(&record);
        match completion {
            Completion::Commit => reservation.commit(),
            Completion::CommitLen(length) => {
                record.truncate(length.0 % (record.len() + 1));
                reservation.commit_len(record.len());
            }
            Completion::Drop => return,
        }
        self.note_written(record);
    }

    fn send_batch(&mut self, producer: &mut Producer, steps: &[BatchStep]) {
        let mut batch = producer.send_batch();
        for step in steps {
            match step {
                BatchStep::Send(length) => {
                    let record = self.record(*length);
                    self.check_send(batch.try_send(&record), record);
                }
                // reserve() would block.
                BatchStep::Reserve(length, _) if !self.fits(length.0) => {}
                BatchStep::Reserve(length, completion) => {
                    let record = self.record(*length);
                    match batch.reserve(record.len()) {
                        Ok(reservation) => self.fill(reservation, record, *completion),
                        Err(error) => self.check_send_error(&error, record.len()),
                    }
                }
            }
        }
    }

    /// Receives a record of any length. Returns whether there was one.
    fn receive_one(&mut self, consumer: &mut Consumer) -> bool {
        let before = self.records.len();
        if before > 0 {
            self.receive(CAPACITY, |buffer| consumer.try_recv_into(buffer));
        }
        self.records.len() < before
    }

    fn receive(
        &mut self,
        len: usize,
        call: impl FnOnce(&mut [u8]) -> Result<Option<usize>, RecvError>,
    ) {
        let mut buffer = vec![0; len];
        match call(&mut buffer) {
            Ok(Some(length)) => self.note_received(&buffer[..length]),
            Ok(None) | Err(RecvError::Empty) => assert_eq!(self.records.len(), 0),
            Err(RecvError::BufferTooSmall { len: length, .. }) => {
                assert_eq!(self.records[0].len(), length as usize);
                assert!(length as usize > len);
            }
            other => panic!("{other:?}"),
        }
    }

    fn note_received(&mut self, bytes: &[u8]) {
        let record = self.records.pop_front().expect("no record was sent");
        assert_eq!(bytes, record);
        self.received = next_pos(self.received, record.len() as u32);
    }

    fn release(&mut self) {
        self.released = self.received;
    }

    fn peek(&mut self, consumer: &mut Consumer, releases: bool) {
        match consumer.try_recv() {
            Ok(Some(record)) => {
                assert_eq!(record.to_vec(), self.records[0]);
                if !releases {
                    return record.keep();
                }
                let bytes = record.to_vec();
                drop(record);
                self.note_received(&bytes);
                self.release();
            }
            Err(RecvError::Empty) => assert_eq!(self.records.len(), 0),
            other => panic!("{other:?}"),
        }
    }

    fn receive_batch(&mut self, consumer: &mut Consumer, calls: &[BatchRecv]) {
        // recv_batch() would block.
        if self.records.is_empty() {
            return;
        }
        let mut batch = consumer
            .recv_batch()
            .expect("no batch")
            .expect("end of stream");
        for call in calls {
            match call {
                BatchRecv::Take => self.receive(CAPACITY, |buffer| {
                    let bytes = batch.recv()?;
                    Ok(bytes.map(|bytes| bytes.copy_to(0, buffer)))
                }),
                BatchRecv::Recv(len) => self.receive(len.0, |buffer| batch.recv_into(buffer)),
            }
        }
        drop(batch);
        self.release();
    }
}
