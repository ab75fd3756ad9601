// SPDX-License-Identifier: MIT OR Apache-2.0
//! What fuzzing has found worth keeping, and some bytes more, without a fuzzer.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sluice_hostile::fuzz::targets;

/// For each target, at most.
const TIME: Duration = Duration::from_secs(2);

fn corpus(target: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    folder.join(target)
}

fn replay(target: &str) {
    let run = targets()[target];
    let mut files = 0;
    for entry in fs::read_dir(corpus(target)).expect("no corpus") {
        let path = entry.expect("no entry").path();
        eprintln!("{}", path.display());
        run(&fs::read(path).expect("not read"));
        files += 1;
    }
    assert!(files >= 10, "{files} files");
}

/// The same bytes each time, by a generator with 64 bits of state (splitmix).
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
    while runs < 2000 && began.elapsed() < TIME {
        let length = 16 + (runs * 37 % 1000) as usize;
        // What a failing test has to tell is which input it was.
        let input = std::panic::catch_unwind(|| run(&pseudo_random(runs, length)));
        assert!(input.is_ok(), "pseudo-random input {runs}");
        runs += 1;
    }
    assert!(runs >= 10, "{runs} runs in {TIME:?}");
}

macro_rules! replays {
    ($($target:ident)*) => {$(
        mod $target {
            #[test]
            fn what_was_found_is_found_no_more() {
                super::replay(stringify!($target));
            }

            #[test]
            fn arbitrary_bytes_do_no_harm() {
                super::try_random(stringify!($target));
            }
        }
    )*};
}

replays! { greeting honest lying_consumer lying_producer }
