// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the processes of a storm do, again and again. Their waits have no limit, where a peer that ends must end them.

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use nix::errno::Errno;
use nix::unistd::{read, write};
use sluice::bus::{CallError, Client, RecvError as BusError, SendError as BusSendError, Server};
use sluice::ring::{Consumer, Producer, RecvError, SendError};
use sluice::{Bus, Ring, Scope};

use super::shared_state::SharedState;
use super::{DURABLE, key_of};
use crate::support::bus::{self, BLOCK, DROP, EVICT, broadcast};
use crate::support::channel::{CAPACITY, set_blocking};
use crate::support::ctl::{
    BOTH, CREATE, Ctl, DESTROY, KIND_MAP, KIND_PIPE, KIND_RING, NONBLOCK, OWN, Open, PERSIST, READ,
    UNLINK, WRITE, access_of,
};
use crate::support::daemon::open_durable;
use crate::support::map::{self, Maps};
use crate::support::netlink::{Attrs, Request, Socket, attr, command};
use crate::support::poll;
use crate::support::uring;

/// The name of the pipe and of the ring.
const NAME: &str = "storm";
/// The bus of clients and servers.
const REQUESTS: &str = "requests";
/// The deadline of a durable map, which is shorter than a restart of the daemon may take.
const DEADLINE: Duration = Duration::from_millis(500);
const KEYS: u8 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    PipeReader,
    PipeWriter,
    RingProducer,
    RingConsumer,
    Sender,
    Subscriber,
    Client,
    Server,
    MapWriter,
    MapWatcher,
    Netlink,
    Uring,
    Durable,
    Manager,
}

impl Role {
    pub const ALL: [Self; 14] = [
        Self::PipeReader,
        Self::PipeWriter,
        Self::RingProducer,
        Self::RingConsumer,
        Self::Sender,
        Self::Subscriber,
        Self::Client,
        Self::Server,
        Self::MapWriter,
        Self::MapWatcher,
        Self::Netlink,
        Self::Uring,
        Self::Durable,
        Self::Manager,
    ];

    /// Whether it is killed at the end of a storm: in each cgroup another side.
    pub fn is_killed_last(self, side: usize) -> bool {
        match self {
            Self::PipeReader | Self::RingProducer => side == 0,
            Self::PipeWriter | Self::RingConsumer | Self::Client => side == 1,
            Self::Server => side == 0,
            Self::Uring | Self::Manager => true,
            _ => false,
        }
    }

    /// Whether its waits end when its peers do, or have a limit.
    pub fn ends_with_peer(self) -> bool {
        !matches!(
            self,
            Self::Sender | Self::Subscriber | Self::Server | Self::MapWatcher
        )
    }
}

struct Worker<'a> {
    role: Role,
    cgroup: usize,
    shared: &'a SharedState,
    random: Rng,
    ctl: Ctl,
}

/// Until the storm is over.
pub fn run(role: Role, cgroup: usize, seed: u64, shared: &SharedState) -> Result<()> {
    let mut worker = Worker {
        role,
        cgroup,
        shared,
        random: Rng::with_seed(seed),
        ctl: Ctl::new()?,
    };
    while !shared.has_ended(cgroup) {
        worker.iteration()?;
        worker.pause();
    }
    Ok(())
}

/// Fails if the error is none of these, which others cause by their ends.
fn tolerate<T>(what: &str, result: nix::Result<T>, errors: &[Errno]) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if errors.contains(&error) => Ok(None),
        Err(error) => Err(error).context(what.to_owned()),
    }
}

impl Worker<'_> {
    fn iteration(&mut self) -> Result<()> {
        self.shared.set_peer(self.cgroup, self.role, false);
        match self.role {
            Role::PipeReader => self.read_pipe(),
            Role::PipeWriter => self.write_pipe(),
            Role::RingProducer => self.produce(),
            Role::RingConsumer => self.consume(),
            Role::Sender => self.send(),
            Role::Subscriber => self.receive(),
            Role::Client => self.call(),
            Role::Server => self.serve(),
            Role::MapWriter => self.write_map(),
            Role::MapWatcher => self.watch_map(),
            Role::Netlink => self.use_netlink(),
            Role::Uring => self.wait_in_uring(),
            Role::Durable => self.set_durable(),
            Role::Manager => self.manage(),
        }
    }

    fn step(&mut self) {
        self.shared.count(self.role);
        self.shared.set_peer(self.cgroup, self.role, true);
        self.pause();
    }

    /// Leaves the processors to others, most of the time.
    fn pause(&mut self) {
        if self.random.u8(0..4) > 0 {
            std::thread::sleep(Duration::from_micros(self.random.u64(0..2000)));
        }
    }

    fn times(&mut self) -> usize {
        self.random.usize(1..=20)
    }

    // ---- pipe ----

    fn open_pipe(&mut self, flags: u32) -> Result<Option<OwnedFd>> {
        let waits = self.random.bool();
        let flags = flags | CREATE | if waits { 0 } else { NONBLOCK };
        let opened = self.ctl.open(Open::new(NAME, flags));
        let opened = tolerate("opening a pipe", opened, &[Errno::EPIPE, Errno::ENXIO])?;
        if let Some(end) = &opened {
            set_blocking(end)?;
        }
        Ok(opened)
    }

    fn read_pipe(&mut self) -> Result<()> {
        let Some(end) = self.open_pipe(READ)? else {
            return Ok(());
        };
        for _ in 0..self.times() {
            let mut buffer = vec![0; self.random.usize(1..=CAPACITY)];
            match tolerate("reading", read(&end, &mut buffer), &[Errno::EPIPE])? {
                None | Some(0) => break,
                Some(length) if buffer[..length].iter().any(|byte| *byte != 7) => {
                    bail!("bytes that were not written")
                }
                Some(_) => self.step(),
            }
        }
        Ok(())
    }

    fn write_pipe(&mut self) -> Result<()> {
        let Some(end) = self.open_pipe(WRITE)? else {
            return Ok(());
        };
        // The open has waited for a reader, or there was one.
        self.shared.set_peer(self.cgroup, self.role, true);
        for _ in 0..self.times() {
            let bytes = vec![7; self.random.usize(1..=2 * CAPACITY)];
            match tolerate("writing", write(&end, &bytes), &[Errno::EPIPE])? {
                None => break,
                Some(_) => self.step(),
            }
        }
        Ok(())
    }

    // ---- ring ----

    fn produce(&mut self) -> Result<()> {
        let Ok(mut producer): Result<Producer, _> =
            Ring::named(NAME).create(true).capacity(4096).producer()
        else {
            return Ok(());
        };
        for _ in 0..self.times() {
            match producer.send(&vec![7; self.random.usize(0..1000)]) {
                Ok(()) => self.step(),
                Err(SendError::PeerDied | SendError::Closed | SendError::Destroyed) => break,
                Err(error) => return Err(error).context("sending a record"),
            }
        }
        Ok(())
    }

    fn consume(&mut self) -> Result<()> {
        let Ok(mut consumer): Result<Consumer, _> =
            Ring::named(NAME).create(true).capacity(4096).consumer()
        else {
            return Ok(());
        };
        for _ in 0..self.times() {
            let mut record = [0; 1000];
            match consumer.recv_into(&mut record) {
                Ok(Some(length)) if record[..length].iter().any(|byte| *byte != 7) => {
                    bail!("a record that was not sent")
                }
                Ok(Some(_)) => self.step(),
                Ok(None) | Err(RecvError::PeerDied | RecvError::Destroyed) => break,
                Err(error) => return Err(error).context("receiving a record"),
            }
        }
        Ok(())
    }

    // ---- bus ----

    fn open_bus(&mut self, flags: u32, policy: u32) -> Result<Option<OwnedFd>> {
        let params = bus::Params {
            policy,
            ..broadcast()
        };
        let opened = self.ctl.open(bus::request(flags | CREATE, &params));
        tolerate("opening a bus", opened, &[Errno::EPIPE])
    }

    fn send(&mut self) -> Result<()> {
        let Some(end) = self.open_bus(WRITE, 0)? else {
            return Ok(());
        };
        for _ in 0..self.times() {
            let bytes = vec![7; self.random.usize(0..bus::LARGEST)];
            let errors = [Errno::EPIPE, Errno::ENOTCONN];
            match tolerate("sending", write(&end, &bytes), &errors)? {
                None => break,
                Some(_) => self.step(),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        let policy = [DROP, BLOCK, EVICT][self.random.usize(..3)];
        let Some(end) = self.open_bus(READ, policy)? else {
            return Ok(());
        };
        for _ in 0..self.times() {
            let errors = [Errno::EPIPE, Errno::ESHUTDOWN];
            match tolerate("receiving", bus::receive(&end), &errors)? {
                Some(bytes) if bytes.iter().any(|byte| *byte != 7) => {
                    bail!("a message that was not sent")
                }
                None => break,
                Some(_) => self.step(),
            }
        }
        Ok(())
    }

    fn call(&mut self) -> Result<()> {
        let Ok(mut client): Result<Client, _> = Bus::named(REQUESTS).create(true).client() else {
            return Ok(());
        };
        for _ in 0..self.times() {
            let request = vec![7; self.random.usize(0..3000)];
            match client.call(&request) {
                Ok(reply) if reply.bytes() != request => bail!("another reply"),
                Ok(_) => self.step(),
                Err(
                    CallError::NoServer
                    | CallError::ServerEnded { .. }
                    | CallError::ReplyLost { .. }
                    | CallError::Send(BusSendError::Destroyed)
                    | CallError::Recv(BusError::Destroyed),
                ) => break,
                Err(error) => return Err(error).context("calling"),
            }
        }
        Ok(())
    }

    fn serve(&mut self) -> Result<()> {
        let Ok(mut server): Result<Server, _> = Bus::named(REQUESTS).create(true).server() else {
            return Ok(());
        };
        for _ in 0..self.times() {
            let Ok(request) = server.recv() else {
                break;
            };
            let bytes = request.bytes().to_vec();
            // The client may have ended.
            let _ = request.reply(&bytes);
            self.step();
        }
        Ok(())
    }

    // ---- map ----

    fn open_map(&mut self) -> Result<Option<OwnedFd>> {
        let maps = Maps::new()?;
        let opened = maps.open_sized(BOTH | CREATE, map::Params::default(), 0);
        tolerate("opening a map", opened, &[Errno::EPIPE])
    }

    /// A value consists of its key, so that a mixture of two shows.
    fn write_map(&mut self) -> Result<()> {
        let Some(end) = self.open_map()? else {
            return Ok(());
        };
        for _ in 0..self.times() {
            let key = self.random.u8(..KEYS);
            let errors = [Errno::EPIPE, Errno::ENOENT];
            let length = self.random.usize(0..20_000);
            let done = match self.random.u8(0..6) {
                0 => map::delete(&end, &[key]).map(drop),
                1 => map::set_for(&end, &[key], &[key], Duration::from_micros(500)).map(drop),
                2 | 3 => map::set(&end, &[key], &vec![key; length]).map(drop),
                _ => map::get(&end, &[key]).map(|value| {
                    assert!(value.iter().all(|byte| *byte == key), "a mixed value");
                }),
            };
            if tolerate("using a map", done, &errors)?.is_some() {
                self.step();
            }
        }
        Ok(())
    }

    fn watch_map(&mut self) -> Result<()> {
        let Some(end) = self.open_map()? else {
            return Ok(());
        };
        let watched = map::watch(&end, map::NOW);
        if tolerate("watching", watched, &[Errno::EPIPE])?.is_none() {
            return Ok(());
        }
        set_blocking(&end)?;
        for _ in 0..self.times() {
            let mut buffer = [0; 4096];
            match tolerate("reading events", read(&end, &mut buffer), &[Errno::EPIPE])? {
                None => break,
                Some(_) => self.step(),
            }
        }
        Ok(())
    }

    fn use_netlink(&mut self) -> Result<()> {
        let socket = Socket::new()?;
        let opened = Attrs::new().name(map::NAME).flags(BOTH | CREATE);
        let Ok(reply) = socket.call(command::OPEN, &opened)? else {
            return Ok(());
        };
        let handle = Attrs::new().handle(reply.u32(attr::HANDLE)?);
        if self.random.bool() {
            let now = handle.clone().u64(attr::AFTER, map::NOW);
            let _ = socket.call(command::WATCH, &now)?;
        }
        for _ in 0..self.times() {
            let key = [self.random.u8(..KEYS)];
            let of_key = handle.clone().key(&key);
            let request = match self.random.u8(0..4) {
                0 => Request::new(command::DUMP, handle.clone()),
                1 => Request::new(command::GET, of_key),
                2 => Request::new(command::DELETE, of_key),
                _ => Request::new(command::SET, of_key.value(&vec![key[0]; 300])),
            };
            // The map may be destroyed, or have no such entry.
            for reply in socket.request(&request)?.unwrap_or_default() {
                let key = reply.bytes(attr::KEY).unwrap_or(&key);
                let value = reply.bytes(attr::VALUE).unwrap_or_default();
                ensure!(value.iter().all(|byte| *byte == key[0]), "a mixed value");
            }
            self.step();
        }
        Ok(())
    }

    fn set_durable(&mut self) -> Result<()> {
        // The daemon may be gone.
        let Ok(map) = open_durable(DURABLE, Scope::own(), DEADLINE) else {
            return Ok(());
        };
        for _ in 0..self.times() {
            let number = self.shared.issue(self.cgroup);
            if map.set(key_of(number), number.to_string()).is_err() {
                break;
            }
            self.shared.acknowledge(self.cgroup, number);
            self.step();
        }
        Ok(())
    }

    // ---- all kinds ----

    /// A request that waits when the process is killed.
    fn wait_in_uring(&mut self) -> Result<()> {
        let end = match self.random.u8(0..3) {
            0 => {
                let flags = READ | CREATE | NONBLOCK;
                tolerate(
                    "opening a pipe",
                    self.ctl.open(Open::new(NAME, flags)),
                    &[Errno::EPIPE],
                )?
            }
            1 => self.open_bus(READ, DROP)?,
            _ => self.open_map()?,
        };
        let Some(end) = end else { return Ok(()) };
        // Not of a map: that endpoint does not watch.
        let _ = map::watch(&end, map::NOW);
        set_blocking(&end)?;
        let mut buffer = vec![0; 8192];
        let mut ring = uring::Ring::new()?;
        let entry = match self.random.bool() {
            true => uring::read_into(&end, &mut buffer),
            false => uring::poll_for(&end, poll::IN),
        };
        ring.submit(entry, uring::REQUEST)?;
        self.step();
        let _ = ring.wait_result(uring::REQUEST)?;
        Ok(())
    }

    /// Creates, looks up, unlinks and, less often, destroys. It unlinks nothing that others wait with: no later peer
    /// would find it.
    fn manage(&mut self) -> Result<()> {
        let kind = [KIND_PIPE, KIND_RING, KIND_MAP][self.random.usize(..3)];
        let own = ["a", "b"][self.random.usize(..2)];
        let any = [own, NAME, map::NAME][self.random.usize(..3)];
        let persistent = Open {
            kind,
            ..Open::new(own, access_of(kind) | CREATE | PERSIST | NONBLOCK)
        };
        let done = match self.random.u8(0..20) {
            0 => self.ctl.remove(DESTROY, kind, OWN, any),
            1..5 => self.ctl.remove(UNLINK, kind, OWN, own),
            5..10 => self.ctl.open(persistent).map(drop),
            10..15 => self.ctl.names(OWN).map(drop),
            _ => self.ctl.info_of(kind, OWN, any).map(drop),
        };
        let errors = [Errno::ENOENT, Errno::EPIPE, Errno::EBUSY];
        if tolerate("managing", done, &errors)?.is_some() {
            self.step();
        }
        Ok(())
    }
}

/// A peer for this role, which ends at once. That of a ring maps it: otherwise it was none.
pub fn open_and_close_peer(role: Role) -> Result<()> {
    match role {
        Role::PipeReader | Role::PipeWriter => {
            drop(Ctl::new()?.open(Open::new(NAME, BOTH | NONBLOCK)));
        }
        Role::RingProducer => drop(Ring::named(NAME).consumer()),
        Role::RingConsumer => drop(Ring::named(NAME).producer()),
        _ => {}
    }
    Ok(())
}

/// Destroys all channels of the own cgroup but the durable map.
pub fn destroy_all() -> Result<()> {
    let ctl = Ctl::new()?;
    for channel in ctl.page(OWN, None, 64).context("listing")? {
        if channel.name() != DURABLE.as_bytes() {
            let removed = ctl.remove(DESTROY, channel.kind, OWN, channel.name());
            tolerate("destroying", removed, &[Errno::ENOENT])?;
        }
    }
    Ok(())
}
