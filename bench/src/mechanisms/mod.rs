// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mechanisms, one file each, and the code that several of them share. registry.rs lists them.

#[cfg(feature = "aeron")]
mod aeron;
pub mod cacheline_pingpong;
mod eventfd_shm;
mod fifo;
mod futex_shm;
#[cfg(feature = "iceoryx2")]
mod iceoryx2;
mod link;
mod mechanism;
mod mmap;
mod msg_ring;
mod myipc;
pub mod no_ipc;
mod nonblocking;
pub mod own_program;
mod packets;
pub mod pipe;
mod pipe_large;
mod posix_mq;
mod process_vm;
mod registry;
mod shared_ring;
mod shm_sem;
mod shm_spin;
mod signal;
mod sleeping;
mod sluice_pipe;
pub mod sluice_ring;
mod sluice_ring_device;
pub mod sluice_ring_memfd;
pub mod stream;
mod sysctl;
mod sysv_mq;
#[cfg(feature = "tachyon")]
mod tachyon;
mod tcp;
pub mod temp_paths;
mod third_party;
mod unix_dgram;
mod unix_seqpacket;
pub mod unix_stream;
mod vsock;
pub mod zeromq;
pub mod zmq_library;

pub use link::{Link, Receiver, Sender};
pub use mechanism::{Batching, Mechanism, Task, Workload, bytes_in_flight};
pub use registry::Registry;
