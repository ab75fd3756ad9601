// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several processes share one channel: writers with one reader, as in logging, one writer with several readers, and
//! many of both. The results are the bytes that the readers receive, the messages of each writer, and the context
//! switches of all.

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

use super::misdelivery::interruptible_sleep;
use super::{Confinement, PROCESS_TIMEOUT, Plan, Scale, Sizes};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Measurement, Metric, Sharing, Subject};
use crate::mechanisms::{Link, Mechanism, Task, Workload};

const fn sharing(writers: usize, readers: usize) -> Sharing {
    Sharing { writers, readers }
}

const QUICK: [Sharing; 1] = [sharing(8, 1)];
const STANDARD: [Sharing; 5] = [
    sharing(1, 1),
    sharing(4, 1),
    sharing(8, 1),
    sharing(8, 8),
    sharing(1, 4),
];
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
    standard: &[64, 1024, 4096, 65536],
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
    let (mut mechanisms, mut skipped) = plan.mechanisms_for(&Task {
        size,
        placement,
        workload: Workload::Stream,
    });
    mechanisms.retain(|one| MECHANISMS.contains(&one.name()));
    skipped.retain(|skip| MECHANISMS.contains(&skip.mechanism));
    let confinement = plan.confinement(placement)?;
    let subject = |mechanism: Rc<dyn Mechanism>| Subject {
        processes: sharing.writers + sharing.readers,
        sharing: Some(sharing),
        ..Subject::pair(
            &*mechanism,
            Box::new(Contention {
                mechanism: Rc::clone(&mechanism),
                confinement: confinement.clone(),
                sharing,
                size,
                duration: plan.duration * DURATION_FACTOR,
            }),
        )
    };
    Ok(Case {
        suite: "contention",
        title: format!(
            "{} × {} {} {}",
            sharing.writers,
            sharing.readers,
            units::size(size),
            placement.name()
        ),
        size: Some(size),
        placement,
        metric: Metric::Rate,
        subjects: mechanisms.into_iter().map(subject).collect(),
        skipped,
    })
}

struct Contention {
    mechanism: Rc<dyn Mechanism>,
    confinement: Confinement,
    sharing: Sharing,
    size: usize,
    duration: Duration,
}

impl Job for Contention {
    /// Every byte is the number of its writer: as many of each must arrive as were sent.
    fn check(&self) -> Result<()> {
        let messages = (CHECKED_BYTES / self.size / self.sharing.writers).max(1);
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
            let sent = messages * self.size;
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
        let switches = group.context_switches()?;
        let (before, begin) = (self.snapshot(&counts), clock::now_ns());
        interruptible_sleep(self.duration)?;
        let (after, end) = (self.snapshot(&counts), clock::now_ns());
        let switches = group.context_switches()? - switches;
        group.expect_alive()?;
        let moved: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
        let (written, read) = moved.split_at(self.sharing.writers);
        let bytes: u64 = read.iter().sum();
        Ok(Measurement {
            messages: bytes / self.size as u64,
            bytes,
            elapsed_ns: end - begin,
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

    fn start(
        &self,
        role: impl Fn(usize, Box<dyn Link>, &mut Start) -> Result<Vec<u64>>,
    ) -> Result<Group> {
        let links = self.mechanism.shared_links(self.users(), self.size)?;
        let links = links.with_context(|| {
            format!(
                "{} does not support more than two processes",
                self.mechanism.name()
            )
        })?;
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
        link: Box<dyn Link>,
        start: &mut Start,
        counts: &Counts,
    ) -> Result<Vec<u64>> {
        let sender = link.sender()?;
        let mut file = file(sender.file())?;
        let message = vec![number as u8; self.size];
        self.confinement.enter_any_cpu()?;
        start.wait()?;
        loop {
            file.write_all(&message)?;
            counts.add(number, 1);
        }
    }

    /// Counts the bytes of each read: whole messages would be too coarse for the short time.
    fn read(
        &self,
        number: usize,
        link: Box<dyn Link>,
        start: &mut Start,
        counts: &Counts,
    ) -> Result<Vec<u64>> {
        let receiver = link.receiver()?;
        let mut file = file(receiver.file())?;
        let mut message = vec![0; self.size];
        self.confinement.enter_any_cpu()?;
        start.wait()?;
        loop {
            let n = file.read(&mut message)?;
            ensure!(n > 0, "the stream ended unexpectedly");
            counts.add(number, n as u64);
        }
    }

    fn write_counted(
        &self,
        number: usize,
        link: Box<dyn Link>,
        start: &mut Start,
        messages: usize,
    ) -> Result<Vec<u64>> {
        let sender = link.sender()?;
        let mut file = file(sender.file())?;
        let message = vec![number as u8; self.size];
        self.confinement.enter_any_cpu()?;
        start.wait()?;
        for _ in 0..messages {
            file.write_all(&message)?;
        }
        Ok(Vec::new())
    }

    /// The number of bytes from each writer.
    fn count_per_writer(&self, link: Box<dyn Link>, start: &mut Start) -> Result<Vec<u64>> {
        let receiver = link.receiver()?;
        let mut file = file(receiver.file())?;
        self.confinement.enter_any_cpu()?;
        start.wait()?;
        let mut sums = vec![0; self.sharing.writers];
        let mut message = vec![0; self.size];
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
    use crate::mechanisms::Pipe;
    use sluice_testkit::workers::serial;

    #[test]
    fn several_processes_share_a_pipe_without_loss() {
        let _serial = serial();
        let cpus = Placement::SameCpu.cpus().unwrap().unwrap();
        for sharing in [sharing(3, 1), sharing(1, 2), sharing(2, 2)] {
            let contention = Contention {
                mechanism: Rc::new(Pipe),
                confinement: Confinement { cgroup: None, cpus },
                sharing,
                size: 1000,
                duration: Duration::from_millis(60),
            };
            contention.check().unwrap();
            let measurement = contention.measure().unwrap();
            assert!(measurement.bytes > 0, "{sharing:?}");
            assert_eq!(measurement.imbalance.is_some(), sharing.writers > 1);
            assert!(measurement.context_switches.is_some());
        }
    }

    #[test]
    fn imbalance_is_the_ratio_of_busiest_to_least_busy_writer() {
        assert_eq!(imbalance(&[5, 10, 8]), Some(2.0));
        assert_eq!(imbalance(&[5, 0]), Some(5.0));
        assert_eq!(imbalance(&[5]), None);
    }
}
