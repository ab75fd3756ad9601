// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mapped consumer. Its peer, the kernel, never sleeps: there is nobody to wake, and every barrier of a wake-up is a full one.

use std::fmt;
use std::mem;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use sluice_abi::{feed, ring};
use sluice_ring::sync::{AtomicU32, Ordering};
use sluice_ring::{AdaptiveSpin, Capacity, Memory, Parker, WakeMethod, Waker};

use super::claim;
use super::error::RecvError;
use super::packet::Header;
use crate::shared::bytes::Bytes;
use crate::shared::device::Device;
use crate::shared::mapping::{Mapping, ProducerMemory};
use crate::shared::region::{Access, Region, page_size};
use crate::shared::setup_process::SetupProcess;
use crate::sys::query;
use crate::system_error::SystemError;
use crate::wait::Wait;
use crate::wait::default_spin_limit;

/// Receives the packets of a feed through mapped memory. A packet costs no system call while this side does not sleep.
///
/// With the feature `tokio` there is `AsyncConsumer`.
pub struct Consumer {
    core: sluice_ring::Consumer<Mapping>,
    device: Device,
    /// The process that mapped the feed. Its children must not use it.
    process: SetupProcess,
    spin: AdaptiveSpin,
    parker: Parker,
}

impl Consumer {
    pub(super) fn new(endpoint: OwnedFd) -> Result<Self, RecvError> {
        let info = query::<feed::Info>(endpoint.as_fd()).map_err(RecvError::of_query)?;
        let capacity = Capacity::exactly(info.capacity, page_size())?;
        claim(endpoint.as_fd(), feed::CONSUMER_MAPS).map_err(map_error)?;
        Ok(Self {
            core: sluice_ring::Consumer::new(map(&endpoint, capacity)?),
            device: Device::new(endpoint),
            process: SetupProcess::current(),
            spin: AdaptiveSpin::new(default_spin_limit()),
            parker: Parker::acknowledging(false),
        })
    }

    /// Sets the longest time for which a waiting call spins before it blocks: 100 µs by default, 0 on one processor. Zero never
    /// spins, [`Duration::MAX`] never blocks. A call adapts to recent waits, as a call of a [ring](crate::ring::SocketOptions::spin_limit).
    pub fn set_spin_limit(&mut self, limit: Duration) {
        self.spin = AdaptiveSpin::new(limit);
    }

    /// The capacity in bytes for unreleased packets, including their headers.
    pub fn capacity(&self) -> u64 {
        self.core.memory().capacity().bytes()
    }

    /// Whether the feed has ended for this consumer. There may still be packets.
    pub fn is_closed(&self) -> bool {
        self.core.memory().producer().is_closed()
    }

    /// Returns the next packet in place. Waits for one. At the end of the feed it fails with [`RecvError::Closed`].
    #[inline]
    pub fn recv(&mut self) -> Result<Packet<'_>, RecvError> {
        self.recv_within(Wait::Forever)
    }

    /// As [`recv`](Self::recv), but fails with [`RecvError::Empty`] instead of waiting.
    #[inline]
    pub fn try_recv(&mut self) -> Result<Packet<'_>, RecvError> {
        self.recv_within(Wait::Never)
    }

    /// As [`recv`](Self::recv), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Packet<'_>, RecvError> {
        self.recv_within(Wait::For(timeout))
    }

    /// As [`recv`](Self::recv), but waits for the given time.
    #[inline]
    pub fn recv_within(&mut self, wait: impl Into<Wait>) -> Result<Packet<'_>, RecvError> {
        let len = self.find(wait.into())?;
        self.packet(len)
    }

    /// Whether a packet is held: see [`Packet::hold`].
    #[inline]
    pub fn is_holding(&self) -> bool {
        self.core.has_unreleased()
    }

    /// Releases the packet that is held.
    #[inline]
    pub fn release_held(&mut self) {
        match self.process.is_current() {
            true => self.core.release(),
            // A forked child must not release a packet of its parent. It receives nothing more, so that nothing is held.
            false => self.core.rewind(),
        }
    }

    /// Leaves the packet that is held in the feed: it is the next one again.
    pub fn keep_held(&mut self) {
        self.core.rewind();
    }

    /// Prepares to wait until the [descriptor](AsFd) is readable, for example together with others. Returns false if a packet or
    /// the end of the feed is available. Call [`finish_wait`](Self::finish_wait) after the wait, or instead of it.
    pub fn prepare_wait(&mut self) -> Result<bool, RecvError> {
        self.prepare_park()?;
        Ok(!self.core.has_record() && !self.is_closed())
    }

    /// Ends the wait: acknowledges the wake-ups of the descriptor.
    pub fn finish_wait(&mut self) {
        if !self.process.is_current() {
            return;
        }
        let memory = self.core.memory();
        self.parker.finish_park(memory.consumer());
        self.parker
            .acknowledge(memory.consumer(), memory.producer());
    }

    /// The length of the next record.
    #[inline]
    pub(super) fn find(&mut self, wait: Wait) -> Result<u32, RecvError> {
        if !self.process.is_current() {
            return Err(RecvError::Forked);
        }
        let Self { core, spin, .. } = self;
        if core.has_record() || (wait.is_some() && spin.poll_briefly(|polls| core.poll(polls))) {
            if let Some(len) = core.peek()? {
                return Ok(len);
            }
        }
        self.wait(wait)
    }

    #[cold]
    fn wait(&mut self, wait: Wait) -> Result<u32, RecvError> {
        let limit = match wait {
            Wait::Never => return self.poll()?.ok_or(RecvError::Empty),
            Wait::For(time) => Some(time),
            Wait::Forever => None,
        };
        let began = Instant::now();
        let found = self.wait_since(began, limit);
        match &found {
            Ok(_) => self.spin.adapt(began.elapsed()),
            // The total duration is unknown.
            Err(RecvError::TimedOut(_)) => self.spin.adapt(Duration::MAX),
            Err(_) => {}
        }
        found
    }

    /// Spins only before the first sleep.
    fn wait_since(&mut self, began: Instant, limit: Option<Duration>) -> Result<u32, RecvError> {
        let is_over = || limit.is_some_and(|limit| began.elapsed() >= limit);
        let (core, producer) = (&self.core, self.core.memory().producer());
        let is_hopeless = || producer.is_closed() || is_over();
        self.spin
            .poll(|| core.has_record().then_some(()), is_hopeless);
        loop {
            if let Some(len) = self.poll()? {
                return Ok(len);
            }
            let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
            if let (Some(Duration::ZERO), Some(limit)) = (left, limit) {
                return Err(RecvError::TimedOut(limit));
            }
            self.sleep(left)?;
        }
    }

    /// The length of the next record if there is one. Fails if the feed has ended, and there is none.
    fn poll(&mut self) -> Result<Option<u32>, RecvError> {
        let end = self.end();
        match (self.core.peek()?, end) {
            (Some(len), _) => Ok(Some(len)),
            (None, None) => Ok(None),
            (None, Some(end)) => Err(end),
        }
    }

    /// The end of the feed. All packets that were published before are visible then.
    fn end(&self) -> Option<RecvError> {
        let producer = self.core.memory().producer();
        producer.end()?;
        // It does not change after the end.
        match producer.closed.load(Ordering::Relaxed) {
            ring::REJECTED => Some(RecvError::Rejected),
            _ => Some(RecvError::Closed),
        }
    }

    fn sleep(&mut self, limit: Option<Duration>) -> Result<(), RecvError> {
        let seq = self.prepare_park()?;
        let memory = self.core.memory();
        let slept = match self.core.has_record() || memory.producer().is_closed() {
            true => Ok(()),
            false => self
                .device
                .sleep(memory.consumer(), memory.producer(), seq, limit)
                .map(drop),
        };
        self.parker.finish_park(memory.consumer());
        slept.map_err(|error| SystemError::new("waiting for a packet", error).into())
    }

    /// Returns the wake_seq of the kernel, as Parker::prepare_park() does.
    fn prepare_park(&mut self) -> Result<u32, RecvError> {
        if !self.process.is_current() {
            return Err(RecvError::Forked);
        }
        let (own, kernel) = (self.core.memory().consumer(), self.core.memory().producer());
        let method = WakeMethod::Descriptor;
        Ok(self.parker.prepare_park(own, kernel, method, &Kernel))
    }

    /// The packet of the length that find() returned.
    #[inline]
    pub(super) fn packet(&mut self, len: u32) -> Result<Packet<'_>, RecvError> {
        let start = self.core.memory().bytes(self.core.bytes());
        // SAFETY: a validated length is within the ring, and a header ends at a multiple of eight. The packet borrows the
        // consumer, which keeps the memory mapped.
        let record = unsafe { Bytes::new(start, len) };
        let (Some(header), Some(bytes)) = (record.read_at(0), len.checked_sub(Header::LEN as u32))
        else {
            let len = len as usize;
            return Err(RecvError::InvalidPacket { len });
        };
        // SAFETY: as above; the header of a packet is within the record, and a multiple of eight long.
        let bytes = unsafe { Bytes::new(start.add(Header::LEN), bytes) };
        Ok(Packet {
            header: Header::from_bytes(&header),
            bytes,
            len,
            consumer: self,
        })
    }
}

/// Maps all regions.
fn map(endpoint: &OwnedFd, capacity: Capacity) -> Result<Mapping, RecvError> {
    let map = |offset, bytes, access| {
        let bytes = usize::try_from(bytes).map_err(|_| map_error(Errno::OVERFLOW))?;
        Region::map(endpoint, offset, bytes, access).map_err(map_error)
    };
    let producer = ProducerMemory {
        ctrl: map(ring::MMAP_PRODUCER, page_size(), Access::ReadOnly)?,
        data: map(ring::MMAP_DATA, 2 * capacity.bytes(), Access::ReadOnly)?,
        capacity,
    };
    let consumer = map(ring::MMAP_CONSUMER, page_size(), Access::ReadWrite)?;
    Ok(Mapping::new(producer, consumer))
}

fn map_error(errno: Errno) -> RecvError {
    match errno {
        Errno::BUSY => RecvError::Busy,
        Errno::PIPE => RecvError::Closed,
        Errno::ACCESS | Errno::INVAL => RecvError::ReadOnly,
        errno => SystemError::new("mapping the feed", errno).into(),
    }
}

/// The peer. The parker asks for no heavy barrier, and wakes nobody.
struct Kernel;

impl Waker for Kernel {
    fn heavy_barrier(&self) -> bool {
        false
    }

    fn wake(&self, _method: WakeMethod, _wake_seq: &AtomicU32) -> bool {
        true
    }
}

impl AsFd for Consumer {
    /// The endpoint, which is readable when this side is woken: see [`prepare_wait`](Self::prepare_wait).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.fd()
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// A packet in place. Dereferences to its header. Dropping it releases its room.
#[derive(Debug)]
pub struct Packet<'a> {
    header: Header,
    bytes: Bytes<'a>,
    /// Of the record.
    len: u32,
    consumer: &'a mut Consumer,
}

impl Packet<'_> {
    /// The bytes of the publisher. A process that has this endpoint too may release them at any time; then they may change.
    pub fn bytes(&self) -> &Bytes<'_> {
        &self.bytes
    }

    /// Ends the borrow without a release, for a binding to a language without borrows: the packet stays in place until
    /// [`Consumer::release_held`]. Call that, or [`Consumer::keep_held`], before the next packet is received.
    #[inline]
    pub fn hold(self) {
        self.consumer.core.advance(self.len);
        mem::forget(self);
    }
}

impl Deref for Packet<'_> {
    type Target = Header;

    fn deref(&self) -> &Header {
        &self.header
    }
}

impl Drop for Packet<'_> {
    #[inline]
    fn drop(&mut self) {
        self.consumer.core.advance(self.len);
        self.consumer.release_held();
    }
}

#[cfg(test)]
mod tests;
