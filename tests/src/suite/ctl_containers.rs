// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names in containers: each has those of its own cgroup, whatever the others are called and whatever it got hold of.

use std::fs::{self, File, Permissions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::{read_some, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{spawn, spawn_keeping};
use crate::support::container::{CGROUPS, User, spawn_contained, spawn_with_users};
use crate::support::ctl::{BOTH, CREATE, Ctl, OWN, Open, PERSIST};
use crate::support::identity::{NOBODY, become_member, become_user};

topic!(
    "ctl_containers",
    fifo: [],
    pipe_only: [
        a_list_never_shows_anothers_names,
        info_tells_of_ones_own_channel_alone,
        an_open_never_finds_anothers_channel,
        an_open_that_creates_makes_ones_own,
        an_unlink_takes_ones_own_name_alone,
        a_channel_above_is_not_found_by_name,
        a_leaked_directory_of_another_shows_and_opens_nothing,
        a_leaked_directory_of_another_that_it_may_write_to_lets_it_create_and_no_more,
        a_leaked_directory_of_the_parent_lets_attach_as_the_mode_says,
        the_own_directory_shows_nothing_of_the_parent,
        a_containers_root_is_no_administrator,
        a_containers_root_without_a_user_namespace_owns_what_the_hosts_root_made,
        a_containers_root_may_unlink_what_its_users_made,
        a_containers_root_may_not_unlink_above_its_own_cgroup,
        a_read_only_mount_lets_attach_and_not_create,
        through_a_read_only_mount_no_owner_may_unlink,
    ],
);

/// A container in which others have made the same name, and one of its own.
struct Sibling {
    cgroup: Cgroup,
    /// Of the channel "frames".
    end: OwnedFd,
}

impl Sibling {
    /// With "frames" and "theirs", for everybody as far as their modes go. "frames" has "their secret" in it.
    fn new(home: &Cgroup, name: &str) -> Result<Self> {
        let cgroup = home.create_child(name)?;
        make_channel(&cgroup, "theirs", 0o666)?;
        make_channel(&cgroup, "frames", 0o666)?;
        let directory = cgroup.directory()?;
        let end = Ctl::new()?.attach(directory.as_raw_fd(), "frames")?;
        write_all(&end, b"their secret")?;
        Ok(Sibling { cgroup, end })
    }

    fn expect_untouched(&self) -> Result<()> {
        let directory = self.cgroup.directory()?;
        let ctl = Ctl::new()?;
        let names = ctl.names(directory.as_raw_fd());
        let both = vec![b"frames".to_vec(), b"theirs".to_vec()];
        expect("the other's names afterwards", names, Ok(both))?;
        let info = ctl.info(directory.as_raw_fd(), "frames")?;
        let ends = (info.readers, info.writers);
        expect("ends of the other's channel", ends, (1, 1))?;
        let secret = read_some(&self.end, 64).context("reading")?;
        expect_bytes("the other's secret", &secret, b"their secret")
    }
}

/// A persistent channel, made by root inside the cgroup.
fn make_channel(cgroup: &Cgroup, name: &str, mode: u32) -> Result<()> {
    let maker = cgroup.spawn("the maker of a channel", || {
        let request = Open::new(name, BOTH | CREATE | PERSIST);
        let made = Ctl::new()?.open(Open { mode, ..request });
        made.map(drop).context("making a channel")
    })?;
    maker.finish()
}

/// Runs `body` in a container beside one that has "frames" and "theirs", as each kind of user, and looks at the other.
fn beside_another(context: &Context, body: fn(&Ctl) -> Result<()>) -> Result<()> {
    let home = context.cgroup()?;
    for user in User::ALL {
        let sibling = Sibling::new(home, &format!("{user:?}-sibling"))?;
        contained(home, user, &[], || body(&Ctl::new()?))?;
        sibling.expect_untouched()?;
    }
    Ok(())
}

/// Runs `body` in a container of a fresh cgroup below `home`, to its end.
fn contained(
    home: &Cgroup,
    user: User,
    keep: &[BorrowedFd],
    body: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let cgroup = home.create_child(&format!("{user:?}"))?;
    let container = spawn_contained(&cgroup, user, "a container", keep, body)?;
    container.finish()?;
    cgroup.remove()
}

fn create_in(ctl: &Ctl, scope_fd: RawFd, name: &str) -> nix::Result<OwnedFd> {
    let request = Open::new(name, BOTH | CREATE);
    ctl.open(Open {
        scope_fd,
        ..request
    })
}

/// That open, info, list and unlink all fail so.
fn expect_refused(ctl: &Ctl, scope: RawFd, name: &str) -> Result<()> {
    let results = [
        ctl.attach(scope, name).map(drop),
        ctl.info(scope, name).map(drop),
        ctl.names(scope).map(drop),
        ctl.unlink(scope, name),
    ];
    let what = format!("open, info, list and unlink of '{name}' there");
    expect(&what, results, [Err(Errno::EACCES); 4])
}

fn a_list_never_shows_anothers_names(context: &Context) -> Result<()> {
    beside_another(context, |ctl| {
        expect("names before", ctl.names(OWN), Ok(vec![]))?;
        let _end = ctl.create("mine").context("making one")?;
        expect("names", ctl.names(OWN), Ok(vec![b"mine".to_vec()]))
    })
}

fn info_tells_of_ones_own_channel_alone(context: &Context) -> Result<()> {
    beside_another(context, |ctl| {
        let missing = ctl.info(OWN, "frames").map(drop);
        expect("before there is one", missing, Err(Errno::ENOENT))?;
        let end = ctl.create("frames").context("making one")?;
        write_all(&end, b"mine")?;
        let info = ctl.info(OWN, "frames").context("info")?;
        expect("bytes in the own one", info.bytes, 4)?;
        let theirs = ctl.info(OWN, "theirs").map(drop);
        expect("the other's", theirs, Err(Errno::ENOENT))
    })
}

fn an_open_never_finds_anothers_channel(context: &Context) -> Result<()> {
    beside_another(context, |ctl| {
        for name in ["frames", "theirs"] {
            let opened = ctl.attach(OWN, name).map(drop);
            expect(name, opened, Err(Errno::ENOENT))?;
        }
        Ok(())
    })
}

fn an_open_that_creates_makes_ones_own(context: &Context) -> Result<()> {
    beside_another(context, |ctl| {
        let end = create_in(ctl, OWN, "frames").context("making one")?;
        let bytes = ctl.info(OWN, "frames").context("info")?.bytes;
        expect("bytes in it", bytes, 0)?;
        write_all(&end, b"mine")?;
        let again = ctl.attach(OWN, "frames").context("opening it again")?;
        expect_bytes("what is in it", &read_some(&again, 64)?, b"mine")
    })
}

fn an_unlink_takes_ones_own_name_alone(context: &Context) -> Result<()> {
    beside_another(context, |ctl| {
        let theirs = ctl.unlink(OWN, "theirs");
        expect("the other's", theirs, Err(Errno::ENOENT))?;
        let _end = ctl.create("frames").context("making one")?;
        ctl.unlink(OWN, "frames").context("taking the own away")?;
        let again = ctl.unlink(OWN, "frames");
        expect("once more", again, Err(Errno::ENOENT))
    })
}

fn a_channel_above_is_not_found_by_name(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    make_channel(home, "above", 0o666)?;
    for user in User::ALL {
        contained(home, user, &[], || {
            let ctl = Ctl::new()?;
            expect("names", ctl.names(OWN), Ok(vec![]))?;
            let found = ctl.info(OWN, "above").map(drop);
            expect("info", found, Err(Errno::ENOENT))?;
            let found = ctl.attach(OWN, "above").map(drop);
            expect("open", found, Err(Errno::ENOENT))?;
            expect("unlink", ctl.unlink(OWN, "above"), Err(Errno::ENOENT))
        })?;
    }
    Ctl::new()?.info(OWN, "above").context("afterwards")?;
    Ok(())
}

fn a_leaked_directory_of_another_shows_and_opens_nothing(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    for user in User::ALL {
        let sibling = Sibling::new(home, &format!("{user:?}-sibling"))?;
        let leaked = sibling.cgroup.directory()?;
        contained(home, user, &[leaked.as_fd()], || {
            let ctl = Ctl::new()?;
            expect_refused(&ctl, leaked.as_raw_fd(), "frames")?;
            // Nor does it learn whether there is one of a name.
            expect_refused(&ctl, leaked.as_raw_fd(), "missing")?;
            let created = create_in(&ctl, leaked.as_raw_fd(), "frames").map(drop);
            expect("an open that creates", created, Err(Errno::EACCES))
        })?;
        sibling.expect_untouched()?;
    }
    Ok(())
}

/// Root of the host needs no more for that than that it owns the directory, whatever was taken from it.
fn a_leaked_directory_of_another_that_it_may_write_to_lets_it_create_and_no_more(
    context: &Context,
) -> Result<()> {
    let home = context.cgroup()?;
    for (user, mode, created) in [
        (User::Nobody, 0o755, Err(Errno::EACCES)),
        (User::NamespaceRoot, 0o755, Err(Errno::EACCES)),
        (User::BareRoot, 0o755, Ok(())),
        (User::Nobody, 0o757, Ok(())),
        (User::NamespaceRoot, 0o757, Ok(())),
    ] {
        let sibling = Sibling::new(home, &format!("{user:?}-{mode:o}"))?;
        fs::set_permissions(sibling.cgroup.path(), Permissions::from_mode(mode))?;
        let leaked = sibling.cgroup.directory()?;
        contained(home, user, &[leaked.as_fd()], || {
            let (ctl, scope) = (Ctl::new()?, leaked.as_raw_fd());
            let made = create_in(&ctl, scope, "new");
            expect_refused(&ctl, scope, "frames")?;
            expect_refused(&ctl, scope, "new")?;
            let what = format!("creating as {user:?} where the mode is {mode:o}");
            expect(&what, made.map(drop), created)
        })?;
        sibling.expect_untouched()?;
    }
    Ok(())
}

/// Whoever is below may attach: that it cannot see the parent's directory is no wall once it has one in its hands.
fn a_leaked_directory_of_the_parent_lets_attach_as_the_mode_says(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    make_channel(home, "private", 0o600)?;
    make_channel(home, "public", 0o666)?;
    for user in [User::Nobody, User::NamespaceRoot] {
        let leaked = home.directory()?;
        contained(home, user, &[leaked.as_fd()], || {
            let (ctl, scope) = (Ctl::new()?, leaked.as_raw_fd());
            let both = vec![b"private".to_vec(), b"public".to_vec()];
            expect("names", ctl.names(scope), Ok(both))?;
            let end = ctl.attach(scope, "public").context("the public one")?;
            write_all(&end, b"from below")?;
            let private = ctl.attach(scope, "private").map(drop);
            expect("the private one", private, Err(Errno::EACCES))?;
            let unlinked = ctl.unlink(scope, "public");
            expect("unlinking", unlinked, Err(Errno::EACCES))?;
            let created = create_in(&ctl, scope, "new").map(drop);
            expect("creating", created, Err(Errno::EACCES))
        })?;
        let end = Ctl::new()?.attach(OWN, "public")?;
        expect_bytes("what it wrote", &read_some(&end, 64)?, b"from below")?;
    }
    Ok(())
}

/// The root of the cgroup file system that a container mounts is its own cgroup, and nothing is above.
fn the_own_directory_shows_nothing_of_the_parent(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    make_channel(home, "above", 0o666)?;
    for user in User::ALL {
        contained(home, user, &[], || {
            let ctl = Ctl::new()?;
            let _end = ctl.create("mine").context("making one")?;
            let root = File::open(CGROUPS).context("opening the cgroup's directory")?;
            let mine = Ok(vec![b"mine".to_vec()]);
            expect("names", ctl.names(root.as_raw_fd()), mine)?;
            let above = File::open(Path::new(CGROUPS).join("..")).context("what is above it")?;
            let names = ctl.names(above.as_raw_fd());
            expect("names above", names, Err(Errno::EBADF))
        })?;
    }
    Ok(())
}

/// Somebody else's channel in the container's own cgroup: there is nothing but the rights of an administrator to use it by.
fn a_containers_root_is_no_administrator(context: &Context) -> Result<()> {
    for user in [User::BareRoot, User::NamespaceRoot] {
        let cgroup = context.cgroup()?.create_child(&format!("{user:?}"))?;
        let owner = cgroup.spawn("another user", || {
            become_user(1001)?;
            Ctl::new()?.persist(OWN, "channel").context("making one")
        })?;
        owner.finish()?;
        let container = spawn_contained(&cgroup, user, "its root", &[], || {
            let ctl = Ctl::new()?;
            let opened = ctl.attach(OWN, "channel").map(drop);
            expect("open", opened, Err(Errno::EACCES))?;
            expect("unlink", ctl.unlink(OWN, "channel"), Err(Errno::EPERM))
        })?;
        container.finish()?;
    }
    Ok(())
}

fn a_containers_root_without_a_user_namespace_owns_what_the_hosts_root_made(
    context: &Context,
) -> Result<()> {
    for (user, opened, unlinked) in [
        (User::NamespaceRoot, Err(Errno::EACCES), Err(Errno::EPERM)),
        (User::BareRoot, Ok(()), Ok(())),
    ] {
        let cgroup = context.cgroup()?.create_child(&format!("{user:?}"))?;
        make_channel(&cgroup, "channel", 0o600)?;
        let container = spawn_contained(&cgroup, user, "its root", &[], || {
            let ctl = Ctl::new()?;
            expect("open", ctl.attach(OWN, "channel").map(drop), opened)?;
            expect("unlink", ctl.unlink(OWN, "channel"), unlinked)
        })?;
        container.finish()?;
    }
    Ok(())
}

/// The first user of a container, its root, as the host sees it.
const FIRST: u32 = 100_000;

/// A persistent channel of this user and group of the host, made inside the cgroup.
fn make_channel_as(cgroup: &Cgroup, uid: u32, gid: u32, name: &str) -> Result<()> {
    let maker = cgroup.spawn("the maker of a channel", || {
        become_member(uid, gid, &[])?;
        let made = Ctl::new()?.persist(OWN, name);
        made.context("making a channel")
    })?;
    maker.finish()
}

fn a_containers_root_may_unlink_what_its_users_made(context: &Context) -> Result<()> {
    let cgroup = context.cgroup()?.create_child("container")?;
    make_channel_as(&cgroup, FIRST + 1, FIRST + 1, "of a user")?;
    make_channel_as(&cgroup, 1001, FIRST + 1, "of a user of the host")?;
    make_channel_as(&cgroup, FIRST + 1, 1001, "of a group of the host")?;
    make_channel(&cgroup, "of the root of the host", 0o666)?;
    let others = [
        "of a user of the host",
        "of a group of the host",
        "of the root of the host",
    ];
    let container = spawn_with_users(&cgroup, FIRST, "a container", &[], || {
        let another = spawn("another user of the container", || {
            become_user(2)?;
            let unlinked = Ctl::new()?.unlink(OWN, "of a user");
            expect("as another user", unlinked, Err(Errno::EPERM))
        })?;
        another.finish()?;
        let ctl = Ctl::new()?;
        let opened = ctl.attach(OWN, "of a user").map(drop);
        expect("opening it", opened, Err(Errno::EACCES))?;
        for name in others {
            expect(name, ctl.unlink(OWN, name), Err(Errno::EPERM))?;
        }
        expect("of a user", ctl.unlink(OWN, "of a user"), Ok(()))?;
        let squatted = ctl.create("of a user").map(drop);
        expect("the name afterwards", squatted, Ok(()))
    })?;
    container.finish()
}

fn a_containers_root_may_not_unlink_above_its_own_cgroup(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    fs::set_permissions(home.path(), Permissions::from_mode(0o757))?;
    make_channel_as(home, FIRST + 1, FIRST + 1, "above")?;
    let above = home.directory()?;
    let cgroup = home.create_child("container")?;
    let container = spawn_with_users(&cgroup, FIRST, "a container", &[above.as_fd()], || {
        let (ctl, scope) = (Ctl::new()?, above.as_raw_fd());
        create_in(&ctl, scope, "new").context("creating there")?;
        let unlinked = ctl.unlink(scope, "above");
        expect("unlinking there", unlinked, Err(Errno::EPERM))
    })?;
    container.finish()
}

fn a_read_only_mount_lets_attach_and_not_create(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    make_channel(home, "channel", 0o666)?;
    bind_read_only(home.path(), &context.scratch)?;
    let read_only = File::open(&context.scratch).context("opening the read-only mount");
    umount2(&context.scratch, MntFlags::MNT_DETACH).context("unmounting it")?;
    let read_only = read_only?;
    let writable = home.directory()?;
    fs::set_permissions(home.path(), Permissions::from_mode(0o757))?;
    let inside = home.create_child("inside")?;
    for user in [None, Some(NOBODY)] {
        let keep = [read_only.as_fd(), writable.as_fd()];
        let child = spawn_keeping("a process below", &keep, || {
            inside.enter()?;
            user.map_or(Ok(()), become_user)?;
            let (ctl, scope) = (Ctl::new()?, read_only.as_raw_fd());
            let created = create_in(&ctl, scope, "new").map(drop);
            expect("creating", created, Err(Errno::EACCES))?;
            ctl.attach(scope, "channel").context("attaching")?;
            let names = ctl.names(scope);
            expect("names", names, Ok(vec![b"channel".to_vec()]))?;
            create_in(&ctl, OWN, "new").context("creating in its own")?;
            create_in(&ctl, writable.as_raw_fd(), "new")
                .map(drop)
                .context("creating by the writable mount")
        })?;
        child.finish()?;
    }
    Ok(())
}

fn through_a_read_only_mount_no_owner_may_unlink(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    make_channel_as(home, NOBODY, NOBODY, "channel")?;
    bind_read_only(home.path(), &context.scratch)?;
    let read_only = File::open(&context.scratch).context("opening the read-only mount");
    umount2(&context.scratch, MntFlags::MNT_DETACH).context("unmounting it")?;
    let read_only = read_only?;
    let writable = home.directory()?;
    fs::set_permissions(home.path(), Permissions::from_mode(0o757))?;
    let keep = [read_only.as_fd(), writable.as_fd()];
    let owner = spawn_keeping("the owner", &keep, || {
        become_user(NOBODY)?;
        let ctl = Ctl::new()?;
        let unlinked = ctl.unlink(read_only.as_raw_fd(), "channel");
        expect("by the read-only mount", unlinked, Err(Errno::EACCES))?;
        let unlinked = ctl.unlink(writable.as_raw_fd(), "channel");
        expect("by the writable mount", unlinked, Ok(()))?;
        ctl.persist(OWN, "channel").context("making it again")
    })?;
    owner.finish()?;
    let unlinked = Ctl::new()?.unlink(read_only.as_raw_fd(), "channel");
    expect("as administrator", unlinked, Ok(()))
}

fn bind_read_only(source: &Path, target: &Path) -> Result<()> {
    let none = None::<&str>;
    mount(Some(source), target, none, MsFlags::MS_BIND, none).context("binding")?;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(none, target, none, flags, none).context("making the mount read-only")
}
