// SPDX-License-Identifier: MIT OR Apache-2.0
//! As the library's own samples: cping and cpong, which offer a message, and poll the image until the reply is back; and the
//! throughput of an exclusive publication over IPC, whose subscriber counts the fragments that a poll delivers. The driver and
//! the clients are configured as for the adapter.

use std::hint::{black_box, spin_loop};
use std::rc::Rc;

use anyhow::{Result, bail};
use rusteron_media_driver::{AeronExclusivePublication, AeronImage};
use sluice_testkit::workers::Pair;

use super::{Drivers, FRAGMENT_LIMIT, Idle};
use crate::mechanisms::own_program::{OwnProgram, Role, Run};

pub struct Samples(pub Rc<Drivers>);

impl OwnProgram for Samples {
    fn start(&self, run: &Run) -> Result<Pair> {
        let stream = || self.0.stream(run.size, Idle::Spin);
        run.start(
            [stream()?, stream()?],
            |[forward, backward], role, process| {
                let payload = vec![0xab; run.size];
                match role {
                    Role::Requester => {
                        let publishing = forward.publishing()?;
                        let subscribing = backward.subscribing()?;
                        let image = &subscribing.image;
                        process.request(|| {
                            let position = offer(&publishing.publication, &payload)?;
                            await_position(image, position)
                        })
                    }
                    Role::Replier => {
                        let subscribing = forward.subscribing()?;
                        let publishing = backward.publishing()?;
                        let mut rest = 0;
                        process.reply(|| {
                            let mut outcome = Ok(());
                            let replies =
                                poll(&subscribing.image, run.size, &mut rest, |request| {
                                    if outcome.is_ok() {
                                        outcome = echo(&publishing.publication, request);
                                    }
                                })?;
                            outcome.map(|()| replies)
                        })
                    }
                    Role::Source => {
                        let publishing = forward.publishing()?;
                        process.send(|| offer(&publishing.publication, &payload).map(drop))
                    }
                    Role::Sink => {
                        let subscribing = forward.subscribing()?;
                        let mut rest = 0;
                        process.receive(|| poll(&subscribing.image, run.size, &mut rest, |_| {}))
                    }
                }
            },
        )
    }
}

/// Returns the position after the message.
fn offer(publication: &AeronExclusivePublication, message: &[u8]) -> Result<i64> {
    loop {
        match publication.offer(message) {
            Ok(position) => return Ok(position),
            Err(error) if error.is_retryable() => spin_loop(),
            Err(error) => bail!("cannot send a message: {error}"),
        }
    }
}

/// The replies have the length of the requests, so both streams have the same positions.
fn await_position(image: &AeronImage, position: i64) -> Result<()> {
    while image.position() < position {
        let look = |reply: &[u8], _| {
            black_box(reply.first());
        };
        if image.poll_fn(look, FRAGMENT_LIMIT)? == 0 {
            spin_loop();
        }
    }
    Ok(())
}

/// Replies in place, as cpong does.
fn echo(publication: &AeronExclusivePublication, request: &[u8]) -> Result<()> {
    loop {
        match publication.try_claim_owned(request.len()) {
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

/// Polls until a fragment arrives, and passes it on with those that arrive meanwhile. Returns the number of messages of this size
/// that are complete with them; `rest` counts the bytes of one that is not.
fn poll(
    image: &AeronImage,
    size: usize,
    rest: &mut usize,
    mut visit: impl FnMut(&[u8]),
) -> Result<u64> {
    let mut bytes = *rest;
    let mut count = |fragment: &[u8], _| {
        bytes += fragment.len();
        visit(fragment);
    };
    while image.poll_fn(&mut count, FRAGMENT_LIMIT)? == 0 {
        spin_loop();
    }
    *rest = bytes % size;
    Ok((bytes / size) as u64)
}
