// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handshake: each side sends a hello with its memfd, validates that of the peer, and replies.

use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use sluice_abi::ring::{self, Hello, Reply};
use sluice_ring::{Capacity, Ctrl};

use super::file::{self, SealPolicy};
use super::socket::{self, Received};
use crate::ring::error::SetupError;
use crate::ring::role::Role;
use crate::system_error::SystemError;

/// The offset of the data in the producer's file, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// The offset: the page size of the file, a power of two.
    pub data: u64,
    pub capacity: Capacity,
}

impl Geometry {
    /// The length of the producer's file.
    pub fn bytes(self) -> u64 {
        self.data + self.capacity.bytes()
    }

    pub fn is_huge(self) -> bool {
        self.data != file::Pages::Normal.size()
    }
}

/// The contents of this side's hello, and its requirements.
pub(super) struct LocalHello<'a> {
    pub role: Role,
    /// Only of a producer.
    pub geometry: Option<Geometry>,
    pub file: &'a OwnedFd,
    /// Whether this process is registered with membarrier(2).
    pub registered: bool,
    /// Only of a producer.
    pub seals: SealPolicy,
    /// Only of a consumer: whether it accepts an unsealed file.
    pub allows_unsealed: bool,
    /// Only of a consumer: the limit of the capacity.
    pub max_capacity: u64,
}

/// The validated hello of the peer.
pub(super) struct PeerHello {
    pub geometry: Option<Geometry>,
    pub file: OwnedFd,
    pub registered: bool,
    pub seals: SealPolicy,
}

/// One side of the handshake, with a timeout for all of it.
pub(super) struct Handshake<'a> {
    socket: &'a OwnedFd,
    timeout: Duration,
    until: Instant,
}

impl<'a> Handshake<'a> {
    pub fn new(socket: &'a OwnedFd, timeout: Duration) -> Self {
        let now = Instant::now();
        Self {
            socket,
            timeout,
            // An overflow means no timeout.
            until: now
                .checked_add(timeout)
                .unwrap_or(now + Duration::from_secs(u32::MAX.into())),
        }
    }

    /// Sends the hello, and receives and validates that of the peer. Sends no reply.
    pub fn exchange(&self, local: &LocalHello) -> Result<PeerHello, SetupError> {
        let hello = Hello {
            magic: ring::MAGIC,
            size: Hello::SIZE as u32,
            version: ring::VERSION,
            role: local.role.number(),
            flags: flags(local),
            data: local.geometry.map_or(0, |geometry| geometry.data as u32),
            capacity: local
                .geometry
                .map_or(0, |geometry| geometry.capacity.bytes()),
        };
        self.send(&hello.to_bytes(), Some(local.file))?;
        let mut bytes = [0; Hello::SIZE];
        let received = self.receive(&mut bytes)?;
        let hello = parse(&bytes, &received)?;
        validate(local, &hello, received)
    }

    /// Accepts the peer, and receives its reply.
    pub fn accept(&self) -> Result<(), SetupError> {
        self.send(&reply(0), None)?;
        let mut bytes = [0; Reply::SIZE];
        let received = self.receive(&mut bytes)?;
        let reply = Reply::from_bytes(&bytes);
        let is_reply = received.bytes == bytes.len() && reply.magic == ring::MAGIC;
        if !is_reply || received.too_much || received.file.is_some() {
            return Err(SetupError::ProtocolMismatch(
                "its second message is not a reply",
            ));
        }
        match reply.error {
            0 => Ok(()),
            error => Err(refused(error)),
        }
    }

    /// Sends the reason for a rejection, if the peer can still receive it.
    pub fn reject(&self, error: &SetupError) {
        let errno = match error {
            SetupError::PeerNotAllowed { .. } => Errno::PERM,
            SetupError::Version { .. } => Errno::PROTONOSUPPORT,
            SetupError::RoleConflict { .. } => Errno::ALREADY,
            SetupError::InvalidMemfd(_) => Errno::ACCESS,
            SetupError::ProtocolMismatch(_) => Errno::PROTO,
            SetupError::PeerCapacity(_) | SetupError::CapacityTooLarge { .. } => Errno::RANGE,
            SetupError::HandshakeTimeout(_) => Errno::TIMEDOUT,
            _ => Errno::CANCELED,
        };
        let _ = self.send(&reply(errno.raw_os_error() as u32), None);
    }

    fn send(&self, message: &[u8], file: Option<&OwnedFd>) -> Result<(), SetupError> {
        let source = match socket::send(self.socket, message, file) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match source.raw_os_error() {
            // The peer may have sent a reply with the reason before it hung up; the next receive returns that.
            Some(libc::EPIPE | libc::ECONNRESET) => Ok(()),
            _ => Err(SystemError::new("sending to the peer", source).into()),
        }
    }

    fn receive(&self, message: &mut [u8]) -> Result<Received, SetupError> {
        let received = socket::receive(self.socket, message, self.until)
            .or_else(|error| match error.raw_os_error() {
                // The peer hung up with unread messages, and may have sent the reason before. The kernel reports this error once.
                Some(libc::ECONNRESET) => socket::receive(self.socket, message, self.until),
                _ => Err(error),
            })
            .map_err(|source| SystemError::new("receiving from the peer", source))?
            .ok_or(SetupError::HandshakeTimeout(self.timeout))?;
        match received.ended {
            true => Err(SetupError::HandshakeAborted),
            false => Ok(received),
        }
    }
}

/// Checks the fields that all versions have first, so that a hello of another version gets the reply EPROTONOSUPPORT
/// whatever else it contains.
fn parse(bytes: &[u8; Hello::SIZE], received: &Received) -> Result<Hello, SetupError> {
    const COMMON: usize = offset_of!(Hello, role);
    let hello = Hello::from_bytes(bytes);
    if let Some(error) = refusal(&bytes[..received.bytes]) {
        return Err(refused(error));
    }
    if received.bytes < COMMON || hello.magic != ring::MAGIC {
        return Err(SetupError::ProtocolMismatch(
            "its first message is not a hello",
        ));
    }
    if hello.version != ring::VERSION {
        return Err(SetupError::Version {
            theirs: hello.version,
        });
    }
    let complete = received.bytes == Hello::SIZE && hello.size as usize == Hello::SIZE;
    if !complete || received.too_much || received.file.is_none() {
        return Err(SetupError::ProtocolMismatch(
            "its hello has another size, or not exactly one file",
        ));
    }
    Ok(hello)
}

/// Validates in the order of docs/abi/ring-memfd.md.
fn validate(
    local: &LocalHello,
    hello: &Hello,
    received: Received,
) -> Result<PeerHello, SetupError> {
    if hello.flags & !KNOWN != 0 {
        return Err(SetupError::ProtocolMismatch("its hello has unknown flags"));
    }
    let geometry = match (local.role, hello.role) {
        (Role::Producer, ring::CONSUMER) => consumers(hello)?,
        (Role::Consumer, ring::PRODUCER) => Some(producers(hello, local.max_capacity)?),
        (own, peers) if peers == own.number() => {
            return Err(SetupError::RoleConflict { role: own.name() });
        }
        _ => {
            return Err(SetupError::ProtocolMismatch("its role is unknown"));
        }
    };
    let file = received
        .file
        .ok_or(SetupError::ProtocolMismatch("its hello has no file"))?;
    let seals = match hello.flags & ring::F_UNSEALED {
        0 => SealPolicy::Sealed,
        _ => SealPolicy::Unsealed,
    };
    if seals == SealPolicy::Unsealed && !local.allows_unsealed {
        return Err(SetupError::InvalidMemfd(
            "it is not sealed against writing, as this side requires".into(),
        ));
    }
    file::validate(&file, file_size(geometry), seals)?;
    if let Some(geometry) = geometry {
        file::validate_pages(&file, geometry.data, seals)?;
    }
    Ok(PeerHello {
        geometry,
        file,
        registered: hello.flags & ring::F_MEMBARRIER != 0,
        seals,
    })
}

fn file_size(geometry: Option<Geometry>) -> u64 {
    geometry.map_or(size_of::<Ctrl>() as u64, Geometry::bytes)
}

/// The known flags of a hello.
const KNOWN: u32 = ring::F_MEMBARRIER | ring::F_UNSEALED;

fn flags(local: &LocalHello) -> u32 {
    let registered = match local.registered {
        true => ring::F_MEMBARRIER,
        false => 0,
    };
    let unsealed = match local.seals {
        SealPolicy::Unsealed => ring::F_UNSEALED,
        SealPolicy::Sealed => 0,
    };
    registered | unsealed
}

fn consumers(hello: &Hello) -> Result<Option<Geometry>, SetupError> {
    match (hello.data, hello.capacity, hello.flags & ring::F_UNSEALED) {
        (0, 0, 0) => Ok(None),
        _ => Err(SetupError::ProtocolMismatch(
            "the hello of a consumer has data",
        )),
    }
}

fn producers(hello: &Hello, max: u64) -> Result<Geometry, SetupError> {
    let data = u64::from(hello.data);
    if !data.is_power_of_two() || data < file::Pages::Normal.size() {
        return Err(SetupError::ProtocolMismatch(
            "its data does not start at a page",
        ));
    }
    let capacity = Capacity::exactly(hello.capacity, data).map_err(SetupError::PeerCapacity)?;
    if capacity.bytes() > max {
        return Err(SetupError::CapacityTooLarge { capacity, max });
    }
    Ok(Geometry { data, capacity })
}

fn reply(error: u32) -> [u8; Reply::SIZE] {
    let magic = ring::MAGIC;
    Reply { magic, error }.to_bytes()
}

/// The error, if the message is a reply in place of a hello.
fn refusal(message: &[u8]) -> Option<u32> {
    let reply = Reply::from_bytes(message.try_into().ok()?);
    (reply.magic == ring::MAGIC && reply.error != 0).then_some(reply.error)
}

/// The error numbers of a reply; EPERM has an error of its own. A malicious peer may send others: that of another result of the call, such
/// as EAGAIN, or one that is no errno.
const REASONS: [Errno; 7] = [
    Errno::PROTONOSUPPORT,
    Errno::ALREADY,
    Errno::ACCESS,
    Errno::PROTO,
    Errno::RANGE,
    Errno::TIMEDOUT,
    Errno::CANCELED,
];

fn refused(error: u32) -> SetupError {
    if error == Errno::PERM.raw_os_error() as u32 {
        return SetupError::NotAllowedByPeer;
    }
    let reason = REASONS
        .into_iter()
        .find(|reason| reason.raw_os_error() as u32 == error);
    SetupError::Refused(reason.unwrap_or(Errno::CONNREFUSED).raw_os_error())
}
