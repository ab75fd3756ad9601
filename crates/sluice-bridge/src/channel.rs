// SPDX-License-Identifier: MIT OR Apache-2.0
//! The channel of a rule: its name, and the directory of the scope. Two rules for one channel are found by its text.

use std::path::{Component, Path, PathBuf};

/// What is wrong with a scope that can be written in several ways.
pub fn scope_error(scope: Option<&Path>) -> Option<&'static str> {
    let scope = scope?;
    let climbs = scope.components().any(|part| part == Component::ParentDir);
    (!scope.is_absolute() || climbs)
        .then_some("the scope is the directory of a cgroup; write its path from / on, without '..'")
}

/// The same, however often '/' is written.
pub fn text(name: &str, scope: Option<&Path>) -> String {
    match scope {
        Some(scope) => {
            let scope: PathBuf = scope.components().collect();
            format!("{name} in {}", scope.display())
        }
        None => name.to_owned(),
    }
}
