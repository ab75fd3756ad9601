// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both containers send their file at the same time, over pipe(2) and over the device in turns.

use anyhow::{Result, bail, ensure};

use sluice_testkit::units::bytes_per_second;

use crate::crew::{Crew, NAMES};
use crate::progress::Progress;
use crate::protocol::{Event, Order, Way};
use crate::staging::Staged;

/// What one container did in one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    pub sent: u64,
    pub received: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub sha256: Option<String>,
}

impl Delivery {
    pub fn rate(&self) -> f64 {
        rate(self.received, self.begin_ns, self.end_ns)
    }
}

pub type Round = [Delivery; 2];

/// From the first byte of either to the last byte of both.
pub fn total_rate(round: &Round) -> f64 {
    let begin = round
        .iter()
        .map(|delivery| delivery.begin_ns)
        .min()
        .unwrap_or_default();
    let end = round
        .iter()
        .map(|delivery| delivery.end_ns)
        .max()
        .unwrap_or_default();
    rate(
        round.iter().map(|delivery| delivery.received).sum(),
        begin,
        end,
    )
}

fn rates(round: &Round) -> String {
    let [a, b] = [0, 1].map(|index| bytes_per_second(round[index].rate()));
    format!(
        "{} {a}, {} {b}, both {}",
        NAMES[0],
        NAMES[1],
        bytes_per_second(total_rate(round))
    )
}

fn rate(bytes: u64, begin_ns: u64, end_ns: u64) -> f64 {
    bytes as f64 * 1e9 / end_ns.saturating_sub(begin_ns).max(1) as f64
}

/// All rounds of both ways.
#[derive(Default)]
pub struct Results {
    pub pipe: Vec<Round>,
    pub sluice: Vec<Round>,
}

pub fn run(
    crew: &mut Crew,
    staged: &[Staged; 2],
    rounds: usize,
    write_size: usize,
) -> Result<Results> {
    let mut results = Results::default();
    for number in 1..=rounds {
        for way in Way::ALL {
            let title = format!("round {number} of {rounds}, {}", way.label());
            let round = transfer(crew, staged, way, write_size, &title)?;
            verify(&round, staged, way)?;
            eprintln!("  {title}: {}", rates(&round));
            match way {
                Way::Pipe => results.pipe.push(round),
                Way::Sluice => results.sluice.push(round),
            }
        }
    }
    Ok(results)
}

fn transfer(
    crew: &mut Crew,
    staged: &[Staged; 2],
    way: Way,
    write_size: usize,
    title: &str,
) -> Result<Round> {
    crew.order_both(&Order::Prepare { way, write_size })?;
    await_ready(crew)?;
    let mut progress = Progress::new(
        title,
        NAMES.map(str::to_string),
        [0, 1].map(|index| staged[index].bytes),
    );
    crew.order_both(&Order::Go)?;
    let round = collect(crew, &mut progress)?;
    progress.finish();
    Ok(round)
}

/// Four processes: a sender and a receiver in each container.
fn await_ready(crew: &mut Crew) -> Result<()> {
    for _ in 0..4 {
        match crew.next()? {
            (_, Event::Ready) => {}
            (index, event) => bail!(
                "a process in container {} ended before the transfer began, so that its other end saw {event:?}; \
                 'dmesg | tail' may say why",
                NAMES[index]
            ),
        }
    }
    Ok(())
}

fn collect(crew: &mut Crew, progress: &mut Progress) -> Result<Round> {
    let mut round = Round::default();
    let mut missing = 4;
    while missing > 0 {
        let (index, event) = crew.next()?;
        let delivery = &mut round[index];
        match event {
            Event::Progress { bytes } => {
                progress.set(index, bytes);
                continue;
            }
            Event::Sent { bytes, begin_ns } => {
                (delivery.sent, delivery.begin_ns) = (bytes, begin_ns)
            }
            Event::Received {
                bytes,
                end_ns,
                sha256,
            } => {
                (delivery.received, delivery.end_ns, delivery.sha256) = (bytes, end_ns, sha256);
            }
            event => bail!(
                "container {} answered {event:?} in the middle of a transfer",
                NAMES[index]
            ),
        }
        missing -= 1;
    }
    Ok(round)
}

/// The hash of what came over the device is that of the container's own file, so no byte is missing, changed or another's.
fn verify(round: &Round, staged: &[Staged; 2], way: Way) -> Result<()> {
    for ((delivery, file), name) in round.iter().zip(staged).zip(NAMES) {
        let way_label = way.label();
        ensure!(
            delivery.sent == file.bytes,
            "container {name} sent {} of the {} bytes of {}",
            delivery.sent,
            file.bytes,
            file.name
        );
        ensure!(
            delivery.received == file.bytes,
            "over {way_label} container {name} received {} bytes and was sent {}: bytes were lost or crossed over",
            delivery.received,
            file.bytes
        );
        if way == Way::Sluice {
            ensure!(
                delivery.sha256.as_ref() == Some(&file.sha256),
                "over {way_label} container {name} received something else than {}: its SHA-256 is {}, not {}",
                file.name,
                delivery.sha256.as_deref().unwrap_or("missing"),
                file.sha256
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staged(bytes: u64, sha256: &str) -> Staged {
        Staged {
            path: "/a".into(),
            name: "file".into(),
            bytes,
            sha256: sha256.into(),
        }
    }

    fn delivery(bytes: u64, sha256: &str) -> Delivery {
        Delivery {
            sent: bytes,
            received: bytes,
            begin_ns: 100,
            end_ns: 200,
            sha256: Some(sha256.into()),
        }
    }

    #[test]
    fn the_total_runs_from_the_first_byte_to_the_last() {
        let late = Delivery {
            begin_ns: 150,
            end_ns: 300,
            ..delivery(1000, "")
        };
        assert_eq!(total_rate(&[delivery(1000, ""), late]), 1e10);
        assert_eq!(delivery(1000, "").rate(), 1e10);
    }

    #[test]
    fn swapped_files_are_found_even_when_they_are_of_one_size() {
        let files = [staged(10, "aa"), staged(10, "bb")];
        verify(
            &[delivery(10, "aa"), delivery(10, "bb")],
            &files,
            Way::Sluice,
        )
        .unwrap();
        let error = verify(
            &[delivery(10, "bb"), delivery(10, "aa")],
            &files,
            Way::Sluice,
        )
        .unwrap_err();
        assert!(error.to_string().contains("SHA-256"), "{error}");
    }

    #[test]
    fn a_byte_too_few_or_too_many_is_found_over_both_ways() {
        let files = [staged(10, "aa"), staged(10, "bb")];
        for way in Way::ALL {
            for received in [9, 11] {
                let wrong = Delivery {
                    received,
                    ..delivery(10, "bb")
                };
                let error = verify(&[delivery(10, "aa"), wrong], &files, way).unwrap_err();
                assert!(
                    error.to_string().contains("container b received"),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn a_missing_digest_is_not_a_match() {
        let files = [staged(10, "aa"), staged(10, "bb")];
        let bare = Delivery {
            sha256: None,
            ..delivery(10, "")
        };
        assert!(verify(&[delivery(10, "aa"), bare], &files, Way::Sluice).is_err());
    }
}
