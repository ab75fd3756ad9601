// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads a kernel module, and unloads it even after a failure.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, ModuleInitFlags, delete_module, finit_module};

use crate::hft;
use crate::time::eventually;

/// The device node of the loaded module.
pub const PIPE_NODE: &str = "/dev/sluice/pipe";
/// The node of its packet simulator.
pub const FEED_NODE: &str = "/dev/sluice/feed";

/// A kernel module, and how it is loaded.
pub struct Kind {
    pub name: &'static str,
    /// The device node that it provides, or its directory in sysfs.
    pub node: &'static str,
    /// The option that loads it.
    option: &'static str,
    /// The command that builds it.
    build: &'static str,
}

pub const SLUICE: Kind = Kind {
    name: "sluice",
    node: PIPE_NODE,
    option: "--module",
    build: "vm/build-module 6.12",
};

/// The naive driver, for comparison.
pub const MYIPC: Kind = Kind {
    name: "myipc",
    node: "/dev/myipc0",
    option: "--baseline",
    build: "vm/build-module 6.12 myipc",
};

/// The naive source of packets, for comparison.
pub const HFT: Kind = Kind {
    name: "hft",
    node: hft::NODE,
    option: "--hft",
    build: "vm/build-module 6.12 hft",
};

/// The naive store of keys and values, which has no node.
pub const SHARED_MAP: Kind = Kind {
    name: "shared_map",
    node: "/sys/module/shared_map",
    option: "--shared-map",
    build: "vm/build-module 6.12 shared_map",
};

impl Kind {
    /// Exists while it is loaded.
    fn sysfs_path(&self) -> PathBuf {
        Path::new("/sys/module").join(self.name)
    }

    /// The reason to skip it where its node is missing.
    pub fn how_to_load(&self) -> String {
        let Self {
            node,
            option,
            build,
            ..
        } = self;
        format!("{node} does not exist; load the module with {option} \"$({build})\"")
    }
}

/// A loaded module; unloaded when dropped.
pub struct Module {
    kind: &'static Kind,
    loaded: bool,
}

impl Module {
    pub fn load(kind: &'static Kind, file: &Path) -> Result<Self> {
        Self::load_with(kind, file, c"")
    }

    pub fn load_with(kind: &'static Kind, file: &Path, parameters: &CStr) -> Result<Self> {
        let Kind {
            name,
            option,
            build,
            ..
        } = kind;
        if kind.sysfs_path().exists() {
            bail!(
                "the module {name} is already loaded; run 'rmmod {name}', or use it by omitting {option}"
            );
        }
        let image = File::open(file).with_context(|| {
            format!(
                "cannot open the module {}; build it with {build}",
                file.display()
            )
        })?;
        finit_module(&image, parameters, ModuleInitFlags::empty()).with_context(|| {
            format!(
                "cannot load {}; 'dmesg | tail' gives the reason (a module fits only the kernel that it was built for)",
                file.display()
            )
        })?;
        let module = Self { kind, loaded: true };
        await_state(Path::new(kind.node), true).context(
            "the module is loaded, but its device node did not appear; see 'dmesg | tail'",
        )?;
        Ok(module)
    }

    /// Unloads the module and checks that nothing of it is left.
    pub fn unload(mut self) -> Result<()> {
        self.loaded = false;
        remove(self.kind)?;
        await_state(&self.kind.sysfs_path(), false)?;
        await_state(Path::new(self.kind.node), false)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if !self.loaded {
            return;
        }
        if let Err(error) = remove(self.kind) {
            eprintln!("{error:#}");
        }
    }
}

/// The last reference of a killed process may be dropped after its exit, so unloading is retried.
fn remove(kind: &Kind) -> Result<()> {
    let name = CString::new(kind.name)?;
    let removed = eventually("it is unused", || {
        match delete_module(&name, DeleteModuleFlags::O_NONBLOCK) {
            Ok(()) => Ok(Some(())),
            Err(Errno::EAGAIN | Errno::EBUSY) => Ok(None),
            Err(error) => Err(error.into()),
        }
    });
    removed.with_context(|| {
        format!(
            "cannot unload the module; end the processes that 'fuser -v {}' lists, then run 'rmmod {}'",
            kind.node, kind.name
        )
    })
}

fn await_state(path: &Path, present: bool) -> Result<()> {
    let state = if present { "exists" } else { "is gone" };
    eventually(&format!("{} {state}", path.display()), || {
        Ok((path.exists() == present).then_some(()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_module_file_is_named_with_its_build_command() {
        for kind in [&SLUICE, &MYIPC, &HFT, &SHARED_MAP] {
            let Err(error) = Module::load(kind, Path::new("/nonexistent/some.ko")) else {
                panic!("loaded a file that does not exist");
            };
            let text = format!("{error:#}");
            assert!(text.contains("/nonexistent/some.ko"), "{text}");
            assert!(text.contains(kind.build), "{text}");
        }
    }
}
