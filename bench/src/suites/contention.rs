// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several processes share one channel: writers with one reader, as in logging, one writer with several readers, and
//! many of both. The results are the bytes that the readers receive, the messages of each writer, and the context
//! switches and the processor time of all.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::workers::{Group, Start};

use super::counters::Counters;
use super::plan::{Plan, title};
use super::setup::{PROCESS_TIMEOUT, Setup, existing, interruptible_sleep};
use super::throughput::SIZES;
use crate::harness::figures::{IMBALANCE, SWITCHES_PER_MESSAGE};
use crate::harness::rounds::{Case, Job, Measurement, Metric};
use crate::mechanisms::Workload;

type Sharing = (usize, usize);

const STANDARD: &[Sharing] = &[(1, 1), (8, 1), (8, 8)];
#[rustfmt::skip]
const FULL: &[Sharing] = &[(1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (4, 4), (8, 8), (1, 2), (1, 4), (1, 8)];
/// In the order of the scales.
const MATRIX: [&[Sharing]; 4] = [&[(8, 1)], STANDARD, FULL, STANDARD];
const MECHANISMS: [&str; 2] = ["pipe", "sluice-pipe"];
/// Rounds are longer than elsewhere: shares of the writers are meaningful only after several turns of each.
const DURATION_FACTOR: u32 = 3;
/// Counting begins after the duration divided by this.
const WARM_UP: u32 = 4;
const CHECKED_BYTES: usize = 1 << 18;

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for &(writers, readers) in MATRIX[plan.scale as usize] {
        for size in plan.sizes_or(&SIZES) {
            let task = plan.task(size, Workload::Stream);
            let title = format!("{writers} × {readers} {}", title(&task, ""));
            let job = |setup| Contention {
                setup,
                writers,
                readers,
                duration: plan.duration * DURATION_FACTOR,
            };
            let case = plan.case("contention", title, Metric::Rate, task, job)?;
            let case = case.only(&MECHANISMS).axis("writers", writers);
            cases.push(Case {
                processes: writers + readers,
                ..case.axis("receivers", readers)
            });
        }
    }
    Ok(cases)
}

struct Contention {
    setup: Setup,
    writers: usize,
    readers: usize,
    duration: Duration,
}

impl Job for Contention {
    /// Every byte is the number of its writer: as many of each must arrive as were sent.
    fn check(&self) -> Result<()> {
        let messages = (CHECKED_BYTES / self.setup.size / self.writers).max(1);
        let sent = (messages * self.setup.size) as u64;
        let mut group = self.start(Some(messages), &Counters::new(self.users())?)?;
        group.go()?;
        let sums = group.finish(4 * PROCESS_TIMEOUT)?;
        for writer in 0..self.writers {
            let readers = sums[self.writers..].iter();
            let arrived: u64 = readers.map(|reader| reader[writer]).sum();
            ensure!(
                arrived == sent,
                "writer {writer} wrote {sent} bytes, but {arrived} of them arrived"
            );
        }
        Ok(())
    }

    fn measure(&self) -> Result<Measurement> {
        let counts = Counters::new(self.users())?;
        let mut group = self.start(None, &counts)?;
        group.go()?;
        interruptible_sleep(self.duration / WARM_UP)?;
        let (switches, cpu) = (group.context_switches()?, group.cpu_ns()?);
        let (before, begin) = (counts.all().collect::<Vec<_>>(), clock::now_ns());
        interruptible_sleep(self.duration)?;
        let moved = counts.all().zip(before);
        let moved: Vec<u64> = moved.map(|(after, before)| after - before).collect();
        let end = clock::now_ns();
        let (switches, cpu) = (group.context_switches()? - switches, group.cpu_ns()? - cpu);
        group.expect_alive()?;
        let (written, read) = moved.split_at(self.writers);
        let bytes: u64 = read.iter().sum();
        let messages = bytes / self.setup.size as u64;
        let measurement = Measurement {
            messages,
            bytes,
            elapsed_ns: end - begin,
            cpu_ns: cpu,
            ..Measurement::default()
        };
        let switches = switches as f64 / messages.max(1) as f64;
        let measurement = measurement.with(SWITCHES_PER_MESSAGE, switches);
        Ok(match imbalance(written) {
            Some(imbalance) => measurement.with(IMBALANCE, imbalance),
            None => measurement,
        })
    }
}

impl Contention {
    fn users(&self) -> usize {
        self.writers + self.readers
    }

    /// Counts the messages of each writer, and the bytes of each reader. Without a number of messages, the writers never end.
    fn start(&self, checked: Option<usize>, counts: &Counters) -> Result<Group> {
        let links = self.setup.mechanism.shared_links.as_ref();
        let links = links.context("it does not support more than two processes")?;
        let (users, links) = (self.users(), links(self.users())?);
        Group::start(users, links, PROCESS_TIMEOUT, |number, mut links, start| {
            let own = links.swap_remove(number);
            // The ends of the other processes would hide the end of the stream.
            drop(links);
            let add = |some| counts.at(number).fetch_add(some, Ordering::Relaxed);
            if number < self.writers {
                let mut file = self.enter(own.sender()?.file(), start)?;
                let message = vec![number as u8; self.setup.size];
                for _ in 0..checked.unwrap_or(usize::MAX) {
                    file.write_all(&message)?;
                    add(1);
                }
                return Ok(Vec::new());
            }
            let mut file = self.enter(own.receiver()?.file(), start)?;
            let mut message = vec![0; self.setup.size];
            let mut sums = vec![0; self.writers];
            loop {
                // Bytes: whole messages would be too coarse for the short time.
                let n = file.read(&mut message)?;
                if n == 0 {
                    return Ok(sums);
                }
                add(n as u64);
                if checked.is_some() {
                    for &byte in &message[..n] {
                        let sum = sums.get_mut(usize::from(byte));
                        *sum.context("a byte arrived that no writer wrote")? += 1;
                    }
                }
            }
        })
    }

    fn enter(&self, file: Option<BorrowedFd<'_>>, start: &mut Start) -> Result<File> {
        let file = existing(file)?.try_clone_to_owned()?;
        self.setup.confinement.enter_any_cpu()?;
        start.wait()?;
        Ok(file.into())
    }
}

/// None with a single writer. A writer without any message counts as if it had one.
fn imbalance(written: &[u64]) -> Option<f64> {
    let (most, least) = (written.iter().max()?, written.iter().min()?);
    (written.len() > 1).then(|| *most as f64 / (*least).max(1) as f64)
}
