// SPDX-License-Identifier: MIT OR Apache-2.0
//! The elements of a plot, which page.html writes as SVG.

use serde::Serialize;

use super::scale::Scale;

#[derive(Serialize)]
pub struct Drawing {
    pub title: String,
    pub width: f64,
    pub height: f64,
    /// Later ones are drawn above earlier ones.
    pub elements: Vec<Element>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    Path(Path),
    Text {
        class: &'static str,
        x: f64,
        y: f64,
        anchor: &'static str,
        text: String,
    },
    Series {
        classes: String,
        /// The number of the series, the same as in the table.
        number: usize,
        name: String,
        paths: Vec<Path>,
    },
}

#[derive(Serialize)]
pub struct Path {
    pub class: &'static str,
    pub d: String,
}

impl Path {
    pub fn vertical(class: &'static str, x: f64, top: f64, bottom: f64) -> Self {
        let d = format!("M{x:.1} {top:.1}V{bottom:.1}");
        Self { class, d }
    }

    pub fn horizontal(class: &'static str, y: f64, left: f64, right: f64) -> Self {
        let d = format!("M{left:.1} {y:.1}H{right:.1}");
        Self { class, d }
    }
}

impl Element {
    pub fn text(
        class: &'static str,
        [x, y]: [f64; 2],
        anchor: &'static str,
        text: impl Into<String>,
    ) -> Self {
        Self::Text {
            class,
            x,
            y,
            anchor,
            text: text.into(),
        }
    }
}

pub struct Axis {
    pub scale: Scale,
    /// The quantity and its unit.
    pub label: String,
    pub format: fn(f64) -> String,
}

impl Axis {
    /// A logarithmic axis is labelled as such.
    pub fn title(&self) -> String {
        match self.scale.is_logarithmic() {
            true => format!("{}, logarithmic", self.label),
            false => self.label.clone(),
        }
    }
}
