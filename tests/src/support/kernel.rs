// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel tells of itself: its log, its memory, its modules.

use std::ffi::CStr;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, ModuleInitFlags, delete_module, finit_module};
use sluice_testkit::kernel_log::LOG;

use super::check::expect;
use super::time;

pub use sluice_testkit::kernel_log::KernelLog;

/// Leaves a mark in the kernel log, at the level that stays off consoles, so that a complaint of the kernel can be
/// traced to the test that caused it. Where the log cannot be written there is nothing to trace either.
pub fn mark_log(text: &str) {
    if let Ok(mut log) = OpenOptions::new().write(true).open(LOG) {
        // Each write is a record.
        let _ = log.write_all(format!("<7>sluice-tests: {text}\n").as_bytes());
    }
}

/// Objects in use in every slab cache of the module's, counted after the kernel let go of what it kept for reuse.
pub fn module_objects() -> Result<Vec<(String, u64)>> {
    for name in module_caches()?.iter().map(|(name, _)| name) {
        let shrink = format!("/sys/kernel/slab/{name}/shrink");
        fs::write(&shrink, "1").with_context(|| format!("writing to {shrink}"))?;
    }
    module_caches()
}

/// Fails unless the module's caches come to hold no object. The kernel may free with some delay.
pub fn expect_nothing_held() -> Result<()> {
    let mut held = Vec::new();
    let settled = time::eventually("the module's caches are empty", || {
        held = module_objects()?;
        Ok(held.iter().all(|(_, objects)| *objects == 0).then_some(()))
    });
    settled.with_context(|| format!("objects held: {held:?}"))
}

fn module_caches() -> Result<Vec<(String, u64)>> {
    let table = fs::read_to_string("/proc/slabinfo").context("reading /proc/slabinfo")?;
    let caches = parse_slabinfo(&table);
    ensure!(
        !caches.is_empty(),
        "/proc/slabinfo has no cache whose name starts with sluice: is the module loaded, with caches of its own?"
    );
    Ok(caches)
}

fn parse_slabinfo(table: &str) -> Vec<(String, u64)> {
    table
        .lines()
        .filter(|line| line.starts_with("sluice"))
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
        })
        .collect()
}

/// Free pages, once they hold still. First the caches of file contents and names, which come and go for reasons of their
/// own, are emptied, and the counts that each processor keeps are added up.
pub fn free_pages() -> Result<u64> {
    const STILL: u64 = 16;
    let mut last = 0;
    time::eventually("the number of free pages holds still", || {
        fs::write("/proc/sys/vm/drop_caches", "3").context("dropping the caches")?;
        fs::write("/proc/sys/vm/stat_refresh", "1").context("adding up the counts")?;
        let zones = fs::read_to_string("/proc/zoneinfo").context("reading /proc/zoneinfo")?;
        let now = parse_free_pages(&zones);
        ensure!(now > 0, "/proc/zoneinfo tells of no free page");
        let still = now.abs_diff(last) <= STILL;
        last = now;
        Ok(still.then_some(now))
    })
}

/// Whether this kernel has KASAN, whose quarantine holds what was freed until there is too much of it.
pub fn freed_memory_is_kept_back() -> Result<bool> {
    let symbols = fs::File::open("/proc/kallsyms").context("opening /proc/kallsyms")?;
    for line in BufReader::new(symbols).lines() {
        let line = line.context("reading /proc/kallsyms")?;
        if line.ends_with(" kasan_quarantine_put") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Those that a zone calls free and those that a processor keeps at hand, which can be thousands.
fn parse_free_pages(zones: &str) -> u64 {
    zones
        .lines()
        .filter_map(|line| {
            let line = line.trim_start();
            let number = line
                .strip_prefix("pages free ")
                .or_else(|| line.strip_prefix("count:"))?;
            number.trim().parse::<u64>().ok()
        })
        .sum()
}

/// delete_module(2), answering at once if the module is in use.
fn unload_module(name: &CStr) -> nix::Result<()> {
    delete_module(name, DeleteModuleFlags::O_NONBLOCK)
}

/// A module beside the one that is tested, in the kernel until it is unloaded or dropped.
pub struct OtherModule {
    name: &'static CStr,
    loaded: bool,
}

impl OtherModule {
    pub fn load(file: &Path, name: &'static CStr, parameters: &CStr) -> Result<nix::Result<Self>> {
        let image = fs::File::open(file)
            .with_context(|| format!("opening the module {}", file.display()))?;
        let loaded = finit_module(&image, parameters, ModuleInitFlags::empty());
        Ok(loaded.map(|()| OtherModule { name, loaded: true }))
    }

    pub fn unload(&mut self) -> nix::Result<()> {
        unload_module(self.name)?;
        self.loaded = false;
        Ok(())
    }
}

impl Drop for OtherModule {
    fn drop(&mut self) {
        if !self.loaded {
            return;
        }
        // After a failure its users may still be on their way out. One that stays is the next one's to report.
        let _ = time::eventually("the module can be unloaded", || {
            Ok(unload_module(self.name).ok())
        });
    }
}

/// The module that is tested, unloaded until it is loaded again or this is dropped.
pub struct Unloaded {
    image: fs::File,
    loaded: bool,
}

impl Unloaded {
    /// Unloads the module. `file` is what it is loaded from afterwards.
    pub fn module(file: &Path) -> Result<Self> {
        let image = fs::File::open(file)
            .with_context(|| format!("opening the module {}", file.display()))?;
        unload_module(c"sluice").context("unloading the module")?;
        Ok(Unloaded {
            image,
            loaded: false,
        })
    }

    pub fn load_again(mut self) -> Result<()> {
        self.loaded = true;
        self.load().context("loading the module again")
    }

    fn load(&self) -> nix::Result<()> {
        finit_module(&self.image, c"", ModuleInitFlags::empty())
    }
}

impl Drop for Unloaded {
    fn drop(&mut self) {
        if !self.loaded {
            // The test has failed already; without the module the next one says so.
            let _ = self.load();
        }
    }
}

/// Fails unless the module refuses to go.
pub fn expect_module_stays() -> Result<()> {
    expect(
        "removing the module",
        unload_module(c"sluice"),
        Err(Errno::EWOULDBLOCK),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_at_hand_are_free_too() {
        let zones = "\
Node 0, zone    DMA32
  pages free     400
        boost    0
        min      11
  pagesets
    cpu: 0
              count:    30
              high:     80
    cpu: 1
              count: 2
";
        assert_eq!(parse_free_pages(zones), 432);
    }

    #[test]
    fn only_the_caches_of_the_module_are_counted() {
        let table = "\
# name            <active_objs> <num_objs> <objsize>
sluice_pipe            3     16    512   16    2
kmalloc-64          9000   9000     64   64    1
sluice_scope           0      0     96   42    1
";
        let expected = vec![
            ("sluice_pipe".to_owned(), 3),
            ("sluice_scope".to_owned(), 0),
        ];
        assert_eq!(parse_slabinfo(table), expected);
    }
}
