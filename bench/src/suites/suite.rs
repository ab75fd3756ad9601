// SPDX-License-Identifier: MIT OR Apache-2.0
//! The description of a suite. It drives measuring, the command line, the tables on the terminal, and the page with its plots.

use anyhow::Result;
use serde::Serialize;

use super::plan::{Plan, Scale};
use crate::harness::figures::Unit;
use crate::harness::rounds::Case;

pub struct Suite {
    pub name: &'static str,
    /// What its rows measure, in a sentence before their conditions, such as "Round trip of".
    pub operation: &'static str,
    /// The scales at which it is measured if the options name no suite.
    pub scales: &'static [Scale],
    /// All of its cases are measured in the same rounds, because its tables have ratios of different cases, too.
    pub together: bool,
    pub cases: fn(&Plan) -> Result<Vec<Case>>,
    /// Mechanisms of this suite alone, beside those of the registry.
    pub mechanisms: fn() -> Vec<&'static str>,
    /// The rows that are drawn as lines. Each title of other rows has a distribution function, or intervals where there are few
    /// samples.
    pub lines: &'static [Lines],
    /// The tables that compare its rows with a report or with criteria: a template in reports/.
    pub tables: Option<&'static str>,
}

/// Rows of one unit that are drawn as lines over an axis, each mechanism as one line.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Lines {
    /// What is drawn, before the name of the axis.
    pub title: &'static str,
    /// An axis, "size" or "processes".
    pub x: &'static str,
    /// A figure that is the position instead of the value of `x`.
    pub x_figure: Option<&'static str>,
    /// The label of what is drawn.
    pub y: &'static str,
    /// A figure that is drawn instead of the compared value.
    pub y_figure: Option<&'static str>,
    pub unit: Unit,
    /// The conditions that have a plot each: axes, "size" or "placement".
    pub per: &'static [&'static str],
}

/// No mechanism beside those of the registry.
pub fn none() -> Vec<&'static str> {
    Vec::new()
}
