// SPDX-License-Identifier: MIT OR Apache-2.0
//! As fail_nth, every operation of a map with an injected failure at every possible point.

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::channel::read_some;
use crate::support::check::expect;
use crate::support::ctl::{BOTH, CREATE, EXCL, READ, WRITE};
use crate::support::fail_nth::{FailureSweep, nothing};
use crate::support::ioctl::raw;
use crate::support::map::{
    self, Cursor, DUMP, Dump, Maps, NOW, Op, Params, STEP_DELETE, STEP_GET, STEP_SET, Step, delete,
    get, parse_events, put, set, set_for, state, watch,
};
use crate::support::netlink::{Attrs, Request, Socket, attr, command};

topic!(
    "fail_nth_map",
    fifo: [],
    pipe_only: [
        opening_a_map,
        setting_a_value,
        getting_a_value,
        deleting_an_entry,
        executing_a_batch,
        listing_a_map,
        watching_a_map,
        querying_a_map,
        requests_over_netlink,
    ],
);

const KEY: &[u8] = b"key";
/// Sizes of keys and values for which the module allocates in different ways. Each page is a point of failure.
const SIZES: [(usize, usize); 3] = [(3, 10), (1000, 5000), (4096, 100_000)];

fn one_map() -> Result<OwnedFd> {
    Maps::new()?.create()
}

fn one_entry(key: &[u8], value: &[u8]) -> Result<OwnedFd> {
    let end = one_map()?;
    put(&end, key, value)?;
    Ok(end)
}

fn opening_a_map(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let open = |flags| move |maps: &Maps| maps.open(flags);
    all.sweep("create", Maps::new, open(BOTH | CREATE | EXCL), nothing)?;
    all.sweep(
        "attach",
        || {
            let maps = Maps::new()?;
            let first = maps.create()?;
            Ok((maps, first))
        },
        |(maps, _)| maps.open(READ),
        nothing,
    )?;
    all.finish()
}

fn setting_a_value(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    for (key_length, length) in SIZES {
        let (key, value) = (vec![7; key_length], vec![1; length]);
        let stored = |end: &OwnedFd, _| expect("the value", get(end, &key), Ok(value.clone()));
        let sizes = format!("of {key_length} and {length} bytes");
        all.sweep(
            &format!("create {sizes}"),
            one_map,
            |end| set(end, &key, &value),
            stored,
        )?;
        all.sweep(
            &format!("replace {sizes}"),
            || one_entry(&key, b"before"),
            |end| set(end, &key, &value),
            stored,
        )?;
    }
    all.sweep(
        "set for a time",
        one_map,
        |end| set_for(end, KEY, b"", Duration::from_secs(3600)),
        nothing,
    )?;
    all.finish()
}

fn getting_a_value(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    for (key_length, length) in SIZES {
        let (key, value) = (vec![7; key_length], vec![1; length]);
        all.sweep(
            &format!("get of {key_length} and {length} bytes"),
            || one_entry(&key, &value),
            |end| get(end, &key),
            |_, seen| expect("the value", &seen, &value),
        )?;
    }
    all.finish()
}

fn deleting_an_entry(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    all.sweep(
        "delete",
        || one_entry(KEY, b"value"),
        // The entry is gone already if only the copy of its version failed.
        |end| match delete(end, KEY) {
            Err(Errno::ENOENT) => Ok(0),
            other => other,
        },
        |end, _| expect("the entries", state(end)?.entries, 0),
    )?;
    all.finish()
}

fn executing_a_batch(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    all.sweep(
        "batch",
        || one_entry(b"a", b"value"),
        |end| {
            let mut room = [0; 5];
            let mut steps = [
                Step::new(STEP_SET, &Op::set(b"b", b"1")),
                Step::new(STEP_GET, &Op::get(b"a", &mut room)),
                Step::new(STEP_DELETE, &Op::delete(b"none")),
            ];
            let done = map::batch(end, &mut steps)?;
            match steps[..2].iter().find(|step| step.result < 0) {
                Some(step) => Err(Errno::from_raw(-step.result)),
                // A step that cannot be read or written back ends the batch after those before.
                None if done < steps.len() => Err(Errno::EFAULT),
                None => Ok(done),
            }
        },
        |end, done| {
            expect("steps", done, 3)?;
            expect("the value", get(end, b"b"), Ok(b"1".to_vec()))
        },
    )?;
    all.finish()
}

fn listing_a_map(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    all.sweep(
        "dump",
        || one_entry(KEY, &[1; 5000]),
        |end| {
            let mut room = vec![0; 1 << 16];
            let mut dump = Dump::new(0, Cursor::default(), &mut room);
            raw(end, DUMP, &mut dump)?;
            Ok((dump.count, dump.length))
        },
        |_, seen| expect("entries and bytes", seen, (1, 5040)),
    )?;
    all.finish()
}

fn watching_a_map(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    all.sweep("watch", one_map, |end| watch(end, NOW), nothing)?;
    all.sweep(
        "read an event",
        || {
            let end = one_map()?;
            watch(&end, NOW).context("watching")?;
            put(&end, KEY, b"")?;
            Ok(end)
        },
        |end| read_some(end, 4096),
        |_, seen| expect("events", parse_events(&seen)?.len(), 1),
    )?;
    all.finish()
}

fn querying_a_map(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    all.sweep("its state", one_map, map::info, nothing)?;
    all.sweep(
        "its state by name",
        || {
            let maps = Maps::new()?;
            let end = maps.create_with(Params::default(), 0)?;
            Ok((maps, end))
        },
        |(maps, _)| maps.info(),
        nothing,
    )?;
    all.finish()
}

/// The attributes of a request for a handle.
type AttrsOf<'a> = &'a dyn Fn(u32) -> Attrs;

/// A socket with a handle of a map that has an entry.
fn socket_with_handle() -> Result<(Socket, u32)> {
    let socket = Socket::new()?;
    let handle = socket.open("fail-nth", READ | WRITE | CREATE)?;
    let entry = Attrs::new().handle(handle).key(KEY).value(&[1; 5000]);
    socket.must(command::SET, &entry)?;
    Ok((socket, handle))
}

/// Whether the request succeeded, or failed because of the injection; also if only its answer was lost.
fn has_succeeded(socket: &Socket, sequence: u32) -> Result<bool> {
    match socket.finish(sequence) {
        Ok(Ok(_)) => Ok(true),
        // EAGAIN: no memory without a wait.
        Ok(Err(refusal)) if matches!(refusal.errno, Errno::ENOMEM | Errno::EAGAIN) => Ok(false),
        Ok(Err(refusal)) => bail!("{refusal:?}"),
        Err(error) if error.downcast_ref() == Some(&Errno::ENOBUFS) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The kernel executes a request in the call that sends it.
fn requests_over_netlink(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let key = |handle| Attrs::new().handle(handle).key(KEY);
    let step = |kind: u32| Attrs::new().u32(attr::COMMAND, kind).key(b"step");
    let batch = |handle| {
        let set = step(STEP_SET).value(b"1");
        Attrs::new().handle(handle).step(&set).step(&step(STEP_GET))
    };
    let open = |_| Attrs::new().name("another").flags(READ | WRITE | CREATE);
    let requests: [(&str, u8, AttrsOf); 7] = [
        ("open", command::OPEN, &open),
        ("get", command::GET, &key),
        ("set", command::SET, &|handle| key(handle).value(&[2; 9000])),
        ("batch", command::BATCH, &batch),
        ("watch", command::WATCH, &|handle| {
            Attrs::new().handle(handle)
        }),
        ("info", command::INFO, &|handle| Attrs::new().handle(handle)),
        ("close", command::CLOSE, &|handle| {
            Attrs::new().handle(handle)
        }),
    ];
    for (what, command, attrs) in requests {
        let request = |handle| Request::new(command, attrs(handle));
        all.sweep(
            &format!("{what} over netlink"),
            socket_with_handle,
            |(socket, handle)| match socket.send(&request(*handle)) {
                Ok(sequence) => Ok(sequence),
                Err(error) => match error.downcast_ref() {
                    Some(Errno::ENOBUFS) | None => Err(Errno::ENOMEM),
                    Some(error) => Err(*error),
                },
            },
            |(socket, _), sequence| {
                // Its effect may be there although the answer was lost: then a handle is closed already.
                if has_succeeded(socket, sequence)? || command == command::CLOSE {
                    return Ok(());
                }
                // Messages of the first attempt may follow on its socket.
                let (again, handle) = socket_with_handle()?;
                again.must(command, &attrs(handle)).map(drop)
            },
        )?;
    }
    all.finish()
}
