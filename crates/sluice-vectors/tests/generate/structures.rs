// SPDX-License-Identifier: MIT OR Apache-2.0
//! What follows one another in a read(2) or in the room of a dump: a structure, the bytes that it counts, and a distance to the next one.

use serde_json::{Value, json};
use sluice_abi::bus::Frame;
use sluice_abi::feed::Packet;
use sluice_abi::keeper::{self, Message};
use sluice_abi::map::{self, CREATED, DELETED, EXPIRED, Event, Record, UPDATED};
use sluice_abi::{OPEN_CREATE, OPEN_READ, OPEN_WRITE};

use crate::{Vector, fields, hex};

/// One of them.
struct Part {
    bytes: Vec<u8>,
    value: Value,
}

/// A structure with further bytes of its own, if it is longer than this version's, and the bytes that it counts, up to `size`.
fn part(structure: &str, header: &[u8], tails: &[(&str, &[u8])], size: usize) -> Part {
    let mut bytes = header.to_vec();
    let mut value = fields(structure, header);
    for (name, tail) in tails {
        bytes.extend(*tail);
        value.insert((*name).to_owned(), hex(tail));
    }
    bytes.resize(size, 0);
    let value = value.into();
    Part { bytes, value }
}

fn parts(name: &'static str, page: &'static str, form: &'static str, parts: &[Part]) -> Vector {
    let values: Vec<_> = parts.iter().map(|part| &part.value).collect();
    Vector {
        name,
        page,
        form,
        given: Value::Null,
        outcome: Ok(json!(values)),
        bytes: parts.iter().flat_map(|part| part.bytes.clone()).collect(),
    }
}

// ---- buses ----

/// A frame with a message, whose `size` may be that of a longer frame.
fn frame(frame: Frame, message: &[u8]) -> Part {
    let mut header = frame.to_bytes().to_vec();
    header.resize(frame.size as usize, 0);
    let size = header.len() + message.len();
    part("sluice_bus_frame", &header, &[("message", message)], size)
}

/// As the kernel completes it for a receiver.
fn received(sequence: u64, fields: Frame, message: &[u8]) -> Part {
    let fields = Frame {
        sender: 1,
        sequence,
        pid: 4711,
        uid: 1000,
        gid: 100,
        ..fields
    };
    frame(fields, message)
}

/// The result of a read(2) of a batch: each frame but the first begins at a multiple of 8.
fn batch(name: &'static str, mut frames: Vec<Part>) -> Vector {
    let last = frames.len() - 1;
    for frame in &mut frames[..last] {
        frame.bytes.resize(frame.bytes.len().next_multiple_of(8), 0);
    }
    parts(name, "bus.md#formats", "bus-read", &frames)
}

/// The bytes of a write(2).
fn written(name: &'static str, frame: Part) -> Vector {
    parts(name, "bus.md#frames", "bus-write", &[frame])
}

fn refused(name: &'static str, errno: &'static str, bytes: Vec<u8>) -> Vector {
    Vector {
        name,
        page: "bus.md#sending",
        form: "bus-write",
        given: Value::Null,
        bytes,
        outcome: Err(errno),
    }
}

fn bad_frame(name: &'static str, change: fn(&mut Frame)) -> Vector {
    let mut frame = Frame::new(5, 0);
    change(&mut frame);
    refused(name, "EINVAL", [&frame.to_bytes()[..], b"color"].concat())
}

#[rustfmt::skip]
fn buses() -> Vec<Vector> {
    let to_all = || Frame::new(5, 0);
    let to_one = || Frame {
        tag: 7,
        ..Frame::new(4, 2)
    };
    let longer = || Frame {
        size: 72,
        ..to_all()
    };
    let mut with_unknown = frame(longer(), b"abcde").bytes;
    with_unknown[71] = 1;
    vec![
        written("bus: a message", frame(to_all(), b"color")),
        written("bus: a message to a subscriber, with a tag", frame(to_one(), b"blue")),
        written("bus: an empty message", frame(Frame::new(0, 0), b"")),
        written("bus: a longer frame", frame(longer(), b"abcde")),
        refused("bus: less than a frame", "EINVAL", vec![0; 63]),
        bad_frame("bus: a frame of 63 bytes", |frame| frame.size = 63),
        bad_frame("bus: a frame that is longer than the write", |frame| frame.size = 72),
        bad_frame("bus: fewer bytes than the length", |frame| frame.length = 6),
        bad_frame("bus: more bytes than the length", |frame| frame.length = 4),
        bad_frame("bus: a frame with a sender", |frame| frame.sender = 1),
        bad_frame("bus: a frame with a user", |frame| frame.uid = 1),
        bad_frame("bus: a frame with a reserved field", |frame| frame.reserved = 1),
        refused("bus: a longer frame with an unknown field", "E2BIG", with_unknown),
        batch("bus: a received message", vec![received(0, to_all(), b"color")]),
        batch(
            "bus: a batch",
            vec![
                received(0, to_all(), b"color"),
                received(1, to_one(), b"blue"),
                received(2, Frame::new(0, 0), b""),
                received(3, to_all(), b"abcde"),
            ],
        ),
        batch("bus: a received message after a loss", vec![received(1 << 40, Frame { lost: 3, ..to_one() }, b"blue")]),
    ]
}

// ---- maps ----

fn event(change: u16, key: &[u8], sequence: u64, version: u64, missed: u64) -> Part {
    let size = (Event::SIZE + key.len()).next_multiple_of(8);
    let event = Event {
        size: size as u32,
        change,
        key_length: key.len() as u16,
        sequence,
        version,
        missed,
    };
    part("sluice_map_event", &event.to_bytes(), &[("key", key)], size)
}

fn events(name: &'static str, events: &[Part]) -> Vector {
    parts(name, "map.md#watching", "map-events", events)
}

/// A record whose header has this length. `value`: None if the dump has no values.
fn record(
    header: usize,
    key: &[u8],
    value: &[u8],
    has_value: bool,
    version: u64,
    ttl_ns: u64,
) -> Part {
    let tails = [("key", key), ("value", value)];
    let tails = &tails[..if has_value { 2 } else { 1 }];
    let length: usize = tails.iter().map(|(_, tail)| tail.len()).sum();
    let size = (header + length).next_multiple_of(8);
    let record = Record {
        size: size as u32,
        value_length: value.len() as u32,
        version,
        ttl_ns,
        key_length: key.len() as u16,
        header: header as u16,
        reserved: 0,
    };
    let mut bytes = record.to_bytes().to_vec();
    bytes.resize(header, 0xff);
    part("sluice_map_record", &bytes, tails, size)
}

fn records(name: &'static str, keys: bool, records: &[Part]) -> Vector {
    Vector {
        given: json!({"keys": keys}),
        ..parts(name, "map.md#dumps", "map-records", records)
    }
}

#[rustfmt::skip]
fn maps() -> Vec<Vector> {
    vec![
        events("map: an entry was created", &[event(CREATED, b"color", 1, 1, 0)]),
        events(
            "map: the events of one read",
            &[
                event(CREATED, b"color", 1, 1, 0),
                event(UPDATED, b"color", 2, 2, 0),
                event(CREATED, b"12345678", 3, 3, 0),
                event(DELETED, b"color", 4, 2, 0),
            ],
        ),
        events("map: an entry has expired", &[event(EXPIRED, &[0, 0xff], 1 << 40, 7, 0)]),
        events("map: changes were lost", &[event(UPDATED, b"color", 1000, 1000, 990)]),
        records("map: a record", false, &[record(32, b"color", b"blue", true, 1, 0)]),
        records("map: a record without its value", true, &[record(32, b"color", b"blue", false, 1, 0)]),
        records(
            "map: records",
            false,
            &[
                record(32, b"k", b"", true, 1 << 40, 0),
                record(32, b"12345678", b"12345678", true, 3, 1_500_000_000),
                record(32, &[0, 0xff, 0], &[0; 3], true, 4, 0),
            ],
        ),
        records(
            "map: records of a later version",
            false,
            &[record(40, b"color", b"blue", true, 1, 0), record(40, b"size", b"L", true, 2, 0)],
        ),
    ]
}

// ---- feeds ----

fn packet(name: &'static str, packet: Packet, bytes: &[u8]) -> Vector {
    let size = Packet::SIZE + bytes.len();
    let packet = part(
        "sluice_feed_packet",
        &packet.to_bytes(),
        &[("bytes", bytes)],
        size,
    );
    parts(name, "feed.md#packets", "feed-packet", &[packet])
}

fn feeds() -> Vec<Vector> {
    let first = Packet {
        sequence: 0,
        lost: 0,
        time_ns: 1_234_567_890_123,
        cycles: 9_876_543_210,
    };
    let second = Packet {
        sequence: 1,
        time_ns: 1_234_568_890_123,
        ..first
    };
    let late = Packet {
        sequence: 1 << 40,
        lost: 17,
        ..first
    };
    vec![
        packet("feed: the first packet", first, &[0; 8]),
        packet("feed: the second packet", second, &[1; 8]),
        packet("feed: a packet without bytes, after a loss", late, b""),
    ]
}

// ---- the keeper ----

const PATH: &[u8] = b"/a";

/// A message whose header has this length.
fn message(
    header: usize,
    kind: u32,
    sequence: u64,
    expires_ns: u64,
    key: &[u8],
    value: &[u8],
) -> Part {
    let size = (header + key.len() + value.len()).next_multiple_of(8);
    let message = Message {
        size: size as u32,
        r#type: kind,
        stream: 1,
        sequence,
        expires_ns,
        key_length: key.len() as u32,
        value_length: value.len() as u32,
        header: header as u32,
        reserved: 0,
    };
    let mut bytes = message.to_bytes().to_vec();
    bytes.resize(header, 0xff);
    let mut part = part(
        "sluice_keep_message",
        &bytes,
        &[("key", key), ("value", value)],
        size,
    );
    if [keeper::OPEN, keeper::RESUME].contains(&kind) {
        // Fields that an older version does not have are 0.
        let mut map = key.to_vec();
        map.resize(key.len().max(keeper::Map::SIZE), 0);
        part.value["map"] = fields("sluice_keep_map", &map).into();
    }
    part
}

fn messages(name: &'static str, messages: &[Part]) -> Vector {
    parts(
        name,
        "map-keeper.md#messages-of-the-keeper",
        "keeper-messages",
        messages,
    )
}

#[rustfmt::skip]
fn keepers() -> Vec<Vector> {
    let header = Message::SIZE;
    let map = keeper::Map {
        uid: 1000,
        gid: 100,
        mode: 0o640,
        events: 1024,
        capacity: 4 << 20,
        deadline_ms: 30_000,
        ..keeper::Map::new("config", map::DURABLE)
    };
    let opened = keeper::Map {
        open_flags: OPEN_READ | OPEN_WRITE | OPEN_CREATE,
        administrator: 1,
        ..map
    };
    let mapped = keeper::Map {
        flags: map::DURABLE | map::MAPPED,
        cell: 256,
        table: 1 << 25,
        ..map
    };
    let older = keeper::Map { size: keeper::MAP_SIZE_VER0, ..map };
    let older = &older.to_bytes()[..keeper::MAP_SIZE_VER0 as usize];
    let longer = [&keeper::Map { size: 144, ..map }.to_bytes()[..], &[0xff; 8]].concat();
    let set = |sequence| message(header, keeper::SET, sequence, 0, b"color", b"blue");
    vec![
        messages("keeper: a map is opened", &[message(header, keeper::OPEN, 0, 0, &opened.to_bytes(), PATH)]),
        messages("keeper: a stream that existed before", &[message(header, keeper::RESUME, 1, 0, &map.to_bytes(), PATH)]),
        messages("keeper: a mapped map", &[message(header, keeper::RESUME, 1, 0, &mapped.to_bytes(), PATH)]),
        messages("keeper: a map of the first version", &[message(header, keeper::RESUME, 1, 0, older, PATH)]),
        messages("keeper: an entry was set", &[set(1)]),
        messages("keeper: the changes of one read", &[set(1), message(header, keeper::DELETE, 2, 0, b"color", b"")]),
        messages(
            "keeper: an entry with a time to live, and its end",
            &[
                message(header, keeper::SET, 3, 1_234_567_890_123, b"12345678", b""),
                message(header, keeper::EXPIRE, 4, 0, b"12345678", b""),
            ],
        ),
        messages("keeper: a process waits", &[message(header, keeper::SYNC, 4, 0, b"", b"")]),
        messages("keeper: the map is unlinked", &[message(header, keeper::UNLINK, 0, 0, b"", b"")]),
        messages("keeper: the stream has ended", &[message(header, keeper::CLOSED, 0, 0, b"", b"")]),
        messages("keeper: an unknown message", &[message(header, 99, 0, 0, b"?", b"?"), set(5)]),
        messages("keeper: a message of a later version", &[message(56, keeper::RESUME, 1, 0, &longer, PATH), set(6)]),
    ]
}

pub fn vectors() -> Vec<Vector> {
    [buses(), maps(), feeds(), keepers()]
        .into_iter()
        .flatten()
        .collect()
}
