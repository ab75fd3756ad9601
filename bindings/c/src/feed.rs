// SPDX-License-Identifier: MIT OR Apache-2.0
//! Feeds: packets from a kernel module.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _};

use sluice::Feed;
use sluice::feed::{self, FeedInfo, Header, Receiver, Simulator};
use sluice::ring::SocketOptions;

use crate::error::Result;
use crate::held::{Holder, holding, idle};
use crate::input::{Timeout, given, nanoseconds, spin_limit, text};
use crate::result::{call, give, put};

/// Receives the packets of a feed in place. One thread at a time may use it. In a child of the process that has opened it, calls that
/// receive or wait fail with -ENXIO, and a release has no effect on the feed. While it holds a packet, its calls fail with -EBUSY, except
/// release, close and the query of the descriptor.
pub struct FeedConsumer(feed::Consumer);

impl Holder for FeedConsumer {
    #[inline]
    fn is_holding(&self) -> bool {
        self.0.is_holding()
    }
}

/// Receives copies of the packets of a feed. One thread at a time may use it.
pub struct FeedReader(feed::Reader);

/// A packet of a feed.
#[repr(C)]
pub struct Packet {
    pub bytes: *const c_void,
    pub length: usize,
    /// The sequence of the previous packet + 1 + `lost`.
    pub sequence: u64,
    /// Packets lost directly before this one.
    pub lost: u64,
    /// CLOCK_MONOTONIC of the host, just before the packet became visible.
    pub time_ns: u64,
    /// The counter of the processor, read after the time. x86: the TSC.
    pub cycles: u64,
    pub reserved: [u64; 2],
}

impl Packet {
    fn new(header: &Header, bytes: *const u8, length: usize) -> Self {
        Self {
            bytes: bytes.cast(),
            length,
            sequence: header.sequence,
            lost: header.lost,
            time_ns: nanoseconds(header.time),
            cycles: header.cycles,
            reserved: [0; 2],
        }
    }
}

/// The state of a feed. The counts are totals since the feed was created.
#[repr(C)]
pub struct FeedState {
    /// How the consumer receives: 0: there is none; 1: by copies; 2: in place.
    pub receiver: u32,
    /// 1 if the simulator runs.
    pub running: u32,
    /// Bytes.
    pub capacity: u64,
    /// The number of the next packet.
    pub sequence: u64,
    /// Packets delivered to a consumer.
    pub published: u64,
    /// Packets lost.
    pub lost: u64,
    /// Consumers that were rejected.
    pub violations: u64,
    pub reserved: [u64; 8],
}

impl From<FeedInfo> for FeedState {
    fn from(info: FeedInfo) -> Self {
        Self {
            receiver: match info.receiver {
                None => 0,
                Some(Receiver::Reads) => 1,
                Some(Receiver::Maps) => 2,
                Some(Receiver::Other(number)) => number,
                Some(_) => u32::MAX,
            },
            running: info.running.into(),
            capacity: info.capacity,
            sequence: info.sequence,
            published: info.published,
            lost: info.lost,
            violations: info.violations,
            reserved: [0; 8],
        }
    }
}

/// # Safety
/// The name is NULL or a text.
unsafe fn open(name: *const c_char) -> Result<Feed> {
    if name.is_null() {
        return Ok(Simulator::open()?.into());
    }
    // SAFETY: as the caller guarantees.
    Ok(Feed::named(unsafe { text(name) }?).open()?)
}

/// Opens the feed of this name, maps it, and becomes its consumer. With a name of NULL, opens the feed of the packet simulator,
/// /dev/sluice/feed. Fails with -EBUSY if the feed has a consumer. The first packet is the next one that is published.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_feed_open_consumer(
    name: *const c_char,
    consumer: Option<&mut MaybeUninit<*mut FeedConsumer>>,
) -> c_int {
    give(consumer, || {
        // SAFETY: the conventions.
        Ok(FeedConsumer(unsafe { open(name) }?.map()?))
    })
}

/// Opens the feed of this name, and becomes its consumer, which receives copies. Name and errors have the meaning that they have for
/// sluice_feed_open_consumer().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_feed_open_reader(
    name: *const c_char,
    reader: Option<&mut MaybeUninit<*mut FeedReader>>,
) -> c_int {
    give(reader, || {
        // SAFETY: the conventions.
        Ok(FeedReader(unsafe { open(name) }?.reader()?))
    })
}

/// Queries the state of the feed of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_feed_query(
    name: *const c_char,
    state: Option<&mut MaybeUninit<FeedState>>,
) -> c_int {
    put(state, || {
        // SAFETY: the conventions.
        Ok(Feed::named(unsafe { text(name) }?).info()?)
    })
}

/// Receives the next packet in place. Waits for one. The consumer holds it until sluice_feed_consumer_release(). Fails with -ENODATA at the
/// end of the feed, after the last packet.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_feed_consumer_recv(
    consumer: Option<&mut FeedConsumer>,
    packet: Option<&mut MaybeUninit<Packet>>,
    timeout_ms: c_int,
) -> c_int {
    put(packet, || {
        let received = idle(consumer)?.0.recv_within(Timeout(timeout_ms))?;
        let bytes = received.bytes();
        let packet = Packet::new(&received, bytes.as_ptr(), bytes.len());
        received.hold();
        Ok(packet)
    })
}

/// Releases the packet.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_feed_consumer_release(consumer: Option<&mut FeedConsumer>) -> c_int {
    call(|| {
        holding(consumer)?.0.release_held();
        Ok(())
    })
}

/// Sets the longest time for which a call that waits spins before it blocks, with the values of `spin_limit_ns` in struct
/// sluice_ring_options.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_feed_consumer_set_spin_limit(
    consumer: Option<&mut FeedConsumer>,
    limit_ns: i64,
) -> c_int {
    call(|| {
        let limit = spin_limit(limit_ns).unwrap_or_else(SocketOptions::default_spin_limit);
        idle(consumer)?.0.set_spin_limit(limit);
        Ok(())
    })
}

/// The descriptor to wait for with poll(2), between sluice_feed_consumer_prepare_wait() and sluice_feed_consumer_finish_wait(). It belongs
/// to the consumer.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_feed_consumer_fd(consumer: Option<&FeedConsumer>) -> c_int {
    call(|| Ok(given(consumer)?.0.as_fd().as_raw_fd()))
}

/// Prepares to wait until the descriptor is readable. Returns 1: wait; or 0: a packet or the end is available already. Call
/// sluice_feed_consumer_finish_wait() after the wait, or instead of it, before other calls.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_feed_consumer_prepare_wait(consumer: Option<&mut FeedConsumer>) -> c_int {
    call(|| Ok(idle(consumer)?.0.prepare_wait()?))
}

/// Ends the wait.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_feed_consumer_finish_wait(consumer: Option<&mut FeedConsumer>) -> c_int {
    call(|| {
        idle(consumer)?.0.finish_wait();
        Ok(())
    })
}

/// Closes and frees the consumer. A packet that it holds is not released.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_feed_consumer_close(consumer: Option<Box<FeedConsumer>>) {
    drop(consumer);
}

/// Copies the next packet to a buffer of the reader, whose content is valid until the next call. Waits for a packet. -ENODATA is
/// the end of the feed.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_feed_reader_recv(
    reader: Option<&mut FeedReader>,
    packet: Option<&mut MaybeUninit<Packet>>,
    timeout_ms: c_int,
) -> c_int {
    put(packet, || {
        let reader = &mut given(reader)?.0;
        Timeout(timeout_ms).run(|wait| {
            let packet = reader.recv_within(wait)?;
            let bytes = packet.bytes();
            Ok::<_, feed::RecvError>(Packet::new(&packet, bytes.as_ptr(), bytes.len()))
        })
    })
}

/// The descriptor of the endpoint, which is readable when there is a packet or the feed has ended. It belongs to the reader.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_feed_reader_fd(reader: Option<&FeedReader>) -> c_int {
    call(|| Ok(given(reader)?.0.as_fd().as_raw_fd()))
}

/// Closes and frees the reader.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_feed_reader_close(reader: Option<Box<FeedReader>>) {
    drop(reader);
}
