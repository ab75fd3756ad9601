// SPDX-License-Identifier: MIT OR Apache-2.0
//! Aeron over its IPC channel, with its C client and its media driver in a process of its own: exclusive publications, to which messages
//! are offered, which takes less time than to claim space for them, except where they are written in place. Both sides spin, or use its
//! backoff idle strategy with the default parameters. The scheduler places the driver and the threads of the clients; the driver spins
//! only if there is a processor for it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{CString, c_void};
use std::fs;
use std::hint::{black_box, spin_loop};
use std::io::ErrorKind;
use std::mem::{ManuallyDrop, forget};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::rc::Rc;
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use rusteron_media_driver::bindings as c;
use rusteron_media_driver::{
    AERON_IPC_STREAM, Aeron, AeronCError, AeronContext, AeronDriver, AeronDriverContext,
    AeronExclusivePublication, AeronImage, AeronOfferError, Handlers,
};
use sluice_testkit::process::{self, Fork};
use sluice_testkit::workers::Pair;

use super::link::{MarksEnd, Read, Write, await_peer, copy};
use super::own_program::{Role, Run, own_program};
use super::temp_paths::{MEMORY, TempPaths};
use super::{Batching, Link, Mechanism, Receiver, Sender, Workload, bytes_in_flight};
use crate::harness::server::START_TIMEOUT;
use crate::harness::waiting::Waiting;

const TERM_LENGTH: usize = 16 << 20;
/// The maximum, so that messages have few fragments.
const MTU: usize = 65504;
/// Of a fragment, without its header.
const MAX_PAYLOAD: usize = MTU - 32;
/// The most fragments of one poll, as in its samples.
const FRAGMENT_LIMIT: usize = 10;
/// Longer messages are polled one by one, so that none is copied twice.
const SHORT: usize = 1024;

pub fn mechanisms() -> [Mechanism; 2] {
    let backoff = mechanism(true).labelled("aeron (backoff)");
    [mechanism(false), backoff]
}

fn mechanism(backs_off: bool) -> Mechanism {
    let drivers = Rc::new(Drivers {
        paths: TempPaths::in_directory(MEMORY.into()),
        links: Cell::new(0),
    });
    Mechanism {
        own_program: (!backs_off).then(|| own_program(&drivers, samples)),
        batching: Some(Batching::OneByOne),
        in_place: true,
        never_sleeps: !backs_off,
        own_threads: true,
        unsupported_reason: Box::new(|task| match task.workload {
            Workload::InPlace if task.size > MAX_PAYLOAD => Some(format!(
                "messages of more than {MAX_PAYLOAD} bytes are copied into several fragments"
            )),
            _ => None,
        }),
        // There are three terms, which three times of one use.
        in_flight: bytes_in_flight(TERM_LENGTH, 32),
        // The backoff spins before it sleeps, as the default of Sluice's ring does.
        ..Mechanism::new("aeron", Waiting::Spin, move |size| {
            Ok(Link::new(
                drivers.stream(size, backs_off)?,
                |stream| stream.publishing().map(MarksEnd),
                Stream::subscribing,
            ))
        })
    }
}

/// The links between the same two processes share a driver, whose directory is named by the number of links at the fork.
struct Drivers {
    paths: TempPaths,
    links: Cell<i32>,
}

impl Drivers {
    /// Removes what earlier drivers left, which were killed with their processes.
    fn stream(self: &Rc<Self>, size: usize, backs_off: bool) -> Result<Stream> {
        for entry in fs::read_dir(self.paths.directory()?)? {
            let path = entry?.path();
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
        self.links.set(self.links.get() + 1);
        Ok(Stream {
            number: self.links.get(),
            drivers: Rc::clone(self),
            size,
            backs_off,
        })
    }

    fn directory(&self) -> Result<PathBuf> {
        Ok(self.paths.directory()?.join(self.links.get().to_string()))
    }

    /// Starts the driver, unless another process has, whose end ends it. Called before this process has threads.
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
                forget(driver);
                Ok(())
            }
        }
    }
}

fn run_driver(directory: &Path) -> Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    // Among the files are the ends of pipes whose end of file others wait for.
    let first = libc::STDERR_FILENO as u32 + 1;
    // SAFETY: this process uses none of these files any more.
    Errno::result(unsafe { libc::close_range(first, u32::MAX, 0) })
        .context("cannot close inherited files")?;
    let context = AeronDriverContext::new()?;
    context.set_dir(&c_path(directory)?)?;
    context.set_threading_mode(c::aeron_threading_mode_enum::AERON_THREADING_MODE_SHARED)?;
    // A spinning driver needs a third processor.
    let has_third = available_parallelism().is_ok_and(|count| count.get() > 2);
    context.set_shared_idle_strategy(if has_third { c"spin" } else { c"backoff" })?;
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

fn c_path(path: &Path) -> Result<CString> {
    Ok(CString::new(path.as_os_str().as_encoded_bytes())?)
}

/// Nothing of its ends is closed: closing waits for the driver, which may have ended with the peer.
struct Stream {
    number: i32,
    drivers: Rc<Drivers>,
    size: usize,
    backs_off: bool,
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
        forget(client);
        Ok(Publishing {
            idle: Idling::new(self.backs_off)?,
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
        forget((client, subscription));
        Ok(Subscribing {
            size: self.size,
            idle: Idling::new(self.backs_off)?,
            early: Early::default(),
            ended: false,
            image: ManuallyDrop::new(image),
        })
    }
}

/// Between two attempts. The state of the backoff is allocated once for each end and lives as long as the process.
struct Idling(Option<*mut c_void>);

impl Idling {
    fn new(backs_off: bool) -> Result<Self> {
        if !backs_off {
            return Ok(Self(None));
        }
        let mut state = null_mut();
        // SAFETY: the library stores a pointer to memory that it allocates.
        let outcome = unsafe {
            c::aeron_idle_strategy_backoff_state_init(
                &raw mut state,
                c::AERON_IDLE_STRATEGY_BACKOFF_MAX_SPINS.into(),
                c::AERON_IDLE_STRATEGY_BACKOFF_MAX_YIELDS.into(),
                c::AERON_IDLE_STRATEGY_BACKOFF_MIN_PARK_PERIOD_NS.into(),
                c::AERON_IDLE_STRATEGY_BACKOFF_MAX_PARK_PERIOD_NS.into(),
            )
        };
        ensure!(outcome >= 0, "cannot allocate an idle strategy of Aeron");
        Ok(Self(Some(state)))
    }

    /// Waits after an attempt without work; after one with work, the next wait is short again.
    fn after(&self, work: bool) {
        match self.0 {
            None => spin_without(work),
            // SAFETY: the state was initialized for this strategy.
            Some(state) => unsafe { c::aeron_idle_strategy_backoff_idle(state, work.into()) },
        }
    }
}

fn spin_without(work: bool) {
    if !work {
        spin_loop();
    }
}

/// Repeats an attempt to send until there is space, and tells `idle` after each one whether it was successful.
fn retry<T>(
    idle: impl Fn(bool),
    mut attempt: impl FnMut() -> Result<T, AeronOfferError>,
) -> Result<T> {
    loop {
        match attempt() {
            Ok(done) => {
                idle(true);
                return Ok(done);
            }
            Err(error) if error.is_retryable() => idle(false),
            Err(error) => bail!("cannot send a message: {error}"),
        }
    }
}

fn claim(
    publication: &AeronExclusivePublication,
    len: usize,
    write: impl FnOnce(&mut [u8]),
) -> Result<Result<i64, AeronCError>, AeronOfferError> {
    publication.try_claim_owned(len).map(|mut claim| {
        write(claim.data());
        claim.commit()
    })
}

struct Publishing {
    idle: Idling,
    publication: ManuallyDrop<AeronExclusivePublication>,
}

impl Sender for Publishing {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let idle = |work| self.idle.after(work);
        retry(idle, || self.publication.offer(message)).map(drop)
    }

    fn send_in_place(&mut self, len: usize, write: Write<'_>) -> Result<()> {
        let idle = |work| self.idle.after(work);
        retry(idle, || claim(&self.publication, len, &mut *write))??;
        Ok(())
    }
}

/// Messages that were polled together with an earlier one.
#[derive(Default)]
struct Early {
    bytes: Vec<u8>,
    lens: VecDeque<usize>,
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

/// As the library's own samples: cping and cpong, which offer a message, and poll the image until the reply is back; and the
/// throughput of an exclusive publication over IPC, whose subscriber counts fragments. All are configured as for the adapter.
fn samples(drivers: &Rc<Drivers>, run: &Run) -> Result<Pair> {
    let stream = || drivers.stream(run.size, false);
    run.start(
        [stream()?, stream()?],
        |[forward, backward], role, process| {
            let payload = vec![0xab; run.size];
            match role {
                Role::Requester => {
                    let (requests, replies) = (forward.publishing()?, backward.subscribing()?);
                    process.request(|| {
                        let offer = || requests.publication.offer(&payload);
                        let position = retry(spin_without, offer)?;
                        // The replies have the length of the requests, so both streams have the same positions.
                        while replies.image.position() < position {
                            let look = |reply: &[u8], _| _ = black_box(reply.first());
                            if replies.image.poll_fn(look, FRAGMENT_LIMIT)? == 0 {
                                spin_loop();
                            }
                        }
                        Ok(())
                    })
                }
                Role::Replier => {
                    let (requests, replies) = (forward.subscribing()?, backward.publishing()?);
                    let mut rest = 0;
                    process.reply(|| {
                        let mut outcome = Ok(());
                        let count = poll(&requests.image, run.size, &mut rest, |request| {
                            if outcome.is_ok() {
                                outcome = echo(&replies.publication, request);
                            }
                        })?;
                        outcome.map(|()| count)
                    })
                }
                Role::Source => {
                    let messages = forward.publishing()?;
                    let offer = || messages.publication.offer(&payload);
                    process.send(|| retry(spin_without, offer).map(drop))
                }
                Role::Sink => {
                    let messages = forward.subscribing()?;
                    let mut rest = 0;
                    process.receive(|| poll(&messages.image, run.size, &mut rest, |_| {}))
                }
            }
        },
    )
}

/// Replies in place, as cpong does.
fn echo(publication: &AeronExclusivePublication, request: &[u8]) -> Result<()> {
    let write = |space: &mut [u8]| space.copy_from_slice(request);
    let reply = || claim(publication, request.len(), write);
    retry(spin_without, reply)??;
    Ok(())
}

/// Polls until a fragment arrives. Returns the number of complete messages; `rest` counts the bytes of a message that is not.
fn poll(
    image: &AeronImage,
    size: usize,
    rest: &mut usize,
    mut visit: impl FnMut(&[u8]),
) -> Result<u64> {
    let mut bytes = *rest;
    let mut count = |fragment: &[u8], _| {
        bytes += fragment.len();
        visit(fragment);
    };
    while image.poll_fn(&mut count, FRAGMENT_LIMIT)? == 0 {
        spin_loop();
    }
    *rest = bytes % size;
    Ok((bytes / size) as u64)
}
