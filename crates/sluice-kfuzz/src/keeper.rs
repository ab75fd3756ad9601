// SPDX-License-Identifier: MIT OR Apache-2.0
//! A minimal keeper of durable maps, without which no program would get beyond the open of one: it accepts each open, with one
//! entry, and acknowledges each change.

use std::os::fd::RawFd;

use crate::description::Description;
use crate::execute::{ioctl, system};

const HEADER: usize = 48;
const MAP: usize = 136;

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
    while let Some(message) = Message::parse(rest) {
        last = Some(message.stream);
        message.answer(keeper, manner);
        rest = rest.get(message.size..).unwrap_or_default();
    }
    last
}

struct Message<'a> {
    size: usize,
    kind: u32,
    stream: u64,
    sequence: u64,
    body: &'a [u8],
}

impl<'a> Message<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let small = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let large = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let size = small(0)? as usize;
        Some(Message {
            size,
            kind: small(4)?,
            stream: large(8)?,
            sequence: large(16)?,
            body: bytes.get(HEADER..size)?,
        })
    }

    fn answer(&self, keeper: RawFd, manner: Manner) {
        let named = |name| u64::from(self.kind) == Description::get().constant(name);
        if manner == Manner::Ignore {
        } else if named("SLUICE_KEEP_OPEN") {
            self.answer_open(keeper);
        } else if named("SLUICE_KEEP_UNLINK") {
            call(keeper, "SLUICE_KEEP_END", &[24 | 1 << 32, self.stream, 0]);
        } else if self.sequence > 0 && !named("SLUICE_KEEP_RESUME") {
            let acknowledgement = [32, self.stream, self.sequence, 1 << 40];
            call(keeper, "SLUICE_KEEP_ACK", &acknowledgement);
        }
        if manner == Manner::Detach {
            call(keeper, "SLUICE_KEEP_END", &[24, self.stream, 0]);
        }
    }

    /// Restores the map with one entry.
    fn answer_open(&self, keeper: RawFd) {
        let mut map = self.body.to_vec();
        map.resize(MAP, 0);
        let scope = u64::from(u32::MAX) << 32;
        let create = [40 | scope, self.stream, map.as_ptr() as u64, 10, 1 << 40];
        call(keeper, "SLUICE_KEEP_CREATE", &create);
        let entry = [
            b"a".as_ptr() as u64,
            b"v".as_ptr() as u64,
            1 | 1 << 32,
            3,
            0,
        ];
        let restore = [32 | 1 << 32, self.stream, entry.as_ptr() as u64, 40];
        call(keeper, "SLUICE_KEEP_RESTORE", &restore);
        call(keeper, "SLUICE_KEEP_READY", &[16, self.stream]);
    }
}

fn call(keeper: RawFd, name: &str, structure: &[u64]) {
    if let Some(code) = Description::get().ioctls.get(name) {
        let mut structure = structure.to_vec();
        ioctl(keeper, code.code, structure.as_mut_ptr() as u64);
    }
}
