// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests at the same time to a server that answers each in a task: `cargo run -p sluice --example requests_tokio`.

use std::time::Duration;

use sluice::Bus;
use sluice::bus::{AsyncClient, AsyncServer, Options, RecvError};

pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn echo() -> Options {
    Bus::named("example-echo").create(true)
}

/// Until the bus is destroyed.
async fn serve(mut server: AsyncServer) -> Result {
    loop {
        let request = match server.recv().await {
            Err(RecvError::Destroyed) => return Ok(()),
            request => request?,
        };
        tokio::spawn(async move {
            // The first requests wait longest, so the replies come in another order.
            let number = u64::from(request.bytes().first().copied().unwrap_or_default());
            tokio::time::sleep(Duration::from_millis(30 - 10 * number)).await;
            let reply = request.bytes().to_vec();
            request.reply(&reply).await
        });
    }
}

#[tokio::main(flavor = "current_thread")]
pub async fn main() -> Result {
    let serving = tokio::spawn(serve(AsyncServer::new(echo().server()?)?));
    let client = AsyncClient::new(echo().client()?)?;
    let (first, second, third) =
        tokio::try_join!(client.call(&[0]), client.call(&[1]), client.call(&[2]))?;
    println!("{first:?} {second:?} {third:?}");
    assert_eq!([first, second, third], [[0], [1], [2]]);
    echo().destroy()?;
    serving.await?
}
