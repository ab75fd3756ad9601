// SPDX-License-Identifier: MIT OR Apache-2.0
//! As the library's own samples: cping and cpong, which offer a message, and poll the image until the reply is back; and the
//! throughput of an exclusive publication over IPC, whose subscriber counts the fragments that a poll delivers. The driver and
//! the clients are configured as for the adapter.

use std::hint::spin_loop;
use std::rc::Rc;

use anyhow::{Result, bail};
use rusteron_media_driver::{AeronExclusivePublication, AeronImage};

use super::{Directories, FRAGMENT_LIMIT, Idle, Publishing, Stream, Subscribing};
use crate::mechanisms::own_program::Program;

pub struct Samples(pub Rc<Directories>);

/// A publication and what is sent over it.
pub struct Port {
    payload: Vec<u8>,
    publishing: Publishing,
}

impl Port {
    fn of(stream: Stream) -> Result<Self> {
        Ok(Self {
            payload: vec![0xab; stream.size],
            publishing: stream.publishing()?,
        })
    }

    fn publication(&self) -> &AeronExclusivePublication {
        &self.publishing.open.1
    }

    /// Returns the position after the message.
    fn offer(&self) -> Result<i64> {
        loop {
            match self.publication().offer(&self.payload) {
                Ok(position) => return Ok(position),
                Err(error) if error.is_retryable() => spin_loop(),
                Err(error) => bail!("cannot send a message: {error}"),
            }
        }
    }

    /// Replies in place, as cpong does.
    fn echo(&self, request: &[u8]) -> Result<()> {
        loop {
            match self.publication().try_claim_owned(request.len()) {
                Ok(mut claim) => {
                    claim.data().copy_from_slice(request);
                    claim.commit()?;
                    return Ok(());
                }
                Err(error) if error.is_retryable() => spin_loop(),
                Err(error) => bail!("cannot reply: {error}"),
            }
        }
    }
}

/// An image, and the bytes of a message that has not arrived completely.
pub struct Sink {
    size: usize,
    rest: usize,
    subscribing: Subscribing,
}

impl Sink {
    fn of(stream: Stream) -> Result<Self> {
        Ok(Self {
            size: stream.size,
            rest: 0,
            subscribing: stream.receiver()?,
        })
    }

    fn image(&self) -> &AeronImage {
        &self.subscribing.image
    }

    /// Polls until a fragment arrives, and passes it on with those that arrive meanwhile. Returns the number of messages
    /// that are complete with them.
    fn poll(&mut self, mut visit: impl FnMut(&[u8])) -> Result<u64> {
        let mut bytes = self.rest;
        let mut count = |fragment: &[u8], _| {
            bytes += fragment.len();
            visit(fragment);
        };
        while self.image().poll_fn(&mut count, FRAGMENT_LIMIT)? == 0 {
            spin_loop();
        }
        self.rest = bytes % self.size;
        Ok((bytes / self.size) as u64)
    }
}

impl Program for Samples {
    type Shared = [Stream; 2];
    type Requester = (Port, Sink);
    type Replier = (Port, Sink);
    type Source = Port;
    type Sink = Sink;

    fn share(&self, size: usize) -> Result<[Stream; 2]> {
        Ok([
            self.0.stream(size, Idle::Spin)?,
            self.0.stream(size, Idle::Spin)?,
        ])
    }

    fn requester([forward, backward]: [Stream; 2]) -> Result<Self::Requester> {
        Ok((Port::of(forward)?, Sink::of(backward)?))
    }

    fn replier([forward, backward]: [Stream; 2]) -> Result<Self::Replier> {
        let sink = Sink::of(forward)?;
        Ok((Port::of(backward)?, sink))
    }

    fn request((port, sink): &mut Self::Requester) -> Result<()> {
        let position = port.offer()?;
        // The replies have the length of the requests, so both streams have the same positions.
        while sink.image().position() < position {
            let look = |reply: &[u8], _| {
                std::hint::black_box(reply.first());
            };
            if sink.image().poll_fn(look, FRAGMENT_LIMIT)? == 0 {
                spin_loop();
            }
        }
        Ok(())
    }

    fn reply((port, sink): &mut Self::Replier) -> Result<u64> {
        let mut outcome = Ok(());
        let replies = sink.poll(|request| {
            if outcome.is_ok() {
                outcome = port.echo(request);
            }
        })?;
        outcome.map(|()| replies)
    }

    fn source([forward, _]: [Stream; 2]) -> Result<Port> {
        Port::of(forward)
    }

    fn sink([forward, _]: [Stream; 2]) -> Result<Sink> {
        Sink::of(forward)
    }

    fn put(port: &mut Port) -> Result<()> {
        port.offer().map(drop)
    }

    fn take(sink: &mut Sink) -> Result<u64> {
        sink.poll(|_| {})
    }
}
