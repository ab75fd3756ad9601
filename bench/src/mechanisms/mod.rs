// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mechanisms, and the code that several of them share. registry.rs lists them.

#[cfg(feature = "aeron")]
mod aeron;
pub mod cacheline_pingpong;
#[cfg(feature = "iceoryx2")]
pub mod iceoryx2;
mod link;
mod mechanism;
mod myipc;
pub mod own_program;
pub mod pipe;
pub mod registry;
mod shared_ring;
mod shm_sem;
mod sluice_pipe;
pub mod sluice_ring;
pub mod stream;
#[cfg(feature = "tachyon")]
mod tachyon;
pub mod temp_paths;
pub mod unix_socket;
pub mod zeromq;
pub mod zmq_library;

#[cfg(feature = "iceoryx2")]
pub use link::await_peer;
pub use link::{Ends, Exchange, Link, MarksEnd, Receiver, Sender, copy};
pub use mechanism::{Batching, Mechanism, Task, Workload, bytes_in_flight};
