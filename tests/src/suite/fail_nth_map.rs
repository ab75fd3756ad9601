// SPDX-License-Identifier: MIT OR Apache-2.0
//! As fail_nth, every operation of a map with an injected failure at every possible point.

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::channel::read_some;
use crate::support::check::expect;
use crate::support::ctl::{BOTH, CREATE, EXCL, READ};
use crate::support::fail_nth::{FailureSweep, nothing};
use crate::support::ioctl::raw;
use crate::support::map::{
    self, Cursor, DUMP, Dump, Maps, NOW, Op, Params, STEP_DELETE, STEP_GET, STEP_SET, Step,
    VALUE_MAX, delete, get, parse_events, put, set, set_for, state, watch,
};

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
    ],
);

const KEY: &[u8] = b"key";
/// Sizes of keys and values for which the module allocates in different ways.
const SIZES: [(usize, usize); 3] = [(3, 10), (1000, 5000), (4096, VALUE_MAX)];

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
