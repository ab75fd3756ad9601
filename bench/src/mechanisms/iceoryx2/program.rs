// SPDX-License-Identifier: MIT OR Apache-2.0
//! As the library's own benchmark of publish and subscribe: loaned samples that are not written, the next one loaned while
//! the reply is in flight, and subscribers that poll. Streams are those of its examples: a loaned sample is written and
//! sent, and the subscriber looks at it in place. The services are those of the adapter, so no sample is overwritten.

use std::rc::Rc;

use anyhow::Result;
use iceoryx2::node::Node;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

use super::{Files, Mode, Publishing, Sample, Subscribing, Topic};
use crate::mechanisms::own_program::Program;

pub struct PublishSubscribe(pub Rc<Files>);

type Bytes = Publisher<ipc::Service, [u8], ()>;

/// A publisher with the sample that is sent next.
pub struct Port {
    next: Option<Sample>,
    size: usize,
    payload: Vec<u8>,
    publisher: Bytes,
    _node: Node<ipc::Service>,
}

impl Port {
    fn of(topic: Topic) -> Result<Self> {
        let size = topic.size;
        let Publishing {
            publisher, _node, ..
        } = topic.publishing()?;
        let mut port = Self {
            next: None,
            size,
            payload: vec![0xab; size],
            publisher,
            _node,
        };
        port.loan()?;
        Ok(port)
    }

    fn loan(&mut self) -> Result<()> {
        self.next = Some(self.publisher.loan_slice_uninit(self.size)?);
        Ok(())
    }

    /// Without writing it.
    fn send(&mut self) -> Result<()> {
        if let Some(sample) = self.next.take() {
            // SAFETY: bytes of shared memory, which the library has zeroed, and every value is a byte.
            unsafe { sample.assume_init() }.send()?;
        }
        self.loan()
    }
}

type Polled = (Subscriber<ipc::Service, [u8], ()>, Node<ipc::Service>);

fn polled(topic: Topic) -> Result<Polled> {
    let Subscribing {
        subscriber, _node, ..
    } = topic.receiver()?;
    Ok((subscriber, _node))
}

fn poll((subscriber, _): &Polled) -> Result<()> {
    while subscriber.receive()?.is_none() {}
    Ok(())
}

impl Program for PublishSubscribe {
    type Shared = [Topic; 2];
    type Requester = (Port, Polled);
    type Replier = (Port, Polled);
    type Source = Port;
    type Sink = Polled;

    fn share(&self, size: usize) -> Result<[Topic; 2]> {
        Ok([
            self.0.topic(size, Mode::Polling)?,
            self.0.topic(size, Mode::Polling)?,
        ])
    }

    fn requester([forward, backward]: [Topic; 2]) -> Result<Self::Requester> {
        Ok((Port::of(forward)?, polled(backward)?))
    }

    fn replier([forward, backward]: [Topic; 2]) -> Result<Self::Replier> {
        let subscriber = polled(forward)?;
        Ok((Port::of(backward)?, subscriber))
    }

    fn request((port, polled): &mut Self::Requester) -> Result<()> {
        port.send()?;
        poll(polled)
    }

    fn reply((port, polled): &mut Self::Replier) -> Result<u64> {
        poll(polled)?;
        port.send()?;
        Ok(1)
    }

    fn source([forward, _]: [Topic; 2]) -> Result<Port> {
        Port::of(forward)
    }

    fn sink([forward, _]: [Topic; 2]) -> Result<Polled> {
        polled(forward)
    }

    fn put(port: &mut Port) -> Result<()> {
        let sample = match port.next.take() {
            Some(sample) => sample,
            None => port.publisher.loan_slice_uninit(port.size)?,
        };
        sample.write_from_slice(&port.payload).send()?;
        Ok(())
    }

    fn take((subscriber, _): &mut Polled) -> Result<u64> {
        loop {
            if let Some(sample) = subscriber.receive()? {
                std::hint::black_box(sample.payload().first());
                return Ok(1);
            }
        }
    }
}
