// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages that were received from a bus and that the engine has not acknowledged, in memory that the service manager keeps for the
//! next process.
//!
//! The kernel copies a message with its frame to the head of the window, where the frame was cleared before. Whenever the process is killed,
//! the next one finds the message: before the head if that was advanced, otherwise at it. A message at the head is uncertain until the next
//! receive: the kernel may have copied a part of it.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use anyhow::{Result, bail, ensure};
use nix::errno::Errno;
use nix::unistd::read;
use sluice::bus::Header;

use crate::window_memory::WindowMemory;

/// The layout of the file; another version of the bridge refuses another one.
const MAGIC: u64 = u64::from_le_bytes(*b"sluicew2");
/// Each message begins at a multiple.
const ALIGN: usize = 8;

/// The counts of the first page.
mod count {
    pub const MAGIC: usize = 0;
    /// Hash of the name of the channel.
    pub const CHANNEL: usize = 1;
    /// A random number of this subscription.
    pub const INCARNATION: usize = 2;
    /// The id of the subscriber.
    pub const SUBSCRIBER: usize = 3;
    /// Positions of the oldest message that is not acknowledged, and of the next one to receive.
    pub const TAIL: usize = 4;
    pub const HEAD: usize = 5;
    /// The head at which a frame was cleared for the next message. If this is the head, only the kernel can have written a frame there:
    /// positions do not repeat.
    pub const CLEARED: usize = 6;
}

pub struct Window {
    memory: WindowMemory,
    /// Received, and not taken yet. Only the last one may be uncertain.
    received: VecDeque<Record>,
    /// Messages that were taken, and neither released nor put back.
    taken: usize,
}

/// A message in the window.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub header: Header,
    position: u64,
    mark: Mark,
}

/// What the bridge writes into the frame of a message, in bytes that are zero there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Received = 0,
    /// The engine has acknowledged it.
    Stored = 1,
    /// It may be there in part: the last process was killed while the kernel copied it, or right after that. What is received next decides.
    Uncertain = 2,
    /// It was there in part, and the bus does not have it any more.
    Lost = 3,
}

/// Where a frame has the mark.
const MARK: Range<usize> = 52..56;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    Message,
    /// The bus has no message.
    Nothing,
    /// The next message needs more room than is free.
    Full,
    /// The bus was destroyed, or this subscriber was evicted.
    Ended,
}

impl Window {
    /// Of a subscription that has received nothing.
    pub fn new(bytes: usize, channel: &str, subscriber: u64) -> Result<Self> {
        let memory = WindowMemory::new(bytes)?;
        // Its keys are random, in each process.
        let incarnation = RandomState::new().hash_one(subscriber);
        for (index, value) in [
            (count::CHANNEL, hash(channel)),
            (count::INCARNATION, incarnation),
            (count::SUBSCRIBER, subscriber),
            (count::MAGIC, MAGIC),
        ] {
            memory.count(index).store(value, Ordering::Release);
        }
        Ok(Self {
            memory,
            received: VecDeque::new(),
            taken: 0,
        })
    }

    /// That of an earlier process, with its messages.
    pub fn restore(file: OwnedFd, channel: &str) -> Result<Self> {
        let window = Self::read(file)?;
        ensure!(
            window.get(count::CHANNEL) == hash(channel),
            "it is of another bus"
        );
        Ok(window)
    }

    /// The number of messages in the window of an earlier process, whatever its channel was.
    pub fn messages(file: OwnedFd) -> Result<u64> {
        Ok(Self::read(file)?.received.len() as u64)
    }

    fn read(file: OwnedFd) -> Result<Self> {
        let mut window = Self {
            memory: WindowMemory::restore(file)?,
            received: VecDeque::new(),
            taken: 0,
        };
        ensure!(
            window.get(count::MAGIC) == MAGIC,
            "it is of another version"
        );
        let (tail, head) = (window.get(count::TAIL), window.get(count::HEAD));
        let used = head.wrapping_sub(tail);
        ensure!(
            used <= window.memory.capacity() as u64 && used % ALIGN as u64 == 0,
            "its positions {tail} and {head} are invalid"
        );
        let mut position = tail;
        while position < head {
            let record = window.record(position);
            let Some(record) = record.filter(|record| record.end() <= head) else {
                bail!("the message at {position} is invalid");
            };
            window.push(record);
            position = record.end();
        }
        window.find_last();
        window.release_replaced();
        Ok(window)
    }

    /// Receives a message from the nonblocking descriptor of a subscriber with the format SLUICE_BUS_FRAMED.
    pub fn receive(&mut self, subscriber: BorrowedFd<'_>) -> Result<Received, Errno> {
        let (tail, head) = (self.get(count::TAIL), self.get(count::HEAD));
        let room = self.memory.capacity() - (head - tail) as usize;
        if room < Header::LEN {
            return Ok(Received::Full);
        }
        self.clear();
        let buffer = self.memory.bytes_mut(head, room);
        match read(subscriber, buffer) {
            Ok(_) => {}
            Err(Errno::EAGAIN) => {
                self.decide(Mark::Received);
                return Ok(Received::Nothing);
            }
            Err(Errno::EMSGSIZE) => return Ok(Received::Full),
            Err(Errno::EPIPE | Errno::ESHUTDOWN) => {
                self.end();
                return Ok(Received::Ended);
            }
            Err(errno) => return Err(errno),
        }
        let record = self.record(head).ok_or(Errno::EBADMSG)?;
        self.add(record);
        Ok(Received::Message)
    }

    /// The next message that was received, unless it is uncertain.
    pub fn take(&mut self) -> Option<Record> {
        if !self.received.front()?.is_certain() {
            return None;
        }
        self.taken += 1;
        self.received.pop_front()
    }

    /// Whether the next receive decides about a message.
    pub fn is_uncertain(&self) -> bool {
        self.received
            .back()
            .is_some_and(|record| !record.is_certain())
    }

    /// Nothing is received any more, so that nobody knows whether an uncertain message is whole.
    pub fn end(&mut self) {
        self.decide(Mark::Lost);
    }

    /// Messages that were taken are to be taken again, before others.
    pub fn put_back(&mut self, records: impl DoubleEndedIterator<Item = Record>) {
        for record in records.rev() {
            self.taken -= 1;
            self.received.push_front(record);
        }
    }

    /// The engine has the message, and not yet one before it. The next process knows that, too.
    pub fn set_stored(&mut self, record: &mut Record) {
        record.set_mark(Mark::Stored, &mut self.memory);
    }

    /// The message, and all that were received before it, are not needed any more.
    pub fn release(&mut self, record: &Record) {
        self.taken -= 1;
        self.set(count::TAIL, record.end());
        if self.taken == 0 {
            self.release_replaced();
        }
    }

    /// Copies that others have replaced, before the next message.
    fn release_replaced(&mut self) {
        let head = self.get(count::HEAD);
        let next = self.received.front().map_or(head, |next| next.position);
        self.set(count::TAIL, next);
    }

    pub fn body(&self, record: &Record) -> &[u8] {
        let position = record.position + Header::LEN as u64;
        self.memory.bytes(position, record.header.len)
    }

    pub fn is_empty(&self) -> bool {
        self.get(count::TAIL) == self.get(count::HEAD)
    }

    /// With the sequence, the identity of a message: it is of the subscription, because a bus that was created again begins with 0, too.
    pub fn incarnation(&self) -> u64 {
        self.get(count::INCARNATION)
    }

    pub fn subscriber(&self) -> u64 {
        self.get(count::SUBSCRIBER)
    }

    /// The message that the kernel copied for the last process, which ended before it advanced the head. The kernel writes the frame before
    /// the body. If the body is not complete, the bus still has the message, and gives it again.
    fn find_last(&mut self) {
        let (tail, head) = (self.get(count::TAIL), self.get(count::HEAD));
        let room = self.memory.capacity() as u64 - (head - tail);
        if self.get(count::CLEARED) != head || room < Header::LEN as u64 {
            return;
        }
        let record = self
            .record(head)
            .filter(|record| record.end() - tail <= self.memory.capacity() as u64);
        if let Some(mut record) = record {
            record.set_mark(Mark::Uncertain, &mut self.memory);
            self.add(record);
        }
    }

    /// The frame at the head. The bytes are zero before the count says so.
    fn clear(&mut self) {
        let head = self.get(count::HEAD);
        self.memory.bytes_mut(head, Header::LEN).fill(0);
        self.set(count::CLEARED, head);
    }

    fn add(&mut self, record: Record) {
        self.push(record);
        self.set(count::HEAD, record.end());
    }

    /// Decides about an uncertain message before it: the same message replaces it.
    fn push(&mut self, record: Record) {
        if let Some(last) = self.received.back().filter(|last| !last.is_certain()) {
            let (last, next) = (&last.header, &record.header);
            if last.sequence == next.sequence {
                self.received.pop_back();
            } else if next.lost == 0 || next.sequence == last.sequence + 1 + next.lost {
                self.decide(Mark::Received);
            } else {
                self.decide(Mark::Lost);
            }
        }
        self.received.push_back(record);
    }

    fn decide(&mut self, mark: Mark) {
        let last = self.received.back_mut();
        if let Some(last) = last.filter(|last| !last.is_certain()) {
            last.set_mark(mark, &mut self.memory);
        }
    }

    /// The message at a position, if its frame is one and it is not longer than the window.
    fn record(&self, position: u64) -> Option<Record> {
        let frame = self.memory.bytes(position, Header::LEN);
        let header = Header::from_bytes(frame.try_into().ok()?)?;
        let mark = Mark::from_bytes(frame[MARK].try_into().ok()?);
        let record = Record {
            header,
            position,
            mark,
        };
        let fits = header.len <= self.memory.capacity() - Header::LEN;
        fits.then_some(record)
    }

    fn get(&self, index: usize) -> u64 {
        self.memory.count(index).load(Ordering::Acquire)
    }

    /// The store is later than all earlier ones, also in a file whose writer was killed in between.
    fn set(&self, index: usize, value: u64) {
        self.memory.count(index).store(value, Ordering::Release);
    }
}

impl Mark {
    fn from_bytes(bytes: [u8; 4]) -> Self {
        match u32::from_ne_bytes(bytes) {
            1 => Self::Stored,
            2 => Self::Uncertain,
            3 => Self::Lost,
            _ => Self::Received,
        }
    }
}

impl Record {
    pub fn is_stored(&self) -> bool {
        self.mark == Mark::Stored
    }

    pub fn is_lost(&self) -> bool {
        self.mark == Mark::Lost
    }

    fn set_mark(&mut self, mark: Mark, memory: &mut WindowMemory) {
        self.mark = mark;
        let frame = memory.bytes_mut(self.position, Header::LEN);
        frame[MARK].copy_from_slice(&(mark as u32).to_ne_bytes());
    }

    fn is_certain(&self) -> bool {
        self.mark != Mark::Uncertain
    }

    fn end(&self) -> u64 {
        let len = Header::LEN + self.header.len;
        self.position + len.next_multiple_of(ALIGN) as u64
    }
}

impl AsFd for Window {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

/// FNV-1a, which does not change with the version of a library.
pub fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
pub mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// A descriptor that is read as that of a subscriber, and one that sends messages with a frame. Too little room is not told.
    pub fn subscriber() -> (UnixDatagram, UnixDatagram) {
        let (sender, subscriber) = UnixDatagram::pair().unwrap();
        subscriber.set_nonblocking(true).unwrap();
        (sender, subscriber)
    }

    /// A message of the user 1000 and the group 100, from the endpoint 5.
    pub fn frame(sequence: u64, body: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        frame.extend(64_u32.to_ne_bytes());
        frame.extend((body.len() as u32).to_ne_bytes());
        for field in [0, 5, sequence, 0] {
            frame.extend(u64::to_ne_bytes(field));
        }
        for field in [77_u32, 1000, 100, 0] {
            frame.extend(field.to_ne_bytes());
        }
        frame.extend(0_u64.to_ne_bytes());
        frame.extend(body);
        frame
    }

    impl Window {
        /// The process ends between the copy and the store of the head.
        pub fn copy_only(&mut self, message: &[u8]) {
            let head = self.get(count::HEAD);
            self.set(count::CLEARED, head);
            let head = self.memory.bytes_mut(head, message.len());
            head.copy_from_slice(message);
        }
    }

    fn window() -> Window {
        Window::new(4096, "orders", 3).unwrap()
    }

    fn restored(window: Window) -> Window {
        let file = window.as_fd().try_clone_to_owned().unwrap();
        drop(window);
        Window::restore(file, "orders").unwrap()
    }

    /// What is taken after the bus has nothing more.
    fn all_bodies(window: &mut Window) -> Vec<(u64, Vec<u8>)> {
        let (_sender, subscriber) = subscriber();
        assert_eq!(window.receive(subscriber.as_fd()), Ok(Received::Nothing));
        bodies(window)
    }

    fn bodies(window: &mut Window) -> Vec<(u64, Vec<u8>)> {
        let records: Vec<Record> = std::iter::from_fn(|| window.take()).collect();
        let body = |record: &Record| (record.header.sequence, window.body(record).to_vec());
        records.iter().map(body).collect()
    }

    #[test]
    fn messages_are_taken_in_order_and_released() {
        let (sender, subscriber) = subscriber();
        let mut window = window();
        assert_eq!(window.receive(subscriber.as_fd()), Ok(Received::Nothing));
        for round in 0..100_u64 {
            let body = vec![round as u8; 1000];
            sender.send(&frame(10 + round, &body)).unwrap();
            assert_eq!(window.receive(subscriber.as_fd()), Ok(Received::Message));
            let record = window.take().unwrap();
            assert_eq!(window.body(&record), body);
            assert_eq!(
                (record.header.uid, record.header.sequence),
                (1000, 10 + round)
            );
            assert!(!window.is_empty());
            window.release(&record);
            assert!(window.is_empty());
        }
    }

    #[test]
    fn the_next_process_has_what_was_not_released() {
        let (sender, subscriber) = subscriber();
        let mut window = window();
        for sequence in 10..13 {
            sender.send(&frame(sequence, &[sequence as u8])).unwrap();
            window.receive(subscriber.as_fd()).unwrap();
        }
        let first = window.take().unwrap();
        window.release(&first);
        let second = window.take().unwrap();
        window.put_back([second].into_iter());
        let incarnation = window.incarnation();
        let mut window = restored(window);
        assert_eq!(
            (window.incarnation(), window.subscriber()),
            (incarnation, 3)
        );
        assert_eq!(bodies(&mut window), [(11, vec![11]), (12, vec![12])]);
    }

    #[test]
    fn a_message_that_was_copied_last_is_found() {
        let mut window = window();
        window.copy_only(&frame(10, b"last"));
        let mut window = restored(window);
        assert!(window.is_uncertain());
        assert_eq!(all_bodies(&mut window), [(10, b"last".to_vec())]);
        assert!(!restored(window).is_uncertain());
    }

    #[test]
    fn a_message_that_was_copied_in_part_is_received_again() {
        let (sender, subscriber) = subscriber();
        let mut window = window();
        let message = frame(10, b"whole message");
        window.copy_only(&message[..70]);
        let mut window = restored(window);
        sender.send(&message).unwrap();
        window.receive(subscriber.as_fd()).unwrap();
        let mut window = restored(window);
        assert_eq!(bodies(&mut window), [(10, b"whole message".to_vec())]);
    }

    #[test]
    fn the_second_copy_is_found_if_the_next_process_is_killed_too() {
        let mut window = window();
        let message = frame(10, b"whole message");
        window.copy_only(&message[..70]);
        let mut window = restored(window);
        window.copy_only(&message);
        let mut window = restored(window);
        assert_eq!(all_bodies(&mut window), [(10, b"whole message".to_vec())]);
    }

    #[test]
    fn a_message_in_part_is_not_taken_while_there_is_no_room_for_it() {
        let (sender, subscriber) = subscriber();
        let mut window = window();
        let long = vec![7; window.memory.capacity() / 2 - 64 - 8];
        sender.send(&frame(10, &long)).unwrap();
        window.receive(subscriber.as_fd()).unwrap();
        let message = frame(11, &long);
        window.copy_only(&message[..70]);
        let mut window = restored(window);
        assert_eq!(window.receive(subscriber.as_fd()), Ok(Received::Full));
        let first = window.take().unwrap();
        assert!(window.take().is_none() && window.is_uncertain());
        window.release(&first);
        sender.send(&message).unwrap();
        assert_eq!(window.receive(subscriber.as_fd()), Ok(Received::Message));
        assert_eq!(bodies(&mut window), [(11, long)]);
    }

    #[test]
    fn a_message_in_part_is_lost_with_the_bus() {
        let (sender, subscriber) = subscriber();
        let part = || {
            let mut window = window();
            window.copy_only(&frame(10, b"whole message")[..70]);
            restored(window)
        };
        let mut ended = part();
        ended.end();
        assert!(ended.take().unwrap().is_lost());
        // With the policy drop, the bus has lost it, too.
        for (lost, is_lost) in [(0, false), (2, false), (3, true)] {
            let mut dropped = part();
            let mut next = frame(13, b"next");
            next[32..40].copy_from_slice(&u64::to_ne_bytes(lost));
            sender.send(&next).unwrap();
            dropped.receive(subscriber.as_fd()).unwrap();
            assert_eq!(dropped.take().unwrap().is_lost(), is_lost, "{lost}");
            assert_eq!(dropped.take().unwrap().header.sequence, 13);
        }
    }

    #[test]
    fn copies_in_part_do_not_fill_the_window() {
        let (sender, subscriber) = subscriber();
        let mut window = window();
        let message = frame(10, &vec![7; window.memory.capacity() / 2 - 64 - 8]);
        for _ in 0..5 {
            window.copy_only(&message[..70]);
            window = restored(window);
        }
        sender.send(&message).unwrap();
        assert_eq!(window.receive(subscriber.as_fd()), Ok(Received::Message));
        let record = window.take().unwrap();
        window.release(&record);
        assert!(window.is_empty());
    }

    /// The kill is between a store and the next one: each state of the counts that a receive passes.
    #[test]
    fn a_message_is_found_after_a_kill_between_any_two_stores() {
        for stores in 0..=2 {
            let mut window = window();
            let first = frame(0, b"first");
            window.copy_only(&first);
            let record = window.record(0).unwrap();
            if stores > 0 {
                window.set(count::HEAD, record.end());
            }
            if stores > 1 {
                window.clear();
            }
            let mut window = restored(window);
            assert_eq!(
                all_bodies(&mut window),
                [(0, b"first".to_vec())],
                "{stores}"
            );
        }
    }

    #[test]
    fn bytes_of_old_messages_are_no_message() {
        let (sender, subscriber) = subscriber();
        let mut window = window();
        // The body contains what looks like a later message.
        let forged = frame(99, b"forged");
        sender.send(&frame(10, &forged)).unwrap();
        window.receive(subscriber.as_fd()).unwrap();
        let record = window.take().unwrap();
        window.release(&record);
        let capacity = window.memory.capacity() as u64;
        // The next message would begin where the forged one is.
        window.set(count::TAIL, capacity + 64);
        window.set(count::HEAD, capacity + 64);
        let mut window = restored(window);
        assert!(bodies(&mut window).is_empty());
        assert_eq!(window.receive(subscriber.as_fd()), Ok(Received::Nothing));
        assert!(bodies(&mut restored(window)).is_empty());
    }

    #[test]
    fn without_room_nothing_is_received() {
        let (sender, subscriber) = subscriber();
        let mut window = window();
        let body = vec![0; window.memory.capacity() - 64 - 8];
        sender.send(&frame(10, &body)).unwrap();
        assert_eq!(window.receive(subscriber.as_fd()), Ok(Received::Message));
        assert_eq!(window.receive(subscriber.as_fd()), Ok(Received::Full));
    }

    #[test]
    fn a_window_of_another_bus_or_version_is_refused() {
        let file = |window: &Window| window.as_fd().try_clone_to_owned().unwrap();
        let window = window();
        assert!(Window::restore(file(&window), "prices").is_err());
        window.set(count::HEAD, 1 << 40);
        assert!(Window::restore(file(&window), "orders").is_err());
        window.set(count::HEAD, 64);
        assert!(Window::restore(file(&window), "orders").is_err());
        window.set(count::MAGIC, 1);
        assert!(Window::restore(file(&window), "orders").is_err());
    }
}
