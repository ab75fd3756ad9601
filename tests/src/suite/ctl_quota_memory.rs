// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which memory cgroup is charged for a channel, and what happens at its limit.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::sendfile::sendfile;
use nix::unistd::{read, write};

use crate::registry::{Context, topic};
use crate::support::channel::{CAPACITY, fill, read_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn_keeping;
use crate::support::ctl::{BOTH, CREATE, Ctl, EXCL, NONBLOCK, OWN, Open, PERSIST};
use crate::support::fd_passing;
use crate::support::ioctl::{self, SET_CAPACITY};
use crate::support::memcg::{
    Accounts, MemoryMax, SLACK, lock_memory, memory_current, set_memory_max,
};
use crate::support::memory::PAGE;
use crate::support::parameter::Parameter;
use crate::support::random::stream_bytes;
use crate::support::vfs_pipe::{move_all, move_bytes, pipe_of_capacity};

topic!(
    "ctl_quota_memory",
    fifo: [],
    pipe_only: [
        bytes_written_by_others_are_charged_to_the_creator,
        bytes_written_to_a_passed_endpoint_are_charged_to_the_creator,
        a_write_beyond_the_creators_memory_limit_is_enomem_without_oom_kill,
        a_write_by_others_beyond_the_creators_memory_limit_affects_neither,
        a_create_beyond_the_memory_limit_is_enomem_without_oom_kill,
        a_grow_beyond_the_memory_limit_is_enomem_and_changes_nothing,
        a_capacity_set_by_others_is_charged_to_the_creator,
        held_spliced_pages_are_charged_to_the_creator_up_to_twice_the_capacity,
        pages_spliced_in_are_charged_to_the_creator_as_written_ones,
        partial_reads_of_a_spliced_page_allocate_no_memory,
        a_splice_out_beyond_the_readers_memory_limit_is_enomem_without_oom_kill,
    ],
);

const MIB: u64 = 1 << 20;
/// Enough for the process and a few pipes.
const SMALL_LIMIT: u64 = 8 * MIB;

fn large(name: &str) -> Open {
    Open {
        capacity: MIB,
        ..Open::new(name, BOTH | CREATE | EXCL | NONBLOCK)
    }
}

/// A pipe of 1 MiB, created by a process in the creator's cgroup that has exited.
fn create_pipe(accounts: &Accounts) -> Result<OwnedFd> {
    let (ours, theirs) = fd_passing::socket_pair()?;
    let creation = spawn_keeping("the creator", &[theirs.as_fd()], || {
        accounts.creator.enter()?;
        let pipe = Ctl::new()?.open(large("channel"));
        fd_passing::send_fd(&theirs, pipe.context("creating the channel")?.as_fd())
    })?;
    let pipe = fd_passing::receive_fd(&ours)?;
    creation.finish()?;
    Ok(pipe)
}

/// Fills a pipe of 1 MiB in the other cgroup and checks that the creator's is charged.
fn expect_charged_to_creator(accounts: &Accounts, pipe: &OwnedFd) -> Result<()> {
    let [creator_growth, other_growth] = accounts.measure_growth(&[pipe.as_fd()], || {
        expect("bytes written", fill(pipe, b'x')?, MIB as usize)
    })?;
    ensure!(
        creator_growth >= MIB - SLACK,
        "the creator's cgroup grew by {creator_growth} bytes only"
    );
    ensure!(
        other_growth <= SLACK,
        "the other cgroup grew by {other_growth} bytes"
    );
    Ok(())
}

fn bytes_written_by_others_are_charged_to_the_creator(context: &Context) -> Result<()> {
    let accounts = Accounts::new(context)?;
    let creation = accounts.creator.spawn("the creator", || {
        let mut request = large("channel");
        request.flags |= PERSIST;
        Ctl::new()?
            .open(request)
            .map(drop)
            .context("creating the channel")
    })?;
    creation.finish()?;
    let directory = accounts.creator.directory()?;
    let pipe = Ctl::new()?.open(Open {
        scope_fd: directory.as_raw_fd(),
        ..Open::new("channel", BOTH | NONBLOCK)
    })?;
    let empty = memory_current(&accounts.creator)?;
    expect_charged_to_creator(&accounts, &pipe)?;
    drop(pipe);
    Ctl::new()?.unlink(directory.as_raw_fd(), "channel")?;
    accounts.expect_uncharged(empty)
}

fn bytes_written_to_a_passed_endpoint_are_charged_to_the_creator(context: &Context) -> Result<()> {
    let accounts = Accounts::new(context)?;
    let pipe = create_pipe(&accounts)?;
    expect_charged_to_creator(&accounts, &pipe)
}

/// Creates pipes and fills them until a write fails with ENOMEM; returns them. At the limit, an open could invoke the
/// OOM killer.
fn fill_memory(ctl: &Ctl) -> Result<Vec<OwnedFd>> {
    let create = |number| ctl.open(large(&format!("number-{number}")));
    let pipes = (0..SMALL_LIMIT / MIB).map(create);
    let pipes = pipes.collect::<nix::Result<Vec<_>>>();
    let pipes = pipes.context("creating channels")?;
    for pipe in &pipes {
        if let Err(error) = fill(pipe, b'x') {
            let errno = error.downcast_ref::<Errno>().copied();
            expect("errno of the failed write", errno, Some(Errno::ENOMEM))?;
            return Ok(pipes);
        }
    }
    bail!("{SMALL_LIMIT} bytes were written, and no write failed")
}

fn a_write_beyond_the_creators_memory_limit_is_enomem_without_oom_kill(
    context: &Context,
) -> Result<()> {
    let accounts = Accounts::new(context)?;
    let child = accounts.creator.spawn("the creator", || {
        let max = MemoryMax::open(&accounts.creator)?;
        max.set(SMALL_LIMIT)?;
        lock_memory()?;
        let ctl = Ctl::new()?;
        let mut pipes = fill_memory(&ctl)?;
        pipes.truncate(1);
        // The kernel may free the memory of the others later.
        max.set(2 * SMALL_LIMIT)?;
        let kept = read_all(&pipes[0], CAPACITY)?;
        expect("bytes written before", kept, vec![b'x'; CAPACITY])?;
        let again = ctl
            .open(large("again"))
            .context("creating one afterwards")?;
        expect("bytes that fit", fill(&again, b'z')?, MIB as usize)
    })?;
    child.finish()?;
    accounts.expect_no_kill()
}

/// The creator is blocked meanwhile.
fn a_write_by_others_beyond_the_creators_memory_limit_affects_neither(
    context: &Context,
) -> Result<()> {
    let accounts = Accounts::new(context)?;
    set_memory_max(&accounts.creator, SMALL_LIMIT)?;
    let (ours, theirs) = fd_passing::socket_pair()?;
    let creation = spawn_keeping("the creator", &[theirs.as_fd()], || {
        accounts.creator.enter()?;
        let pipe = Ctl::new()?.open(Open {
            capacity: 4 * SMALL_LIMIT,
            ..large("channel")
        });
        fd_passing::send_fd(&theirs, pipe.context("creating the channel")?.as_fd())?;
        fd_passing::receive_fd(&theirs).map(drop)
    })?;
    let pipe = fd_passing::receive_fd(&ours)?;
    let child = spawn_keeping("another process", &[pipe.as_fd()], || {
        accounts.other.enter()?;
        let refused = fill(&pipe, b'x').map_err(|error| error.downcast::<Errno>());
        ensure!(
            matches!(refused, Err(Ok(Errno::ENOMEM))),
            "filling it: expected ENOMEM, saw {refused:?}"
        );
        let own = Ctl::new()?.open(large("own")).context("one of its own")?;
        expect("bytes that fit", fill(&own, b'y')?, MIB as usize)
    })?;
    child.finish()?;
    accounts.expect_no_kill()?;
    // The creator needs memory to continue.
    drop(pipe);
    fd_passing::send_fd(&ours, accounts.creator.directory()?.as_fd())?;
    creation.finish()
}

/// Runs `body` with memory for a process, but not for the page table of a pipe of 1 GiB.
fn expect_no_memory(context: &Context, body: impl FnOnce(&Ctl) -> Result<()>) -> Result<()> {
    let accounts = Accounts::new(context)?;
    set_memory_max(&accounts.creator, 3 * MIB)?;
    let _bytes = Parameter::set("scope_max_bytes", 1 << 40)?;
    let child = accounts
        .creator
        .spawn("the creator", || body(&Ctl::new()?))?;
    let seen = child.finish();
    accounts.expect_no_kill()?;
    seen
}

fn a_create_beyond_the_memory_limit_is_enomem_without_oom_kill(context: &Context) -> Result<()> {
    expect_no_memory(context, |ctl| {
        let made = ctl.open(Open {
            capacity: 1 << 30,
            ..large("channel")
        });
        expect("creating the channel", made.map(drop), Err(Errno::ENOMEM))?;
        expect("names", ctl.names(OWN), Ok(vec![]))?;
        let smaller = ctl.create("channel").map(drop);
        expect("creating a smaller one", smaller, Ok(()))
    })
}

fn a_grow_beyond_the_memory_limit_is_enomem_and_changes_nothing(context: &Context) -> Result<()> {
    expect_no_memory(context, |ctl| {
        let pipe = ctl.open(Open::new("channel", BOTH | CREATE | NONBLOCK))?;
        let grown = ioctl::set(&pipe, SET_CAPACITY, 1 << 30);
        expect("growing it", grown, Err(Errno::ENOMEM))?;
        expect("bytes that fit", fill(&pipe, b'x')?, CAPACITY)
    })
}

fn expect_growth(whose: &str, grown: u64, expected: u64) -> Result<()> {
    ensure!(
        grown.abs_diff(expected) <= SLACK,
        "{whose} cgroup grew by {grown} bytes, expected {expected} ± {SLACK}"
    );
    Ok(())
}

/// The pipe's table of pages is charged as well.
fn a_capacity_set_by_others_is_charged_to_the_creator(context: &Context) -> Result<()> {
    const TABLE_AT_LEAST: u64 = MIB;
    let accounts = Accounts::new(context)?;
    let pipe = create_pipe(&accounts)?;
    let [creator_growth, other_growth] = accounts.measure_growth(&[pipe.as_fd()], || {
        let grown = ioctl::set(&pipe, SET_CAPACITY, 256 * MIB);
        expect("growing it", grown, Ok(256 * MIB))
    })?;
    ensure!(
        creator_growth >= TABLE_AT_LEAST,
        "the creator's cgroup grew by {creator_growth} bytes only"
    );
    expect_growth("the other's", other_growth, 0)
}

/// A receiver splices out and holds four times the capacity. The first lap moves the pipe's own pages, for which the
/// pipe then needs replacements; later laps are copied to pages of the receiver.
fn held_spliced_pages_are_charged_to_the_creator_up_to_twice_the_capacity(
    context: &Context,
) -> Result<()> {
    let accounts = Accounts::new(context)?;
    let pipe = create_pipe(&accounts)?;
    let held: Vec<(OwnedFd, OwnedFd)> = (0..4)
        .map(|_| pipe_of_capacity(MIB as usize))
        .collect::<Result<_>>()?;
    let mut keep = vec![pipe.as_fd()];
    keep.extend(
        held.iter()
            .flat_map(|(out, into)| [out.as_fd(), into.as_fd()]),
    );
    let [creator_growth, receiver_growth] = accounts.measure_growth(&keep, || {
        for (lap, (_, into)) in held.iter().enumerate() {
            expect("bytes written", fill(&pipe, lap as u8)?, MIB as usize)?;
            move_all(&pipe, into, MIB as usize)?;
        }
        Ok(())
    })?;
    expect_growth("the creator's", creator_growth, 2 * MIB)?;
    expect_growth("the receiver's", receiver_growth, 3 * MIB)?;
    for (lap, (out, _)) in held.iter().enumerate() {
        let bytes = read_all(out, MIB as usize)?;
        expect_bytes("a lap", &bytes, &[lap as u8; MIB as usize])?;
    }
    Ok(())
}

/// A file of `count` bytes, and its content. They are charged to the test itself.
fn file_of(context: &Context, count: usize) -> Result<(File, Vec<u8>)> {
    let path = context.scratch.join("file");
    let bytes = stream_bytes(1, 0, count);
    std::fs::write(&path, &bytes).context("writing the file")?;
    Ok((File::open(&path).context("opening the file")?, bytes))
}

fn send_all(pipe: &OwnedFd, file: &File, count: usize) -> Result<()> {
    let mut sent = 0;
    while sent < count {
        sent += sendfile(pipe, file, None, count - sent).context("sendfile")?;
    }
    expect(
        "pages spliced in",
        ioctl::info(pipe)?.pages_spliced_in,
        (count / PAGE) as u64,
    )
}

fn pages_spliced_in_are_charged_to_the_creator_as_written_ones(context: &Context) -> Result<()> {
    let accounts = Accounts::new(context)?;
    let (file, bytes) = file_of(context, MIB as usize)?;
    let pipe = create_pipe(&accounts)?;
    let keep = [pipe.as_fd(), file.as_fd()];
    let [creator_growth, other_growth] =
        accounts.measure_growth(&keep, || send_all(&pipe, &file, bytes.len()))?;
    expect_growth("the creator's", creator_growth, MIB)?;
    expect_growth("the other's", other_growth, 0)?;
    expect_bytes("the file", &read_all(&pipe, bytes.len())?, &bytes)
}

/// The creator is at its memory limit; reading must not allocate.
fn partial_reads_of_a_spliced_page_allocate_no_memory(context: &Context) -> Result<()> {
    const PIECE: usize = 1000;
    let accounts = Accounts::new(context)?;
    let (file, bytes) = file_of(context, CAPACITY)?;
    let pipe = create_pipe(&accounts)?;
    send_all(&pipe, &file, bytes.len())?;
    set_memory_max(&accounts.creator, memory_current(&accounts.creator)?)?;
    // CPUs may still hold pre-charged memory.
    let refused = fill(&pipe, b'x').map_err(|error| error.downcast::<Errno>());
    ensure!(
        matches!(refused, Err(Ok(Errno::ENOMEM))),
        "filling the pipe: expected ENOMEM, saw {refused:?}"
    );
    for piece in bytes.chunks(PIECE) {
        let mut taken = vec![0; piece.len()];
        expect("a read", read(&pipe, &mut taken), Ok(piece.len()))?;
        expect_bytes("a piece", &taken, piece)?;
    }
    accounts.expect_no_kill()
}

/// Each piece is copied to a page of the reader.
fn a_splice_out_beyond_the_readers_memory_limit_is_enomem_without_oom_kill(
    context: &Context,
) -> Result<()> {
    let accounts = Accounts::new(context)?;
    set_memory_max(&accounts.other, SMALL_LIMIT)?;
    let pipe = create_pipe(&accounts)?;
    let child = spawn_keeping("the reader", &[pipe.as_fd()], || {
        let held: Vec<(OwnedFd, OwnedFd)> = (0..=SMALL_LIMIT / MIB)
            .map(|_| pipe_of_capacity(MIB as usize))
            .collect::<Result<_>>()?;
        accounts.other.enter()?;
        lock_memory()?;
        let mut refused = None;
        'pipes: for (_, into) in &held {
            for _ in 0..MIB as usize / PAGE {
                expect("a write", write(&pipe, b"a piece."), Ok(8))?;
                if let Err(error) = move_bytes(&pipe, into, 8) {
                    refused = Some(error);
                    break 'pipes;
                }
            }
        }
        // The process needs memory to continue.
        drop(held);
        expect("errno of the failed splice", refused, Some(Errno::ENOMEM))
    })?;
    let seen = child.finish();
    accounts.expect_no_kill()?;
    seen
}
