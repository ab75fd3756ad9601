// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use sluice::feed::{Consumer, Packet, RecvError};

use super::FeedArgs;
use crate::args;
use crate::output;
use crate::ring::codec::{Format, Framing};
use crate::ring::output::OutputBuffer;
use crate::signals::FinalReport;
use crate::stream;
use crate::text::encode;

/// The number of bytes after which a write starts.
const CHUNK: usize = 128 << 10;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    feed: FeedArgs,

    /// Framing of the packets in standard output
    #[arg(long, value_name = "FRAMING", default_value = "lines")]
    framing: Framing,

    /// Exit after this number of packets [default: at the end of the feed]
    #[arg(long, value_name = "N", value_parser = args::number(1u64..))]
    count: Option<u64>,

    /// Print each packet as a JSON object in a line, with sequence, losses and time
    #[arg(long, conflicts_with = "framing")]
    json: bool,

    /// Print a JSON summary to standard error at the end
    #[arg(long)]
    summary: bool,
}

/// The JSON object that sluice-feed(1) describes.
#[derive(Serialize)]
struct Summary {
    packets: u64,
    lost: u64,
    bytes: u64,
    capacity: u64,
    seconds: f64,
}

/// The JSON object of a packet that sluice-feed(1) describes.
#[derive(Serialize)]
struct PacketObject {
    sequence: u64,
    lost: u64,
    time_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    packet: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    packet_base64: Option<String>,
}

fn object(packet: &Packet) -> PacketObject {
    let (text, base64) = encode(&packet.bytes().to_vec());
    PacketObject {
        sequence: packet.sequence,
        lost: packet.lost,
        time_ns: u64::try_from(packet.time.as_nanos()).unwrap_or(u64::MAX),
        packet: text,
        packet_base64: base64,
    }
}

/// The counts of received packets. Another thread may read them at any time.
struct Stats {
    start: Instant,
    capacity: u64,
    packets: AtomicU64,
    lost: AtomicU64,
    bytes: AtomicU64,
}

/// What was received and not written yet, and the counts of all.
struct Received {
    buffer: OutputBuffer,
    format: Format,
    limit: u64,
    stats: Arc<Stats>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let output = stream::output()?;
    let mut consumer = arguments.feed.open()?.map()?;
    let stats = Arc::new(Stats::start(consumer.capacity()));
    let (in_full, reported) = (arguments.summary, Arc::clone(&stats));
    let summary = FinalReport::new(move || reported.print(in_full))?;
    let mut received = Received {
        buffer: OutputBuffer::default(),
        format: match arguments.json {
            true => Format::Json,
            false => Format::Framed(arguments.framing),
        },
        limit: arguments.count.unwrap_or(u64::MAX),
        stats,
    };
    let outcome = receive_all(&mut consumer, &mut received, &output);
    summary.print()?;
    outcome
}

impl Stats {
    fn start(capacity: u64) -> Self {
        Self {
            start: Instant::now(),
            capacity,
            packets: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    fn count(&self, packet: &Packet) {
        let length = packet.bytes().len() as u64;
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.lost.fetch_add(packet.lost, Ordering::Relaxed);
        self.bytes.fetch_add(length, Ordering::Relaxed);
    }

    fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Prints to standard error, because the packets are in standard output.
    fn print(&self, in_full: bool) -> Result<()> {
        let summary = Summary {
            packets: self.packets(),
            lost: self.lost.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            capacity: self.capacity,
            seconds: self.start.elapsed().as_secs_f64(),
        };
        if in_full {
            output::print_summary(&summary)?;
        } else if summary.lost > 0 {
            let lost = summary.lost;
            output::note(&format!(
                "sluice: {lost} packets were lost, because this process was too slow"
            ));
        }
        Ok(())
    }
}

fn receive_all(consumer: &mut Consumer, received: &mut Received, mut output: &File) -> Result<()> {
    while received.stats.packets() < received.limit {
        match consumer.recv() {
            Err(RecvError::Closed) => break,
            other => received.push(&other?),
        }
        let collected = received.collect(consumer);
        let written = received.buffer.write_to(&mut output);
        written
            .map_err(|error| stream::explain_output(received.stats.packets(), "packets", error))?;
        collected?;
    }
    Ok(())
}

impl Received {
    /// Packets that are available now.
    fn collect(&mut self, consumer: &mut Consumer) -> Result<(), RecvError> {
        while self.stats.packets() < self.limit && self.buffer.len() < CHUNK {
            match consumer.try_recv() {
                Err(RecvError::Empty | RecvError::Closed) => break,
                other => self.push(&other?),
            }
        }
        Ok(())
    }

    fn push(&mut self, packet: &Packet) {
        match self.format {
            Format::Json => self.buffer.push_object(&object(packet)),
            format => self.buffer.push(format, packet.bytes()),
        }
        self.stats.count(packet);
    }
}
