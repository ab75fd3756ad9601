// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls that restore a map: their order, names that are taken, and calls that are refused.

use std::os::fd::{AsFd, AsRawFd, RawFd};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::child::Child;
use crate::support::ctl::{BOTH, CREATE, Ctl, OWN, Open, PERSIST, expect_no_channel};
use crate::support::durable::{
    DURABLE, INTERVAL, NEW, NOWAIT, blocked, durable, failed, open_result, set_with,
};
use crate::support::ioctl::raw;
use crate::support::keeper::{
    Create, Keeper, LIMIT, Map, Message, OPEN, RESUME, Stored, answering, stored_map,
};
use crate::support::kernel::expect_no_objects;
use crate::support::map::{self, Maps, get, state};
use crate::support::restored::{KEY, SEQUENCE, begin, restore, stored};

topic!(
    "map_durable_create",
    fifo: [],
    pipe_only: [
        only_between_create_and_ready_is_anything_restored,
        a_map_is_not_found_before_it_is_ready,
        a_name_that_is_taken_is_eexist,
        a_name_that_is_taken_meanwhile_is_eexist,
        an_open_finds_a_map_that_was_restored_meanwhile,
        an_error_of_the_keeper_drops_its_own_map,
        invalid_maps_are_refused,
        a_map_of_an_open_is_created_once_and_by_its_name,
        without_a_limit_no_change_is_admitted,
        the_cgroup_of_a_map_may_be_removed_meanwhile,
    ],
);

// ---- order ----

/// A process that waits in an open of a durable map, and the message to the keeper.
fn waiting_open(keeper: &Keeper, maps: &Maps) -> Result<(Child<Result<(), i32>>, Message)> {
    let opener = blocked(&maps.0, || open_result(maps, NEW, durable(0)))?;
    Ok((opener, keeper.next_of(OPEN)?))
}

fn only_between_create_and_ready_is_anything_restored(_: &Context) -> Result<()> {
    let (mut keeper, maps) = (Keeper::new()?, Maps::new()?);
    let entries = [Stored::new(KEY, b"value", 1)];
    let (opener, asked) = waiting_open(&keeper, &maps)?;
    let early = keeper.restore(asked.stream, &entries);
    expect("RESTORE before CREATE", early, Err(Errno::EINVAL))?;
    let early = keeper.ready(asked.stream);
    expect("READY before CREATE", early, Err(Errno::EINVAL))?;
    keeper.create(&asked, 10)?;
    keeper.ready(asked.stream).context("READY")?;
    expect("the open", opener.finish()?, Ok(()))?;
    for _ in 0..2 {
        let late = keeper.restore(asked.stream, &entries);
        expect("RESTORE after READY", late, Err(Errno::EINVAL))?;
        for late in [
            keeper.ready(asked.stream),
            keeper.refuse(asked.stream, Errno::EIO),
        ] {
            expect("READY again", late, Err(Errno::EINVAL))?;
        }
        let late = keeper.create_at(asked.stream, OWN, &asked.map()?, 10, LIMIT);
        expect("CREATE again", late, Err(Errno::EINVAL))?;
        // Neither by the next keeper.
        keeper.restart()?;
        keeper.expect_next(RESUME, asked.stream)?;
    }
    let end = maps.attach()?;
    expect("entries", state(&end)?.entries, 0)
}

fn a_map_is_not_found_before_it_is_ready(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let stream = begin(&keeper, &stored())?;
    keeper
        .restore(stream, &[Stored::new(KEY, b"value", 1)])
        .context("RESTORE")?;
    expect("an open", maps.open(BOTH).map(drop), Err(Errno::ENOENT))?;
    expect("its state", maps.info().map(drop), Err(Errno::ENOENT))?;
    expect("an unlink", maps.unlink(), Err(Errno::ENOENT))?;
    expect("names", maps.0.names(OWN), Ok(vec![]))?;
    keeper.ready(stream).context("READY")?;
    expect("an open", maps.open(BOTH).map(drop), Ok(()))
}

fn a_name_that_is_taken_is_eexist(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let taken = || {
        let seen = keeper.create_at(0, OWN, &stored(), SEQUENCE, LIMIT);
        expect("CREATE", seen, Err(Errno::EEXIST))
    };
    let volatile = maps.create()?;
    taken()?;
    drop(volatile);
    let stream = restore(&keeper, &stored(), &[])?;
    taken()?;
    expect("END", keeper.detach(stream), Ok(()))?;
    restore(&keeper, &stored(), &[]).map(drop)
}

fn a_name_that_is_taken_meanwhile_is_eexist(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let stream = begin(&keeper, &stored())?;
    keeper
        .restore(stream, &[Stored::new(KEY, b"value", 1)])
        .context("RESTORE")?;
    let volatile = maps.create()?;
    expect("READY", keeper.ready(stream), Err(Errno::EEXIST))?;
    expect("its stream", keeper.ready(stream), Err(Errno::ENOENT))?;
    keeper.expect_nothing()?;
    expect("entries", state(&volatile)?.entries, 0)?;
    drop(volatile);
    expect_no_channel(&maps.0)
}

/// The keeper restores a map on its own account while an open of it waits.
fn an_open_finds_a_map_that_was_restored_meanwhile(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    for answers_estale in [true, false] {
        let (opener, asked) = waiting_open(&keeper, &maps)?;
        let stream = restore(&keeper, &stored(), &[Stored::new(KEY, b"value", 1)])?;
        if answers_estale {
            let refused = keeper.refuse(asked.stream, Errno::ESTALE);
            expect("READY", refused, Ok(()))?;
        } else {
            // A second map of the name is not kept, whoever is told.
            keeper.create(&asked, 0)?;
            let ready = keeper.ready(asked.stream);
            ensure!([Ok(()), Err(Errno::EEXIST)].contains(&ready), "{ready:?}");
        }
        expect("the open", opener.finish()?, Ok(()))?;
        let end = maps.attach()?;
        expect("its entry", get(&end, KEY), Ok(b"value".to_vec()))?;
        let others = keeper.take()?;
        let of_other = |message: &Message| message.stream == asked.stream;
        ensure!(others.iter().all(of_other), "{others:?}");
        expect("END", keeper.detach(stream), Ok(()))?;
    }
    expect_no_channel(&maps.0)
}

fn an_error_of_the_keeper_drops_its_own_map(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    for errno in [Errno::EIO, Errno::ESTALE, Errno::ENOMEM] {
        let stream = begin(&keeper, &stored())?;
        keeper
            .restore(stream, &[Stored::new(KEY, b"value", 1)])
            .context("RESTORE")?;
        expect("READY", keeper.refuse(stream, errno), Ok(()))?;
        expect("its stream", keeper.ready(stream), Err(Errno::ENOENT))?;
    }
    keeper.expect_nothing()?;
    expect_no_channel(&maps.0)
}

// ---- invalid calls ----

fn invalid_maps_are_refused(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let valid = stored();
    let long_name = Map {
        name: [b'x'; 64],
        ..valid
    };
    let after_the_end = {
        let mut map = stored_map("x");
        map.name[10] = b'y';
        map
    };
    for (what, map) in [
        ("volatile", Map { flags: 0, ..valid }),
        (
            "no durable flag",
            Map {
                flags: INTERVAL,
                ..valid
            },
        ),
        (
            "an unknown flag",
            Map {
                flags: DURABLE | 0x08,
                ..valid
            },
        ),
        (
            "the mode",
            Map {
                mode: 0o1000,
                ..valid
            },
        ),
        ("events", Map { events: 3, ..valid }),
        (
            "a capacity below the log",
            Map {
                capacity: 1,
                ..valid
            },
        ),
        (
            "the capacity",
            Map {
                capacity: u64::MAX,
                ..valid
            },
        ),
        (
            "the user",
            Map {
                uid: u32::MAX,
                ..valid
            },
        ),
        (
            "the group",
            Map {
                gid: u32::MAX,
                ..valid
            },
        ),
        ("no name", stored_map("")),
        ("the name of the directory", stored_map(".")),
        ("a name with a slash", stored_map("a/b")),
        ("a name without an end", long_name),
        ("a name with more after its end", after_the_end),
    ] {
        let seen = keeper.create_at(0, OWN, &map, SEQUENCE, LIMIT);
        expect(what, seen, Err(Errno::EINVAL))?;
    }
    for (what, sequence, limit) in [
        ("a sequence above the limit", 2, 1),
        ("the last sequence", u64::MAX, u64::MAX),
        ("the last limit", 0, u64::MAX),
    ] {
        let seen = keeper.create_at(0, OWN, &valid, sequence, limit);
        expect(what, seen, Err(Errno::EINVAL))?;
    }
    // As by a call of ctl.
    for scope_fd in [-3, RawFd::MAX, keeper.as_fd().as_raw_fd()] {
        let seen = keeper.create_at(0, scope_fd, &valid, 0, LIMIT).map(drop);
        let of_ctl = maps.0.attach(scope_fd, "none").map(drop);
        expect(&format!("scope {scope_fd}"), seen, of_ctl)?;
    }
    expect_no_channel(&maps.0)
}

fn a_map_of_an_open_is_created_once_and_by_its_name(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let (opener, asked) = waiting_open(&keeper, &maps)?;
    let described = asked.map()?;
    let other_name = Map {
        name: sluice_abi::padded("other"),
        ..described
    };
    let create = |scope_fd, map: &Map, sequence| {
        let mut create = Create::new(asked.stream, scope_fd, map, sequence, LIMIT);
        raw(&keeper, crate::support::keeper::CREATE, &mut create)
    };
    for (what, seen) in [
        ("another name", create(OWN, &other_name, 0)),
        ("a scope", create(sluice_abi::SCOPE_ROOT, &described, 0)),
        (
            "volatile",
            create(
                OWN,
                &Map {
                    flags: 0,
                    ..described
                },
                0,
            ),
        ),
        ("beyond the limit", create(OWN, &described, LIMIT + 1)),
    ] {
        expect(what, seen, Err(Errno::EINVAL))?;
    }
    expect("CREATE", create(OWN, &described, 5), Ok(()))?;
    let again = create(OWN, &described, 6);
    expect("a second time", again, Err(Errno::EINVAL))?;
    keeper.ready(asked.stream).context("READY")?;
    expect("the open", opener.finish()?, Ok(()))?;
    expect("changes", state(&maps.attach()?)?.sequence, 5)
}

fn without_a_limit_no_change_is_admitted(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let created = keeper.create_at(0, OWN, &stored(), SEQUENCE, SEQUENCE);
    let stream = created.context("CREATE")?;
    keeper.ready(stream).context("READY")?;
    let end = maps.attach()?;
    let refused = set_with(&end, KEY, b"", NOWAIT);
    expect("a set", refused, failed(Errno::EAGAIN, 0))?;
    expect("changes", state(&end)?.sequence, SEQUENCE)
}

fn the_cgroup_of_a_map_may_be_removed_meanwhile(context: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let home = context.cgroup()?;
    let cgroup = home.create_child("removed")?;
    let directory = cgroup.directory()?;
    let create = || keeper.create_at(0, directory.as_raw_fd(), &stored(), SEQUENCE, LIMIT);
    let stream = create().context("CREATE")?;
    cgroup.remove()?;
    let entries = [Stored::new(KEY, b"value", 1)];
    expect("RESTORE", keeper.restore(stream, &entries), Ok(1))?;
    expect("READY", keeper.ready(stream), Err(Errno::ENOENT))?;
    expect("its stream", keeper.ready(stream), Err(Errno::ENOENT))?;
    expect("CREATE", create(), Err(Errno::ENOENT))?;
    // That of an open.
    let cgroup = home.create_child("of-an-open")?;
    let directory = cgroup.directory()?;
    let params = durable(0);
    let request = Open {
        scope_fd: directory.as_raw_fd(),
        ..map::request(BOTH | CREATE | PERSIST, &params)
    };
    let ctl = Ctl::new()?;
    let (opened, ready) = answering(
        || ctl.open(request).map(drop),
        || {
            let asked = keeper.next_of(OPEN)?;
            keeper.create(&asked, 0)?;
            cgroup.remove()?;
            Ok(keeper.ready(asked.stream))
        },
    )?;
    expect("the open", opened, Err(Errno::ENOENT))?;
    ensure!(
        [Ok(()), Err(Errno::ENOENT)].contains(&ready),
        "READY: {ready:?}"
    );
    drop((directory, keeper));
    expect_no_objects()
}
