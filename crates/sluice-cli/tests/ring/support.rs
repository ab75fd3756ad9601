// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, signal};

/// The timeout for events that must happen.
pub const LONG: Duration = Duration::from_secs(120);

/// The delay before the check that nothing has happened.
pub const SHORT: Duration = Duration::from_millis(200);

/// Resets ignored signals, which are inherited, for example from nohup.
fn default_signals() -> io::Result<()> {
    for number in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the default action runs no code of this process.
        unsafe { signal(number, SigHandler::SigDfl) }?;
    }
    Ok(())
}

/// The directory of a test, removed at its end.
pub struct TestDir(PathBuf);

impl TestDir {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sluice-ring-cli-{}-{number}", std::process::id());
        let dir = Self(std::env::temp_dir().join(name));
        fs::create_dir(&dir.0).expect("no directory");
        dir
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }

    /// `sluice ring VERB --socket socket ARGUMENTS`
    pub fn command(&self, verb: &str, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command
            .args(["ring", verb, "--socket", "socket"])
            .args(arguments.split_whitespace())
            .current_dir(&self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // SAFETY: signal(2) may be called between fork and exec.
        unsafe { command.pre_exec(default_signals) };
        command
    }

    pub fn start(&self, verb: &str, arguments: &str) -> Running {
        Running(self.command(verb, arguments).spawn().expect("no process"))
    }

    /// A receiver that listens.
    pub fn receiver(&self, arguments: &str) -> Running {
        let receiver = self.start("recv", arguments);
        self.wait_for_socket();
        receiver
    }

    pub fn wait_for_socket(&self) {
        eventually("there is no socket", || self.socket().exists());
    }

    /// Sends `input` and returns the output of the receiver.
    pub fn transfer(&self, sending: &str, receiving: &str, input: Vec<u8>) -> Vec<u8> {
        let receiver = self.start("recv", receiving);
        let sender = self.start("send", sending);
        let receiving = thread::spawn(move || receiver.wait());
        sender.feed(input).succeeded();
        receiving.join().expect("panicked").succeeded().stdout
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("cannot remove the directory");
    }
}

/// A running command, killed when it is dropped.
pub struct Running(pub Child);

impl Running {
    pub fn write_input(&mut self, text: &str) {
        let input = self.0.stdin.as_mut().expect("no input");
        input
            .write_all(text.as_bytes())
            .expect("it does not read its input");
    }

    /// Reads exactly so many bytes of its output.
    pub fn read_output(&mut self, length: usize) -> String {
        let mut bytes = vec![0; length];
        let output = self.0.stdout.as_mut().expect("no output");
        output.read_exact(&mut bytes).expect("its output exited");
        String::from_utf8(bytes).expect("no text")
    }

    pub fn feed(mut self, input: Vec<u8>) -> Exited {
        let mut stdin = self.0.stdin.take().expect("no input");
        // The command may exit before it has read all of it.
        let feeding = thread::spawn(move || drop(stdin.write_all(&input)));
        let exited = self.wait();
        feeding.join().expect("panicked");
        exited
    }

    /// Closes its input and waits for its exit, up to LONG.
    pub fn wait(mut self) -> Exited {
        drop(self.0.stdin.take());
        let outputs = (self.0.stdout.take(), self.0.stderr.take());
        let output = thread::spawn(move || read(outputs.0));
        let errors = thread::spawn(move || read(outputs.1));
        let until = Instant::now() + LONG;
        let status = loop {
            match self.0.try_wait().expect("cannot wait") {
                Some(status) => break status,
                None if Instant::now() > until => {
                    self.0.kill().expect("cannot kill");
                    let errors = errors.join().expect("panicked");
                    panic!(
                        "it did not exit; its errors: {}",
                        String::from_utf8_lossy(&errors)
                    );
                }
                None => thread::sleep(Duration::from_millis(2)),
            }
        };
        Exited(Output {
            status,
            stdout: output.join().expect("panicked"),
            stderr: errors.join().expect("panicked"),
        })
    }

    /// Reads its errors up to and including this word. The report of one handshake may come after another handshake has
    /// succeeded.
    pub fn read_errors_until(&mut self, word: &str) -> String {
        let stderr = self.0.stderr.as_mut().expect("piped");
        let mut errors = Vec::new();
        let mut byte = [0];
        loop {
            let text = String::from_utf8_lossy(&errors).into_owned();
            if text.contains(word) {
                return text;
            }
            let count = stderr.read(&mut byte).expect("cannot read its errors");
            assert!(count == 1, "it exited without the error '{word}': {text}");
            errors.push(byte[0]);
        }
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.0.id() as i32);
        nix::sys::signal::kill(pid, signal).expect("cannot signal");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn read(from: Option<impl Read>) -> Vec<u8> {
    let mut all = Vec::new();
    if let Some(mut from) = from {
        from.read_to_end(&mut all).expect("cannot read");
    }
    all
}

/// The output and status of an exited command.
pub struct Exited(pub Output);

impl Exited {
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    pub fn succeeded(self) -> Output {
        assert!(
            self.0.status.success(),
            "{}: {}",
            self.0.status,
            self.errors()
        );
        self.0
    }

    /// Expects this status, and all of these words in its errors.
    pub fn failed(self, status: i32, words: &[&str]) -> Output {
        let errors = self.errors();
        assert_eq!(self.0.status.code(), Some(status), "{errors}");
        for word in words {
            assert!(errors.contains(word), "no '{word}' in its errors: {errors}");
        }
        self.0
    }
}

pub fn eventually(complaint: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < until, "{complaint}");
        thread::sleep(Duration::from_millis(2));
    }
}
