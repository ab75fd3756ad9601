// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rate by message size, for each placement and whatever else the titles say.

use sluice_testkit::units;

use super::super::drawing::Axis;
use super::super::groups::{distinct, groups};
use super::super::lines::{MAX_TICKS_Y, Plot};
use super::super::scale::Scale;
use super::super::series_style::SeriesStyles;
use super::super::takeaways::bare_title;
use super::curves::{self, Curve, YValue};
use super::{Figure, medians};
use crate::harness::rows::Row;

pub fn figures(rows: &[&Row], all: &[Row], styles: &SeriesStyles) -> Vec<Figure> {
    let (mut figures, mut others) = (Vec::new(), Vec::new());
    for ((placement, other), rows) in groups(rows, |row| (row.placement, other_conditions(row))) {
        // One size makes no line.
        if distinct(rows.iter().map(|row| row.size)).len() < 2 {
            others.extend(rows);
            continue;
        }
        let place = placement.map_or("", |placement| placement.name());
        let heading = format!("Throughput by message size, {other}{place}");
        figures.extend(by_size(heading, &rows, all, styles));
    }
    figures.extend(medians::figures(&others, all, styles));
    figures
}

/// What the title says besides size and placement, such as whether the data is touched.
fn other_conditions(row: &Row) -> String {
    let size = row.size.map(units::size).unwrap_or_default();
    let others = bare_title(row).strip_prefix(&size).unwrap_or_default();
    match others.trim() {
        "" => String::new(),
        others => format!("{others} "),
    }
}

pub fn by_size(
    heading: String,
    rows: &[&Row],
    all: &[Row],
    styles: &SeriesStyles,
) -> Option<Figure> {
    let labels = groups(rows, |row| row.label.as_str()).into_iter();
    let mut curves: Vec<Curve> = labels
        .filter_map(|(label, rows)| curve(label, &rows, styles))
        .collect();
    curves::sort(&mut curves);
    let counts = curves::counts(&curves);
    let ticks: Vec<f64> = counts.iter().map(|&size| size as f64).collect();
    let plot = Plot {
        title: heading.clone(),
        x: Axis {
            scale: Scale::logarithmic_at(&ticks)?,
            label: "message size".into(),
            format: |size| units::size(size as usize),
        },
        y: Axis {
            scale: Scale::logarithmic(
                curves::values(&curves, YValue::Figure).into_iter(),
                MAX_TICKS_Y,
            )?,
            label: "bytes per second".into(),
            format: units::rate_tick,
        },
        level: None,
        lines: curves::lines(&curves, YValue::Figure),
    };
    let heads = counts.iter().map(|&size| units::size(size)).collect();
    Some(Figure {
        table: curves::table(&heading, "mechanism", heads, &curves, YValue::Figure, all),
        heading,
        hint: curves::hint(&curves, YValue::Figure),
        plot: plot.draw(),
    })
}

fn curve<'a>(label: &str, rows: &[&'a Row], styles: &SeriesStyles) -> Option<Curve<'a>> {
    let points = rows.iter().filter_map(|row| Some((row.size?, *row)));
    let mut points: Vec<(usize, &Row)> = points.collect();
    points.sort_by_key(|(size, _)| *size);
    Some(Curve {
        name: label.into(),
        style: styles.get(points.first()?.1),
        points,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::pinning::Placement;

    #[test]
    fn titles_may_say_more_than_size_and_placement() {
        let row = |title: &str| Row {
            title: title.into(),
            size: Some(65_536),
            placement: Some(Placement::TwoCpus),
            ..Row::default()
        };
        assert_eq!(other_conditions(&row("64 KiB two-cpus")), "");
        assert_eq!(
            other_conditions(&row("64 KiB touched two-cpus")),
            "touched "
        );
        assert_eq!(other_conditions(&row("something else")), "");
    }
}
