// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time to set up a connection: what exists before both processes do, the opening of both ends, the first message, and the
//! closing. A round sets up several, one after the other, and its value is the time of one.

use std::time::Duration;

use anyhow::{Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::units;
use sluice_testkit::workers::{Pair, Side, Start};

use super::Plan;
use super::setup::{self, PROCESS_TIMEOUT, Setup};
use crate::harness::rounds::{Case, Job, Measurement, Metric};
use crate::mechanisms::{Link, Task, Workload};

const SIZE: usize = 64;
const MESSAGE: [u8; SIZE] = [0x5a; SIZE];
/// Of a round. All of them exist before the two processes.
const CONNECTIONS: usize = 4;

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let placement = plan.one_placement();
    let task = Task {
        size: SIZE,
        placement,
        workload: Workload::Connections,
    };
    let title = format!("{} {}", units::size(SIZE), placement.name());
    Ok(vec![plan.case(
        "connect",
        title,
        Metric::Time,
        task,
        Connect,
    )?])
}

struct Connect(Setup);

impl Job for Connect {
    fn check(&self) -> Result<()> {
        self.run(2).map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        let elapsed = self.run(CONNECTIONS)?;
        Ok(Measurement {
            messages: CONNECTIONS as u64,
            elapsed_ns: elapsed.as_nanos() as u64,
            ..Measurement::default()
        })
    }
}

impl Connect {
    fn run(&self, count: usize) -> Result<Duration> {
        let begin = clock::now_ns();
        let links = (0..count).map(|_| self.0.mechanism.link(SIZE));
        let links = links.collect::<Result<Vec<_>>>()?;
        let created = clock::now_ns() - begin;
        let pair = Pair::start(links, PROCESS_TIMEOUT, |side, links, start| {
            // Threads of a library inherit the processors of the thread that starts them.
            match self.0.mechanism.own_threads {
                true => self.0.confinement.enter_any_cpu()?,
                false => self.0.confinement.enter(side)?,
            }
            use_each(side, links, start)
        })?;
        let [first, second] = setup::run(pair, PROCESS_TIMEOUT)?;
        let opened = first[0].max(second[0]);
        Ok(Duration::from_nanos(created + opened))
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
                ensure!(
                    receiver.receive(&mut message)? == 0,
                    "the end did not follow the message"
                );
            }
        }
    }
    Ok(vec![clock::now_ns() - begin])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::pipe;
    use crate::suites::plan::tests::plan;
    use crate::suites::setup::tests::setup as set_up;
    use sluice_testkit::workers::serial;

    #[test]
    fn each_connection_carries_a_message() {
        let _serial = serial();
        let connect = Connect(set_up(pipe::mechanism(), SIZE));
        connect.check().unwrap();
        let measured = connect.measure().unwrap();
        assert_eq!(measured.messages, CONNECTIONS as u64);
        assert!(measured.elapsed_ns > 0);
    }

    #[test]
    fn there_is_one_case() {
        let cases = cases(&plan()).unwrap();
        assert_eq!(cases.len(), 1);
        assert_eq!(cases[0].title, "64 B same-cpu");
    }
}
