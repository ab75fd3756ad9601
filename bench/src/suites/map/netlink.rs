// SPDX-License-Identifier: MIT OR Apache-2.0
//! The map of the module over the generic netlink family of include/uapi/linux/sluice.h. Each client has a socket, which
//! opens a handle once. Requests are built once, and keys and values copied into them; each is a send(2) and a recv(2),
//! since the kernel executes it in the former. Several gets are the steps of one message.

use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType};
use nix::sys::socket::{recv, send, socket};
use sluice_abi::map::STEP_GET;
use sluice_abi::netlink::attr::{COMMAND, HANDLE, KEY, NAME, RESULT, SCOPE_FD, STEP, VALUE};
use sluice_abi::netlink::{FAMILY, MAP_BATCH, MAP_GET, MAP_OPEN, MAP_SET, VERSION};

use super::access::BATCH;
use super::sluice_map::{self, Named};
use super::store::{Client, KEY_SIZE, Key, Store, StoreResources, VALUE_SIZE, Value, filled};

/// Places in struct nlmsghdr, and in struct nlmsgerr, which follows it in an error.
const LENGTH: Range<usize> = 0..4;
const TYPE: Range<usize> = 4..6;
const SEQUENCE: Range<usize> = 8..12;
const ERROR: Range<usize> = 16..20;
/// Bytes of struct nlmsghdr, and of struct genlmsghdr, which follows it.
const BOTH_HEADERS: usize = 16 + 4;
/// Bytes of struct nlattr, and the alignment of what it is in.
const ATTRIBUTE: usize = 4;
/// Bytes of a step of a batch, with its command and its key.
const STEP_SIZE: usize = ATTRIBUTE + (ATTRIBUTE + 4) + (ATTRIBUTE + KEY_SIZE);
/// As much as the longest reply, that to a batch, has.
const REPLY_SIZE: usize = 32_768;

pub fn create(keys: u64, resources: &StoreResources) -> Result<Rc<dyn Store>> {
    let map = sluice_map::create_named(keys, KEY_SIZE + VALUE_SIZE, None, resources)?;
    let client = move || -> Result<Box<dyn Client>> { Ok(Box::new(Handle::open(&map)?)) };
    filled(client, keys)
}

struct Handle {
    socket: Socket,
    /// Ends with the key.
    get: Vec<u8>,
    /// Ends with the attributes of the key and of the value.
    set: Vec<u8>,
    /// Ends with the steps, each of which ends with its key.
    batch: Vec<u8>,
}

impl Handle {
    fn open(map: &Named) -> Result<Self> {
        let mut socket = Socket::new()?;
        let name = attribute(libc::CTRL_ATTR_FAMILY_NAME as u16, &text(FAMILY));
        let (control, get_family) = (libc::GENL_ID_CTRL as u16, libc::CTRL_CMD_GETFAMILY as u8);
        let reply = socket.exchange(&mut request(control, get_family, &[name]));
        let reply = reply.context("cannot find the family")?;
        let family = find(reply, libc::CTRL_ATTR_FAMILY_ID as u16)?;
        let family = u16::from_ne_bytes(family.try_into()?);
        let scope = map.cgroup.directory()?;
        let name = attribute(NAME, &text(sluice_map::NAME));
        let scope_fd = attribute(SCOPE_FD, &scope.as_raw_fd().to_ne_bytes());
        let reply = socket.exchange(&mut request(family, MAP_OPEN, &[name, scope_fd]));
        let reply = reply.context("cannot open a map")?;
        let handle = attribute(HANDLE, find(reply, HANDLE)?);
        let key = attribute(KEY, &[0; KEY_SIZE]);
        let value = attribute(VALUE, &[0; VALUE_SIZE]);
        let command = attribute(COMMAND, &STEP_GET.to_ne_bytes());
        let step = [command, key.clone()].concat();
        let step = attribute(STEP | libc::NLA_F_NESTED as u16, &step);
        Ok(Self {
            socket,
            get: request(family, MAP_GET, &[handle.clone(), key.clone()]),
            set: request(family, MAP_SET, &[handle.clone(), key, value]),
            batch: request(family, MAP_BATCH, &[handle, step.repeat(BATCH)]),
        })
    }
}

impl Client for Handle {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()> {
        end_with(&mut self.get, key);
        let reply = self.socket.exchange(&mut self.get);
        let bytes = find(reply.context("cannot get a value")?, VALUE)?;
        *value = bytes.try_into().context("a value has another length")?;
        Ok(())
    }

    fn set(&mut self, key: &Key, value: &Value) -> Result<()> {
        let key_end = self.set.len() - VALUE_SIZE - ATTRIBUTE;
        end_with(&mut self.set[..key_end], key);
        end_with(&mut self.set, value);
        let reply = self.socket.exchange(&mut self.set);
        reply.map(drop).context("cannot set a value")
    }

    fn get_batch(&mut self, keys: &[Key], values: &mut [Value]) -> Result<()> {
        ensure!(keys.len() == BATCH, "a batch has {} keys", keys.len());
        let steps = self.batch.len() - BATCH * STEP_SIZE;
        let steps = self.batch[steps..].chunks_exact_mut(STEP_SIZE);
        steps.zip(keys).for_each(|(step, key)| end_with(step, key));
        let reply = self.socket.exchange(&mut self.batch);
        copy_values(reply.context("cannot get values in a batch")?, values)
    }
}

fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

fn end_with(bytes: &mut [u8], end: &[u8]) {
    let begin = bytes.len() - end.len();
    bytes[begin..].copy_from_slice(end);
}

/// Copies the values of the steps of a reply. Looks at each attribute once, since a batch is short of time for each step.
fn copy_values(reply: &[u8], values: &mut [Value]) -> Result<()> {
    let mut steps = Attributes(reply).filter(|(kind, _)| *kind == STEP);
    for value in values {
        let (_, step) = steps.next().context("a reply has too few steps")?;
        let (mut result, mut bytes) = (None, None);
        for (kind, payload) in Attributes(step) {
            match kind {
                RESULT => result = payload.try_into().ok(),
                VALUE => bytes = payload.try_into().ok(),
                _ => {}
            }
        }
        let result = i32::from_ne_bytes(result.context("a step has no result")?);
        let error = Errno::from_raw(-result);
        ensure!(result == 0, "cannot get a value: {error}");
        *value = bytes.context("a step has no whole value")?;
    }
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
        let (family, protocol) = (AddressFamily::Netlink, SockProtocol::NetlinkGeneric);
        let fd = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol);
        Ok(Self {
            fd: fd.context("cannot create a netlink socket")?,
            sequence: 0,
            reply: vec![0; REPLY_SIZE],
        })
    }

    fn exchange(&mut self, request: &mut [u8]) -> Result<&[u8]> {
        self.sequence += 1;
        request[SEQUENCE].copy_from_slice(&self.sequence.to_ne_bytes());
        send(self.fd.as_raw_fd(), request, MsgFlags::empty())?;
        let length = recv(self.fd.as_raw_fd(), &mut self.reply, MsgFlags::empty())?;
        parse(&self.reply[..length], self.sequence)
    }
}

/// The attributes of the reply to the request with this number.
fn parse(message: &[u8], sequence: u32) -> Result<&[u8]> {
    ensure!(message.len() >= BOTH_HEADERS, "a reply is too short");
    let word = |place: Range<usize>| message[place].try_into().map(u32::from_ne_bytes);
    ensure!(word(SEQUENCE)? == sequence, "a reply is to another request");
    if message[TYPE] == (libc::NLMSG_ERROR as u16).to_ne_bytes() {
        bail!(Errno::from_raw((word(ERROR)? as i32).wrapping_neg()));
    }
    let attributes = message.get(BOTH_HEADERS..word(LENGTH)? as usize);
    attributes.context("a reply was cut off")
}

fn request(family: u16, command: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
    let attributes = attributes.concat();
    let length = (BOTH_HEADERS + attributes.len()) as u32;
    let [kind, flags] = [family, libc::NLM_F_REQUEST as u16].map(u16::to_ne_bytes);
    // The sequence number, which is filled in, and the port.
    let numbers = [0; 8];
    let generic = [command, VERSION, 0, 0];
    let length = length.to_ne_bytes();
    [&length[..], &kind, &flags, &numbers, &generic, &attributes].concat()
}

fn attribute(kind: u16, payload: &[u8]) -> Vec<u8> {
    let length = (ATTRIBUTE + payload.len()) as u16;
    let mut bytes = [&length.to_ne_bytes(), &kind.to_ne_bytes(), payload].concat();
    bytes.resize(bytes.len().next_multiple_of(ATTRIBUTE), 0);
    bytes
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
    let mut found = Attributes(attributes).filter(|(kind, _)| *kind == wanted);
    let found = found.next().map(|(_, payload)| payload);
    found.with_context(|| format!("a reply has no attribute {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request has the layout of a reply.
    #[test]
    fn the_values_of_a_whole_reply_are_in_order() {
        let step = |number: u8, result: i32| {
            let value = attribute(VALUE, &[number; VALUE_SIZE]);
            let result = attribute(RESULT, &result.to_ne_bytes());
            attribute(STEP, &[value, result].concat())
        };
        let mut message = request(20, MAP_BATCH, &[step(3, 0), step(5, 0)]);
        let reply = parse(&message, 0).unwrap();
        let mut values = [[0; VALUE_SIZE]; 3];
        copy_values(reply, &mut values[..2]).unwrap();
        assert_eq!(values[..2], [[3; VALUE_SIZE], [5; VALUE_SIZE]]);
        assert!(copy_values(reply, &mut values).is_err());
        assert!(copy_values(&step(3, -libc::ENOENT), &mut values[..1]).is_err());
        assert!(find(reply, KEY).is_err() && parse(&message, 1).is_err());
        for length in 0..message.len() {
            assert!(parse(&message[..length], 0).is_err(), "{length}");
        }
        message[TYPE].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        message[ERROR].copy_from_slice(&(-libc::EPIPE).to_ne_bytes());
        let error = parse(&message, 0).unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&Errno::EPIPE));
    }
}
