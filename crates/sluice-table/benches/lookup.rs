// SPDX-License-Identifier: MIT OR Apache-2.0
//! A chain of lookups in a table in a memfd, where each value has the next key, beside a chain of cache misses: two dependent loads in a
//! block, where the second has the address of the next block. Prints the medians of alternating rounds, and the median of their ratios. Run
//! with `cargo bench -p sluice-table`.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use sluice_table::writer::Writer;
use sluice_table::{Lookup, Memory, Reader, Shape};

const KEYS: u64 = 100_000;
const VALUE: usize = 64;
const LOOKUPS: u64 = 200_000;
const ROUNDS: usize = 15;

/// Shared memory without a name.
#[derive(Clone, Copy)]
struct Memfd {
    start: *mut u8,
}

impl Memfd {
    fn new(bytes: u64) -> Self {
        // SAFETY: new memory, which stays mapped.
        let start = unsafe {
            let file = libc::memfd_create(c"table".as_ptr(), libc::MFD_CLOEXEC);
            assert!(file >= 0 && libc::ftruncate(file, bytes as libc::off_t) == 0);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
            libc::mmap(std::ptr::null_mut(), bytes as usize, access, flags, file, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self {
            start: start.cast(),
        }
    }
}

impl Memory for Memfd {
    fn half(&self, at: u64) -> &AtomicU32 {
        // SAFETY: within the memory, which is aligned and stays mapped.
        unsafe { &*self.start.add(at as usize).cast() }
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { &*self.start.add(at as usize).cast() }
    }
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"0123456789abcdef";
    key[..8].copy_from_slice(&number.to_ne_bytes());
    key
}

/// Each number has a next one, and all are in one cycle.
fn cycle(count: u64, random: &mut fastrand::Rng) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count).collect();
    random.shuffle(&mut order);
    let mut next = vec![0; count as usize];
    for (at, number) in order.iter().enumerate() {
        next[*number as usize] = order[(at + 1) % order.len()];
    }
    next
}

/// The time of one of the operations, in ns.
fn time(mut operation: impl FnMut()) -> f64 {
    let begin = Instant::now();
    operation();
    begin.elapsed().as_nanos() as f64 / LOOKUPS as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let shape = Shape::new(0x1234_5678, Shape::table_for(KEYS, 128).unwrap(), 128).unwrap();
    let (table, chain) = (Memfd::new(shape.table()), Memfd::new(shape.table()));
    let (writer, reader) = (Writer::new(table, shape), Reader::new(table, shape));
    let mut random = fastrand::Rng::with_seed(1);
    for (number, next) in cycle(KEYS, &mut random).iter().enumerate() {
        let mut value = [number as u8; VALUE];
        value[..8].copy_from_slice(&next.to_ne_bytes());
        writer.insert(&key(number as u64), &value, number as u64, u64::MAX);
    }
    for (block, next) in cycle(shape.blocks(), &mut random).iter().enumerate() {
        let cell = shape.cell(block as u64, random.u64(..15));
        chain
            .word(shape.bucket(block as u64))
            .store(cell, Ordering::Relaxed);
        chain
            .word(cell)
            .store(shape.bucket(*next), Ordering::Relaxed);
    }
    let (mut number, mut at) = (0, 0);
    let mut rounds: Vec<[f64; 2]> = Vec::new();
    for _ in 0..ROUNDS {
        let lookup = time(|| {
            let mut room = [0; VALUE];
            for _ in 0..LOOKUPS {
                let found = reader.get(&key(number), &mut room, || 0);
                assert!(matches!(found, Lookup::Value(_)));
                let first = room.first_chunk().expect("the room has 64 bytes");
                number = u64::from_ne_bytes(*first);
            }
        });
        let misses = time(|| {
            for _ in 0..LOOKUPS {
                let cell = chain.word(at).load(Ordering::Relaxed);
                at = chain.word(cell).load(Ordering::Relaxed);
            }
        });
        rounds.push([lookup, misses]);
    }
    black_box((number, at));
    let of = |what: fn(&[f64; 2]) -> f64| median(rounds.iter().map(what).collect());
    let (lookup, misses) = (of(|round| round[0]), of(|round| round[1]));
    let ratio = of(|round| round[0] / round[1]);
    println!(
        "{KEYS} keys, values of {VALUE} B: a lookup {lookup:.1} ns, a chain of two misses {misses:.1} ns, ratio {ratio:.2}"
    );
}
