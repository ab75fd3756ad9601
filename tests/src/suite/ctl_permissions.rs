// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may open a channel and who may unlink it: its mode, read as a file's, against whoever calls.

use std::os::fd::AsRawFd;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::child::spawn;
use crate::support::ctl::{BOTH, CREATE, Ctl, EXCL, NONBLOCK, OWN, Open, PERSIST, READ, WRITE};
use crate::support::identity::{
    NOBODY, become_member, become_root_of_a_namespace, become_root_of_namespaces, become_user,
};

topic!(
    "ctl_permissions",
    fifo: [],
    pipe_only: [
        the_mode_says_who_may_open_for_what,
        the_first_class_that_fits_decides,
        a_supplementary_group_counts,
        the_user_and_group_for_files_count,
        whoever_makes_it_gets_its_endpoint_whatever_the_mode,
        an_administrator_may_open_in_any_case,
        a_refused_open_changes_nothing,
        the_owner_may_unlink,
        others_may_not_unlink,
        an_administrator_may_unlink,
        root_of_a_user_namespace_may_unlink_only_its_own,
        root_of_a_cgroup_namespace_of_its_own_may_unlink_only_its_own,
        listing_and_inspecting_need_no_permission_of_the_channel,
    ],
);

const OWNER: u32 = 1001;
const GROUP: u32 = 2001;
const STRANGER: u32 = 3001;

/// A persistent channel of `OWNER` and `GROUP`.
fn make(mode: u32) -> Result<()> {
    let maker = spawn("the owner", || {
        become_member(OWNER, GROUP, &[])?;
        let request = Open::new("channel", BOTH | CREATE | EXCL | PERSIST);
        let made = Ctl::new()?.open(Open { mode, ..request });
        made.map(drop).context("making it")
    })?;
    maker.finish()
}

fn unmake() -> Result<()> {
    Ctl::new()?.unlink(OWN, "channel").context("unlinking it")
}

/// As which user and groups.
type Identity = (u32, u32, &'static [u32]);

/// Which of reading, writing and both work.
fn expect_access(mode: u32, who: Identity, expected: [bool; 3]) -> Result<()> {
    make(mode)?;
    let (uid, gid, groups) = who;
    let opener = spawn("an opener", || {
        become_member(uid, gid, groups)?;
        let ctl = Ctl::new()?;
        // Lets a writer that may open it find a reader.
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
    unmake()
}

const NOTHING: [bool; 3] = [false; 3];
const READING: [bool; 3] = [true, false, false];
const WRITING: [bool; 3] = [false, true, false];
const EVERYTHING: [bool; 3] = [true; 3];

fn the_mode_says_who_may_open_for_what(_: &Context) -> Result<()> {
    let owner: Identity = (OWNER, STRANGER, &[]);
    let member: Identity = (STRANGER, GROUP, &[]);
    let other: Identity = (STRANGER, STRANGER, &[]);
    for (who, shift) in [(owner, 6), (member, 3), (other, 0)] {
        for (bits, expected) in [
            (0, NOTHING),
            (1, NOTHING),
            (2, WRITING),
            (4, READING),
            (6, EVERYTHING),
        ] {
            expect_access(bits << shift, who, expected)?;
        }
    }
    Ok(())
}

fn the_first_class_that_fits_decides(_: &Context) -> Result<()> {
    expect_access(0o077, (OWNER, GROUP, &[]), NOTHING)?;
    expect_access(0o707, (STRANGER, GROUP, &[]), NOTHING)?;
    expect_access(0o770, (STRANGER, STRANGER, &[]), NOTHING)
}

fn a_supplementary_group_counts(_: &Context) -> Result<()> {
    expect_access(0o060, (STRANGER, STRANGER, &[7, GROUP]), EVERYTHING)
}

fn the_user_and_group_for_files_count(_: &Context) -> Result<()> {
    let maker = spawn("a process with another user for files", || {
        setfsgid(Gid::from_raw(GROUP));
        setfsuid(Uid::from_raw(OWNER));
        let ctl = Ctl::new()?;
        let _end = ctl.create("channel").context("making it")?;
        let info = ctl.info(OWN, "channel").context("info")?;
        expect("owner", (info.uid, info.gid), (OWNER, GROUP))
    })?;
    maker.finish()
}

fn whoever_makes_it_gets_its_endpoint_whatever_the_mode(_: &Context) -> Result<()> {
    let maker = spawn("the owner", || {
        become_user(OWNER)?;
        let ctl = Ctl::new()?;
        let request = Open {
            mode: 0,
            ..Open::new("channel", BOTH | CREATE)
        };
        let _end = ctl.open(request).context("making it")?;
        let again = ctl.open(request).map(drop);
        expect("opening it again", again, Err(Errno::EACCES))
    })?;
    maker.finish()
}

fn an_administrator_may_open_in_any_case(_: &Context) -> Result<()> {
    make(0)?;
    let opened = Ctl::new()?.attach(OWN, "channel").map(drop);
    expect("an open as root", opened, Ok(()))?;
    unmake()
}

fn a_refused_open_changes_nothing(_: &Context) -> Result<()> {
    make(0o600)?;
    let ctl = Ctl::new()?;
    let before = ctl.info(OWN, "channel").context("info")?;
    let stranger = spawn("a stranger", || {
        become_user(STRANGER)?;
        for flags in [READ, WRITE, BOTH, BOTH | CREATE | PERSIST, READ | NONBLOCK] {
            let opened = Ctl::new()?.open(Open::new("channel", flags)).map(drop);
            expect(&format!("flags {flags:#x}"), opened, Err(Errno::EACCES))?;
        }
        Ok(())
    })?;
    stranger.finish()?;
    expect("info afterwards", ctl.info(OWN, "channel"), Ok(before))?;
    unmake()
}

/// What unlinking says to somebody who is made so.
fn unlink_as(become_somebody: impl FnOnce() -> Result<()>) -> Result<Result<(), i32>> {
    let child = spawn("one who unlinks", || {
        become_somebody()?;
        let unlinked = Ctl::new()?.unlink(OWN, "channel");
        Ok(unlinked.map_err(|errno| errno as i32))
    })?;
    child.finish()
}

fn the_owner_may_unlink(_: &Context) -> Result<()> {
    make(0)?;
    expect("as owner", unlink_as(|| become_user(OWNER))?, Ok(()))?;
    expect("names left", Ctl::new()?.names(OWN), Ok(vec![]))
}

fn others_may_not_unlink(_: &Context) -> Result<()> {
    const EPERM: Result<(), i32> = Err(Errno::EPERM as i32);
    make(0o777)?;
    expect("as a stranger", unlink_as(|| become_user(STRANGER))?, EPERM)?;
    expect("as nobody", unlink_as(|| become_user(NOBODY))?, EPERM)?;
    let member = unlink_as(|| become_member(STRANGER, GROUP, &[GROUP]))?;
    expect("as one of the group", member, EPERM)?;
    let names = Ctl::new()?.names(OWN);
    expect("names left", names, Ok(vec![b"channel".to_vec()]))?;
    unmake()
}

fn an_administrator_may_unlink(context: &Context) -> Result<()> {
    make(0)?;
    expect("as root", unlink_as(|| Ok(()))?, Ok(()))?;
    make(0)?;
    let directory = context.cgroup()?.directory()?;
    let unlinked = Ctl::new()?.unlink(directory.as_raw_fd(), "channel");
    expect("as root, by directory", unlinked, Ok(()))
}

fn root_of_a_user_namespace_may_unlink_only_its_own(_: &Context) -> Result<()> {
    make(0o777)?;
    let stranger = unlink_as(|| become_root_of_a_namespace(STRANGER))?;
    expect("a stranger in it", stranger, Err(Errno::EPERM as i32))?;
    let owner = unlink_as(|| become_root_of_a_namespace(OWNER))?;
    expect("the owner in it", owner, Ok(()))
}

/// There it has CAP_FOWNER over the cgroup namespace, as anybody can, and over no user but itself.
fn root_of_a_cgroup_namespace_of_its_own_may_unlink_only_its_own(_: &Context) -> Result<()> {
    const EPERM: Result<(), i32> = Err(Errno::EPERM as i32);
    let ctl = Ctl::new()?;
    ctl.persist(OWN, "channel").context("the channel of root")?;
    let stranger = unlink_as(|| become_root_of_namespaces(STRANGER))?;
    expect("the channel of root", stranger, EPERM)?;
    unmake()?;
    make(0o777)?;
    let stranger = unlink_as(|| become_root_of_namespaces(STRANGER))?;
    expect("the channel of another user", stranger, EPERM)?;
    let owner = unlink_as(|| become_root_of_namespaces(OWNER))?;
    expect("its own channel", owner, Ok(()))
}

fn listing_and_inspecting_need_no_permission_of_the_channel(_: &Context) -> Result<()> {
    make(0)?;
    let stranger = spawn("a stranger", || {
        become_user(STRANGER)?;
        let ctl = Ctl::new()?;
        expect("names", ctl.names(OWN), Ok(vec![b"channel".to_vec()]))?;
        let info = ctl.info(OWN, "channel").context("info")?;
        expect("owner", (info.uid, info.gid), (OWNER, GROUP))
    })?;
    stranger.finish()?;
    unmake()
}
