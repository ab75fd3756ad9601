// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of each suite. Which kind of plot suits it is told by its rows, so that a new suite has figures, too.

mod contention;
mod crowd;
mod curves;
mod isolation;
mod latency;
mod side_by_side;
mod throughput;

use super::looks::Looks;
use super::tables;
use super::text::{anchor, escape};
use crate::harness::rows::{Results, Row};
use crate::reports;

/// A plot and the table beside it.
pub struct Figure {
    pub heading: String,
    /// How to read it, where the heading and the axes do not tell.
    pub hint: String,
    pub plot: String,
    pub table: String,
}

pub struct Suite<'a> {
    pub name: &'a str,
    pub rows: Vec<&'a Row>,
    pub figures: Vec<Figure>,
}

pub fn suites<'a>(results: &'a Results, looks: &Looks) -> Vec<Suite<'a>> {
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
            let figures = figures(&measured, &results.rows, looks);
            Suite {
                name,
                rows,
                figures,
            }
        })
        .collect()
}

/// In the order in which they first come.
pub fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut known = Vec::new();
    for value in values {
        if !known.contains(&value) {
            known.push(value);
        }
    }
    known
}

/// A figure for each set of conditions that has one.
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

/// What a row is about, which decides how it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The rate beside others.
    Company,
    /// The rate of several processes at one channel.
    Sharing,
    /// A cost among many.
    Crowd,
    /// The rate of messages that are handed over several at once.
    Batch,
    Rate,
    Time,
}

impl Kind {
    fn of(row: &Row) -> Self {
        match row.unit.as_deref() {
            _ if isolation::company(row).is_some() => Self::Company,
            _ if row.writers.is_some() => Self::Sharing,
            _ if crowd::among(row).is_some() => Self::Crowd,
            _ if row.batch.is_some() => Self::Batch,
            Some("bytes/s") => Self::Rate,
            _ => Self::Time,
        }
    }
}

fn figures(rows: &[&Row], all: &[Row], looks: &Looks) -> Vec<Figure> {
    let kinds = distinct(rows.iter().map(|row| Kind::of(row)));
    let figures_of = |kind: Kind| {
        let of_kind = rows.iter().copied().filter(|row| Kind::of(row) == kind);
        figures_of_kind(kind, &of_kind.collect::<Vec<_>>(), all, looks)
    };
    kinds.into_iter().flat_map(figures_of).collect()
}

fn figures_of_kind(kind: Kind, rows: &[&Row], all: &[Row], looks: &Looks) -> Vec<Figure> {
    const FEWEST_SAMPLES: usize = 50;
    let sampled = |row: &&Row| row.distribution.is_some_and(|one| one.n >= FEWEST_SAMPLES);
    let sizes = distinct(rows.iter().filter_map(|row| row.size)).len();
    match kind {
        Kind::Company => isolation::figures(rows, looks),
        Kind::Sharing => contention::figures(rows, looks),
        Kind::Crowd => crowd::figures(rows),
        Kind::Rate if sizes > 1 => throughput::figures(rows, looks),
        Kind::Time if rows.iter().all(sampled) => latency::figures(rows, all, looks),
        Kind::Batch | Kind::Rate | Kind::Time => side_by_side::figures(rows, all, looks),
    }
}

impl Suite<'_> {
    pub fn title(&self) -> &str {
        match self.name {
            "rtt" => "Round trips",
            "throughput" => "Throughput",
            "load" => "Latency under load",
            "wakeup" => "Waking a sleeper",
            "contention" => "Several writers and readers",
            "isolation" => "Isolation",
            "tar" => "tar through it",
            "names" => "Calls by name",
            "reports" => "The two reports",
            other => other,
        }
    }

    fn about(&self) -> &'static str {
        match self.name {
            "rtt" => {
                "A message goes to another process and comes back. Each plot shows for every mechanism which share of the round trips took no longer than the time below: further left is faster, and the steeper, the steadier. Marks are at the median and at 99 %."
            }
            "throughput" => {
                "One process sends as fast as it can, the other receives. Higher is faster. Bars at the marks reach from the slowest to the fastest round. In batches, several short messages are handed over at once; who has no call for that sends them one by one."
            }
            "load" => {
                "Messages are due at a constant rate, whatever became of the earlier ones. Each plot shows which share of them was received no later than so long after it was due: further left is faster. The processor time is the receiver's."
            }
            "wakeup" => {
                "How long it takes from sending until a receiver that sleeps has the message. Each plot shows which share of the wake-ups took no longer than the time below: further left is faster."
            }
            "contention" => {
                "Several processes write into one channel, or read from it, as fast as they can; the scheduler places them on the two processors. Higher is faster. Beside the rate stands what it costs in context switches and how evenly the writers get their turns."
            }
            "isolation" => {
                "One pair of processes sends as fast as it can, first alone, then beside other pairs that stand still with full buffers or are busy themselves. A flat line is a pair that does not notice the others."
            }
            "tar" => {
                "tar packs a tree of files on one side and unpacks it on the other. Most of the time is the two tars' own; no-pipe is what they take beside each other with nothing between them. Further left is faster."
            }
            "names" => {
                "What a call takes among few and among many names or scopes. A flat line is a cost that does not grow with them."
            }
            "reports" => {
                "The measurements of the two reports that the pipe and the naive driver come from, with their own counts; their figures, their model and what they say in words, beside what came out here."
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
            self.verdicts(all),
            absent(&self.rows),
            self.everything(all),
        )
    }

    /// What the terminal says of the reports.
    fn verdicts(&self, all: &[Row]) -> String {
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

/// Who did not take part and why: each reason once, with what it concerns.
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
            let (class, fate) = match failed {
                Some(true) => ("failed", "failed"),
                _ => ("skipped", "skipped"),
            };
            format!(
                concat!(
                    r#"<li class="{class}"><span class="badge {class}">{fate}</span> <b>{label}</b>: "#,
                    r#"{reason} <span class="where">({titles})</span></li>"#
                ),
                class = class,
                fate = fate,
                label = escape(label),
                reason = escape(reason.as_deref().unwrap_or_default()),
                titles = escape(&titles),
            )
        })
        .collect();
    format!("<div class=\"absent\"><h3>Not measured here</h3><ul>{lines}</ul></div>")
}
