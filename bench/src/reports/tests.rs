// SPDX-License-Identifier: MIT OR Apache-2.0
//! The templates, by the lines of their text for the rows of tests.txt.

use super::text;
use crate::harness::class::Class;
use crate::harness::figures::Values;
use crate::harness::rows::Row;
use crate::harness::samples::{Samples, summarize};
use crate::harness::waiting::Waiting;

/// A row from a line with cells: the label, the title, the value of each round; and what else it has by name: a figure with its
/// rounds, "samples" of one time and their number, the "size", a "load" in percent and per second, a remote "class".
fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [label, title, values, named @ ..] = &cells[..] else {
        panic!("too few cells: {line}");
    };
    let spins = label.contains("(spins");
    let mut row = Row {
        label: label.to_string(),
        mechanism: label.split([' ', ',']).next().unwrap().into(),
        title: title.to_string(),
        value: rounds(&numbers(values)),
        waiting: Some(if spins { Waiting::Spin } else { Waiting::Sleep }),
        ..Row::default()
    };
    for cell in named {
        let (name, values) = cell.split_once(' ').unwrap();
        let values = numbers(values);
        match name {
            "samples" => {
                let samples = std::iter::repeat_n(values[0] as u64, values[1] as usize);
                row.distribution = summarize(&[&samples.into_iter().collect::<Samples>()]);
            }
            "size" => row.size = Some(values[0] as usize),
            "class" => row.probe_class = Some(Class::Far),
            "load" => {
                row.axes.insert("load_percent".into(), values[0].into());
                row.axes.insert("load_rate".into(), values[1].into());
            }
            figure => {
                row.figures.insert(figure.into(), rounds(&values).unwrap());
            }
        }
    }
    row
}

fn numbers(text: &str) -> Vec<f64> {
    let words = text.split(' ');
    words.filter_map(|word| word.parse().ok()).collect()
}

fn rounds(values: &[f64]) -> Option<Values> {
    Values::of(values.iter().copied().enumerate())
}

/// The lines of the text for rows of a suite, with single spaces.
fn lines(suite: &str, rows: &str) -> Vec<String> {
    let mut rows: Vec<Row> = rows.lines().map(row).collect();
    rows.iter_mut().for_each(|row| row.suite = suite.into());
    let template = match suite {
        "rtt" | "throughput" => "rings",
        _ => suite,
    };
    let text = text(template, suite, &rows).unwrap_or_default();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(words).collect()
}

#[test]
fn without_results_there_is_no_text() {
    for (suite, _) in super::TEMPLATES {
        assert!(lines(suite, "pipe | a get | | size 1").is_empty());
        assert_eq!(text(suite, suite, &[row("pipe | a get | 1")]), None);
    }
}

#[test]
fn cells_are_aligned_as_the_head_says() {
    let text = super::aligned("before\n| a | b >|\n| long | 1 |\n|  | 200 |\nafter\n");
    let expected = "before\na       b\n─────────\nlong    1\n      200\nafter\n";
    assert_eq!(text, expected);
}

#[test]
fn the_text_has_the_lines_of_each_case() {
    for case in include_str!("tests.txt").split("\n== ").skip(1) {
        let (title, rest) = case.split_once('\n').unwrap();
        let (rows, expected) = rest.split_once("\n--\n").unwrap();
        let (suite, _) = title.split_once(": ").unwrap();
        let lines = lines(suite, rows);
        let mut expected = expected.trim_end().lines().peekable();
        assert_eq!(expected.peek().is_none(), lines.is_empty(), "{title}");
        for line in expected {
            assert!(
                lines.iter().any(|one| one == line),
                "{title}: {line}, not in {lines:#?}"
            );
        }
    }
}
