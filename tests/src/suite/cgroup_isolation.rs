// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each cgroup has its own pipe. The cgroup of the opening thread at the time of the open decides. A FIFO is found by
//! its path, so these tests do not apply to it.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result, anyhow};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::write;

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::{
    CAPACITY, Channel, fill, read_all, read_some, set_nonblocking, write_all,
};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn, spawn_keeping};
use crate::support::event::Event;
use crate::support::fd_passing;
use crate::support::proc::Call;
use crate::support::random::stream_bytes;

topic!(
    "cgroup_isolation",
    fifo: [],
    pipe_only: [
        two_cgroups_never_receive_each_others_bytes,
        a_full_pipe_in_one_cgroup_does_not_block_another,
        an_open_blocks_until_a_peer_opens_in_its_own_cgroup,
        nested_cgroups_have_separate_pipes,
        the_root_cgroup_has_a_separate_pipe,
        threads_in_different_cgroups_have_separate_pipes,
        a_migrated_process_keeps_its_endpoint,
        an_opener_migrated_while_blocked_keeps_its_first_pipe,
        a_passed_endpoint_works_in_another_cgroup,
        an_endpoint_outlives_its_cgroup,
        a_new_cgroup_with_a_reused_name_has_a_new_pipe,
    ],
);

fn expect_empty(what: &str, fd: &impl AsFd) -> Result<()> {
    let seen = read_some(fd, 64);
    expect(
        &format!("a read of {what} without waiting"),
        seen,
        Err(Errno::EAGAIN),
    )
}

fn nonblocking(channel: &Channel) -> Result<OwnedFd> {
    let both = channel.open_read_write()?;
    set_nonblocking(&both)?;
    Ok(both)
}

/// Opens in `cgroup` and returns to `home`: an endpoint keeps the scope in which it was opened.
fn open_in(cgroup: &Cgroup, home: &Cgroup, channel: &Channel) -> Result<OwnedFd> {
    cgroup.enter()?;
    let both = nonblocking(channel)?;
    home.enter()?;
    Ok(both)
}

/// All four endpoints are open before the first byte is written; with one shared pipe they would all use it.
fn two_cgroups_never_receive_each_others_bytes(context: &Context) -> Result<()> {
    const TOTAL: usize = 8 * CAPACITY;
    let (ready, go) = (Event::new()?, Event::new()?);
    let keep = [ready.fds(), go.fds()].concat();
    let meet = || {
        ready.notify()?;
        go.wait("all endpoints are open")
    };
    let mut children = Vec::new();
    for stream in [1, 2] {
        let cgroup = context.cgroup()?.create_child(&format!("side-{stream}"))?;
        children.push(spawn_keeping(&format!("writer {stream}"), &keep, || {
            cgroup.enter()?;
            let writer = context.channel.open_writer()?;
            meet()?;
            write_all(&writer, &stream_bytes(stream, 0, TOTAL))
        })?);
        children.push(spawn_keeping(&format!("reader {stream}"), &keep, || {
            cgroup.enter()?;
            let reader = context.channel.open_reader()?;
            meet()?;
            let bytes = read_all(&reader, TOTAL)?;
            expect_bytes("bytes received", &bytes, &stream_bytes(stream, 0, TOTAL))
        })?);
    }
    for _ in &children {
        ready.wait("an endpoint is open")?;
    }
    for _ in &children {
        go.notify()?;
    }
    children.into_iter().try_for_each(Child::finish)
}

fn a_full_pipe_in_one_cgroup_does_not_block_another(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let full = open_in(&home.create_child("full")?, home, &context.channel)?;
    let other = open_in(&home.create_child("other")?, home, &context.channel)?;
    expect("bytes in the full pipe", fill(&full, b'.')?, CAPACITY)?;
    expect("a write to the other", write(&other, b"free"), Ok(4))?;
    expect_bytes(
        "a read of the other",
        &read_some(&other, 64).context("read")?,
        b"free",
    )
}

fn an_open_blocks_until_a_peer_opens_in_its_own_cgroup(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let cgroup = home.create_child("waiting")?;
    let reader = cgroup.spawn("a blocked reader", || {
        context.channel.open_reader().map(drop)
    })?;
    reader.wait_asleep_in(Call::Open)?;
    let refused = context.channel.open(OFlag::O_WRONLY | OFlag::O_NONBLOCK);
    expect(
        "an open for writing elsewhere",
        refused.map(drop),
        Err(Errno::ENXIO),
    )?;
    let _both = context.channel.open_read_write()?;
    reader.expect_still_asleep_in(Call::Open)?;
    let writer = cgroup.spawn("a writer in the same cgroup", || {
        context.channel.open_writer().map(drop)
    })?;
    reader.finish()?;
    writer.finish()
}

fn nested_cgroups_have_separate_pipes(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let outer = home.create_child("outer")?;
    let inner = outer.create_child("inner")?;
    let home_end = nonblocking(&context.channel)?;
    let outer_end = open_in(&outer, home, &context.channel)?;
    let inner_end = open_in(&inner, home, &context.channel)?;
    write_all(&outer_end, b"outer")?;
    expect_empty("the parent's pipe", &home_end)?;
    expect_empty("the child's pipe", &inner_end)?;
    expect_bytes(
        "the pipe of the middle cgroup",
        &read_some(&outer_end, 64).context("read")?,
        b"outer",
    )
}

fn the_root_cgroup_has_a_separate_pipe(context: &Context) -> Result<()> {
    let own = nonblocking(&context.channel)?;
    let root = open_in(&Cgroup::root()?, context.cgroup()?, &context.channel)?;
    write_all(&root, b"root")?;
    expect_empty("the own pipe", &own)?;
    expect_bytes(
        "the root's pipe",
        &read_some(&root, 64).context("read")?,
        b"root",
    )
}

fn threads_in_different_cgroups_have_separate_pipes(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let own = nonblocking(&context.channel)?;
    let mut ends = Vec::new();
    for name in ["left", "right"] {
        let cgroup = home.create_child(name)?;
        cgroup.make_threaded()?;
        let channel = &context.channel;
        let opened = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                cgroup.enter_with_this_thread()?;
                nonblocking(channel)
            });
            thread.join()
        });
        ends.push(opened.map_err(|_| anyhow!("the thread panicked"))??);
    }
    write_all(&ends[0], b"left")?;
    expect_empty("the other thread's pipe", &ends[1])?;
    expect_empty("the main thread's pipe", &own)?;
    expect_bytes(
        "the thread's pipe",
        &read_some(&ends[0], 64).context("read")?,
        b"left",
    )
}

fn a_migrated_process_keeps_its_endpoint(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let old_end = nonblocking(&context.channel)?;
    home.create_child("new")?.enter()?;
    let new_end = nonblocking(&context.channel)?;
    let stayed = home.spawn("a process in the old cgroup", || {
        write_all(&context.channel.open_writer()?, b"from home")
    })?;
    stayed.finish()?;
    expect_bytes(
        "the old endpoint",
        &read_some(&old_end, 64).context("read")?,
        b"from home",
    )?;
    expect_empty("the pipe of the new cgroup", &new_end)?;
    home.enter()
}

fn an_opener_migrated_while_blocked_keeps_its_first_pipe(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let other = home.create_child("other")?;
    let reader = spawn("a blocked reader", || {
        let fd = context.channel.open_reader()?;
        read_some(&fd, 64).context("read")
    })?;
    reader.wait_asleep_in(Call::Open)?;
    other.adopt(reader.pid())?;
    reader.wait_asleep_in(Call::Open)?;
    write_all(&context.channel.open_writer()?, b"first")?;
    expect_bytes("bytes read", &reader.finish()?, b"first")
}

fn a_passed_endpoint_works_in_another_cgroup(context: &Context) -> Result<()> {
    let other = context.cgroup()?.create_child("other")?;
    let (ours, theirs) = fd_passing::socket_pair()?;
    let child = spawn_keeping("a process in another cgroup", &[theirs.as_fd()], || {
        other.enter()?;
        let passed = fd_passing::receive_fd(&theirs)?;
        expect_empty("its own cgroup's pipe", &nonblocking(&context.channel)?)?;
        read_some(&passed, 64).context("reading the passed endpoint")
    })?;
    let (reader, writer) = context.channel.open_ends()?;
    write_all(&writer, b"passed on")?;
    fd_passing::send_fd(&ours, reader.as_fd())?;
    expect_bytes("what the other read", &child.finish()?, b"passed on")
}

fn an_endpoint_outlives_its_cgroup(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let removed = home.create_child("removed")?;
    let both = open_in(&removed, home, &context.channel)?;
    write_all(&both, b"before")?;
    removed.remove()?;
    write_all(&both, b" and after")?;
    expect_bytes(
        "its content",
        &read_some(&both, 64).context("read")?,
        b"before and after",
    )?;
    expect("bytes that fill it", fill(&both, b'.')?, CAPACITY)
}

fn a_new_cgroup_with_a_reused_name_has_a_new_pipe(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let first = home.create_child("name")?;
    let old = open_in(&first, home, &context.channel)?;
    write_all(&old, b"old")?;
    first.remove()?;
    let new = open_in(&home.create_child("name")?, home, &context.channel)?;
    expect_empty("the new pipe", &new)?;
    write_all(&new, b"new")?;
    expect_bytes(
        "the old pipe",
        &read_some(&old, 64).context("read")?,
        b"old",
    )
}
