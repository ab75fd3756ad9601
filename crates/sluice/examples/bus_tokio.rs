// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message to two subscribers, of which one copies it and answers, and one reads it in place, in a tokio runtime: `cargo run -p sluice --example bus_tokio`.

use sluice::Bus;
use sluice::bus::{AsyncMappedSubscriber, AsyncSender, AsyncSubscriber, Options, Policy};

pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn bus() -> Options {
    let bus = Bus::named("example").create(true);
    bus.policies([Policy::Block]).mappable(true)
}

/// Sends the length of the next message to all: a mappable bus has no messages for one subscriber.
async fn answer(mut subscriber: AsyncSubscriber) -> Result {
    let message = subscriber.recv().await?;
    let answer = format!("{} bytes from {}", message.len, message.sender);
    AsyncSender::new(bus().sender()?)?
        .send(answer.as_bytes())
        .await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
pub async fn main() -> Result {
    let answering = AsyncSubscriber::new(bus().subscriber()?)?;
    let mut mapped = AsyncMappedSubscriber::new(bus().mapped_subscriber()?)?;
    let sender = AsyncSender::new(bus().sender()?)?;
    let id = sender.get_ref().id();
    let answering = tokio::spawn(answer(answering));
    sender.send(b"hello").await?;
    // In place. Senders wait for what a mapped subscriber has not released.
    let hello = mapped.recv().await?.bytes().to_vec();
    let answer = mapped.recv().await?.bytes().to_vec();
    answering.await??;
    println!(
        "{}: {}",
        String::from_utf8(hello)?,
        String::from_utf8(answer.clone())?
    );
    assert_eq!(answer, format!("5 bytes from {id}").as_bytes());
    Ok(())
}
