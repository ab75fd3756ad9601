// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets up one side of a ring over memfd.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use sluice_ring::{Capacity, Ctrl, Notifier, Parker};

use super::Memfd;
use super::file::{self, Pages, SealPolicy};
use super::handshake::{Geometry, Handshake, LocalHello, PeerHello};
use super::memory_limit;
use super::socket::{Socket, peer_user};
use crate::ring::carrier::Carrier;
use crate::ring::connection::Connection;
use crate::ring::consumer::Consumer;
use crate::ring::error::SetupError;
use crate::ring::membarrier::register;
use crate::ring::options::{SocketOptions, Users};
use crate::ring::producer::Producer;
use crate::ring::role::Role;
use crate::shared::mapping::{Mapping, ProducerMemory};
use crate::shared::region::{Access, Region};

impl SocketOptions {
    /// Sets up the sending side. Waits for the peer, which sets up the receiving side at the same time, up to
    /// [`handshake_timeout`](Self::handshake_timeout): both sides in one thread would wait until then.
    pub fn producer(&self, socket: Socket) -> Result<Producer, SetupError> {
        let geometry = self.geometry()?;
        self.check_memory_limit(geometry)?;
        let file = file::create(geometry.bytes(), self.pages)?;
        let data = map_producer(&file, geometry, Access::ReadWrite)
            .map_err(|errno| self.no_memory(geometry, errno))?;
        for region in data.regions() {
            self.prepare(region, geometry)?;
        }
        file::seal(&file, self.seals)?;
        let connection = self.connect(socket, Role::Producer, Some(geometry), &file, |peer| {
            let side = map_ctrl(&peer.file, Access::ReadOnly)
                .map_err(|errno| unmappable(errno, geometry))?;
            Ok(Mapping::new(data, side))
        })?;
        Ok(Producer::new(connection))
    }

    /// Sets up the receiving side. Waits for the peer as [`producer`](Self::producer) does.
    pub fn consumer(&self, socket: Socket) -> Result<Consumer, SetupError> {
        let file = file::create(size_of::<Ctrl>() as u64, Pages::Normal)?;
        let side = map_ctrl(&file, Access::ReadWrite)
            .map_err(SetupError::system("mapping the ring's memory"))?;
        file::seal(&file, SealPolicy::Sealed)?;
        let connection = self.connect(socket, Role::Consumer, None, &file, |peer| {
            let geometry = peer
                .geometry
                .ok_or(SetupError::ProtocolMismatch("it has no data"))?;
            let access = match peer.seals {
                SealPolicy::Unsealed => Access::ReadWrite,
                SealPolicy::Sealed => Access::ReadOnly,
            };
            let data = map_producer(&peer.file, geometry, access)
                .map_err(|errno| unmappable(errno, geometry))?;
            for region in data.regions() {
                self.make_resident(region, geometry, Access::ReadOnly)
                    .map_err(unusable)?;
            }
            Ok(Mapping::new(data, side))
        })?;
        Ok(Consumer::new(connection))
    }

    fn geometry(&self) -> Result<Geometry, SetupError> {
        if (self.pages, self.seals) == (Pages::Huge, SealPolicy::Unsealed) {
            return Err(SetupError::UnsealedHugePages);
        }
        let data = self.pages.size();
        Ok(Geometry {
            data,
            capacity: Capacity::at_least(self.capacity, data)?,
        })
    }

    /// Huge pages have a pool of their own.
    fn check_memory_limit(&self, geometry: Geometry) -> Result<(), SetupError> {
        let limit = match self.pages {
            Pages::Huge => None,
            Pages::Normal => memory_limit::find_below(geometry.bytes()),
        };
        limit.map_or(Ok(()), |limit| {
            Err(SetupError::MemoryLimit {
                capacity: geometry.capacity,
                cgroup: limit.cgroup,
                room: limit.room,
            })
        })
    }

    /// Applies the memory options to a region of this side.
    fn prepare(&self, region: &Region, geometry: Geometry) -> Result<(), SetupError> {
        if let Some(node) = self.numa_node {
            region
                .bind(node)
                .map_err(SetupError::system("binding the ring's memory to its node"))?;
        }
        self.make_resident(region, geometry, Access::ReadWrite)
    }

    /// Prefaults and locks the memory as the options and the capacity require.
    fn make_resident(
        &self,
        region: &Region,
        geometry: Geometry,
        access: Access,
    ) -> Result<(), SetupError> {
        if geometry.is_huge() {
            // A huge page that is missing later is a SIGBUS.
            region
                .populate(access)
                .map_err(|_| SetupError::NoHugePages(geometry.capacity))?;
        } else {
            self.prefault(region, geometry.capacity, access);
        }
        self.side.lock(region, geometry.capacity)
    }

    fn no_memory(&self, geometry: Geometry, errno: Errno) -> SetupError {
        match self.pages {
            Pages::Huge => SetupError::NoHugePages(geometry.capacity),
            Pages::Normal => SetupError::system("mapping the ring's memory")(errno),
        }
    }

    /// Performs the handshake. `map` maps the memory of both sides.
    fn connect(
        &self,
        socket: Socket,
        role: Role,
        geometry: Option<Geometry>,
        file: &OwnedFd,
        map: impl FnOnce(&PeerHello) -> Result<Mapping, SetupError>,
    ) -> Result<Connection, SetupError> {
        let socket = OwnedFd::from(socket);
        let handshake = Handshake::new(&socket, self.handshake_timeout);
        let local = LocalHello {
            role,
            geometry,
            file,
            registered: register(),
            seals: match role {
                Role::Producer => self.seals,
                Role::Consumer => SealPolicy::Sealed,
            },
            allows_unsealed: self.allows_unsealed,
            max_capacity: self.side.max_capacity,
        };
        let peer = self.check_user(&socket).and_then(|()| {
            let peer = handshake.exchange(&local)?;
            Ok((map(&peer)?, peer.registered))
        });
        let (mapping, registered) = peer.inspect_err(|error| handshake.reject(error))?;
        handshake.accept()?;
        let registered = registered && local.registered;
        Ok(Connection::new(
            Carrier::Memfd(Memfd::new(socket)),
            mapping,
            role,
            Parker::new(registered),
            Notifier::new(registered),
            &self.side,
        ))
    }

    fn check_user(&self, socket: &OwnedFd) -> Result<(), SetupError> {
        let uid = peer_user(socket)?;
        let own = uid == 0 || uid == rustix::process::geteuid().as_raw();
        let allowed = match &self.users {
            Users::Own => own,
            Users::OwnAnd(more) => own || more.contains(&uid),
            Users::Everyone => true,
        };
        match allowed {
            true => Ok(()),
            false => Err(SetupError::PeerNotAllowed { uid }),
        }
    }
}

/// Missing huge pages of the peer's memory are an error of the peer.
fn unusable(error: SetupError) -> SetupError {
    match error {
        SetupError::NoHugePages(_) => SetupError::InvalidMemfd("its huge pages are missing".into()),
        other => other,
    }
}

/// Exhausted memory or descriptors are an error of this side; all else, including missing huge pages, is one of the peer.
fn unmappable(errno: Errno, geometry: Geometry) -> SetupError {
    match errno {
        Errno::NOMEM if geometry.is_huge() => unusable(SetupError::NoHugePages(geometry.capacity)),
        Errno::NOMEM | Errno::MFILE | Errno::NFILE => {
            SetupError::system("mapping the peer's memory")(errno)
        }
        errno => SetupError::InvalidMemfd(format!(
            "it cannot be mapped ({})",
            std::io::Error::from(errno)
        )),
    }
}

fn map_producer(
    file: &OwnedFd,
    geometry: Geometry,
    access: Access,
) -> Result<ProducerMemory, Errno> {
    let align = usize::try_from(geometry.data).map_err(|_| Errno::OVERFLOW)?;
    let bytes = usize::try_from(geometry.capacity.bytes()).map_err(|_| Errno::OVERFLOW)?;
    Ok(ProducerMemory {
        ctrl: Region::map_aligned(file, 0, align, align, access)?,
        data: Region::map_mirrored(file, geometry.data, bytes, align, access)?,
        capacity: geometry.capacity,
    })
}

fn map_ctrl(file: &OwnedFd, access: Access) -> Result<Region, Errno> {
    Region::map(file, 0, size_of::<Ctrl>(), access)
}
