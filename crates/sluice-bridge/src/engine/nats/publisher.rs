// SPDX-License-Identifier: MIT OR Apache-2.0
//! Publishes the messages of a rule. If a stream stores them, all acknowledgements arrive at one subscription, and the end of their
//! subject is the number of the message. The publisher of the client costs more: a table entry, a channel and a timer for each message.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use async_nats::header::{NATS_EXPECTED_STREAM, NATS_MESSAGE_ID};
use async_nats::{HeaderMap, HeaderName, Subject};
use bytes::Bytes;

use super::acknowledgements::Acknowledgements;
use super::{NatsEngine, failure, header_value, publish_failure};
use crate::engine::{Failure, Publisher, Stored};
use crate::headers::SENDER;

pub struct NatsPublisher {
    engine: NatsEngine,
    subject: Subject,
    stream: Option<String>,
    /// From the first message on, if a stream stores them.
    acknowledgements: Option<Rc<RefCell<Acknowledgements>>>,
}

impl NatsPublisher {
    pub fn new(engine: NatsEngine, subject: &str, stream: Option<&str>) -> Self {
        Self {
            engine,
            subject: subject.into(),
            stream: stream.map(str::to_owned),
            acknowledgements: None,
        }
    }

    async fn publish_only(
        &mut self,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<NatsReceipt, Failure> {
        let client = self.engine.client.clone();
        let publish = client.publish_with_headers(self.subject.clone(), headers, body);
        publish.await.map_err(publish_failure)?;
        let flushed = async move { client.flush().await.map_err(failure) };
        Ok(NatsReceipt::Flushed(Box::pin(flushed)))
    }

    async fn acknowledgements(
        &mut self,
        stream: &str,
    ) -> Result<Rc<RefCell<Acknowledgements>>, Failure> {
        if let Some(shared) = &self.acknowledgements {
            return Ok(Rc::clone(shared));
        }
        let new = Acknowledgements::new(&self.engine, &self.subject, stream).await?;
        let shared = Rc::new(RefCell::new(new));
        self.acknowledgements = Some(Rc::clone(&shared));
        Ok(shared)
    }
}

impl Publisher for NatsPublisher {
    type Receipt = NatsReceipt;

    async fn publish(
        &mut self,
        sender: &str,
        body: Bytes,
        stored: Stored,
    ) -> Result<NatsReceipt, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static(SENDER), header_value(sender)?);
        let Some(stream) = self.stream.clone() else {
            return self.publish_only(headers, body).await;
        };
        headers.insert(NATS_MESSAGE_ID, header_value(&stored.id)?);
        if !stored.is_stream_known {
            headers.insert(NATS_EXPECTED_STREAM, header_value(&stream)?);
        }
        let shared = self.acknowledgements(&stream).await?;
        let (number, reply) = shared.borrow_mut().expect();
        let receipt = NatsReceipt::Stored { shared, number };
        let client = &self.engine.client;
        let subject = self.subject.clone();
        let publish = client.publish_with_reply_and_headers(subject, reply, headers, body);
        publish.await.map_err(publish_failure)?;
        Ok(receipt)
    }
}

pub enum NatsReceipt {
    Stored {
        shared: Rc<RefCell<Acknowledgements>>,
        number: u64,
    },
    /// Of a message of no stream.
    Flushed(Pin<Box<dyn Future<Output = Result<(), Failure>>>>),
}

impl Future for NatsReceipt {
    type Output = Result<(), Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Stored { shared, number } => shared.borrow_mut().poll(*number, cx),
            Self::Flushed(flushed) => flushed.as_mut().poll(cx),
        }
    }
}

impl Drop for NatsReceipt {
    fn drop(&mut self) {
        if let Self::Stored { shared, number } = self {
            shared.borrow_mut().forget(*number);
        }
    }
}
