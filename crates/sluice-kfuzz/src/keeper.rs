// SPDX-License-Identifier: MIT OR Apache-2.0
//! A minimal keeper of durable maps, without which no program would get beyond the open of one: it accepts each open, with one
//! entry, and acknowledges each change.

use std::os::fd::RawFd;

use sluice_abi::SCOPE_SELF;
use sluice_abi::keeper::{
    ACK, Ack, CREATE, Create, END, End, Entry, Map, Message, OPEN, READY, RESTORE, RESUME, Ready,
    Restore, UNLINK, UNLINKED,
};

use crate::execute::{ioctl, system};

/// The greatest number that a change of a map may have.
const LIMIT: u64 = 1 << 40;

/// What to do with the messages that are read.
#[derive(Clone, Copy, PartialEq)]
pub enum Manner {
    Ignore,
    Answer,
    /// Ends every stream.
    Detach,
}

/// Reads the messages that there are, once, and answers them; the stream of the last one.
pub fn handle(keeper: RawFd, manner: Manner) -> Option<u64> {
    let mut buffer = vec![0_u8; 1 << 17];
    let vector = [buffer.as_mut_ptr() as u64, buffer.len() as u64];
    let arguments = [
        keeper as u64,
        vector.as_ptr() as u64,
        1,
        u64::MAX,
        0,
        libc::RWF_NOWAIT as u64,
    ];
    let length = system(libc::SYS_preadv2, arguments);
    let mut rest = buffer.get(..usize::try_from(length).ok()?)?;
    let mut last = None;
    while let Some((message, body, after)) = parse(rest) {
        last = Some(message.stream);
        answer(keeper, &message, body, manner);
        rest = after;
    }
    last
}

/// The first message, its body, and the bytes after it.
fn parse(bytes: &[u8]) -> Option<(Message, &[u8], &[u8])> {
    let message = Message::from_bytes(bytes.first_chunk()?);
    let body = bytes.get(Message::SIZE..message.size as usize)?;
    Some((message, body, &bytes[message.size as usize..]))
}

fn answer(keeper: RawFd, message: &Message, body: &[u8], manner: Manner) {
    let stream = message.stream;
    match (manner, message.r#type) {
        (Manner::Ignore, _) => {}
        (_, OPEN) => answer_open(keeper, stream, body),
        (_, UNLINK) => call(keeper, END, &End::new(stream, UNLINKED, 0)),
        (_, RESUME) => {}
        _ if message.sequence > 0 => {
            call(keeper, ACK, &Ack::new(stream, message.sequence, LIMIT, 0));
        }
        _ => {}
    }
    if manner == Manner::Detach {
        call(keeper, END, &End::new(stream, 0, 0));
    }
}

/// Restores the map with one entry.
fn answer_open(keeper: RawFd, stream: u64, body: &[u8]) {
    let mut bytes = body.to_vec();
    bytes.resize(Map::SIZE, 0);
    let Some(map) = bytes.first_chunk().map(Map::from_bytes) else {
        return;
    };
    let create = Create::new(stream, SCOPE_SELF, &map, 10, LIMIT);
    call(keeper, CREATE, &create);
    let entries = [Entry::new(b"a", b"v", 3, 0)];
    call(keeper, RESTORE, &Restore::new(stream, &entries));
    call(keeper, READY, &Ready::new(stream, 0));
}

/// The kernel writes to the structure of some calls; the result is not used.
fn call<T: Copy>(keeper: RawFd, command: libc::Ioctl, structure: &T) {
    let mut structure = *structure;
    ioctl(keeper, command, &raw mut structure as u64);
}
