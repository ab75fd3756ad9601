// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines through a pipe, between two tasks: `cargo run -p sluice --example pipe_tokio`.

use sluice::Pipe;
use sluice::pipe::{AsyncReader, AsyncWriter};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::task::spawn_blocking;

pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

async fn write() -> Result {
    // An open waits for the other side, and so blocks its thread.
    let writer = spawn_blocking(|| Pipe::named("example").create(true).writer()).await??;
    let mut writer = AsyncWriter::new(writer)?;
    for number in 1..=3 {
        writer
            .write_all(format!("line {number}\n").as_bytes())
            .await?;
    }
    Ok(())
}

async fn read() -> Result<Vec<String>> {
    let reader = spawn_blocking(|| Pipe::named("example").create(true).reader()).await??;
    let mut lines = BufReader::new(AsyncReader::new(reader)?).lines();
    let mut read = Vec::new();
    while let Some(line) = lines.next_line().await? {
        read.push(line);
    }
    Ok(read)
}

#[tokio::main(flavor = "current_thread")]
pub async fn main() -> Result {
    let writing = tokio::spawn(write());
    let lines = read().await?;
    writing.await??;
    println!("{}", lines.join("\n"));
    assert_eq!(lines, ["line 1", "line 2", "line 3"]);
    Ok(())
}
