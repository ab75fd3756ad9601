// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names in containers: each container has the names of its own cgroup only, even if other containers use the same
//! names or it holds a leaked descriptor.

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
use crate::support::container::{CGROUPS, User, spawn_in_container, spawn_in_user_namespace};
use crate::support::credentials::{NOBODY, become_user};
use crate::support::ctl::{Ctl, OWN, persist_inside, persist_inside_as};

topic!(
    "ctl_containers",
    fifo: [],
    pipe_only: [
        a_list_shows_no_names_of_another_container,
        info_finds_only_own_channels,
        an_open_finds_no_channel_of_another_container,
        an_open_with_create_creates_an_own_channel,
        an_unlink_removes_only_own_names,
        a_channel_of_an_ancestor_is_not_found_by_name,
        a_leaked_sibling_directory_gives_no_access,
        a_leaked_writable_sibling_directory_allows_only_create,
        a_leaked_parent_directory_allows_attach_by_mode,
        the_mounted_cgroup_root_gives_no_access_to_the_parent,
        root_of_a_container_is_not_an_administrator,
        root_without_a_user_namespace_owns_channels_of_host_root,
        root_of_a_container_may_unlink_channels_of_its_users,
        root_of_a_container_may_not_unlink_in_an_ancestor,
        a_read_only_mount_allows_attach_but_not_create,
        an_owner_may_not_unlink_through_a_read_only_mount,
    ],
);

/// The cgroup of another container, with channels of its own.
struct Sibling {
    cgroup: Cgroup,
    /// An endpoint of the channel "frames".
    end: OwnedFd,
}

impl Sibling {
    /// Creates the channels "frames" and "theirs", with modes that allow everything. "frames" contains "their secret".
    fn new(home: &Cgroup, name: &str) -> Result<Self> {
        let cgroup = home.create_child(name)?;
        persist_inside(&cgroup, "theirs", 0o666)?;
        persist_inside(&cgroup, "frames", 0o666)?;
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
        expect("endpoints of the other's channel", ends, (1, 1))?;
        let secret = read_some(&self.end, 64).context("reading")?;
        expect_bytes("the other's secret", &secret, b"their secret")
    }
}

/// For each kind of user, runs `body` in a container whose sibling has "frames" and "theirs", then checks that these
/// are unchanged.
fn beside_another(context: &Context, body: fn(&Ctl) -> Result<()>) -> Result<()> {
    let home = context.cgroup()?;
    for user in User::ALL {
        let sibling = Sibling::new(home, &format!("{user:?}-sibling"))?;
        contained(home, user, &[], || body(&Ctl::new()?))?;
        sibling.expect_untouched()?;
    }
    Ok(())
}

/// Runs `body` in a container in a new child of `home` and waits for it.
fn contained(
    home: &Cgroup,
    user: User,
    keep: &[BorrowedFd],
    body: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let cgroup = home.create_child(&format!("{user:?}"))?;
    let container = spawn_in_container(&cgroup, user, "a container", keep, body)?;
    container.finish()?;
    cgroup.remove()
}

/// Fails unless open, info, list and unlink are all denied.
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

fn a_list_shows_no_names_of_another_container(context: &Context) -> Result<()> {
    beside_another(context, |ctl| {
        expect("names before", ctl.names(OWN), Ok(vec![]))?;
        let _end = ctl.create("mine").context("creating a channel")?;
        expect("names", ctl.names(OWN), Ok(vec![b"mine".to_vec()]))
    })
}

fn info_finds_only_own_channels(context: &Context) -> Result<()> {
    beside_another(context, |ctl| {
        let missing = ctl.info(OWN, "frames").map(drop);
        expect("before there is one", missing, Err(Errno::ENOENT))?;
        let end = ctl.create("frames").context("creating a channel")?;
        write_all(&end, b"mine")?;
        let info = ctl.info(OWN, "frames").context("info")?;
        expect("bytes in the own one", info.bytes, 4)?;
        let theirs = ctl.info(OWN, "theirs").map(drop);
        expect("the other's", theirs, Err(Errno::ENOENT))
    })
}

fn an_open_finds_no_channel_of_another_container(context: &Context) -> Result<()> {
    beside_another(context, |ctl| {
        for name in ["frames", "theirs"] {
            let opened = ctl.attach(OWN, name).map(drop);
            expect(name, opened, Err(Errno::ENOENT))?;
        }
        Ok(())
    })
}

fn an_open_with_create_creates_an_own_channel(context: &Context) -> Result<()> {
    beside_another(context, |ctl| {
        let end = ctl.create_in(OWN, "frames").context("creating a channel")?;
        let bytes = ctl.info(OWN, "frames").context("info")?.bytes;
        expect("bytes in it", bytes, 0)?;
        write_all(&end, b"mine")?;
        let again = ctl.attach(OWN, "frames").context("opening it again")?;
        expect_bytes("its content", &read_some(&again, 64)?, b"mine")
    })
}

fn an_unlink_removes_only_own_names(context: &Context) -> Result<()> {
    beside_another(context, |ctl| {
        let theirs = ctl.unlink(OWN, "theirs");
        expect("the other's", theirs, Err(Errno::ENOENT))?;
        let _end = ctl.create("frames").context("creating a channel")?;
        ctl.unlink(OWN, "frames").context("unlinking the own one")?;
        let again = ctl.unlink(OWN, "frames");
        expect("a second time", again, Err(Errno::ENOENT))
    })
}

fn a_channel_of_an_ancestor_is_not_found_by_name(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    persist_inside(home, "above", 0o666)?;
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

fn a_leaked_sibling_directory_gives_no_access(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    for user in User::ALL {
        let sibling = Sibling::new(home, &format!("{user:?}-sibling"))?;
        let leaked = sibling.cgroup.directory()?;
        contained(home, user, &[leaked.as_fd()], || {
            let ctl = Ctl::new()?;
            expect_refused(&ctl, leaked.as_raw_fd(), "frames")?;
            // The errno does not reveal whether a name exists.
            expect_refused(&ctl, leaked.as_raw_fd(), "missing")?;
            let created = ctl.create_in(leaked.as_raw_fd(), "frames").map(drop);
            expect("an open that creates", created, Err(Errno::EACCES))
        })?;
        sibling.expect_untouched()?;
    }
    Ok(())
}

/// Host root, even without capabilities, owns the directory, which suffices.
fn a_leaked_writable_sibling_directory_allows_only_create(context: &Context) -> Result<()> {
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
            let made = ctl.create_in(scope, "new");
            expect_refused(&ctl, scope, "frames")?;
            expect_refused(&ctl, scope, "new")?;
            let what = format!("creating as {user:?} where the mode is {mode:o}");
            expect(&what, made.map(drop), created)
        })?;
        sibling.expect_untouched()?;
    }
    Ok(())
}

/// A process in a descendant may attach. It cannot open the parent's directory itself, but a leaked descriptor is
/// enough.
fn a_leaked_parent_directory_allows_attach_by_mode(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    persist_inside(home, "private", 0o600)?;
    persist_inside(home, "public", 0o666)?;
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
            let created = ctl.create_in(scope, "new").map(drop);
            expect("creating", created, Err(Errno::EACCES))
        })?;
        let end = Ctl::new()?.attach(OWN, "public")?;
        expect_bytes("bytes written", &read_some(&end, 64)?, b"from below")?;
    }
    Ok(())
}

/// The cgroup2 mount of a container has the container's own cgroup as its root, so `..` does not lead above it.
fn the_mounted_cgroup_root_gives_no_access_to_the_parent(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    persist_inside(home, "above", 0o666)?;
    for user in User::ALL {
        contained(home, user, &[], || {
            let ctl = Ctl::new()?;
            let _end = ctl.create("mine").context("creating a channel")?;
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

/// A channel of another user in the container's own cgroup: only an administrator could use it.
fn root_of_a_container_is_not_an_administrator(context: &Context) -> Result<()> {
    for user in [User::BareRoot, User::NamespaceRoot] {
        let cgroup = context.cgroup()?.create_child(&format!("{user:?}"))?;
        persist_inside_as(&cgroup, 1001, 1001, "channel")?;
        let container = spawn_in_container(&cgroup, user, "its root", &[], || {
            let ctl = Ctl::new()?;
            let opened = ctl.attach(OWN, "channel").map(drop);
            expect("open", opened, Err(Errno::EACCES))?;
            expect("unlink", ctl.unlink(OWN, "channel"), Err(Errno::EPERM))
        })?;
        container.finish()?;
    }
    Ok(())
}

fn root_without_a_user_namespace_owns_channels_of_host_root(context: &Context) -> Result<()> {
    for (user, opened, unlinked) in [
        (User::NamespaceRoot, Err(Errno::EACCES), Err(Errno::EPERM)),
        (User::BareRoot, Ok(()), Ok(())),
    ] {
        let cgroup = context.cgroup()?.create_child(&format!("{user:?}"))?;
        persist_inside(&cgroup, "channel", 0o600)?;
        let container = spawn_in_container(&cgroup, user, "its root", &[], || {
            let ctl = Ctl::new()?;
            expect("open", ctl.attach(OWN, "channel").map(drop), opened)?;
            expect("unlink", ctl.unlink(OWN, "channel"), unlinked)
        })?;
        container.finish()?;
    }
    Ok(())
}

/// The host's number of the first user of a container, its root.
const FIRST: u32 = 100_000;

fn root_of_a_container_may_unlink_channels_of_its_users(context: &Context) -> Result<()> {
    let cgroup = context.cgroup()?.create_child("container")?;
    persist_inside_as(&cgroup, FIRST + 1, FIRST + 1, "of a user")?;
    persist_inside_as(&cgroup, 1001, FIRST + 1, "of a user of the host")?;
    persist_inside_as(&cgroup, FIRST + 1, 1001, "of a group of the host")?;
    persist_inside(&cgroup, "of the root of the host", 0o666)?;
    let others = [
        "of a user of the host",
        "of a group of the host",
        "of the root of the host",
    ];
    let container = spawn_in_user_namespace(&cgroup, FIRST, "a container", &[], || {
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
        let created = ctl.create("of a user").map(drop);
        expect("the name afterwards", created, Ok(()))
    })?;
    container.finish()
}

fn root_of_a_container_may_not_unlink_in_an_ancestor(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    fs::set_permissions(home.path(), Permissions::from_mode(0o757))?;
    persist_inside_as(home, FIRST + 1, FIRST + 1, "above")?;
    let above = home.directory()?;
    let cgroup = home.create_child("container")?;
    let container =
        spawn_in_user_namespace(&cgroup, FIRST, "a container", &[above.as_fd()], || {
            let (ctl, scope) = (Ctl::new()?, above.as_raw_fd());
            ctl.create_in(scope, "new").context("creating there")?;
            let unlinked = ctl.unlink(scope, "above");
            expect("unlinking there", unlinked, Err(Errno::EPERM))
        })?;
    container.finish()
}

fn a_read_only_mount_allows_attach_but_not_create(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    persist_inside(home, "channel", 0o666)?;
    bind_read_only(home.path(), &context.scratch)?;
    let read_only = File::open(&context.scratch).context("opening the read-only mount");
    umount2(&context.scratch, MntFlags::MNT_DETACH).context("unmounting it")?;
    let read_only = read_only?;
    let writable = home.directory()?;
    fs::set_permissions(home.path(), Permissions::from_mode(0o757))?;
    let inside = home.create_child("inside")?;
    for user in [None, Some(NOBODY)] {
        let keep = [read_only.as_fd(), writable.as_fd()];
        let child = spawn_keeping("a process in a descendant", &keep, || {
            inside.enter()?;
            user.map_or(Ok(()), become_user)?;
            let (ctl, scope) = (Ctl::new()?, read_only.as_raw_fd());
            let created = ctl.create_in(scope, "new").map(drop);
            expect("creating", created, Err(Errno::EACCES))?;
            ctl.attach(scope, "channel").context("attaching")?;
            let names = ctl.names(scope);
            expect("names", names, Ok(vec![b"channel".to_vec()]))?;
            ctl.create_in(OWN, "new").context("creating in its own")?;
            ctl.create_in(writable.as_raw_fd(), "new")
                .map(drop)
                .context("creating by the writable mount")
        })?;
        child.finish()?;
    }
    Ok(())
}

fn an_owner_may_not_unlink_through_a_read_only_mount(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    persist_inside_as(home, NOBODY, NOBODY, "channel")?;
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
        ctl.persist(OWN, "channel").context("creating it again")
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
