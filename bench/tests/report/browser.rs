// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens a page in headless Chromium: an injected script reports what is drawn, and the log of Chromium contains its
//! errors.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

#[derive(Debug, Default, PartialEq, Deserialize)]
pub struct Findings {
    pub plots: usize,
    pub series: usize,
    /// Plots and lines without size or mark.
    pub invisible: Vec<String>,
    /// Labels that exceed their plot.
    pub cut: Vec<String>,
    /// Labels that overlap another one.
    pub overlapping: Vec<String>,
    /// Tables and texts that are wider than their box.
    pub scrolled: Vec<String>,
    pub width: usize,
    /// The width by which the page exceeds the window.
    pub overflow: i64,
    pub dark: bool,
    /// Messages on the console, from scripts or from Chromium.
    #[serde(default)]
    pub console: Vec<String>,
}

/// The name distinguishes the files of tests that run at the same time.
pub fn open(name: &str, page: &str, width: usize, dark: bool) -> Findings {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Of an earlier run.
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).unwrap();
    let file = directory.join("report.html");
    // Before the scripts of the page, so that their errors do not stop it.
    let probe = format!("<script>{}</script><style>", include_str!("probe.js"));
    fs::write(&file, page.replacen("<style>", &probe, 1)).unwrap();
    let output = Command::new(browser())
        // Tests may run as root, where the sandbox of Chromium does not work; the page is trusted.
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=5000"])
        .arg(format!("--window-size={width},900"))
        .arg(format!(
            "--blink-settings=preferredColorScheme={}",
            u8::from(!dark)
        ))
        .arg(format!(
            "--user-data-dir={}",
            directory.join("profile").display()
        ))
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let [log, dom] = [output.stderr, output.stdout].map(|text| String::from_utf8(text).unwrap());
    let found = dom
        .split_once("<pre id=\"findings\">")
        .and_then(|(_, rest)| rest.split_once("</pre>"));
    let (found, _) = found.unwrap_or_else(|| panic!("the probe has no result; Chromium: {log}"));
    let found = found
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    let console = log.lines().filter(|line| line.contains(":CONSOLE"));
    Findings {
        console: console.map(String::from).collect(),
        ..serde_json::from_str(&found).unwrap()
    }
}

fn browser() -> &'static str {
    let names = [
        "chromium-headless-shell",
        "chromium",
        "chromium-browser",
        "google-chrome",
    ];
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &&str| std::env::split_paths(&paths).any(|path| path.join(name).exists());
    let found = names.into_iter().find(is_there);
    found.expect("Chromium is missing; run vm/install-packages, or install it")
}
