// SPDX-License-Identifier: MIT OR Apache-2.0
//! The naive driver of kernel/baseline: /dev/myipc0 and /dev/myipc1, each one ring that all users of the node share. A
//! link uses one node in one direction, and a round trip uses both, so there can be two links at a time.
//!
//! The driver has no end of file, and a reader of an empty ring blocks. At the end, the sender therefore stores the
//! number of bytes sent in shared memory, and sends one more byte to wake the receiver. After each read the receiver
//! checks whether it has received that number. The word is not written before the end, so the check is cheap, and
//! messages need no header.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use sluice_testkit::clock;
use sluice_testkit::module::MYIPC;
use sluice_testkit::shared::SharedWords;

use super::stream::{StreamSender, read};
use super::{Link, Mechanism, Receiver, Sender, Workload};
use crate::harness::rounds::Skipped;
use crate::harness::waiting::Waiting;

const NODES: [&str; 2] = [MYIPC.node, "/dev/myipc1"];

pub fn mechanism() -> Result<Mechanism, Skipped> {
    if !Path::new(MYIPC.node).exists() {
        return Err(Skipped::unavailable(MYIPC.name, MYIPC.how_to_load()));
    }
    // The node of the next link.
    let next = Cell::new(0);
    Ok(Mechanism {
        is_file: true,
        unsupported_reason: Box::new(|task| {
            let reason = match task.workload {
                Workload::File => "it has no end of file",
                Workload::Connections | Workload::Many | Workload::Pairs => {
                    "all users share its two rings, so there are no more channels"
                }
                _ => return None,
            };
            Some(reason.into())
        }),
        ..Mechanism::new(MYIPC.name, Waiting::Sleep, move |_| {
            let node = NODES[next.replace((next.get() + 1) % NODES.len())];
            drain(node)?;
            Ok(Link::new(
                End::new()?,
                move |end| Ok(end.sender(open(File::options().write(true), node)?)),
                move |end| Ok(end.receiver(open(File::options().read(true), node)?)),
            ))
        })
    })
}

fn open(options: &mut OpenOptions, node: &str) -> Result<File> {
    options.open(node).with_context(|| {
        format!("cannot open {node}; load the naive driver with --baseline as root")
    })
}

/// Removes data that killed processes left. Reading an empty ring blocks, so a mark is sent after the data and read up
/// to. Another thread sends it, because the ring may be too full for the mark.
fn drain(node: &str) -> Result<()> {
    let mark = format!("<{}:{}>", std::process::id(), clock::now_ns()).into_bytes();
    let mut input = open(File::options().write(true), node)?;
    let output = open(File::options().read(true), node)?;
    thread::scope(|scope| {
        let sending = scope.spawn(|| input.write_all(&mark));
        read_up_to(&output, &mark)?;
        let sent = sending.join();
        let sent = sent.map_err(|_| anyhow!("the thread that sends the mark panicked"))?;
        sent.context("cannot send the mark")
    })
    .with_context(|| format!("cannot drain {node}"))
}

fn read_up_to(output: &File, mark: &[u8]) -> Result<()> {
    let mut last = Vec::new();
    let mut buffer = [0; 4096];
    while !last.ends_with(mark) {
        let received = read(output, &mut buffer)?;
        ensure!(received > 0, "unexpected end of file");
        last.extend(&buffer[..received]);
        // Keep only what may be the beginning of the mark.
        last.drain(..last.len().saturating_sub(mark.len()));
    }
    Ok(())
}

/// The total number of bytes sent; u64::MAX until it is known.
#[derive(Clone)]
struct End(Rc<SharedWords>);

impl End {
    fn new() -> Result<Self> {
        let words = SharedWords::new(1)?;
        words.set(0, u64::MAX);
        Ok(Self(Rc::new(words)))
    }

    fn bytes(&self) -> u64 {
        self.0.words()[0].load(Ordering::Acquire)
    }

    fn sender(self, file: File) -> EndingSender {
        EndingSender {
            file: StreamSender(file),
            sent: 0,
            end: self,
        }
    }

    fn receiver(self, file: File) -> EndingReceiver {
        EndingReceiver {
            file,
            received: 0,
            ended: false,
            end: self,
        }
    }
}

struct EndingSender {
    file: StreamSender,
    sent: u64,
    end: End,
}

impl Sender for EndingSender {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.sent += message.len() as u64;
        self.file.send(message)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.file()
    }
}

impl Drop for EndingSender {
    fn drop(&mut self) {
        self.end.0.set(0, self.sent);
        if let Err(error) = self.file.send(&[0]) {
            eprintln!("cannot wake the receiver at the end of the stream: {error:#}");
        }
    }
}

struct EndingReceiver {
    file: File,
    received: u64,
    ended: bool,
    end: End,
}

impl Receiver for EndingReceiver {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < message.len() && !self.ended {
            let received = read(&self.file, &mut message[filled..])?;
            ensure!(received > 0, "unexpected end of file");
            // The byte after the end wakes the receiver.
            let due = self.end.bytes() - self.received;
            self.ended = received as u64 > due;
            let n = received - usize::from(self.ended);
            filled += n;
            self.received += n as u64;
        }
        Ok(filled)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

/// A pipe replaces the ring.
#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> (File, File) {
        let (output, input) = nix::unistd::pipe().unwrap();
        (output.into(), input.into())
    }

    #[test]
    fn old_data_is_read_up_to_a_mark_in_several_pieces() {
        let (output, mut input) = pipe();
        let sending = thread::spawn(move || {
            for piece in [&b"left <1:2 over<1"[..], b":2", b">"] {
                input.write_all(piece).unwrap();
                thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        read_up_to(&output, b"<1:2>").unwrap();
        sending.join().unwrap();
        assert!(read_up_to(&output, b"<1:2>").is_err());
    }

    #[test]
    fn the_end_is_reported_and_its_byte_is_not_delivered() {
        let (output, input) = pipe();
        let end = End::new().unwrap();
        let mut sender = end.clone().sender(input.try_clone().unwrap());
        let mut receiver = end.receiver(output);
        let mut message = [0; 4];
        sender.send(b"abcd").unwrap();
        assert_eq!(receiver.receive(&mut message).unwrap(), 4);
        sender.send(b"ef").unwrap();
        drop(sender);
        // The byte that wakes is read together with the last bytes, and the end of file is not reached.
        let _kept_open = input;
        assert_eq!(receiver.receive(&mut message).unwrap(), 2);
        assert_eq!(&message[..2], b"ef");
        assert_eq!(receiver.receive(&mut message).unwrap(), 0);
    }
}
