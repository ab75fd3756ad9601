// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening durable maps: what the keeper is asked and what it answers, and how an open ends.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{spawn, spawn_keeping};
use crate::support::credentials::{become_user, become_user_with_groups};
use crate::support::ctl::{
    ANY_OWNER, BOTH, CREATE, Ctl, EXCL, NONBLOCK, OWN, Open, PERSIST, PERSISTENT, READ, WRITE,
    expect_no_channel,
};
use crate::support::durable::{
    DURABLE, Durable, INTERVAL, NEW, REFUSE, durable, interrupted, open, open_result, path_of,
    post, short,
};
use crate::support::event::Event;
use crate::support::keeper::{self, CLOSED, Keeper, LIMIT, OPEN, SET, Stored, answering};
use crate::support::map::{
    self, DEFAULT_CAPACITY, DEFAULT_EVENTS, Info, Maps, NAME, Params, get, get_entry, put, state,
};
use crate::support::proc::Call;
use crate::support::signals;
use crate::support::time::{Deadline, eventually};

topic!(
    "map_durable_open",
    fifo: [],
    pipe_only: [
        an_open_asks_the_keeper_for_the_map,
        the_keeper_is_told_what_is_opened_and_by_whom,
        the_keeper_is_told_the_defaults,
        the_path_is_that_of_the_scope,
        a_stored_map_is_restored_for_the_open,
        a_create_gets_no_stored_map_of_another_user,
        the_kernel_compares_the_mode_of_a_stored_map_with_its_opener,
        the_keeper_decides_the_parameters_of_a_stored_map,
        an_error_of_the_keeper_fails_the_open,
        estale_makes_the_open_look_again,
        an_open_that_looks_again_and_again_is_etimedout,
        a_map_in_the_kernel_is_opened_without_the_keeper,
        an_exclusive_open_asks_too,
        an_open_that_may_not_wait_is_eagain,
        without_create_nothing_is_asked,
        a_volatile_map_is_not_opened_as_durable,
        a_durable_map_is_persistent,
        invalid_parameters_are_refused,
        without_a_keeper_an_open_is_etimedout,
        an_open_that_is_not_answered_is_etimedout,
        an_open_is_interrupted_by_a_signal,
        an_open_that_is_restarted_asks_again,
        two_opens_of_one_name_get_one_map,
    ],
);

fn both() -> Result<(Keeper, Maps)> {
    Ok((Keeper::new()?, Maps::new()?))
}

// ---- opening ----

fn an_open_asks_the_keeper_for_the_map(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    let (opened, stream) = answering(
        || open(&maps, NEW, durable(INTERVAL)),
        || {
            let asked = keeper.next_of(OPEN)?;
            let names = maps.0.names(OWN);
            expect("names before", names, Ok(vec![]))?;
            keeper.create(&asked, 0)?;
            let names = maps.0.names(OWN);
            expect("names during the restoration", names, Ok(vec![]))?;
            keeper.ready(asked.stream).context("READY")?;
            Ok(asked.stream)
        },
    )?;
    let end = opened.context("opening")?;
    ensure!(stream > 0, "the stream has no number");
    expect("the first number", put(&end, b"key", b"value")?, 1)?;
    expect("a get", get(&end, b"key"), Ok(b"value".to_vec()))?;
    keeper.expect_next(SET, stream).map(drop)
}

fn the_keeper_is_told_what_is_opened_and_by_whom(context: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    let path = path_of(context.cgroup()?)?;
    let params = Params {
        entries: 77,
        events: 64,
        interval_ms: 250,
        ..durable(INTERVAL | REFUSE)
    };
    let request = Open {
        mode: 0o640,
        capacity: 1 << 20,
        ..map::request(NEW | EXCL, &params)
    };
    let asked = |message: &keeper::Message, administrator, uid, gid| -> Result<()> {
        let seen = message.map()?;
        let expected = keeper::Map {
            // PERSIST is implied.
            open_flags: NEW | EXCL | seen.open_flags & PERSIST,
            administrator,
            uid,
            gid,
            mode: 0o640,
            events: 64,
            capacity: 1 << 20,
            entries: 77,
            deadline_ms: params.deadline_ms,
            interval_ms: 250,
            ..keeper::Map::new(NAME, DURABLE | INTERVAL | REFUSE)
        };
        expect("the map", seen, expected)?;
        expect_bytes("the path", &message.value, path.as_bytes())?;
        let unused = (message.sequence, message.expires_ns);
        expect("fields without use", unused, (0, 0))?;
        keeper.refuse(message.stream, Errno::EIO).context("READY")
    };
    let (opened, ()) = answering(
        || maps.0.open(request).map(drop),
        || asked(&keeper.next_of(OPEN)?, 1, 0, 0),
    )?;
    expect("the open", opened, Err(Errno::EIO))?;
    let child = spawn("another user", || {
        become_user_with_groups(1001, 2001, &[])?;
        let opened = Ctl::new()?.open(request);
        Ok(opened.map(drop).map_err(|errno| errno as i32))
    })?;
    asked(&keeper.next_of(OPEN)?, 0, 1001, 2001)?;
    expect("its open", child.finish()?, Err(Errno::EIO as i32))
}

fn the_keeper_is_told_the_defaults(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    for (flags, interval_ms) in [(DURABLE, 0), (DURABLE | INTERVAL, 1000)] {
        let params = Params {
            flags,
            ..Params::default()
        };
        let (opened, told) = answering(
            || open(&maps, NEW, params).map(drop),
            || {
                let asked = keeper.next_of(OPEN)?;
                keeper.refuse(asked.stream, Errno::EIO).context("READY")?;
                asked.map()
            },
        )?;
        expect("the open", opened, Err(Errno::EIO))?;
        let expected = keeper::Map {
            flags,
            events: DEFAULT_EVENTS,
            capacity: DEFAULT_CAPACITY,
            entries: 0,
            deadline_ms: 30_000,
            interval_ms,
            ..told
        };
        expect("the map", told, expected)?;
    }
    Ok(())
}

fn the_path_is_that_of_the_scope(context: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let inner = context.cgroup()?.create_child("inner")?;
    for (cgroup, path) in [(&Cgroup::root()?, "/"), (&inner, &path_of(&inner)?)] {
        for inside in [true, false] {
            let directory = cgroup.directory()?;
            let opener = spawn_keeping("an opener", &[directory.as_fd()], || {
                cgroup.enter()?;
                let params = durable(0);
                let request = Open {
                    scope_fd: if inside { OWN } else { directory.as_raw_fd() },
                    ..map::request(NEW, &params)
                };
                let opened = Ctl::new()?.open(request);
                Ok(opened.map(drop).map_err(|errno| errno as i32))
            })?;
            let asked = keeper.next_of(OPEN)?;
            expect_bytes("the path", &asked.value, path.as_bytes())?;
            keeper.refuse(asked.stream, Errno::EIO).context("READY")?;
            expect(path, opener.finish()?, Err(Errno::EIO as i32))?;
        }
    }
    Ok(())
}

fn a_stored_map_is_restored_for_the_open(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    let entries = [
        Stored::new(b"a", b"first", 7),
        Stored::new(b"b", b"second", 4),
    ];
    let (opened, ()) = answering(
        || open(&maps, NEW, durable(INTERVAL)),
        || {
            let asked = keeper.next_of(OPEN)?;
            keeper.create(&asked, 10)?;
            let restored = keeper.restore(asked.stream, &entries);
            expect("RESTORE", restored, Ok(2))?;
            keeper.ready(asked.stream).context("READY")
        },
    )?;
    let end = opened.context("opening")?;
    for entry in &entries {
        let seen = get_entry(&end, &entry.key).context("getting")?;
        expect_bytes("the value", &seen.value, &entry.value)?;
        expect("the version", seen.version, entry.version)?;
    }
    expect("the next number", put(&end, b"a", b"")?, 11)
}

fn a_create_gets_no_stored_map_of_another_user(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    let (opened, _) = answering(
        || open(&maps, NEW, durable(0)).map(drop),
        || {
            keeper.answer_open_with(LIMIT, |map| {
                map.mode = 0o666;
                map.uid = 1001;
            })
        },
    )?;
    expect("an open", opened, Err(Errno::EACCES))?;
    // It has not read that the stream has ended.
    drop(keeper);
    expect_no_channel(&maps.0)
}

fn the_kernel_compares_the_mode_of_a_stored_map_with_its_opener(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    let refused = Err(Errno::EACCES as i32);
    for (mode, expected) in [(0o600, refused), (0o664, refused), (0o606, Ok(()))] {
        let opener = spawn("another user", || {
            become_user(1002)?;
            Ok(open_result(&Maps::new()?, NEW | ANY_OWNER, durable(0)))
        })?;
        let stream = keeper.answer_open_with(LIMIT, |map| {
            map.mode = mode;
            (map.uid, map.gid) = (1001, 1001);
        })?;
        expect(&format!("mode {mode:o}"), opener.finish()?, expected)?;
        if expected.is_err() {
            keeper.expect_next(CLOSED, stream)?;
            expect_no_channel(&maps.0)?;
        }
    }
    Ok(())
}

fn the_keeper_decides_the_parameters_of_a_stored_map(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    let (opened, ()) = answering(
        || open(&maps, NEW | ANY_OWNER, durable(0)),
        || {
            let asked = keeper.next_of(OPEN)?;
            let stored = keeper::Map {
                flags: DURABLE | INTERVAL,
                mode: 0o604,
                uid: 1001,
                gid: 2001,
                events: 16,
                capacity: 2 << 20,
                entries: 5,
                deadline_ms: 1234,
                interval_ms: 77,
                ..asked.map()?
            };
            let created = keeper.create_at(asked.stream, -1, &stored, 0, LIMIT);
            expect("CREATE", created, Ok(asked.stream))?;
            keeper.ready(asked.stream).context("READY")
        },
    )?;
    let end = opened.context("opening")?;
    let seen = state(&end)?;
    let expected = Info {
        flags: DURABLE | INTERVAL,
        capacity: 2 << 20,
        bytes: seen.bytes,
        entries_max: 5,
        events: 16,
        deadline_ms: 1234,
        interval_ms: 77,
        ..Info::default()
    };
    expect("its state", seen, expected)?;
    let (channel, _) = maps.info().context("asking by name")?;
    let owner = (channel.uid, channel.gid, channel.mode);
    expect("owner and mode", owner, (1001, 2001, 0o604))
}

fn an_error_of_the_keeper_fails_the_open(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    for errno in [
        Errno::EACCES,
        Errno::EEXIST,
        Errno::EDQUOT,
        Errno::ENOSPC,
        Errno::EIO,
        Errno::EROFS,
    ] {
        for restores in [false, true] {
            let (opened, ()) = answering(
                || open(&maps, NEW, durable(0)).map(drop),
                || {
                    let asked = keeper.next_of(OPEN)?;
                    if restores {
                        keeper.create(&asked, 1)?;
                        let entries = [Stored::new(b"key", b"value", 1)];
                        let restored = keeper.restore(asked.stream, &entries);
                        expect("RESTORE", restored, Ok(1))?;
                    }
                    keeper.refuse(asked.stream, errno).context("READY")?;
                    let again = keeper.ready(asked.stream);
                    expect("its stream", again, Err(Errno::ENOENT))
                },
            )?;
            expect("the open", opened, Err(errno))?;
        }
    }
    keeper.expect_nothing()?;
    expect_no_channel(&maps.0)
}

fn estale_makes_the_open_look_again(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    let (opened, stream) = answering(
        || open(&maps, NEW, durable(INTERVAL)),
        || {
            let first = keeper.next_of(OPEN)?;
            keeper.refuse(first.stream, Errno::ESTALE)?;
            let second = keeper.next_of(OPEN)?;
            ensure!(second.stream != first.stream, "it has the same stream");
            expect("the map", second.map()?, first.map()?)?;
            // Meanwhile, the keeper attaches the map itself.
            let stored = keeper::Map {
                open_flags: 0,
                administrator: 0,
                ..second.map()?
            };
            let attached = keeper.create_at(0, -1, &stored, 5, LIMIT);
            let attached = attached.context("CREATE")?;
            keeper.ready(attached).context("READY")?;
            keeper.refuse(second.stream, Errno::ESTALE)?;
            Ok(attached)
        },
    )?;
    let end = opened.context("opening")?;
    expect("the next number", put(&end, b"key", b"")?, 6)?;
    keeper.expect_next(SET, stream)?;
    keeper.expect_nothing()
}

fn an_open_that_looks_again_and_again_is_etimedout(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    let ended = AtomicBool::new(false);
    let (opened, asked) = answering(
        || {
            let opened = open(&maps, NEW, short(0)).map(drop);
            ended.store(true, Ordering::Relaxed);
            opened
        },
        || {
            let deadline = Deadline::for_event();
            let mut asked = 0;
            while !ended.load(Ordering::Relaxed) {
                ensure!(!deadline.passed(), "the open does not end");
                for message in keeper.take()? {
                    asked += 1;
                    // It may have given up.
                    let _ = keeper.refuse(message.stream, Errno::ESTALE);
                }
            }
            Ok(asked)
        },
    )?;
    expect("the open", opened, Err(Errno::ETIMEDOUT))?;
    ensure!(asked > 1, "it has asked {asked} times");
    expect_no_channel(&maps.0)
}

fn a_map_in_the_kernel_is_opened_without_the_keeper(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    for (flags, params) in [
        (NEW, durable(0)),
        (BOTH, durable(0)),
        (READ, Params::default()),
        (BOTH | CREATE, Params::default()),
        (NEW | NONBLOCK, durable(0)),
    ] {
        let opened = open(&map.maps, flags, params);
        expect(&format!("flags {flags:#x}"), opened.map(drop), Ok(()))?;
    }
    let exclusive = open(&map.maps, NEW | EXCL, durable(0)).map(drop);
    expect("an exclusive open", exclusive, Err(Errno::EEXIST))?;
    map.keeper.expect_nothing()
}

fn an_exclusive_open_asks_too(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    let (opened, ()) = answering(
        || open(&maps, NEW | EXCL, durable(0)).map(drop),
        || {
            let asked = keeper.next_of(OPEN)?;
            let flags = asked.map()?.open_flags;
            expect("whether it is exclusive", flags & EXCL, EXCL)?;
            keeper.refuse(asked.stream, Errno::EEXIST).context("READY")
        },
    )?;
    expect("of a stored map", opened, Err(Errno::EEXIST))?;
    let (opened, _) = keeper.serve(|| open(&maps, NEW | EXCL, durable(0)))?;
    opened.context("of a new map").map(drop)
}

fn an_open_that_may_not_wait_is_eagain(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    for _ in 0..3 {
        let opened = open(&maps, NEW | NONBLOCK, durable(0)).map(drop);
        expect("the open", opened, Err(Errno::EAGAIN))?;
    }
    drop(keeper);
    let opened = open(&maps, NEW | NONBLOCK, durable(0)).map(drop);
    expect("without a keeper", opened, Err(Errno::EAGAIN))?;
    expect_no_channel(&maps.0)
}

fn without_create_nothing_is_asked(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    for flags in [READ, WRITE, BOTH, BOTH | NONBLOCK] {
        let opened = open(&maps, flags, durable(0)).map(drop);
        expect("of no map", opened, Err(Errno::ENOENT))?;
    }
    keeper.expect_nothing()?;
    expect_no_channel(&maps.0)
}

fn a_volatile_map_is_not_opened_as_durable(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    let end = maps.create()?;
    for flags in [NEW, NEW | PERSIST, NEW | EXCL] {
        let opened = open(&maps, flags, durable(0)).map(drop);
        expect("the open", opened, Err(Errno::EEXIST))?;
    }
    expect("its flags", state(&end)?.flags, 0)?;
    keeper.expect_nothing()?;
    drop(end);
    expect_no_channel(&maps.0)
}

fn a_durable_map_is_persistent(_: &Context) -> Result<()> {
    let mut map = Durable::interval()?;
    post(&map.end, b"key", b"value")?;
    map.end = map.attach()?;
    let (channel, _) = map.maps.info().context("asking by name")?;
    expect("its flags", channel.flags, PERSISTENT)?;
    let value = get(&map.end, b"key").context("getting")?;
    expect_bytes("the value", &value, b"value")
}

fn invalid_parameters_are_refused(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    let volatile = Params::default();
    let valid = durable(0);
    let flags = |flags| Params { flags, ..valid };
    for (what, params) in [
        ("only interval", flags(INTERVAL)),
        ("only refuse", flags(REFUSE)),
        ("an unknown flag", flags(DURABLE | 0x08)),
        ("the last flag", flags(DURABLE | 1 << 31)),
        (
            "a deadline without a store",
            Params {
                deadline_ms: 1,
                ..volatile
            },
        ),
        (
            "an interval without a store",
            Params {
                interval_ms: 1,
                ..volatile
            },
        ),
        ("a cell without a table", Params { cell: 64, ..valid }),
        ("three events", Params { events: 3, ..valid }),
    ] {
        let opened = open(&maps, NEW, params).map(drop);
        expect(what, opened, Err(Errno::EINVAL))?;
    }
    keeper.expect_nothing()?;
    expect_no_channel(&maps.0)
}

fn without_a_keeper_an_open_is_etimedout(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    drop(Keeper::new()?);
    let opened = open(&maps, NEW, short(0)).map(drop);
    expect("the open", opened, Err(Errno::ETIMEDOUT))?;
    expect_no_channel(&maps.0)
}

fn an_open_that_is_not_answered_is_etimedout(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    // The keeper has to read the message before.
    let patient = Params {
        deadline_ms: 500,
        ..durable(0)
    };
    for restores in [false, true] {
        let (opened, asked) = answering(
            || open(&maps, NEW, patient).map(drop),
            || {
                let asked = keeper.next_of(OPEN)?;
                if restores {
                    keeper.create(&asked, 0)?;
                }
                Ok(asked)
            },
        )?;
        expect("the open", opened, Err(Errno::ETIMEDOUT))?;
        keeper.expect_next(keeper::CLOSED, asked.stream)?;
        let late = keeper.ready(asked.stream);
        expect("a late answer", late, Err(Errno::ENOENT))?;
    }
    expect_no_channel(&maps.0)
}

/// With SA_RESTART it asks again. An exclusive open does not: it could find what was stored for it.
fn an_open_that_is_restarted_asks_again(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    let handled = Event::new()?;
    let opener = |flags| {
        let keep = [maps.0.as_fd()];
        signals::spawn_blocked_keeping(Call::Ioctl, &keep, &handled, true, || {
            Ok(open_result(&maps, flags, durable(0)))
        })
    };
    let child = opener(NEW)?;
    let asked = keeper.next_of(OPEN)?;
    signals::interrupt(&child, &handled)?;
    keeper.expect_next(keeper::CLOSED, asked.stream)?;
    let again = keeper.answer_open(LIMIT)?;
    ensure!(again != asked.stream, "it has the same stream");
    expect("the open", child.finish()?, Ok(()))?;
    expect("END", keeper.detach(again), Ok(()))?;
    let child = opener(NEW | EXCL)?;
    let asked = keeper.next_of(OPEN)?;
    signals::interrupt(&child, &handled)?;
    expect("exclusive", child.finish()?, Err(Errno::EINTR as i32))?;
    keeper.expect_next(keeper::CLOSED, asked.stream)?;
    keeper.expect_nothing()
}

fn an_open_is_interrupted_by_a_signal(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    let child = interrupted(&maps.0, false, || open_result(&maps, NEW, durable(0)))?;
    expect("the open", child.finish()?, Err(Errno::EINTR as i32))?;
    // The keeper may not even have been told of it.
    for message in keeper.take()? {
        let kinds = [OPEN, keeper::CLOSED];
        ensure!(kinds.contains(&message.kind), "{message:?}");
    }
    expect_no_channel(&maps.0)
}

/// Two processes open a map that is not there at the same time.
fn two_opens_of_one_name_get_one_map(_: &Context) -> Result<()> {
    let (keeper, maps) = both()?;
    let opener = || {
        spawn("an opener", || {
            let end = open(&Maps::new()?, NEW, durable(0)).context("opening")?;
            put(&end, &std::process::id().to_ne_bytes(), b"")
        })
    };
    let (first, second) = (opener()?, opener()?);
    let (ended, seen) = keeper.serve(|| {
        eventually("both end", || {
            Ok((first.has_ended()? && second.has_ended()?).then_some(()))
        })
    })?;
    ended?;
    let mut numbers = [first.finish()?, second.finish()?];
    numbers.sort_unstable();
    expect("numbers of one map", numbers, [1, 2])?;
    let records = seen.iter().filter(|message| message.is_record());
    let streams: std::collections::BTreeSet<u64> = records.map(|record| record.stream).collect();
    expect("streams with records", streams.len(), 1)?;
    let end = maps.attach()?;
    expect("entries", state(&end)?.entries, 2)
}
