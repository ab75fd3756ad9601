// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of generic netlink: requests to the family "sluice", well-formed or not, and what the kernel sends.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use sluice_abi::netlink::{FAMILY, VERSION};

use super::kernel;
use super::map::{Change, Dumped};
use super::near;
use super::poll;
use super::time::{Deadline, wait_grace_period};

pub use sluice_abi::netlink::{HANDLES_MAX, STEPS_MAX, VALUE_MAX, attr};

/// Commands of the family.
pub mod command {
    pub use sluice_abi::netlink::{
        MAP_BATCH as BATCH, MAP_CLOSE as CLOSE, MAP_DELETE as DELETE, MAP_DUMP as DUMP,
        MAP_EVENT as EVENT, MAP_GET as GET, MAP_INFO as INFO, MAP_OPEN as OPEN, MAP_SET as SET,
        MAP_WATCH as WATCH,
    };
}

pub const NESTED: u16 = libc::NLA_F_NESTED as u16;
pub const DUMP_FLAGS: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
pub const DO_FLAGS: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;

const ERROR: u16 = libc::NLMSG_ERROR as u16;
const DONE: u16 = libc::NLMSG_DONE as u16;
/// To be ignored.
const NOOP: u16 = libc::NLMSG_NOOP as u16;
/// An error message has the header of the request only, and attributes follow it.
const CAPPED: u16 = 0x100;
const ACK_TLVS: u16 = 0x200;
const ACK_TEXT: u16 = 1;
const ACK_MISSING: u16 = 5;

const HEADER: usize = 16;
const FAMILY_HEADER: usize = 4;
const ATTR_HEADER: usize = 4;
const ALIGN: usize = 4;

// ---- requests ----

/// Attributes of a request, as bytes.
#[derive(Clone, Debug, Default)]
pub struct Attrs(Vec<u8>);

impl Attrs {
    pub fn new() -> Self {
        Self::default()
    }

    /// An attribute whose header has this length.
    pub fn with_length(mut self, kind: u16, length: u16, payload: &[u8]) -> Self {
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(payload);
        self.0.resize(self.0.len().next_multiple_of(ALIGN), 0);
        self
    }

    pub fn bytes(self, kind: u16, payload: &[u8]) -> Self {
        self.with_length(kind, (ATTR_HEADER + payload.len()) as u16, payload)
    }

    pub fn u32(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    pub fn u64(self, kind: u16, value: u64) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    pub fn flag(self, kind: u16) -> Self {
        self.bytes(kind, &[])
    }

    pub fn nest(self, kind: u16, inside: &Attrs) -> Self {
        self.bytes(kind | NESTED, &inside.0)
    }

    /// Bytes that are no attribute.
    pub fn trailing(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub fn and(mut self, others: &Attrs) -> Self {
        self.0.extend(&others.0);
        self
    }

    pub fn name(self, name: &str) -> Self {
        self.bytes(attr::NAME, &[name.as_bytes(), b"\0"].concat())
    }

    pub fn scope(self, fd: i32) -> Self {
        self.bytes(attr::SCOPE_FD, &fd.to_ne_bytes())
    }

    pub fn handle(self, handle: u32) -> Self {
        self.u32(attr::HANDLE, handle)
    }

    pub fn flags(self, flags: u32) -> Self {
        self.u32(attr::FLAGS, flags)
    }

    pub fn key(self, key: &[u8]) -> Self {
        self.bytes(attr::KEY, key)
    }

    pub fn value(self, value: &[u8]) -> Self {
        self.bytes(attr::VALUE, value)
    }

    pub fn step(self, step: &Attrs) -> Self {
        self.nest(attr::STEP, step)
    }
}

/// A request, of which every part can be invalid.
#[derive(Clone, Debug)]
pub struct Request {
    pub flags: u16,
    pub command: u8,
    pub reserved: u16,
    /// How many bytes of what follows the header of netlink are sent.
    pub limit: usize,
    pub attrs: Attrs,
}

impl Request {
    /// With the flags that the command requires.
    pub fn new(command: u8, attrs: Attrs) -> Self {
        Request {
            flags: match command {
                command::DUMP => DUMP_FLAGS,
                _ => DO_FLAGS,
            },
            command,
            reserved: 0,
            limit: usize::MAX,
            attrs,
        }
    }

    fn message(&self, family: u16, sequence: u32) -> Vec<u8> {
        let mut payload = vec![self.command, VERSION];
        payload.extend(self.reserved.to_ne_bytes());
        payload.extend(&self.attrs.0);
        payload.truncate(self.limit);
        let mut message = ((HEADER + payload.len()) as u32).to_ne_bytes().to_vec();
        message.extend(family.to_ne_bytes());
        message.extend(self.flags.to_ne_bytes());
        message.extend(sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(payload);
        message
    }
}

// ---- what the kernel sends ----

/// The attributes of a reply or an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply(Vec<(u16, Vec<u8>)>);

impl Reply {
    fn parse(mut bytes: &[u8]) -> Result<Self> {
        let mut attrs = Vec::new();
        while !bytes.is_empty() {
            let length = usize::from(u16::from_ne_bytes(array(bytes, 0)?));
            let kind = u16::from_ne_bytes(array(bytes, 2)?) & !NESTED;
            let payload = bytes.get(ATTR_HEADER..length);
            let payload = payload.context("an attribute is cut off")?;
            attrs.push((kind, payload.to_vec()));
            bytes = &bytes[length.next_multiple_of(ALIGN).min(bytes.len())..];
        }
        Ok(Reply(attrs))
    }

    pub fn bytes(&self, kind: u16) -> Option<&[u8]> {
        let found = self.0.iter().find(|(own, _)| *own == kind);
        found.map(|(_, payload)| payload.as_slice())
    }

    pub fn has(&self, kind: u16) -> bool {
        self.bytes(kind).is_some()
    }

    fn number<const N: usize>(&self, kind: u16) -> Result<[u8; N]> {
        let bytes = self.bytes(kind);
        let bytes = bytes.with_context(|| format!("attribute {kind} is missing: {self:?}"))?;
        bytes
            .try_into()
            .with_context(|| format!("attribute {kind} has {} bytes", bytes.len()))
    }

    pub fn u32(&self, kind: u16) -> Result<u32> {
        Ok(u32::from_ne_bytes(self.number(kind)?))
    }

    pub fn u64(&self, kind: u16) -> Result<u64> {
        Ok(u64::from_ne_bytes(self.number(kind)?))
    }

    /// Of a step: 0, 1, or an errno.
    pub fn result(&self) -> Result<nix::Result<i32>> {
        let result = i32::from_ne_bytes(self.number(attr::RESULT)?);
        Ok(match result {
            0.. => Ok(result),
            _ => Err(Errno::from_raw(-result)),
        })
    }

    pub fn steps(&self) -> Result<Vec<Reply>> {
        let steps = self.0.iter().filter(|(kind, _)| *kind == attr::STEP);
        steps.map(|(_, payload)| Reply::parse(payload)).collect()
    }

    /// Of a dump. Without a value, it is empty.
    fn entry(&self) -> Result<Dumped> {
        Ok(Dumped {
            key: self.bytes(attr::KEY).context("no key")?.to_vec(),
            value: self.bytes(attr::VALUE).unwrap_or_default().to_vec(),
            version: near::change_from_zero(self.u64(attr::VERSION)?),
            ttl_ns: match self.has(attr::TTL_NS) {
                true => self.u64(attr::TTL_NS)?,
                false => 0,
            },
        })
    }
}

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub errno: Errno,
    pub text: Option<String>,
    /// The type of the attribute that is missing.
    pub missing: Option<u16>,
}

impl Refusal {
    fn parse(errno: i32, attrs: &[u8]) -> Result<Self> {
        let attrs = Reply::parse(attrs)?;
        let text = attrs.bytes(ACK_TEXT).map(CStr::from_bytes_with_nul);
        let text = text.transpose().context("the text has no end")?;
        Ok(Refusal {
            errno: Errno::from_raw(-errno),
            text: text.map(|text| text.to_string_lossy().into_owned()),
            missing: match attrs.has(ACK_MISSING) {
                true => Some(attrs.u32(ACK_MISSING)? as u16),
                false => None,
            },
        })
    }

    pub fn is_explained(&self) -> bool {
        self.text.is_some() || self.missing.is_some()
    }
}

/// Whether the kernel passes on what the module says about an error of this command: Linux 6.1 does not if a dump cannot begin.
pub fn explains(command: u8) -> Result<bool> {
    Ok(command != command::DUMP || !kernel::is_6_1()?)
}

/// The replies to a request.
pub type Answer = Result<Vec<Reply>, Refusal>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    Changed(Change),
    Destroyed,
}

/// An event of a handle that watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub handle: u32,
    pub news: News,
    /// Bytes of the message.
    pub length: usize,
}

impl Event {
    fn parse(message: &Message) -> Result<Self> {
        let attrs = message.attrs()?;
        let news = if attrs.has(attr::DESTROYED) {
            News::Destroyed
        } else {
            News::Changed(Change {
                change: attrs.u32(attr::CHANGE)? as u16,
                key: attrs.bytes(attr::KEY).context("no key")?.to_vec(),
                sequence: near::change_from_zero(attrs.u64(attr::SEQUENCE)?),
                version: near::change_from_zero(attrs.u64(attr::VERSION)?),
                missed: attrs.u64(attr::MISSED)?,
            })
        };
        Ok(Event {
            handle: attrs.u32(attr::HANDLE)?,
            news,
            length: HEADER + message.payload.len(),
        })
    }

    pub fn change(&self) -> Result<&Change> {
        match &self.news {
            News::Changed(change) => Ok(change),
            News::Destroyed => bail!("the map of handle {} is destroyed", self.handle),
        }
    }
}

/// A message from the kernel.
#[derive(Debug)]
struct Message {
    kind: u16,
    flags: u16,
    sequence: u32,
    payload: Vec<u8>,
}

impl Message {
    fn parse_all(mut bytes: &[u8]) -> Result<Vec<Self>> {
        let mut messages = Vec::new();
        while !bytes.is_empty() {
            let length = u32::from_ne_bytes(array(bytes, 0)?) as usize;
            let payload = bytes.get(HEADER..length).context("a message is cut off")?;
            messages.push(Message {
                kind: u16::from_ne_bytes(array(bytes, 4)?),
                flags: u16::from_ne_bytes(array(bytes, 6)?),
                sequence: u32::from_ne_bytes(array(bytes, 8)?),
                payload: payload.to_vec(),
            });
            bytes = &bytes[length.next_multiple_of(ALIGN).min(bytes.len())..];
        }
        Ok(messages)
    }

    fn is_event(&self, family: u16) -> bool {
        self.kind == family && self.sequence == 0 && self.payload.first() == Some(&command::EVENT)
    }

    fn attrs(&self) -> Result<Reply> {
        let attrs = self.payload.get(FAMILY_HEADER..);
        Reply::parse(attrs.context("a message without header of the family")?)
    }

    /// The result of a request, if this is its last message.
    fn end(&self) -> Result<Option<Result<(), Refusal>>> {
        let attrs = match self.kind {
            DONE => 4,
            ERROR if self.flags & CAPPED != 0 => 4 + HEADER,
            // The whole request follows the error; without an error, the kernel omits it, too.
            ERROR => 4 + u32::from_ne_bytes(array(&self.payload, 4)?) as usize,
            _ => return Ok(None),
        };
        let errno = i32::from_ne_bytes(array(&self.payload, 0)?);
        if errno == 0 {
            return Ok(Some(Ok(())));
        }
        let attrs = match self.flags & ACK_TLVS {
            0 => &[],
            _ => self.payload.get(attrs..).context("an error is cut off")?,
        };
        Ok(Some(Err(Refusal::parse(errno, attrs)?)))
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let found = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    found.copied().context("a header is cut off")
}

// ---- sockets ----

/// A socket that gets the texts of errors.
pub fn open_socket() -> Result<OwnedFd> {
    let protocol = SockProtocol::NetlinkGeneric;
    let fd = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        protocol,
    )
    .context("opening a netlink socket")?;
    for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
        set_option(&fd, libc::SOL_NETLINK, option, &1)?;
    }
    Ok(fd)
}

fn set_option<T>(fd: &OwnedFd, level: i32, option: i32, value: &T) -> Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads no more than the value.
    let ret = unsafe {
        let value = std::ptr::from_ref(value).cast();
        libc::setsockopt(fd.as_raw_fd(), level, option, value, length)
    };
    Errno::result(ret).with_context(|| format!("setting option {option} of a socket"))?;
    Ok(())
}

/// How much of its receive buffer a socket uses, in bytes of memory.
#[derive(Clone, Copy, Debug)]
pub struct QueueState {
    pub used: u32,
    pub size: u32,
    pub drops: u32,
}

/// A socket of the family. Events that arrive before a reply are kept.
pub struct Socket {
    fd: OwnedFd,
    family: u16,
    sequence: Cell<u32>,
    events: RefCell<VecDeque<Event>>,
}

impl Socket {
    pub fn new() -> Result<Self> {
        Self::from_fd(open_socket()?)
    }

    /// From a result of `open_socket`, of any process.
    pub fn from_fd(fd: OwnedFd) -> Result<Self> {
        let mut socket = Self::controller(fd);
        socket.family = match socket.get_family(FAMILY)? {
            Ok(family) => family,
            Err(refusal) => bail!("the family {FAMILY}: {refusal:?}"),
        };
        Ok(socket)
    }

    /// To the controller ("nlctrl"), which finds families by name.
    pub fn to_controller() -> Result<Self> {
        Ok(Self::controller(open_socket()?))
    }

    fn controller(fd: OwnedFd) -> Self {
        Socket {
            fd,
            family: libc::GENL_ID_CTRL as u16,
            sequence: Cell::new(0),
            events: RefCell::default(),
        }
    }

    /// Asks the controller for the number of a family, whose module the kernel loads if it can.
    pub fn get_family(&self, name: &str) -> Result<Result<u16, Refusal>> {
        let name = [name.as_bytes(), b"\0"].concat();
        let attrs = Attrs::new().bytes(libc::CTRL_ATTR_FAMILY_NAME as u16, &name);
        let replies = match self.request(&Request::new(libc::CTRL_CMD_GETFAMILY as u8, attrs))? {
            Ok(replies) => replies,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let reply = replies.first().context("no reply about the family")?;
        let family = reply.number(libc::CTRL_ATTR_FAMILY_ID as u16)?;
        Ok(Ok(u16::from_ne_bytes(family)))
    }

    /// Sends a request; its number.
    pub fn send(&self, request: &Request) -> Result<u32> {
        self.sequence.set(self.sequence.get() + 1);
        self.send_bytes(&request.message(self.family, self.sequence.get()))?;
        Ok(self.sequence.get())
    }

    pub fn send_bytes(&self, messages: &[u8]) -> Result<()> {
        let kernel = NetlinkAddr::new(0, 0);
        let sent = sendto(self.fd.as_raw_fd(), messages, &kernel, MsgFlags::empty());
        let sent = sent.context("sending requests")?;
        ensure!(sent == messages.len(), "{sent} bytes were sent");
        Ok(())
    }

    /// Encodes requests for one call of `send_bytes`, and enlarges the send buffer to hold them.
    pub fn join(&self, requests: &[Request]) -> Result<Vec<u8>> {
        let mut messages = Vec::new();
        for request in requests {
            self.sequence.set(self.sequence.get() + 1);
            messages.extend(request.message(self.family, self.sequence.get()));
            messages.resize(messages.len().next_multiple_of(ALIGN), 0);
        }
        let room = i32::try_from(messages.len()).context("too many requests")?;
        set_option(&self.fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &room)?;
        Ok(messages)
    }

    /// The messages of one recv(2), without events, which are kept.
    fn receive(&self, deadline: &Deadline) -> Result<Vec<Message>> {
        ensure!(
            poll::wait_readable(&self.fd, deadline)?,
            "no message within {:?}",
            deadline.span()
        );
        let mut bytes = vec![0; 1 << 16];
        let length = recv(self.fd.as_raw_fd(), &mut bytes, MsgFlags::MSG_TRUNC);
        let length = length.context("receiving messages")?;
        let received = bytes.get(..length).context("a message is too long")?;
        let (events, others): (Vec<_>, Vec<_>) = Message::parse_all(received)?
            .into_iter()
            .partition(|message| message.is_event(self.family));
        for event in &events {
            self.events.borrow_mut().push_back(Event::parse(event)?);
        }
        Ok(others)
    }

    /// Receives the next replies to a request, until its end: returns that.
    fn receive_replies(
        &self,
        sequence: u32,
        replies: &mut Vec<Reply>,
    ) -> Result<Option<Result<(), Refusal>>> {
        let deadline = Deadline::for_event();
        for message in self.receive(&deadline)? {
            let other = message.sequence;
            ensure!(other == sequence, "a message of {other}, not of {sequence}");
            if let Some(end) = message.end()? {
                return Ok(Some(end));
            }
            if message.kind != NOOP {
                replies.push(message.attrs()?);
            }
        }
        Ok(None)
    }

    /// The answer to the request with this number, which is the only one.
    pub fn finish(&self, sequence: u32) -> Result<Answer> {
        let mut replies = Vec::new();
        loop {
            if let Some(end) = self.receive_replies(sequence, &mut replies)? {
                return Ok(end.map(|()| replies));
            }
        }
    }

    pub fn request(&self, request: &Request) -> Result<Answer> {
        self.finish(self.send(request)?)
    }

    /// The reply, which is empty if the command has none.
    pub fn call(&self, command: u8, attrs: &Attrs) -> Result<Result<Reply, Refusal>> {
        let answer = self.request(&Request::new(command, attrs.clone()))?;
        answer.map_or_else(
            |refusal| Ok(Err(refusal)),
            |mut replies| {
                ensure!(replies.len() <= 1, "{} replies", replies.len());
                Ok(Ok(replies.pop().unwrap_or_default()))
            },
        )
    }

    /// As `call`, of which only the error matters.
    pub fn outcome(&self, command: u8, attrs: &Attrs) -> Result<nix::Result<()>> {
        let answer = self.request(&Request::new(command, attrs.clone()))?;
        Ok(answer.map(drop).map_err(|refusal| refusal.errno))
    }

    /// As `call`, which must not fail.
    pub fn must(&self, command: u8, attrs: &Attrs) -> Result<Reply> {
        match self.call(command, attrs)? {
            Ok(reply) => Ok(reply),
            Err(refusal) => bail!("command {command}: {refusal:?}"),
        }
    }

    /// A handle of a map.
    pub fn open(&self, name: &str, flags: u32) -> Result<u32> {
        let attrs = Attrs::new().name(name).flags(flags);
        let reply = self
            .must(command::OPEN, &attrs)
            .context("opening a handle")?;
        reply.u32(attr::HANDLE)
    }

    /// Begins to watch; the number of the last change before.
    pub fn watch(&self, handle: u32, after: u64) -> Result<u64> {
        let after = near::change_in_module(after);
        let attrs = Attrs::new().handle(handle).u64(attr::AFTER, after);
        let reply = self.must(command::WATCH, &attrs).context("watching")?;
        reply.u64(attr::SEQUENCE).map(near::change_from_zero)
    }

    /// Begins a dump; its number.
    pub fn begin_dump(&self, map: &Attrs) -> Result<u32> {
        self.send(&Request::new(command::DUMP, map.clone()))
    }

    /// The entries of the next message of a dump, which may have none; None: its end.
    pub fn next_of_dump(&self, sequence: u32) -> Result<Option<Vec<Dumped>>> {
        let mut replies = Vec::new();
        match self.receive_replies(sequence, &mut replies)? {
            Some(Err(refusal)) => bail!("a dump: {refusal:?}"),
            Some(Ok(())) if replies.is_empty() => Ok(None),
            Some(Ok(())) => bail!("entries in the last message of a dump"),
            None => Ok(Some(
                replies.iter().map(Reply::entry).collect::<Result<_>>()?,
            )),
        }
    }

    // ---- events ----

    /// Waits for the next events, so many.
    pub fn events(&self, count: usize) -> Result<Vec<Event>> {
        let deadline = Deadline::for_event();
        while self.events.borrow().len() < count {
            let received = self.receive(&deadline);
            let others = received.with_context(|| {
                let seen = self.events.borrow();
                format!(
                    "waiting for {count} events, of which {} arrived: {seen:?}",
                    seen.len()
                )
            })?;
            ensure!(others.is_empty(), "messages that are no events: {others:?}");
        }
        Ok(self.events.borrow_mut().drain(..count).collect())
    }

    pub fn changes(&self, count: usize) -> Result<Vec<Change>> {
        let events = self.events(count)?;
        events.iter().map(|event| event.change().cloned()).collect()
    }

    /// Fails if there is an event, or one arrives within the grace period.
    pub fn expect_no_event(&self) -> Result<()> {
        wait_grace_period();
        while poll::wait(&self.fd, poll::IN, 0)? != 0 {
            let others = self.receive(&Deadline::for_event())?;
            ensure!(others.is_empty(), "messages that are no events: {others:?}");
        }
        let events = self.events.borrow();
        ensure!(events.is_empty(), "events that should not be: {events:?}");
        Ok(())
    }

    // ---- the receive buffer ----

    /// Sets SO_RCVBUF, which the kernel doubles.
    pub fn set_buffer(&self, bytes: i32) -> Result<()> {
        set_option(&self.fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes)
    }

    /// Drops messages that are longer.
    pub fn drop_longer_than(&self, bytes: u32) -> Result<()> {
        let step = |code: u32, jt, jf, k| libc::sock_filter {
            code: code as u16,
            jt,
            jf,
            k,
        };
        let mut program = [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 0, 1, bytes),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        ];
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        set_option(&self.fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
    }

    pub fn queue_state(&self) -> Result<QueueState> {
        let mut values = [0_u32; libc::SK_MEMINFO_DROPS as usize + 1];
        let mut length = size_of_val(&values) as libc::socklen_t;
        // SAFETY: the kernel writes no more than the length.
        let ret = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                values.as_mut_ptr().cast(),
                &mut length,
            )
        };
        Errno::result(ret).context("getting the use of a receive buffer")?;
        Ok(QueueState {
            used: values[libc::SK_MEMINFO_RMEM_ALLOC as usize],
            size: values[libc::SK_MEMINFO_RCVBUF as usize],
            drops: values[libc::SK_MEMINFO_DROPS as usize],
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_found() {
        let attrs = Attrs::new()
            .key(b"abcde")
            .u64(attr::AFTER, 7)
            .flag(attr::KEYS);
        assert_eq!(attrs.0.len(), 12 + 12 + 4);
        let reply = Reply::parse(&attrs.0).expect("well-formed");
        assert_eq!(reply.bytes(attr::KEY), Some(&b"abcde"[..]));
        assert_eq!(reply.u64(attr::AFTER).expect("8 bytes"), 7);
        assert!(reply.has(attr::KEYS) && !reply.has(attr::NAME));
        assert!(reply.u32(attr::AFTER).is_err());
    }

    #[test]
    fn a_length_beyond_the_message_is_an_error() {
        let attrs = Attrs::new().with_length(attr::KEY, 9, b"abcd");
        assert!(Reply::parse(&attrs.0).is_err());
    }

    #[test]
    fn a_request_can_be_cut_off() {
        let mut request = Request::new(command::GET, Attrs::new().key(b"key"));
        request.limit = 3;
        let message = request.message(17, 5);
        assert_eq!(message.len(), HEADER + 3);
        let parsed = Message::parse_all(&message).expect("with a header");
        assert_eq!((parsed[0].kind, parsed[0].sequence), (17, 5));
    }

    #[test]
    fn an_error_has_its_text_and_the_missing_attribute() {
        let mut payload = (-libc::EINVAL).to_ne_bytes().to_vec();
        payload.extend([0; HEADER]);
        let attrs = Attrs::new().bytes(ACK_TEXT, b"why\0");
        payload.extend(attrs.u32(ACK_MISSING, 4).0);
        let message = Message {
            kind: ERROR,
            flags: CAPPED | ACK_TLVS,
            sequence: 1,
            payload,
        };
        let expected = Refusal {
            errno: Errno::EINVAL,
            text: Some("why".to_owned()),
            missing: Some(4),
        };
        assert_eq!(message.end().expect("complete"), Some(Err(expected)));
    }
}
