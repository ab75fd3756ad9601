// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon sluiced with a store of its own. It is killed when it is dropped.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sluice::map::Durability;
use sluice::{Map, Scope};

use super::cli::{self, sluice};
use super::shell::bash;
use super::time::{event_timeout, eventually};
use crate::registry::Context;

/// A durable map of this scope, created if necessary. Each change waits until it is stored, up to the deadline.
pub fn open_durable(name: &str, scope: Scope, deadline: Duration) -> Result<Map> {
    let durability = Durability::always().deadline(deadline);
    let map = Map::named(name).scope(scope).create(true);
    Ok(map.durable(durability).open()?)
}

/// The map "jobs" of the cgroup of the test, with a deadline that does not pass in a test that succeeds.
pub fn open_jobs(context: &Context) -> Result<Map> {
    let scope = Scope::at(context.cgroup()?.path())?;
    open_durable("jobs", scope, event_timeout())
}

/// A daemon with its store in the directory of the test.
pub struct Daemon<'a> {
    context: &'a Context,
    child: Child,
}

impl<'a> Daemon<'a> {
    pub fn start(context: &'a Context) -> Result<Self> {
        Self::start_with(context, ":")
    }

    /// After this command of the shell, which sets limits.
    pub fn start_with(context: &'a Context, limits: &str) -> Result<Self> {
        let script = format!(
            "{limits}; exec {} --store store --socket ./socket",
            cli::tools()?.join("sluiced").display()
        );
        let mut command: Command = bash(&script);
        command.current_dir(&context.scratch).stdin(Stdio::null());
        let child = command.spawn().context("starting sluiced")?;
        let mut daemon = Daemon { context, child };
        eventually("sluiced listens", || {
            ensure!(daemon.is_running()?, "it has ended");
            Ok(daemon.socket().exists().then_some(()))
        })?;
        Ok(daemon)
    }

    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    pub fn run(&self, arguments: &str) -> Result<String> {
        sluice(self.context, &format!("store {arguments} --socket socket"))?.stdout()
    }

    /// The states of all maps.
    pub fn states(&self) -> Result<Vec<String>> {
        let status: Value = serde_json::from_str(&self.run("status --json")?)?;
        let maps = status["maps"].as_array().context("no maps")?;
        let state = |map: &Value| map["state"].as_str().map(str::to_owned);
        maps.iter()
            .map(|map| state(map).context("no state"))
            .collect()
    }

    /// No map is left in the kernel, and nothing is lost.
    pub fn finish(self) -> Result<()> {
        self.run("detach --all").map(drop)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn socket(&self) -> PathBuf {
        self.context.scratch.join("socket")
    }

    pub fn store(&self) -> PathBuf {
        self.context.scratch.join("store")
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(self.socket());
    }
}
