// SPDX-License-Identifier: MIT OR Apache-2.0
//! A suspend of the machine, to memory and to idle, while every kind is waited for and used. tests/suspend boots a machine that
//! wakes from both.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::time::{ClockId, clock_gettime};
use sluice::Map;
use sluice::map::{Change, Entry, SetOptions, WatchFrom};

use crate::registry::{Context, topic};
use crate::support::check::{expect, note, skip};
use crate::support::daemon::{Daemon, open_jobs};
use crate::support::time::{event_timeout, scaled};
use crate::support::traffic::disturbed;
use crate::support::waiters::{Awaited, expect_waiting, expect_woken};

topic!(
    "suspend",
    fifo: [],
    pipe_only: [
        waiters_sleep_on_and_are_woken,
        every_kind_is_used_before_and_afterwards,
        times_to_live_go_on,
        a_daemon_goes_on,
    ],
);

const HOUR: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_secs(4);

/// What the machine is suspended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// All but the memory is without power. The clock of the machine wakes it.
    Memory,
    /// Devices and processors sleep. A byte that tests/suspend sends to the serial port wakes it.
    Idle,
}

const STATES: [State; 2] = [State::Memory, State::Idle];
const ALARM: &str = "/sys/class/rtc/rtc0/wakealarm";
const SERIAL: &str = "/sys/class/tty/ttyS0/power/wakeup";

fn boottime() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_BOOTTIME)?.into())
}

/// How long the machine has slept, which CLOCK_MONOTONIC does not count.
fn slept() -> Result<Duration> {
    let awake = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(boottime()? - Duration::from(awake))
}

/// Only the VM of tests/suspend has something that wakes it; another machine would stay suspended.
fn skip_unless_wanted() -> Result<()> {
    match std::env::var_os("SLUICE_TEST_SUSPEND") {
        Some(_) => Ok(()),
        None => Err(skip(
            "the machine is suspended only if SLUICE_TEST_SUSPEND is set, as it is by tests/suspend",
        )),
    }
}

/// Suspends the machine until `span` has passed since this call. If it wakes up earlier, it is suspended again.
fn suspend_for(state: State, span: Duration) -> Result<()> {
    let (end, before) = (boottime()? + span, slept()?);
    let mut times = 0;
    while boottime()? < end {
        match suspend(state, 2 * span) {
            Ok(()) => times += 1,
            // EBUSY: a wake-up event came while the machine was being suspended.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return Err(error).with_context(|| format!("suspending to {state:?}")),
        }
    }
    let slept = slept()?.saturating_sub(before);
    note(format!(
        "{state:?}: suspended {times} times, CLOCK_MONOTONIC stood still for {slept:?}"
    ));
    ensure!(times > 0, "the machine was not suspended");
    ensure!(
        state == State::Idle || slept >= span / 2,
        "it slept only {slept:?}"
    );
    Ok(())
}

fn suspend(state: State, alarm: Duration) -> std::io::Result<()> {
    match state {
        State::Memory => {
            fs::write(ALARM, "0")?;
            fs::write(ALARM, format!("+{}", alarm.as_secs()))?;
            fs::write("/sys/power/state", "mem")
        }
        State::Idle => {
            fs::write(SERIAL, "enabled")?;
            let suspended = fs::write("/sys/power/state", "freeze");
            // Otherwise a byte would prevent another suspend.
            fs::write(SERIAL, "disabled")?;
            suspended
        }
    }
}

fn waiters_sleep_on_and_are_woken(_: &Context) -> Result<()> {
    skip_unless_wanted()?;
    for state in STATES {
        let awaited = Awaited::new()?;
        let waiters = awaited.waiters(|| Ok(()))?;
        suspend_for(state, scaled(SHORT))?;
        expect_waiting(&waiters)?;
        expect_woken(waiters)?;
    }
    Ok(())
}

fn every_kind_is_used_before_and_afterwards(_: &Context) -> Result<()> {
    skip_unless_wanted()?;
    for state in STATES {
        disturbed(|| {
            thread::sleep(Duration::from_millis(500));
            suspend_for(state, scaled(SHORT))
        })?;
    }
    Ok(())
}

/// Sets an entry that expires during the suspend, and one that does not; checks both, and the events.
fn expect_times_to_live(map: &Map, state: State) -> Result<()> {
    let short = scaled(SHORT);
    let set = |key, time| map.set_with(key, "value", SetOptions::new().time_to_live(time));
    let left = || -> Result<Duration> {
        let entry = map.get("hour")?.context("the entry of an hour is gone")?;
        entry.time_to_live.context("it lives for ever")
    };
    let mut watcher = map.watch(WatchFrom::Now)?;
    let begun = boottime()?;
    set("hour", HOUR)?;
    let after = boottime()?;
    set("short", short)?;
    suspend_for(state, short)?;
    expect("short", map.get("short")?, None)?;
    let (resumed, left) = (boottime()?, left()?);
    let (least, most) = (HOUR - (boottime()? - begun), HOUR - (resumed - after));
    ensure!(
        least <= left && left <= most,
        "{left:?} of an hour are left, not {least:?} to {most:?}"
    );
    let events = (0..3).map(|_| Ok(watcher.recv_timeout(event_timeout())?.change));
    let last = events.collect::<Result<Vec<_>>>()?.pop();
    expect("the last event", last, Some(Change::Expired))
}

fn expect_less_than_an_hour(entry: Option<Entry>) -> Result<()> {
    let left = entry.and_then(|entry| entry.time_to_live);
    let is_right = left.is_some_and(|left| left < HOUR - scaled(SHORT));
    ensure!(is_right, "of an hour {left:?} are left");
    Ok(())
}

fn times_to_live_go_on(_: &Context) -> Result<()> {
    skip_unless_wanted()?;
    for state in STATES {
        let map = Map::named("entries").create(true).mapped(10).open()?;
        let table = map.mapped()?;
        expect_times_to_live(&map, state)?;
        expect("short in the table", table.get("short")?, None)?;
        expect_less_than_an_hour(table.get("hour")?)?;
    }
    Ok(())
}

fn a_daemon_goes_on(context: &Context) -> Result<()> {
    skip_unless_wanted()?;
    for state in STATES {
        let mut daemon = Daemon::start(context)?;
        let map = open_jobs(context)?;
        expect_times_to_live(&map, state)?;
        ensure!(daemon.is_running()?, "the daemon has ended");
        map.set("afterwards", "value")?;
        drop(map);
        daemon.run("detach --all")?;
        drop(daemon);
        // The store is all that is left.
        let daemon = Daemon::start(context)?;
        let map = open_jobs(context)?;
        expect("short", map.get("short")?, None)?;
        expect_less_than_an_hour(map.get("hour")?)?;
        expect("entries", map.info()?.entries, 2)?;
        drop(map);
        daemon.finish()?;
    }
    Ok(())
}
