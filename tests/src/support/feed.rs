// SPDX-License-Identifier: MIT OR Apache-2.0
//! Feeds: their endpoints, packets and mapped memory, and the module that publishes for the tests.

use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{Ordering, fence};

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open as open_path};
use nix::sys::stat::Mode;
use sluice_abi::{Info as InfoRequest, KIND_FEED, SCOPE_ROOT};

use sluice_abi::feed::{CLAIM, INFO, SET_SPIN};
pub use sluice_abi::feed::{
    CONSUMER_MAPS, CONSUMER_NONE, CONSUMER_READS, CPU_ANY, Info, PACKET_MAX, Packet as Header,
    START, START_SIZE_VER0, STOP, Start,
};
use sluice_abi::ring;

use super::channel::{read_nowait, read_some};
use super::check::{expect, skip};
use super::child::{Child, spawn};
use super::ctl::{ChannelInfo, Ctl, Open, READ};
use super::ioctl::{get, raw, set};
use super::kernel::LoadedModule;
use super::near;
use super::proc::{self, Call};
use super::ring::{Ctrl, MMAP_DATA, READ_ONLY, READ_WRITE, Region, Role, wait};
use super::time;
use crate::registry::Context;

/// The feed of the simulator.
pub const NODE: &str = "/dev/sluice/feed";
/// The feed of the publisher for tests, unless it gets another name.
pub const NAME: &str = "published";
/// The largest result of a read.
pub const LARGEST: usize = Header::SIZE + PACKET_MAX as usize;

/// A packet and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub header: Header,
    pub bytes: Vec<u8>,
}

impl Packet {
    /// From a record, or the result of a read.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let (header, bytes) = bytes
            .split_first_chunk()
            .with_context(|| format!("{} bytes have no header", bytes.len()))?;
        let mut header = Header::from_bytes(header);
        header.sequence = near::packet_from_zero(header.sequence);
        Ok(Packet {
            header,
            bytes: bytes.to_vec(),
        })
    }

    /// What the publisher for tests has written at the beginning.
    pub fn origin(&self) -> Result<Origin> {
        let head = self.bytes.first_chunk::<16>();
        let head = head.with_context(|| format!("only {} bytes", self.bytes.len()))?;
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let number = u64::from(word(0)) | u64::from(word(4)) << 32;
        let filler = &self.bytes[16..];
        ensure!(
            filler.iter().all(|byte| *byte == number as u8),
            "packet {number} has other bytes than {:#04x}",
            number as u8
        );
        Ok(Origin {
            number,
            context: word(8),
            cpu: word(12),
        })
    }
}

/// `number` counts the packets of one context on one processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub number: u64,
    pub context: u32,
    pub cpu: u32,
}

/// Values of `Origin::context`.
pub const TASK: u32 = 0;
pub const IRQ: u32 = 1;
pub const NMI: u32 = 2;

/// A request for an endpoint of the feed of this name.
pub fn request(name: impl AsRef<[u8]>, flags: u32) -> Open {
    Open {
        kind: KIND_FEED,
        scope_fd: SCOPE_ROOT,
        ..Open::new(name, flags)
    }
}

/// Opens the feed of this name.
pub fn open(name: impl AsRef<[u8]>) -> Result<OwnedFd> {
    let end = Ctl::new()?.open(request(name, READ));
    end.context("opening a feed")
}

pub fn open_node_with(flags: OFlag) -> nix::Result<OwnedFd> {
    open_path(NODE, flags | OFlag::O_CLOEXEC, Mode::empty())
}

/// Opens the feed of the simulator for reading and mapping.
pub fn open_node() -> Result<OwnedFd> {
    open_node_with(OFlag::O_RDWR).with_context(|| format!("opening {NODE}"))
}

pub fn info(end: &impl AsFd) -> nix::Result<Info> {
    get(end, INFO).map(from_zero)
}

fn from_zero(info: Info) -> Info {
    Info {
        sequence: near::packet_from_zero(info.sequence),
        ..info
    }
}

/// Two states of a feed with a consumer and one publisher: no count has decreased, and each number given to a packet is
/// counted as published or lost, except that of one packet in progress.
pub fn expect_growth(earlier: &Info, later: &Info) -> Result<()> {
    let counts = |info: &Info| {
        [
            info.sequence,
            info.published,
            info.lost,
            info.violations,
            info.expired,
            info.missed,
            info.elapsed_ns,
        ]
    };
    let grown = counts(earlier).into_iter().zip(counts(later));
    ensure!(
        grown.into_iter().all(|(earlier, later)| earlier <= later),
        "a count has decreased: {earlier:?}, {later:?}"
    );
    let counted = |info: &Info| info.published + info.lost;
    ensure!(
        counted(earlier) <= later.sequence && later.sequence <= counted(later) + 1,
        "the next sequence {} is not between {} and {} + 1",
        later.sequence,
        counted(earlier),
        counted(later)
    );
    Ok(())
}

/// The info of an endpoint, read into a structure of which only `size` bytes are known.
pub fn info_of_size(end: &impl AsFd, bytes: &mut [u8], size: u32) -> nix::Result<()> {
    bytes[..4].copy_from_slice(&size.to_ne_bytes());
    raw(end, INFO, bytes.as_mut_ptr())
}

/// A request for common information. Stores only the address of `info`.
pub fn info_request(name: &str, info: &mut ChannelInfo) -> InfoRequest {
    InfoRequest {
        kind: KIND_FEED,
        ..InfoRequest::new(SCOPE_ROOT, name, info)
    }
}

/// Common information and the state, by the name.
pub fn info_by_name(name: &str) -> nix::Result<(ChannelInfo, Info)> {
    let ctl = Ctl::new().map_err(|_| Errno::ENODEV)?;
    let (common, info) = ctl.state(KIND_FEED, SCOPE_ROOT, name)?;
    Ok((common, from_zero(info)))
}

pub fn start(end: &impl AsFd, mut start: Start) -> nix::Result<()> {
    raw(end, START, &mut start)
}

pub fn stop(end: &impl AsFd) -> nix::Result<()> {
    raw(end, STOP, ptr::null_mut::<u8>())
}

pub fn set_spin(end: &impl AsFd, limit_ns: u64) -> nix::Result<u64> {
    set(end, SET_SPIN, limit_ns)
}

/// The next packet; `None` is the end of the feed.
pub fn read_packet(end: &impl AsFd) -> Result<Option<Packet>> {
    parse_read(&read_some(end, LARGEST).context("reading a packet")?)
}

/// The next packet, which must be there already.
pub fn read_present(end: &impl AsFd) -> Result<Packet> {
    let bytes = read_nowait(end, LARGEST).context("reading a packet that is there")?;
    parse_read(&bytes)?.context("the feed has ended")
}

fn parse_read(bytes: &[u8]) -> Result<Option<Packet>> {
    (!bytes.is_empty())
        .then(|| Packet::parse(bytes))
        .transpose()
}

/// Makes this endpoint a consumer of this kind (`CONSUMER_READS`, `CONSUMER_MAPS`).
pub fn claim_as(end: &impl AsFd, consumer: u32) -> nix::Result<u64> {
    set(end, CLAIM, consumer.into())
}

/// Makes this endpoint the consumer that reads.
pub fn claim_by_read(end: &impl AsFd) -> Result<()> {
    claim_as(end, CONSUMER_READS)
        .map(drop)
        .context("claiming the feed")
}

/// Checks that every sequence number is received or counted as lost, and the packets of each origin are in order.
#[derive(Default)]
pub struct Account {
    next: Option<u64>,
    last: Vec<Origin>,
    pub received: u64,
    pub lost: u64,
}

impl Account {
    /// From the sequence number `first` on.
    pub fn from(first: u64) -> Self {
        Account {
            next: Some(first),
            ..Account::default()
        }
    }

    pub fn add(&mut self, packet: &Packet) -> Result<()> {
        let Header { sequence, lost, .. } = packet.header;
        if let Some(next) = self.next {
            expect("sequence number of the packet", sequence, next + lost)?;
        }
        self.next = Some(sequence + 1);
        self.received += 1;
        self.lost += lost;
        self.add_origin(packet.origin()?)
    }

    fn add_origin(&mut self, origin: Origin) -> Result<()> {
        let same = |last: &&mut Origin| (last.context, last.cpu) == (origin.context, origin.cpu);
        match self.last.iter_mut().find(same) {
            None => self.last.push(origin),
            Some(last) => {
                ensure!(
                    origin.number > last.number,
                    "number {} came after {} of {origin:?}",
                    origin.number,
                    last.number
                );
                *last = origin;
            }
        }
        Ok(())
    }

    /// The contexts that packets came from.
    pub fn contexts(&self) -> Vec<u32> {
        let mut contexts: Vec<u32> = self.last.iter().map(|last| last.context).collect();
        contexts.sort_unstable();
        contexts.dedup();
        contexts
    }

    /// The number of processors that packets came from.
    pub fn processors(&self) -> usize {
        let mut processors: Vec<u32> = self.last.iter().map(|last| last.cpu).collect();
        processors.sort_unstable();
        processors.dedup();
        processors.len()
    }
}

/// How a consumer sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    Wait,
    Poll,
}

/// A consumer that maps the ring.
pub struct Consumer {
    end: OwnedFd,
    pub own: Ctrl,
    pub producer: Ctrl,
    pub data: Region,
    pos: u64,
    waits: u32,
}

impl Consumer {
    /// Makes this endpoint the consumer that maps.
    pub fn claim(end: OwnedFd) -> Result<Self> {
        let capacity = info(&end).context("asking for the capacity")?.capacity as usize;
        let map = || -> nix::Result<_> {
            Ok((
                Region::ctrl(&end, Role::Consumer, READ_WRITE)?,
                Region::ctrl(&end, Role::Producer, READ_ONLY)?,
                Region::map(&end, MMAP_DATA, 2 * capacity, READ_ONLY)?,
            ))
        };
        let (own, producer, data) = map().context("mapping a feed")?;
        Ok(Consumer {
            end,
            own: Ctrl(own),
            producer: Ctrl(producer),
            data,
            pos: 0,
            waits: 0,
        })
    }

    /// The next packet, which is released.
    pub fn take(&mut self) -> Result<Option<Packet>> {
        let at = self.pos as usize % (self.data.len() / 2);
        let state = self.data.word(at + offset_of!(ring::Header, state));
        if state.load(Ordering::Acquire) != ring::RECORD_READY {
            return Ok(None);
        }
        let length = self.data.word(at).load(Ordering::Relaxed) as usize;
        let header = size_of::<ring::Header>();
        let packet = Packet::parse(&self.data.read(at + header, length))?;
        self.pos += (header + length).next_multiple_of(header) as u64;
        self.set_pos(self.pos);
        Ok(Some(packet))
    }

    pub fn pos(&self) -> u64 {
        self.pos
    }

    pub fn set_pos(&self, pos: u64) {
        self.own.pos().store(pos, Ordering::Release);
    }

    /// The end of the published records.
    pub fn published(&self) -> u64 {
        self.producer.pos().load(Ordering::Acquire)
    }

    /// Why the feed has ended for this consumer, or 0.
    pub fn closed(&self) -> u32 {
        self.producer.closed()
    }

    pub fn wake_seq(&self) -> u32 {
        self.producer.wake_seq().load(Ordering::SeqCst)
    }

    /// Asks for a wake-up with the next packet, and returns the sequence number to wait with. The caller checks for a
    /// packet before it sleeps.
    pub fn prepare_sleep(&mut self) -> u32 {
        let seq = self.wake_seq();
        self.own.wake_ack().store(seq, Ordering::SeqCst);
        self.waits = self.waits.wrapping_add(1);
        let flags = self.waits << ring::WAIT_SEQ_SHIFT | ring::WAKE_FD;
        self.own.wait_flags().store(flags, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        seq
    }

    pub fn finish_sleep(&self) {
        self.own.wait_flags().store(0, Ordering::SeqCst);
    }

    /// The next packet, for which it sleeps; `None` is the end of the feed.
    pub fn take_sleeping(&mut self, sleep: Sleep) -> Result<Option<Packet>> {
        loop {
            if let Some(packet) = self.take()? {
                return Ok(Some(packet));
            }
            let seq = self.prepare_sleep();
            let has_ended = self.closed() != 0;
            let next = self.take()?;
            if next.is_none() && !has_ended {
                self.sleep(sleep, seq)?;
            }
            self.finish_sleep();
            if next.is_some() || has_ended {
                return Ok(next);
            }
        }
    }

    fn sleep(&self, sleep: Sleep, seq: u32) -> Result<()> {
        let deadline = time::Deadline::for_event();
        match sleep {
            Sleep::Wait => {
                wait(&self.end, seq, deadline.span().as_nanos() as u64).context("waiting")
            }
            Sleep::Poll if super::poll::wait_readable(&self.end, &deadline)? => Ok(()),
            Sleep::Poll => bail!("poll reported nothing within {:?}", deadline.span()),
        }
    }
}

impl AsFd for Consumer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

/// The publisher for tests, loaded.
pub struct Publisher(LoadedModule);

/// The counts of a publisher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Results {
    /// Also those that were published without a consumer.
    pub delivered: u64,
    pub lost: u64,
    pub too_long: u64,
}

const PARAMETERS: &str = "/sys/module/sluice_publisher/parameters";

impl Publisher {
    /// Skips the test if its file was not given.
    pub fn load(context: &Context, parameters: &CStr) -> Result<nix::Result<Self>> {
        let file = context.modules.publisher.as_ref().ok_or_else(|| {
            skip("no publisher was given; build it with 'vm/build-module KERNEL sluice_publisher' and name it with --publisher")
        })?;
        let loaded = LoadedModule::load(file, c"sluice_publisher", parameters)?;
        Ok(loaded.map(Publisher))
    }

    /// With a feed of the smallest capacity, 16 KiB.
    pub fn small(context: &Context) -> Result<Self> {
        Self::load(context, c"capacity=1")?.context("loading the publisher")
    }

    /// With a feed of the default capacity, 1 MiB.
    pub fn large(context: &Context) -> Result<Self> {
        Self::load(context, c"")?.context("loading the publisher")
    }

    /// Publishes packets from a context (see tests/publisher), and returns afterwards.
    pub fn publish(&self, context: &str, packets: usize, length: usize) -> Result<()> {
        write_parameter("publish", &format!("{context} {packets} {length}"))
    }

    /// As `publish`, in a child.
    pub fn spawn_publish(&self, context: &str, packets: usize, length: usize) -> Result<Child<()>> {
        spawn("the caller of the publisher", || {
            self.publish(context, packets, length)
        })
    }

    /// The file to which a name is written in order to create another feed, which is destroyed at once.
    pub fn creator(&self) -> Result<File> {
        let path = Path::new(PARAMETERS).join("create");
        let file = OpenOptions::new().write(true).open(&path);
        file.with_context(|| format!("opening {}", path.display()))
    }

    pub fn results(&self) -> Result<Results> {
        let path = Path::new(PARAMETERS).join("result");
        let text = fs::read_to_string(&path).context("reading the results")?;
        let counts: Vec<u64> = text
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        let [delivered, lost, too_long] = counts[..] else {
            bail!("{} says {text}", path.display());
        };
        Ok(Results {
            delivered,
            lost,
            too_long,
        })
    }

    /// Unloads the module, which destroys the feed.
    pub fn unload(mut self) -> Result<()> {
        self.0.unload().context("unloading the publisher")
    }
}

fn write_parameter(name: &str, value: &str) -> Result<()> {
    let path = Path::new(PARAMETERS).join(name);
    let mut file = OpenOptions::new().write(true).open(&path)?;
    let written = file.write_all(value.as_bytes());
    written.with_context(|| format!("writing '{value}' to {}", path.display()))
}

/// Waits until a child sleeps in a read of a feed. It spins before.
pub fn wait_reading<T: serde::de::DeserializeOwned>(child: &Child<T>) -> Result<()> {
    proc::wait_asleep_in(child.pid(), Call::Read)
}
