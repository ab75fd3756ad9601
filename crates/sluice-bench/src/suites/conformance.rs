// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every mechanism must do to be measured, on whatever machine the tests run. Only ours, which need the module, are not here.

use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, raise};

use super::rtt::RoundTrip;
use super::stream::{Length, Stream};
use super::{PATIENCE, Room};
use crate::harness::pinning::Placement;
use crate::harness::process::tests::turn;
use crate::harness::process::{Pair, Side, Start};
use crate::harness::rounds::{Job, Skip};
use crate::mechanisms::{Link, Mechanism, Roster, Shape, Task};

const DURATION: Duration = Duration::from_millis(10);
const SIZES: [usize; 3] = [1, 1000, 65536];
/// Those who are told by the kernel, or see for themselves, that the other side is gone.
const NOTICE_THEIR_PEER: [&str; 7] = [
    "pipe",
    "fifo",
    "unix-stream",
    "unix-seqpacket",
    "unix-dgram",
    "tcp",
    "mmap",
];

fn all() -> Vec<Rc<dyn Mechanism>> {
    let tree = Err(Skip::circumstance("sluice-pipe", "not in unit tests"));
    Roster::call(&tree).with_peers().present
}

fn named(name: &str) -> Rc<dyn Mechanism> {
    let found = all().into_iter().find(|one| one.name() == name);
    found.unwrap_or_else(|| panic!("{name} is not called up"))
}

fn placements() -> Vec<Placement> {
    let all = [Placement::SameCpu, Placement::TwoCpus];
    let possible = |one: &Placement| one.cpus().unwrap().is_some();
    all.into_iter().filter(possible).collect()
}

fn room(placement: Placement) -> Room {
    let cpus = placement.cpus().unwrap().unwrap();
    Room { home: None, cpus }
}

/// Calls `look` with all that can do this; whoever looks at nobody has found out nothing.
fn for_each_able(shape: Shape, look: impl Fn(Rc<dyn Mechanism>, Task)) {
    let mut looks = 0;
    for mechanism in all() {
        for placement in placements() {
            for size in SIZES {
                let task = Task {
                    size,
                    placement,
                    shape,
                };
                if mechanism.obstacle(&task).is_none() {
                    look(Rc::clone(&mechanism), task);
                    looks += 1;
                }
            }
        }
    }
    assert!(looks >= SIZES.len());
}

#[test]
fn every_byte_of_a_stream_arrives_and_then_the_end() {
    let _turn = turn();
    for_each_able(Shape::Stream, |mechanism, task| {
        let what = format!("{} with {task:?}", mechanism.name());
        let stream = Stream {
            mechanism,
            room: room(task.placement),
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
fn questions_are_answered() {
    let _turn = turn();
    for_each_able(Shape::Question, |mechanism, task| {
        let what = format!("{} with {task:?}", mechanism.name());
        let room = room(task.placement);
        let round_trip = RoundTrip::new(mechanism, room, task.size, DURATION);
        round_trip
            .check()
            .unwrap_or_else(|error| panic!("{what}: {error:#}"));
        let measurement = round_trip
            .measure()
            .unwrap_or_else(|error| panic!("{what}: {error:#}"));
        assert!(!measurement.samples.is_empty(), "{what}");
    });
}

/// All of them carry a single byte one way or the other, but for those that no program of ours can call.
fn able_to_ask() -> impl Iterator<Item = Rc<dyn Mechanism>> {
    let task = Task {
        size: 1,
        placement: placements().pop().unwrap(),
        shape: Shape::Question,
    };
    all()
        .into_iter()
        .filter(|one| one.name() != "aeron")
        .filter(move |one| one.obstacle(&task).is_none())
}

/// The end is that the sender is dropped, not that its process ends.
#[test]
fn a_receiver_sees_the_end_while_the_sender_lives_on() {
    let _turn = turn();
    for mechanism in able_to_ask() {
        let links = [mechanism.link(1).unwrap(), mechanism.link(1).unwrap()];
        let role = |side, [there, back]: [Box<dyn Link>; 2], start: &mut Start| match side {
            Side::First => {
                let (mut sender, mut receiver) = (there.sender()?, back.receiver()?);
                start.wait()?;
                sender.send(b"a")?;
                ensure!(receiver.receive(&mut [0])? == 1, "there was no answer");
                drop(sender);
                // Only who has seen the end says that it ends, too.
                ensure!(receiver.receive(&mut [0])? == 0, "more came than an answer");
                Ok(Vec::new())
            }
            Side::Second => {
                let (mut receiver, mut sender) = (there.receiver()?, back.sender()?);
                start.wait()?;
                ensure!(receiver.receive(&mut [0])? == 1, "there was no message");
                sender.send(b"b")?;
                ensure!(receiver.receive(&mut [0])? == 0, "more came than a message");
                Ok(Vec::new())
            }
        };
        let run = || -> Result<_> {
            let mut pair = Pair::start(links, PATIENCE, role)?;
            pair.go()?;
            pair.finish(PATIENCE)
        };
        let outcome = run();
        assert!(outcome.is_ok(), "{}: {outcome:?}", mechanism.name());
    }
}

/// The side that `dies` is killed in the middle of a stream of bytes. Returns how the pair failed.
fn failure_when_killed(mechanism: &dyn Mechanism, dies: Side) -> String {
    let link = mechanism.link(1).unwrap();
    let begin = Instant::now();
    let mut pair = Pair::start(link, PATIENCE, |side, link, start| match side {
        Side::First => {
            let mut sender = link.sender()?;
            start.wait()?;
            for sent in 0.. {
                sender.send(b"a")?;
                if sent == 10 && dies == Side::First {
                    raise(Signal::SIGKILL)?;
                }
            }
            Ok(Vec::new())
        }
        Side::Second => {
            let mut receiver = link.receiver()?;
            start.wait()?;
            if dies == Side::Second {
                receiver.receive(&mut [0])?;
                raise(Signal::SIGKILL)?;
            }
            while receiver.receive(&mut [0])? == 1 {}
            Ok(Vec::new())
        }
    })
    .unwrap();
    pair.go().unwrap();
    let error = pair.finish(PATIENCE).unwrap_err();
    let text = format!("{}: {error:#}", mechanism.name());
    assert!(begin.elapsed() < PATIENCE / 2, "{text}");
    assert!(text.contains("died without a word"), "{text}");
    text
}

#[test]
fn a_sender_whose_receiver_was_killed_does_not_hang() {
    let _turn = turn();
    for mechanism in able_to_ask() {
        let text = failure_when_killed(mechanism.as_ref(), Side::Second);
        let noticed = !text.contains("did not answer in time");
        if NOTICE_THEIR_PEER.contains(&mechanism.name()) {
            assert!(noticed, "{text}");
        }
    }
}

#[test]
fn a_receiver_whose_sender_was_killed_sees_the_end() {
    let _turn = turn();
    for name in NOTICE_THEIR_PEER
        .into_iter()
        .filter(|name| *name != "unix-dgram")
    {
        let text = failure_when_killed(named(name).as_ref(), Side::First);
        assert!(!text.contains("did not answer in time"), "{text}");
    }
}

/// Else the isolation suite, whose stalled pairs have to sleep, could not have them.
#[test]
fn a_sender_without_room_falls_asleep() {
    let _turn = turn();
    let task = Task {
        size: 1000,
        placement: Placement::SameCpu,
        shape: Shape::Stream,
    };
    for mechanism in all().iter().filter(|one| one.obstacle(&task).is_none()) {
        let link = mechanism.link(task.size).unwrap();
        let mut pair = Pair::start(link, PATIENCE, |side, link, start| match side {
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
        let deadline = Instant::now() + PATIENCE;
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
fn only_what_programs_read_and_write_as_a_file_is_offered_to_tar() {
    let task = Task {
        size: 10_240,
        placement: Placement::SameCpu,
        shape: Shape::File,
    };
    for mechanism in all() {
        let link = mechanism
            .obstacle(&task)
            .is_none()
            .then(|| mechanism.link(task.size));
        if let Some(link) = link {
            let sender = link.unwrap().sender().unwrap();
            assert!(sender.file().is_some(), "{}", mechanism.name());
        }
    }
    for name in ["pipe", "fifo", "unix-stream", "tcp"] {
        assert_eq!(named(name).obstacle(&task), None, "{name}");
    }
    for name in [
        "unix-seqpacket",
        "unix-dgram",
        "posix-mq",
        "sysv-mq",
        "signal",
        "mmap",
    ] {
        assert!(named(name).obstacle(&task).is_some(), "{name}");
    }
}
