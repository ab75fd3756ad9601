// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel that programs run on: what is set up once, what is cleaned up after each program, and what is checked.

use std::ffi::CString;
use std::fs;
use std::os::fd::RawFd;
use std::os::unix::fs::chown;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sluice_testkit::fail_nth::SETTINGS;

use crate::calls::CGROUPS;
use crate::description::Description;
use crate::execute::ioctl;
use crate::keeper::{self, Manner};
use crate::worker::USER;

/// The cgroups that programs use, beside those that they create below.
const FOLDERS: [&str; 4] = ["root", "user", "root/a", "user/a"];

pub struct Guest {
    control: RawFd,
    cgroup: RawFd,
}

impl Guest {
    pub fn set_up() -> Result<Self> {
        for folder in FOLDERS {
            let path = format!("{CGROUPS}/{folder}");
            fs::create_dir_all(&path)
                .with_context(|| format!("cannot create {path}; run as root"))?;
        }
        for folder in ["user", "user/a"] {
            chown(format!("{CGROUPS}/{folder}"), Some(USER), Some(USER))?;
        }
        for (name, value) in SETTINGS {
            // A kernel without injection runs all calls without failures.
            let _ = fs::write(format!("/sys/kernel/debug/{name}"), value);
        }
        Ok(Guest {
            control: open("/dev/sluice/ctl")?,
            cgroup: open(CGROUPS)?,
        })
    }

    /// Removes what a program has left in cgroups.
    pub fn clean_up(&self) -> Result<()> {
        for folder in &FOLDERS[2..] {
            let path = format!("{CGROUPS}/{folder}");
            if !fs::exists(&path)? {
                fs::create_dir(&path).with_context(|| format!("cannot create {path} again"))?;
                if folder.starts_with("user") {
                    chown(&path, Some(USER), Some(USER))?;
                }
            }
        }
        if self.channels()? > 0 {
            for folder in FOLDERS {
                let scope = open(&format!("{CGROUPS}/{folder}"))?;
                self.destroy_all(scope);
                close(scope);
            }
        }
        Ok(())
    }

    /// Fails if channels or bytes are still counted although no program runs and none has a name.
    pub fn check_usage(&self) -> Result<()> {
        let begun = Instant::now();
        while self.channels()? != 0 {
            self.clean_up()?;
            self.detach_maps();
            if begun.elapsed() > Duration::from_secs(30) {
                bail!(
                    "{} channels are counted after the end of all programs",
                    self.channels()?
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Of all cgroups of programs.
    fn channels(&self) -> Result<u64> {
        let mut usage = [80, u64::from(self.cgroup as u32), 0, 0, 0, 0, 0, 0, 0, 0];
        if self.call(self.control, "SLUICE_CTL_USAGE", &mut usage) != 0 {
            bail!("SLUICE_CTL_USAGE fails");
        }
        Ok(usage[2])
    }

    fn destroy_all(&self, scope: RawFd) {
        let mut entries = [0_u64; 64 * 19];
        let mut list = [0_u64; 12];
        list[0] = 96;
        list[1] = u64::from(scope as u32) << 32;
        list[10] = entries.as_mut_ptr() as u64;
        list[11] = 64 | 152 << 32;
        if self.call(self.control, "SLUICE_CTL_LIST", &mut list) != 0 {
            return;
        }
        for entry in entries.chunks(19).take(list[11] as u32 as usize) {
            let kind = entry[0] >> 32;
            let mut unlink = [0_u64; 10];
            unlink[0] = 80 | kind << 32;
            unlink[1] = u64::from(scope as u32) << 32;
            unlink[2..].copy_from_slice(&entry[2..10]);
            if kind == Description::get().constant("SLUICE_KIND_MAP") {
                // A durable one would wait for a keeper.
                self.detach_maps();
            }
            self.call(self.control, "SLUICE_CTL_DESTROY", &mut unlink);
        }
    }

    /// Ends all durable maps.
    fn detach_maps(&self) {
        let mut keep = [8 | 1 << 32];
        let keeper = self.call(self.control, "SLUICE_CTL_KEEP", &mut keep);
        if keeper >= 0 {
            while keeper::handle(keeper as RawFd, Manner::Detach).is_some() {}
            close(keeper as RawFd);
        }
    }

    fn call(&self, file: RawFd, name: &str, structure: &mut [u64]) -> i64 {
        match Description::get().ioctls.get(name) {
            Some(found) => ioctl(file, found.code, structure.as_mut_ptr() as u64),
            None => -1,
        }
    }
}

fn open(path: &str) -> Result<RawFd> {
    let name = CString::new(path)?;
    // SAFETY: the path ends with a NUL.
    let file = unsafe { libc::open(name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return Err(std::io::Error::last_os_error()).with_context(|| format!("cannot open {path}"));
    }
    Ok(file)
}

fn close(file: RawFd) {
    // SAFETY: the file is one of open() or of the kernel, and not used afterwards.
    unsafe { libc::close(file) };
}
