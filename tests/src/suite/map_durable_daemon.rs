// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon sluiced with the module: what its own tests cannot show, because it needs the kernel, its limits or its clocks.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice::StoreError;
use sluice::map::{Durability, SetOptions, WriteError};
use sluice::{Map, Scope};

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::cli::{NAME_TAKEN, NO_CHANNEL, sluice};
use crate::support::daemon::{Daemon, open_durable, open_jobs};
use crate::support::parameter::Parameter;
use crate::support::time::{event_timeout, eventually};
use crate::support::wrong_clock::WrongClock;

topic!(
    "map_durable_daemon",
    fifo: [],
    pipe_only: [
        times_to_live_do_not_follow_the_clock_of_the_day,
        a_limit_of_the_size_of_files_refuses_changes,
        many_maps_need_few_descriptors,
        a_map_whose_changes_are_lost_ends_with_its_cgroup,
        a_stored_map_that_is_not_loaded_is_named_and_not_hidden,
        a_mapped_map_has_its_table_after_a_restart,
    ],
);

/// The default of the command and the daemon.
const SOCKET: &str = "/run/sluice/sluiced.sock";

/// The socket that the command uses by default leads to that of the test, until this is dropped.
struct DefaultSocket;

impl DefaultSocket {
    fn lead_to(daemon: &Daemon) -> Result<Self> {
        let directory = Path::new(SOCKET).parent().context("no directory")?;
        fs::create_dir_all(directory)?;
        symlink(daemon.socket(), SOCKET)?;
        Ok(Self)
    }
}

impl Drop for DefaultSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(SOCKET);
    }
}

/// With a deadline that does not pass in a test that succeeds.
fn open_in(directory: &Path) -> Result<Map> {
    open_durable("jobs", Scope::at(directory)?, event_timeout())
}

/// The store is all that is left of the map.
fn a_mapped_map_has_its_table_after_a_restart(context: &Context) -> Result<()> {
    let jobs = Map::named("jobs").scope(Scope::at(context.cgroup()?.path())?);
    let durability = Durability::always().deadline(event_timeout());
    let jobs = jobs.create(true).durable(durability);
    let daemon = Daemon::start(context)?;
    let map = jobs.clone().mapped(100).cell(256).open()?;
    map.set("key", "value")?;
    let table = map.info()?.table;
    expect("a table", table.is_some(), true)?;
    drop(map);
    daemon.run("detach --all")?;
    drop(daemon);
    let daemon = Daemon::start(context)?;
    let map = jobs.open()?;
    expect("its table", map.info()?.table, table)?;
    let found = map.mapped()?.get("key")?.map(|entry| entry.value);
    expect("its entry", found, Some(b"value".to_vec()))?;
    drop(map);
    daemon.finish()
}

fn times_to_live_do_not_follow_the_clock_of_the_day(context: &Context) -> Result<()> {
    const HOUR: Duration = Duration::from_secs(3600);
    let daemon = Daemon::start(context)?;
    let map = open_jobs(context)?;
    map.set_with("key", "value", SetOptions::new().time_to_live(HOUR))?;
    drop(map);
    for seconds in [1_000_000, 4_000_000_000] {
        let _clock = WrongClock::set(seconds)?;
        daemon.run("detach --all")?;
        daemon.run("attach --all")?;
        let entry = open_jobs(context)?
            .get("key")?
            .context("the entry is gone")?;
        let left = entry.time_to_live.context("it lives for ever")?;
        ensure!(
            left <= HOUR && left > HOUR - event_timeout(),
            "it lives for {left:?}"
        );
    }
    daemon.finish()
}

fn a_limit_of_the_size_of_files_refuses_changes(context: &Context) -> Result<()> {
    const MIB: usize = 1 << 20;
    let mut daemon = Daemon::start_with(context, "ulimit -f 2048")?;
    // It passes for the change that reaches the limit.
    let map = open_durable(
        "jobs",
        Scope::at(context.cgroup()?.path())?,
        event_timeout() / 8,
    )?;
    let value = vec![7; MIB / 8];
    let mut stored = 0_u32;
    let error = loop {
        match map.set(stored.to_string(), &value) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        ensure!(stored < 32, "the store has {stored} values");
    };
    // The change that reaches the limit is made; the next ones are refused.
    ensure!(daemon.is_running()?, "sluiced has ended");
    let refused = match error {
        WriteError::Unacknowledged { .. } => map.set("next", "").err(),
        error => Some(error),
    };
    ensure!(
        matches!(refused, Some(WriteError::Store(StoreError::Full))),
        "{refused:?}"
    );
    let status = daemon.run("status")?;
    ensure!(status.contains("ulimit -f"), "{status}");
    drop(daemon);
    let daemon = Daemon::start(context)?;
    map.sync()?;
    for number in 0..stored {
        let entry = map.get(number.to_string())?.context("it is not there")?;
        ensure!(entry.value == value, "another value");
    }
    daemon.finish()
}

/// The daemon opens a cgroup to restore its map, and closes it again.
fn many_maps_need_few_descriptors(context: &Context) -> Result<()> {
    // Each needs a cgroup, which takes some milliseconds in the VM.
    const MAPS: usize = 200;
    const FILES: usize = 64;
    // More than the memory of the VM, which they do not use.
    let _bytes = Parameter::set("scope_max_bytes", 1 << 40)?;
    let limits = format!("ulimit -n {FILES}");
    let mut daemon = Daemon::start_with(context, &limits)?;
    let cgroup = context.cgroup()?;
    for number in 0..MAPS {
        let child = cgroup.create_child(&format!("map{number}"))?;
        drop(open_in(child.path())?);
    }
    daemon.run("detach --all")?;
    daemon.run("attach --all")?;
    expect(
        "states",
        daemon.states()?,
        vec!["attached".to_owned(); MAPS],
    )?;
    ensure!(daemon.is_running()?, "sluiced has ended");
    let files = fs::read_dir(format!("/proc/{}/fd", daemon.pid()))?.count();
    ensure!(files < FILES / 2, "it has {files} descriptors");
    daemon.finish()
}

fn a_map_whose_changes_are_lost_ends_with_its_cgroup(context: &Context) -> Result<()> {
    let daemon = Daemon::start(context)?;
    let cgroup = context.cgroup()?.create_child("lost")?;
    let map = open_in(cgroup.path())?;
    map.set("key", "kept")?;
    let store = daemon.store();
    drop(daemon);
    fs::copy(store.join("maps.db"), store.join("older"))?;
    fs::copy(store.join("maps.db-wal"), store.join("older-wal"))?;
    let daemon = Daemon::start(context)?;
    map.set("key", "lost")?;
    drop(daemon);
    let _ = fs::remove_file(store.join("maps.db-shm"));
    fs::rename(store.join("older"), store.join("maps.db"))?;
    fs::rename(store.join("older-wal"), store.join("maps.db-wal"))?;
    map.set_with("key", "never stored", SetOptions::new().nowait(true))?;
    drop(map);
    let daemon = Daemon::start(context)?;
    eventually("the loss is found", || {
        Ok((daemon.states()? == ["error"]).then_some(()))
    })?;
    cgroup.remove()?;
    eventually("the map has ended", || {
        Ok((daemon.states()? == ["orphan"]).then_some(()))
    })?;
    let cgroup = context.cgroup()?.create_child("lost")?;
    let map = open_in(cgroup.path())?;
    let entry = map.get("key")?.context("it is gone")?;
    expect("the value", entry.value.as_slice(), &b"kept"[..])?;
    map.set("key", "next")?;
    daemon.finish()
}

fn a_stored_map_that_is_not_loaded_is_named_and_not_hidden(context: &Context) -> Result<()> {
    let daemon = Daemon::start(context)?;
    sluice(context, "map create jobs --durable")?.stdout()?;
    sluice(context, "map set jobs key value")?.stdout()?;
    daemon.run("detach jobs")?;
    let _socket = DefaultSocket::lead_to(&daemon)?;
    let stored =
        "'jobs' is stored, but not in the kernel (state: detached); run 'sluice store attach jobs'";
    for arguments in [
        "get jobs key",
        "set jobs key value",
        "info jobs",
        "watch jobs",
    ] {
        let missing = sluice(context, &format!("map {arguments}"))?;
        missing.expect_failure(NO_CHANNEL, &[stored])?;
    }
    for arguments in ["create jobs", "set jobs key value --create"] {
        let hiding = sluice(context, &format!("map {arguments}"))?;
        hiding.expect_failure(NAME_TAKEN, &[stored, "--force"])?;
    }
    sluice(context, "map create other")?.stdout()?;
    sluice(context, "map create jobs --force")?.stdout()?;
    sluice(context, "map rm jobs")?.stdout()?;
    daemon.run("attach jobs")?;
    let value = sluice(context, "map get jobs key")?.stdout()?;
    expect("the value", value, "value".to_owned())?;
    daemon.finish()
}
