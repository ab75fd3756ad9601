// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latency under load, open loop: messages are due at a constant rate, independent of earlier ones, and each latency
//! starts at the due time of the message. A mechanism that stalls delays all messages that become due meanwhile.

use std::hint::spin_loop;
use std::time::Duration;

use anyhow::{Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::spread::Spread;
use sluice_testkit::units;
use sluice_testkit::workers::Start;

use super::Plan;
use super::plan::Sizes;
use super::setup::{self, PROCESS_TIMEOUT, Setup};
use super::stream::{Length, Stream};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Measurement, Metric, OfferedLoad};
use crate::mechanisms::{Receiver, Sender, Task, Workload};

const SIZES: Sizes = Sizes {
    quick: &[64],
    standard: &[64],
    full: &[64],
    third_party: &[64],
};
/// Of the saturation of the reference, so that all mechanisms are offered the same rates.
const PERCENT: [u32; 5] = [10, 30, 50, 70, 90];
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
    let conditions = plan
        .conditions(&SIZES)
        .filter(|(size, _)| *size >= HEADER_LEN);
    let mut cases = Vec::new();
    for (size, placement) in conditions {
        let task = Task {
            size,
            placement,
            workload: Workload::Stream,
        };
        let Some(saturation) = saturation(plan, &task)? else {
            cases.push(not_here(plan, &task));
            continue;
        };
        for percent in PERCENT {
            let rate = saturation * f64::from(percent) / 100.0;
            cases.push(case(plan, task, OfferedLoad { percent, rate })?);
        }
    }
    Ok(cases)
}

fn not_here(plan: &Plan, task: &Task) -> Case {
    let reason: String = match task.placement {
        Placement::SameCpu => {
            "the sender spins until a message is due, so both sides need a processor".into()
        }
        Placement::TwoCpus => format!(
            "the rates are shares of what {} can send, which is not measured here",
            plan.reference().unwrap_or("the reference")
        ),
    };
    let conditions = (task.size, task.placement);
    plan.skipped_case(
        "load",
        title(task, None),
        Metric::Latency,
        conditions,
        &reason,
    )
}

/// Messages per second of the reference, sent and received by the same code, if all are due at once. None: it is not measured
/// here.
fn saturation(plan: &Plan, task: &Task) -> Result<Option<f64>> {
    if task.placement == Placement::SameCpu {
        return Ok(None);
    }
    let (setups, _) = plan.setups(task)?;
    let reference = plan.reference();
    let is_reference = |setup: &Setup| Some(setup.mechanism.name) == reference;
    let Some(setup) = setups.into_iter().find(is_reference) else {
        return Ok(None);
    };
    let stream = Stream::new(setup.clone(), Length::For(plan.duration)).measure()?;
    let all_at_once = Load {
        setup,
        rate: f64::INFINITY,
        duration: plan.duration,
    };
    let rate = || {
        let one = all_at_once.run(stream.messages.max(1), 0, u64::MAX)?;
        Ok(one.messages as f64 * 1e9 / one.elapsed_ns.max(1) as f64)
    };
    let rates = (0..STREAMS).map(|_| rate()).collect::<Result<Vec<_>>>()?;
    Ok(Spread::of(&rates).map(|spread| spread.median))
}

fn case(plan: &Plan, task: Task, load: OfferedLoad) -> Result<Case> {
    let title = title(&task, Some(load.percent));
    let mut case = plan.case("load", title, Metric::Latency, task, |setup| Load {
        setup,
        rate: load.rate,
        duration: plan.duration,
    })?;
    for subject in &mut case.subjects {
        subject.load = Some(load);
    }
    Ok(case)
}

/// Without the rate, which differs from run to run: two runs can be compared.
fn title(task: &Task, percent: Option<u32>) -> String {
    let percent = percent.map_or_else(String::new, |percent| format!(" {percent} %"));
    format!(
        "{}{percent} {}",
        units::size(task.size),
        task.placement.name()
    )
}

struct Load {
    setup: Setup,
    rate: f64,
    duration: Duration,
}

impl Job for Load {
    fn check(&self) -> Result<()> {
        let arrived = self.run(CHECKED, 0, 1)?.messages;
        ensure!(
            arrived == CHECKED,
            "{arrived} of {CHECKED} messages arrived"
        );
        Ok(())
    }

    fn measure(&self) -> Result<Measurement> {
        let warm_up = self.due_within(WARM_UP);
        let messages = self.due_within(self.duration);
        // Odd: the position of a record in its cache lines often has a period of a power of two.
        let stride = messages.div_ceil(MAX_SAMPLES) | 1;
        self.run(warm_up + messages, warm_up, stride)
    }
}

impl Load {
    fn due_within(&self, time: Duration) -> u64 {
        (time.as_secs_f64() * self.rate).round() as u64
    }

    /// When a message is due, in nanoseconds after the begin.
    fn due(&self, number: u64) -> u64 {
        (number as f64 * 1e9 / self.rate) as u64
    }

    /// Sends messages, and keeps every `stride`th latency after the warm-up. The processor time is the receiver's,
    /// because the sender always spins until the next message is due. A message that a mechanism is too slow to send has the
    /// latency that it had when the sender stopped, at least.
    fn run(&self, messages: u64, warm_up: u64, stride: u64) -> Result<Measurement> {
        let pair = self.setup.pair(
            |sender, start| self.send(sender, start, messages),
            |receiver, start| self.receive(receiver, start, warm_up, stride),
        )?;
        let [sent, mut received] = setup::run(pair, self.duration + PROCESS_TIMEOUT)?;
        let mut samples = received.split_off(3);
        let [arrived, elapsed_ns, cpu_ns] = received[..].try_into()?;
        let [sent, stopped] = sent[..].try_into()?;
        let kept = |number: &u64| *number >= warm_up && number % stride == 0;
        let unsent = (sent..messages).filter(kept);
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

    /// Returns the number of messages that were sent, and the time at the end, after the begin.
    fn send(
        &self,
        mut sender: Box<dyn Sender>,
        start: &mut Start,
        messages: u64,
    ) -> Result<Vec<u64>> {
        let mut message = vec![0; self.setup.size];
        start.wait()?;
        let begin = clock::now_ns();
        // A mechanism that is much slower than the rate is stopped then: the samples show it.
        let planned = self.due(messages) as f64;
        let end = begin + (planned * MAX_DELAY) as u64 + MIN_TIME.as_nanos() as u64;
        let mut sent = 0;
        for number in 0..messages {
            let due = begin + self.due(number);
            message[..8].copy_from_slice(&due.to_ne_bytes());
            message[8..HEADER_LEN].copy_from_slice(&number.to_ne_bytes());
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
    fn receive(
        &self,
        mut receiver: Box<dyn Receiver>,
        start: &mut Start,
        warm_up: u64,
        stride: u64,
    ) -> Result<Vec<u64>> {
        let mut message = vec![0; self.setup.size];
        let mut samples = Vec::with_capacity(MAX_SAMPLES as usize);
        start.wait()?;
        let (mut arrived, mut begin, mut cpu) = (0, clock::now_ns(), clock::cpu_ns());
        while receiver.receive(&mut message)? == self.setup.size {
            let now = clock::now_ns();
            let due = u64::from_ne_bytes(message[..8].try_into()?);
            let number = u64::from_ne_bytes(message[8..HEADER_LEN].try_into()?);
            ensure!(
                number == arrived,
                "message {number} arrived instead of {arrived}"
            );
            arrived += 1;
            if arrived == warm_up {
                (begin, cpu) = (now, clock::cpu_ns());
            }
            if number >= warm_up && number % stride == 0 {
                samples.push(now.saturating_sub(due));
            }
        }
        let counted = arrived.saturating_sub(warm_up);
        let figures = vec![counted, clock::now_ns() - begin, clock::cpu_ns() - cpu];
        Ok([figures, samples].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::waiting::Waiting;
    use crate::mechanisms::sluice_ring::Variant;
    use crate::mechanisms::{Link, Mechanism, pipe, sluice_ring_memfd};
    use crate::suites::plan::tests::plan;
    use crate::suites::setup::tests::setup;
    use sluice_testkit::workers::serial;

    fn load(mechanism: Mechanism, rate: f64) -> Load {
        Load {
            setup: setup(mechanism, 64),
            rate,
            duration: Duration::from_millis(50),
        }
    }

    #[test]
    fn every_due_message_is_sent() {
        let _serial = serial();
        let load = load(pipe::mechanism(), 1e4);
        load.check().unwrap();
        let measurement = load.measure().unwrap();
        assert_eq!(measurement.messages, 500);
        assert_eq!(measurement.samples.len(), 500);
    }

    #[test]
    fn the_number_of_samples_is_bounded() {
        let _serial = serial();
        let ring = sluice_ring_memfd::mechanism(Variant::NeverSpins);
        let measurement = load(ring, 1e5).run(1000, 0, 3).unwrap();
        assert_eq!(measurement.messages, 1000);
        assert_eq!(measurement.samples.len(), 334);
    }

    /// A mechanism that is too slow has a higher latency, not a lower rate.
    #[test]
    fn latency_is_counted_from_the_due_time() {
        let _serial = serial();
        let load = load(pipe::mechanism(), 1e9);
        let measurement = load.run(10_000, 0, 1).unwrap();
        let last = *measurement.samples.last().unwrap();
        assert!(last > measurement.elapsed_ns / 2, "{last}");
    }

    /// A sender that needs a millisecond for a message is stopped after the least time.
    #[test]
    fn messages_that_were_not_sent_have_a_latency() {
        let _serial = serial();
        let slow = Mechanism::new("slow", Waiting::Sleep, |_| {
            let link = (pipe::mechanism().link)(64)?;
            Ok(Link::new(
                link,
                |link: Link| Ok(SlowSender(link.sender()?)),
                |link: Link| Ok(Boxed(link.receiver()?)),
            ))
        });
        let measurement = load(slow, 1e6).run(10_000, 0, 1).unwrap();
        assert!(measurement.messages < 10_000);
        assert_eq!(measurement.samples.len(), 10_000);
        let last = *measurement.samples.last().unwrap();
        assert!(last > MIN_TIME.as_nanos() as u64 / 2, "{last}");
    }

    struct SlowSender(Box<dyn Sender>);

    impl Sender for SlowSender {
        fn send(&mut self, message: &[u8]) -> Result<()> {
            std::thread::sleep(Duration::from_millis(1));
            self.0.send(message)
        }
    }

    struct Boxed(Box<dyn Receiver>);

    impl Receiver for Boxed {
        fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
            self.0.receive(message)
        }
    }

    #[test]
    fn sizes_without_space_for_the_header_are_omitted() {
        let mut plan = plan();
        plan.sizes = vec![8, 64];
        let _serial = serial();
        let one_processor = cases(&plan).unwrap();
        assert!(one_processor[0].skipped[0].reason.contains("spins"));
        if Placement::TwoCpus.cpus().unwrap().is_none() {
            return;
        }
        plan.placements = vec![Placement::TwoCpus];
        let cases = cases(&plan).unwrap();
        let sizes: Vec<_> = cases.iter().map(|case| case.size).collect();
        assert_eq!(sizes, [Some(64); PERCENT.len()]);
        let rate = |case: &Case| case.subjects[0].load.unwrap().rate;
        assert!((rate(&cases[4]) / rate(&cases[0]) - 9.0).abs() < 1e-6);
    }
}
