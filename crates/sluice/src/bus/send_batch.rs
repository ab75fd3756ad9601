// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::VecDeque;

use sluice_abi::bus::Frame;

use super::error::SendError;

/// Frames of a write begin at multiples of this number of bytes.
const ALIGN: usize = 8;

/// Messages that [`Sender::send_batch`](super::Sender::send_batch) sends together, in the order in which they were added:
/// one system call for many small messages. Returned by [`Sender::batch`](super::Sender::batch), and used again after each
/// call, so that it allocates no more memory.
#[derive(Clone, Debug)]
pub struct SendBatch {
    message_max: u64,
    frames: Vec<u8>,
    /// The bytes of `frames` that were sent.
    sent: usize,
    unsent: VecDeque<Unsent>,
}

#[derive(Clone, Copy, Debug)]
struct Unsent {
    /// In `frames`, of the message.
    end: usize,
    target: u64,
}

impl SendBatch {
    pub(super) fn new(message_max: u64) -> Self {
        Self {
            message_max,
            frames: Vec::new(),
            sent: 0,
            unsent: VecDeque::new(),
        }
    }

    /// Adds a message for those whom the mode of the bus determines. Fails with [`SendError::MessageTooLong`].
    pub fn push(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.add(0, message)
    }

    /// Adds a message for one subscriber, as [`Sender::send_to`](super::Sender::send_to) sends it.
    pub fn push_to(&mut self, id: u64, message: &[u8]) -> Result<(), SendError> {
        match id {
            0 => Err(SendError::UnknownSubscriber { id }),
            _ => self.add(id, message),
        }
    }

    /// The number of messages that were not sent yet.
    pub fn len(&self) -> usize {
        self.unsent.len()
    }

    pub fn is_empty(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Removes the messages that were not sent.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.unsent.clear();
        self.sent = 0;
    }

    /// Removes the first message, which could not be sent.
    pub fn remove_first(&mut self) {
        if let Some(first) = self.unsent.front() {
            self.pass(first.end.next_multiple_of(ALIGN));
        }
    }

    fn add(&mut self, target: u64, message: &[u8]) -> Result<(), SendError> {
        let frame = frame(target, message, self.message_max)?;
        let begin = self.frames.len().next_multiple_of(ALIGN);
        self.frames.resize(begin, 0);
        self.frames.extend_from_slice(&frame.to_bytes());
        self.frames.extend_from_slice(message);
        let end = self.frames.len();
        self.unsent.push_back(Unsent { end, target });
        Ok(())
    }

    /// What is to be written, from a frame on.
    pub(super) fn rest(&self) -> &[u8] {
        self.frames.get(self.sent..).unwrap_or_default()
    }

    /// Write(2) has returned this number of bytes.
    pub(super) fn written(&mut self, bytes: usize) {
        self.pass(self.sent + bytes);
    }

    fn pass(&mut self, sent: usize) {
        self.sent = sent;
        while self.unsent.front().is_some_and(|first| first.end <= sent) {
            self.unsent.pop_front();
        }
        if self.unsent.is_empty() {
            self.clear();
        }
    }

    /// The target of the first message, or 0.
    pub(super) fn first_target(&self) -> u64 {
        self.unsent.front().map_or(0, |first| first.target)
    }
}

/// The frame of a message that is not longer than `max`.
pub(super) fn frame(target: u64, message: &[u8], max: u64) -> Result<Frame, SendError> {
    let len = message.len();
    match u32::try_from(len) {
        Ok(length) if u64::from(length) <= max => Ok(Frame::new(length, target)),
        _ => Err(SendError::MessageTooLong { len, max }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three messages, whose frames begin at 0, 72 and 144.
    fn batch() -> SendBatch {
        let mut batch = SendBatch::new(8);
        batch.push(b"one").unwrap();
        batch.push_to(7, b"the next").unwrap();
        batch.push(b"").unwrap();
        batch
    }

    #[test]
    fn each_frame_begins_at_a_multiple_of_8() {
        let batch = batch();
        let bytes = batch.rest();
        assert_eq!((bytes.len(), batch.len()), (208, 3));
        for (at, length, target) in [(0, 3, 0), (72, 8, 7), (144, 0, 0)] {
            let frame = Frame::from_bytes(bytes[at..].first_chunk().unwrap());
            assert_eq!(frame, Frame::new(length, target));
        }
        assert_eq!(
            (&bytes[64..67], &bytes[136..144]),
            (&b"one"[..], &b"the next"[..])
        );
    }

    #[test]
    fn what_was_written_leaves_the_batch() {
        let mut batch = batch();
        batch.written(72);
        assert_eq!((batch.len(), batch.first_target()), (2, 7));
        assert_eq!(batch.rest().len(), 136);
        batch.remove_first();
        assert_eq!((batch.len(), batch.first_target()), (1, 0));
        batch.push(b"another").unwrap();
        batch.written(batch.rest().len());
        assert!(batch.is_empty());
        assert_eq!(batch.rest(), b"");
        batch.remove_first();
        batch.push(b"anew").unwrap();
        assert_eq!(batch.rest().len(), 68);
    }

    #[test]
    fn a_refused_message_is_not_added() {
        let mut batch = batch();
        assert!(matches!(
            batch.push(b"nine byte"),
            Err(SendError::MessageTooLong { len: 9, max: 8 })
        ));
        assert!(matches!(
            batch.push_to(0, b""),
            Err(SendError::UnknownSubscriber { id: 0 })
        ));
        assert_eq!(batch.len(), 3);
    }
}
