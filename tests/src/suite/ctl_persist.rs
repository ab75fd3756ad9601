// SPDX-License-Identifier: MIT OR Apache-2.0
//! Persistent channels stay without endpoints, and are freed completely when they are unlinked or their cgroup is
//! removed.

use std::fs::{self, Permissions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::unistd::read;

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::{CAPACITY, fill, read_all, read_some, set_nonblocking, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{spawn, spawn_keeping};
use crate::support::credentials::become_user;
use crate::support::ctl::{
    ANY_OWNER, BOTH, CREATE, Ctl, NONBLOCK, OWN, Open, PERSIST, PERSISTENT, READ, WRITE,
    expect_no_channel,
};
use crate::support::fd_passing;
use crate::support::kernel::{expect_module_in_use, expect_no_objects, expect_no_page_leak};
use crate::support::proc::Call;
use crate::support::random::stream_bytes;
use crate::support::time::eventually;

topic!(
    "ctl_persist",
    fifo: [],
    pipe_only: [
        a_channel_without_endpoints_keeps_its_bytes,
        a_channel_outlives_its_killed_creator,
        opens_of_a_channel_without_endpoints_block_as_on_a_fifo,
        the_owner_may_set_persistence_later,
        others_may_not_set_persistence_later,
        an_owner_without_create_permission_may_not_set_persistence,
        persist_on_a_persistent_channel_needs_no_ownership,
        unlinking_without_endpoints_frees_the_channel,
        unlinking_with_endpoints_keeps_the_channel_usable,
        removing_the_cgroup_frees_the_channel,
        an_endpoint_keeps_the_channel_of_a_removed_cgroup,
        removing_a_cgroup_frees_all_its_channels,
        removing_a_cgroup_frees_no_channel_of_others,
        a_hundred_removed_cgroups_leak_no_object,
        many_removed_cgroups_leak_no_page,
        a_persistent_channel_keeps_the_module_loaded,
    ],
);

fn a_channel_without_endpoints_keeps_its_bytes(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let bytes = stream_bytes(1, 0, CAPACITY);
    let request = Open::new("channel", BOTH | CREATE | PERSIST);
    let end = ctl.open(request).context("creating the channel")?;
    write_all(&end, &bytes)?;
    drop(end);
    let info = ctl.info(OWN, "channel").context("info")?;
    expect("flags", info.flags, PERSISTENT)?;
    expect("endpoints", (info.readers, info.writers), (0, 0))?;
    expect("bytes", info.bytes, CAPACITY as u64)?;
    let reader = ctl.open(Open::new("channel", READ | NONBLOCK))?;
    expect_bytes("its content", &read_all(&reader, CAPACITY)?, &bytes)?;
    expect("a read after it", read(&reader, &mut [0]), Ok(0))?;
    drop(reader);
    ctl.unlink(OWN, "channel").context("unlinking")
}

fn a_channel_outlives_its_killed_creator(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let creator = spawn("the creator", || {
        let ctl = Ctl::new()?;
        let end = ctl.open(Open::new("channel", BOTH | CREATE | PERSIST))?;
        write_all(&end, b"kept")?;
        // Blocks until it is killed.
        ctl.open(Open::new("another", READ | CREATE)).map(drop)?;
        Ok(())
    })?;
    creator.wait_asleep_in(Call::Ioctl)?;
    creator.kill()?;
    expect("names", ctl.names(OWN), Ok(vec![b"channel".to_vec()]))?;
    let end = ctl.attach(OWN, "channel").context("attaching")?;
    expect_bytes("its content", &read_some(&end, 64)?, b"kept")?;
    ctl.unlink(OWN, "channel").context("unlinking")
}

fn opens_of_a_channel_without_endpoints_block_as_on_a_fifo(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    ctl.persist(OWN, "channel")
        .context("creating the channel")?;
    for (side, other) in [(READ, WRITE), (WRITE, READ)] {
        let waiting = spawn("a blocked open", || {
            let opened = Ctl::new()?.open(Open::new("channel", side));
            opened.map(drop).context("open")
        })?;
        waiting.wait_asleep_in(Call::Ioctl)?;
        let _end = ctl
            .open(Open::new("channel", other))
            .context("the other side")?;
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

/// The result of an open with PERSIST as this user.
fn persist_as(user: u32, scope_fd: RawFd, keep: &[BorrowedFd]) -> Result<Result<(), i32>> {
    let child = spawn_keeping(&format!("user {user}"), keep, || {
        become_user(user)?;
        let opened = Ctl::new()?.open(Open {
            scope_fd,
            ..Open::new("channel", BOTH | CREATE | ANY_OWNER | PERSIST)
        });
        Ok(opened.map(drop).map_err(|errno| errno as i32))
    })?;
    child.finish()
}

/// An endpoint of a non-persistent channel of `OWNER` that every user may open.
fn of_owner() -> Result<OwnedFd> {
    let (ours, theirs) = fd_passing::socket_pair()?;
    let owner = spawn_keeping("the owner", &[theirs.as_fd()], || {
        become_user(OWNER)?;
        let end = Ctl::new()?.open(Open {
            mode: 0o666,
            ..Open::new("channel", BOTH | CREATE)
        });
        fd_passing::send_fd(&theirs, end.context("creating the channel")?.as_fd())
    })?;
    owner.finish()?;
    fd_passing::receive_fd(&ours)
}

fn the_owner_may_set_persistence_later(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let end = of_owner()?;
    expect_flags(&ctl, OWN, 0)?;
    expect("as owner", persist_as(OWNER, OWN, &[])?, Ok(()))?;
    expect_flags(&ctl, OWN, PERSISTENT)?;
    write_all(&end, b"kept")?;
    drop(end);
    let end = ctl.attach(OWN, "channel").context("attaching")?;
    expect_bytes("its content", &read_some(&end, 64)?, b"kept")?;
    ctl.unlink(OWN, "channel").context("unlinking")?;
    drop(end);
    expect_no_channel(&ctl)
}

fn others_may_not_set_persistence_later(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let end = of_owner()?;
    let refused = Err(Errno::EPERM as i32);
    expect("as another user", persist_as(OTHER, OWN, &[])?, refused)?;
    expect_flags(&ctl, OWN, 0)?;
    let info = ctl.info(OWN, "channel").context("info")?;
    expect("endpoints", (info.readers, info.writers), (1, 1))?;
    let flags = BOTH | CREATE | ANY_OWNER | PERSIST;
    let administrator = ctl.open(Open::new("channel", flags));
    administrator.map(drop).context("as administrator")?;
    expect_flags(&ctl, OWN, PERSISTENT)?;
    ctl.unlink(OWN, "channel").context("unlinking")?;
    drop(end);
    expect_no_channel(&ctl)
}

fn an_owner_without_create_permission_may_not_set_persistence(context: &Context) -> Result<()> {
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

fn persist_on_a_persistent_channel_needs_no_ownership(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let end = of_owner()?;
    expect("as owner", persist_as(OWNER, OWN, &[])?, Ok(()))?;
    expect("as another user", persist_as(OTHER, OWN, &[])?, Ok(()))?;
    ctl.unlink(OWN, "channel").context("unlinking")?;
    drop(end);
    expect_no_channel(&ctl)
}

fn unlinking_without_endpoints_frees_the_channel(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for name in ["one", "two", "three"] {
        ctl.persist(OWN, name).context("creating the channel")?;
    }
    for name in ["two", "three", "one"] {
        ctl.unlink(OWN, name).context("unlinking")?;
    }
    expect("names", ctl.names(OWN), Ok(vec![]))?;
    expect_no_objects()
}

fn unlinking_with_endpoints_keeps_the_channel_usable(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    ctl.persist(OWN, "channel")
        .context("creating the channel")?;
    let end = ctl.attach(OWN, "channel").context("attaching")?;
    write_all(&end, b"still there")?;
    ctl.unlink(OWN, "channel").context("unlinking")?;
    ctl.persist(OWN, "channel")
        .context("another of that name")?;
    expect_bytes("the first one", &read_some(&end, 64)?, b"still there")?;
    drop(end);
    ctl.unlink(OWN, "channel").context("unlinking the other")?;
    expect_no_objects()
}

/// A new cgroup with a persistent channel that is full.
fn with_full_channel(parent: &Cgroup, name: &str) -> Result<Cgroup> {
    let cgroup = parent.create_child(name)?;
    let directory = cgroup.directory()?;
    let end = Ctl::new()?.open(Open {
        scope_fd: directory.as_raw_fd(),
        ..Open::new("channel", BOTH | CREATE | PERSIST)
    });
    let end = end.context("creating a channel")?;
    set_nonblocking(&end)?;
    expect("bytes that fill it", fill(&end, b'x')?, CAPACITY)?;
    Ok(cgroup)
}

fn removing_the_cgroup_frees_the_channel(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let dying = home.dying_descendants()?;
    with_full_channel(home, "removed")?.remove()?;
    expect_no_objects()?;
    home.expect_dying(dying)
}

fn an_endpoint_keeps_the_channel_of_a_removed_cgroup(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let dying = home.dying_descendants()?;
    let ctl = Ctl::new()?;
    let cgroup = with_full_channel(home, "removed")?;
    let directory = cgroup.directory()?;
    let end = ctl.attach(directory.as_raw_fd(), "channel")?;
    cgroup.remove()?;
    let again = ctl.attach(directory.as_raw_fd(), "channel").map(drop);
    expect("its name", again, Err(Errno::ENOENT))?;
    drop(directory);
    expect("bytes", read_all(&end, CAPACITY)?.len(), CAPACITY)?;
    write_all(&end, b"still there")?;
    drop(end);
    expect_no_objects()?;
    home.expect_dying(dying)
}

fn removing_a_cgroup_frees_all_its_channels(context: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let cgroup = context.cgroup()?.create_child("removed")?;
    let directory = cgroup.directory()?;
    for number in 0..300 {
        let made = ctl.persist(directory.as_raw_fd(), format!("channel-{number}"));
        made.context("creating a channel")?;
    }
    drop(directory);
    cgroup.remove()?;
    expect_no_objects()
}

fn removing_a_cgroup_frees_no_channel_of_others(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let ctl = Ctl::new()?;
    let kept = [
        with_full_channel(home, "sibling")?,
        with_full_channel(home, "parent")?,
    ];
    with_full_channel(&kept[1], "removed")?.remove()?;
    // Removals are handled in order, so the earlier one has been handled once the later one has.
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

fn use_cgroups(home: &Cgroup, count: usize) -> Result<()> {
    let dying = home.dying_descendants()?;
    for number in 0..count {
        with_full_channel(home, &format!("number-{number}"))?.remove()?;
    }
    expect_no_objects()?;
    home.expect_dying(dying)
}

fn a_hundred_removed_cgroups_leak_no_object(context: &Context) -> Result<()> {
    use_cgroups(context.cgroup()?, 100)
}

fn many_removed_cgroups_leak_no_page(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    expect_no_page_leak(500, |count| use_cgroups(home, count))
}

fn module_references() -> Result<u64> {
    let text = fs::read_to_string("/sys/module/sluice/refcnt").context("reading refcnt")?;
    text.trim().parse().context("the count of references")
}

fn expect_no_references() -> Result<()> {
    // A closed file releases its module reference with a small delay.
    eventually("the module has no references", || {
        Ok((module_references()? == 0).then_some(()))
    })
}

/// ctl is open only while it is used, because it holds a module reference too.
fn a_persistent_channel_keeps_the_module_loaded(context: &Context) -> Result<()> {
    expect_no_references()?;
    Ctl::new()?
        .persist(OWN, "channel")
        .context("creating the channel")?;
    eventually("the module has only the channel's reference", || {
        Ok((module_references()? == 1).then_some(()))
    })?;
    expect_module_in_use()?;
    Ctl::new()?.unlink(OWN, "channel").context("unlinking it")?;
    expect_no_references()?;
    let cgroup = with_full_channel(context.cgroup()?, "removed")?;
    expect_module_in_use()?;
    cgroup.remove()?;
    expect_no_references()
}
