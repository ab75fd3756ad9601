// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report as text, and in a browser.

mod browser;
mod fixture;

use browser::{Findings, open};
use sluice_bench::harness::rows::Results;
use sluice_bench::html::page;

fn without(text: &str, begin: &str, end: &str) -> String {
    let (before, rest) = text.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    format!("{before}{after}")
}

#[test]
fn the_page_contains_every_mechanism_and_reason() {
    let results = fixture::results();
    let page = page(&results);
    for row in results.rows.iter().filter(|row| row.failed.is_none()) {
        let names = [&row.mechanism, &row.label, &row.title];
        assert!(
            names.iter().all(|name| page.contains(name.as_str())),
            "{row:?}"
        );
        if let Some(reason) = &row.skipped {
            assert!(page.contains(reason), "{reason}");
        }
    }
    let measured = results
        .rows
        .iter()
        .filter(|row| row.median.is_some())
        .count();
    let full: usize = page
        .split("<details>")
        .skip(1)
        .map(|part| {
            let table = part
                .split_once("<tbody>")
                .unwrap()
                .1
                .split_once("</tbody>")
                .unwrap()
                .0;
            table.matches("<tr").count()
        })
        .sum();
    assert_eq!(
        full, measured,
        "each measured row has its line among all figures"
    );
}

#[test]
fn batches_have_a_separate_figure() {
    let page = page(&fixture::results());
    let (_, rest) = page
        .split_once("<h3>64 B in batches of 32 two-cpus</h3>")
        .unwrap();
    let figure = rest.split_once("</figure>").unwrap().0;
    assert!(figure.contains("pipe, one by one") && figure.contains("sluice-pipe"));
    let (_, rest) = page
        .split_once("<h3>Throughput by message size, two-cpus</h3>")
        .unwrap();
    let by_size = rest.split_once("</figure>").unwrap().0;
    assert!(!by_size.contains("one by one"));
}

#[test]
fn costs_are_drawn_by_the_number_of_receivers() {
    let page = page(&fixture::results());
    for heading in [
        "Cost of sending 64 B by number of receivers, busy",
        "Cost of sending 32 KiB by number of receivers, busy",
        "Bytes delivered by message size, 16 receivers",
        "1 receiver 32 KiB busy, cost of receiving",
    ] {
        assert!(page.contains(&format!("<h3>{heading}</h3>")), "{heading}");
    }
}

#[test]
fn rates_are_drawn_by_the_number_of_processes() {
    let page = page(&fixture::results());
    for operation in ["gets", "sets"] {
        let heading = format!("<h3>Rate of {operation} by number of processes</h3>");
        let (_, rest) = page.split_once(&heading).unwrap();
        let figure = rest.split_once("</figure>").unwrap().0;
        assert!(figure.contains("ratio to shared-map"), "{operation}");
        assert!(figure.contains("sluice-map-fd") && figure.contains("M/s"));
    }
}

#[test]
fn latencies_are_drawn_by_rate_and_for_each_load() {
    let page = page(&fixture::results());
    let heading = "<h3>p99 of the latency by rate, 64 B two-cpus</h3>";
    let (_, rest) = page.split_once(heading).unwrap();
    let figure = rest.split_once("</figure>").unwrap().0;
    for part in ["messages per second, logarithmic", ">90 %</th>", "p50 "] {
        assert!(figure.contains(part), "{part}");
    }
    assert!(page.contains("<h3>64 B 50 %, 50.0 k/s two-cpus</h3>"));
}

#[test]
fn streams_of_touched_data_have_a_figure_of_their_own() {
    let page = page(&fixture::results());
    let heading = "<h3>Throughput by message size, touched two-cpus</h3>";
    assert!(page.contains(heading));
}

#[test]
fn durable_sets_of_all_stores_are_drawn_in_one_plot() {
    let page = page(&fixture::results());
    let heading = "<h3>Rate of durable sets by number of processes</h3>";
    let (_, rest) = page.split_once(heading).unwrap();
    let figure = rest.split_once("</figure>").unwrap().0;
    for store in [
        "ratio to sqlite",
        "sluice-durable-always",
        "sluice-durable-interval",
        "redis-always",
    ] {
        assert!(figure.contains(store), "{store}");
    }
    assert!(page.contains("sets per commit"));
}

#[test]
fn the_title_says_what_is_measured_and_the_first_figure_names_each_mark() {
    let page = page(&fixture::results());
    let title = "Sluice and other IPC mechanisms on an emulated machine (QEMU TCG), Linux 6.12.48, 2026-11-28</";
    assert!(page.contains(&format!("<h1>{title}")) && page.contains(&format!("<title>{title}")));
    let (_, first) = page.split_once("<svg class=\"plot\"").unwrap();
    assert!(first.contains("times better than the reference"));
    let (plot, table) = first.split_once("<tbody>").unwrap();
    let count = |text| plot.matches(text).count();
    assert_eq!(count("class=\"name\""), count("<g class=\"series"));
    assert!(plot.contains(">tar of 4.68 MB in 763 files: sluice-pipe vs pipe<"));
    let table = table.split_once("</tbody>").unwrap().0;
    for sentence in [
        "Round trip of 1 B, two processors: sluice-pipe takes",
        "tar of 4.68 MB in 763 files, two processors: sluice-pipe takes",
        "Gets by 10 processes: sluice-map-fd has",
        "Ratios within rounds:",
    ] {
        assert!(table.contains(sentence), "{sentence}");
    }
    // It does not wait for the disk, as SQLite does.
    assert!(!table.contains("sluice-durable-interval"));
}

#[test]
fn the_reference_of_the_page_is_that_of_the_rows() {
    let mut results = fixture::results();
    results.rows.retain(|row| row.suite == "rtt");
    for row in &mut results.rows {
        if row.mechanism == "pipe" {
            row.mechanism = "tachyon".into();
            row.label = "tachyon".into();
        }
        if let Some(ratio) = &mut row.ratio {
            ratio.to = "tachyon".into();
        }
    }
    let page = page(&results);
    assert!(page.contains("<h2>Sluice relative to tachyon</h2>"));
    assert!(page.contains(">times better than tachyon, logarithmic"));
    assert!(page.contains("<tr class=\"reference\" data-series"));
    assert!(page.contains("ratio to tachyon") && !page.contains("to pipe"));
}

#[test]
fn no_ratio_is_shown_as_zero() {
    let mut results = fixture::results();
    for ratio in results.rows.iter_mut().filter_map(|row| row.ratio.as_mut()) {
        ratio.median /= 1000.0;
        ratio.min /= 1000.0;
        ratio.max /= 1000.0;
    }
    let page = page(&results);
    assert!(!page.contains(">0.00<") && !page.contains("0.00 …") && !page.contains("… 0.00<"));
}

#[test]
fn calibrations_stand_in_a_column_with_their_reasons() {
    let mut results = fixture::results();
    let marked = page(&results);
    assert!(
        marked.contains(">calibration<small>its rounds</small></th>")
            && marked.contains("calibr. 0.97")
    );
    assert!(marked.contains("calibration: its own benchmark does not check the messages"));
    for row in &mut results.rows {
        row.calibration = None;
    }
    assert!(!page(&results).contains(">calibration<small>"));
}

#[test]
fn external_text_is_escaped() {
    let page = page(&fixture::results());
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(page.contains("&quot;changed&quot; &amp; late"));
    assert!(page.contains("&lt;bench &amp; co&gt;"));
    assert!(!page.contains("<script>alert") && !page.contains("<bench"));
}

#[test]
fn only_noisy_and_failed_rows_are_marked() {
    let mut results = fixture::results();
    let marked = page(&results);
    assert!(marked.contains("noisy 2/5") && marked.contains("class=\"mark noisy\""));
    assert!(marked.contains("<span class=\"badge failed\">failed</span>"));
    for row in &mut results.rows {
        (row.noisy_rounds, row.failed) = (None, None);
    }
    let clean = page(&results);
    for mark in ["class=\"mark noisy\"", "badge noisy", "badge failed"] {
        assert!(!clean.contains(mark), "{mark}");
    }
}

#[test]
fn nothing_is_fetched() {
    let page = without(&page(&fixture::results()), "<style>", "</style>");
    for reference in ["http:", "https:", "//", "src=", "<link", "url(", "@import"] {
        // The comment of the script begins with two slashes.
        let page = without(&page, "<script>", "</script>");
        assert!(!page.contains(reference), "{reference}");
    }
    assert!(
        page.split("href=\"")
            .skip(1)
            .all(|link| link.starts_with('#'))
    );
}

#[test]
fn a_run_without_rows_has_a_page() {
    let empty = Results {
        rows: Vec::new(),
        ..fixture::results()
    };
    assert!(page(&empty).contains("no result of Sluice relative to another mechanism"));
}

#[test]
fn every_link_has_one_target() {
    let page = page(&fixture::results());
    for link in page.split("href=\"#").skip(1) {
        let anchor = format!("id=\"{}\"", link.split_once('"').unwrap().0);
        assert_eq!(page.matches(&anchor).count(), 1, "{anchor}");
    }
}

#[test]
#[ignore = "needs Chromium; vm/install-packages installs it, and make check runs this"]
fn a_browser_renders_the_page_without_errors() {
    let page = page(&fixture::results());
    let plots = page.matches("<svg class=\"plot\"").count();
    let series = page.matches("<g class=\"series").count();
    for width in [1280, 400] {
        for scheme in ["light", "dark"] {
            let mut found = open(&page, width, scheme).unwrap();
            if width < 1280 {
                // On a narrow screen, tables may scroll.
                found.scrolled.clear();
            }
            let expected = Findings {
                plots,
                series,
                width,
                dark: scheme == "dark",
                ..Findings::default()
            };
            assert_eq!(found, expected);
        }
    }
}

/// Shows that the test above detects errors.
#[test]
#[ignore = "needs Chromium; vm/install-packages installs it, and make check runs this"]
fn a_browser_detects_errors() {
    let page = page(&fixture::results());
    let inspect = |broken: String| open(&broken, 400, "light").unwrap();
    let console = |broken: String| inspect(broken).console;
    let column = "<th scope=\"col\">median";
    let long = page.replacen(
        column,
        "<th scope=\"col\" style='min-width: 900px'>median",
        1,
    );
    assert_eq!(open(&long, 1280, "light").unwrap().scrolled.len(), 1);
    let wide = page.replacen("<main>", "<main><p style='width: 2000px'>x</p>", 1);
    assert!(inspect(wide).overflow > 0);
    let empty = page.replacen(
        "</title><path class=\"line\" d=\"M",
        "</title><path class=\"line\" d=\"M0 0\" data-was=\"",
        1,
    );
    assert_eq!(inspect(empty).invisible.len(), 1);
    let not_a_number = page.replacen(
        "</title><path class=\"line\" d=\"M",
        "</title><path class=\"line\" d=\"MNaN ",
        1,
    );
    assert!(!console(not_a_number).is_empty());
    let faulty = page.replacen(
        "<script>",
        "<script>console.warn('hm');</script><script>",
        1,
    );
    assert!(!console(faulty).is_empty());
}
