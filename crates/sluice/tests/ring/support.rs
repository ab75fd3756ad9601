// SPDX-License-Identifier: MIT OR Apache-2.0

use std::os::fd::{AsFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sluice::ring::{Consumer, Producer};

use super::carrier::{Options, set_up};

pub use super::carrier::LONG;

/// The delay before the check that nothing has happened.
pub const SHORT: Duration = Duration::from_millis(50);

/// Both sides of a ring, set up with the same options.
pub fn ring(options: &Options) -> (Producer, Consumer) {
    let (sending, receiving) = set_up(options, options);
    (
        sending.expect("no producer"),
        receiving.expect("no consumer"),
    )
}

pub fn small() -> Options {
    Options::new().capacity(4096)
}

/// Bytes that depend on the number of the record and on the offset.
pub fn pattern(number: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (number.wrapping_mul(31) ^ at.wrapping_mul(7)) as u8)
        .collect()
}

/// Runs `does` in a forked child. Fails if it returns false.
pub fn in_child(does: impl FnOnce() -> bool) {
    // SAFETY: the child only uses its own memory, and exits without the parent's exit handlers.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = match catch_unwind(AssertUnwindSafe(does)) {
            Ok(true) => 0,
            Ok(false) => 1,
            Err(_) => 2,
        };
        // SAFETY: it exits this process immediately.
        unsafe { libc::_exit(status) };
    }
    assert!(child > 0, "no child");
    let mut status = 0;
    // SAFETY: the pointer to the status is valid.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0), "status of the child");
}

const PEER: &str = "SLUICE_PEER";

/// Starts a process that runs one test, which takes peer_arguments(); `end` is its standard input.
pub fn start_peer(module: &str, test: &str, role: &str, end: OwnedFd) -> Child {
    let exe = std::env::current_exe().expect("no path");
    let (_, module) = module.split_once("::").expect("no module");
    Command::new(exe)
        .args(["--exact", &format!("{module}::{test}"), "--nocapture"])
        .env(PEER, role)
        .stdin(Stdio::from(end))
        .stdout(Stdio::null())
        .spawn()
        .expect("no process")
}

/// The role and the end that start_peer() has passed. None: this is no such process.
pub fn peer_arguments() -> Option<(String, OwnedFd)> {
    let role = std::env::var(PEER).ok()?;
    let end = std::io::stdin().as_fd().try_clone_to_owned();
    Some((role, end.expect("no input")))
}
