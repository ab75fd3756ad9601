// SPDX-License-Identifier: MIT OR Apache-2.0
//! As the library's own benchmark, bench_ipc: rings of 16 MiB, requests by send(), replies written from ring to ring, and
//! a receiver that never sleeps. Streams are the send() and acquire_rx() of its introduction; their receiver announces that it
//! never sleeps, which makes short messages about five times as fast, and which does not make round trips faster.

use std::hint::spin_loop;
use std::rc::Rc;

use anyhow::{Context, Result};
use sluice_testkit::workers::Pair;
use tachyon_ipc::TachyonError;

use super::{Connection, MESSAGE};
use crate::mechanisms::own_program::{OwnProgram, Role, Run, Shape};
use crate::mechanisms::temp_paths::TempPaths;

const CAPACITY: usize = 1 << 24;
/// The receiver never sleeps.
const SPINS: u32 = u32::MAX;

pub struct BenchIpc(pub Rc<TempPaths>);

impl OwnProgram for BenchIpc {
    fn start(&self, run: &Run) -> Result<Pair> {
        let connection = || -> Result<_> {
            Ok(Connection {
                path: self.0.next_path()?,
                capacity: CAPACITY,
                polls: run.shape == Shape::Stream,
            })
        };
        let connections = [connection()?, connection()?];
        run.start(connections, |[forward, backward], role, process| {
            let payload = vec![0xab; run.size];
            match role {
                Role::Requester => {
                    let (ping, pong) = (forward.connect()?, backward.connect()?);
                    process.request(|| {
                        ping.send(&payload, MESSAGE)?;
                        Ok(pong.acquire_rx(SPINS)?.commit()?)
                    })
                }
                Role::Replier => {
                    let (ping, pong) = (forward.listen()?, backward.listen()?);
                    process.reply(|| {
                        let received = ping.acquire_rx(SPINS)?;
                        let slot = pong.acquire_tx(received.actual_size)?;
                        slot.write(received.data());
                        let (len, type_id) = (received.actual_size, received.type_id);
                        received.commit()?;
                        slot.commit(len, type_id)?;
                        Ok(1)
                    })
                }
                Role::Source => {
                    let bus = forward.connect()?;
                    process.send(|| {
                        loop {
                            match bus.send(&payload, MESSAGE) {
                                Err(TachyonError::BufferFull) => spin_loop(),
                                other => return other.context("cannot send a message"),
                            }
                        }
                    })
                }
                Role::Sink => {
                    let bus = forward.listen()?;
                    process.receive(|| {
                        bus.acquire_rx(SPINS)?.commit()?;
                        Ok(1)
                    })
                }
            }
        })
    }
}
