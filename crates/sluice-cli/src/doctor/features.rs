// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the module and this command fit together.

use sluice_abi::ABI;

use super::Finding;
use super::module::{COMMAND, version};
use super::system::System;

const CHECK: &str = "features";
const RELOAD: &str =
    "install the current module, then run 'sudo sluice unload && sudo modprobe sluice'";

pub fn features(system: &System) -> Finding {
    match sluice::features() {
        Ok(features) => judge(features.abi, features.has_all(), version(system).as_deref()),
        Err(error @ sluice::Error::ModuleTooOld { .. }) => {
            Finding::problem(CHECK, error.to_string(), RELOAD)
        }
        Err(error) => Finding::problem(CHECK, error.to_string(), error.hint()),
    }
}

fn judge(abi: u32, has_all: bool, module: Option<&str>) -> Finding {
    let module = module.unwrap_or("unknown");
    let versions = format!("interface version {abi}, module {module}, command {COMMAND}");
    if has_all {
        return Finding::ok(CHECK, format!("all, {versions}"));
    }
    match abi > ABI {
        true => Finding::problem(
            CHECK,
            format!("the module is too new for this command: {versions}"),
            format!("install the command of version {module}"),
        ),
        false => Finding::problem(
            CHECK,
            format!("the module is too old for this command: {versions}"),
            RELOAD,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_with_all_features_is_ok_whatever_its_version() {
        for module in [None, Some("0.0.9"), Some(COMMAND), Some("9.0.0")] {
            let finding = judge(ABI, true, module);
            assert!(finding.ok && finding.found.starts_with("all, "));
        }
    }

    #[test]
    fn a_module_that_is_too_old_is_to_be_replaced() {
        for abi in [ABI, ABI - 1] {
            let finding = judge(abi, false, Some("0.0.9"));
            assert!(finding.found.contains("too old") && finding.found.contains("module 0.0.9"));
            assert!(finding.fix.unwrap().contains("sudo sluice unload"));
        }
    }

    #[test]
    fn a_module_that_is_too_new_needs_another_command() {
        let finding = judge(ABI + 1, false, Some("9.0.0"));
        assert!(finding.found.contains("too new"), "{}", finding.found);
        assert_eq!(
            finding.fix.as_deref(),
            Some("install the command of version 9.0.0")
        );
    }
}
