// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keeper of durable maps: who may be it, its answers, unlinking, detaching, and what its death changes.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::check::{expect, expect_bytes, skip};
use crate::support::child::{Child, spawn};
use crate::support::credentials::{
    NOBODY, become_user, become_user_namespace_root, drop_capabilities,
};
use crate::support::ctl::{Ctl, KIND_MAP, OWN, UNLINK as CTL_UNLINK, expect_no_channel};
use crate::support::durable::{
    Changed, Durable, INTERVAL, NEW, NOWAIT, blocked, blocked_set, create_in, delete_with, durable,
    failed, interrupted, limit_for, open, open_result, post, set_with, short, sync, sync_result,
};
use crate::support::ioctl::raw;
use crate::support::keeper::{
    Ack, CLOSED, END, End, Keeper, LIMIT, Map, OPEN, RESUME, SYNC, Stored, UNLINK, UNLINKED,
    answering, open_descriptor,
};
use crate::support::kernel::{UnloadedModule, expect_module_in_use, expect_no_objects};
use crate::support::map::{
    self, EVENTS_MAX, Maps, NAME, NOW, Op, STEP_GET, STEP_SET, Step, batch, dump, get, put, state,
    watch,
};
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::time::eventually;

topic!(
    "map_durable_keeper",
    fifo: [],
    pipe_only: [
        only_an_administrator_of_the_host_becomes_the_keeper,
        there_is_one_keeper_at_a_time,
        the_descriptor_is_closed_on_exec,
        an_acknowledgement_of_what_was_not_delivered_is_einval,
        an_acknowledgement_does_not_decrease,
        an_acknowledgement_has_an_error_of_a_store,
        an_unknown_stream_is_enoent,
        a_map_with_pending_changes_is_not_detached,
        a_detached_map_is_gone,
        a_detached_map_is_opened_anew,
        an_end_that_nobody_asked_for_is_einval,
        an_unlink_waits_for_the_keeper,
        an_unlink_follows_the_changes_before_it,
        an_unlink_that_the_keeper_refuses_leaves_the_map,
        an_unlink_that_does_not_wait_is_carried_out_later,
        an_unlink_that_was_not_waited_for_may_be_refused,
        the_next_keeper_is_asked_to_unlink_again,
        two_unlinks_wait_for_one_answer,
        an_unlink_ends_a_wait_for_room,
        an_unlink_ends_a_wait_for_the_store,
        an_unlink_is_not_of_everybody,
        after_an_unlink_only_gets_go_on,
        a_destroyed_map_is_epipe_after_the_answer,
        a_removed_cgroup_closes_its_maps,
        a_removed_cgroup_ends_a_wait_for_room_but_not_for_the_store,
        a_removed_cgroup_without_a_keeper_waits_for_the_next,
        a_removed_cgroup_without_pending_changes_leaves_nothing,
        a_removed_cgroup_asks_for_the_changes_of_an_interval,
        a_map_of_a_removed_cgroup_may_be_detached,
        an_unlink_without_a_keeper_outlives_the_cgroup,
        a_keeper_that_dies_before_it_answers_is_followed_by_the_next,
        a_keeper_that_dies_during_a_restoration_is_followed_by_the_next,
        a_map_that_the_keeper_restores_ends_with_the_keeper,
        streams_have_numbers_of_their_own,
        without_streams_the_module_holds_no_object,
        a_keeper_keeps_the_module_loaded,
        a_durable_map_keeps_the_module_loaded_until_it_is_detached,
    ],
);

const KEY: &[u8] = b"key";
const IS_REMOVED: Changed = (Err(Errno::EIDRM as i32), 0);

// ---- who ----

/// A change of credentials, with its name.
type Change = (&'static str, fn() -> Result<()>);

fn only_an_administrator_of_the_host_becomes_the_keeper(_: &Context) -> Result<()> {
    drop(Keeper::new()?);
    let others: [Change; 3] = [
        ("another user", || become_user(NOBODY)),
        ("root without capabilities", drop_capabilities),
        ("root of a user namespace", || {
            become_user_namespace_root(NOBODY)
        }),
    ];
    for (what, change) in others {
        let child = spawn(what, || {
            // The permission is that of the caller, not of the opener of ctl.
            let ctl = Ctl::new()?;
            change()?;
            let opened = open_descriptor(&ctl).map(drop);
            Ok(opened.map_err(|errno| errno as i32))
        })?;
        expect(what, child.finish()?, Err(Errno::EPERM as i32))?;
    }
    let ctl = Ctl::new()?;
    let opened = open_descriptor(&ctl).map(drop);
    expect("an administrator", opened, Ok(()))
}

fn there_is_one_keeper_at_a_time(_: &Context) -> Result<()> {
    let mut keeper = Keeper::new()?;
    let ctl = Ctl::new()?;
    for _ in 0..3 {
        let second = open_descriptor(&ctl).map(drop);
        expect("a second one", second, Err(Errno::EBUSY))?;
        keeper.stop();
        let next = open_descriptor(&ctl).context("after it is closed")?;
        let second = open_descriptor(&ctl).map(drop);
        expect("beside the next", second, Err(Errno::EBUSY))?;
        drop(next);
        keeper.start()?;
    }
    keeper.expect_nothing()
}

fn the_descriptor_is_closed_on_exec(_: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let flags = fcntl(&keeper, FcntlArg::F_GETFD).context("F_GETFD")?;
    expect("its flags", flags, FdFlag::FD_CLOEXEC.bits())
}

// ---- acknowledgements ----

fn an_acknowledgement_of_what_was_not_delivered_is_einval(_: &Context) -> Result<()> {
    let mut map = Durable::interval()?;
    for _ in 0..3 {
        put(&map.end, KEY, b"")?;
    }
    let ack = |map: &Durable, number| map.keeper.send_ack(Ack::new(map.stream, number, 0, 0));
    for number in [1, 3, 4, u64::MAX] {
        expect("before", ack(&map, number), Err(Errno::EINVAL))?;
    }
    map.keeper.records(map.stream, 3)?;
    for number in [4, 5, LIMIT, u64::MAX] {
        expect("beyond", ack(&map, number), Err(Errno::EINVAL))?;
    }
    expect("stored", state(&map.end)?.stored, 0)?;
    expect("delivered", ack(&map, 2), Ok(()))?;
    // What was delivered to the keeper before does not count.
    map.keeper.restart()?;
    expect("by the next one", ack(&map, 3), Err(Errno::EINVAL))?;
    map.keeper.expect_next(RESUME, map.stream)?;
    map.keeper.records(map.stream, 1)?;
    expect("delivered", ack(&map, 3), Ok(()))
}

fn an_acknowledgement_does_not_decrease(_: &Context) -> Result<()> {
    let map = Durable::with_limit(durable(INTERVAL), 100)?;
    for _ in 0..3 {
        put(&map.end, KEY, b"")?;
    }
    map.keeper.records(map.stream, 3)?;
    let ack = |number, limit| map.keeper.send_ack(Ack::new(map.stream, number, limit, 0));
    expect("the first", ack(2, 0), Ok(()))?;
    expect("a smaller number", ack(1, 0), Err(Errno::EINVAL))?;
    expect("with more numbers", ack(1, 200), Err(Errno::EINVAL))?;
    expect("fewer numbers", ack(0, 99), Err(Errno::EINVAL))?;
    expect("with a greater one", ack(3, 99), Err(Errno::EINVAL))?;
    expect("stored", state(&map.end)?.stored, 2)?;
    for (number, limit) in [
        (2, 0),
        (2, 100),
        (0, 0),
        (0, 100),
        (3, 150),
        (3, 150),
        (0, 151),
    ] {
        expect("not less", ack(number, limit), Ok(()))?;
    }
    expect("stored", state(&map.end)?.stored, 3)
}

fn an_acknowledgement_has_an_error_of_a_store(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    for error in [
        Errno::EPERM as u32,
        Errno::ENOENT as u32,
        Errno::EAGAIN as u32,
        Errno::EDQUOT as u32,
        Errno::EIDRM as u32,
        4095,
        4096,
        1 << 31,
        u32::MAX,
        // A negative errno.
        (Errno::EIO as u32).wrapping_neg(),
    ] {
        let seen = map.keeper.send_ack(Ack::new(map.stream, 0, 0, error));
        expect(&format!("error {error}"), seen, Err(Errno::EINVAL))?;
    }
    expect("its error", state(&map.end)?.error, 0)?;
    put(&map.end, KEY, b"").map(drop)
}

fn an_unknown_stream_is_enoent(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    let described = Map {
        capacity: 1 << 20,
        events: 16,
        ..Map::new(NAME, 1)
    };
    for stream in [map.stream + 1, map.stream + 1000, u64::MAX] {
        let keeper = &map.keeper;
        let created = keeper.create_at(stream, -1, &described, 0, 1).map(drop);
        let restored = keeper
            .restore(stream, &[Stored::new(b"key", b"", 1)])
            .map(drop);
        for (what, seen) in [
            ("CREATE", created),
            ("RESTORE", restored),
            ("READY", keeper.ready(stream)),
            ("READY with an error", keeper.refuse(stream, Errno::EIO)),
            ("ACK", keeper.send_ack(Ack::new(stream, 0, 0, 0))),
            ("END", keeper.detach(stream)),
            ("END of an unlink", keeper.unlinked(stream)),
        ] {
            let what = format!("{what} of stream {stream}");
            expect(&what, seen, Err(Errno::ENOENT))?;
        }
    }
    put(&map.end, KEY, b"").map(drop)
}

// ---- detaching ----

fn a_map_with_pending_changes_is_not_detached(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    put(&map.end, KEY, b"value")?;
    let busy = || expect("END", map.keeper.detach(map.stream), Err(Errno::EBUSY));
    busy()?;
    map.keeper.records(map.stream, 1)?;
    busy()?;
    put(&map.end, KEY, b"other")?;
    map.ack(1)?;
    busy()?;
    map.store(1)?;
    expect("END", map.keeper.detach(map.stream), Ok(()))
}

fn a_detached_map_is_gone(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    put(&map.end, KEY, b"value")?;
    map.store(1)?;
    expect("END", map.keeper.detach(map.stream), Ok(()))?;
    let again = map.keeper.detach(map.stream);
    expect("its stream", again, Err(Errno::ENOENT))?;
    expect("names", map.maps.0.names(OWN), Ok(vec![]))?;
    expect_only_gets(&map.end, 1)?;
    // It is not closed, either: the keeper has ended it.
    map.keeper.expect_nothing()?;
    let (maps, keeper) = (map.maps, map.keeper);
    drop(map.end);
    drop(keeper);
    expect_no_channel(&maps.0)
}

fn a_detached_map_is_opened_anew(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    put(&map.end, KEY, b"value")?;
    map.store(1)?;
    expect("END", map.keeper.detach(map.stream), Ok(()))?;
    let (maps, keeper) = (&map.maps, &map.keeper);
    let (opened, stream) = answering(
        || open(maps, NEW, durable(INTERVAL)),
        || {
            let asked = keeper.next_of(OPEN)?;
            keeper.create(&asked, 1)?;
            let entries = [Stored::new(KEY, b"value", 1)];
            expect("RESTORE", keeper.restore(asked.stream, &entries), Ok(1))?;
            keeper.ready(asked.stream).context("READY")?;
            Ok(asked.stream)
        },
    )?;
    let new = opened.context("opening")?;
    ensure!(stream != map.stream, "both have stream {stream}");
    expect("the next number", put(&new, KEY, b"new")?, 2)?;
    expect("in the old one", get(&map.end, KEY), Ok(b"value".to_vec()))
}

fn an_end_that_nobody_asked_for_is_einval(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    let end = |flags, error| {
        let mut end = End::new(map.stream, flags, error);
        raw(&map.keeper, END, &mut end)
    };
    for (what, seen) in [
        ("unlinked", end(UNLINKED, 0)),
        ("not unlinked", end(UNLINKED, Errno::EIO as u32)),
        ("detached with an error", end(0, Errno::EIO as u32)),
        ("an unknown flag", end(0x02, 0)),
        ("the last flag", end(1 << 31, 0)),
        ("no errno", end(UNLINKED, 4096)),
    ] {
        expect(what, seen, Err(Errno::EINVAL))?;
    }
    put(&map.end, KEY, b"").map(drop)
}

// ---- unlinking ----

fn unlink_result(maps: &Maps) -> Result<(), i32> {
    maps.unlink().map_err(|errno| errno as i32)
}

/// A process that waits in an unlink.
fn blocked_unlink(map: &Durable) -> Result<Child<Result<(), i32>>> {
    blocked(&map.maps.0, || unlink_result(&map.maps))
}

/// No change is made, whether or not it may wait; the entry of `KEY` is there, and this is the last change.
fn expect_only_gets(end: &OwnedFd, last: u64) -> Result<()> {
    for flags in [0, NOWAIT] {
        expect("a set", set_with(end, KEY, b"", flags), IS_REMOVED)?;
        expect(
            "of another key",
            set_with(end, b"new", b"", flags),
            IS_REMOVED,
        )?;
        expect("a delete", delete_with(end, KEY, flags), IS_REMOVED)?;
    }
    let mut room = [0; 64];
    let mut steps = [
        Step::new(STEP_SET, &Op::set(KEY, b"")),
        Step::new(STEP_GET, &Op::get(KEY, &mut room)),
    ];
    expect("a batch", batch(end, &mut steps), Ok(2))?;
    let results = steps.map(|step| step.result);
    expect("its steps", results, [-libc::EIDRM, 0])?;
    get(end, KEY).context("a get")?;
    let keys: Vec<_> = dump(end)?.into_iter().map(|entry| entry.key).collect();
    expect("a dump", keys, vec![KEY.to_vec()])?;
    expect("a watch", watch(end, NOW), Ok(last))?;
    expect("changes", state(end)?.sequence, last)?;
    // A change fails at once.
    let mask = poll::wait(end, libc::POLLOUT, 0).context("poll")?;
    expect("POLLOUT", mask & libc::POLLOUT, libc::POLLOUT)
}

fn an_unlink_waits_for_the_keeper(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    put(&map.end, KEY, b"value")?;
    map.store(1)?;
    let child = blocked_unlink(&map)?;
    let asked = map.keeper.expect_next(UNLINK, map.stream)?;
    let fields = (asked.key.len(), asked.value.len(), asked.expires_ns);
    expect("fields without use", fields, (0, 0, 0))?;
    child.expect_still_asleep_in(Call::Ioctl)?;
    expect("names", map.maps.0.names(OWN), Ok(vec![NAME.into()]))?;
    expect_only_gets(&map.end, 1)?;
    let busy = map.keeper.detach(map.stream);
    expect("a detach meanwhile", busy, Err(Errno::EBUSY))?;
    expect("END", map.keeper.unlinked(map.stream), Ok(()))?;
    expect("the unlink", child.finish()?, Ok(()))?;
    expect("names", map.maps.0.names(OWN), Ok(vec![]))?;
    let late = map.keeper.unlinked(map.stream);
    expect("its stream", late, Err(Errno::ENOENT))?;
    map.keeper.expect_nothing()
}

fn an_unlink_follows_the_changes_before_it(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    let writer = blocked_set(&map.end, KEY, b"1")?;
    post(&map.end, KEY, b"2")?;
    let child = blocked_unlink(&map)?;
    let early = map.keeper.unlinked(map.stream);
    expect("END before it is asked for", early, Err(Errno::EINVAL))?;
    let records = map.keeper.records(map.stream, 2)?;
    expect("the last", records[1].sequence, 2)?;
    map.keeper.expect_next(UNLINK, map.stream)?;
    map.ack(2)?;
    expect("the set", writer.finish()?, (Ok(1), 1))?;
    expect("END", map.keeper.unlinked(map.stream), Ok(()))?;
    expect("the unlink", child.finish()?, Ok(()))
}

fn an_unlink_that_the_keeper_refuses_leaves_the_map(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    put(&map.end, KEY, b"value")?;
    let errors = [Errno::EIO, Errno::ENOSPC, Errno::EROFS, Errno::EAGAIN];
    for (number, errno) in (2..).zip(errors) {
        let child = blocked_unlink(&map)?;
        while map.keeper.next()?.kind != UNLINK {}
        let ended = map.keeper.not_unlinked(map.stream, errno);
        expect("END", ended, Ok(()))?;
        expect("the unlink", child.finish()?, Err(errno as i32))?;
        expect("names", map.maps.0.names(OWN), Ok(vec![NAME.into()]))?;
        expect("the next number", put(&map.end, KEY, b"other")?, number)?;
    }
    let (unlinked, _) = map.keeper.serve(|| map.maps.unlink())?;
    expect("an unlink", unlinked, Ok(()))
}

/// A map that is asked to be unlinked, by a call that has ended with a signal or with the deadline. It has an entry.
fn unlink_without_waiting(by_signal: bool) -> Result<Durable> {
    let map = Durable::new(match by_signal {
        true => durable(INTERVAL),
        false => short(INTERVAL),
    })?;
    put(&map.end, KEY, b"value")?;
    map.store(1)?;
    if by_signal {
        let child = interrupted(&map.maps.0, false, || unlink_result(&map.maps))?;
        expect("the unlink", child.finish()?, Err(Errno::EINTR as i32))?;
    } else {
        expect("the unlink", map.maps.unlink(), Err(Errno::ETIMEDOUT))?;
    }
    expect_only_gets(&map.end, 1)?;
    expect("names", map.maps.0.names(OWN), Ok(vec![NAME.into()]))?;
    Ok(map)
}

fn an_unlink_that_does_not_wait_is_carried_out_later(_: &Context) -> Result<()> {
    for by_signal in [true, false] {
        let map = unlink_without_waiting(by_signal)?;
        map.keeper.expect_next(UNLINK, map.stream)?;
        expect("END", map.keeper.unlinked(map.stream), Ok(()))?;
        expect("names", map.maps.0.names(OWN), Ok(vec![]))?;
        expect_only_gets(&map.end, 1)?;
        map.keeper.expect_nothing()?;
    }
    Ok(())
}

fn an_unlink_that_was_not_waited_for_may_be_refused(_: &Context) -> Result<()> {
    let map = unlink_without_waiting(true)?;
    map.keeper.expect_next(UNLINK, map.stream)?;
    let refused = map.keeper.not_unlinked(map.stream, Errno::EIO);
    expect("END", refused, Ok(()))?;
    expect("names", map.maps.0.names(OWN), Ok(vec![NAME.into()]))?;
    expect("the next number", put(&map.end, KEY, b"")?, 2)
}

fn the_next_keeper_is_asked_to_unlink_again(_: &Context) -> Result<()> {
    let mut map = Durable::interval()?;
    put(&map.end, KEY, b"value")?;
    let child = blocked_unlink(&map)?;
    for _ in 0..2 {
        map.keeper.records(map.stream, 1)?;
        map.keeper.expect_next(UNLINK, map.stream)?;
        map.keeper.restart()?;
        map.keeper.expect_next(RESUME, map.stream)?;
    }
    map.store(1)?;
    map.keeper.expect_next(UNLINK, map.stream)?;
    child.expect_still_asleep_in(Call::Ioctl)?;
    expect("END", map.keeper.unlinked(map.stream), Ok(()))?;
    expect("the unlink", child.finish()?, Ok(()))?;
    map.keeper.restart()?;
    map.keeper.expect_nothing()
}

fn two_unlinks_wait_for_one_answer(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    let children = [blocked_unlink(&map)?, blocked_unlink(&map)?];
    map.keeper.expect_next(UNLINK, map.stream)?;
    map.keeper.expect_nothing()?;
    expect("END", map.keeper.unlinked(map.stream), Ok(()))?;
    let mut results = Vec::new();
    for child in children {
        results.push(child.finish()?);
    }
    results.sort_unstable();
    // One removes the name.
    let expected = vec![Ok(()), Err(Errno::ENOENT as i32)];
    expect("the unlinks", results, expected)
}

fn an_unlink_ends_a_wait_for_room(_: &Context) -> Result<()> {
    let map = Durable::with_limit(durable(INTERVAL), limit_for(1))?;
    put(&map.end, KEY, b"value")?;
    let writer = blocked_set(&map.end, KEY, b"other")?;
    let child = blocked_unlink(&map)?;
    expect("the set", writer.finish()?, IS_REMOVED)?;
    map.store(1)?;
    map.keeper.expect_next(UNLINK, map.stream)?;
    expect("END", map.keeper.unlinked(map.stream), Ok(()))?;
    expect("the unlink", child.finish()?, Ok(()))
}

/// The change was made. That it was not stored before the map was deleted makes no difference.
fn an_unlink_ends_a_wait_for_the_store(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    let writer = blocked_set(&map.end, KEY, b"value")?;
    let child = blocked_unlink(&map)?;
    map.keeper.records(map.stream, 1)?;
    map.keeper.expect_next(UNLINK, map.stream)?;
    writer.expect_still_asleep_in(Call::Ioctl)?;
    expect("END", map.keeper.unlinked(map.stream), Ok(()))?;
    expect("the unlink", child.finish()?, Ok(()))?;
    expect("the set", writer.finish()?, (Ok(1), 1))
}

fn an_unlink_is_not_of_everybody(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    let other = spawn("another user", || {
        become_user(NOBODY)?;
        Ok(unlink_result(&Maps::new()?))
    })?;
    expect("an unlink", other.finish()?, Err(Errno::EPERM as i32))?;
    map.keeper.expect_nothing()?;
    put(&map.end, KEY, b"").map(drop)
}

fn after_an_unlink_only_gets_go_on(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    put(&map.end, KEY, b"value")?;
    let (unlinked, _) = map.keeper.serve(|| map.maps.unlink())?;
    expect("the unlink", unlinked, Ok(()))?;
    expect_only_gets(&map.end, 1)?;
    // The name is free.
    let new = map.maps.create()?;
    put(&new, KEY, b"new")?;
    expect("the old one", get(&map.end, KEY), Ok(b"value".to_vec()))
}

fn a_destroyed_map_is_epipe_after_the_answer(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    put(&map.end, KEY, b"value")?;
    map.store(1)?;
    let child = blocked(&map.maps.0, || {
        map.maps.destroy().map_err(|errno| errno as i32)
    })?;
    map.keeper.expect_next(UNLINK, map.stream)?;
    child.expect_still_asleep_in(Call::Ioctl)?;
    expect_only_gets(&map.end, 1)?;
    expect("END", map.keeper.unlinked(map.stream), Ok(()))?;
    expect("the destruction", child.finish()?, Ok(()))?;
    expect("a get", get(&map.end, KEY), Err(Errno::EPIPE))?;
    let set = set_with(&map.end, KEY, b"", 0);
    expect("a set", set, failed(Errno::EPIPE, 0))?;
    expect("names", map.maps.0.names(OWN), Ok(vec![]))
}

// ---- removed cgroups ----

/// A durable map in this cgroup, and an endpoint outside of it.
fn map_in(cgroup: &Cgroup, keeper: &Keeper, limit: u64) -> Result<(OwnedFd, u64)> {
    map_with(durable(0), cgroup, keeper, limit)
}

fn map_with(
    params: map::Params,
    cgroup: &Cgroup,
    keeper: &Keeper,
    limit: u64,
) -> Result<(OwnedFd, u64)> {
    let directory = cgroup.directory()?;
    create_in(&Ctl::new()?, directory.as_raw_fd(), keeper, params, limit)
}

/// Waits until the map of this endpoint has lost its name: a cgroup may be removed before its maps are. No number is
/// left, so that no change is made until then.
fn expect_removed(end: &OwnedFd) -> Result<()> {
    eventually("changes are refused", || {
        match set_with(end, KEY, b"", NOWAIT) {
            IS_REMOVED => Ok(Some(())),
            (Err(errno), 0) if errno == Errno::EAGAIN as i32 => Ok(None),
            other => bail!("a change: {other:?}"),
        }
    })
}

fn a_removed_cgroup_closes_its_maps(context: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    for has_endpoint in [true, false] {
        let cgroup = context.cgroup()?.create_child("removed")?;
        let (end, stream) = map_in(&cgroup, &keeper, limit_for(2))?;
        post(&end, KEY, b"1")?;
        post(&end, KEY, b"2")?;
        let end = has_endpoint.then_some(end);
        cgroup.remove()?;
        if let Some(end) = &end {
            expect_removed(end)?;
            expect_only_gets(end, 2)?;
        }
        // What is pending is still delivered and acknowledged.
        let records = keeper.records(stream, 2)?;
        expect_bytes("the last value", &records[1].value, b"2")?;
        keeper.expect_nothing()?;
        keeper.ack(stream, 1)?;
        keeper.expect_nothing()?;
        keeper.ack(stream, 2)?;
        keeper.expect_next(CLOSED, stream)?;
        let late = keeper.send_ack(Ack::new(stream, 2, 0, 0));
        expect("its stream", late, Err(Errno::ENOENT))?;
        if let Some(end) = &end {
            expect_only_gets(end, 2)?;
        }
    }
    expect_no_objects_but(keeper)
}

/// Fails if the module holds any object without this keeper.
fn expect_no_objects_but(keeper: Keeper) -> Result<()> {
    drop(keeper);
    expect_no_objects()
}

fn a_removed_cgroup_ends_a_wait_for_room_but_not_for_the_store(context: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let cgroup = context.cgroup()?.create_child("removed")?;
    let (end, stream) = map_in(&cgroup, &keeper, limit_for(1))?;
    let stored = blocked_set(&end, KEY, b"1")?;
    let refused = blocked_set(&end, KEY, b"2")?;
    cgroup.remove()?;
    expect("without a number", refused.finish()?, IS_REMOVED)?;
    keeper.records(stream, 1)?;
    stored.expect_still_asleep_in(Call::Ioctl)?;
    keeper.ack(stream, 1)?;
    expect("with a number", stored.finish()?, (Ok(1), 1))?;
    keeper.expect_next(CLOSED, stream).map(drop)
}

fn a_removed_cgroup_without_a_keeper_waits_for_the_next(context: &Context) -> Result<()> {
    let mut keeper = Keeper::new()?;
    let cgroup = context.cgroup()?.create_child("removed")?;
    let (end, stream) = map_in(&cgroup, &keeper, LIMIT)?;
    post(&end, KEY, b"1")?;
    keeper.stop();
    post(&end, KEY, b"2")?;
    drop(end);
    cgroup.remove()?;
    // One that dies before it has acknowledged everything changes nothing.
    for _ in 0..2 {
        keeper.start()?;
        keeper.expect_next(RESUME, stream)?;
        let records = keeper.records(stream, 2)?;
        expect_bytes("the last value", &records[1].value, b"2")?;
        keeper.stop();
    }
    keeper.start()?;
    keeper.expect_next(RESUME, stream)?;
    keeper.records(stream, 2)?;
    keeper.ack(stream, 2)?;
    keeper.expect_next(CLOSED, stream)?;
    expect_no_objects_but(keeper)
}

fn a_removed_cgroup_without_pending_changes_leaves_nothing(context: &Context) -> Result<()> {
    let mut keeper = Keeper::new()?;
    let cgroup = context.cgroup()?.create_child("removed")?;
    let (end, stream) = map_in(&cgroup, &keeper, LIMIT)?;
    post(&end, KEY, b"1")?;
    keeper.records(stream, 1)?;
    keeper.ack(stream, 1)?;
    drop(end);
    keeper.stop();
    cgroup.remove()?;
    expect_no_objects()?;
    keeper.start()?;
    keeper.expect_nothing()
}

fn a_removed_cgroup_asks_for_the_changes_of_an_interval(context: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let cgroup = context.cgroup()?.create_child("removed")?;
    let (end, stream) = map_with(durable(INTERVAL), &cgroup, &keeper, LIMIT)?;
    put(&end, KEY, b"value")?;
    keeper.records(stream, 1)?;
    cgroup.remove()?;
    let asked = keeper.expect_next(SYNC, stream)?;
    expect("its number", asked.sequence, 1)?;
    keeper.expect_nothing()?;
    keeper.ack(stream, 1)?;
    keeper.expect_next(CLOSED, stream).map(drop)
}

fn a_map_of_a_removed_cgroup_may_be_detached(context: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let cgroup = context.cgroup()?.create_child("removed")?;
    let (end, stream) = map_in(&cgroup, &keeper, limit_for(1))?;
    post(&end, KEY, b"value")?;
    let waiting = blocked(&end, || sync_result(&end, NOW))?;
    cgroup.remove()?;
    expect_removed(&end)?;
    waiting.expect_still_asleep_in(Call::Ioctl)?;
    // Long before the deadline.
    let begin = Instant::now();
    expect("END", keeper.detach(stream), Ok(()))?;
    let dropped = Err(Errno::ETIMEDOUT);
    expect(
        "a sync that waits",
        waiting.finish()?,
        dropped.map_err(|errno| errno as i32),
    )?;
    expect("a sync", sync(&end, NOW), dropped)?;
    let ready = poll::wait(&end, libc::POLLPRI, 0)?;
    expect("what poll(2) tells", ready, libc::POLLPRI)?;
    ensure!(
        begin.elapsed() < Duration::from_secs(20),
        "the waits lasted for {:?}",
        begin.elapsed()
    );
    let again = keeper.detach(stream);
    expect("its stream", again, Err(Errno::ENOENT))?;
    expect_only_gets(&end, 1)?;
    keeper.expect_nothing()?;
    drop(end);
    expect_no_objects_but(keeper)
}

fn an_unlink_without_a_keeper_outlives_the_cgroup(context: &Context) -> Result<()> {
    let mut keeper = Keeper::new()?;
    let cgroup = context.cgroup()?.create_child("removed")?;
    let (end, stream) = map_with(short(0), &cgroup, &keeper, LIMIT)?;
    keeper.stop();
    let directory = cgroup.directory()?;
    let unlinked = Ctl::new()?.remove(CTL_UNLINK, KIND_MAP, directory.as_raw_fd(), NAME);
    expect("the unlink", unlinked, Err(Errno::ETIMEDOUT))?;
    drop((end, directory));
    cgroup.remove()?;
    // One that dies before it answers changes nothing.
    for _ in 0..2 {
        keeper.start()?;
        keeper.expect_next(RESUME, stream)?;
        keeper.expect_next(UNLINK, stream)?;
        keeper.stop();
    }
    keeper.start()?;
    keeper.expect_next(RESUME, stream)?;
    keeper.expect_next(UNLINK, stream)?;
    keeper.expect_nothing()?;
    expect("END", keeper.unlinked(stream), Ok(()))?;
    keeper.expect_nothing()?;
    expect_no_objects_but(keeper)
}

// ---- the death of a keeper ----

fn a_keeper_that_dies_before_it_answers_is_followed_by_the_next(_: &Context) -> Result<()> {
    let (mut keeper, maps) = (Keeper::new()?, Maps::new()?);
    let opener = blocked(&maps.0, || open_result(&maps, NEW, durable(0)))?;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let asked = keeper.next_of(OPEN)?;
        streams.push(asked.stream);
        keeper.restart()?;
        let late = keeper.ready(asked.stream);
        ensure!(late.is_err(), "READY of stream {}", asked.stream);
    }
    opener.expect_still_asleep_in(Call::Ioctl)?;
    let stream = keeper.answer_open(LIMIT)?;
    expect("the open", opener.finish()?, Ok(()))?;
    ensure!(!streams.contains(&stream), "{stream} again");
    keeper.expect_nothing()
}

fn a_keeper_that_dies_during_a_restoration_is_followed_by_the_next(_: &Context) -> Result<()> {
    let (mut keeper, maps) = (Keeper::new()?, Maps::new()?);
    let opener = blocked(&maps.0, || open_result(&maps, NEW, durable(INTERVAL)))?;
    for round in 0..3 {
        let asked = keeper.next_of(OPEN)?;
        keeper.create(&asked, 100)?;
        let entries = [Stored::new(format!("{round}").as_bytes(), b"value", 50)];
        expect("RESTORE", keeper.restore(asked.stream, &entries), Ok(1))?;
        keeper.restart()?;
    }
    let asked = keeper.next_of(OPEN)?;
    keeper.create(&asked, 10)?;
    let entries = [Stored::new(KEY, b"value", 5)];
    expect("RESTORE", keeper.restore(asked.stream, &entries), Ok(1))?;
    keeper.ready(asked.stream).context("READY")?;
    expect("the open", opener.finish()?, Ok(()))?;
    // Nothing is left of what the others have restored.
    let end = maps.attach()?;
    let keys: Vec<_> = dump(&end)?.into_iter().map(|entry| entry.key).collect();
    expect("keys", keys, vec![KEY.to_vec()])?;
    expect("the next number", put(&end, KEY, b"")?, 11)
}

fn a_map_that_the_keeper_restores_ends_with_the_keeper(_: &Context) -> Result<()> {
    let (mut keeper, maps) = (Keeper::new()?, Maps::new()?);
    let described = Map {
        capacity: 1 << 20,
        events: 16,
        ..Map::new(NAME, 1)
    };
    for _ in 0..3 {
        let created = keeper.create_at(0, OWN, &described, 5, LIMIT);
        let stream = created.context("CREATE")?;
        let entries = [Stored::new(KEY, b"value", 5)];
        expect("RESTORE", keeper.restore(stream, &entries), Ok(1))?;
        keeper.stop();
        expect_no_channel(&maps.0)?;
        keeper.start()?;
        keeper.expect_nothing()?;
        expect("its stream", keeper.ready(stream), Err(Errno::ENOENT))?;
    }
    Ok(())
}

// ---- objects ----

fn streams_have_numbers_of_their_own(_: &Context) -> Result<()> {
    let mut last = 0;
    for _ in 0..5 {
        let map = Durable::interval()?;
        ensure!(map.stream > last, "{} after {last}", map.stream);
        last = map.stream;
        expect("END", map.keeper.detach(map.stream), Ok(()))?;
    }
    Ok(())
}

fn without_streams_the_module_holds_no_object(_: &Context) -> Result<()> {
    for flags in [0, INTERVAL] {
        for _ in 0..10 {
            let params = map::Params {
                events: EVENTS_MAX,
                ..durable(flags)
            };
            let map = Durable::new(params)?;
            for number in 0..20_u8 {
                post(&map.end, &[number], &[number; 5000])?;
            }
            // Each record holds its entry.
            for number in 0..20_u8 {
                let deleted = delete_with(&map.end, &[number], NOWAIT);
                ensure!(deleted.0 == Ok(0), "{deleted:?}");
            }
        }
        expect_no_objects()?;
    }
    Ok(())
}

fn a_keeper_keeps_the_module_loaded(_: &Context) -> Result<()> {
    let _keeper = Keeper::new()?;
    expect_module_in_use()
}

fn a_durable_map_keeps_the_module_loaded_until_it_is_detached(context: &Context) -> Result<()> {
    let file = context.modules.own.as_deref();
    let file = file.ok_or_else(|| skip("no module was given; name it with --module"))?;
    let Durable {
        end,
        stream,
        maps,
        mut keeper,
    } = Durable::interval()?;
    put(&end, KEY, b"value")?;
    keeper.records(stream, 1)?;
    keeper.ack(stream, 1)?;
    drop((end, maps));
    keeper.stop();
    expect_module_in_use()?;
    keeper.start()?;
    keeper.expect_next(RESUME, stream)?;
    expect("END", keeper.detach(stream), Ok(()))?;
    drop(keeper);
    UnloadedModule::module(file)?.load_again()
}
