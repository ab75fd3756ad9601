// SPDX-License-Identifier: MIT OR Apache-2.0
//! Benchmarks: the harness, the mechanisms under test, and the suites. A library as well as a program, for the tests in
//! `tests/`.

pub mod compare;
pub mod harness;
pub mod html;
pub mod mechanisms;
pub mod options;
pub mod reports;
pub mod run;
pub mod suites;
