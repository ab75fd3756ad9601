// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processor time by the number of receivers, for each message size; the rest by message size, or as medians.

use sluice_testkit::units;

use super::super::drawing::Axis;
use super::super::groups::{distinct, groups};
use super::super::lines::{MAX_TICKS_Y, Plot};
use super::super::scale::Scale;
use super::super::series_style::SeriesStyles;
use super::curves::{self, Curve, YValue};
use super::{Figure, medians, throughput};
use crate::harness::rounds::ReceiverState;
use crate::harness::rows::Row;

pub fn figures(rows: &[&Row], all: &[Row], styles: &SeriesStyles) -> Vec<Figure> {
    let (streams, costs): (Vec<&Row>, Vec<&Row>) = rows
        .iter()
        .partition(|row| row.receiver_state == Some(ReceiverState::Streaming));
    let mut figures = Vec::new();
    let mut others = Vec::new();
    for ((state, size), rows) in groups(&costs, |row| (row.receiver_state, row.size)) {
        // The cost of receiving is that of one receiver, with a title of its own.
        let (sending, receiving): (Vec<&Row>, Vec<&Row>) =
            rows.iter().partition(|row| row.title.ends_with("sending"));
        others.extend(receiving);
        let state = state.map_or("", ReceiverState::name);
        let size = units::size(size.unwrap_or_default());
        let heading = format!("Cost of sending {size} by number of receivers, {state}");
        match by_receivers(heading, &sending, all, styles) {
            Some(figure) => figures.push(figure),
            None => others.extend(sending),
        }
    }
    for (receivers, rows) in groups(&streams, |row| row.receivers) {
        // One size makes no line.
        if distinct(rows.iter().map(|row| row.size)).len() < 2 {
            others.extend(rows);
            continue;
        }
        let heading = format!(
            "Bytes delivered by message size, {} receivers",
            receivers.unwrap_or_default()
        );
        figures.extend(throughput::by_size(heading, &rows, all, styles));
    }
    figures.extend(medians::figures(&others, all, styles));
    figures
}

fn by_receivers(
    heading: String,
    rows: &[&Row],
    all: &[Row],
    styles: &SeriesStyles,
) -> Option<Figure> {
    if distinct(rows.iter().map(|row| row.receivers)).len() < 2 {
        return None;
    }
    let labels = groups(rows, |row| row.label.as_str()).into_iter();
    let curves = labels.filter_map(|(label, rows)| {
        let points = rows.iter().filter_map(|row| Some((row.receivers?, *row)));
        Some(Curve {
            name: label.into(),
            style: styles.get(rows.first()?),
            points: points.collect(),
        })
    });
    let mut curves: Vec<Curve> = curves.collect();
    curves::sort(&mut curves);
    let counts = curves::counts(&curves);
    let ticks: Vec<f64> = counts.iter().map(|&count| count as f64).collect();
    let values = curves::values(&curves, YValue::Figure).into_iter();
    let plot = Plot {
        title: heading.clone(),
        x: Axis {
            scale: Scale::logarithmic_at(&ticks)?,
            label: "number of receivers".into(),
            format: |count| format!("{count:.0}"),
        },
        y: Axis {
            scale: Scale::logarithmic(values, MAX_TICKS_Y)?,
            label: "processor time of the sender for a message".into(),
            format: units::time_tick,
        },
        level: None,
        lines: curves::lines(&curves, YValue::Figure),
    };
    let heads = counts.iter().map(|count| count.to_string()).collect();
    Some(Figure {
        table: curves::table(&heading, "mechanism", heads, &curves, YValue::Figure, all),
        heading,
        hint: format!(
            "A flat line is a cost that does not depend on the number of receivers. {}",
            curves::hint(&curves, YValue::Figure)
        ),
        plot: plot.draw(),
    })
}
