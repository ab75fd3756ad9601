// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of each suite. The kind of plot depends on the rows, so that a new suite has figures, too.

mod contention;
mod curves;
mod isolation;
mod latency;
mod medians;
mod scaling;
mod throughput;

use super::series_style::SeriesStyles;
use super::tables;
use super::text::{anchor, escape};
use crate::harness::rows::{Results, Row};
use crate::reports;

/// A plot and its table.
pub struct Figure {
    pub heading: String,
    /// An explanation that the heading and the axes do not give.
    pub hint: String,
    pub plot: String,
    pub table: String,
}

pub struct Suite<'a> {
    pub name: &'a str,
    pub rows: Vec<&'a Row>,
    pub figures: Vec<Figure>,
}

pub fn suites<'a>(results: &'a Results, styles: &SeriesStyles) -> Vec<Suite<'a>> {
    distinct(results.rows.iter().map(|row| row.suite.as_str()))
        .into_iter()
        .map(|name| {
            let rows: Vec<&Row> = results
                .rows
                .iter()
                .filter(|row| row.suite == name)
                .collect();
            let measured: Vec<&Row> = rows
                .iter()
                .copied()
                .filter(|row| row.median.is_some())
                .collect();
            let figures = figures(&measured, &results.rows, styles);
            Suite {
                name,
                rows,
                figures,
            }
        })
        .collect()
}

/// Distinct values in the order of their first occurrence.
pub fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut known = Vec::new();
    for value in values {
        if !known.contains(&value) {
            known.push(value);
        }
    }
    known
}

/// One figure for each set of conditions.
fn by_title(rows: &[&Row], figure: impl Fn(&str, &[&Row]) -> Option<Figure>) -> Vec<Figure> {
    let of_title = |title: &str| {
        let rows = rows.iter().copied().filter(|row| row.title == title);
        figure(title, &rows.collect::<Vec<_>>())
    };
    distinct(rows.iter().map(|row| row.title.as_str()))
        .into_iter()
        .filter_map(of_title)
        .collect()
}

/// The kind of a row, which determines its plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The rate with other pairs.
    Neighbours,
    /// The rate of several processes of one channel.
    Sharing,
    /// A time by number of names or scopes.
    Scaling,
    /// The rate of messages in batches.
    Batch,
    Rate,
    Time,
}

impl Kind {
    fn of(row: &Row) -> Self {
        match row.unit.as_deref() {
            _ if isolation::neighbours(row).is_some() => Self::Neighbours,
            _ if row.writers.is_some() => Self::Sharing,
            _ if scaling::population(row).is_some() => Self::Scaling,
            _ if row.batch.is_some() => Self::Batch,
            Some("bytes/s") => Self::Rate,
            _ => Self::Time,
        }
    }
}

fn figures(rows: &[&Row], all: &[Row], styles: &SeriesStyles) -> Vec<Figure> {
    let kinds = distinct(rows.iter().map(|row| Kind::of(row)));
    let figures_of = |kind: Kind| {
        let of_kind = rows.iter().copied().filter(|row| Kind::of(row) == kind);
        figures_of_kind(kind, &of_kind.collect::<Vec<_>>(), all, styles)
    };
    kinds.into_iter().flat_map(figures_of).collect()
}

fn figures_of_kind(kind: Kind, rows: &[&Row], all: &[Row], styles: &SeriesStyles) -> Vec<Figure> {
    const MIN_SAMPLES: usize = 50;
    let sampled = |row: &&Row| row.distribution.is_some_and(|one| one.n >= MIN_SAMPLES);
    let sizes = distinct(rows.iter().filter_map(|row| row.size)).len();
    match kind {
        Kind::Neighbours => isolation::figures(rows, styles),
        Kind::Sharing => contention::figures(rows, styles),
        Kind::Scaling => scaling::figures(rows),
        Kind::Rate if sizes > 1 => throughput::figures(rows, styles),
        Kind::Time if rows.iter().all(sampled) => latency::figures(rows, all, styles),
        Kind::Batch | Kind::Rate | Kind::Time => medians::figures(rows, all, styles),
    }
}

impl Suite<'_> {
    pub fn title(&self) -> &str {
        match self.name {
            "rtt" => "Round trips",
            "throughput" => "Throughput",
            "load" => "Latency under load",
            "wakeup" => "Wake-up latency",
            "contention" => "Several writers and readers",
            "isolation" => "Isolation",
            "tar" => "tar",
            "names" => "Calls by name",
            "reports" => "The two reports",
            other => other,
        }
    }

    fn about(&self) -> &'static str {
        match self.name {
            "rtt" => {
                "The time from a request to its reply. Each plot shows the distribution function of every mechanism: further left is faster, and steeper is more uniform. Marks: median and 99 %."
            }
            "throughput" => {
                "One process sends at full speed, the other receives. Higher is faster. Bars reach from the slowest to the fastest round. In batches, several short messages are sent with one call; mechanisms without a batch interface send them one by one."
            }
            "load" => {
                "Messages are due at a constant rate, independent of earlier ones (open loop). Each plot shows the distribution function of the time from the due time to the reception: further left is faster. The processor time is that of the receiver."
            }
            "wakeup" => {
                "The time from sending a message until a sleeping receiver runs. Each plot shows the distribution function: further left is faster."
            }
            "contention" => {
                "Several processes write to one channel or read from it at full speed; the scheduler places them on the two processors. Higher is faster. The table also has the context switches and the imbalance of the writers."
            }
            "isolation" => {
                "One pair of processes streams at full speed, alone and with other pairs that are stalled with full buffers or busy themselves. A flat line is complete isolation."
            }
            "tar" => {
                "One process packs a tree of files with tar, the other unpacks it. Most of the time is that of the two tars; no-pipe is their time without IPC. Further left is faster."
            }
            "names" => {
                "The time of a call by the number of names or scopes. A flat line is a time that does not depend on it."
            }
            "reports" => {
                "The measurements of the two reports on which the pipe and the naive driver are based, with their message counts: their figures, their model and their claims, compared with this run."
            }
            _ => "",
        }
    }

    pub fn anchor(&self) -> String {
        anchor(&["suite", self.name])
    }

    pub fn figure_anchor(&self, figure: &Figure) -> String {
        anchor(&[self.name, &figure.heading])
    }

    pub fn section(&self, all: &[Row]) -> String {
        let figures: String = self
            .figures
            .iter()
            .map(|figure| self.figure(figure))
            .collect();
        format!(
            "<section id=\"{}\"><h2>{}</h2><p class=\"about\">{}</p>{}{figures}{}{}</section>",
            self.anchor(),
            escape(self.title()),
            self.about(),
            self.report_text(all),
            absent(&self.rows),
            self.everything(all),
        )
    }

    /// The text of the reports, as on the terminal.
    fn report_text(&self, all: &[Row]) -> String {
        let text = (self.name == reports::SUITE).then(|| reports::text(all));
        text.flatten().map_or_else(String::new, |text| {
            format!(
                "<pre class=\"scroll\" tabindex=\"0\">{}</pre>",
                escape(&text)
            )
        })
    }

    fn figure(&self, figure: &Figure) -> String {
        let hint = match figure.hint.as_str() {
            "" => String::new(),
            hint => format!("<p class=\"hint\">{hint}</p>"),
        };
        format!(
            concat!(
                r#"<figure id="{anchor}"><figcaption><h3>{heading}</h3>{hint}</figcaption>"#,
                r#"<div class="pair"><div class="drawing">{plot}</div>{table}</div></figure>"#
            ),
            anchor = self.figure_anchor(figure),
            heading = escape(&figure.heading),
            hint = hint,
            plot = figure.plot,
            table = figure.table,
        )
    }

    fn everything(&self, all: &[Row]) -> String {
        let measured: Vec<&Row> = self
            .rows
            .iter()
            .copied()
            .filter(|row| row.median.is_some())
            .collect();
        if measured.is_empty() {
            return String::new();
        }
        format!(
            "<details><summary>All figures of this suite ({} rows)</summary>{}</details>",
            measured.len(),
            tables::everything(&format!("All figures: {}", self.title()), &measured, all)
        )
    }
}

/// The mechanisms without results: each reason once, with its conditions.
fn absent(rows: &[&Row]) -> String {
    let skipped = rows.iter().filter(|row| row.skipped.is_some());
    let reasons = distinct(skipped.map(|row| (&row.label, &row.skipped, row.failed)));
    if reasons.is_empty() {
        return String::new();
    }
    let lines: String = reasons
        .into_iter()
        .map(|(label, reason, failed)| {
            let same = rows.iter().filter(|row| (&row.label, &row.skipped, row.failed) == (label, reason, failed));
            let titles = distinct(same.map(|row| row.title.as_str())).join(", ");
            let (class, status) = match failed {
                Some(true) => ("failed", "failed"),
                _ => ("skipped", "skipped"),
            };
            format!(
                concat!(
                    r#"<li class="{class}"><span class="badge {class}">{status}</span> <b>{label}</b>: "#,
                    r#"{reason} <span class="where">({titles})</span></li>"#
                ),
                class = class,
                status = status,
                label = escape(label),
                reason = escape(reason.as_deref().unwrap_or_default()),
                titles = escape(&titles),
            )
        })
        .collect();
    format!("<div class=\"absent\"><h3>Without results</h3><ul>{lines}</ul></div>")
}
