// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records over a Unix socket and shared memory, between two tasks, without the module: `cargo run -p sluice --example ring_tokio`.

use std::env;
use std::path::Path;

use sluice::ring::{AsyncListener, Socket, SocketOptions};

pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const RECORDS: u64 = 100_000;

async fn send(path: &Path) -> Result {
    let mut producer = SocketOptions::new()
        .async_producer(Socket::connect(path)?)
        .await?;
    for number in 0..RECORDS {
        // Waits while the ring is full.
        producer.send(&number.to_ne_bytes()).await?;
    }
    // Until the consumer has released all records.
    producer.flush().await?;
    Ok(())
}

async fn receive(listener: AsyncListener) -> Result<u64> {
    let socket = listener.accept().await?;
    let mut consumer = SocketOptions::new().async_consumer(socket).await?;
    let mut sum = 0;
    while let Some(record) = consumer.recv().await? {
        // In place; the record is released when it is dropped.
        sum += record.read_at::<u64>(0).unwrap_or_default();
    }
    Ok(sum)
}

#[tokio::main(flavor = "current_thread")]
pub async fn main() -> Result {
    let path = env::temp_dir().join(format!("sluice-example-{}", std::process::id()));
    let receiving = tokio::spawn(receive(AsyncListener::bind(&path)?));
    send(&path).await?;
    let sum = receiving.await??;
    println!("{RECORDS} records, with the sum {sum}");
    assert_eq!(sum, RECORDS * (RECORDS - 1) / 2);
    Ok(())
}
