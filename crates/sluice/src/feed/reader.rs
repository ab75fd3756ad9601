// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;
use std::io::{self, IoSliceMut};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ReadWriteFlags, preadv2, read};
use sluice_abi::feed;

use super::claim;
use super::error::RecvError;
use super::packet::Header;
use crate::sys::query;
use crate::system_error::SystemError;
use crate::wait::Wait;

const BUFFER: usize = Header::LEN + feed::PACKET_MAX as usize;

/// The offset of preadv2(2) for a file without positions.
const NO_OFFSET: u64 = u64::MAX;

/// Receives the packets of a feed by read(2).
pub struct Reader {
    endpoint: OwnedFd,
    buffer: Box<[u8; BUFFER]>,
}

impl Reader {
    pub(super) fn new(endpoint: OwnedFd) -> Result<Self, RecvError> {
        query::<feed::Info>(endpoint.as_fd()).map_err(RecvError::of_query)?;
        let reader = Self {
            endpoint,
            buffer: Box::new([0; BUFFER]),
        };
        reader.claim()?;
        Ok(reader)
    }

    /// A feed that has been destroyed is one without packets.
    fn claim(&self) -> Result<(), RecvError> {
        match claim(self.as_fd(), feed::CONSUMER_READS) {
            Err(errno) if errno != Errno::PIPE => Err(read_error(errno)),
            _ => Ok(()),
        }
    }

    /// Copies the next packet. Waits for one, unless the descriptor was set to O_NONBLOCK.
    pub fn recv(&mut self) -> Result<PacketCopy<'_>, RecvError> {
        let len = loop {
            match read(&self.endpoint, &mut self.buffer[..]) {
                Err(Errno::INTR) => {}
                other => break other.map_err(read_error)?,
            }
        };
        self.packet(len)
    }

    /// As [`recv`](Self::recv), but fails with [`RecvError::Empty`] instead of waiting.
    pub fn try_recv(&mut self) -> Result<PacketCopy<'_>, RecvError> {
        let len = self.receive_now()?;
        self.packet(len)
    }

    /// As [`recv`](Self::recv), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`]. Sleeps without a spin.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<PacketCopy<'_>, RecvError> {
        let began = Instant::now();
        let len = loop {
            match self.receive_now() {
                Err(RecvError::Empty) => {}
                other => break other?,
            }
            let left = timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(RecvError::TimedOut(timeout));
            }
            wait_readable(self.endpoint.as_fd(), left)?;
        };
        self.packet(len)
    }

    /// As [`recv`](Self::recv), but waits for the given time.
    pub fn recv_within(&mut self, wait: impl Into<Wait>) -> Result<PacketCopy<'_>, RecvError> {
        match wait.into() {
            Wait::Never => self.try_recv(),
            Wait::For(timeout) => self.recv_timeout(timeout),
            Wait::Forever => self.recv(),
        }
    }

    fn receive_now(&mut self) -> Result<usize, RecvError> {
        read_now(&self.endpoint, &mut self.buffer[..]).map_err(read_error)
    }

    fn packet(&self, len: usize) -> Result<PacketCopy<'_>, RecvError> {
        if len == 0 {
            return Err(RecvError::Closed);
        }
        let invalid = RecvError::InvalidPacket { len };
        let (header, bytes) = self.buffer[..len].split_first_chunk().ok_or(invalid)?;
        Ok(PacketCopy {
            header: Header::from_bytes(header),
            bytes,
        })
    }
}

fn read_now(endpoint: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    let buffers = &mut [IoSliceMut::new(buffer)];
    preadv2(endpoint, buffers, NO_OFFSET, ReadWriteFlags::NOWAIT)
}

fn wait_readable(endpoint: BorrowedFd<'_>, time: Duration) -> Result<(), RecvError> {
    // A time that no timespec can hold is no limit.
    let time = Timespec::try_from(time).ok();
    match poll(&mut [PollFd::new(&endpoint, PollFlags::IN)], time.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(SystemError::new("waiting for a packet", errno).into()),
    }
}

fn read_error(errno: Errno) -> RecvError {
    match errno {
        Errno::AGAIN => RecvError::Empty,
        Errno::BUSY => RecvError::Busy,
        errno => SystemError::new("reading a packet", io::Error::from(errno)).into(),
    }
}

impl AsFd for Reader {
    /// The endpoint, which is readable when there is a packet or the feed has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoint.as_fd()
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

/// A packet in the buffer of its reader. Dereferences to its header.
#[derive(Clone, Copy, Debug)]
pub struct PacketCopy<'a> {
    header: Header,
    bytes: &'a [u8],
}

impl<'a> PacketCopy<'a> {
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl Deref for PacketCopy<'_> {
    type Target = Header;

    fn deref(&self) -> &Header {
        &self.header
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use sluice_vectors::{bytes, number};

    use super::*;

    #[test]
    fn the_vectors_are_packets() {
        for vector in sluice_vectors::of("feed-packet") {
            let (mut publisher, endpoint) = UnixStream::pair().unwrap();
            publisher.write_all(&vector.bytes).unwrap();
            let mut reader = Reader {
                endpoint: endpoint.into(),
                buffer: Box::new([0; BUFFER]),
            };
            let packet = reader.recv().unwrap();
            let value = &vector.parts()[0];
            assert_eq!(packet.bytes(), bytes(&value["bytes"]), "{}", vector.name);
            let time = Duration::from_nanos(number(&value["time_ns"]));
            let numbers = (packet.sequence, packet.lost, packet.time, packet.cycles);
            let [sequence, lost, cycles] =
                ["sequence", "lost", "cycles"].map(|name| number(&value[name]));
            assert_eq!(numbers, (sequence, lost, time, cycles));
        }
    }
}
