// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a ring, as the producer of sluice-ring writes it, and values that are a protocol violation.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use sluice_abi::ring::{CLOSED, Ctrl, F_MEMBARRIER, NEED_FENCE, WAKE_FD, WAKE_FUTEX};
use sluice_ring::{Capacity, HEADER, Memory as _, Producer};

use crate::memory::Memory;
use crate::{Vector, fields, hex};

const LONGEST: usize = 2040;

/// Brings a new ring to a position, with short records that are released: the producer has then zeroed what follows.
fn producer_at(position: u64) -> Producer<Memory> {
    let mut producer = Producer::new(Memory::new(Capacity::MIN));
    let mut at = 0;
    while at < position {
        let length = (position - at - HEADER).min(56) as u32;
        producer.reserve(length);
        producer.write(length);
        producer.publish();
        at += sluice_ring::record_stride(length);
        producer.memory().release(at);
        producer.pending().unwrap();
        producer.prezero();
    }
    producer
}

/// The data from a position on after these records were published there at once, up to the state after the last one.
fn records(name: &'static str, position: u64, records: &[Vec<u8>]) -> Vector {
    let mut producer = producer_at(position);
    for record in records {
        assert!(producer.has_room(record.len() as u32).unwrap());
        let at = producer.reserve(record.len() as u32);
        producer.memory().write(at, record);
        producer.write(record.len() as u32);
    }
    producer.publish();
    let end = producer.memory().producer().pos.load(Ordering::Relaxed);
    let records: Vec<_> = records.iter().map(|record| hex(record)).collect();
    Vector {
        name,
        page: "ring.md#records",
        form: "ring-data",
        given: json!({"capacity": 4096, "position": position}),
        bytes: producer
            .memory()
            .read(position, (end + HEADER - position) as usize),
        outcome: Ok(json!({"records": records, "end": end})),
    }
}

/// So many different bytes.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place % 251) as u8 + 1).collect()
}

/// A header that no consumer accepts.
fn bad_header(name: &'static str, length: u32, state: u32) -> Vector {
    Vector {
        name,
        page: "ring.md#validation",
        form: "ring-data",
        given: json!({"capacity": 4096, "position": 0}),
        bytes: [length.to_le_bytes(), state.to_le_bytes()].concat(),
        outcome: Err("violation"),
    }
}

const NEW: Ctrl = Ctrl {
    pos: 0,
    reserved0: [0; 15],
    wait_flags: 0,
    wake_seq: 0,
    closed: 0,
    wake_ack: 0,
    features: 0,
    reserved1: [0; 27],
};

/// The control page of a side.
fn control(name: &'static str, ctrl: Ctrl) -> Vector {
    Vector {
        name,
        page: "ring.md#struct-sluice_ring_ctrl",
        form: "ring-control",
        given: Value::Null,
        bytes: ctrl.to_bytes().to_vec(),
        outcome: Ok(fields("sluice_ring_ctrl", &ctrl.to_bytes()).into()),
    }
}

/// The control page of a consumer, for a producer that has published 32 bytes, of which 16 were released before.
fn released(name: &'static str, pos: u64, outcome: Result<(), &'static str>) -> Vector {
    let vector = control(name, Ctrl { pos, ..NEW });
    Vector {
        page: "ring.md#validation",
        given: json!({"published": 32, "released": 16}),
        outcome: outcome.and(vector.outcome),
        ..vector
    }
}

#[rustfmt::skip]
pub fn vectors() -> Vec<Vector> {
    vec![
        records("ring: no record yet", 0, &[]),
        records("ring: a record of 0 bytes", 0, &[content(0)]),
        records("ring: a record of 1 byte", 0, &[content(1)]),
        records("ring: a record of 7 bytes", 0, &[content(7)]),
        records("ring: a record of 8 bytes", 0, &[content(8)]),
        records("ring: a record of 100 bytes", 0, &[content(100)]),
        records("ring: the longest record", 0, &[content(LONGEST)]),
        records("ring: a batch", 0, &[content(5), content(0), content(16)]),
        records("ring: a record up to the end of the data", 4080, &[content(8)]),
        records("ring: a record across the end of the data", 4088, &[content(100)]),
        bad_header("ring: an unknown state", 8, 2),
        bad_header("ring: a state of many bits", 8, u32::MAX),
        bad_header("ring: a record that is too long", LONGEST as u32 + 1, 1),
        bad_header("ring: a record of the greatest length", u32::MAX, 1),
        control("ring: a control page of a new ring", NEW),
        control("ring: a side that sleeps in a futex", Ctrl { pos: 2080, wait_flags: WAKE_FUTEX | 5 << 3, wake_seq: 7, ..NEW }),
        control(
            "ring: a side that sleeps on its descriptor and needs a fence",
            Ctrl {
                pos: 1 << 40,
                wait_flags: WAKE_FD | NEED_FENCE | 0x1fff_ffff << 3,
                wake_seq: u32::MAX,
                wake_ack: 9,
                features: F_MEMBARRIER,
                ..NEW
            },
        ),
        control("ring: a side that has closed", Ctrl { pos: 16, closed: CLOSED, ..NEW }),
        released("ring: a consumer that has released nothing more", 16, Ok(())),
        released("ring: a consumer that has released everything", 32, Ok(())),
        released("ring: a position that is no multiple of 8", 20, Err("violation")),
        released("ring: a position that goes back", 8, Err("violation")),
        released("ring: a position beyond what was published", 40, Err("violation")),
    ]
}
