// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints the messages of a bus in a tokio runtime, and answers each: `cargo run -p sluice --example bus_tokio -- NAME`.
//! Send with `sluice bus pub NAME`.

use std::env;
use std::io;

use sluice::Bus;
use sluice::bus::{AsyncSender, AsyncSubscriber, SendError};

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let name = env::args().nth(1).unwrap_or_else(|| "example".to_owned());
    let (sender, subscriber) = Bus::named(&name).create(true).endpoint()?;
    let (own, sender) = (sender.id(), AsyncSender::new(sender)?);
    let mut subscriber = AsyncSubscriber::new(subscriber)?;
    println!("subscriber {own} of '{name}'");
    loop {
        let message = subscriber.recv().await?;
        let text = String::from_utf8_lossy(message.bytes());
        println!("{} of {}: {text}", message.sequence, message.sender);
        if message.lost > 0 {
            println!("{} messages were lost before it", message.lost);
        }
        // Neither its own messages nor replies are answered.
        if message.sender == own || message.target.is_some() {
            continue;
        }
        match sender.send_to(message.sender, b"received").await {
            // The sender does not subscribe, or has ended.
            Err(SendError::UnknownSubscriber { .. }) => {}
            other => other?,
        }
    }
}
