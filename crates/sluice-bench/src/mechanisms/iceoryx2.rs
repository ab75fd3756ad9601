// SPDX-License-Identifier: MIT OR Apache-2.0
//! iceoryx2: publish and subscribe over loaned samples. As its own measurement has it: one publisher, one subscriber that asks
//! again and again, no history, and the next sample loaned while the answer is on its way. Other than there nothing is ever
//! overwritten that was not received, since here every message counts.

use std::fs;
use std::hint::spin_loop;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::path::Path as FilePath;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use iceoryx2::node::Node;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::sample_mut_uninit::SampleMutUninit;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;

use super::places::Places;
use super::{
    Batching, Link, Mechanism, Receiver, Sender, Task, Waiting, memory_folder, never_sleeping,
};

/// What the messages on the way may take together, within bounds for how many they are.
const CAPACITY: usize = 4 << 20;
const FEWEST: usize = 64;
const MOST: usize = 1024;
/// Until the other side is there.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Iceoryx2 {
    /// The root of its files.
    places: Places,
}

impl Iceoryx2 {
    pub fn new() -> Self {
        Self {
            places: Places::below(std::env::temp_dir()),
        }
    }
}

impl Mechanism for Iceoryx2 {
    fn name(&self) -> &'static str {
        "iceoryx2"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Spin
    }

    fn obstacle(&self, task: &Task) -> Option<String> {
        never_sleeping(task)
    }

    fn batching(&self) -> Option<Batching> {
        Some(Batching::OneByOne)
    }

    fn link(&self, size: usize) -> Result<Box<dyn Link>> {
        let service = self.places.fresh()?;
        let service = service.file_name().and_then(|name| name.to_str());
        Ok(Box::new(Topic {
            config: config(self.places.directory()?)?,
            service: service.context("the name of a service is a number")?.into(),
            size,
        }))
    }
}

impl Drop for Iceoryx2 {
    /// Whoever was killed has left its shared memory behind, which its library would only remove at its next start.
    fn drop(&mut self) {
        let left_behind = || -> Result<()> {
            let prefix = prefix(self.places.directory()?)?;
            for entry in fs::read_dir(memory_folder())? {
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
        if let Err(error) = left_behind() {
            eprintln!(
                "cannot remove what iceoryx2 left in {}: {error:#}",
                memory_folder().display()
            );
        }
    }
}

/// Of the names in the memory folder, which is everyone's.
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

type Bytes = PortFactory<ipc::Service, [u8], ()>;
type Sample = SampleMutUninit<ipc::Service, [MaybeUninit<u8>], ()>;

struct Topic {
    config: Config,
    service: String,
    size: usize,
}

impl Topic {
    /// To be called after the fork.
    fn open(&self) -> Result<(Node<ipc::Service>, Bytes)> {
        set_log_level(LogLevel::Fatal);
        let node = NodeBuilder::new()
            .config(&self.config)
            .signal_handling_mode(SignalHandlingMode::Disabled)
            .create::<ipc::Service>()
            .context("cannot make an iceoryx2 node")?;
        let name = ServiceName::new(&self.service)?;
        let service = node
            .service_builder(&name)
            .publish_subscribe::<[u8]>()
            .max_publishers(1)
            .max_subscribers(1)
            .max_nodes(2)
            .history_size(0)
            .subscriber_max_buffer_size((CAPACITY / self.size).clamp(FEWEST, MOST))
            .enable_safe_overflow(false)
            .open_or_create()
            .context("cannot open an iceoryx2 service")?;
        Ok((node, service))
    }
}

/// The first message. Whoever has it knows that the connection stands, so that making it is not measured. Later it means
/// that nothing more will come.
const NOTHING: &[u8] = b"";

impl Link for Topic {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        let (node, service) = self.open()?;
        let publisher = service
            .publisher_builder()
            .initial_max_slice_len(self.size)
            .max_loaned_samples(2)
            // The other strategy sleeps when the receiver has no room.
            .backpressure_strategy(BackpressureStrategy::DiscardData)
            .create()
            .context("cannot make an iceoryx2 publisher")?;
        let mut publishing = Publishing {
            next: None,
            size: self.size,
            publisher,
            _node: node,
        };
        let deadline = Instant::now() + PATIENCE;
        while publishing.publish(NOTHING)? == 0 {
            ensure!(Instant::now() < deadline, "no receiver came");
            sleep(Duration::from_millis(1));
        }
        Ok(Box::new(publishing))
    }

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
        let (node, service) = self.open()?;
        let subscriber = service
            .subscriber_builder()
            .create()
            .context("cannot make an iceoryx2 subscriber")?;
        let deadline = Instant::now() + PATIENCE;
        while subscriber.receive()?.is_none() {
            ensure!(Instant::now() < deadline, "no sender came");
            sleep(Duration::from_millis(1));
        }
        Ok(Box::new(Subscribing {
            subscriber,
            ended: false,
            _node: node,
        }))
    }
}

struct Publishing {
    /// Loaned before it is known what it will hold.
    next: Option<Sample>,
    size: usize,
    publisher: Publisher<ipc::Service, [u8], ()>,
    _node: Node<ipc::Service>,
}

impl Publishing {
    /// Returns how many have it now.
    fn publish(&mut self, message: &[u8]) -> Result<usize> {
        let loaned = self.next.take();
        let sample = match loaned.filter(|sample| sample.payload().len() == message.len()) {
            Some(sample) => sample,
            None => self.publisher.loan_slice_uninit(message.len())?,
        };
        Ok(sample.write_from_slice(message).send()?)
    }

    /// Again and again, where the receiver has no room.
    fn publish_at_last(&mut self, message: &[u8]) -> Result<()> {
        const TRIES_PER_LOOK: u32 = 1 << 16;
        let mut deadline = None;
        let mut tries: u32 = 0;
        while self.publish(message)? == 0 {
            spin_loop();
            tries = tries.wrapping_add(1);
            if tries.is_multiple_of(TRIES_PER_LOOK) {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
                ensure!(Instant::now() < deadline, "the receiver has ended");
            }
        }
        Ok(())
    }
}

impl Sender for Publishing {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.publish_at_last(message)?;
        self.next = Some(self.publisher.loan_slice_uninit(self.size)?);
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for Publishing {
    /// A receiver that does not get it is ended by the harness.
    fn drop(&mut self) {
        let _ = self.publish_at_last(NOTHING);
    }
}

struct Subscribing {
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    ended: bool,
    _node: Node<ipc::Service>,
}

impl Receiver for Subscribing {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        if self.ended {
            return Ok(0);
        }
        let sample = loop {
            match self.subscriber.receive()? {
                Some(sample) => break sample,
                None => spin_loop(),
            }
        };
        let received = sample.payload();
        ensure!(
            received.len() <= message.len(),
            "a message of {} bytes does not fit where {} were expected",
            received.len(),
            message.len()
        );
        message[..received.len()].copy_from_slice(received);
        self.ended = received == NOTHING;
        Ok(received.len())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_killed_leave_behind_goes_with_the_mechanism() {
        let mechanism = Iceoryx2::new();
        let root = mechanism.places.directory().unwrap().to_owned();
        let prefix = prefix(&root).unwrap();
        let topic = Topic {
            config: config(&root).unwrap(),
            service: "one".into(),
            size: 8,
        };
        let left = || {
            let names = fs::read_dir(memory_folder()).unwrap();
            names
                .filter(|entry| {
                    let name = entry.as_ref().unwrap().file_name();
                    name.as_encoded_bytes().starts_with(prefix.as_bytes())
                })
                .count()
        };
        std::mem::forget(topic.open().unwrap());
        assert!(left() > 0);
        drop(mechanism);
        assert_eq!(left(), 0);
        assert!(!root.exists());
    }
}
