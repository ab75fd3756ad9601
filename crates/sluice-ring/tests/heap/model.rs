// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random sequences of all calls of both sides, compared with a model of two queues.

use std::collections::VecDeque;

use fastrand::Rng;
use sluice_ring::{Consumer, Producer, record_stride};

use crate::memory::{View, content, publish, ring};

/// A ring, and its expected content.
struct Model {
    producer: Producer<View>,
    consumer: Consumer<View>,
    capacity: u64,
    numbers: u32,
    /// Number and length of the written but unpublished records. `published`: of those published and not received.
    batch: Vec<(u32, u32)>,
    published: VecDeque<(u32, u32)>,
    /// Bytes received and not released.
    held: u64,
}

fn bytes<'a>(records: impl IntoIterator<Item = &'a (u32, u32)>) -> u64 {
    records
        .into_iter()
        .map(|&(_, length)| record_stride(length))
        .sum()
}

impl Model {
    fn new(capacity: u64) -> Self {
        let (producer, consumer) = ring(capacity);
        Self {
            producer,
            consumer,
            capacity,
            numbers: 0,
            batch: Vec::new(),
            published: VecDeque::new(),
            held: 0,
        }
    }

    /// Reserves `asked` bytes, if there is room, stores filler in them, and writes a record of `kept` of them, if not none.
    fn write(&mut self, asked: u32, kept: Option<u32>) {
        let taken = bytes(&self.batch) + bytes(&self.published) + self.held;
        let fits = taken + record_stride(asked) + 8 <= self.capacity;
        assert_eq!(self.producer.has_room(asked), Ok(fits));
        if !fits {
            return;
        }
        let at = self.producer.reserve(asked);
        self.producer.memory().fill(at, asked);
        if let Some(length) = kept {
            let content = content(self.numbers, length);
            self.producer.memory().put(at, &content);
            self.producer.write(length);
            self.batch.push((self.numbers, length));
            self.numbers += 1;
        }
    }

    fn publish(&mut self) {
        publish(&mut self.producer);
        self.published.extend(self.batch.drain(..));
    }

    fn take(&mut self) {
        let Some((number, length)) = self.published.pop_front() else {
            assert_eq!(self.consumer.peek(), Ok(None));
            return;
        };
        crate::memory::take(&mut self.consumer, number, length);
        self.held += record_stride(length);
    }

    fn release(&mut self) {
        assert_eq!(self.consumer.has_unreleased(), self.held > 0);
        self.consumer.release();
        self.held = 0;
    }

    fn check(&mut self) {
        let published = bytes(&self.published);
        assert_eq!(self.producer.has_batch(), !self.batch.is_empty());
        assert_eq!(self.producer.pending(), Ok(published + self.held));
        assert_eq!(self.consumer.pending(), published);
        if self.published.is_empty() {
            assert_eq!(self.consumer.peek(), Ok(None));
        }
    }

    fn record_stride(&mut self, random: &mut Rng) {
        match random.u64(..10) {
            0..=3 => {
                // Mostly short records, so that a ring holds many; occasionally one of any length.
                let long = random.u64(..8) == 0;
                let most = match (long, cfg!(miri)) {
                    (true, false) => self.capacity / 2 - 7,
                    (false, false) => 300,
                    (true, true) => 700,
                    (false, true) => 30,
                };
                let asked = random.u64(..most) as u32;
                let kept = match random.u64(..6) {
                    0 => None,
                    1 => Some(random.u32(..=asked)),
                    _ => Some(asked),
                };
                self.write(asked, kept);
            }
            4..=5 => self.publish(),
            6..=8 => self.take(),
            _ => self.release(),
        }
    }
}

#[test]
fn any_order_of_calls_leaves_the_records_in_theirs() {
    let (seeds, steps) = if cfg!(miri) { (1, 60) } else { (40, 3000) };
    for seed in 1..=seeds {
        let mut random = Rng::with_seed(seed);
        let mut model = Model::new(4096 << random.u64(..if cfg!(miri) { 1 } else { 3 }));
        for _ in 0..steps {
            model.record_stride(&mut random);
            // Not always, because loading the released position is a separate step.
            if random.u64(..3) == 0 {
                model.check();
            }
        }
        model.publish();
        while !model.published.is_empty() {
            model.take();
        }
        model.release();
        model.check();
    }
}
