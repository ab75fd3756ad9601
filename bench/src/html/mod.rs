// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as a single HTML page without network access, other files, or required scripts. The Rust code makes its data
//! from the rows; page.html is its layout. The plots are SVG without a library, so that style sheets apply to them: colours
//! follow light and dark mode, and text keeps its size on a narrow screen.

mod gains;
mod plot;
#[cfg(test)]
mod tests;

use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, context};
use serde::Serialize;
use sluice_testkit::units;

use self::gains::gains;
use self::plot::{Axis, Interval, Plot};
use crate::harness::figures::Unit;
use crate::harness::rows::{Results, Row};
use crate::{reports, suites};

const STYLE: &str = include_str!("style.css");

/// A row, with what the templates show of it beside its fields.
#[derive(Serialize)]
struct View<'a> {
    #[serde(flatten)]
    row: &'a Row,
    /// The class of its line and of its mark.
    role: &'static str,
    rounds: usize,
    less_is_better: bool,
    median_text: Option<String>,
    range_text: Option<String>,
    /// The comparison with the reference: its class, and its name.
    change: Option<[&'static str; 2]>,
    few_common_rounds: Option<usize>,
    /// The noisy rounds of the row, or else of its reference, and all.
    noisy: Option<[usize; 2]>,
}

impl<'a> View<'a> {
    fn new(row: &'a Row, rows: &[Row]) -> Self {
        let noisy = |row: &Row| Some([row.noisy_rounds?, row.rounds()]);
        Self {
            row,
            role: match row.is_reference {
                _ if row.is_sluice() => "sluice",
                true => "reference",
                false => "other",
            },
            rounds: row.rounds(),
            less_is_better: row.less_is_better(),
            median_text: row.median_text(),
            range_text: row.range_text(),
            change: row.change().map(|one| [one.name(), row.change_name(one)]),
            few_common_rounds: row.few_common_rounds(),
            noisy: noisy(row).or_else(|| noisy(row.reference(rows)?)),
        }
    }
}

#[derive(Serialize)]
struct Section<'a> {
    name: &'a str,
    plots: Vec<Plot>,
    text: Option<String>,
}

pub fn page(results: &Results) -> String {
    let rows = &results.rows;
    let views = views(rows);
    let suites = groups(0..rows.len(), |&row| rows[row].suite.as_str()).into_iter();
    let sections = suites.map(|(name, of_suite)| section(name, of_suite, rows));
    let all = gains(rows);
    render(
        "page.html",
        context! {
            style => STYLE,
            script => include_str!("highlight.js"),
            host => Serde(&results.host),
            clock_ns => results.clock_ns,
            versions => Serde(&results.versions),
            date => &results.date,
            rows => Serde(&views),
            takeaways => Serde(gains::takeaways(&all)),
            summary => Serde(gains::summary(&all)),
            suites => Serde(sections.collect::<Vec<_>>()),
        },
    )
}

/// The takeaways as a file for pages that cannot contain the report. None without a result of Sluice relative to another mechanism.
pub fn picture(results: &Results) -> Option<String> {
    let rows = &results.rows;
    let plot = gains::takeaways(&gains(rows))?;
    let views = views(rows);
    let data = context! { plot => Serde(plot), rows => Serde(views), style => STYLE };
    Some(render("picture.html", data))
}

fn views(rows: &[Row]) -> Vec<View<'_>> {
    rows.iter().map(|row| View::new(row, rows)).collect()
}

fn render(name: &str, data: minijinja::Value) -> String {
    let mut templates = Environment::new();
    // Rows do not have all fields.
    templates.set_undefined_behavior(UndefinedBehavior::Chainable);
    reports::add_texts(&mut templates);
    for (name, text) in [
        ("page.html", include_str!("page.html")),
        ("plot.html", include_str!("plot.html")),
        ("picture.html", include_str!("picture.html")),
    ] {
        let added = templates.add_template(name, text);
        added.expect("the template is correct, which tests show");
    }
    let template = templates.get_template(name);
    let text = template.and_then(|template| template.render(data));
    let text = text.expect("the template suits the data, which tests show");
    // Slashes need no escape, and are frequent in rates.
    text.replace("&#x2f;", "/")
}

fn section<'a>(name: &'a str, of_suite: Vec<usize>, rows: &'a [Row]) -> Section<'a> {
    let template = suites::by_name(name).and_then(|suite| suite.tables);
    let measured = of_suite.into_iter().filter(|&row| rows[row].is_measured());
    let titles = groups(measured, |&row| &rows[row].title).into_iter();
    let plots = titles.filter_map(|(title, numbers)| plot(title, numbers, rows));
    Section {
        name,
        plots: plots.collect(),
        text: template.and_then(|template| reports::text(template, name, rows)),
    }
}

/// The rows with one title, the best first.
fn plot(title: &str, mut numbers: Vec<usize>, rows: &[Row]) -> Option<Plot> {
    let unit = rows[*numbers.first()?].unit?;
    let key = |&number: &usize| match (unit.less_is_better(), rows[number].median()) {
        (true, median) => median.unwrap_or(f64::INFINITY),
        (false, median) => -median.unwrap_or(0.0),
    };
    numbers.sort_by(|one, other| key(one).total_cmp(&key(other)));
    let intervals = numbers.into_iter().filter_map(|number| {
        let (row, value) = (&rows[number], rows[number].value.as_ref()?);
        Some(Interval {
            name: row.label.clone(),
            group: row.label.clone(),
            row: number,
            median: value.median,
            range: value.spread,
        })
    });
    let intervals: Vec<Interval> = intervals.collect();
    let most = intervals.iter().map(|one| one.range[1]);
    let axis = Axis::from_zero(most.fold(0.0, f64::max));
    let (label, tick): (_, fn(f64) -> String) = match unit {
        Unit::Nanoseconds => ("time", units::time_tick),
        Unit::BytesPerSecond => ("bytes per second", units::rate_tick),
        Unit::OperationsPerSecond => ("operations per second", units::per_second_tick),
        Unit::Instructions => ("instructions", units::count_tick),
        Unit::Bytes => ("memory", |bytes| Unit::Bytes.text(bytes)),
    };
    Some(Plot::new(title, label, axis, tick, intervals))
}

/// The items with each value of a property, in the order of the first ones.
fn groups<T, K: PartialEq>(
    items: impl IntoIterator<Item = T>,
    property: impl Fn(&T) -> K,
) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let value = property(&item);
        match groups.iter_mut().find(|(known, _)| *known == value) {
            Some((_, group)) => group.push(item),
            None => groups.push((value, vec![item])),
        }
    }
    groups
}
