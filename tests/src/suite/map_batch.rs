// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batches of operations, and dumps.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes};
use crate::support::ctl::{READ, WRITE};
use crate::support::ioctl::raw;
use crate::support::map::{
    BATCH, BATCH_MAX, Batch, Cursor, DUMP, Dump, KEYS, Maps, Op, Params, ROOM, STEP_DELETE,
    STEP_GET, STEP_SET, Step, VALUE_MAX, batch, delete, dump, dump_part, dump_with, get, put, set,
    state,
};
use crate::support::memory::{Mapping, PAGE};
use crate::support::random::stream_bytes;

topic!(
    "map_batch",
    fifo: [],
    pipe_only: [
        each_step_has_its_result,
        steps_see_the_effects_of_earlier_ones,
        at_most_256_steps_are_executed,
        invalid_batches_change_nothing,
        a_failed_step_does_not_end_the_batch,
        steps_of_a_larger_size_are_accepted,
        a_step_whose_result_cannot_be_written_is_not_executed,
        a_dump_returns_every_entry_once,
        a_dump_of_keys_has_no_values,
        a_dump_goes_on_in_any_room,
        a_record_without_room_is_emsgsize_with_its_size,
        an_invalid_dump_is_refused,
        a_changed_cursor_returns_no_entry_of_others,
        a_dump_under_change_returns_what_lives_through_it_once,
    ],
);

fn each_step_has_its_result(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    put(&end, b"old", b"value")?;
    let mut room = [0; 64];
    let mut steps = [
        Step::new(STEP_GET, &Op::get(b"old", &mut room)),
        Step::new(STEP_GET, &Op::get(b"none", &mut [])),
        Step::new(STEP_SET, &Op::set(b"old", b"new")),
        Step::new(STEP_SET, &Op::set(b"other", b"")),
        Step::new(STEP_DELETE, &Op::delete(b"other")),
        Step::new(STEP_DELETE, &Op::delete(b"other")),
        Step::new(3, &Op::delete(b"old")),
        Step {
            reserved: 1,
            ..Step::new(STEP_DELETE, &Op::delete(b"old"))
        },
    ];
    expect("steps", batch(&end, &mut steps), Ok(8))?;
    let results: Vec<i32> = steps.iter().map(|step| step.result).collect();
    let (absent, invalid) = (-libc::ENOENT, -libc::EINVAL);
    let expected = vec![0, absent, 0, 1, 0, absent, invalid, invalid];
    expect("results", results, expected)?;
    let versions: Vec<u64> = steps[..5].iter().map(|step| step.version).collect();
    expect("versions", versions, vec![1, 0, 2, 3, 4])?;
    expect("the length", steps[0].value_length, 5)?;
    expect_bytes("the value", &room[..5], b"value")?;
    expect_bytes("at the end", &get(&end, b"old").context("getting")?, b"new")
}

fn steps_see_the_effects_of_earlier_ones(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    let mut rooms = [[0_u8; 4]; 100];
    let values: Vec<[u8; 4]> = (0..100_u32).map(u32::to_ne_bytes).collect();
    let mut steps = Vec::new();
    for (value, room) in values.iter().zip(&mut rooms) {
        steps.push(Step::new(STEP_SET, &Op::set(b"key", value)));
        steps.push(Step::new(STEP_GET, &Op::get(b"key", room)));
    }
    expect("steps", batch(&end, &mut steps), Ok(200))?;
    expect("what the gets saw", rooms.to_vec(), values)
}

fn at_most_256_steps_are_executed(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    for count in [0, 1, 16, 17, BATCH_MAX, BATCH_MAX + 1, 1000] {
        let keys: Vec<[u8; 8]> = (0..count).map(usize::to_ne_bytes).collect();
        let mut steps: Vec<Step> = keys
            .iter()
            .map(|key| Step::new(STEP_SET, &Op::set(key, b"")))
            .collect();
        let before = state(&end)?.sequence;
        let done = batch(&end, &mut steps);
        expect("steps", done, Ok(count.min(BATCH_MAX)))?;
        let changes = state(&end)?.sequence - before;
        expect("changes", changes, count.min(BATCH_MAX) as u64)?;
    }
    Ok(())
}

fn invalid_batches_change_nothing(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    let mut steps = [Step::new(STEP_SET, &Op::set(b"key", b"")); 4];
    let valid = Batch::new(steps.as_mut_ptr(), 4);
    for (what, request, errno) in [
        (
            "reserved",
            Batch {
                reserved: 1,
                ..valid
            },
            Errno::EINVAL,
        ),
        (
            "no size",
            Batch {
                step_size: 0,
                ..valid
            },
            Errno::EINVAL,
        ),
        (
            "a small size",
            Batch {
                step_size: 48,
                ..valid
            },
            Errno::EINVAL,
        ),
        (
            "an odd size",
            Batch {
                step_size: 57,
                ..valid
            },
            Errno::EINVAL,
        ),
        (
            "above a page",
            Batch {
                step_size: 4104,
                ..valid
            },
            Errno::EINVAL,
        ),
        ("bad memory", Batch { steps: 1, ..valid }, Errno::EFAULT),
        (
            "the last address",
            Batch {
                steps: u64::MAX - 7,
                ..valid
            },
            Errno::EFAULT,
        ),
    ] {
        let mut request = request;
        expect(what, raw(&end, BATCH, &mut request), Err(errno))?;
    }
    expect("changes", state(&end)?.sequence, 0)
}

fn a_failed_step_does_not_end_the_batch(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let end = maps.create()?;
    let bad = Op {
        key: 1,
        ..Op::set(b"key", b"")
    };
    let mut steps = [
        Step::new(STEP_SET, &bad),
        Step::new(STEP_SET, &Op::set(b"key", b"")),
    ];
    expect("steps", batch(&end, &mut steps), Ok(2))?;
    let results = steps.map(|step| step.result);
    expect("results", results, [-libc::EFAULT, 1])?;
    for (flags, expected) in [(READ, [-libc::EBADF, 0]), (WRITE, [0, -libc::EBADF])] {
        let end = maps.open(flags).context("opening")?;
        let mut steps = [
            Step::new(STEP_SET, &Op::set(b"key", b"")),
            Step::new(STEP_GET, &Op::get(b"key", &mut [])),
        ];
        expect("steps", batch(&end, &mut steps), Ok(2))?;
        expect("results", steps.map(|step| step.result), expected)?;
    }
    Ok(())
}

fn steps_of_a_larger_size_are_accepted(_: &Context) -> Result<()> {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Larger(Step, u64);
    let end = Maps::new()?.create()?;
    let mut steps = [Larger(Step::new(STEP_SET, &Op::set(b"key", b"")), 0); 20];
    let mut request = Batch {
        step_size: size_of::<Larger>() as u32,
        ..Batch::new(steps.as_mut_ptr().cast(), 20)
    };
    raw(&end, BATCH, &mut request).context("larger steps")?;
    expect("steps", request.count, 20)?;
    let created: i32 = steps.iter().map(|step| step.0.result).sum();
    expect("created", created, 1)?;
    steps[19].1 = 1;
    let mut request = Batch {
        steps: steps.as_mut_ptr() as u64,
        ..request
    };
    raw(&end, BATCH, &mut request).context("with an unknown field")?;
    expect("steps before those with it", request.count, 19)
}

fn a_step_whose_result_cannot_be_written_is_not_executed(_: &Context) -> Result<()> {
    const WRITABLE: usize = 3;
    let end = Maps::new()?.create()?;
    let memory = Mapping::new(2)?;
    let keys = [b"0", b"1", b"2", b"3", b"4"];
    let first = memory
        .start()
        .wrapping_add(PAGE - WRITABLE * size_of::<Step>());
    let first = first.cast::<Step>();
    for (number, key) in keys.iter().enumerate() {
        // SAFETY: within our own mapping, to which no reference exists.
        unsafe {
            first
                .add(number)
                .write_unaligned(Step::new(STEP_SET, &Op::set(*key, b"")))
        };
    }
    memory.protect_from(PAGE, libc::PROT_READ)?;
    let mut request = Batch::new(first, keys.len());
    raw(&end, BATCH, &mut request).context("a batch")?;
    expect("steps", request.count as usize, WRITABLE)?;
    expect("changes", state(&end)?.sequence, WRITABLE as u64)?;
    for number in 0..WRITABLE {
        // SAFETY: as above.
        let step = unsafe { first.add(number).read_unaligned() };
        expect("a result", step.result, 1)?;
    }
    let mut request = Batch::new(first.wrapping_add(WRITABLE), 1);
    let result = raw(&end, BATCH, &mut request);
    expect("the next step", result, Err(Errno::EFAULT))?;
    expect("changes", state(&end)?.sequence, WRITABLE as u64)
}

// ---- dumps ----

fn fill(end: &OwnedFd, count: u32, length: usize) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    (0..count)
        .map(|number| {
            let key = stream_bytes(number.into(), 0, 1 + number as usize % 60);
            let key = [&number.to_be_bytes()[..], &key].concat();
            let value = stream_bytes(number.into(), 9, length * number as usize % 5000);
            put(end, &key, &value)?;
            Ok((key, value))
        })
        .collect()
}

fn a_dump_returns_every_entry_once(_: &Context) -> Result<()> {
    let end = Maps::new()?.create_with(Params::default(), 64 << 20)?;
    expect("of nothing", dump(&end)?.len(), 0)?;
    let expected = fill(&end, 3000, 13)?;
    let dumped = dump(&end)?;
    expect("entries", dumped.len(), expected.len())?;
    for (seen, (key, value)) in dumped.iter().zip(&expected) {
        expect_bytes("the key", &seen.key, key)?;
        expect_bytes("the value", &seen.value, value)?;
        expect("the time to live", seen.ttl_ns, 0)?;
    }
    Ok(())
}

fn a_dump_of_keys_has_no_values(_: &Context) -> Result<()> {
    let end = Maps::new()?.create_with(Params::default(), 64 << 20)?;
    let expected = fill(&end, 500, 29)?;
    let mut dumped = dump_with(&end, KEYS, 4096)?;
    dumped.sort_by(|a, b| a.key.cmp(&b.key));
    let keys: Vec<Vec<u8>> = dumped.iter().map(|entry| entry.key.clone()).collect();
    expect(
        "keys",
        keys == expected.into_keys().collect::<Vec<_>>(),
        true,
    )?;
    expect(
        "values",
        dumped.iter().all(|entry| entry.value.is_empty()),
        true,
    )
}

fn a_dump_goes_on_in_any_room(_: &Context) -> Result<()> {
    let end = Maps::new()?.create_with(Params::default(), 64 << 20)?;
    let expected = fill(&end, 300, 17)?;
    put(&end, b"large", &vec![1; 70_000])?;
    put(&end, b"largest", &vec![2; VALUE_MAX])?;
    for room in [ROOM + 64, 2 * ROOM, 8 * ROOM] {
        let mut dumped = dump_with(&end, 0, room)?;
        dumped.retain(|entry| !entry.key.starts_with(b"large"));
        dumped.sort_by(|a, b| a.key.cmp(&b.key));
        let seen: BTreeMap<_, _> = dumped.into_iter().map(|e| (e.key, e.value)).collect();
        ensure!(seen == expected, "the entries differ with {room} bytes");
    }
    Ok(())
}

fn a_record_without_room_is_emsgsize_with_its_size(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    for length in [0, 100, 5000, 100_000] {
        put(&end, b"key", &vec![3; length])?;
        let size = (32 + 3 + length).next_multiple_of(8);
        for room in [0, 31, size - 1] {
            let mut bytes = vec![0; room];
            let mut request = Dump::new(0, Cursor::default(), &mut bytes);
            let seen = raw(&end, DUMP, &mut request);
            expect("a dump", seen, Err(Errno::EMSGSIZE))?;
            expect("the size", request.length as usize, size)?;
        }
        expect("with room", dump_with(&end, 0, size)?.len(), 1)?;
    }
    Ok(())
}

fn an_invalid_dump_is_refused(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    put(&end, b"key", b"value")?;
    let mut room = [0; 4096];
    let valid = Dump::new(0, Cursor::default(), &mut room);
    let reserved = Cursor {
        reserved: 1,
        ..Cursor::default()
    };
    let mapping = Mapping::new(1)?;
    mapping.unmap_from(0)?;
    let inaccessible = mapping.start() as u64;
    for (what, request, errno) in [
        ("a flag", Dump { flags: 2, ..valid }, Errno::EINVAL),
        (
            "a reserved field",
            Dump {
                cursor: reserved,
                ..valid
            },
            Errno::EINVAL,
        ),
        (
            "bad memory",
            Dump {
                records: inaccessible,
                ..valid
            },
            Errno::EFAULT,
        ),
    ] {
        let mut request = request;
        expect(what, raw(&end, DUMP, &mut request), Err(errno))?;
    }
    expect("then", dump(&end)?.len(), 1)
}

/// A cursor is only a place: none makes the kernel leave the map.
fn a_changed_cursor_returns_no_entry_of_others(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    let expected = fill(&end, 100, 3)?;
    for (since, id, shard) in [
        (u64::MAX, 0, 0),
        (u64::MAX, u64::MAX, 0),
        (1, u64::MAX, 63),
        (50, 1, 0),
        (u64::MAX, 0, 64),
        (u64::MAX, 0, u32::MAX),
        (0, u64::MAX, u32::MAX),
    ] {
        let mut cursor = Cursor {
            since,
            id,
            shard,
            reserved: 0,
        };
        while let Some(part) = dump_part(&end, 0, &mut cursor, PAGE * 4)? {
            for entry in part {
                let value = expected.get(&entry.key);
                ensure!(value == Some(&entry.value), "{entry:?}");
            }
        }
    }
    Ok(())
}

/// Keys with even numbers stay. Those with odd numbers come and go, so that the table grows and shrinks.
fn a_dump_under_change_returns_what_lives_through_it_once(_: &Context) -> Result<()> {
    const KEYS: u32 = 2000;
    let end = Maps::new()?.create_with(Params::default(), 64 << 20)?;
    for number in (0..KEYS).step_by(2) {
        put(&end, &number.to_be_bytes(), &number.to_be_bytes())?;
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let changes = scope.spawn(|| -> Result<()> {
            while !stop.load(Ordering::Relaxed) {
                for number in (1..KEYS).step_by(2) {
                    set(&end, &number.to_be_bytes(), &number.to_be_bytes()).context("a set")?;
                    let even = number - 1;
                    put(&end, &even.to_be_bytes(), &even.to_be_bytes())?;
                }
                for number in (1..KEYS).step_by(2) {
                    delete(&end, &number.to_be_bytes()).context("a delete")?;
                }
            }
            Ok(())
        });
        let dumps = (0..20).try_for_each(|_| {
            let mut seen = BTreeMap::new();
            for entry in dump_with(&end, 0, 2048)? {
                expect_bytes("the value", &entry.value, &entry.key)?;
                *seen.entry(entry.key).or_insert(0) += 1;
            }
            for number in (0..KEYS).step_by(2) {
                let times = seen.get(&number.to_be_bytes()[..]).copied();
                expect(&format!("key {number}"), times, Some(1))?;
            }
            let most = seen.values().max().copied();
            expect("the most for a key", most, Some(1))
        });
        stop.store(true, Ordering::Relaxed);
        let changed = changes.join().expect("the thread does not panic");
        dumps.and(changed)
    })
}
