// SPDX-License-Identifier: MIT OR Apache-2.0
//! How it ends: in order, by a death, by a signal, by whoever reads the output.

use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{Place, SHORT};

#[test]
fn a_signal_leaves_no_socket_behind() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let place = Place::new();
        let receiver = place.receiver("");
        // It may still be about to wait.
        thread::sleep(SHORT);
        receiver.signal(signal);
        let ended = receiver.end();
        assert_eq!(ended.0.status.signal(), Some(signal as i32));
        assert_eq!(ended.said(), "");
        assert!(!place.socket().exists());
    }
}

#[test]
fn a_signal_that_is_ignored_ends_nothing() {
    let place = Place::new();
    let mut command = place.command("recv", "");
    let mut ignoring = std::process::Command::new("sh");
    ignoring
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(place.path());
    std::mem::swap(&mut command, &mut ignoring);
    command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let receiver = crate::support::Side(command.spawn().expect("no process"));
    place.until_there();
    thread::sleep(SHORT);
    receiver.signal(Signal::SIGHUP);
    place.start("send", "").fed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.end().succeeded().stdout, b"hello\n");
}

#[test]
fn a_receiver_whose_sender_is_killed_fails_after_what_was_sent() {
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        let place = Place::new();
        let mut receiver = place.receiver("");
        let mut sender = place.start("send", "");
        sender.say("hello\nunfinished");
        assert_eq!(receiver.hear(6), "hello\n");
        let began = Instant::now();
        sender.signal(signal);
        let words = ["the sender failed, died", "after 1 records", "send anew"];
        let received = receiver.end().failed(1, &words);
        assert!(received.stdout.is_empty());
        assert!(began.elapsed().as_secs() < 5);
    }
}

#[test]
fn a_sender_whose_receiver_is_killed_fails() {
    let place = Place::new();
    let mut receiver = place.receiver("");
    let mut sender = place.start("send", "");
    sender.say("hello\n");
    assert_eq!(receiver.hear(6), "hello\n");
    receiver.signal(Signal::SIGKILL);
    drop(receiver);
    sender.say("into the void\n");
    sender.end().failed(1, &["the receiver died", "send anew"]);
}

/// What is only in the ring when the sender has nothing more may be lost.
#[test]
fn a_sender_that_is_done_waits_until_all_was_taken() {
    let place = Place::new();
    let receiver = place.receiver("");
    let mut sender = place.start("send", "");
    sender.say("one\n");
    // It is stopped once it has taken the first record or not; the other one stays in the ring in any case.
    thread::sleep(SHORT);
    receiver.signal(Signal::SIGSTOP);
    sender.say("two\n");
    drop(sender.0.stdin.take());
    thread::sleep(SHORT);
    assert!(sender.0.try_wait().expect("cannot wait").is_none());
    receiver.signal(Signal::SIGKILL);
    drop(receiver);
    sender
        .end()
        .failed(1, &["the receiver died", "after 2 records"]);
}

#[test]
fn a_record_counts_as_taken_when_it_was_written() {
    let place = Place::new();
    // More than a pipe holds, of which nobody reads anything yet.
    let receiver = place.receiver("");
    let mut sender = place.start("send", "");
    sender.say(&"x".repeat(300_000));
    drop(sender.0.stdin.take());
    thread::sleep(SHORT);
    assert!(sender.0.try_wait().expect("cannot wait").is_none());
    assert_eq!(receiver.end().succeeded().stdout.len(), 300_001);
    sender.end().succeeded();
}

#[test]
fn both_sides_fail_when_nobody_reads_the_output() {
    let place = Place::new();
    let mut receiver = place.receiver("");
    drop(receiver.0.stdout.take());
    let sender = place.start("send", "");
    let sent = sender.fed(b"something\n".repeat(1_000_000));
    sent.failed(1, &["the receiver left", "send anew"]);
    receiver
        .end()
        .failed(1, &["whoever read standard output left", "send anew"]);
}

#[test]
fn the_sum_is_json_on_standard_error() {
    let place = Place::new();
    let receiver = place.receiver("--json");
    let sender = place.start("send", "--json --capacity 5000");
    let sent = sender.fed(b"one\n\nthree\n".to_vec()).succeeded();
    let received = receiver.end().succeeded();
    assert_eq!(received.stdout, b"one\n\nthree\n");
    assert!(sent.stdout.is_empty());
    for side in [sent, received] {
        let sum: Value = serde_json::from_slice(&side.stderr).expect("no JSON");
        let fields = ["records", "bytes", "capacity"].map(|field| sum[field].as_u64());
        assert_eq!(fields, [Some(3), Some(8), Some(8192)]);
        assert!(sum["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    }
}

#[test]
fn a_failure_prints_no_sum() {
    let place = Place::new();
    let receiver = place.receiver("--json");
    let sender = place.start("send", "--framing length --json");
    let sent = sender.fed(vec![9]).failed(1, &["within frame 1"]);
    let received = receiver.end().failed(1, &["after 0 records"]);
    for side in [sent, received] {
        assert!(!String::from_utf8_lossy(&side.stderr).contains("capacity"));
    }
}
