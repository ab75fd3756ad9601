// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data of a figure: a plot, at positions from 0 to 1, and the rows of its table. plot.html draws the plot as SVG.

use serde::Serialize;

use super::scale::{Axis, Scale};
use super::style::Style;
use super::view::View;
use crate::suites::Lines;

#[derive(Default, Serialize)]
pub struct Figure {
    pub heading: String,
    pub x: Axis,
    /// None: each series is an interval, below the label of its group.
    pub y: Option<Axis>,
    /// A position on the axis x that is marked by a line.
    pub level: Option<f64>,
    /// For lines: what they are, and the values of their axis, each of which has a column in the table.
    pub lines: Option<&'static Lines>,
    pub columns: Vec<String>,
    pub series: Vec<Series>,
}

#[derive(Serialize)]
pub struct Series {
    /// The pointer highlights all series of one name.
    pub name: String,
    pub group: String,
    pub style: Style,
    pub points: Vec<Point>,
    /// The numbers of its rows: one for each column, or only one.
    pub rows: Vec<Option<usize>>,
}

#[derive(Serialize)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// From the smallest to the largest round: of x for an interval, of y elsewhere.
    pub range: Option<[f64; 2]>,
    /// The class of its mark.
    pub mark: Option<&'static str>,
}

impl Series {
    pub fn of_row(view: &View, name: String, group: String, points: Vec<Point>) -> Self {
        Self {
            name,
            group,
            style: view.style.clone(),
            points,
            rows: vec![Some(view.number)],
        }
    }
}

impl Point {
    pub fn interval(scale: &Scale, median: f64, range: [f64; 2], view: &View) -> Self {
        Self {
            x: scale.position(median),
            y: 0.0,
            range: Some(range.map(|end| scale.position(end))),
            mark: Some(view.mark()),
        }
    }
}
