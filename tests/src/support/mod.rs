// SPDX-License-Identifier: MIT OR Apache-2.0
//! Common parts of the tests: child processes, checks that one sleeps, cgroups, invalid memory.

pub mod bus;
pub mod channel;
pub mod check;
pub mod cli;
pub mod container;
pub mod credentials;
pub mod crun;
pub mod ctl;
pub mod daemon;
pub mod durable;
pub mod event;
pub mod fail_nth;
pub mod fault_blocked;
pub mod fd_passing;
pub mod feed;
pub mod fuse;
pub mod ioctl;
pub mod keeper;
pub mod kernel;
pub mod linearizable;
pub mod lock_trace;
pub mod map;
pub mod memcg;
pub mod memory;
pub mod near;
pub mod netlink;
pub mod numbered_bytes;
pub mod operations;
pub mod parameter;
pub mod poll;
pub mod requests;
pub mod ring;
pub mod sched;
pub mod shell;
pub mod signals;
pub mod store;
pub mod timer_trace;
pub mod trace_buffer;
pub mod traffic;
pub mod uring;
pub mod userfault;
pub mod vfs_pipe;
pub mod waiters;
pub mod wrong_clock;

pub use sluice_testkit::{cgroup, child, hft, proc, process, random, shared, shared_map, time};
