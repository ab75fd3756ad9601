// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the ring uses its pages: packed, and again and again.

use anyhow::Result;
use nix::unistd::{read, write};

use crate::registry::{Context, topic};
use crate::support::channel::{CAPACITY, set_nonblocking};
use crate::support::check::expect;
use crate::support::ioctl;
use crate::support::memory::PAGE;

topic!(
    "pages",
    fifo: [],
    pipe_only: [
        a_page_of_one_byte_writes_uses_one_page,
        no_page_is_allocated_before_the_first_write,
        a_million_messages_allocate_no_page,
    ],
);

fn a_page_of_one_byte_writes_uses_one_page(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    for _ in 0..PAGE {
        expect("a write of one byte", write(&both, b"x"), Ok(1))?;
    }
    expect("bytes", ioctl::info(&both)?.bytes, PAGE as u64)?;
    expect("pages", ioctl::info(&both)?.pages_allocated, 1)
}

fn no_page_is_allocated_before_the_first_write(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    expect("pages", ioctl::info(&both)?.pages_allocated, 0)
}

fn a_million_messages_allocate_no_page(context: &Context) -> Result<()> {
    const MESSAGES: usize = 1_000_000;
    const BATCH: usize = 100;
    let both = context.channel.open_both_ways()?;
    set_nonblocking(&both)?;
    // Once around the ring: each slot has had its page.
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
