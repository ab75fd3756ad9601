// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads the kernel module and takes it out again, whatever happens in between.

use std::fs::File;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, ModuleInitFlags, delete_module, finit_module};

/// The node that a loaded module provides.
pub const PIPE_NODE: &str = "/dev/sluice/pipe";
const LOADED: &str = "/sys/module/sluice";
const PATIENCE: Duration = Duration::from_secs(5);

/// The module, loaded; dropping it unloads it.
pub struct Module {
    loaded: bool,
}

impl Module {
    pub fn load(file: &Path) -> Result<Self> {
        if Path::new(LOADED).exists() {
            bail!(
                "the module sluice is loaded already; take it out with 'rmmod sluice', or leave --module away to use it as it is"
            );
        }
        let image = File::open(file).with_context(|| {
            format!(
                "cannot open the module {}; build it with vm/module 6.12",
                file.display()
            )
        })?;
        finit_module(&image, c"", ModuleInitFlags::empty()).with_context(|| {
            format!(
                "the kernel refused to load {}; 'dmesg | tail' says why (a module fits only the kernel that it was built for)",
                file.display()
            )
        })?;
        let module = Self { loaded: true };
        await_state(Path::new(PIPE_NODE), true).context(
            "the module is loaded, but its device node did not appear; look for its messages with 'dmesg | tail'",
        )?;
        Ok(module)
    }

    /// Takes the module out and makes sure that nothing of it is left.
    pub fn unload(mut self) -> Result<()> {
        self.loaded = false;
        remove()?;
        await_state(Path::new(LOADED), false)?;
        await_state(Path::new(PIPE_NODE), false)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if !self.loaded {
            return;
        }
        if let Err(error) = remove() {
            eprintln!("{error:#}");
        }
    }
}

/// The last reference of a killed process may go a moment after the process: so not only one try.
fn remove() -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match delete_module(c"sluice", DeleteModuleFlags::O_NONBLOCK) {
            Ok(()) => return Ok(()),
            Err(Errno::EAGAIN | Errno::EBUSY | Errno::EWOULDBLOCK) if Instant::now() < deadline => {
                sleep(Duration::from_millis(20));
            }
            Err(error) => bail!(
                "the module could not be unloaded ({error}); an endpoint that is still open holds it: 'fuser -v {PIPE_NODE}' names \
                 the process; end it, then 'rmmod sluice'"
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
        let Err(error) = Module::load(Path::new("/nonexistent/sluice.ko")) else {
            panic!("loaded a file that is not there");
        };
        let text = format!("{error:#}");
        assert!(text.contains("/nonexistent/sluice.ko"), "{text}");
        assert!(text.contains("vm/module"), "{text}");
    }
}
