// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buses of the module: their channels, messages in each format, and the ioctls of an endpoint.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::utsname::uname;
use nix::unistd::write;

use super::channel::{read_some, set_blocking};
use super::check::skip;
use super::child::{Child, spawn_keeping};
use super::ctl::{CREATE, ChannelInfo, Ctl, DESTROY, NONBLOCK, OWN, Open, READ, UNLINK, WRITE};
use super::ioctl::{self, raw};
use super::near;
use super::proc::Call;
use super::random::stream_bytes;

pub use sluice_abi::KIND_BUS;
pub use sluice_abi::bus::{
    ADDRESSED, BATCHED, BLOCK, BROADCAST, CAPACITY_MAX, DROP, EVICT, Entry, FRAMED, Frame, INFO,
    INFO_SIZE_VER0, Info, MAPPABLE, MAPPED, MESSAGE_MAX, MMAP_DATA, MONITOR, MULTICAST,
    PARAMS_SIZE_VER0, Params, RAW, RECEIVE, RECEIVE_MAX, RECEIVE_SIZE_VER0, Receive, SET_FORMAT,
    SET_SPIN, SUBSCRIBERS, SUBSCRIBERS_MAX, SUBSCRIBERS_SIZE_VER0, SubscriberInfo, Subscribers,
    TURN, UNICAST,
};

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

/// The longest message of a large bus. A PREEMPT_RT kernel copies less without preemption.
pub fn longest() -> usize {
    let realtime =
        uname().is_ok_and(|name| name.version().to_string_lossy().contains("PREEMPT_RT"));
    if realtime {
        1 << 16
    } else {
        MESSAGE_MAX as usize
    }
}

/// Skips a test of messages above 64 KiB, which are copied through a buffer.
pub fn skip_without_long_messages() -> Result<()> {
    if longest() > 1 << 16 {
        return Ok(());
    }
    Err(skip(
        "no message is longer than 64 KiB on a PREEMPT_RT kernel",
    ))
}

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

/// Parameters of a subscriber that delays senders only when the bus is full.
pub fn never_full() -> Params {
    Params {
        limit: CAPACITY as u64,
        ..framed(BLOCK)
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
        self.0.remove(UNLINK, KIND_BUS, OWN, NAME)
    }

    pub fn destroy(&self) -> nix::Result<()> {
        self.0.remove(DESTROY, KIND_BUS, OWN, NAME)
    }

    pub fn info(&self) -> nix::Result<(ChannelInfo, Info)> {
        self.0.state(KIND_BUS, OWN, NAME)
    }
}

// ---- calls of an endpoint ----

pub fn info(end: &impl AsFd) -> nix::Result<Info> {
    ioctl::get(end, INFO)
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
    let mut list = Subscribers::new(after, entries.as_mut_ptr(), count);
    raw(end, SUBSCRIBERS, &mut list)?;
    entries.truncate(list.count as usize);
    Ok(entries)
}

/// Of a mapped subscriber.
pub fn receive_mapped(end: &impl AsFd, released: u64, count: usize) -> nix::Result<Vec<Entry>> {
    let mut entries = vec![Entry::default(); count];
    let released = near::message_in_module(released);
    let mut receive = Receive::new(entries.as_mut_ptr(), count, released);
    raw(end, RECEIVE, &mut receive)?;
    entries.truncate(receive.count as usize);
    for entry in &mut entries {
        entry.sequence = near::message_from_zero(entry.sequence);
    }
    Ok(entries)
}

// ---- messages ----

/// The bytes of message number `number`.
pub fn content(number: u64, length: usize) -> Vec<u8> {
    stream_bytes(number, 0, length)
}

/// From memory that is present: otherwise the module may reserve a sequence that it then discards.
pub fn send(end: &impl AsFd, bytes: &[u8]) -> nix::Result<()> {
    let present = bytes.to_vec();
    let sent = write(end, &present)?;
    assert_eq!(sent, bytes.len(), "a message is sent whole");
    Ok(())
}

/// The bytes that a framed endpoint writes.
pub fn with_frame(target: u64, bytes: &[u8]) -> Vec<u8> {
    let frame = Frame::new(bytes.len() as u32, target);
    [frame.to_bytes().as_slice(), bytes].concat()
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
        let frame = bytes.first_chunk().context("a message without a frame")?;
        let mut frame = Frame::from_bytes(frame);
        frame.sequence = near::message_from_zero(frame.sequence);
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
    drain(end)?
        .iter()
        .map(|bytes| Message::parse(bytes))
        .collect()
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

/// A child that receives with the endpoint, which is made blocking; it is asleep when this returns.
pub fn sleeping_receiver(end: &OwnedFd) -> Result<Child<Result<Vec<u8>, i32>>> {
    set_blocking(end)?;
    let child = spawn_keeping("a receiver", &[end.as_fd()], || {
        Ok(receive(end).map_err(|errno| errno as i32))
    })?;
    child.wait_asleep_in(Call::Read)?;
    Ok(child)
}

/// As sleeping_receiver(), for a sender.
pub fn sleeping_sender(end: &OwnedFd, bytes: &[u8]) -> Result<Child<Result<(), i32>>> {
    set_blocking(end)?;
    let child = spawn_keeping("a sender", &[end.as_fd()], || {
        Ok(send(end, bytes).map_err(|errno| errno as i32))
    })?;
    child.wait_asleep_in(Call::Write)?;
    Ok(child)
}
