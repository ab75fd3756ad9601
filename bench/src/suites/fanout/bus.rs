// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bus of the module, without spinning, with receivers that block the sender: the guarantee that the rivals give. By
//! plain calls, by mapped memory, and through io_uring.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use sluice_abi::bus::{self, Params};
use sluice_abi::{
    CTL_OPEN, KIND_BUS, OPEN_CREATE, OPEN_NONBLOCK, OPEN_READ, OPEN_WRITE, Open, Setting,
};
use sluice_testkit::module::SLUICE;

use super::bus_mapped::Mapped;
use super::bus_uring::{UringReceiver, UringSender};
use super::channel::{CAPACITY, Channel, Receiver, Resources, Sender, Shape};
use crate::harness::rounds::Skipped;

const CTL: &str = "/dev/sluice/ctl";
const NAME: &str = "fanout";

/// How an endpoint is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Calls {
    Plain,
    Mapped,
    Uring,
}

pub fn unavailable(resources: &Resources) -> Option<Skipped> {
    if !Path::new(CTL).exists() {
        return Some(Skipped::unavailable("sluice-bus", SLUICE.how_to_load()));
    }
    resources.cgroups.as_ref().err().cloned()
}

pub fn create_broadcast(shape: &Shape, resources: &Resources) -> Result<Box<dyn Channel>> {
    create(shape, resources, bus::BROADCAST, Calls::Plain)
}

pub fn create_multicast(shape: &Shape, resources: &Resources) -> Result<Box<dyn Channel>> {
    create(shape, resources, bus::MULTICAST, Calls::Plain)
}

pub fn create_unicast(shape: &Shape, resources: &Resources) -> Result<Box<dyn Channel>> {
    create(shape, resources, bus::UNICAST, Calls::Plain)
}

pub fn create_mapped(shape: &Shape, resources: &Resources) -> Result<Box<dyn Channel>> {
    create(shape, resources, bus::BROADCAST, Calls::Mapped)
}

pub fn create_uring(shape: &Shape, resources: &Resources) -> Result<Box<dyn Channel>> {
    create(shape, resources, bus::BROADCAST, Calls::Uring)
}

fn create(
    shape: &Shape,
    resources: &Resources,
    mode: u32,
    calls: Calls,
) -> Result<Box<dyn Channel>> {
    let tree = resources
        .cgroups
        .as_ref()
        .map_err(|skip| anyhow::anyhow!("{}", skip.reason))?;
    let directory = tree.create_cgroup()?.directory()?;
    let open = |flags, params| Endpoint::open(&directory, flags, params);
    let params = Params {
        mode,
        // The queue of a unicast bus has no policies.
        policies: if mode == bus::UNICAST { 0 } else { bus::BLOCK },
        flags: match calls {
            Calls::Mapped => bus::MAPPABLE,
            Calls::Plain | Calls::Uring => 0,
        },
        ..Params::default()
    };
    let sending = open(OPEN_WRITE | OPEN_CREATE, params)?;
    let of_receiver = Params {
        policy: params.policies,
        flags: match calls {
            Calls::Mapped => bus::MAPPED,
            Calls::Plain | Calls::Uring => 0,
        },
        ..Params::default()
    };
    let nonblocking = if shape.blocking { 0 } else { OPEN_NONBLOCK };
    let receiving = (0..shape.receivers).map(|_| open(OPEN_READ | nonblocking, of_receiver));
    Ok(Box::new(Bus {
        shape: *shape,
        calls,
        sending,
        receiving: receiving.collect::<Result<_>>()?,
    }))
}

/// An endpoint that never spins.
pub struct Endpoint(pub File);

impl Endpoint {
    fn open(scope: &File, flags: u32, params: Params) -> Result<Self> {
        let ctl = File::options().read(true).write(true).open(CTL);
        let ctl = ctl.with_context(|| format!("cannot open {CTL}; run as root"))?;
        let mut open = Open {
            kind: KIND_BUS,
            scope_fd: scope.as_raw_fd(),
            capacity: CAPACITY as u64,
            params: (&raw const params) as u64,
            ..Open::new(NAME, flags)
        };
        // SAFETY: the kernel reads one Open and, at its address, one Params, each with its size.
        let fd = unsafe { libc::ioctl(ctl.as_raw_fd(), CTL_OPEN, &raw mut open) };
        let fd = Errno::result(fd).context("cannot open a bus; see 'dmesg | tail'")?;
        // SAFETY: the call returned a new file descriptor.
        let endpoint = Self(unsafe { OwnedFd::from_raw_fd(fd) }.into());
        endpoint
            .call(bus::SET_SPIN, &mut Setting::new(0))
            .context("cannot turn off spinning")?;
        Ok(endpoint)
    }

    /// `argument` is the structure of this command.
    pub fn call<T>(&self, command: libc::Ioctl, argument: &mut T) -> Result<(), Errno> {
        // SAFETY: the kernel accesses one structure of the size that it begins with, and what that names.
        let returned = unsafe { libc::ioctl(self.0.as_raw_fd(), command, argument) };
        Errno::result(returned).map(drop)
    }
}

struct Bus {
    shape: Shape,
    calls: Calls,
    sending: Endpoint,
    receiving: Vec<Endpoint>,
}

impl Channel for Bus {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        Ok(match self.calls {
            Calls::Plain | Calls::Mapped => Box::new(self.sending),
            Calls::Uring => Box::new(UringSender::new(self.sending)?),
        })
    }

    fn receiver(mut self: Box<Self>, number: usize) -> Result<Box<dyn Receiver>> {
        let endpoint = self.receiving.swap_remove(number);
        let size = self.shape.size;
        Ok(match self.calls {
            Calls::Plain => Box::new(Copying {
                endpoint,
                message: vec![0; size],
            }),
            Calls::Mapped => Box::new(Mapped::new(endpoint, size)?),
            Calls::Uring => Box::new(UringReceiver::new(endpoint, &self.shape)?),
        })
    }
}

impl Sender for Endpoint {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let sent = self.0.write(message).context("cannot send a message")?;
        ensure!(sent == message.len(), "a part of a message was sent");
        Ok(())
    }
}

struct Copying {
    endpoint: Endpoint,
    message: Vec<u8>,
}

impl Receiver for Copying {
    fn receive(&mut self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<bool> {
        match self.endpoint.0.read(&mut self.message) {
            Ok(length) => {
                visit(&self.message[..length])?;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error).context("cannot receive a message"),
        }
    }
}
