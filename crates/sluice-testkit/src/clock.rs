// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time in nanoseconds, comparable across processes.

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// The monotonic clock: unlike those of `Instant`, its values can be compared across processes.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux always has CLOCK_MONOTONIC");
    time.num_nanoseconds() as u64
}

/// Processor time of this process, user and system.
pub fn cpu_ns() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("getrusage(RUSAGE_SELF) cannot fail");
    ((usage.user_time() + usage.system_time()).num_microseconds() * 1000) as u64
}

/// Processor time of the calling thread, in nanoseconds of the scheduler's clock.
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.expect("Linux always has CLOCK_THREAD_CPUTIME_ID")
        .num_nanoseconds() as u64
}

/// As [`thread_cpu_ns`], of all threads of this process.
pub fn process_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    time.expect("Linux always has CLOCK_PROCESS_CPUTIME_ID")
        .num_nanoseconds() as u64
}

/// As [`process_cpu_ns`], of another process.
pub fn cpu_ns_of(process: Pid) -> Result<u64> {
    let clock = clock_getcpuclockid(process);
    let clock = clock.with_context(|| format!("cannot find process {process}"))?;
    Ok(clock_gettime(clock)?.num_nanoseconds() as u64)
}

/// Whether [`cycles`] is implemented for this architecture.
pub const HAS_CYCLES: bool = cfg!(target_arch = "x86_64");

/// The time stamp counter, after all earlier loads.
#[cfg(target_arch = "x86_64")]
pub fn cycles() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every x86-64 processor has both, and Linux lets processes read the counter by default.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn cycles() -> u64 {
    0
}

/// The time of one reading of the clock, which is part of every latency sample.
pub fn reading_cost_ns() -> u64 {
    const READINGS: u64 = 10_000;
    let start = now_ns();
    for _ in 1..READINGS {
        std::hint::black_box(now_ns());
    }
    (now_ns() - start) / READINGS
}

/// The date in UTC, as "2026-11-28".
pub fn today() -> String {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).expect("Linux always has CLOCK_REALTIME");
    // SAFETY: zeros are a valid tm, which gmtime_r() fills from a valid time.
    let day = unsafe {
        let mut day = std::mem::zeroed();
        libc::gmtime_r(&now.tv_sec(), &raw mut day);
        day
    };
    let (year, month) = (day.tm_year + 1900, day.tm_mon + 1);
    format!("{year}-{month:02}-{:02}", day.tm_mday)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_date_is_that_of_the_system() {
        let before = today();
        let date = Command::new("date").args(["-u", "+%F"]).output().unwrap();
        let date = String::from_utf8(date.stdout).unwrap();
        assert!([before, today()].iter().any(|day| day == date.trim_end()));
    }

    #[test]
    fn the_clock_does_not_run_backwards() {
        let readings: Vec<u64> = (0..1000).map(|_| now_ns()).collect();
        assert!(readings.is_sorted());
    }

    #[test]
    fn the_processor_time_of_a_process_is_found_by_its_id() {
        let before = process_cpu_ns();
        let own = cpu_ns_of(Pid::this()).unwrap();
        assert!((before..=process_cpu_ns()).contains(&own));
    }

    #[test]
    fn spinning_uses_processor_time() {
        let (cpu, start) = (cpu_ns(), now_ns());
        while now_ns() - start < 30_000_000 {}
        assert!(cpu_ns() > cpu);
    }
}
