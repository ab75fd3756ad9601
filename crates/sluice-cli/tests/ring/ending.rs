// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a transfer: regular, by the death of a side, by a signal, by closed output.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::thread;
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{Exited, Running, SHORT, TestDir};

#[test]
fn a_signal_leaves_no_socket_behind() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let dir = TestDir::new();
        let receiver = dir.receiver("");
        // It may not have reached the wait yet.
        thread::sleep(SHORT);
        receiver.signal(signal);
        let exited = receiver.wait();
        assert_eq!(exited.0.status.signal(), Some(signal as i32));
        assert_eq!(exited.errors(), "");
        assert!(!dir.socket().exists());
    }
}

#[test]
fn an_ignored_signal_has_no_effect() {
    let dir = TestDir::new();
    let mut command = dir.command("recv", "");
    let mut ignoring = Command::new("sh");
    ignoring
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(dir.path());
    std::mem::swap(&mut command, &mut ignoring);
    command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let receiver = Running(command.spawn().expect("no process"));
    dir.wait_for_socket();
    thread::sleep(SHORT);
    receiver.signal(Signal::SIGHUP);
    dir.start("send", "").feed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.wait().succeeded().stdout, b"hello\n");
}

#[test]
fn a_receiver_fails_after_the_sent_records_when_the_sender_is_killed() {
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        let dir = TestDir::new();
        let mut receiver = dir.receiver("");
        let mut sender = dir.start("send", "");
        sender.write_input("hello\nunfinished");
        assert_eq!(receiver.read_output(6), "hello\n");
        let began = Instant::now();
        sender.signal(signal);
        let words = ["the sender failed or died", "after 1 records", "send again"];
        let received = receiver.wait().failed(1, &words);
        assert!(received.stdout.is_empty());
        assert!(began.elapsed().as_secs() < 5);
    }
}

#[test]
fn a_sender_fails_when_the_receiver_is_killed() {
    let dir = TestDir::new();
    let mut receiver = dir.receiver("");
    let mut sender = dir.start("send", "");
    sender.write_input("hello\n");
    assert_eq!(receiver.read_output(6), "hello\n");
    receiver.signal(Signal::SIGKILL);
    drop(receiver);
    sender.write_input("lost\n");
    sender
        .wait()
        .failed(1, &["the receiver died", "send again"]);
}

/// Records that are only in the ring at the end of the input may be lost.
#[test]
fn a_sender_waits_at_the_end_until_all_records_are_released() {
    let dir = TestDir::new();
    let receiver = dir.receiver("");
    let mut sender = dir.start("send", "");
    sender.write_input("one\n");
    // It is stopped before or after the first record; the second one stays in the ring in any case.
    thread::sleep(SHORT);
    receiver.signal(Signal::SIGSTOP);
    sender.write_input("two\n");
    drop(sender.0.stdin.take());
    thread::sleep(SHORT);
    assert!(sender.0.try_wait().expect("cannot wait").is_none());
    receiver.signal(Signal::SIGKILL);
    drop(receiver);
    sender
        .wait()
        .failed(1, &["the receiver died", "after 2 records"]);
}

#[test]
fn a_record_is_released_after_it_was_written() {
    let dir = TestDir::new();
    // More than the capacity of the output pipe, which is not read yet.
    let receiver = dir.receiver("");
    let mut sender = dir.start("send", "");
    sender.write_input(&"x".repeat(300_000));
    drop(sender.0.stdin.take());
    thread::sleep(SHORT);
    assert!(sender.0.try_wait().expect("cannot wait").is_none());
    assert_eq!(receiver.wait().succeeded().stdout.len(), 300_001);
    sender.wait().succeeded();
}

#[test]
fn both_sides_fail_when_the_output_is_closed() {
    let dir = TestDir::new();
    let mut receiver = dir.receiver("");
    drop(receiver.0.stdout.take());
    let sender = dir.start("send", "");
    let sent = sender.feed(b"something\n".repeat(1_000_000));
    sent.failed(1, &["the receiver closed the ring", "send again"]);
    receiver.wait().failed(
        1,
        &["the reader of standard output closed it", "send again"],
    );
}

/// Also if the receiver fails after the sender has sent all.
#[test]
fn records_that_were_not_written_are_not_released() {
    for is_full in [true, false] {
        let dir = TestDir::new();
        let mut command = dir.command("recv", "");
        if is_full {
            command.stdout(File::options().write(true).open("/dev/full").unwrap());
        }
        let mut receiver = Running(command.spawn().expect("no process"));
        // Otherwise the pipe of its output has no reader.
        drop(receiver.0.stdout.take());
        dir.wait_for_socket();
        let sent = dir.start("send", "").feed(b"1\n2\n3\n".to_vec());
        sent.failed(1, &["the receiver closed the ring", "send again"]);
        receiver
            .wait()
            .failed(1, &["standard output", "send again"]);
    }
}

#[test]
fn a_closed_standard_stream_is_an_error() {
    let dir = TestDir::new();
    for (verb, stream, redirection) in [("recv", "output", ">&-"), ("send", "input", "<&-")] {
        let command = dir.command(verb, "");
        let script = format!("exec \"$0\" \"$@\" {redirection}");
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &script])
            .arg(command.get_program())
            .args(command.get_args());
        let exited = Exited(shell.output().expect("no process"));
        exited.failed(1, &[&format!("standard {stream} is closed")]);
    }
}

#[test]
fn the_summary_is_json_on_standard_error() {
    let dir = TestDir::new();
    let receiver = dir.receiver("--summary");
    let sender = dir.start("send", "--summary --capacity 5000");
    let sent = sender.feed(b"one\n\nthree\n".to_vec()).succeeded();
    let received = receiver.wait().succeeded();
    assert_eq!(received.stdout, b"one\n\nthree\n");
    assert!(sent.stdout.is_empty());
    for side in [sent, received] {
        let summary: Value = serde_json::from_slice(&side.stderr).expect("no JSON");
        let fields = ["records", "bytes", "capacity"].map(|field| summary[field].as_u64());
        assert_eq!(fields, [Some(3), Some(8), Some(8192)]);
        assert!(
            summary["seconds"]
                .as_f64()
                .is_some_and(|seconds| seconds > 0.0)
        );
    }
}

#[test]
fn a_failure_prints_no_summary() {
    let dir = TestDir::new();
    let receiver = dir.receiver("--summary");
    let sender = dir.start("send", "--framing length --summary");
    let sent = sender.feed(vec![9]).failed(1, &["within frame 1"]);
    let received = receiver.wait().failed(1, &["after 0 records"]);
    for side in [sent, received] {
        assert!(!String::from_utf8_lossy(&side.stderr).contains("capacity"));
    }
}
