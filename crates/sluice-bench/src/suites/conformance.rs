// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every mechanism must do, between two processes: deliver each byte, end, and bear being measured.

use std::rc::Rc;
use std::time::Duration;

use super::Room;
use super::rtt::RoundTrip;
use super::stream::Stream;
use crate::harness::pinning::Placement;
use crate::harness::rounds::Job;
use crate::mechanisms::{Mechanism, Shape, Task};

/// One byte, sizes that fill no cache line or page, whole pages, and the largest that is measured.
const SIZES: [usize; 5] = [1, 100, 4096, 5000, 65536];
const DURATION: Duration = Duration::from_millis(20);

/// Says so where it cannot take part.
pub fn expect(mechanism: impl Mechanism + 'static) {
    let mechanism: Rc<dyn Mechanism> = Rc::new(mechanism);
    for placement in [Placement::SameCpu, Placement::TwoCpus] {
        let Some(cpus) = placement.cpus().unwrap() else {
            println!(
                "skipped: this machine cannot place two {}",
                placement.name()
            );
            continue;
        };
        for size in SIZES {
            expect_of(&mechanism, size, placement, Room { home: None, cpus });
        }
    }
}

fn expect_of(mechanism: &Rc<dyn Mechanism>, size: usize, placement: Placement, room: Room) {
    for shape in [Shape::Stream, Shape::Question] {
        let what = format!("{} {size} {} {shape:?}", mechanism.name(), placement.name());
        let task = Task {
            size,
            placement,
            shape,
        };
        if let Some(obstacle) = mechanism.obstacle(&task) {
            println!("skipped: {what}: {obstacle}");
            continue;
        }
        let job = job(Rc::clone(mechanism), &task, room.clone());
        job.check()
            .unwrap_or_else(|error| panic!("{what}: {error:#}"));
        let measurement = job.measure();
        let measurement = measurement.unwrap_or_else(|error| panic!("{what}: {error:#}"));
        assert!(measurement.messages > 0, "{what}");
        assert_eq!(
            measurement.bytes,
            measurement.messages * size as u64,
            "{what}"
        );
    }
}

/// Both see the end of what was sent, or they fail.
fn job(mechanism: Rc<dyn Mechanism>, task: &Task, room: Room) -> Box<dyn Job> {
    match task.shape {
        Shape::Question => Box::new(RoundTrip::new(mechanism, room, task.size, DURATION)),
        _ => Box::new(Stream {
            mechanism,
            room,
            size: task.size,
            duration: DURATION,
        }),
    }
}
