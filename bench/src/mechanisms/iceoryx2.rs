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

use super::link::{MarksEnd, Read, Write};
use super::temp_paths::{TempPaths, memory_directory};
use super::third_party::await_peer;
use super::{Batching, Link, Mechanism, Receiver, Sender};
use crate::harness::waiting::Waiting;
use program::PublishSubscribe;

/// The total size of samples in flight, within limits on their number.
const CAPACITY: usize = 4 << 20;
const MIN_SAMPLES: usize = 8;
const MAX_SAMPLES: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Polling,
    Events,
}

pub fn mechanisms() -> [Mechanism; 2] {
    [Mode::Polling, Mode::Events].map(mechanism)
}

fn mechanism(mode: Mode) -> Mechanism {
    let files = Rc::new(Files(TempPaths::in_directory(std::env::temp_dir())));
    let (waiting, label) = match mode {
        Mode::Polling => (Waiting::Spin, "iceoryx2 (spins)"),
        Mode::Events => (Waiting::Sleep, "iceoryx2 (events)"),
    };
    Mechanism {
        own_program: match mode {
            Mode::Polling => Some(Rc::new(PublishSubscribe(Rc::clone(&files)))),
            Mode::Events => None,
        },
        label: label.into(),
        batching: Some(Batching::OneByOne),
        in_flight: Box::new(buffered_samples),
        in_place: true,
        never_sleeps: mode == Mode::Polling,
        ..Mechanism::new("iceoryx2", waiting, move |size| {
            Ok(Link::new(
                files.topic(size, mode)?,
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

/// The root of its files.
struct Files(TempPaths);

impl Files {
    /// A service of its own.
    fn topic(&self, size: usize, mode: Mode) -> Result<Topic> {
        Ok(Topic {
            config: config(self.0.directory()?)?,
            service: self.0.next_path()?.display().to_string(),
            size,
            mode,
            connected: SharedWords::new(1)?,
        })
    }

    fn remove_from_memory(&self) -> Result<()> {
        let prefix = prefix(self.0.directory()?)?;
        for entry in fs::read_dir(memory_directory())? {
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
            let directory = memory_directory();
            let directory = directory.display();
            eprintln!("cannot remove the files of iceoryx2 in {directory}: {error:#}");
        }
    }
}

/// The prefix of its files in the memory directory, which all users share.
fn prefix(root: &FilePath) -> Result<String> {
    let name = root.file_name().and_then(|name| name.to_str());
    let name = name.context("the root of iceoryx2's files has no name")?;
    Ok(format!("{name}_"))
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
type Written = SampleMut<ipc::Service, [u8], ()>;

struct Topic {
    config: Config,
    service: String,
    size: usize,
    mode: Mode,
    /// Whether the receiver has found the sender. One that looks for it only after it has gone gets none of its messages.
    connected: SharedWords,
}

impl Topic {
    /// Must be called after the fork. There are no events if the receiver polls.
    fn open(&self) -> Result<(Node<ipc::Service>, Bytes, Option<Events>)> {
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
        let events = match self.mode {
            Mode::Polling => None,
            Mode::Events => Some(
                node.service_builder(&name)
                    .event()
                    .max_notifiers(1)
                    .max_listeners(1)
                    .max_nodes(2)
                    .open_or_create()
                    .context("cannot open an event service of iceoryx2")?,
            ),
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
            .create()
            .context("cannot create an iceoryx2 publisher")?;
        let notifier = events.map(|events| events.notifier_builder().create());
        let mut publishing = Publishing {
            next: None,
            size: self.size,
            publisher,
            notifier: notifier
                .transpose()
                .context("cannot create an iceoryx2 notifier")?,
            _node: node,
        };
        // It shows that the connection is established, so that this is not measured.
        await_peer("receiver", || {
            let sample = publishing.loan(0)?.write_from_slice(&[]);
            Ok((publishing.publish(sample)? > 0).then_some(()))
        })?;
        await_peer(
            "receiver",
            || Ok((self.connected.get(0) != 0).then_some(())),
        )?;
        Ok(publishing)
    }

    fn subscribing(self) -> Result<Subscribing> {
        let (node, service, events) = self.open()?;
        let listener = events.map(|events| events.listener_builder().create());
        let subscriber = service
            .subscriber_builder()
            .create()
            .context("cannot create an iceoryx2 subscriber")?;
        await_peer("sender", || Ok(subscriber.receive()?))?;
        self.connected.set(0, 1);
        Ok(Subscribing {
            subscriber,
            listener: listener
                .transpose()
                .context("cannot create an iceoryx2 listener")?,
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
        self.next = Some(self.publisher.loan_slice_uninit(self.size)?);
        Ok(())
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
        // SAFETY: they are as many, of shared memory that the system has zeroed or an earlier message has filled, and any bytes
        // are valid.
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
            Some(listener) => {
                listener.blocking_wait(|_| {})?;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_killed_processes_are_removed() {
        let files = Files(TempPaths::in_directory(std::env::temp_dir()));
        let root = files.0.directory().unwrap().to_owned();
        let prefix = prefix(&root).unwrap();
        let left = || {
            let entries = fs::read_dir(memory_directory()).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name());
            let ours = names.filter(|name| name.as_encoded_bytes().starts_with(prefix.as_bytes()));
            ours.count()
        };
        std::mem::forget(files.topic(8, Mode::Polling).unwrap().open().unwrap());
        assert!(left() > 0);
        drop(files);
        assert_eq!(left(), 0);
        assert!(!root.exists());
    }
}
