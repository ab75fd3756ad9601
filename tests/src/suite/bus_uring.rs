// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buses through io_uring, from the C program tests/interop/bus_uring, which knows only the ABI header and liburing.
//! Each test is the check of this name in the program, with each way to set up a ring.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::registry::Context;
use crate::support::check::{expect, skip};

/// The topic, with a test for each check of the program. The first test is one of its own.
macro_rules! topic {
    ($name:literal, fifo: [], pipe_only: [$own:ident, $($check:ident),* $(,)?] $(,)?) => {
        crate::registry::topic!($name, fifo: [], pipe_only: [$own, $($check),*]);
        $(fn $check(context: &Context) -> Result<()> {
            run(program(context)?, stringify!($check))
        })*
    };
}

topic!(
    "bus_uring",
    fifo: [],
    pipe_only: [
        the_program_has_these_checks_only,
        a_read_waits_for_a_message,
        a_write_is_received,
        a_write_waits_for_room,
        frames_are_read_and_written,
        a_message_beyond_the_maximum_is_emsgsize,
        a_message_for_a_small_buffer_stays,
        a_nowait_request_is_eagain,
        registered_files_and_buffers_are_used,
        a_poll_completes_with_a_message,
        a_poll_completes_with_room,
        a_multishot_poll_reports_each_message,
        a_multishot_poll_reports_room_each_time,
        a_multishot_read_receives_each_message,
        a_multishot_read_without_buffers_loses_nothing,
        a_multishot_read_with_small_buffers_is_emsgsize,
        a_multishot_read_receives_empty_messages,
        a_cancelled_read_receives_nothing,
        a_cancelled_write_sends_nothing,
        a_read_cancelled_as_a_message_arrives_loses_nothing,
        a_write_cancelled_as_room_appears_sends_once_or_nothing,
        an_exit_ends_pending_requests,
        a_killed_process_leaves_no_requests,
        an_exec_ends_pending_requests,
        receivers_on_one_ring_get_all_messages_of_a_broadcast,
        receivers_on_one_ring_take_turns_in_a_multicast,
        receivers_on_one_ring_share_a_queue,
        messages_of_each_sender_stay_in_order,
        a_destroyed_bus_ends_its_receivers_requests,
        a_destroyed_bus_ends_its_senders_requests,
        a_destroyed_bus_ends_a_multishot_read,
    ],
);

/// The exit status of a check that cannot run here.
const SKIPPED: i32 = 77;

fn program(context: &Context) -> Result<&Path> {
    let program = context.modules.bus_uring.as_deref();
    program.ok_or_else(|| {
        skip("no C program was given; build it with tests/interop/build and name it with --bus-uring")
    })
}

/// Returns what the program prints to its standard output.
fn run_program(program: &Path, argument: &str) -> Result<String> {
    let output = Command::new(program)
        .arg(argument)
        .output()
        .with_context(|| format!("starting {}", program.display()))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(0) => Ok(printed),
        Some(SKIPPED) => Err(skip(printed.trim_end())),
        _ => bail!(
            "the program ended with {}; stdout: {}; stderr: {}",
            output.status,
            printed.trim_end(),
            String::from_utf8_lossy(&output.stderr).trim_end()
        ),
    }
}

fn run(program: &Path, check: &str) -> Result<()> {
    run_program(program, check).map(drop)
}

fn the_program_has_these_checks_only(context: &Context) -> Result<()> {
    let listed = run_program(program(context)?, "--list")?;
    let mut tests: Vec<_> = TOPIC.tests.iter().map(|test| test.name).collect();
    tests.remove(0);
    expect("its checks", listed.lines().collect(), tests)
}
