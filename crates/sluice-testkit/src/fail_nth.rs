// SPDX-License-Identifier: MIT OR Apache-2.0
//! The injection of failures by /proc/PID/fail-nth.

/// Files below /sys/kernel/debug, and what is written to them before failures are injected.
///
/// By default the kernel excludes allocations that may sleep, allocations of pages for user data and of single pages,
/// and logs each failure with a trace. Only fail-nth injects failures: the probabilities stay zero.
pub const SETTINGS: [(&str, &str); 7] = [
    ("failslab/ignore-gfp-wait", "N"),
    ("failslab/verbose", "0"),
    ("fail_page_alloc/ignore-gfp-wait", "N"),
    ("fail_page_alloc/ignore-gfp-highmem", "N"),
    ("fail_page_alloc/min-order", "0"),
    ("fail_page_alloc/verbose", "0"),
    ("fail_usercopy/verbose", "0"),
];
