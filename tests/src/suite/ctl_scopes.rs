// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cgroup a name belongs to, and which processes have access to it.

use std::fs::{self, File, Permissions};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount, umount};

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::{read_some, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{spawn, spawn_keeping};
use crate::support::credentials::{NOBODY, become_user, become_user_namespace_root};
use crate::support::ctl::{BOTH, CREATE, Ctl, OWN, Open, persist_inside, persist_inside_as};
use crate::support::fd_passing;

topic!(
    "ctl_scopes",
    fifo: [],
    pipe_only: [
        the_own_cgroup_directory_is_the_own_scope,
        two_cgroups_have_separate_names,
        no_call_finds_the_names_of_another_cgroup,
        a_scope_is_accessible_from_a_descendant,
        a_scope_is_not_accessible_from_an_ancestor,
        an_administrator_has_access_to_every_scope,
        root_of_a_user_namespace_is_not_an_administrator,
        creating_by_directory_needs_write_permission_on_it,
        creating_in_the_own_cgroup_needs_no_permission,
        unlinking_by_directory_needs_write_permission_on_it,
        unlinking_in_the_own_cgroup_needs_no_permission,
        write_permission_from_outside_allows_only_create,
        a_migrated_process_sees_the_names_of_its_new_cgroup,
        a_passed_endpoint_works_in_another_cgroup,
        a_passed_ctl_checks_its_caller,
        a_descriptor_that_is_no_cgroup_directory_is_ebadf,
        a_cgroup_v1_directory_is_ebadf,
        a_removed_cgroup_is_enoent,
        a_new_cgroup_with_a_reused_name_has_no_channels,
    ],
);

/// The results of open, info, list and unlink for this name in this scope. Creates nothing.
fn results(ctl: &Ctl, scope: RawFd, name: &str) -> [nix::Result<()>; 4] {
    [
        ctl.attach(scope, name).map(drop),
        ctl.info(scope, name).map(drop),
        ctl.names(scope).map(drop),
        ctl.unlink(scope, name),
    ]
}

fn expect_all(what: &str, ctl: &Ctl, scope: RawFd, error: Errno) -> Result<()> {
    expect(
        &format!("{what}: open, info, list and unlink"),
        results(ctl, scope, "channel"),
        [Err(error); 4],
    )
}

/// A new cgroup with a persistent channel whose mode allows everything.
fn with_channel(parent: &Cgroup, name: &str) -> Result<Cgroup> {
    let cgroup = parent.create_child(name)?;
    persist_inside(&cgroup, "channel", 0o666)?;
    Ok(cgroup)
}

fn the_own_cgroup_directory_is_the_own_scope(context: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let directory = context.cgroup()?.directory()?;
    let endpoint = ctl.create("channel")?;
    let scope = directory.as_raw_fd();
    expect("names", ctl.names(scope), Ok(vec![b"channel".to_vec()]))?;
    write_all(&endpoint, b"same")?;
    let other = ctl.attach(scope, "channel").context("by directory")?;
    expect_bytes("bytes received", &read_some(&other, 64)?, b"same")?;
    ctl.unlink(scope, "channel").context("unlinking")?;
    expect("names left", ctl.names(OWN), Ok(vec![]))
}

fn two_cgroups_have_separate_names(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let ctl = Ctl::new()?;
    let mut ends = Vec::new();
    for name in ["left", "right"] {
        home.create_child(name)?.enter()?;
        let end = ctl.create("channel").context("one of that name")?;
        write_all(&end, name.as_bytes())?;
        ends.push((end, name));
    }
    home.enter()?;
    expect("names in the test's cgroup", ctl.names(OWN), Ok(vec![]))?;
    for (end, name) in ends {
        expect_bytes(name, &read_some(&end, 64)?, name.as_bytes())?;
    }
    Ok(())
}

fn no_call_finds_the_names_of_another_cgroup(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let theirs = with_channel(home, "theirs")?;
    let ours = home.create_child("ours")?;
    let other = ours.spawn("a process in another cgroup", || {
        become_user(NOBODY)?;
        let ctl = Ctl::new()?;
        expect(
            "open, info, list and unlink in its own",
            results(&ctl, OWN, "channel"),
            [
                Err(Errno::ENOENT),
                Err(Errno::ENOENT),
                Ok(()),
                Err(Errno::ENOENT),
            ],
        )?;
        expect("names in its own", ctl.names(OWN), Ok(vec![]))?;
        let directory = theirs.directory()?;
        let scope = directory.as_raw_fd();
        expect_all("by directory", &ctl, scope, Errno::EACCES)?;
        expect(
            "creating the channel",
            ctl.create_in(scope, "channel").map(drop),
            Err(Errno::EACCES),
        )?;
        // The errno does not reveal whether a name exists.
        expect(
            "a name that is not there",
            ctl.info(scope, "missing").map(drop),
            Err(Errno::EACCES),
        )
    })?;
    other.finish()
}

fn a_scope_is_accessible_from_a_descendant(context: &Context) -> Result<()> {
    let outer = with_channel(context.cgroup()?, "outer")?;
    let inner = outer.create_child("middle")?.create_child("inner")?;
    let below = inner.spawn("a process in a descendant", || {
        become_user(NOBODY)?;
        let ctl = Ctl::new()?;
        let directory = outer.directory()?;
        let scope = directory.as_raw_fd();
        let names = ctl.names(scope).context("listing")?;
        expect("names above", names, vec![b"channel".to_vec()])?;
        ctl.info(scope, "channel").context("info")?;
        let end = ctl.attach(scope, "channel").context("attaching")?;
        write_all(&end, b"from below")
    })?;
    below.finish()?;
    let directory = outer.directory()?;
    let end = Ctl::new()?.attach(directory.as_raw_fd(), "channel")?;
    expect_bytes("bytes written", &read_some(&end, 64)?, b"from below")
}

fn a_scope_is_not_accessible_from_an_ancestor(context: &Context) -> Result<()> {
    let outer = context.cgroup()?.create_child("outer")?;
    let inner = with_channel(&outer, "inner")?;
    let above = outer.spawn("a process in an ancestor", || {
        become_user(NOBODY)?;
        let directory = inner.directory()?;
        expect_all("above", &Ctl::new()?, directory.as_raw_fd(), Errno::EACCES)
    })?;
    above.finish()
}

fn an_administrator_has_access_to_every_scope(context: &Context) -> Result<()> {
    let theirs = with_channel(context.cgroup()?, "theirs")?;
    let ours = context.cgroup()?.create_child("ours")?;
    let administrator = ours.spawn("an administrator in another cgroup", || {
        let ctl = Ctl::new()?;
        let directory = theirs.directory()?;
        let scope = directory.as_raw_fd();
        expect("names", ctl.names(scope), Ok(vec![b"channel".to_vec()]))?;
        expect(
            "open, info, list and unlink",
            results(&ctl, scope, "channel"),
            [Ok(()); 4],
        )?;
        expect(
            "creating it again",
            ctl.create_in(scope, "channel").map(drop),
            Ok(()),
        )
    })?;
    administrator.finish()
}

fn root_of_a_user_namespace_is_not_an_administrator(context: &Context) -> Result<()> {
    let theirs = with_channel(context.cgroup()?, "theirs")?;
    let ours = context.cgroup()?.create_child("ours")?;
    let root = ours.spawn("root of a user namespace", || {
        become_user_namespace_root(NOBODY)?;
        let directory = theirs.directory()?;
        expect_all(
            "elsewhere",
            &Ctl::new()?,
            directory.as_raw_fd(),
            Errno::EACCES,
        )
    })?;
    root.finish()
}

fn creating_by_directory_needs_write_permission_on_it(context: &Context) -> Result<()> {
    let cgroup = context.cgroup()?.create_child("inside")?;
    for (mode, result) in [(0o755, Err(Errno::EACCES)), (0o757, Ok(()))] {
        fs::set_permissions(cgroup.path(), Permissions::from_mode(mode)).context("chmod")?;
        let inside = cgroup.spawn("a process inside", || {
            become_user(NOBODY)?;
            let directory = cgroup.directory()?;
            let created = Ctl::new()?
                .create_in(directory.as_raw_fd(), "channel")
                .map(drop);
            expect(&format!("with mode {mode:o}"), created, result)
        })?;
        inside.finish()?;
    }
    Ok(())
}

/// A channel of `NOBODY`, which does not own the cgroup.
fn with_channel_of_nobody(parent: &Cgroup) -> Result<Cgroup> {
    let cgroup = parent.create_child("outer")?;
    persist_inside_as(&cgroup, NOBODY, NOBODY, "channel")?;
    Ok(cgroup)
}

fn unlinking_by_directory_needs_write_permission_on_it(context: &Context) -> Result<()> {
    let outer = with_channel_of_nobody(context.cgroup()?)?;
    let inner = outer.create_child("inner")?;
    for (mode, result) in [(0o755, Err(Errno::EACCES)), (0o757, Ok(()))] {
        fs::set_permissions(outer.path(), Permissions::from_mode(mode)).context("chmod")?;
        let below = inner.spawn("its owner, below", || {
            become_user(NOBODY)?;
            let directory = outer.directory()?;
            let unlinked = Ctl::new()?.unlink(directory.as_raw_fd(), "channel");
            expect(&format!("with mode {mode:o}"), unlinked, result)
        })?;
        below.finish()?;
    }
    Ok(())
}

fn unlinking_in_the_own_cgroup_needs_no_permission(context: &Context) -> Result<()> {
    let cgroup = with_channel_of_nobody(context.cgroup()?)?;
    let owner = cgroup.spawn("its owner", || {
        become_user(NOBODY)?;
        let unlinked = Ctl::new()?.unlink(OWN, "channel");
        expect("unlinking it", unlinked, Ok(()))
    })?;
    owner.finish()
}

fn creating_in_the_own_cgroup_needs_no_permission(context: &Context) -> Result<()> {
    let cgroup = context.cgroup()?.create_child("inside")?;
    let inside = cgroup.spawn("a process inside", || {
        become_user(NOBODY)?;
        expect(
            "creating the channel",
            Ctl::new()?.create_in(OWN, "channel").map(drop),
            Ok(()),
        )
    })?;
    inside.finish()
}

fn write_permission_from_outside_allows_only_create(context: &Context) -> Result<()> {
    let cgroup = context.cgroup()?.create_child("writable")?;
    fs::set_permissions(cgroup.path(), Permissions::from_mode(0o757)).context("chmod")?;
    let outside = spawn("a process outside", || {
        become_user(NOBODY)?;
        let ctl = Ctl::new()?;
        let directory = cgroup.directory()?;
        let scope_fd = directory.as_raw_fd();
        let request = Open::new("channel", BOTH | CREATE);
        let _end = ctl
            .open(Open {
                scope_fd,
                ..request
            })
            .context("creating the channel")?;
        expect_all("afterwards", &ctl, scope_fd, Errno::EACCES)
    })?;
    outside.finish()
}

fn a_migrated_process_sees_the_names_of_its_new_cgroup(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let ctl = Ctl::new()?;
    let end = ctl.create("channel")?;
    home.create_child("new")?.enter()?;
    expect("names where it is now", ctl.names(OWN), Ok(vec![]))?;
    let gone = ctl.attach(OWN, "channel").map(drop);
    expect("the old name", gone, Err(Errno::ENOENT))?;
    write_all(&end, b"kept")?;
    let _new = ctl.create("channel").context("a new one of that name")?;
    home.enter()?;
    let again = ctl
        .attach(OWN, "channel")
        .context("back in the old cgroup")?;
    expect_bytes("its content", &read_some(&again, 64)?, b"kept")
}

fn a_passed_endpoint_works_in_another_cgroup(context: &Context) -> Result<()> {
    let other = context.cgroup()?.create_child("other")?;
    let (ours, theirs) = fd_passing::socket_pair()?;
    let child = spawn_keeping("a process in another cgroup", &[theirs.as_fd()], || {
        other.enter()?;
        become_user(NOBODY)?;
        let passed = fd_passing::receive_fd(&theirs)?;
        let unseen = Ctl::new()?.info(OWN, "channel").map(drop);
        expect("its name there", unseen, Err(Errno::ENOENT))?;
        read_some(&passed, 64).context("reading the passed endpoint")
    })?;
    let end = Ctl::new()?.create("channel")?;
    write_all(&end, b"passed on")?;
    fd_passing::send_fd(&ours, end.as_fd())?;
    expect_bytes("what the other read", &child.finish()?, b"passed on")
}

/// The credentials and cgroup of the opener of ctl have no effect.
fn a_passed_ctl_checks_its_caller(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let other = home.create_child("other")?;
    let ctl = Ctl::new()?;
    let _end = ctl.create("channel")?;
    let directory = home.directory()?;
    let keep = [ctl.as_fd(), directory.as_fd()];
    let sibling = with_channel(home, "sibling")?;
    let child = spawn_keeping("a process with another's ctl", &keep, || {
        other.enter()?;
        become_user(NOBODY)?;
        expect("names there", ctl.names(OWN), Ok(vec![]))?;
        let opened = ctl.attach(directory.as_raw_fd(), "channel").map(drop);
        expect("a channel for its owner alone", opened, Err(Errno::EACCES))?;
        let theirs = sibling.directory()?;
        expect_all("elsewhere", &ctl, theirs.as_raw_fd(), Errno::EACCES)
    })?;
    child.finish()
}

fn a_descriptor_that_is_no_cgroup_directory_is_ebadf(context: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let file = File::open(context.cgroup()?.path().join("cgroup.procs")).context("a file")?;
    let directory = File::open(&context.scratch).context("a directory")?;
    let proc = File::open("/proc/self").context("a directory in /proc")?;
    let sysfs = File::open("/sys/kernel").context("a directory in /sys")?;
    let end = ctl.create("another")?;
    for (what, fd) in [
        ("a file of a cgroup", file.as_raw_fd()),
        ("a directory", directory.as_raw_fd()),
        ("a directory in /proc", proc.as_raw_fd()),
        ("a directory in /sys", sysfs.as_raw_fd()),
        ("an unused descriptor", 999),
        ("an endpoint", end.as_raw_fd()),
        ("ctl", ctl.as_fd().as_raw_fd()),
        ("-3", -3),
        ("-100, which elsewhere is the working directory", -100),
        ("the least number", RawFd::MIN),
        ("the greatest number", RawFd::MAX),
    ] {
        expect_all(what, &ctl, fd, Errno::EBADF)?;
        expect(
            what,
            ctl.create_in(fd, "channel").map(drop),
            Err(Errno::EBADF),
        )?;
    }
    Ok(())
}

fn a_cgroup_v1_directory_is_ebadf(context: &Context) -> Result<()> {
    let (kind, options) = (Some("cgroup"), Some("none,name=sluice-tests"));
    mount(
        Some("none"),
        &context.scratch,
        kind,
        MsFlags::empty(),
        options,
    )
    .context("mounting a version 1 hierarchy")?;
    let result = File::open(&context.scratch)
        .context("opening its root")
        .and_then(|directory| {
            expect_all(
                "its root",
                &Ctl::new()?,
                directory.as_raw_fd(),
                Errno::EBADF,
            )
        });
    umount(&context.scratch).context("unmounting it")?;
    result
}

fn a_removed_cgroup_is_enoent(context: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let cgroup = with_channel(context.cgroup()?, "removed")?;
    let directory = cgroup.directory()?;
    let scope = directory.as_raw_fd();
    let end = ctl.attach(scope, "channel").context("attaching")?;
    cgroup.remove()?;
    expect_all("the removed one", &ctl, scope, Errno::ENOENT)?;
    expect(
        "creating one there",
        ctl.create_in(scope, "channel").map(drop),
        Err(Errno::ENOENT),
    )?;
    write_all(&end, b"still there")?;
    expect_bytes("its endpoint", &read_some(&end, 64)?, b"still there")
}

fn a_new_cgroup_with_a_reused_name_has_no_channels(context: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let old = with_channel(context.cgroup()?, "name")?;
    old.remove()?;
    let new = context.cgroup()?.create_child("name")?.directory()?;
    expect("names", ctl.names(new.as_raw_fd()), Ok(vec![]))
}
