// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows a durable map: the daemon sluiced stores it, the kernel drops its copy (detach), the module is unloaded and loaded
//! again, and the daemon gives the kernel the entry back.

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
use crate::story::detail;

const NAME: &str = "orders";
const KEY: &str = "4711";

/// Returns the proof, and the module, which was loaded anew from this file.
pub fn show(module: Module, file: &Path) -> Result<(String, Module)> {
    detail!(
        "A durable map: 'sluice map set' returns once the daemon sluiced has stored the entry in its database:"
    );
    let host = Host::new()?;
    let value = secret()?;
    let daemon = host.start_daemon()?;
    host.sluice(&["map", "create", "--durable", NAME])?;
    host.sluice(&["map", "set", NAME, KEY, &value])?;
    detail!("  'sluice map set {NAME} {KEY} {value}' has returned");
    // The kernel keeps a durable map after the end of the daemon, and a module with a map is not unloaded.
    host.call_daemon("detach")?;
    daemon.stop()?;
    module.unload()?;
    detail!(
        "  'sluice store detach {NAME}' has dropped the kernel's copy, sluiced has ended, and the module is unloaded"
    );
    let module = Module::load(&SLUICE, file)?;
    let daemon = host.start_daemon()?;
    // A map that was detached is not restored before somebody asks for it.
    host.call_daemon("attach")?;
    let seen = host.sluice(&["map", "get", NAME, KEY])?;
    ensure!(
        seen == value,
        "the entry was {value} before the module was loaded anew, and then '{seen}'; report this as a bug"
    );
    detail!(
        "  the module is loaded again, sluiced runs, 'sluice store attach {NAME}' has restored the map: 'sluice map get {NAME} {KEY}' prints {seen}\n"
    );
    host.sluice(&["map", "rm", NAME])?;
    daemon.stop()?;
    let proof = "detached, module unloaded and loaded again, attached: the entry is back".into();
    Ok((proof, module))
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
            .arg(self.socket())
            .stdin(Stdio::null())
            .stderr(fs::File::create(self.folder.join("log"))?);
        let process = command
            .spawn()
            .with_context(|| format!("cannot start {}", self.sluiced.display()))?;
        Ok(Daemon(process))
    }

    /// The daemon listens soon after its start.
    fn call_daemon(&self, verb: &str) -> Result<()> {
        let socket = self.socket();
        wait_until("sluiced answers", || {
            let mut command = Command::new(&self.sluice);
            command.args(["store", "status", "--socket"]).arg(&socket);
            let output = Process::start("sluice store status", &mut command)?.wait()?;
            Ok(output.status.success())
        })?;
        let socket = socket.to_string_lossy();
        self.sluice(&["store", verb, "--socket", &socket, NAME])?;
        Ok(())
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
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
