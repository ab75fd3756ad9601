// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a reader should take away: sentences that compare Sluice with the reference, for a few conditions of each suite.
//! The choice depends on the conditions only, not on the results.

use sluice_testkit::units;

use super::groups::{distinct, groups};
use super::notes::{self, Badge};
use super::reference;
use crate::harness::pinning::Placement;
use crate::harness::rows::{BYTES, INSTRUCTIONS, Row};
use crate::harness::samples::Change;
use crate::harness::waiting::Waiting;
use crate::reports::load::HALF;

/// The size of a short message.
const SHORT: usize = 64;

pub struct Takeaway<'a> {
    pub row: &'a Row,
    pub rival: &'a Row,
    change: Change,
}

/// In the order of the rows.
pub fn takeaways(rows: &[Row]) -> Vec<Takeaway<'_>> {
    let compared: Vec<&Row> = rows
        .iter()
        .filter(|row| reference::rival(row, rows).is_some())
        .collect();
    let kinds = groups(&compared, |row| {
        let batch = row.batch.is_some();
        (
            &row.suite,
            &row.operation,
            &row.unit,
            row.receiver_state,
            batch,
        )
    });
    let chosen = kinds.iter().flat_map(|(_, rows)| of_kind(rows));
    chosen.filter_map(|row| Takeaway::of(row, rows)).collect()
}

/// Short messages and the last conditions, or half load, on two processors where these were measured. Each mechanism in its first
/// variant that waits like the reference, if there is one.
fn of_kind<'a>(rows: &[&'a Row]) -> Vec<&'a Row> {
    let on_two = |row: &Row| row.placement == Some(Placement::TwoCpus);
    let replaced = |row: &Row| {
        let mut others = rows.iter().filter(|other| on_two(other));
        !on_two(row) && others.any(|other| bare_title(other) == bare_title(row))
    };
    let kept = rows.iter().copied().filter(|row| !replaced(row));
    let rows: Vec<&Row> = kept.collect();
    let short = rows.iter().find(|row| row.size == Some(SHORT));
    // Beyond saturation, a ratio grows with the time of the run.
    let half = rows.iter().find(|row| row.load_percent == Some(HALF));
    let ends = [half.or(short).or(rows.first()), half.or(rows.last())];
    let titles = distinct(ends.into_iter().flatten().map(|row| &row.title));
    let mut chosen = Vec::new();
    for title in titles {
        let alike: Vec<&Row> = rows
            .iter()
            .copied()
            .filter(|row| row.title == *title)
            .collect();
        for (_, variants) in groups(&alike, |row| row.mechanism.as_str()) {
            let fair = |row: &&&Row| !waits_differently(row);
            chosen.extend(variants.iter().find(fair).or(variants.first()));
        }
    }
    chosen
}

fn waits_differently(row: &Row) -> bool {
    row.ratio.as_ref().is_some_and(|ratio| ratio.across_waiting)
}

impl<'a> Takeaway<'a> {
    fn of(row: &'a Row, rows: &'a [Row]) -> Option<Self> {
        Some(Self {
            row,
            rival: reference::rival(row, rows)?,
            change: row.change()?,
        })
    }

    /// The conditions, the result, and how both wait.
    pub fn headline(&self) -> String {
        let waiting = self
            .waiting()
            .map_or_else(String::new, |how| format!("; {how}"));
        format!("{}: {}{waiting}", conditions(self.row), self.claim())
    }

    pub fn notes(&self) -> impl Iterator<Item = Badge> {
        let change = notes::change(self.row, self.change, &self.rival.label);
        [change].into_iter().chain(notes::single_round(self.row))
    }

    fn claim(&self) -> String {
        let (ours, theirs) = (&self.row.label, &self.rival.label);
        let ratio = self.row.ratio.as_ref().map_or(1.0, |ratio| ratio.median);
        let compared = compared(self.row, ratio, theirs);
        match self.change {
            Change::Faster => format!("{ours} {compared}"),
            Change::Slower => format!("{ours} is behind: it {compared}"),
            Change::Tie => {
                let ratio = units::ratio(ratio);
                format!("{ours} and {theirs} tie (ratio {ratio}): no verdict holds in all rounds")
            }
        }
    }

    /// The range of the ratios, the number of rounds, and their class.
    pub fn spread(&self) -> String {
        let [_, range] = self.row.ratio_texts().unwrap_or_default();
        let common = self
            .row
            .ratio
            .as_ref()
            .and_then(|ratio| ratio.common_rounds);
        let rounds = match common.or(self.row.rounds) {
            Some(1) | None => "1 round".into(),
            Some(common) => format!("{common} rounds of both"),
        };
        let class = self.row.probe_class.map_or("", |class| class.name());
        let noisy = if self.row.is_noisy() { "noisy" } else { "" };
        let single = match self.row.rounds {
            Some(1) => "which has no spread",
            _ => "",
        };
        let range = format!("Ratios within rounds: {range}");
        let parts = [range.as_str(), &rounds, single, class, noisy];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(", ")
    }

    fn waiting(&self) -> Option<String> {
        let (ours, theirs) = (self.row.waiting?, self.rival.waiting?);
        let verb = |waiting| match waiting {
            Waiting::Spin => "spins",
            Waiting::Sleep => "sleeps",
        };
        Some(match (ours, theirs) {
            (Waiting::Spin, Waiting::Spin) => "both spin".into(),
            (Waiting::Sleep, Waiting::Sleep) => "both sleep".into(),
            _ => format!(
                "{} {}, {} {}",
                self.row.label,
                verb(ours),
                self.rival.label,
                verb(theirs)
            ),
        })
    }
}

/// A ratio in words. Near 1, two figures of it would say nothing.
fn compared(row: &Row, ratio: f64, to: &str) -> String {
    let (verb, noun, less) = match row.unit.as_deref() {
        Some("ns") => ("takes", "time", "less"),
        Some(INSTRUCTIONS) => ("executes", "instructions", "fewer"),
        Some(BYTES) => ("needs", "memory", "less"),
        _ => ("has", "throughput", "less"),
    };
    let percent = units::ratio((ratio - 1.0).abs() * 100.0);
    match ratio {
        0.9..1.0 => format!("{verb} {percent} % {less} {noun} than {to}"),
        1.0..1.1 => format!("{verb} {percent} % more {noun} than {to}"),
        ..1.0 => format!("{verb} {} of the {noun} of {to}", units::ratio(ratio)),
        _ => format!("{verb} {} times the {noun} of {to}", units::ratio(ratio)),
    }
}

/// The conditions of a row in words.
pub fn conditions(row: &Row) -> String {
    let place = match row.placement {
        Some(Placement::SameCpu) if bare_title(row) != row.title => ", one processor",
        Some(Placement::TwoCpus) if bare_title(row) != row.title => ", two processors",
        _ => "",
    };
    operation(row) + place
}

/// As conditions(), where there is no room for the placement that nearly all rows have: two processors.
pub fn short_conditions(row: &Row) -> String {
    match row.placement {
        Some(Placement::TwoCpus) => operation(row),
        _ => conditions(row),
    }
}

fn operation(row: &Row) -> String {
    let title = bare_title(row);
    match row.suite.as_str() {
        "rtt" => format!("Round trip of {title}"),
        "throughput" => format!("Stream of {title}"),
        "load" => format!("Latency under load, {title}"),
        "wakeup" => format!("Wake-up, {title}"),
        "sizes" => format!("Stream of {title}"),
        "connect" => format!("Connection, {title}"),
        "memory" => format!("Memory of a channel, {title}"),
        "instructions" => format!("Instructions, {title}"),
        "pairs" => format!("Several pairs, {title}"),
        "contention" => format!("Writers × readers, {title}"),
        "tar" => format!("tar of {title}"),
        "fanout" => format!("Fan-out, {title}"),
        _ => capitalized(title),
    }
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}

/// The title without the placement.
pub fn bare_title(row: &Row) -> &str {
    let placement = row.placement.map(|placement| placement.name());
    let bare = placement.and_then(|placement| row.title.strip_suffix(placement));
    bare.map_or(row.title.as_str(), str::trim_end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::class::Class;
    use crate::harness::rows::Ratio;

    /// A row of 64 B over 3 rounds near this value, relative to a pipe at 10.
    fn row(mechanism: &str, unit: &str, median: f64) -> Row {
        Row {
            suite: if unit == "ns" { "rtt" } else { "throughput" }.into(),
            mechanism: mechanism.into(),
            label: mechanism.into(),
            title: "64 B two-cpus".into(),
            size: Some(64),
            placement: Some(Placement::TwoCpus),
            probe_class: Some(Class::SharedCache),
            waiting: Some(Waiting::Sleep),
            unit: Some(unit.into()),
            median: Some(median),
            spread: Some([median * 0.9, median * 1.1]),
            rounds: Some(3),
            ratio: (mechanism != "pipe").then(|| Ratio {
                to: "pipe".into(),
                across_waiting: false,
                median: median / 10.0,
                min: median / 10.0 * 0.9,
                max: median / 10.0 * 1.1,
                common_rounds: None,
            }),
            ..Row::default()
        }
    }

    fn headline(unit: &str, ours: f64) -> String {
        let rows = [row("pipe", unit, 10.0), row("sluice-pipe", unit, ours)];
        takeaways(&rows)[0].headline()
    }

    #[test]
    fn the_sentence_says_that_ours_is_ahead() {
        let ahead = "Round trip of 64 B, two processors: sluice-pipe takes 0.42 of the time of pipe; both sleep";
        assert_eq!(headline("ns", 4.2), ahead);
        let ahead = "Stream of 64 B, two processors: sluice-pipe has 4.2 times the throughput of pipe; both sleep";
        assert_eq!(headline("bytes/s", 42.0), ahead);
    }

    #[test]
    fn the_sentence_says_that_ours_is_behind() {
        let slower = headline("ns", 18.0);
        assert!(
            slower.contains("sluice-pipe is behind: it takes 1.8 times the time of pipe; "),
            "{slower}"
        );
        let slower = headline("bytes/s", 0.042);
        assert!(
            slower.contains("sluice-pipe is behind: it has 0.0042 of the throughput of pipe; "),
            "{slower}"
        );
    }

    #[test]
    fn the_sentence_calls_a_tie_a_tie() {
        for unit in ["ns", "bytes/s"] {
            let tie = headline(unit, 9.8);
            let claim = "sluice-pipe and pipe tie (ratio 0.98): no verdict holds in all rounds; ";
            assert!(tie.contains(claim), "{tie}");
        }
    }

    #[test]
    fn a_small_difference_beyond_the_spread_is_a_percentage() {
        let near = |unit, ours| {
            let mut rows = [row("pipe", unit, 10.0), row("sluice-pipe", unit, ours)];
            for ratio in rows.iter_mut().filter_map(|row| row.ratio.as_mut()) {
                (ratio.min, ratio.max) = (ratio.median, ratio.median);
            }
            takeaways(&rows)[0].headline()
        };
        assert!(near("ns", 9.6).contains("takes 4.0 % less time than pipe"));
        assert!(near("ns", 10.4).contains("is behind: it takes 4.0 % more time than pipe"));
        assert!(near("bytes/s", 10.4).contains("has 4.0 % more throughput than pipe"));
        assert!(near("bytes/s", 9.6).contains("is behind: it has 4.0 % less throughput than pipe"));
    }

    #[test]
    fn instructions_are_no_time() {
        let counted = headline(INSTRUCTIONS, 4.2);
        assert!(counted.contains("sluice-pipe executes 0.42 of the instructions of pipe; "));
    }

    #[test]
    fn the_spread_stands_with_the_rounds_and_their_class() {
        let rows = [row("pipe", "ns", 10.0), row("sluice-pipe", "ns", 4.2)];
        let spread = takeaways(&rows)[0].spread();
        assert_eq!(
            spread,
            "Ratios within rounds: 0.38 … 0.46, 3 rounds of both, near"
        );
    }

    #[test]
    fn a_comparison_of_spinning_and_sleeping_is_labelled_and_not_preferred() {
        let mut spins = row("sluice-pipe", "ns", 1.0);
        spins.waiting = Some(Waiting::Spin);
        spins.label = "sluice-pipe (spins)".into();
        spins.ratio.as_mut().unwrap().across_waiting = true;
        let rows = [
            row("pipe", "ns", 10.0),
            spins,
            row("sluice-pipe", "ns", 4.2),
        ];
        let found = takeaways(&rows);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].row.label, "sluice-pipe");
        let found = takeaways(&rows[..2]);
        let sentence = found[0].headline();
        assert!(
            sentence.ends_with("; sluice-pipe (spins) spins, pipe sleeps"),
            "{sentence}"
        );
    }

    #[test]
    fn sluice_relative_to_itself_and_rows_without_a_ratio_have_no_sentence() {
        let mut other = row("sluice-pipe", "ns", 4.0);
        other.ratio = None;
        let mut beside = row("sluice-pipe-busy", "ns", 4.0);
        beside.ratio.as_mut().unwrap().to = "sluice-pipe".into();
        assert!(takeaways(&[row("pipe", "ns", 10.0), other, beside]).is_empty());
    }

    #[test]
    fn one_processor_is_chosen_where_two_were_not_measured() {
        let on_one = |mechanism, size: &str| Row {
            title: format!("{size} same-cpu"),
            placement: Some(Placement::SameCpu),
            ..row(mechanism, "ns", 4.0)
        };
        let rows = [
            on_one("pipe", "64 B"),
            on_one("sluice-pipe", "64 B"),
            row("pipe", "ns", 10.0),
            row("sluice-pipe", "ns", 4.0),
            on_one("pipe", "4 KiB"),
            on_one("sluice-pipe", "4 KiB"),
        ];
        let titles: Vec<&str> = takeaways(&rows)
            .iter()
            .map(|one| one.row.title.as_str())
            .collect();
        assert_eq!(titles, ["64 B two-cpus", "4 KiB same-cpu"]);
    }

    #[test]
    fn conditions_are_chosen_by_size_and_order() {
        let sized = |mechanism, size: usize| Row {
            size: Some(size),
            title: format!("{size} B two-cpus"),
            ..row(mechanism, "bytes/s", 10.0)
        };
        let rows =
            [8, 64, 1000, 4000].map(|size| [sized("pipe", size), sized("sluice-pipe", size)]);
        let rows = rows.concat();
        let sizes: Vec<_> = takeaways(&rows).iter().map(|one| one.row.size).collect();
        assert_eq!(sizes, [Some(64), Some(4000)]);
    }

    #[test]
    fn of_several_loads_half_is_chosen() {
        let loaded = |mechanism, percent: u32| Row {
            suite: "load".into(),
            load_percent: Some(percent),
            title: format!("64 B {percent} % two-cpus"),
            ..row(mechanism, "ns", 10.0)
        };
        let rows = [10, HALF, 90].map(|load| [loaded("pipe", load), loaded("sluice-pipe", load)]);
        let rows = rows.concat();
        let loads: Vec<_> = takeaways(&rows)
            .iter()
            .map(|one| one.row.load_percent)
            .collect();
        assert_eq!(loads, [Some(HALF)]);
    }
}
