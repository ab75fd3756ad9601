// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice unload`: unloads the module, or says what uses it. It never ends a process other than the service sluiced.

mod held;

use std::ffi::CStr;
use std::fmt;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, delete_module};
use nix::unistd::geteuid;

use self::held::Held;
use crate::table::table;
use crate::{args, output, store};

const MODULE: &CStr = c"sluice";
const LOADED: &str = "/sys/module/sluice";
const REFERENCES: &str = "/sys/module/sluice/refcnt";
const INTERVAL: Duration = Duration::from_millis(200);
/// The kernel frees some objects a moment after their last use.
const SETTLES: Duration = Duration::from_secs(2);

#[derive(Args)]
pub struct Arguments {
    /// Wait until nothing uses the module, for up to TIME [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = args::time_or_zero, num_args = 0..=1, require_equals = true)]
    wait: Option<Option<Duration>>,

    /// Detach the durable maps, which stay stored, and stop the service sluiced
    ///
    /// Once nothing else uses the module. After "systemctl start sluiced", "sluice store attach --all" restores the maps.
    #[arg(long)]
    detach: bool,

    /// Remove the persistent channels of all scopes, with what they contain
    ///
    /// Once nothing else uses the module. Durable maps are not removed.
    #[arg(long)]
    remove_channels: bool,

    /// Print what uses the module as a JSON array instead of a table; if it was unloaded, an empty one
    #[arg(long)]
    json: bool,
}

#[derive(Debug)]
pub enum UnloadError {
    NotLoaded,
    NotPermitted,
    InUse { advice: String },
    TimedOut { time: Duration },
}

impl fmt::Display for UnloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoaded => {
                f.write_str("the module is not loaded; 'sudo modprobe sluice' loads it")
            }
            Self::NotPermitted => f.write_str(
                "only root can unload the module, on the host; run 'sudo sluice unload'",
            ),
            Self::InUse { advice } => write!(f, "the module is in use; {advice}"),
            Self::TimedOut { time } => write!(
                f,
                "the module is still in use after {time:?}; end what is listed, or wait longer"
            ),
        }
    }
}

impl std::error::Error for UnloadError {}

pub fn run(arguments: &Arguments) -> Result<()> {
    if !fs::exists(LOADED).unwrap_or(false) {
        return Err(UnloadError::NotLoaded.into());
    }
    if !geteuid().is_root() {
        return Err(UnloadError::NotPermitted.into());
    }
    let started = Instant::now();
    arguments.until(started, Duration::ZERO, || {
        let held = Held::find()?.without(arguments.detach, arguments.remove_channels);
        Ok(Some(held).filter(|held| !held.is_empty()))
    })?;
    arguments.release()?;
    arguments.until(started, SETTLES, || {
        let held = Held::find()?;
        match held.is_empty() && unload()? {
            true => Ok(None),
            false => Ok(Some(held)),
        }
    })?;
    match arguments.json {
        true => output::print_json(&[(); 0]),
        false => Ok(()),
    }
}

impl Arguments {
    /// Repeats an action until it returns nothing that uses the module, at least for `settles`. Prints the last answer otherwise.
    fn until(
        &self,
        started: Instant,
        settles: Duration,
        action: impl Fn() -> Result<Option<Held>>,
    ) -> Result<()> {
        let (begin, mut noted) = (Instant::now(), String::new());
        while let Some(held) = action()? {
            let timed_out = match self.wait {
                None => begin.elapsed() >= settles,
                Some(time) => time.is_some_and(|time| started.elapsed() >= time),
            };
            if timed_out {
                return self.refuse(&held);
            }
            let text = table(&held.rows(), false);
            if self.wait.is_some() && text != noted {
                output::note("sluice: waiting until nothing of this uses the module:");
                text.lines().for_each(output::note);
                noted = text;
            }
            thread::sleep(INTERVAL);
        }
        Ok(())
    }

    fn refuse(&self, held: &Held) -> Result<()> {
        match self.json {
            true => output::print_json(&held.rows())?,
            false if held.is_empty() => {}
            false => output::print(&table(&held.rows(), false))?,
        }
        let error = match self.wait.flatten() {
            Some(time) => UnloadError::TimedOut { time },
            None => UnloadError::InUse {
                advice: advice(held),
            },
        };
        Err(error.into())
    }

    fn release(&self) -> Result<()> {
        let held = Held::find()?;
        if self.remove_channels {
            held.channels.iter().try_for_each(held::Found::remove)?;
        }
        if self.detach && held.has_durable_maps() {
            store::detach_all()?;
        }
        if let Some(pid) = held.daemon().filter(|_| self.detach) {
            stop_daemon(pid)?;
        }
        Ok(())
    }
}

/// Whether the module is unloaded; otherwise it is in use.
fn unload() -> Result<bool> {
    match delete_module(MODULE, DeleteModuleFlags::O_NONBLOCK) {
        Ok(()) => Ok(true),
        Err(Errno::EWOULDBLOCK | Errno::EBUSY) => Ok(false),
        Err(Errno::ENOENT) => Err(UnloadError::NotLoaded.into()),
        Err(Errno::EPERM) => Err(UnloadError::NotPermitted.into()),
        Err(error) => Err(error).context("cannot unload the module; see 'dmesg'"),
    }
}

fn stop_daemon(pid: u32) -> Result<()> {
    output::note(
        "sluice: stopping sluiced; to restore the maps later: systemctl start sluiced && sluice store attach --all",
    );
    let status = Command::new("systemctl").args(["stop", "sluiced"]).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => bail!("systemctl cannot stop sluiced; if it is no service, run 'kill {pid}'"),
    }
}

/// What ends the use of the module.
fn advice(held: &Held) -> String {
    if held.is_empty() {
        let references = fs::read_to_string(REFERENCES).unwrap_or_default();
        return format!(
            "no process shows its {} references, as of files in messages or in io_uring; retry with --wait",
            references.trim()
        );
    }
    let mut advice = vec!["end what is listed, or wait for it with --wait"];
    if held.has_durable_maps() || held.daemon().is_some() {
        advice.push("--detach detaches durable maps and stops sluiced");
    }
    if held.has_removable_channels() {
        advice.push("--remove-channels removes persistent channels");
    }
    advice.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_is_about_what_uses_the_module() {
        let all = advice(&held::tests::everything());
        for word in ["--wait", "--detach", "--remove-channels"] {
            assert!(all.contains(word), "{all}");
        }
        let rest = advice(&held::tests::everything().without(true, true));
        assert_eq!(rest, "end what is listed, or wait for it with --wait");
        assert!(advice(&Held::default()).contains("references"));
    }
}
