// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each cgroup has a pipe of its own, found by the thread that opens, at the moment when it opens. A FIFO belongs to
//! whoever can name it, so none of this applies to one.

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
use crate::support::notice::Notice;
use crate::support::passing;
use crate::support::proc::Call;
use crate::support::random::stream_bytes;

topic!(
    "isolation",
    fifo: [],
    pipe_only: [
        two_cgroups_never_see_each_others_bytes,
        a_full_pipe_in_one_cgroup_does_not_stop_another,
        an_opener_waits_for_a_partner_in_its_own_cgroup,
        nested_cgroups_have_pipes_of_their_own,
        the_root_cgroup_has_a_pipe_of_its_own,
        threads_in_different_cgroups_get_their_own_pipes,
        a_process_that_moves_keeps_its_endpoint,
        an_opener_that_waits_while_it_is_moved_stays_with_its_first_pipe,
        a_passed_endpoint_works_in_another_cgroup,
        an_endpoint_outlives_its_cgroup,
        a_new_cgroup_of_an_old_name_has_a_new_pipe,
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
    let both = channel.open_both_ways()?;
    set_nonblocking(&both)?;
    Ok(both)
}

/// Opens in `cgroup` and comes back to `home`: an endpoint stays where it was opened.
fn open_in(cgroup: &Cgroup, home: &Cgroup, channel: &Channel) -> Result<OwnedFd> {
    cgroup.enter()?;
    let both = nonblocking(channel)?;
    home.enter()?;
    Ok(both)
}

/// All four ends are open before the first byte moves: were there only one pipe, all would be on it.
fn two_cgroups_never_see_each_others_bytes(context: &Context) -> Result<()> {
    const TOTAL: usize = 8 * CAPACITY;
    let (ready, go) = (Notice::new()?, Notice::new()?);
    let keep = [ready.fds(), go.fds()].concat();
    let meet = || {
        ready.give()?;
        go.wait("all ends are open")
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
            expect_bytes("what came through", &bytes, &stream_bytes(stream, 0, TOTAL))
        })?);
    }
    for _ in &children {
        ready.wait("an end is open")?;
    }
    for _ in &children {
        go.give()?;
    }
    children.into_iter().try_for_each(Child::finish)
}

fn a_full_pipe_in_one_cgroup_does_not_stop_another(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let full = open_in(&home.create_child("full")?, home, &context.channel)?;
    let other = open_in(&home.create_child("other")?, home, &context.channel)?;
    expect("bytes that fill the one", fill(&full, b'.')?, CAPACITY)?;
    expect("a write to the other", write(&other, b"free"), Ok(4))?;
    expect_bytes(
        "a read of the other",
        &read_some(&other, 64).context("read")?,
        b"free",
    )
}

fn an_opener_waits_for_a_partner_in_its_own_cgroup(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let cgroup = home.create_child("waiting")?;
    let reader = cgroup.spawn("a reader that waits", || {
        context.channel.open_reader().map(drop)
    })?;
    reader.wait_asleep_in(Call::Open)?;
    let refused = context.channel.open(OFlag::O_WRONLY | OFlag::O_NONBLOCK);
    expect(
        "an open for writing elsewhere",
        refused.map(drop),
        Err(Errno::ENXIO),
    )?;
    let _both = context.channel.open_both_ways()?;
    reader.expect_still_asleep_in(Call::Open)?;
    let writer = cgroup.spawn("a writer in the same cgroup", || {
        context.channel.open_writer().map(drop)
    })?;
    reader.finish()?;
    writer.finish()
}

fn nested_cgroups_have_pipes_of_their_own(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let outer = home.create_child("outer")?;
    let inner = outer.create_child("inner")?;
    let home_end = nonblocking(&context.channel)?;
    let outer_end = open_in(&outer, home, &context.channel)?;
    let inner_end = open_in(&inner, home, &context.channel)?;
    write_all(&outer_end, b"outer")?;
    expect_empty("the pipe above", &home_end)?;
    expect_empty("the pipe below", &inner_end)?;
    expect_bytes(
        "the pipe between",
        &read_some(&outer_end, 64).context("read")?,
        b"outer",
    )
}

fn the_root_cgroup_has_a_pipe_of_its_own(context: &Context) -> Result<()> {
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

fn threads_in_different_cgroups_get_their_own_pipes(context: &Context) -> Result<()> {
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

fn a_process_that_moves_keeps_its_endpoint(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let old_end = nonblocking(&context.channel)?;
    home.create_child("new")?.enter()?;
    let new_end = nonblocking(&context.channel)?;
    let stayed = home.spawn("one who stayed", || {
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

fn an_opener_that_waits_while_it_is_moved_stays_with_its_first_pipe(
    context: &Context,
) -> Result<()> {
    let home = context.cgroup()?;
    let other = home.create_child("other")?;
    let reader = spawn("a reader that waits", || {
        let fd = context.channel.open_reader()?;
        read_some(&fd, 64).context("read")
    })?;
    reader.wait_asleep_in(Call::Open)?;
    other.adopt(reader.pid())?;
    reader.wait_asleep_in(Call::Open)?;
    write_all(&context.channel.open_writer()?, b"first")?;
    expect_bytes("what it read", &reader.finish()?, b"first")
}

fn a_passed_endpoint_works_in_another_cgroup(context: &Context) -> Result<()> {
    let other = context.cgroup()?.create_child("other")?;
    let (ours, theirs) = passing::sockets()?;
    let child = spawn_keeping("a process in another cgroup", &[theirs.as_fd()], || {
        other.enter()?;
        let passed = passing::receive(&theirs)?;
        expect_empty("its own cgroup's pipe", &nonblocking(&context.channel)?)?;
        read_some(&passed, 64).context("reading the passed endpoint")
    })?;
    let (reader, writer) = context.channel.open_ends()?;
    write_all(&writer, b"passed on")?;
    passing::send(&ours, reader.as_fd())?;
    expect_bytes("what the other read", &child.finish()?, b"passed on")
}

fn an_endpoint_outlives_its_cgroup(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let doomed = home.create_child("doomed")?;
    let both = open_in(&doomed, home, &context.channel)?;
    write_all(&both, b"before")?;
    doomed.remove()?;
    write_all(&both, b" and after")?;
    expect_bytes(
        "what it holds",
        &read_some(&both, 64).context("read")?,
        b"before and after",
    )?;
    expect("bytes that fill it", fill(&both, b'.')?, CAPACITY)
}

fn a_new_cgroup_of_an_old_name_has_a_new_pipe(context: &Context) -> Result<()> {
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
