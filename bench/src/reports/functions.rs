// SPDX-License-Identifier: MIT OR Apache-2.0
//! What templates can call. A result that was not measured is none, and its text is empty.

use minijinja::Environment;
use minijinja::value::{Serde, Value};
use sluice_testkit::units;

use super::{criteria, model};
use crate::harness::figures::Values;
use crate::harness::rows::Row;

pub fn add(environment: &mut Environment, rows: Vec<Row>) {
    add_texts(environment);
    environment.add_function("row", move |name: String, title: Option<String>| {
        Value::from(row(&rows, &name, title).map(Serde))
    });
    environment.add_function("quotient", quotient);
    environment.add_function("ratio", ratio);
    environment.add_function("of_medians", of_medians);
    environment.add_function("time_over_sum", time_over_sum);
    environment.add_function("criterion", criteria::criterion);
    environment.add_function("below", criteria::below);
    environment.add_function("fit", model::fit);
    environment.add_function("overtakes", model::overtakes);
    environment.add_function("measured_crossover", model::measured_crossover);
}

type Text = fn(f64) -> String;
type RangeText = fn(f64, f64) -> String;

pub fn add_texts(environment: &mut Environment) {
    let numbers: [(&str, Text); 8] = [
        ("ns", units::nanoseconds),
        ("figures", units::figures),
        ("times", units::ratio),
        ("rate", units::bytes_per_second),
        ("per_second", units::per_second),
        ("count", units::count),
        ("whole", |number| format!("{number:.0}")),
        ("percent", |share| format!("{:.0} %", 100.0 * share)),
    ];
    for (name, text) in numbers {
        environment.add_filter(name, move |number: Option<f64>| {
            number.map(text).unwrap_or_default()
        });
    }
    let ranges: [(&str, RangeText); 3] = [
        ("figures_range", units::figures_range),
        ("times_range", units::ratio_range),
        ("count_range", units::count_range),
    ];
    for (name, text) in ranges {
        environment.add_filter(name, move |range: Option<Serde<[f64; 2]>>| {
            range.map_or_else(String::new, |range| text(range[0], range[1]))
        });
    }
    environment.add_filter("size", units::size);
}

/// The row with this label, or else the only one of this mechanism; without a title the first one of the mechanism.
fn row<'a>(rows: &'a [Row], name: &str, title: Option<String>) -> Option<&'a Row> {
    let of_mechanism = |row: &&Row| row.mechanism == name;
    let Some(title) = title else {
        return rows.iter().find(of_mechanism);
    };
    let of_title = || rows.iter().filter(|row| row.title == title);
    let mut others = of_title().filter(of_mechanism);
    let only = others.next().filter(|_| others.next().is_none());
    of_title().find(|row| row.label == name).or(only)
}

fn quotient(of: Option<f64>, to: Option<f64>) -> Option<f64> {
    Some(of? / to?)
}

/// Within the rounds of both, of the compared values or of a figure. None for different classes, too.
fn ratio(
    of: Option<Serde<Row>>,
    to: Option<Serde<Row>>,
    figure: Option<String>,
) -> Option<Serde<Values>> {
    let (of, to) = (of?, to?);
    let ratio = match figure {
        Some(_) if of.probe_class != to.probe_class => None,
        Some(figure) => of.figures.get(&figure)?.ratio(to.figures.get(&figure)?),
        None => of.ratio_within_rounds(&to),
    };
    ratio.map(Serde)
}

fn of_medians(of: Option<Serde<Values>>, to: Option<Serde<Values>>) -> Option<Serde<Values>> {
    let (of, to) = (of?, to?);
    Some(Serde(of.ratio_of_medians(&to)))
}

/// The time of an operation ÷ the sum of two others, within rounds. The first two are rates per second, the third is a time.
fn time_over_sum(
    of: Option<Serde<Row>>,
    rate: Option<Serde<Row>>,
    time: Option<Serde<Row>>,
) -> Option<Serde<Values>> {
    let (of, rate, time) = (of?, rate?, time?);
    if of.probe_class != rate.probe_class || of.probe_class != time.probe_class {
        return None;
    }
    let of_round = |row: &Row, number| {
        let mut rounds = row.value.as_ref()?.values.iter();
        rounds.find_map(|(other, value)| (*other == number).then_some(*value))
    };
    let rounds = of.value.as_ref()?.values.iter();
    let ratios = rounds.filter_map(|&(number, ours)| {
        let sum = 1e9 / of_round(&rate, number)? + of_round(&time, number)?;
        Some((number, 1e9 / ours / sum))
    });
    Values::of(ratios).map(Serde)
}
