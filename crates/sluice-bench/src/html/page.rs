// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page as a whole.

use super::facts;
use super::highlights;
use super::looks::Looks;
use super::suites::{Figure, Suite, suites};
use super::text::escape;
use crate::harness::rows::Results;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("highlight.js");

pub fn page(results: &Results) -> String {
    let looks = Looks::of(results);
    let suites = suites(results, &looks);
    let highlight = highlights::figure(&results.rows, &looks);
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
            "<header><h1>Sluice beside the kernel’s own ways</h1>{facts}</header>",
            "<nav aria-label=\"Contents\"><h2>Contents</h2><ol>{contents}</ol></nav>",
            "{ours}{sections}",
            "<section id=\"words\"><h2>What the words mean</h2>{words}</section>",
            "</main><script>{script}</script></body></html>\n"
        ),
        host = escape(&results.host.name),
        style = STYLE,
        facts = facts::facts(results),
        contents = contents(&suites),
        ours = ours(highlight),
        sections = sections,
        words = facts::words(),
        script = SCRIPT,
    )
}

fn contents(suites: &[Suite]) -> String {
    let suites: String = suites.iter().map(suite_entry).collect();
    format!(
        "<li><a href=\"#ours\">Ours against pipe(2)</a></li>{suites}<li><a href=\"#words\">What the words mean</a></li>"
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

fn ours(figure: Option<Figure>) -> String {
    let inside = match figure {
        None => "<p>Nothing of ours was measured beside pipe(2) in this run; the suites below say why.</p>".to_string(),
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
    format!("<section id=\"ours\"><h2>Ours against pipe(2)</h2>{inside}</section>")
}
