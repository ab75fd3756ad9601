// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps over generic netlink.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::registry::{Context, topic};
use crate::support::check::skip;

topic!(
    "map_netlink",
    fifo: [],
    pipe_only: [
        the_library_of_the_kernel_tree_does_every_operation,
    ],
);

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/interop/map_netlink.py");

/// The program knows only spec/sluice.yaml, and the library for such specifications in the kernel's source. It prints the
/// name of each of its checks.
fn the_library_of_the_kernel_tree_does_every_operation(context: &Context) -> Result<()> {
    let Some(library) = context.modules.ynl.as_deref() else {
        return Err(skip(
            "no netlink library was given; name the directory ynl of what tests/lib/kernel-tools prints with --ynl",
        ));
    };
    let output = Command::new("python3")
        .arg(PROGRAM)
        .arg(library)
        .output()
        .context("starting python3")?;
    if !output.status.success() {
        let checks = String::from_utf8_lossy(&output.stdout);
        let check = checks.lines().last().unwrap_or("no check");
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{check}: {}: {}", output.status, errors.trim_end());
    }
    Ok(())
}
