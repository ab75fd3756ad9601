// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of maps over generic netlink: requests, what the kernel answers if they are made in this order, and malformed ones.

use serde_json::{Value, json};
use sluice_abi::map::{CREATED, DELETED, STEP_DELETE, STEP_GET, STEP_SET};
use sluice_abi::netlink::{self as nl, attr};
use sluice_abi::{OPEN_CREATE, OPEN_READ, OPEN_WRITE};

use crate::{ABI, Vector, hex};

/// The number of the family, which is another one on each host.
const FAMILY: u16 = 34;
const REQUEST: u16 = libc::NLM_F_REQUEST as u16;
const ACK: u16 = libc::NLM_F_ACK as u16;
const DUMP: u16 = libc::NLM_F_DUMP as u16;
const MULTI: u16 = libc::NLM_F_MULTI as u16;
const NESTED: u16 = libc::NLA_F_NESTED as u16;
/// Only the header of the request follows an error.
const CAPPED: u16 = 0x100;

// ---- attributes ----

enum Content {
    U32(u32),
    S32(i32),
    U64(u64),
    Binary(&'static [u8]),
    Text(&'static str),
    Flag,
    Nest(Vec<Attr>),
}
use Content::{Binary, Flag, Nest, S32, Text, U32, U64};

type Attr = (u16, Content);

fn encode(attrs: &[Attr]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, content) in attrs {
        let (kind, content) = match content {
            U32(number) => (*kind, number.to_le_bytes().to_vec()),
            S32(number) => (*kind, number.to_le_bytes().to_vec()),
            U64(number) => (*kind, number.to_le_bytes().to_vec()),
            Binary(content) => (*kind, content.to_vec()),
            Text(text) => (*kind, [text.as_bytes(), b"\0"].concat()),
            Flag => (*kind, Vec::new()),
            Nest(attrs) => (*kind | NESTED, encode(attrs)),
        };
        bytes.extend((4 + content.len() as u16).to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// Name, type and content of each, as spec/sluice.yaml names them.
fn describe(attrs: &[Attr]) -> Value {
    let describe = |(kind, content): &Attr| {
        let (form, content) = match content {
            U32(number) => ("u32", json!(number)),
            S32(number) => ("s32", json!(number)),
            U64(number) => ("u64", json!(number)),
            Binary(content) => ("binary", hex(content)),
            Text(text) => ("string", json!(text)),
            Flag => ("flag", json!(true)),
            Nest(attrs) => ("nest", describe(attrs)),
        };
        json!([name_of("SLUICE_NL_A_", *kind), form, content])
    };
    attrs.iter().map(describe).collect()
}

/// The name in spec/sluice.yaml of a constant.
fn name_of(prefix: &str, number: u16) -> String {
    let constants = ABI["constants"].as_object().unwrap();
    let mut names = constants
        .iter()
        .filter(|(_, value)| **value == json!(number))
        .filter_map(|(name, _)| name.strip_prefix(prefix));
    let name = names.find(|name| *name != "MAX");
    name.unwrap().to_lowercase().replace('_', "-")
}

// ---- messages ----

struct Message {
    bytes: Vec<u8>,
    value: Value,
}

fn header(length: usize, kind: u16, flags: u16, sequence: u32) -> (Vec<u8>, Value) {
    let mut bytes = (length as u32).to_le_bytes().to_vec();
    bytes.extend(kind.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes.extend([0; 4]);
    let value = json!({"length": length, "type": kind, "flags": flags, "seq": sequence, "pid": 0});
    (bytes, value)
}

fn message(sequence: u32, flags: u16, command: u8, attrs: &[Attr]) -> Message {
    let content = encode(attrs);
    let (mut bytes, mut value) = header(20 + content.len(), FAMILY, flags, sequence);
    bytes.extend([command, nl::VERSION, 0, 0]);
    bytes.extend(content);
    value["command"] = json!(name_of("SLUICE_NL_CMD_", command.into()));
    value["version"] = json!(nl::VERSION);
    value["attributes"] = describe(attrs);
    Message { bytes, value }
}

/// NLMSG_ERROR or NLMSG_DONE: an errno, and what follows it of a request.
fn end(sequence: u32, kind: i32, flags: u16, errno: i32, request: &[u8]) -> Message {
    let (mut bytes, mut value) = header(20 + request.len(), kind as u16, flags, sequence);
    bytes.extend((-errno).to_le_bytes());
    bytes.extend(request);
    value["error"] = json!(-errno);
    value["request"] = hex(request);
    Message { bytes, value }
}

fn sent(name: &'static str, page: &'static str, messages: Vec<Message>) -> Vector {
    Vector {
        name,
        page,
        form: "netlink",
        given: json!({"family": FAMILY}),
        outcome: Ok(messages
            .iter()
            .map(|message| message.value.clone())
            .collect()),
        bytes: messages
            .into_iter()
            .flat_map(|message| message.bytes)
            .collect(),
    }
}

fn color() -> Attr {
    (attr::KEY, Binary(b"color"))
}

fn blue() -> Attr {
    (attr::VALUE, Binary(b"blue"))
}

fn handle() -> Attr {
    (attr::HANDLE, U32(1))
}

fn version(number: u64) -> Attr {
    (attr::VERSION, U64(number))
}

fn event(sequence: u64, change: u16, version: u64, key: Attr) -> Message {
    let attrs = [
        handle(),
        (attr::CHANGE, U32(change.into())),
        (attr::SEQUENCE, U64(sequence)),
        (attr::VERSION, U64(version)),
        (attr::MISSED, U64(0)),
        key,
    ];
    message(0, 0, nl::MAP_EVENT, &attrs)
}

/// Requests in this order, and after each what the kernel answers.
#[rustfmt::skip]
fn exchanges() -> Vec<Vector> {
    const PAGE: &str = "map-netlink.md#messages";
    let request =
        |sequence, command, attrs: &[Attr]| vec![message(sequence, REQUEST, command, attrs)];
    let reply = |sequence, command, attrs: &[Attr]| vec![message(sequence, 0, command, attrs)];
    let dumped = |sequence, content| {
        let entry = [color(), version(1), content];
        vec![
            message(sequence, MULTI, nl::MAP_DUMP, &entry),
            end(sequence, libc::NLMSG_DONE, MULTI, 0, &[]),
        ]
    };
    let no_entry = request(4, nl::MAP_GET, &[handle(), (attr::KEY, Binary(b"none"))]);
    let refusal = end(4, libc::NLMSG_ERROR, 0, libc::ENOENT, &no_entry[0].bytes);
    let close = message(10, REQUEST | ACK, nl::MAP_CLOSE, &[handle()]);
    let acknowledged = end(10, libc::NLMSG_ERROR, CAPPED, 0, &close.bytes[..16]);
    let open = [
        (attr::NAME, Text("config")),
        (attr::FLAGS, U32(OPEN_READ | OPEN_WRITE | OPEN_CREATE)),
    ];
    let step = |attrs| (attr::STEP, Nest(attrs));
    let steps = [
        handle(),
        step(vec![
            (attr::COMMAND, U32(STEP_SET)),
            (attr::KEY, Binary(b"size")),
            (attr::VALUE, Binary(b"L")),
        ]),
        step(vec![(attr::COMMAND, U32(STEP_GET)), color()]),
        step(vec![
            (attr::COMMAND, U32(STEP_DELETE)),
            (attr::KEY, Binary(b"none")),
        ]),
    ];
    let results = [
        step(vec![version(2), (attr::RESULT, S32(1))]),
        step(vec![blue(), version(1), (attr::RESULT, S32(0))]),
        step(vec![(attr::RESULT, S32(-libc::ENOENT))]),
    ];
    vec![
        sent("netlink: map-open", PAGE, request(1, nl::MAP_OPEN, &open)),
        sent("netlink: answer to map-open", PAGE, reply(1, nl::MAP_OPEN, &[handle()])),
        sent("netlink: map-watch", PAGE, request(2, nl::MAP_WATCH, &[handle(), (attr::AFTER, U64(0))])),
        sent("netlink: answer to map-watch", PAGE, reply(2, nl::MAP_WATCH, &[(attr::SEQUENCE, U64(0))])),
        sent("netlink: map-set", PAGE, request(3, nl::MAP_SET, &[handle(), color(), blue()])),
        sent("netlink: answer to map-set", PAGE, reply(3, nl::MAP_SET, &[version(1), (attr::CREATED, Flag)])),
        sent("netlink: map-get without an entry", PAGE, no_entry),
        sent("netlink: answer to map-get without an entry", PAGE, vec![refusal]),
        sent("netlink: map-get", PAGE, request(5, nl::MAP_GET, &[handle(), color()])),
        sent("netlink: answer to map-get", PAGE, reply(5, nl::MAP_GET, &[blue(), version(1)])),
        sent("netlink: map-dump", PAGE, vec![message(6, REQUEST | DUMP, nl::MAP_DUMP, &[handle()])]),
        sent("netlink: answer to map-dump", PAGE, dumped(6, blue())),
        sent("netlink: map-dump of keys", PAGE, vec![message(7, REQUEST | DUMP, nl::MAP_DUMP, &[handle(), (attr::KEYS, Flag)])]),
        sent("netlink: answer to map-dump of keys", PAGE, dumped(7, (attr::VALUE_LENGTH, U32(4)))),
        sent("netlink: map-batch", PAGE, request(8, nl::MAP_BATCH, &steps)),
        sent("netlink: answer to map-batch", PAGE, reply(8, nl::MAP_BATCH, &results)),
        sent("netlink: map-delete", PAGE, request(9, nl::MAP_DELETE, &[handle(), color(), (attr::IF_VERSION, U64(1))])),
        sent("netlink: answer to map-delete", PAGE, reply(9, nl::MAP_DELETE, &[version(3)])),
        sent("netlink: map-close", PAGE, vec![close]),
        sent("netlink: answer to map-close", PAGE, vec![acknowledged]),
    ]
}

fn events() -> Vec<Vector> {
    const PAGE: &str = "map-netlink.md#watching-over-netlink";
    let destroyed = message(0, 0, nl::MAP_EVENT, &[handle(), (attr::DESTROYED, Flag)]);
    vec![
        sent(
            "netlink: the events of these requests",
            PAGE,
            vec![
                event(1, CREATED, 1, color()),
                event(2, CREATED, 2, (attr::KEY, Binary(b"size"))),
                event(3, DELETED, 1, color()),
            ],
        ),
        sent("netlink: the map was destroyed", PAGE, vec![destroyed]),
    ]
}

// ---- malformed messages ----

fn malformed(name: &'static str, errno: &'static str, bytes: Vec<u8>) -> Vector {
    Vector {
        name,
        page: "map-netlink.md#errors-over-netlink",
        form: "netlink",
        given: json!({"family": FAMILY}),
        bytes,
        outcome: Err(errno),
    }
}

/// A request whose attributes are wrong.
fn bad(name: &'static str, errno: &'static str, command: u8, attrs: &[Attr]) -> Vector {
    let flags = match command {
        nl::MAP_DUMP => REQUEST | DUMP,
        _ => REQUEST,
    };
    let (mut bytes, _) = header(20 + encode(attrs).len(), FAMILY, flags, 1);
    bytes.extend([command, nl::VERSION, 0, 0]);
    bytes.extend(encode(attrs));
    malformed(name, errno, bytes)
}

#[rustfmt::skip]
fn refusals() -> Vec<Vector> {
    let get = [handle(), color()];
    let mut reserved = message(1, REQUEST, nl::MAP_GET, &get).bytes;
    reserved[18] = 1;
    let mut left = message(1, REQUEST, nl::MAP_GET, &get).bytes;
    left.extend([0; 3]);
    left[0] += 3;
    let flat = message(1, REQUEST, nl::MAP_DUMP, &[handle()]).bytes;
    vec![
        bad("netlink: an unknown command", "EOPNOTSUPP", nl::MAP_EVENT + 1, &[]),
        bad("netlink: an event as a request", "EOPNOTSUPP", nl::MAP_EVENT, &[handle()]),
        malformed("netlink: a dump without NLM_F_DUMP", "EOPNOTSUPP", flat),
        malformed("netlink: no genlmsghdr", "EINVAL", header(16, FAMILY, REQUEST, 1).0),
        malformed("netlink: a reserved field", "EINVAL", reserved),
        malformed("netlink: bytes after the last attribute", "EINVAL", left),
        bad("netlink: an unknown attribute", "EINVAL", nl::MAP_GET, &[handle(), color(), (attr::MAX + 1, U32(1))]),
        bad("netlink: an attribute of another command", "EINVAL", nl::MAP_GET, &[handle(), color(), blue()]),
        bad("netlink: a number of another length", "EINVAL", nl::MAP_DELETE, &[handle(), color(), (attr::IF_VERSION, U32(1))]),
        bad("netlink: a number in a nest", "EINVAL", nl::MAP_CLOSE, &[(attr::HANDLE | NESTED, U32(1))]),
        bad("netlink: a step that is no nest", "EINVAL", nl::MAP_BATCH, &[handle(), (attr::STEP, U32(STEP_GET))]),
        bad("netlink: a name without a NUL", "EINVAL", nl::MAP_OPEN, &[(attr::NAME, Binary(b"config"))]),
        bad("netlink: a name that is too long", "ERANGE", nl::MAP_OPEN, &[(attr::NAME, Binary(LONG))]),
        bad("netlink: a handle of 0", "ERANGE", nl::MAP_CLOSE, &[(attr::HANDLE, U32(0))]),
        bad("netlink: a mode above 0777", "ERANGE", nl::MAP_OPEN, &[(attr::NAME, Text("config")), (attr::MODE, U32(0o1000))]),
        bad("netlink: an empty key", "ERANGE", nl::MAP_GET, &[handle(), (attr::KEY, Binary(b""))]),
        bad("netlink: a flag with content", "ERANGE", nl::MAP_DUMP, &[handle(), (attr::KEYS, U32(1))]),
        bad(
            "netlink: an unknown command of a step",
            "ERANGE",
            nl::MAP_BATCH,
            &[handle(), (attr::STEP, Nest(vec![(attr::COMMAND, U32(3)), color()]))],
        ),
        bad("netlink: a set without a value", "EINVAL", nl::MAP_SET, &[handle(), color()]),
        bad("netlink: a handle and a name", "EINVAL", nl::MAP_GET, &[handle(), (attr::NAME, Text("config")), color()]),
        bad("netlink: neither a handle nor a name", "EINVAL", nl::MAP_GET, &[color()]),
    ]
}

/// A NUL within 64 bytes, and more bytes than a name may have.
const LONG: &[u8] = b"config\0n234567890123456789012345678901234567890123456789012345678";

pub fn vectors() -> Vec<Vector> {
    [exchanges(), events(), refusals()]
        .into_iter()
        .flatten()
        .collect()
}
