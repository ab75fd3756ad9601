// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ring packs bytes into its pages and reuses the pages.

use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result};
use nix::unistd::{read, write};

use crate::registry::{Context, topic};
use crate::support::channel::{CAPACITY, read_all, set_nonblocking, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::ctl::{Ctl, OWN};
use crate::support::ioctl;
use crate::support::memory::PAGE;
use crate::support::random::stream_bytes;
use crate::support::vfs_pipe::{move_all, pipe};

topic!(
    "page_reuse",
    fifo: [],
    pipe_only: [
        one_byte_writes_share_a_page,
        no_page_is_allocated_before_the_first_write,
        a_million_messages_allocate_no_page,
        repeated_splices_out_allocate_no_page,
        repeated_splices_in_allocate_no_page,
        a_drained_persistent_pipe_without_endpoints_has_no_pages,
    ],
);

fn one_byte_writes_share_a_page(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    for _ in 0..PAGE {
        expect("a write of one byte", write(&both, b"x"), Ok(1))?;
    }
    expect("bytes", ioctl::info(&both)?.bytes, PAGE as u64)?;
    expect("pages", ioctl::info(&both)?.pages_allocated, 1)
}

fn no_page_is_allocated_before_the_first_write(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    expect("pages", ioctl::info(&both)?.pages_allocated, 0)
}

fn a_million_messages_allocate_no_page(context: &Context) -> Result<()> {
    const MESSAGES: usize = 1_000_000;
    const BATCH: usize = 100;
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    // One lap around the ring, so that each slot has a page.
    for _ in 0..CAPACITY / PAGE {
        expect("a warm-up write", write(&both, &[0; PAGE]), Ok(PAGE))?;
        expect("a warm-up read", read(&both, &mut [0; PAGE]), Ok(PAGE))?;
    }
    let before = ioctl::info(&both)?.pages_allocated;
    expect("pages after the warm-up", before, (CAPACITY / PAGE) as u64)?;
    let mut taken = [0u8; 16 * BATCH];
    for batch in 0..MESSAGES / BATCH {
        for _ in 0..BATCH {
            expect("a message", write(&both, &[batch as u8; 16]), Ok(16))?;
        }
        expect("a batch", read(&both, &mut taken), Ok(taken.len()))?;
    }
    expect(
        "pages after a million messages",
        ioctl::info(&both)?.pages_allocated,
        before,
    )
}

/// Moves many laps of bytes through the pipe; `[from, to]` are the two files of the splice.
fn expect_no_page_after_the_first_lap(
    both: &OwnedFd,
    writer: &OwnedFd,
    [from, to]: [&OwnedFd; 2],
    reader: &OwnedFd,
) -> Result<()> {
    for lap in 0..20 {
        let bytes = stream_bytes(lap, 0, CAPACITY);
        for piece in bytes.chunks(4 * PAGE) {
            write_all(writer, piece)?;
            move_all(from, to, piece.len())?;
            expect_bytes("a piece", &read_all(reader, piece.len())?, piece)?;
        }
        expect(
            &format!("pages after lap {lap}"),
            ioctl::info(both)?.pages_allocated,
            (CAPACITY / PAGE) as u64,
        )?;
    }
    Ok(())
}

/// A page that was spliced out and read is reused in the next lap.
fn repeated_splices_out_allocate_no_page(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let (out, into) = pipe()?;
    expect_no_page_after_the_first_lap(&both, &both, [&both, &into], &out)
}

/// The pipe's own page of a slot stays there while a spliced-in page is in front of it.
fn repeated_splices_in_allocate_no_page(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let (out, into) = pipe()?;
    expect_no_page_after_the_first_lap(&both, &into, [&out, &both], &both)
}

fn a_drained_persistent_pipe_without_endpoints_has_no_pages(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    ctl.persist(OWN, "kept").context("creating")?;
    let content = stream_bytes(1, 0, CAPACITY);
    let pages = (CAPACITY / PAGE) as u64;
    for round in 1..=3 {
        let both = ctl.attach(OWN, "kept").context("opening")?;
        write_all(&both, &content)?;
        expect("pages", ioctl::info(&both)?.pages_allocated, round * pages)?;
        read_all(&both, CAPACITY)?;
    }
    // Bytes that nobody has read stay.
    let both = ctl.attach(OWN, "kept").context("opening")?;
    write_all(&both, &content[..PAGE + 1])?;
    drop(both);
    let both = ctl.attach(OWN, "kept").context("opening")?;
    expect_bytes(
        "what stayed",
        &read_all(&both, PAGE + 1)?,
        &content[..PAGE + 1],
    )?;
    ctl.unlink(OWN, "kept").context("unlinking")
}
