// SPDX-License-Identifier: MIT OR Apache-2.0
//! A loop of known length: the control of the counts, and the measure of their background.

use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::spread::Spread;

use super::Counting;
use super::counter::{Count, Counter, mark};
use crate::harness::rounds::{Instructions, Job, Measurement};

/// Long enough for several interrupts of the timer.
pub const ITERATIONS: u64 = 10_000_000;
const INSTRUCTIONS_PER_ITERATION: u64 = 2;
/// The count of the loop may differ from its length by one in so many.
const TOLERANCE: u64 = 1000;
const BACKGROUND_LOOPS: usize = 5;
/// Bytes that one instruction writes.
const STRING: usize = 1 << 20;
/// It, and what prepares its registers. It begins anew after each interrupt.
const MAX_OF_STRING: u64 = 100;
const SETTLE: Duration = Duration::from_millis(20);

/// Executes exactly this number of iterations, of two instructions each.
#[cfg(target_arch = "x86_64")]
fn spin(iterations: u64) {
    // SAFETY: it counts a register of its own down.
    unsafe {
        std::arch::asm!(
            "2:",
            "dec {left}",
            "jnz 2b",
            left = inout(reg) iterations.max(1) => _,
            options(nomem, nostack)
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn spin(iterations: u64) {
    for _ in 0..iterations {
        std::hint::spin_loop();
    }
}

/// The instructions of a loop, and its time.
fn count_loop(counter: &Counter) -> Result<(Count, u64)> {
    let (elapsed, count) = counter.count(|| {
        // What the kernel has deferred, such as the work after reading the file of counts, is done by then.
        sleep(SETTLE);
        let begin = clock::now_ns();
        mark();
        spin(ITERATIONS);
        mark();
        Ok(clock::now_ns() - begin)
    })?;
    Ok((count, elapsed))
}

/// Writes all bytes with one instruction.
#[cfg(target_arch = "x86_64")]
fn fill(bytes: &mut [u8]) {
    // SAFETY: it writes as many bytes as there are, and the direction flag is clear.
    unsafe {
        std::arch::asm!(
            "rep stosb",
            inout("rcx") bytes.len() => _,
            inout("rdi") bytes.as_mut_ptr() => _,
            in("al") 0_u8,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn fill(bytes: &mut [u8]) {
    bytes.fill(0);
}

/// Instructions of the kernel per nanosecond while a process needs nothing of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Background(f64);

impl Background {
    pub fn measure(counter: &Counter) -> Result<Self> {
        let rate = |_| {
            let (count, elapsed) = count_loop(counter)?;
            Ok(count.kernel as f64 / elapsed.max(1) as f64)
        };
        let rates = (0..BACKGROUND_LOOPS)
            .map(rate)
            .collect::<Result<Vec<f64>>>()?;
        let rates = Spread::of(&rates).context("the background is measured at least once")?;
        Ok(Self(rates.median))
    }

    /// The instructions of each of these operations, which took this time.
    pub fn per_operation(self, count: Count, elapsed_ns: u64, operations: u64) -> Instructions {
        let background = self.0 * elapsed_ns as f64;
        Instructions {
            user: count.user as f64 / operations as f64,
            kernel: (count.kernel as f64 - background).max(0.0) / operations as f64,
        }
    }
}

/// The loop as a measurement, which fails if it is counted wrong.
pub struct Control(pub Rc<Counting>);

impl Job for Control {
    /// A repeated string instruction is one, although QEMU executes it in many steps.
    fn check(&self) -> Result<()> {
        // Not zero, so that the memory is there.
        let mut bytes = vec![1; STRING];
        let ((), count) = self.0.counter.count(|| {
            mark();
            fill(&mut bytes);
            mark();
            Ok(())
        })?;
        ensure!(
            count.user < MAX_OF_STRING,
            "an instruction that writes {STRING} bytes was counted as {}; the counts of this run are wrong",
            count.user
        );
        self.measure().map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        let (count, _) = count_loop(&self.0.counter)?;
        ensure_exact(count.user)?;
        // The background is what remains here, so it is not subtracted.
        let instructions = Background::default().per_operation(count, 0, ITERATIONS);
        Ok(Measurement {
            instructions: Some(instructions),
            ..Measurement::default()
        })
    }
}

fn ensure_exact(counted: u64) -> Result<()> {
    let length = ITERATIONS * INSTRUCTIONS_PER_ITERATION;
    ensure!(
        counted.abs_diff(length) <= length / TOLERANCE,
        "a loop of {length} instructions was counted as {counted}; the counts of this run are wrong"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_ends() {
        spin(0);
        spin(ITERATIONS);
    }

    #[test]
    fn all_bytes_are_filled() {
        let mut bytes = vec![1; 1000];
        fill(&mut bytes[..999]);
        assert!(bytes[..999].iter().all(|&byte| byte == 0) && bytes[999] == 1);
    }

    #[test]
    fn the_control_tolerates_a_thousandth() {
        for counted in [19_980_000, 20_000_000, 20_000_001, 20_020_000] {
            assert!(ensure_exact(counted).is_ok(), "{counted}");
        }
        for counted in [0, 19_979_999, 20_020_001] {
            assert!(ensure_exact(counted).is_err(), "{counted}");
        }
    }

    #[test]
    fn the_background_is_subtracted_from_the_instructions_of_the_kernel() {
        let count = Count {
            user: 50_000,
            kernel: 1_010_000,
        };
        let counted = Background(0.001).per_operation(count, 10_000_000, 100);
        let expected = Instructions {
            user: 500.0,
            kernel: 10_000.0,
        };
        assert_eq!(counted, expected);
    }

    #[test]
    fn less_than_the_background_is_nothing() {
        let count = Count { user: 7, kernel: 3 };
        let counted = Background(1.0).per_operation(count, 10, 1);
        assert_eq!(
            counted,
            Instructions {
                user: 7.0,
                kernel: 0.0
            }
        );
    }
}
