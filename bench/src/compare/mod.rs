// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares two runs: what became faster or slower beyond the spread of both.

mod command;
mod findings;
mod text;

pub use command::{Options, run};
pub use findings::{Compared, Comparison, NotCompared, compare};
