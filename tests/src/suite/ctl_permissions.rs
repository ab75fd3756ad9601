// SPDX-License-Identifier: MIT OR Apache-2.0
//! Permissions to open and to unlink a channel: the caller is checked against its mode, as for a file.

use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::unistd::{Gid, Uid, chown, setfsgid, setfsuid};

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::child::{spawn, spawn_keeping};
use crate::support::credentials::{
    NOBODY, become_namespaces_root, become_user, become_user_namespace_root,
    become_user_with_groups,
};
use crate::support::ctl::{
    ANY_OWNER, BOTH, CREATE, Ctl, EXCL, NONBLOCK, OWN, Open, PERSIST, READ, WRITE, endpoint_info,
};

topic!(
    "ctl_permissions",
    fifo: [],
    pipe_only: [
        the_mode_decides_who_may_open,
        the_first_matching_class_decides,
        a_supplementary_group_counts,
        the_user_and_group_for_files_count,
        the_creator_gets_an_endpoint_whatever_the_mode,
        an_administrator_may_open_whatever_the_mode,
        a_create_gets_no_channel_of_another_user,
        a_create_gets_a_channel_of_root_or_of_the_owner_of_the_directory,
        an_endpoint_tells_who_owns_its_channel,
        a_denied_open_changes_nothing,
        the_owner_may_unlink,
        others_may_not_unlink,
        an_administrator_may_unlink,
        root_of_a_user_namespace_may_unlink_only_its_own,
        root_of_a_cgroup_namespace_may_unlink_only_its_own,
        list_and_info_need_no_permission_on_the_channel,
    ],
);

const OWNER: u32 = 1001;
const GROUP: u32 = 2001;
const OTHER_USER: u32 = 3001;

/// A persistent channel of `OWNER` and `GROUP`.
fn create_channel(mode: u32) -> Result<()> {
    let creator = spawn("the owner", || {
        become_user_with_groups(OWNER, GROUP, &[])?;
        let request = Open::new("channel", BOTH | CREATE | EXCL | PERSIST);
        let made = Ctl::new()?.open(Open { mode, ..request });
        made.map(drop).context("creating the channel")
    })?;
    creator.finish()
}

fn unlink_channel() -> Result<()> {
    Ctl::new()?.unlink(OWN, "channel").context("unlinking it")
}

/// User, group and supplementary groups.
type Credentials = (u32, u32, &'static [u32]);

/// Checks which of reading, writing and both are permitted.
fn expect_access(mode: u32, credentials: Credentials, expected: [bool; 3]) -> Result<()> {
    create_channel(mode)?;
    let (uid, gid, groups) = credentials;
    let opener = spawn("an opener", || {
        become_user_with_groups(uid, gid, groups)?;
        let ctl = Ctl::new()?;
        // A non-blocking writer needs a reader.
        let _reader = ctl.open(Open::new("channel", READ | NONBLOCK));
        for (flags, works) in [READ | NONBLOCK, WRITE | NONBLOCK, BOTH]
            .into_iter()
            .zip(expected)
        {
            let seen = ctl.open(Open::new("channel", flags)).map(drop);
            let may = match seen {
                Ok(()) | Err(Errno::ENXIO) => true,
                Err(Errno::EACCES) => false,
                Err(error) => return Err(error).context("open"),
            };
            let what = format!("mode {mode:o}, user {uid}, group {gid}, flags {flags:#x}");
            expect(&what, may, works)?;
        }
        Ok(())
    })?;
    opener.finish()?;
    unlink_channel()
}

const NOTHING: [bool; 3] = [false; 3];
const READING: [bool; 3] = [true, false, false];
const WRITING: [bool; 3] = [false, true, false];
const EVERYTHING: [bool; 3] = [true; 3];

fn the_mode_decides_who_may_open(_: &Context) -> Result<()> {
    let owner: Credentials = (OWNER, OTHER_USER, &[]);
    let member: Credentials = (OTHER_USER, GROUP, &[]);
    let other: Credentials = (OTHER_USER, OTHER_USER, &[]);
    for (credentials, shift) in [(owner, 6), (member, 3), (other, 0)] {
        for (bits, expected) in [
            (0, NOTHING),
            (1, NOTHING),
            (2, WRITING),
            (4, READING),
            (6, EVERYTHING),
        ] {
            expect_access(bits << shift, credentials, expected)?;
        }
    }
    Ok(())
}

fn the_first_matching_class_decides(_: &Context) -> Result<()> {
    expect_access(0o077, (OWNER, GROUP, &[]), NOTHING)?;
    expect_access(0o707, (OTHER_USER, GROUP, &[]), NOTHING)?;
    expect_access(0o770, (OTHER_USER, OTHER_USER, &[]), NOTHING)
}

fn a_supplementary_group_counts(_: &Context) -> Result<()> {
    expect_access(0o060, (OTHER_USER, OTHER_USER, &[7, GROUP]), EVERYTHING)
}

fn the_user_and_group_for_files_count(_: &Context) -> Result<()> {
    let creator = spawn("a process with another user for files", || {
        setfsgid(Gid::from_raw(GROUP));
        setfsuid(Uid::from_raw(OWNER));
        let ctl = Ctl::new()?;
        let _end = ctl.create("channel").context("creating the channel")?;
        let info = ctl.info(OWN, "channel").context("info")?;
        expect("owner", (info.uid, info.gid), (OWNER, GROUP))
    })?;
    creator.finish()
}

fn the_creator_gets_an_endpoint_whatever_the_mode(_: &Context) -> Result<()> {
    let creator = spawn("the owner", || {
        become_user(OWNER)?;
        let ctl = Ctl::new()?;
        let request = Open {
            mode: 0,
            ..Open::new("channel", BOTH | CREATE)
        };
        let _end = ctl.open(request).context("creating the channel")?;
        let again = ctl.open(request).map(drop);
        expect("opening it again", again, Err(Errno::EACCES))
    })?;
    creator.finish()
}

fn an_administrator_may_open_whatever_the_mode(_: &Context) -> Result<()> {
    create_channel(0)?;
    let opened = Ctl::new()?.attach(OWN, "channel").map(drop);
    expect("an open as root", opened, Ok(()))?;
    unlink_channel()
}

/// Whoever has taken the name first does not get what is sent to it.
fn a_create_gets_no_channel_of_another_user(_: &Context) -> Result<()> {
    create_channel(0o666)?;
    let create = |uid: u32, flags: u32| -> Result<Result<(), i32>> {
        let opener = spawn("an opener", || {
            become_user_with_groups(uid, GROUP, &[])?;
            let opened = Ctl::new()?.open(Open::new("channel", BOTH | flags));
            Ok(opened.map(drop).map_err(|errno| errno as i32))
        })?;
        opener.finish()
    };
    let refused = Err(Errno::EACCES as i32);
    for uid in [OTHER_USER, 0] {
        expect("a create", create(uid, CREATE)?, refused)?;
        expect("with PERSIST", create(uid, CREATE | PERSIST)?, refused)?;
        expect("an open", create(uid, 0)?, Ok(()))?;
        expect("of any owner", create(uid, CREATE | ANY_OWNER)?, Ok(()))?;
    }
    expect("by the owner", create(OWNER, CREATE)?, Ok(()))?;
    let without = create(OWNER, ANY_OWNER)?;
    expect(
        "ANY_OWNER without CREATE",
        without,
        Err(Errno::EINVAL as i32),
    )?;
    unlink_channel()
}

fn a_create_gets_a_channel_of_root_or_of_the_owner_of_the_directory(
    context: &Context,
) -> Result<()> {
    let request = Open {
        mode: 0o666,
        ..Open::new("of root", BOTH | CREATE)
    };
    let _root = Ctl::new()?.open(request).context("creating it as root")?;
    create_channel(0o666)?;
    let cgroup = context.cgroup()?;
    let scope = cgroup.directory()?;
    let opener = spawn("an opener", || {
        become_user_with_groups(OTHER_USER, GROUP, &[])?;
        let ctl = Ctl::new()?;
        ctl.open(Open::new("of root", BOTH | CREATE))
            .context("that of root")?;
        let seen = ctl.open(Open::new("channel", BOTH | CREATE)).map(drop);
        expect("of another user", seen, Err(Errno::EACCES))
    })?;
    opener.finish()?;
    chown(cgroup.path(), Some(Uid::from_raw(OWNER)), None).context("giving the cgroup away")?;
    let opener = spawn_keeping("an opener by the directory", &[scope.as_fd()], || {
        become_user_with_groups(OTHER_USER, GROUP, &[])?;
        let request = Open::new("channel", BOTH | CREATE);
        let scope_fd = scope.as_raw_fd();
        Ctl::new()?
            .open(Open {
                scope_fd,
                ..request
            })
            .map(drop)
            .context("that of the owner of the directory")
    });
    let finished = opener?.finish();
    chown(cgroup.path(), Some(Uid::from_raw(0)), None).context("taking the cgroup back")?;
    finished?;
    unlink_channel()
}

fn an_endpoint_tells_who_owns_its_channel(_: &Context) -> Result<()> {
    create_channel(0o666)?;
    let ctl = Ctl::new()?;
    let end = ctl.open(Open::new("channel", BOTH)).context("opening it")?;
    let by_name = ctl.info(OWN, "channel").context("info")?;
    let by_endpoint = endpoint_info(&end).context("info of the endpoint")?;
    expect("the state", by_endpoint, by_name)?;
    expect("owner", (by_endpoint.uid, by_endpoint.gid), (OWNER, GROUP))?;
    unlink_channel()?;
    let unlinked = endpoint_info(&end).context("after the unlink")?;
    expect("its owner", unlinked.uid, OWNER)
}

fn a_denied_open_changes_nothing(_: &Context) -> Result<()> {
    create_channel(0o600)?;
    let ctl = Ctl::new()?;
    let before = ctl.info(OWN, "channel").context("info")?;
    let other = spawn("another user", || {
        become_user(OTHER_USER)?;
        for flags in [READ, WRITE, BOTH, BOTH | CREATE | PERSIST, READ | NONBLOCK] {
            let opened = Ctl::new()?.open(Open::new("channel", flags)).map(drop);
            expect(&format!("flags {flags:#x}"), opened, Err(Errno::EACCES))?;
        }
        Ok(())
    })?;
    other.finish()?;
    expect("info afterwards", ctl.info(OWN, "channel"), Ok(before))?;
    unlink_channel()
}

/// The result of unlinking after `change_credentials`.
fn unlink_as(change_credentials: impl FnOnce() -> Result<()>) -> Result<Result<(), i32>> {
    let child = spawn("a process that unlinks", || {
        change_credentials()?;
        let unlinked = Ctl::new()?.unlink(OWN, "channel");
        Ok(unlinked.map_err(|errno| errno as i32))
    })?;
    child.finish()
}

fn the_owner_may_unlink(_: &Context) -> Result<()> {
    create_channel(0)?;
    expect("as owner", unlink_as(|| become_user(OWNER))?, Ok(()))?;
    expect("names left", Ctl::new()?.names(OWN), Ok(vec![]))
}

fn others_may_not_unlink(_: &Context) -> Result<()> {
    const EPERM: Result<(), i32> = Err(Errno::EPERM as i32);
    create_channel(0o777)?;
    expect(
        "as another user",
        unlink_as(|| become_user(OTHER_USER))?,
        EPERM,
    )?;
    expect("as nobody", unlink_as(|| become_user(NOBODY))?, EPERM)?;
    let member = unlink_as(|| become_user_with_groups(OTHER_USER, GROUP, &[GROUP]))?;
    expect("as one of the group", member, EPERM)?;
    let names = Ctl::new()?.names(OWN);
    expect("names left", names, Ok(vec![b"channel".to_vec()]))?;
    unlink_channel()
}

fn an_administrator_may_unlink(context: &Context) -> Result<()> {
    create_channel(0)?;
    expect("as root", unlink_as(|| Ok(()))?, Ok(()))?;
    create_channel(0)?;
    let directory = context.cgroup()?.directory()?;
    let unlinked = Ctl::new()?.unlink(directory.as_raw_fd(), "channel");
    expect("as root, by directory", unlinked, Ok(()))
}

fn root_of_a_user_namespace_may_unlink_only_its_own(_: &Context) -> Result<()> {
    create_channel(0o777)?;
    let other = unlink_as(|| become_user_namespace_root(OTHER_USER))?;
    expect("another user in it", other, Err(Errno::EPERM as i32))?;
    let owner = unlink_as(|| become_user_namespace_root(OWNER))?;
    expect("the owner in it", owner, Ok(()))
}

/// Any user can have CAP_FOWNER over its own cgroup namespace, but it then applies to no other user.
fn root_of_a_cgroup_namespace_may_unlink_only_its_own(_: &Context) -> Result<()> {
    const EPERM: Result<(), i32> = Err(Errno::EPERM as i32);
    let ctl = Ctl::new()?;
    ctl.persist(OWN, "channel").context("the channel of root")?;
    let other = unlink_as(|| become_namespaces_root(OTHER_USER))?;
    expect("the channel of root", other, EPERM)?;
    unlink_channel()?;
    create_channel(0o777)?;
    let other = unlink_as(|| become_namespaces_root(OTHER_USER))?;
    expect("the channel of another user", other, EPERM)?;
    let owner = unlink_as(|| become_namespaces_root(OWNER))?;
    expect("its own channel", owner, Ok(()))
}

fn list_and_info_need_no_permission_on_the_channel(_: &Context) -> Result<()> {
    create_channel(0)?;
    let other = spawn("another user", || {
        become_user(OTHER_USER)?;
        let ctl = Ctl::new()?;
        expect("names", ctl.names(OWN), Ok(vec![b"channel".to_vec()]))?;
        let info = ctl.info(OWN, "channel").context("info")?;
        expect("owner", (info.uid, info.gid), (OWNER, GROUP))
    })?;
    other.finish()?;
    unlink_channel()
}
