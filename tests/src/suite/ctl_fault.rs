// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures in memory that is unmapped, read-only or slow to fault in.

use std::ptr;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::libc;

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn;
use crate::support::ctl::{ChannelInfo, Ctl, LIST, List, OWN};
use crate::support::fault_blocked::{FaultBlocked, spawn_fault_blocked};
use crate::support::ioctl::raw;
use crate::support::memory::{GuardedBuffer, Mapping, PAGE};
use crate::support::requests::{Entries, SIZE_AT, requests};

topic!(
    "ctl_fault",
    fifo: [],
    pipe_only: [
        an_oversized_structure_is_rejected,
        a_bad_pointer_is_efault,
        a_structure_that_extends_into_bad_memory_is_efault,
        results_into_read_only_memory_are_efault,
        list_entries_into_bad_memory_are_efault,
        input_structures_may_be_in_read_only_memory,
        a_page_fault_on_input_blocks_no_other_call,
        a_page_fault_on_output_blocks_no_other_call,
    ],
);

fn an_oversized_structure_is_rejected(_: &Context) -> Result<()> {
    let (ctl, entries) = (Ctl::new()?, Entries::new()?);
    let _end = ctl.create("channel")?;
    for request in requests(&entries) {
        for size in [1 << 31, u32::MAX] {
            let mut bytes = request.with_word(SIZE_AT, size);
            bytes.resize(PAGE, 0);
            let mut edge = GuardedBuffer::new(PAGE)?;
            edge.fill_from(&bytes);
            let seen = request.send_at(&ctl, edge.start());
            let refused = matches!(seen, Err(Errno::EINVAL | Errno::E2BIG | Errno::EFAULT));
            expect(
                &format!("{} of {size} bytes: {seen:?}: rejected", request.what),
                refused,
                true,
            )?;
        }
    }
    Ok(())
}

fn a_bad_pointer_is_efault(_: &Context) -> Result<()> {
    let (ctl, entries) = (Ctl::new()?, Entries::new()?);
    let bad = GuardedBuffer::new(0)?;
    let kernels = 0xffff_8880_0000_0000_usize as *mut u8;
    for request in requests(&entries) {
        for start in [ptr::null_mut(), bad.start(), kernels, usize::MAX as *mut u8] {
            let what = format!("{} at {start:?}", request.what);
            expect(&what, request.send_at(&ctl, start), Err(Errno::EFAULT))?;
        }
    }
    Ok(())
}

fn a_structure_that_extends_into_bad_memory_is_efault(_: &Context) -> Result<()> {
    let (ctl, entries) = (Ctl::new()?, Entries::new()?);
    let _end = ctl.create("channel")?;
    for request in requests(&entries) {
        for good in 0..request.bytes.len() {
            let mut edge = GuardedBuffer::new(good)?;
            edge.fill_from(&request.bytes[..good]);
            let what = format!("{} of which {good} bytes are there", request.what);
            expect(
                &what,
                request.send_at(&ctl, edge.start()),
                Err(Errno::EFAULT),
            )?;
        }
        // Memory is valid up to the edge.
        let mut edge = GuardedBuffer::new(request.bytes.len())?;
        edge.fill_from(&request.bytes);
        expect(request.what, request.send_at(&ctl, edge.start()), Ok(()))?;
    }
    Ok(())
}

/// A read-only page that starts with these bytes.
fn read_only(bytes: &[u8]) -> Result<Mapping> {
    let page = Mapping::new(1)?;
    // SAFETY: our own mapping, larger than any structure.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), page.start(), bytes.len()) };
    // SAFETY: our own mapping, to which no Rust reference exists.
    let ret = unsafe { libc::mprotect(page.start().cast(), PAGE, libc::PROT_READ) };
    Errno::result(ret).context("protecting a page")?;
    Ok(page)
}

fn results_into_read_only_memory_are_efault(_: &Context) -> Result<()> {
    let (ctl, entries) = (Ctl::new()?, Entries::new()?);
    let _end = ctl.create("channel")?;
    for request in requests(&entries).iter().filter(|request| request.answers) {
        let page = read_only(&request.bytes)?;
        expect(
            request.what,
            request.send_at(&ctl, page.start()),
            Err(Errno::EFAULT),
        )?;
    }
    Ok(())
}

fn list_entries_into_bad_memory_are_efault(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let _ends = (ctl.create("a")?, ctl.create("b")?);
    let shut = read_only(&[])?;
    let edge = GuardedBuffer::new(2 * size_of::<ChannelInfo>() - 1)?;
    for (what, start) in [
        ("nowhere", ptr::null_mut()),
        ("read-only", shut.start()),
        ("too little", edge.start()),
        ("at the last address", usize::MAX as *mut u8),
    ] {
        let mut list = List::new(OWN, start.cast(), 2);
        expect(
            &format!("a list into {what}"),
            raw(&ctl, LIST, &mut list),
            Err(Errno::EFAULT),
        )?;
    }
    let mut list = List::new(OWN, edge.start().cast(), 1);
    expect("one entry", raw(&ctl, LIST, &mut list), Ok(()))
}

fn input_structures_may_be_in_read_only_memory(_: &Context) -> Result<()> {
    let (ctl, entries) = (Ctl::new()?, Entries::new()?);
    let _end = ctl.create("channel")?;
    for request in requests(&entries).iter().filter(|request| !request.answers) {
        let page = read_only(&request.bytes)?;
        expect(request.what, request.send_at(&ctl, page.start()), Ok(()))?;
        expect_bytes(
            request.what,
            &request.bytes,
            &bytes_at(&page, request.bytes.len()),
        )?;
    }
    Ok(())
}

fn bytes_at(page: &Mapping, count: usize) -> Vec<u8> {
    // SAFETY: our own readable memory, which is not written meanwhile.
    unsafe { std::slice::from_raw_parts(page.start(), count) }.to_vec()
}

/// While one process is blocked in a page fault, all calls of other processes in the same scope succeed.
fn expect_undelayed(blocked: FaultBlocked<Result<(), i32>>) -> Result<Result<(), i32>> {
    let others = spawn("other calls", || {
        let (ctl, entries) = (Ctl::new()?, Entries::new()?);
        for request in requests(&entries) {
            request.send(&ctl, &request.bytes).context(request.what)?;
        }
        let _end = ctl.create("channel").context("a new one")?;
        Ok(())
    })?;
    others.finish()?;
    blocked.expect_still_blocked()?;
    blocked.resume()
}

/// The content of the faulted-in page is not a valid structure: its size is invalid.
fn a_page_fault_on_input_blocks_no_other_call(_: &Context) -> Result<()> {
    for turn in 0..5 {
        let ctl = Ctl::new()?;
        let _end = ctl.create("channel").context("creating a channel")?;
        let blocked = spawn_fault_blocked("a call with a faulting structure", 0, |slow| {
            let (ctl, entries) = (Ctl::new()?, Entries::new()?);
            let request = &requests(&entries)[turn];
            Ok(request
                .send_at(&ctl, slow.start())
                .map_err(|errno| errno as i32))
        })?;
        let seen = expect_undelayed(blocked)?;
        let refused = [Errno::EINVAL, Errno::E2BIG, Errno::EFAULT].map(|errno| Err(errno as i32));
        expect(
            &format!("call {turn}: {seen:?}: rejected"),
            refused.contains(&seen),
            true,
        )?;
    }
    Ok(())
}

fn a_page_fault_on_output_blocks_no_other_call(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let _end = ctl.create("channel").context("creating a channel")?;
    let list = spawn_fault_blocked("a list into faulting memory", 0, |slow| {
        let ctl = Ctl::new()?;
        let mut list = List::new(OWN, slow.start().cast(), 2);
        Ok(raw(&ctl, LIST, &mut list).map_err(|errno| errno as i32))
    })?;
    expect("the list", expect_undelayed(list)?, Ok(()))
}
