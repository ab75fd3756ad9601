// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the fuzz targets without a fuzzer, with their corpus and with pseudo-random inputs.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use sluice_hostile::fuzz::targets;
use tar::Archive;

/// The time limit of the pseudo-random inputs of a target.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// The inputs in a target's corpus, by name.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let archive = File::open(folder.join(format!("{target}.tar"))).expect("no corpus");
    let mut inputs = Vec::new();
    for entry in Archive::new(archive).entries().expect("not an archive") {
        let mut entry = entry.expect("not readable");
        if entry.header().entry_type().is_file() {
            let name = entry.path().expect("no name").display().to_string();
            let mut input = Vec::new();
            entry.read_to_end(&mut input).expect("not readable");
            inputs.push((name, input));
        }
    }
    inputs
}

fn replay(target: &str) {
    let run = targets()[target];
    let inputs = corpus(target);
    assert!(inputs.len() >= 10, "{} inputs", inputs.len());
    for (name, input) in inputs {
        // Identifies the input of a failed run.
        eprintln!("{name}");
        run(&input);
    }
}

/// Reproducible bytes (splitmix64).
fn pseudo_random(run: u64, length: usize) -> Vec<u8> {
    let mut state = run.wrapping_mul(0xd134_2543_de82_ef95);
    let mut word = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| word()).collect();
    bytes.truncate(length);
    bytes
}

fn try_random(target: &str) {
    let run = targets()[target];
    let began = Instant::now();
    let mut runs = 0;
    while runs < 2000 && began.elapsed() < TIME_LIMIT {
        let length = 16 + (runs * 37 % 1000) as usize;
        let result = std::panic::catch_unwind(|| run(&pseudo_random(runs, length)));
        assert!(result.is_ok(), "pseudo-random input {runs}");
        runs += 1;
    }
    assert!(runs >= 10, "{runs} runs in {TIME_LIMIT:?}");
}

macro_rules! replays {
    ($($target:ident)*) => {$(
        mod $target {
            #[test]
            fn corpus_inputs_pass() {
                super::replay(stringify!($target));
            }

            #[test]
            fn pseudo_random_inputs_pass() {
                super::try_random(stringify!($target));
            }
        }
    )*};
}

replays! { handshake round_trip malicious_consumer malicious_producer }
