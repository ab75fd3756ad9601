// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page as text, and in a browser.

use std::process::Command;
use std::sync::LazyLock;
use std::{env, fs};

use serde_json::{Value, json};
use sluice_testkit::host::Host;

use super::{page, picture};
use crate::harness::class::Class::{Far, Near};
use crate::harness::figures::{IMBALANCE, LOST, MESSAGES_PER_COMMIT, Values};
use crate::harness::rounds::Metric::{Latency, Memory, Rate};
use crate::harness::rows::{Calibration, Results, Row};
use crate::harness::server::is_installed;
use crate::harness::turns::tests::rows_of;
use crate::mechanisms::temp_paths::private_directory;

/// Synthetic results with all kinds of rows, and with text that must be escaped.
static RESULTS: LazyLock<Results> = LazyLock::new(|| {
    let mut rows = Vec::new();
    for (suite, title, metric, figure, value) in [
        ("rtt", "64 B same-cpu", Latency, LOST, 1.0),
        ("throughput", "64 B same-cpu", Rate, IMBALANCE, 2.5),
        ("durable", "sets", Latency, MESSAGES_PER_COMMIT, 3.0),
        ("memory", "64 B same-cpu", Memory, LOST, 0.0),
        ("of an older version", "64 B", Rate, LOST, 0.0),
    ] {
        let factor = if metric == Rate { 3.0 } else { 0.3 };
        let ours = [8000.0, 9100.0, 9900.0].map(|value| factor * value);
        let mut of_case = rows_of(metric, &[8000.0, 9000.0, 10_000.0], &ours);
        let mut reference = of_case[0].clone();
        reference.probe_class = Some(Near);
        let others = ["tcp", "mmap", "myipc"].map(|label| Row {
            mechanism: label.into(),
            label: label.into(),
            is_reference: false,
            ..reference.clone()
        });
        of_case.splice(2..2, others);
        for row in &mut of_case {
            (row.suite, row.title) = (suite.into(), title.into());
            row.other_class = row.label == "mmap";
            row.probe_class = Some(if row.other_class { Far } else { Near });
            row.noisy_rounds = (row.label == "tcp").then_some(2);
            let values = Values::of([(0, value)].into_iter()).unwrap();
            row.figures.insert(figure.into(), values);
            row.calibration = (row.label == "myipc").then(|| Calibration {
                to: "its own benchmark".into(),
                median: 0.42,
                spread: [0.4, 0.5],
                reason: Some("it does not check the messages".into()),
            });
            row.compare_with(&reference);
        }
        rows.extend(of_case);
    }
    rows.push(Row {
        suite: "rtt".into(),
        label: "<script>alert(1)</script>".into(),
        skipped: Some("message 7 is \"changed\" & late".into()),
        failed: true,
        ..Row::default()
    });
    let mut host = Host::probe();
    host.name = "<bench & co>".into();
    Results::new(host, rows)
});

static PAGE: LazyLock<String> = LazyLock::new(|| page(&RESULTS));

fn part<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("{begin}"));
    rest.split_once(end).unwrap().0
}

#[test]
fn each_measured_row_has_its_line_among_all_figures() {
    let tables = PAGE.split("<details>").skip(1);
    let tables = tables.map(|table| table.split_once("</table>").unwrap().0);
    let lines: usize = tables.map(|table| table.matches("<tr").count() - 1).sum();
    let measured = RESULTS.rows.iter().filter(|row| row.is_measured()).count();
    assert_eq!(lines, measured);
}

#[test]
fn each_plot_has_its_table_and_what_limits_the_meaning_of_a_value() {
    let times = "time →|<small>p90<|ratio to pipe|faster|1 lost|noisy 2/3|far, others near|calibration: it|mark noisy";
    let rates = "bytes per second →|busiest writer 2.50|kB/s";
    for (suite, parts) in [
        ("Round trips", times),
        ("Throughput", rates),
        ("Durable maps", "messages per commit|3.00"),
        ("Memory", "memory →|less"),
    ] {
        let section = part(&PAGE, &format!("<h2>{suite}</h2>"), "</section>");
        let figure = part(section, "<figure", "</figure>");
        for part in parts.split('|') {
            assert!(figure.contains(part), "{suite}: {part}");
        }
    }
}

#[test]
fn what_to_take_away_stands_first_and_is_the_picture() {
    let plot = part(&PAGE, "<svg class=\"plot\"", "</svg>");
    let picture = picture(&RESULTS).unwrap();
    assert!(picture.contains("xmlns=") && picture.contains("--sluice: #"));
    let line = ">Round trip of 64 B, one processor: sluice-pipe<";
    for text in ["times better than pipe", line] {
        assert!(plot.contains(text) && picture.contains(text), "{text}");
    }
}

#[test]
fn external_text_is_escaped_and_nothing_is_fetched() {
    let escaped = "&lt;script&gt;alert(1)|&quot;changed&quot; &amp; late|&lt;bench &amp; co";
    for text in escaped.split('|') {
        assert!(PAGE.contains(text), "{text}");
    }
    // The comments of the style sheet and of the script have slashes.
    let page = PAGE.replace(part(&PAGE, "<style>", "</style>"), "");
    let page = page.replace(part(&page, "<script>", "</script>"), "");
    for other in "<bench http: https: // src= <link url( @import".split(' ') {
        assert!(!page.contains(other), "{other}");
    }
    assert_eq!(page.matches("<script").count(), 1);
}

#[test]
fn every_link_has_one_target() {
    for link in PAGE.split("href=\"#").skip(1) {
        let anchor = link.split_once('"').unwrap().0;
        let targets = PAGE.matches(&format!("id=\"{anchor}\"")).count();
        assert_eq!(targets, 1, "{anchor}");
    }
}

#[test]
fn a_run_without_rows_has_a_page_and_no_picture() {
    let empty = Results::new(Host::probe(), Vec::new());
    assert!(page(&empty).contains("no result of Sluice relative to another mechanism"));
    assert!(picture(&empty).is_none());
}

/// What probe.js finds in this page, and the messages of the scripts and of Chromium.
fn open_in_browser(page: &str, width: usize, dark: bool) -> Value {
    let directory = private_directory(&env::temp_dir()).unwrap();
    let [file, profile] = ["report.html", "profile"].map(|name| directory.path().join(name));
    // Before the scripts of the page, so that their errors do not stop it.
    let probe = format!("<script>{}</script><style>", include_str!("probe.js"));
    fs::write(&file, page.replacen("<style>", &probe, 1)).unwrap();
    let mut browsers = ["chromium-headless-shell", "chromium"].into_iter();
    let browser = browsers.find(|name| is_installed(name));
    let scheme = u8::from(!dark);
    let output = Command::new(browser.expect("run vm/install-packages tests/packages-all"))
        // Tests may run as root, where the sandbox of Chromium does not work; the page is trusted.
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=5000"])
        .arg(format!("--window-size={width},900"))
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let [log, dom] = [output.stderr, output.stdout].map(|text| String::from_utf8(text).unwrap());
    let found = part(&dom, "<pre id=\"findings\">", "</pre>");
    let found = found.replace("&lt;", "<").replace("&gt;", ">");
    let mut found: Value = serde_json::from_str(&found.replace("&amp;", "&")).unwrap();
    let messages = log.lines().filter(|line| line.contains(":CONSOLE"));
    found["console"] = messages.collect();
    found
}

#[test]
#[ignore = "needs Chromium; vm/install-packages installs it, and make check-all runs this"]
fn a_browser_renders_the_page_without_errors() {
    for (width, dark) in [(1280, false), (1280, true), (400, false), (400, true)] {
        let mut found = open_in_browser(&PAGE, width, dark);
        if width < 1280 {
            // On a narrow screen, tables may scroll.
            found["scrolled"] = json!([]);
        }
        let expected = json!({
            "plots": PAGE.matches("<svg class=\"plot\"").count(),
            "series": PAGE.matches("<g class=\"series").count(),
            "invisible": [], "cut": [], "overlapping": [], "scrolled": [], "console": [],
            "width": width, "overflow": 0, "dark": dark,
        });
        assert_eq!(found, expected);
    }
    let broken = PAGE.replacen("class=\"line\" d=\"M", "class=\"line\" d=\"MNaN ", 1);
    let found = open_in_browser(&broken, 1280, false);
    assert_eq!(found["invisible"].as_array().map(Vec::len), Some(1));
    assert_ne!(found["console"], json!([]));
}
