// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report as text, and in a browser.

mod browser;
mod fixture;

use std::sync::LazyLock;

use browser::{Findings, open};
use fixture::RESULTS;
use sluice_bench::harness::rows::Results;
use sluice_bench::html::{page, picture};

static PAGE: LazyLock<String> = LazyLock::new(|| page(&RESULTS));

fn without(text: &str, begin: &str, end: &str) -> String {
    let (before, rest) = text.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    format!("{before}{after}")
}

#[test]
fn each_measured_row_has_its_line_among_all_figures() {
    let tables = PAGE.split("<details>").skip(1);
    let tables = tables.map(|part| part.split_once("</table>").unwrap().0);
    let lines: usize = tables.map(|table| table.matches("<tr").count() - 1).sum();
    let measured = RESULTS.rows.iter().filter(|row| row.is_measured()).count();
    assert_eq!(lines, measured);
}

#[test]
#[rustfmt::skip]
fn each_figure_has_its_heading_and_its_table() {
    for (heading, parts) in [
        ("1 B two-cpus", &["share of samples", "<small>p90<", "ratio to pipe", "noisy 2/5", "calibration: its own"][..]),
        ("Throughput by message size, two-cpus", &["message size, logarithmic", "× 0.", "calibr. 0.42"]),
        ("Throughput by message size, touched, two-cpus", &["GB/s"]),
        ("64 B in batches of 32 two-cpus", &["bytes per second →", "The axis begins at 0"]),
        ("Throughput by message size, writers 8, receivers 1, two-cpus", &["busiest writer 2.50", "0.50 switches"]),
        ("p99 of the latency by messages per second, 64 B, two-cpus", &[">50 %</th>", "M/s"]),
        ("64 B 50 % two-cpus", &["share of samples"]),
        ("Cost of a message by number of receivers, 64 B, busy", &["↑ processor time of the sender"]),
        ("Bytes delivered by message size, receivers 16, streaming", &[">32 KiB</th>"]),
        ("Rate by number of processes, gets", &["M/s", "near"]),
        ("durable sets by 10 processes", &["messages per commit", "3.00"]),
        ("Time of a call by number of names", &["list by 10, a name"]),
        ("4.68 MB in 763 files two-cpus", &["The axis begins at 0"]),
    ] {
        let found = PAGE.split_once(&format!("<h3>{heading}</h3>"));
        let (_, rest) = found.unwrap_or_else(|| panic!("{heading}"));
        let figure = rest.split_once("</figure>").unwrap().0;
        for part in parts {
            assert!(figure.contains(part), "{heading}: {part}");
        }
    }
}

#[test]
fn sentences_stand_first_with_their_plot() {
    let (_, first) = PAGE.split_once("<svg class=\"plot\"").unwrap();
    let (plot, table) = first.split_once("<tbody>").unwrap();
    assert!(plot.contains("times better than pipe") && plot.contains(">tar of 4.68 MB"));
    let claim = "Round trip of 64 B, two processors: sluice-pipe takes 0.";
    assert!(table.contains(claim) && table.contains("Ratios within rounds:"));
    let picture = picture(&RESULTS).unwrap();
    assert!(picture.contains("xmlns=") && picture.contains("--sluice: #"));
    assert!(picture.contains("class=\"name\"") && picture.trim_end().ends_with("</svg>"));
}

#[test]
fn the_reference_of_the_page_is_the_reference_of_the_rows() {
    let text = serde_json::to_string(&*RESULTS).unwrap();
    let results: Results = serde_json::from_str(&text.replace("\"pipe\"", "\"tachyon\"")).unwrap();
    let page = page(&results);
    assert!(page.contains("<tr class=\"reference\" data-series=\"tachyon\">"));
    assert!(page.contains("ratio to tachyon") && !page.contains("to pipe"));
}

#[test]
fn external_text_is_escaped_and_nothing_is_fetched() {
    for escaped in [
        "&lt;script&gt;alert(1)",
        "&quot;changed&quot; &amp; late",
        "&lt;bench &amp; co",
    ] {
        assert!(PAGE.contains(escaped), "{escaped}");
    }
    // The comments of the style sheet and of the script have slashes.
    let page = without(&PAGE, "<style>", "</style>");
    let page = without(&page, "<script>", "</script>");
    for other in [
        "<script", "<bench", "http:", "https:", "//", "src=", "<link", "url(", "@import",
    ] {
        assert!(!page.contains(other), "{other}");
    }
}

#[test]
fn every_link_has_one_target() {
    for link in PAGE.split("href=\"").skip(1) {
        let anchor = link.split_once('"').unwrap().0.strip_prefix('#').unwrap();
        assert_eq!(
            PAGE.matches(&format!("id=\"{anchor}\"")).count(),
            1,
            "{anchor}"
        );
    }
}

#[test]
fn only_exceptional_rows_are_marked() {
    let mut results = RESULTS.clone();
    for row in &mut results.rows {
        (row.noisy_rounds, row.failed, row.other_class) = (None, None, None);
        row.figures.clear();
    }
    let page = page(&results);
    let badges = [
        "badge noisy",
        "badge failed",
        ">far, others near<",
        ">10 lost<",
    ];
    for mark in badges.into_iter().chain(["class=\"mark noisy\""]) {
        assert!(PAGE.contains(mark) && !page.contains(mark), "{mark}");
    }
}

#[test]
fn a_run_without_rows_has_a_page_and_no_picture() {
    let mut empty = RESULTS.clone();
    empty.rows.clear();
    assert!(page(&empty).contains("no result of Sluice relative to another mechanism"));
    assert!(picture(&empty).is_none());
}

#[test]
#[ignore = "needs Chromium; vm/install-packages installs it, and make check runs this"]
fn a_browser_renders_the_page_without_errors() {
    for (width, dark) in [(1280, false), (1280, true), (400, false), (400, true)] {
        let mut found = open("renders", &PAGE, width, dark);
        if width < 1280 {
            // On a narrow screen, tables may scroll.
            found.scrolled.clear();
        }
        let expected = Findings {
            plots: PAGE.matches("<svg class=\"plot\"").count(),
            series: PAGE.matches("<g class=\"series").count(),
            width,
            dark,
            ..Findings::default()
        };
        assert_eq!(found, expected);
    }
}

/// Shows that the test above detects errors.
#[test]
#[ignore = "needs Chromium; vm/install-packages installs it, and make check runs this"]
fn a_browser_detects_errors() {
    let open =
        |from: &str, to: &str, width| open("detects", &PAGE.replacen(from, to, 1), width, false);
    let column = "<th scope=\"col\">median";
    let wide = open(
        column,
        "<th scope=\"col\" style='min-width: 900px'>median",
        1280,
    );
    assert_eq!(wide.scrolled.len(), 1);
    assert!(open("<main>", "<main><p style='width: 2000px'>x</p>", 400).overflow > 0);
    let line = "</title><path class=\"line\" d=\"M";
    let empty = open(
        line,
        "</title><path class=\"line\" d=\"M0 0\" data-was=\"",
        400,
    );
    assert_eq!(empty.invisible.len(), 1);
    let not_a_number = open(line, "</title><path class=\"line\" d=\"MNaN ", 400);
    assert!(!not_a_number.console.is_empty());
    let faulty = open(
        "<script>",
        "<script>console.warn('hm');</script><script>",
        400,
    );
    assert!(!faulty.console.is_empty());
}
