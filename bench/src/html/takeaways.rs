// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sluice relative to its rivals: sentences for a few conditions of each suite, which a reader should take away, and all ratios.
//! The choice depends on the conditions only, not on the results.

use sluice_testkit::units;

use super::figure::{Figure, Point, Series};
use super::groups::{distinct, groups};
use super::scale::{MAX_TICKS_X, Scale};
use super::view::View;
use crate::harness::figures::Unit;
use crate::harness::pinning::Placement;
use crate::harness::rows::Row;
use crate::harness::samples::Change;
use crate::harness::waiting::Waiting;
use crate::suites;

/// It does not wait for the disk, as the reference of its suite does: a ratio of the two shows no advantage.
const WITHOUT_RIVAL: &str = "sluice-durable-interval";
/// The size of a short message.
const SHORT: usize = 64;
/// Percent of the saturation. Beyond it, a ratio grows with the time of the run.
const HALF: f64 = 50.0;

/// A row of Sluice, and what it is compared with.
#[derive(Clone, Copy)]
pub struct Comparison<'a> {
    view: &'a View<'a>,
    row: &'a Row,
    rival: &'a Row,
    ratio: f64,
    /// The ratio and its range, inverted where necessary so that more is better.
    gain: f64,
    range: [f64; 2],
}

/// In the order of the rows. Without those whose reference is Sluice itself, for example with fewer names.
pub fn comparisons<'a>(views: &'a [View], rows: &'a [Row]) -> Vec<Comparison<'a>> {
    let compared = views.iter().filter_map(|view| {
        let row = view.row;
        let rival = row.reference(rows)?;
        let values = &row.ratio.as_ref()?.values;
        let (ratio, [min, max]) = (values.median, values.spread);
        let (gain, range) = match row.less_is_better() {
            true => (1.0 / ratio, [1.0 / max, 1.0 / min]),
            false => (ratio, [min, max]),
        };
        let is_of_rivals = row.is_sluice() && !rival.is_sluice() && row.mechanism != WITHOUT_RIVAL;
        is_of_rivals.then_some(Comparison {
            view,
            row,
            rival,
            ratio,
            gain,
            range,
        })
    });
    compared.collect()
}

/// The comparisons with a sentence.
fn chosen<'a>(all: &[Comparison<'a>]) -> Vec<Comparison<'a>> {
    let kinds = groups(all, |Comparison { row, .. }| {
        let axes = ["operation", "receiver_state", "batch"].map(|axis| row.axes.get(axis));
        (&row.suite, row.unit, axes)
    });
    let chosen = kinds.iter().flat_map(|(_, all)| of_kind(all));
    chosen.filter(|one| one.row.change().is_some()).collect()
}

/// Short messages and the last conditions, or half load, on two processors where these were measured. Each mechanism in its first
/// variant that waits like the reference, if there is one.
fn of_kind<'a>(all: &[Comparison<'a>]) -> Vec<Comparison<'a>> {
    let is_on_two = |one: &&Comparison| one.row.placement == Some(Placement::TwoCpus);
    let is_replaced = |one: &&Comparison| {
        let mut others = all.iter().filter(is_on_two);
        !is_on_two(one) && others.any(|other| bare_title(other.row) == bare_title(one.row))
    };
    let kept = all.iter().filter(|one| !is_replaced(one)).copied();
    let kept: Vec<Comparison> = kept.collect();
    let is_short = |one: &&Comparison| one.row.size == Some(SHORT);
    let is_half = |one: &&Comparison| one.row.number("load_percent") == Some(HALF);
    let [short, half] = [kept.iter().find(is_short), kept.iter().find(is_half)];
    let ends = [half.or(short).or(kept.first()), half.or(kept.last())];
    let titles = distinct(ends.into_iter().flatten().map(|one| &one.row.title));
    let mut chosen = Vec::new();
    for title in titles {
        let alike = kept.iter().filter(|one| one.row.title == *title);
        let alike: Vec<_> = alike.copied().collect();
        for (_, variants) in groups(&alike, |one| &one.row.mechanism) {
            let is_fair = |one: &&Comparison| one.row.waiting == one.rival.waiting;
            chosen.extend(variants.iter().find(is_fair).or(variants.first()));
        }
    }
    chosen
}

impl Comparison<'_> {
    /// The conditions, the result, and how both wait.
    fn headline(&self) -> String {
        let parts = [Some(self.claim()), self.waiting()];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        format!("{}: {}", conditions(self.row), parts.join("; "))
    }

    fn claim(&self) -> String {
        let (ours, theirs) = (&self.row.label, &self.rival.label);
        let compared = compared(self.row.unit, self.ratio, theirs);
        match self.row.change() {
            Some(Change::Faster) => format!("{ours} {compared}"),
            Some(Change::Slower) => format!("{ours} is behind: it {compared}"),
            Some(Change::Tie) | None => {
                let ratio = units::ratio(self.ratio);
                format!("{ours} and {theirs} tie (ratio {ratio}): no verdict holds in all rounds")
            }
        }
    }

    fn waiting(&self) -> Option<String> {
        let verb = |waiting| match waiting {
            Waiting::Spin => "spin",
            Waiting::Sleep => "sleep",
        };
        let [ours, theirs] = [self.row.waiting?, self.rival.waiting?].map(verb);
        Some(match ours == theirs {
            true => format!("both {ours}"),
            false => format!("{} {ours}s, {} {theirs}s", self.row.label, self.rival.label),
        })
    }
}

/// A ratio in words. Near 1, two figures of it would say nothing.
fn compared(unit: Option<Unit>, ratio: f64, to: &str) -> String {
    let (verb, noun, less) = match unit {
        Some(Unit::Nanoseconds) => ("takes", "time", "less"),
        Some(Unit::Instructions) => ("executes", "instructions", "fewer"),
        Some(Unit::Bytes) => ("needs", "memory", "less"),
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
fn conditions(row: &Row) -> String {
    let place = match row.placement {
        _ if bare_title(row) == row.title => "",
        Some(Placement::SameCpu) => ", one processor",
        Some(Placement::TwoCpus) => ", two processors",
        None => "",
    };
    operation(row) + place
}

fn operation(row: &Row) -> String {
    let title = bare_title(row);
    match suites::by_name(&row.suite).map_or("", |suite| suite.operation) {
        "" => capitalized(title),
        operation => format!("{operation} {title}"),
    }
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(characters.clone()).collect()
}

/// The title without the placement.
fn bare_title(row: &Row) -> &str {
    let placement = row.placement.map(|placement| placement.name());
    let bare = placement.and_then(|placement| row.title.strip_suffix(placement));
    bare.map_or(row.title.as_str(), str::trim_end)
}

/// The sentences. None without one.
pub fn takeaways(all: &[Comparison]) -> Option<Figure> {
    let chosen = chosen(all);
    figure(
        "What to take away",
        &chosen,
        Comparison::headline,
        name(&chosen),
    )
}

/// The first mechanism under each of the chosen conditions. None without one.
pub fn picture(all: &[Comparison]) -> Option<Figure> {
    let conditions = groups(&chosen(all), |one| conditions(one.row)).into_iter();
    let first: Vec<Comparison> = conditions.map(|(_, all)| all[0]).collect();
    figure("Sluice", &first, Comparison::headline, name(&first))
}

/// All ratios. None without one.
pub fn summary(all: &[Comparison]) -> Option<Figure> {
    let heading = format!(
        "Sluice relative to {}",
        only_rival(all).unwrap_or("the reference")
    );
    let name = |one: &Comparison| one.row.label.clone();
    figure(&heading, all, name, |one| conditions(one.row))
}

/// The conditions and the mechanism of each mark, with its reference where these differ.
fn name(all: &[Comparison]) -> impl Fn(&Comparison) -> String {
    let has_one_reference = only_rival(all).is_some();
    move |Comparison { row, rival, .. }| match has_one_reference {
        true => format!("{}: {}", conditions(row), row.label),
        // There is no room for the placement.
        false => format!("{}: {} vs {}", operation(row), row.label, rival.mechanism),
    }
}

fn only_rival<'a>(all: &[Comparison<'a>]) -> Option<&'a str> {
    match distinct(all.iter().map(|one| one.rival.mechanism.as_str()))[..] {
        [one] => Some(one),
        _ => None,
    }
}

fn figure<'a>(
    heading: &str,
    all: &[Comparison<'a>],
    name: impl Fn(&Comparison<'a>) -> String,
    group: impl Fn(&Comparison<'a>) -> String,
) -> Option<Figure> {
    let ends = all.iter().flat_map(|one| [one.range[0], one.range[1], 1.0]);
    let x = Scale::logarithmic(ends, MAX_TICKS_X)?;
    let series = all.iter().map(|one| {
        let point = Point::interval(&x, one.gain, one.range, one.view);
        Series::of_row(one.view, name(one), group(one), vec![point])
    });
    Some(Figure {
        heading: heading.into(),
        level: Some(x.position(1.0)),
        x: x.axis(
            &format!(
                "times better than {}",
                only_rival(all).unwrap_or("the reference")
            ),
            units::figures_short,
        ),
        series: series.collect(),
        ..Figure::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::rounds::tests::{outcome, series};
    use crate::harness::rounds::{Metric, Outcome};
    use crate::harness::rows;
    use crate::html::style::Styles;

    /// The sentences about these outcomes.
    fn sentences(outcomes: &[Outcome]) -> Vec<String> {
        let rows: Vec<Row> = outcomes.iter().flat_map(rows::rows).collect();
        let styles = Styles::of(&rows);
        let views: Vec<View> = (0..rows.len())
            .map(|number| View::of(number, &rows, &styles))
            .collect();
        let chosen = chosen(&comparisons(&views, &rows));
        chosen.iter().map(Comparison::headline).collect()
    }

    #[test]
    #[rustfmt::skip]
    fn a_sentence_says_which_is_ahead_and_by_how_much() {
        for (metric, ours, claim) in [
            (Metric::Latency, [42.0, 42.0], "takes 0.42 of the time of pipe"),
            (Metric::Latency, [180.0, 180.0], "is behind: it takes 1.8 times the time of pipe"),
            (Metric::Latency, [96.0, 96.0], "takes 4.0 % less time than pipe"),
            (Metric::Rate, [420.0, 420.0], "has 4.2 times the throughput of pipe"),
            (Metric::Rate, [96.0, 96.0], "is behind: it has 4.0 % less throughput than pipe"),
            (Metric::Instructions, [42.0, 42.0], "executes 0.42 of the instructions of pipe"),
            (Metric::Memory, [90.0, 110.0], "and pipe tie (ratio 1.0): no verdict holds in all rounds"),
        ] {
            let expected = format!("Round trip of 1 B, one processor: sluice-pipe {claim}; both sleep");
            assert_eq!(sentences(&[outcome(metric, &[100.0, 100.0], &ours)]), [expected]);
        }
    }

    #[test]
    fn size_placement_and_waiting_decide_the_choice() {
        let of_size = |size: usize, placement: Placement| {
            let mut outcome = outcome(Metric::Latency, &[100.0], &[50.0]);
            let mut spinning = series("sluice-pipe", Waiting::Spin, &[10.0]);
            spinning.subject.label = "sluice-pipe (spins)".into();
            outcome.series.insert(1, spinning);
            outcome.title = format!("{size} B {}", placement.name());
            (outcome.size, outcome.placement) = (Some(size), placement);
            outcome
        };
        let mut outcomes = vec![of_size(64, Placement::SameCpu)];
        outcomes.extend([8, 64, 1000, 4000].map(|size| of_size(size, Placement::TwoCpus)));
        let claim = "two processors: sluice-pipe takes 0.50 of the time of pipe; both sleep";
        let expected = ["64 B", "4000 B"].map(|size| format!("Round trip of {size}, {claim}"));
        assert_eq!(sentences(&outcomes), expected);
    }
}
