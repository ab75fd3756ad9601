// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Deref;

use bytemuck::AnyBitPattern;
use sluice_abi::bus::Frame;

use super::error::RecvError;

/// What is known of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// Bytes of the message.
    pub len: usize,
    /// The endpoint that sent it, to which a reply can be addressed if it also subscribes.
    pub sender: u64,
    /// The subscriber that it is addressed to.
    pub target: Option<u64>,
    /// The number of the message, of all that were sent on the bus.
    pub sequence: u64,
    /// Messages that this subscriber lost since the one that it received before.
    pub lost: u64,
    /// The process that opened the endpoint of the sender, if it is visible here.
    pub pid: Option<u32>,
    /// The user that opened the endpoint of the sender.
    pub uid: u32,
    /// The group that opened the endpoint of the sender.
    pub gid: u32,
    /// The number that the sender gave this message; a reply has the tag of its request. 0 from a [`Sender`](super::Sender).
    pub tag: u64,
}

impl Header {
    /// Bytes before a message in the result of read(2), in the format SLUICE_BUS_FRAMED.
    pub const LEN: usize = Frame::SIZE;

    /// The header of a frame, if it is one.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let frame = Frame::from_bytes(bytes);
        (frame.size as usize == Self::LEN).then(|| Self {
            len: frame.length as usize,
            sender: frame.sender,
            target: (frame.target != 0).then_some(frame.target),
            sequence: frame.sequence,
            lost: frame.lost,
            pid: (frame.pid != 0).then_some(frame.pid),
            uid: frame.uid,
            gid: frame.gid,
            tag: frame.tag,
        })
    }
}

/// A message in the buffer of its subscriber. Dereferences to its header.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    header: Header,
    bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// The first message of frames, and what follows it.
    fn split(frames: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (header, rest) = frames.split_first_chunk()?;
        let header = Header::from_bytes(header)?;
        let (bytes, rest) = rest.split_at_checked(header.len)?;
        // Each frame begins at a multiple of 8.
        let gap = header.len.wrapping_neg() % 8;
        let rest = rest.get(gap..).unwrap_or_default();
        Some((Self { header, bytes }, rest))
    }

    /// The message of the result of a read(2) in the format SLUICE_BUS_FRAMED.
    pub fn from_frame(frame: &'a [u8]) -> Result<Self, RecvError> {
        let invalid = RecvError::InvalidMessage { len: frame.len() };
        let (message, rest) = Self::split(frame).ok_or(invalid)?;
        match rest.is_empty() {
            true => Ok(message),
            false => Err(RecvError::InvalidMessage { len: frame.len() }),
        }
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The value at `offset`, aligned or not; none if it extends beyond the message.
    pub fn read_at<T: AnyBitPattern>(&self, offset: usize) -> Option<T> {
        let bytes = self.bytes.get(offset..)?.get(..size_of::<T>())?;
        Some(bytemuck::pod_read_unaligned(bytes))
    }
}

impl Deref for Message<'_> {
    type Target = Header;

    fn deref(&self) -> &Header {
        &self.header
    }
}

/// The messages of one call, in order.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    frames: &'a [u8],
    count: usize,
}

impl<'a> Batch<'a> {
    /// Fails unless all frames are valid.
    pub(super) fn new(frames: &'a [u8]) -> Result<Self, RecvError> {
        let mut rest = frames;
        let mut count = 0;
        while !rest.is_empty() {
            let len = frames.len();
            (_, rest) = Message::split(rest).ok_or(RecvError::InvalidMessage { len })?;
            count += 1;
        }
        Ok(Self { frames, count })
    }
}

impl<'a> Iterator for Batch<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let (message, rest) = Message::split(self.frames)?;
        self.frames = rest;
        self.count -= 1;
        Some(message)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for Batch<'_> {}

#[cfg(test)]
mod tests {
    use sluice_vectors::{bytes, number};

    use super::*;

    fn frame(sequence: u64, bytes: &[u8]) -> Vec<u8> {
        let frame = Frame {
            sequence,
            sender: 3,
            ..Frame::new(bytes.len() as u32, 0)
        };
        [&frame.to_bytes()[..], bytes].concat()
    }

    /// As read(2) returns them.
    fn frames(messages: &[&[u8]]) -> Vec<u8> {
        let mut all = Vec::new();
        for (sequence, bytes) in messages.iter().enumerate() {
            all.resize(all.len().next_multiple_of(8), 0);
            all.extend(frame(sequence as u64, bytes));
        }
        all
    }

    #[test]
    fn a_batch_has_all_messages_in_order() {
        let messages: [&[u8]; 5] = [b"one", b"", b"eight by", &[7; 65], b"last"];
        let frames = frames(&messages);
        let batch = Batch::new(&frames).unwrap();
        assert_eq!(batch.len(), messages.len());
        for (sequence, message) in batch.enumerate() {
            assert_eq!(message.sequence, sequence as u64);
            assert_eq!((message.len, message.sender), (message.bytes().len(), 3));
            assert_eq!(message.bytes(), messages[sequence]);
            assert_eq!((message.target, message.pid), (None, None));
        }
        assert_eq!(Batch::new(&[]).unwrap().count(), 0);
    }

    #[test]
    fn the_vectors_are_messages() {
        for vector in sluice_vectors::of("bus-read") {
            let batch = Batch::new(&vector.bytes).unwrap();
            assert_eq!(batch.len(), vector.parts().len());
            for (message, value) in batch.zip(vector.parts()) {
                let field = |name: &str| number(&value[name]);
                let id = |name: &str| (field(name) != 0).then_some(field(name));
                let expected = Header {
                    len: field("length") as usize,
                    sender: field("sender"),
                    target: id("target"),
                    sequence: field("sequence"),
                    lost: field("lost"),
                    pid: id("pid").map(|pid| pid as u32),
                    uid: field("uid") as u32,
                    gid: field("gid") as u32,
                    tag: field("tag"),
                };
                assert_eq!(*message.header(), expected, "{}", vector.name);
                assert_eq!(message.bytes(), bytes(&value["message"]));
            }
        }
    }

    #[test]
    fn a_truncated_or_unknown_frame_is_invalid() {
        let whole = frame(0, b"bytes");
        assert_eq!(Message::from_frame(&whole).unwrap().bytes(), b"bytes");
        for len in 0..whole.len() {
            let part = &whole[..len];
            assert!(Message::from_frame(part).is_err(), "{len}");
            assert!(len == 0 || Batch::new(part).is_err(), "{len}");
        }
        let two = frames(&[b"one", b"two"]);
        assert!(Message::from_frame(&two).is_err());
        let mut larger = whole;
        larger[0] += 1;
        assert!(Message::from_frame(&larger).is_err());
    }
}
