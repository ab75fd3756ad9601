// SPDX-License-Identifier: MIT OR Apache-2.0
//! One container, started with crun and gone when dropped.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::bundle::Bundle;
use crate::crew::NAMES;
use crate::protocol::{Event, Order, line};

/// For crun to do what it should do at once.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a container says, or that it has ended.
pub enum Word {
    Event(Event),
    /// A line that is no event: what crun or a crash has to say.
    Remark(String),
    End,
}

pub struct Container {
    pub name: &'static str,
    id: String,
    crun: Child,
    state: PathBuf,
    pid_file: PathBuf,
}

impl Container {
    /// Its words go to `words`, marked with `index`. What is `preserved` is open in it, as the first file after standard error.
    pub fn start(
        index: usize,
        bundle: &Bundle,
        state: &Path,
        preserved: Option<OwnedFd>,
        words: Sender<(usize, Word)>,
    ) -> Result<Self> {
        let name = NAMES[index];
        let id = format!("sluice-demo-{}-{name}", std::process::id());
        let pid_file = bundle.path.join("pid");
        let mut crun = crun_preserving(state, preserved);
        let mut crun = crun
            .arg("--bundle")
            .arg(&bundle.path)
            .arg("--pid-file")
            .arg(&pid_file)
            .arg(&id)
            // ^C is for the demo alone, which then ends the containers in order.
            .process_group(0)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start crun; install the package crun")?;
        let errors = crun.stderr.take().context("crun has no standard error")?;
        thread::spawn(move || listen(index, errors, &words));
        Ok(Self {
            name,
            id,
            crun,
            state: state.to_path_buf(),
            pid_file,
        })
    }

    pub fn order(&mut self, order: &Order) -> Result<()> {
        let input = self
            .crun
            .stdin
            .as_mut()
            .context("the container takes no more orders")?;
        input
            .write_all(line(order)?.as_bytes())
            .with_context(|| format!("container {} takes no orders; it has ended", self.name))
    }

    /// The process number of its process 1, as the host sees it. crun notes it a moment after that process began.
    pub fn pid(&self) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = fs::read_to_string(&self.pid_file).unwrap_or_default();
            if !text.is_empty() {
                return Ok(text.trim().to_string());
            }
            if Instant::now() > deadline {
                bail!(
                    "crun did not note the process number of container {}",
                    self.name
                );
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for crun, which ends with its container and clears up behind it.
    fn ended(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.crun.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(10)),
                Ok(Some(status)) => return Some(status),
                Err(_) => return None,
            }
        }
        None
    }

    /// Fails when the container is gone, which is what is wanted; whatever stays is found with its cgroup.
    fn force(&self) {
        let mut delete = crun(&self.state);
        delete
            .args(["delete", "--force", &self.id])
            .stderr(Stdio::null());
        let _ = delete.status();
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Without orders to come it ends of its own accord.
        drop(self.crun.stdin.take());
        if self.ended().is_some_and(|status| status.success()) {
            return;
        }
        self.force();
        if self.ended().is_none() {
            eprintln!(
                "crun did not end container {} and is ended itself",
                self.name
            );
            // An error here means that it has ended after all.
            let _ = self.crun.kill();
            let _ = self.crun.wait();
        }
    }
}

fn crun(state: &Path) -> Command {
    let mut command = Command::new("crun");
    global_options(&mut command, state);
    command
}

/// `crun run`, with this file as its file 3, as a shell would start it, and with nothing as standard output.
fn crun_preserving(state: &Path, preserved: Option<OwnedFd>) -> Command {
    let Some(file) = preserved else {
        let mut command = crun(state);
        command.arg("run").stdout(Stdio::null());
        return command;
    };
    let mut command = Command::new("sh");
    command
        .args(["-c", "exec crun \"$@\" 3>&1 >/dev/null", "sh"])
        .stdout(file);
    global_options(&mut command, state);
    command.args(["run", "--preserve-fds", "1"]);
    command
}

fn global_options(command: &mut Command, state: &Path) {
    command
        .arg("--cgroup-manager=cgroupfs")
        .arg("--root")
        .arg(state);
}

fn listen(index: usize, errors: ChildStderr, words: &Sender<(usize, Word)>) {
    let lines = BufReader::new(errors).lines().map_while(Result::ok);
    for word in lines.map(|line| understand(&line)) {
        // Nobody listens any more once the demo is over.
        let _ = words.send((index, word));
    }
    let _ = words.send((index, Word::End));
}

fn understand(line: &str) -> Word {
    match serde_json::from_str(line) {
        Ok(event) => Word::Event(event),
        Err(_) => Word::Remark(line.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_event_is_a_remark() {
        assert!(matches!(
            understand(r#"{"event":"ready"}"#),
            Word::Event(Event::Ready)
        ));
        assert!(
            matches!(understand("cannot set up: no cgroup"), Word::Remark(text) if text.contains("cgroup"))
        );
        assert!(matches!(
            understand(r#"{"event":"unknown"}"#),
            Word::Remark(_)
        ));
    }
}
