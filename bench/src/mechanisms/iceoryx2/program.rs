// SPDX-License-Identifier: MIT OR Apache-2.0
//! As the library's own benchmark of publish and subscribe: loaned samples that are not written, the next one loaned while
//! the reply is in flight, and subscribers that poll. Streams are those of its examples: a loaned sample is written and
//! sent, and the subscriber looks at it in place. The services are those of the adapter, so no sample is overwritten.

use std::hint::black_box;
use std::rc::Rc;

use anyhow::Result;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::prelude::*;
use sluice_testkit::workers::Pair;

use super::{Files, Mode, Sample, Subscribing};
use crate::mechanisms::own_program::{OwnProgram, Role, Run};

pub struct PublishSubscribe(pub Rc<Files>);

impl OwnProgram for PublishSubscribe {
    fn start(&self, run: &Run) -> Result<Pair> {
        let topic = || self.0.topic(run.size, Mode::Polling);
        run.start(
            [topic()?, topic()?],
            |[forward, backward], role, process| match role {
                Role::Requester => {
                    let (publishing, replies) = (forward.publishing()?, backward.subscribing()?);
                    let mut port = Port::new(&publishing.publisher, run.size)?;
                    process.request(|| {
                        port.send()?;
                        poll(&replies)
                    })
                }
                Role::Replier => {
                    let (requests, publishing) = (forward.subscribing()?, backward.publishing()?);
                    let mut port = Port::new(&publishing.publisher, run.size)?;
                    process.reply(|| {
                        poll(&requests)?;
                        port.send()?;
                        Ok(1)
                    })
                }
                Role::Source => {
                    let payload = vec![0xab; run.size];
                    let publishing = forward.publishing()?;
                    process.send(|| {
                        let sample = publishing.publisher.loan_slice_uninit(run.size)?;
                        sample.write_from_slice(&payload).send()?;
                        Ok(())
                    })
                }
                Role::Sink => {
                    let messages = forward.subscribing()?;
                    process.receive(|| {
                        loop {
                            if let Some(sample) = messages.subscriber.receive()? {
                                black_box(sample.payload().first());
                                return Ok(1);
                            }
                        }
                    })
                }
            },
        )
    }
}

/// A publisher with the sample that is sent next.
struct Port<'a> {
    next: Option<Sample>,
    size: usize,
    publisher: &'a Publisher<ipc::Service, [u8], ()>,
}

impl<'a> Port<'a> {
    fn new(publisher: &'a Publisher<ipc::Service, [u8], ()>, size: usize) -> Result<Self> {
        Ok(Self {
            next: Some(publisher.loan_slice_uninit(size)?),
            size,
            publisher,
        })
    }

    /// Without writing it.
    fn send(&mut self) -> Result<()> {
        if let Some(sample) = self.next.take() {
            // SAFETY: bytes of shared memory, which the library has zeroed, and every value is a byte.
            unsafe { sample.assume_init() }.send()?;
        }
        self.next = Some(self.publisher.loan_slice_uninit(self.size)?);
        Ok(())
    }
}

fn poll(subscribing: &Subscribing) -> Result<()> {
    while subscribing.subscriber.receive()?.is_none() {}
    Ok(())
}
