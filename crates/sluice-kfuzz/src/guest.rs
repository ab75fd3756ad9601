// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel that programs run on: its setup, the cleanup after each program, and the checks.

use std::ffi::CString;
use std::fs;
use std::os::fd::RawFd;
use std::os::unix::fs::chown;

use anyhow::{Context, Result, bail};
use sluice_abi::keeper::{Keep, TABLES};
use sluice_abi::{
    CTL_DESTROY, CTL_KEEP, CTL_LIST, CTL_USAGE, ChannelInfo, KIND_MAP, LIST_MAX, List, Unlink,
    Usage,
};
use sluice_testkit::fail_nth::SETTINGS;
use sluice_testkit::time::eventually;

use crate::calls::CGROUPS;
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
        if self.counted()?.0 > 0 {
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
        let mut counted = self.counted()?;
        let settled = eventually("nothing is counted when no program runs", || {
            if counted != (0, 0) {
                self.clean_up()?;
                self.detach_maps();
                counted = self.counted()?;
            }
            Ok((counted == (0, 0)).then_some(()))
        });
        let (channels, bytes) = counted;
        settled.with_context(|| format!("{channels} channels and {bytes} bytes are counted"))
    }

    /// The channels and bytes of all cgroups of programs.
    fn counted(&self) -> Result<(u64, u64)> {
        let mut usage = Usage::new(self.cgroup);
        if self.call(CTL_USAGE, &mut usage) != 0 {
            bail!("SLUICE_CTL_USAGE fails");
        }
        Ok((usage.scope_channels, usage.scope_bytes))
    }

    fn destroy_all(&self, scope: RawFd) {
        let mut entries = [ChannelInfo::EMPTY; LIST_MAX];
        let mut list = List::new(scope, entries.as_mut_ptr(), entries.len());
        if self.call(CTL_LIST, &mut list) != 0 {
            return;
        }
        for channel in entries.iter().take(list.count as usize) {
            let mut unlink = Unlink {
                kind: channel.kind,
                ..Unlink::new(scope, channel.name())
            };
            if channel.kind == KIND_MAP {
                // A durable one would wait for a keeper.
                self.detach_maps();
            }
            self.call(CTL_DESTROY, &mut unlink);
        }
    }

    /// Ends all durable maps.
    fn detach_maps(&self) {
        let mut keep = Keep {
            flags: TABLES,
            ..Keep::EMPTY
        };
        let keeper = self.call(CTL_KEEP, &mut keep);
        if keeper >= 0 {
            while keeper::handle(keeper as RawFd, Manner::Detach).is_some() {}
            close(keeper as RawFd);
        }
    }

    fn call<T>(&self, command: libc::Ioctl, structure: &mut T) -> i64 {
        ioctl(self.control, command, &raw mut *structure as u64)
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
