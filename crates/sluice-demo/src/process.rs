// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that the demo starts: its end, its output, and its failure as an error.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::memfd::{MFdFlags, memfd_create};
use sluice_testkit::{interrupt, time};

/// For each command, on a machine of ordinary speed.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The line on standard error after which a script waits for a line on its standard input.
const READY: &str = "ready\n";

pub struct Process {
    title: String,
    child: Child,
    // Files, so that output is read without blocking even if a process that is left holds them open.
    stdout: File,
    stderr: File,
}

pub struct Output {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Process {
    /// `title` names the command in errors.
    pub fn start(title: &str, command: &mut Command) -> Result<Self> {
        let (stdout, stderr) = (capture()?, capture()?);
        let child = command
            // ^C ends the demo alone, which then deletes the containers.
            .process_group(0)
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?)
            .spawn();
        let child = child.with_context(|| {
            let program = command.get_program().to_string_lossy();
            format!("cannot start {program}; install it, or add its directory to PATH")
        })?;
        Ok(Self {
            title: title.into(),
            child,
            stdout,
            stderr,
        })
    }

    pub fn take_stdin(&mut self) -> Result<ChildStdin> {
        self.child
            .stdin
            .take()
            .context("standard input is not a pipe")
    }

    /// Waits for the READY of a script.
    pub fn wait_ready(&mut self) -> Result<()> {
        let title = self.title.clone();
        wait_until(&title, || {
            self.check_running()?;
            Ok(read(&self.stderr)?
                .lines()
                .any(|line| line == READY.trim_end()))
        })
    }

    /// Fails if it has ended, even with success.
    pub fn check_running(&mut self) -> Result<()> {
        ensure!(
            !self.succeeded()?,
            "{} ended before it was ready{}",
            self.title,
            details(&read(&self.stderr)?)
        );
        Ok(())
    }

    /// Continues a script that is ready.
    pub fn resume(&mut self) -> Result<()> {
        let written = self.take_stdin()?.write_all(b"\n");
        written.with_context(|| {
            format!(
                "{} ended before it was resumed; run the demo again",
                self.title
            )
        })
    }

    /// Whether it has ended with success. Its failure is an error.
    pub fn succeeded(&mut self) -> Result<bool> {
        let Some(status) = self.child.try_wait()? else {
            return Ok(false);
        };
        ensure!(
            status.success(),
            "{} failed ({status}){}",
            self.title,
            details(&read(&self.stderr)?)
        );
        Ok(true)
    }

    /// Waits for its end, whatever its exit status.
    pub fn wait(mut self) -> Result<Output> {
        let title = self.title.clone();
        wait_until(&title, || Ok(self.child.try_wait()?.is_some()))?;
        self.output()
    }

    /// Waits for its end, and expects success.
    pub fn wait_success(mut self) -> Result<Output> {
        let title = self.title.clone();
        wait_until(&title, || self.succeeded())?;
        self.output()
    }

    /// Waits for its end, also after an interrupt: for what undoes the setup.
    pub fn wait_in_cleanup(mut self) -> Result<Output> {
        let title = self.title.clone();
        poll_until(&title, || Ok(self.child.try_wait()?.is_some()))?;
        self.output()
    }

    fn output(&mut self) -> Result<Output> {
        Ok(Output {
            status: self.child.wait()?,
            stdout: read(&self.stdout)?,
            stderr: read(&self.stderr)?,
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended. What it runs in a container ends with the container.
        let _ = self.child.kill();
        let _ = poll_until(&self.title, || Ok(self.child.try_wait()?.is_some()));
    }
}

/// Polls until `condition` holds; `title` names in the error what took too long.
pub fn wait_until(title: &str, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    poll_until(title, || {
        interrupt::check()?;
        condition()
    })
}

fn poll_until(title: &str, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let timeout = time::scaled(TIMEOUT);
    let deadline = Instant::now() + timeout;
    while !condition()? {
        ensure!(
            Instant::now() < deadline,
            "{title} took more than {} s; 'dmesg | tail' may give the reason",
            timeout.as_secs()
        );
        sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn capture() -> Result<File> {
    let fd = memfd_create(c"output", MFdFlags::MFD_CLOEXEC);
    Ok(fd
        .context("cannot create a memfd; Linux 6.1 or newer is needed")?
        .into())
}

/// At its own offset: the file's is where the process writes.
fn read(file: &File) -> Result<String> {
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn details(stderr: &str) -> String {
    match stderr.trim_start_matches(READY).trim() {
        "" => "; 'dmesg | tail' may give the reason".into(),
        text => format!(": {}", text.replace('\n', "; ")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped());
        Process::start("the script", &mut command).unwrap()
    }

    #[test]
    fn a_script_waits_between_ready_and_resume() {
        let mut process = shell("echo ready >&2; read line; echo resumed; echo done >&2");
        process.wait_ready().unwrap();
        assert!(!process.succeeded().unwrap());
        process.resume().unwrap();
        let output = process.wait_success().unwrap();
        assert_eq!(output.stdout, "resumed\n");
        assert_eq!(output.stderr, "ready\ndone\n");
    }

    #[test]
    fn a_failure_is_an_error_with_the_status_and_what_was_printed() {
        let failure = |script| shell(script).wait_success().err().unwrap().to_string();
        let error = failure("echo no space >&2; exit 7");
        assert!(
            error.contains("exit status: 7") && error.contains("no space"),
            "{error}"
        );
        assert!(failure("exit 1").contains("dmesg"));
        assert!(failure("echo ready >&2; exit 1").contains("dmesg"));
        let error = shell("echo early >&2")
            .wait_ready()
            .unwrap_err()
            .to_string();
        assert!(error.contains("before it was ready: early"), "{error}");
    }

    #[test]
    fn an_expected_failure_is_an_exit_status() {
        assert_eq!(shell("exit 3").wait().unwrap().status.code(), Some(3));
    }

    /// Otherwise a failure could block the demo instead of being reported.
    #[test]
    fn a_process_that_is_left_does_not_delay_the_end() {
        let begin = Instant::now();
        shell("sleep 5 & exit 0").wait_success().unwrap();
        assert!(begin.elapsed() < Duration::from_secs(4));
    }
}
