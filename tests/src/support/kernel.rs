// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's log, memory and modules.

use std::ffi::CStr;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, ModuleInitFlags, delete_module, finit_module};
use nix::sys::utsname::uname;
use sluice_testkit::kernel_log::LOG;

use super::check::{expect, skip};
use super::time;

pub use sluice_testkit::kernel_log::KernelLog;

/// Whether this is Linux 6.1, which lacks some of what later kernels offer a module.
pub fn is_6_1() -> Result<bool> {
    let name = uname().context("the release of the kernel")?;
    Ok(name.release().as_bytes().starts_with(b"6.1."))
}

/// Writes a mark to the kernel log, at a level that is not shown on consoles, so that a kernel report can be attributed
/// to a test. Without access to the log there is nothing to attribute either.
pub fn mark_log(text: &str) {
    if let Ok(mut log) = OpenOptions::new().write(true).open(LOG) {
        // Each write is one record.
        let _ = log.write_all(format!("<7>sluice-tests: {text}\n").as_bytes());
    }
}

/// Objects in use in each slab cache of the module, after the kernel has freed those kept for reuse. Objects that exist
/// as long as the module does are not counted.
pub fn module_objects() -> Result<Vec<(String, u64)>> {
    for name in module_caches()?.iter().map(|(name, _)| name) {
        let shrink = format!("/sys/kernel/slab/{name}/shrink");
        fs::write(&shrink, "1").with_context(|| format!("writing to {shrink}"))?;
    }
    let caches = module_caches()?.into_iter();
    Ok(caches
        .map(|(name, objects)| {
            let permanent = permanent_objects(&name);
            (name, objects.saturating_sub(permanent))
        })
        .collect())
}

/// The feed of the simulator holds the scope of the root cgroup.
fn permanent_objects(cache: &str) -> u64 {
    u64::from(cache == "sluice_scope")
}

/// Waits until the module's caches hold no objects. The kernel may free them with a delay.
pub fn expect_no_objects() -> Result<()> {
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

/// The number of free pages, once it is stable. First the page, dentry and inode caches, which vary by themselves, are
/// dropped, and the per-CPU counters are flushed.
pub fn free_pages() -> Result<u64> {
    const STILL: u64 = 16;
    let mut last = 0;
    time::eventually("the number of free pages is stable", || {
        fs::write("/proc/sys/vm/drop_caches", "3").context("dropping the caches")?;
        fs::write("/proc/sys/vm/stat_refresh", "1").context("adding up the counts")?;
        let zones = fs::read_to_string("/proc/zoneinfo").context("reading /proc/zoneinfo")?;
        let now = parse_free_pages(&zones);
        ensure!(now > 0, "/proc/zoneinfo has no free pages");
        let still = now.abs_diff(last) <= STILL;
        last = now;
        Ok(still.then_some(now))
    })
}

/// Fails if `body` leaks a page per round when it runs for `rounds` rounds. Free pages vary by less than a hundred by
/// themselves, so 500 rounds show such a leak. Skips the test with KASAN. Calls `body` with 50 rounds at a time, and
/// `body` waits until what it removed is freed: the kernel keeps per-CPU memory for the largest number of cgroups that
/// ever existed at once.
pub fn expect_no_page_leak(rounds: usize, mut body: impl FnMut(usize) -> Result<()>) -> Result<()> {
    const AT_ONCE: usize = 50;
    let tolerance = rounds as u64 / 4;
    if has_kasan()? {
        return Err(skip(
            "KASAN delays frees, so the number of free pages is not meaningful",
        ));
    }
    body(AT_ONCE)?;
    let before = free_pages()?;
    for _ in 0..rounds / AT_ONCE {
        body(AT_ONCE)?;
    }
    let mut after = 0;
    let returned = time::eventually("the number of free pages is as before", || {
        after = free_pages()?;
        Ok((after + tolerance >= before).then_some(()))
    });
    returned.with_context(|| {
        format!(
            "free pages: {before} before, {after} after; a difference of {tolerance} is allowed"
        )
    })
}

/// Whether this kernel has KASAN, whose quarantine delays the freeing of memory.
pub fn has_kasan() -> Result<bool> {
    let symbols = fs::File::open("/proc/kallsyms").context("opening /proc/kallsyms")?;
    for line in BufReader::new(symbols).lines() {
        let line = line.context("reading /proc/kallsyms")?;
        if line.ends_with(" kasan_quarantine_put") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Free pages of the zones and of the per-CPU lists, which can hold thousands.
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

/// delete_module(2) without blocking if the module is in use.
fn unload_module(name: &CStr) -> nix::Result<()> {
    delete_module(name, DeleteModuleFlags::O_NONBLOCK)
}

/// Another module than the tested one, loaded until it is unloaded or dropped.
pub struct LoadedModule {
    name: &'static CStr,
    loaded: bool,
}

impl LoadedModule {
    pub fn load(file: &Path, name: &'static CStr, parameters: &CStr) -> Result<nix::Result<Self>> {
        let image = fs::File::open(file)
            .with_context(|| format!("opening the module {}", file.display()))?;
        let loaded = finit_module(&image, parameters, ModuleInitFlags::empty());
        Ok(loaded.map(|()| LoadedModule { name, loaded: true }))
    }

    pub fn unload(&mut self) -> nix::Result<()> {
        unload_module(self.name)?;
        self.loaded = false;
        Ok(())
    }
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        if !self.loaded {
            return;
        }
        // After a failure its users may still be exiting. The next load reports a module that stays.
        let _ = time::eventually("the module can be unloaded", || {
            Ok(unload_module(self.name).ok())
        });
    }
}

/// The tested module while it is unloaded; it is loaded again explicitly or on drop.
pub struct UnloadedModule {
    image: fs::File,
    loaded: bool,
}

impl UnloadedModule {
    /// Unloads the module. `file` is used to load it again.
    pub fn module(file: &Path) -> Result<Self> {
        let image = fs::File::open(file)
            .with_context(|| format!("opening the module {}", file.display()))?;
        unload_module(c"sluice").context("unloading the module")?;
        Ok(UnloadedModule {
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

impl Drop for UnloadedModule {
    fn drop(&mut self) {
        if !self.loaded {
            // The test has failed already; without the module the next one fails too.
            let _ = self.load();
        }
    }
}

/// Fails unless unloading the module fails because it is in use.
pub fn expect_module_in_use() -> Result<()> {
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
