// SPDX-License-Identifier: MIT OR Apache-2.0
//! The whole page.

use super::environment;
use super::highlights;
use super::series_style::SeriesStyles;
use super::suites::{Figure, Suite, suites};
use super::text::escape;
use crate::harness::rows::Results;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("highlight.js");

pub fn page(results: &Results) -> String {
    let styles = SeriesStyles::of(results);
    let suites = suites(results, &styles);
    let highlight = highlights::figure(&results.rows, &styles);
    let sections: String = suites
        .iter()
        .map(|suite| suite.section(&results.rows))
        .collect();
    format!(
        concat!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">",
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">",
            "<meta name=\"color-scheme\" content=\"light dark\">",
            "<title>Sluice: measured on {host}</title><style>{style}</style></head>\n<body><main>",
            "<header><h1>Sluice and other IPC mechanisms</h1>{environment}</header>",
            "<nav aria-label=\"Contents\"><h2>Contents</h2><ol>{contents}</ol></nav>",
            "{summary}{sections}",
            "<section id=\"glossary\"><h2>Glossary</h2>{glossary}</section>",
            "</main><script>{script}</script></body></html>\n"
        ),
        host = escape(&results.host.name),
        style = STYLE,
        environment = environment::environment(results),
        contents = contents(&suites),
        summary = summary(highlight),
        sections = sections,
        glossary = environment::glossary(),
        script = SCRIPT,
    )
}

fn contents(suites: &[Suite]) -> String {
    let suites: String = suites.iter().map(suite_entry).collect();
    format!(
        "<li><a href=\"#summary\">Sluice relative to pipe(2)</a></li>{suites}<li><a href=\"#glossary\">Glossary</a></li>"
    )
}

fn suite_entry(suite: &Suite) -> String {
    let figure = |figure: &Figure| {
        let (anchor, heading) = (suite.figure_anchor(figure), escape(&figure.heading));
        format!("<a href=\"#{anchor}\">{heading}</a>")
    };
    let figures: Vec<String> = suite.figures.iter().map(figure).collect();
    format!(
        "<li><a href=\"#{}\">{}</a><span class=\"figures\">{}</span></li>",
        suite.anchor(),
        escape(suite.title()),
        figures.join(" ")
    )
}

fn summary(figure: Option<Figure>) -> String {
    let content = match figure {
        None => "<p>This run has no result of Sluice relative to pipe(2); the suites below list the reasons.</p>".to_string(),
        Some(figure) => format!(
            concat!(
                "<p class=\"hint\">{hint}</p><figure><div class=\"pair tall\">",
                "<div class=\"drawing\">{plot}</div>{table}</div></figure>"
            ),
            hint = figure.hint,
            plot = figure.plot,
            table = figure.table
        ),
    };
    format!("<section id=\"summary\"><h2>Sluice relative to pipe(2)</h2>{content}</section>")
}
