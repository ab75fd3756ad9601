// SPDX-License-Identifier: MIT OR Apache-2.0
//! The summary: what was sent, how fast, and beside it what pipe(2) did with the same files.

use sluice_testkit::host::Host;
use sluice_testkit::spread::Spread;
use sluice_testkit::table::{Align, Table};
use sluice_testkit::units::{bytes_per_second, megabytes, rate_range, ratio_range, size};

use crate::crew::NAMES;
use crate::rounds::{Results, Round, total_rate};
use crate::staging::Staged;

pub fn text(host: &Host, staged: &[Staged; 2], results: &Results, write_size: usize) -> String {
    let mut table = Table::new(&[
        ("container", Align::Left),
        ("file", Align::Left),
        ("size", Align::Right),
        ("/dev/sluice/pipe", Align::Right),
        ("spread", Align::Right),
        ("pipe(2)", Align::Right),
        ("spread", Align::Right),
        ("ratio", Align::Right),
        ("spread", Align::Right),
    ]);
    for (index, file) in staged.iter().enumerate() {
        let figures = figures(results, |round| round[index].rate());
        table.row(line(NAMES[index], &file.name, file.bytes, figures));
    }
    let bytes = staged.iter().map(|file| file.bytes).sum();
    table.row(line(
        "both",
        "at the same time",
        bytes,
        figures(results, total_rate),
    ));
    format!(
        "Throughput: medians of {} rounds of each, taken in turns; writes of {}; {}\n\n{table}",
        results.sluice.len(),
        size(write_size),
        host.line()
    )
}

/// What arrived, as hashes, beside what was sent.
pub fn digests(staged: &[Staged; 2], results: &Results) -> String {
    let mut table = Table::new(&[
        ("container", Align::Left),
        ("received", Align::Right),
        ("SHA-256", Align::Left),
    ]);
    for (index, file) in staged.iter().enumerate() {
        let received: u64 = results
            .sluice
            .iter()
            .map(|round| round[index].received)
            .sum();
        let times = format!(
            "{} × {} bytes",
            results.sluice.len(),
            received / results.sluice.len().max(1) as u64
        );
        table.row([
            NAMES[index].to_string(),
            times,
            format!("{}, as sha256sum says", file.sha256),
        ]);
    }
    table.to_string()
}

struct Figures {
    sluice: Spread,
    pipe: Spread,
    ratio: Spread,
}

fn figures(results: &Results, rate: impl Fn(&Round) -> f64) -> Option<Figures> {
    let sluice: Vec<f64> = results.sluice.iter().map(&rate).collect();
    let pipe: Vec<f64> = results.pipe.iter().map(&rate).collect();
    Some(Figures {
        sluice: Spread::of(&sluice)?,
        pipe: Spread::of(&pipe)?,
        ratio: Spread::of_ratios(&sluice, &pipe)?,
    })
}

fn line(container: &str, file: &str, bytes: u64, figures: Option<Figures>) -> Vec<String> {
    let mut cells = vec![container.to_string(), file.to_string(), megabytes(bytes)];
    match figures {
        None => cells.extend((0..6).map(|_| "–".to_string())),
        Some(Figures {
            sluice,
            pipe,
            ratio,
        }) => {
            cells.extend([rate(sluice), rates(sluice), rate(pipe), rates(pipe)]);
            cells.extend([
                format!("{:.2}", ratio.median),
                ratio_range(ratio.min, ratio.max),
            ]);
        }
    }
    cells
}

fn rate(spread: Spread) -> String {
    bytes_per_second(spread.median)
}

fn rates(spread: Spread) -> String {
    rate_range(spread.min, spread.max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::Delivery;

    fn round(ns: u64) -> Round {
        let delivery = Delivery {
            sent: 100,
            received: 100,
            begin_ns: 0,
            end_ns: ns,
            sha256: None,
        };
        [delivery.clone(), delivery]
    }

    #[test]
    fn the_ratio_is_ours_to_theirs_within_each_round() {
        let results = Results {
            pipe: vec![round(100), round(300)],
            sluice: vec![round(50), round(100)],
        };
        let figures = figures(&results, |round| round[0].rate()).unwrap();
        assert_eq!(
            figures.ratio,
            Spread {
                median: 2.5,
                min: 2.0,
                max: 3.0
            }
        );
        assert_eq!(figures.sluice.max, 2e9);
    }
}
