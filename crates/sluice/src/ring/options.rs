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

/// Of the data of a ring for which nothing else was asked, in bytes.
const CAPACITY: u64 = 1 << 20;

/// Up to this capacity all of the memory is there from the start, so that nobody waits for a page on the way.
const RESIDENT: u64 = 16 << 20;

/// About as long as waking a process takes: who spins longer could have slept.
const SPIN: Duration = Duration::from_micros(50);

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// How a side of a ring is set up over a [`Socket`]. The peer does the same, as the other side.
///
/// ```
/// use sluice::ring::{Options, Socket};
///
/// let (here, there) = Socket::pair()?;
/// let sender = std::thread::spawn(move || {
///     let mut producer = Options::new().capacity(64 << 10).producer(there)?;
///     producer.send(b"hello")?;
///     producer.flush()?; // until it was received
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

/// Who may be the peer.
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
                // Nobody else could do anything meanwhile.
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

    /// Bytes for records on the way, rounded up to a power of two from 4 KiB (or a page, if that is larger) to 256 MiB; 1 MiB by default. A record
    /// takes 8 bytes more than it has, rounded up to a multiple of 8, and may take half of the capacity. Up to 16 MiB are
    /// taken from the system at once, of more only what is used. The producer decides.
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// For how long a waiting call spins before it blocks, at most: as long as waits are shorter than that, the wake-up not counted, they are
    /// spun through, and longer ones are slept through from the start. 50 µs by default, or
    /// none on one processor; zero never spins, [`Duration::MAX`] never blocks.
    pub fn spin(mut self, limit: Duration) -> Self {
        self.spin = limit;
        self
    }

    /// In a stream of records, has this side pause for up to 10 µs whenever it has caught up with the peer: the two then seldom work on
    /// the same cache line. On some processors that doubles how many records of a few bytes a second there are; a
    /// record that comes in such a pause is received so much later. Off by default, and without effect on what comes by itself.
    pub fn throughput(mut self, throughput: bool) -> Self {
        self.throughput = throughput;
        self
    }

    /// Takes the memory from the reserve of huge pages of 2 MiB (hugetlbfs), and at least one of them. The producer decides.
    pub fn huge_pages(mut self, huge: bool) -> Self {
        self.pages = match huge {
            true => Pages::Huge,
            false => Pages::Normal,
        };
        self
    }

    /// Leaves the data unsealed, so that the consumer can map it for writing. The consumer never writes, but on some processors it
    /// sees a record earlier: on an AMD EPYC a round trip took three quarters of the time. The consumer has to
    /// [allow it](Self::allow_unsealed), and huge pages cannot be left unsealed. The producer decides.
    ///
    /// # Safety
    /// The consumer's process, and everyone it hands the memory to, must not write to it: a
    /// [`Reservation`](super::Reservation) is a slice of it.
    pub unsafe fn unsealed(mut self, unsealed: bool) -> Self {
        self.seals = match unsealed {
            true => SealPolicy::Unsealed,
            false => SealPolicy::Sealed,
        };
        self
    }

    /// Accepts a producer whose memory is not sealed against writing. Others than that producer could then change records, and
    /// the producer can take pages out of its file and have this process pay for new ones. Turned away by default. The consumer decides.
    pub fn allow_unsealed(mut self, allow: bool) -> Self {
        self.allows_unsealed = allow;
        self
    }

    /// Turns a producer away whose ring has more bytes than this: the consumer maps all of it, and touches up to 16 MiB at once. No more
    /// than the largest ring by default. The consumer decides.
    pub fn max_capacity(mut self, bytes: u64) -> Self {
        self.max_capacity = bytes;
        self
    }

    /// Keeps the memory from being swapped out, as mlock(2) does.
    pub fn mlock(mut self, lock: bool) -> Self {
        self.mlock = lock;
        self
    }

    /// Takes this side's memory from one node of a machine with several (NUMA). The data is the producer's.
    pub fn numa_node(mut self, node: u32) -> Self {
        self.numa_node = Some(node);
        self
    }

    /// How long the whole handshake may take, 5 s by default.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Lets the peer run as this user, too. By default it has to run as this process's own user, or root.
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

    /// Lets the peer run as anybody who can connect. It cannot do more than send what you read, and learn what
    /// you send.
    pub fn allow_everyone(mut self) -> Self {
        self.users = Users::Everyone;
        self
    }

    /// Becomes the side that sends, once the peer has become the one that receives.
    pub fn producer(&self, socket: Socket) -> Result<Producer, SetupError> {
        let geometry = self.geometry()?;
        let file = memfd::create(geometry.bytes(), self.pages)?;
        let data = Data::map(&file, geometry, Access::ReadWrite)
            .map_err(|errno| self.no_memory(geometry, errno))?;
        for region in data.regions() {
            self.prepare(region, geometry)?;
        }
        memfd::seal(&file, self.seals)?;
        let connection = self.meet(socket, Role::Producer, Some(geometry), &file, |peer| {
            let side = map_ctrl(&peer.file, Access::ReadOnly)
                .map_err(|errno| unmappable(errno, geometry))?;
            Ok(Mapping::new(data, side))
        })?;
        Ok(Producer::new(connection))
    }

    /// Becomes the side that receives, once the peer has become the one that sends.
    pub fn consumer(&self, socket: Socket) -> Result<Consumer, SetupError> {
        let file = memfd::create(size_of::<Ctrl>() as u64, Pages::Normal)?;
        let side = map_ctrl(&file, Access::ReadWrite)
            .map_err(SetupError::system("mapping the ring's memory"))?;
        memfd::seal(&file, SealPolicy::Sealed)?;
        let connection = self.meet(socket, Role::Consumer, None, &file, |peer| {
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

    /// What was asked for memory of our own.
    fn prepare(&self, region: &Region, geometry: Geometry) -> Result<(), SetupError> {
        if let Some(node) = self.numa_node {
            region
                .bind(node)
                .map_err(SetupError::system("binding the ring's memory to its node"))?;
        }
        self.prefault(region, geometry, Access::ReadWrite)
    }

    /// Prefaults the memory, as far as necessary or worth while.
    fn prefault(
        &self,
        region: &Region,
        geometry: Geometry,
        access: Access,
    ) -> Result<(), SetupError> {
        if geometry.data != Pages::Normal.size() {
            // A huge page that is missing later would be a fault that nobody can answer.
            region
                .populate(access)
                .map_err(|_| SetupError::NoHugePages(geometry.capacity))?;
        } else if geometry.capacity.bytes() <= RESIDENT {
            // What cannot be had now may be there when it is needed, and kernels before 5.14 do not know the request.
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

    /// Sets up the ring with the peer. `map` makes this side's view of it.
    fn meet(
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
        let met = self.admit(&socket).and_then(|()| {
            let peer = handshake.exchange(&local)?;
            Ok((map(&peer)?, peer.registered))
        });
        let (mapping, registered) = met.inspect_err(|error| handshake.reject(error))?;
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

    fn admit(&self, socket: &OwnedFd) -> Result<(), SetupError> {
        let uid = peer_user(socket)?;
        let own = uid == 0 || uid == rustix::process::geteuid().as_raw();
        let admitted = match &self.users {
            Users::Own => own,
            Users::OwnAnd(more) => own || more.contains(&uid),
            Users::Everyone => true,
        };
        match admitted {
            true => Ok(()),
            false => Err(SetupError::PeerNotAllowed { uid }),
        }
    }
}

/// What the peer's memory lacks is the peer's fault.
fn unusable(error: SetupError) -> SetupError {
    match error {
        SetupError::NoHugePages(_) => {
            SetupError::InvalidMemfd("its huge pages are not there".into())
        }
        other => other,
    }
}

/// Only a lack of memory or of descriptors is this side's; huge pages that are missing are not.
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
