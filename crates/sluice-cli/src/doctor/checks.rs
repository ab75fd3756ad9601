// SPDX-License-Identifier: MIT OR Apache-2.0
use super::Finding;
use super::cgroups::{hierarchy, own};
use super::durable::durable_maps;
use super::features::features;
use super::kernel::kernel;
use super::module::{MODULE, module};
use super::nodes::node;
use super::quota::{limits, usage};
use super::rings::rings;
use super::system::System;

/// Runs the checks, in an order where each depends on earlier ones only.
pub fn all(system: &System) -> Vec<Finding> {
    let mut findings = vec![
        kernel(system),
        rings(),
        hierarchy(system),
        own(system),
        module(system),
    ];
    if system.exists(MODULE) {
        findings.extend([
            node(system, "pipe node", "pipe"),
            node(system, "ctl node", "ctl"),
            features(system),
            limits(system),
            usage(system),
            durable_maps(system),
        ]);
    }
    findings
}
