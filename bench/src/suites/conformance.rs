// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requirements on every mechanism, tested on any machine. Those of Sluice that need the module are included where it is
//! loaded: CONTRIBUTING.md has the command that runs these tests in the VM.

use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, raise};
use sluice_testkit::cgroup::Tree;
use sluice_testkit::module::SLUICE;
use sluice_testkit::workers::{Side, Start, serial};

use super::rtt::RoundTrip;
use super::setup::tests::setup_in;
use super::setup::{PROCESS_TIMEOUT, Setup};
use super::stream::{Data, Length, Stream};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Job, Skipped};
use crate::mechanisms::registry::Registry;
use crate::mechanisms::{Ends, Mechanism, Task, Workload};

const DURATION: Duration = Duration::from_millis(10);
/// Every placement and every size, not all combinations.
const CONDITIONS: [(Placement, usize); 3] = [
    (Placement::SameCpu, 1000),
    (Placement::TwoCpus, 1),
    (Placement::TwoCpus, 65536),
];
/// Mechanisms that detect the death of the peer.
const DETECT_PEER_DEATH: &str =
    "pipe pipe-large fifo unix-stream unix-seqpacket sluice-pipe sluice-ring";

/// Those of Sluice are included if the module is loaded.
fn all() -> Vec<Rc<Mechanism>> {
    let cgroups = match Path::new(SLUICE.node).exists() {
        true => Ok(Rc::new(Tree::create("sluice-conformance").unwrap())),
        false => Err(Skipped::unavailable("sluice-pipe", SLUICE.how_to_load())),
    };
    Registry::new(&cgroups).with_third_party().available
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

#[test]
fn every_byte_arrives_before_the_end() {
    let _serial = serial();
    let mut tested = 0;
    for mechanism in all() {
        for (placement, size) in CONDITIONS {
            for workload in [Workload::Stream, Workload::InPlace, Workload::RequestReply] {
                let task = task(workload, placement, size);
                if mechanism.unsupported_reason(&task).is_none() {
                    let outcome = transfer(Rc::clone(&mechanism), task);
                    let name = &mechanism.label;
                    assert!(outcome.is_ok(), "{name} with {task:?}: {outcome:?}");
                    tested += 1;
                }
            }
        }
    }
    assert!(tested >= CONDITIONS.len());
}

fn transfer(mechanism: Rc<Mechanism>, task: Task) -> Result<()> {
    let setup = setup_in(task.placement, mechanism, task.size);
    let stream = Stream::new(setup.clone(), Length::For(DURATION));
    let job: Box<dyn Job> = match task.workload {
        Workload::RequestReply => Box::new(RoundTrip::new(setup, DURATION)),
        Workload::InPlace => Box::new(Stream {
            data: Data::InPlace,
            ..stream
        }),
        _ => Box::new(stream),
    };
    job.check()?;
    let measurement = job.measure()?;
    ensure!(measurement.messages > 0 && measurement.elapsed_ns > 0);
    Ok(())
}

/// Of all mechanisms that carry a single byte.
fn round_trips() -> impl Iterator<Item = Setup> {
    let task = task(Workload::RequestReply, Placement::TwoCpus, 1);
    let all = all().into_iter();
    all.filter(move |one| one.unsupported_reason(&task).is_none())
        .map(move |one| setup_in(task.placement, one, task.size))
}

/// The end of the stream is dropping the sender, not the exit of its process.
#[test]
fn a_receiver_sees_the_end_while_the_sender_process_runs() {
    let _serial = serial();
    for setup in round_trips() {
        let process = |side, (mut sender, mut receiver): Ends, start: &mut Start| {
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
            let after = receiver.receive(&mut [0])?;
            ensure!(after == 0, "data arrived after the end");
            Ok(Vec::new())
        };
        let outcome = setup.run_both_ways(PROCESS_TIMEOUT, process);
        assert!(outcome.is_ok(), "{}: {outcome:?}", setup.mechanism.label);
    }
}

/// Kills one side in the middle of a stream of bytes. Returns the error of the pair.
fn failure_when_killed(setup: &Setup, killed: Side) -> String {
    let begin = Instant::now();
    let transfer = |side, start: &mut Start, transfer: &mut dyn FnMut() -> Result<usize>| {
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
    let outcome = setup.run(
        PROCESS_TIMEOUT,
        |mut sender, start| transfer(Side::First, start, &mut || sender.send(b"a").map(|()| 1)),
        |mut receiver, start| transfer(Side::Second, start, &mut || receiver.receive(&mut [0])),
    );
    let text = format!("{}: {:#}", setup.mechanism.label, outcome.unwrap_err());
    assert!(begin.elapsed() < PROCESS_TIMEOUT / 2, "{text}");
    assert!(text.contains("died without a report"), "{text}");
    text
}

#[test]
fn the_other_side_of_a_killed_process_does_not_hang() {
    let _serial = serial();
    for setup in round_trips() {
        let name = setup.mechanism.name;
        let detects = DETECT_PEER_DEATH.split(' ').any(|one| one == name);
        let text = failure_when_killed(&setup, Side::Second);
        assert!(!detects || !text.contains("timed out"), "{text}");
        if detects {
            let text = failure_when_killed(&setup, Side::First);
            assert!(!text.contains("timed out"), "{text}");
        }
    }
}
