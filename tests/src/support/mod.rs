// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests are made of: processes that report, proofs that one sleeps, cgroups, hostile memory.

pub mod channel;
pub mod check;
pub mod container;
pub mod crun;
pub mod ctl;
pub mod fail_nth;
pub mod identity;
pub mod ioctl;
pub mod kernel;
pub mod lock_trace;
pub mod memcg;
pub mod memory;
pub mod notice;
pub mod parameter;
pub mod passing;
pub mod poll;
pub mod random;
pub mod requests;
pub mod sched;
pub mod signals;
pub mod stall;
pub mod userfault;
pub mod vfs_pipe;

pub use sluice_testkit::{cgroup, child, proc, process, shared, time};
