// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines over an axis, as a suite describes them.

use sluice_testkit::units;

use super::figure::{Figure, Point, Series};
use super::groups::{distinct, groups, sort_best_first};
use super::scale::{MAX_TICKS_X, MAX_TICKS_Y, Scale};
use super::style::{Role, Style, is_named};
use super::titles::quantity;
use super::view::View;
use crate::harness::figures::{Value, Values};
use crate::harness::rows::Row;
use crate::suites::Lines;

/// The value of the axis.
fn x(lines: &Lines, row: &Row) -> Option<f64> {
    let field = match lines.x {
        "size" => row.size,
        "processes" => row.processes,
        _ => None,
    };
    row.number(lines.x).or(field.map(|count| count as f64))
}

fn conditions(lines: &Lines, row: &Row) -> Vec<String> {
    let condition = |axis: &&str| match *axis {
        "size" => row.size.map(units::size),
        "placement" => row.placement.map(|placement| placement.name().into()),
        axis => row.axes.get(axis).map(|value| match value {
            Value::Number(number) => format!("{axis} {number}"),
            Value::Text(text) => text.clone(),
        }),
    };
    lines.per.iter().filter_map(condition).collect()
}

fn x_name(lines: &Lines) -> String {
    match (lines.x_figure, lines.x) {
        (Some(_), _) => "messages per second".into(),
        (None, "size") => "message size".into(),
        (None, axis) => format!("number of {axis}"),
    }
}

fn x_text(lines: &Lines, value: f64) -> String {
    match lines.x {
        "size" => units::size(value as usize),
        "load_percent" => format!("{value} %"),
        _ => value.to_string(),
    }
}

fn y<'a>(lines: &Lines, row: &'a Row) -> Option<&'a Values> {
    match lines.y_figure {
        Some(figure) => row.figure(figure),
        None => row.value.as_ref(),
    }
}

/// The position on the axis.
fn position(lines: &Lines, row: &Row) -> Option<f64> {
    match lines.x_figure {
        Some(figure) => row.median_of(figure),
        None => x(lines, row),
    }
}

/// A figure for each of the conditions that have several values of the axis: one value makes no line.
pub fn figures(lines: &'static Lines, rows: &[&View]) -> Vec<Figure> {
    let fits = |view: &&&View| view.row.unit == Some(lines.unit) && x(lines, view.row).is_some();
    let rows: Vec<&View> = rows.iter().filter(fits).copied().collect();
    let plots = groups(&rows, |view| conditions(lines, view.row)).into_iter();
    plots
        .filter_map(|(conditions, rows)| figure(lines, &conditions, &rows))
        .collect()
}

fn figure(lines: &'static Lines, conditions: &[String], rows: &[&View]) -> Option<Figure> {
    let mut columns = distinct(rows.iter().filter_map(|view| x(lines, view.row)));
    columns.sort_by(f64::total_cmp);
    if columns.len() < 2 {
        return None;
    }
    let positions = rows.iter().filter_map(|view| position(lines, view.row));
    let x_scale = match lines.x_figure {
        Some(_) => Scale::logarithmic(positions, MAX_TICKS_X)?,
        None => Scale::logarithmic_at(&columns)?,
    };
    let values = rows.iter().filter_map(|view| y(lines, view.row));
    let y_scale = Scale::logarithmic(values.flat_map(|one| one.spread), MAX_TICKS_Y)?;
    let point = |view: &&View| {
        let values = y(lines, view.row)?;
        Some(Point {
            x: x_scale.position(position(lines, view.row)?),
            y: y_scale.position(values.median),
            range: Some(values.spread.map(|end| y_scale.position(end))),
            mark: Some(view.mark()),
        })
    };
    // A label that only names the value of the axis, such as "among 10 names", is not the name of a line.
    let mut named = groups(rows, |view| match is_named(view.row) {
        true => (&view.row.label, true),
        false => (&view.row.title, false),
    });
    for (_, rows) in &mut named {
        rows.sort_by_key(|view| {
            columns
                .iter()
                .position(|&column| x(lines, view.row) == Some(column))
        });
    }
    sort_best_first(&mut named, |(_, rows)| Some(rows.last()?.row));
    let series = named
        .iter()
        .enumerate()
        .map(|(number, ((name, is_named), rows))| {
            let of_column =
                |&column: &f64| rows.iter().find(|view| x(lines, view.row) == Some(column));
            Series {
                name: name.to_string(),
                group: String::new(),
                // Lines of one mechanism differ, too.
                style: match is_named {
                    true => rows[0].style.clone(),
                    false => Style::new(Role::Other, number),
                },
                points: rows.iter().filter_map(point).collect(),
                rows: columns
                    .iter()
                    .map(|column| Some(of_column(column)?.number))
                    .collect(),
            }
        });
    let what = format!("{} by {}", lines.title, x_name(lines));
    let x_axis = x_scale.axis(&x_name(lines), |value| match lines.x_figure {
        Some(_) => units::per_second_tick(value),
        None => x_text(lines, value),
    });
    let heads = columns.iter().map(|&column| x_text(lines, column));
    Some(Figure {
        heading: [&[what], conditions].concat().join(", "),
        x: x_axis,
        y: Some(y_scale.axis(lines.y, quantity(lines.unit).1)),
        lines: Some(lines),
        columns: heads.collect(),
        series: series.collect(),
        ..Figure::default()
    })
}
