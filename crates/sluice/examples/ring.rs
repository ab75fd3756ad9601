// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends records from one process to another through a ring, and prints the duration: `cargo run -p sluice --example ring`.

use std::env;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use sluice::ring::{Listener, Socket, SocketOptions};

const RECORDS: u64 = 1_000_000;

fn main() -> ExitCode {
    let outcome = match env::args_os().nth(1) {
        None => receive(),
        Some(path) => send(Path::new(&path)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", sluice::explain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Starts the other process, which runs this program, too, and receives its records.
fn receive() -> io::Result<()> {
    let path = env::temp_dir().join(format!("sluice-example-{}", std::process::id()));
    let listener = Listener::bind(&path)?;
    let mut sender = Command::new(env::current_exe().expect("this program has no path"))
        .arg(&path)
        .spawn()
        .expect("this program cannot be started again");
    let taken = take_all(&listener);
    let status = sender.wait().expect("there is nothing to wait for");
    assert!(status.success(), "the sender ended with {status}");
    taken
}

fn take_all(listener: &Listener) -> io::Result<()> {
    let mut consumer = SocketOptions::new().consumer(listener.accept()?)?;
    let begin = Instant::now();
    let mut record = [0; size_of::<u64>()];
    let mut sum = 0;
    while let Some(mut batch) = consumer.recv_batch()? {
        while batch.recv_into(&mut record)?.is_some() {
            sum += u64::from_ne_bytes(record);
        }
    }
    println!("{RECORDS} records in {:?}", begin.elapsed());
    assert_eq!(sum, RECORDS * (RECORDS - 1) / 2);
    Ok(())
}

fn send(path: &Path) -> io::Result<()> {
    let mut producer = SocketOptions::new().producer(Socket::connect(path)?)?;
    for number in 0..RECORDS {
        producer.send(&number.to_ne_bytes())?;
    }
    // Dropping the producer ends the stream.
    Ok(())
}
