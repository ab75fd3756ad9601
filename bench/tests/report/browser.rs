// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens a page in headless Chromium: an injected script reports what is drawn, and the log of Chromium contains its
//! errors.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

const BROWSERS: [&str; 4] = [
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
];
const PROBE: &str = include_str!("probe.js");

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

pub fn open(page: &str, width: usize, scheme: &str) -> Result<Findings> {
    let directory = Directory::new()?;
    let file = directory.0.join("report.html");
    // Before the scripts of the page, so that their errors do not stop it.
    fs::write(
        &file,
        page.replacen("<style>", &format!("<script>{PROBE}</script><style>"), 1),
    )?;
    let preferred = match scheme {
        "dark" => 0,
        _ => 1,
    };
    let output = Command::new(browser()?)
        // Tests may run as root, where the sandbox of Chromium does not work; the page is trusted.
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--dump-dom",
            "--enable-logging=stderr",
            "--virtual-time-budget=5000",
        ])
        .arg(format!("--window-size={width},900"))
        .arg(format!("--blink-settings=preferredColorScheme={preferred}"))
        .arg(format!(
            "--user-data-dir={}",
            directory.0.join("profile").display()
        ))
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .output()
        .context("cannot start Chromium")?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "Chromium failed ({}): {log}",
        output.status
    );
    let dom = String::from_utf8_lossy(&output.stdout);
    let found = dom
        .split_once("<pre id=\"findings\">")
        .and_then(|(_, rest)| rest.split_once("</pre>"));
    let (found, _) =
        found.with_context(|| format!("the probe has no result; log of Chromium:\n{log}"))?;
    let mut findings: Findings =
        serde_json::from_str(&unescape(found)).context("cannot parse the result of the probe")?;
    findings.console = log
        .lines()
        .filter(|line| line.contains(":CONSOLE"))
        .map(String::from)
        .collect();
    Ok(findings)
}

fn browser() -> Result<PathBuf> {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    for name in BROWSERS {
        if let Some(found) = std::env::split_paths(&directories)
            .map(|directory| directory.join(name))
            .find(|file| file.exists())
        {
            return Ok(found);
        }
    }
    bail!(
        "Chromium is missing; run vm/install-packages, or install one of {}",
        BROWSERS.join(", ")
    )
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

/// A directory, removed when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("sluice-report-{}-{number}", std::process::id()));
        fs::create_dir(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(Self(directory))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {} ({error})", self.0.display());
        }
    }
}
