// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables: the files, and the throughput of the device beside that of pipe(2).

use sluice_testkit::host::Host;
use sluice_testkit::spread::Spread;
use sluice_testkit::table::{Align, Table};
use sluice_testkit::units::{self, bytes_per_second, megabytes, rate_range, ratio_range, size};

use crate::containers::NAMES;
use crate::rounds::{Results, Round, total_rate};
use crate::staging::Staged;

pub fn text(staged: &[Staged; 2], results: &Results, write_size: usize) -> String {
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
        table.row(row(NAMES[index], &file.name, file.bytes, figures));
    }
    let bytes = staged.iter().map(|file| file.bytes).sum();
    table.row(row(
        "both",
        "at the same time",
        bytes,
        figures(results, total_rate),
    ));
    format!(
        "Throughput: medians of {} interleaved rounds; reads and writes of {}; {}\n\n{table}",
        results.sluice.len(),
        size(write_size),
        Host::probe().line()
    )
}

/// What each container has sent and received. verify has compared the digests.
pub fn files(staged: &[Staged; 2]) -> Table {
    let mut table = Table::new(&[
        ("container", Align::Left),
        ("sends", Align::Left),
        ("size", Align::Right),
        ("SHA-256 of what it receives, as sent", Align::Left),
    ]);
    for (name, file) in NAMES.iter().zip(staged) {
        table.row([
            name.to_string(),
            file.name.clone(),
            megabytes(file.bytes),
            file.sha256.clone(),
        ]);
    }
    table
}

struct Figures {
    sluice: Spread,
    pipe: Spread,
    ratio: Spread,
}

fn figures(results: &Results, rate: impl Fn(&Round) -> f64) -> Figures {
    let sluice: Vec<f64> = results.sluice.iter().map(&rate).collect();
    let pipe: Vec<f64> = results.pipe.iter().map(&rate).collect();
    let expect = |spread: Option<Spread>| spread.expect("there is at least one round");
    Figures {
        sluice: expect(Spread::of(&sluice)),
        pipe: expect(Spread::of(&pipe)),
        ratio: expect(Spread::of_ratios(&sluice, &pipe)),
    }
}

fn row(container: &str, file: &str, bytes: u64, figures: Figures) -> [String; 9] {
    let Figures {
        sluice,
        pipe,
        ratio,
    } = figures;
    let ratios = ratio_range(ratio.min, ratio.max);
    [
        container.into(),
        file.into(),
        megabytes(bytes),
        rate(sluice),
        rates(sluice),
        rate(pipe),
        rates(pipe),
        units::ratio(ratio.median),
        ratios,
    ]
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
    use crate::rounds::Transfer;

    fn round(seconds: f64) -> Round {
        [Transfer {
            bytes: 100,
            seconds,
        }; 2]
    }

    #[test]
    fn the_ratio_is_paired_within_each_round() {
        let results = Results {
            pipe: vec![round(1.0), round(3.0)],
            sluice: vec![round(0.5), round(1.0)],
        };
        let figures = figures(&results, |round| round[0].rate());
        let expected = Spread {
            median: 2.5,
            min: 2.0,
            max: 3.0,
        };
        assert_eq!(figures.ratio, expected);
        assert_eq!(figures.sluice.max, 200.0);
    }
}
