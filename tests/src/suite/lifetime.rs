// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is kept, for how long, and that nothing is kept beyond. A FIFO has neither cgroups nor a module.

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::write;

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::{CAPACITY, Channel, read_all, set_nonblocking, write_all};
use crate::support::check::{expect, skip};
use crate::support::child::{Child, spawn};
use crate::support::kernel::{
    expect_module_stays, expect_nothing_held, free_pages, freed_memory_is_kept_back, module_objects,
};
use crate::support::proc::Call;
use crate::support::time::eventually;

topic!(
    "lifetime",
    fifo: [],
    pipe_only: [
        without_endpoints_the_module_holds_nothing,
        every_way_to_close_gives_everything_back,
        an_endpoint_of_a_removed_cgroup_is_freed_when_it_closes,
        a_removed_cgroup_is_let_go_with_its_last_endpoint,
        a_hundred_cgroups_leave_no_object_behind,
        a_thousand_cgroups_leave_neither_objects_nor_pages_behind,
        the_module_stays_while_an_endpoint_is_open,
        the_module_stays_while_an_open_waits,
    ],
);

/// Makes the cgroup's pipe carry data: every page of it, once around.
fn use_pipe(channel: &Channel) -> Result<()> {
    let both = channel.open_both_ways()?;
    set_nonblocking(&both)?;
    expect(
        "bytes that fill it",
        write(&both, &[0; 2 * CAPACITY]),
        Ok(CAPACITY),
    )?;
    read_all(&both, CAPACITY)?;
    write_all(&both, b"left in it")
}

fn without_endpoints_the_module_holds_nothing(context: &Context) -> Result<()> {
    expect_nothing_held()?;
    let both = context.channel.open_both_ways()?;
    let held: u64 = module_objects()?.iter().map(|(_, objects)| objects).sum();
    ensure!(
        held > 0,
        "with an endpoint open its caches hold no object: they are not what it uses"
    );
    drop(both);
    expect_nothing_held()
}

fn every_way_to_close_gives_everything_back(context: &Context) -> Result<()> {
    use_pipe(&context.channel)?;
    drop(context.channel.open_ends()?);
    // Refused, and given up while it waits.
    let refused = context.channel.open(OFlag::O_WRONLY | OFlag::O_NONBLOCK);
    expect(
        "an open that is refused",
        refused.map(drop),
        Err(Errno::ENXIO),
    )?;
    let waiting: Child<()> = spawn("a reader that waits", || {
        context.channel.open_reader().map(drop)
    })?;
    waiting.wait_asleep_in(Call::Open)?;
    waiting.kill()?;
    expect_nothing_held()
}

/// An endpoint that was opened in a cgroup that is gone.
fn orphan(context: &Context) -> Result<std::os::fd::OwnedFd> {
    let home = context.cgroup()?;
    let cgroup = home.create_child("doomed")?;
    cgroup.enter()?;
    let both = context.channel.open_both_ways()?;
    home.enter()?;
    cgroup.remove()?;
    Ok(both)
}

fn an_endpoint_of_a_removed_cgroup_is_freed_when_it_closes(context: &Context) -> Result<()> {
    let both = orphan(context)?;
    write_all(&both, b"left in it")?;
    drop(both);
    expect_nothing_held()
}

fn a_removed_cgroup_is_let_go_with_its_last_endpoint(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let before = home.dying_descendants()?;
    let both = orphan(context)?;
    drop(both);
    home.expect_dying(before)
}

/// Makes and uses one cgroup after the other, and removes each once it is in the next one.
fn use_cgroups(context: &Context, count: usize) -> Result<()> {
    let home = context.cgroup()?;
    let mut last = None;
    for number in 0..count {
        let cgroup = home.create_child(&format!("number-{number}"))?;
        cgroup.enter()?;
        use_pipe(&context.channel)?;
        if let Some(last) = last.replace(cgroup) {
            last.remove()?;
        }
    }
    home.enter()?;
    last.as_ref().map_or(Ok(()), Cgroup::remove)
}

/// After `count` cgroups, that is: neither objects nor cgroups.
fn expect_nothing_left_of_cgroups(context: &Context, count: usize) -> Result<()> {
    let home = context.cgroup()?;
    let dying = home.dying_descendants()?;
    use_cgroups(context, count)?;
    expect_nothing_held()?;
    home.expect_dying(dying)
}

fn a_hundred_cgroups_leave_no_object_behind(context: &Context) -> Result<()> {
    expect_nothing_left_of_cgroups(context, 100)
}

/// Free pages go up and down by themselves, by less than a hundred; a thousand leaks of one page would be a thousand.
fn a_thousand_cgroups_leave_neither_objects_nor_pages_behind(context: &Context) -> Result<()> {
    const CGROUPS: usize = 1000;
    const TOLERANCE: u64 = CGROUPS as u64 / 4;
    if freed_memory_is_kept_back()? {
        return Err(skip(
            "KASAN keeps freed memory back, so the number of free pages tells nothing",
        ));
    }
    expect_nothing_left_of_cgroups(context, 50)?;
    let before = free_pages()?;
    expect_nothing_left_of_cgroups(context, CGROUPS)?;
    let mut after = 0;
    let settled = eventually("free pages are back", || {
        after = free_pages()?;
        Ok((after + TOLERANCE >= before).then_some(()))
    });
    settled.with_context(|| {
        format!(
            "{before} pages were free before, {after} after; a difference of {TOLERANCE} is allowed"
        )
    })
}

fn the_module_stays_while_an_endpoint_is_open(context: &Context) -> Result<()> {
    let _reader = context.channel.open_reader_now()?;
    expect_module_stays()
}

fn the_module_stays_while_an_open_waits(context: &Context) -> Result<()> {
    let waiting: Child<()> = spawn("a reader that waits", || {
        context.channel.open_reader().map(drop)
    })?;
    waiting.wait_asleep_in(Call::Open)?;
    expect_module_stays()
}
