// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::Duration;

use sluice_abi::ring;
use sluice_ring::Capacity;

use super::error::SetupError;
use super::memfd::file::{Pages, SealPolicy};
use crate::shared::region::{Access, Region};
use crate::wait::{DEFAULT_SPIN_LIMIT, default_spin_limit};

/// Up to this capacity all memory is prefaulted, so that no record waits for a page fault.
const RESIDENT: u64 = 16 << 20;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// What each side of a ring has, over a socket and in a channel.
#[derive(Clone, Debug)]
pub struct SideOptions {
    pub(super) spin_limit: Duration,
    pub(super) max_capacity: u64,
    pub(super) mlock: bool,
}

impl Default for SideOptions {
    fn default() -> Self {
        Self {
            spin_limit: default_spin_limit(),
            max_capacity: u64::MAX,
            mlock: false,
        }
    }
}

/// Implements the options of one side for `$options`, which keeps them in this field.
macro_rules! side_options {
    ($options:ty, $($field:ident).+) => {
        impl $options {
            /// The longest time for which a waiting call spins before it blocks: 100 µs by default, 0 on one processor. Zero never spins,
            /// [`Duration::MAX`] never blocks; another limit of less than about 4 µs is exceeded. A call adapts to recent waits: it spins
            /// through gaps that are shorter than the limit, and blocks at once while they are longer, or while the peer only comes when this
            /// side blocks, as on the same processor.
            ///
            /// A side that spins and has caught up in a stream may pause for up to 10 µs, if that was measured to reduce the time
            /// per record by 15 %: the two sides then seldom access the same cache line, which on some processors multiplies the rate. A
            /// record that is sent during a pause is delayed by it, also one that a call with a timeout waits for; so are few records, in trials, of streams
            /// that pauses do not make faster, and hardly a reply that is waited for.
            pub fn spin_limit(mut self, limit: Duration) -> Self {
                self.$($field).+.spin_limit = limit;
                self
            }

            /// The largest ring that this side accepts; unlimited by default. No effect on a producer over a socket, which chooses the
            /// capacity itself. A consumer over a socket maps the whole ring, and prefaults it if it has at most 16 MiB.
            pub fn max_capacity(mut self, bytes: u64) -> Self {
                self.$($field).+.max_capacity = bytes;
                self
            }

            /// Locks the memory with mlock(2), so that it is not swapped out.
            pub fn mlock(mut self, lock: bool) -> Self {
                self.$($field).+.mlock = lock;
                self
            }
        }
    };
}

pub(super) use side_options;

impl SideOptions {
    /// Locks the memory if the options require it.
    pub(super) fn lock(&self, region: &Region, capacity: Capacity) -> Result<(), SetupError> {
        if !self.mlock {
            return Ok(());
        }
        region
            .lock()
            .map_err(|errno| SetupError::NotLocked(capacity, errno.into()))
    }
}

/// The options to set up one side of a ring with over a [`Socket`](super::Socket), without the module. The peer sets up the other side
/// in the same way.
///
/// ```
/// use sluice::ring::{Socket, SocketOptions};
///
/// let (here, there) = Socket::pair()?;
/// let sender = std::thread::spawn(move || {
///     let mut producer = SocketOptions::new().capacity(64 << 10).producer(there)?;
///     producer.send(b"hello")?;
///     producer.flush()?; // until the consumer has released it
///     std::io::Result::Ok(())
/// });
/// let mut consumer = SocketOptions::new().consumer(here)?;
/// let mut greeting = Vec::new();
/// while let Some(record) = consumer.recv()? {
///     greeting = record.to_vec();
/// }
/// assert_eq!(greeting, b"hello");
/// sender.join().expect("the sender panicked")?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct SocketOptions {
    pub(super) side: SideOptions,
    pub(super) capacity: u64,
    pub(super) numa_node: Option<u32>,
    pub(super) pages: Pages,
    pub(super) seals: SealPolicy,
    pub(super) allows_unsealed: bool,
    pub(super) handshake_timeout: Duration,
    pub(super) users: Users,
}

/// The users that the peer may run as.
#[derive(Clone, Debug)]
pub(super) enum Users {
    Own,
    OwnAnd(Vec<u32>),
    Everyone,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            side: SideOptions::default(),
            capacity: ring::DEFAULT_CAPACITY,
            numa_node: None,
            pages: Pages::Normal,
            seals: SealPolicy::Sealed,
            allows_unsealed: false,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            users: Users::Own,
        }
    }
}

side_options!(SocketOptions, side);

impl SocketOptions {
    /// The default [`spin_limit`](Self::spin_limit) on several processors. Covers a wake-up and a reply, also in a virtual machine, where
    /// a wake-up takes about 60 µs. With less, two sides that sleep in a request-reply exchange would never spin again.
    pub const DEFAULT_SPIN_LIMIT: Duration = DEFAULT_SPIN_LIMIT;

    /// The default spin limit of rings and feeds on this machine: zero on one processor.
    pub fn default_spin_limit() -> Duration {
        default_spin_limit()
    }

    pub fn new() -> Self {
        Self::default()
    }

    /// The capacity in bytes for unreleased records, rounded up to a power of two from 4 KiB (or a page, if that is larger) to
    /// 256 MiB; 4 MiB by default. A record occupies its length plus 8 bytes, rounded up to a multiple of 8, and at most half of
    /// the capacity. Up to 16 MiB are prefaulted, larger rings on use. The producer decides.
    ///
    /// A ring for which the memory limit of a cgroup leaves too little is refused, because the kernel would kill a process of the
    /// cgroup later. Other processes may still use that memory first.
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// Takes the memory from the pool of 2 MiB huge pages (hugetlbfs), at least one of them. The producer decides.
    pub fn huge_pages(mut self, huge: bool) -> Self {
        self.pages = match huge {
            true => Pages::Huge,
            false => Pages::Normal,
        };
        self
    }

    /// Leaves the data unsealed, so that the consumer can map it for writing. The consumer has to
    /// [allow it](Self::allow_unsealed), and huge pages cannot be left unsealed. The producer decides. The consumer never writes,
    /// but on some processors a writable mapping is faster: on an AMD EPYC a round trip took three quarters of the time.
    ///
    /// # Safety
    /// The process of the consumer, and any process that gets the memory from it, must not write to the memory: a
    /// [`Reservation`](super::Reservation) is a slice of it.
    pub unsafe fn unsealed(mut self, unsealed: bool) -> Self {
        self.seals = match unsealed {
            true => SealPolicy::Unsealed,
            false => SealPolicy::Sealed,
        };
        self
    }

    /// Accepts a producer whose memory is not sealed against writing; rejected by default. The consumer decides. Processes other
    /// than the producer could then change records, and the producer can punch holes into its file, whose new pages are charged
    /// to this process.
    pub fn allow_unsealed(mut self, allow: bool) -> Self {
        self.allows_unsealed = allow;
        self
    }

    /// Binds the memory of this side to a NUMA node. The data belongs to the producer.
    pub fn numa_node(mut self, node: u32) -> Self {
        self.numa_node = Some(node);
        self
    }

    /// The timeout of the whole handshake, 5 s by default.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Allows the peer to run as this user, in addition to the user of this process and root, who are always allowed.
    pub fn allow_user(mut self, uid: u32) -> Self {
        self.users = match self.users {
            Users::Own => Users::OwnAnd(vec![uid]),
            Users::OwnAnd(mut more) => {
                more.push(uid);
                Users::OwnAnd(more)
            }
            Users::Everyone => Users::Everyone,
        };
        self
    }

    /// Allows the peer to run as any user. The socket's permissions are then the only access control.
    pub fn allow_everyone(mut self) -> Self {
        self.users = Users::Everyone;
        self
    }

    /// Prefaults the memory of a ring that is not too large. A failure is harmless: the pages are faulted in on use. Kernels
    /// before 5.14 lack MADV_POPULATE_WRITE.
    pub(super) fn prefault(&self, region: &Region, capacity: Capacity, access: Access) {
        if capacity.bytes() <= RESIDENT {
            let _ = region.populate(access);
        }
    }
}
