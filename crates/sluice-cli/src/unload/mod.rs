// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice unload`: unloads the module, or says what uses it. It never ends a process other than the service sluiced.

mod held;
mod permission;

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

use self::held::Held;
use crate::table::table;
use crate::{args, output, store};

const MODULE: &CStr = c"sluice";
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

/// What an option lets the command end, in this order: what cannot be undone is last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Detach,
    StopDaemon,
    RemoveChannels,
}

#[derive(Debug)]
pub enum UnloadError {
    NotLoaded,
    BuiltIn,
    /// Why it is not.
    NotPermitted(&'static str),
    ModulesDisabled,
    InUse {
        advice: String,
    },
    TimedOut {
        time: Duration,
    },
}

impl fmt::Display for UnloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoaded => {
                f.write_str("the module is not loaded; 'sudo modprobe sluice' loads it")
            }
            Self::BuiltIn => f.write_str(
                "the module is part of this kernel and cannot be unloaded; boot another kernel to replace it",
            ),
            Self::NotPermitted(why) => write!(f, "{why}; run 'sudo sluice unload' on the host"),
            Self::ModulesDisabled => f.write_str(
                "no module can be unloaded until the next boot, because kernel.modules_disabled is 1; reboot to replace it",
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
    permission::check()?;
    let all = arguments.steps();
    let (started, mut noted) = (Instant::now(), String::new());
    // The steps that are not taken yet, and when nothing but what they end was seen to use the module.
    let (mut steps, mut released) = (all.as_slice(), None);
    // The kernel decides whether the module is in use: a process can pretend that it is, and a process can be hidden.
    while !unload()? {
        // Found again before each step, so that none is taken while something else uses the module.
        let held = Held::find()?;
        let left = held.clone().without(steps);
        if left.is_empty() {
            if let Some((step, later)) = steps.split_first() {
                step.take(&held)?;
                (steps, released) = (later, Some(Instant::now()));
                continue;
            }
            released.get_or_insert_with(Instant::now);
        }
        if arguments.is_over(started.elapsed(), released.map(|time| time.elapsed())) {
            return arguments.refuse(&left);
        }
        if arguments.wait.is_some() {
            note(&left, &mut noted);
        }
        thread::sleep(INTERVAL);
    }
    match arguments.json {
        true => output::print_json(&[(); 0]),
        false => Ok(()),
    }
}

/// Notes what is waited for, unless it was noted already.
fn note(left: &Held, noted: &mut String) {
    let text = table(&left.rows(), false);
    if text != *noted {
        output::note("sluice: waiting until nothing of this uses the module:");
        text.lines().for_each(output::note);
        *noted = text;
    }
}

impl Step {
    const ALL: [Self; 3] = [Self::Detach, Self::StopDaemon, Self::RemoveChannels];

    fn take(self, held: &Held) -> Result<()> {
        match self {
            Self::Detach if !held.has_durable_maps() => Ok(()),
            Self::Detach => store::detach_all(),
            Self::StopDaemon => held.daemon().map_or(Ok(()), stop_daemon),
            Self::RemoveChannels => held.channels.iter().try_for_each(held::Found::remove),
        }
    }
}

impl Arguments {
    fn steps(&self) -> Vec<Step> {
        let is_named = |step: &Step| match step {
            Step::Detach | Step::StopDaemon => self.detach,
            Step::RemoveChannels => self.remove_channels,
        };
        Step::ALL.into_iter().filter(is_named).collect()
    }

    /// Whether to give up after this time, and this time after the module was released.
    fn is_over(&self, waited: Duration, settled: Option<Duration>) -> bool {
        let limit = self.wait.unwrap_or(Some(Duration::ZERO));
        limit.is_some_and(|limit| waited >= limit) && settled.is_none_or(|time| time >= SETTLES)
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
}

/// Whether the module is unloaded; otherwise it is in use.
fn unload() -> Result<bool> {
    match delete_module(MODULE, DeleteModuleFlags::O_NONBLOCK) {
        Ok(()) => Ok(true),
        Err(Errno::EWOULDBLOCK | Errno::EBUSY) => Ok(false),
        Err(Errno::ENOENT) => Err(UnloadError::NotLoaded.into()),
        Err(Errno::EPERM) => {
            Err(UnloadError::NotPermitted("the kernel does not permit it to this process").into())
        }
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
        let rest = advice(&held::tests::everything().without(&Step::ALL));
        assert_eq!(rest, "end what is listed, or wait for it with --wait");
        assert!(advice(&Held::default()).contains("references"));
    }

    fn arguments(wait: Option<Option<Duration>>, detach: bool, remove_channels: bool) -> Arguments {
        Arguments {
            wait,
            detach,
            remove_channels,
            json: false,
        }
    }

    #[test]
    fn channels_are_removed_last() {
        let steps = |detach, remove| arguments(None, detach, remove).steps();
        assert_eq!(
            steps(true, true),
            [Step::Detach, Step::StopDaemon, Step::RemoveChannels]
        );
        assert_eq!(steps(false, true), [Step::RemoveChannels]);
        assert_eq!(steps(false, false), []);
    }

    #[test]
    fn a_released_module_has_time_to_settle() {
        let second = Duration::from_secs(1);
        for wait in [None, Some(Some(Duration::ZERO))] {
            let arguments = arguments(wait, false, false);
            assert!(arguments.is_over(Duration::ZERO, None), "{wait:?}");
            assert!(!arguments.is_over(second, Some(Duration::ZERO)), "{wait:?}");
            assert!(arguments.is_over(SETTLES, Some(SETTLES)), "{wait:?}");
        }
        let limited = arguments(Some(Some(10 * second)), false, false);
        assert!(!limited.is_over(9 * second, Some(SETTLES)));
        assert!(limited.is_over(10 * second, None));
        assert!(!arguments(Some(None), false, false).is_over(100 * second, None));
    }
}
