// SPDX-License-Identifier: MIT OR Apache-2.0
//! The consumer of a feed.

use std::time::Duration;

use sluice::feed::{Consumer, Reader, RecvError, Simulation, Simulator};

use crate::peer::{Endpoint, Opened};
use crate::words::{failed, refused, within};

/// The name of the feed of the packet simulator, which has none.
const SIMULATOR: &str = "simulator";
const INTERVAL: Duration = Duration::from_millis(1);

pub struct Feed {
    simulator: Option<Simulator>,
    receiver: Receiver,
}

enum Receiver {
    Copies(Reader),
    InPlace(Consumer),
}

impl Feed {
    pub fn open(name: &str, side: &str) -> Opened {
        let unopened = |error: sluice::Error| refused(error.raw_os_error());
        let (simulator, claimed) = match name {
            SIMULATOR => {
                let simulator = Simulator::open().map_err(unopened)?;
                let claimed = claim(&simulator, side);
                (Some(simulator), claimed)
            }
            _ => {
                let feed = sluice::Feed::named(name).open().map_err(unopened)?;
                (None, claim(&feed, side))
            }
        };
        let receiver = claimed.map_err(|error| refused(error.raw_os_error()))?;
        Ok(Box::new(Self {
            simulator,
            receiver,
        }))
    }
}

fn claim(feed: &sluice::Feed, side: &str) -> Result<Receiver, RecvError> {
    match side {
        "feed-consumer" => feed.map().map(Receiver::InPlace),
        _ => feed.reader().map(Receiver::Copies),
    }
}

impl Endpoint for Feed {
    fn execute(&mut self, words: &[&str]) -> Option<String> {
        match *words {
            ["start", count, length] => {
                let simulation = Simulation {
                    count: count.parse().ok()?,
                    length: length.parse().ok()?,
                    ..Simulation::every(INTERVAL)
                };
                let started = self.simulator.as_ref()?.start(&simulation);
                let failed = started.err().map(|error| refused(error.raw_os_error()));
                Some(failed.unwrap_or_else(|| "ok".to_owned()))
            }
            ["packet", ref time @ ..] => Some(match &mut self.receiver {
                Receiver::Copies(reader) => {
                    let packet = within!(time, reader, recv | try_recv | recv_timeout());
                    received(packet.map(|packet| (packet.bytes().len(), packet.lost)))
                }
                Receiver::InPlace(consumer) => {
                    let packet = within!(time, consumer, recv | try_recv | recv_timeout());
                    received(packet.map(|packet| (packet.bytes().len(), packet.lost)))
                }
            }),
            _ => None,
        }
    }
}

/// The length, and the packets lost before it.
fn received(packet: Result<(usize, u64), RecvError>) -> String {
    match packet {
        Ok((length, 0)) => format!("packet {length}"),
        Ok((length, lost)) => format!("packet {length} lost {lost}"),
        Err(error) => failed(error.raw_os_error(), "empty"),
    }
}
