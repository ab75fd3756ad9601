// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values to all subscribers of a bus: `cargo run -p sluice --example bus`.

use std::thread;

use serde::{Deserialize, Serialize};
use sluice::bus::{Sender, Subscriber};
use sluice::{Bus, Typed};

pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Price {
    item: String,
    cents: u64,
}

/// Receives what is sent from now on.
fn subscribe() -> Result<Typed<Subscriber, Price>> {
    Ok(Typed::new(Bus::named("example").create(true).subscriber()?))
}

fn print_one(mut prices: Typed<Subscriber, Price>) -> Result<Price> {
    let message = prices.recv()?;
    let (price, lost) = (&message.value, message.lost);
    println!(
        "{} for {} cents; {lost} messages were lost before it",
        price.item, price.cents
    );
    Ok(message.value)
}

pub fn main() -> Result {
    let subscribers = [subscribe()?, subscribe()?];
    let receiving = subscribers.map(|prices| thread::spawn(|| print_one(prices)));
    let sender: Typed<Sender, Price> = Typed::new(Bus::named("example").sender()?);
    let price = || Price {
        item: "tea".to_owned(),
        cents: 250,
    };
    sender.send(&price())?;
    for received in receiving {
        assert_eq!(received.join().expect("a subscriber panicked")?, price());
    }
    Ok(())
}
