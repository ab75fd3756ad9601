// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creation of a map, and its operations: get, set, delete, with and without a required version.

use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn_keeping;
use crate::support::credentials::become_user;
use crate::support::ctl::{BOTH, CREATE, EXCL, Open, READ, WRITE, expect_no_channel};
use crate::support::ioctl::raw;
use crate::support::map::{
    DEFAULT_CAPACITY, DEFAULT_EVENTS, DELETE, Done, EVENTS_MAX, GET, INFO, Info, KEY_MAX, KIND_MAP,
    Maps, NAME, Op, Params, ROOM, SET, VALUE_MAX, WATCH, batch, delete, delete_if, dump, get,
    get_entry, put, set, set_if, state, watch,
};
use crate::support::memory::{Mapping, PAGE};
use crate::support::poll;
use crate::support::random::stream_bytes;

topic!(
    "map_operations",
    fifo: [],
    pipe_only: [
        a_map_has_the_documented_defaults,
        invalid_parameters_are_refused,
        a_value_is_set_replaced_and_deleted,
        keys_and_values_are_any_bytes_of_any_length,
        lengths_beyond_the_limits_are_invalid,
        keys_differ_in_every_byte_and_in_length,
        a_value_that_exceeds_the_room_is_emsgsize_with_its_length,
        a_version_grows_with_each_change_of_the_map,
        a_required_version_is_compared,
        unknown_flags_and_fields_without_use_are_invalid,
        an_endpoint_only_does_what_it_was_opened_for,
        unknown_calls_of_an_endpoint_are_enotty,
        memory_that_is_inaccessible_is_efault_and_changes_nothing,
        a_value_for_absent_memory_arrives,
        all_endpoints_see_the_same_map,
        a_map_ends_with_its_last_endpoint,
        a_persistent_map_keeps_its_entries,
        an_unlinked_map_works_on_and_leaves_its_name,
        a_destroyed_map_is_epipe,
        the_mode_bits_permit_reading_and_writing,
        many_keys_are_found_while_the_table_grows_and_shrinks,
    ],
);

fn a_map_has_the_documented_defaults(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let end = maps.0.open(Open {
        kind: KIND_MAP,
        ..Open::new(NAME, BOTH | CREATE | EXCL)
    });
    let end = end.context("creating a map without parameters")?;
    let seen = state(&end)?;
    let expected = Info {
        capacity: DEFAULT_CAPACITY,
        bytes: seen.bytes,
        events: DEFAULT_EVENTS,
        ..Info::default()
    };
    expect("its state", seen, expected)?;
    let (channel, by_name) = maps.info().context("asking by name")?;
    expect("the state by name", by_name, expected)?;
    let counts = (channel.readers, channel.writers, channel.bytes);
    expect("readers, writers, bytes", counts, (1, 1, seen.bytes))?;
    expect("the capacity", channel.capacity, DEFAULT_CAPACITY)
}

fn invalid_parameters_are_refused(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let valid = Params::default();
    let with_events = |events| Params { events, ..valid };
    for (what, params, capacity) in [
        ("a flag", Params { flags: 16, ..valid }, 0),
        ("three events", with_events(3), 0),
        ("too many events", with_events(2 * EVENTS_MAX), 0),
        ("a log above the capacity", with_events(EVENTS_MAX), 1 << 20),
        ("a capacity below the log", valid, 1),
        ("a capacity above the maximum", valid, (64 << 30) + 1),
        ("the last capacity", valid, u64::MAX),
    ] {
        let opened = maps.open_sized(BOTH | CREATE, params, capacity);
        expect(what, opened.map(drop), Err(Errno::EINVAL))?;
    }
    expect_no_channel(&maps.0)
}

fn a_value_is_set_replaced_and_deleted(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    expect("before", get(&end, b"key"), Err(Errno::ENOENT))?;
    for (value, created, version) in [("first", true, 1), ("", false, 2), ("third", false, 3)] {
        let seen = set(&end, b"key", value.as_bytes());
        expect("a set", seen, Ok(Done { created, version }))?;
        let entry = get_entry(&end, b"key").context("getting")?;
        expect_bytes("the value", &entry.value, value.as_bytes())?;
        let described = (entry.version, entry.ttl_ns);
        expect("version and time to live", described, (version, 0))?;
    }
    expect("the entries", state(&end)?.entries, 1)?;
    expect("a delete", delete(&end, b"key"), Ok(4))?;
    expect("after it", get(&end, b"key"), Err(Errno::ENOENT))?;
    expect("one more", delete(&end, b"key"), Err(Errno::ENOENT))?;
    let seen = state(&end)?;
    expect("entries, changes", (seen.entries, seen.sequence), (0, 4))?;
    let again = set(&end, b"key", b"");
    expect("a set", again.map(|done| done.created), Ok(true))
}

fn keys_and_values_are_any_bytes_of_any_length(_: &Context) -> Result<()> {
    let end = Maps::new()?.create_with(Params::default(), 64 << 20)?;
    let keys = [1, 2, 127, 128, 129, 1000, KEY_MAX];
    let values = [0, 1, 4095, 4096, 4097, 65536, VALUE_MAX];
    for key in keys {
        for value in values {
            let (key, value) = (stream_bytes(1, 0, key), stream_bytes(2, 7, value));
            put(&end, &key, &value)?;
            let what = format!("{} bytes at {}", value.len(), key.len());
            expect_bytes(&what, &get(&end, &key).context(what.clone())?, &value)?;
        }
    }
    for key in [&[0][..], &[0, 0], &[255; 9], b"\n", b"/../"] {
        put(&end, key, key)?;
    }
    for key in [&[0][..], &[0, 0], &[255; 9], b"\n", b"/../"] {
        expect_bytes("its value", &get(&end, key).context("getting")?, key)?;
    }
    let entries = state(&end)?.entries;
    expect("entries", entries, (keys.len() + 5) as u64)
}

fn lengths_beyond_the_limits_are_invalid(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    let long = vec![1; VALUE_MAX + 1];
    let cases = [
        ("an empty key", &[][..], &b"value"[..]),
        ("a long key", &long[..KEY_MAX + 1], b"value"),
        ("a long value", b"key", &long),
    ];
    for (what, key, value) in cases {
        let seen = set(&end, key, value).map(drop);
        expect(what, seen, Err(Errno::EINVAL))?;
    }
    for key in [&[][..], &long[..KEY_MAX + 1]] {
        expect("a get", get(&end, key), Err(Errno::EINVAL))?;
        expect("a delete", delete(&end, key), Err(Errno::EINVAL))?;
    }
    let mut op = Op {
        key_length: u32::MAX,
        ..Op::get(b"key", &mut [0; 8])
    };
    expect("all bits", raw(&end, GET, &mut op), Err(Errno::EINVAL))?;
    expect("changes", state(&end)?.sequence, 0)
}

fn keys_differ_in_every_byte_and_in_length(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    let base = stream_bytes(3, 0, 40);
    let mut keys: Vec<Vec<u8>> = (1..=40).map(|length| base[..length].to_vec()).collect();
    keys.extend((0..40).map(|at| {
        let mut key = base.clone();
        key[at] ^= 1;
        key
    }));
    for (number, key) in keys.iter().enumerate() {
        put(&end, key, &number.to_ne_bytes())?;
    }
    for (number, key) in keys.iter().enumerate() {
        let seen = get(&end, key).context("getting")?;
        expect_bytes("its value", &seen, &number.to_ne_bytes())?;
    }
    expect("entries", state(&end)?.entries, 80)
}

fn a_value_that_exceeds_the_room_is_emsgsize_with_its_length(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    for length in [1, 100, 5000] {
        put(&end, b"key", &vec![7; length])?;
        for room in [0, length - 1] {
            let mut bytes = vec![0xa5; length];
            let mut op = Op {
                value_length: room as u32,
                ..Op::get(b"key", &mut bytes)
            };
            expect("a get", raw(&end, GET, &mut op), Err(Errno::EMSGSIZE))?;
            expect("the length", op.value_length as usize, length)?;
            expect_bytes("the room", &bytes, &vec![0xa5; length])?;
        }
        let mut bytes = vec![0xa5; length + 1];
        raw(&end, GET, &mut Op::get(b"key", &mut bytes)).context("getting")?;
        expect("the byte behind it", bytes[length], 0xa5)?;
    }
    Ok(())
}

fn a_version_grows_with_each_change_of_the_map(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    for round in 0..10 {
        for key in 0..10_u64 {
            let version = put(&end, &key.to_ne_bytes(), b"value")?;
            expect("a version", version, round * 10 + key + 1)?;
        }
    }
    expect("the changes", state(&end)?.sequence, 100)?;
    let dumped = dump(&end)?;
    let mut versions: Vec<u64> = dumped.iter().map(|entry| entry.version).collect();
    versions.sort_unstable();
    expect("versions", versions, (91..=100).collect())
}

fn a_required_version_is_compared(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    let absent = set_if(&end, b"key", b"a", 7).map(drop);
    expect("of no entry", absent, Err(Errno::ENOENT))?;
    let created = set_if(&end, b"key", b"a", 0);
    expect("none", created.map(|done| done.created), Ok(true))?;
    let exists = set_if(&end, b"key", b"b", 0).map(drop);
    expect("none, again", exists, Err(Errno::EEXIST))?;
    let replaced = set_if(&end, b"key", b"b", 1);
    let version = replaced.context("with the version")?.version;
    for wrong in [1, version + 1, u64::MAX] {
        let mut op = Op {
            flags: 1,
            version: wrong,
            ..Op::set(b"key", b"c")
        };
        expect("another", raw(&end, SET, &mut op), Err(Errno::ESTALE))?;
        expect("the version that it has", op.version, version)?;
        let deleted = delete_if(&end, b"key", wrong);
        expect("a delete", deleted, Err(Errno::ESTALE))?;
    }
    expect_bytes("the value", &get(&end, b"key").context("getting")?, b"b")?;
    let deleted = delete_if(&end, b"key", version);
    expect("a delete", deleted, Ok(version + 1))?;
    let again = delete_if(&end, b"key", version);
    expect("one more", again, Err(Errno::ENOENT))?;
    expect("changes", state(&end)?.sequence, 3)
}

fn unknown_flags_and_fields_without_use_are_invalid(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    put(&end, b"key", b"value")?;
    let mut room = [0; 16];
    let (get, set, delete) = (
        Op::get(b"key", &mut room),
        Op::set(b"key", b"new"),
        Op::delete(b"key"),
    );
    for (what, command, op) in [
        ("a get with a flag", GET, Op { flags: 1, ..get }),
        ("a set with a flag", SET, Op { flags: 4, ..set }),
        (
            "a set with the last",
            SET,
            Op {
                flags: 1 << 31,
                ..set
            },
        ),
        ("a version without use", SET, Op { version: 1, ..set }),
        ("a delete with a flag", DELETE, Op { flags: 4, ..delete }),
        ("with a value", DELETE, Op { value: 1, ..delete }),
        (
            "with a length",
            DELETE,
            Op {
                value_length: 1,
                ..delete
            },
        ),
        (
            "with a time",
            DELETE,
            Op {
                ttl_ns: 1,
                ..delete
            },
        ),
        (
            "with a version",
            DELETE,
            Op {
                version: 1,
                ..delete
            },
        ),
    ] {
        let mut op = op;
        expect(what, raw(&end, command, &mut op), Err(Errno::EINVAL))?;
    }
    expect("changes", state(&end)?.sequence, 1)
}

fn an_endpoint_only_does_what_it_was_opened_for(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let both = maps.create()?;
    put(&both, b"key", b"value")?;
    let reader = maps.open(READ).context("opening for reading")?;
    let writer = maps.open(WRITE).context("opening for writing")?;
    expect_bytes("read", &get(&reader, b"key").context("getting")?, b"value")?;
    expect(
        "a set",
        set(&reader, b"key", b"").map(drop),
        Err(Errno::EBADF),
    )?;
    expect("a delete", delete(&reader, b"key"), Err(Errno::EBADF))?;
    expect("a get", get(&writer, b"key"), Err(Errno::EBADF))?;
    expect("a watch", watch(&writer, 0), Err(Errno::EBADF))?;
    let dumped = dump(&writer);
    let errno = dumped.err().and_then(|error| error.downcast().ok());
    expect("a dump", errno, Some(Errno::EBADF))?;
    put(&writer, b"key", b"new")?;
    expect("polls", poll::state(&reader)?, "nothing".into())?;
    expect("polls", poll::state(&writer)?, "OUT".into())
}

fn unknown_calls_of_an_endpoint_are_enotty(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    let mut room = [0_u64; 16];
    for number in [INFO + 2, WATCH + 0x100, GET - 0x10, libc::FIONREAD] {
        let seen = raw(&end, number, room.as_mut_ptr());
        expect(&format!("{number:#x}"), seen, Err(Errno::ENOTTY))?;
    }
    Ok(())
}

fn memory_that_is_inaccessible_is_efault_and_changes_nothing(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    put(&end, b"key", &[7; 100])?;
    let mapping = Mapping::new(2)?;
    mapping.fill(1);
    mapping.unmap_from(PAGE)?;
    let edge = mapping.start() as u64 + PAGE as u64;
    for address in [edge, edge - 5, 1, u64::MAX - 4] {
        let mut op = Op {
            value: address,
            ..Op::set(b"key", &[1; 100])
        };
        expect("a set", raw(&end, SET, &mut op), Err(Errno::EFAULT))?;
        let mut room = [0; 100];
        let mut op = Op {
            value: address,
            ..Op::get(b"key", &mut room)
        };
        expect("a get", raw(&end, GET, &mut op), Err(Errno::EFAULT))?;
        for (command, op) in [
            (GET, Op::get(&[1; 100], &mut room)),
            (SET, Op::set(&[1; 100], b"")),
            (DELETE, Op::delete(&[1; 100])),
        ] {
            let mut op = Op { key: address, ..op };
            expect("a key", raw(&end, command, &mut op), Err(Errno::EFAULT))?;
        }
    }
    expect("changes", state(&end)?.sequence, 1)?;
    expect_bytes(
        "the value",
        &get(&end, b"key").context("getting")?,
        &[7; 100],
    )
}

fn a_value_for_absent_memory_arrives(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    for length in [1, 100, 4096, 5000, ROOM] {
        let value = stream_bytes(4, 0, length);
        put(&end, b"key", &value)?;
        let memory = Mapping::new(length.div_ceil(PAGE))?;
        let mut op = Op {
            value: memory.start() as u64,
            value_length: length as u32,
            ..Op::get(b"key", &mut [])
        };
        raw(&end, GET, &mut op).with_context(|| format!("{length} bytes"))?;
        // SAFETY: our own readable memory, which is not written meanwhile.
        let seen = unsafe { std::slice::from_raw_parts(memory.start(), length) };
        expect_bytes("the value", seen, &value)?;
    }
    Ok(())
}

fn all_endpoints_see_the_same_map(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let first = maps.create()?;
    let second = maps.attach()?;
    put(&first, b"a", b"1")?;
    put(&second, b"b", b"2")?;
    let child = spawn_keeping("a child", &[], move || {
        let own = Maps::new()?.attach()?;
        put(&own, b"c", b"3")?;
        Ok((get(&own, b"a")?, get(&own, b"b")?))
    })?;
    expect(
        "by the child",
        child.finish()?,
        (b"1".to_vec(), b"2".to_vec()),
    )?;
    for end in [&first, &second] {
        expect_bytes("by the child", &get(end, b"c").context("getting")?, b"3")?;
    }
    let (channel, _) = maps.info().context("asking by name")?;
    expect("endpoints", (channel.readers, channel.writers), (2, 2))
}

fn a_map_ends_with_its_last_endpoint(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let first = maps.create()?;
    let second = maps.attach()?;
    put(&first, b"key", b"value")?;
    drop(first);
    expect_bytes(
        "still there",
        &get(&second, b"key").context("getting")?,
        b"value",
    )?;
    drop(second);
    expect("an open", maps.open(BOTH).map(drop), Err(Errno::ENOENT))?;
    expect_no_channel(&maps.0)?;
    let new = maps.create()?;
    expect("in a new one", get(&new, b"key"), Err(Errno::ENOENT))
}

fn a_persistent_map_keeps_its_entries(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    put(&maps.persist()?, b"key", b"value")?;
    let end = maps.attach()?;
    expect_bytes("kept", &get(&end, b"key").context("getting")?, b"value")?;
    drop(end);
    maps.unlink().context("unlinking")?;
    expect("an open", maps.open(BOTH).map(drop), Err(Errno::ENOENT))
}

fn an_unlinked_map_works_on_and_leaves_its_name(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let old = maps.create()?;
    maps.unlink().context("unlinking")?;
    put(&old, b"key", b"old")?;
    let new = maps.create()?;
    expect("in a new one", get(&new, b"key"), Err(Errno::ENOENT))?;
    put(&new, b"key", b"new")?;
    expect_bytes(
        "the old one",
        &get(&old, b"key").context("getting")?,
        b"old",
    )
}

/// Each call of an endpoint of a map that is destroyed.
fn expect_destroyed(end: &OwnedFd) -> Result<()> {
    expect("a get", get(end, b"key"), Err(Errno::EPIPE))?;
    expect("a set", set(end, b"key", b"").map(drop), Err(Errno::EPIPE))?;
    expect("a delete", delete(end, b"key"), Err(Errno::EPIPE))?;
    expect("a batch", batch(end, &mut []), Err(Errno::EPIPE))?;
    expect("a watch", watch(end, 0), Err(Errno::EPIPE))?;
    let errno = dump(end).err().and_then(|error| error.downcast().ok());
    expect("a dump", errno, Some(Errno::EPIPE))?;
    expect("polls", poll::state(end)?, "ERR|HUP".into())
}

fn a_destroyed_map_is_epipe(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let end = maps.persist()?;
    put(&end, b"key", b"value")?;
    maps.destroy().context("destroying")?;
    expect_destroyed(&end)?;
    expect("an open", maps.open(BOTH).map(drop), Err(Errno::ENOENT))
}

fn the_mode_bits_permit_reading_and_writing(_: &Context) -> Result<()> {
    for (mode, reads, writes) in [
        (0o600, Err(Errno::EACCES), Err(Errno::EACCES)),
        (0o604, Ok(()), Err(Errno::EACCES)),
        (0o602, Err(Errno::EACCES), Ok(())),
        (0o606, Ok(()), Ok(())),
    ] {
        let maps = Maps::new()?;
        let params = Params::default();
        let request = crate::support::map::request(BOTH | CREATE, &params);
        let end = maps.0.open(Open { mode, ..request });
        let end = end.context("creating")?;
        let child = spawn_keeping("another user", &[], move || {
            become_user(1000)?;
            let maps = Maps::new()?;
            let opened = [READ, WRITE].map(|flags| maps.open(flags).map(drop));
            Ok(opened.map(|result| result.err().map(|errno| errno as i32)))
        })?;
        let expected = [reads, writes].map(|result| result.err().map(|errno| errno as i32));
        expect(&format!("mode {mode:o}"), child.finish()?, expected)?;
        drop(end);
    }
    Ok(())
}

fn many_keys_are_found_while_the_table_grows_and_shrinks(_: &Context) -> Result<()> {
    const KEYS: u32 = 5000;
    let end = Maps::new()?.create_with(Params::default(), 64 << 20)?;
    for number in 0..KEYS {
        put(&end, &number.to_ne_bytes(), &number.to_be_bytes())?;
        let earlier = number / 2;
        let seen = get(&end, &earlier.to_ne_bytes()).context("getting an earlier one")?;
        expect_bytes("its value", &seen, &earlier.to_be_bytes())?;
    }
    let full = state(&end)?;
    expect("entries", full.entries, KEYS.into())?;
    for number in 0..KEYS {
        delete(&end, &number.to_ne_bytes()).context("deleting")?;
        let later = number + (KEYS - number) / 2;
        if later > number {
            let seen = get(&end, &later.to_ne_bytes()).context("getting a later one")?;
            expect_bytes("its value", &seen, &later.to_be_bytes())?;
        }
    }
    expect("entries", state(&end)?.entries, 0)
}
