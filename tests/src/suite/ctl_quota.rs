// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits of users: the charged user, and the end of each charge.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, unshare};
use serde::{Serialize, de::DeserializeOwned};

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::{CAPACITY, read_all, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn;
use crate::support::container::spawn_in_user_namespace;
use crate::support::credentials::{
    become_namespaces_root, become_user, become_user_namespace_root, drop_capabilities,
    enter_cgroup_namespace,
};
use crate::support::ctl::{BOTH, CREATE, Ctl, EXCL, OWN, Open, PERSIST};
use crate::support::ioctl::{self, SET_CAPACITY};
use crate::support::memory::PAGE;
use crate::support::parameter::Parameter;
use crate::support::random::stream_bytes;
use crate::support::time::eventually;
use crate::support::vfs_pipe::{move_all, pipe};

topic!(
    "ctl_quota",
    fifo: [],
    pipe_only: [
        no_limit_is_zero_by_default,
        a_user_at_the_channel_limit_is_edquot_until_one_is_freed,
        a_user_at_the_byte_limit_is_edquot_on_create_and_grow,
        shrinking_uncharges_bytes,
        a_rejected_grow_changes_nothing,
        growing_charges_no_channel,
        growth_is_charged_to_the_creator,
        another_user_is_not_affected,
        an_administrator_is_exempt_but_charged,
        root_without_the_capability_is_not_exempt,
        root_of_a_user_namespace_is_charged_as_its_outer_user,
        each_cgroup_namespace_has_its_own_account,
        a_cgroup_namespace_has_one_account,
        creating_namespaces_does_not_raise_the_channel_limit,
        creating_namespaces_does_not_raise_the_byte_limit,
        nested_user_namespaces_of_one_owner_are_charged_once,
        host_root_is_not_charged_as_namespace_owner,
        a_container_does_not_renew_its_account_by_cgroup_namespaces,
        moved_pages_are_charged_as_another_capacity,
        pages_are_copied_where_a_limit_does_not_permit_to_move_them,
        the_default_pipe_is_charged,
        a_rejected_user_charge_leaves_the_scope_unchanged,
        a_rejected_scope_charge_leaves_the_user_unchanged,
    ],
);

const USER: u32 = 1001;
const OTHER: u32 = 1002;
const FULL: nix::Result<()> = Err(Errno::EDQUOT);

/// Runs `body` as this user.
fn as_user(id: u32, body: impl FnOnce(&Ctl) -> Result<()>) -> Result<()> {
    let child = spawn(&format!("user {id}"), || {
        become_user(id)?;
        body(&Ctl::new()?)
    })?;
    child.finish()
}

fn with_capacity(ctl: &Ctl, name: &str, capacity: usize) -> nix::Result<OwnedFd> {
    ctl.open(Open {
        capacity: capacity as u64,
        ..Open::new(name, BOTH | CREATE | EXCL)
    })
}

fn no_limit_is_zero_by_default(_: &Context) -> Result<()> {
    for (name, documented) in [
        ("scope_max_channels", 65536),
        ("user_max_channels", 16384),
        ("pipe_max_size", 1 << 20),
    ] {
        expect(name, Parameter::get(name)?, documented)?;
    }
    let memory = Parameter::get("scope_max_bytes")?;
    let total = total_memory()?;
    expect("the byte limit of a scope is above zero", memory > 0, true)?;
    // The kernel's own memory changed little since the module was loaded.
    let part = memory.abs_diff(total) * 20 / total;
    expect("difference to all memory, in twentieths", part, 0)?;
    let part = Parameter::get("user_max_bytes")?;
    expect("a sixteenth of the memory", part, memory / 16)
}

fn total_memory() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.strip_suffix("kB"))
        .and_then(|number| number.trim().parse::<u64>().ok());
    Ok(kib.context("/proc/meminfo has no MemTotal")? * 1024)
}

fn a_user_at_the_channel_limit_is_edquot_until_one_is_freed(_: &Context) -> Result<()> {
    let _limit = Parameter::set("user_max_channels", 2)?;
    as_user(USER, |ctl| {
        let one = ctl.create("one").context("the first")?;
        ctl.persist(OWN, "two").context("the second")?;
        expect("a third", ctl.create("three").map(drop), FULL)?;
        expect("attaching", ctl.attach(OWN, "one").map(drop), Ok(()))?;
        drop(one);
        let _three = ctl.create("three").context("after closing one")?;
        expect("a fourth", ctl.create("four").map(drop), FULL)?;
        ctl.unlink(OWN, "two").context("unlinking")?;
        let _four = ctl.create("four").context("after unlinking one")?;
        expect("a fifth", ctl.create("five").map(drop), FULL)
    })
}

fn a_user_at_the_byte_limit_is_edquot_on_create_and_grow(_: &Context) -> Result<()> {
    let _limit = Parameter::set("user_max_bytes", 3 * CAPACITY as u64)?;
    as_user(USER, |ctl| {
        let one = ctl.create("one").context("the first")?;
        let too_large = with_capacity(ctl, "two", 4 * CAPACITY).map(drop);
        expect("creating too large a one", too_large, FULL)?;
        let two = ctl.create("two").context("the second")?;
        let grown = ioctl::set(&two, SET_CAPACITY, 4 * CAPACITY as u64);
        expect("growing too far", grown, Err(Errno::EDQUOT))?;
        let grown = ioctl::set(&two, SET_CAPACITY, 2 * CAPACITY as u64);
        expect("growing as far as it goes", grown, Ok(2 * CAPACITY as u64))?;
        let smallest = with_capacity(ctl, "three", PAGE).map(drop);
        expect("creating one of a page", smallest, FULL)?;
        drop(one);
        let three = with_capacity(ctl, "three", CAPACITY).map(drop);
        expect("creating one after closing one", three, Ok(()))
    })
}

fn shrinking_uncharges_bytes(_: &Context) -> Result<()> {
    let _limit = Parameter::set("user_max_bytes", 2 * CAPACITY as u64)?;
    as_user(USER, |ctl| {
        let one = with_capacity(ctl, "one", 2 * CAPACITY).context("the first")?;
        expect("another", ctl.create("two").map(drop), FULL)?;
        ioctl::set(&one, SET_CAPACITY, CAPACITY as u64).context("shrinking")?;
        let _two = ctl.create("two").context("after shrinking")?;
        let grown = ioctl::set(&one, SET_CAPACITY, 2 * CAPACITY as u64);
        expect("growing again", grown, Err(Errno::EDQUOT))
    })
}

fn a_rejected_grow_changes_nothing(_: &Context) -> Result<()> {
    let _limit = Parameter::set("user_max_bytes", 2 * CAPACITY as u64)?;
    as_user(USER, |ctl| {
        let one = ctl.create("one").context("creating the channel")?;
        let bytes = stream_bytes(1, 0, CAPACITY);
        write_all(&one, &bytes)?;
        for _ in 0..3 {
            let grown = ioctl::set(&one, SET_CAPACITY, 4 * CAPACITY as u64);
            expect("growing too far", grown, Err(Errno::EDQUOT))?;
        }
        let capacity = ioctl::info(&one)?.capacity;
        expect("its capacity", capacity, CAPACITY as u64)?;
        expect_bytes("its content", &read_all(&one, CAPACITY)?, &bytes)?;
        let _rest = with_capacity(ctl, "two", CAPACITY).context("what remains")?;
        let more = with_capacity(ctl, "three", PAGE).map(drop);
        expect("more than what is left", more, FULL)
    })
}

/// Growing does not increase the number of channels.
fn growing_charges_no_channel(_: &Context) -> Result<()> {
    as_user(USER, |ctl| {
        ctl.persist(OWN, "one").context("the first")?;
        ctl.persist(OWN, "two").context("the second")
    })?;
    let _lowered = Parameter::set("user_max_channels", 1)?;
    let _scope_lowered = Parameter::set("scope_max_channels", 1)?;
    as_user(USER, |ctl| {
        let one = ctl.attach(OWN, "one").context("attaching")?;
        let grown = ioctl::set(&one, SET_CAPACITY, 2 * CAPACITY as u64);
        expect("growing", grown, Ok(2 * CAPACITY as u64))
    })
}

fn growth_is_charged_to_the_creator(_: &Context) -> Result<()> {
    let _limit = Parameter::set("user_max_bytes", 2 * CAPACITY as u64)?;
    as_user(USER, |ctl| {
        let request = Open::new("shared", BOTH | CREATE | EXCL | PERSIST);
        let made = ctl.open(Open {
            mode: 0o666,
            ..request
        });
        made.map(drop).context("creating the channel")
    })?;
    as_user(USER, |ctl| {
        let shared = ctl.attach(OWN, "shared").context("attaching")?;
        let grown = ioctl::set(&shared, SET_CAPACITY, 4 * CAPACITY as u64);
        expect("beyond the creator's limit", grown, Err(Errno::EDQUOT))?;
        let grown = ioctl::set(&shared, SET_CAPACITY, 2 * CAPACITY as u64);
        expect("up to the creator's limit", grown, Ok(2 * CAPACITY as u64))
    })?;
    as_user(OTHER, |ctl| {
        let own = with_capacity(ctl, "own", 2 * CAPACITY).map(drop);
        expect("a channel of the other user", own, Ok(()))
    })?;
    as_user(USER, |ctl| {
        expect(
            "another channel of the creator",
            ctl.create("more").map(drop),
            FULL,
        )
    })
}

fn another_user_is_not_affected(_: &Context) -> Result<()> {
    let _limit = Parameter::set("user_max_channels", 1)?;
    as_user(USER, |ctl| {
        ctl.persist(OWN, "one").context("the first")?;
        expect("another", ctl.create("two").map(drop), FULL)
    })?;
    as_user(OTHER, |ctl| {
        expect("another user's", ctl.create("two").map(drop), Ok(()))
    })
}

fn an_administrator_is_exempt_but_charged(_: &Context) -> Result<()> {
    let _limit = Parameter::set("user_max_channels", 2)?;
    let ctl = Ctl::new()?;
    for name in ["one", "two", "three"] {
        ctl.persist(OWN, name).context("as administrator")?;
    }
    let expect_without_capability = |what: &str, expected: nix::Result<()>| {
        let child = spawn("root without capabilities", || {
            drop_capabilities()?;
            expect(what, Ctl::new()?.create("four").map(drop), expected)
        })?;
        child.finish()
    };
    expect_without_capability("with three", FULL)?;
    ctl.unlink(OWN, "one").context("unlinking")?;
    expect_without_capability("with two", FULL)?;
    ctl.unlink(OWN, "two").context("unlinking")?;
    expect_without_capability("with one", Ok(()))
}

fn root_without_the_capability_is_not_exempt(_: &Context) -> Result<()> {
    let _limit = Parameter::set("user_max_bytes", CAPACITY as u64)?;
    let child = spawn("root without capabilities", || {
        drop_capabilities()?;
        let ctl = Ctl::new()?;
        let one = ctl.create("one").context("the first")?;
        let grown = ioctl::set(&one, SET_CAPACITY, 2 * CAPACITY as u64);
        expect("growing", grown, Err(Errno::EDQUOT))?;
        expect("another", with_capacity(&ctl, "two", PAGE).map(drop), FULL)
    })?;
    child.finish()
}

fn root_of_a_user_namespace_is_charged_as_its_outer_user(_: &Context) -> Result<()> {
    let _limit = Parameter::set("user_max_channels", 2)?;
    as_user(USER, |ctl| ctl.persist(OWN, "one").context("the first"))?;
    let root = spawn("root of a user namespace", || {
        become_user_namespace_root(USER)?;
        let ctl = Ctl::new()?;
        let _two = ctl.create("two").context("the second")?;
        expect("a third", ctl.create("three").map(drop), FULL)
    })?;
    root.finish()
}

/// Creates a persistent channel of `USER` in a new cgroup namespace whose root is this cgroup.
fn persist_in_namespace(root: &Cgroup, name: &str) -> Result<Result<(), i32>> {
    let child = root.spawn("a user in a cgroup namespace", || {
        enter_cgroup_namespace()?;
        become_user(USER)?;
        let made = Ctl::new()?.persist(OWN, name);
        Ok(made.map_err(|errno| errno as i32))
    })?;
    child.finish()
}

fn each_cgroup_namespace_has_its_own_account(context: &Context) -> Result<()> {
    const FULL: Result<(), i32> = Err(Errno::EDQUOT as i32);
    let _limit = Parameter::set("user_max_channels", 1)?;
    let left = context.cgroup()?.create_child("left")?;
    let right = context.cgroup()?.create_child("right")?;
    for root in [&left, &right] {
        expect("the first", persist_in_namespace(root, "one")?, Ok(()))?;
        // It is another namespace, but with the same root cgroup.
        expect("the second", persist_in_namespace(root, "two")?, FULL)?;
    }
    as_user(USER, |ctl| {
        expect("outside", ctl.create("one").map(drop), Ok(()))
    })
}

fn a_cgroup_namespace_has_one_account(context: &Context) -> Result<()> {
    let _limit = Parameter::set("user_max_channels", 1)?;
    let root = context.cgroup()?.create_child("root")?;
    let (left, right) = (root.create_child("left")?, root.create_child("right")?);
    let container = root.spawn("the first of a cgroup namespace", || {
        enter_cgroup_namespace()?;
        for (cgroup, expected) in [(&left, Ok(())), (&right, FULL)] {
            let inside = cgroup.spawn("a process inside", || {
                become_user(USER)?;
                expect(
                    "creating a channel",
                    Ctl::new()?.persist(OWN, "one"),
                    expected,
                )
            })?;
            inside.finish()?;
        }
        Ok(())
    })?;
    container.finish()
}

/// Runs `body` in a new user namespace of this user and a new cgroup namespace whose root is this cgroup.
fn as_root_of_namespaces<T: Serialize + DeserializeOwned>(
    root: &Cgroup,
    user: u32,
    body: impl FnOnce(&Ctl) -> Result<T>,
) -> Result<T> {
    let child = root.spawn("root of namespaces", || {
        become_namespaces_root(user)?;
        body(&Ctl::new()?)
    })?;
    child.finish()
}

fn persist_as_root_of_namespaces(root: &Cgroup, user: u32) -> Result<Result<(), i32>> {
    as_root_of_namespaces(root, user, |ctl| {
        Ok(ctl.persist(OWN, "one").map_err(|errno| errno as i32))
    })
}

/// Each cgroup namespace has another root cgroup.
fn creating_namespaces_does_not_raise_the_channel_limit(context: &Context) -> Result<()> {
    const MOST: usize = 3;
    const REFUSED: Result<(), i32> = Err(Errno::EDQUOT as i32);
    let _limit = Parameter::set("user_max_channels", MOST as u64)?;
    let home = context.cgroup()?;
    let roots: Result<Vec<_>> = (0..MOST + 2)
        .map(|number| home.create_child(&format!("root-{number}")))
        .collect();
    let roots = roots?;
    for (number, root) in roots.iter().enumerate() {
        let expected = if number < MOST { Ok(()) } else { REFUSED };
        let made = persist_as_root_of_namespaces(root, USER)?;
        expect(&format!("namespaces number {number}"), made, expected)?;
    }
    as_user(USER, |ctl| {
        expect("outside of all", ctl.create("one").map(drop), FULL)
    })?;
    let other = persist_as_root_of_namespaces(&roots[MOST], OTHER)?;
    expect("another user", other, Ok(()))?;
    // One channel is unlinked, one is removed with its cgroup: both are uncharged, and no more.
    let directory = roots[0].directory()?;
    Ctl::new()?.unlink(directory.as_raw_fd(), "one")?;
    roots[1].remove()?;
    for root in [&roots[0], &roots[MOST + 1]] {
        eventually("removed channels are uncharged", || {
            Ok(persist_as_root_of_namespaces(root, USER)?.ok())
        })?;
    }
    as_root_of_namespaces(&roots[0], USER, |ctl| {
        expect("one more", ctl.create("two").map(drop), FULL)
    })
}

fn creating_namespaces_does_not_raise_the_byte_limit(context: &Context) -> Result<()> {
    let _limit = Parameter::set("user_max_bytes", 2 * CAPACITY as u64)?;
    let home = context.cgroup()?;
    let (left, right) = (home.create_child("left")?, home.create_child("right")?);
    let made = persist_as_root_of_namespaces(&left, USER)?;
    expect("the first", made, Ok(()))?;
    as_root_of_namespaces(&right, USER, |ctl| {
        let end = ctl.create("one").context("the second")?;
        let grown = ioctl::set(&end, SET_CAPACITY, 2 * CAPACITY as u64);
        expect("growing it", grown, Err(Errno::EDQUOT))?;
        let shrunk = ioctl::set(&end, SET_CAPACITY, PAGE as u64);
        expect("shrinking it", shrunk, Ok(PAGE as u64))?;
        let grown = ioctl::set(&end, SET_CAPACITY, CAPACITY as u64);
        expect("growing it again", grown, Ok(CAPACITY as u64))
    })
}

fn nested_user_namespaces_of_one_owner_are_charged_once(context: &Context) -> Result<()> {
    let _limit = Parameter::set("user_max_channels", 2)?;
    let root = context.cgroup()?.create_child("root")?;
    let child = root.spawn("root of nested namespaces", || {
        become_namespaces_root(USER)?;
        for _ in 0..3 {
            unshare(CloneFlags::CLONE_NEWUSER).context("unshare(CLONE_NEWUSER)")?;
            for (file, map) in [("uid_map", "0 0 1"), ("gid_map", "0 0 1")] {
                fs::write(format!("/proc/self/{file}"), map).context("mapping itself")?;
            }
        }
        let ctl = Ctl::new()?;
        let _ends = (ctl.create("one")?, ctl.create("two")?);
        expect("a third", ctl.create("three").map(drop), FULL)
    })?;
    child.finish()
}

/// User namespaces that host root creates are not charged to it: two containers have separate limits.
fn host_root_is_not_charged_as_namespace_owner(context: &Context) -> Result<()> {
    const FIRST: u32 = 100_000;
    let _limit = Parameter::set("user_max_channels", 1)?;
    for name in ["left", "right"] {
        let root = context.cgroup()?.create_child(name)?;
        let container = spawn_in_user_namespace(&root, FIRST, name, &[], || {
            let ctl = Ctl::new()?;
            ctl.persist(OWN, "one").context("the first")?;
            expect("another", ctl.create("two").map(drop), FULL)
        })?;
        container.finish()?;
    }
    Ok(())
}

/// Its user namespace is owned by host root, and its cgroup delegated to it.
fn a_container_does_not_renew_its_account_by_cgroup_namespaces(context: &Context) -> Result<()> {
    const FIRST: u32 = 100_000;
    let _limit = Parameter::set("user_max_channels", 1)?;
    let root = context.cgroup()?.create_child("container")?;
    let inner = root.create_child("inner")?;
    for cgroup in [&root, &inner] {
        let procs = cgroup.path().join("cgroup.procs");
        std::os::unix::fs::chown(procs, Some(FIRST), Some(FIRST)).context("delegating")?;
    }
    let container = spawn_in_user_namespace(&root, FIRST, "container", &[], || {
        Ctl::new()?.persist(OWN, "one").context("the first")?;
        inner.enter()?;
        enter_cgroup_namespace()?;
        let another = Ctl::new()?.create("two").map(drop);
        expect("another in a new cgroup namespace", another, FULL)
    })?;
    container.finish()
}

/// The pipe holds them beside those of its capacity.
fn moved_pages_are_charged_as_another_capacity(_: &Context) -> Result<()> {
    let _limit = Parameter::set("user_max_bytes", 3 * CAPACITY as u64)?;
    as_user(USER, |ctl| {
        let one = ctl.create("one").context("the pipe")?;
        let (from, into) = pipe()?;
        write_all(&one, &[b'.'; PAGE])?;
        move_all(&one, &into, PAGE)?;
        expect("moved out", ioctl::info(&one)?.pages_spliced_out, 1)?;
        let two = ctl.create("two").context("a second one")?;
        expect("a third", ctl.create("three").map(drop), FULL)?;
        drop(two);
        move_all(&from, &one, PAGE)?;
        expect("moved in", ioctl::info(&one)?.pages_spliced_in, 1)?;
        expect("a second one", ctl.create("two").map(drop), FULL)?;
        drop(one);
        ctl.create("two").map(drop).context("once it is closed")
    })
}

fn pages_are_copied_where_a_limit_does_not_permit_to_move_them(_: &Context) -> Result<()> {
    let _limit = Parameter::set("user_max_bytes", CAPACITY as u64)?;
    as_user(USER, |ctl| {
        let one = ctl.create("one").context("the pipe")?;
        let content = stream_bytes(1, 0, PAGE);
        let (from, into) = pipe()?;
        write_all(&one, &content)?;
        move_all(&one, &into, PAGE)?;
        move_all(&from, &one, PAGE)?;
        let info = ioctl::info(&one)?;
        let moved = (info.pages_spliced_out, info.pages_spliced_in);
        expect("moved out and in", moved, (0, 0))?;
        expect_bytes("the bytes", &read_all(&one, PAGE)?, &content)
    })
}

fn the_default_pipe_is_charged(context: &Context) -> Result<()> {
    let _limit = Parameter::set("user_max_channels", 1)?;
    let default = || context.channel.open(OFlag::O_RDWR);
    as_user(USER, |ctl| {
        let pipe = default().context("the default pipe")?;
        expect("a named one beside it", ctl.create("one").map(drop), FULL)?;
        drop(pipe);
        let _one = ctl.create("one").context("once it is closed")?;
        expect("the default beside a named one", default().map(drop), FULL)
    })
}

fn a_rejected_user_charge_leaves_the_scope_unchanged(_: &Context) -> Result<()> {
    let _user = Parameter::set("user_max_channels", 1)?;
    let _scope = Parameter::set("scope_max_channels", 3)?;
    as_user(USER, |ctl| {
        ctl.persist(OWN, "one").context("the first")?;
        for _ in 0..5 {
            expect("another", ctl.create("two").map(drop), FULL)?;
        }
        Ok(())
    })?;
    let ctl = Ctl::new()?;
    let _two = ctl.create("two").context("the second of the scope")?;
    let _three = ctl.create("three").context("the third of the scope")?;
    let more = ctl.create("four").map(drop);
    expect("a fourth", more, Err(Errno::ENOSPC))
}

/// The user is charged first, and must be uncharged when the scope's limit rejects the channel.
fn a_rejected_scope_charge_leaves_the_user_unchanged(_: &Context) -> Result<()> {
    let _user = Parameter::set("user_max_channels", 2)?;
    let scope = Parameter::set("scope_max_channels", 1)?;
    as_user(USER, |ctl| {
        ctl.persist(OWN, "one").context("the first")?;
        for _ in 0..5 {
            let more = ctl.create("two").map(drop);
            expect("another", more, Err(Errno::ENOSPC))?;
        }
        Ok(())
    })?;
    drop(scope);
    as_user(USER, |ctl| {
        let _two = ctl.create("two").context("the second of the user")?;
        expect("a third", ctl.create("three").map(drop), FULL)
    })
}
