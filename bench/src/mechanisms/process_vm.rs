// SPDX-License-Identifier: MIT OR Apache-2.0
//! process_vm_readv(2): the receiver copies a message out of the memory of the sender, which waits until it has. One
//! copy instead of two, as MPI libraries transfer long messages within a machine. The addresses and the
//! acknowledgements are messages of a ring in shared memory with futex(2).

use std::io::IoSliceMut;

use anyhow::{Result, ensure};
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::{Pid, getpid};

use super::link::ensure_fits;
use super::mechanism::no_file;
use super::{Link, Mechanism, Receiver, Sender, Task, futex_shm};
use crate::harness::waiting::Waiting;

pub fn mechanism() -> Mechanism {
    Mechanism {
        in_flight: Box::new(|_| 1),
        unsupported_reason: Box::new(unsupported_reason),
        ..Mechanism::new("process-vm", Waiting::Sleep, |_| {
            let endpoint = Endpoint {
                descriptors: futex_shm::link(size_of::<Descriptor>())?,
                acknowledgements: futex_shm::link(ACKNOWLEDGEMENT.len())?,
            };
            Ok(Link::new(endpoint, Endpoint::sender, Endpoint::receiver))
        })
    }
}

fn unsupported_reason(task: &Task) -> Option<String> {
    no_file(task).or_else(|| {
        let own = [0];
        let descriptor = Descriptor::of(&own);
        let error = descriptor.read(&mut [1]).err()?;
        Some(format!("{error:#}"))
    })
}

const ACKNOWLEDGEMENT: [u8; 1] = [0];

struct Endpoint {
    descriptors: Link,
    acknowledgements: Link,
}

impl Endpoint {
    fn sender(self) -> Result<Exposing> {
        // Where Yama restricts ptrace(2) to descendants, a sibling is allowed this way. Fails where there is no Yama.
        // SAFETY: the call takes numbers only.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
        Ok(Exposing {
            descriptors: self.descriptors.sender()?,
            acknowledgements: self.acknowledgements.receiver()?,
        })
    }

    fn receiver(self) -> Result<Reading> {
        Ok(Reading {
            descriptors: self.descriptors.receiver()?,
            acknowledgements: self.acknowledgements.sender()?,
        })
    }
}

/// Where a message is.
struct Descriptor {
    process: u64,
    address: u64,
    len: u64,
}

type Encoded = [u8; size_of::<Descriptor>()];

impl Descriptor {
    fn of(message: &[u8]) -> Self {
        Self {
            process: getpid().as_raw() as u64,
            address: message.as_ptr().addr() as u64,
            len: message.len() as u64,
        }
    }

    fn encode(&self) -> Encoded {
        let mut encoded = Encoded::default();
        let words = [self.process, self.address, self.len];
        for (bytes, word) in encoded.chunks_exact_mut(size_of::<u64>()).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        encoded
    }

    fn decode(encoded: &Encoded) -> Self {
        let word = |at: usize| {
            let mut bytes = [0; size_of::<u64>()];
            bytes.copy_from_slice(&encoded[at * size_of::<u64>()..][..size_of::<u64>()]);
            u64::from_ne_bytes(bytes)
        };
        Self {
            process: word(0),
            address: word(1),
            len: word(2),
        }
    }

    fn read(&self, message: &mut [u8]) -> Result<usize> {
        let len = usize::try_from(self.len)?;
        ensure_fits(len, message.len())?;
        let remote = RemoteIoVec {
            base: usize::try_from(self.address)?,
            len,
        };
        let process = Pid::from_raw(self.process.try_into()?);
        let local = &mut [IoSliceMut::new(&mut message[..len])];
        let read = process_vm_readv(process, local, &[remote]).map_err(read_error)?;
        ensure!(read == len, "{read} bytes of {len} were read");
        Ok(len)
    }
}

fn read_error(errno: Errno) -> anyhow::Error {
    let advice = match errno {
        Errno::EPERM => {
            "; run without a filter of system calls, and allow ptrace(2) of this user's processes"
        }
        Errno::ENOSYS => "; use a kernel with CONFIG_CROSS_MEMORY_ATTACH",
        _ => "",
    };
    anyhow::Error::new(errno).context(format!("cannot read the memory of another process{advice}"))
}

struct Exposing {
    descriptors: Box<dyn Sender>,
    acknowledgements: Box<dyn Receiver>,
}

impl Sender for Exposing {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.descriptors.send(&Descriptor::of(message).encode())?;
        let mut acknowledgement = ACKNOWLEDGEMENT;
        let len = self.acknowledgements.receive(&mut acknowledgement)?;
        ensure!(len == acknowledgement.len(), "the receiver has ended");
        Ok(())
    }
}

struct Reading {
    descriptors: Box<dyn Receiver>,
    acknowledgements: Box<dyn Sender>,
}

impl Receiver for Reading {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let mut encoded = Encoded::default();
        if self.descriptors.receive(&mut encoded)? == 0 {
            return Ok(0);
        }
        let len = Descriptor::decode(&encoded).read(message)?;
        self.acknowledgements.send(&ACKNOWLEDGEMENT)?;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_survives_its_encoding() {
        let message = *b"message";
        let mut copy = [0; 8];
        let descriptor = Descriptor::decode(&Descriptor::of(&message).encode());
        assert_eq!(descriptor.read(&mut copy).unwrap(), message.len());
        assert_eq!(copy[..message.len()], message);
        assert!(descriptor.read(&mut [0; 3]).is_err());
    }

    #[test]
    fn a_refusal_says_what_to_allow() {
        let error = format!("{:#}", read_error(Errno::EPERM));
        assert!(error.contains("ptrace"), "{error}");
    }
}
