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

use super::isolation;
use super::rtt::RoundTrip;
use super::setup::tests::setup_in;
use super::setup::{PROCESS_TIMEOUT, run};
use super::stream::{Data, Length, Stream};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Job, Skipped};
use crate::mechanisms::{Link, Mechanism, Registry, Task, Workload};

const DURATION: Duration = Duration::from_millis(10);
/// Every placement and every size, not all combinations.
const CONDITIONS: [(Placement, usize); 3] = [
    (Placement::SameCpu, 1000),
    (Placement::TwoCpus, 1),
    (Placement::TwoCpus, 65536),
];
/// Mechanisms that detect the death of the peer.
const DETECT_PEER_DEATH: [&str; 15] = [
    "pipe",
    "pipe-large",
    "pipe-nonblock",
    "fifo",
    "unix-stream",
    "unix-stream-large",
    "unix-nonblock",
    "unix-seqpacket",
    "unix-dgram",
    "tcp",
    "tcp-coalescing",
    "vsock",
    "mmap",
    "sluice-pipe",
    "sluice-ring",
];

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
    let tree = cgroups();
    Registry::new(&tree).with_third_party().available
}

fn named(name: &str) -> Rc<Mechanism> {
    let found = all().into_iter().find(|one| one.name == name);
    found.unwrap_or_else(|| panic!("{name} is not in the registry"))
}

/// Where this process may use only one processor, both sides are on it.
fn available(placement: Placement) -> Placement {
    match placement.cpus().unwrap() {
        Some(_) => placement,
        None => Placement::SameCpu,
    }
}

/// Calls `test` with every mechanism that supports this workload; fails if there is none.
fn for_each_mechanism(workload: Workload, test: impl Fn(Rc<Mechanism>, Task) -> Result<()>) {
    let mut tested = 0;
    for mechanism in all() {
        for (placement, size) in CONDITIONS {
            let task = Task {
                size,
                placement: available(placement),
                workload,
            };
            if mechanism.unsupported_reason(&task).is_none() {
                let outcome = test(Rc::clone(&mechanism), task);
                outcome
                    .unwrap_or_else(|error| panic!("{} with {task:?}: {error:#}", mechanism.name));
                tested += 1;
            }
        }
    }
    assert!(tested >= CONDITIONS.len());
}

#[test]
fn every_byte_of_a_stream_arrives_before_the_end() {
    let _serial = serial();
    for_each_mechanism(Workload::Stream, |mechanism, task| {
        let stream = Stream::new(
            setup_in(task.placement, mechanism, task.size),
            Length::For(DURATION),
        );
        stream.check()?;
        let measurement = stream.measure()?;
        ensure!(measurement.messages > 0 && measurement.elapsed_ns > 0);
        Ok(())
    });
}

#[test]
fn every_byte_of_a_stream_in_place_arrives() {
    let _serial = serial();
    for_each_mechanism(Workload::InPlace, |mechanism, task| {
        let stream = Stream {
            data: Data::InPlace,
            ..Stream::new(
                setup_in(task.placement, mechanism, task.size),
                Length::For(DURATION),
            )
        };
        stream.check()?;
        ensure!(stream.measure()?.messages > 0);
        Ok(())
    });
}

#[test]
fn requests_are_answered() {
    let _serial = serial();
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
    let task = Task {
        size: 1,
        placement: available(Placement::TwoCpus),
        workload: Workload::RequestReply,
    };
    all()
        .into_iter()
        .filter(move |one| one.unsupported_reason(&task).is_none())
}

/// The end of the stream is dropping the sender, not the exit of its process.
#[test]
fn a_receiver_sees_the_end_while_the_sender_process_runs() {
    let _serial = serial();
    for mechanism in round_trip_mechanisms() {
        let links = [mechanism.link(1).unwrap(), mechanism.link(1).unwrap()];
        let role = |side, [forward, backward]: [Link; 2], start: &mut Start| match side {
            Side::First => {
                let (mut sender, mut receiver) = (forward.sender()?, backward.receiver()?);
                start.wait()?;
                sender.send(b"a")?;
                ensure!(receiver.receive(&mut [0])? == 1, "there was no reply");
                drop(sender);
                // The peer ends its stream only after it has seen the end of this one.
                ensure!(
                    receiver.receive(&mut [0])? == 0,
                    "data arrived after the reply"
                );
                Ok(Vec::new())
            }
            Side::Second => {
                let (mut receiver, mut sender) = (forward.receiver()?, backward.sender()?);
                start.wait()?;
                ensure!(receiver.receive(&mut [0])? == 1, "there was no message");
                sender.send(b"b")?;
                ensure!(
                    receiver.receive(&mut [0])? == 0,
                    "data arrived after the message"
                );
                Ok(Vec::new())
            }
        };
        let pair = Pair::start(links, PROCESS_TIMEOUT, role);
        let outcome = pair.and_then(|pair| run(pair, PROCESS_TIMEOUT));
        assert!(outcome.is_ok(), "{}: {outcome:?}", mechanism.name);
    }
}

/// Kills one side in the middle of a stream of bytes. Returns the error of the pair.
fn failure_when_killed(mechanism: &Mechanism, killed: Side) -> String {
    let link = mechanism.link(1).unwrap();
    let begin = Instant::now();
    let pair = Pair::start(link, PROCESS_TIMEOUT, |side, link, start| match side {
        Side::First => {
            let mut sender = link.sender()?;
            start.wait()?;
            for sent in 0.. {
                sender.send(b"a")?;
                if sent == 10 && killed == Side::First {
                    raise(Signal::SIGKILL)?;
                }
            }
            Ok(Vec::new())
        }
        Side::Second => {
            let mut receiver = link.receiver()?;
            start.wait()?;
            if killed == Side::Second {
                receiver.receive(&mut [0])?;
                raise(Signal::SIGKILL)?;
            }
            while receiver.receive(&mut [0])? == 1 {}
            Ok(Vec::new())
        }
    })
    .unwrap();
    let error = run(pair, PROCESS_TIMEOUT).unwrap_err();
    let text = format!("{}: {error:#}", mechanism.name);
    assert!(begin.elapsed() < PROCESS_TIMEOUT / 2, "{text}");
    assert!(text.contains("died without a report"), "{text}");
    text
}

#[test]
fn a_sender_whose_receiver_was_killed_does_not_hang() {
    let _serial = serial();
    for mechanism in round_trip_mechanisms() {
        let text = failure_when_killed(mechanism.as_ref(), Side::Second);
        let detected = !text.contains("timed out");
        if DETECT_PEER_DEATH.contains(&mechanism.name) {
            assert!(detected, "{text}");
        }
    }
}

#[test]
fn a_receiver_whose_sender_was_killed_sees_the_end() {
    let _serial = serial();
    let detect =
        |one: &Rc<Mechanism>| DETECT_PEER_DEATH.contains(&one.name) && one.name != "unix-dgram";
    for mechanism in round_trip_mechanisms().filter(detect) {
        let text = failure_when_killed(mechanism.as_ref(), Side::First);
        assert!(!text.contains("timed out"), "{text}");
    }
}

/// The isolation suite needs stalled pairs that sleep.
#[test]
fn a_sender_sleeps_while_the_buffer_is_full() {
    let _serial = serial();
    let task = Task {
        size: isolation::SIZE,
        placement: Placement::SameCpu,
        workload: Workload::Stalled,
    };
    for mechanism in all() {
        if mechanism.unsupported_reason(&task).is_none() {
            let setup = setup_in(task.placement, Rc::clone(&mechanism), task.size);
            let mut pair = setup.pair(isolation::fill, isolation::stall).unwrap();
            pair.go().unwrap();
            let stalled = isolation::wait_until_stalled(&[pair]);
            assert!(stalled.is_ok(), "{}: {stalled:?}", mechanism.name);
        }
    }
}

#[test]
fn only_mechanisms_with_a_file_support_tar() {
    let task = Task {
        size: 10_240,
        placement: Placement::SameCpu,
        workload: Workload::File,
    };
    // An open of sluice-pipe waits for the other side.
    for mechanism in all().into_iter().filter(|one| one.name != "sluice-pipe") {
        let link = mechanism
            .unsupported_reason(&task)
            .is_none()
            .then(|| mechanism.link(task.size));
        if let Some(link) = link {
            let sender = link.unwrap().sender().unwrap();
            assert!(sender.file().is_some(), "{}", mechanism.name);
        }
    }
    for name in ["pipe", "pipe-large", "fifo", "unix-stream", "tcp"] {
        assert_eq!(named(name).unsupported_reason(&task), None, "{name}");
    }
    for name in [
        "unix-seqpacket",
        "unix-dgram",
        "pipe-nonblock",
        "posix-mq",
        "process-vm",
        "sysv-mq",
        "signal",
        "mmap",
    ] {
        assert!(named(name).unsupported_reason(&task).is_some(), "{name}");
    }
}
