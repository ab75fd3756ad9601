// SPDX-License-Identifier: MIT OR Apache-2.0
//! Malformed calls about durable maps: sizes, reserved fields, invalid addresses and counts, calls on other files, and
//! random ones.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use nix::errno::Errno;
use sluice_abi::keeper::{
    ACK_SIZE_VER0, CREATE_SIZE_VER0, END_SIZE_VER0, ENTRY_SIZE_VER0, KEEP_SIZE_VER0, MAP_SIZE_VER0,
    READY_SIZE_VER0, RESTORE_SIZE_VER0,
};
use sluice_abi::map::PARAMS_SIZE_VER0;
use sluice_abi::{CTL_KEEP, SETTING_SIZE_VER0};
use sluice_testkit::time::eventually;

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes, note};
use crate::support::ctl::{Ctl, OWN, Open, expect_no_channel};
use crate::support::durable::{DURABLE, Durable, NEW, SYNC, durable, sync};
use crate::support::ioctl::{raw, size_error};
use crate::support::keeper::{
    ACK, Ack, CREATE, Create, END, End, Entry, Keep, Keeper, LIMIT, Map, READY, RESTORE, Ready,
    Restore, SET, Stored,
};
use crate::support::map::{self, GET, KIND_MAP, Maps, NAME, get, put, state};
use crate::support::memory::{GuardedBuffer, Mapping, PAGE};
use crate::support::requests::bytes_of;

topic!(
    "map_durable_malformed",
    fifo: [],
    pipe_only: [
        sizes_below_the_first_version_and_above_a_page_are_refused,
        later_versions_with_zeros_are_accepted,
        later_versions_with_anything_else_are_e2big,
        inaccessible_structures_are_efault,
        structures_that_end_in_inaccessible_memory_are_efault,
        reserved_fields_and_unknown_flags_are_einval,
        the_description_of_a_map_is_checked_as_any_structure,
        parameters_of_any_size_up_to_a_page_are_accepted,
        entries_of_invalid_sizes_are_einval,
        entries_may_be_larger_than_known,
        a_huge_count_of_entries_ends_where_memory_does,
        a_count_that_cannot_be_written_leaves_entries,
        unknown_calls_of_the_keeper_are_enotty,
        calls_of_the_keeper_are_those_of_its_descriptor,
        random_calls_leave_the_keeper_working,
        random_structures_of_live_streams_leave_the_module_working,
    ],
);

/// A stream that does not exist.
const NONE: u64 = u64::MAX - 7;

/// A call whose structure is valid.
struct Call {
    what: &'static str,
    command: u64,
    bytes: Vec<u8>,
    ver0: usize,
    /// The result of the valid call.
    errno: Errno,
}

impl Call {
    fn new<T: Copy>(what: &'static str, command: u64, structure: &T, ver0: u32) -> Self {
        Call {
            what,
            command,
            bytes: bytes_of(structure),
            ver0: ver0 as usize,
            errno: Errno::ENOENT,
        }
    }

    fn send_at(&self, fd: &impl AsFd, start: *mut u8) -> nix::Result<()> {
        raw(fd, self.command, start)
    }

    /// Sends these bytes, followed by zeros up to a page.
    fn send(&self, fd: &impl AsFd, bytes: &[u8]) -> nix::Result<()> {
        let mut page = bytes.to_vec();
        page.resize(PAGE.max(bytes.len()), 0);
        self.send_at(fd, page.as_mut_ptr())
    }

    fn with_size(&self, size: u32) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[..4].copy_from_slice(&size.to_ne_bytes());
        bytes
    }
}

/// Sends the structure at an address.
type Send<'a> = dyn Fn(*mut u8) -> nix::Result<()> + 'a;

/// The files and structures that valid calls refer to.
struct Fixture {
    ctl: Ctl,
    keeper: Keeper,
    map: Box<Map>,
    entry: Box<Entry>,
}

impl Fixture {
    fn new() -> Result<Self> {
        Ok(Fixture {
            ctl: Ctl::new()?,
            keeper: Keeper::new()?,
            map: Box::new(valid_map()),
            entry: Box::new(Entry::new(b"key", b"value", 1, 0)),
        })
    }

    /// Each call of the keeper, about a stream that does not exist.
    fn calls(&self) -> Vec<Call> {
        let create = Create::new(NONE, OWN, &self.map, 0, LIMIT);
        let restore = Restore::new(NONE, std::slice::from_ref(&*self.entry));
        vec![
            Call::new("CREATE", CREATE, &create, CREATE_SIZE_VER0),
            Call::new("RESTORE", RESTORE, &restore, RESTORE_SIZE_VER0),
            Call::new("READY", READY, &Ready::new(NONE, 0), READY_SIZE_VER0),
            Call::new("ACK", ACK, &Ack::new(NONE, 0, 0, 0), ACK_SIZE_VER0),
            Call::new("END", END, &End::new(NONE, 0, 0), END_SIZE_VER0),
        ]
    }

    /// Runs `check` with each call and the file that it is of.
    fn each(&self, mut check: impl FnMut(&Call, &Send) -> Result<()>) -> Result<()> {
        for call in self.calls() {
            check(&call, &|start| call.send_at(&self.keeper, start))?;
        }
        let keep = Call {
            errno: Errno::EBUSY,
            ..Call::new("KEEP", CTL_KEEP, &Keep::default(), KEEP_SIZE_VER0)
        };
        check(&keep, &|start| keep.send_at(&self.ctl, start))
    }
}

fn valid_map() -> Map {
    Map {
        capacity: 1 << 20,
        events: 16,
        mode: 0o600,
        ..Map::new(NAME, DURABLE)
    }
}

fn page_with(bytes: &[u8]) -> Vec<u8> {
    let mut page = bytes.to_vec();
    page.resize(PAGE + 64, 0);
    page
}

// ---- sizes ----

fn sizes_below_the_first_version_and_above_a_page_are_refused(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    fixture.each(|call, send| {
        let below = 0..call.ver0 as u32;
        for size in below.chain([PAGE as u32 + 1, 1 << 20, 1 << 31, u32::MAX]) {
            let mut page = page_with(&call.with_size(size));
            let before = page.clone();
            let what = format!("{} of {size} bytes", call.what);
            expect(&what, send(page.as_mut_ptr()), Err(size_error(size)))?;
            expect_bytes(&what, &page, &before)?;
        }
        Ok(())
    })
}

fn later_versions_with_zeros_are_accepted(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    fixture.each(|call, send| {
        let known = call.bytes.len();
        for size in [call.ver0, known, known + 1, known + 8, 1000, PAGE] {
            let mut page = page_with(&call.with_size(size as u32));
            let what = format!("{} of {size} bytes", call.what);
            expect(&what, send(page.as_mut_ptr()), Err(call.errno))?;
        }
        Ok(())
    })
}

fn later_versions_with_anything_else_are_e2big(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    fixture.each(|call, send| {
        let known = call.bytes.len();
        for (size, at) in [(known + 1, known), (known + 8, known + 7), (PAGE, PAGE - 1)] {
            let mut page = page_with(&call.with_size(size as u32));
            page[at] = 1;
            let what = format!("{} of {size} bytes", call.what);
            expect(&what, send(page.as_mut_ptr()), Err(Errno::E2BIG))?;
        }
        Ok(())
    })
}

// ---- memory ----

fn inaccessible_structures_are_efault(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let bad = GuardedBuffer::new(0)?;
    let kernels = 0xffff_8880_0000_0000_usize as *mut u8;
    fixture.each(|call, send| {
        for start in [ptr::null_mut(), bad.start(), kernels, usize::MAX as *mut u8] {
            let what = format!("{} at {start:?}", call.what);
            expect(&what, send(start), Err(Errno::EFAULT))?;
        }
        Ok(())
    })
}

fn structures_that_end_in_inaccessible_memory_are_efault(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    fixture.each(|call, send| {
        for good in 0..call.bytes.len() {
            let mut edge = GuardedBuffer::new(good)?;
            edge.fill_from(&call.bytes[..good]);
            let what = format!("{} of which {good} bytes are there", call.what);
            expect(&what, send(edge.start()), Err(Errno::EFAULT))?;
        }
        let mut edge = GuardedBuffer::new(call.bytes.len())?;
        edge.fill_from(&call.bytes);
        expect(call.what, send(edge.start()), Err(call.errno))
    })
}

// ---- fields ----

fn reserved_fields_and_unknown_flags_are_einval(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let keeper = &fixture.keeper;
    let restore = Restore::new(NONE, std::slice::from_ref(&*fixture.entry));
    for reserved in [1, 1 << 31, u32::MAX] {
        let mut call = Restore {
            reserved,
            ..restore
        };
        let seen = raw(keeper, RESTORE, &mut call);
        expect("RESTORE", seen, Err(Errno::EINVAL))?;
        let mut call = End {
            reserved,
            ..End::new(NONE, 0, 0)
        };
        expect("END", raw(keeper, END, &mut call), Err(Errno::EINVAL))?;
    }
    for flags in [1, 2, 1 << 31, u32::MAX] {
        let mut call = Keep {
            flags: flags | 2,
            ..Keep::default()
        };
        let seen = raw(&fixture.ctl, CTL_KEEP, &mut call);
        expect("KEEP", seen, Err(Errno::EINVAL))?;
        let mut call = End::new(NONE, flags & !1 | 2, 0);
        expect("END", raw(keeper, END, &mut call), Err(Errno::EINVAL))?;
    }
    for error in [4096, 1 << 31, u32::MAX] {
        let mut ready = Ready::new(NONE, error);
        expect("READY", raw(keeper, READY, &mut ready), Err(Errno::EINVAL))?;
        let mut end = End::new(NONE, 1, error);
        expect("END", raw(keeper, END, &mut end), Err(Errno::EINVAL))?;
        let mut ack = Ack::new(NONE, 0, 0, error);
        expect("ACK", raw(keeper, ACK, &mut ack), Err(Errno::EINVAL))?;
    }
    let end = Maps::new()?.create()?;
    for size in (0..SETTING_SIZE_VER0).chain([PAGE as u32 + 1, u32::MAX]) {
        let mut page = page_with(&size.to_ne_bytes());
        let seen = raw(&end, SYNC, page.as_mut_ptr());
        expect(
            &format!("SYNC of {size} bytes"),
            seen,
            Err(size_error(size)),
        )?;
    }
    Ok(())
}

/// The structure that CREATE points to.
fn the_description_of_a_map_is_checked_as_any_structure(_: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let create = |start: *const u8| {
        let mut create = Create::new(NONE, OWN, &valid_map(), 0, LIMIT);
        create.map = start as u64;
        raw(&keeper, CREATE, &mut create)
    };
    let bytes = bytes_of(&valid_map());
    let with_size = |size: u32| {
        let mut page = page_with(&bytes);
        page[..4].copy_from_slice(&size.to_ne_bytes());
        page
    };
    for size in (0..MAP_SIZE_VER0).chain([PAGE as u32 + 1, 1 << 31, u32::MAX]) {
        let seen = create(with_size(size).as_ptr());
        expect(&format!("of {size} bytes"), seen, Err(size_error(size)))?;
    }
    let known = bytes.len() as u32;
    for size in [
        MAP_SIZE_VER0,
        MAP_SIZE_VER0 + 8,
        known,
        known + 8,
        PAGE as u32,
    ] {
        let seen = create(with_size(size).as_ptr());
        expect(&format!("of {size} bytes"), seen, Err(Errno::ENOENT))?;
    }
    let mut later = with_size(known + 8);
    later[bytes.len()] = 1;
    expect("later", create(later.as_ptr()), Err(Errno::E2BIG))?;
    for start in [ptr::null(), ptr::dangling(), usize::MAX as *const u8] {
        expect(&format!("at {start:?}"), create(start), Err(Errno::EFAULT))?;
    }
    let mut edge = GuardedBuffer::new(bytes.len() - 1)?;
    edge.fill_from(&bytes[..bytes.len() - 1]);
    expect("cut off", create(edge.start()), Err(Errno::EFAULT))
}

fn parameters_of_any_size_up_to_a_page_are_accepted(_: &Context) -> Result<()> {
    let (keeper, ctl) = (Keeper::new()?, Ctl::new()?);
    let open = |params: &[u8]| {
        let request = Open {
            kind: KIND_MAP,
            params: params.as_ptr() as u64,
            ..Open::new(NAME, NEW)
        };
        ctl.open(request).map(drop)
    };
    let bytes = bytes_of(&durable(0));
    let with_size = |size: u32| {
        let mut page = page_with(&bytes);
        page[..4].copy_from_slice(&size.to_ne_bytes());
        page
    };
    for size in (0..PARAMS_SIZE_VER0).chain([PAGE as u32 + 1, u32::MAX]) {
        let seen = open(&with_size(size));
        expect(&format!("of {size} bytes"), seen, Err(size_error(size)))?;
    }
    for size in [
        PARAMS_SIZE_VER0 as usize,
        bytes.len(),
        bytes.len() + 8,
        PAGE,
    ] {
        let page = with_size(size as u32);
        let (opened, seen) = keeper.serve(|| open(&page))?;
        expect(&format!("of {size} bytes"), opened, Ok(()))?;
        let asked = seen.first().context("nothing was asked")?;
        if size >= bytes.len() {
            let told = asked.map()?.deadline_ms;
            expect("the deadline", told, durable(0).deadline_ms)?;
        }
        expect("END", keeper.detach(asked.stream), Ok(()))?;
    }
    let mut later = with_size(bytes.len() as u32 + 8);
    later[bytes.len()] = 1;
    expect("later", open(&later), Err(Errno::E2BIG))?;
    keeper.expect_nothing()?;
    expect_no_channel(&ctl)
}

// ---- entries ----

/// A map that is being restored.
fn restoring(keeper: &Keeper) -> Result<u64> {
    let created = keeper.create_at(0, OWN, &valid_map(), 1000, LIMIT);
    created.context("CREATE")
}

fn entries_of_invalid_sizes_are_einval(_: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let stream = restoring(&keeper)?;
    let entries = [Entry::new(b"key", b"value", 1, 0)];
    let below = 0..ENTRY_SIZE_VER0;
    for entry_size in below.chain([41, 44, 4095, 4097, 4104, 1 << 31, u32::MAX]) {
        let mut restore = Restore {
            entry_size,
            ..Restore::new(stream, &entries)
        };
        let seen = raw(&keeper, RESTORE, &mut restore);
        let what = format!("entries of {entry_size} bytes");
        expect(&what, seen, Err(Errno::EINVAL))?;
    }
    let restored = keeper.restore(stream, &[Stored::new(b"key", b"", 1)]);
    expect("a valid one", restored, Ok(1))
}

fn entries_may_be_larger_than_known(_: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let stream = restoring(&keeper)?;
    let mut version = 0;
    for entry_size in [ENTRY_SIZE_VER0 as usize, 48, 1000, PAGE] {
        let keys: [[u8; 8]; 3] = std::array::from_fn(|_| {
            version += 1;
            u64::to_ne_bytes(version)
        });
        let mut memory = vec![0; 3 * entry_size];
        for (at, key) in keys.iter().enumerate() {
            let entry = bytes_of(&Entry::new(key, b"value", 1, 0));
            memory[at * entry_size..][..entry.len()].copy_from_slice(&entry);
        }
        let restore = Restore {
            count: 3,
            entries: memory.as_ptr() as u64,
            entry_size: entry_size as u32,
            ..Restore::new(stream, &[])
        };
        let what = format!("entries of {entry_size} bytes");
        if entry_size > size_of::<Entry>() {
            memory[entry_size - 1] = 1;
            let mut call = restore;
            let seen = raw(&keeper, RESTORE, &mut call);
            expect(&what, seen, Err(Errno::E2BIG))?;
            memory[entry_size - 1] = 0;
        }
        let mut call = restore;
        expect(&what, raw(&keeper, RESTORE, &mut call), Ok(()))?;
        expect(&what, call.count, 3)?;
    }
    keeper.ready(stream).context("READY")?;
    let end = Maps::new()?.attach()?;
    expect("entries", state(&end)?.entries, version)
}

fn a_huge_count_of_entries_ends_where_memory_does(_: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let stream = restoring(&keeper)?;
    let mut next = 0_u64;
    for count in [4, 1000, 1 << 31, u32::MAX] {
        let keys: [[u8; 8]; 3] = std::array::from_fn(|_| {
            next += 1;
            next.to_ne_bytes()
        });
        let entries = keys.each_ref().map(|key| Entry::new(key, b"", 1, 0));
        let mut edge = GuardedBuffer::new(size_of_val(&entries))?;
        let bytes: Vec<u8> = entries.iter().flat_map(bytes_of).collect();
        edge.fill_from(&bytes);
        let mut restore = Restore {
            count,
            entries: edge.start() as u64,
            ..Restore::new(stream, &[])
        };
        let seen = raw(&keeper, RESTORE, &mut restore);
        expect(&format!("{count} entries"), seen, Ok(()))?;
        expect("restored", restore.count, 3)?;
        restore.entries = edge.start() as u64 + bytes.len() as u64;
        restore.count = count;
        let seen = raw(&keeper, RESTORE, &mut restore);
        expect("nowhere", seen, Err(Errno::EFAULT))?;
        restore.entries = u64::MAX - 7;
        let seen = raw(&keeper, RESTORE, &mut restore);
        expect("at the end", seen, Err(Errno::EFAULT))?;
    }
    Ok(())
}

fn a_count_that_cannot_be_written_leaves_entries(_: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let stream = restoring(&keeper)?;
    let entries = [Entry::new(b"key", b"value", 1, 0)];
    let page = Mapping::new(1)?;
    let bytes = bytes_of(&Restore::new(stream, &entries));
    // SAFETY: our own mapping, larger than the structure.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), page.start(), bytes.len()) };
    page.protect_from(0, libc::PROT_READ)?;
    let seen = raw(&keeper, RESTORE, page.start());
    expect("into read-only memory", seen, Err(Errno::EFAULT))?;
    // Whether the entry was restored is not known; the map is sound.
    let again = keeper.restore(stream, &[Stored::new(b"key", b"value", 1)]);
    ensure!([Ok(1), Err(Errno::EEXIST)].contains(&again), "{again:?}");
    keeper.ready(stream).context("READY")?;
    let end = Maps::new()?.attach()?;
    expect("its value", get(&end, b"key"), Ok(b"value".to_vec()))?;
    // The number of a stream cannot be written, either: nothing is created.
    let map = Map {
        name: sluice_abi::padded("other"),
        ..valid_map()
    };
    let bytes = bytes_of(&Create::new(0, OWN, &map, 0, LIMIT));
    page.protect_from(0, libc::PROT_READ | libc::PROT_WRITE)?;
    // SAFETY: as above.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), page.start(), bytes.len()) };
    page.protect_from(0, libc::PROT_READ)?;
    let seen = raw(&keeper, CREATE, page.start());
    expect("into read-only memory", seen, Err(Errno::EFAULT))
}

// ---- other calls and files ----

fn unknown_calls_of_the_keeper_are_enotty(_: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let mut room = [0_u64; 64];
    for command in [
        END + 1,
        CREATE - 1,
        CREATE + 0x100,
        GET,
        CTL_KEEP,
        libc::FIONREAD,
        libc::TCGETS,
        0,
    ] {
        let seen = raw(&keeper, command, room.as_mut_ptr());
        expect(&format!("{command:#x}"), seen, Err(Errno::ENOTTY))?;
    }
    Ok(())
}

fn calls_of_the_keeper_are_those_of_its_descriptor(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let end = Maps::new()?.create()?;
    for call in fixture.calls() {
        let what = format!("{} on an endpoint", call.what);
        expect(&what, call.send(&end, &call.bytes), Err(Errno::ENOTTY))?;
        let what = format!("{} on ctl", call.what);
        let seen = call.send(&fixture.ctl, &call.bytes);
        expect(&what, seen, Err(Errno::ENOTTY))?;
    }
    expect("a sync", sync(&end, 0), Err(Errno::EOPNOTSUPP))
}

// ---- random calls ----

/// A number that is often at some limit.
fn number(rng: &mut Rng, streams: &[u64]) -> u64 {
    match rng.u32(0..8) {
        0 => 0,
        1 => u64::MAX,
        2 => rng.u64(..),
        3 => rng.u64(0..10),
        4 => 1 << rng.u32(0..64),
        5 => (1_u64 << rng.u32(0..64)).wrapping_sub(1),
        _ => streams[rng.usize(0..streams.len())],
    }
}

/// Structures of this size with random words behind the size.
fn random_call(rng: &mut Rng, call: &Call, streams: &[u64]) -> Vec<u8> {
    let mut bytes = call.bytes.clone();
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(0..bytes.len() / 4) * 4;
        let value = number(rng, streams).to_ne_bytes();
        let length = if at % 8 == 0 && at + 8 <= bytes.len() {
            8
        } else {
            4
        };
        bytes[at..at + length].copy_from_slice(&value[..length]);
    }
    if rng.u32(0..4) > 0 {
        bytes[..4].copy_from_slice(&call.bytes[..4]);
    }
    bytes
}

/// Sends random variants of all calls.
fn send_random(fixture: &Fixture, calls: &[Call], streams: &[u64], rounds: usize) -> [u32; 2] {
    let mut rng = Rng::with_seed(18);
    let mut results = [0; 2];
    for _ in 0..rounds {
        let call = &calls[rng.usize(0..calls.len())];
        let bytes = random_call(&mut rng, call, streams);
        let succeeded = call.send(&fixture.keeper, &bytes).is_ok();
        results[usize::from(succeeded)] += 1;
    }
    results
}

/// A new map is opened and changed.
fn expect_working(fixture: &Fixture) -> Result<()> {
    fixture.keeper.take()?;
    let (ctl, params) = (&fixture.ctl, durable(0));
    let request = Open {
        name: sluice_abi::padded("after"),
        ..map::request(NEW, &params)
    };
    let (opened, seen) = fixture.keeper.serve(|| -> Result<OwnedFd> {
        // A worker frees the maps that random calls have created and ended, and they count until then.
        let end = eventually("there is room for a map", || Ok(ctl.open(request).ok()))?;
        put(&end, b"key", b"value")?;
        Ok(end)
    })?;
    let end = opened?;
    expect("a get", get(&end, b"key"), Ok(b"value".to_vec()))?;
    let records = seen.iter().filter(|message| message.kind == SET).count();
    expect("records", records, 1)
}

fn random_calls_leave_the_keeper_working(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let calls = fixture.calls();
    let [failed, done] = send_random(&fixture, &calls, &[NONE, 0, 1], 20_000);
    note(format!("{done} of {} succeeded", failed + done));
    expect_working(&fixture)
}

/// The streams are a live map with changes and a map that is being restored.
fn random_structures_of_live_streams_leave_the_module_working(_: &Context) -> Result<()> {
    let Durable {
        end,
        stream,
        maps,
        keeper,
    } = Durable::interval()?;
    for number in 0..20_u8 {
        put(&end, &[number], &[number; 100])?;
    }
    keeper.records(stream, 10)?;
    let fixture = Fixture {
        ctl: Ctl::new()?,
        keeper,
        map: Box::new(Map {
            name: sluice_abi::padded("other"),
            ..valid_map()
        }),
        entry: Box::new(Entry::new(b"key", b"value", 1, 0)),
    };
    let create = Create::new(0, OWN, &fixture.map, 1000, LIMIT);
    let mut created = create;
    raw(&fixture.keeper, CREATE, &mut created).context("CREATE")?;
    let entries = std::slice::from_ref(&*fixture.entry);
    let calls = [
        Call::new("CREATE", CREATE, &create, CREATE_SIZE_VER0),
        Call::new(
            "RESTORE",
            RESTORE,
            &Restore::new(created.stream, entries),
            RESTORE_SIZE_VER0,
        ),
        Call::new("ACK", ACK, &Ack::new(stream, 5, 0, 0), ACK_SIZE_VER0),
        Call::new("END", END, &End::new(stream, 1, 0), END_SIZE_VER0),
    ];
    let streams = [stream, created.stream];
    // Not so many that the maps that they create fill the limit of the cgroup.
    let [failed, done] = send_random(&fixture, &calls, &streams, 1000);
    note(format!("{done} of {} succeeded", failed + done));
    ensure!(done > 0 && failed > 0, "{done} succeeded, {failed} failed");
    // Gets are not affected, whatever the keeper has done to the stream.
    for number in 0..20_u8 {
        let value = get(&end, &[number]).context("getting")?;
        expect_bytes("the value", &value, &[number; 100])?;
    }
    drop((end, maps));
    expect_working(&fixture)
}
