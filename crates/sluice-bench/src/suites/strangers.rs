// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who gets whose bytes: several pairs, each in a cgroup of its own, stream through one and the same node at once. Each
//! pair's messages hold nothing but its number, and each receiver counts the bytes of its own pair and those of others.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{PATIENCE, Plan, Room};
use crate::harness::clock;
use crate::harness::interrupt;
use crate::harness::pinning::Placement;
use crate::harness::process::{Pair, Side, Start};
use crate::harness::rounds::{Cell, Contender, Headline, Job, Measurement};
use crate::harness::shared::SharedWords;
use crate::mechanisms::{Link, Mechanism, Shape, Task};

const PAIRS: [usize; 4] = [1, 2, 4, 8];
const SIZE: usize = 1024;
/// The others are not missed here: they are handed to those who are to have them.
const NAMED: [&str; 2] = ["sluice-pipe", "myipc"];
const CHECK: Duration = Duration::from_millis(50);

pub fn cells(plan: &Plan) -> Result<Vec<Cell>> {
    PAIRS.into_iter().map(|pairs| cell(plan, pairs)).collect()
}

fn cell(plan: &Plan, pairs: usize) -> Result<Cell> {
    let placement = plan.one_placement();
    let (mut mechanisms, mut skips) = plan.rivals(&Task {
        size: SIZE,
        placement,
        shape: Shape::Strangers,
    });
    mechanisms.retain(|one| one.meets_strangers());
    skips.retain(|skip| NAMED.contains(&skip.mechanism));
    // They stay in the cgroups that make them strangers.
    let room = Room {
        home: None,
        ..plan.room(placement)?
    };
    let contender = |mechanism: Rc<dyn Mechanism>| Contender {
        processes: 2 * pairs,
        ..Contender::pair(
            &*mechanism,
            Box::new(Strangers {
                mechanism: Rc::clone(&mechanism),
                room: room.clone(),
                pairs,
                duration: plan.duration,
            }),
        )
    };
    Ok(Cell {
        suite: "isolation",
        title: title(pairs, placement),
        size: Some(SIZE),
        placement,
        headline: Headline::Rate,
        contenders: mechanisms.into_iter().map(contender).collect(),
        skips,
    })
}

fn title(pairs: usize, placement: Placement) -> String {
    let noun = if pairs == 1 { "pair" } else { "pairs" };
    format!("{pairs} {noun} on one node {}", placement.name())
}

struct Strangers {
    mechanism: Rc<dyn Mechanism>,
    room: Room,
    pairs: usize,
    duration: Duration,
}

impl Job for Strangers {
    /// Bytes that nobody sent are a fault of every mechanism; whom they come to is what is measured.
    fn check(&self) -> Result<()> {
        self.run(CHECK).map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        self.run(self.duration)
    }
}

impl Strangers {
    fn run(&self, duration: Duration) -> Result<Measurement> {
        let counts = Rc::new(Counts(SharedWords::new()?));
        let links = self.mechanism.strangers(self.pairs, SIZE)?;
        let mut pairs: Vec<Pair> = links
            .into_iter()
            .enumerate()
            .map(|(number, link)| self.pair(number, link, &counts))
            .collect::<Result<_>>()?;
        let begin = clock::now_ns();
        pairs.iter_mut().try_for_each(Pair::go)?;
        rest(duration)?;
        let (own, foreign) = counts.sums(self.pairs);
        let elapsed_ns = clock::now_ns() - begin;
        pairs.iter_mut().try_for_each(Pair::expect_alive)?;
        let bytes = own + foreign;
        Ok(Measurement {
            samples: Vec::new(),
            messages: bytes / SIZE as u64,
            bytes,
            elapsed_ns,
            cpu_ns: 0,
            misdelivered: Some(foreign),
            ..Measurement::default()
        })
    }

    fn pair(&self, number: usize, link: Box<dyn Link>, counts: &Counts) -> Result<Pair> {
        Pair::start(link, PATIENCE, |side, link, start| match side {
            Side::First => self.send(number, link, start),
            Side::Second => self.receive(number, link, start, counts),
        })
    }

    fn send(&self, number: usize, link: Box<dyn Link>, start: &mut Start) -> Result<Vec<u64>> {
        let mut sender = link.sender()?;
        self.room.enter(Side::First)?;
        start.wait()?;
        loop {
            sender.send(&[number as u8; SIZE])?;
        }
    }

    fn receive(
        &self,
        number: usize,
        link: Box<dyn Link>,
        start: &mut Start,
        counts: &Counts,
    ) -> Result<Vec<u64>> {
        let mut receiver = link.receiver()?;
        self.room.enter(Side::Second)?;
        start.wait()?;
        let mut message = [0; SIZE];
        loop {
            let n = receiver.receive(&mut message)?;
            ensure!(n == SIZE, "a stream ended that nobody ended");
            let (own, foreign) = sort(&message, number, self.pairs)?;
            counts.add(number, own, foreign);
        }
    }
}

/// How many bytes are this pair's, and how many are another's.
fn sort(message: &[u8], number: usize, pairs: usize) -> Result<(u64, u64)> {
    let stray = message.iter().find(|&&byte| usize::from(byte) >= pairs);
    ensure!(
        stray.is_none(),
        "a byte {stray:?} came that none of {pairs} pairs sent"
    );
    let own = message
        .iter()
        .filter(|&&byte| usize::from(byte) == number)
        .count();
    Ok((own as u64, (message.len() - own) as u64))
}

/// What each receiver got, in a cache line of its own: of its own pair's bytes and of others'.
struct Counts(SharedWords);

impl Counts {
    fn add(&self, number: usize, own: u64, foreign: u64) {
        let line = number * SharedWords::PER_LINE;
        self.0.word(line).fetch_add(own, Ordering::Relaxed);
        self.0.word(line + 1).fetch_add(foreign, Ordering::Relaxed);
    }

    fn sums(&self, pairs: usize) -> (u64, u64) {
        let sum = |word| {
            let lines = (0..pairs).map(|number| number * SharedWords::PER_LINE);
            lines
                .map(|line| self.0.word(line + word).load(Ordering::Relaxed))
                .sum()
        };
        (sum(0), sum(1))
    }
}

/// Sleeps as long, unless interrupted.
pub fn rest(duration: Duration) -> Result<()> {
    let end = Instant::now() + duration;
    loop {
        interrupt::check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        sleep(left.min(Duration::from_millis(100)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    use crate::mechanisms::{Pipe, Receiver, Sender, StreamReceiver, StreamSender, Waiting};

    #[test]
    fn bytes_are_sorted_by_whose_they_are() {
        assert_eq!(sort(&[1, 1, 0, 2], 1, 3).unwrap(), (2, 2));
        assert!(sort(&[1, 3], 1, 3).is_err());
    }

    /// Each pair on a pipe of its own, or all on one, whose bytes come to whoever reads next.
    struct Pipes {
        shared: bool,
    }

    impl Mechanism for Pipes {
        fn name(&self) -> &'static str {
            "pipes"
        }

        fn waiting(&self) -> Waiting {
            Waiting::Sleep
        }

        fn link(&self, size: usize) -> Result<Box<dyn Link>> {
            Pipe.link(size)
        }

        fn strangers(&self, pairs: usize, size: usize) -> Result<Vec<Box<dyn Link>>> {
            if !self.shared {
                return (0..pairs).map(|_| self.link(size)).collect();
            }
            let (output, input) = nix::unistd::pipe()?;
            let (output, input) = (File::from(output), File::from(input));
            let link = |_| -> Result<Box<dyn Link>> {
                Ok(Box::new(Ends(output.try_clone()?, input.try_clone()?)))
            };
            (0..pairs).map(link).collect()
        }
    }

    struct Ends(File, File);

    impl Link for Ends {
        fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
            Ok(Box::new(StreamSender(self.1)))
        }

        fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
            Ok(Box::new(StreamReceiver(self.0)))
        }
    }

    fn measure(shared: bool) -> Measurement {
        let cpus = Placement::SameCpu.cpus().unwrap().unwrap();
        let strangers = Strangers {
            mechanism: Rc::new(Pipes { shared }),
            room: Room { home: None, cpus },
            pairs: 3,
            duration: Duration::from_millis(100),
        };
        strangers.measure().unwrap()
    }

    #[test]
    fn what_crosses_over_on_a_shared_pipe_is_counted() {
        let measurement = measure(true);
        let astray = measurement.misdelivered.unwrap();
        assert!(astray > 0 && astray <= measurement.bytes, "{measurement:?}");
    }

    #[test]
    fn on_pipes_of_their_own_nothing_crosses_over() {
        let measurement = measure(false);
        assert!(measurement.bytes > 0);
        assert_eq!(measurement.misdelivered, Some(0));
    }
}
