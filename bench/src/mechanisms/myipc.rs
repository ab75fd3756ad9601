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
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::{Context, Result, anyhow};
use sluice_testkit::cgroup::{Cgroup, Tree};
use sluice_testkit::clock;
use sluice_testkit::module::MYIPC;
use sluice_testkit::shared::SharedWords;

use super::stream::{StreamReceiver, StreamSender};
use super::{Link, Mechanism, Receiver, Sender, Workload};
use crate::harness::rounds::Skipped;
use crate::harness::waiting::Waiting;

const NODES: [&str; 2] = [MYIPC.node, "/dev/myipc1"];

/// Pairs that share the node are in cgroups of `tree`.
pub fn mechanism(tree: Option<&Rc<Tree>>) -> Result<Mechanism, Skipped> {
    if !Path::new(MYIPC.node).exists() {
        return Err(Skipped::unavailable(MYIPC.name, MYIPC.how_to_load()));
    }
    let (tree, has_cgroups) = (tree.cloned(), tree.is_some());
    // The node of the next link.
    let next = Cell::new(0);
    Ok(Mechanism {
        unsupported_reason: Box::new(move |task| unsupported_reason(task.workload, has_cgroups)),
        links_by_name: Some(Box::new(move |pairs| {
            let tree = tree.as_ref().context("there are no cgroups")?;
            drain(NODES[0])?;
            let link = |_| Ok(endless_link(tree.create_cgroup()?));
            (0..pairs).map(link).collect()
        })),
        ..Mechanism::new(MYIPC.name, Waiting::Sleep, move |_| {
            one_way(NODES[next.replace((next.get() + 1) % NODES.len())])
        })
    })
}

fn unsupported_reason(workload: Workload, has_cgroups: bool) -> Option<String> {
    let reason = match workload {
        Workload::File => "it has no end of file",
        Workload::Stalled => "all users share its two rings, so one pair cannot be stalled alone",
        Workload::Connections | Workload::Many | Workload::Pairs => {
            "all users share its two rings, so there are no more channels"
        }
        Workload::SharedName if !has_cgroups => {
            "its pairs need cgroups, which require the module of Sluice; add --module"
        }
        Workload::RequestReply | Workload::Stream | Workload::InPlace | Workload::SharedName => {
            return None;
        }
    };
    Some(reason.into())
}

fn one_way(node: &'static str) -> Result<Link> {
    drain(node)?;
    Ok(Link::new(
        End::new()?,
        move |end| {
            Ok(EndingSender {
                file: open(File::options().write(true), node)?,
                sent: 0,
                end,
            })
        },
        move |end| {
            Ok(EndingReceiver {
                file: open(File::options().read(true), node)?,
                received: 0,
                ended: false,
                end,
            })
        },
    ))
}

/// One of several pairs on the first node, in its own cgroup, which the driver ignores. It has no end, because any
/// receiver could take the mark.
fn endless_link(cgroup: Cgroup) -> Link {
    let open = |cgroup: Cgroup, options: &mut OpenOptions| {
        cgroup.enter()?;
        open(options, NODES[0])
    };
    Link::new(
        cgroup,
        move |cgroup| Ok(StreamSender(open(cgroup, File::options().write(true))?)),
        move |cgroup| Ok(StreamReceiver(open(cgroup, File::options().read(true))?)),
    )
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
    let mut output = open(File::options().read(true), node)?;
    thread::scope(|scope| {
        let sending = scope.spawn(|| input.write_all(&mark));
        read_up_to(&mut output, &mark)?;
        let sent = sending
            .join()
            .map_err(|_| anyhow!("the thread that sends the mark panicked"))?;
        sent.context("cannot send the mark")
    })
    .with_context(|| format!("cannot drain {node}"))
}

fn read_up_to(output: &mut impl Read, mark: &[u8]) -> Result<()> {
    let mut last = Vec::new();
    while !last.ends_with(mark) {
        last.extend(read_some(output, &mut [0; 4096])?);
        // Keep only what may be the beginning of the mark.
        last.drain(..last.len().saturating_sub(mark.len()));
    }
    Ok(())
}

fn read_some<'a>(input: &mut impl Read, buffer: &'a mut [u8]) -> Result<&'a [u8]> {
    loop {
        match input.read(buffer) {
            Ok(0) => return Err(anyhow!("unexpected end of file")),
            Ok(n) => return Ok(&buffer[..n]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot read a message"),
        }
    }
}

/// The total number of bytes sent, once it is known.
#[derive(Clone)]
struct End(Rc<SharedWords>);

impl End {
    fn new() -> Result<Self> {
        let words = SharedWords::new(1)?;
        words.words()[0].store(u64::MAX, Ordering::Relaxed);
        Ok(Self(Rc::new(words)))
    }

    fn store(&self, bytes: u64) {
        self.0.words()[0].store(bytes, Ordering::Release);
    }

    /// u64::MAX until it is known.
    fn bytes(&self) -> u64 {
        self.0.words()[0].load(Ordering::Acquire)
    }
}

struct EndingSender<W: Write> {
    file: W,
    sent: u64,
    end: End,
}

impl<W: Write + AsFd> Sender for EndingSender<W> {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.file
            .write_all(message)
            .context("cannot write a message")?;
        self.sent += message.len() as u64;
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

impl<W: Write> Drop for EndingSender<W> {
    fn drop(&mut self) {
        self.end.store(self.sent);
        if let Err(error) = self.file.write_all(&[0]) {
            eprintln!("cannot wake the receiver at the end of the stream: {error}");
        }
    }
}

struct EndingReceiver<R: Read> {
    file: R,
    received: u64,
    ended: bool,
    end: End,
}

impl<R: Read + AsFd> Receiver for EndingReceiver<R> {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < message.len() && !self.ended {
            let received = read_some(&mut self.file, &mut message[filled..])?.len();
            // The byte after the end is the one that wakes.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_data_is_read_up_to_a_mark_in_several_pieces() {
        let mut ring = b"left <1:2 over<1".chain(&b":2"[..]).chain(&b">"[..]);
        read_up_to(&mut ring, b"<1:2>").unwrap();
        assert_eq!(ring.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_stream_without_its_mark_is_an_error() {
        let mut ring: &[u8] = b"left <1:2 over";
        assert!(read_up_to(&mut ring, b"<1:2>").is_err());
    }

    /// A pipe replaces the ring: its end of file is never reached.
    #[test]
    fn the_end_is_reported_and_its_byte_is_not_delivered() {
        let (output, input) = nix::unistd::pipe().unwrap();
        let end = End::new().unwrap();
        let mut sender = EndingSender {
            file: File::from(input.try_clone().unwrap()),
            sent: 0,
            end: end.clone(),
        };
        let mut receiver = EndingReceiver {
            file: File::from(output),
            received: 0,
            ended: false,
            end,
        };
        let mut message = [0; 4];
        sender.send(b"abcd").unwrap();
        assert_eq!(receiver.receive(&mut message).unwrap(), 4);
        sender.send(b"ef").unwrap();
        drop(sender);
        // The byte that wakes is read together with the last bytes.
        let _kept_open = input;
        assert_eq!(receiver.receive(&mut message).unwrap(), 2);
        assert_eq!(&message[..2], b"ef");
        assert_eq!(receiver.receive(&mut message).unwrap(), 0);
    }
}
