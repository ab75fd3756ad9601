// SPDX-License-Identifier: MIT OR Apache-2.0
//! The records that arrive, and when.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};

use crate::support::{Running, TestDir};

fn frames(records: &[&[u8]]) -> Vec<u8> {
    let frame = |record: &&[u8]| [&(record.len() as u32).to_le_bytes()[..], *record].concat();
    records.iter().flat_map(frame).collect()
}

#[test]
fn lines_arrive_unchanged() {
    let dir = TestDir::new();
    let lines = b"one\n\n two \n\n\0\xff\r\n\n".to_vec();
    assert_eq!(dir.transfer("", "", lines.clone()), lines);
    assert!(dir.transfer("", "", Vec::new()).is_empty());
}

#[test]
fn a_last_line_without_a_newline_gets_one() {
    let dir = TestDir::new();
    let printed = dir.transfer("", "", b"one\ntwo".to_vec());
    assert_eq!(printed, b"one\ntwo\n");
}

#[test]
fn frames_arrive_unchanged() {
    let dir = TestDir::new();
    let all: Vec<u8> = (0..=255).collect();
    let input = frames(&[b"", b"a\nb\n", &all, b"", &[b'\n'; 2000]]);
    let both = "--framing length";
    assert_eq!(dir.transfer(both, both, input.clone()), input);
    assert!(dir.transfer(both, both, Vec::new()).is_empty());
}

#[test]
fn each_side_has_its_own_framing() {
    let dir = TestDir::new();
    let printed = dir.transfer("", "--framing length", b"one\n\ntwo\n".to_vec());
    assert_eq!(printed, frames(&[b"one", b"", b"two"]));
    let records = frames(&[b"one", b"of two\nlines"]);
    let printed = dir.transfer("--framing length", "", records);
    assert_eq!(printed, b"one\nof two\nlines\n");
}

#[test]
fn a_record_may_take_half_of_the_ring() {
    let dir = TestDir::new();
    for (capacity, longest) in [("4096", 2040), ("16M", (8 << 20) - 8)] {
        let sending = format!("--capacity {capacity}");
        let mut input = vec![b'x'; longest];
        input.extend(b"\nshort\n");
        input.extend(vec![b'y'; longest]);
        input.push(b'\n');
        assert!(
            dir.transfer(&sending, "", input.clone()) == input,
            "{capacity}"
        );
    }
}

#[test]
fn a_too_long_record_fails_both_sides_after_the_earlier_records() {
    let dir = TestDir::new();
    let receiver = dir.receiver("");
    let sender = dir.start("send", "--capacity 4096");
    let input = [b"before\n", &[b'x'; 2041][..], b"\nbehind\n"].concat();
    let words = [
        "line 2 has at least 2041 bytes",
        "more than 2040",
        "--capacity",
    ];
    sender.feed(input).failed(1, &words);
    let received = receiver
        .wait()
        .failed(1, &["after 1 records", "send again"]);
    assert_eq!(received.stdout, b"before\n");
}

#[test]
fn a_truncated_frame_fails_both_sides_after_the_earlier_records() {
    let dir = TestDir::new();
    let receiver = dir.receiver("");
    let sender = dir.start("send", "--framing length");
    let mut input = frames(&[b"whole", b"cut off"]);
    input.truncate(input.len() - 3);
    let words = ["within frame 2 after 8 of its bytes", "send again"];
    sender.feed(input).failed(1, &words);
    let received = receiver.wait().failed(1, &["the sender failed"]);
    assert_eq!(received.stdout, b"whole\n");
}

#[test]
fn a_record_is_not_delayed_until_the_next_one() {
    let dir = TestDir::new();
    let mut receiver = dir.receiver("");
    let mut sender = dir.start("send", "");
    for line in ["hello\n", "\n", "there\n"] {
        sender.write_input(line);
        assert_eq!(receiver.read_output(line.len()), line);
    }
    // An incomplete line is kept, the complete one before it is sent.
    sender.write_input("whole\nhalf");
    assert_eq!(receiver.read_output(6), "whole\n");
    sender.write_input(" and half\n");
    assert_eq!(receiver.read_output(14), "half and half\n");
    sender.wait().succeeded();
    receiver.wait().succeeded();
}

/// Writes lines of 0 to 255 bytes, and occasionally a long one.
fn write_lines(path: &std::path::Path, bytes: usize) {
    let mut file = BufWriter::new(File::create(path).expect("no file"));
    let mut rng = fastrand::Rng::with_seed(1);
    let mut written = 0;
    while written < bytes {
        let length = match rng.usize(..1024) {
            0 => 100_000,
            short => short & 0xff,
        };
        let mut line = vec![rng.lowercase() as u8; length];
        line.extend(format!("{written}\n").into_bytes());
        file.write_all(&line).expect("cannot write");
        written += line.len();
    }
    file.flush().expect("cannot write");
}

/// The checksum by a program that shares no code with the tested one.
fn sha256sum(path: &std::path::Path) -> String {
    let output = Command::new("sha256sum").arg(path).output();
    let output = output.expect("no sha256sum");
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout[..64]).into_owned()
}

#[test]
fn a_hundred_megabytes_of_lines_keep_their_checksum() {
    let dir = TestDir::new();
    let (input, output) = (dir.path().join("input"), dir.path().join("output"));
    write_lines(&input, 100_000_000);
    for capacity in ["256K", "16M"] {
        let receiver = dir
            .command("recv", "")
            .stdout(Stdio::from(File::create(&output).expect("no file")))
            .spawn();
        let sender = dir
            .command("send", &format!("--capacity {capacity}"))
            .stdin(Stdio::from(File::open(&input).expect("no file")))
            .output();
        let sent = sender.expect("no process");
        assert!(sent.status.success(), "{sent:?}");
        // The sender exits after the receiver has written everything.
        assert_eq!(sha256sum(&input), sha256sum(&output));
        let receiver = Running(receiver.expect("no process"));
        receiver.wait().succeeded();
    }
}
