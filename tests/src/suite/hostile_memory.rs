// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of callers that takes long to become present, or never does, in every operation of every kind, and memory that
//! another thread rewrites while the kernel reads it.

use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use nix::unistd::close;
use sluice_abi::CTL_OPEN;
use sluice_abi::bus::Frame;

use crate::registry::{Context, topic};
use crate::support::bus::{self, Buses, Params as BusParams};
use crate::support::channel::read_some;
use crate::support::check::{expect, note};
use crate::support::child::spawn_keeping;
use crate::support::credentials::{NOBODY, become_user_namespace_root};
use crate::support::ctl::{BOTH, CREATE, Ctl, NONBLOCK, OWN, Open, WRITE};
use crate::support::event::Event;
use crate::support::fault_blocked::{FaultBlocked, FaultingBuffer, Provider, spawn_faulting_with};
use crate::support::fuse;
use crate::support::ioctl::{raw, raw_with_result};
use crate::support::keeper;
use crate::support::kernel::expect_no_objects;
use crate::support::map::{self, Batch, Maps, Op, STEP_GET, STEP_SET, Step, get, put, state};
use crate::support::memory::{Mapping, PAGE, write_at};
use crate::support::mounts::enter_mount_namespace;
use crate::support::netlink::{Attrs, Request, Socket, command};
use crate::support::operations::{
    Delays, Objects, Operation, of_buses, of_ctl, of_durable_maps, of_maps, of_pipes,
    of_rings_and_feeds, operations,
};
use crate::support::requests::bytes_of;
use crate::support::time::{event_timeout, scaled};

topic!(
    "hostile_memory",
    fifo: [],
    pipe_only: [
        a_fault_in_a_call_of_a_pipe_delays_nobody,
        a_fault_in_a_call_of_a_ring_or_a_feed_delays_nobody,
        a_fault_in_a_call_of_a_bus_delays_nobody,
        a_fault_in_a_call_of_a_map_delays_nobody,
        a_fault_in_a_call_of_a_durable_map_or_its_keeper_delays_nobody,
        a_fault_in_a_call_of_ctl_delays_nobody,
        a_kill_in_a_fault_of_a_pipe_a_ring_or_a_feed_leaves_all_working,
        a_kill_in_a_fault_of_a_bus_leaves_all_working,
        a_kill_in_a_fault_of_a_map_leaves_all_working,
        a_kill_in_a_fault_of_a_durable_map_or_its_keeper_leaves_all_working,
        a_kill_in_a_fault_of_ctl_leaves_all_working,
        an_object_destroyed_during_a_page_fault_is_freed,
        a_fuse_server_that_answers_late_delays_nobody,
        a_fuse_server_of_a_user_without_privileges_delays_nobody,
        a_fuse_server_that_never_answers_or_dies_ends_calls_only,
        a_page_that_is_written_back_to_a_fuse_server_delays_nobody,
        a_length_of_an_operation_of_a_map_is_read_once,
        a_step_of_a_batch_is_read_once,
        a_name_is_read_once,
        a_frame_of_a_message_is_read_once,
        an_array_of_buffers_is_read_once,
        each_byte_that_changes_arrives_as_an_old_or_a_new_one,
        a_restored_entry_is_read_once,
        a_message_of_netlink_is_read_once,
    ],
);

/// The operation in a child, blocked in its first page fault.
fn begin(
    objects: &Objects,
    operation: &Operation,
    provider: Provider,
) -> Result<FaultBlocked<Result<i64, i32>>> {
    let content = |page: *mut u8| {
        let mut bytes = [0; PAGE];
        let content = (operation.content)(objects, page as u64);
        bytes[..content.len()].copy_from_slice(&content);
        bytes
    };
    let body = |buffer: &FaultingBuffer| {
        Ok((operation.call)(objects, buffer.start()).map_err(|errno| errno as i32))
    };
    let fds = objects.fds();
    spawn_faulting_with(operation.name, provider, &fds, 0, content, body)?.wait_blocked()
}

/// In a child, so that a call that is delayed fails the test instead of hanging it.
fn others_work(objects: &Objects, delayed: Delays) -> Result<()> {
    let child = spawn_keeping("others", &objects.fds(), || objects.use_all(delayed))?;
    child.finish()?;
    if delayed != Delays::Keeper {
        objects.durable.keeper.take()?;
    }
    Ok(())
}

/// Runs `body` with each operation and new objects.
fn for_each(
    operations: Vec<Operation>,
    mut body: impl FnMut(&Operation, Objects) -> Result<()>,
) -> Result<()> {
    for operation in &operations {
        let objects = Objects::new().with_context(|| format!("before {}", operation.name))?;
        body(operation, objects).with_context(|| operation.name)?;
    }
    expect_no_objects()?;
    note(format!("{} operations", operations.len()));
    Ok(())
}

/// The operation delays nobody that docs/locking.md does not name, and then ends as it does in present memory.
fn delays_nobody(operations: Vec<Operation>, provider: Provider) -> Result<()> {
    for_each(operations, |operation, objects| {
        let blocked = begin(&objects, operation, provider)?;
        others_work(&objects, operation.delays)?;
        blocked.expect_still_blocked()?;
        let result = blocked.resume()?.map_err(Errno::from_raw);
        expect("its result", result, operation.expected)
    })
}

fn a_fault_in_a_call_of_a_pipe_delays_nobody(_: &Context) -> Result<()> {
    delays_nobody(of_pipes(), Provider::Userfaultfd)
}

fn a_fault_in_a_call_of_a_ring_or_a_feed_delays_nobody(_: &Context) -> Result<()> {
    delays_nobody(of_rings_and_feeds(), Provider::Userfaultfd)
}

fn a_fault_in_a_call_of_a_bus_delays_nobody(_: &Context) -> Result<()> {
    delays_nobody(of_buses(), Provider::Userfaultfd)
}

fn a_fault_in_a_call_of_a_map_delays_nobody(_: &Context) -> Result<()> {
    delays_nobody(of_maps(), Provider::Userfaultfd)
}

fn a_fault_in_a_call_of_a_durable_map_or_its_keeper_delays_nobody(_: &Context) -> Result<()> {
    delays_nobody(of_durable_maps(), Provider::Userfaultfd)
}

fn a_fault_in_a_call_of_ctl_delays_nobody(_: &Context) -> Result<()> {
    delays_nobody(of_ctl(), Provider::Userfaultfd)
}

fn leaves_all_working(operations: Vec<Operation>) -> Result<()> {
    for_each(operations, |operation, objects| {
        begin(&objects, operation, Provider::Userfaultfd)?.kill()?;
        others_work(&objects, Delays::Nobody)
    })
}

fn a_kill_in_a_fault_of_a_pipe_a_ring_or_a_feed_leaves_all_working(_: &Context) -> Result<()> {
    leaves_all_working(of_pipes())?;
    leaves_all_working(of_rings_and_feeds())
}

fn a_kill_in_a_fault_of_a_bus_leaves_all_working(_: &Context) -> Result<()> {
    leaves_all_working(of_buses())
}

fn a_kill_in_a_fault_of_a_map_leaves_all_working(_: &Context) -> Result<()> {
    leaves_all_working(of_maps())
}

fn a_kill_in_a_fault_of_a_durable_map_or_its_keeper_leaves_all_working(_: &Context) -> Result<()> {
    leaves_all_working(of_durable_maps())
}

fn a_kill_in_a_fault_of_ctl_leaves_all_working(_: &Context) -> Result<()> {
    leaves_all_working(of_ctl())
}

/// The map, the bus and the pipe are destroyed, and everything is closed, while the operation is in its fault. It holds at
/// most its own endpoint. The keeper, which ends its streams first, waits for its own operation.
fn an_object_destroyed_during_a_page_fault_is_freed(_: &Context) -> Result<()> {
    for_each(operations(), |operation, objects| {
        if operation.delays == Delays::Keeper {
            return Ok(());
        }
        let blocked = begin(&objects, operation, Provider::Userfaultfd)?;
        let began = Instant::now();
        objects.maps.destroy().context("destroying the map")?;
        objects.buses.destroy().context("destroying the bus")?;
        let pipe = objects.ctl.destroy(OWN, "pipe");
        pipe.context("destroying the pipe")?;
        drop(objects);
        let took = began.elapsed();
        ensure!(
            took < scaled(Duration::from_secs(10)),
            "the end took {took:?}"
        );
        // Its result is that of a destroyed object, or its own.
        blocked.resume().map(drop)
    })
}

// ---- memory of FUSE ----

fn use_fuse() -> Result<()> {
    fuse::load()?;
    enter_mount_namespace()
}

/// Without the operations of maps, which are those of the next test.
fn a_fuse_server_that_answers_late_delays_nobody(_: &Context) -> Result<()> {
    use_fuse()?;
    for operations in [
        of_pipes,
        of_rings_and_feeds,
        of_buses,
        of_durable_maps,
        of_ctl,
    ] {
        delays_nobody(operations(), Provider::FuseRead)?;
    }
    Ok(())
}

/// The user is the server and the caller.
fn a_fuse_server_of_a_user_without_privileges_delays_nobody(_: &Context) -> Result<()> {
    fuse::load()?;
    for_each(of_maps(), |operation, objects| {
        let (begun, resume) = (Event::new()?, Event::new()?);
        let fds = [&objects.fds()[..], &begun.fds(), &resume.fds()].concat();
        let user = spawn_keeping("a user", &fds, || {
            become_user_namespace_root(NOBODY)?;
            enter_mount_namespace()?;
            let blocked = begin(&objects, operation, Provider::FuseRead);
            begun.notify()?;
            let blocked = blocked?;
            resume.wait("the others have finished")?;
            blocked.expect_still_blocked()?;
            blocked.resume()
        })?;
        begun.wait("the call of the user")?;
        others_work(&objects, operation.delays)?;
        resume.notify()?;
        let result = user.finish()?.map_err(Errno::from_raw);
        expect("its result", result, operation.expected)
    })
}

/// An operation of several parts has a result for each.
fn a_fuse_server_that_never_answers_or_dies_ends_calls_only(_: &Context) -> Result<()> {
    use_fuse()?;
    for_each(operations(), |operation, objects| {
        begin(&objects, operation, Provider::FuseRead)?.kill()?;
        let result = begin(&objects, operation, Provider::FuseRead)?.kill_server()?;
        let result = result.map_err(Errno::from_raw);
        let has_parts = operation.name.starts_with("MAP_BATCH: ") && result == operation.expected;
        ensure!(result == Err(Errno::EFAULT) || has_parts, "{result:?}");
        others_work(&objects, Delays::Nobody)
    })
}

/// The operation waits when it stores its results, if it stores any.
fn a_page_that_is_written_back_to_a_fuse_server_delays_nobody(_: &Context) -> Result<()> {
    use_fuse()?;
    let mut waiting = 0;
    for_each(operations(), |operation, objects| {
        let (blocked, waits) = loop {
            let blocked = begin(&objects, operation, Provider::FuseWriteback)?;
            match blocked.waits_for_write()? {
                Some(waits) => break (blocked, waits),
                None => blocked.abandon()?,
            }
        };
        if !waits {
            return blocked.resume().map(drop);
        }
        waiting += 1;
        others_work(&objects, operation.delays)?;
        blocked.expect_still_blocked()?;
        let result = blocked.resume()?.map_err(Errno::from_raw);
        expect("its result", result, operation.expected)
    })?;
    note(format!("{waiting} of them wait for a write"));
    ensure!(waiting >= 40, "only {waiting} operations wait");
    Ok(())
}

// ---- rewritten memory ----

/// A page of which another thread flips one word between two values while `call` uses it, until the call has seen both
/// of them several times. `call` returns which one it has seen.
fn rewritten(
    what: &str,
    page: &Mapping,
    at: usize,
    values: [u32; 2],
    mut call: impl FnMut() -> Result<usize>,
) -> Result<()> {
    const TIMES: u32 = 20;
    let done = AtomicBool::new(false);
    let word = page.start().wrapping_add(at).cast::<u32>();
    // SAFETY: aligned, and within the mapping; only the kernel and this thread use it meanwhile.
    let word = unsafe { AtomicU32::from_ptr(word) };
    let mut seen = [0_u32; 2];
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for value in values {
                    word.store(value, Ordering::Relaxed);
                    std::hint::spin_loop();
                }
            }
        });
        let began = Instant::now();
        let mut result = Ok(());
        while result.is_ok() && seen.iter().any(|count| *count < TIMES) {
            result = call().map(|which| seen[which] += 1);
            if began.elapsed() > event_timeout() {
                result = result.and_then(|()| bail!("only one value was seen: {seen:?}"));
            }
        }
        done.store(true, Ordering::Relaxed);
        result.with_context(|| what.to_owned())
    })
}

/// Copies a structure to the page.
fn store<T: Copy>(page: &Mapping, at: usize, structure: &T) {
    let bytes = bytes_of(structure);
    // SAFETY: within the mapping, to which no reference exists.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), page.start().add(at), bytes.len()) };
}

fn store_word(page: &Mapping, at: usize, word: u32) {
    store(page, at, &word);
}

/// 0: it has succeeded; 1: it has failed with this error.
fn either(result: nix::Result<()>, refused: Errno) -> Result<usize> {
    match result {
        Ok(()) => Ok(0),
        Err(error) if error == refused => Ok(1),
        Err(error) => Err(error.into()),
    }
}

/// What the kernel has stored, but not what is rewritten.
fn clear_results(page: &Mapping, at: &[usize]) {
    for at in at {
        store(page, *at, &0_u64);
    }
}

fn a_length_of_an_operation_of_a_map_is_read_once(_: &Context) -> Result<()> {
    const RESULTS: [usize; 2] = [offset_of!(Op, version), offset_of!(Op, ttl_ns)];
    let maps = Maps::new()?;
    let end = maps.create()?;
    let (page, bytes) = (Mapping::new(1)?, [b'v'; 8192]);
    let mut is_stored = false;
    let too_long = [map::VALUE_MAX, map::KEY_MAX].map(|most| most as u32 + 1);
    for (what, at, values) in [
        (
            "the length of a value",
            offset_of!(Op, value_length),
            [8, too_long[0]],
        ),
        (
            "the length of a key",
            offset_of!(Op, key_length),
            [3, too_long[1]],
        ),
        ("flags", offset_of!(Op, flags), [0, 0x80]),
        (
            "the size",
            offset_of!(Op, size),
            [size_of::<Op>() as u32, 8],
        ),
    ] {
        store(&page, 0, &Op::set(b"key", &bytes[..8]));
        rewritten(what, &page, at, values, || {
            clear_results(&page, &RESULTS);
            let outcome = either(raw(&end, map::SET, page.start()), Errno::EINVAL)?;
            is_stored |= outcome == 0;
            let expected = is_stored.then(|| bytes[..8].to_vec());
            let found = get(&end, b"key");
            expect("the entry", found, expected.ok_or(Errno::ENOENT))?;
            Ok(outcome)
        })?;
        expect("its entries", state(&end)?.entries, 1)?;
    }
    // Both are valid: the value has one of the two lengths, whole.
    store(&page, 0, &Op::set(b"two", &bytes[..100]));
    let at = offset_of!(Op, value_length);
    rewritten("two lengths", &page, at, [100, 5000], || {
        clear_results(&page, &RESULTS);
        raw(&end, map::SET, page.start())?;
        let found = get(&end, b"two").context("getting")?;
        ensure!(found.iter().all(|byte| *byte == b'v'), "other bytes");
        let which = [100, 5000].iter().position(|length| *length == found.len());
        which.with_context(|| format!("{} bytes", found.len()))
    })
}

fn a_step_of_a_batch_is_read_once(_: &Context) -> Result<()> {
    const VERSION: usize = offset_of!(Step, version);
    let maps = Maps::new()?;
    let end = maps.create()?;
    put(&end, b"key", b"value")?;
    let (page, mut room) = (Mapping::new(1)?, [b'r'; 64]);
    let step = Step::new(STEP_SET, &Op::set(b"key", &room[..5]));
    let step_at = |place: usize| {
        // SAFETY: within the mapping.
        unsafe { page.start().cast::<Step>().add(place).read_volatile() }
    };
    let room_at = room.as_mut_ptr();
    store(&page, 0, &step);
    let at = offset_of!(Step, command);
    rewritten("a get or a set", &page, at, [STEP_GET, STEP_SET], || {
        put(&end, b"key", b"value")?;
        // SAFETY: the array, to which no reference is used meanwhile.
        unsafe { ptr::copy_nonoverlapping(b"other".as_ptr(), room_at, 5) };
        clear_results(&page, &[VERSION, offset_of!(Step, ttl_ns)]);
        store_word(&page, offset_of!(Step, value_length), 5);
        let mut batch = Batch::new(page.start().cast(), 1);
        raw(&end, map::BATCH, &mut batch)?;
        expect("steps", batch.count, 1)?;
        let found = get(&end, b"key").context("getting")?;
        // SAFETY: as above.
        let stored = unsafe { std::slice::from_raw_parts(room_at, 5) };
        match (&found[..], stored) {
            (b"value", b"value") => Ok(0),
            (b"other", b"other") => Ok(1),
            seen => bail!("neither a get nor a set: {seen:?}"),
        }
    })?;
    store(&page, 0, &step);
    let at = offset_of!(Step, key_length);
    rewritten("the length of a key", &page, at, [3, 5000], || {
        clear_results(&page, &[VERSION]);
        let mut batch = Batch::new(page.start().cast(), 1);
        raw(&end, map::BATCH, &mut batch)?;
        match step_at(0).result {
            0.. => Ok(0),
            error => either(Err(Errno::from_raw(-error)), Errno::EINVAL),
        }
    })?;
    expect("its entries", state(&end)?.entries, 1)?;
    for place in [0, size_of::<Step>()] {
        store(&page, place, &step);
    }
    store(&page, 512, &Batch::new(page.start().cast(), 1));
    let at = 512 + offset_of!(Batch, count);
    rewritten("the number of steps", &page, at, [1, 2], || {
        clear_results(&page, &[VERSION, size_of::<Step>() + VERSION]);
        raw(&end, map::BATCH, page.start().wrapping_add(512))?;
        ensure!(step_at(0).version != 0, "the first step is not executed");
        Ok(usize::from(step_at(1).version != 0))
    })
}

fn a_name_is_read_once(_: &Context) -> Result<()> {
    const NAME: usize = offset_of!(Open, name);
    let ctl = Ctl::new()?;
    let page = Mapping::new(1)?;
    let open = || -> Result<usize> {
        let opened = raw_with_result(&ctl, CTL_OPEN, page.start());
        expect_valid_names(&ctl)?;
        either(opened.and_then(close), Errno::EINVAL)
    };
    let word = u32::from_ne_bytes;
    let good = |name: &[u8]| Open {
        size: size_of::<Open>() as u32,
        ..Open::new(name, BOTH | CREATE)
    };
    store(&page, 0, &good(b"good"));
    let names = [word(*b"good"), word(*b"a/bc")];
    rewritten("a name", &page, NAME, names, open)?;
    // Without its end, a name is invalid.
    store(&page, 0, &good(&[b'n'; 63]));
    let ends = [word(*b"abc\0"), word(*b"abcd")];
    rewritten("the end of a name", &page, NAME + 60, ends, open)?;
    store(&page, 0, &good(b"good"));
    let flags = [BOTH | CREATE, 0x8000];
    rewritten("flags", &page, offset_of!(Open, flags), flags, open)?;
    store(&page, 0, &good(b"good"));
    rewritten("a kind", &page, offset_of!(Open, kind), [1, 77], open)?;
    expect("channels", ctl.names(OWN)?.len(), 0)
}

fn expect_valid_names(ctl: &Ctl) -> Result<()> {
    for name in ctl.names(OWN)? {
        ensure!(
            !name.is_empty() && name.len() < 64 && !name.contains(&b'/'),
            "{name:?}"
        );
    }
    Ok(())
}

fn a_frame_of_a_message_is_read_once(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _creator = buses.create_sized(bus::broadcast(), 1 << 16)?;
    let batches = BusParams {
        format: bus::BATCHED,
        ..BusParams::default()
    };
    let sender = buses.open(WRITE, batches)?;
    let subscriber = buses.subscribe(bus::framed(0))?;
    let page = Mapping::new(1)?;
    let at = offset_of!(Frame, length);
    page.fill(b'm');
    store(&page, 0, &Frame::new(40, 0));
    // A message of 40 bytes, or one that is longer than the write.
    rewritten("the length of a message", &page, at, [40, 41], || {
        let written = write_at(&sender, page.start(), Frame::SIZE + 40);
        let which = either(written.map(drop_count), Errno::EINVAL)?;
        match bus::receive_framed(&subscriber)? {
            Some(message) => {
                let whole = message.bytes == [b'm'; 40] && which == 0;
                ensure!(whole, "{} bytes, {written:?}", message.bytes.len());
            }
            None => expect("what was written", which, 1)?,
        }
        Ok(which)
    })?;
    store(&page, 0, &Frame::new(40, 0));
    let at = offset_of!(Frame, target);
    let id = bus::id(&subscriber)? as u32;
    rewritten(
        "the target of a message",
        &page,
        at,
        [id, 0x7777_7777],
        || {
            store(&page, 0, &Frame::new(40, id.into()));
            let written = write_at(&sender, page.start(), Frame::SIZE + 40);
            let which = either(written.map(drop_count), Errno::ENOENT)?;
            let received = bus::receive_framed(&subscriber)?;
            if let Some(message) = &received {
                expect("its target", message.frame.target, id.into())?;
            }
            expect("received", received.is_some(), which == 0)?;
            Ok(which)
        },
    )
}

fn drop_count(_: usize) {}

/// import_iovec() is the kernel's, and counts what it has copied.
fn an_array_of_buffers_is_read_once(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let pipe = ctl.open(Open::new("pipe", BOTH | CREATE | NONBLOCK))?;
    let (page, bytes) = (Mapping::new(1)?, [b'b'; 64]);
    store(&page, 0, &(bytes.as_ptr() as u64));
    store_word(&page, 8, 8);
    rewritten("the length of a buffer", &page, 8, [8, 48], || {
        // SAFETY: the kernel checks the array and its addresses.
        let written = unsafe { libc::writev(pipe.as_raw_fd(), page.start().cast(), 1) };
        let seen = read_some(&pipe, 100).context("reading")?;
        expect("what was read", seen.len() as isize, written)?;
        [8, 48]
            .iter()
            .position(|length| *length == seen.len())
            .context("another length")
    })
}

/// Each byte that arrives is an old or a new one; where a message or a value is cut is decided before.
fn each_byte_that_changes_arrives_as_an_old_or_a_new_one(_: &Context) -> Result<()> {
    let objects = Objects::new()?;
    let page = Mapping::new(1)?;
    page.fill(b'a');
    let [a, b] = [[b'a'; 4], [b'b'; 4]].map(u32::from_ne_bytes);
    let check = |what: &str, bytes: &[u8]| -> Result<usize> {
        expect(what, bytes.len(), 64)?;
        let others = bytes.iter().any(|byte| *byte != b'a' && *byte != b'b');
        ensure!(!others, "{what}: {bytes:?}");
        Ok(usize::from(bytes[32] == b'b'))
    };
    read_some(&objects.reader, 64)?;
    rewritten("a pipe", &page, 32, [a, b], || {
        expect(
            "written",
            write_at(&objects.writer, page.start(), 64),
            Ok(64),
        )?;
        check("a pipe", &read_some(&objects.reader, 100)?)
    })?;
    read_some(&objects.subscriber, 64)?;
    let mut released = 0;
    rewritten("a bus", &page, 32, [a, b], || {
        expect(
            "written",
            write_at(&objects.sender, page.start(), 64),
            Ok(64),
        )?;
        // The mapped subscriber would hold up the bus.
        let entries = bus::receive_mapped(&objects.mapped, released, 32)?;
        released = entries.last().map_or(released, |entry| entry.sequence + 1);
        check("a bus", &read_some(&objects.subscriber, 100)?)
    })?;
    rewritten("a map", &page, 32, [a, b], || {
        let mut op = Op {
            value: page.start() as u64,
            value_length: 64,
            ..Op::set(b"key", b"")
        };
        raw(&objects.map, map::SET, &mut op)?;
        check("a map", &get(&objects.map, b"key")?)
    })?;
    // The key that a change is logged with is the key of the entry.
    let watcher = objects.maps.attach()?;
    rewritten("a key", &page, 32, [a, b], || {
        map::watch(&watcher, map::NOW)?;
        let mut op = Op {
            key: page.start() as u64,
            key_length: 64,
            ..Op::set(b"", b"v")
        };
        raw(&objects.map, map::SET, &mut op)?;
        let event = map::events(&watcher)?.pop().context("no event")?;
        expect(
            "its value",
            get(&objects.map, &event.key),
            Ok(b"v".to_vec()),
        )?;
        check("a key", &event.key)
    })
}

fn a_restored_entry_is_read_once(_: &Context) -> Result<()> {
    let objects = Objects::new()?;
    let keeper = &objects.durable.keeper;
    let page = Mapping::new(1)?;
    let at = offset_of!(keeper::Entry, key_length);
    let mut key = [0_u8; 4];
    let key_at = key.as_mut_ptr().cast::<u32>();
    store(&page, 0, &keeper::Entry::new(&key, b"value", 1, 0));
    let mut number = 0_u32;
    rewritten("the length of a key", &page, at, [4, 5000], || {
        number += 1;
        // SAFETY: the array, to which no reference is used meanwhile; it need not be aligned.
        unsafe { key_at.write_unaligned(number) };
        let mut restore = keeper::Restore {
            count: 1,
            entries: page.start() as u64,
            ..keeper::Restore::new(objects.restoring, &[])
        };
        either(raw(keeper, keeper::RESTORE, &mut restore), Errno::EINVAL)
    })?;
    keeper.ready(objects.restoring)?;
    let open = Open {
        kind: sluice_abi::KIND_MAP,
        ..Open::new("restored", BOTH | NONBLOCK)
    };
    let end = objects
        .ctl
        .open(open)
        .context("opening what was restored")?;
    let entries = map::dump(&end)?;
    ensure!(!entries.is_empty(), "nothing was restored");
    entries
        .iter()
        .try_for_each(|entry| expect("a key", entry.key.len(), 4))
}

fn drain(socket: &Socket) {
    let mut room = [0_u8; 4096];
    let fd = socket.as_fd().as_raw_fd();
    while recv(fd, &mut room, MsgFlags::MSG_DONTWAIT).is_ok_and(|length| length > 0) {}
}

/// The kernel copies a message of netlink once, before the module sees it.
fn a_message_of_netlink_is_read_once(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let end = maps.create()?;
    let socket = Socket::new()?;
    let handle = socket.open(map::NAME, BOTH)?;
    let request = Request::new(
        command::SET,
        Attrs::new().handle(handle).key(b"key").value(b"value"),
    );
    let message = socket.join(&[request])?;
    let page = Mapping::new(1)?;
    // SAFETY: within the mapping, to which no reference exists.
    unsafe { ptr::copy_nonoverlapping(message.as_ptr(), page.start(), message.len()) };
    // The attribute of the value is the last one; its length and its type are one word.
    let at = message.len() - 12;
    let word = u32::from_ne_bytes(message[at..at + 4].try_into()?);
    let mut is_stored = false;
    rewritten(
        "the length of an attribute",
        &page,
        at,
        [word, word + 200],
        || {
            let before = state(&end)?.sequence;
            // SAFETY: the bytes are those of the page, which may change at any time.
            let sent = unsafe {
                libc::send(
                    socket.as_fd().as_raw_fd(),
                    page.start().cast(),
                    message.len(),
                    0,
                )
            };
            expect("sent", sent, message.len() as isize)?;
            drain(&socket);
            let changed = state(&end)?.sequence - before;
            is_stored |= changed == 1;
            let expected = is_stored.then(|| b"value".to_vec());
            let found = get(&end, b"key");
            expect("the value", found, expected.ok_or(Errno::ENOENT))?;
            Ok(1 - changed as usize)
        },
    )
}
