// SPDX-License-Identifier: MIT OR Apache-2.0
//! The naive driver of kernel/baseline: /dev/myipc0 and /dev/myipc1, each one ring that all users of the node share. A link uses one node
//! in one direction, so there can be two links at a time. The driver has no end of file, and a reader of an empty ring blocks: at the
//! end, the sender stores the number of bytes sent in shared memory, and sends one more byte to wake the receiver, which checks that
//! number after each read. The word is not written before the end, so the check is cheap.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use sluice_testkit::clock;
use sluice_testkit::module::MYIPC;
use sluice_testkit::shared::SharedWords;

use super::stream::{StreamSender, read};
use super::{Link, Mechanism, Sender, Workload};
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
        unsupported_reason: Box::new(|task| {
            let is_several = matches!(task.workload, Workload::Connections | Workload::Many);
            is_several
                .then(|| "all users share its two rings, so there are no more channels".into())
        }),
        ..Mechanism::new(MYIPC.name, Waiting::Sleep, move |_| {
            let node = NODES[next.replace((next.get() + 1) % NODES.len())];
            drain(node)?;
            let total = SharedWords::new(1)?;
            total.set(0, UNKNOWN);
            Ok(Link::new(
                total,
                move |total| {
                    Ok(EndingSender {
                        file: StreamSender(open(File::options().write(true), node)?),
                        sent: 0,
                        total,
                    })
                },
                move |total| Ok(receiver(open(File::options().read(true), node)?, total)),
            ))
        })
    })
}

/// The total number of bytes before the end.
const UNKNOWN: u64 = u64::MAX;

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
        let (mut last, mut buffer) = (Vec::new(), [0; 4096]);
        while !last.ends_with(&mark) {
            let received = read(&output, &mut buffer)?;
            ensure!(received > 0, "unexpected end of file");
            last.extend(&buffer[..received]);
            // Keep only what may be the beginning of the mark.
            last.drain(..last.len().saturating_sub(mark.len()));
        }
        let sent = sending.join();
        let sent = sent.map_err(|_| anyhow!("the thread that sends the mark panicked"))?;
        sent.context("cannot send the mark")
    })
    .with_context(|| format!("cannot drain {node}"))
}

struct EndingSender {
    file: StreamSender,
    sent: u64,
    total: SharedWords,
}

impl Sender for EndingSender {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.sent += message.len() as u64;
        self.file.send(message)
    }
}

impl Drop for EndingSender {
    fn drop(&mut self) {
        self.total.set(0, self.sent);
        if let Err(error) = self.file.send(&[0]) {
            eprintln!("cannot wake the receiver at the end of the stream: {error:#}");
        }
    }
}

fn receiver(file: File, total: SharedWords) -> impl FnMut(&mut [u8]) -> Result<usize> {
    let (mut all, mut ended) = (0, false);
    move |message| {
        let mut filled = 0;
        while filled < message.len() && !ended {
            let received = read(&file, &mut message[filled..])?;
            ensure!(received > 0, "unexpected end of file");
            // The byte after the end wakes the receiver.
            let due = total.words()[0].load(Ordering::Acquire) - all;
            ended = received as u64 > due;
            let n = received - usize::from(ended);
            filled += n;
            all += n as u64;
        }
        Ok(filled)
    }
}
