// SPDX-License-Identifier: MIT OR Apache-2.0
//! The relay with ids and acknowledgements, with the client of NATS that the bridge uses: as few calls of it as possible.

use anyhow::{Context as _, Result, ensure};
use async_nats::header::NATS_MESSAGE_ID;
use async_nats::{HeaderMap, Message};
use futures_util::StreamExt as _;
use sluice::bus::{AsyncSender, AsyncSubscriber, Policy};
use tokio::time::timeout;

use crate::relay::{ACKNOWLEDGED_MAX, BATCH, TELL_WITHIN};
use crate::{IN_FLIGHT, URL, bus, now};

pub async fn out() -> Result<()> {
    let client = async_nats::connect(URL).await?;
    let inbox = client.new_inbox();
    let mut acknowledgements = client.subscribe(format!("{inbox}.*")).await?;
    let bus = bus("relay-client").policy(Policy::Block).nonblocking(true);
    let mut subscriber = AsyncSubscriber::new(bus.subscriber()?)?;
    let incarnation = now();
    let (mut sent, mut acknowledged) = (0, 0);
    loop {
        tokio::select! {
            acknowledgement = acknowledgements.next() => {
                let Message { subject, payload, .. } = acknowledgement.context(ENDED)?;
                let is_next = subject.strip_prefix(&inbox) == Some(&format!(".{acknowledged}"));
                let is_stored = payload.starts_with(b"{\"stream\":\"relay-client\",");
                ensure!(is_next && is_stored, "not stored: {subject}");
                acknowledged += 1;
            }
            message = subscriber.recv(), if sent - acknowledged < IN_FLIGHT => {
                let mut headers = HeaderMap::new();
                headers.insert(NATS_MESSAGE_ID, format!("{incarnation:016x}-{sent}"));
                let (reply, body) = (format!("{inbox}.{sent}"), message?.bytes().to_vec());
                let publish = client.publish_with_reply_and_headers("relay-client.new", reply, headers, body.into());
                publish.await?;
                sent += 1;
            }
        }
    }
}

pub async fn into() -> Result<()> {
    let client = async_nats::connect(URL).await?;
    let inbox = client.new_inbox();
    let mut messages = client.subscribe(inbox.clone()).await?;
    let sender = AsyncSender::new(bus("in").nonblocking(true).sender()?)?;
    let (mut pending, mut untold, mut reply) = (0, 0, None);
    loop {
        if pending == 0 {
            let subject = "$JS.API.CONSUMER.MSG.NEXT.relay-client.relay";
            let request = format!("{{\"batch\":{BATCH}}}");
            client
                .publish_with_reply(subject, inbox.clone(), request.into())
                .await?;
            pending = BATCH;
        }
        let next = match untold {
            0 => Ok(messages.next().await),
            _ => timeout(TELL_WITHIN, messages.next()).await,
        };
        let is_late = next.is_err();
        if let Ok(message) = next {
            let message = message.context(ENDED)?;
            sender.send(&message.payload).await?;
            reply = message.reply;
            untold += 1;
            pending -= 1;
        }
        if (is_late || untold == ACKNOWLEDGED_MAX)
            && let Some(reply) = reply.take()
        {
            client.publish(reply, "".into()).await?;
            untold = 0;
        }
    }
}

const ENDED: &str = "the client has ended";
