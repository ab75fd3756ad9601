// SPDX-License-Identifier: MIT OR Apache-2.0
//! iceoryx2: publish and subscribe over loaned samples, as in its own benchmark: one publisher, one subscriber that
//! polls, no history, and the next sample loaned while the reply is in flight. Unlike there, unreceived samples are
//! never overwritten, because every message counts.
//!
//! With events, as in its examples, the publisher notifies the subscriber after each sample, and a subscriber that finds
//! none waits for a notification.

mod program;

use std::fs;
use std::hint::spin_loop;
use std::mem::MaybeUninit;
use std::path::Path as FilePath;
use std::rc::Rc;
use std::slice;
use std::thread::yield_now;
use std::time::{Duration, Instant};

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

use super::link::{Read, Write, ensure_fits};
use super::mechanism::{memory_directory, never_sleeping, no_file};
use super::temp_paths::TempPaths;
use super::{Batching, Link, Mechanism, Receiver, Sender, own_program};
use crate::harness::server::START_TIMEOUT;
use crate::harness::waiting::Waiting;
use program::PublishSubscribe;

/// The total size of samples in flight, within limits on their number.
const CAPACITY: usize = 4 << 20;
const MIN_SAMPLES: usize = 8;
const MAX_SAMPLES: usize = 1024;
/// The time limit for the peer to connect.
const TIMEOUT: Duration = START_TIMEOUT;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Polling,
    Events,
}

pub fn mechanism(mode: Mode) -> Mechanism {
    let waiting = match mode {
        Mode::Polling => Waiting::Spin,
        Mode::Events => Waiting::Sleep,
    };
    let files = Rc::new(Files(TempPaths::in_directory(std::env::temp_dir())));
    let own_program = match mode {
        Mode::Polling => own_program::erased(PublishSubscribe(Rc::clone(&files))),
        Mode::Events => None,
    };
    Mechanism {
        own_program,
        label: match mode {
            Mode::Polling => "iceoryx2 (spins)".into(),
            Mode::Events => "iceoryx2 (events)".into(),
        },
        batching: Some(Batching::OneByOne),
        in_flight: Box::new(buffered_samples),
        in_place: true,
        unsupported_reason: Box::new(match mode {
            Mode::Polling => never_sleeping,
            Mode::Events => no_file,
        }),
        ..Mechanism::new("iceoryx2", waiting, move |size| {
            let topic = files.topic(size, mode)?;
            Ok(Link::new(topic, Topic::sender, Topic::receiver))
        })
    }
}

/// The length of a subscriber's buffer, for samples of this size.
fn buffered_samples(size: usize) -> usize {
    (CAPACITY / size).clamp(MIN_SAMPLES, MAX_SAMPLES)
}

/// The root of its files.
struct Files(TempPaths);

impl Files {
    /// A service of its own.
    fn topic(&self, size: usize, mode: Mode) -> Result<Topic> {
        let service = self.0.next_path()?;
        let service = service.file_name().and_then(|name| name.to_str());
        Ok(Topic {
            config: config(self.0.directory()?)?,
            service: service.context("the path has no file name")?.into(),
            size,
            mode,
            connected: Rc::new(SharedWords::new(1)?),
        })
    }
}

impl Drop for Files {
    /// Removes the shared memory of killed processes, which the library would remove only at its next start.
    fn drop(&mut self) {
        let remove_files = || -> Result<()> {
            let prefix = prefix(self.0.directory()?)?;
            for entry in fs::read_dir(memory_directory())? {
                let entry = entry?;
                if entry
                    .file_name()
                    .as_encoded_bytes()
                    .starts_with(prefix.as_bytes())
                {
                    fs::remove_file(entry.path())?;
                }
            }
            Ok(())
        };
        if let Err(error) = remove_files() {
            eprintln!(
                "cannot remove the files of iceoryx2 in {}: {error:#}",
                memory_directory().display()
            );
        }
    }
}

/// The prefix of its files in the memory directory, which all users share.
fn prefix(root: &FilePath) -> Result<String> {
    let name = root.file_name().and_then(|name| name.to_str());
    Ok(format!(
        "{}_",
        name.context("the root of iceoryx2's files has no name")?
    ))
}

fn config(root: &FilePath) -> Result<Config> {
    let unusable = |error| anyhow!("iceoryx2 cannot use {}: {error:?}", root.display());
    let mut config = Config::default();
    let path = Path::new(root.as_os_str().as_encoded_bytes()).map_err(unusable)?;
    config.global.set_root_path(&path);
    config.global.prefix = FileName::new(prefix(root)?.as_bytes()).map_err(unusable)?;
    Ok(config)
}

type Events = event::PortFactory<ipc::Service>;
type Bytes = PortFactory<ipc::Service, [u8], ()>;
type Sample = SampleMutUninit<ipc::Service, [MaybeUninit<u8>], ()>;

pub struct Topic {
    config: Config,
    service: String,
    size: usize,
    mode: Mode,
    /// Whether the receiver has found the sender. One that looks for it only after it has gone gets none of its messages.
    connected: Rc<SharedWords>,
}

impl Topic {
    /// Must be called after the fork.
    fn open(&self) -> Result<(Node<ipc::Service>, Bytes)> {
        set_log_level(LogLevel::Fatal);
        let node = NodeBuilder::new()
            .config(&self.config)
            .signal_handling_mode(SignalHandlingMode::Disabled)
            .create::<ipc::Service>()
            .context("cannot create an iceoryx2 node")?;
        let name = ServiceName::new(&self.service)?;
        let service = node
            .service_builder(&name)
            .publish_subscribe::<[u8]>()
            .max_publishers(1)
            .max_subscribers(1)
            .max_nodes(2)
            .history_size(0)
            .subscriber_max_buffer_size(buffered_samples(self.size))
            .enable_safe_overflow(false)
            .open_or_create()
            .context("cannot open an iceoryx2 service")?;
        Ok((node, service))
    }

    /// The service of the notifications; None if the receiver polls.
    fn events(&self, node: &Node<ipc::Service>) -> Result<Option<Events>> {
        if self.mode == Mode::Polling {
            return Ok(None);
        }
        let name = ServiceName::new(&self.service)?;
        let service = node
            .service_builder(&name)
            .event()
            .max_notifiers(1)
            .max_listeners(1)
            .max_nodes(2)
            .open_or_create();
        service
            .context("cannot open an event service of iceoryx2")
            .map(Some)
    }
}

/// The first message. It shows that the connection is established, so that this is not measured. Later it marks the end
/// of the stream.
const EMPTY: &[u8] = b"";

impl Topic {
    fn sender(self) -> Result<Sending> {
        self.publishing().map(Sending)
    }

    /// Connected to the receiver.
    fn publishing(self) -> Result<Publishing> {
        let (node, service) = self.open()?;
        let events = self.events(&node)?;
        let notifier = events.map(|events| events.notifier_builder().create());
        let notifier = notifier
            .transpose()
            .context("cannot create an iceoryx2 notifier")?;
        let publisher = service
            .publisher_builder()
            .initial_max_slice_len(self.size)
            .max_loaned_samples(2)
            // It yields 10,000 times before it sleeps, longer than the receiver leaves it without space.
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()
            .context("cannot create an iceoryx2 publisher")?;
        let mut publishing = Publishing {
            next: None,
            size: self.size,
            publisher,
            notifier,
            _node: node,
        };
        let deadline = Instant::now() + TIMEOUT;
        await_peer("receiver", deadline, || Ok(publishing.publish(EMPTY)? > 0))?;
        await_peer("receiver", deadline, || Ok(self.connected.get(0) != 0))?;
        Ok(publishing)
    }

    fn receiver(self) -> Result<Subscribing> {
        let (node, service) = self.open()?;
        let events = self.events(&node)?;
        let listener = events.map(|events| events.listener_builder().create());
        let listener = listener
            .transpose()
            .context("cannot create an iceoryx2 listener")?;
        let subscriber = service
            .subscriber_builder()
            .create()
            .context("cannot create an iceoryx2 subscriber")?;
        let deadline = Instant::now() + TIMEOUT;
        await_peer("sender", deadline, || Ok(subscriber.receive()?.is_some()))?;
        self.connected.set(0, 1);
        Ok(Subscribing {
            subscriber,
            listener,
            ended: false,
            _node: node,
        })
    }
}

fn await_peer(
    peer: &str,
    deadline: Instant,
    mut is_connected: impl FnMut() -> Result<bool>,
) -> Result<()> {
    while !is_connected()? {
        ensure!(
            Instant::now() < deadline,
            "the {peer} did not connect in time"
        );
        yield_now();
    }
    Ok(())
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
    /// Returns the number of receivers.
    fn publish(&mut self, message: &[u8]) -> Result<usize> {
        let sample = self.loan(message.len())?;
        self.send(sample.write_from_slice(message))
    }

    fn publish_in_place(&mut self, len: usize, write: Write<'_>) -> Result<usize> {
        let mut sample = self.loan(len)?;
        let bytes = sample.payload_mut();
        // SAFETY: they are as many, of shared memory that the system has zeroed or an earlier message has filled, and any bytes
        // are valid.
        write(unsafe { slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) });
        // SAFETY: all were initialised, as above.
        self.send(unsafe { sample.assume_init() })
    }

    fn loan(&mut self, len: usize) -> Result<Sample> {
        let loaned = self.next.take();
        match loaned.filter(|sample| sample.payload().len() == len) {
            Some(sample) => Ok(sample),
            None => Ok(self.publisher.loan_slice_uninit(len)?),
        }
    }

    fn send(&mut self, sample: SampleMut<ipc::Service, [u8], ()>) -> Result<usize> {
        let receivers = sample.send()?;
        if let Some(notifier) = &self.notifier {
            notifier.notify()?;
        }
        Ok(receivers)
    }
}

/// Ends the stream when dropped.
struct Sending(Publishing);

impl Sending {
    /// After the receivers of a message were counted.
    fn loan_next(&mut self, receivers: usize) -> Result<()> {
        ensure!(receivers == 1, "the receiver has ended");
        let publishing = &mut self.0;
        publishing.next = Some(publishing.publisher.loan_slice_uninit(publishing.size)?);
        Ok(())
    }
}

impl Sender for Sending {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let receivers = self.0.publish(message)?;
        self.loan_next(receivers)
    }

    fn send_in_place(&mut self, len: usize, write: Write<'_>) -> Result<()> {
        let receivers = self.0.publish_in_place(len, write)?;
        self.loan_next(receivers)
    }
}

impl Drop for Sending {
    /// If the receiver misses the end, the harness kills it.
    fn drop(&mut self) {
        let _ = self.0.publish(EMPTY);
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
            Some(listener) => {
                listener.blocking_wait(|_| {})?;
            }
        }
        Ok(())
    }
}

impl Receiver for Subscribing {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let mut len = 0;
        self.receive_in_place(&mut |received| {
            len = received.len();
            ensure_fits(len, message.len())?;
            message[..len].copy_from_slice(received);
            Ok(())
        })?;
        Ok(len)
    }

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
        self.ended = received == EMPTY;
        if self.ended {
            return Ok(0);
        }
        read(received)?;
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_killed_processes_are_removed() {
        let files = Files(TempPaths::in_directory(std::env::temp_dir()));
        let root = files.0.directory().unwrap().to_owned();
        let prefix = prefix(&root).unwrap();
        let topic = Topic {
            config: config(&root).unwrap(),
            service: "one".into(),
            size: 8,
            mode: Mode::Polling,
            connected: Rc::new(SharedWords::new(1).unwrap()),
        };
        let left = || {
            let names = fs::read_dir(memory_directory()).unwrap();
            names
                .filter(|entry| {
                    let name = entry.as_ref().unwrap().file_name();
                    name.as_encoded_bytes().starts_with(prefix.as_bytes())
                })
                .count()
        };
        std::mem::forget(topic.open().unwrap());
        assert!(left() > 0);
        drop(files);
        assert_eq!(left(), 0);
        assert!(!root.exists());
    }
}
