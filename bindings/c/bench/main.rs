// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the C library with the Rust library: the workloads of bench.c in Rust, and the comparison. `bindings/c/bench/run` starts it.
//!
//! A measurement is a process of its own. The rounds are interleaved: each measures every workload once in C and once in Rust, directly
//! after each other, and alternately begins with C and with Rust.

use std::env;
use std::error::Error;
use std::io;
use std::process::{Command, exit};
use std::thread;
use std::time::{Duration, Instant};

use sluice::ring::{Consumer, Producer, Socket, SocketOptions};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const LENGTH: usize = 64;
const BATCH: u64 = 16;
/// Of the first measurement of a workload, from which the number of records of the others follows.
const FIRST_COUNT: u64 = 20_000;

const WORKLOADS: [&str; 10] = [
    "copied",
    "received-in-place",
    "in-place",
    "batches",
    "array",
    "iovecs",
    "threads",
    "threads-in-place",
    "processes",
    "processes-in-place",
];

/// Other mechanisms, in C only.
const OTHERS: [&str; 4] = ["pipe", "socket", "pipe-processes", "socket-processes"];

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        [program, rounds, seconds] => compare(program, rounds, seconds),
        [workload, count] => measure(workload, count),
        _ => Err("usage: bench-rust WORKLOAD COUNT, or bench-rust BENCH-C ROUNDS SECONDS".into()),
    };
    if let Err(error) = done {
        eprintln!("bench-rust: {error}");
        exit(1);
    }
}

/// The measurements of a workload, in nanoseconds per record.
#[derive(Default)]
struct Times {
    c: Vec<f64>,
    rust: Vec<f64>,
}

fn compare(c: &str, rounds: &str, seconds: &str) -> Result<()> {
    let (rounds, seconds): (usize, f64) = (rounds.parse()?, seconds.parse()?);
    let rust = env::current_exe()?.to_string_lossy().into_owned();
    let count = |each: f64| (seconds * 1e9 / each) as u64;
    let workloads = WORKLOADS.iter().chain(&OTHERS).copied();
    let mut measured = Vec::new();
    for workload in workloads {
        let each = run(c, workload, FIRST_COUNT)?;
        measured.push((workload, count(each).max(FIRST_COUNT), Times::default()));
    }
    for round in 0..rounds {
        for (workload, count, times) in &mut measured {
            let mut in_c = || -> Result<()> {
                times.c.push(run(c, workload, *count)?);
                Ok(())
            };
            let mut in_rust = || -> Result<()> {
                if WORKLOADS.contains(workload) {
                    times.rust.push(run(&rust, workload, *count)?);
                }
                Ok(())
            };
            match round % 2 {
                0 => in_c().and_then(|()| in_rust())?,
                _ => in_rust().and_then(|()| in_c())?,
            }
        }
    }
    println!(
        "ns per record of {LENGTH} bytes, median [smallest-largest] of {rounds} rounds of {seconds} s"
    );
    println!("{:<20}{:>24}{:>24}{:>24}", "", "C", "Rust", "C / Rust");
    for (workload, _, times) in measured {
        let mut ratios: Vec<f64> = times
            .c
            .iter()
            .zip(&times.rust)
            .map(|(c, rust)| c / rust)
            .collect();
        let (mut c, mut rust) = (times.c, times.rust);
        let (c, rust, ratio) = (
            spread(&mut c, 1),
            spread(&mut rust, 1),
            spread(&mut ratios, 3),
        );
        println!("{workload:<20}{c:>24}{rust:>24}{ratio:>24}");
    }
    Ok(())
}

/// Median, smallest and largest value.
fn spread(values: &mut [f64], digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    if count == 0 {
        return String::new();
    }
    let median = (values[count / 2] + values[(count - 1) / 2]) / 2.0;
    let (smallest, largest) = (values[0], values[count - 1]);
    format!("{median:.digits$} [{smallest:.digits$}-{largest:.digits$}]")
}

fn run(program: &str, workload: &str, count: u64) -> Result<f64> {
    let output = Command::new(program)
        .args([workload, &count.to_string()])
        .output()?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?.trim().parse()?),
        false => Err(String::from_utf8_lossy(&output.stderr).into()),
    }
}

fn measure(workload: &str, count: &str) -> Result<()> {
    let count = count.parse::<u64>()? / BATCH * BATCH;
    let elapsed = match workload {
        "copied" => in_one_thread(count, 1, send_copies, receive_copies),
        "received-in-place" => in_one_thread(count, 1, send_copies, receive_in_place),
        "in-place" => in_one_thread(count, 1, send_in_place, receive_in_place),
        "batches" => in_one_thread(count, BATCH, send_batches, receive_batches),
        "array" | "iovecs" => in_one_thread(count, BATCH, send_array, receive_batches),
        "threads" => in_two_threads(count, send_copies, receive_in_place),
        "threads-in-place" => in_two_threads(count, send_in_place, receive_in_place),
        "processes" => in_two_processes(count, send_copies, receive_in_place),
        "processes-in-place" => in_two_processes(count, send_in_place, receive_in_place),
        _ => Err(format!("no workload {workload:?}").into()),
    }?;
    println!("{:.3}", elapsed.as_nanos() as f64 / count as f64);
    Ok(())
}

#[inline(always)]
fn write_number(record: &mut [u8], number: u64) {
    let number = number.to_ne_bytes();
    record[..8].copy_from_slice(&number);
    record[LENGTH - 8..LENGTH].copy_from_slice(&number);
}

#[inline(always)]
fn check_number(record: &sluice::Bytes<'_>, expected: u64) -> Result<()> {
    let numbers = (record.read_at(0), record.read_at(LENGTH - 8));
    match record.len() == LENGTH && numbers == (Some(expected), Some(expected)) {
        true => Ok(()),
        false => Err(other_record()),
    }
}

#[cold]
fn other_record() -> Box<dyn Error + Send + Sync> {
    "another record than expected".into()
}

#[cold]
fn end() -> Box<dyn Error + Send + Sync> {
    "the end of the stream".into()
}

#[inline(always)]
fn send_copies(producer: &mut Producer, first: u64, end: u64) -> Result<()> {
    let mut record = [0; LENGTH];
    for number in first..end {
        write_number(&mut record, number);
        producer.send(&record)?;
    }
    Ok(())
}

#[inline(always)]
fn send_in_place(producer: &mut Producer, first: u64, end: u64) -> Result<()> {
    for number in first..end {
        let mut room = producer.reserve(LENGTH)?;
        write_number(&mut room, number);
        room.commit();
    }
    Ok(())
}

#[inline(always)]
fn send_batches(producer: &mut Producer, first: u64, end: u64) -> Result<()> {
    let mut record = [0; LENGTH];
    let mut batch = producer.send_batch();
    for number in first..end {
        write_number(&mut record, number);
        batch.send(&record)?;
    }
    Ok(())
}

/// At most BATCH records, which are there before. Otherwise the compiler writes the number to the ring, and not to a record.
#[inline(always)]
fn send_array(producer: &mut Producer, first: u64, end: u64) -> Result<()> {
    static mut RECORDS: [[u8; LENGTH]; BATCH as usize] = [[0; LENGTH]; BATCH as usize];
    // SAFETY: one thread at a time sends.
    let records = unsafe { &mut *(&raw mut RECORDS) };
    for number in first..end {
        write_number(&mut records[(number % BATCH) as usize], number);
    }
    let mut batch = producer.send_batch();
    for number in first..end {
        batch.send(&records[(number % BATCH) as usize])?;
    }
    Ok(())
}

#[inline(always)]
fn receive_in_place(consumer: &mut Consumer, first: u64, last: u64) -> Result<()> {
    for number in first..last {
        let record = consumer.recv()?.ok_or_else(end)?;
        check_number(&record, number)?;
    }
    Ok(())
}

#[inline(always)]
fn receive_copies(consumer: &mut Consumer, first: u64, last: u64) -> Result<()> {
    let mut record = [0; LENGTH];
    for number in first..last {
        let length = consumer.recv_into(&mut record)?.ok_or_else(end)?;
        let number = number.to_ne_bytes();
        if length != LENGTH || record[..8] != number || record[LENGTH - 8..] != number {
            return Err(other_record());
        }
    }
    Ok(())
}

#[inline(always)]
fn receive_batches(consumer: &mut Consumer, first: u64, last: u64) -> Result<()> {
    let mut number = first;
    while number < last {
        let mut batch = consumer.recv_batch()?.ok_or_else(end)?;
        // As many as the array of the program in C has room for.
        for _ in 0..BATCH {
            let Some(record) = batch.recv()? else { break };
            check_number(&record, number)?;
            number += 1;
        }
    }
    Ok(())
}

/// Both sides wait for each other.
fn connect() -> Result<(Producer, Consumer)> {
    let (here, there) = Socket::pair()?;
    let producer = thread::spawn(|| SocketOptions::new().producer(there));
    let consumer = SocketOptions::new().consumer(here)?;
    let producer = producer.join().map_err(|_| "the thread has panicked")?;
    Ok((producer?, consumer))
}

#[inline(always)]
fn in_one_thread(
    count: u64,
    ahead: u64,
    send: impl Fn(&mut Producer, u64, u64) -> Result<()>,
    receive: impl Fn(&mut Consumer, u64, u64) -> Result<()>,
) -> Result<Duration> {
    let (mut producer, mut consumer) = connect()?;
    let warm_up = count / 10 / BATCH * BATCH;
    let mut alternate = |first: u64, last: u64| -> Result<()> {
        let mut number = first;
        while number < last {
            send(&mut producer, number, number + ahead)?;
            receive(&mut consumer, number, number + ahead)?;
            number += ahead;
        }
        Ok(())
    };
    alternate(0, warm_up)?;
    let began = Instant::now();
    alternate(warm_up, warm_up + count)?;
    Ok(began.elapsed())
}

fn send_all(
    socket: Socket,
    count: u64,
    send: impl Fn(&mut Producer, u64, u64) -> Result<()>,
) -> Result<()> {
    let mut producer = SocketOptions::new().producer(socket)?;
    send(&mut producer, 0, count + 1)?;
    Ok(producer.flush()?)
}

/// The time begins with the first record, which comes when both sides are set up.
fn receive_all(
    socket: Socket,
    count: u64,
    receive: impl Fn(&mut Consumer, u64, u64) -> Result<()>,
) -> Result<Duration> {
    let mut consumer = SocketOptions::new().consumer(socket)?;
    receive(&mut consumer, 0, 1)?;
    let began = Instant::now();
    receive(&mut consumer, 1, count + 1)?;
    Ok(began.elapsed())
}

fn in_two_threads(
    count: u64,
    send: impl Fn(&mut Producer, u64, u64) -> Result<()> + Send + 'static,
    receive: impl Fn(&mut Consumer, u64, u64) -> Result<()>,
) -> Result<Duration> {
    let (here, there) = Socket::pair()?;
    let sender = thread::spawn(move || send_all(there, count, send));
    let elapsed = receive_all(here, count, receive)?;
    sender.join().map_err(|_| "the thread has panicked")??;
    Ok(elapsed)
}

fn in_two_processes(
    count: u64,
    send: impl Fn(&mut Producer, u64, u64) -> Result<()>,
    receive: impl Fn(&mut Consumer, u64, u64) -> Result<()>,
) -> Result<Duration> {
    let (here, there) = Socket::pair()?;
    // SAFETY: the process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error().into()),
        0 => {
            drop(here);
            let sent = send_all(there, count, send);
            if let Err(error) = &sent {
                eprintln!("bench-rust: {error}");
            }
            exit(sent.is_err().into());
        }
        child => {
            drop(there);
            let elapsed = receive_all(here, count, receive)?;
            let mut status = 0;
            // SAFETY: it is the address of an integer.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            match status {
                0 => Ok(elapsed),
                _ => Err(format!("the sender has failed: {status}").into()),
            }
        }
    }
}
