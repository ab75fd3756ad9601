// SPDX-License-Identifier: MIT OR Apache-2.0
//! The progress of a sender and a receiver that share a terminal, which script(1) provides.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const SEND: &str = "sluice ring send --socket socket --capacity 64K <records";
const RECV: &str = "sluice ring recv --socket socket";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bar {
    /// With the total, because the length of the file is known.
    Sender,
    Receiver,
}

/// Runs a transfer on a terminal, and returns the bar of each frame that it showed.
fn run(name: &str, script: &str) -> Vec<Bar> {
    let directory =
        std::env::temp_dir().join(format!("sluice-terminal-{}-{name}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let records = ("x".repeat(99) + "\n").repeat(20_000);
    fs::write(directory.join("records"), &records).unwrap();
    fs::write(directory.join("script"), script).unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_sluice"));
    let mut path = program.parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    let shown = Command::new("script")
        .args(["--quiet", "--return", "--command", "bash script", "screen"])
        .envs([("PATH", path), ("TERM", "xterm".into())])
        .env_remove("NO_COLOR")
        .current_dir(&directory)
        .stdin(Stdio::null())
        .output()
        .expect("script(1) is missing; install bsdutils");
    let screen = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.status.success(), "{screen:?}");
    assert!(fs::read_to_string(directory.join("copy")).unwrap() == records);
    fs::remove_dir_all(&directory).unwrap();
    let frames = screen.split('\r').filter(|frame| frame.contains("B/s, "));
    let bar = |frame: &str| match frame.contains(" left") {
        true => Bar::Sender,
        false => Bar::Receiver,
    };
    let bars: Vec<_> = frames.map(bar).collect();
    assert!(!bars.is_empty(), "no bar: {screen:?}");
    bars
}

#[test]
fn a_process_in_the_background_shows_no_progress() {
    let bars = run("receiver", &format!("set -m; {RECV} >copy & {SEND}; wait"));
    assert!(!bars.contains(&Bar::Receiver), "{bars:?}");
    let bars = run("sender", &format!("set -m; {SEND} & {RECV} >copy; wait"));
    assert!(!bars.contains(&Bar::Sender), "{bars:?}");
}

/// The processes of a pipeline are in one process group. The receiver waits for its reader in the middle of the transfer. The process that
/// draws first does so until it ends, which may be just before the other ends.
#[test]
fn one_process_of_a_pipeline_shows_its_progress() {
    let bars = run(
        "pipeline",
        &format!("set -m; {{ {SEND}; }} | {RECV} | {{ sleep 0.3; cat >copy; }}"),
    );
    let changes = bars.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes <= 1, "{bars:?}");
}
