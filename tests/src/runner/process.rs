// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a test in a process of its own, and ends all processes that descend from it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, setsid};

use super::report::Verdict;
use crate::registry::{Context, TestFn};
use crate::support::check::{NOTE, Skip};
use crate::support::proc;
use crate::support::process::{self, Fork, Process};
use crate::support::time::{Deadline, event_timeout};

/// How many bytes of a failed test's output are shown, counted from its end.
const OUTPUT_SHOWN: usize = 4096;

/// Makes orphaned processes of tests our children, so that none is missed. Called once, before the first test.
pub fn adopt_orphans() -> Result<()> {
    prctl::set_child_subreaper(true).context("becoming the parent of orphaned processes")
}

/// The verdict and the notes of a test.
pub struct Ended {
    pub verdict: Verdict,
    pub notes: Vec<String>,
}

pub fn run(test: TestFn, context: &Context, limit: Duration) -> Ended {
    watch(test, context, limit).unwrap_or_else(|error| Ended {
        verdict: Verdict::Failed(format!("running the test: {error:#}")),
        notes: Vec::new(),
    })
}

fn watch(test: TestFn, context: &Context, limit: Duration) -> Result<Ended> {
    let report = memfd_create("report", MFdFlags::MFD_CLOEXEC).context("memfd for the report")?;
    let output = memfd_create("output", MFdFlags::MFD_CLOEXEC).context("memfd for the output")?;
    let mut leader = match process::fork()? {
        Fork::Parent(leader) => leader,
        Fork::Child => lead(test, context, report, &output),
    };
    let hang = match leader.wait_end(&Deadline::after(limit)) {
        Ok(true) => None,
        Ok(false) => Some(describe_hang(leader.pid(), limit)),
        Err(error) => Some(format!("cannot wait for it: {error:#}")),
    };

    // The group exists only once the leader has created its session.
    let _ = leader.signal(Signal::SIGKILL);
    let _ = killpg(leader.pid(), Signal::SIGKILL);
    let status = reap(&mut leader);
    let leftovers = end_leftovers();

    let verdict = match (hang, status) {
        (Some(hang), Ok(_)) => Verdict::Failed(hang),
        (Some(hang), Err(error)) => {
            Verdict::Failed(format!("{hang}\nit cannot be killed: {error:#}"))
        }
        (None, status) => verdict_from(&contents(report)?, status?),
    };
    let verdict = match (verdict, leftovers) {
        (Verdict::Failed(message), Err(error)) => {
            Verdict::Failed(format!("{message}\nafterwards: {error:#}"))
        }
        (_, Err(error)) => Verdict::Failed(format!("{error:#}")),
        (verdict, Ok(())) => verdict,
    };
    with_output(verdict, output)
}

/// The process of the test; it leads its own session and process group.
fn lead(test: TestFn, context: &Context, report: OwnedFd, output: &OwnedFd) -> ! {
    let result = catch_unwind(AssertUnwindSafe(|| {
        detach(output)?;
        if let Some(cgroup) = &context.cgroup {
            cgroup.enter()?;
        }
        test(context)
    }));
    let result = result.unwrap_or_else(|panic| {
        let message = process::panic_message(&*panic);
        Err(anyhow!("panicked: {message}"))
    });
    let verdict = match result {
        Ok(()) => Verdict::Passed,
        Err(error) => match error.downcast_ref::<Skip>() {
            Some(reason) => Verdict::Skipped(reason.to_string()),
            None => Verdict::Failed(format!("{error:#}")),
        },
    };
    let sent = serde_json::to_writer(File::from(report), &verdict);
    process::exit(if sent.is_ok() { 0 } else { 99 })
}

/// A new session without a terminal, with empty input, and with output to a memfd.
fn detach(output: &OwnedFd) -> Result<()> {
    setsid().context("setsid")?;
    let null = File::open("/dev/null").context("opening /dev/null")?;
    dup2_stdin(&null).context("replacing standard input")?;
    dup2_stdout(output).context("replacing standard output")?;
    dup2_stderr(output).context("replacing standard error")?;
    Ok(())
}

fn verdict_from(report: &[u8], status: WaitStatus) -> Verdict {
    serde_json::from_slice(report).unwrap_or_else(|_| {
        Verdict::Failed(format!(
            "the test's process ended without a verdict: {status:?}"
        ))
    })
}

fn describe_hang(leader: Pid, limit: Duration) -> String {
    let mut lines = vec![format!("hung: not done after {limit:?}")];
    lines.push(proc::describe(leader));
    lines.extend(
        proc::descendants(leader)
            .iter()
            .map(|s| proc::describe(s.pid)),
    );
    lines.join("\n")
}

fn reap(leader: &mut Process) -> Result<WaitStatus> {
    let status = leader.wait(&Deadline::for_event())?;
    status.with_context(|| proc::describe(leader.pid()))
}

/// Kills and reaps the processes that the test left. A process still alive is a failure, a zombie is not.
fn end_leftovers() -> Result<()> {
    let mut alive = Vec::new();
    let deadline = Deadline::after(event_timeout());
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(Errno::ECHILD) => break,
            Err(error) => return Err(error).context("reaping what the test left"),
            Ok(WaitStatus::StillAlive) => {}
            Ok(_) => continue,
        }
        for stat in proc::descendants(Pid::this()) {
            if !stat.is_dead() && kill(stat.pid, Signal::SIGKILL).is_ok() {
                alive.push(format!("{} ({})", stat.pid, stat.name));
            }
        }
        if deadline.passed() {
            let stuck = proc::descendants(Pid::this());
            let lines: Vec<String> = stuck.iter().map(|s| proc::describe(s.pid)).collect();
            return Err(anyhow!("SIGKILL does not end:\n{}", lines.join("\n")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    alive.dedup();
    if alive.is_empty() {
        return Ok(());
    }
    Err(anyhow!(
        "the test left processes behind: {}",
        alive.join(", ")
    ))
}

/// Adds the notes, and the output if the test failed.
fn with_output(verdict: Verdict, output: OwnedFd) -> Result<Ended> {
    let output = contents(output)?;
    let notes = notes_in(&output);
    let verdict = match verdict {
        Verdict::Failed(message) if !output.is_empty() => {
            let shown = &output[output.len().saturating_sub(OUTPUT_SHOWN)..];
            let text = String::from_utf8_lossy(shown);
            Verdict::Failed(format!("{message}\nit printed:\n{}", text.trim_end()))
        }
        verdict => verdict,
    };
    Ok(Ended { verdict, notes })
}

fn notes_in(output: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(output)
        .lines()
        .filter_map(|line| line.strip_prefix(NOTE))
        .map(str::to_owned)
        .collect()
}

fn contents(memfd: OwnedFd) -> Result<Vec<u8>> {
    let mut file = File::from(memfd);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).context("rewinding a memfd")?;
    file.read_to_end(&mut bytes).context("reading a memfd")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Durations, Modules, Random};
    use crate::support::channel::Channel;
    use crate::support::check::{note, skip};
    use crate::support::child::{self, Child};
    use crate::support::event::Event;
    use anyhow::{bail, ensure};
    use std::io::Write;
    use std::os::fd::AsRawFd;

    /// Runs a test in a runner process of its own: a process that adopts orphans and waits for any child must not be
    /// the process of the unit tests.
    fn outcome_of(test: TestFn, limit: Duration) -> (Verdict, Vec<String>) {
        let runner = child::spawn("runner", || {
            adopt_orphans()?;
            let context = Context {
                channel: Channel::new("/dev/null"),
                scratch: "/".into(),
                cgroup: None,
                modules: Modules::default(),
                durations: Durations::default(),
                random: Random::default(),
            };
            let ended = run(test, &context, limit);
            Ok((ended.verdict, ended.notes))
        });
        runner.expect("fork").finish().expect("the runner reports")
    }

    fn verdict_of(test: TestFn, limit: Duration) -> Verdict {
        outcome_of(test, limit).0
    }

    const LONG: Duration = Duration::from_secs(20);

    fn passes(_: &Context) -> Result<()> {
        Ok(())
    }

    #[test]
    fn a_test_that_returns_passes() {
        assert_eq!(verdict_of(passes, LONG), Verdict::Passed);
    }

    fn fails(_: &Context) -> Result<()> {
        std::io::stderr().write_all(b"some output\n")?;
        bail!("expected 1, saw 2")
    }

    #[test]
    fn a_failure_keeps_its_message_and_its_output() {
        let expected = "expected 1, saw 2\nit printed:\nsome output";
        assert_eq!(
            verdict_of(fails, LONG),
            Verdict::Failed(expected.to_owned())
        );
    }

    fn notes(_: &Context) -> Result<()> {
        println!("something else");
        note("3 attempts");
        Ok(())
    }

    #[test]
    fn notes_are_kept() {
        let expected = (Verdict::Passed, vec!["3 attempts".to_owned()]);
        assert_eq!(outcome_of(notes, LONG), expected);
    }

    fn panics(_: &Context) -> Result<()> {
        panic!("unexpected state")
    }

    #[test]
    fn a_panic_is_a_failure() {
        let Verdict::Failed(message) = verdict_of(panics, LONG) else {
            panic!("a panic did not fail the test");
        };
        assert!(
            message.starts_with("panicked: unexpected state"),
            "{message}"
        );
    }

    fn dies(_: &Context) -> Result<()> {
        kill(Pid::this(), Signal::SIGKILL)?;
        Ok(())
    }

    #[test]
    fn a_test_that_dies_is_a_failure() {
        let Verdict::Failed(message) = verdict_of(dies, LONG) else {
            panic!("a dead test did not fail");
        };
        assert!(message.contains("SIGKILL"), "{message}");
    }

    fn skips(_: &Context) -> Result<()> {
        Err(skip("no device")).context("looking for the device")
    }

    #[test]
    fn a_skip_keeps_its_reason() {
        assert_eq!(
            verdict_of(skips, LONG),
            Verdict::Skipped("no device".to_owned())
        );
    }

    fn hangs(_: &Context) -> Result<()> {
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn a_hang_is_killed_and_reported() {
        let Verdict::Failed(message) = verdict_of(hangs, Duration::from_millis(100)) else {
            panic!("a hanging test did not fail");
        };
        assert!(
            message.starts_with("hung: not done after 100ms"),
            "{message}"
        );
        assert!(message.contains("system call"), "{message}");
    }

    /// Only a process that has left the test's process group can survive it.
    fn leaves_a_process(_: &Context) -> Result<()> {
        let gone = Event::new()?;
        let child: Child<()> = child::spawn_keeping("left behind", &gone.fds(), || {
            setsid()?;
            gone.notify()?;
            loop {
                std::thread::park();
            }
        })?;
        gone.wait("it leads a session of its own")?;
        std::mem::forget(child);
        Ok(())
    }

    #[test]
    fn a_leftover_process_is_killed_and_reported() {
        let Verdict::Failed(message) = verdict_of(leaves_a_process, LONG) else {
            panic!("a process left behind did not fail the test");
        };
        assert!(
            message.starts_with("the test left processes behind"),
            "{message}"
        );
    }

    fn has_a_session(_: &Context) -> Result<()> {
        ensure!(
            nix::unistd::getsid(None)? == Pid::this(),
            "not the leader of its session"
        );
        ensure!(File::open("/dev/tty").is_err(), "it has a terminal");
        ensure!(std::io::stdin().as_raw_fd() == 0, "no standard input");
        Ok(())
    }

    #[test]
    fn a_test_leads_its_own_session() {
        assert_eq!(verdict_of(has_a_session, LONG), Verdict::Passed);
    }
}
