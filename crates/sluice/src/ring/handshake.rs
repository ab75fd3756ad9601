// SPDX-License-Identifier: MIT OR Apache-2.0
//! How two sides that have a socket in common come to have a ring in common: each tells what it has and hands over its
//! memory, judges what the other has handed over, and tells the verdict.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use sluice_abi::ring::{self, Hello, Verdict};
use sluice_ring::{Capacity, Ctrl};

use super::error::{Error, Result};
use super::mapping::Geometry;
use super::memfd::{self, SealPolicy};
use super::socket::{self, Received};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Producer,
    Consumer,
}

impl Role {
    fn number(self) -> u32 {
        match self {
            Self::Producer => ring::PRODUCER,
            Self::Consumer => ring::CONSUMER,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Consumer => "consumer",
        }
    }
}

/// What one side has to say of itself.
pub(super) struct Offer<'a> {
    pub role: Role,
    /// Of a producer's file.
    pub geometry: Option<Geometry>,
    pub file: &'a OwnedFd,
    /// It leaves out the barriers that membarrier(2) makes unnecessary.
    pub registered: bool,
    /// Of a producer's file.
    pub seals: SealPolicy,
    /// Of a consumer, whether the producer's file may be without a seal against writing.
    pub allows_unsealed: bool,
}

/// What the other side said, and was found to be good.
pub(super) struct Accepted {
    pub geometry: Option<Geometry>,
    pub file: OwnedFd,
    pub registered: bool,
    pub seals: SealPolicy,
}

/// One side's part in it, within a time.
pub(super) struct Handshake<'a> {
    socket: &'a OwnedFd,
    patience: Duration,
    until: Instant,
}

impl<'a> Handshake<'a> {
    pub fn new(socket: &'a OwnedFd, patience: Duration) -> Self {
        let now = Instant::now();
        Self {
            socket,
            patience,
            // As good as never.
            until: now
                .checked_add(patience)
                .unwrap_or(now + Duration::from_secs(u32::MAX.into())),
        }
    }

    /// Introduces this side, and judges the other, which is told nothing yet.
    pub fn exchange(&self, offer: &Offer) -> Result<Accepted> {
        self.introduce(offer)?;
        self.judge(offer)
    }

    fn introduce(&self, offer: &Offer) -> Result<()> {
        let hello = Hello {
            magic: ring::MAGIC,
            size: Hello::SIZE as u32,
            version: ring::VERSION,
            role: offer.role.number(),
            flags: flags(offer),
            data: offer.geometry.map_or(0, |geometry| geometry.data as u32),
            capacity: offer
                .geometry
                .map_or(0, |geometry| geometry.capacity.bytes()),
        };
        self.send(&hello.to_bytes(), Some(offer.file))
    }

    fn judge(&self, offer: &Offer) -> Result<Accepted> {
        let role = offer.role;
        let mut bytes = [0; Hello::SIZE];
        let received = self.receive(&mut bytes)?;
        if let Some(error) = refusal(&bytes[..received.bytes]) {
            return Err(Error::Refused(reason(error)));
        }
        if received.bytes != bytes.len() || received.too_much {
            return Err(Error::NoRing("what it sent first is no greeting"));
        }
        let hello = Hello::from_bytes(&bytes);
        if hello.magic != ring::MAGIC {
            return Err(Error::NoRing("what it sent first is no greeting"));
        }
        if hello.version != ring::VERSION {
            return Err(Error::Version {
                theirs: hello.version,
            });
        }
        if hello.size as usize != Hello::SIZE || hello.flags & !KNOWN != 0 {
            return Err(Error::NoRing(
                "its greeting has something in it that this version does not know",
            ));
        }
        let geometry = match (role, hello.role) {
            (Role::Producer, ring::CONSUMER) => consumers(&hello)?,
            (Role::Consumer, ring::PRODUCER) => Some(producers(&hello)?),
            (_, theirs) if theirs == role.number() => {
                return Err(Error::SameRole { role: role.name() });
            }
            _ => {
                return Err(Error::NoRing(
                    "it wants to be neither producer nor consumer",
                ));
            }
        };
        let file = received
            .file
            .ok_or(Error::NoRing("its greeting came without its memory"))?;
        let bytes = geometry.map_or(size_of::<Ctrl>() as u64, Geometry::bytes);
        let seals = match hello.flags & ring::WRITABLE {
            0 => SealPolicy::Sealed,
            _ => SealPolicy::Unsealed,
        };
        if seals == SealPolicy::Unsealed && !offer.allows_unsealed {
            return Err(Error::Unsafe(
                "it is not sealed against writing, which this side does not allow".into(),
            ));
        }
        memfd::judge(&file, bytes, seals)?;
        if let Some(geometry) = geometry {
            memfd::judge_pages(&file, geometry.data, seals)?;
        }
        Ok(Accepted {
            geometry,
            file,
            registered: hello.flags & ring::REGISTERED != 0,
            seals,
        })
    }

    /// Tells the other side that it is accepted, and waits to hear the same.
    pub fn agree(&self) -> Result<()> {
        self.send(&verdict(0), None)?;
        let mut bytes = [0; Verdict::SIZE];
        let received = self.receive(&mut bytes)?;
        if received.bytes != bytes.len() || received.too_much || received.file.is_some() {
            return Err(Error::NoRing("what it sent second is no verdict"));
        }
        let verdict = Verdict::from_bytes(&bytes);
        match verdict {
            Verdict { magic, .. } if magic != ring::MAGIC => {
                Err(Error::NoRing("what it sent second is no verdict"))
            }
            Verdict { error: 0, .. } => Ok(()),
            Verdict { error, .. } => Err(Error::Refused(reason(error))),
        }
    }

    /// Tells the other side why it is not accepted, if it still listens.
    pub fn refuse(&self, error: &Error) {
        let errno = match error {
            Error::Stranger { .. } => Errno::PERM,
            Error::Version { .. } => Errno::PROTONOSUPPORT,
            Error::SameRole { .. } => Errno::ALREADY,
            Error::Unsafe(_) => Errno::ACCESS,
            Error::NoRing(_) => Errno::PROTO,
            Error::Capacity(_) => Errno::RANGE,
            _ => Errno::CANCELED,
        };
        let _ = self.send(&verdict(errno.raw_os_error() as u32), None);
    }

    fn send(&self, message: &[u8], file: Option<&OwnedFd>) -> Result<()> {
        let source = match socket::send(self.socket, message, file) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match source.raw_os_error() {
            // Whoever listens next hears what it said before it hung up, which may be why.
            Some(libc::EPIPE | libc::ECONNRESET) => Ok(()),
            _ => Err(Error::System {
                what: "speaking to the other end",
                source,
            }),
        }
    }

    fn receive(&self, message: &mut [u8]) -> Result<Received> {
        let received = socket::receive(self.socket, message, self.until)
            .or_else(|error| match error.raw_os_error() {
                // It hung up without hearing all of what it was told, and may have said why before. This error comes once.
                Some(libc::ECONNRESET) => socket::receive(self.socket, message, self.until),
                _ => Err(error),
            })
            .map_err(|source| Error::System {
                what: "listening to the other end",
                source,
            })?
            .ok_or(Error::Silent(self.patience))?;
        match received.ended {
            true => Err(Error::HungUp),
            false => Ok(received),
        }
    }
}

/// What may be in a greeting's flags.
const KNOWN: u32 = ring::REGISTERED | ring::WRITABLE;

fn flags(offer: &Offer) -> u32 {
    let registered = match offer.registered {
        true => ring::REGISTERED,
        false => 0,
    };
    let writable = match offer.seals {
        SealPolicy::Unsealed => ring::WRITABLE,
        SealPolicy::Sealed => 0,
    };
    registered | writable
}

fn consumers(hello: &Hello) -> Result<Option<Geometry>> {
    match (hello.data, hello.capacity, hello.flags & ring::WRITABLE) {
        (0, 0, 0) => Ok(None),
        _ => Err(Error::NoRing("a consumer has no data")),
    }
}

fn producers(hello: &Hello) -> Result<Geometry> {
    let data = u64::from(hello.data);
    if !data.is_power_of_two() || data < memfd::Pages::Normal.size() {
        return Err(Error::NoRing("its data does not begin at a page"));
    }
    let capacity = Capacity::exactly(hello.capacity, data)?;
    Ok(Geometry { data, capacity })
}

fn verdict(error: u32) -> [u8; Verdict::SIZE] {
    let magic = ring::MAGIC;
    Verdict { magic, error }.to_bytes()
}

/// The error in a verdict that does not agree.
fn refusal(message: &[u8]) -> Option<u32> {
    let verdict = Verdict::from_bytes(message.try_into().ok()?);
    (verdict.magic == ring::MAGIC && verdict.error != 0).then_some(verdict.error)
}

/// What the other end means by the number that it gave, which may be anything.
fn reason(error: u32) -> String {
    match i32::try_from(error).unwrap_or_default() {
        libc::EPERM => "it is not set up to speak with this user".into(),
        libc::EPROTONOSUPPORT => {
            "it speaks another version of the protocol; bring both to the same version".into()
        }
        libc::EALREADY => "it wants to be the same side of the ring".into(),
        libc::EACCES => "it does not trust the memory that it was handed".into(),
        libc::EPROTO => "it did not understand the greeting".into(),
        libc::ERANGE => "it cannot have a ring of this capacity".into(),
        _ => "it could not set up its side; see what it says".into(),
    }
}
