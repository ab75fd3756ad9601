// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inside a container: a ring with the other one, set up over a socket in the directory that both have.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use sluice::ring::{Listener, Options, Socket};
use sluice_testkit::clock;

use crate::protocol::{Event, tell};
use crate::transfer::hexadecimal;
use crate::worker::{INPUT, SHARED};

const NAME: &str = "ring";

/// Says that it is ready once the other one can come.
pub fn receive() -> Result<Event> {
    let listener = Listener::bind(Path::new(SHARED).join(NAME))?;
    tell(&Event::Ready)?;
    let mut consumer = Options::new().consumer(listener.accept()?)?;
    let mut record = vec![0; consumer.max_record_len()];
    let mut hash = Sha256::new();
    let mut bytes = 0;
    while let Some(length) = consumer.recv(&mut record)? {
        hash.update(&record[..length]);
        bytes += length as u64;
    }
    Ok(Event::Received {
        bytes,
        end_ns: clock::now_ns(),
        sha256: Some(hexadecimal(&hash.finalize())),
    })
}

pub fn send(write_size: usize) -> Result<Event> {
    let content = fs::read(INPUT).with_context(|| format!("cannot read {INPUT}"))?;
    let socket = Socket::connect(Path::new(SHARED).join(NAME))?;
    let mut producer = Options::new().producer(socket)?;
    let begin_ns = clock::now_ns();
    for record in content.chunks(write_size.min(producer.max_record_len())) {
        producer.send(record)?;
    }
    Ok(Event::Sent {
        bytes: content.len() as u64,
        begin_ns,
    })
}
