// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments that both sides share, and the setup of a ring: over a socket, by name, or with an inherited endpoint.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{ArgGroup, Args};
use sluice::ring::{self, Attach, RingInfo, RoleState, SetupError};
use sluice::{Channel, Error, Name, Options, Ring};

use super::codec::Framing;
use super::side::{Role, Side};
use super::socket::SocketArgs;
use super::wait::WaitLimit;
use crate::args::{self, OpenChannelArgs, With};
use crate::wait_notice::{elsewhere, with_wait_notice_if};

const NUMA_NODES: &str = "/sys/devices/system/node";

/// For longer than any process needs to create a ring, which takes a role of it for a moment, or to exit.
const TAKEN_BRIEFLY: Duration = Duration::from_millis(100);

#[derive(Args)]
#[command(group(ArgGroup::new("new_memory").args(["socket", "create"]).multiple(true)))]
pub struct SetupArgs {
    #[command(flatten)]
    place: PlaceArgs,

    #[command(flatten)]
    socket: SocketArgs,

    #[command(flatten)]
    open: OpenChannelArgs,

    /// Timeout of the wait for the other side, and for the ring of NAME [default: none]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = args::time_or_zero)]
    wait: Option<Duration>,

    /// The framing of records in standard input or output
    ///
    /// Each side has its own.
    #[arg(long, value_name = "FRAMING", value_enum, default_value = "lines")]
    pub framing: Framing,

    /// Spin for up to this time before blocking [default: {SPIN}, or 0 on one processor]
    ///
    /// Spins less while recent waits were longer; 0 never spins.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = args::time_or_zero)]
    spin: Option<Duration>,

    /// Lock the memory of the ring, so that it is not swapped out
    #[arg(long)]
    lock: bool,

    /// Allocate the memory of this side, or of a new ring, from this NUMA node
    #[arg(long, value_name = "N", requires = "new_memory", value_parser = args::number(0u32..))]
    node: Option<u32>,

    /// Print a JSON summary to standard error at the end
    #[arg(long)]
    pub summary: bool,
}

/// Where the other side is. Conflicts are named here, because clap ignores that an argument requires one that conflicts with another.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct PlaceArgs {
    /// The name of the ring
    ///
    /// The options --scope, --create, --any-owner, --persist and --permissions are for it.
    #[arg(id = "channel", value_name = "NAME", value_parser = args::ring_name(), conflicts_with = "socket_options")]
    name: Option<Name>,

    /// Use a ring without the kernel module; both sides connect through the socket at this path
    ///
    /// The socket exists only while one side listens.
    #[arg(long, value_name = "PATH", conflicts_with = "channel_options")]
    socket: Option<PathBuf>,

    /// Use the endpoint of a ring that is this file descriptor
    ///
    /// Another process has opened it, and passed it to this one.
    #[arg(
        long,
        value_name = "FD",
        value_parser = clap::value_parser!(RawFd).range(3..),
        conflicts_with_all = ["socket_options", "channel_options", "capacity", "node"]
    )]
    endpoint: Option<RawFd>,
}

/// The options that only one side has as arguments.
#[derive(Clone, Copy, Default)]
pub struct SideOptions {
    pub capacity: Option<u64>,
    pub max_capacity: Option<u64>,
    pub huge_pages: bool,
}

pub enum Place<'a> {
    Socket(&'a Path),
    Named(Channel, Options<Ring>),
    Endpoint(RawFd),
}

impl SetupArgs {
    /// Where the ring is. One with a name has its options.
    pub fn place(&self, side: SideOptions) -> Result<Place<'_>> {
        let PlaceArgs {
            name,
            socket,
            endpoint,
        } = &self.place;
        Ok(match (socket, name) {
            (Some(path), _) => Place::Socket(path),
            (_, Some(name)) => {
                let ring = self.open.apply(Ring::named(name))?;
                let ring = ring
                    .mlock(self.lock)
                    .with(self.spin, Options::spin_limit)
                    .with(self.node()?, Options::numa_node)
                    .with(side.capacity, Options::capacity)
                    .with(side.max_capacity, Options::max_capacity);
                Place::Named(ring.channel()?, ring)
            }
            _ => Place::Endpoint(endpoint.expect("one of the three is required")),
        })
    }

    /// Waits for the other side, and sets up the ring with it. In a channel, and with an endpoint, it waits only with --wait.
    pub fn set_up<S: Side>(&self, place: &Place, side: SideOptions) -> Result<S> {
        let limit = WaitLimit::from_now(self.wait);
        let set_up = match place {
            Place::Socket(path) => {
                let options = self.socket_options(side)?;
                return self.socket.set_up(path, &limit, options);
            }
            Place::Named(channel, ring) => open(channel, ring, &limit)?,
            Place::Endpoint(fd) => S::attach(&self.attach(side), duplicate(*fd)?)?,
        };
        match limit.is_given() {
            true => wait_for_peer(set_up, &limit, &place.awaited(S::ROLE)),
            false => Ok(set_up),
        }
    }

    /// Transfers records. Prints a notice if the other side of a channel does not come soon.
    pub fn transfer<T>(&self, place: &Place, role: Role, action: impl FnOnce() -> T) -> T {
        let Place::Named(_, ring) = place else {
            return action();
        };
        let is_vacant = |info: RingInfo| role.peer_state(&info) == RoleState::Vacant;
        with_wait_notice_if(
            || ring.info().is_ok_and(is_vacant),
            &place.awaited(role),
            action,
        )
    }

    fn socket_options(&self, side: SideOptions) -> Result<ring::SocketOptions> {
        Ok(ring::SocketOptions::new()
            .huge_pages(side.huge_pages)
            .mlock(self.lock)
            .with(self.spin, ring::SocketOptions::spin_limit)
            .with(self.node()?, ring::SocketOptions::numa_node)
            .with(side.capacity, ring::SocketOptions::capacity)
            .with(side.max_capacity, ring::SocketOptions::max_capacity))
    }

    fn attach(&self, side: SideOptions) -> Attach {
        Ring::attach()
            .mlock(self.lock)
            .with(self.spin, Attach::spin_limit)
            .with(side.max_capacity, Attach::max_capacity)
    }

    /// Fails if there is no such node.
    fn node(&self) -> Result<Option<u32>> {
        self.node.map(check_node).transpose()?;
        Ok(self.node)
    }
}

impl Place<'_> {
    /// The other side of a channel, or of the ring of an endpoint, for messages.
    fn awaited(&self, role: Role) -> String {
        let (peer, verb) = role.peer();
        match self {
            Self::Named(channel, _) => {
                let (name, scope) = (channel.name(), channel.scope());
                elsewhere(&format!(
                    "{peer} at '{name}' in {scope}; run 'sluice ring {verb} {name}' there"
                ))
            }
            _ => {
                format!("{peer} at the other endpoint; pass it to 'sluice ring {verb} --endpoint'")
            }
        }
    }
}

fn open<S: Side>(channel: &Channel, ring: &Options<Ring>, limit: &WaitLimit) -> Result<S> {
    let (name, scope) = (channel.name(), channel.scope());
    let awaited = elsewhere(&format!(
        "the ring '{name}' in {scope}; run 'sluice ring create {name}' there"
    ));
    limit.retry(&awaited, || match open_side(ring) {
        Err(SetupError::Open(Error::NotFound { .. })) if limit.is_given() => Ok(None),
        opened => Ok(Some(opened?)),
    })
}

/// Opens again if the role is taken, because it may be so only briefly.
fn open_side<S: Side>(ring: &Options<Ring>) -> Result<S, SetupError> {
    match S::open(ring) {
        Err(SetupError::RoleTaken { .. }) => {
            thread::sleep(TAKEN_BRIEFLY);
            S::open(ring)
        }
        opened => opened,
    }
}

fn wait_for_peer<S: Side>(side: S, limit: &WaitLimit, awaited: &str) -> Result<S> {
    match limit.retry(awaited, || Ok(side.has_peer()?.then_some(()))) {
        Ok(()) => Ok(side),
        Err(error) => {
            // To a peer that comes now, a closed ring would mean a complete transfer.
            side.abort();
            Err(error)
        }
    }
}

/// A copy, because the number may be that of a descriptor of this process. It then is not an endpoint.
fn duplicate(fd: RawFd) -> Result<OwnedFd> {
    // SAFETY: it is not -1. If it is closed, the copy fails; nothing closes it during the call.
    let endpoint = unsafe { BorrowedFd::borrow_raw(fd) };
    endpoint.try_clone_to_owned().with_context(|| {
        format!("cannot use descriptor {fd}; pass an endpoint of a ring as this descriptor")
    })
}

fn check_node(node: u32) -> Result<()> {
    let nodes = Path::new(NUMA_NODES);
    ensure!(
        !nodes.exists() || nodes.join(format!("node{node}")).exists(),
        "no NUMA node {node}; use one of those in {NUMA_NODES}, or omit --node"
    );
    Ok(())
}
