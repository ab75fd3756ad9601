// SPDX-License-Identifier: MIT OR Apache-2.0

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use sluice_ring::{AdaptiveSpin, Backoff, Capacity, Ctrl};

use super::connection::{Connection, register};
use super::consumer::Consumer;
use super::error::SetupError;
use super::handshake::{Handshake, LocalHello, PeerHello, Role};
use super::mapping::{Data, Geometry, Mapping};
use super::memfd::{self, Pages, SealPolicy};
use super::producer::Producer;
use super::region::{Access, Region};
use super::socket::{Socket, peer_user};

/// The default capacity in bytes.
const CAPACITY: u64 = 1 << 20;

/// Up to this capacity all memory is prefaulted, so that no record waits for a page fault.
const RESIDENT: u64 = 16 << 20;

/// Covers a wake-up and a reply, also in a virtual machine, where a wake-up takes about 60 µs. With less, two sides that
/// sleep in a request-reply exchange would never spin again.
const SPIN: Duration = Duration::from_micros(100);

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The options to set up one side of a ring with, over a [`Socket`]. The peer sets up the other side in the same way.
///
/// ```
/// use sluice::ring::{Options, Socket};
///
/// let (here, there) = Socket::pair()?;
/// let sender = std::thread::spawn(move || {
///     let mut producer = Options::new().capacity(64 << 10).producer(there)?;
///     producer.send(b"hello")?;
///     producer.flush()?; // until the consumer has released it
///     std::io::Result::Ok(())
/// });
/// let mut consumer = Options::new().consumer(here)?;
/// let mut greeting = Vec::new();
/// while let Some(record) = consumer.peek()? {
///     greeting = record.to_vec();
///     record.release();
/// }
/// assert_eq!(greeting, b"hello");
/// sender.join().expect("the sender panicked")?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    capacity: u64,
    spin: Duration,
    throughput: bool,
    pages: Pages,
    seals: SealPolicy,
    allows_unsealed: bool,
    max_capacity: u64,
    mlock: bool,
    numa_node: Option<u32>,
    handshake_timeout: Duration,
    users: Users,
}

/// The users that the peer may run as.
#[derive(Clone, Debug)]
enum Users {
    Own,
    OwnAnd(Vec<u32>),
    Everyone,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            capacity: CAPACITY,
            spin: match thread::available_parallelism().map(NonZeroUsize::get) {
                // While this side spins, the peer cannot run.
                Ok(1) => Duration::ZERO,
                _ => SPIN,
            },
            throughput: false,
            pages: Pages::Normal,
            seals: SealPolicy::Sealed,
            allows_unsealed: false,
            max_capacity: u64::MAX,
            mlock: false,
            numa_node: None,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            users: Users::Own,
        }
    }
}

impl Options {
    pub fn new() -> Self {
        Self::default()
    }

    /// The capacity in bytes for unreleased records, rounded up to a power of two from 4 KiB (or a page, if that is larger) to
    /// 256 MiB; 1 MiB by default. A record occupies its length plus 8 bytes, rounded up to a multiple of 8, and at most half of
    /// the capacity. Up to 16 MiB are prefaulted, larger rings on use. The producer decides.
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// The longest time for which a waiting call spins before it blocks: 100 µs by default, 0 on one processor. Zero never spins,
    /// [`Duration::MAX`] never blocks; another limit of less than about 4 µs is exceeded. A call adapts to recent waits: it spins
    /// through gaps that are shorter than the limit, and blocks at once while they are longer.
    pub fn spin(mut self, limit: Duration) -> Self {
        self.spin = limit;
        self
    }

    /// Pauses this side for up to 10 µs when it has caught up with the peer in a stream of records; off by default. The two sides
    /// then seldom access the same cache line, which on some processors doubles the rate of records of a few bytes. A record
    /// that is sent during a pause is delayed by it; one that does not follow a stream of eight never is.
    pub fn throughput(mut self, throughput: bool) -> Self {
        self.throughput = throughput;
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

    /// Rejects a producer whose ring is larger than this; unlimited by default. The consumer decides. The consumer maps the whole
    /// ring, and prefaults one of up to 16 MiB.
    pub fn max_capacity(mut self, bytes: u64) -> Self {
        self.max_capacity = bytes;
        self
    }

    /// Locks the memory with mlock(2), so that it is not swapped out.
    pub fn mlock(mut self, lock: bool) -> Self {
        self.mlock = lock;
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

    /// Sets up the sending side, when the peer has set up the receiving side.
    pub fn producer(&self, socket: Socket) -> Result<Producer, SetupError> {
        let geometry = self.geometry()?;
        let file = memfd::create(geometry.bytes(), self.pages)?;
        let data = Data::map(&file, geometry, Access::ReadWrite)
            .map_err(|errno| self.no_memory(geometry, errno))?;
        for region in data.regions() {
            self.prepare(region, geometry)?;
        }
        memfd::seal(&file, self.seals)?;
        let connection = self.connect(socket, Role::Producer, Some(geometry), &file, |peer| {
            let side = map_ctrl(&peer.file, Access::ReadOnly)
                .map_err(|errno| unmappable(errno, geometry))?;
            Ok(Mapping::new(data, side))
        })?;
        Ok(Producer::new(connection))
    }

    /// Sets up the receiving side, when the peer has set up the sending side.
    pub fn consumer(&self, socket: Socket) -> Result<Consumer, SetupError> {
        let file = memfd::create(size_of::<Ctrl>() as u64, Pages::Normal)?;
        let side = map_ctrl(&file, Access::ReadWrite)
            .map_err(SetupError::system("mapping the ring's memory"))?;
        memfd::seal(&file, SealPolicy::Sealed)?;
        let connection = self.connect(socket, Role::Consumer, None, &file, |peer| {
            let geometry = peer
                .geometry
                .ok_or(SetupError::ProtocolMismatch("it has no data"))?;
            let access = match peer.seals {
                SealPolicy::Unsealed => Access::ReadWrite,
                SealPolicy::Sealed => Access::ReadOnly,
            };
            let data = Data::map(&peer.file, geometry, access)
                .map_err(|errno| unmappable(errno, geometry))?;
            for region in data.regions() {
                self.prefault(region, geometry, Access::ReadOnly)
                    .map_err(unusable)?;
            }
            Ok(Mapping::new(data, side))
        })?;
        Ok(Consumer::new(connection))
    }

    fn geometry(&self) -> Result<Geometry, SetupError> {
        if (self.pages, self.seals) == (Pages::Huge, SealPolicy::Unsealed) {
            return Err(SetupError::UnsealedHugePages);
        }
        let data = self.pages.size();
        Ok(Geometry {
            data,
            capacity: Capacity::at_least(self.capacity, data)?,
        })
    }

    /// Applies the memory options to a region of this side.
    fn prepare(&self, region: &Region, geometry: Geometry) -> Result<(), SetupError> {
        if let Some(node) = self.numa_node {
            region
                .bind(node)
                .map_err(SetupError::system("binding the ring's memory to its node"))?;
        }
        self.prefault(region, geometry, Access::ReadWrite)
    }

    /// Prefaults and locks the memory as the options and the capacity require.
    fn prefault(
        &self,
        region: &Region,
        geometry: Geometry,
        access: Access,
    ) -> Result<(), SetupError> {
        if geometry.data != Pages::Normal.size() {
            // A huge page that is missing later is a SIGBUS.
            region
                .populate(access)
                .map_err(|_| SetupError::NoHugePages(geometry.capacity))?;
        } else if geometry.capacity.bytes() <= RESIDENT {
            // A failure is harmless: the pages are faulted in on use. Kernels before 5.14 lack MADV_POPULATE_WRITE.
            let _ = region.populate(access);
        }
        if self.mlock {
            region
                .lock()
                .map_err(|errno| SetupError::NotLocked(geometry.capacity, errno.into()))?;
        }
        Ok(())
    }

    fn no_memory(&self, geometry: Geometry, errno: Errno) -> SetupError {
        match self.pages {
            Pages::Huge => SetupError::NoHugePages(geometry.capacity),
            Pages::Normal => SetupError::system("mapping the ring's memory")(errno),
        }
    }

    /// Performs the handshake. `map` maps the memory of both sides.
    fn connect(
        &self,
        Socket(socket): Socket,
        role: Role,
        geometry: Option<Geometry>,
        file: &OwnedFd,
        map: impl FnOnce(&PeerHello) -> Result<Mapping, SetupError>,
    ) -> Result<Connection, SetupError> {
        let handshake = Handshake::new(&socket, self.handshake_timeout);
        let local = LocalHello {
            role,
            geometry,
            file,
            registered: register(),
            seals: match role {
                Role::Producer => self.seals,
                Role::Consumer => SealPolicy::Sealed,
            },
            allows_unsealed: self.allows_unsealed,
            max_capacity: self.max_capacity,
        };
        let peer = self.check_user(&socket).and_then(|()| {
            let peer = handshake.exchange(&local)?;
            Ok((map(&peer)?, peer.registered))
        });
        let (mapping, registered) = peer.inspect_err(|error| handshake.reject(error))?;
        handshake.accept()?;
        let registered = registered && local.registered;
        Ok(Connection::new(
            socket,
            mapping,
            role,
            registered,
            AdaptiveSpin::new(self.spin),
            Backoff::new(self.throughput),
        ))
    }

    fn check_user(&self, socket: &OwnedFd) -> Result<(), SetupError> {
        let uid = peer_user(socket)?;
        let own = uid == 0 || uid == rustix::process::geteuid().as_raw();
        let allowed = match &self.users {
            Users::Own => own,
            Users::OwnAnd(more) => own || more.contains(&uid),
            Users::Everyone => true,
        };
        match allowed {
            true => Ok(()),
            false => Err(SetupError::PeerNotAllowed { uid }),
        }
    }
}

/// Missing huge pages of the peer's memory are an error of the peer.
fn unusable(error: SetupError) -> SetupError {
    match error {
        SetupError::NoHugePages(_) => SetupError::InvalidMemfd("its huge pages are missing".into()),
        other => other,
    }
}

/// Exhausted memory or descriptors are an error of this side; all else, including missing huge pages, is one of the peer.
fn unmappable(errno: Errno, geometry: Geometry) -> SetupError {
    let huge = geometry.data != Pages::Normal.size();
    match errno {
        Errno::NOMEM if huge => unusable(SetupError::NoHugePages(geometry.capacity)),
        Errno::NOMEM | Errno::MFILE | Errno::NFILE => {
            SetupError::system("mapping the peer's memory")(errno)
        }
        errno => SetupError::InvalidMemfd(format!(
            "it cannot be mapped ({})",
            std::io::Error::from(errno)
        )),
    }
}

fn map_ctrl(file: &OwnedFd, access: Access) -> Result<Region, Errno> {
    Region::map(file, 0, size_of::<Ctrl>(), access)
}
