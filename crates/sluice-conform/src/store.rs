// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon that stores durable maps. It runs at the beginning of each behaviour of durable.txt, whose side `store` kills and starts it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

pub struct Store {
    program: PathBuf,
    directory: PathBuf,
    daemon: Option<Child>,
}

impl Store {
    /// `program` is sluiced. Its files are in a subdirectory of `directory`.
    pub fn new(program: &Path, directory: &Path) -> Self {
        Self {
            program: program.to_owned(),
            directory: directory.join("store"),
            daemon: None,
        }
    }

    /// Does not wait for the daemon: an open of a durable map does.
    pub fn start(&mut self) -> Result<()> {
        if self.daemon.is_none() {
            let mut command = Command::new(&self.program);
            command.arg("--store").arg(&self.directory);
            let daemon = command.stdin(Stdio::null()).spawn();
            let program = self.program.display();
            self.daemon = Some(daemon.with_context(|| format!("cannot start '{program}'"))?);
        }
        Ok(())
    }

    fn kill(&mut self) -> Result<()> {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill()?;
            daemon.wait()?;
        }
        Ok(())
    }

    /// Performs a command of the side `store`.
    pub fn perform(&mut self, command: &str) -> Result<()> {
        match command {
            "start" => self.start(),
            "kill" => self.kill(),
            _ => bail!("the store has no command '{command}'"),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
