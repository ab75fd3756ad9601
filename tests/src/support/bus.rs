// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buses of the module: their channels, messages in each format, and the ioctls of an endpoint.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::unistd::write;
use sluice_abi::{CTL_DESTROY, CTL_INFO, CTL_UNLINK, Info as InfoRequest, Unlink};

use super::channel::read_some;
use super::ctl::{CREATE, ChannelInfo, Ctl, NONBLOCK, OWN, Open, READ, WRITE};
use super::ioctl::{self, raw};
use super::random::stream_bytes;

pub use abi::*;

/// The structures and numbers of the header.
mod abi {
    use libc::Ioctl;
    use sluice_abi::Setting;

    const TYPE: u32 = 0xC7;

    pub const KIND_BUS: u32 = 4;
    pub const CAPACITY_MAX: u64 = 0x1000_0000;
    pub const MESSAGE_MAX: u64 = 0x10_0000;
    pub const BROADCAST: u32 = 0;
    pub const MULTICAST: u32 = 1;
    pub const UNICAST: u32 = 2;
    pub const DROP: u32 = 0x01;
    pub const BLOCK: u32 = 0x02;
    pub const EVICT: u32 = 0x04;
    pub const MAPPABLE: u32 = 0x01;
    pub const MAPPED: u32 = 0x02;
    pub const MONITOR: u32 = 0x04;
    pub const RAW: u32 = 0;
    pub const FRAMED: u32 = 1;
    pub const BATCHED: u32 = 2;
    pub const PARAMS_SIZE_VER0: u32 = 32;
    pub const INFO_SIZE_VER0: u32 = 120;
    pub const RECEIVE_SIZE_VER0: u32 = 24;
    pub const SUBSCRIBERS_SIZE_VER0: u32 = 24;
    pub const MMAP_DATA: u64 = 0x20_0000;
    pub const RECEIVE_MAX: usize = 32;
    pub const SUBSCRIBERS_MAX: usize = 64;

    pub const SET_FORMAT: Ioctl = libc::_IOWR::<Setting>(TYPE, 0x40);
    pub const SET_SPIN: Ioctl = libc::_IOWR::<Setting>(TYPE, 0x41);
    pub const INFO: Ioctl = libc::_IOWR::<Info>(TYPE, 0x42);
    pub const RECEIVE: Ioctl = libc::_IOWR::<Receive>(TYPE, 0x43);
    pub const SUBSCRIBERS: Ioctl = libc::_IOWR::<Subscribers>(TYPE, 0x44);

    const fn size_of<T>() -> u32 {
        std::mem::size_of::<T>() as u32
    }

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Params {
        pub size: u32,
        pub flags: u32,
        pub mode: u32,
        pub policies: u32,
        pub policy: u32,
        pub format: u32,
        pub limit: u64,
    }

    impl Default for Params {
        fn default() -> Self {
            Self {
                size: size_of::<Self>(),
                flags: 0,
                mode: 0,
                policies: 0,
                policy: 0,
                format: 0,
                limit: 0,
            }
        }
    }

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Frame {
        pub size: u32,
        pub length: u32,
        pub target: u64,
        pub sender: u64,
        pub sequence: u64,
        pub lost: u64,
        pub pid: u32,
        pub uid: u32,
        pub gid: u32,
        pub reserved: u32,
        pub reserved1: u64,
    }

    impl Frame {
        pub const SIZE: usize = std::mem::size_of::<Self>();

        /// Of a message to send.
        pub const fn new(target: u64, length: u32) -> Self {
            Self {
                size: size_of::<Self>(),
                length,
                target,
                sender: 0,
                sequence: 0,
                lost: 0,
                pid: 0,
                uid: 0,
                gid: 0,
                reserved: 0,
                reserved1: 0,
            }
        }
    }

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Info {
        pub size: u32,
        pub flags: u32,
        pub mode: u32,
        pub policies: u32,
        pub capacity: u64,
        pub message_max: u64,
        pub subscribers: u32,
        pub senders: u32,
        pub sent: u64,
        pub unsubscribed: u64,
        pub lost: u64,
        pub evicted: u64,
        pub lag: u64,
        pub id: u64,
        pub policy: u32,
        pub format: u32,
        pub own_lost: u64,
        pub own_lag: u64,
        pub spin_limit_ns: u64,
    }

    impl Default for Info {
        fn default() -> Self {
            Self {
                size: size_of::<Self>(),
                flags: 0,
                mode: 0,
                policies: 0,
                capacity: 0,
                message_max: 0,
                subscribers: 0,
                senders: 0,
                sent: 0,
                unsubscribed: 0,
                lost: 0,
                evicted: 0,
                lag: 0,
                id: 0,
                policy: 0,
                format: 0,
                own_lost: 0,
                own_lag: 0,
                spin_limit_ns: 0,
            }
        }
    }

    #[repr(C)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Entry {
        pub offset: u64,
        pub sequence: u64,
        pub sender: u64,
        pub length: u32,
        pub reserved: u32,
    }

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Receive {
        pub size: u32,
        pub count: u32,
        pub entries: u64,
        pub released: u64,
    }

    impl Receive {
        pub fn new(entries: *mut Entry, count: usize, released: u64) -> Self {
            Self {
                size: size_of::<Self>(),
                count: count as u32,
                entries: entries as u64,
                released,
            }
        }
    }

    #[repr(C)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SubscriberInfo {
        pub id: u64,
        pub policy: u32,
        pub flags: u32,
        pub lag: u64,
        pub lost: u64,
        pub pid: u32,
        pub uid: u32,
    }

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Subscribers {
        pub size: u32,
        pub count: u32,
        pub after: u64,
        pub entries: u64,
    }

    impl Subscribers {
        pub fn new(entries: *mut SubscriberInfo, count: usize, after: u64) -> Self {
            Self {
                size: size_of::<Self>(),
                count: count as u32,
                after,
                entries: entries as u64,
            }
        }
    }
}

/// The bus of a test.
pub const NAME: &str = "bus";
pub const ALL_POLICIES: u32 = DROP | BLOCK | EVICT;
/// The capacity of most tests, the smallest.
pub const CAPACITY: usize = 4096;
/// The largest message of a bus with `CAPACITY`.
pub const LARGEST: usize = CAPACITY / 2 - Frame::SIZE;
/// The number of messages that a bus with `CAPACITY` holds.
pub const MESSAGES: usize = CAPACITY / 256;
/// Room for any message of a bus with `CAPACITY`, and for a batch of them.
const BUFFER: usize = 2 * CAPACITY;

/// A request for a bus of `CAPACITY`. It refers to the parameters.
pub fn request(flags: u32, params: &Params) -> Open {
    Open {
        kind: KIND_BUS,
        capacity: CAPACITY as u64,
        params: ptr::from_ref(params) as u64,
        ..Open::new(NAME, flags)
    }
}

/// Parameters of a bus that permits all policies.
pub fn broadcast() -> Params {
    Params {
        policies: ALL_POLICIES,
        ..Params::default()
    }
}

pub fn multicast() -> Params {
    Params {
        mode: MULTICAST,
        ..broadcast()
    }
}

pub fn unicast() -> Params {
    Params {
        mode: UNICAST,
        ..Params::default()
    }
}

/// Parameters of a bus whose memory subscribers may map.
pub fn mappable() -> Params {
    Params {
        flags: MAPPABLE,
        ..broadcast()
    }
}

/// Parameters of a subscriber with this policy.
pub fn with_policy(policy: u32) -> Params {
    Params {
        policy,
        ..Params::default()
    }
}

/// Parameters of a subscriber with this policy that receives frames.
pub fn framed(policy: u32) -> Params {
    Params {
        policy,
        format: FRAMED,
        ..Params::default()
    }
}

/// The buses of the own cgroup. Endpoints are in non-blocking mode.
pub struct Buses(pub Ctl);

impl Buses {
    pub fn new() -> Result<Self> {
        Ok(Buses(Ctl::new()?))
    }

    /// A sender of a new bus.
    pub fn create(&self, params: Params) -> Result<OwnedFd> {
        self.create_sized(params, CAPACITY)
    }

    pub fn create_sized(&self, params: Params, capacity: usize) -> Result<OwnedFd> {
        let open = Open {
            capacity: capacity as u64,
            ..request(WRITE | CREATE | NONBLOCK, &params)
        };
        self.0.open(open).context("creating a bus")
    }

    pub fn open(&self, flags: u32, params: Params) -> nix::Result<OwnedFd> {
        self.0.open(request(flags | NONBLOCK, &params))
    }

    /// One more sender.
    pub fn sender(&self) -> Result<OwnedFd> {
        let end = self.open(WRITE, Params::default());
        end.context("opening a sender")
    }

    /// A sender of framed messages.
    pub fn framed_sender(&self) -> Result<OwnedFd> {
        let end = self.open(WRITE, framed(0));
        end.context("opening a sender of frames")
    }

    pub fn subscribe(&self, params: Params) -> Result<OwnedFd> {
        let end = self.open(READ, params);
        end.context("opening a subscriber")
    }

    pub fn unlink(&self) -> nix::Result<()> {
        raw(&self.0, CTL_UNLINK, &mut unlink_request())
    }

    pub fn destroy(&self) -> nix::Result<()> {
        raw(&self.0, CTL_DESTROY, &mut unlink_request())
    }

    pub fn info(&self) -> nix::Result<(ChannelInfo, Info)> {
        let (mut info, mut state) = (ChannelInfo::EMPTY, Info::default());
        let mut request = InfoRequest {
            kind: KIND_BUS,
            state: ptr::from_mut(&mut state) as u64,
            ..InfoRequest::new(OWN, NAME, &mut info)
        };
        raw(&self.0, CTL_INFO, &mut request)?;
        Ok((info, state))
    }
}

fn unlink_request() -> Unlink {
    Unlink {
        kind: KIND_BUS,
        ..Unlink::new(OWN, NAME)
    }
}

// ---- calls of an endpoint ----

pub fn info(end: &impl AsFd) -> nix::Result<Info> {
    let mut info = Info::default();
    raw(end, INFO, &mut info)?;
    Ok(info)
}

pub fn state(end: &impl AsFd) -> Result<Info> {
    info(end).context("asking an endpoint for the state")
}

pub fn id(end: &impl AsFd) -> Result<u64> {
    Ok(state(end)?.id)
}

pub fn set_format(end: &impl AsFd, format: u32) -> nix::Result<u64> {
    ioctl::set(end, SET_FORMAT, format.into())
}

pub fn next_length(end: &impl AsFd) -> nix::Result<usize> {
    ioctl::bytes_waiting(end)
}

pub fn list(end: &impl AsFd, after: u64, count: usize) -> nix::Result<Vec<SubscriberInfo>> {
    let mut entries = vec![SubscriberInfo::default(); count];
    let mut list = Subscribers::new(entries.as_mut_ptr(), count, after);
    raw(end, SUBSCRIBERS, &mut list)?;
    entries.truncate(list.count as usize);
    Ok(entries)
}

/// Of a mapped subscriber.
pub fn receive_mapped(end: &impl AsFd, released: u64, count: usize) -> nix::Result<Vec<Entry>> {
    let mut entries = vec![Entry::default(); count];
    let mut receive = Receive::new(entries.as_mut_ptr(), count, released);
    raw(end, RECEIVE, &mut receive)?;
    entries.truncate(receive.count as usize);
    Ok(entries)
}

// ---- messages ----

/// The bytes of message number `number`.
pub fn content(number: u64, length: usize) -> Vec<u8> {
    stream_bytes(number, 0, length)
}

pub fn send(end: &impl AsFd, bytes: &[u8]) -> nix::Result<()> {
    let sent = write(end, bytes)?;
    assert_eq!(sent, bytes.len(), "a message is sent whole");
    Ok(())
}

/// The bytes that a framed endpoint writes.
pub fn with_frame(target: u64, bytes: &[u8]) -> Vec<u8> {
    let frame = Frame::new(target, bytes.len() as u32);
    [super::requests::bytes_of(&frame).as_slice(), bytes].concat()
}

/// With a framed endpoint.
pub fn send_to(end: &impl AsFd, target: u64, bytes: &[u8]) -> nix::Result<()> {
    send(end, &with_frame(target, bytes))
}

/// The bytes that one read(2) returns.
pub fn receive(end: &impl AsFd) -> nix::Result<Vec<u8>> {
    read_some(end, BUFFER)
}

/// A message with its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub frame: Frame,
    pub bytes: Vec<u8>,
}

impl Message {
    fn parse(bytes: &[u8]) -> Result<Self> {
        ensure!(bytes.len() >= Frame::SIZE, "{} bytes", bytes.len());
        // SAFETY: all values are valid for the integers of a frame, and the bytes are as many.
        let frame: Frame = unsafe { bytes.as_ptr().cast::<Frame>().read_unaligned() };
        ensure!(frame.size as usize == Frame::SIZE, "size {}", frame.size);
        let message = bytes.get(Frame::SIZE..Frame::SIZE + frame.length as usize);
        Ok(Message {
            frame,
            bytes: message.context("the message is cut off")?.to_vec(),
        })
    }
}

/// The messages that one read(2) of a framed endpoint returns.
pub fn parse_batch(bytes: &[u8]) -> Result<Vec<Message>> {
    let mut messages = Vec::new();
    let mut at = 0_usize;
    while at < bytes.len() {
        let message = Message::parse(&bytes[at..])
            .with_context(|| format!("frame {} at byte {at}", messages.len()))?;
        let end = at + Frame::SIZE + message.bytes.len();
        messages.push(message);
        if end == bytes.len() {
            return Ok(messages);
        }
        at = end.next_multiple_of(8);
    }
    ensure!(at == bytes.len(), "padding after the last message");
    Ok(messages)
}

/// The next message of a framed endpoint, or None.
pub fn receive_framed(end: &impl AsFd) -> Result<Option<Message>> {
    let bytes = match receive(end) {
        Err(Errno::EAGAIN) => return Ok(None),
        bytes => bytes.context("receiving a message")?,
    };
    let message = Message::parse(&bytes)?;
    let length = Frame::SIZE + message.bytes.len();
    ensure!(bytes.len() == length, "{} bytes", bytes.len());
    Ok(Some(message))
}

/// As receive_framed(), for a message that is there.
pub fn receive_present(end: &impl AsFd) -> Result<Message> {
    receive_framed(end)?.context("there is no message")
}

/// All messages that are there.
pub fn drain(end: &impl AsFd) -> Result<Vec<Vec<u8>>> {
    let mut messages = Vec::new();
    loop {
        match receive(end) {
            Ok(bytes) => messages.push(bytes),
            Err(Errno::EAGAIN) => return Ok(messages),
            Err(error) => return Err(error).context("receiving what is left"),
        }
    }
}

/// As drain(), of a framed endpoint.
pub fn drain_framed(end: &impl AsFd) -> Result<Vec<Message>> {
    drain(end)?.iter().map(|bytes| Message::parse(bytes)).collect()
}

/// Sends messages of this length, numbered from 0, until the bus is full; returns their number.
pub fn fill(end: &impl AsFd, length: usize) -> Result<u64> {
    let mut sent = 0;
    loop {
        match send(end, &content(sent, length)) {
            Ok(()) => sent += 1,
            Err(Errno::EAGAIN) => return Ok(sent),
            Err(error) => return Err(error).context("filling the bus"),
        }
    }
}

/// Sends `count` messages of this length, numbered from `first`.
pub fn send_numbered(end: &impl AsFd, first: u64, count: u64, length: usize) -> Result<()> {
    for number in first..first + count {
        send(end, &content(number, length)).with_context(|| format!("sending message {number}"))?;
    }
    Ok(())
}
