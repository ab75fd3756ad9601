// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets of the simulator, and how long each takes from the interrupt to this process, as root: `cargo run -p sluice --example feed`.

use std::time::Duration;

use sluice::feed::{Simulation, Simulator};

pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const PACKETS: u64 = 20;

pub fn main() -> Result {
    let simulator = Simulator::open()?;
    // Claims the feed before the first packet.
    let mut reader = simulator.reader()?;
    let every = Simulation::every(Duration::from_millis(1));
    simulator.start(&Simulation {
        count: PACKETS,
        ..every
    })?;
    let mut seen = 0;
    while seen < PACKETS {
        let packet = reader.recv()?;
        seen += 1 + packet.lost;
        println!(
            "{}: {:?} after the interrupt",
            packet.sequence,
            packet.latency()
        );
    }
    Ok(())
}
