// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose memory a channel takes, and what happens when there is no more of it.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::sendfile::sendfile;
use nix::unistd::{read, write};

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::{CAPACITY, PIPE_BUF, fill, read_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn_keeping;
use crate::support::ctl::{BOTH, CREATE, Ctl, EXCL, NONBLOCK, OWN, Open, PERSIST};
use crate::support::ioctl::{self, SET_CAPACITY};
use crate::support::memcg::{
    MemoryController, killed_for_memory, memory_current, set_memory_max, stay_resident,
};
use crate::support::memory::PAGE;
use crate::support::parameter::Parameter;
use crate::support::passing;
use crate::support::random::stream_bytes;
use crate::support::time::eventually;
use crate::support::vfs_pipe::{move_all, move_bytes, pipe_of_capacity};

topic!(
    "ctl_quota_memory",
    fifo: [],
    pipe_only: [
        a_strangers_bytes_are_charged_to_the_maker,
        the_maker_pays_for_an_endpoint_that_it_passed_on,
        a_write_beyond_the_makers_memory_is_enomem_and_kills_nobody,
        a_strangers_write_beyond_the_makers_memory_hurts_neither,
        making_one_beyond_the_memory_is_enomem_and_kills_nobody,
        growing_one_beyond_the_memory_is_enomem_and_changes_nothing,
        a_capacity_set_by_a_stranger_is_charged_to_the_maker,
        pages_spliced_out_and_held_cost_the_maker_twice_the_capacity_at_most,
        pages_spliced_in_are_charged_to_the_maker_as_written_ones,
        a_spliced_page_is_read_piece_by_piece_without_memory,
        a_splice_out_beyond_the_readers_memory_is_enomem_and_kills_nobody,
    ],
);

const MIB: u64 = 1 << 20;
/// What each processor may hold ready of a cgroup's memory, and a little for what else a process does.
const SLACK: u64 = MIB / 2;
/// Enough for a process of ours, and not for more than a few pipes.
const LITTLE: u64 = 8 * MIB;

fn large(name: &str) -> Open {
    Open {
        capacity: MIB,
        ..Open::new(name, BOTH | CREATE | EXCL | NONBLOCK)
    }
}

fn counted(home: &Cgroup, name: &str, most: Option<u64>) -> Result<Cgroup> {
    let cgroup = home.create_child(name)?;
    if let Some(most) = most {
        set_memory_max(&cgroup, most)?;
    }
    Ok(cgroup)
}

/// Fills a pipe of a mebibyte as a process of `stranger`: it is `maker` that grows by this.
fn expect_maker_pays(maker: &Cgroup, stranger: &Cgroup, pipe: &OwnedFd) -> Result<()> {
    let start = memory_current(maker)?;
    let child = spawn_keeping("a stranger", &[pipe.as_fd()], || {
        stranger.enter()?;
        let before = memory_current(stranger)?;
        expect("bytes written", fill(pipe, b'x')?, MIB as usize)?;
        Ok(memory_current(stranger)?.saturating_sub(before))
    })?;
    let stranger_grew = child.finish()?;
    let maker_grew = memory_current(maker)?.saturating_sub(start);
    ensure!(
        maker_grew >= MIB - SLACK,
        "the maker's cgroup grew by {maker_grew} bytes only"
    );
    ensure!(
        stranger_grew <= SLACK,
        "the stranger's cgroup grew by {stranger_grew} bytes"
    );
    Ok(())
}

fn a_strangers_bytes_are_charged_to_the_maker(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let _memory = MemoryController::enable_below(home)?;
    let (maker, stranger) = (
        counted(home, "maker", None)?,
        counted(home, "stranger", None)?,
    );
    let making = maker.spawn("the maker", || {
        let mut request = large("channel");
        request.flags |= PERSIST;
        Ctl::new()?.open(request).map(drop).context("making it")
    })?;
    making.finish()?;
    let directory = maker.directory()?;
    let pipe = Ctl::new()?.open(Open {
        scope_fd: directory.as_raw_fd(),
        ..Open::new("channel", BOTH | NONBLOCK)
    })?;
    let empty = memory_current(&maker)?;
    expect_maker_pays(&maker, &stranger, &pipe)?;
    drop(pipe);
    Ctl::new()?.unlink(directory.as_raw_fd(), "channel")?;
    eventually("the maker's cgroup gets it back", || {
        Ok((memory_current(&maker)? <= empty + SLACK).then_some(()))
    })
}

/// A pipe of a mebibyte, made by a process of `maker` that is no more.
fn made_by(maker: &Cgroup) -> Result<OwnedFd> {
    let (ours, theirs) = passing::sockets()?;
    let making = spawn_keeping("the maker", &[theirs.as_fd()], || {
        maker.enter()?;
        let pipe = Ctl::new()?.open(large("channel")).context("making it")?;
        passing::send(&theirs, pipe.as_fd())
    })?;
    let pipe = passing::receive(&ours)?;
    making.finish()?;
    Ok(pipe)
}

fn the_maker_pays_for_an_endpoint_that_it_passed_on(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let _memory = MemoryController::enable_below(home)?;
    let (maker, stranger) = (
        counted(home, "maker", None)?,
        counted(home, "stranger", None)?,
    );
    let pipe = made_by(&maker)?;
    expect_maker_pays(&maker, &stranger, &pipe)
}

/// Makes and fills pipes until a write is refused; returns them.
fn fill_memory(ctl: &Ctl) -> Result<Vec<OwnedFd>> {
    let page = [b'x'; PIPE_BUF];
    let mut pipes = Vec::with_capacity((LITTLE / MIB) as usize);
    for number in 0..LITTLE / MIB {
        let pipe = ctl
            .open(large(&format!("number-{number}")))
            .context("making one")?;
        let refused = loop {
            match write(&pipe, &page) {
                Ok(_) => {}
                Err(Errno::EAGAIN) => break false,
                Err(error) => {
                    expect("the refused write", error, Errno::ENOMEM)?;
                    break true;
                }
            }
        };
        pipes.push(pipe);
        if refused {
            return Ok(pipes);
        }
    }
    bail!("{LITTLE} bytes were written, and none was refused")
}

fn a_write_beyond_the_makers_memory_is_enomem_and_kills_nobody(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let _memory = MemoryController::enable_below(home)?;
    let maker = counted(home, "maker", Some(LITTLE))?;
    let child = maker.spawn("the maker", || {
        stay_resident()?;
        let ctl = Ctl::new()?;
        let mut pipes = fill_memory(&ctl)?;
        pipes.truncate(1);
        let kept = read_all(&pipes[0], CAPACITY)?;
        expect("what was written before", kept, vec![b'x'; CAPACITY])?;
        let again = ctl.open(large("again")).context("making one afterwards")?;
        expect("what it takes", fill(&again, b'z')?, MIB as usize)
    })?;
    child.finish()?;
    expect("killed", killed_for_memory(&maker)?, 0)
}

/// The maker sleeps meanwhile.
fn a_strangers_write_beyond_the_makers_memory_hurts_neither(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let _memory = MemoryController::enable_below(home)?;
    let maker = counted(home, "maker", Some(LITTLE))?;
    let stranger = counted(home, "stranger", None)?;
    let (ours, theirs) = passing::sockets()?;
    let making = spawn_keeping("the maker", &[theirs.as_fd()], || {
        maker.enter()?;
        let pipe = Ctl::new()?.open(Open {
            capacity: 4 * LITTLE,
            ..large("channel")
        });
        passing::send(&theirs, pipe.context("making it")?.as_fd())?;
        passing::receive(&theirs).map(drop)
    })?;
    let pipe = passing::receive(&ours)?;
    let child = spawn_keeping("a stranger", &[pipe.as_fd()], || {
        stranger.enter()?;
        let refused = fill(&pipe, b'x').map_err(|error| error.downcast::<Errno>());
        ensure!(
            matches!(refused, Err(Ok(Errno::ENOMEM))),
            "filling it: expected ENOMEM, saw {refused:?}"
        );
        let own = Ctl::new()?.open(large("own")).context("one of its own")?;
        expect("what that takes", fill(&own, b'y')?, MIB as usize)
    })?;
    child.finish()?;
    expect("killed", killed_for_memory(&maker)?, 0)?;
    // The maker needs memory to go on.
    drop(pipe);
    passing::send(&ours, maker.directory()?.as_fd())?;
    making.finish()
}

/// Has room for a process, but not for the table of pages of a pipe of a gibibyte.
fn expect_no_memory(context: &Context, body: impl FnOnce(&Ctl) -> Result<()>) -> Result<()> {
    let home = context.cgroup()?;
    let _memory = MemoryController::enable_below(home)?;
    let _bytes = Parameter::set("scope_max_bytes", 1 << 40)?;
    let poor = counted(home, "poor", Some(3 * MIB))?;
    let child = poor.spawn("one without memory", || body(&Ctl::new()?))?;
    let seen = child.finish();
    expect("killed", killed_for_memory(&poor)?, 0)?;
    seen
}

fn making_one_beyond_the_memory_is_enomem_and_kills_nobody(context: &Context) -> Result<()> {
    expect_no_memory(context, |ctl| {
        let made = ctl.open(Open {
            capacity: 1 << 30,
            ..large("channel")
        });
        expect("making it", made.map(drop), Err(Errno::ENOMEM))?;
        expect("names", ctl.names(OWN), Ok(vec![]))?;
        let smaller = ctl.create("channel").map(drop);
        expect("making a smaller one", smaller, Ok(()))
    })
}

fn growing_one_beyond_the_memory_is_enomem_and_changes_nothing(context: &Context) -> Result<()> {
    expect_no_memory(context, |ctl| {
        let pipe = ctl.open(Open::new("channel", BOTH | CREATE | NONBLOCK))?;
        let grown = ioctl::set(&pipe, SET_CAPACITY, 1 << 30);
        expect("growing it", grown, Err(Errno::ENOMEM))?;
        expect("what it takes", fill(&pipe, b'x')?, CAPACITY)
    })
}

/// How much the memory of both grows, in bytes: the maker's, and that of a process in `stranger` that runs `body`.
fn grown(
    maker: &Cgroup,
    stranger: &Cgroup,
    keep: &[BorrowedFd],
    body: impl FnOnce() -> Result<()>,
) -> Result<[u64; 2]> {
    let child = spawn_keeping("a stranger", keep, || {
        stranger.enter()?;
        let both = || Ok::<_, anyhow::Error>([memory_current(maker)?, memory_current(stranger)?]);
        let before = both()?;
        body()?;
        let after = both()?;
        Ok([0, 1].map(|of| after[of].saturating_sub(before[of])))
    })?;
    child.finish()
}

fn expect_growth(whose: &str, grown: u64, expected: u64) -> Result<()> {
    ensure!(
        grown.abs_diff(expected) <= SLACK,
        "{whose} cgroup grew by {grown} bytes, expected {expected} give or take {SLACK}"
    );
    Ok(())
}

/// The table of pages is memory too.
fn a_capacity_set_by_a_stranger_is_charged_to_the_maker(context: &Context) -> Result<()> {
    const TABLE_AT_LEAST: u64 = MIB;
    let home = context.cgroup()?;
    let _memory = MemoryController::enable_below(home)?;
    let (maker, stranger) = (
        counted(home, "maker", None)?,
        counted(home, "stranger", None)?,
    );
    let pipe = made_by(&maker)?;
    let [maker_grew, stranger_grew] = grown(&maker, &stranger, &[pipe.as_fd()], || {
        let grown = ioctl::set(&pipe, SET_CAPACITY, 256 * MIB);
        expect("growing it", grown, Ok(256 * MIB))
    })?;
    ensure!(
        maker_grew >= TABLE_AT_LEAST,
        "the maker's cgroup grew by {maker_grew} bytes only"
    );
    expect_growth("the stranger's", stranger_grew, 0)
}

/// A receiver takes four times what the pipe holds and keeps it. The pipe gives away the pages that it has, once, and
/// needs as many again; the rest are the receiver's.
fn pages_spliced_out_and_held_cost_the_maker_twice_the_capacity_at_most(
    context: &Context,
) -> Result<()> {
    let home = context.cgroup()?;
    let _memory = MemoryController::enable_below(home)?;
    let (maker, receiver) = (
        counted(home, "maker", None)?,
        counted(home, "receiver", None)?,
    );
    let pipe = made_by(&maker)?;
    let held: Vec<(OwnedFd, OwnedFd)> = (0..4)
        .map(|_| pipe_of_capacity(MIB as usize))
        .collect::<Result<_>>()?;
    let mut keep = vec![pipe.as_fd()];
    keep.extend(
        held.iter()
            .flat_map(|(out, into)| [out.as_fd(), into.as_fd()]),
    );
    let [maker_grew, receiver_grew] = grown(&maker, &receiver, &keep, || {
        for (lap, (_, into)) in held.iter().enumerate() {
            expect("bytes written", fill(&pipe, lap as u8)?, MIB as usize)?;
            move_all(&pipe, into, MIB as usize)?;
        }
        Ok(())
    })?;
    expect_growth("the maker's", maker_grew, 2 * MIB)?;
    expect_growth("the receiver's", receiver_grew, 3 * MIB)?;
    for (lap, (out, _)) in held.iter().enumerate() {
        let bytes = read_all(out, MIB as usize)?;
        expect_bytes("a lap", &bytes, &[lap as u8; MIB as usize])?;
    }
    Ok(())
}

/// A file of as many bytes, and those. What they take is the test's own memory.
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
        "pages moved in",
        ioctl::info(pipe)?.pages_spliced_in,
        (count / PAGE) as u64,
    )
}

fn pages_spliced_in_are_charged_to_the_maker_as_written_ones(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let _memory = MemoryController::enable_below(home)?;
    let (maker, stranger) = (
        counted(home, "maker", None)?,
        counted(home, "stranger", None)?,
    );
    let (file, bytes) = file_of(context, MIB as usize)?;
    let pipe = made_by(&maker)?;
    let keep = [pipe.as_fd(), file.as_fd()];
    let [maker_grew, stranger_grew] = grown(&maker, &stranger, &keep, || {
        send_all(&pipe, &file, bytes.len())
    })?;
    expect_growth("the maker's", maker_grew, MIB)?;
    expect_growth("the stranger's", stranger_grew, 0)?;
    expect_bytes("the file", &read_all(&pipe, bytes.len())?, &bytes)
}

/// The maker's memory is used up: reading takes none of it.
fn a_spliced_page_is_read_piece_by_piece_without_memory(context: &Context) -> Result<()> {
    const PIECE: usize = 1000;
    let home = context.cgroup()?;
    let _memory = MemoryController::enable_below(home)?;
    let maker = counted(home, "maker", None)?;
    let (file, bytes) = file_of(context, CAPACITY)?;
    let pipe = made_by(&maker)?;
    send_all(&pipe, &file, bytes.len())?;
    set_memory_max(&maker, memory_current(&maker)?)?;
    // Processors may still hold some of it ready.
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
    expect("killed", killed_for_memory(&maker)?, 0)
}

/// Each piece takes a page of the reader's.
fn a_splice_out_beyond_the_readers_memory_is_enomem_and_kills_nobody(
    context: &Context,
) -> Result<()> {
    let home = context.cgroup()?;
    let _memory = MemoryController::enable_below(home)?;
    let maker = counted(home, "maker", None)?;
    let reader = counted(home, "reader", Some(LITTLE))?;
    let pipe = made_by(&maker)?;
    let child = spawn_keeping("the reader", &[pipe.as_fd()], || {
        let held: Vec<(OwnedFd, OwnedFd)> = (0..=LITTLE / MIB)
            .map(|_| pipe_of_capacity(MIB as usize))
            .collect::<Result<_>>()?;
        reader.enter()?;
        stay_resident()?;
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
        // To go on takes memory.
        drop(held);
        expect("the refused splice", refused, Some(Errno::ENOMEM))
    })?;
    let seen = child.finish();
    expect("killed", killed_for_memory(&reader)?, 0)?;
    seen
}
