// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables, each in a box that scrolls on a narrow screen.

use sluice_testkit::units;

use super::notes;
use super::series_style::{self, SeriesRole, SeriesStyle};
use super::suites::distinct;
use super::text::escape;
use crate::harness::rows::Row;

pub struct Line {
    /// The number of the series in the plot, if it has one.
    pub series: Option<usize>,
    pub role: SeriesRole,
    /// The cells, as HTML.
    pub cells: Vec<String>,
}

/// The first column names the rows; a last column with an empty title is for notes.
pub fn table(caption: &str, heads: &[String], lines: &[Line]) -> String {
    let with_notes = heads.last().is_some_and(String::is_empty);
    let heads: String = heads
        .iter()
        .map(|head| format!(r#"<th scope="col">{}</th>"#, escape(head)))
        .collect();
    let body: String = lines.iter().map(|one| line(one, with_notes)).collect();
    let caption = escape(caption);
    format!(
        concat!(
            r#"<div class="scroll" role="region" tabindex="0" aria-label="{caption}"><table>"#,
            "<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
        ),
        caption = caption,
        heads = heads,
        body = body
    )
}

fn line(line: &Line, with_notes: bool) -> String {
    let class = match line.role {
        SeriesRole::Sluice => " class=\"sluice\"",
        SeriesRole::Reference => " class=\"reference\"",
        SeriesRole::Other => "",
    };
    let series = line
        .series
        .map(|series| format!(" data-series=\"{series}\""))
        .unwrap_or_default();
    let (first, rest) = line.cells.split_first().expect("a line has a first cell");
    let last = rest.len().saturating_sub(1);
    let cell = |(number, cell): (usize, &String)| match with_notes && number == last {
        true => format!("<td class=\"notes\">{cell}</td>"),
        false => format!("<td>{cell}</td>"),
    };
    let rest: String = rest.iter().enumerate().map(cell).collect();
    format!("<tr{class}{series}><th scope=\"row\">{first}</th>{rest}</tr>")
}

/// Sorts the best first.
pub fn sorted<'a>(rows: &[&'a Row]) -> Vec<&'a Row> {
    let mut rows = rows.to_vec();
    rows.sort_by(|one, other| {
        let (a, b) = (one.median.unwrap_or(0.0), other.median.unwrap_or(0.0));
        match notes::less_is_better(one) {
            true => a.total_cmp(&b),
            false => b.total_cmp(&a),
        }
    });
    rows
}

pub fn figure(row: &Row, value: f64) -> String {
    match notes::less_is_better(row) {
        true => units::nanoseconds(value),
        false => units::bytes_per_second(value),
    }
}

pub fn range(row: &Row) -> String {
    let range = match notes::less_is_better(row) {
        true => units::nanosecond_range,
        false => units::rate_range,
    };
    row.spread
        .map(|[min, max]| range(min, max))
        .unwrap_or_default()
}

pub fn median(row: &Row) -> String {
    row.median
        .map(|median| figure(row, median))
        .unwrap_or_default()
}

fn percentile(value: Option<u64>) -> String {
    value
        .map(|value| units::nanoseconds(value as f64))
        .unwrap_or_default()
}

pub fn ratio(row: &Row) -> [String; 2] {
    row.ratio.as_ref().map_or_else(Default::default, |ratio| {
        [
            format!("{:.2}", ratio.median),
            units::ratio_range(ratio.min, ratio.max),
        ]
    })
}

/// The heading of the ratios, which names the reference.
fn ratio_head(rows: &[&Row]) -> String {
    let mut to: Vec<&str> = rows
        .iter()
        .filter_map(|row| Some(row.ratio.as_ref()?.to.as_str()))
        .collect();
    to.sort_unstable();
    to.dedup();
    match to[..] {
        [to] => format!("ratio to {to}"),
        _ => "ratio".into(),
    }
}

/// The rows of one set of conditions, with the styles and series numbers of the plot.
pub fn latencies(caption: &str, entries: &[(usize, &Row, SeriesStyle)], all: &[Row]) -> String {
    let rows: Vec<&Row> = entries.iter().map(|(_, row, _)| *row).collect();
    let heads = [
        "mechanism",
        "median",
        "its rounds",
        "p90",
        "p99",
        "CPU per message",
        &ratio_head(&rows),
        "its rounds",
        "",
    ]
    .map(String::from);
    let several_classes = distinct(rows.iter().map(|row| row.probe_class)).len() > 1;
    let class = |row| notes::class(row).filter(|_| several_classes);
    let lines: Vec<Line> = entries
        .iter()
        .map(|&(series, row, style)| {
            let [ratio, ratios] = ratio(row);
            Line {
                series: Some(series),
                role: style.role,
                cells: vec![
                    series_style::entry(style, &row.label),
                    median(row),
                    range(row),
                    percentile(row.distribution.map(|one| one.p90)),
                    percentile(row.distribution.map(|one| one.p99)),
                    cpu(row),
                    ratio,
                    ratios,
                    notes::notes(row, all) + " " + &class(row).unwrap_or_default(),
                ],
            }
        })
        .collect();
    table(caption, &heads, &lines)
}

fn cpu(row: &Row) -> String {
    row.cpu_ns_per_msg
        .map(units::nanoseconds)
        .unwrap_or_default()
}

/// All fields of these rows.
pub fn everything(caption: &str, rows: &[&Row], all: &[Row]) -> String {
    let heads = [
        "conditions",
        "mechanism",
        "median",
        "its rounds",
        "rounds",
        "ratio",
        "its rounds",
        "to",
        "samples",
        "min",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "messages",
        "CPU per message",
        "",
    ]
    .map(String::from);
    let lines: Vec<Line> = rows.iter().map(|row| full_line(row, all)).collect();
    table(caption, &heads, &lines)
}

fn full_line(row: &Row, all: &[Row]) -> Line {
    let one = row.distribution;
    let [ratio, ratios] = ratio(row);
    let to = row.ratio.as_ref().map(|ratio| escape(&ratio.to));
    Line {
        series: None,
        role: series_style::role(row),
        cells: vec![
            escape(&row.title),
            escape(&row.label),
            median(row),
            range(row),
            row.rounds
                .map(|rounds| rounds.to_string())
                .unwrap_or_default(),
            ratio,
            ratios,
            to.unwrap_or_default(),
            one.map(|one| one.n.to_string()).unwrap_or_default(),
            percentile(one.map(|one| one.min)),
            percentile(one.map(|one| one.p50)),
            percentile(one.map(|one| one.p90)),
            percentile(one.map(|one| one.p99)),
            percentile(one.map(|one| one.p999)),
            percentile(one.map(|one| one.max)),
            row.msgs_per_s.map(units::per_second).unwrap_or_default(),
            cpu(row),
            notes::notes(row, all) + " " + &notes::class(row).unwrap_or_default(),
        ],
    }
}
