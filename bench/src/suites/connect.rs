// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time to set up a connection: what exists before both processes do, the opening of both ends, the first message, and the
//! closing. A round sets up several, one after the other, and its value is the time of one.

use anyhow::{Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::workers::{Side, Start};

use super::plan::{Plan, title};
use super::setup::{self, PROCESS_TIMEOUT, Setup};
use crate::harness::rounds::{Case, Job, Measurement, Metric};
use crate::mechanisms::{Link, Workload};

const SIZE: usize = 64;
const MESSAGE: [u8; SIZE] = [0x5a; SIZE];
/// Of a round. All of them exist before the two processes.
const CONNECTIONS: usize = 4;

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let task = plan.task(SIZE, Workload::Connections);
    let title = title(&task, "");
    let case = plan.case("connect", title, Metric::Time, task, Connect)?;
    Ok(vec![case])
}

struct Connect(Setup);

impl Job for Connect {
    fn check(&self) -> Result<()> {
        self.run(2).map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        Ok(Measurement {
            messages: CONNECTIONS as u64,
            elapsed_ns: self.run(CONNECTIONS)?,
            ..Measurement::default()
        })
    }
}

impl Connect {
    fn run(&self, count: usize) -> Result<u64> {
        let begin = clock::now_ns();
        let links = self.0.links(count)?;
        let created = clock::now_ns() - begin;
        let [first, second] = setup::run(links, PROCESS_TIMEOUT, |side, links, start| {
            // Threads of a library inherit the processors of the thread that starts them.
            match self.0.mechanism.own_threads {
                true => self.0.confinement.enter_any_cpu()?,
                false => self.0.confinement.enter(side)?,
            }
            use_each(side, links, start)
        })?;
        Ok(created + first[0].max(second[0]))
    }
}

/// Opens each end, passes one message, and closes it. Returns the time that this took.
fn use_each(side: Side, links: Vec<Link>, start: &mut Start) -> Result<Vec<u64>> {
    start.wait()?;
    let begin = clock::now_ns();
    for link in links {
        match side {
            Side::First => link.sender()?.send(&MESSAGE)?,
            Side::Second => {
                let (mut receiver, mut message) = (link.receiver()?, [0; SIZE]);
                let arrived = receiver.receive(&mut message)?;
                ensure!(arrived == SIZE, "{arrived} of {SIZE} bytes arrived");
                ensure!(message == MESSAGE, "the message arrived damaged");
                let after = receiver.receive(&mut message)?;
                ensure!(after == 0, "the end did not follow the message");
            }
        }
    }
    Ok(vec![clock::now_ns() - begin])
}
