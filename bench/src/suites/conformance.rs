// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requirements on every mechanism, tested on any machine. Those of Sluice that need the module are included where it is
//! loaded: CONTRIBUTING.md has the command that runs these tests in the VM.

use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, raise};
use sluice_testkit::cgroup::Tree;
use sluice_testkit::module::SLUICE;
use sluice_testkit::workers::{Pair, Side, Start, serial};

use super::rtt::RoundTrip;
use super::setup::tests::setup_in;
use super::setup::{PROCESS_TIMEOUT, run};
use super::stream::{Data, Length, Stream};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Job, Skipped};
use crate::mechanisms::registry::Registry;
use crate::mechanisms::{Link, Mechanism, Task, Workload};

const DURATION: Duration = Duration::from_millis(10);
/// Every placement and every size, not all combinations.
const CONDITIONS: [(Placement, usize); 3] = [
    (Placement::SameCpu, 1000),
    (Placement::TwoCpus, 1),
    (Placement::TwoCpus, 65536),
];
/// Mechanisms that detect the death of the peer.
const DETECT_PEER_DEATH: &str = "pipe pipe-large pipe-nonblock fifo unix-stream unix-stream-large unix-nonblock \
    unix-seqpacket unix-dgram tcp tcp-coalescing sluice-pipe sluice-ring";
const FILES: &str = "pipe pipe-large fifo unix-stream tcp";
const NO_FILES: &str = "pipe-nonblock unix-seqpacket unix-dgram posix-mq mmap";

fn is_in(names: &str, name: &str) -> bool {
    names.split(' ').any(|one| one == name)
}

/// Cgroups for Sluice's mechanisms, if the module is loaded. Tests that run at the same time have their own.
fn cgroups() -> Result<Rc<Tree>, Skipped> {
    static TREES: AtomicUsize = AtomicUsize::new(0);
    if !Path::new(SLUICE.node).exists() {
        return Err(Skipped::unavailable("sluice-pipe", SLUICE.how_to_load()));
    }
    let number = TREES.fetch_add(1, Ordering::Relaxed);
    let tree = Tree::create(&format!("sluice-conformance-{number}"));
    Ok(Rc::new(tree.unwrap()))
}

fn all() -> Vec<Rc<Mechanism>> {
    Registry::new(&cgroups()).with_third_party().available
}

/// Where this process may use only one processor, both sides are on it.
fn task(workload: Workload, placement: Placement, size: usize) -> Task {
    let placement = match placement.cpus().unwrap() {
        Some(_) => placement,
        None => Placement::SameCpu,
    };
    Task {
        size,
        placement,
        workload,
    }
}

/// Calls `test` with every mechanism that supports this workload; fails if there is none.
fn for_each_mechanism(workload: Workload, test: impl Fn(Rc<Mechanism>, Task) -> Result<()>) {
    let _serial = serial();
    let mut tested = 0;
    for mechanism in all() {
        let tasks = CONDITIONS.map(|(placement, size)| task(workload, placement, size));
        for task in tasks {
            if mechanism.unsupported_reason(&task).is_none() {
                let outcome = test(Rc::clone(&mechanism), task);
                outcome
                    .unwrap_or_else(|error| panic!("{} with {task:?}: {error:#}", mechanism.label));
                tested += 1;
            }
        }
    }
    assert!(tested >= CONDITIONS.len());
}

fn stream(mechanism: Rc<Mechanism>, task: Task, data: Data) -> Result<()> {
    let setup = setup_in(task.placement, mechanism, task.size);
    let stream = Stream {
        data,
        ..Stream::new(setup, Length::For(DURATION))
    };
    stream.check()?;
    let measurement = stream.measure()?;
    ensure!(measurement.messages > 0 && measurement.elapsed_ns > 0);
    Ok(())
}

#[test]
fn every_byte_of_a_stream_arrives_before_the_end() {
    for_each_mechanism(Workload::Stream, |mechanism, task| {
        stream(mechanism, task, Data::Untouched)
    });
}

#[test]
fn every_byte_of_a_stream_in_place_arrives() {
    for_each_mechanism(Workload::InPlace, |mechanism, task| {
        stream(mechanism, task, Data::InPlace)
    });
}

#[test]
fn requests_are_answered() {
    for_each_mechanism(Workload::RequestReply, |mechanism, task| {
        let setup = setup_in(task.placement, mechanism, task.size);
        let round_trip = RoundTrip::new(setup, DURATION);
        round_trip.check()?;
        ensure!(!round_trip.measure()?.samples.is_empty());
        Ok(())
    });
}

/// Mechanisms that carry a single byte.
fn round_trip_mechanisms() -> impl Iterator<Item = Rc<Mechanism>> {
    let task = task(Workload::RequestReply, Placement::TwoCpus, 1);
    let all = all().into_iter();
    all.filter(move |one| one.unsupported_reason(&task).is_none())
}

/// The end of the stream is dropping the sender, not the exit of its process.
#[test]
fn a_receiver_sees_the_end_while_the_sender_process_runs() {
    let _serial = serial();
    for mechanism in round_trip_mechanisms() {
        let links = [mechanism.link(1).unwrap(), mechanism.link(1).unwrap()];
        let role = |side, [forward, backward]: [Link; 2], start: &mut Start| {
            let (mut sender, mut receiver) = match side {
                Side::First => (forward.sender()?, backward.receiver()?),
                Side::Second => {
                    let receiver = forward.receiver()?;
                    (backward.sender()?, receiver)
                }
            };
            start.wait()?;
            if side == Side::First {
                sender.send(b"a")?;
            }
            ensure!(receiver.receive(&mut [0])? == 1, "there was no message");
            // The second side ends its stream only after it has seen the end of the first one.
            match side {
                Side::First => drop(sender),
                Side::Second => sender.send(b"b")?,
            }
            ensure!(
                receiver.receive(&mut [0])? == 0,
                "data arrived after the end"
            );
            Ok(Vec::new())
        };
        let pair = Pair::start(links, PROCESS_TIMEOUT, role);
        let outcome = pair.and_then(|pair| run(pair, PROCESS_TIMEOUT));
        assert!(outcome.is_ok(), "{}: {outcome:?}", mechanism.label);
    }
}

/// Kills one side in the middle of a stream of bytes. Returns the error of the pair.
fn failure_when_killed(mechanism: &Mechanism, killed: Side) -> String {
    let link = mechanism.link(1).unwrap();
    let begin = Instant::now();
    let role = |side, link: Link, start: &mut Start| {
        let mut transfer: Box<dyn FnMut() -> Result<usize>> = match side {
            Side::First => {
                let mut sender = link.sender()?;
                Box::new(move || sender.send(b"a").map(|()| 1))
            }
            Side::Second => {
                let mut receiver = link.receiver()?;
                Box::new(move || receiver.receive(&mut [0]))
            }
        };
        start.wait()?;
        let mut messages = 0;
        while transfer()? == 1 {
            messages += 1;
            if messages == 10 && side == killed {
                raise(Signal::SIGKILL)?;
            }
        }
        Ok(Vec::new())
    };
    let pair = Pair::start(link, PROCESS_TIMEOUT, role).unwrap();
    let error = run(pair, PROCESS_TIMEOUT).unwrap_err();
    let text = format!("{}: {error:#}", mechanism.label);
    assert!(begin.elapsed() < PROCESS_TIMEOUT / 2, "{text}");
    assert!(text.contains("died without a report"), "{text}");
    text
}

#[test]
fn the_other_side_of_a_killed_process_does_not_hang() {
    let _serial = serial();
    for mechanism in round_trip_mechanisms() {
        let detects = is_in(DETECT_PEER_DEATH, mechanism.name);
        let text = failure_when_killed(&mechanism, Side::Second);
        assert!(!detects || !text.contains("timed out"), "{text}");
        // The receiver of a datagram does not detect it.
        if detects && mechanism.name != "unix-dgram" {
            let text = failure_when_killed(&mechanism, Side::First);
            assert!(!text.contains("timed out"), "{text}");
        }
    }
}

#[test]
fn only_mechanisms_with_a_file_support_tar() {
    let task = task(Workload::File, Placement::SameCpu, 10_240);
    for mechanism in all() {
        let (name, reason) = (mechanism.name, mechanism.unsupported_reason(&task));
        assert!(!is_in(FILES, name) || reason.is_none(), "{name}");
        assert!(!is_in(NO_FILES, name) || reason.is_some(), "{name}");
        // An open of sluice-pipe waits for the other side.
        if reason.is_none() && name != "sluice-pipe" {
            let sender = mechanism.link(task.size).unwrap().sender().unwrap();
            assert!(sender.file().is_some(), "{name}");
        }
    }
}
