// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measuring: the harness, the mechanisms that it compares, and the suites that compare them.
//! A library as well as a program, since the demo measures and loads the module in the same way.

pub mod command;
pub mod compare;
pub mod harness;
pub mod html;
pub mod mechanisms;
pub mod reports;
pub mod run;
pub mod suites;
