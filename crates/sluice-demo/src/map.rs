// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows maps: both containers have one of the same name, and neither finds the entries of the other. A container that has the
//! directory of the common cgroup watches a map of the host, which sets, replaces and deletes entries and lets one expire.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice::map::SetOptions;
use sluice::{Map, Scope};

use crate::at_once::at_once;
use crate::container::Container;
use crate::containers::Containers;
use crate::isolation::secret;
use crate::named;
use crate::process::{Process, wait_until};
use crate::rootfs::SCOPE;
use crate::story::detail;

/// Each container has a map of this name, and the host another one.
const NAME: &str = "settings";
const WATCHER: &str = "g";
/// Exit status for an entry that does not exist: see sluice-map(1).
const NOT_FOUND: i32 = 3;
const TIME_TO_LIVE: Duration = Duration::from_millis(200);

pub fn show(containers: &Containers) -> Result<String> {
    detail!(
        "Maps: each container creates a map '{NAME}' and sets an entry of its own, whose value is a secret:"
    );
    show_isolation(&containers.both)?;
    detail!(
        "Connected by a map: the host creates another '{NAME}' in the cgroup above all containers. Container {WATCHER} has the directory\n\
         of that cgroup, and watches the map; {} and {} do not find it there:",
        containers.both[0].name,
        containers.both[1].name
    );
    show_watch(containers)?;
    Ok(format!(
        "'{NAME}' is another map in each container; one of the host is watched in a third: all {} changes, in order",
        expected_changes().len()
    ))
}

fn key_of(container: &Container) -> String {
    format!("secret-of-{}", container.name)
}

fn show_isolation(containers: &[Container; 2]) -> Result<()> {
    at_once(containers, |container| {
        let (key, value) = (key_of(container), secret()?);
        container.run_success(&["sluice", "map", "create", NAME])?;
        container.run_success(&["sluice", "map", "set", NAME, &key, &value])?;
        let seen = container.run_success(&["sluice", "map", "get", NAME, &key])?;
        ensure!(
            seen == value,
            "container {} set {key} to {value} and then got '{seen}'; report this as a bug",
            container.name
        );
        detail!("  container {} sets {key} to {value}", container.name);
        Ok(())
    })?;
    at_once([(0, 1), (1, 0)], |(a, b)| {
        let (container, other) = (&containers[a], &containers[b]);
        expect_no_entry(container, &key_of(other))?;
        detail!(
            "  'sluice map get {NAME} {}' in container {}: not found",
            key_of(other),
            container.name
        );
        Ok(())
    })?;
    at_once(containers, |container| {
        container.run_success(&["sluice", "map", "rm", NAME])
    })?;
    detail!("");
    Ok(())
}

fn expect_no_entry(container: &Container, key: &str) -> Result<()> {
    let output = container.run(&["sluice", "map", "get", NAME, key])?;
    ensure!(
        output.status.code() == Some(NOT_FOUND) && output.stdout.is_empty(),
        "container {} is not isolated: 'sluice map get {NAME} {key}' ended with {} and printed '{}'; report this as a bug",
        container.name,
        output.status,
        output.stdout
    );
    Ok(())
}

fn show_watch(containers: &Containers) -> Result<()> {
    let scope = Scope::at(containers.parent_cgroup())?;
    let map = Map::named(NAME)
        .scope(scope)
        .create(true)
        .permissions(0o644)
        .open()?;
    for container in &containers.both {
        named::check_not_found(container, "map", NAME)?;
    }
    let container = containers.start_in_scope(WATCHER)?;
    let expected = expected_changes();
    let count = expected.len().to_string();
    let arguments = [
        "sluice", "map", "watch", "--scope", SCOPE, "--count", &count, NAME,
    ];
    let mut watcher = container.exec(&arguments)?;
    detail!("  container {WATCHER}: '{}'", arguments.join(" "));
    await_watcher(&map, &mut watcher)?;
    change(&map)?;
    let seen = watcher.wait_success()?.stdout;
    for line in seen.lines() {
        detail!("    {line}");
    }
    ensure!(
        seen.lines().eq(expected),
        "container {WATCHER} should have seen the changes {expected:?}; report this as a bug"
    );
    detail!("  as the host made them: sequence, change, changes missed before it, and key.\n");
    Ok(())
}

fn await_watcher(map: &Map, watcher: &mut Process) -> Result<()> {
    wait_until("watching the map", || {
        watcher.check_running()?;
        Ok(map.info()?.watchers == 1)
    })
}

fn change(map: &Map) -> Result<()> {
    let first = map.set("colour", "red")?;
    map.compare_and_set("colour", first.version, "blue")?;
    let refused = map.compare_and_set("colour", first.version, "green");
    ensure!(
        refused.is_err(),
        "a compare and set with a version of before has succeeded; report this as a bug"
    );
    map.set_with("lease", "1", SetOptions::new().time_to_live(TIME_TO_LIVE))?;
    map.delete("colour")?
        .context("the entry is not there; report this as a bug")?;
    Ok(())
}

/// What `sluice map watch` prints of change().
fn expected_changes() -> [&'static str; 5] {
    [
        "1 created 0 colour",
        "2 updated 0 colour",
        "3 created 0 lease",
        "4 deleted 0 colour",
        "5 expired 0 lease",
    ]
}
