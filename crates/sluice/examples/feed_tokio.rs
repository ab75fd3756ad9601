// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets of the simulator in place, in a tokio runtime, as root: `cargo run -p sluice --example feed_tokio`.

use std::time::Duration;

use sluice::feed::{AsyncConsumer, Simulation, Simulator};

pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const PACKETS: u64 = 20;

#[tokio::main(flavor = "current_thread")]
pub async fn main() -> Result {
    let simulator = Simulator::open()?;
    let mut consumer = AsyncConsumer::new(simulator.map()?)?;
    let every = Simulation::every(Duration::from_millis(1));
    simulator.start(&Simulation {
        count: PACKETS,
        ..every
    })?;
    let mut seen = 0;
    while seen < PACKETS {
        let packet = consumer.recv().await?;
        seen += 1 + packet.lost;
        println!(
            "{}: {} bytes, {} lost before it",
            packet.sequence,
            packet.bytes().len(),
            packet.lost
        );
    }
    Ok(())
}
