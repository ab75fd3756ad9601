// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of spec/vectors.json that only the kernel makes, and those that only it reads. What differs from run to run, such as process
//! ids and times, is taken from the vector.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::slice;

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use nix::unistd::write;
use sluice_abi::netlink::{FAMILY, attr};
use sluice_vectors::{Vector, named, number, of};

use crate::registry::{Context, topic};
use crate::support::bus::{
    BATCHED, Buses, DROP, FRAMED, Params, broadcast, framed, receive, with_policy,
};
use crate::support::channel::read_some;
use crate::support::check::{expect, expect_bytes};
use crate::support::durable::Durable;
use crate::support::feed::{self, LARGEST, Start, claim_by_read, open_node};
use crate::support::ioctl::raw;
use crate::support::keeper::ROOM;
use crate::support::map::{Cursor, DUMP, Dump, KEYS, Maps, NOW, delete, put, watch};
use crate::support::netlink::Socket;
use crate::support::poll;
use crate::support::time::Deadline;

topic!(
    "vectors",
    fifo: [],
    pipe_only: [
        a_bus_carries_frames_as_in_the_vectors,
        a_watcher_reads_events_as_in_the_vectors,
        a_dump_has_records_as_in_the_vectors,
        a_feed_has_packets_as_in_the_vectors,
        a_keeper_reads_messages_as_in_the_vectors,
        netlink_requests_are_answered_as_in_the_vectors,
        malformed_netlink_messages_are_refused_as_in_the_vectors,
    ],
);

/// Compares bytes with a vector, except in these places.
fn expect_vector(name: &str, mut seen: Vec<u8>, varying: &[Range<usize>]) -> Result<()> {
    let expected = named(name).bytes;
    expect(&format!("bytes of '{name}'"), seen.len(), expected.len())?;
    for place in varying {
        seen[place.clone()].copy_from_slice(&expected[place.clone()]);
    }
    expect_bytes(name, &seen, &expected)
}

fn errno(vector: &Vector) -> Result<Errno> {
    Ok(match vector.error.as_deref() {
        Some("EINVAL") => Errno::EINVAL,
        Some("E2BIG") => Errno::E2BIG,
        Some("ERANGE") => Errno::ERANGE,
        Some("EOPNOTSUPP") => Errno::EOPNOTSUPP,
        other => bail!("'{}' has the error {other:?}", vector.name),
    })
}

// ---- buses, maps, feeds, the keeper ----

/// The process and the user, of each frame.
fn credentials(name: &str) -> Vec<Range<usize>> {
    let mut at = 0;
    named(name)
        .parts()
        .iter()
        .map(|frame| {
            let place = at + 40..at + 52;
            at = (at + 64 + number(&frame["length"]) as usize).next_multiple_of(8);
            place
        })
        .collect()
}

fn a_bus_carries_frames_as_in_the_vectors(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(Params {
        format: FRAMED,
        ..broadcast()
    })?;
    // It has the id 2, to which one of the messages is addressed.
    let batches = buses.subscribe(Params {
        format: BATCHED,
        ..with_policy(DROP)
    })?;
    let frames = buses.subscribe(framed(DROP))?;
    for vector in of("bus-write") {
        let expected = match vector.error {
            None => Ok(vector.bytes.len()),
            Some(_) => Err(errno(&vector)?),
        };
        expect(&vector.name, write(&sender, &vector.bytes), expected)?;
    }
    for (name, end) in [
        ("bus: a received message", frames),
        ("bus: a batch", batches),
    ] {
        let bytes = receive(&end).context("receiving")?;
        expect_vector(name, bytes, &credentials(name))?;
    }
    Ok(())
}

fn a_watcher_reads_events_as_in_the_vectors(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    watch(&end, NOW).context("watching")?;
    put(&end, b"color", b"blue")?;
    put(&end, b"color", b"green")?;
    put(&end, b"12345678", b"")?;
    delete(&end, b"color").context("deleting")?;
    let bytes = read_some(&end, 4096).context("reading events")?;
    expect_vector("map: the events of one read", bytes, &[])
}

fn a_dump_has_records_as_in_the_vectors(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    put(&end, b"color", b"blue")?;
    for (name, flags) in [
        ("map: a record", 0),
        ("map: a record without its value", KEYS),
    ] {
        let mut bytes = vec![0xa5; 4096];
        let mut dump = Dump::new(flags, Cursor::default(), &mut bytes);
        raw(&end, DUMP, &mut dump).context("dumping")?;
        bytes.truncate(dump.length as usize);
        expect_vector(name, bytes, &[])?;
    }
    Ok(())
}

fn a_feed_has_packets_as_in_the_vectors(_: &Context) -> Result<()> {
    let end = open_node()?;
    claim_by_read(&end)?;
    let first = feed::info(&end)
        .context("asking for the next number")?
        .sequence;
    feed::start(&end, Start::new(1_000_000, 2, 8)).context("starting")?;
    for name in ["feed: the first packet", "feed: the second packet"] {
        let mut bytes = read_some(&end, LARGEST).context("reading a packet")?;
        let sequence = bytes.first_chunk_mut().context("a packet is cut off")?;
        *sequence = (u64::from_ne_bytes(*sequence) - first).to_ne_bytes();
        // The time and the counter of the processor.
        expect_vector(name, bytes, slice::from_ref(&(16..32)))?;
    }
    Ok(())
}

fn a_keeper_reads_messages_as_in_the_vectors(_: &Context) -> Result<()> {
    let durable = Durable::interval()?;
    put(&durable.end, b"color", b"blue")?;
    delete(&durable.end, b"color").context("deleting")?;
    poll::wait_readable(&durable.keeper, &Deadline::for_event())?;
    let bytes = read_some(&durable.keeper, ROOM).context("reading messages")?;
    durable.ack(2)?;
    // The stream.
    expect_vector("keeper: the changes of one read", bytes, &[8..16, 72..80])
}

// ---- netlink ----

const FAMILY_OF_VECTORS: u16 = 34;
const HANDLE_OF_VECTORS: u32 = 1;
const HEADERS: usize = 20;

/// A socket without options, whose errors contain the request.
struct Plain {
    fd: OwnedFd,
    family: u16,
    /// Of the map that was opened.
    handle: Cell<u32>,
    events: RefCell<Vec<u8>>,
}

impl Plain {
    fn new() -> Result<Self> {
        let family = match Socket::to_controller()?.get_family(FAMILY)? {
            Ok(family) => family,
            Err(refusal) => bail!("the family {FAMILY}: {refusal:?}"),
        };
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkGeneric,
        );
        Ok(Plain {
            fd: fd.context("opening a netlink socket")?,
            family,
            handle: Cell::new(HANDLE_OF_VECTORS),
            events: RefCell::default(),
        })
    }

    fn send(&self, request: &Vector) -> Result<()> {
        let mut bytes = request.bytes.clone();
        let families = (FAMILY_OF_VECTORS, self.family);
        translate(&mut bytes, families, (HANDLE_OF_VECTORS, self.handle.get()));
        let kernel = NetlinkAddr::new(0, 0);
        let sent = sendto(self.fd.as_raw_fd(), &bytes, &kernel, MsgFlags::empty());
        expect(
            "bytes sent",
            sent.context("sending a request")?,
            bytes.len(),
        )
    }

    /// The messages of one recv(2), as they are in vectors. Events are kept.
    fn receive(&self) -> Result<Vec<Vec<u8>>> {
        let deadline = Deadline::for_event();
        let is_there = poll::wait_readable(&self.fd, &deadline)?;
        ensure!(is_there, "no message within {:?}", deadline.span());
        let mut bytes = vec![0; 1 << 15];
        let length = recv(self.fd.as_raw_fd(), &mut bytes, MsgFlags::empty());
        let mut rest = &bytes[..length.context("receiving messages")?];
        let mut messages = Vec::new();
        while let Some(length) = rest.first_chunk() {
            let length = u32::from_ne_bytes(*length) as usize;
            let mut message = rest.get(..length).context("a message is cut off")?.to_vec();
            rest = &rest[length.next_multiple_of(4).min(rest.len())..];
            let families = (self.family, FAMILY_OF_VECTORS);
            translate(
                &mut message,
                families,
                (self.handle.get(), HANDLE_OF_VECTORS),
            );
            match message[8..12] {
                [0, 0, 0, 0] => self.events.borrow_mut().extend(message),
                _ => messages.push(message),
            }
        }
        Ok(messages)
    }

    /// All messages that answer the request.
    fn answer_to(&self, request: &Vector) -> Result<Vec<u8>> {
        self.send(request)?;
        let mut answer = Vec::new();
        loop {
            for message in self.receive()? {
                let kind = i32::from(u16::from_ne_bytes([message[4], message[5]]));
                let flags = i32::from(u16::from_ne_bytes([message[6], message[7]]));
                answer.extend(message);
                if kind == libc::NLMSG_DONE || flags & libc::NLM_F_MULTI == 0 {
                    return Ok(answer);
                }
            }
        }
    }

    /// Opens the map of the vectors.
    fn open(&self) -> Result<()> {
        let mut answer = self.answer_to(&named("netlink: map-open"))?;
        let handle = answer
            .get_mut(HEADERS + 4..)
            .and_then(|handle| handle.first_chunk_mut());
        let handle = handle.context("no handle")?;
        self.handle.set(u32::from_ne_bytes(*handle));
        *handle = HANDLE_OF_VECTORS.to_ne_bytes();
        expect_vector("netlink: answer to map-open", answer, &[])
    }

    fn events(&self, length: usize) -> Result<Vec<u8>> {
        while self.events.borrow().len() < length {
            let others = self.receive()?;
            ensure!(others.is_empty(), "{others:?}");
        }
        Ok(self.events.take())
    }
}

/// Replaces the number of the family, that of the socket, and the handle, which is the first attribute where there is one; also in the
/// request that an error contains.
fn translate(message: &mut [u8], family: (u16, u16), handle: (u32, u32)) {
    const ERROR: u16 = libc::NLMSG_ERROR as u16;
    if message.len() < 16 {
        return;
    }
    let kind = u16::from_ne_bytes([message[4], message[5]]);
    message[12..16].fill(0);
    if kind == ERROR {
        if let Some(request) = message.get_mut(HEADERS..) {
            translate(request, family, handle);
        }
        return;
    }
    if kind != family.0 {
        return;
    }
    message[4..6].copy_from_slice(&family.1.to_ne_bytes());
    let is_handle = message.get(HEADERS + 2..HEADERS + 4) == Some(&attr::HANDLE.to_ne_bytes());
    let place = message.get_mut(HEADERS + 4..HEADERS + 8);
    if let Some(place) = place.filter(|place| is_handle && **place == handle.0.to_ne_bytes()) {
        place.copy_from_slice(&handle.1.to_ne_bytes());
    }
}

fn netlink_requests_are_answered_as_in_the_vectors(_: &Context) -> Result<()> {
    const EVENTS: &str = "netlink: the events of these requests";
    let socket = Plain::new()?;
    socket.open()?;
    for answer in of("netlink") {
        let Some(request) = answer.name.strip_prefix("netlink: answer to ") else {
            continue;
        };
        match request {
            "map-open" => continue,
            "map-close" => expect_vector(EVENTS, socket.events(named(EVENTS).bytes.len())?, &[])?,
            _ => {}
        }
        let seen = socket.answer_to(&named(&format!("netlink: {request}")))?;
        expect_vector(&answer.name, seen, &[])?;
    }
    Ok(())
}

fn malformed_netlink_messages_are_refused_as_in_the_vectors(_: &Context) -> Result<()> {
    let socket = Plain::new()?;
    socket.open()?;
    for request in of("netlink").iter().filter(|vector| vector.error.is_some()) {
        let answer = socket.answer_to(request)?;
        let kind = i32::from(u16::from_ne_bytes([answer[4], answer[5]]));
        expect(&request.name, kind, libc::NLMSG_ERROR)?;
        let error = answer.get(16..20).and_then(|error| error.first_chunk());
        let error = i32::from_ne_bytes(*error.context("an error is cut off")?);
        expect(&request.name, Errno::from_raw(-error), errno(request)?)?;
    }
    Ok(())
}
