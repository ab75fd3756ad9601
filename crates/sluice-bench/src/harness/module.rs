// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads a kernel module and takes it out again, whatever happens in between.

use std::ffi::CString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, ModuleInitFlags, delete_module, finit_module};

/// The node that our loaded module provides.
pub const PIPE_NODE: &str = "/dev/sluice/pipe";
const PATIENCE: Duration = Duration::from_secs(5);

/// Which module, and how it is used here.
pub struct Kind {
    pub name: &'static str,
    /// That it provides when it is loaded.
    pub node: &'static str,
    /// Of the program, to load it.
    option: &'static str,
    /// What builds it.
    build: &'static str,
}

pub const SLUICE: Kind = Kind {
    name: "sluice",
    node: PIPE_NODE,
    option: "--module",
    build: "vm/module 6.12",
};

/// The naive driver, to compare with.
pub const MYIPC: Kind = Kind {
    name: "myipc",
    node: "/dev/myipc0",
    option: "--baseline",
    build: "vm/module 6.12 myipc",
};

impl Kind {
    /// There while it is loaded.
    fn sign(&self) -> PathBuf {
        Path::new("/sys/module").join(self.name)
    }

    /// What to say where its node is missing.
    pub fn how_to_load(&self) -> String {
        let Self {
            node,
            option,
            build,
            ..
        } = self;
        format!("{node} is not there; load the module with {option} \"$({build})\"")
    }
}

/// A module, loaded; dropping it unloads it.
pub struct Module {
    kind: &'static Kind,
    loaded: bool,
}

impl Module {
    pub fn load(kind: &'static Kind, file: &Path) -> Result<Self> {
        let Kind {
            name,
            option,
            build,
            ..
        } = kind;
        if kind.sign().exists() {
            bail!(
                "the module {name} is loaded already; take it out with 'rmmod {name}', or leave {option} away to use it as it is"
            );
        }
        let image = File::open(file).with_context(|| {
            format!(
                "cannot open the module {}; build it with {build}",
                file.display()
            )
        })?;
        finit_module(&image, c"", ModuleInitFlags::empty()).with_context(|| {
            format!(
                "the kernel refused to load {}; 'dmesg | tail' says why (a module fits only the kernel that it was built for)",
                file.display()
            )
        })?;
        let module = Self { kind, loaded: true };
        await_state(Path::new(kind.node), true).context(
            "the module is loaded, but its device node did not appear; look for its messages with 'dmesg | tail'",
        )?;
        Ok(module)
    }

    /// Takes the module out and makes sure that nothing of it is left.
    pub fn unload(mut self) -> Result<()> {
        self.loaded = false;
        remove(self.kind)?;
        await_state(&self.kind.sign(), false)?;
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

/// The last reference of a killed process may go a moment after the process: so not only one try.
fn remove(kind: &Kind) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let name = CString::new(kind.name)?;
    loop {
        match delete_module(&name, DeleteModuleFlags::O_NONBLOCK) {
            Ok(()) => return Ok(()),
            Err(Errno::EAGAIN | Errno::EBUSY | Errno::EWOULDBLOCK) if Instant::now() < deadline => {
                sleep(Duration::from_millis(20));
            }
            Err(error) => bail!(
                "the module could not be unloaded ({error}); an endpoint that is still open holds it: 'fuser -v {}' names \
                 the process; end it, then 'rmmod {}'",
                kind.node,
                kind.name
            ),
        }
    }
}

fn await_state(path: &Path, present: bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while path.exists() != present {
        if Instant::now() > deadline {
            let state = if present {
                "is not there"
            } else {
                "is still there"
            };
            bail!("{} {state} after {} s", path.display(), PATIENCE.as_secs());
        }
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_module_file_is_named_with_what_to_do() {
        for kind in [&SLUICE, &MYIPC] {
            let Err(error) = Module::load(kind, Path::new("/nonexistent/some.ko")) else {
                panic!("loaded a file that is not there");
            };
            let text = format!("{error:#}");
            assert!(text.contains("/nonexistent/some.ko"), "{text}");
            assert!(text.contains(kind.build), "{text}");
        }
    }
}
