// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages of the handshake of a ring over memfd, and what a side answers.

use serde_json::{Map, Value, json};
use sluice_abi::ring::{
    CONSUMER, F_MEMBARRIER, F_UNSEALED, Hello, MAGIC, PRODUCER, Reply, VERSION,
};

use crate::{Vector, fields};

const PAGE: &str = "ring-memfd.md#messages-of-the-handshake";

fn producer() -> Hello {
    Hello {
        magic: MAGIC,
        size: Hello::SIZE as u32,
        version: VERSION,
        role: PRODUCER,
        flags: 0,
        data: 4096,
        capacity: 4096,
    }
}

fn consumer() -> Hello {
    Hello {
        role: CONSUMER,
        data: 0,
        capacity: 0,
        ..producer()
    }
}

/// What a side receives first, with so many files.
fn first(
    name: &'static str,
    receiver: u32,
    files: u32,
    bytes: &[u8],
    outcome: Result<Map<String, Value>, &'static str>,
) -> Vector {
    Vector {
        name,
        page: PAGE,
        form: "ring-first-message",
        given: json!({"receiver": receiver, "files": files}),
        bytes: bytes.to_vec(),
        outcome: outcome.map(Value::from),
    }
}

/// A hello that a side of the other role accepts.
fn hello(name: &'static str, hello: Hello) -> Vector {
    let bytes = hello.to_bytes();
    let value = fields("sluice_ring_hello", &bytes);
    first(name, PRODUCER + CONSUMER - hello.role, 1, &bytes, Ok(value))
}

/// A message to a consumer that refuses it with this errno.
fn bad(name: &'static str, bytes: &[u8], files: u32, errno: &'static str) -> Vector {
    first(name, CONSUMER, files, bytes, Err(errno))
}

/// A hello to a consumer that refuses it.
fn bad_producer(name: &'static str, errno: &'static str, change: fn(&mut Hello)) -> Vector {
    let mut hello = producer();
    change(&mut hello);
    bad(name, &hello.to_bytes(), 1, errno)
}

/// A hello to a producer that refuses it.
fn bad_consumer(name: &'static str, errno: &'static str, change: fn(&mut Hello)) -> Vector {
    let mut hello = consumer();
    change(&mut hello);
    first(name, PRODUCER, 1, &hello.to_bytes(), Err(errno))
}

/// The first `length` bytes of a hello, with zeros after its end.
fn cut(hello: Hello, length: usize) -> Vec<u8> {
    let mut bytes = hello.to_bytes().to_vec();
    bytes.resize(length, 0);
    bytes
}

fn reply(error: i32) -> Reply {
    let error = error as u32;
    Reply {
        magic: MAGIC,
        error,
    }
}

/// What a side receives second.
fn second(name: &'static str, bytes: &[u8], files: u32, is_reply: bool) -> Vector {
    Vector {
        name,
        page: PAGE,
        form: "ring-second-message",
        given: json!({"files": files}),
        bytes: bytes.to_vec(),
        outcome: match is_reply {
            true => Ok(fields("sluice_ring_reply", bytes).into()),
            false => Err("no reply"),
        },
    }
}

#[rustfmt::skip]
pub fn vectors() -> Vec<Vector> {
    let refusal = reply(libc::EPERM).to_bytes();
    let accepted = reply(0).to_bytes();
    let other_magic = Reply {
        magic: MAGIC + 1,
        ..reply(1)
    }
    .to_bytes();
    let next = Hello {
        version: 2,
        ..producer()
    };
    vec![
        hello("memfd: hello of a producer", producer()),
        hello("memfd: hello of a consumer", consumer()),
        hello("memfd: hello of a producer with membarrier and 4 MiB", Hello { flags: F_MEMBARRIER, capacity: 4 << 20, ..producer() }),
        hello("memfd: hello of a consumer with membarrier", Hello { flags: F_MEMBARRIER, ..consumer() }),
        first("memfd: a refusal in place of the hello", CONSUMER, 0, &refusal, Ok(fields("sluice_ring_reply", &refusal))),
        first("memfd: a refusal with a file", CONSUMER, 1, &refusal, Ok(fields("sluice_ring_reply", &refusal))),
        bad("memfd: an empty message", b"", 0, "EPROTO"),
        bad("memfd: a reply without an error in place of the hello", &accepted, 0, "EPROTO"),
        bad("memfd: a refusal of another magic", &other_magic, 0, "EPROTO"),
        bad("memfd: 11 bytes of a hello", &cut(producer(), 11), 1, "EPROTO"),
        bad_producer("memfd: another magic", "EPROTO", |hello| hello.magic += 1),
        bad_producer("memfd: a magic of the other byte order", "EPROTO", |hello| hello.magic = hello.magic.swap_bytes()),
        bad("memfd: another version", &next.to_bytes(), 1, "EPROTONOSUPPORT"),
        bad("memfd: another version in 12 bytes without a file", &cut(next, 12), 0, "EPROTONOSUPPORT"),
        bad("memfd: another version in 40 bytes with two files", &cut(next, 40), 2, "EPROTONOSUPPORT"),
        bad("memfd: 12 bytes of a hello", &cut(producer(), 12), 1, "EPROTO"),
        bad("memfd: 31 bytes of a hello", &cut(producer(), 31), 1, "EPROTO"),
        bad("memfd: 33 bytes", &cut(producer(), 33), 1, "EPROTO"),
        bad_producer("memfd: another size", "EPROTO", |hello| hello.size = 40),
        bad("memfd: a hello without a file", &producer().to_bytes(), 0, "EPROTO"),
        bad("memfd: a hello with two files", &producer().to_bytes(), 2, "EPROTO"),
        bad_producer("memfd: an unknown flag", "EPROTO", |hello| hello.flags = 4),
        bad_producer("memfd: a consumer for a consumer", "EALREADY", |hello| hello.role = CONSUMER),
        bad_consumer("memfd: a producer for a producer", "EALREADY", |hello| hello.role = PRODUCER),
        bad_producer("memfd: role 0", "EPROTO", |hello| hello.role = 0),
        bad_producer("memfd: role 3", "EPROTO", |hello| hello.role = 3),
        bad_consumer("memfd: a consumer with data", "EPROTO", |hello| hello.data = 4096),
        bad_consumer("memfd: a consumer with a capacity", "EPROTO", |hello| hello.capacity = 4096),
        bad_consumer("memfd: an unsealed consumer", "EPROTO", |hello| hello.flags = F_UNSEALED),
        bad_producer("memfd: data at 0", "EPROTO", |hello| hello.data = 0),
        bad_producer("memfd: data at less than a page", "EPROTO", |hello| hello.data = 2048),
        bad_producer("memfd: data at no power of two", "EPROTO", |hello| hello.data = 12288),
        bad_producer("memfd: a capacity of 0", "ERANGE", |hello| hello.capacity = 0),
        bad_producer("memfd: a capacity that is too small", "ERANGE", |hello| hello.capacity = 2048),
        bad_producer("memfd: a capacity that is no power of two", "ERANGE", |hello| hello.capacity = 12288),
        bad_producer("memfd: a capacity that is too large", "ERANGE", |hello| hello.capacity = 1 << 29),
        bad_producer("memfd: a capacity below the page size of the file", "ERANGE", |hello| hello.data = 8192),
        bad_producer("memfd: unsealed memory", "EACCES", |hello| hello.flags = F_UNSEALED),
        second("memfd: the reply that accepts", &accepted, 0, true),
        second("memfd: the reply EPROTO", &reply(libc::EPROTO).to_bytes(), 0, true),
        second("memfd: the reply ERANGE", &reply(libc::ERANGE).to_bytes(), 0, true),
        second("memfd: a reply of an unknown error", &reply(-1).to_bytes(), 0, true),
        second("memfd: an empty message in place of the reply", b"", 0, false),
        second("memfd: 7 bytes of a reply", &accepted[..7], 0, false),
        second("memfd: 9 bytes in place of the reply", &[&accepted[..], &[0]].concat(), 0, false),
        second("memfd: a reply of another magic", &other_magic, 0, false),
        second("memfd: a reply with a file", &accepted, 1, false),
        second("memfd: a hello in place of the reply", &producer().to_bytes(), 0, false),
    ]
}
