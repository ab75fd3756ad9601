// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mappings of a ring: which regions each role can map and how, that no call makes a foreign region writable, and that
//! mapped and pinned pages stay with their ring.

use std::fs::OpenOptions;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use io_uring::opcode;
use nix::errno::Errno;
use nix::fcntl::{OFlag, SpliceFFlags, vmsplice};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, raise};
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, pipe2, read, write};

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes, skip};
use crate::support::child::{spawn, spawn_keeping};
use crate::support::ctl::{CREATE, Open};
use crate::support::event::Event;
use crate::support::kernel::{expect_module_in_use, expect_no_objects};
use crate::support::memory::{Mapping, PAGE, read_at};
use crate::support::random::stream_bytes;
use crate::support::ring::{
    CAPACITY, DIED, MMAP_CONSUMER, MMAP_DATA, MMAP_PRODUCER, READ_ONLY, READ_WRITE, ROLE_TAKEN,
    Region, Rings, Role, Side, detach, expect_not_executable, info, request, smaps_flags,
};
use crate::support::uring::{REQUEST, Ring as Uring, number};
use crate::support::userfault::UserFault;

topic!(
    "ring_mmap",
    fifo: [],
    pipe_only: [
        each_role_can_write_only_to_its_regions,
        the_peer_sees_what_a_side_stores,
        any_other_offset_or_length_is_einval,
        a_private_mapping_is_einval,
        an_executable_mapping_is_refused,
        a_mapping_after_detach_is_epipe,
        the_data_is_mapped_twice_in_a_row,
        a_region_can_be_mapped_more_than_once,
        mprotect_adds_neither_write_nor_execute,
        mremap_neither_grows_nor_duplicates_a_mapping,
        a_moved_mapping_has_the_same_protection,
        dropped_page_tables_are_filled_with_the_same_pages,
        pages_are_mapped_on_first_use_in_any_order,
        a_fault_maps_a_block_of_pages,
        advice_cannot_free_or_replace_pages,
        the_flags_of_a_mapping_forbid_expansion_and_foreign_writes,
        a_store_to_a_foreign_region_is_sigsegv,
        an_access_beyond_a_region_is_sigsegv,
        a_part_of_a_mapping_can_be_unmapped,
        a_forked_child_has_the_same_protection,
        a_forked_mapping_holds_the_role,
        system_calls_cannot_write_to_a_foreign_region,
        a_debugger_cannot_write_to_a_foreign_region,
        userfaultfd_is_refused,
        a_spliced_page_is_not_given_to_another_ring,
        a_registered_buffer_is_not_given_to_another_ring,
        a_foreign_region_cannot_be_registered_as_a_buffer,
        a_mapping_outlives_its_descriptor,
        a_mapping_outlives_the_name_and_the_peer,
        a_mapping_stays_after_detach,
        a_mapping_keeps_the_module_loaded,
    ],
);

const NAME: &str = "ring";
const REGIONS: [(&str, u64, usize); 3] = [
    ("the producer's page", MMAP_PRODUCER, PAGE),
    ("the consumer's page", MMAP_CONSUMER, PAGE),
    ("the data", MMAP_DATA, 2 * CAPACITY),
];

fn is_writable_by(role: Role, offset: u64) -> bool {
    match role {
        Role::Producer => offset != MMAP_CONSUMER,
        Role::Consumer => offset == MMAP_CONSUMER,
    }
}

/// Both endpoints of a new ring, without mappings.
fn ends() -> Result<[(Role, OwnedFd); 2]> {
    let rings = Rings::new()?;
    let open = |role| rings.role(NAME, role).context("opening a ring");
    Ok([
        (Role::Producer, open(Role::Producer)?),
        (Role::Consumer, open(Role::Consumer)?),
    ])
}

/// Calls `body` with each region of both roles, mapped read-only, and whether the role may write to it.
fn for_each_region(body: impl Fn(&str, Region, bool) -> Result<()>) -> Result<()> {
    for (role, end) in &ends()? {
        for (name, offset, len) in REGIONS {
            let what = format!("{name} of the {role:?}");
            let region = Region::map(end, offset, len, READ_ONLY).context(what.clone())?;
            let writable = is_writable_by(*role, offset);
            body(&what, region, writable).context(what)?;
        }
    }
    Ok(())
}

fn each_role_can_write_only_to_its_regions(_: &Context) -> Result<()> {
    for (role, end) in &ends()? {
        for (name, offset, len) in REGIONS {
            for protection in [libc::PROT_NONE, READ_ONLY, libc::PROT_WRITE, READ_WRITE] {
                let writes = protection & libc::PROT_WRITE != 0;
                let expected = if writes && !is_writable_by(*role, offset) {
                    Err(Errno::EACCES)
                } else {
                    Ok(())
                };
                let mapped = Region::map(end, offset, len, protection).map(drop);
                let what = format!("{name} of the {role:?}, protection {protection}");
                expect(&what, mapped, expected)?;
            }
        }
    }
    Ok(())
}

fn the_peer_sees_what_a_side_stores(_: &Context) -> Result<()> {
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    let bytes = stream_bytes(1, 0, CAPACITY);
    producer.publish(&bytes);
    expect_bytes("data", &consumer.data.read(0, CAPACITY), &bytes)?;
    for (from, to) in [(&producer, &consumer), (&consumer, &producer)] {
        for page in [stream_bytes(2, 0, PAGE), stream_bytes(3, 0, PAGE)] {
            from.own.0.write(0, &page);
            expect_bytes("a control page", &to.peer.0.read(0, PAGE), &page)?;
        }
    }
    Ok(())
}

fn any_other_offset_or_length_is_einval(_: &Context) -> Result<()> {
    let page = PAGE as u64;
    let mut invalid = vec![
        (MMAP_DATA, CAPACITY),
        (MMAP_DATA + CAPACITY as u64, CAPACITY),
        (MMAP_DATA + 2 * CAPACITY as u64, PAGE),
        (MMAP_DATA + 2 * CAPACITY as u64, 2 * CAPACITY),
        (MMAP_PRODUCER, (MMAP_DATA as usize) + 2 * CAPACITY),
        (1 << 30, PAGE),
        (1 << 40, PAGE),
        (i64::MAX as u64 & !(page - 1), PAGE),
    ];
    for (_, offset, len) in REGIONS {
        invalid.push((offset, len + PAGE));
        invalid.push((offset, 2 * len));
        invalid.push((offset, len - PAGE));
        invalid.push((offset + page, len));
        invalid.push((offset.wrapping_sub(page), len));
    }
    for (role, end) in &ends()? {
        for &(offset, len) in &invalid {
            let what = format!("{len} bytes at {offset:#x} by the {role:?}");
            let mapped = Region::map(end, offset, len, READ_ONLY).map(drop);
            // The end of the last page before 2^64 does not fit.
            let overflows =
                mapped == Err(Errno::EOVERFLOW) && offset.checked_add(len as u64 + page).is_none();
            ensure!(
                mapped == Err(Errno::EINVAL) || overflows,
                "{what}: expected EINVAL, saw {mapped:?}"
            );
        }
    }
    Ok(())
}

fn a_private_mapping_is_einval(_: &Context) -> Result<()> {
    for (role, end) in &ends()? {
        for (name, offset, len) in REGIONS {
            for protection in [READ_ONLY, READ_WRITE] {
                let mapped = Region::map_with(end, offset, len, protection, libc::MAP_PRIVATE);
                let what = format!("{name} by the {role:?}");
                expect(&what, mapped.map(drop), Err(Errno::EINVAL))?;
            }
        }
    }
    Ok(())
}

fn an_executable_mapping_is_refused(_: &Context) -> Result<()> {
    for (role, end) in &ends()? {
        for (name, offset, len) in REGIONS {
            for protection in [libc::PROT_EXEC, READ_ONLY | libc::PROT_EXEC] {
                let mapped = Region::map(end, offset, len, protection).map(drop);
                expect_not_executable(&format!("{name} by the {role:?}"), mapped)?;
            }
        }
    }
    Ok(())
}

fn a_mapping_after_detach_is_epipe(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        let side = rings.side(NAME, role)?;
        detach(&side).context("detaching")?;
        for (name, offset, len) in REGIONS {
            let mapped = Region::map(&side, offset, len, READ_ONLY).map(drop);
            expect(name, mapped, Err(Errno::EPIPE))?;
        }
    }
    Ok(())
}

fn the_data_is_mapped_twice_in_a_row(_: &Context) -> Result<()> {
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    let bytes = stream_bytes(1, 0, CAPACITY);
    // Across the end of the first half.
    let start = CAPACITY - 100;
    producer.data.write(start, &bytes);
    for side in [&producer, &consumer] {
        expect_bytes("at once", &side.data.read(start, CAPACITY), &bytes)?;
        expect_bytes("the end", &side.data.read(0, start), &bytes[100..])?;
        let half = CAPACITY + start;
        expect_bytes("the beginning", &side.data.read(half, 100), &bytes[..100])?;
    }
    Ok(())
}

fn a_region_can_be_mapped_more_than_once(_: &Context) -> Result<()> {
    let (producer, _consumer) = Rings::new()?.sides(NAME)?;
    let again = Region::map(&producer, MMAP_DATA, 2 * CAPACITY, READ_WRITE)?;
    let other = Region::map(&producer, MMAP_DATA, 2 * CAPACITY, READ_ONLY)?;
    again.write(0, b"again");
    expect_bytes("the first", &producer.data.read(0, 5), b"again")?;
    expect_bytes("a third", &other.read(CAPACITY, 5), b"again")
}

fn mprotect_adds_neither_write_nor_execute(_: &Context) -> Result<()> {
    for_each_region(|what, region, writable| {
        let expected = if writable { Ok(()) } else { Err(Errno::EACCES) };
        for protection in [READ_WRITE, libc::PROT_WRITE] {
            expect(what, region.protect(protection), expected)?;
            expect("and back", region.protect(libc::PROT_NONE), Ok(()))?;
            expect("to reading", region.protect(READ_ONLY), Ok(()))?;
        }
        for protection in [libc::PROT_EXEC, READ_ONLY | libc::PROT_EXEC] {
            expect("execute", region.protect(protection), Err(Errno::EACCES))?;
        }
        Ok(())
    })
}

/// mremap(2) of a region.
fn remap(
    region: &Region,
    old_len: usize,
    new_len: usize,
    flags: libc::c_int,
) -> nix::Result<*mut u8> {
    // SAFETY: a mapping of ours, to which no Rust reference exists; callers do not use it at its old address.
    let moved = unsafe { libc::mremap(region.start().cast(), old_len, new_len, flags) };
    if moved == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    Ok(moved.cast())
}

fn mremap_neither_grows_nor_duplicates_a_mapping(_: &Context) -> Result<()> {
    for_each_region(|_, region, _| {
        let len = region.len();
        for flags in [0, libc::MREMAP_MAYMOVE] {
            let grown = remap(&region, len, len + PAGE, flags);
            expect("growing", grown.map(drop), Err(Errno::EFAULT))?;
        }
        let copied = remap(&region, 0, len, libc::MREMAP_MAYMOVE);
        expect("duplicating", copied.map(drop), Err(Errno::EFAULT))?;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
        let kept = remap(&region, len, len, flags);
        expect("keeping the old", kept.map(drop), Err(Errno::EINVAL))
    })
}

fn a_moved_mapping_has_the_same_protection(_: &Context) -> Result<()> {
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    producer.publish(b"published");
    let target = Mapping::new(2 * CAPACITY / PAGE)?;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let len = consumer.data.len();
    let start = consumer.data.start().cast();
    // SAFETY: moves a mapping of ours over another one; neither is used at its old place.
    let moved = unsafe { libc::mremap(start, len, len, flags, target.start()) };
    ensure!(moved != libc::MAP_FAILED, "moving: {}", Errno::last());
    // SAFETY: inside the moved mapping.
    let byte = unsafe { target.start().add(CAPACITY).read_volatile() };
    expect("a byte", byte, b'p')?;
    // SAFETY: our own mapping.
    let protected = unsafe { libc::mprotect(moved, PAGE, READ_WRITE) };
    expect("mprotect", Errno::result(protected), Err(Errno::EACCES))?;
    // Its old address is free, and must not be unmapped twice.
    std::mem::forget(consumer.data);
    Ok(())
}

fn dropped_page_tables_are_filled_with_the_same_pages(_: &Context) -> Result<()> {
    const PAGEOUT: libc::c_int = 21;
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    let bytes = stream_bytes(1, 0, CAPACITY);
    producer.publish(&bytes);
    for advice in [libc::MADV_DONTNEED, libc::MADV_COLD, PAGEOUT] {
        for side in [&producer, &consumer] {
            for region in [&side.data, &side.own.0, &side.peer.0] {
                let advised = region.advise(advice);
                expect(&format!("advice {advice}"), advised, Ok(()))?;
            }
            expect_bytes("data", &side.data.read(0, CAPACITY), &bytes)?;
            expect_bytes("again", &side.data.read(CAPACITY, CAPACITY), &bytes)?;
        }
        let published = consumer.peer.pos().load(Ordering::Relaxed);
        expect("published", published, CAPACITY as u64)?;
    }
    Ok(())
}

/// Pages of the data of a ring that is mapped in many blocks.
const LARGE: usize = 1024;

/// Both sides of a new ring of `LARGE` pages.
fn large_sides() -> Result<(Side, Side)> {
    let rings = Rings::new()?;
    let side = |role: Role| {
        let end = rings.open(Open {
            capacity: (LARGE * PAGE) as u64,
            ..request(NAME, role.flag() | CREATE)
        });
        Side::of(end.context("opening a large ring")?)
    };
    Ok((side(Role::Producer)?, side(Role::Consumer)?))
}

/// Visits the first word of each page, in steps of 389 pages, and at the same time in a second thread from the other end.
fn visit_pages(
    region: &Region,
    visit: impl Fn(usize, &AtomicU32) -> Result<()> + Sync,
) -> Result<()> {
    const STEP: usize = 389;
    let pages = region.len() / PAGE;
    let visit_in_order = |order: fn(usize, usize) -> usize| {
        for at in 0..pages {
            let page = order(at * STEP % pages, pages);
            visit(page, region.word(page * PAGE))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let backwards = scope.spawn(|| visit_in_order(|page, pages| pages - 1 - page));
        let forwards = visit_in_order(|page, _| page);
        let joined = backwards.join();
        forwards.and(joined.unwrap_or_else(|_| bail!("a thread panicked")))
    })
}

fn pages_are_mapped_on_first_use_in_any_order(_: &Context) -> Result<()> {
    let (producer, consumer) = large_sides()?;
    visit_pages(&producer.data, |page, word| {
        word.store((page % LARGE) as u32, Ordering::Relaxed);
        Ok(())
    })?;
    let expect_numbers = |region: &Region| {
        visit_pages(region, |page, word| {
            let number = word.load(Ordering::Relaxed);
            expect(&format!("page {page}"), number, (page % LARGE) as u32)
        })
    };
    expect_numbers(&consumer.data)?;
    expect_numbers(&producer.data)?;
    // A page in the middle of a block that is mapped.
    let page = consumer.data.at(5 * PAGE);
    // SAFETY: a page of our own mapping, which the module maps again.
    let dropped = unsafe { libc::madvise(page.cast(), PAGE, libc::MADV_DONTNEED) };
    Errno::result(dropped).context("dropping a page")?;
    expect_numbers(&consumer.data)
}

fn a_fault_maps_a_block_of_pages(_: &Context) -> Result<()> {
    const BLOCK: usize = 128;
    const PAGES_OF_TABLE: usize = 512;
    let (_producer, consumer) = large_sides()?;
    let faults = || getrusage(UsageWho::RUSAGE_THREAD).map(|usage| usage.minor_page_faults());
    // A fault maps to the end of its block or of the page table, whichever is first.
    let first_page = consumer.data.start() as usize / PAGE;
    let begins = |page| page % BLOCK == 0 || (first_page + page) % PAGES_OF_TABLE == 0;
    let blocks = (0..2 * LARGE).filter(|&page| begins(page)).count() as i64;
    // Some faults are those of the program: the fewest of a few passes are those of the ring.
    let mut fewest = i64::MAX;
    for _ in 0..5 {
        consumer
            .data
            .advise(libc::MADV_DONTNEED)
            .context("dropping the pages")?;
        let before = faults().context("getrusage")?;
        ensure!(consumer.data.is_zero(), "a new ring has content");
        fewest = fewest.min(faults().context("getrusage")? - before);
    }
    expect("faults", fewest, blocks)
}

fn advice_cannot_free_or_replace_pages(_: &Context) -> Result<()> {
    const POPULATE_WRITE: libc::c_int = 23;
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    let bytes = stream_bytes(1, 0, CAPACITY);
    producer.publish(&bytes);
    for side in [&producer, &consumer] {
        for advice in [libc::MADV_REMOVE, libc::MADV_FREE, libc::MADV_MERGEABLE] {
            // Whatever the kernel says, the pages stay.
            let _ = side.data.advise(advice);
            expect_bytes("data", &side.data.read(0, CAPACITY), &bytes)?;
            expect_bytes("of the peer", &consumer.data.read(0, CAPACITY), &bytes)?;
        }
        let freed = side.data.advise(libc::MADV_FREE);
        expect("MADV_FREE", freed, Err(Errno::EINVAL))?;
        ensure!(
            side.data.advise(libc::MADV_REMOVE).is_err(),
            "MADV_REMOVE has an effect"
        );
    }
    let populated = consumer.data.advise(POPULATE_WRITE);
    expect("foreign pages for writing", populated, Err(Errno::EINVAL))?;
    let populated = producer.data.advise(POPULATE_WRITE);
    expect("own pages for writing", populated, Ok(()))
}

fn the_flags_of_a_mapping_forbid_expansion_and_foreign_writes(_: &Context) -> Result<()> {
    for_each_region(|_, region, writable| {
        let flags = smaps_flags(region.start())?;
        let has = |flag: &str| flags.iter().any(|seen| seen == flag);
        expect("shared", has("sh"), true)?;
        expect("not expandable", has("de"), true)?;
        expect("may be written", has("mw"), writable)?;
        expect("may be executed", has("me"), false)
    })
}

/// The signal that ends a child which calls this.
fn fatal_signal(access: impl FnOnce()) -> Result<Signal> {
    let child = spawn("a child with an invalid access", || {
        access();
        Ok(())
    })?;
    match child.wait_end()? {
        WaitStatus::Signaled(_, signal, _) => Ok(signal),
        status => bail!("the access succeeded: {status:?}"),
    }
}

fn a_store_to_a_foreign_region_is_sigsegv(_: &Context) -> Result<()> {
    for_each_region(|_, region, writable| {
        if writable {
            return Ok(());
        }
        let last = region.len() - 1;
        for offset in [0, last] {
            let signal = fatal_signal(|| region.write(offset, &[1]))?;
            expect("signal", signal, Signal::SIGSEGV)?;
        }
        ensure!(region.is_zero(), "a byte was stored");
        Ok(())
    })
}

/// The addresses before and behind are reserved, so nothing else is mapped there.
fn an_access_beyond_a_region_is_sigsegv(_: &Context) -> Result<()> {
    for (_, end) in &ends()? {
        for (_, offset, len) in REGIONS {
            let reserved = Mapping::new(len / PAGE + 2)?;
            reserved.unmap_from(0)?;
            let start = reserved.start().wrapping_add(PAGE);
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let region = Region::map_at(start, end, offset, len, READ_ONLY, flags)?;
            let before = start.wrapping_sub(1);
            for address in [before, start.wrapping_add(len)] {
                let signal = fatal_signal(|| {
                    // SAFETY: reserved addresses of ours: the access ends this child.
                    unsafe { address.read_volatile() };
                })?;
                expect("signal", signal, Signal::SIGSEGV)?;
            }
            ensure!(region.is_zero(), "the region itself is accessible");
            // It is unmapped with its surroundings.
            std::mem::forget(region);
        }
    }
    Ok(())
}

fn a_part_of_a_mapping_can_be_unmapped(_: &Context) -> Result<()> {
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    let bytes = stream_bytes(1, 0, CAPACITY);
    producer.publish(&bytes);
    let hole = consumer.data.at(PAGE);
    // SAFETY: a page of our own mapping, which is accessed only by the child that ends by it.
    Errno::result(unsafe { libc::munmap(hole.cast(), PAGE) }).context("unmapping a page")?;
    let signal = fatal_signal(|| {
        consumer.data.read(PAGE, 1);
    })?;
    expect("signal in the hole", signal, Signal::SIGSEGV)?;
    expect_bytes("before it", &consumer.data.read(0, PAGE), &bytes[..PAGE])?;
    let behind = consumer.data.read(2 * PAGE, 2 * PAGE);
    expect_bytes("behind it", &behind, &bytes)?;
    let rest = consumer.data.at(2 * PAGE);
    // SAFETY: the rest of our own mapping.
    let protected = unsafe { libc::mprotect(rest.cast(), PAGE, READ_WRITE) };
    expect("the rest", Errno::result(protected), Err(Errno::EACCES))
}

fn a_forked_child_has_the_same_protection(_: &Context) -> Result<()> {
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    let child = spawn("a child", || {
        expect(
            "data",
            consumer.data.protect(READ_WRITE),
            Err(Errno::EACCES),
        )?;
        let page = consumer.peer.0.protect(READ_WRITE);
        expect("the producer's page", page, Err(Errno::EACCES))?;
        // What is writable is shared with the parent.
        producer.publish(b"by the child");
        Ok(())
    })?;
    child.finish()?;
    expect_bytes("data", &consumer.data.read(0, 12), b"by the child")?;
    let signal = fatal_signal(|| consumer.data.write(0, b"x"))?;
    expect("signal", signal, Signal::SIGSEGV)
}

fn a_forked_mapping_holds_the_role(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let end = Event::new()?;
    let producer = rings.side(NAME, Role::Producer)?;
    // It has no descriptor, but all mappings.
    let child = spawn_keeping("a child", &end.fds(), || {
        end.wait("the end of the test")?;
        Ok(())
    })?;
    let consumer = rings.side(NAME, Role::Consumer)?;
    drop(producer);
    expect("the producer", info(&consumer)?.producer, ROLE_TAKEN)?;
    expect("closed", consumer.peer.closed(), 0)?;
    end.notify()?;
    child.finish()?;
    expect("closed after the child", consumer.peer.closed(), DIED)
}

fn system_calls_cannot_write_to_a_foreign_region(_: &Context) -> Result<()> {
    let memory = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/proc/self/mem")
        .context("opening /proc/self/mem")?;
    let zeros = OpenOptions::new().read(true).open("/dev/zero")?;
    for_each_region(|_, region, writable| {
        for address in [region.start(), region.at(region.len() - 8)] {
            let remote = [RemoteIoVec {
                base: address as usize,
                len: 8,
            }];
            let mut seen = [1; 8];
            let count = process_vm_readv(Pid::this(), &mut [IoSliceMut::new(&mut seen)], &remote);
            expect("process_vm_readv", count, Ok(8))?;
            expect("what it reads", seen, [0; 8])?;
            if writable {
                continue;
            }
            let stolen = process_vm_writev(Pid::this(), &[IoSlice::new(b"8 bytes.")], &remote);
            expect("process_vm_writev", stolen, Err(Errno::EFAULT))?;
            let stolen = memory.write_at(b"8 bytes.", address as u64);
            let errno = stolen.map_err(|error| error.raw_os_error());
            expect("/proc/self/mem", errno, Err(Some(libc::EIO)))?;
            expect("read(2)", read_at(&zeros, address, 8), Err(Errno::EFAULT))?;
        }
        ensure!(region.is_zero(), "a byte was stored");
        Ok(())
    })
}

/// ptrace(2) without an address that the kernel writes to.
fn trace(request: libc::c_uint, pid: Pid, address: *mut u8, word: usize) -> nix::Result<()> {
    // SAFETY: these requests access only the memory of the traced process.
    let ret = unsafe { libc::ptrace(request, pid.as_raw(), address, word) };
    Errno::result(ret).map(drop)
}

fn a_debugger_cannot_write_to_a_foreign_region(_: &Context) -> Result<()> {
    const SELF: Pid = Pid::from_raw(0);
    let null = ptr::null_mut();
    for_each_region(|_, region, writable| {
        if writable {
            expect("protection", region.protect(READ_WRITE), Ok(()))?;
        }
        let before = region.read(0, 8);
        let child = spawn("a traced child", || {
            trace(libc::PTRACE_TRACEME, SELF, null, 0).context("PTRACE_TRACEME")?;
            raise(Signal::SIGSTOP).context("stopping")?;
            Ok(region.read(0, 8))
        })?;
        let pid = child.pid();
        waitpid(pid, Some(WaitPidFlag::WUNTRACED)).context("waiting for the stop")?;
        let stolen = trace(libc::PTRACE_POKEDATA, pid, region.start(), 77);
        let (expected, word) = if writable {
            (Ok(()), 77_u64.to_ne_bytes().to_vec())
        } else {
            (Err(Errno::EIO), before)
        };
        expect("PTRACE_POKEDATA", stolen, expected)?;
        trace(libc::PTRACE_DETACH, pid, null, 0).context("PTRACE_DETACH")?;
        expect("the word", child.finish()?, word)
    })
}

fn userfaultfd_is_refused(_: &Context) -> Result<()> {
    let expect_refused = |watched: Result<()>| {
        let errno = watched.map_err(|error| error.downcast_ref::<Errno>().copied());
        expect("registering it", errno, Err(Some(Errno::EINVAL)))
    };
    for_each_region(|_, region, _| {
        expect_refused(UserFault::open()?.watch(region.start(), region.len()))?;
        match UserFault::for_recording_writes()? {
            Some(faults) => expect_refused(faults.watch_writes(region.start(), region.len())),
            None => Ok(()),
        }
    })
}

/// Uses rings until pages that were freed before would have been allocated again, and fills them with 0xee.
fn use_other_rings() -> Result<()> {
    let rings = Rings::new()?;
    for round in 0..64 {
        let (producer, consumer) = rings.sides(&format!("other-{round}"))?;
        for region in [&producer.data, &producer.own.0, &consumer.own.0] {
            ensure!(region.is_zero(), "another ring has a page of the first");
            region.write(0, &vec![0xee; region.len()]);
        }
    }
    Ok(())
}

fn a_spliced_page_is_not_given_to_another_ring(_: &Context) -> Result<()> {
    let (out, into) = pipe2(OFlag::O_CLOEXEC).context("pipe2")?;
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    let bytes = stream_bytes(1, 0, CAPACITY);
    producer.publish(&bytes);
    // SAFETY: shared memory that nothing stores to meanwhile.
    let data = unsafe { std::slice::from_raw_parts(consumer.data.start(), CAPACITY) };
    let spliced = vmsplice(&into, &[IoSlice::new(data)], SpliceFFlags::empty());
    expect("vmsplice", spliced, Ok(CAPACITY))?;
    drop((producer, consumer));
    expect_no_objects()?;
    use_other_rings()?;
    let mut kept = vec![0; CAPACITY];
    expect("a read of the pipe", read(&out, &mut kept), Ok(CAPACITY))?;
    expect_bytes("the pages in the pipe", &kept, &bytes)
}

/// An io_uring whose only registered buffer is this memory. Skips the test if the kernel registers anonymous memory
/// only.
fn register(start: *mut u8, len: usize) -> Result<nix::Result<Uring>> {
    let uring = Uring::new()?;
    match uring.register(start, len) {
        Err(Errno::EOPNOTSUPP) => Err(skip(
            "this kernel registers no mapping of a file as a buffer (before 6.5)",
        )),
        registered => Ok(registered.map(|()| uring)),
    }
}

fn a_registered_buffer_is_not_given_to_another_ring(_: &Context) -> Result<()> {
    let (out, into) = pipe2(OFlag::O_CLOEXEC).context("pipe2")?;
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    let bytes = stream_bytes(1, 0, CAPACITY);
    producer.publish(&bytes);
    let (start, len) = (producer.data.start(), CAPACITY as u32);
    let mut uring = register(start, CAPACITY)?.context("registering the data")?;
    drop((producer, consumer));
    expect_no_objects()?;
    use_other_rings()?;

    let to_pipe = opcode::WriteFixed::new(number(&into), start, len, 0);
    uring.submit(to_pipe.build(), REQUEST)?;
    let written = uring.result(REQUEST)?;
    expect("bytes from the buffer", written, Ok(CAPACITY as i32))?;
    let mut kept = vec![0; CAPACITY];
    expect("a read of the pipe", read(&out, &mut kept), Ok(CAPACITY))?;
    expect_bytes("the registered pages", &kept, &bytes)?;

    let (_producer, other) = Rings::new()?.sides("other")?;
    expect("bytes for the buffer", write(&into, &bytes), Ok(CAPACITY))?;
    let from_pipe = opcode::ReadFixed::new(number(&out), start, len, 0);
    uring.submit(from_pipe.build(), REQUEST)?;
    let read = uring.result(REQUEST)?;
    expect("bytes to the buffer", read, Ok(CAPACITY as i32))?;
    ensure!(
        other.data.is_zero(),
        "another ring has the registered pages"
    );
    Ok(())
}

fn a_foreign_region_cannot_be_registered_as_a_buffer(_: &Context) -> Result<()> {
    for_each_region(|_, region, writable| {
        if writable {
            expect("protection", region.protect(READ_WRITE), Ok(()))?;
        }
        let registered = register(region.start(), region.len())?.map(drop);
        let expected = if writable { Ok(()) } else { Err(Errno::EFAULT) };
        expect("registering it", registered, expected)
    })
}

fn a_mapping_outlives_its_descriptor(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for last in 0..3 {
        let (producer, consumer) = rings.sides(NAME)?;
        let Side {
            end,
            own,
            peer,
            data,
        } = producer;
        drop(end);
        own.pos().store(9, Ordering::Relaxed);
        data.write(0, b"published");
        expect("the role", info(&consumer)?.producer, ROLE_TAKEN)?;
        let mut regions = vec![own.0, peer.0, data];
        let kept = regions.swap_remove(last);
        drop(regions);
        expect("with one region", info(&consumer)?.producer, ROLE_TAKEN)?;
        expect("closed", consumer.peer.closed(), 0)?;
        drop(kept);
        expect("closed without regions", consumer.peer.closed(), DIED)?;
        expect_bytes("data", &consumer.data.read(0, 9), b"published")?;
    }
    Ok(())
}

fn a_mapping_outlives_the_name_and_the_peer(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let (producer, consumer) = rings.sides(NAME)?;
    producer.publish(b"published");
    rings.unlink(NAME).context("unlinking")?;
    drop(producer);
    let data = consumer.data;
    drop((consumer.end, consumer.own, consumer.peer));
    use_other_rings()?;
    expect_bytes("data", &data.read(CAPACITY, 9), b"published")?;
    expect(
        "dropped page tables",
        data.advise(libc::MADV_DONTNEED),
        Ok(()),
    )?;
    expect_bytes("data again", &data.read(0, 9), b"published")?;
    drop(data);
    expect_no_objects()
}

fn a_mapping_stays_after_detach(_: &Context) -> Result<()> {
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    detach(&producer).context("detaching the producer")?;
    producer.publish(b"published");
    expect_bytes("data", &consumer.data.read(0, 9), b"published")?;
    detach(&consumer).context("detaching the consumer")?;
    use_other_rings()?;
    producer.data.write(0, b"later....");
    expect(
        "page tables",
        consumer.data.advise(libc::MADV_DONTNEED),
        Ok(()),
    )?;
    expect_bytes("data", &consumer.data.read(CAPACITY, 9), b"later....")
}

fn a_mapping_keeps_the_module_loaded(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let side = rings.side(NAME, Role::Consumer)?;
    rings.unlink(NAME).context("unlinking")?;
    let data = side.data;
    drop((side.end, side.own, side.peer, rings));
    expect_module_in_use()?;
    expect("a byte", data.read(0, 1), vec![0])
}
