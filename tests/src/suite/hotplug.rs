// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processors and memory that are taken offline and brought online, and processes that are frozen, while every kind is
//! waited for and used.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::check::{expect, note, skip};
use crate::support::map::{self, EXPIRED, Maps, NOW, set_for, watch};
use crate::support::sched::{Processor, pin_to_cpu};
use crate::support::time::eventually;
use crate::support::traffic::disturbed;
use crate::support::waiters::{Awaited, WAIT_FOR_THE_MAP, Waiter, expect_waiting, expect_woken};

topic!(
    "hotplug",
    fifo: [],
    pipe_only: [
        waiters_survive_while_their_processor_is_offline,
        every_kind_is_used_while_a_processor_is_taken_offline,
        every_kind_is_used_while_memory_is_taken_offline,
        waiters_survive_a_frozen_cgroup,
        waiters_survive_the_freezer_of_a_suspend,
    ],
);

// ---- processors ----

fn waiters_survive_while_their_processor_is_offline(_: &Context) -> Result<()> {
    let processor = Processor::last()?;
    for is_online in [false, true] {
        let awaited = Awaited::new()?;
        let waiters = awaited.waiters(|| pin_to_cpu(processor.number()))?;
        processor.set_online(false)?;
        if is_online {
            processor.set_online(true)?;
        }
        expect_waiting(&waiters)?;
        expect_woken(waiters)?;
        processor.set_online(true)?;
    }
    Ok(())
}

fn every_kind_is_used_while_a_processor_is_taken_offline(_: &Context) -> Result<()> {
    const TIMES: usize = 10;
    let processor = Processor::last()?;
    disturbed(|| {
        for _ in 0..TIMES {
            processor.set_online(false)?;
            thread::sleep(Duration::from_millis(50));
            processor.set_online(true)?;
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    })
}

// ---- memory ----

/// A block of memory, which is brought online when this is dropped.
struct Block(PathBuf);

impl Block {
    fn set(&self, state: &str) -> std::io::Result<()> {
        fs::write(self.0.join("state"), state)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let _ = self.set("online");
    }
}

fn every_kind_is_used_while_memory_is_taken_offline(_: &Context) -> Result<()> {
    const BLOCKS: &str = "/sys/devices/system/memory";
    let none = || skip("no memory can be taken offline (CONFIG_MEMORY_HOTREMOVE)");
    let entries = fs::read_dir(BLOCKS).map_err(|_| none())?;
    let blocks: Vec<Block> = entries
        .filter_map(|entry| Some(Block(entry.ok()?.path())))
        .filter(|block| block.0.join("state").exists())
        .collect();
    if blocks.is_empty() {
        return Err(none());
    }
    let times = AtomicU64::new(0);
    disturbed(|| {
        // The kernel refuses a block with memory that cannot be moved, such as that of the objects here.
        for block in blocks.iter().rev() {
            if block.set("offline").is_ok() {
                times.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(50));
                block.set("online").context("bringing memory online")?;
            }
        }
        Ok(())
    })?;
    let (times, blocks) = (times.into_inner(), blocks.len());
    if times == 0 {
        return Err(skip(format!(
            "the kernel cannot move any of {blocks} blocks"
        )));
    }
    note(format!("{times} of {blocks} blocks were offline"));
    Ok(())
}

// ---- frozen processes ----

fn waiters_survive_a_frozen_cgroup(context: &Context) -> Result<()> {
    let cgroup = context.cgroup()?.create_child("frozen")?;
    let freeze = |state: &str| -> Result<()> {
        fs::write(cgroup.path().join("cgroup.freeze"), state)?;
        let line = format!("frozen {state}");
        eventually("the cgroup follows", || {
            let events = fs::read_to_string(cgroup.path().join("cgroup.events"))?;
            Ok(events.contains(&line).then_some(()))
        })
    };
    for is_woken_frozen in [false, true] {
        let awaited = Awaited::new()?;
        let waiters = awaited.waiters(|| Ok(()))?;
        for waiter in &waiters {
            cgroup.adopt(waiter.child.pid())?;
        }
        freeze("1")?;
        if is_woken_frozen {
            let mut woken = Vec::new();
            for waiter in waiters {
                (waiter.wake)().with_context(|| format!("waking {}", waiter.name))?;
                woken.push((waiter.name, waiter.child));
            }
            freeze("0")?;
            for (name, child) in woken {
                expect(name, child.finish().context(name)?, true)?;
            }
        } else {
            freeze("0")?;
            expect_waiting(&waiters)?;
            expect_woken(waiters)?;
        }
    }
    cgroup.remove()
}

const PM_TEST: &str = "/sys/power/pm_test";
const PM_STATE: &str = "/sys/power/state";

/// A suspend that only freezes all processes, for five seconds, and thaws them.
struct FreezerOnly;

impl FreezerOnly {
    fn new() -> Result<Self> {
        let can_freeze = Path::new(PM_TEST).exists()
            && fs::read_to_string(PM_STATE).is_ok_and(|states| states.contains("freeze"));
        if !can_freeze {
            return Err(skip(
                "the kernel cannot test a suspend (CONFIG_PM_SLEEP_DEBUG)",
            ));
        }
        fs::write(PM_TEST, "freezer").context("choosing the test of a suspend")?;
        Ok(Self)
    }

    fn suspend(&self) -> Result<()> {
        fs::write(PM_STATE, "freeze").context("suspending")
    }
}

impl Drop for FreezerOnly {
    fn drop(&mut self) {
        let _ = fs::write(PM_TEST, "none");
    }
}

fn waiters_survive_the_freezer_of_a_suspend(_: &Context) -> Result<()> {
    let freezer = FreezerOnly::new()?;
    let awaited = Awaited::new()?;
    let maps = Maps::new()?;
    let (end, watcher) = (maps.attach()?, maps.attach()?);
    watch(&watcher, NOW).context("watching")?;
    let waiters = awaited.waiters(|| Ok(()))?;
    let began = Instant::now();
    set_for(&end, b"short", b"v", Duration::from_secs(1)).context("setting")?;
    freezer.suspend()?;
    let took = began.elapsed();
    expect("the entry", map::get(&end, b"short"), Err(Errno::ENOENT))?;
    eventually("its event", || {
        let events = map::events(&watcher)?;
        Ok(events
            .iter()
            .any(|event| event.change == EXPIRED)
            .then_some(()))
    })?;
    // The waiters for events of the map have those of the entry.
    let (woken, waiting): (Vec<Waiter>, Vec<Waiter>) = waiters
        .into_iter()
        .partition(|waiter| WAIT_FOR_THE_MAP.contains(&waiter.name));
    expect("waiters for events", woken.len(), WAIT_FOR_THE_MAP.len())?;
    for Waiter { name, child, .. } in woken {
        expect(name, child.finish().context(name)?, true)?;
    }
    expect_waiting(&waiting)?;
    expect_woken(waiting)?;
    note(format!("frozen for {took:?}"));
    Ok(())
}
