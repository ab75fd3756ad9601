// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages of buses.

use std::ffi::c_void;
use std::ptr;

use sluice::bus::{self, Header, MappedMessage};

/// A message of a bus, a request or a reply.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Message {
    /// In memory of the object that received it. NULL from a call that copies them to a buffer.
    pub bytes: *const c_void,
    pub length: usize,
    /// The endpoint that sent it, to which a reply can be addressed if it also subscribes.
    pub sender: u64,
    /// The subscriber that it is addressed to, or 0.
    pub target: u64,
    /// The number of the message, of all that were sent on the bus.
    pub sequence: u64,
    /// Messages that this subscriber lost since the one that it received before.
    pub lost: u64,
    /// Of a reply, the tag of its request.
    pub tag: u64,
    /// The process that opened the endpoint of the sender. 0: it is not visible here, or the message is mapped.
    pub pid: u32,
    /// The user that opened the endpoint of the sender, from the kernel. UINT32_MAX if the message is mapped.
    pub uid: u32,
    /// The group that opened the endpoint of the sender. UINT32_MAX if the message is mapped.
    pub gid: u32,
    pub reserved: [u32; 5],
}

impl Message {
    pub fn new(header: &Header, bytes: *const u8) -> Self {
        Self {
            bytes: bytes.cast(),
            length: header.len,
            sender: header.sender,
            target: header.target.unwrap_or(0),
            sequence: header.sequence,
            lost: header.lost,
            tag: header.tag,
            pid: header.pid.unwrap_or(0),
            uid: header.uid,
            gid: header.gid,
            reserved: [0; 5],
        }
    }
}

impl From<bus::Message<'_>> for Message {
    fn from(message: bus::Message<'_>) -> Self {
        Self::new(message.header(), message.bytes().as_ptr())
    }
}

impl From<Header> for Message {
    fn from(header: Header) -> Self {
        Self::new(&header, ptr::null())
    }
}

impl From<&MappedMessage<'_>> for Message {
    fn from(message: &MappedMessage<'_>) -> Self {
        Self {
            bytes: message.bytes().as_ptr().cast(),
            length: message.bytes().len(),
            sender: message.sender(),
            target: 0,
            sequence: message.sequence(),
            lost: 0,
            tag: 0,
            pid: 0,
            uid: u32::MAX,
            gid: u32::MAX,
            reserved: [0; 5],
        }
    }
}
