// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages in standard output.

use sluice::bus::{Header, Message};

use crate::ring::codec::Framing;

/// What separates messages in a byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separation {
    Framing(Framing),
    /// Nothing.
    None,
}

/// How messages are printed.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    pub separation: Separation,
    /// A line with the header precedes each message.
    pub headers: bool,
}

impl Encoder {
    pub fn push(self, message: &Message, buffer: &mut Vec<u8>) {
        if self.headers {
            buffer.extend_from_slice(header_line(message).as_bytes());
        }
        let bytes = message.bytes();
        if self.separation == Separation::Framing(Framing::Length) {
            // The largest message has 1 MiB.
            buffer.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        }
        buffer.extend_from_slice(bytes);
        if self.separation == Separation::Framing(Framing::Lines) {
            buffer.push(b'\n');
        }
    }
}

/// sluice-bus(1) describes it.
fn header_line(header: &Header) -> String {
    let Header {
        sequence,
        sender,
        lost,
        uid,
        gid,
        len,
        ..
    } = *header;
    let target = header.target.unwrap_or_default();
    let pid = header.pid.unwrap_or_default();
    format!(
        "sequence={sequence} sender={sender} target={target} lost={lost} pid={pid} uid={uid} gid={gid} length={len}\n"
    )
}
