// SPDX-License-Identifier: MIT OR Apache-2.0
//! iceoryx2: publish and subscribe over loaned samples, as in its own benchmark: one publisher, one subscriber that polls, no history, and
//! the next sample loaned while the reply is in flight. Unlike there, unreceived samples are never overwritten, because every message
//! counts. With events, as in its examples, the publisher notifies the subscriber after each sample, for which it waits.

use std::ffi::OsStr;
use std::fs;
use std::hint::{black_box, spin_loop};
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::slice;

use anyhow::{Context, Result, anyhow, ensure};
use iceoryx2::node::Node;
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::sample_mut::SampleMut;
use iceoryx2::sample_mut_uninit::SampleMutUninit;
use iceoryx2::service::port_factory::event;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;
use sluice_testkit::shared::SharedWords;
use sluice_testkit::workers::Pair;

use super::link::{MarksEnd, Read, Write, await_peer};
use super::own_program::{Role, Run, own_program};
use super::temp_paths::{MEMORY, TempPaths};
use super::{Batching, Link, Mechanism, Receiver, Sender};
use crate::harness::waiting::Waiting;

/// The total size of samples in flight, within limits on their number.
const CAPACITY: usize = 4 << 20;
const MIN_SAMPLES: usize = 8;
const MAX_SAMPLES: usize = 1024;

pub fn mechanisms() -> [Mechanism; 2] {
    let events = mechanism(Waiting::Sleep).labelled("iceoryx2 (events)");
    [mechanism(Waiting::Spin), events]
}

fn mechanism(waiting: Waiting) -> Mechanism {
    let files = Files::new();
    let polls = waiting == Waiting::Spin;
    Mechanism {
        own_program: polls.then(|| own_program(&files, publish_subscribe)),
        batching: Some(Batching::OneByOne),
        in_flight: Box::new(buffered_samples),
        in_place: true,
        never_sleeps: polls,
        ..Mechanism::new("iceoryx2", waiting, move |size| {
            Ok(Link::new(
                files.topic(size, waiting)?,
                |topic| topic.publishing().map(MarksEnd),
                Topic::subscribing,
            ))
        })
    }
}

/// The length of a subscriber's buffer, for samples of this size.
fn buffered_samples(size: usize) -> usize {
    (CAPACITY / size).clamp(MIN_SAMPLES, MAX_SAMPLES)
}

pub struct Files(TempPaths);

impl Files {
    pub fn new() -> Rc<Self> {
        Rc::new(Self(TempPaths::in_directory(std::env::temp_dir())))
    }

    pub fn topic(&self, size: usize, waiting: Waiting) -> Result<Topic> {
        let root = self.0.directory()?;
        let unusable = |error| anyhow!("iceoryx2 cannot use {}: {error:?}", root.display());
        let path = Path::new(root.as_os_str().as_encoded_bytes()).map_err(unusable)?;
        let mut config = Config::default();
        config.global.set_root_path(&path);
        config.global.prefix = FileName::new(self.prefix()?.as_bytes()).map_err(unusable)?;
        Ok(Topic {
            config,
            service: self.0.next_path()?.display().to_string(),
            size,
            waiting,
            told: SharedWords::new(1)?,
        })
    }

    /// Of its files in the memory directory, which all users share.
    fn prefix(&self) -> Result<String> {
        let name = self.0.directory()?.file_name().and_then(OsStr::to_str);
        let name = name.context("the root of iceoryx2's files has no name")?;
        Ok(format!("{name}_"))
    }

    fn remove_from_memory(&self) -> Result<()> {
        let prefix = self.prefix()?;
        for entry in fs::read_dir(MEMORY)? {
            let entry = entry?;
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(prefix.as_bytes()) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for Files {
    /// Removes the shared memory of killed processes, which the library would remove only at its next start.
    fn drop(&mut self) {
        if let Err(error) = self.remove_from_memory() {
            eprintln!("cannot remove the files of iceoryx2 in {MEMORY}: {error:#}");
        }
    }
}

type Events = event::PortFactory<ipc::Service>;
type Bytes = PortFactory<ipc::Service, [u8], ()>;
type Sample = SampleMutUninit<ipc::Service, [MaybeUninit<u8>], ()>;
type Written = SampleMut<ipc::Service, [u8], ()>;

pub struct Topic {
    config: Config,
    service: String,
    pub size: usize,
    waiting: Waiting,
    /// Whether the receiver has told the sender that it may go: what a receiver has not found by then it does not get.
    told: SharedWords,
}

impl Topic {
    /// Must be called after the fork.
    pub fn node(&self) -> Result<(Node<ipc::Service>, ServiceName)> {
        set_log_level(LogLevel::Fatal);
        let node = NodeBuilder::new()
            .config(&self.config)
            .signal_handling_mode(SignalHandlingMode::Disabled)
            .create::<ipc::Service>()?;
        Ok((node, ServiceName::new(&self.service)?))
    }

    /// By the receiver, when it has found the sender, or the sender's last message.
    pub fn tell_peer(&self) {
        self.told.set(0, 1);
    }

    pub fn await_peer(&self, peer: &str) -> Result<()> {
        await_peer(peer, || Ok((self.told.get(0) != 0).then_some(())))
    }

    /// There are no events if the receiver polls.
    fn open(&self) -> Result<(Node<ipc::Service>, Bytes, Option<Events>)> {
        let (node, name) = self.node()?;
        let service = node
            .service_builder(&name)
            .publish_subscribe::<[u8]>()
            .max_publishers(1)
            .max_subscribers(1)
            .max_nodes(2)
            .history_size(0)
            .subscriber_max_buffer_size(buffered_samples(self.size))
            .enable_safe_overflow(false)
            .open_or_create()?;
        let events = match self.waiting {
            Waiting::Spin => None,
            Waiting::Sleep => {
                let events = node.service_builder(&name).event();
                let events = events.max_notifiers(1).max_listeners(1).max_nodes(2);
                Some(events.open_or_create()?)
            }
        };
        Ok((node, service, events))
    }

    /// Connected to the receiver.
    fn publishing(self) -> Result<Publishing> {
        let (node, service, events) = self.open()?;
        let publisher = service
            .publisher_builder()
            .initial_max_slice_len(self.size)
            .max_loaned_samples(2)
            // It yields 10,000 times before it sleeps, longer than the receiver leaves it without space.
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()?;
        let notifier = events.map(|events| events.notifier_builder().create());
        let mut publishing = Publishing {
            next: None,
            size: self.size,
            publisher,
            notifier: notifier.transpose()?,
            _node: node,
        };
        // It shows that the connection is established, so that this is not measured.
        await_peer("receiver", || {
            let sample = publishing.loan(0)?.write_from_slice(&[]);
            Ok((publishing.publish(sample)? > 0).then_some(()))
        })?;
        self.await_peer("receiver")?;
        Ok(publishing)
    }

    fn subscribing(self) -> Result<Subscribing> {
        let (node, service, events) = self.open()?;
        let listener = events.map(|events| events.listener_builder().create());
        let subscriber = service.subscriber_builder().create()?;
        await_peer("sender", || Ok(subscriber.receive()?))?;
        self.tell_peer();
        Ok(Subscribing {
            subscriber,
            listener: listener.transpose()?,
            ended: false,
            _node: node,
        })
    }
}

struct Publishing {
    /// Loaned before its content is known.
    next: Option<Sample>,
    size: usize,
    publisher: Publisher<ipc::Service, [u8], ()>,
    notifier: Option<Notifier<ipc::Service>>,
    _node: Node<ipc::Service>,
}

impl Publishing {
    fn loan(&mut self, len: usize) -> Result<Sample> {
        let loaned = self.next.take();
        match loaned.filter(|sample| sample.payload().len() == len) {
            Some(sample) => Ok(sample),
            None => Ok(self.publisher.loan_slice_uninit(len)?),
        }
    }

    /// Returns the number of receivers.
    fn publish(&mut self, sample: Written) -> Result<usize> {
        let receivers = sample.send()?;
        if let Some(notifier) = &self.notifier {
            notifier.notify()?;
        }
        Ok(receivers)
    }

    fn publish_and_loan(&mut self, sample: Written) -> Result<()> {
        let receivers = self.publish(sample)?;
        ensure!(receivers == 1, "the receiver has ended");
        self.loan_next()
    }

    fn loan_next(&mut self) -> Result<()> {
        self.next = Some(self.publisher.loan_slice_uninit(self.size)?);
        Ok(())
    }

    fn send_unwritten(&mut self) -> Result<()> {
        if let Some(sample) = self.next.take() {
            // SAFETY: bytes of shared memory, which the library has zeroed, and every value is a byte.
            unsafe { sample.assume_init() }.send()?;
        }
        self.loan_next()
    }
}

impl Sender for Publishing {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let sample = self.loan(message.len())?.write_from_slice(message);
        self.publish_and_loan(sample)
    }

    fn send_in_place(&mut self, len: usize, write: Write<'_>) -> Result<()> {
        let mut sample = self.loan(len)?;
        let bytes = sample.payload_mut();
        // SAFETY: they are as many, of memory that the system has zeroed or an earlier message has filled; any bytes are valid.
        write(unsafe { slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) });
        // SAFETY: all of them have a value.
        self.publish_and_loan(unsafe { sample.assume_init() })
    }
}

struct Subscribing {
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    listener: Option<Listener<ipc::Service>>,
    ended: bool,
    _node: Node<ipc::Service>,
}

impl Subscribing {
    /// Earlier notifications, of samples that were received without waiting, end the wait at once.
    fn wait(&self) -> Result<()> {
        match &self.listener {
            None => spin_loop(),
            Some(listener) => listener.blocking_wait(|_| {}).map(drop)?,
        }
        Ok(())
    }
}

impl Receiver for Subscribing {
    fn receive_in_place(&mut self, read: Read<'_>) -> Result<usize> {
        if self.ended {
            return Ok(0);
        }
        let sample = loop {
            match self.subscriber.receive()? {
                Some(sample) => break sample,
                None => self.wait()?,
            }
        };
        let received = sample.payload();
        self.ended = received.is_empty();
        if self.ended {
            return Ok(0);
        }
        read(received)?;
        Ok(1)
    }
}

/// As the library's own benchmark of publish and subscribe: loaned samples that are not written, the next one loaned while
/// the reply is in flight, and subscribers that poll. Streams are as in its examples: a loaned sample is written and
/// sent, and the subscriber looks at it in place. The services are the adapter's, so no sample is overwritten.
fn publish_subscribe(files: &Rc<Files>, run: &Run) -> Result<Pair> {
    let topic = || files.topic(run.size, Waiting::Spin);
    run.start(
        [topic()?, topic()?],
        |[forward, backward], role, process| match role {
            Role::Requester => {
                let (mut publishing, replies) = (forward.publishing()?, backward.subscribing()?);
                publishing.loan_next()?;
                process.request(|| {
                    publishing.send_unwritten()?;
                    poll(&replies)
                })
            }
            Role::Replier => {
                let (requests, mut publishing) = (forward.subscribing()?, backward.publishing()?);
                publishing.loan_next()?;
                process.reply(|| {
                    poll(&requests)?;
                    publishing.send_unwritten()?;
                    Ok(1)
                })
            }
            Role::Source => {
                let payload = vec![0xab; run.size];
                let publishing = forward.publishing()?;
                process.send(|| {
                    let sample = publishing.publisher.loan_slice_uninit(run.size)?;
                    sample.write_from_slice(&payload).send()?;
                    Ok(())
                })
            }
            Role::Sink => {
                let messages = forward.subscribing()?;
                process.receive(|| {
                    loop {
                        if let Some(sample) = messages.subscriber.receive()? {
                            black_box(sample.payload().first());
                            return Ok(1);
                        }
                    }
                })
            }
        },
    )
}

fn poll(subscribing: &Subscribing) -> Result<()> {
    while subscribing.subscriber.receive()?.is_none() {}
    Ok(())
}
