// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits of a cgroup with its descendants, and that everything freed is uncharged.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use serde::{Serialize, de::DeserializeOwned};

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::CAPACITY;
use crate::support::check::expect;
use crate::support::child::{Child, spawn, spawn_keeping};
use crate::support::credentials::{become_user, enter_cgroup_namespace};
use crate::support::ctl::{BOTH, CREATE, Ctl, EXCL, NONBLOCK, OWN, Open, PERSIST, READ, WRITE};
use crate::support::ioctl::{self, SET_CAPACITY};
use crate::support::memory::PAGE;
use crate::support::parameter::{Parameter, scope_limit};
use crate::support::proc::Call;
use crate::support::shared::SharedWords;
use crate::support::time::{Deadline, eventually};

topic!(
    "ctl_quota_scopes",
    fifo: [],
    pipe_only: [
        a_scope_at_the_channel_limit_is_enospc_for_administrators_too,
        a_scope_at_the_byte_limit_is_enospc_on_create_and_grow,
        descendant_cgroups_share_the_limit_of_their_ancestor,
        a_cgroup_at_its_limit_does_not_affect_siblings,
        a_container_at_its_limit_does_not_affect_siblings,
        child_cgroups_do_not_raise_the_limit_of_a_container,
        a_nested_container_is_charged_up_to_its_own_root,
        channels_created_outside_a_container_are_charged_up_to_the_top,
        racing_creators_at_the_limit_all_get_the_channel,
        closing_the_last_endpoint_uncharges,
        unlinking_a_persistent_channel_uncharges,
        an_unlinked_channel_is_charged_until_its_endpoints_are_closed,
        removing_a_cgroup_uncharges_its_persistent_channels,
        killing_the_creator_uncharges,
        a_failed_open_uncharges,
        racing_opens_of_a_name_uncharge,
    ],
);

const FULL: nix::Result<()> = Err(Errno::ENOSPC);

/// Fails unless exactly one more channel can be created here.
fn expect_room_for_one(what: &str) -> Result<()> {
    let ctl = Ctl::new()?;
    let _last = ctl
        .create("last")
        .with_context(|| format!("{what}: one more"))?;
    let more = ctl.create("too many").map(drop);
    expect(&format!("{what}: two more"), more, FULL)
}

fn a_scope_at_the_channel_limit_is_enospc_for_administrators_too(_: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_channels", 2)?;
    let ctl = Ctl::new()?;
    let _one = ctl.create("one").context("the first")?;
    expect_room_for_one("with one")?;
    ctl.persist(OWN, "two").context("the second")?;
    expect("a third", ctl.create("three").map(drop), FULL)?;
    expect("attaching", ctl.attach(OWN, "two").map(drop), Ok(()))?;
    let taken = ctl.create("one").map(drop);
    expect("a name that is taken", taken, Err(Errno::EEXIST))
}

fn a_scope_at_the_byte_limit_is_enospc_on_create_and_grow(_: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_bytes", 3 * CAPACITY as u64)?;
    let ctl = Ctl::new()?;
    let sized = |name: &str, capacity: usize| {
        ctl.open(Open {
            capacity: capacity as u64,
            ..Open::new(name, BOTH | CREATE | EXCL)
        })
    };
    let one = ctl.create("one").context("the first")?;
    let too_large = sized("two", 4 * CAPACITY).map(drop);
    expect("creating too large a one", too_large, FULL)?;
    let grown = ioctl::set(&one, SET_CAPACITY, 4 * CAPACITY as u64);
    expect("growing too far", grown, Err(Errno::ENOSPC))?;
    expect("capacity", ioctl::info(&one)?.capacity, CAPACITY as u64)?;
    let _two = sized("two", 2 * CAPACITY).context("the rest")?;
    expect("a page more", sized("three", PAGE).map(drop), FULL)?;
    ioctl::set(&one, SET_CAPACITY, PAGE as u64).context("shrinking")?;
    expect("after it", sized("three", CAPACITY / 2).map(drop), Ok(()))
}

fn persist_in(cgroup: &Cgroup, name: &str) -> Result<nix::Result<()>> {
    let directory = cgroup.directory()?;
    Ok(Ctl::new()?.persist(directory.as_raw_fd(), name))
}

fn descendant_cgroups_share_the_limit_of_their_ancestor(context: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_channels", 3)?;
    let outer = context.cgroup()?.create_child("outer")?;
    let left = outer.create_child("left")?;
    let right = outer.create_child("right")?.create_child("inner")?;
    for cgroup in [&outer, &left, &right] {
        expect("the first of each", persist_in(cgroup, "one")?, Ok(()))?;
    }
    for cgroup in [&left, &right, &outer] {
        expect("the second of each", persist_in(cgroup, "two")?, FULL)?;
    }
    let directory = left.directory()?;
    Ctl::new()?.unlink(directory.as_raw_fd(), "one")?;
    expect("once one went", persist_in(&right, "two")?, Ok(()))
}

/// Their parent is the root, which has no limit.
fn a_cgroup_at_its_limit_does_not_affect_siblings(_: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_channels", 1)?;
    let root = Cgroup::root()?;
    let name = |side: &str| format!("sluice-quota-{}-{side}", std::process::id());
    let left = root.create_child(&name("left"))?;
    let right = root.create_child(&name("right"))?;
    let outcome = (|| {
        expect("the first", persist_in(&left, "one")?, Ok(()))?;
        expect("beyond the limit", persist_in(&left, "two")?, FULL)?;
        expect("next to it", persist_in(&right, "one")?, Ok(()))
    })();
    left.remove()?;
    right.remove()?;
    outcome
}

/// Runs `body` in a new cgroup namespace whose root is this cgroup, as host root.
fn contained<T: Serialize + DeserializeOwned>(
    root: &Cgroup,
    keep: &[BorrowedFd],
    body: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let container = spawn_keeping("a container", keep, || {
        root.enter()?;
        enter_cgroup_namespace()?;
        body()
    })?;
    container.finish()
}

/// Creates persistent channels in the own cgroup until one is rejected: their number, and the errno.
fn create_until_full(ctl: &Ctl, prefix: &str) -> (usize, i32) {
    const TOO_MANY: usize = 1000;
    for number in 0..TOO_MANY {
        if let Err(error) = ctl.persist(OWN, format!("{prefix}-{number}")) {
            return (number, error as i32);
        }
    }
    (TOO_MANY, 0)
}

/// As `create_until_full`, for each of these users in turn.
fn create_until_full_as(users: &[u32]) -> Result<Vec<(usize, i32)>> {
    let take = |user: &u32| {
        let child = spawn("a user of a container", || {
            become_user(*user)?;
            Ok(create_until_full(&Ctl::new()?, &format!("of-{user}")))
        })?;
        child.finish()
    };
    users.iter().map(take).collect()
}

/// Two containers below one parent, each with four users.
fn a_container_at_its_limit_does_not_affect_siblings(context: &Context) -> Result<()> {
    const USERS: [u32; 4] = [1001, 1002, 1003, 1004];
    let _scope = scope_limit("scope_max_channels", 6)?;
    let _user = Parameter::set("user_max_channels", 2)?;
    let slice = context.cgroup()?.create_child("slice")?;
    let (user_full, scope_full) = (Errno::EDQUOT as i32, Errno::ENOSPC as i32);
    let share = vec![
        (2, user_full),
        (2, user_full),
        // At both limits, of which that of the user is checked first.
        (2, user_full),
        (0, scope_full),
    ];
    for name in ["first", "second"] {
        let root = slice.create_child(name)?;
        let taken = contained(&root, &[], || create_until_full_as(&USERS))?;
        expect(
            &format!("channels of the {name} container"),
            taken,
            share.clone(),
        )?;
    }
    // The parent's own channels have a separate limit as well.
    expect("next to them", persist_in(&slice, "one")?, Ok(()))
}

fn child_cgroups_do_not_raise_the_limit_of_a_container(context: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_channels", 3)?;
    let root = context.cgroup()?.create_child("container")?;
    let parts = [root.create_child("left")?, root.create_child("right")?];
    let taken = contained(&root, &[], || {
        let of_parts = parts.iter().map(|part| {
            let inside = part.spawn("a child cgroup", || {
                Ok(create_until_full(&Ctl::new()?, "part").0)
            })?;
            inside.finish()
        });
        of_parts.collect::<Result<Vec<_>>>()
    })?;
    expect("channels of the child cgroups", taken, vec![3, 0])
}

/// It has the limits of a separate container. Its users are charged in addition (ctl_quota).
fn a_nested_container_is_charged_up_to_its_own_root(context: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_channels", 3)?;
    let outer = context.cgroup()?.create_child("outer")?;
    let inner = outer.create_child("inner")?;
    contained(&outer, &[], || {
        let before = contained(&inner, &[], || Ok(create_until_full(&Ctl::new()?, "inner")))?;
        expect("inside", before, (3, Errno::ENOSPC as i32))?;
        let after = create_until_full(&Ctl::new()?, "outer");
        expect("outside", after, (3, Errno::ENOSPC as i32))
    })
}

fn channels_created_outside_a_container_are_charged_up_to_the_top(context: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_channels", 2)?;
    let home = context.cgroup()?;
    let root = home.create_child("container")?;
    let outside = home.create_child("outside")?.directory()?;
    contained(&root, &[outside.as_fd()], || {
        let ctl = Ctl::new()?;
        for (name, expected) in [("one", Ok(())), ("two", Ok(())), ("three", FULL)] {
            expect(name, ctl.persist(outside.as_raw_fd(), name), expected)?;
        }
        expect("its own", ctl.persist(OWN, "one"), Ok(()))
    })?;
    expect("above", persist_in(home, "one")?, FULL)
}

/// The slower creator finds the limit reached, but also the channel that reached it.
fn racing_creators_at_the_limit_all_get_the_channel(_: &Context) -> Result<()> {
    const RACERS: usize = 4;
    const ROUNDS: u64 = 200;
    let _limit = scope_limit("scope_max_channels", 1)?;
    let arrived = SharedWords::new(2)?;
    // A barrier: all continue once all have arrived; `stage` counts the rounds.
    let meet = |at: usize, stage: u64| {
        let all = stage * RACERS as u64;
        arrived.words()[at].fetch_add(1, Ordering::SeqCst);
        let deadline = Deadline::for_event();
        while arrived.get(at) < all {
            ensure!(!deadline.passed(), "a racing creator did not arrive");
            std::thread::yield_now();
        }
        Ok(())
    };
    let race = || {
        spawn("a racing creator", || {
            let ctl = Ctl::new()?;
            let mut refused = Vec::new();
            for round in 1..=ROUNDS {
                meet(0, 2 * round - 1)?;
                let opened = ctl.open(Open::new("channel", BOTH | CREATE));
                meet(1, round)?;
                refused.extend(opened.err().map(|error| (round, error)));
                meet(0, 2 * round)?;
            }
            expect("rounds in which it was refused", refused, vec![])
        })
    };
    let racers: Result<Vec<_>> = (0..RACERS).map(|_| race()).collect();
    racers?.into_iter().try_for_each(Child::finish)?;
    expect_room_for_one("after the race")
}

fn closing_the_last_endpoint_uncharges(_: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_channels", 1)?;
    let ctl = Ctl::new()?;
    for _ in 0..3 {
        let one = ctl.create("one").context("creating the channel")?;
        let other = ctl.attach(OWN, "one").context("attaching")?;
        drop(one);
        expect("with one end", ctl.create("two").map(drop), FULL)?;
        drop(other);
        expect_room_for_one("closed")?;
    }
    Ok(())
}

fn unlinking_a_persistent_channel_uncharges(_: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_channels", 1)?;
    let ctl = Ctl::new()?;
    for _ in 0..3 {
        ctl.persist(OWN, "one").context("creating the channel")?;
        expect("next to it", ctl.create("two").map(drop), FULL)?;
        ctl.unlink(OWN, "one").context("unlinking")?;
        expect_room_for_one("unlinked")?;
    }
    Ok(())
}

fn an_unlinked_channel_is_charged_until_its_endpoints_are_closed(_: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_channels", 1)?;
    let ctl = Ctl::new()?;
    for persist in [0, PERSIST] {
        let one = ctl.open(Open::new("one", BOTH | CREATE | persist))?;
        ctl.unlink(OWN, "one").context("unlinking")?;
        expect("next to it", ctl.create("one").map(drop), FULL)?;
        drop(one);
        expect_room_for_one("closed")?;
    }
    Ok(())
}

fn removing_a_cgroup_uncharges_its_persistent_channels(context: &Context) -> Result<()> {
    const COUNT: u64 = 20;
    let _limit = scope_limit("scope_max_channels", COUNT)?;
    let home = context.cgroup()?;
    let cgroup = home.create_child("removed")?;
    for number in 0..COUNT {
        let made = persist_in(&cgroup, &format!("number-{number}"))?;
        expect("one of many", made, Ok(()))?;
    }
    expect("one above", persist_in(home, "one")?, FULL)?;
    cgroup.remove()?;
    let ctl = Ctl::new()?;
    let mut made = Vec::new();
    eventually("all channels are uncharged", || {
        made.extend(ctl.create(format!("number-{}", made.len())));
        Ok((made.len() as u64 == COUNT).then_some(()))
    })?;
    expect("one more", ctl.create("more").map(drop), FULL)
}

fn killing_the_creator_uncharges(_: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_channels", 1)?;
    let creator = spawn("a blocked reader", || {
        let opened = Ctl::new()?.open(Open::new("one", READ | CREATE));
        opened.map(drop).context("open")
    })?;
    creator.wait_asleep_in(Call::Ioctl)?;
    let ctl = Ctl::new()?;
    expect("while it is blocked", ctl.create("two").map(drop), FULL)?;
    creator.kill()?;
    expect_room_for_one("processes killed for memory")
}

fn a_failed_open_uncharges(_: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_channels", 1)?;
    let ctl = Ctl::new()?;
    let writer = Open::new("one", WRITE | NONBLOCK | CREATE);
    let huge = Open {
        capacity: u64::MAX,
        ..Open::new("one", BOTH | CREATE)
    };
    for (request, error) in [(writer, Errno::ENXIO), (huge, Errno::EINVAL)] {
        for _ in 0..3 {
            expect("the open", ctl.open(request).map(drop), Err(error))?;
        }
        expect_room_for_one(&format!("after {error}"))?;
    }
    // A channel that was rejected with ENOSPC is not charged.
    let one = ctl.create("one").context("the only one")?;
    for _ in 0..3 {
        expect("next to it", ctl.create("two").map(drop), FULL)?;
    }
    drop(one);
    expect_room_for_one("after ENOSPC")
}

/// All but one of the racing creators find that the channel exists after all.
fn racing_opens_of_a_name_uncharge(_: &Context) -> Result<()> {
    const ROUNDS: usize = 300;
    for excl in [0, EXCL] {
        let race = || {
            spawn("an opener", || {
                let ctl = Ctl::new()?;
                for _ in 0..ROUNDS {
                    match ctl.open(Open::new("channel", BOTH | CREATE | excl)) {
                        Ok(_) => {}
                        Err(Errno::EEXIST) if excl != 0 => {}
                        Err(error) => return Err(error).context("open"),
                    }
                }
                Ok(())
            })
        };
        let racers = [race()?, race()?, race()?];
        for racer in racers {
            racer.finish()?;
        }
        let _limit = Parameter::set("scope_max_channels", 1)?;
        expect_room_for_one("after the race")?;
    }
    Ok(())
}
