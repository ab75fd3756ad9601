// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables below the rows of a suite: the figures and claims of five reports, compared with a run, and ratios with limits. Each text
//! is a template; [`functions`] are what it can call. Its lines that begin with `|` are cells of tables, and a head that ends with `>`
//! aligns its column to the right. `docs/reports.md` lists the claims of the reports and how each is tested.

mod criteria;
mod functions;
mod model;
#[cfg(test)]
mod tests;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, Error, UndefinedBehavior, context};

use crate::harness::rows::Row;
use crate::harness::text::{cells, table};

pub use functions::add_texts;

const TEMPLATES: [(&str, &str); 8] = [
    ("reports", include_str!("reports.txt")),
    ("fanout", include_str!("fanout.txt")),
    ("map", include_str!("map.txt")),
    ("durable", include_str!("durable.txt")),
    ("feed", include_str!("feed.txt")),
    ("load", include_str!("load.txt")),
    ("rings", include_str!("rings.txt")),
    ("instructions", include_str!("instructions.txt")),
];

/// The tables of a template for the rows of a suite; None if they have no result that the template shows.
pub fn text(template: &str, suite: &str, rows: &[Row]) -> Option<String> {
    let has_result = |row: &&Row| row.suite == suite && row.is_measured();
    let rows: Vec<Row> = rows.iter().filter(has_result).cloned().collect();
    if rows.is_empty() {
        return None;
    }
    let text = render(template, suite, rows).expect("the template is correct, which tests show");
    (!text.trim().is_empty()).then(|| aligned(&text))
}

fn render(template: &str, suite: &str, rows: Vec<Row>) -> Result<String, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()?;
    environment.set_syntax(syntax);
    // A figure of a row that was not measured is undefined, too.
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    for (name, source) in TEMPLATES {
        environment.add_template(name, source)?;
    }
    let values = Value::from(Serde(&rows));
    functions::add(&mut environment, rows);
    environment
        .get_template(template)?
        .render(context! { suite, rows => values })
}

fn aligned(text: &str) -> String {
    let mut lines = text.lines().peekable();
    let mut aligned = String::new();
    while let Some(line) = lines.next() {
        if !line.starts_with('|') {
            aligned += line;
            aligned.push('\n');
            continue;
        }
        let mut table = table(line);
        while let Some(line) = lines.next_if(|line| line.starts_with('|')) {
            table.row(cells(line).map(String::from));
        }
        aligned += &table.to_string();
    }
    aligned
}
