// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two containers together: orders to them, and what they answer.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sluice_testkit::{cgroup, interrupt};

use crate::bundle::{Bundle, Spec, USER};
use crate::container::{Container, Word};
use crate::handing::Handing;
use crate::protocol::{Event, Order};
use crate::staging::Staged;

pub const NAMES: [&str; 2] = ["a", "b"];
/// Without a word from any container for so long, something is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Crew {
    // Dropped in this order: the cgroups can go only when the containers have gone.
    containers: [Container; 2],
    _cgroups: Cgroups,
    words: Receiver<(usize, Word)>,
    remarks: [Vec<String>; 2],
    handing: Option<Handing>,
}

impl Crew {
    pub fn start(staged: &[Staged; 2], rootfs: &Path, folder: &Path) -> Result<Self> {
        let cgroups = Cgroups::new()?;
        let (handing, reader) = Handing::prepare(&cgroups.root(), folder)?;
        let shared = folder.join("shared");
        fs::create_dir(&shared).context("cannot make the shared directory")?;
        chown(&shared, Some(USER), Some(USER)).context("cannot hand over the shared directory")?;
        let (sender, words) = channel();
        let start = |index: usize, preserved: Option<OwnedFd>| {
            let name = NAMES[index];
            let spec = Spec {
                name,
                cgroup: &cgroups.path_of(name),
                input: &staged[index].path,
                handed: preserved.is_some(),
                socket: &handing.socket,
                shared: &shared,
            };
            let bundle = Bundle::create(&spec, rootfs, folder.join(format!("bundle-{name}")))?;
            let words = sender.clone();
            Container::start(index, &bundle, &folder.join("crun"), preserved, words)
        };
        let containers = [start(0, None)?, start(1, Some(reader))?];
        Ok(Self {
            containers,
            _cgroups: cgroups,
            words,
            remarks: [Vec::new(), Vec::new()],
            handing: Some(handing),
        })
    }

    /// Gives the write end of the channel above both to the container that comes for it.
    pub fn hand_over(&mut self) -> Result<()> {
        let handing = self
            .handing
            .take()
            .context("the write end has been given")?;
        handing.give()
    }

    pub fn container(&self, index: usize) -> &Container {
        &self.containers[index]
    }

    pub fn order(&mut self, index: usize, order: &Order) -> Result<()> {
        self.containers[index].order(order)
    }

    pub fn order_both(&mut self, order: &Order) -> Result<()> {
        self.containers
            .iter_mut()
            .try_for_each(|container| container.order(order))
    }

    /// The next event of either container. A failure inside one is an error here.
    pub fn next(&mut self) -> Result<(usize, Event)> {
        loop {
            let (index, word) = self.next_word()?;
            match word {
                Word::Remark(text) => self.remarks[index].push(text),
                Word::End => bail!(
                    "container {} ended before its time: {}",
                    NAMES[index],
                    self.said(index)
                ),
                Word::Event(Event::Failed { message }) => {
                    bail!("inside container {}: {message}", NAMES[index])
                }
                Word::Event(event) => return Ok((index, event)),
            }
        }
    }

    /// The next event, which has to come from this container.
    pub fn next_of(&mut self, expected: usize) -> Result<Event> {
        let (index, event) = self.next()?;
        if index != expected {
            bail!("container {} spoke out of turn: {event:?}", NAMES[index]);
        }
        Ok(event)
    }

    fn next_word(&self) -> Result<(usize, Word)> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            interrupt::check()?;
            match self.words.recv_timeout(Duration::from_millis(200)) {
                Ok(word) => return Ok(word),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(_) => bail!(
                    "no container has said anything for {} s: bytes may be stuck; 'dmesg | tail' may say why",
                    PATIENCE.as_secs()
                ),
            }
        }
    }

    fn said(&self, index: usize) -> String {
        match self.remarks[index].as_slice() {
            [] => "it said nothing; 'dmesg | tail' may say why".into(),
            remarks => remarks.join("; "),
        }
    }
}

/// The cgroups that crun makes for the containers, below one of our own.
struct Cgroups {
    mount: PathBuf,
    name: String,
}

impl Cgroups {
    fn new() -> Result<Self> {
        let cgroups = Self {
            mount: cgroup::mount_point()?,
            name: format!("sluice-demo-{}", std::process::id()),
        };
        let root = cgroups.root();
        fs::create_dir(&root)
            .with_context(|| format!("cannot make the cgroup {}", root.display()))?;
        Ok(cgroups)
    }

    fn root(&self) -> PathBuf {
        self.mount.join(&self.name)
    }

    /// As the container runtime wants it: below the hierarchy's root.
    fn path_of(&self, container: &str) -> String {
        format!("/{}/{container}", self.name)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        let containers = NAMES.map(|name| self.root().join(name));
        for cgroup in containers.iter().chain([&self.root()]) {
            if let Err(error) = cgroup::remove_when_empty(cgroup) {
                eprintln!("{error:#}");
            }
        }
    }
}
