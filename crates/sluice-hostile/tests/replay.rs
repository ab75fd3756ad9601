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

/// Reproducible bytes.
fn pseudo_random(run: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(run).fill(&mut bytes);
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
