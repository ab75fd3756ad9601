// SPDX-License-Identifier: MIT OR Apache-2.0
//! As the library's own benchmark, bench_ipc: rings of 16 MiB, requests by send(), replies written from ring to ring, and
//! a receiver that never sleeps. Streams are the send() and acquire_rx() of its introduction; their receiver announces that it
//! never sleeps, which makes short messages about five times as fast, and which does not make round trips faster.

use std::hint::spin_loop;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, Result};
use tachyon_ipc::{Bus, TachyonError};

use super::{Connection, MESSAGE, Mode};
use crate::mechanisms::own_program::Program;
use crate::mechanisms::temp_paths::TempPaths;

const CAPACITY: usize = 1 << 24;
/// The receiver never sleeps.
const SPINS: u32 = u32::MAX;

pub struct BenchIpc(pub Rc<TempPaths>);

pub struct Sockets {
    paths: [PathBuf; 2],
    size: usize,
}

impl Sockets {
    fn connection(&self, number: usize, mode: Mode) -> Connection {
        Connection {
            path: self.paths[number].clone(),
            capacity: CAPACITY,
            mode,
        }
    }

    fn connect(&self, number: usize) -> Result<Bus> {
        self.connection(number, Mode::Futex).connect()
    }

    /// With Mode::Polling the receiver announces that it never sleeps.
    fn listen(&self, number: usize, mode: Mode) -> Result<Bus> {
        self.connection(number, mode).listen()
    }
}

pub struct Requester {
    payload: Vec<u8>,
    ping: Bus,
    pong: Bus,
}

pub struct Source {
    payload: Vec<u8>,
    bus: Bus,
}

impl Program for BenchIpc {
    type Shared = Sockets;
    type Requester = Requester;
    type Replier = (Bus, Bus);
    type Source = Source;
    type Sink = Bus;

    fn share(&self, size: usize) -> Result<Sockets> {
        Ok(Sockets {
            paths: [self.0.next_path()?, self.0.next_path()?],
            size,
        })
    }

    fn requester(sockets: Sockets) -> Result<Requester> {
        Ok(Requester {
            payload: vec![0xab; sockets.size],
            ping: sockets.connect(0)?,
            pong: sockets.connect(1)?,
        })
    }

    fn replier(sockets: Sockets) -> Result<(Bus, Bus)> {
        Ok((
            sockets.listen(0, Mode::Futex)?,
            sockets.listen(1, Mode::Futex)?,
        ))
    }

    fn request(requester: &mut Requester) -> Result<()> {
        requester.ping.send(&requester.payload, MESSAGE)?;
        Ok(requester.pong.acquire_rx(SPINS)?.commit()?)
    }

    fn reply((ping, pong): &mut (Bus, Bus)) -> Result<u64> {
        let received = ping.acquire_rx(SPINS)?;
        let slot = pong.acquire_tx(received.actual_size)?;
        slot.write(received.data());
        let (len, type_id) = (received.actual_size, received.type_id);
        received.commit()?;
        slot.commit(len, type_id)?;
        Ok(1)
    }

    fn source(sockets: Sockets) -> Result<Source> {
        Ok(Source {
            payload: vec![0xab; sockets.size],
            bus: sockets.connect(0)?,
        })
    }

    fn sink(sockets: Sockets) -> Result<Bus> {
        sockets.listen(0, Mode::Polling)
    }

    fn put(source: &mut Source) -> Result<()> {
        loop {
            match source.bus.send(&source.payload, MESSAGE) {
                Err(TachyonError::BufferFull) => spin_loop(),
                other => return other.context("cannot send a message"),
            }
        }
    }

    fn take(bus: &mut Bus) -> Result<u64> {
        bus.acquire_rx(SPINS)?.commit()?;
        Ok(1)
    }
}
