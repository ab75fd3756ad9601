// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requirements on every mechanism, tested on any machine. Those of Sluice that need the module are not included.

use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, raise};
use sluice_testkit::workers::serial;
use sluice_testkit::workers::{Pair, Side, Start};

use super::rtt::RoundTrip;
use super::stream::{Length, Stream};
use super::{Confinement, PROCESS_TIMEOUT};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Job, Skipped};
use crate::mechanisms::{Link, Mechanism, Registry, Task, Workload};

const DURATION: Duration = Duration::from_millis(10);
const SIZES: [usize; 3] = [1, 1000, 65536];
/// Mechanisms that detect the death of the peer.
const DETECT_PEER_DEATH: [&str; 7] = [
    "pipe",
    "fifo",
    "unix-stream",
    "unix-seqpacket",
    "unix-dgram",
    "tcp",
    "mmap",
];

fn all() -> Vec<Rc<dyn Mechanism>> {
    let tree = Err(Skipped::unavailable("sluice-pipe", "not in unit tests"));
    Registry::new(&tree).with_third_party().available
}

fn named(name: &str) -> Rc<dyn Mechanism> {
    let found = all().into_iter().find(|one| one.name() == name);
    found.unwrap_or_else(|| panic!("{name} is not in the registry"))
}

fn placements() -> Vec<Placement> {
    let all = [Placement::SameCpu, Placement::TwoCpus];
    let available = |one: &Placement| one.cpus().unwrap().is_some();
    all.into_iter().filter(available).collect()
}

fn confinement(placement: Placement) -> Confinement {
    let cpus = placement.cpus().unwrap().unwrap();
    Confinement { cgroup: None, cpus }
}

/// Calls `test` with every mechanism that supports this workload; fails if there is none.
fn for_each_mechanism(workload: Workload, test: impl Fn(Rc<dyn Mechanism>, Task)) {
    let mut tested = 0;
    for mechanism in all() {
        for placement in placements() {
            for size in SIZES {
                let task = Task {
                    size,
                    placement,
                    workload,
                };
                if mechanism.unsupported_reason(&task).is_none() {
                    test(Rc::clone(&mechanism), task);
                    tested += 1;
                }
            }
        }
    }
    assert!(tested >= SIZES.len());
}

#[test]
fn every_byte_of_a_stream_arrives_before_the_end() {
    let _serial = serial();
    for_each_mechanism(Workload::Stream, |mechanism, task| {
        let what = format!("{} with {task:?}", mechanism.name());
        let stream = Stream {
            mechanism,
            confinement: confinement(task.placement),
            size: task.size,
            batch: None,
            length: Length::For(DURATION),
        };
        stream
            .check()
            .unwrap_or_else(|error| panic!("{what}: {error:#}"));
        let measurement = stream
            .measure()
            .unwrap_or_else(|error| panic!("{what}: {error:#}"));
        assert!(
            measurement.messages > 0 && measurement.elapsed_ns > 0,
            "{what}"
        );
    });
}

#[test]
fn requests_are_answered() {
    let _serial = serial();
    for_each_mechanism(Workload::RequestReply, |mechanism, task| {
        let what = format!("{} with {task:?}", mechanism.name());
        let confinement = confinement(task.placement);
        let round_trip = RoundTrip::new(mechanism, confinement, task.size, DURATION);
        round_trip
            .check()
            .unwrap_or_else(|error| panic!("{what}: {error:#}"));
        let measurement = round_trip
            .measure()
            .unwrap_or_else(|error| panic!("{what}: {error:#}"));
        assert!(!measurement.samples.is_empty(), "{what}");
    });
}

/// Mechanisms that carry a single byte; without those that run only in external programs.
fn round_trip_mechanisms() -> impl Iterator<Item = Rc<dyn Mechanism>> {
    let task = Task {
        size: 1,
        placement: placements().pop().unwrap(),
        workload: Workload::RequestReply,
    };
    all()
        .into_iter()
        .filter(|one| one.name() != "aeron")
        .filter(move |one| one.unsupported_reason(&task).is_none())
}

/// The end of the stream is dropping the sender, not the exit of its process.
#[test]
fn a_receiver_sees_the_end_while_the_sender_process_runs() {
    let _serial = serial();
    for mechanism in round_trip_mechanisms() {
        let links = [mechanism.link(1).unwrap(), mechanism.link(1).unwrap()];
        let role = |side, [forward, backward]: [Box<dyn Link>; 2], start: &mut Start| match side {
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
        let run = || -> Result<_> {
            let mut pair = Pair::start(links, PROCESS_TIMEOUT, role)?;
            pair.go()?;
            pair.finish(PROCESS_TIMEOUT)
        };
        let outcome = run();
        assert!(outcome.is_ok(), "{}: {outcome:?}", mechanism.name());
    }
}

/// Kills one side in the middle of a stream of bytes. Returns the error of the pair.
fn failure_when_killed(mechanism: &dyn Mechanism, killed: Side) -> String {
    let link = mechanism.link(1).unwrap();
    let begin = Instant::now();
    let mut pair = Pair::start(link, PROCESS_TIMEOUT, |side, link, start| match side {
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
    pair.go().unwrap();
    let error = pair.finish(PROCESS_TIMEOUT).unwrap_err();
    let text = format!("{}: {error:#}", mechanism.name());
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
        if DETECT_PEER_DEATH.contains(&mechanism.name()) {
            assert!(detected, "{text}");
        }
    }
}

#[test]
fn a_receiver_whose_sender_was_killed_sees_the_end() {
    let _serial = serial();
    for name in DETECT_PEER_DEATH
        .into_iter()
        .filter(|name| *name != "unix-dgram")
    {
        let text = failure_when_killed(named(name).as_ref(), Side::First);
        assert!(!text.contains("timed out"), "{text}");
    }
}

/// The isolation suite needs stalled pairs that sleep.
#[test]
fn a_sender_sleeps_while_the_buffer_is_full() {
    let _serial = serial();
    let task = Task {
        size: 1000,
        placement: Placement::SameCpu,
        workload: Workload::Stream,
    };
    for mechanism in all()
        .iter()
        .filter(|one| one.unsupported_reason(&task).is_none())
    {
        let link = mechanism.link(task.size).unwrap();
        let mut pair = Pair::start(link, PROCESS_TIMEOUT, |side, link, start| match side {
            Side::First => {
                let mut sender = link.sender()?;
                start.wait()?;
                loop {
                    sender.send(&[0; 1000])?;
                }
            }
            Side::Second => {
                let _receiver = link.receiver()?;
                start.wait()?;
                loop {
                    sleep(Duration::MAX);
                }
            }
        })
        .unwrap();
        pair.go().unwrap();
        let deadline = Instant::now() + PROCESS_TIMEOUT;
        let mut asleep = 0;
        while asleep < 5 {
            assert!(
                Instant::now() < deadline,
                "{} never sleeps",
                mechanism.name()
            );
            sleep(Duration::from_millis(10));
            asleep = match pair.worker(Side::First).is_asleep().unwrap() {
                true => asleep + 1,
                false => 0,
            };
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
    for mechanism in all() {
        let link = mechanism
            .unsupported_reason(&task)
            .is_none()
            .then(|| mechanism.link(task.size));
        if let Some(link) = link {
            let sender = link.unwrap().sender().unwrap();
            assert!(sender.file().is_some(), "{}", mechanism.name());
        }
    }
    for name in ["pipe", "fifo", "unix-stream", "tcp"] {
        assert_eq!(named(name).unsupported_reason(&task), None, "{name}");
    }
    for name in [
        "unix-seqpacket",
        "unix-dgram",
        "posix-mq",
        "sysv-mq",
        "signal",
        "mmap",
    ] {
        assert!(named(name).unsupported_reason(&task).is_some(), "{name}");
    }
}
