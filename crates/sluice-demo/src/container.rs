// SPDX-License-Identifier: MIT OR Apache-2.0
//! One container of crun: started, used by `crun exec`, and deleted when dropped.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};

use anyhow::{Context, Result};

use crate::bundle::{Bundle, USER};
use crate::process::{Output, Process};

pub struct Container {
    pub name: &'static str,
    /// Of its process 1, as the host sees it.
    pub pid: String,
    /// The file in which it stores what it receives, as the host sees it.
    pub received: PathBuf,
    id: String,
    state: PathBuf,
    /// Process 1 reads this to its end, so the container stops even if the demo is killed.
    _stdin: ChildStdin,
}

impl Container {
    /// `state` is a directory for the state of crun.
    pub fn start(name: &'static str, bundle: &Bundle, state: &Path) -> Result<Self> {
        let id = format!("sluice-demo-{}-{name}", std::process::id());
        let pid_file = bundle.path.join("pid");
        let mut run = crun(state);
        run.args(["run", "--detach", "--bundle"])
            .arg(&bundle.path)
            .arg("--pid-file")
            .arg(&pid_file)
            .arg(&id)
            .stdin(Stdio::piped());
        let mut run = Process::start(&format!("crun run of container {name}"), &mut run)?;
        let stdin = run.take_stdin()?;
        run.wait_success()?;
        let pid = fs::read_to_string(&pid_file)
            .context("crun did not write the container's pid; check 'crun --version'")?;
        Ok(Self {
            name,
            pid,
            received: bundle.received.clone(),
            id,
            state: state.to_path_buf(),
            _stdin: stdin,
        })
    }

    /// Runs a command to its end, whatever its exit status.
    pub fn run(&self, arguments: &[&str]) -> Result<Output> {
        self.exec(arguments)?.wait()
    }

    /// Runs a command and expects success. Returns its standard output.
    pub fn run_success(&self, arguments: &[&str]) -> Result<String> {
        Ok(self.exec(arguments)?.wait_success()?.stdout)
    }

    pub fn exec(&self, arguments: &[&str]) -> Result<Process> {
        let mut exec = self.exec_command(&[], arguments);
        Process::start(&self.title(arguments), exec.stdin(Stdio::piped()))
    }

    /// The command has `fd` as file descriptor 3, redirected by a shell as a user would.
    pub fn exec_with_fd(&self, fd: OwnedFd, arguments: &[&str]) -> Result<Process> {
        let exec = self.exec_command(&["--preserve-fds", "1"], arguments);
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec \"$@\" 3<&0 </dev/null", "sh"]);
        shell.arg(exec.get_program()).args(exec.get_args());
        Process::start(&self.title(arguments), shell.stdin(fd))
    }

    fn exec_command(&self, options: &[&str], arguments: &[&str]) -> Command {
        let mut exec = crun(&self.state);
        // Without it crun 1.8 runs the command as root of the container.
        exec.args(["exec", "--no-new-privs", "--user"])
            .arg(format!("{USER}:{USER}"));
        exec.args(options).arg(&self.id).args(arguments);
        exec
    }

    /// Without the text of scripts.
    fn title(&self, arguments: &[&str]) -> String {
        let words = arguments
            .iter()
            .take_while(|argument| !argument.contains(' '));
        let words: Vec<&str> = words.copied().collect();
        format!("'{}' in container {}", words.join(" "), self.name)
    }
}

impl Drop for Container {
    /// Also after ^C, which ends each wait for a Process.
    fn drop(&mut self) {
        let Self { name, pid, .. } = self;
        let mut delete = crun(&self.state);
        delete.args(["delete", "--force", &self.id]);
        let deleted = Process::start(&format!("crun delete of container {name}"), &mut delete)
            .and_then(Process::wait_in_cleanup);
        let reason = match deleted {
            Ok(output) if output.status.success() => return,
            Ok(output) => output.stderr,
            Err(error) => sluice::explain(error.as_ref()),
        };
        let (pid, reason) = (pid.trim(), reason.trim());
        eprintln!(
            "cannot delete container {name} ({reason}); end its process with 'kill -KILL {pid}'"
        );
    }
}

fn crun(state: &Path) -> Command {
    let mut command = Command::new("crun");
    command
        .arg("--cgroup-manager=cgroupfs")
        .arg("--root")
        .arg(state);
    command
}
