// SPDX-License-Identifier: MIT OR Apache-2.0
//! Channels that stay without endpoints, and that nothing of them stays beyond their end.

use std::fs::{self, Permissions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::unistd::read;

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::{CAPACITY, fill, read_all, read_some, set_nonblocking, write_all};
use crate::support::check::{expect, expect_bytes, skip};
use crate::support::child::{spawn, spawn_keeping};
use crate::support::ctl::{
    BOTH, CREATE, Ctl, NONBLOCK, OWN, Open, PERSIST, PERSISTENT, READ, WRITE, expect_no_channel,
};
use crate::support::identity::become_user;
use crate::support::kernel::{
    expect_module_stays, expect_nothing_held, free_pages, freed_memory_is_kept_back,
};
use crate::support::passing;
use crate::support::proc::Call;
use crate::support::random::stream_bytes;
use crate::support::time::eventually;

topic!(
    "ctl_persist",
    fifo: [],
    pipe_only: [
        it_stays_without_endpoints_and_keeps_its_bytes,
        it_outlives_a_killed_maker,
        without_endpoints_opens_wait_as_on_a_fifo,
        its_owner_may_make_it_persistent_later,
        others_may_not_make_it_persistent_later,
        where_its_owner_may_not_create_it_may_not_make_it_persistent,
        what_is_persistent_already_may_be_asked_for_by_all,
        unlinking_it_without_endpoints_frees_it,
        unlinking_it_with_endpoints_leaves_it_to_them,
        it_goes_with_its_cgroup_by_itself,
        an_endpoint_keeps_it_when_its_cgroup_goes,
        a_cgroup_with_many_goes_with_all_of_them,
        only_the_removed_cgroup_loses_its_own,
        a_hundred_removed_cgroups_leave_no_object,
        a_thousand_removed_cgroups_leave_no_page,
        the_module_stays_while_there_is_one,
    ],
);

fn it_stays_without_endpoints_and_keeps_its_bytes(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let bytes = stream_bytes(1, 0, CAPACITY);
    let request = Open::new("channel", BOTH | CREATE | PERSIST);
    let end = ctl.open(request).context("making it")?;
    write_all(&end, &bytes)?;
    drop(end);
    let info = ctl.info(OWN, "channel").context("info")?;
    expect("flags", info.flags, PERSISTENT)?;
    expect("endpoints", (info.readers, info.writers), (0, 0))?;
    expect("bytes", info.bytes, CAPACITY as u64)?;
    let reader = ctl.open(Open::new("channel", READ | NONBLOCK))?;
    expect_bytes("what it kept", &read_all(&reader, CAPACITY)?, &bytes)?;
    expect("a read after it", read(&reader, &mut [0]), Ok(0))?;
    drop(reader);
    ctl.unlink(OWN, "channel").context("unlinking")
}

fn it_outlives_a_killed_maker(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let maker = spawn("the maker", || {
        let ctl = Ctl::new()?;
        let end = ctl.open(Open::new("channel", BOTH | CREATE | PERSIST))?;
        write_all(&end, b"kept")?;
        // Waits for somebody who never comes.
        ctl.open(Open::new("another", READ | CREATE)).map(drop)?;
        Ok(())
    })?;
    maker.wait_asleep_in(Call::Ioctl)?;
    maker.kill()?;
    expect("names", ctl.names(OWN), Ok(vec![b"channel".to_vec()]))?;
    let end = ctl.attach(OWN, "channel").context("attaching")?;
    expect_bytes("what it kept", &read_some(&end, 64)?, b"kept")?;
    ctl.unlink(OWN, "channel").context("unlinking")
}

fn without_endpoints_opens_wait_as_on_a_fifo(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    ctl.persist(OWN, "channel").context("making it")?;
    for (side, other) in [(READ, WRITE), (WRITE, READ)] {
        let waiting = spawn("an open that waits", || {
            let opened = Ctl::new()?.open(Open::new("channel", side));
            opened.map(drop).context("open")
        })?;
        waiting.wait_asleep_in(Call::Ioctl)?;
        let _end = ctl
            .open(Open::new("channel", other))
            .context("its partner")?;
        waiting.finish()?;
    }
    ctl.unlink(OWN, "channel").context("unlinking")
}

const OWNER: u32 = 1001;
const OTHER: u32 = 1002;

fn expect_flags(ctl: &Ctl, scope_fd: RawFd, flags: u32) -> Result<()> {
    let seen = ctl.info(scope_fd, "channel").map(|info| info.flags);
    expect("flags", seen, Ok(flags))
}

/// What an open that asks for persistence answers to this user.
fn persist_as(user: u32, scope_fd: RawFd, keep: &[BorrowedFd]) -> Result<Result<(), i32>> {
    let child = spawn_keeping(&format!("user {user}"), keep, || {
        become_user(user)?;
        let opened = Ctl::new()?.open(Open {
            scope_fd,
            ..Open::new("channel", BOTH | CREATE | PERSIST)
        });
        Ok(opened.map(drop).map_err(|errno| errno as i32))
    })?;
    child.finish()
}

/// An endpoint of a channel of `OWNER` that everybody may open, and that goes with it.
fn of_owner() -> Result<OwnedFd> {
    let (ours, theirs) = passing::sockets()?;
    let owner = spawn_keeping("the owner", &[theirs.as_fd()], || {
        become_user(OWNER)?;
        let end = Ctl::new()?.open(Open {
            mode: 0o666,
            ..Open::new("channel", BOTH | CREATE)
        });
        passing::send(&theirs, end.context("creating it")?.as_fd())
    })?;
    owner.finish()?;
    passing::receive(&ours)
}

fn its_owner_may_make_it_persistent_later(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let end = of_owner()?;
    expect_flags(&ctl, OWN, 0)?;
    expect("as owner", persist_as(OWNER, OWN, &[])?, Ok(()))?;
    expect_flags(&ctl, OWN, PERSISTENT)?;
    write_all(&end, b"kept")?;
    drop(end);
    let end = ctl.attach(OWN, "channel").context("attaching")?;
    expect_bytes("what it kept", &read_some(&end, 64)?, b"kept")?;
    ctl.unlink(OWN, "channel").context("unlinking")?;
    drop(end);
    expect_no_channel(&ctl)
}

fn others_may_not_make_it_persistent_later(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let end = of_owner()?;
    let refused = Err(Errno::EPERM as i32);
    expect("as another user", persist_as(OTHER, OWN, &[])?, refused)?;
    expect_flags(&ctl, OWN, 0)?;
    let info = ctl.info(OWN, "channel").context("info")?;
    expect("endpoints", (info.readers, info.writers), (1, 1))?;
    let administrator = ctl.open(Open::new("channel", BOTH | CREATE | PERSIST));
    administrator.map(drop).context("as administrator")?;
    expect_flags(&ctl, OWN, PERSISTENT)?;
    ctl.unlink(OWN, "channel").context("unlinking")?;
    drop(end);
    expect_no_channel(&ctl)
}

fn where_its_owner_may_not_create_it_may_not_make_it_persistent(context: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let home = context.cgroup()?;
    let directory = home.directory()?;
    let _end = of_owner()?;
    for (mode, expected, flags) in [
        (0o755, Err(Errno::EACCES as i32), 0),
        (0o757, Ok(()), PERSISTENT),
    ] {
        fs::set_permissions(home.path(), Permissions::from_mode(mode))?;
        let seen = persist_as(OWNER, directory.as_raw_fd(), &[directory.as_fd()])?;
        expect(&format!("with mode {mode:o}"), seen, expected)?;
        expect_flags(&ctl, OWN, flags)?;
    }
    ctl.unlink(OWN, "channel").context("unlinking")
}

fn what_is_persistent_already_may_be_asked_for_by_all(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let end = of_owner()?;
    expect("as owner", persist_as(OWNER, OWN, &[])?, Ok(()))?;
    expect("as another user", persist_as(OTHER, OWN, &[])?, Ok(()))?;
    ctl.unlink(OWN, "channel").context("unlinking")?;
    drop(end);
    expect_no_channel(&ctl)
}

fn unlinking_it_without_endpoints_frees_it(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for name in ["one", "two", "three"] {
        ctl.persist(OWN, name).context("making it")?;
    }
    for name in ["two", "three", "one"] {
        ctl.unlink(OWN, name).context("unlinking")?;
    }
    expect("names", ctl.names(OWN), Ok(vec![]))?;
    expect_nothing_held()
}

fn unlinking_it_with_endpoints_leaves_it_to_them(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    ctl.persist(OWN, "channel").context("making it")?;
    let end = ctl.attach(OWN, "channel").context("attaching")?;
    write_all(&end, b"still there")?;
    ctl.unlink(OWN, "channel").context("unlinking")?;
    ctl.persist(OWN, "channel")
        .context("another of that name")?;
    expect_bytes("the first one", &read_some(&end, 64)?, b"still there")?;
    drop(end);
    ctl.unlink(OWN, "channel").context("unlinking the other")?;
    expect_nothing_held()
}

/// A cgroup with a persistent channel, full of bytes.
fn with_full_channel(parent: &Cgroup, name: &str) -> Result<Cgroup> {
    let cgroup = parent.create_child(name)?;
    let directory = cgroup.directory()?;
    let end = Ctl::new()?.open(Open {
        scope_fd: directory.as_raw_fd(),
        ..Open::new("channel", BOTH | CREATE | PERSIST)
    });
    let end = end.context("making a channel")?;
    set_nonblocking(&end)?;
    expect("bytes that fill it", fill(&end, b'x')?, CAPACITY)?;
    Ok(cgroup)
}

fn it_goes_with_its_cgroup_by_itself(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let dying = home.dying_descendants()?;
    with_full_channel(home, "doomed")?.remove()?;
    expect_nothing_held()?;
    home.expect_dying(dying)
}

fn an_endpoint_keeps_it_when_its_cgroup_goes(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let dying = home.dying_descendants()?;
    let ctl = Ctl::new()?;
    let cgroup = with_full_channel(home, "doomed")?;
    let directory = cgroup.directory()?;
    let end = ctl.attach(directory.as_raw_fd(), "channel")?;
    cgroup.remove()?;
    let again = ctl.attach(directory.as_raw_fd(), "channel").map(drop);
    expect("its name", again, Err(Errno::ENOENT))?;
    drop(directory);
    expect("bytes", read_all(&end, CAPACITY)?.len(), CAPACITY)?;
    write_all(&end, b"still there")?;
    drop(end);
    expect_nothing_held()?;
    home.expect_dying(dying)
}

fn a_cgroup_with_many_goes_with_all_of_them(context: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let cgroup = context.cgroup()?.create_child("doomed")?;
    let directory = cgroup.directory()?;
    for number in 0..300 {
        let made = ctl.persist(directory.as_raw_fd(), format!("channel-{number}"));
        made.context("making a channel")?;
    }
    drop(directory);
    cgroup.remove()?;
    expect_nothing_held()
}

fn only_the_removed_cgroup_loses_its_own(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let ctl = Ctl::new()?;
    let kept = [
        with_full_channel(home, "sibling")?,
        with_full_channel(home, "parent")?,
    ];
    with_full_channel(&kept[1], "doomed")?.remove()?;
    // By now it has gone, if what came later has.
    let witness = home.dying_descendants()?;
    with_full_channel(home, "witness")?.remove()?;
    home.expect_dying(witness)?;
    for cgroup in kept {
        let directory = cgroup.directory()?;
        let info = ctl.info(directory.as_raw_fd(), "channel").context("info")?;
        expect("bytes of another cgroup's", info.bytes, CAPACITY as u64)?;
        ctl.unlink(directory.as_raw_fd(), "channel")?;
    }
    Ok(())
}

const CGROUPS: usize = 1000;

fn use_cgroups(home: &Cgroup, count: usize) -> Result<()> {
    let dying = home.dying_descendants()?;
    for number in 0..count {
        with_full_channel(home, &format!("number-{number}"))?.remove()?;
    }
    expect_nothing_held()?;
    home.expect_dying(dying)
}

fn a_hundred_removed_cgroups_leave_no_object(context: &Context) -> Result<()> {
    use_cgroups(context.cgroup()?, 100)
}

/// Free pages go up and down by themselves, by less than a hundred; a thousand leaks of one page would be a thousand.
fn a_thousand_removed_cgroups_leave_no_page(context: &Context) -> Result<()> {
    const TOLERANCE: u64 = CGROUPS as u64 / 4;
    let home = context.cgroup()?;
    if freed_memory_is_kept_back()? {
        return Err(skip(
            "KASAN keeps freed memory back, so the number of free pages tells nothing",
        ));
    }
    use_cgroups(home, 50)?;
    let before = free_pages()?;
    use_cgroups(home, CGROUPS)?;
    let mut after = 0;
    let settled = eventually("free pages are back", || {
        after = free_pages()?;
        Ok((after + TOLERANCE >= before).then_some(()))
    });
    settled.with_context(|| format!("free pages: {before} before, {after} after"))
}

fn module_references() -> Result<u64> {
    let text = fs::read_to_string("/sys/module/sluice/refcnt").context("reading refcnt")?;
    text.trim().parse().context("the count of references")
}

fn expect_no_references() -> Result<()> {
    // A file that was just closed lets go of its module a moment later.
    eventually("nobody refers to the module", || {
        Ok((module_references()? == 0).then_some(()))
    })
}

/// ctl is open only while it is used: it would keep the module too.
fn the_module_stays_while_there_is_one(context: &Context) -> Result<()> {
    expect_no_references()?;
    Ctl::new()?.persist(OWN, "channel").context("making it")?;
    eventually("only the channel refers to the module", || {
        Ok((module_references()? == 1).then_some(()))
    })?;
    expect_module_stays()?;
    Ctl::new()?.unlink(OWN, "channel").context("unlinking it")?;
    expect_no_references()?;
    let cgroup = with_full_channel(context.cgroup()?, "doomed")?;
    expect_module_stays()?;
    cgroup.remove()?;
    expect_no_references()
}
