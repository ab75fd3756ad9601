// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several processes at one channel: writers into one reader, as logs have them, one writer for several readers, and many of
//! both. Counted are the bytes that the readers get, the messages of each writer, and the context switches of all.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::strangers::rest;
use super::{PATIENCE, Plan, Room, Scale, Sizes};
use crate::harness::clock;
use crate::harness::pinning::Placement;
use crate::harness::process::{Group, Start};
use crate::harness::rounds::{Cell, Contender, Headline, Job, Measurement, Sharing};
use crate::harness::shared::SharedWords;
use crate::harness::units;
use crate::mechanisms::{Link, Mechanism, Shape, Task};

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
        Scale::Standard | Scale::Peers => &STANDARD,
        Scale::Full => &FULL,
    }
}

const SIZES: Sizes = Sizes {
    quick: &[1024],
    standard: &[64, 1024, 4096, 65536],
    full: &[64, 256, 1024, 4096, 16384, 65536],
    peers: &[64, 1024, 4096, 65536],
};
/// What people use today, and ours.
const MECHANISMS: [&str; 2] = ["pipe", "sluice-pipe"];
/// Turns are so many times as long as elsewhere: each writer needs a few turns for their shares to tell anything.
const TURN: u32 = 3;
/// The part of a turn that passes before anything is counted.
const WARM_UP: u32 = 4;
const CHECKED_BYTES: usize = 1 << 18;

pub fn cells(plan: &Plan) -> Result<Vec<Cell>> {
    let placement = plan.one_placement();
    let mut cells = Vec::new();
    for &sharing in matrix(plan.scale) {
        for size in plan.sizes_or(&SIZES) {
            cells.push(cell(plan, sharing, size, placement)?);
        }
    }
    Ok(cells)
}

fn cell(plan: &Plan, sharing: Sharing, size: usize, placement: Placement) -> Result<Cell> {
    let (mut mechanisms, mut skips) = plan.rivals(&Task {
        size,
        placement,
        shape: Shape::Stream,
    });
    mechanisms.retain(|one| MECHANISMS.contains(&one.name()));
    skips.retain(|skip| MECHANISMS.contains(&skip.mechanism));
    let room = plan.room(placement)?;
    let contender = |mechanism: Rc<dyn Mechanism>| Contender {
        processes: sharing.writers + sharing.readers,
        sharing: Some(sharing),
        ..Contender::pair(
            &*mechanism,
            Box::new(Contention {
                mechanism: Rc::clone(&mechanism),
                room: room.clone(),
                sharing,
                size,
                duration: plan.duration * TURN,
            }),
        )
    };
    Ok(Cell {
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
        headline: Headline::Rate,
        contenders: mechanisms.into_iter().map(contender).collect(),
        skips,
    })
}

struct Contention {
    mechanism: Rc<dyn Mechanism>,
    room: Room,
    sharing: Sharing,
    size: usize,
    duration: Duration,
}

impl Job for Contention {
    /// Each writer's bytes are its number: as many of each have to come out as went in.
    fn check(&self) -> Result<()> {
        let messages = (CHECKED_BYTES / self.size / self.sharing.writers).max(1);
        let mut group = self.start(|number, link, start| match number < self.sharing.writers {
            true => self.write_counted(number, link, start, messages),
            false => self.sort(link, start),
        })?;
        group.go()?;
        let sums = group.finish(4 * PATIENCE)?;
        for writer in 0..self.sharing.writers {
            let came: u64 = sums[self.sharing.writers..]
                .iter()
                .map(|reader| reader[writer])
                .sum();
            let sent = messages * self.size;
            ensure!(
                came == sent as u64,
                "writer {writer} wrote {sent} bytes, but {came} of them arrived"
            );
        }
        Ok(())
    }

    fn measure(&self) -> Result<Measurement> {
        let counts = Rc::new(Counts(SharedWords::new()?));
        let mut group = self.start(|number, link, start| match number < self.sharing.writers {
            true => self.write(number, link, start, &counts),
            false => self.read(number, link, start, &counts),
        })?;
        group.go()?;
        rest(self.duration / WARM_UP)?;
        let switches = group.context_switches()?;
        let (before, begin) = (self.look(&counts), clock::now_ns());
        rest(self.duration)?;
        let (after, end) = (self.look(&counts), clock::now_ns());
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
        let links = self.mechanism.shared(self.users(), self.size)?;
        let links = links.with_context(|| {
            format!(
                "only two processes can use a {} together",
                self.mechanism.name()
            )
        })?;
        Group::start(self.users(), links, PATIENCE, |number, mut links, start| {
            let own = links.swap_remove(number);
            // The ends of the others would keep the stream from ending.
            drop(links);
            role(number, own, start)
        })
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
        self.room.enter_anywhere()?;
        start.wait()?;
        loop {
            file.write_all(&message)?;
            counts.add(number, 1);
        }
    }

    /// Whatever a read returns counts at once: whole messages would be too coarse for so short a time.
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
        self.room.enter_anywhere()?;
        start.wait()?;
        loop {
            let n = file.read(&mut message)?;
            ensure!(n > 0, "a stream ended that nobody ended");
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
        self.room.enter_anywhere()?;
        start.wait()?;
        for _ in 0..messages {
            file.write_all(&message)?;
        }
        Ok(Vec::new())
    }

    /// How many bytes of each writer came.
    fn sort(&self, link: Box<dyn Link>, start: &mut Start) -> Result<Vec<u64>> {
        let receiver = link.receiver()?;
        let mut file = file(receiver.file())?;
        self.room.enter_anywhere()?;
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
                *sum.with_context(|| format!("a byte {byte} came that no writer wrote"))? += 1;
            }
        }
    }

    /// The count of each process.
    fn look(&self, counts: &Counts) -> Vec<u64> {
        (0..self.users()).map(|number| counts.get(number)).collect()
    }
}

fn file(file: Option<BorrowedFd<'_>>) -> Result<File> {
    let file = file.context("contention needs a mechanism that is a file")?;
    Ok(file.try_clone_to_owned()?.into())
}

/// None where there is but one writer. One that got nothing through counts as if it had one message.
fn imbalance(written: &[u64]) -> Option<f64> {
    let (most, least) = (written.iter().max()?, written.iter().min()?);
    (written.len() > 1).then(|| *most as f64 / (*least).max(1) as f64)
}

/// Of each process, in a cache line of its own: a writer's messages, a reader's bytes.
struct Counts(SharedWords);

impl Counts {
    fn add(&self, number: usize, count: u64) {
        let word = self.0.word(number * SharedWords::PER_LINE);
        word.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self, number: usize) -> u64 {
        let word = self.0.word(number * SharedWords::PER_LINE);
        word.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::process::tests::turn;
    use crate::mechanisms::Pipe;

    #[test]
    fn several_at_one_pipe_lose_nothing_and_are_counted() {
        let _turn = turn();
        let cpus = Placement::SameCpu.cpus().unwrap().unwrap();
        for sharing in [sharing(3, 1), sharing(1, 2), sharing(2, 2)] {
            let contention = Contention {
                mechanism: Rc::new(Pipe),
                room: Room { home: None, cpus },
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
    fn imbalance_is_the_busiest_writers_messages_for_each_of_the_least_busys() {
        assert_eq!(imbalance(&[5, 10, 8]), Some(2.0));
        assert_eq!(imbalance(&[5, 0]), Some(5.0));
        assert_eq!(imbalance(&[5]), None);
    }
}
