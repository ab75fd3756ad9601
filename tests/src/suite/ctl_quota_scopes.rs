// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much a cgroup and all below it may have, and that everything that goes gives it back.

use std::os::fd::AsRawFd;

use anyhow::{Context as _, Result};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::CAPACITY;
use crate::support::check::expect;
use crate::support::child::spawn;
use crate::support::ctl::{BOTH, CREATE, Ctl, EXCL, NONBLOCK, OWN, Open, PERSIST, READ, WRITE};
use crate::support::ioctl::{self, SET_CAPACITY};
use crate::support::memory::PAGE;
use crate::support::parameter::Parameter;
use crate::support::proc::Call;
use crate::support::time::eventually;

topic!(
    "ctl_quota_scopes",
    fifo: [],
    pipe_only: [
        at_its_channels_a_scope_is_enospc_for_administrators_too,
        at_its_bytes_a_scope_is_enospc_on_making_and_on_growing,
        cgroups_below_one_share_what_it_may_have,
        a_cgroup_at_its_limit_leaves_those_beside_it_theirs,
        closing_the_last_endpoint_gives_back,
        unlinking_a_persistent_one_gives_back,
        an_unlinked_one_counts_until_its_endpoints_are_closed,
        removing_a_cgroup_gives_back_its_persistent_channels,
        a_killed_maker_gives_back,
        an_open_that_fails_gives_back,
        openers_that_race_for_a_name_give_back,
    ],
);

const FULL: nix::Result<()> = Err(Errno::ENOSPC);

/// Fails unless exactly one more channel may be made here.
fn expect_room_for_one(what: &str) -> Result<()> {
    let ctl = Ctl::new()?;
    let _last = ctl
        .create("last")
        .with_context(|| format!("{what}: one more"))?;
    let more = ctl.create("too many").map(drop);
    expect(&format!("{what}: two more"), more, FULL)
}

fn at_its_channels_a_scope_is_enospc_for_administrators_too(_: &Context) -> Result<()> {
    let _limit = Parameter::set("scope_max_channels", 2)?;
    let ctl = Ctl::new()?;
    let _one = ctl.create("one").context("the first")?;
    expect_room_for_one("with one")?;
    ctl.persist(OWN, "two").context("the second")?;
    expect("a third", ctl.create("three").map(drop), FULL)?;
    expect("attaching", ctl.attach(OWN, "two").map(drop), Ok(()))?;
    let taken = ctl.create("one").map(drop);
    expect("a name that is taken", taken, Err(Errno::EEXIST))
}

fn at_its_bytes_a_scope_is_enospc_on_making_and_on_growing(_: &Context) -> Result<()> {
    let _limit = Parameter::set("scope_max_bytes", 3 * CAPACITY as u64)?;
    let ctl = Ctl::new()?;
    let sized = |name: &str, capacity: usize| {
        ctl.open(Open {
            capacity: capacity as u64,
            ..Open::new(name, BOTH | CREATE | EXCL)
        })
    };
    let one = ctl.create("one").context("the first")?;
    let too_large = sized("two", 4 * CAPACITY).map(drop);
    expect("making too large a one", too_large, FULL)?;
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

fn cgroups_below_one_share_what_it_may_have(context: &Context) -> Result<()> {
    let _limit = Parameter::set("scope_max_channels", 3)?;
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

/// Right below the root, which has no limit.
fn a_cgroup_at_its_limit_leaves_those_beside_it_theirs(_: &Context) -> Result<()> {
    let _limit = Parameter::set("scope_max_channels", 1)?;
    let root = Cgroup::root()?;
    let name = |side: &str| format!("sluice-quota-{}-{side}", std::process::id());
    let left = root.create_child(&name("left"))?;
    let right = root.create_child(&name("right"))?;
    let outcome = (|| {
        expect("the first", persist_in(&left, "one")?, Ok(()))?;
        expect("beyond the limit", persist_in(&left, "two")?, FULL)?;
        expect("beside it", persist_in(&right, "one")?, Ok(()))
    })();
    left.remove()?;
    right.remove()?;
    outcome
}

fn closing_the_last_endpoint_gives_back(_: &Context) -> Result<()> {
    let _limit = Parameter::set("scope_max_channels", 1)?;
    let ctl = Ctl::new()?;
    for _ in 0..3 {
        let one = ctl.create("one").context("making it")?;
        let other = ctl.attach(OWN, "one").context("attaching")?;
        drop(one);
        expect("with one end", ctl.create("two").map(drop), FULL)?;
        drop(other);
        expect_room_for_one("closed")?;
    }
    Ok(())
}

fn unlinking_a_persistent_one_gives_back(_: &Context) -> Result<()> {
    let _limit = Parameter::set("scope_max_channels", 1)?;
    let ctl = Ctl::new()?;
    for _ in 0..3 {
        ctl.persist(OWN, "one").context("making it")?;
        expect("beside it", ctl.create("two").map(drop), FULL)?;
        ctl.unlink(OWN, "one").context("unlinking")?;
        expect_room_for_one("unlinked")?;
    }
    Ok(())
}

fn an_unlinked_one_counts_until_its_endpoints_are_closed(_: &Context) -> Result<()> {
    let _limit = Parameter::set("scope_max_channels", 1)?;
    let ctl = Ctl::new()?;
    for persist in [0, PERSIST] {
        let one = ctl.open(Open::new("one", BOTH | CREATE | persist))?;
        ctl.unlink(OWN, "one").context("unlinking")?;
        expect("beside it", ctl.create("one").map(drop), FULL)?;
        drop(one);
        expect_room_for_one("closed")?;
    }
    Ok(())
}

fn removing_a_cgroup_gives_back_its_persistent_channels(context: &Context) -> Result<()> {
    const COUNT: u64 = 20;
    let _limit = Parameter::set("scope_max_channels", COUNT)?;
    let home = context.cgroup()?;
    let cgroup = home.create_child("doomed")?;
    for number in 0..COUNT {
        let made = persist_in(&cgroup, &format!("number-{number}"))?;
        expect("one of many", made, Ok(()))?;
    }
    expect("one above", persist_in(home, "one")?, FULL)?;
    cgroup.remove()?;
    let ctl = Ctl::new()?;
    let mut made = Vec::new();
    eventually("all of it is given back", || {
        made.extend(ctl.create(format!("number-{}", made.len())));
        Ok((made.len() as u64 == COUNT).then_some(()))
    })?;
    expect("one more", ctl.create("more").map(drop), FULL)
}

fn a_killed_maker_gives_back(_: &Context) -> Result<()> {
    let _limit = Parameter::set("scope_max_channels", 1)?;
    let maker = spawn("one that waits for its other side", || {
        let opened = Ctl::new()?.open(Open::new("one", READ | CREATE));
        opened.map(drop).context("open")
    })?;
    maker.wait_asleep_in(Call::Ioctl)?;
    let ctl = Ctl::new()?;
    expect("while it waits", ctl.create("two").map(drop), FULL)?;
    maker.kill()?;
    expect_room_for_one("killed")
}

fn an_open_that_fails_gives_back(_: &Context) -> Result<()> {
    let _limit = Parameter::set("scope_max_channels", 1)?;
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
    // What was refused for the lack of room took none.
    let one = ctl.create("one").context("the only one")?;
    for _ in 0..3 {
        expect("beside it", ctl.create("two").map(drop), FULL)?;
    }
    drop(one);
    expect_room_for_one("after ENOSPC")
}

/// All but one of those that find no such name, and make one, find that another was faster.
fn openers_that_race_for_a_name_give_back(_: &Context) -> Result<()> {
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
