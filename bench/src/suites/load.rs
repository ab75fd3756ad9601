// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latency under load, open loop: messages are due at a constant rate, independent of earlier ones, and each latency
//! starts at the due time of the message. A mechanism that stalls delays all messages that become due meanwhile.

use std::hint::spin_loop;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use sluice_testkit::clock;
use sluice_testkit::spread::Spread;
use sluice_testkit::workers::Start;

use super::plan::{Plan, Sizes, title};
use super::setup::{PROCESS_TIMEOUT, Setup};
use super::stream::{Length, Stream, check_number, expect_all};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Measurement, Metric};
use crate::mechanisms::{Receiver, Sender, Task, Workload};

const SIZES: Sizes = [&[64]; 4];
/// Of the saturation of the reference, so that all mechanisms are offered the same rates.
const PERCENT: [f64; 5] = [10.0, 30.0, 50.0, 70.0, 90.0];
/// Streams of the reference, of which the median is its saturation.
const STREAMS: usize = 3;
/// The due time and the number of the message.
const HEADER_LEN: usize = 16;
/// Not counted: caches and adaptive parts warm up first.
const WARM_UP: Duration = Duration::from_millis(20);
const CHECKED: u64 = 256;
/// The sender stops after this multiple of the planned time, but not before this time.
const MAX_DELAY: f64 = 4.0;
const MIN_TIME: Duration = Duration::from_secs(1);
/// Bounds the memory for samples: above it, only every second, third, … sample is kept.
const MAX_SAMPLES: u64 = 200_000;

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let tasks = plan.tasks(&SIZES, Workload::Stream);
    for task in tasks.filter(|task| task.size >= HEADER_LEN) {
        if let Some(reason) = unsupported_reason(plan, &task) {
            cases.push(plan.skipped_case("load", Metric::Latency, task, &reason));
            continue;
        }
        let saturation = saturation(plan, &task)?;
        for percent in PERCENT {
            let rate = saturation * percent / 100.0;
            // Without the rate, which differs from run to run: two runs can be compared.
            let title = title(&task, &format!("{percent} %"));
            let case = plan.case("load", title, Metric::Latency, task, |setup| {
                Load::new(setup, rate, plan.duration)
            })?;
            cases.push(case.axis("load_percent", percent).axis("load_rate", rate));
        }
    }
    Ok(cases)
}

fn unsupported_reason(plan: &Plan, task: &Task) -> Option<String> {
    if task.placement == Placement::SameCpu {
        let reason = "the sender spins until a message is due, so both sides need a processor";
        return Some(reason.into());
    }
    let reference = plan.registry.available.first()?;
    let reason = reference.unsupported_reason(task)?;
    let name = reference.name;
    Some(format!(
        "the rates are shares of what {name} can send: {reason}"
    ))
}

/// Messages per second of the reference, sent and received by the same code, if all are due at once.
fn saturation(plan: &Plan, task: &Task) -> Result<f64> {
    let reference = plan.registry.available.first();
    let reference = reference.context("there is no reference")?;
    let setup = plan.setup(Rc::clone(reference), task)?;
    let stream = Stream::new(setup.clone(), Length::For(plan.duration)).measure()?;
    let all_at_once = Load {
        setup,
        rate: f64::INFINITY,
        duration: plan.duration,
        messages: stream.messages.max(1),
        warm_up: 0,
        stride: u64::MAX,
    };
    let rate = || {
        let one = all_at_once.measure()?;
        Ok(one.messages as f64 * 1e9 / one.elapsed_ns.max(1) as f64)
    };
    let rates = (0..STREAMS).map(|_| rate()).collect::<Result<Vec<_>>>()?;
    let spread = Spread::of(&rates).context("the saturation is measured at least once")?;
    Ok(spread.median)
}

#[derive(Clone)]
struct Load {
    setup: Setup,
    rate: f64,
    duration: Duration,
    messages: u64,
    warm_up: u64,
    /// Every message of a multiple of this number has a sample.
    stride: u64,
}

impl Job for Load {
    fn check(&self) -> Result<()> {
        let checked = Self {
            messages: CHECKED,
            warm_up: 0,
            ..self.clone()
        };
        expect_all(CHECKED, checked.measure()?.messages)
    }

    /// The processor time is the receiver's, because the sender always spins until the next message is due. A message that a
    /// mechanism is too slow to send has the latency that it had when the sender stopped, at least.
    fn measure(&self) -> Result<Measurement> {
        let [sent, mut received] = self.setup.run(
            self.duration + PROCESS_TIMEOUT,
            |sender, start| self.send(sender, start),
            |receiver, start| self.receive(receiver, start),
        )?;
        let mut samples = received.split_off(3);
        let [arrived, elapsed_ns, cpu_ns] = received[..].try_into()?;
        let [sent, stopped] = sent[..].try_into()?;
        let unsent = (sent..self.messages).filter(|number| self.has_sample(*number));
        samples.extend(unsent.map(|number| stopped.saturating_sub(self.due(number))));
        Ok(Measurement {
            messages: arrived,
            bytes: arrived * self.setup.size as u64,
            samples,
            elapsed_ns,
            cpu_ns,
            ..Measurement::default()
        })
    }
}

impl Load {
    fn new(setup: Setup, rate: f64, duration: Duration) -> Self {
        let due_within = |time: Duration| (time.as_secs_f64() * rate).round() as u64;
        let (warm_up, counted) = (due_within(WARM_UP), due_within(duration));
        Self {
            setup,
            rate,
            duration,
            messages: warm_up + counted,
            warm_up,
            // Odd: the position of a record in its cache lines often has a period of a power of two.
            stride: counted.div_ceil(MAX_SAMPLES) | 1,
        }
    }

    /// When a message is due, in nanoseconds after the begin.
    fn due(&self, number: u64) -> u64 {
        (number as f64 * 1e9 / self.rate) as u64
    }

    fn has_sample(&self, number: u64) -> bool {
        number >= self.warm_up && number % self.stride == 0
    }

    /// Returns the number of messages that were sent, and the time at the end, after the begin.
    fn send(&self, mut sender: Box<dyn Sender>, start: &mut Start) -> Result<Vec<u64>> {
        let mut message = vec![0; self.setup.size];
        start.wait()?;
        let begin = clock::now_ns();
        // A mechanism that is much slower than the rate is stopped then: the samples show it.
        let planned = self.due(self.messages) as f64;
        let end = begin + (planned * MAX_DELAY) as u64 + MIN_TIME.as_nanos() as u64;
        let mut sent = 0;
        for number in 0..self.messages {
            let due = begin + self.due(number);
            let header = [due, number].map(u64::to_ne_bytes);
            message[..HEADER_LEN].copy_from_slice(header.as_flattened());
            let mut now = clock::now_ns();
            while now < due {
                spin_loop();
                now = clock::now_ns();
            }
            if now > end {
                break;
            }
            sender.send(&message)?;
            sent += 1;
        }
        Ok(vec![sent, clock::now_ns() - begin])
    }

    /// Returns the number of messages after the warm-up, the elapsed time, the processor time, and the samples.
    fn receive(&self, mut receiver: Box<dyn Receiver>, start: &mut Start) -> Result<Vec<u64>> {
        let mut message = vec![0; self.setup.size];
        let mut samples = Vec::with_capacity(MAX_SAMPLES as usize);
        start.wait()?;
        let (mut arrived, mut begin, mut cpu) = (0, clock::now_ns(), clock::cpu_ns());
        while receiver.receive(&mut message)? == self.setup.size {
            let now = clock::now_ns();
            let due = u64::from_ne_bytes(message[..8].try_into()?);
            check_number(&message[8..], arrived)?;
            if self.has_sample(arrived) {
                samples.push(now.saturating_sub(due));
            }
            arrived += 1;
            if arrived == self.warm_up {
                (begin, cpu) = (now, clock::cpu_ns());
            }
        }
        let counted = arrived.saturating_sub(self.warm_up);
        let figures = vec![counted, clock::now_ns() - begin, clock::cpu_ns() - cpu];
        Ok([figures, samples].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::pipe;
    use crate::suites::setup::tests::setup;
    use sluice_testkit::workers::serial;

    /// A mechanism that is too slow has a higher latency, not a lower rate: also messages that were not sent have one.
    #[test]
    fn latency_is_counted_from_the_due_time() {
        let _serial = serial();
        let slow = Load {
            messages: 10_000_000,
            warm_up: 0,
            stride: 1001,
            ..Load::new(setup(pipe::mechanism(), 64), 1e9, Duration::from_millis(50))
        };
        let measurement = slow.measure().unwrap();
        assert!(measurement.messages < slow.messages);
        let samples = measurement.samples;
        assert_eq!(samples.len(), 9991);
        assert!(*samples.last().unwrap() > MIN_TIME.as_nanos() as u64 / 2);
    }
}
