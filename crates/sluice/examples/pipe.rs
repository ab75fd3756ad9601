// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines through a pipe of the caller's cgroup, from one thread to another; two processes would do the same: `cargo run -p sluice --example
//! pipe`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::thread;

use sluice::Pipe;

pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn write() -> Result {
    // Waits for a reader.
    let mut writer = Pipe::named("example").create(true).writer()?;
    for number in 1..=3 {
        writeln!(writer, "line {number}")?;
    }
    Ok(())
}

fn read() -> Result<Vec<String>> {
    let reader = Pipe::named("example").create(true).reader()?;
    // The stream ends when the last writer is dropped.
    Ok(BufReader::new(reader)
        .lines()
        .collect::<std::io::Result<_>>()?)
}

pub fn main() -> Result {
    let writing = thread::spawn(write);
    let lines = read()?;
    writing.join().expect("the writer panicked")?;
    println!("{}", lines.join("\n"));
    assert_eq!(lines, ["line 1", "line 2", "line 3"]);
    Ok(())
}
