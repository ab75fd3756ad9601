// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data of the whole page, which page.html lays out.

use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

use super::environment;
use super::highlights;
use super::series_style::SeriesStyles;
use super::suites::{Figure, Suite, suites};
use super::takeaways;
use crate::harness::rows::Results;

pub const STYLE: &str = include_str!("style.css");
const TEMPLATE: &str = include_str!("page.html");

#[derive(Serialize)]
struct Page<'a> {
    style: &'a str,
    script: &'a str,
    /// The machine, its kernel and the day.
    conditions: String,
    emulated: bool,
    environment: Vec<(&'a str, String)>,
    /// None without a result of Sluice relative to a rival.
    takeaways: Option<Figure>,
    summary: Option<Figure>,
    suites: Vec<Suite<'a>>,
}

pub fn page(results: &Results) -> String {
    let styles = SeriesStyles::of(results);
    let takeaways = takeaways::takeaways(&results.rows);
    render(&Page {
        style: STYLE,
        script: include_str!("highlight.js"),
        conditions: environment::summary(results),
        emulated: results.host.is_emulated(),
        environment: environment::entries(results),
        takeaways: highlights::first(&takeaways, &styles),
        summary: highlights::all(&results.rows, &styles),
        suites: suites(results, &styles),
    })
}

/// With what templates can import.
pub fn templates() -> Environment<'static> {
    let mut templates = Environment::new();
    let added = templates.add_template("plot.html", include_str!("plot.html"));
    added.expect("the template is correct, which tests show");
    templates
}

fn render(page: &Page) -> String {
    // The name makes values that are not marked as safe be escaped.
    let text = templates().render_named_str("page.html", TEMPLATE, Serde(page));
    let text = text.expect("the template suits the data, which tests show");
    // Slashes need no escape, and are frequent in rates.
    text.replace("&#x2f;", "/")
}

#[cfg(test)]
pub mod tests {
    use super::super::drawing::Drawing;
    use super::super::tables::Table;
    use super::*;

    /// A plot, as the page writes it.
    pub fn svg(plot: Drawing) -> String {
        let heading = String::new();
        let figure = Figure {
            heading: heading.clone(),
            hint: heading,
            plot,
            table: Table::default(),
        };
        let page = render(&Page {
            style: "",
            script: "",
            conditions: String::new(),
            emulated: false,
            environment: Vec::new(),
            takeaways: Some(figure),
            summary: None,
            suites: Vec::new(),
        });
        let (_, svg) = page.split_once("<svg class=\"plot\"").unwrap();
        svg.split_once("</svg>").unwrap().0.into()
    }

    #[test]
    fn markup_in_text_is_escaped() {
        let drawing = Drawing {
            title: "<b title='x'>\"&\"</b>".into(),
            width: 1.0,
            height: 1.0,
            elements: Vec::new(),
        };
        let escaped = "&lt;b title=&#x27;x&#x27;&gt;&quot;&amp;&quot;&lt;/b&gt;";
        assert!(svg(drawing).contains(escaped));
    }
}
