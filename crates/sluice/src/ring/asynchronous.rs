// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings in a tokio runtime: what is there is taken without a system call, and the socket wakes who waits. A peer that always has
//! something gets its share of the thread and no more, as tokio's own sockets have it.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::coop::consume_budget;

use super::connection::Connection;
use super::consumer::Consumer;
use super::error::{Error, Result};
use super::producer::Producer;

/// A [`Producer`] that waits without keeping its thread.
#[derive(Debug)]
pub struct AsyncProducer {
    producer: Producer,
    socket: AsyncFd<OwnedFd>,
}

/// A [`Consumer`] that waits without keeping its thread.
#[derive(Debug)]
pub struct AsyncConsumer {
    consumer: Consumer,
    socket: AsyncFd<OwnedFd>,
}

impl AsyncProducer {
    /// To be called within a runtime that has I/O enabled.
    pub fn new(producer: Producer) -> Result<Self> {
        Ok(Self {
            socket: readable(&producer.connection)?,
            producer,
        })
    }

    /// Sends a record, waiting for room if there is none. A call that is dropped while it waits has sent nothing.
    pub async fn send(&mut self, record: &[u8]) -> Result<()> {
        loop {
            consume_budget().await;
            match self.producer.try_send(record) {
                Err(Error::Full) => {}
                other => return other,
            }
            let length = self.producer.fits(record.len())?;
            if !self.producer.prepare_wait(length)? {
                wait(&mut self.producer.connection, &self.socket).await?;
            }
            self.producer.connection.finish_wait();
        }
    }

    pub fn into_inner(self) -> Producer {
        self.producer
    }
}

impl AsyncConsumer {
    /// To be called within a runtime that has I/O enabled.
    pub fn new(consumer: Consumer) -> Result<Self> {
        Ok(Self {
            socket: readable(&consumer.connection)?,
            consumer,
        })
    }

    /// Takes the next record into `into`, and says how many bytes it has; none once the producer is done and everything was
    /// taken. A call that is dropped while it waits has taken nothing. A record that is longer than `into` stays.
    pub async fn recv(&mut self, into: &mut [u8]) -> Result<Option<usize>> {
        loop {
            consume_budget().await;
            match self.consumer.try_recv(into) {
                Err(Error::Empty) => {}
                other => return other,
            }
            if self.consumer.prepare_wait()?.is_none() {
                wait(&mut self.consumer.connection, &self.socket).await?;
            }
            self.consumer.connection.finish_wait();
        }
    }

    pub fn into_inner(self) -> Consumer {
        self.consumer
    }
}

fn readable(connection: &Connection) -> Result<AsyncFd<OwnedFd>> {
    let socket = connection.socket().try_clone().map_err(failed)?;
    // SAFETY: the descriptor is owned by what is registered, and only closed with it.
    unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }
        .map_err(|error| failed(error.into()))
}

fn failed(source: io::Error) -> Error {
    Error::System {
        what: "waiting for the ring's socket in the runtime",
        source,
    }
}

async fn wait(connection: &mut Connection, socket: &AsyncFd<OwnedFd>) -> Result<()> {
    let mut ready = socket.readable().await.map_err(failed)?;
    if connection.drain() {
        ready.clear_ready();
    }
    Ok(())
}
