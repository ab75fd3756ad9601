// SPDX-License-Identifier: MIT OR Apache-2.0
//! Durable maps in the module `sluice::map`, the crate `sluice-keeper`, and in the command `sluice map`.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;
use sluice::map::{
    DeleteOptions, Durability, OpenError, Options, Outcome, SetOptions, SyncError, WriteError,
};
use sluice::{Error, Map, StoreError};
use sluice_keeper::{Keeper, OpenError as KeeperError};

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::cli::{NAME_TAKEN, NOT_SET_UP, sluice};
use crate::support::event::Event;
use crate::support::proc::Call;
use crate::support::signals;
use crate::support::store::{Plan, Store};
use crate::support::time::{event_timeout, eventually};

topic!(
    "map_durable_library",
    fifo: [],
    pipe_only: [
        changes_are_stored_and_restored,
        a_batch_is_stored,
        a_change_without_an_acknowledgement_is_made,
        a_batch_without_an_acknowledgement_is_made,
        a_signal_does_not_end_the_wait_for_the_store,
        a_signal_does_not_end_the_wait_for_room,
        a_batch_that_is_refused_waits_once,
        a_signal_ends_an_exclusive_open,
        changes_that_do_not_wait_are_synced,
        an_error_of_the_store_refuses_changes,
        each_failure_to_open_has_its_own_error,
        a_mapped_map_is_restored_with_its_table,
        an_unlink_waits_for_the_store,
        the_state_of_a_durable_map_is_shown,
        there_is_one_keeper,
        the_command_creates_changes_and_syncs,
        the_command_creates_a_durable_map_that_is_mapped,
        the_command_tells_a_refused_change_from_one_that_is_made,
    ],
);

/// A deadline that passes in the test, and not while a map is opened.
const SHORT: Duration = Duration::from_millis(500);
/// The exit status of a change that is made, and not known to be stored.
const NOT_KNOWN_TO_BE_STORED: i32 = 7;

const SILENT: Plan = Plan {
    silent: true,
    error: None,
    open_errno: None,
    unlink_errno: None,
};

/// The map of the test.
fn jobs() -> Options {
    Map::named("jobs")
}

fn try_open(durability: Durability) -> Result<Map, OpenError> {
    jobs().create(true).durable(durability).open()
}

fn open(durability: Durability) -> Result<Map> {
    try_open(durability).context("opening the map")
}

/// With a deadline that does not pass in a test that succeeds.
fn always() -> Durability {
    Durability::always().deadline(event_timeout())
}

fn short() -> Durability {
    Durability::always().deadline(SHORT)
}

fn value(map: &Map, key: &str) -> Result<Option<(String, u64)>> {
    let entry = map.get(key)?;
    Ok(entry.map(|entry| {
        let text = String::from_utf8_lossy(&entry.value).into_owned();
        (text, entry.version)
    }))
}

fn changes_are_stored_and_restored(_: &Context) -> Result<()> {
    // More than one call restores.
    const ENTRIES: u64 = 300;
    let store = Store::new()?;
    let map = open(always())?;
    let set = map.set("key", "one")?;
    expect("the first", (set.created, set.version), (true, 1))?;
    let set = map.compare_and_set("key", 1, "two")?;
    expect("the second", (set.created, set.version), (false, 2))?;
    expect("a delete", map.delete("none")?, None)?;
    expect("a delete", map.delete("key")?, Some(3))?;
    expect("stored", store.stored()?.0, 3)?;
    let nowait = SetOptions::new().nowait(true);
    for number in 0..ENTRIES {
        map.set_with(number.to_string(), number.to_string(), nowait)?;
    }
    expect("a sync", map.sync()?, 3 + ENTRIES)?;
    let (applied, entries) = store.stored()?;
    expect(
        "stored",
        (applied, entries.len()),
        (3 + ENTRIES, ENTRIES as usize),
    )?;
    drop(map);
    store.detach_all()?;
    let gone = jobs().info();
    ensure!(matches!(gone, Err(Error::NotFound { .. })), "{gone:?}");
    // Its own options are stored.
    let map = open(Durability::interval(SHORT))?;
    let durable = map.info()?.durable.context("not durable")?;
    expect("its interval", durable.interval, None)?;
    expect("entries", map.keys().count(), ENTRIES as usize)?;
    let last = (ENTRIES - 1).to_string();
    let version = 3 + ENTRIES;
    expect(
        "the last",
        value(&map, &last)?,
        Some((last.clone(), version)),
    )?;
    let set = map.set("next", "")?;
    expect("the next", (set.created, set.version), (true, version + 1))?;
    store.finish()
}

fn a_batch_is_stored(_: &Context) -> Result<()> {
    let store = Store::new()?;
    let map = open(always())?;
    let lease = SetOptions::new().if_version(0);
    let outcomes = map
        .batch()
        .set("key", "one")
        .set_with("key", "two", lease)
        .get("key")
        .delete("key")
        .set("other", "three")
        .run();
    let expected = [
        "Set(Ok(Set { created: true, version: 1 }))",
        "Set(Err(AlreadyExists))",
        "Get(Ok(Some(Entry { value: [111, 110, 101], version: 1, time_to_live: None })))",
        "Delete(Ok(Some(2)))",
        "Set(Ok(Set { created: true, version: 3 }))",
    ];
    let seen: Vec<_> = outcomes.iter().map(|one| format!("{one:?}")).collect();
    expect("the outcomes", seen, expected.map(str::to_owned).to_vec())?;
    let (applied, entries) = store.stored()?;
    expect("stored", (applied, entries.len()), (3, 1))?;
    store.finish()
}

fn expect_made<T: std::fmt::Debug>(result: Result<T, WriteError>, expected: u64) -> Result<()> {
    match result {
        Err(WriteError::Unacknowledged { number }) => expect("its number", number, expected),
        other => bail!("expected a change that is made, saw {other:?}"),
    }
}

fn a_change_without_an_acknowledgement_is_made(_: &Context) -> Result<()> {
    let store = Store::new()?;
    let map = open(short())?;
    map.set("other", "")?;
    store.plan(SILENT)?;
    expect_made(map.set("key", "one"), 2)?;
    expect(
        "its entry",
        value(&map, "key")?,
        Some(("one".to_owned(), 2)),
    )?;
    expect_made(map.delete("other"), 3)?;
    expect("its entry", value(&map, "other")?, None)?;
    let durable = map.info()?.durable.context("not durable")?;
    expect("stored", durable.stored, 1)?;
    ensure!(durable.pending > 0, "nothing is pending");
    let late = map.sync_to(3);
    ensure!(matches!(late, Err(SyncError::TimedOut)), "{late:?}");
    expect("an earlier one", map.sync_to(1)?, 1)?;
    let none = map.sync_to(4);
    let expected = matches!(none, Err(SyncError::NoSuchChange { number: 4 }));
    ensure!(expected, "{none:?}");
    store.plan(Plan::default())?;
    eventually("stored", || Ok(map.sync_to(3).ok()))?;
    let durable = map.info()?.durable.context("not durable")?;
    expect("pending", (durable.stored, durable.pending), (3, 0))?;
    store.finish()
}

fn a_batch_without_an_acknowledgement_is_made(_: &Context) -> Result<()> {
    let store = Store::new()?;
    let map = open(short())?;
    store.plan(SILENT)?;
    let nowait = SetOptions::new().nowait(true);
    let outcomes = map
        .batch()
        .set("key", "")
        .set_with("other", "", nowait)
        .delete("key")
        .delete("key")
        .run();
    let [first, second, third, fourth] = &outcomes[..] else {
        bail!("{outcomes:?}");
    };
    let is_made = |outcome: &Outcome, expected| match outcome {
        Outcome::Set(Err(WriteError::Unacknowledged { number }))
        | Outcome::Delete(Err(WriteError::Unacknowledged { number })) => *number == expected,
        _ => false,
    };
    ensure!(is_made(first, 1) && is_made(third, 3), "{outcomes:?}");
    ensure!(matches!(second, Outcome::Set(Ok(_))), "{outcomes:?}");
    ensure!(matches!(fourth, Outcome::Delete(Ok(None))), "{outcomes:?}");
    store.finish()
}

fn a_signal_does_not_end_the_wait_for_the_store(_: &Context) -> Result<()> {
    let store = Store::new()?;
    let map = open(always())?;
    store.plan(SILENT)?;
    for (restart, key) in [(false, "first"), (true, "second")] {
        let handled = Event::new()?;
        let keep = [map.as_fd()];
        let change = || {
            let set = map.set(key, "value")?;
            Ok((set.created, set.version, map.delete(key)?))
        };
        let before = map.info()?.sequence;
        let child = signals::spawn_blocked_keeping(Call::Ioctl, &keep, &handled, restart, change)?;
        for _ in 0..3 {
            signals::interrupt(&child, &handled)?;
            child.wait_asleep_in(Call::Ioctl)?;
        }
        expect("one change", map.info()?.sequence, before + 1)?;
        store.plan(Plan::default())?;
        let expected = (true, before + 1, Some(before + 2));
        expect("its result", child.finish()?, expected)?;
        store.plan(SILENT)?;
    }
    store.finish()
}

/// Fills the stream of a map whose keeper is silent.
fn fill(map: &Map) -> Result<()> {
    let value = vec![7; 1 << 20];
    for length in [1 << 20, 1 << 10, 0] {
        loop {
            let nowait = SetOptions::new().nowait(true);
            match map.set_with("filler", &value[..length], nowait) {
                Err(WriteError::Refused) => break,
                other => drop(other.context("filling the stream")?),
            }
        }
    }
    Ok(())
}

fn a_signal_does_not_end_the_wait_for_room(_: &Context) -> Result<()> {
    let store = Store::new()?;
    let options = jobs().durable(always()).capacity(16 << 20);
    let map = options.create(true).open()?;
    for restart in [false, true] {
        store.plan(SILENT)?;
        fill(&map)?;
        let handled = Event::new()?;
        let keep = [map.as_fd()];
        let change = || {
            let outcomes = map.batch().set("key", "").delete("key").run();
            Ok(format!("{outcomes:?}"))
        };
        let before = map.info()?.sequence;
        let child = signals::spawn_blocked_keeping(Call::Ioctl, &keep, &handled, restart, change)?;
        for _ in 0..3 {
            signals::interrupt(&child, &handled)?;
            child.wait_asleep_in(Call::Ioctl)?;
        }
        expect("changes", map.info()?.sequence, before)?;
        store.plan(Plan::default())?;
        let (set, delete) = (before + 1, before + 2);
        let expected = format!(
            "[Set(Ok(Set {{ created: true, version: {set} }})), Delete(Ok(Some({delete})))]"
        );
        expect("the outcomes", child.finish()?, expected)?;
    }
    store.finish()
}

fn a_batch_that_is_refused_waits_once(_: &Context) -> Result<()> {
    let store = Store::new()?;
    let options = jobs().durable(short()).capacity(16 << 20);
    let map = options.create(true).open()?;
    map.set("key", "value")?;
    store.plan(SILENT)?;
    fill(&map)?;
    let began = Instant::now();
    let keys: Vec<_> = (0..1000_u32).map(u32::to_ne_bytes).collect();
    let mut batch = map.batch();
    for key in &keys {
        batch = batch.set(key, "");
    }
    let outcomes = batch.get("key").run();
    let waits = began.elapsed().as_millis() / SHORT.as_millis();
    ensure!(waits < 10, "{waits} waits");
    expect("outcomes", outcomes.len(), keys.len() + 1)?;
    let (last, changes) = outcomes.split_last().context("no outcome")?;
    let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::Set(Err(WriteError::Refused)));
    ensure!(changes.iter().all(is_refused), "{changes:?}");
    ensure!(matches!(last, Outcome::Get(Ok(Some(_)))), "{last:?}");
    store.finish()
}

fn a_signal_ends_an_exclusive_open(_: &Context) -> Result<()> {
    let handled = Event::new()?;
    let open = || {
        let created = jobs().durable(always()).create_persistent();
        Ok(matches!(created, Err(OpenError::Interrupted)))
    };
    let child = signals::spawn_blocked_with_handler(Call::Ioctl, &handled, false, open)?;
    signals::interrupt(&child, &handled)?;
    expect("interrupted", child.finish()?, true)
}

fn changes_that_do_not_wait_are_synced(_: &Context) -> Result<()> {
    let store = Store::new()?;
    let interval = Durability::interval(SHORT).deadline(event_timeout());
    let map = open(interval)?;
    let durable = map.info()?.durable.context("not durable")?;
    expect("its interval", durable.interval, Some(SHORT))?;
    store.plan(SILENT)?;
    map.set("key", "one")?;
    let deleted = map.delete_with("key", DeleteOptions::new().nowait(true))?;
    expect("a delete", deleted, Some(2))?;
    let mut ready = [PollFd::new(map.as_fd(), PollFlags::POLLPRI)];
    expect("ready", poll(&mut ready, PollTimeout::ZERO)?, 0)?;
    store.plan(Plan::default())?;
    expect("a sync", map.sync()?, 2)?;
    expect("ready", poll(&mut ready, PollTimeout::ZERO)?, 1)?;
    expect("an empty sync", map.sync()?, 2)?;
    let volatile = Map::named("volatile").create(true).open()?;
    let unsupported = volatile.sync();
    let expected = matches!(unsupported, Err(SyncError::NotDurable));
    ensure!(expected, "{unsupported:?}");
    store.finish()
}

fn an_error_of_the_store_refuses_changes(_: &Context) -> Result<()> {
    let store = Store::new()?;
    let map = open(always())?;
    for error in [StoreError::Full, StoreError::Failed, StoreError::ReadOnly] {
        let failing = Plan {
            error: Some(error),
            ..Plan::default()
        };
        store.plan(failing)?;
        eventually("the error", || {
            let durable = map.info()?.durable.context("not durable")?;
            Ok((durable.store_error == Some(error)).then_some(()))
        })?;
        for refused in [
            map.set("key", "").map(drop),
            map.set_with("key", "", SetOptions::new().nowait(true))
                .map(drop),
        ] {
            let expected = matches!(refused, Err(WriteError::Store(seen)) if seen == error);
            ensure!(expected, "{refused:?}");
        }
    }
    expect("changes", map.info()?.sequence, 0)?;
    store.plan(Plan::default())?;
    eventually("a set", || Ok(map.set("key", "").ok()))?;
    store.finish()
}

fn each_failure_to_open_has_its_own_error(_: &Context) -> Result<()> {
    let late = try_open(short());
    let timed_out = matches!(late, Err(OpenError::Open(Error::StoreTimeout { .. })));
    ensure!(timed_out, "{late:?}");
    let store = Store::new()?;
    let refused = |errno| -> Result<OpenError> {
        store.plan(Plan {
            open_errno: Some(errno),
            ..Plan::default()
        })?;
        try_open(always()).err().context("it is open")
    };
    let denied = refused(libc::EACCES)?;
    let expected = matches!(denied, OpenError::Open(Error::PermissionDenied { .. }));
    ensure!(expected, "{denied:?}");
    let failed = refused(libc::EIO)?;
    let expected = matches!(failed, OpenError::Open(Error::StoreFailed { error, .. })
        if error == StoreError::Failed);
    ensure!(expected, "{failed:?}");
    let full = refused(libc::ENOSPC)?;
    ensure!(matches!(full, OpenError::NoSpace), "{full:?}");
    store.plan(Plan::default())?;
    let durable = jobs().create(true).durable(always());
    let waits = durable.clone().nonblocking(true).open();
    ensure!(matches!(waits, Err(OpenError::WouldBlock)), "{waits:?}");
    let invalid = try_open(Durability::always().deadline(Duration::MAX));
    ensure!(
        matches!(invalid, Err(OpenError::InvalidOptions)),
        "{invalid:?}"
    );
    let volatile = jobs().create(true).open()?;
    let exists = durable.open();
    ensure!(
        matches!(exists, Err(OpenError::NotDurable { .. })),
        "{exists:?}"
    );
    drop(volatile);
    durable.create_persistent()?;
    let exists = durable.create_persistent();
    let expected = matches!(exists, Err(OpenError::Open(Error::AlreadyExists { .. })));
    ensure!(expected, "{exists:?}");
    store.finish()
}

fn a_mapped_map_is_restored_with_its_table(_: &Context) -> Result<()> {
    let store = Store::new()?;
    let mapped = |entries| jobs().create(true).durable(always()).mapped(entries);
    let map = mapped(100).open()?;
    let table = map.info()?.table.context("no table")?;
    map.set("key", "value")?;
    let found = map.mapped()?.get("key")?.map(|entry| entry.value);
    expect("before", found, Some(b"value".to_vec()))?;
    // Whatever the open asks for, the map has the table that is stored.
    for options in [
        jobs().create(true).durable(always()),
        mapped(9000),
        mapped(100),
    ] {
        store.detach_all()?;
        let map = options.open()?;
        expect("its table", map.info()?.table, Some(table))?;
        let found = map.mapped()?.get("key")?.map(|entry| entry.value);
        expect("restored", found, Some(b"value".to_vec()))?;
    }
    jobs().unlink()?;
    let plain = open(always())?;
    for loaded in [true, false] {
        if !loaded {
            store.detach_all()?;
        }
        let error = mapped(100).open().unwrap_err();
        ensure!(matches!(error, OpenError::NotMapped), "{error}");
    }
    drop(plain);
    let _volatile = jobs().create(true).open()?;
    let error = mapped(100).open().unwrap_err();
    ensure!(matches!(error, OpenError::NotDurable { .. }), "{error}");
    store.finish()
}

fn an_unlink_waits_for_the_store(_: &Context) -> Result<()> {
    let store = Store::new()?;
    let map = open(short())?;
    map.set("key", "value")?;
    let fails = Plan {
        unlink_errno: Some(libc::EROFS),
        ..Plan::default()
    };
    store.plan(fails)?;
    let failed = jobs().unlink();
    let expected = matches!(failed, Err(Error::StoreFailed { error, .. })
        if error == StoreError::ReadOnly);
    ensure!(expected, "{failed:?}");
    map.set("key", "again").context("a set afterwards")?;
    store.plan(SILENT)?;
    let pending = jobs().unlink();
    let expected = matches!(pending, Err(Error::UnlinkPending { .. }));
    ensure!(expected, "{pending:?}");
    let refused = map.set("key", "late");
    ensure!(matches!(refused, Err(WriteError::Removed)), "{refused:?}");
    store.plan(Plan::default())?;
    eventually("the end", || match jobs().info() {
        Err(Error::NotFound { .. }) => Ok(Some(())),
        _ => Ok(None),
    })?;
    expect("maps", store.maps(), 0)?;
    let kept = Some(("again".to_owned(), 2));
    expect("the endpoint", value(&map, "key")?, kept)?;
    store.finish()
}

fn the_state_of_a_durable_map_is_shown(_: &Context) -> Result<()> {
    let store = Store::new()?;
    let map = open(Durability::interval(SHORT).deadline(2 * SHORT).refuse(true))?;
    map.set("key", "")?;
    map.sync()?;
    for info in [map.info()?, jobs().info()?] {
        let durable = info.durable.context("not durable")?;
        let times = (durable.interval, durable.deadline, durable.refuse);
        expect("its options", times, (Some(SHORT), 2 * SHORT, true))?;
        let state = (durable.stored, durable.pending, durable.store_error);
        expect("its state", state, (1, 0, None))?;
    }
    ensure!(jobs().channel()?.info()?.persistent, "it is not persistent");
    store.finish()
}

fn there_is_one_keeper(_: &Context) -> Result<()> {
    let store = Store::new()?;
    let second = Keeper::open();
    ensure!(matches!(second, Err(KeeperError::Busy)), "{second:?}");
    store.finish()?;
    Keeper::open().context("after it")?;
    Ok(())
}

fn the_command_creates_changes_and_syncs(context: &Context) -> Result<()> {
    let store = Store::new()?;
    let options = "--durable --sync interval --interval 50ms --deadline 20s --refuse --json";
    let made = sluice(context, &format!("map create jobs {options}"))?.json()?;
    let durable = json!({
        "sync": "interval", "interval_ms": 50, "deadline_ms": 20_000, "refuse": true, "stored": 0, "pending": 0,
        "error": null,
    });
    expect("made", &made["durable"], &durable)?;
    let set = sluice(context, "map set jobs 4711 queued --nowait --json")?.json()?;
    expect("a set", set, json!({ "created": true, "version": 1 }))?;
    let deleted = sluice(context, "map del jobs 4711 --nowait --json")?.json()?;
    expect("a delete", deleted, json!({ "version": 2 }))?;
    let synced = sluice(context, "map sync jobs 1 --json")?.json()?;
    ensure!(synced["stored"].as_u64() >= Some(1), "{synced}");
    let synced = sluice(context, "map sync jobs --json")?.json()?;
    expect("a sync", synced, json!({ "stored": 2 }))?;
    let shown = sluice(context, "map info jobs")?.stdout()?;
    let lines: Vec<_> = shown.lines().collect();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    expect("lines", lines.len(), 8)?;
    let heading = "SYNC INTERVAL DEADLINE REFUSE STORED PENDING ERROR";
    expect("the heading", words(lines[6]), heading.to_owned())?;
    let row = "interval 50 20000 yes 2 0 none";
    expect("the state", words(lines[7]), row.to_owned())?;
    let listed = sluice(context, "map ls")?.stdout()?;
    ensure!(listed.contains("interval  jobs"), "{listed}");
    let words = ["--interval is for --sync interval"];
    let both = "map create other --durable --sync always --interval 50ms";
    sluice(context, both)?.expect_failure(1, &words)?;
    store.detach_all()?;
    let words = ["sluice store attach jobs", "already exists"];
    sluice(context, "map create jobs --durable")?.expect_failure(NAME_TAKEN, &words)?;
    let set = "map set jobs 4711 again --create --durable --json";
    let restored = sluice(context, set)?.json()?;
    let expected = json!({ "created": true, "version": 3 });
    expect("a set in the restored map", restored, expected)?;
    store.finish()
}

fn the_command_creates_a_durable_map_that_is_mapped(context: &Context) -> Result<()> {
    let store = Store::new()?;
    let create = "map create jobs --durable --mapped 100 --cell 256";
    sluice(context, create)?.stdout()?;
    sluice(context, "map set jobs 4711 queued")?.stdout()?;
    store.detach_all()?;
    sluice(context, "map set jobs 4712 queued --create --durable")?.stdout()?;
    let shown = sluice(context, "map info jobs --json")?.json()?;
    let seen = (&shown["table"], &shown["cell"], &shown["entries"]);
    expect("the state", seen, (&json!(65536), &json!(256), &json!(2)))?;
    let found = jobs().open_reader()?.mapped()?.get("4711")?;
    expect("restored", found.is_some(), true)?;
    store.finish()
}

fn the_command_tells_a_refused_change_from_one_that_is_made(context: &Context) -> Result<()> {
    let words = ["the store of durable maps does not answer", "sluiced"];
    let create = "map create jobs --durable --deadline 500ms";
    sluice(context, create)?.expect_failure(NOT_SET_UP, &words)?;
    let store = Store::new()?;
    sluice(context, create)?.stdout()?;
    store.plan(SILENT)?;
    let made = sluice(context, "map set jobs key value")?;
    let words = ["set 'key' in 'jobs': change 1 is made, but not known to be stored"];
    made.expect_failure(NOT_KNOWN_TO_BE_STORED, &words)?;
    let late = sluice(context, "map sync jobs")?;
    late.expect_failure(NOT_KNOWN_TO_BE_STORED, &["syncing 'jobs'"])?;
    sluice(context, "map set jobs key again --nowait")?.stdout()?;
    let removed = sluice(context, "map rm jobs")?;
    removed.expect_failure(NOT_SET_UP, &["is removed once the store"])?;
    let refused = sluice(context, "map set jobs key value")?;
    refused.expect_failure(
        1,
        &["cannot set 'key' in 'jobs': refused, nothing is changed"],
    )?;
    store.finish()
}
