// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests to a server, which ends while one of them waits: `cargo run -p sluice --example requests`.

use std::thread;
use std::time::Duration;

use sluice::Bus;
use sluice::bus::{CallError, Options};

pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn sums() -> Options {
    Bus::named("example-sums").create(true)
}

/// The sum of numbers with plus signs between them.
fn sum(request: &[u8]) -> String {
    let text = String::from_utf8_lossy(request);
    let numbers: std::result::Result<Vec<i64>, _> =
        text.split('+').map(|part| part.trim().parse()).collect();
    match numbers {
        Ok(numbers) => numbers.iter().sum::<i64>().to_string(),
        Err(error) => error.to_string(),
    }
}

pub fn main() -> Result {
    let mut server = sums().server()?;
    // `server.serve(|request| sum(request.bytes()))` would answer all requests.
    let serving = thread::spawn(move || -> Result {
        let request = server.recv()?;
        let reply = sum(request.bytes());
        request.reply(reply.as_bytes())?;
        // It receives one more, and ends without a reply.
        server.recv().map(drop)?;
        Ok(())
    });
    let mut client = sums().client()?;
    let reply = client.call_timeout(b"2 + 2", Duration::from_secs(10))?;
    println!("2 + 2 = {}", String::from_utf8_lossy(reply.bytes()));
    assert_eq!(reply.bytes(), b"4");
    match client.call(b"3 + 3") {
        Err(CallError::ServerEnded { server }) => println!("server {server} has ended"),
        other => return Err(format!("the call returned {other:?}").into()),
    }
    serving.join().expect("the server panicked")
}
