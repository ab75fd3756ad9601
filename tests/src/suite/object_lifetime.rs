// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long the module keeps objects, cgroups and itself, and that it frees them afterwards. A FIFO has neither cgroups
//! nor a module.

use anyhow::{Result, ensure};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::write;

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::{CAPACITY, Channel, read_all, set_nonblocking, write_all};
use crate::support::check::expect;
use crate::support::child::{Child, spawn};
use crate::support::kernel::{
    expect_module_in_use, expect_no_objects, expect_no_page_leak, module_objects,
};
use crate::support::proc::Call;

topic!(
    "object_lifetime",
    fifo: [],
    pipe_only: [
        without_endpoints_the_module_holds_no_object,
        every_way_to_close_frees_all_objects,
        an_endpoint_of_a_removed_cgroup_is_freed_on_close,
        a_removed_cgroup_is_released_with_its_last_endpoint,
        a_hundred_cgroups_leak_no_object,
        many_cgroups_leak_neither_objects_nor_pages,
        an_open_endpoint_keeps_the_module_loaded,
        a_blocked_open_keeps_the_module_loaded,
    ],
);

/// Fills and empties the cgroup's pipe, so that each of its slots gets a page.
fn use_pipe(channel: &Channel) -> Result<()> {
    let both = channel.open_read_write()?;
    set_nonblocking(&both)?;
    expect(
        "bytes that fill it",
        write(&both, &[0; 2 * CAPACITY]),
        Ok(CAPACITY),
    )?;
    read_all(&both, CAPACITY)?;
    write_all(&both, b"left in it")
}

fn without_endpoints_the_module_holds_no_object(context: &Context) -> Result<()> {
    expect_no_objects()?;
    let both = context.channel.open_read_write()?;
    let held: u64 = module_objects()?.iter().map(|(_, objects)| objects).sum();
    ensure!(
        held > 0,
        "the caches hold no object while an endpoint is open: the module uses other caches"
    );
    drop(both);
    expect_no_objects()
}

fn every_way_to_close_frees_all_objects(context: &Context) -> Result<()> {
    use_pipe(&context.channel)?;
    drop(context.channel.open_ends()?);
    // An open that fails, and one that is interrupted while it blocks.
    let refused = context.channel.open(OFlag::O_WRONLY | OFlag::O_NONBLOCK);
    expect(
        "an open that is refused",
        refused.map(drop),
        Err(Errno::ENXIO),
    )?;
    let waiting: Child<()> = spawn("a blocked reader", || {
        context.channel.open_reader().map(drop)
    })?;
    waiting.wait_asleep_in(Call::Open)?;
    waiting.kill()?;
    expect_no_objects()
}

/// An endpoint whose cgroup has been removed.
fn orphan(context: &Context) -> Result<std::os::fd::OwnedFd> {
    let home = context.cgroup()?;
    let cgroup = home.create_child("removed")?;
    cgroup.enter()?;
    let both = context.channel.open_read_write()?;
    home.enter()?;
    cgroup.remove()?;
    Ok(both)
}

fn an_endpoint_of_a_removed_cgroup_is_freed_on_close(context: &Context) -> Result<()> {
    let both = orphan(context)?;
    write_all(&both, b"left in it")?;
    drop(both);
    expect_no_objects()
}

fn a_removed_cgroup_is_released_with_its_last_endpoint(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let before = home.dying_descendants()?;
    let both = orphan(context)?;
    drop(both);
    home.expect_dying(before)
}

/// Creates and uses `count` cgroups in turn, and removes each after moving to the next one.
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

/// Fails if objects or dying cgroups are left after the use of `count` cgroups.
fn expect_nothing_left_of_cgroups(context: &Context, count: usize) -> Result<()> {
    let home = context.cgroup()?;
    let dying = home.dying_descendants()?;
    use_cgroups(context, count)?;
    expect_no_objects()?;
    home.expect_dying(dying)
}

fn a_hundred_cgroups_leak_no_object(context: &Context) -> Result<()> {
    expect_nothing_left_of_cgroups(context, 100)
}

fn many_cgroups_leak_neither_objects_nor_pages(context: &Context) -> Result<()> {
    expect_no_page_leak(500, |count| expect_nothing_left_of_cgroups(context, count))
}

fn an_open_endpoint_keeps_the_module_loaded(context: &Context) -> Result<()> {
    let _reader = context.channel.open_reader_nonblocking()?;
    expect_module_in_use()
}

fn a_blocked_open_keeps_the_module_loaded(context: &Context) -> Result<()> {
    let waiting: Child<()> = spawn("a blocked reader", || {
        context.channel.open_reader().map(drop)
    })?;
    waiting.wait_asleep_in(Call::Open)?;
    expect_module_in_use()
}
