// SPDX-License-Identifier: MIT OR Apache-2.0
//! That the library, the algorithm of rings, the keeper and the implementation in Python read the vectors as they are meant.

#[path = "generate/memory.rs"]
mod memory;

use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::Ordering;

use memory::Memory;
use serde_json::{Value, json};
use sluice::ring::{SetupError, Socket, SocketOptions};
use sluice_abi::{keeper, ring};
use sluice_hostile::{CTRL_SIZE, DATA, Peer, SEALS, memfd, seal};
use sluice_keeper::{Content, Keeper, StoredMap};
use sluice_ring::{Capacity, Consumer, Memory as _, Producer};
use sluice_vectors::{Vector, bytes, named, number, of};

// ---- the memory of a ring ----

/// The records that a consumer finds, and the position after them; None: a protocol violation.
fn received(vector: &Vector) -> Option<Value> {
    let memory = Memory::new(Capacity::exactly(number(&vector.given["capacity"]), 4096).unwrap());
    let position = number(&vector.given["position"]);
    memory.write(position, &vector.bytes);
    let mut consumer = Consumer::new(memory);
    if position > 0 {
        consumer.advance((position - sluice_ring::HEADER) as u32);
        consumer.release();
    }
    let mut records = Vec::new();
    while let Some(length) = consumer.peek_more().ok()? {
        let record = consumer.memory().read(consumer.bytes(), length as usize);
        records.push(record);
        consumer.advance(length);
    }
    let records: Vec<_> = records.iter().map(|record| hex(record)).collect();
    let end = consumer.bytes() - sluice_ring::HEADER;
    Some(json!({"records": records, "end": end}))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_consumer_receives_the_records() {
    for vector in of("ring-data") {
        let expected = (!vector.value.is_null()).then(|| vector.value.clone());
        assert_eq!(received(&vector), expected, "{}", vector.name);
    }
}

#[test]
fn a_producer_validates_positions() {
    for vector in of("ring-control") {
        if vector.given.is_null() {
            continue;
        }
        let mut producer = Producer::new(Memory::new(Capacity::MIN));
        for _ in 0..2 {
            producer.write(8);
            producer.publish();
        }
        let published = producer.memory().producer().pos.load(Ordering::Relaxed);
        assert_eq!(published, number(&vector.given["published"]));
        producer.memory().release(number(&vector.given["released"]));
        producer.pending().unwrap();
        let position = ring::Ctrl::from_bytes(&vector.bytes.try_into().unwrap()).pos;
        producer.memory().release(position);
        match vector.error {
            None => assert_eq!(
                producer.pending(),
                Ok(published - position),
                "{}",
                vector.name
            ),
            Some(_) => assert!(producer.pending().is_err(), "{}", vector.name),
        }
    }
}

// ---- the handshake ----

/// Sends messages to the library's side of this role: its result, and the messages that it has sent.
fn set_up(role: u64, messages: &[(&Vector, u64)]) -> (Result<(), SetupError>, Vec<Vec<u8>>) {
    let (peer, socket) = Peer::pair();
    for (vector, files) in messages {
        let length = match role as u32 {
            ring::PRODUCER => CTRL_SIZE as u64,
            _ => DATA as u64 + vector.value["capacity"].as_u64().unwrap_or(4096),
        };
        let file = memfd(length);
        seal(&file, SEALS);
        let files: Vec<_> = (0..*files).map(|_| file.as_fd()).collect();
        peer.send(&vector.bytes, &files).expect("not sent");
    }
    let options = SocketOptions::new().capacity(4096);
    let result = match role as u32 {
        ring::PRODUCER => options.producer(Socket::from(socket)).map(drop),
        _ => options.consumer(Socket::from(socket)).map(drop),
    };
    let sent = std::iter::from_fn(|| {
        // The first receive reports that the library has closed its socket before it had read everything.
        let received = peer.receive().or_else(|_| peer.receive());
        received.ok().map(|(message, _)| message)
    });
    (
        result,
        sent.take_while(|message| !message.is_empty()).collect(),
    )
}

/// Whether it is a hello of the library, which has the flag for membarrier where the system has that call.
fn is_hello(message: &[u8], vector: &str) -> bool {
    let mut message = message.to_vec();
    message[16] &= !(ring::F_MEMBARRIER as u8);
    message == named(vector).bytes
}

fn number_of(errno: &str) -> i32 {
    match errno {
        "EPROTO" => libc::EPROTO,
        "EPROTONOSUPPORT" => libc::EPROTONOSUPPORT,
        "EALREADY" => libc::EALREADY,
        "ERANGE" => libc::ERANGE,
        "EACCES" => libc::EACCES,
        other => panic!("{other}"),
    }
}

#[test]
fn the_library_answers_the_first_message() {
    let accepting = named("memfd: the reply that accepts");
    for vector in of("ring-first-message") {
        let role = number(&vector.given["receiver"]);
        let files = number(&vector.given["files"]);
        let (result, sent) = set_up(role, &[(&vector, files), (&accepting, 0)]);
        let own = match role as u32 {
            ring::PRODUCER => "memfd: hello of a producer",
            _ => "memfd: hello of a consumer",
        };
        assert!(is_hello(&sent[0], own), "{}: {sent:?}", vector.name);
        let is_refusal = vector.value["error"].is_u64();
        let errno = vector.error.as_deref().map_or(0, number_of);
        match is_refusal {
            true => assert!(matches!(result, Err(SetupError::NotAllowedByPeer))),
            false => {
                assert_eq!(sent[1][..4], accepting.bytes[..4], "{}", vector.name);
                assert_eq!(sent[1][4..], errno.to_le_bytes(), "{}", vector.name);
                assert_eq!(result.is_ok(), errno == 0, "{}: {result:?}", vector.name);
            }
        }
    }
}

#[test]
fn the_library_reads_the_second_message() {
    let hello = named("memfd: hello of a producer");
    for vector in of("ring-second-message") {
        let files = number(&vector.given["files"]);
        let (result, _) = set_up(ring::CONSUMER.into(), &[(&hello, 1), (&vector, files)]);
        let is_right = match (vector.value["error"].as_u64(), &result) {
            (Some(0), Ok(())) | (None, Err(SetupError::ProtocolMismatch(_))) => true,
            // The library keeps the numbers of the protocol only.
            (Some(0xffff_ffff), Err(SetupError::Refused(errno))) => *errno == libc::ECONNREFUSED,
            (Some(error), Err(SetupError::Refused(errno))) => i32::try_from(error) == Ok(*errno),
            _ => false,
        };
        assert!(is_right, "{}: {result:?}", vector.name);
    }
}

// ---- the keeper ----

fn matches(content: &Content, value: &Value) -> bool {
    let kind = value["type"].as_u64().unwrap() as u32;
    let sequence = number(&value["sequence"]);
    let (key, data) = (bytes(&value["key"]), bytes(&value["value"]));
    match content {
        Content::Open(open) => {
            let map = &value["map"];
            kind == keeper::OPEN
                && is_map(&open.map, map)
                && open.path.as_os_str().as_bytes() == data
                && u64::from(open.administrator) == number(&map["administrator"])
        }
        Content::Resume(resume) => {
            kind == keeper::RESUME
                && is_map(&resume.map, &value["map"])
                && resume.path.as_os_str().as_bytes() == data
                && resume.stored == sequence
        }
        Content::Set(set) => {
            kind == keeper::SET
                && (set.key, set.value) == (&key, &data)
                && (set.number, set.expires_ns) == (sequence, number(&value["expires_ns"]))
        }
        Content::Delete(removal) => {
            kind == keeper::DELETE && (removal.key, removal.number) == (&key, sequence)
        }
        Content::Expire(removal) => {
            kind == keeper::EXPIRE && (removal.key, removal.number) == (&key, sequence)
        }
        Content::Unlink => kind == keeper::UNLINK,
        Content::Closed => kind == keeper::CLOSED,
        Content::Sync(up_to) => kind == keeper::SYNC && *up_to == sequence,
        Content::Other(other) => kind == *other,
        _ => false,
    }
}

fn is_map(map: &StoredMap, value: &Value) -> bool {
    let read = json!({
        "flags": map.flags, "uid": map.uid, "gid": map.gid, "mode": map.mode, "capacity": map.capacity, "entries": map.entries,
        "events": map.events, "deadline_ms": map.deadline_ms, "interval_ms": map.interval_ms,
        "cell": map.cell, "table": map.table,
    });
    let fields = read.as_object().unwrap();
    let name = value["name"].as_str().map(str::as_bytes);
    name == Some(map.name.as_bytes()) && fields.iter().all(|(name, read)| value[name] == *read)
}

#[test]
fn the_keeper_reads_the_messages() {
    for vector in of("keeper-messages") {
        let (mut kernel, descriptor) = UnixStream::pair().unwrap();
        kernel.write_all(&vector.bytes).unwrap();
        let mut buffer = vec![0; vector.bytes.len()];
        let keeper = Keeper::from(OwnedFd::from(descriptor));
        let messages = keeper.read(&mut buffer).unwrap();
        let messages: Vec<_> = messages.map(Result::unwrap).collect();
        let values = vector.parts();
        assert_eq!(messages.len(), values.len(), "{}", vector.name);
        for (message, value) in messages.iter().zip(values) {
            assert_eq!(message.stream, number(&value["stream"]));
            assert!(matches(&message.content, value), "{message:?}: {value}");
        }
    }
}

// ---- another language ----

#[test]
fn the_implementation_in_python_reads_the_vectors() {
    const PROGRAM: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/interop/python/vectors.py"
    );
    let output = Command::new("python3")
        .args(["-B", "-S", PROGRAM])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}
