// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mappings of every kind that are cut, moved, protected, advised, forked and passed on while the kernel writes to what
//! they show.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::libc;
use sluice_abi::bus::{self as bus_abi};
use sluice_abi::feed::Start;
use sluice_abi::map::{MAPPED, MMAP_TABLE, Params};
use sluice_abi::ring::MMAP_DATA;

use crate::registry::{Context, topic};
use crate::support::bus::{self, Buses, mappable};
use crate::support::channel::set_nonblocking;
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn_keeping;
use crate::support::fd_passing::{receive_fd, send_fd, socket_pair};
use crate::support::feed;
use crate::support::kernel::expect_no_objects;
use crate::support::map::{Maps, get, put};
use crate::support::memory::{Mapping, PAGE};
use crate::support::ring::{Ctrl, READ_ONLY, READ_WRITE, Region, Rings, Role, Side};

topic!(
    "hostile_mappings",
    fifo: [],
    pipe_only: [
        a_cut_mapping_delays_nobody_and_keeps_its_other_pages,
        no_advice_changes_what_a_mapping_shows,
        a_mapping_neither_grows_nor_is_duplicated,
        a_moved_mapping_shows_the_same,
        a_protected_mapping_stops_no_writer,
        a_forked_child_shows_the_same_and_keeps_nothing,
        a_passed_file_is_mapped_by_another_process,
    ],
);

/// An object of which a region is mapped, and a call by which the kernel or a peer goes on writing to it.
struct Shown {
    name: &'static str,
    end: OwnedFd,
    offset: u64,
    region: Region,
    advance: Box<dyn Fn() -> Result<()> + Sync>,
    /// Whether that leaves the first 64 bytes of the region as they are.
    is_still: bool,
}

const PAGES: usize = 16;
const LENGTH: usize = PAGES * PAGE;

fn ring() -> Result<Shown> {
    let rings = Rings::new()?;
    let (producer, consumer) = rings.sides("ring")?;
    let Side { end, data, .. } = consumer;
    producer.publish(&[7; PAGE]);
    Ok(Shown {
        name: "a ring",
        end,
        offset: MMAP_DATA,
        region: data,
        // The module does not read records. This one is in the second page.
        advance: Box::new(move || {
            let number = producer.own.wake_seq().load(Ordering::Relaxed);
            producer.data.write(PAGE, &number.to_ne_bytes());
            Ok(producer.notify()?)
        }),
        is_still: true,
    })
}

fn bus() -> Result<Shown> {
    let buses = Buses::new()?;
    let sender = buses.create_sized(mappable(), LENGTH)?;
    let end = buses.subscribe(bus::Params {
        policy: bus_abi::BLOCK,
        flags: bus_abi::MAPPED,
        ..bus::Params::default()
    })?;
    bus::send(&sender, &[7; 1000])?;
    let region = Region::map(&end, bus_abi::MMAP_DATA, 2 * LENGTH, READ_ONLY)?;
    let (mapped, other) = (end.try_clone()?, buses.subscribe(bus::framed(0))?);
    let released = AtomicU64::new(0);
    Ok(Shown {
        name: "a bus",
        end,
        offset: bus_abi::MMAP_DATA,
        region,
        advance: Box::new(move || {
            let _ = &buses;
            bus::send(&sender, &[7; 1000])?;
            bus::receive_framed(&other)?.context("no message")?;
            // Releases what the call before this one has received.
            let entries = bus::receive_mapped(&mapped, released.load(Ordering::Relaxed), 8)?;
            let last = entries.last().context("no entry")?;
            released.store(last.sequence + 1, Ordering::Relaxed);
            Ok(())
        }),
        is_still: false,
    })
}

fn map() -> Result<Shown> {
    let maps = Maps::new()?;
    let params = Params {
        flags: MAPPED,
        table: LENGTH as u64,
        cell: 128,
        ..Params::default()
    };
    let end = maps.create_with(params, 1 << 20)?;
    put(&end, b"key", b"value")?;
    let region = Region::map(&end, MMAP_TABLE, LENGTH, READ_ONLY)?;
    let writer = maps.attach()?;
    Ok(Shown {
        name: "a map",
        end,
        offset: MMAP_TABLE,
        region,
        advance: Box::new(move || {
            let _ = &maps;
            put(&writer, b"other", b"value")?;
            expect("the entry", get(&writer, b"key"), Ok(b"value".to_vec()))
        }),
        is_still: true,
    })
}

fn feed() -> Result<Shown> {
    let end = feed::open_node()?;
    set_nonblocking(&end)?;
    let capacity = feed::info(&end)?.capacity as usize;
    let region = Region::map(&end, MMAP_DATA, 2 * capacity, READ_ONLY)?;
    let own = Ctrl(Region::ctrl(&end, Role::Consumer, READ_WRITE)?);
    let publisher = Ctrl(Region::ctrl(&end, Role::Producer, READ_ONLY)?);
    feed::start(&end, Start::new(100_000, 0, 1000))?;
    Ok(Shown {
        name: "a feed",
        end,
        offset: MMAP_DATA,
        region,
        // A timer publishes packets, of which all are released.
        advance: Box::new(move || {
            let published = publisher.pos().load(Ordering::Acquire);
            own.pos().store(published, Ordering::Release);
            Ok(())
        }),
        is_still: false,
    })
}

fn for_each(body: impl Fn(&mut Shown) -> Result<()>) -> Result<()> {
    for make in [ring, bus, map, feed] {
        let mut shown = make()?;
        let name = shown.name;
        (shown.advance)().with_context(|| name)?;
        body(&mut shown).with_context(|| name)?;
        for _ in 0..10 {
            (shown.advance)().with_context(|| format!("{name}, afterwards"))?;
        }
    }
    expect_no_objects()
}

/// Runs `body` while another thread makes the kernel write to the object. First that thread has written once: a thread
/// that begins maps memory for itself, which may take the place of a page that `body` has unmapped.
fn while_advancing(shown: &Shown, body: impl FnOnce() -> Result<()>) -> Result<()> {
    let (begun, done) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let advancing = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let advanced = (shown.advance)();
                begun.store(true, Ordering::Relaxed);
                advanced?;
            }
            anyhow::Ok(())
        });
        while !begun.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        let result = body();
        done.store(true, Ordering::Relaxed);
        advancing.join().expect("the thread does not panic")?;
        result
    })
}

/// The first 64 bytes of the region.
fn first(region: &Region) -> Vec<u8> {
    region.read(0, 64)
}

fn unmap(region: &Region, page: usize) -> Result<()> {
    let start = region.start().wrapping_add(page * PAGE).cast();
    // SAFETY: a page of our own mapping, to which no reference exists, and which is not used again.
    Errno::result(unsafe { libc::munmap(start, PAGE) }).context("unmapping a page")?;
    Ok(())
}

fn is_mapped(region: &Region, page: usize) -> bool {
    let mut vector = 0_u8;
    let start = region.start().wrapping_add(page * PAGE).cast();
    // SAFETY: mincore() writes one byte for one page.
    unsafe { libc::mincore(start, PAGE, &raw mut vector) == 0 }
}

fn a_cut_mapping_delays_nobody_and_keeps_its_other_pages(_: &Context) -> Result<()> {
    for_each(|shown| {
        let pages = shown.region.len() / PAGE;
        let before = first(&shown.region);
        let cuts = [pages / 2, pages - 1, 1];
        while_advancing(shown, || {
            for (number, page) in cuts.into_iter().enumerate() {
                unmap(&shown.region, page)?;
                expect("the page is mapped", is_mapped(&shown.region, page), false)?;
                ensure!(
                    is_mapped(&shown.region, 0),
                    "cut {number}: the first page is gone"
                );
            }
            Ok(())
        })?;
        if shown.is_still {
            expect_bytes("its first page", &first(&shown.region), &before)?;
        }
        // Another mapping of the same region is whole.
        let again = Region::map(&shown.end, shown.offset, shown.region.len(), READ_ONLY);
        match again {
            Ok(again) => {
                for page in cuts {
                    again.read(page * PAGE, 64);
                }
                Ok(())
            }
            Err(error) => Err(error).context("mapping it again"),
        }
    })
}

fn no_advice_changes_what_a_mapping_shows(_: &Context) -> Result<()> {
    const COLD: i32 = 20;
    const PAGEOUT: i32 = 21;
    const POPULATE_READ: i32 = 22;
    const POPULATE_WRITE: i32 = 23;
    for_each(|shown| {
        for advice in [
            libc::MADV_DONTNEED,
            libc::MADV_REMOVE,
            libc::MADV_FREE,
            libc::MADV_WIPEONFORK,
            libc::MADV_MERGEABLE,
            libc::MADV_HUGEPAGE,
            libc::MADV_NOHUGEPAGE,
            libc::MADV_DONTFORK,
            libc::MADV_DOFORK,
            libc::MADV_DONTDUMP,
            libc::MADV_DODUMP,
            libc::MADV_WILLNEED,
            COLD,
            PAGEOUT,
            POPULATE_READ,
            POPULATE_WRITE,
        ] {
            // Between two calls of `advance` only the timer of a feed writes.
            let is_still = shown.name != "a feed";
            let before = shown.region.read(0, LENGTH.min(shown.region.len()));
            let advised = shown.region.advise(advice);
            let after = shown.region.read(0, LENGTH.min(shown.region.len()));
            if is_still {
                expect_bytes(
                    &format!("after advice {advice} ({advised:?})"),
                    &after,
                    &before,
                )?;
            }
            let destroys = [libc::MADV_REMOVE, libc::MADV_FREE, libc::MADV_WIPEONFORK];
            if destroys.contains(&advice) {
                ensure!(advised.is_err(), "advice {advice} is taken");
            }
            while_advancing(shown, || {
                // Kernels know different ones.
                let _ = shown.region.advise(advice);
                Ok(())
            })?;
        }
        Ok(())
    })
}

fn remap(
    region: &Region,
    from: usize,
    to: usize,
    flags: i32,
    target: *mut u8,
) -> nix::Result<*mut u8> {
    // SAFETY: our own mapping; the kernel refuses it, or it is not used at its old place again.
    let moved = unsafe { libc::mremap(region.start().cast(), from, to, flags, target) };
    match moved {
        libc::MAP_FAILED => Err(Errno::last()),
        moved => Ok(moved.cast()),
    }
}

fn a_mapping_neither_grows_nor_is_duplicated(_: &Context) -> Result<()> {
    for_each(|shown| {
        let (region, length) = (&shown.region, shown.region.len());
        while_advancing(shown, || {
            for (what, from, to) in [
                ("growing", length, length + PAGE),
                ("duplicating", 0, length),
            ] {
                let result = remap(region, from, to, libc::MREMAP_MAYMOVE, std::ptr::null_mut());
                let result = result.map(drop);
                ensure!(
                    matches!(result, Err(Errno::EFAULT | Errno::EINVAL)),
                    "{what}: {result:?}"
                );
            }
            Ok(())
        })
    })
}

fn a_moved_mapping_shows_the_same(_: &Context) -> Result<()> {
    for_each(|shown| {
        let length = shown.region.len();
        let target = Mapping::new(length / PAGE)?;
        let before = first(&shown.region);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let mut moved = Err(Errno::EINVAL);
        while_advancing(shown, || {
            moved = remap(&shown.region, length, length, flags, target.start());
            Ok(())
        })?;
        let moved = moved.context("moving")?;
        // SAFETY: inside the moved mapping, which is readable; single bytes cannot tear.
        let after = |at| unsafe { moved.add(at).read_volatile() };
        let seen: Vec<u8> = (0..64).map(after).collect();
        if shown.is_still {
            expect_bytes("at its new place", &seen, &before)?;
        }
        for at in (0..length).step_by(PAGE) {
            after(at);
        }
        // Its old address must not be unmapped twice.
        let again = Region::map(&shown.end, shown.offset, length, READ_ONLY)?;
        std::mem::forget(std::mem::replace(&mut shown.region, again));
        Ok(())
    })
}

fn a_protected_mapping_stops_no_writer(_: &Context) -> Result<()> {
    for_each(|shown| {
        while_advancing(shown, || {
            for _ in 0..50 {
                shown.region.protect(libc::PROT_NONE)?;
                thread::yield_now();
                shown.region.protect(READ_ONLY)?;
                shown.region.read(0, 64);
            }
            for protection in [libc::PROT_WRITE, libc::PROT_READ | libc::PROT_EXEC] {
                let refused = shown.region.protect(protection);
                ensure!(
                    matches!(refused, Err(Errno::EACCES | Errno::EPERM)),
                    "{protection}: {refused:?}"
                );
            }
            Ok(())
        })
    })
}

fn a_forked_child_shows_the_same_and_keeps_nothing(_: &Context) -> Result<()> {
    for_each(|shown| {
        let before = first(&shown.region);
        for _ in 0..3 {
            let child = spawn_keeping("a child", &[], || {
                let pages = shown.region.len() / PAGE;
                (0..pages).for_each(|page| drop(shown.region.read(page * PAGE, 8)));
                Ok(first(&shown.region))
            })?;
            (shown.advance)()?;
            let seen = child.finish()?;
            if shown.is_still {
                expect_bytes("in the child", &seen, &before)?;
            }
        }
        Ok(())
    })
}

fn a_passed_file_is_mapped_by_another_process(_: &Context) -> Result<()> {
    for_each(|shown| {
        let (ours, theirs) = socket_pair()?;
        let (offset, length) = (shown.offset, shown.region.len());
        let before = first(&shown.region);
        let receiver = spawn_keeping("a receiver", &[theirs.as_fd()], || {
            let end = receive_fd(&theirs)?;
            let region = Region::map(&end, offset, length, READ_ONLY).context("mapping")?;
            drop(end);
            let pages = length / PAGE;
            (0..pages).for_each(|page| drop(region.read(page * PAGE, 8)));
            Ok(first(&region))
        })?;
        send_fd(&ours, shown.end.as_fd())?;
        (shown.advance)()?;
        let seen = receiver.finish()?;
        if shown.is_still {
            expect_bytes("in the receiver", &seen, &before)?;
        }
        Ok(())
    })
}
