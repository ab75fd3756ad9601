// SPDX-License-Identifier: MIT OR Apache-2.0
//! Aeron over its IPC channel, with its C client and its media driver in a process of its own: exclusive publications, to
//! which messages are offered, because that takes less time than to claim space for them, except where they are written in
//! place; terms that are neither sparse nor checked, and mapped memory touched before. Both sides spin, or use its backoff
//! idle strategy with the default parameters. The scheduler places the driver and the threads of the clients; the driver
//! spins only if there is a processor for it.

mod program;

use std::cell::Cell;
use std::ffi::{CStr, CString, c_int, c_void};
use std::fs::{self, File};
use std::hint::spin_loop;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::rc::Rc;
use std::thread::{available_parallelism, yield_now};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use rusteron_media_driver::bindings::{
    AERON_IDLE_STRATEGY_BACKOFF_MAX_PARK_PERIOD_NS, AERON_IDLE_STRATEGY_BACKOFF_MAX_SPINS,
    AERON_IDLE_STRATEGY_BACKOFF_MAX_YIELDS, AERON_IDLE_STRATEGY_BACKOFF_MIN_PARK_PERIOD_NS,
    aeron_idle_strategy_backoff_idle, aeron_idle_strategy_backoff_state_init,
    aeron_threading_mode_enum,
};
use rusteron_media_driver::{
    AERON_IPC_STREAM, Aeron, AeronCError, AeronContext, AeronDriver, AeronDriverContext,
    AeronExclusivePublication, AeronImage, AeronOfferError, AeronSubscription, Handlers,
};
use sluice_testkit::process::{self, Fork};

use super::link::{Read, Write, ensure_fits};
use super::mechanism::{bytes_in_flight, memory_directory, never_sleeping, no_file};
use super::temp_paths::TempPaths;
use super::{Batching, Link, Mechanism, Receiver, Sender, Workload, own_program};
use crate::harness::server::START_TIMEOUT;
use crate::harness::waiting::Waiting;
use program::Samples;

const TERM_LENGTH: usize = 16 << 20;
/// The maximum, so that messages have few fragments.
const MTU: usize = 65504;
/// Of a fragment, without its header.
const MAX_PAYLOAD: usize = MTU - 32;
/// The most fragments of one poll, as in its samples.
const FRAGMENT_LIMIT: usize = 10;
/// Longer messages are polled one by one, so that none is copied twice.
const SHORT: usize = 1024;
/// The time limit for the driver to start and for the peer to connect.
const TIMEOUT: Duration = START_TIMEOUT;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    Spin,
    Backoff,
}

pub fn mechanism(idle: Idle) -> Mechanism {
    let directories = Rc::new(Directories {
        paths: TempPaths::in_directory(memory_directory()),
        links: Cell::new(0),
    });
    let own_program = match idle {
        Idle::Spin => own_program::erased(Samples(Rc::clone(&directories))),
        Idle::Backoff => None,
    };
    Mechanism {
        own_program,
        label: match idle {
            Idle::Spin => "aeron (spins)".into(),
            Idle::Backoff => "aeron (backoff)".into(),
        },
        batching: Some(Batching::OneByOne),
        in_place: true,
        own_threads: true,
        unsupported_reason: Box::new(move |task| match (task.workload, idle) {
            (Workload::InPlace, _) if task.size > MAX_PAYLOAD => Some(format!(
                "messages of more than {MAX_PAYLOAD} bytes are copied into several fragments"
            )),
            (Workload::Pairs, _) => Some("each pair would have a driver of its own".into()),
            (_, Idle::Spin) => never_sleeping(task),
            (_, Idle::Backoff) => no_file(task),
        }),
        // The backoff spins before it sleeps, as the default of Sluice's ring does.
        // There are three terms, which three times of one use.
        in_flight: bytes_in_flight(TERM_LENGTH, 32),
        ..Mechanism::new("aeron", Waiting::Spin, move |size| {
            let stream = directories.stream(size, idle)?;
            Ok(Link::new(stream, Stream::sender, Stream::receiver))
        })
    }
}

/// The directories of the drivers. The links between the same two processes share a driver: both processes have the
/// number of links that existed when they were forked, which names its directory.
struct Directories {
    paths: TempPaths,
    links: Cell<i32>,
}

impl Directories {
    /// Removes what earlier drivers left, which were killed with their processes.
    fn next_link(&self) -> Result<i32> {
        for entry in fs::read_dir(self.paths.directory()?)? {
            let path = entry?.path();
            let removed = match path.is_dir() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
            removed.with_context(|| format!("cannot remove {}", path.display()))?;
        }
        let number = self.links.get() + 1;
        self.links.set(number);
        Ok(number)
    }

    fn stream(self: &Rc<Self>, size: usize, idle: Idle) -> Result<Stream> {
        Ok(Stream {
            number: self.next_link()?,
            directories: Rc::clone(self),
            size,
            idle,
        })
    }

    fn of_driver(&self) -> Result<PathBuf> {
        Ok(self.paths.directory()?.join(self.links.get().to_string()))
    }
}

/// Starts the driver of this directory, unless another process has. It ends with the process that started it. Called
/// before this process has threads.
fn ensure_driver(directory: &Path) -> Result<()> {
    let path = directory.with_extension("lock");
    let lock = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    // The driver inherits the lock and holds it.
    // SAFETY: the call takes numbers only.
    let locked = unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    match Errno::result(locked) {
        Ok(_) => {}
        Err(Errno::EWOULDBLOCK) => return Ok(()),
        Err(error) => return Err(error).context("cannot lock the directory of Aeron's driver"),
    }
    match process::fork()? {
        Fork::Child => {
            let error = process::outcome(|| run_driver(directory, lock)).err();
            eprintln!("the driver of Aeron ended: {}", error.unwrap_or_default());
            process::exit(1)
        }
        Fork::Parent(driver) => {
            // It is killed with this process, not with this handle.
            std::mem::forget(driver);
            Ok(())
        }
    }
}

/// Runs until it is killed.
fn run_driver(directory: &Path, lock: File) -> Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    let _lock = keep_only(lock)?;
    let context = AeronDriverContext::new()?;
    context.set_dir(&c_path(directory)?)?;
    context.set_threading_mode(aeron_threading_mode_enum::AERON_THREADING_MODE_SHARED)?;
    context.set_shared_idle_strategy(driver_idle_strategy())?;
    context.set_ipc_term_buffer_length(TERM_LENGTH)?;
    context.set_ipc_mtu_length(MTU)?;
    context.set_term_buffer_sparse_file(false)?;
    context.set_perform_storage_checks(false)?;
    let driver = AeronDriver::new(&context)?;
    driver.start(true)?;
    loop {
        driver.main_idle_strategy(driver.main_do_work()?);
    }
}

/// Closes all other files, among them the ends of pipes whose end of file others wait for.
fn keep_only(lock: File) -> Result<File> {
    let first = libc::STDERR_FILENO + 1;
    let kept = lock.as_raw_fd();
    for (from, to) in [(first, kept - 1), (kept + 1, c_int::MAX)] {
        if from <= to {
            // SAFETY: this process uses none of these files any more.
            let closed = unsafe { libc::close_range(from as u32, to as u32, 0) };
            Errno::result(closed).context("cannot close inherited files")?;
        }
    }
    Ok(lock)
}

/// A spinning driver needs a third processor.
fn driver_idle_strategy() -> &'static CStr {
    match available_parallelism().map_or(1, NonZeroUsize::get) > 2 {
        true => c"spin",
        false => c"backoff",
    }
}

fn c_path(path: &Path) -> Result<CString> {
    Ok(CString::new(path.as_os_str().as_encoded_bytes())?)
}

pub struct Stream {
    number: i32,
    directories: Rc<Directories>,
    size: usize,
    idle: Idle,
}

impl Stream {
    /// Must be called after the fork, because the client has a thread.
    fn client(&self) -> Result<Aeron> {
        let directory = self.directories.of_driver()?;
        ensure_driver(&directory)?;
        // The client waits for it, but complains about a directory that does not exist.
        let file = directory.join("cnc.dat");
        await_until("the driver did not start", || {
            Ok(file.exists().then_some(()))
        })?;
        let context = AeronContext::new()?;
        context.set_dir(&c_path(&directory)?)?;
        context.set_pre_touch_mapped_memory(true)?;
        let client = Aeron::new(&context).context("cannot connect to the driver of Aeron")?;
        client.start()?;
        Ok(client)
    }

    fn sender(self) -> Result<Sending> {
        self.publishing().map(Sending)
    }

    /// Connected to the receiver.
    fn publishing(self) -> Result<Publishing> {
        let client = self.client()?;
        let publication = client
            .async_add_exclusive_publication(AERON_IPC_STREAM, self.number)?
            .poll_blocking(TIMEOUT)
            .context("cannot add a publication")?;
        await_until("the receiver did not connect in time", || {
            Ok(publication.is_connected().then_some(()))
        })?;
        Ok(Publishing {
            idle: Idling::new(self.idle)?,
            open: ManuallyDrop::new((client, publication)),
        })
    }

    fn receiver(self) -> Result<Subscribing> {
        let client = self.client()?;
        let subscription = client
            .async_add_subscription(
                AERON_IPC_STREAM,
                self.number,
                Handlers::NONE,
                Handlers::NONE,
            )?
            .poll_blocking(TIMEOUT)
            .context("cannot add a subscription")?;
        let image = await_until("the sender did not connect in time", || {
            Ok(subscription.image_at_index(0))
        })?;
        Ok(Subscribing {
            size: self.size,
            idle: Idling::new(self.idle)?,
            limit: if self.size <= SHORT {
                FRAGMENT_LIMIT
            } else {
                1
            },
            early: Early::default(),
            ended: false,
            _open: ManuallyDrop::new((client, subscription)),
            image: ManuallyDrop::new(image),
        })
    }
}

fn await_until<T>(failure: &str, mut check: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = check()? {
            return Ok(found);
        }
        ensure!(Instant::now() < deadline, "{failure}");
        yield_now();
    }
}

/// Between two attempts. The state is allocated once for each end and lives as long as the process.
enum Idling {
    Spin,
    Backoff(*mut c_void),
}

impl Idling {
    fn new(idle: Idle) -> Result<Self> {
        if idle == Idle::Spin {
            return Ok(Self::Spin);
        }
        let mut state = null_mut();
        // SAFETY: the library stores a pointer to memory that it allocates.
        let outcome = unsafe {
            aeron_idle_strategy_backoff_state_init(
                &raw mut state,
                AERON_IDLE_STRATEGY_BACKOFF_MAX_SPINS.into(),
                AERON_IDLE_STRATEGY_BACKOFF_MAX_YIELDS.into(),
                AERON_IDLE_STRATEGY_BACKOFF_MIN_PARK_PERIOD_NS.into(),
                AERON_IDLE_STRATEGY_BACKOFF_MAX_PARK_PERIOD_NS.into(),
            )
        };
        ensure!(outcome >= 0, "cannot allocate an idle strategy of Aeron");
        Ok(Self::Backoff(state))
    }

    /// Waits after an attempt without work; after one with work, the next wait is short again.
    fn after(&self, work: bool) {
        match self {
            Self::Spin if work => {}
            Self::Spin => spin_loop(),
            // SAFETY: the state was initialized for this strategy.
            Self::Backoff(state) => unsafe {
                aeron_idle_strategy_backoff_idle(*state, work.into())
            },
        }
    }
}

/// The end of the stream.
const END: &[u8] = b"";

/// Nothing is closed: closing waits for the driver, which may have ended with the peer.
struct Publishing {
    idle: Idling,
    open: ManuallyDrop<(Aeron, AeronExclusivePublication)>,
}

impl Publishing {
    fn publish(&self, message: &[u8]) -> Result<()> {
        let (_, publication) = &*self.open;
        self.retry(|| publication.offer(message).map(Ok))
    }

    /// Publishes a message that is written in place.
    fn claim(&self, len: usize, write: Write<'_>) -> Result<()> {
        let (_, publication) = &*self.open;
        self.retry(|| {
            publication.try_claim_owned(len).map(|mut claim| {
                write(claim.data());
                claim.commit()
            })
        })
    }

    fn retry<T>(
        &self,
        mut publish: impl FnMut() -> Result<Result<T, AeronCError>, AeronOfferError>,
    ) -> Result<()> {
        loop {
            match publish() {
                Ok(committed) => {
                    committed?;
                    self.idle.after(true);
                    return Ok(());
                }
                Err(error) if error.is_retryable() => self.idle.after(false),
                Err(error) => bail!("cannot send a message: {error}"),
            }
        }
    }
}

/// Ends the stream when dropped.
struct Sending(Publishing);

impl Sender for Sending {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.0.publish(message)
    }

    fn send_in_place(&mut self, len: usize, write: Write<'_>) -> Result<()> {
        self.0.claim(len, write)
    }
}

impl Drop for Sending {
    /// If the receiver misses the end, the harness kills it.
    fn drop(&mut self) {
        let _ = self.0.publish(END);
    }
}

/// Messages that were polled together with an earlier one.
#[derive(Default)]
struct Early {
    bytes: Vec<u8>,
    lens: Vec<usize>,
    /// How many messages and bytes of them were received.
    messages_read: usize,
    bytes_read: usize,
}

impl Early {
    fn push(&mut self, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.lens.push(message.len());
    }

    fn pop(&mut self, message: &mut [u8]) -> Result<Option<usize>> {
        let Some(&len) = self.lens.get(self.messages_read) else {
            return Ok(None);
        };
        ensure_fits(len, message.len())?;
        message[..len].copy_from_slice(&self.bytes[self.bytes_read..][..len]);
        self.messages_read += 1;
        self.bytes_read += len;
        if self.messages_read == self.lens.len() {
            self.bytes.clear();
            self.lens.clear();
            (self.messages_read, self.bytes_read) = (0, 0);
        }
        Ok(Some(len))
    }
}

struct Subscribing {
    size: usize,
    idle: Idling,
    /// The most fragments of one poll.
    limit: usize,
    early: Early,
    ended: bool,
    _open: ManuallyDrop<(Aeron, AeronSubscription)>,
    image: ManuallyDrop<AeronImage>,
}

impl Subscribing {
    /// Receives one message into this buffer, and those that arrived with it early.
    fn poll_message(&mut self, message: &mut [u8]) -> Result<usize> {
        let (mut filled, mut complete, mut failure) = (0, false, None);
        while !complete {
            let (early, size) = (&mut self.early, self.size);
            let fragments = self.image.poll_fn(
                |fragment, _header| {
                    if complete {
                        // Short messages have one fragment.
                        early.push(fragment);
                        return;
                    }
                    match copy(fragment, message, filled) {
                        Ok(len) => filled += len,
                        Err(error) => failure = Some(error),
                    }
                    // All fragments of a message but the last one are full.
                    complete = fragment.len() < MAX_PAYLOAD || filled == size;
                },
                self.limit,
            )?;
            if let Some(error) = failure {
                return Err(error);
            }
            self.idle.after(fragments > 0);
        }
        Ok(filled)
    }
}

fn copy(fragment: &[u8], message: &mut [u8], filled: usize) -> Result<usize> {
    let end = filled + fragment.len();
    ensure_fits(end, message.len())?;
    message[filled..end].copy_from_slice(fragment);
    Ok(fragment.len())
}

impl Receiver for Subscribing {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        if self.ended {
            return Ok(0);
        }
        let len = match self.early.pop(message)? {
            Some(len) => len,
            None => self.poll_message(message)?,
        };
        self.ended = len == END.len();
        Ok(len)
    }

    /// Each message has one fragment.
    fn receive_in_place(&mut self, read: Read<'_>) -> Result<usize> {
        let (mut messages, mut failure) = (0, None);
        while !self.ended && messages == 0 {
            let ended = &mut self.ended;
            let fragments = self.image.poll_fn(
                |fragment, _header| {
                    if fragment == END {
                        *ended = true;
                    } else if failure.is_none() {
                        messages += 1;
                        failure = read(fragment).err();
                    }
                },
                FRAGMENT_LIMIT,
            )?;
            self.idle.after(fragments > 0);
        }
        failure.map_or(Ok(messages), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_messages_keep_their_order_and_boundaries() {
        let mut early = Early::default();
        let mut message = [0; 4];
        assert_eq!(early.pop(&mut message).unwrap(), None);
        early.push(b"abc");
        early.push(b"");
        early.push(b"de");
        assert!(early.pop(&mut [0; 2]).is_err());
        for expected in [&b"abc"[..], b"", b"de"] {
            let len = early.pop(&mut message).unwrap();
            assert_eq!(&message[..len.unwrap()], expected);
        }
        assert_eq!(early.pop(&mut message).unwrap(), None);
        assert!(early.bytes.is_empty());
    }

    #[test]
    fn links_of_the_same_two_processes_share_a_driver() {
        let directories = Directories {
            paths: TempPaths::in_directory(memory_directory()),
            links: Cell::new(0),
        };
        directories.next_link().unwrap();
        let first = directories.of_driver().unwrap();
        fs::create_dir(&first).unwrap();
        directories.next_link().unwrap();
        assert_ne!(directories.of_driver().unwrap(), first);
        assert!(!first.exists());
    }
}
