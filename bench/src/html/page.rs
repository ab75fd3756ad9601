// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data of the whole page, which page.html lays out, and of the picture.

use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, context};
use serde::Serialize;
use sluice_testkit::units;

use super::figure::Figure;
use super::groups::groups;
use super::style::Styles;
use super::takeaways::{self, comparisons};
use super::view::View;
use super::{lines, titles};
use crate::harness::rows::{Results, Row};
use crate::reports;
use crate::suites::{self, Suite};

const STYLE: &str = include_str!("style.css");

#[derive(Serialize)]
struct Section<'a> {
    name: &'a str,
    figures: Vec<Figure>,
    /// The text of the reports, as on the terminal.
    text: Option<String>,
}

pub fn page(results: &Results) -> String {
    let views = views(&results.rows);
    let compared = comparisons(&views, &results.rows);
    let rows: Vec<&View> = views.iter().collect();
    let suites = groups(&rows, |view| view.row.suite.as_str()).into_iter();
    let sections = suites.map(|(name, rows)| section(name, &rows, &results.rows));
    let sections: Vec<Section> = sections.collect();
    render(
        "page.html",
        context! {
            style => STYLE,
            script => include_str!("highlight.js"),
            host => Serde(&results.host),
            clock_ns => results.clock_ns,
            versions => Serde(&results.versions),
            date => &results.date,
            rows => Serde(&views),
            takeaways => Serde(takeaways::takeaways(&compared)),
            summary => Serde(takeaways::summary(&compared)),
            suites => Serde(sections),
        },
    )
}

/// Sluice relative to the reference in a few conditions, as a file for pages that cannot contain the report. None without a
/// result of Sluice relative to another mechanism.
pub fn picture(results: &Results) -> Option<String> {
    let views = views(&results.rows);
    let figure = takeaways::picture(&comparisons(&views, &results.rows))?;
    let data = context! { figure => Serde(figure), style => STYLE };
    Some(render("picture.html", data))
}

fn views(rows: &[Row]) -> Vec<View<'_>> {
    let styles = Styles::of(rows);
    (0..rows.len())
        .map(|number| View::of(number, rows, &styles))
        .collect()
}

fn render(name: &str, data: minijinja::Value) -> String {
    let mut templates = Environment::new();
    // Rows do not have all fields.
    templates.set_undefined_behavior(UndefinedBehavior::Chainable);
    type Filter = (&'static str, fn(f64) -> String);
    let units: [Filter; 6] = [
        ("time", units::nanoseconds),
        ("rate", units::bytes_per_second),
        ("per_second", units::per_second),
        ("count", units::count),
        ("figures", units::figures),
        ("ratio", units::ratio),
    ];
    for (name, text) in units {
        let text = move |value: Option<f64>| value.map_or_else(String::new, text);
        templates.add_filter(name, text);
    }
    for (name, text) in [
        ("page.html", include_str!("page.html")),
        ("plot.html", include_str!("plot.html")),
        ("picture.html", include_str!("picture.html")),
    ] {
        let added = templates.add_template(name, text);
        added.expect("the template is correct, which tests show");
    }
    let template = templates.get_template(name);
    let text = template.and_then(|template| template.render(data));
    let text = text.expect("the template suits the data, which tests show");
    // Slashes need no escape, and are frequent in rates.
    text.replace("&#x2f;", "/")
}

fn section<'a>(name: &'a str, rows: &[&'a View], all: &[Row]) -> Section<'a> {
    let suite = suites::by_name(name);
    let template = suite.and_then(|suite| suite.tables);
    let measured = rows.iter().filter(|view| view.row.is_measured());
    Section {
        name,
        figures: figures(suite, measured.copied().collect()),
        text: template.and_then(|template| reports::text(template, name, all)),
    }
}

/// Lines as the suite describes them, and a figure for each title of the rows that are in no line.
fn figures(suite: Option<&'static Suite>, mut rows: Vec<&View>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for one in suite.map_or(&[][..], |suite| suite.lines) {
        for figure in lines::figures(one, &rows) {
            // Beside another figure of the rows, their values are drawn, too.
            if one.y_figure.is_none() {
                let is_drawn = |view: &View| {
                    let mut series = figure.series.iter();
                    series.any(|one| one.rows.contains(&Some(view.number)))
                };
                rows.retain(|view| !is_drawn(view));
            }
            figures.push(figure);
        }
    }
    let titles = groups(&rows, |view| &view.row.title).into_iter();
    figures.extend(titles.filter_map(|(title, rows)| titles::figure(title, &rows)));
    figures
}
