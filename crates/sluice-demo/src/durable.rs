// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows a durable map: an entry is there again after the module was unloaded and loaded, because the daemon sluiced has it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_testkit::module::{Module, SLUICE};

use crate::isolation::secret;
use crate::process::{Process, wait_until};
use crate::rootfs;

const NAME: &str = "orders";
const KEY: &str = "4711";

/// Returns the module, which was loaded anew from this file.
pub fn show(module: Module, file: &Path) -> Result<Module> {
    eprintln!(
        "A durable map: 'sluice map set' returns once the daemon sluiced has stored the entry in its database:"
    );
    let host = Host::new()?;
    let value = secret()?;
    let daemon = host.start_daemon()?;
    host.sluice(&["map", "create", "--durable", NAME])?;
    host.sluice(&["map", "set", NAME, KEY, &value])?;
    eprintln!("  'sluice map set {NAME} {KEY} {value}' has returned");
    daemon.stop()?;
    module.unload()?;
    eprintln!("  sluiced has ended, and the module is unloaded: the kernel has no maps any more");
    let module = Module::load(&SLUICE, file)?;
    let daemon = host.start_daemon()?;
    host.await_map()?;
    let seen = host.sluice(&["map", "get", NAME, KEY])?;
    ensure!(
        seen == value,
        "the entry was {value} before the module was loaded anew, and then '{seen}'; report this as a bug"
    );
    eprintln!(
        "  the module is loaded again, and sluiced runs: 'sluice map get {NAME} {KEY}' prints {seen}\n"
    );
    host.sluice(&["map", "rm", NAME])?;
    daemon.stop()?;
    Ok(module)
}

/// The programs, and a folder for the store.
struct Host {
    sluice: PathBuf,
    sluiced: PathBuf,
    folder: PathBuf,
}

impl Host {
    fn new() -> Result<Self> {
        let sluice = rootfs::sluice_command()?;
        let folder = std::env::temp_dir().join(format!("sluice-demo-store-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self {
            sluiced: sluice.with_file_name("sluiced"),
            sluice,
            folder,
        })
    }

    fn start_daemon(&self) -> Result<Daemon> {
        let mut command = Command::new(&self.sluiced);
        command
            .arg("--store")
            .arg(self.folder.join("store"))
            .arg("--socket")
            .arg(self.folder.join("socket"))
            .stdin(Stdio::null())
            .stderr(fs::File::create(self.folder.join("log"))?);
        let process = command
            .spawn()
            .with_context(|| format!("cannot start {}", self.sluiced.display()))?;
        Ok(Daemon(process))
    }

    /// The daemon makes the kernel's copies after its start.
    fn await_map(&self) -> Result<()> {
        wait_until("the map is attached", || {
            let mut command = Command::new(&self.sluice);
            command.args(["map", "info", NAME]);
            let output = Process::start("sluice map info", &mut command)?.wait()?;
            Ok(output.status.success())
        })
    }

    /// Returns what the command prints.
    fn sluice(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.sluice);
        command.args(arguments);
        let title = format!("sluice {}", arguments.join(" "));
        let mut run = || Process::start(&title, &mut command)?.wait_success();
        let output = run().with_context(|| {
            let log = fs::read_to_string(self.folder.join("log"));
            format!("sluiced printed '{}'", log.unwrap_or_default().trim_end())
        });
        Ok(output?.stdout)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("cannot remove {}: {error}", self.folder.display());
        }
    }
}

/// Killed when dropped.
struct Daemon(Child);

impl Daemon {
    fn stop(mut self) -> Result<()> {
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM)?;
        let mut status = None;
        wait_until("sluiced ends", || {
            status = self.0.try_wait()?;
            Ok(status.is_some())
        })?;
        ensure!(
            status.is_some_and(|status| status.success()),
            "sluiced failed at its end: {status:?}"
        );
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended if it cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
