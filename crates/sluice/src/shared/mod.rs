// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that another process, or the kernel, writes to at the same time, and the endpoint that it belongs to.

pub(crate) mod atomic_copy;
pub(crate) mod bytes;
pub(crate) mod device;
pub(crate) mod mapping;
pub(crate) mod region;
pub(crate) mod setup_process;
