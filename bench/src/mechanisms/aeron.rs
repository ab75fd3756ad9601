// SPDX-License-Identifier: MIT OR Apache-2.0
//! Aeron over its IPC channel, with its C client and its media driver in a process of its own: exclusive publications, to
//! which messages are offered, because that takes less time than to claim space for them, except where they are written in
//! place; terms that are neither sparse nor checked, and mapped memory touched before. Both sides spin, or use its backoff
//! idle strategy with the default parameters. The scheduler places the driver and the threads of the clients; the driver
//! spins only if there is a processor for it.

mod program;

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_void};
use std::fs;
use std::hint::spin_loop;
use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::rc::Rc;
use std::thread::available_parallelism;

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

use super::link::{MarksEnd, Read, Write, copy};
use super::temp_paths::{TempPaths, memory_directory};
use super::third_party::await_peer;
use super::{Batching, Link, Mechanism, Receiver, Sender, Workload, bytes_in_flight};
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Idle {
    Spin,
    Backoff,
}

pub fn mechanisms() -> [Mechanism; 2] {
    [Idle::Spin, Idle::Backoff].map(mechanism)
}

fn mechanism(idle: Idle) -> Mechanism {
    let drivers = Rc::new(Drivers::new());
    let (label, never_sleeps) = match idle {
        Idle::Spin => ("aeron (spins)", true),
        Idle::Backoff => ("aeron (backoff)", false),
    };
    Mechanism {
        own_program: match idle {
            Idle::Spin => Some(Rc::new(Samples(Rc::clone(&drivers)))),
            Idle::Backoff => None,
        },
        label: label.into(),
        batching: Some(Batching::OneByOne),
        in_place: true,
        never_sleeps,
        own_threads: true,
        unsupported_reason: Box::new(|task| match task.workload {
            Workload::InPlace if task.size > MAX_PAYLOAD => Some(format!(
                "messages of more than {MAX_PAYLOAD} bytes are copied into several fragments"
            )),
            Workload::Pairs => Some("each pair would have a driver of its own".into()),
            _ => None,
        }),
        // There are three terms, which three times of one use.
        in_flight: bytes_in_flight(TERM_LENGTH, 32),
        // The backoff spins before it sleeps, as the default of Sluice's ring does.
        ..Mechanism::new("aeron", Waiting::Spin, move |size| {
            Ok(Link::new(
                drivers.stream(size, idle)?,
                |stream| stream.publishing().map(MarksEnd),
                Stream::subscribing,
            ))
        })
    }
}

/// The links between the same two processes share a driver: both processes have the number of links that existed when they
/// were forked, which names its directory.
struct Drivers {
    paths: TempPaths,
    links: Cell<i32>,
}

impl Drivers {
    fn new() -> Self {
        Self {
            paths: TempPaths::in_directory(memory_directory()),
            links: Cell::new(0),
        }
    }

    /// Removes what earlier drivers left, which were killed with their processes.
    fn stream(self: &Rc<Self>, size: usize, idle: Idle) -> Result<Stream> {
        for entry in fs::read_dir(self.paths.directory()?)? {
            let path = entry?.path();
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
        let number = self.links.get() + 1;
        self.links.set(number);
        Ok(Stream {
            number,
            drivers: Rc::clone(self),
            size,
            idle,
        })
    }

    fn directory(&self) -> Result<PathBuf> {
        Ok(self.paths.directory()?.join(self.links.get().to_string()))
    }

    /// Starts the driver, unless another process has. It ends with the process that started it. Called before this process has
    /// threads.
    fn ensure_running(&self) -> Result<()> {
        let directory = self.directory()?;
        // Only one process can create this.
        match fs::create_dir(directory.with_extension("started")) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
            other => other.context("cannot create a directory for Aeron")?,
        }
        match process::fork()? {
            Fork::Child => {
                let error = process::outcome(|| run_driver(&directory)).err();
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
}

/// Runs until it is killed.
fn run_driver(directory: &Path) -> Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    // Among the files are the ends of pipes whose end of file others wait for.
    let first = libc::STDERR_FILENO as u32 + 1;
    // SAFETY: this process uses none of these files any more.
    Errno::result(unsafe { libc::close_range(first, u32::MAX, 0) })
        .context("cannot close inherited files")?;
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

struct Stream {
    number: i32,
    drivers: Rc<Drivers>,
    size: usize,
    idle: Idle,
}

impl Stream {
    /// Must be called after the fork, because the client has a thread.
    fn client(&self) -> Result<Aeron> {
        self.drivers.ensure_running()?;
        let directory = self.drivers.directory()?;
        // The client waits for it, but complains about a directory that does not exist.
        let file = directory.join("cnc.dat");
        await_peer("driver", || Ok(file.exists().then_some(())))?;
        let context = AeronContext::new()?;
        context.set_dir(&c_path(&directory)?)?;
        context.set_pre_touch_mapped_memory(true)?;
        let client = Aeron::new(&context).context("cannot connect to the driver of Aeron")?;
        client.start()?;
        Ok(client)
    }

    /// Connected to the receiver.
    fn publishing(self) -> Result<Publishing> {
        let client = self.client()?;
        let publication = client
            .async_add_exclusive_publication(AERON_IPC_STREAM, self.number)?
            .poll_blocking(START_TIMEOUT)
            .context("cannot add a publication")?;
        await_peer("receiver", || Ok(publication.is_connected().then_some(())))?;
        Ok(Publishing {
            idle: Idling::new(self.idle)?,
            _client: ManuallyDrop::new(client),
            publication: ManuallyDrop::new(publication),
        })
    }

    fn subscribing(self) -> Result<Subscribing> {
        let client = self.client()?;
        let handlers = (Handlers::NONE, Handlers::NONE);
        let subscription = client
            .async_add_subscription(AERON_IPC_STREAM, self.number, handlers.0, handlers.1)?
            .poll_blocking(START_TIMEOUT)
            .context("cannot add a subscription")?;
        let image = await_peer("sender", || Ok(subscription.image_at_index(0)))?;
        Ok(Subscribing {
            size: self.size,
            idle: Idling::new(self.idle)?,
            early: Early::default(),
            ended: false,
            _open: ManuallyDrop::new((client, subscription)),
            image: ManuallyDrop::new(image),
        })
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

/// Nothing is closed: closing waits for the driver, which may have ended with the peer.
struct Publishing {
    idle: Idling,
    _client: ManuallyDrop<Aeron>,
    publication: ManuallyDrop<AeronExclusivePublication>,
}

impl Publishing {
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

impl Sender for Publishing {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.retry(|| self.publication.offer(message).map(Ok))
    }

    fn send_in_place(&mut self, len: usize, write: Write<'_>) -> Result<()> {
        self.retry(|| {
            self.publication.try_claim_owned(len).map(|mut claim| {
                write(claim.data());
                claim.commit()
            })
        })
    }
}

/// Messages that were polled together with an earlier one.
#[derive(Default)]
struct Early {
    bytes: Vec<u8>,
    lens: VecDeque<usize>,
    /// How many of the bytes were received.
    read: usize,
}

impl Early {
    fn push(&mut self, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.lens.push_back(message.len());
    }

    fn pop(&mut self, message: &mut [u8]) -> Result<Option<usize>> {
        let Some(len) = self.lens.pop_front() else {
            return Ok(None);
        };
        copy(&self.bytes[self.read..][..len], message)?;
        self.read += len;
        if self.lens.is_empty() {
            self.bytes.clear();
            self.read = 0;
        }
        Ok(Some(len))
    }
}

struct Subscribing {
    size: usize,
    idle: Idling,
    early: Early,
    ended: bool,
    _open: ManuallyDrop<(Aeron, AeronSubscription)>,
    image: ManuallyDrop<AeronImage>,
}

impl Subscribing {
    /// Receives one message into this buffer, and those that arrived with it early.
    fn poll_message(&mut self, message: &mut [u8]) -> Result<usize> {
        let size = self.size;
        let limit = if size <= SHORT { FRAGMENT_LIMIT } else { 1 };
        let (mut filled, mut complete, mut failure) = (0, false, None);
        while !complete {
            let early = &mut self.early;
            let visit = |fragment: &[u8], _header| {
                if complete {
                    // Short messages have one fragment.
                    return early.push(fragment);
                }
                match copy(fragment, &mut message[filled..]) {
                    Ok(len) => filled += len,
                    Err(error) => failure = Some(error),
                }
                // All fragments of a message but the last one are full.
                complete = fragment.len() < MAX_PAYLOAD || filled == size;
            };
            let fragments = self.image.poll_fn(visit, limit)?;
            if let Some(error) = failure {
                return Err(error);
            }
            self.idle.after(fragments > 0);
        }
        Ok(filled)
    }
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
        self.ended = len == 0;
        Ok(len)
    }

    /// Each message has one fragment.
    fn receive_in_place(&mut self, read: Read<'_>) -> Result<usize> {
        let (mut messages, mut failure) = (0, None);
        while !self.ended && messages == 0 {
            let ended = &mut self.ended;
            let visit = |fragment: &[u8], _header| {
                if fragment.is_empty() {
                    *ended = true;
                } else if failure.is_none() {
                    messages += 1;
                    failure = read(fragment).err();
                }
            };
            let fragments = self.image.poll_fn(visit, FRAGMENT_LIMIT)?;
            self.idle.after(fragments > 0);
        }
        failure.map_or(Ok(messages), Err)
    }
}
