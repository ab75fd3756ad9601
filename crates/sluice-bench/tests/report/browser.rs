// SPDX-License-Identifier: MIT OR Apache-2.0
//! A page in Chromium without a screen: a script put into it says what is drawn, Chromium's log says what it complains about.

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
    /// Plots and lines that have no size or no mark.
    pub invisible: Vec<String>,
    /// Labels that are not wholly in their plot.
    pub cut: Vec<String>,
    /// Labels that run into another one.
    pub overlapping: Vec<String>,
    pub width: usize,
    /// By how much the page is wider than the window.
    pub overflow: i64,
    pub dark: bool,
    /// What went to the console, by the page's scripts or by Chromium itself.
    #[serde(default)]
    pub complaints: Vec<String>,
}

pub fn open(page: &str, width: usize, scheme: &str) -> Result<Findings> {
    let place = Place::new()?;
    let file = place.0.join("report.html");
    // Before the page's own scripts, so that a fault in them does not stop it.
    fs::write(
        &file,
        page.replacen("<style>", &format!("<script>{PROBE}</script><style>"), 1),
    )?;
    let preferred = match scheme {
        "dark" => 0,
        _ => 1,
    };
    let output = Command::new(browser()?)
        // Tests run as root, too, where Chromium's sandbox cannot; the page is our own.
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
            place.0.join("profile").display()
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
        found.with_context(|| format!("the probe said nothing; Chromium's log:\n{log}"))?;
    let mut findings: Findings =
        serde_json::from_str(&unescape(found)).context("the probe said something else")?;
    findings.complaints = log
        .lines()
        .filter(|line| line.contains(":CONSOLE"))
        .map(String::from)
        .collect();
    Ok(findings)
}

fn browser() -> Result<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    for name in BROWSERS {
        if let Some(found) = std::env::split_paths(&folders)
            .map(|folder| folder.join(name))
            .find(|file| file.exists())
        {
            return Ok(found);
        }
    }
    bail!(
        "there is no Chromium here; run vm/packages-install, or install one of {}",
        BROWSERS.join(", ")
    )
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

/// A folder that goes with this.
struct Place(PathBuf);

impl Place {
    fn new() -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("sluice-report-{}-{number}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {} ({error})", self.0.display());
        }
    }
}
