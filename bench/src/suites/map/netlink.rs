// SPDX-License-Identifier: MIT OR Apache-2.0
//! The map of the module over the generic netlink family of include/uapi/linux/sluice.h. Each client has a socket, which
//! opens a handle once. Requests are built once, and keys and values copied into them; each is a send(2) and a recv(2),
//! since the kernel executes it in the former. Several gets are the steps of one message.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType};
use nix::sys::socket::{recv, send, socket};
use sluice_abi::map::STEP_GET;
use sluice_abi::netlink::attr::{COMMAND, HANDLE, KEY, NAME, RESULT, SCOPE_FD, STEP, VALUE};
use sluice_abi::netlink::{FAMILY, MAP_BATCH, MAP_GET, MAP_OPEN, MAP_SET, VERSION};

use super::sluice_map::{self, Map};
use super::store::{Client, KEY_SIZE, Key, Resources, Store, VALUE_SIZE, Value};
use crate::reports::map::BATCH;

/// Bytes of struct nlmsghdr, and the places of its fields.
const HEADER: usize = 16;
const LENGTH: Range<usize> = 0..4;
const TYPE: Range<usize> = 4..6;
const SEQUENCE: Range<usize> = 8..12;
/// With struct genlmsghdr, which follows it.
const BOTH_HEADERS: usize = HEADER + 4;
/// Bytes of struct nlattr, and the alignment of what it is in.
const ATTRIBUTE: usize = 4;
/// As much as the longest reply, that to a batch, has.
const REPLY_SIZE: usize = 32_768;

pub fn create(keys: u64, resources: &Resources) -> Result<Box<dyn Store>> {
    Ok(Box::new(ByNetlink(Map::new(keys, resources)?)))
}

struct ByNetlink(Map);

impl Store for ByNetlink {
    fn client(&self) -> Result<Box<dyn Client>> {
        Ok(Box::new(Handle::open(self.0.scope())?))
    }
}

/// An open map, and the requests about it.
struct Handle {
    socket: Socket,
    get: Message,
    set: Message,
    batch: Message,
}

impl Handle {
    fn open(scope: &File) -> Result<Self> {
        let mut socket = Socket::new()?;
        let family = socket.family().context("cannot find the family")?;
        let mut open = Message::new(family, MAP_OPEN);
        open.add_string(NAME, sluice_map::NAME);
        open.add(SCOPE_FD, &scope.as_raw_fd().to_ne_bytes());
        let reply = socket.exchange(&mut open).context("cannot open a map")?;
        let handle = find(reply, HANDLE)?.to_vec();
        let request = |command| {
            let mut request = Message::new(family, command);
            request.add(HANDLE, &handle);
            request
        };
        let mut get = request(MAP_GET);
        get.add_place(KEY, KEY_SIZE);
        let mut set = request(MAP_SET);
        set.add_place(KEY, KEY_SIZE);
        set.add_place(VALUE, VALUE_SIZE);
        let mut batch = request(MAP_BATCH);
        for _ in 0..BATCH {
            batch.add_nested(STEP, |step| {
                step.add(COMMAND, &STEP_GET.to_ne_bytes());
                step.add_place(KEY, KEY_SIZE);
            });
        }
        Ok(Self {
            socket,
            get,
            set,
            batch,
        })
    }
}

impl Client for Handle {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()> {
        self.get.fill(0, key);
        let reply = self.socket.exchange(&mut self.get);
        copy_value(reply.context("cannot get a value")?, value)
    }

    fn set(&mut self, key: &Key, value: &Value) -> Result<()> {
        self.set.fill(0, key);
        self.set.fill(1, value);
        let reply = self.socket.exchange(&mut self.set);
        reply.map(drop).context("cannot set a value")
    }

    fn get_batch(&mut self, keys: &[Key], values: &mut [Value]) -> Result<()> {
        ensure!(keys.len() == BATCH, "a batch has {} keys", keys.len());
        for (number, key) in keys.iter().enumerate() {
            self.batch.fill(number, key);
        }
        let reply = self.socket.exchange(&mut self.batch);
        copy_values(reply.context("cannot get values in a batch")?, values)
    }
}

fn copy_value(reply: &[u8], value: &mut Value) -> Result<()> {
    let bytes = find(reply, VALUE)?;
    let length = bytes.len();
    ensure!(length == VALUE_SIZE, "a value has {length} bytes");
    value.copy_from_slice(bytes);
    Ok(())
}

/// Those of the steps of a reply.
fn copy_values(reply: &[u8], values: &mut [Value]) -> Result<()> {
    let mut steps = Attributes(reply).filter(|(kind, _)| *kind == STEP);
    for value in values {
        let (_, step) = steps.next().context("a reply has too few steps")?;
        copy_step(step, value)?;
    }
    Ok(())
}

/// In one pass, since a batch is short of time for each step.
fn copy_step(step: &[u8], value: &mut Value) -> Result<()> {
    let (mut result, mut copied) = (None, false);
    for (kind, payload) in Attributes(step) {
        if kind == VALUE {
            *value = payload.try_into().context("a value has another length")?;
            copied = true;
        } else if kind == RESULT {
            result = Some(i32::from_ne_bytes(payload.try_into()?));
        }
    }
    let result = result.context("a step has no result")?;
    let error = || format!("cannot get a value: {}", Errno::from_raw(-result));
    ensure!(result == 0, error());
    ensure!(copied, "a step has no value");
    Ok(())
}

struct Socket {
    fd: OwnedFd,
    sequence: u32,
    reply: Vec<u8>,
}

impl Socket {
    /// Requests without an address are for the kernel.
    fn new() -> Result<Self> {
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkGeneric,
        );
        Ok(Self {
            fd: fd.context("cannot create a netlink socket")?,
            sequence: 0,
            reply: vec![0; REPLY_SIZE],
        })
    }

    /// The type of the messages of the family.
    fn family(&mut self) -> Result<u16> {
        let mut request = Message::new(libc::GENL_ID_CTRL as u16, libc::CTRL_CMD_GETFAMILY as u8);
        request.add_string(libc::CTRL_ATTR_FAMILY_NAME as u16, FAMILY);
        let reply = self.exchange(&mut request)?;
        let number = find(reply, libc::CTRL_ATTR_FAMILY_ID as u16)?;
        Ok(u16::from_ne_bytes(number.try_into()?))
    }

    /// Returns the attributes of the reply.
    fn exchange(&mut self, request: &mut Message) -> Result<&[u8]> {
        self.sequence += 1;
        let bytes = &mut request.bytes;
        bytes[SEQUENCE].copy_from_slice(&self.sequence.to_ne_bytes());
        send(self.fd.as_raw_fd(), bytes, MsgFlags::empty())?;
        let length = recv(self.fd.as_raw_fd(), &mut self.reply, MsgFlags::empty())?;
        parse(&self.reply[..length], self.sequence)
    }
}

/// The attributes of the reply to the request with this number.
fn parse(message: &[u8], sequence: u32) -> Result<&[u8]> {
    let number = |place: Range<usize>| {
        let bytes = message.get(place).and_then(|bytes| bytes.first_chunk());
        bytes
            .map(|bytes| u32::from_ne_bytes(*bytes))
            .context("a reply is too short")
    };
    let (length, to) = (number(LENGTH)?, number(SEQUENCE)?);
    ensure!(to == sequence, "a reply is to another request");
    if message[TYPE] == (libc::NLMSG_ERROR as u16).to_ne_bytes() {
        let error = number(HEADER..HEADER + 4)?;
        bail!(Errno::from_raw((error as i32).wrapping_neg()));
    }
    let attributes = message.get(BOTH_HEADERS..length as usize);
    attributes.context("a reply was cut off")
}

/// A request. Its places are filled in for each use.
struct Message {
    bytes: Vec<u8>,
    places: Vec<Range<usize>>,
}

impl Message {
    fn new(family: u16, command: u8) -> Self {
        let mut bytes = vec![0; BOTH_HEADERS];
        bytes[TYPE].copy_from_slice(&family.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
        // struct genlmsghdr: the command and the version of the family.
        bytes[HEADER..HEADER + 2].copy_from_slice(&[command, VERSION]);
        let mut message = Self {
            bytes,
            places: Vec::new(),
        };
        message.update_length();
        message
    }

    fn update_length(&mut self) {
        let length = self.bytes.len() as u32;
        self.bytes[LENGTH].copy_from_slice(&length.to_ne_bytes());
    }

    /// An attribute with what is appended here.
    fn append(&mut self, kind: u16, payload: impl FnOnce(&mut Self)) {
        let begin = self.bytes.len();
        self.bytes.extend([0; ATTRIBUTE]);
        payload(self);
        let length = (self.bytes.len() - begin) as u16;
        self.bytes[begin..begin + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes[begin + 2..begin + 4].copy_from_slice(&kind.to_ne_bytes());
        let aligned = self.bytes.len().next_multiple_of(ATTRIBUTE);
        self.bytes.resize(aligned, 0);
        self.update_length();
    }

    fn add(&mut self, kind: u16, payload: &[u8]) {
        self.append(kind, |message| message.bytes.extend_from_slice(payload));
    }

    fn add_string(&mut self, kind: u16, text: &str) {
        self.add(kind, &[text.as_bytes(), &[0]].concat());
    }

    fn add_place(&mut self, kind: u16, length: usize) {
        self.append(kind, |message| {
            let begin = message.bytes.len();
            message.bytes.resize(begin + length, 0);
            message.places.push(begin..begin + length);
        });
    }

    fn add_nested(&mut self, kind: u16, attributes: impl FnOnce(&mut Self)) {
        self.append(kind | libc::NLA_F_NESTED as u16, attributes);
    }

    fn fill(&mut self, place: usize, payload: &[u8]) {
        self.bytes[self.places[place].clone()].copy_from_slice(payload);
    }
}

/// The types and payloads of attributes, up to the first one that is cut off.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let &[a, b, c, d] = self.0.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let kind = u16::from_ne_bytes([c, d]) & libc::NLA_TYPE_MASK as u16;
        let payload = self.0.get(ATTRIBUTE..length)?;
        let rest = self.0.get(length.next_multiple_of(ATTRIBUTE)..);
        self.0 = rest.unwrap_or_default();
        Some((kind, payload))
    }
}

fn find(attributes: &[u8], wanted: u16) -> Result<&[u8]> {
    let mut attributes = Attributes(attributes);
    let found = attributes.find(|(kind, _)| *kind == wanted);
    let (_, payload) = found.with_context(|| format!("a reply has no attribute {wanted}"))?;
    Ok(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLY_TO: u32 = 7;

    /// A request has the layout of a reply.
    fn reply(build: impl FnOnce(&mut Message)) -> Vec<u8> {
        let mut message = Message::new(20, MAP_GET);
        build(&mut message);
        message.bytes[SEQUENCE].copy_from_slice(&REPLY_TO.to_ne_bytes());
        message.bytes
    }

    #[test]
    fn places_of_a_request_are_filled_in() {
        let mut message = Message::new(20, MAP_SET);
        message.add_string(NAME, "name");
        message.add_place(KEY, 3);
        message.add_place(VALUE, 4);
        message.fill(1, b"text");
        message.fill(0, b"key");
        let attributes = Attributes(&message.bytes[BOTH_HEADERS..]);
        let expected = [
            (NAME, &b"name\0"[..]),
            (KEY, &b"key"[..]),
            (VALUE, &b"text"[..]),
        ];
        assert_eq!(attributes.collect::<Vec<_>>(), expected);
        assert_eq!(message.bytes[LENGTH], (20u32 + 12 + 8 + 8).to_ne_bytes());
    }

    #[test]
    fn the_value_of_a_reply_is_found() {
        let message = reply(|message| {
            message.add(KEY, b"odd");
            message.add(VALUE, &[9; VALUE_SIZE]);
        });
        let mut value = [0; VALUE_SIZE];
        copy_value(parse(&message, REPLY_TO).unwrap(), &mut value).unwrap();
        assert_eq!(value, [9; VALUE_SIZE]);
        assert!(parse(&message, REPLY_TO + 1).is_err());
        for length in 0..message.len() {
            assert!(parse(&message[..length], REPLY_TO).is_err(), "{length}");
        }
    }

    #[test]
    fn the_steps_of_a_reply_are_in_order() {
        let message = |result: i32| {
            reply(|message| {
                for number in [3, 5] {
                    message.add_nested(STEP, |step| {
                        step.add(VALUE, &[number; VALUE_SIZE]);
                        step.add(RESULT, &result.to_ne_bytes());
                    });
                }
            })
        };
        let mut values = [[0; VALUE_SIZE]; 2];
        let good = message(0);
        copy_values(parse(&good, REPLY_TO).unwrap(), &mut values).unwrap();
        assert_eq!(values, [[3; VALUE_SIZE], [5; VALUE_SIZE]]);
        let bad = message(-libc::ENOENT);
        assert!(copy_values(parse(&bad, REPLY_TO).unwrap(), &mut values).is_err());
        let mut more = [[0; VALUE_SIZE]; 3];
        assert!(copy_values(parse(&good, REPLY_TO).unwrap(), &mut more).is_err());
    }

    #[test]
    fn an_error_is_an_errno() {
        let mut message = reply(|_| {});
        message[TYPE].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        message[HEADER..].copy_from_slice(&(-libc::EPIPE).to_ne_bytes());
        let error = parse(&message, REPLY_TO).unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&Errno::EPIPE));
    }
}
