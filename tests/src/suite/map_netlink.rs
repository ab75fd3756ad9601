// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps over generic netlink, from the program tests/interop/map_netlink.py, which knows only spec/sluice.yaml and the
//! library for such specifications in the kernel's source. Each test is the check of this name in the program.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::registry::{Context, topic};
use crate::support::check::{expect, skip};

topic!(
    "map_netlink",
    fifo: [],
    pipe_only: [
        the_program_has_these_checks_only,
        a_value_is_set_read_replaced_and_deleted,
        a_required_version_is_compared,
        a_value_of_16_kib_is_the_longest,
        a_name_needs_a_persistent_map,
        a_handle_belongs_to_its_socket,
        a_closed_socket_leaves_nothing,
        a_socket_has_at_most_64_handles,
        a_handle_permits_what_it_was_opened_for,
        incomplete_and_contradictory_requests_are_einval,
        a_batch_has_a_result_for_each_step,
        values_without_room_in_the_reply_have_their_length,
        a_dump_returns_each_entry_once,
        a_watch_sends_each_change,
        the_state_is_that_of_the_map,
    ],
);

macro_rules! checks {
    ($($name:ident),* $(,)?) => {
        $(fn $name(context: &Context) -> Result<()> {
            run(library(context)?, Some(stringify!($name))).map(drop)
        })*
    };
}

checks! {
    a_value_is_set_read_replaced_and_deleted,
    a_required_version_is_compared,
    a_value_of_16_kib_is_the_longest,
    a_name_needs_a_persistent_map,
    a_handle_belongs_to_its_socket,
    a_closed_socket_leaves_nothing,
    a_socket_has_at_most_64_handles,
    a_handle_permits_what_it_was_opened_for,
    incomplete_and_contradictory_requests_are_einval,
    a_batch_has_a_result_for_each_step,
    values_without_room_in_the_reply_have_their_length,
    a_dump_returns_each_entry_once,
    a_watch_sends_each_change,
    the_state_is_that_of_the_map,
}

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/interop/map_netlink.py");

fn library(context: &Context) -> Result<&Path> {
    let library = context.modules.ynl.as_deref();
    library.ok_or_else(|| {
        skip("no netlink library was given; fetch it with tests/interop/get-ynl and name it with --ynl")
    })
}

/// Returns what the program prints.
fn run(library: &Path, check: Option<&str>) -> Result<String> {
    let output = Command::new("python3")
        .arg(PROGRAM)
        .arg(library)
        .args(check)
        .output()
        .context("starting python3")?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("the program ended with {}: {}", output.status, errors.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn the_program_has_these_checks_only(context: &Context) -> Result<()> {
    let listed = run(library(context)?, None)?;
    let mut tests: Vec<_> = TOPIC.tests.iter().map(|test| test.name).collect();
    tests.remove(0);
    expect("its checks", listed.lines().collect(), tests)
}
