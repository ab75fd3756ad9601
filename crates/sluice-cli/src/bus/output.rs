// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages in standard output.

use serde::Serialize;
use sluice::bus::Message;

use crate::ring::codec::{Format, Framing};
use crate::text::encode;

/// The JSON object that sluice-bus(1) describes.
#[derive(Serialize)]
struct MessageObject {
    sequence: u64,
    sender: u64,
    target: Option<u64>,
    lost: u64,
    pid: Option<u32>,
    uid: u32,
    gid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_base64: Option<String>,
}

pub fn push(buffer: &mut Vec<u8>, format: Format, message: &Message) {
    let bytes = message.bytes();
    match format {
        Format::Framed(Framing::Lines) => {
            buffer.extend_from_slice(bytes);
            buffer.push(b'\n');
        }
        Format::Framed(Framing::Length) => {
            // The largest message has 1 MiB.
            buffer.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            buffer.extend_from_slice(bytes);
        }
        Format::Raw => buffer.extend_from_slice(bytes),
        Format::Json => {
            // It has texts and numbers only, which can be encoded.
            buffer.extend(serde_json::to_vec(&object(message)).unwrap_or_default());
            buffer.push(b'\n');
        }
    }
}

fn object(message: &Message) -> MessageObject {
    let (text, base64) = encode(message.bytes());
    MessageObject {
        sequence: message.sequence,
        sender: message.sender,
        target: message.target,
        lost: message.lost,
        pid: message.pid,
        uid: message.uid,
        gid: message.gid,
        message: text,
        message_base64: base64,
    }
}
