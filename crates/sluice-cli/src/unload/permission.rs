// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the module can be unloaded at all, and by this process. It is checked before anything is ended.

use std::fs;

use anyhow::{Context, Result};
use nix::unistd::geteuid;

use super::UnloadError;

const LOADED: &str = "/sys/module/sluice";
/// Only a module that can be unloaded has it.
const STATE: &str = "/sys/module/sluice/initstate";
const CAP_SYS_MODULE: u32 = 16;
/// The map of the initial user namespace.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];

pub fn check() -> Result<()> {
    if !fs::exists(LOADED).unwrap_or(false) {
        return Err(UnloadError::NotLoaded.into());
    }
    if !fs::exists(STATE).unwrap_or(false) {
        return Err(UnloadError::BuiltIn.into());
    }
    if !geteuid().is_root() {
        return Err(UnloadError::NotPermitted("only root can unload the module").into());
    }
    let [status, uid_map, disabled] = [
        "/proc/self/status",
        "/proc/self/uid_map",
        "/proc/sys/kernel/modules_disabled",
    ]
    .map(|path| {
        fs::read_to_string(path).with_context(|| format!("cannot read {path}; mount /proc"))
    });
    Ok(check_texts(&status?, &uid_map?, &disabled?)?)
}

fn check_texts(status: &str, uid_map: &str, disabled: &str) -> Result<(), UnloadError> {
    if !uid_map.split_ascii_whitespace().eq(ALL_USERS) {
        return Err(UnloadError::NotPermitted(
            "this process is in a user namespace, as in a container",
        ));
    }
    if !has_capability(status) {
        return Err(UnloadError::NotPermitted(
            "this process lacks CAP_SYS_MODULE, as in a container",
        ));
    }
    match disabled.trim() {
        "0" => Ok(()),
        _ => Err(UnloadError::ModulesDisabled),
    }
}

/// From /proc/PID/status.
fn has_capability(status: &str) -> bool {
    let mut lines = status.lines();
    let set = lines.find_map(|line| line.strip_prefix("CapEff:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set >> CAP_SYS_MODULE & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "Name:\tsluice\nCapPrm:\t000001ffffffffff\nCapEff:\t000001ffffffffff\n";
    const CONTAINER: &str = "CapPrm:\t000001ffffffffff\nCapEff:\t00000000a80425fb\n";
    const HOST: &str = "         0          0 4294967295\n";

    #[test]
    fn root_of_the_host_may_unload() {
        check_texts(ALL, HOST, "0\n").unwrap();
    }

    #[test]
    fn each_reason_is_named() {
        let nested = "         0     100000      65536\n";
        for (status, uid_map, disabled, words) in [
            (ALL, nested, "0\n", "user namespace"),
            (ALL, "", "0\n", "user namespace"),
            (CONTAINER, HOST, "0\n", "CAP_SYS_MODULE"),
            ("", HOST, "0\n", "CAP_SYS_MODULE"),
            (ALL, HOST, "1\n", "modules_disabled"),
        ] {
            let error = check_texts(status, uid_map, disabled).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
