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

/// Long enough for anything that is to happen.
pub const LONG: Duration = Duration::from_secs(120);

/// Long enough to see that nothing happens.
pub const SHORT: Duration = Duration::from_millis(200);

/// Ignored signals are inherited, for example from nohup.
fn default_signals() -> io::Result<()> {
    for number in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the default action runs no code of this process.
        unsafe { signal(number, SigHandler::SigDfl) }?;
    }
    Ok(())
}

/// A directory of one test's own, which goes with it.
pub struct Place(PathBuf);

impl Place {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sluice-ring-cli-{}-{number}", std::process::id());
        let place = Self(std::env::temp_dir().join(name));
        fs::create_dir(&place.0).expect("no directory");
        place
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }

    /// `sluice ring VERB socket ARGUMENTS`
    pub fn command(&self, verb: &str, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command
            .args(["ring", verb, "socket"])
            .args(arguments.split_whitespace())
            .current_dir(&self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // SAFETY: signal(2) may be called between fork and exec.
        unsafe { command.pre_exec(default_signals) };
        command
    }

    pub fn start(&self, verb: &str, arguments: &str) -> Side {
        Side(self.command(verb, arguments).spawn().expect("no process"))
    }

    /// A receiver that listens.
    pub fn receiver(&self, arguments: &str) -> Side {
        let receiver = self.start("recv", arguments);
        self.until_there();
        receiver
    }

    pub fn until_there(&self) {
        eventually("there is no socket", || self.socket().exists());
    }

    /// Sends this, and says what was printed on the other side.
    pub fn transfer(&self, sending: &str, receiving: &str, input: Vec<u8>) -> Vec<u8> {
        let receiver = self.start("recv", receiving);
        let sender = self.start("send", sending);
        let receiving = thread::spawn(move || receiver.end());
        sender.fed(input).succeeded();
        receiving.join().expect("panicked").succeeded().stdout
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("cannot clear up");
    }
}

/// One running command. A test that fails leaves none.
pub struct Side(pub Child);

impl Side {
    pub fn say(&mut self, text: &str) {
        let input = self.0.stdin.as_mut().expect("no input");
        input.write_all(text.as_bytes()).expect("it does not read");
    }

    /// The next so many bytes that it prints.
    pub fn hear(&mut self, bytes: usize) -> String {
        let mut heard = vec![0; bytes];
        let output = self.0.stdout.as_mut().expect("no output");
        output.read_exact(&mut heard).expect("it prints no more");
        String::from_utf8(heard).expect("no text")
    }

    pub fn fed(mut self, input: Vec<u8>) -> Ended {
        let mut stdin = self.0.stdin.take().expect("no input");
        // It need not read all of it.
        let feeding = thread::spawn(move || drop(stdin.write_all(&input)));
        let ended = self.end();
        feeding.join().expect("panicked");
        ended
    }

    /// Lets it come to its end, and kills it if it does not.
    pub fn end(mut self) -> Ended {
        drop(self.0.stdin.take());
        let outputs = (self.0.stdout.take(), self.0.stderr.take());
        let printed = thread::spawn(move || read(outputs.0));
        let said = thread::spawn(move || read(outputs.1));
        let until = Instant::now() + LONG;
        let status = loop {
            match self.0.try_wait().expect("cannot wait") {
                Some(status) => break status,
                None if Instant::now() > until => {
                    self.0.kill().expect("cannot kill");
                    let said = said.join().expect("panicked");
                    panic!(
                        "it did not end; it said: {}",
                        String::from_utf8_lossy(&said)
                    );
                }
                None => thread::sleep(Duration::from_millis(2)),
            }
        };
        Ended(Output {
            status,
            stdout: printed.join().expect("panicked"),
            stderr: said.join().expect("panicked"),
        })
    }

    /// What it has written to its standard error up to and including this word, once it is there. A report of one
    /// handshake need not come before another handshake has succeeded.
    pub fn reports(&mut self, word: &str) -> String {
        let errors = self.0.stderr.as_mut().expect("piped");
        let mut said = Vec::new();
        let mut byte = [0];
        loop {
            let text = String::from_utf8_lossy(&said).into_owned();
            if text.contains(word) {
                return text;
            }
            let count = errors.read(&mut byte).expect("cannot read its errors");
            assert!(count == 1, "it ended without '{word}': {text}");
            said.push(byte[0]);
        }
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.0.id() as i32);
        nix::sys::signal::kill(pid, signal).expect("cannot signal");
    }
}

impl Drop for Side {
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

/// What became of a command.
pub struct Ended(pub Output);

impl Ended {
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    pub fn succeeded(self) -> Output {
        assert!(
            self.0.status.success(),
            "{}: {}",
            self.0.status,
            self.said()
        );
        self.0
    }

    /// It must have ended with this status and said all of these.
    pub fn failed(self, status: i32, words: &[&str]) -> Output {
        let said = self.said();
        assert_eq!(self.0.status.code(), Some(status), "{said}");
        for word in words {
            assert!(said.contains(word), "it did not say '{word}': {said}");
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
