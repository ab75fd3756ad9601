// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every operation of every kind that uses memory of its caller, as a table, and objects of every kind for them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::libc;
use nix::unistd::{close, read, write};
use sluice_abi::keeper::{self as keep};
use sluice_abi::map::{self as map_abi, Batch, Cursor, Dump, Op, STEP_GET, STEP_SET, Step};
use sluice_abi::{
    self as abi, CTL_DESTROY, CTL_FEATURES, CTL_INFO, CTL_KEEP, CTL_LIST, CTL_OPEN, CTL_UNLINK,
    CTL_USAGE, ChannelInfo, ENDPOINT_INFO, Features, Info, KIND_MAP, List, Open, PIPE_INFO,
    PIPE_SET_CAPACITY, PIPE_SET_SPIN, PipeInfo, RING_INFO, RING_WAIT, RingInfo, RingWait, Setting,
    Unlink, Usage, bus as bus_abi, feed as feed_abi,
};

use super::bus::{self, BATCHED, Buses, Params as BusParams, framed, mappable};
use super::ctl::{BOTH, CREATE, Ctl, NONBLOCK, OWN, READ, WRITE};
use super::durable::{Durable, INTERVAL, durable, set_with};
use super::feed;
use super::ioctl::raw_with_result;
use super::keeper::{LIMIT, stored_map};
use super::map::{self, Maps};
use super::memory::{PAGE, read_at, write_at};
use super::netlink::{Attrs, Socket, command};
use super::poll;
use super::requests::bytes_of;
use super::ring::{self, Rings, Side};

/// The calls that docs/locking.md lets wait for an operation in a page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delays {
    Nobody,
    /// Other calls of the keeper.
    Keeper,
    /// Reads of the pipe.
    Readers,
    /// Reads of the same endpoint of the feed.
    FeedReaders,
    /// Writes to the pipe.
    Writers,
}

pub type Outcome = Result<i64, Errno>;
type Call = fn(&Objects, *mut u8) -> nix::Result<i64>;

/// A call whose memory is a page.
pub struct Operation {
    pub name: &'static str,
    pub delays: Delays,
    /// What the page has, at this address.
    pub content: fn(&Objects, u64) -> Vec<u8>,
    pub call: Call,
    pub expected: Outcome,
}

/// Objects of every kind. All endpoints are in non-blocking mode.
pub struct Objects {
    pub ctl: Ctl,
    pub reader: OwnedFd,
    pub writer: OwnedFd,
    pub producer: Side,
    pub consumer: Side,
    pub buses: Buses,
    pub sender: OwnedFd,
    pub frames: OwnedFd,
    pub batches: OwnedFd,
    pub subscriber: OwnedFd,
    pub framed: OwnedFd,
    pub mapped: OwnedFd,
    pub feed: OwnedFd,
    pub maps: Maps,
    pub map: OwnedFd,
    pub watcher: OwnedFd,
    pub durable: Durable,
    /// The stream of a map that is being restored.
    pub restoring: u64,
}

pub const KEY: &[u8] = b"key";
pub const VALUE: &[u8] = b"value";
/// Where the parts of an operation are in its page.
const SECOND: u64 = 1024;
const THIRD: u64 = 2048;
/// What a call reads into if not into its page.
static ROOM: AtomicU64 = AtomicU64::new(0);

impl Objects {
    pub fn new() -> Result<Self> {
        let ctl = Ctl::new()?;
        let pipe = |flags| ctl.open(Open::new("pipe", flags | CREATE | NONBLOCK));
        let reader = pipe(READ).context("opening a reader")?;
        let writer = pipe(WRITE).context("opening a writer")?;
        write(&writer, VALUE)?;
        let (producer, consumer) = Rings::new()?.sides("ring")?;
        let buses = Buses::new()?;
        let sender = buses.create_sized(mappable(), 1 << 16)?;
        let frames = buses.framed_sender()?;
        let batches = buses.open(
            WRITE,
            BusParams {
                format: BATCHED,
                ..BusParams::default()
            },
        )?;
        let subscriber = buses.subscribe(BusParams::default())?;
        let framed = buses.subscribe(framed(0))?;
        let mapped = buses.subscribe(BusParams {
            policy: bus_abi::BLOCK,
            flags: bus_abi::MAPPED,
            ..BusParams::default()
        })?;
        bus::send(&sender, VALUE)?;
        let feed = feed::open_node_with(nix::fcntl::OFlag::O_RDWR | nix::fcntl::OFlag::O_NONBLOCK)?;
        feed::claim_as(&feed, feed_abi::CONSUMER_READS)?;
        let maps = Maps::new()?;
        let map = maps.create()?;
        let watcher = maps.attach()?;
        map::watch(&watcher, map::NOW)?;
        map::put(&map, KEY, VALUE)?;
        map::put(&map, b"other", VALUE)?;
        let durable = Durable::named("durable", durable(INTERVAL))?;
        let restoring = durable
            .keeper
            .create_at(0, OWN, &stored_map("restored"), 1000, LIMIT)?;
        Ok(Self {
            ctl,
            reader,
            writer,
            producer,
            consumer,
            buses,
            sender,
            frames,
            batches,
            subscriber,
            framed,
            mapped,
            feed,
            maps,
            map,
            watcher,
            durable,
            restoring,
        })
    }

    /// All that a child needs.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![
            self.ctl.as_fd(),
            self.reader.as_fd(),
            self.writer.as_fd(),
            self.producer.end.as_fd(),
            self.consumer.end.as_fd(),
            self.buses.0.as_fd(),
            self.sender.as_fd(),
            self.frames.as_fd(),
            self.batches.as_fd(),
            self.subscriber.as_fd(),
            self.framed.as_fd(),
            self.mapped.as_fd(),
            self.feed.as_fd(),
            self.maps.0.as_fd(),
            self.map.as_fd(),
            self.watcher.as_fd(),
            self.durable.end.as_fd(),
            self.durable.maps.0.as_fd(),
            self.durable.keeper.as_fd(),
        ]
    }

    /// Uses every object, by endpoints of its own and by those of the operation. Calls that may be delayed are left
    /// out.
    pub fn use_all(&self, delayed: Delays) -> Result<()> {
        self.use_pipe(delayed).context("the pipe")?;
        self.use_ring().context("the ring")?;
        self.use_bus().context("the bus")?;
        self.use_feed(delayed).context("the feed")?;
        for end in [&self.map, &self.maps.attach()?] {
            self.use_map(end).context("the map")?;
        }
        self.use_durable().context("the durable map")?;
        self.use_channels().context("channels")
    }

    fn use_pipe(&self, delayed: Delays) -> Result<()> {
        if delayed != Delays::Writers {
            ensure!(write(&self.writer, b"x")? == 1, "not written");
        }
        // There are bytes also if nothing was written here.
        if delayed != Delays::Readers {
            ensure!(read(&self.reader, &mut [0])? == 1, "not read");
        }
        let mut info = PipeInfo::EMPTY;
        ioctl(&self.reader, PIPE_INFO, &mut info)?;
        let both = Open::new("pipe", BOTH | NONBLOCK);
        drop(self.ctl.open(both).context("opening it")?);
        Ok(())
    }

    fn use_ring(&self) -> Result<()> {
        self.producer.notify()?;
        ring::wait(&self.consumer, self.consumer.seq().wrapping_sub(1), 0)?;
        let info = ring::info(&self.consumer)?;
        ensure!(info.role != 0, "no role");
        Ok(())
    }

    /// A packet is there only after an operation that publishes one.
    fn use_feed(&self, delayed: Delays) -> Result<()> {
        feed::info(&self.feed)?;
        if delayed != Delays::FeedReaders {
            let packet = read(&self.feed, &mut [0; PAGE]);
            ensure!(matches!(packet, Ok(_) | Err(Errno::EAGAIN)), "{packet:?}");
        }
        Ok(())
    }

    fn use_bus(&self) -> Result<()> {
        let subscriber = self.buses.subscribe(framed(0))?;
        bus::send(&self.sender, b"others")?;
        let message = bus::receive_framed(&subscriber)?.context("no message")?;
        ensure!(message.bytes == b"others", "{message:?}");
        bus::state(&self.sender)?;
        ensure!(bus::list(&self.sender, 0, 8)?.len() >= 4, "subscribers");
        Ok(())
    }

    fn use_map(&self, end: &OwnedFd) -> Result<()> {
        map::put(end, b"mine", b"1")?;
        map::put(end, KEY, VALUE)?;
        ensure!(map::get(end, b"mine")? == b"1", "another value");
        let mut steps = [Step::new(STEP_SET, &Op::set(b"mine", b"2"))];
        map::batch(end, &mut steps)?;
        let dump = map::dump_with(end, 0, PAGE)?;
        ensure!(dump.len() >= 3, "the dump");
        map::delete(end, b"mine")?;
        let watcher = self.maps.attach()?;
        map::watch(&watcher, map::NOW)?;
        map::put(end, KEY, VALUE)?;
        ensure!(map::events(&watcher)?.len() == 1, "events");
        map::state(end)?;
        let socket = Socket::new()?;
        let handle = socket.open(map::NAME, BOTH)?;
        let key = Attrs::new().handle(handle).key(KEY);
        socket.must(command::GET, &key).map(drop)
    }

    /// The keeper's messages are read by the process that acknowledges them.
    fn use_durable(&self) -> Result<()> {
        let end = &self.durable.end;
        let changed = set_with(end, b"mine", b"1", map_abi::NOWAIT).0;
        changed.map_err(Errno::from_raw)?;
        ensure!(map::get(end, b"mine")? == b"1", "another value");
        Ok(())
    }

    fn use_channels(&self) -> Result<()> {
        drop(self.ctl.create("mine")?);
        let names = self.ctl.names(OWN)?;
        ensure!(names.iter().any(|name| name == b"pipe"), "{names:?}");
        self.ctl.info(OWN, "pipe")?;
        super::ctl::usage_of(&self.ctl, OWN)?;
        Ok(())
    }
}

/// What processes that have read the keeper's messages have not acknowledged is acknowledged, so that the map ends.
impl Drop for Objects {
    fn drop(&mut self) {
        let keeper = &self.durable.keeper;
        let _ = keeper.take();
        if let Ok(info) = map::info(&self.durable.end) {
            let ack = keep::Ack::new(self.durable.stream, info.sequence, 0, 0);
            let _ = keeper.send_ack(ack);
        }
    }
}

fn ioctl<T>(end: &impl AsFd, command: u64, argument: *mut T) -> nix::Result<i64> {
    raw_with_result(end, command, argument).map(i64::from)
}

/// Parts at their places.
fn parts(list: &[(u64, &[u8])]) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    for (at, bytes) in list {
        page[*at as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    page
}

fn nothing(_: &Objects, _: u64) -> Vec<u8> {
    Vec::new()
}

fn whole<T: Copy>(structure: &T) -> Vec<u8> {
    bytes_of(structure)
}

fn op_at(at: u64) -> Op {
    Op {
        key: at + SECOND,
        key_length: KEY.len() as u32,
        value: at + THIRD,
        value_length: VALUE.len() as u32,
        ..Op::EMPTY
    }
}

/// An operation of a map at the beginning of the page, followed by its key and value.
fn map_operation(_: &Objects, at: u64) -> Vec<u8> {
    parts(&[(0, &whole(&op_at(at))), (SECOND, KEY), (THIRD, VALUE)])
}

fn map_deletion(_: &Objects, at: u64) -> Vec<u8> {
    let op = Op {
        value: 0,
        value_length: 0,
        ..op_at(at)
    };
    parts(&[(0, &whole(&op)), (SECOND, KEY)])
}

fn key_alone(_: &Objects, _: u64) -> Vec<u8> {
    KEY.to_vec()
}

fn value_alone(_: &Objects, _: u64) -> Vec<u8> {
    VALUE.to_vec()
}

/// With a key in the page.
fn with_key(page: *mut u8, op: Op) -> Op {
    Op {
        key: page as u64,
        key_length: KEY.len() as u32,
        ..op
    }
}

/// With a value in the page.
fn with_value(page: *mut u8, op: Op) -> Op {
    Op {
        value: page as u64,
        value_length: VALUE.len() as u32,
        ..op
    }
}

fn batch_of(objects: &Objects, steps: *mut Step) -> nix::Result<i64> {
    let mut batch = Batch::new(steps, 1);
    ioctl(&objects.map, map_abi::BATCH, &mut batch)?;
    Ok(batch.count.into())
}

fn setting(value: u64) -> Vec<u8> {
    whole(&Setting::new(value))
}

/// An array of one buffer, which is somewhere else.
fn io_vector(buffer: *const u8, length: usize) -> Vec<u8> {
    let vector = [buffer as usize, length];
    vector.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn vectored(call: libc::c_long, end: &impl AsFd, page: *mut u8) -> nix::Result<i64> {
    // SAFETY: the kernel checks the array and its addresses.
    Errno::result(unsafe { libc::syscall(call, end.as_fd().as_raw_fd(), page, 1) })
}

fn opened(result: nix::Result<i64>) -> nix::Result<i64> {
    close(result? as i32)?;
    Ok(0)
}

fn size(result: nix::Result<usize>) -> nix::Result<i64> {
    result.map(|count| count as i64)
}

fn entry_at(key: u64, value: u64) -> keep::Entry {
    keep::Entry {
        key,
        value,
        key_length: KEY.len() as u32,
        value_length: VALUE.len() as u32,
        version: 1,
        expires_ns: 0,
    }
}

fn restore(objects: &Objects, entries: *const keep::Entry) -> nix::Result<i64> {
    let mut restore = keep::Restore {
        entries: entries as u64,
        count: 1,
        ..keep::Restore::new(objects.restoring, &[])
    };
    ioctl(&objects.durable.keeper, keep::RESTORE, &mut restore)?;
    Ok(restore.count.into())
}

fn frame(_: &Objects, _: u64) -> Vec<u8> {
    bus::with_frame(0, VALUE)
}

const FRAME: i64 = (bus_abi::Frame::SIZE + VALUE.len()) as i64;

/// One operation after the other: its name, whom it delays, the content of its page, the call, and its result. In braces, which
/// rustfmt leaves alone.
macro_rules! table {
    ($($name:literal, $delays:ident, $content:expr, $call:expr, $expected:expr;)*) => {
        vec![$(Operation {
            name: $name,
            delays: Delays::$delays,
            content: $content,
            call: $call,
            expected: $expected,
        }),*]
    };
}

pub fn operations() -> Vec<Operation> {
    let mut all = Vec::new();
    all.extend(of_pipes());
    all.extend(of_rings_and_feeds());
    all.extend(of_buses());
    all.extend(of_maps());
    all.extend(of_durable_maps());
    all.extend(of_ctl());
    all
}

const LENGTH: i64 = VALUE.len() as i64;

pub fn of_pipes() -> Vec<Operation> {
    table! {
        "read of a pipe", Readers, nothing, |w, p| size(read_at(&w.reader, p, VALUE.len())), Ok(LENGTH);
        "write to a pipe", Writers, value_alone, |w, p| size(write_at(&w.writer, p, VALUE.len())), Ok(LENGTH);
        "readv of a pipe: the array", Nobody,
            |_, _| io_vector(ROOM.as_ptr().cast(), size_of_val(&ROOM)), |w, p| vectored(libc::SYS_readv, &w.reader, p), Ok(LENGTH);
        "writev to a pipe: the array", Nobody,
            |_, _| io_vector(VALUE.as_ptr(), VALUE.len()), |w, p| vectored(libc::SYS_writev, &w.writer, p), Ok(LENGTH);
        "PIPE_INFO", Nobody, |_, _| whole(&PipeInfo::EMPTY), |w, p| ioctl(&w.reader, PIPE_INFO, p), Ok(0);
        "PIPE_SET_CAPACITY", Nobody, |_, _| setting(1 << 17), |w, p| ioctl(&w.writer, PIPE_SET_CAPACITY, p), Ok(0);
        "PIPE_SET_SPIN", Nobody, |_, _| setting(1000), |w, p| ioctl(&w.reader, PIPE_SET_SPIN, p), Ok(0);
        "FIONREAD of a pipe", Nobody, nothing, |w, p| ioctl(&w.reader, libc::FIONREAD, p), Ok(0);
        "ENDPOINT_INFO", Nobody, |_, _| whole(&ChannelInfo::EMPTY), |w, p| ioctl(&w.reader, ENDPOINT_INFO, p), Ok(0);
    }
}

/// What a read of a packet of 16 bytes returns.
const PACKET: i64 = (feed::Header::SIZE + 16) as i64;

pub fn of_rings_and_feeds() -> Vec<Operation> {
    table! {
        "RING_WAIT", Nobody,
            |w, _| whole(&RingWait::new(w.consumer.seq(), 0)), |w, p| ioctl(&w.consumer, RING_WAIT, p), Ok(0);
        "RING_INFO", Nobody, |_, _| whole(&RingInfo::EMPTY), |w, p| ioctl(&w.consumer, RING_INFO, p), Ok(0);
        "read of a feed", FeedReaders, nothing, |w, p| {
            feed::start(&w.feed, feed_abi::Start::new(1_000_000, 1, 16))?;
            poll::wait(&w.feed, libc::POLLIN, -1)?;
            size(read_at(&w.feed, p, PAGE))
        }, Ok(PACKET);
        "FEED_INFO", Nobody, |_, _| whole(&feed_abi::Info::EMPTY), |w, p| ioctl(&w.feed, feed_abi::INFO, p), Ok(0);
        "FEED_SET_SPIN", Nobody, |_, _| setting(1000), |w, p| ioctl(&w.feed, feed_abi::SET_SPIN, p), Ok(0);
        "FEED_CLAIM", Nobody,
            |_, _| setting(feed_abi::CONSUMER_READS.into()), |w, p| ioctl(&w.feed, feed_abi::CLAIM, p), Ok(0);
        "FEED_START", Nobody,
            |_, _| whole(&feed_abi::Start::new(1_000_000, 1, 16)), |w, p| ioctl(&w.feed, feed_abi::START, p), Ok(0);
    }
}

pub fn of_buses() -> Vec<Operation> {
    table! {
        "write to a bus", Nobody, value_alone, |w, p| size(write_at(&w.sender, p, VALUE.len())), Ok(LENGTH);
        "write of a frame to a bus", Nobody, frame, |w, p| size(write_at(&w.frames, p, FRAME as usize)), Ok(FRAME);
        "write of a batch to a bus", Nobody, frame, |w, p| size(write_at(&w.batches, p, FRAME as usize)), Ok(FRAME);
        "read of a bus", Nobody, nothing, |w, p| size(read_at(&w.subscriber, p, PAGE)), Ok(LENGTH);
        "read of a frame of a bus", Nobody, nothing, |w, p| size(read_at(&w.framed, p, PAGE)), Ok(FRAME);
        "BUS_RECEIVE", Nobody,
            |_, at| whole(&bus_abi::Receive::new((at + SECOND) as *mut bus_abi::Entry, 1, 0)), |w, p| ioctl(&w.mapped, bus_abi::RECEIVE, p), Ok(0);
        "BUS_RECEIVE: the entries", Nobody, nothing, |w, p| {
            let mut receive = bus_abi::Receive::new(p.cast(), 1, 0);
            ioctl(&w.mapped, bus_abi::RECEIVE, &mut receive)?;
            Ok(receive.count.into())
        }, Ok(1);
        "BUS_SUBSCRIBERS", Nobody,
            |_, at| whole(&bus_abi::Subscribers::new(0, (at + SECOND) as *mut bus_abi::SubscriberInfo, 2)), |w, p| ioctl(&w.sender, bus_abi::SUBSCRIBERS, p), Ok(0);
        "BUS_SUBSCRIBERS: the entries", Nobody, nothing, |w, p| {
            let mut list = bus_abi::Subscribers::new(0, p.cast(), 2);
            ioctl(&w.sender, bus_abi::SUBSCRIBERS, &mut list)?;
            Ok(list.count.into())
        }, Ok(2);
        "BUS_INFO", Nobody, |_, _| whole(&bus_abi::Info::EMPTY), |w, p| ioctl(&w.sender, bus_abi::INFO, p), Ok(0);
        "BUS_SET_FORMAT", Nobody,
            |_, _| setting(bus_abi::RAW.into()), |w, p| ioctl(&w.sender, bus_abi::SET_FORMAT, p), Ok(0);
        "BUS_SET_SPIN", Nobody, |_, _| setting(1000), |w, p| ioctl(&w.subscriber, bus_abi::SET_SPIN, p), Ok(0);
        "BUS_TURN", Nobody, |_, _| setting(0), |w, p| ioctl(&w.sender, bus_abi::TURN, p), Err(Errno::EOPNOTSUPP);
        "FIONREAD of a bus", Nobody, nothing, |w, p| ioctl(&w.subscriber, libc::FIONREAD, p), Ok(0);
    }
}

pub fn of_maps() -> Vec<Operation> {
    table! {
        "MAP_GET", Nobody, map_operation, |w, p| ioctl(&w.map, map_abi::GET, p), Ok(0);
        "MAP_GET: the key", Nobody,
            key_alone, |w, p| ioctl(&w.map, map_abi::GET, &mut with_key(p, Op::get(KEY, &mut [0; 64]))), Ok(0);
        "MAP_GET: the value", Nobody,
            nothing, |w, p| ioctl(&w.map, map_abi::GET, &mut with_value(p, Op::get(KEY, &mut []))), Ok(0);
        "MAP_SET", Nobody, map_operation, |w, p| ioctl(&w.map, map_abi::SET, p), Ok(0);
        "MAP_SET: the key", Nobody,
            key_alone, |w, p| ioctl(&w.map, map_abi::SET, &mut with_key(p, Op::set(KEY, VALUE))), Ok(0);
        "MAP_SET: the value", Nobody,
            value_alone, |w, p| ioctl(&w.map, map_abi::SET, &mut with_value(p, Op::set(b"new", b""))), Ok(1);
        "MAP_DELETE", Nobody, map_deletion, |w, p| ioctl(&w.map, map_abi::DELETE, p), Ok(0);
        "MAP_DELETE: the key", Nobody,
            key_alone, |w, p| ioctl(&w.map, map_abi::DELETE, &mut with_key(p, Op::delete(KEY))), Ok(0);
        "MAP_BATCH", Nobody, |_, at| {
            let steps = (at + SECOND) as *mut Step;
            let step = Step { key: at, key_length: 3, ..Step::new(STEP_GET, &Op::get(b"", &mut [])) };
            parts(&[(SECOND, &whole(&step)), (0, &whole(&Batch::new(steps, 1)))])
        }, |w, p| ioctl(&w.map, map_abi::BATCH, p), Ok(0);
        "MAP_BATCH: the steps", Nobody, |_, at| {
            let op = Op { key: at + SECOND, key_length: 3, ..Op::set(KEY, VALUE) };
            let op = Op { value: at + THIRD, ..op };
            parts(&[(0, &whole(&Step::new(STEP_SET, &op))), (SECOND, KEY), (THIRD, VALUE)])
        }, |w, p| batch_of(w, p.cast()), Ok(1);
        "MAP_BATCH: a key", Nobody,
            key_alone, |w, p| batch_of(w, &mut Step::new(STEP_SET, &with_key(p, Op::set(KEY, VALUE)))), Ok(1);
        "MAP_BATCH: a value", Nobody,
            value_alone, |w, p| batch_of(w, &mut Step::new(STEP_SET, &with_value(p, Op::set(KEY, b"")))), Ok(1);
        "MAP_BATCH: a value that is got", Nobody,
            nothing, |w, p| batch_of(w, &mut Step::new(STEP_GET, &with_value(p, Op::get(KEY, &mut [])))), Ok(1);
        "MAP_DUMP", Nobody, |_, at| {
            let dump = Dump { records: at + SECOND, length: 1024, ..Dump::new(0, Cursor::default(), &mut []) };
            whole(&dump)
        }, |w, p| ioctl(&w.map, map_abi::DUMP, p), Ok(0);
        "MAP_DUMP: the records", Nobody, nothing, |w, p| {
            let mut dump = Dump { records: p as u64, length: 4096, ..Dump::new(0, Cursor::default(), &mut []) };
            ioctl(&w.map, map_abi::DUMP, &mut dump)?;
            Ok(dump.count.into())
        }, Ok(2);
        "MAP_WATCH", Nobody, |_, _| setting(map::NOW), |w, p| ioctl(&w.watcher, map_abi::WATCH, p), Ok(0);
        "MAP_INFO", Nobody, |_, _| whole(&map_abi::Info::EMPTY), |w, p| ioctl(&w.map, map_abi::INFO, p), Ok(0);
        "read of events", Nobody, nothing, |w, p| size(read_at(&w.watcher, p, 40)), Ok(40);
    }
}

pub fn of_durable_maps() -> Vec<Operation> {
    table! {
        "a set of a durable map: the value", Nobody, value_alone, |w, p| {
            let op = Op { flags: map_abi::NOWAIT, ..Op::set(KEY, b"") };
            ioctl(&w.durable.end, map_abi::SET, &mut with_value(p, op))
        }, Ok(1);
        "MAP_SYNC", Nobody, |_, _| setting(0), |w, p| ioctl(&w.durable.end, map_abi::SYNC, p), Ok(0);
        "a read of the keeper", Keeper, nothing, |w, p| {
            set_with(&w.durable.end, KEY, VALUE, map_abi::NOWAIT).0.map_err(Errno::from_raw)?;
            size(read_at(&w.durable.keeper, p, PAGE)).map(|count| (count > 0).into())
        }, Ok(1);
        "KEEP_CREATE", Keeper, |_, at| {
            let map = stored_map("created");
            let create = keep::Create { map: at + SECOND, ..keep::Create::new(0, OWN, &map, 7, LIMIT) };
            parts(&[(0, &whole(&create)), (SECOND, &whole(&map))])
        }, |w, p| ioctl(&w.durable.keeper, keep::CREATE, p), Ok(0);
        "KEEP_CREATE: the map", Keeper, |_, _| whole(&stored_map("created")), |w, p| {
            let create = keep::Create::new(0, OWN, &stored_map("created"), 7, LIMIT);
            ioctl(&w.durable.keeper, keep::CREATE, &mut keep::Create { map: p as u64, ..create })
        }, Ok(0);
        "KEEP_RESTORE", Keeper, |w, at| {
            let restore = keep::Restore { entries: at + SECOND, count: 1, ..keep::Restore::new(w.restoring, &[]) };
            let entry = entry_at(at + THIRD, at + THIRD);
            parts(&[(0, &whole(&restore)), (SECOND, &whole(&entry)), (THIRD, VALUE)])
        }, |w, p| ioctl(&w.durable.keeper, keep::RESTORE, p), Ok(0);
        "KEEP_RESTORE: the entries", Keeper, |_, at| {
            let entry = entry_at(at + THIRD, at + THIRD);
            parts(&[(0, &whole(&entry)), (THIRD, VALUE)])
        }, |w, p| restore(w, p.cast()), Ok(1);
        "KEEP_RESTORE: a key", Keeper,
            key_alone, |w, p| restore(w, &entry_at(p as u64, VALUE.as_ptr() as u64)), Ok(1);
        "KEEP_RESTORE: a value", Keeper,
            value_alone, |w, p| restore(w, &entry_at(KEY.as_ptr() as u64, p as u64)), Ok(1);
        "KEEP_READY", Keeper,
            |w, _| whole(&keep::Ready::new(w.restoring, 0)), |w, p| ioctl(&w.durable.keeper, keep::READY, p), Ok(0);
        "KEEP_ACK", Keeper,
            |w, _| whole(&keep::Ack::new(w.durable.stream, 0, 0, 0)), |w, p| ioctl(&w.durable.keeper, keep::ACK, p), Ok(0);
        "KEEP_END", Keeper,
            |w, _| whole(&keep::End::new(w.restoring, 0, 0)), |w, p| ioctl(&w.durable.keeper, keep::END, p), Err(Errno::EINVAL);
    }
}

pub fn of_ctl() -> Vec<Operation> {
    table! {
        "CTL_FEATURES", Nobody, |_, _| whole(&Features::default()), |w, p| ioctl(&w.ctl, CTL_FEATURES, p), Ok(0);
        "CTL_OPEN", Nobody,
            |_, _| whole(&Open::new("new", BOTH | CREATE)), |w, p| opened(ioctl(&w.ctl, CTL_OPEN, p)), Ok(0);
        "CTL_OPEN: the parameters", Nobody, |_, _| whole(&map::Params::default()), |w, p| {
            let mut open = Open { kind: KIND_MAP, params: p as u64, ..Open::new("new", BOTH | CREATE) };
            opened(ioctl(&w.ctl, CTL_OPEN, &mut open))
        }, Ok(0);
        "CTL_INFO", Nobody, |_, at| {
            let info = Info::new(OWN, "pipe", (at + SECOND) as *mut ChannelInfo);
            parts(&[(0, &whole(&info)), (SECOND, &whole(&ChannelInfo::EMPTY))])
        }, |w, p| ioctl(&w.ctl, CTL_INFO, p), Ok(0);
        "CTL_INFO: the common fields", Nobody,
            |_, _| whole(&ChannelInfo::EMPTY), |w, p| ioctl(&w.ctl, CTL_INFO, &mut Info::new(OWN, "pipe", p.cast())), Ok(0);
        "CTL_INFO: the state", Nobody, |_, _| whole(&map_abi::Info::EMPTY), |w, p| {
            let mut common = ChannelInfo::EMPTY;
            let info = Info::new(OWN, map::NAME, &mut common);
            ioctl(&w.ctl, CTL_INFO, &mut Info { kind: KIND_MAP, state: p as u64, ..info })
        }, Ok(0);
        "CTL_LIST", Nobody,
            |_, at| whole(&List::new(OWN, (at + SECOND) as *mut ChannelInfo, 2)), |w, p| ioctl(&w.ctl, CTL_LIST, p), Ok(0);
        "CTL_LIST: the entries", Nobody, nothing, |w, p| {
            let mut list = List::new(OWN, p.cast(), 1);
            ioctl(&w.ctl, CTL_LIST, &mut list)?;
            Ok(list.count.into())
        }, Ok(1);
        "CTL_UNLINK", Nobody,
            |_, _| whole(&Unlink::new(OWN, "nothing")), |w, p| ioctl(&w.ctl, CTL_UNLINK, p), Err(Errno::ENOENT);
        "CTL_DESTROY", Nobody,
            |_, _| whole(&Unlink::new(OWN, "nothing")), |w, p| ioctl(&w.ctl, CTL_DESTROY, p), Err(Errno::ENOENT);
        "CTL_USAGE", Nobody, |_, _| whole(&Usage::new(OWN)), |w, p| ioctl(&w.ctl, CTL_USAGE, p), Ok(0);
        "CTL_KEEP", Nobody,
            |_, _| whole(&abi::keeper::Keep::EMPTY), |w, p| opened(ioctl(&w.ctl, CTL_KEEP, p)), Err(Errno::EBUSY);
    }
}
