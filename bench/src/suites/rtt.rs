// SPDX-License-Identifier: MIT OR Apache-2.0
//! The round trip of a message between two processes, over one link per direction.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::workers::{Side, Start};

use super::plan::{Plan, Sizes, title};
use super::setup::{PROCESS_TIMEOUT, Setup};
use crate::harness::class::Class;
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Measurement, Metric};
use crate::mechanisms::{Ends, Workload, cacheline_pingpong};

pub const SIZES: Sizes = [&[1], &[64], &[1, 64, 256, 1024, 4096], &[1, 8, 64]];
/// Not counted: caches, branch predictors and adaptive parts of the kernel warm up first.
const WARM_UP: usize = 200;
/// Bounds the memory for the samples of a spinning pair.
pub const MAX_SAMPLES: usize = 200_000;
/// Enough to compare replies with requests.
const CHECKED: usize = 256;

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    cases_of("rtt", plan)
}

pub fn cases_of(suite: &'static str, plan: &Plan) -> Result<Vec<Case>> {
    let tasks = plan.tasks(&SIZES, Workload::RequestReply);
    let case = |task| {
        plan.case(suite, title(&task, ""), Metric::Latency, task, |setup| {
            RoundTrip::new(setup, plan.duration)
        })
    };
    tasks.map(case).collect()
}

#[derive(Clone)]
pub struct RoundTrip {
    setup: Setup,
    /// The run ends at this number of samples or after this time, whichever is first.
    max_samples: usize,
    duration: Duration,
}

impl Job for RoundTrip {
    fn check(&self) -> Result<()> {
        let checked = Self {
            max_samples: CHECKED,
            duration: PROCESS_TIMEOUT,
            ..self.clone()
        };
        checked.measure().map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        let limit = self.duration + PROCESS_TIMEOUT;
        let process = |side, ends: Ends, start: &mut Start| match side {
            Side::First => self.request(ends, start),
            Side::Second => self.reply(ends, start),
        };
        let [requester, replier] = self.setup.run_both_ways(limit, process)?;
        measurement(requester, &replier, self.setup.size)
    }
}

impl RoundTrip {
    pub fn new(setup: Setup, duration: Duration) -> Self {
        Self {
            setup,
            max_samples: MAX_SAMPLES,
            duration,
        }
    }

    /// A fixed number of round trips, without a limit on the time.
    pub fn counted(setup: Setup, count: usize) -> Self {
        Self {
            setup,
            max_samples: count,
            duration: 2 * PROCESS_TIMEOUT,
        }
    }

    /// Returns the elapsed time, the processor time, and all samples.
    fn request(&self, (mut sender, mut receiver): Ends, start: &mut Start) -> Result<Vec<u64>> {
        start.wait()?;
        let size = self.setup.size;
        let (mut sent, mut message) = (vec![0; size], vec![0; size]);
        // Begin and end of a round trip, without filling the message and comparing it.
        let mut round_trip = |number: usize| {
            pattern(&mut sent, number);
            let began = clock::now_ns();
            sender.send(&sent)?;
            let length = receiver.receive(&mut message)?;
            let ended = clock::now_ns();
            ensure!(length == size, "the peer ended during a round trip");
            ensure!(message == sent, "message {number} came back changed");
            Ok((began, ended))
        };
        for number in 0..WARM_UP {
            round_trip(number)?;
        }
        let mut samples = Vec::with_capacity(self.max_samples);
        let (begin, cpu) = (clock::now_ns(), clock::cpu_ns());
        let end = begin + self.duration.as_nanos() as u64;
        let mut now = begin;
        while samples.len() < self.max_samples && now < end {
            let (began, ended) = round_trip(samples.len())?;
            samples.push(ended - began);
            now = ended;
        }
        Ok([vec![now - begin, clock::cpu_ns() - cpu], samples].concat())
    }

    fn reply(&self, (mut sender, mut receiver): Ends, start: &mut Start) -> Result<Vec<u64>> {
        start.wait()?;
        let mut message = vec![0; self.setup.size];
        let mut trips = 0;
        let mut cpu = clock::cpu_ns();
        while receiver.receive(&mut message)? == self.setup.size {
            sender.send(&message)?;
            trips += 1;
            if trips == WARM_UP {
                cpu = clock::cpu_ns();
            }
        }
        Ok(vec![clock::cpu_ns() - cpu])
    }
}

/// Of the elapsed time, the processor time and the samples of the requester, and the processor time of the replier.
pub fn measurement(mut requester: Vec<u64>, replier: &[u64], size: usize) -> Result<Measurement> {
    let samples = requester.split_off(2);
    let messages = 2 * samples.len() as u64;
    let replier = replier.first().context("the replier has no result")?;
    Ok(Measurement {
        messages,
        bytes: messages * size as u64,
        samples,
        elapsed_ns: requester[0],
        cpu_ns: requester[1] + replier,
        ..Measurement::default()
    })
}

/// Bytes that differ from their neighbours, and from the bytes of the message before.
fn pattern(message: &mut [u8], number: usize) {
    for (index, byte) in message.iter_mut().enumerate() {
        *byte = number.wrapping_add(index) as u8;
    }
}

const PROBE_DURATION: Duration = Duration::from_millis(20);

/// The distance of two processors, measured by a cache line, because the topology that a virtual machine reports is often fictitious.
/// None with a single processor, and on emulated processors, where it tells of the emulation.
pub struct CachelineProbe(Option<RoundTrip>);

impl CachelineProbe {
    pub fn new(plan: &Plan) -> Result<Self> {
        if plan.emulated || Placement::TwoCpus.cpus()?.is_none() {
            return Ok(Self(None));
        }
        let setup = Setup {
            mechanism: Rc::new(cacheline_pingpong::mechanism(false)),
            confinement: plan.confinement(Placement::TwoCpus)?,
            size: 1,
        };
        Ok(Self(Some(RoundTrip::new(setup, PROBE_DURATION))))
    }

    /// The fastest round trip counts: load on the machine only adds to it.
    pub fn class(&self) -> Result<Option<Class>> {
        let Some(round_trip) = &self.0 else {
            return Ok(None);
        };
        let fastest = round_trip.measure()?.samples.into_iter().min();
        let cost = clock::reading_cost_ns();
        Ok(fastest.map(|time| Class::of_round_trip(time.saturating_sub(cost))))
    }
}
