// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several processes share one channel: writers with one reader, as in logging, one writer with several readers, and
//! many of both. The results are the bytes that the readers receive, the messages of each writer, and the context
//! switches and the processor time of all.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::shared::SharedWords;
use sluice_testkit::units;
use sluice_testkit::workers::{Group, Start};

use super::plan::Sizes;
use super::setup::{PROCESS_TIMEOUT, Setup, interruptible_sleep};
use super::{Plan, Scale};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Measurement, Metric, Sharing};
use crate::mechanisms::{Link, Task, Workload};

const fn sharing(writers: usize, readers: usize) -> Sharing {
    Sharing { writers, readers }
}

const QUICK: [Sharing; 1] = [sharing(8, 1)];
const STANDARD: [Sharing; 3] = [sharing(1, 1), sharing(8, 1), sharing(8, 8)];
const FULL: [Sharing; 10] = [
    sharing(1, 1),
    sharing(2, 1),
    sharing(4, 1),
    sharing(8, 1),
    sharing(2, 2),
    sharing(4, 4),
    sharing(8, 8),
    sharing(1, 2),
    sharing(1, 4),
    sharing(1, 8),
];

fn matrix(scale: Scale) -> &'static [Sharing] {
    match scale {
        Scale::Quick => &QUICK,
        Scale::Standard | Scale::ThirdParty => &STANDARD,
        Scale::Full => &FULL,
    }
}

const SIZES: Sizes = Sizes {
    quick: &[1024],
    standard: &[64, 65536],
    full: &[64, 256, 1024, 4096, 16384, 65536],
    third_party: &[64, 1024, 4096, 65536],
};
/// The mechanisms to compare.
const MECHANISMS: [&str; 2] = ["pipe", "sluice-pipe"];
/// Rounds are longer than elsewhere by this factor: shares of the writers are meaningful only after several turns of
/// each.
const DURATION_FACTOR: u32 = 3;
/// Counting begins after the duration divided by this.
const WARM_UP: u32 = 4;
const CHECKED_BYTES: usize = 1 << 18;

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let placement = plan.one_placement();
    let mut cases = Vec::new();
    for &sharing in matrix(plan.scale) {
        for size in plan.sizes_or(&SIZES) {
            cases.push(case(plan, sharing, size, placement)?);
        }
    }
    Ok(cases)
}

fn case(plan: &Plan, sharing: Sharing, size: usize, placement: Placement) -> Result<Case> {
    let Sharing { writers, readers } = sharing;
    let (bytes, place) = (units::size(size), placement.name());
    let title = format!("{writers} × {readers} {bytes} {place}");
    let task = Task {
        size,
        placement,
        workload: Workload::Stream,
    };
    let case = plan.case("contention", title, Metric::Rate, task, |setup| {
        Contention {
            setup,
            sharing,
            duration: plan.duration * DURATION_FACTOR,
        }
    });
    let mut case = case?.only(&MECHANISMS);
    for subject in &mut case.subjects {
        subject.processes = writers + readers;
        subject.sharing = Some(sharing);
    }
    Ok(case)
}

struct Contention {
    setup: Setup,
    sharing: Sharing,
    duration: Duration,
}

impl Job for Contention {
    /// Every byte is the number of its writer: as many of each must arrive as were sent.
    fn check(&self) -> Result<()> {
        let messages = (CHECKED_BYTES / self.setup.size / self.sharing.writers).max(1);
        let mut group = self.start(|number, link, start| match number < self.sharing.writers {
            true => self.write_counted(number, link, start, messages),
            false => self.count_per_writer(link, start),
        })?;
        group.go()?;
        let sums = group.finish(4 * PROCESS_TIMEOUT)?;
        for writer in 0..self.sharing.writers {
            let arrived: u64 = sums[self.sharing.writers..]
                .iter()
                .map(|reader| reader[writer])
                .sum();
            let sent = messages * self.setup.size;
            ensure!(
                arrived == sent as u64,
                "writer {writer} wrote {sent} bytes, but {arrived} of them arrived"
            );
        }
        Ok(())
    }

    fn measure(&self) -> Result<Measurement> {
        let counts = Rc::new(Counts(SharedWords::new(
            self.users() * SharedWords::PER_LINE,
        )?));
        let mut group = self.start(|number, link, start| match number < self.sharing.writers {
            true => self.write(number, link, start, &counts),
            false => self.read(number, link, start, &counts),
        })?;
        group.go()?;
        interruptible_sleep(self.duration / WARM_UP)?;
        let (switches, cpu) = (group.context_switches()?, group.cpu_ns()?);
        let (before, begin) = (self.snapshot(&counts), clock::now_ns());
        interruptible_sleep(self.duration)?;
        let (after, end) = (self.snapshot(&counts), clock::now_ns());
        let (switches, cpu) = (group.context_switches()? - switches, group.cpu_ns()? - cpu);
        group.expect_alive()?;
        let moved: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
        let (written, read) = moved.split_at(self.sharing.writers);
        let bytes: u64 = read.iter().sum();
        Ok(Measurement {
            messages: bytes / self.setup.size as u64,
            bytes,
            elapsed_ns: end - begin,
            cpu_ns: cpu,
            imbalance: imbalance(written),
            context_switches: Some(switches),
            ..Measurement::default()
        })
    }
}

impl Contention {
    fn users(&self) -> usize {
        self.sharing.writers + self.sharing.readers
    }

    fn start(&self, role: impl Fn(usize, Link, &mut Start) -> Result<Vec<u64>>) -> Result<Group> {
        let mechanism = &self.setup.mechanism;
        let links = mechanism.shared_links.as_ref().with_context(|| {
            format!(
                "{} does not support more than two processes",
                mechanism.name
            )
        })?;
        let links = links(self.users())?;
        Group::start(
            self.users(),
            links,
            PROCESS_TIMEOUT,
            |number, mut links, start| {
                let own = links.swap_remove(number);
                // The ends of the other processes would hide the end of the stream.
                drop(links);
                role(number, own, start)
            },
        )
    }

    fn write(
        &self,
        number: usize,
        link: Link,
        start: &mut Start,
        counts: &Counts,
    ) -> Result<Vec<u64>> {
        let (mut file, message) = self.writer(number, link, start)?;
        loop {
            file.write_all(&message)?;
            counts.add(number, 1);
        }
    }

    /// Counts the bytes of each read: whole messages would be too coarse for the short time.
    fn read(
        &self,
        number: usize,
        link: Link,
        start: &mut Start,
        counts: &Counts,
    ) -> Result<Vec<u64>> {
        let (mut file, mut message) = self.reader(link, start)?;
        loop {
            let n = file.read(&mut message)?;
            ensure!(n > 0, "the stream ended unexpectedly");
            counts.add(number, n as u64);
        }
    }

    fn write_counted(
        &self,
        number: usize,
        link: Link,
        start: &mut Start,
        messages: usize,
    ) -> Result<Vec<u64>> {
        let (mut file, message) = self.writer(number, link, start)?;
        for _ in 0..messages {
            file.write_all(&message)?;
        }
        Ok(Vec::new())
    }

    /// The number of bytes from each writer.
    fn count_per_writer(&self, link: Link, start: &mut Start) -> Result<Vec<u64>> {
        let (mut file, mut message) = self.reader(link, start)?;
        let mut sums = vec![0; self.sharing.writers];
        loop {
            let n = file.read(&mut message)?;
            if n == 0 {
                return Ok(sums);
            }
            for &byte in &message[..n] {
                let sum = sums.get_mut(usize::from(byte));
                *sum.with_context(|| format!("a byte {byte} arrived that no writer wrote"))? += 1;
            }
        }
    }

    /// The file of a writer that has started, and its message.
    fn writer(&self, number: usize, link: Link, start: &mut Start) -> Result<(File, Vec<u8>)> {
        let file = file(link.sender()?.file())?;
        let message = vec![number as u8; self.setup.size];
        self.setup.confinement.enter_any_cpu()?;
        start.wait()?;
        Ok((file, message))
    }

    /// The file of a reader that has started, and its buffer.
    fn reader(&self, link: Link, start: &mut Start) -> Result<(File, Vec<u8>)> {
        let file = file(link.receiver()?.file())?;
        let message = vec![0; self.setup.size];
        self.setup.confinement.enter_any_cpu()?;
        start.wait()?;
        Ok((file, message))
    }

    /// The count of each process.
    fn snapshot(&self, counts: &Counts) -> Vec<u64> {
        (0..self.users()).map(|number| counts.get(number)).collect()
    }
}

fn file(file: Option<BorrowedFd<'_>>) -> Result<File> {
    let file = file.context("contention needs a mechanism with a file")?;
    Ok(file.try_clone_to_owned()?.into())
}

/// None with a single writer. A writer without any message counts as if it had one.
fn imbalance(written: &[u64]) -> Option<f64> {
    let (most, least) = (written.iter().max()?, written.iter().min()?);
    (written.len() > 1).then(|| *most as f64 / (*least).max(1) as f64)
}

/// The messages of a writer, or the bytes of a reader, each in its own cache line.
struct Counts(SharedWords);

impl Counts {
    fn add(&self, number: usize, count: u64) {
        let word = &self.0.words()[number * SharedWords::PER_LINE];
        word.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self, number: usize) -> u64 {
        let word = &self.0.words()[number * SharedWords::PER_LINE];
        word.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::pipe;
    use crate::suites::setup::tests::setup;
    use sluice_testkit::workers::serial;

    #[test]
    fn several_processes_share_a_pipe_without_loss() {
        let _serial = serial();
        for sharing in [sharing(3, 1), sharing(1, 2), sharing(2, 2)] {
            let contention = Contention {
                setup: setup(pipe::mechanism(), 1000),
                sharing,
                duration: Duration::from_millis(60),
            };
            contention.check().unwrap();
            let measurement = contention.measure().unwrap();
            assert!(measurement.bytes > 0, "{sharing:?}");
            assert_eq!(measurement.imbalance.is_some(), sharing.writers > 1);
            assert!(measurement.context_switches.is_some());
            assert!(measurement.cpu_ns > 0, "{sharing:?}");
        }
    }

    #[test]
    fn imbalance_is_the_ratio_of_busiest_to_least_busy_writer() {
        assert_eq!(imbalance(&[5, 10, 8]), Some(2.0));
        assert_eq!(imbalance(&[5, 0]), Some(5.0));
        assert_eq!(imbalance(&[5]), None);
    }
}
