// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of rings.

use sluice::Ring;
use sluice::ring::{Attach, SocketOptions};

use crate::error::Result;
use crate::input::{array, check_flags, has, milliseconds, options_of_c, spin_limit};
use crate::options::Channel;

/// Locks the memory with mlock(2), so that it is not swapped out.
pub const SLUICE_RING_MLOCK: u32 = 1;
/// Binds the memory to the memory node `numa_node`.
pub const SLUICE_RING_ON_NODE: u32 = 2;
/// Over a socket, of the producer: takes the memory from the pool of 2 MiB huge pages.
pub const SLUICE_RING_HUGE_PAGES: u32 = 4;
/// Over a socket, of the consumer: accepts a producer whose memory is not sealed against writing, see sluice-ring(7).
pub const SLUICE_RING_ALLOW_UNSEALED: u32 = 8;
/// Over a socket: allows the peer to run as any user.
pub const SLUICE_RING_ALLOW_EVERYONE: u32 = 16;
/// Over a socket, of the producer: leaves the data unsealed, so that the consumer can map it for writing. The process of the consumer must
/// be trusted not to write.
pub const SLUICE_RING_UNSEALED: u32 = 32;

const CHANNEL_FLAGS: u32 = SLUICE_RING_MLOCK | SLUICE_RING_ON_NODE;
const SOCKET_FLAGS: u32 = CHANNEL_FLAGS
    | SLUICE_RING_HUGE_PAGES
    | SLUICE_RING_ALLOW_UNSEALED
    | SLUICE_RING_ALLOW_EVERYONE
    | SLUICE_RING_UNSEALED;

/// The options of rings with names.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RingOptions {
    /// sizeof(struct sluice_ring_options), as SLUICE_RING_OPTIONS_INIT sets it.
    pub size: usize,
    pub channel: Channel,
    /// The largest ring in bytes that this side accepts. 0: no limit.
    pub max_capacity: u64,
    /// The longest time for which a call that waits spins before it blocks. 0: the default, 100 µs, or none on one processor. Negative:
    /// never spins. INT64_MAX: never blocks.
    pub spin_limit_ns: i64,
    /// SLUICE_RING_MLOCK, SLUICE_RING_ON_NODE.
    pub flags: u32,
    /// Only with SLUICE_RING_ON_NODE. The open that creates the ring decides.
    pub numa_node: u32,
    /// Zero.
    pub reserved: [u64; 4],
}

/// The options of rings over a socket.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SocketRingOptions {
    /// sizeof(struct sluice_socket_options), as SLUICE_SOCKET_OPTIONS_INIT sets it.
    pub size: usize,
    /// Bytes for unreleased records, rounded up to a power of two. The producer decides. 0: 4 MiB.
    pub capacity: u64,
    /// The largest ring in bytes that this side accepts. 0: no limit.
    pub max_capacity: u64,
    /// The values of `spin_limit_ns` in struct sluice_ring_options.
    pub spin_limit_ns: i64,
    /// SLUICE_RING_MLOCK and others.
    pub flags: u32,
    /// Only with SLUICE_RING_ON_NODE. The data belongs to the producer.
    pub numa_node: u32,
    /// The timeout of the whole handshake in milliseconds. 0: 5 s.
    pub handshake_timeout_ms: u32,
    /// Zero.
    pub reserved_word: u32,
    /// Users that the peer may run as, in addition to the user of this process and root.
    pub allowed_users: *const u32,
    pub allowed_user_count: usize,
    /// Zero.
    pub reserved: [u64; 4],
}

options_of_c! {
    RingOptions(104): reserved;
    SocketRingOptions(96): reserved_word, reserved;
}

/// The options of a side, which three types of the library have.
macro_rules! with_side {
    ($options:expr, $passed:expr) => {{
        let mut options = $options.mlock(has($passed.flags, SLUICE_RING_MLOCK));
        if let Some(limit) = spin_limit($passed.spin_limit_ns) {
            options = options.spin_limit(limit);
        }
        if $passed.max_capacity != 0 {
            options = options.max_capacity($passed.max_capacity);
        }
        options
    }};
}

impl RingOptions {
    /// # Safety
    /// The scope is NULL or a text.
    pub unsafe fn named(&self, name: &[u8]) -> Result<sluice::Options<Ring>> {
        check_flags(self.flags, CHANNEL_FLAGS)?;
        // SAFETY: as the caller guarantees.
        let options = unsafe { self.channel.apply(Ring::named(name)) }?;
        let options = with_side!(options, self);
        Ok(match has(self.flags, SLUICE_RING_ON_NODE) {
            true => options.numa_node(self.numa_node),
            false => options,
        })
    }

    pub fn attach(&self) -> Result<Attach> {
        check_flags(self.flags, SLUICE_RING_MLOCK)?;
        self.channel.check_reserved()?;
        Ok(with_side!(Ring::attach(), self))
    }
}

impl SocketRingOptions {
    /// # Safety
    /// There are so many allowed users.
    pub unsafe fn options(&self) -> Result<SocketOptions> {
        check_flags(self.flags, SOCKET_FLAGS)?;
        let mut options = with_side!(SocketOptions::new(), self)
            .huge_pages(has(self.flags, SLUICE_RING_HUGE_PAGES))
            .allow_unsealed(has(self.flags, SLUICE_RING_ALLOW_UNSEALED));
        if self.capacity != 0 {
            options = options.capacity(self.capacity);
        }
        if has(self.flags, SLUICE_RING_ON_NODE) {
            options = options.numa_node(self.numa_node);
        }
        if has(self.flags, SLUICE_RING_ALLOW_EVERYONE) {
            options = options.allow_everyone();
        }
        if has(self.flags, SLUICE_RING_UNSEALED) {
            // SAFETY: the conventions; the header says what the flag requires.
            options = unsafe { options.unsealed(true) };
        }
        if let Some(timeout) = milliseconds(self.handshake_timeout_ms) {
            options = options.handshake_timeout(timeout);
        }
        // SAFETY: as the caller guarantees.
        let users = unsafe { array(self.allowed_users, self.allowed_user_count) }?;
        Ok(users
            .iter()
            .fold(options, |options, uid| options.allow_user(*uid)))
    }
}
