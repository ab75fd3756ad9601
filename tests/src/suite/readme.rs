// SPDX-License-Identifier: MIT OR Apache-2.0
//! The examples of README.md, run as they are there. Its blocks of `bash` are pasted into one shell, one after the other; a block of
//! `text` that follows one is what it prints.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::cli::{shell, sluice};

topic!(
    "readme",
    fifo: [],
    pipe_only: [
        the_examples_print_what_the_page_says,
    ],
);

/// Read when the test runs, so that a change of the page needs no build.
const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");

/// A block of code, with the number of its first line.
struct Block {
    line: usize,
    language: String,
    text: String,
}

fn blocks() -> Result<Vec<Block>> {
    let page = fs::read_to_string(README).with_context(|| format!("reading {README}"))?;
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in page.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some(Block {
                    line: index + 2,
                    language: language.to_owned(),
                    text: String::new(),
                });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    ensure!(open.is_none(), "a block of README.md has no end");
    Ok(blocks)
}

fn the_examples_print_what_the_page_says(context: &Context) -> Result<()> {
    let blocks = blocks()?;
    let examples: Vec<usize> = (0..blocks.len())
        .filter(|&at| blocks[at].language == "bash")
        .collect();
    for kind in ["pipe", "ring", "bus", "map", "feed"] {
        let command = format!("sluice {kind} ");
        ensure!(
            examples
                .iter()
                .any(|&at| blocks[at].text.contains(&command)),
            "README.md has no example of '{command}'"
        );
    }
    // What a block starts in the background prints to the output of the block.
    let script: String = examples
        .iter()
        .map(|&at| format!("exec >{at}.out\n{}", blocks[at].text))
        .collect();
    shell(context, &script)?.stdout()?;
    for at in examples {
        let Some(printed) = blocks.get(at + 1).filter(|next| next.language == "text") else {
            continue;
        };
        let output = context.scratch.join(format!("{at}.out"));
        let output = fs::read_to_string(output).context("reading what an example has printed")?;
        expect(
            &format!("output of line {} of README.md", blocks[at].line),
            output,
            printed.text.clone(),
        )?;
    }
    let left = sluice(context, "ls --json")?.json()?;
    expect("channels that the examples leave", left, json!([]))
}
