// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the engine to a bus: a message is acknowledged when the bus has it.

use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use sluice::bus::{AsyncSender, SendError};
use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::engine::{ConsumerOptions, Engine, Failure, Message, Subscription};
use crate::headers;
use crate::rule::Context;

const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A message that waits for the bus tells the engine so at this interval, which is a part of ACKNOWLEDGE_WITHIN, and less than the 5 seconds
/// after which a client may drop what was delivered.
const EXTEND: Duration = Duration::from_secs(4);

/// What a message is sent on.
pub trait Bus {
    async fn send(&self, message: &[u8]) -> Result<(), SendError>;
}

impl Bus for AsyncSender {
    async fn send(&self, message: &[u8]) -> Result<(), SendError> {
        AsyncSender::send(self, message).await
    }
}

/// Returns when the bus was destroyed.
pub async fn run<E: Engine>(context: &Rc<Context<E>>, bus: &impl Bus) {
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    loop {
        let Context { rule, engine, .. } = &**context;
        let ended = match rule.stream() {
            None => deliver_all(context, bus, &mut backoff, engine.subscribe(rule.subject())).await,
            Some(stream) => {
                let options = ConsumerOptions {
                    stream,
                    name: rule.consumer(&context.bridge),
                    subject: rule.subject(),
                    messages: rule.in_flight(),
                    bytes: rule.in_flight_bytes(),
                };
                deliver_all(context, bus, &mut backoff, engine.consume(options)).await
            }
        };
        match ended {
            Ended::Bus => return,
            Ended::Engine(failure) => {
                let (channel, text) = (rule.channel(), &failure.text);
                context.counters.retried.report(1, |_| {
                    format!("{channel}: subscribing again, until it succeeds: {text}")
                });
                backoff.wait().await;
            }
        }
    }
}

/// What ends a subscription.
enum Ended {
    Bus,
    Engine(Failure),
}

async fn deliver_all<E: Engine, S: Subscription>(
    context: &Context<E>,
    bus: &impl Bus,
    backoff: &mut Backoff,
    subscribe: impl Future<Output = Result<S, Failure>>,
) -> Ended {
    let mut subscription = match subscribe.await {
        Ok(subscription) => subscription,
        Err(failure) => return Ended::Engine(failure),
    };
    loop {
        if let Err(ended) = deliver(context, bus, &mut subscription).await {
            return ended;
        }
        backoff.reset();
    }
}

async fn deliver<E: Engine, S: Subscription>(
    context: &Context<E>,
    bus: &impl Bus,
    subscription: &mut S,
) -> Result<(), Ended> {
    let message = subscription.next().await.map_err(Ended::Engine)?;
    let Context {
        counters,
        rule,
        bridge,
        ..
    } = context;
    if let Err(error) = headers::check_path(&message, bridge) {
        counters.looped.add(1);
        if error == headers::PathError::TooLong {
            let channel = rule.channel();
            let line = |new| {
                format!("{channel}: {new} messages had passed too many bridges; look for a loop")
            };
            counters.looped.report(0, line);
        }
        return acknowledge(subscription).await;
    }
    tokio::select! {
        // The bus usually has room, and no timer is needed.
        biased;
        sent = send::<_, S>(context, bus, &message) => sent?,
        extended = extend(subscription) => return Err(Ended::Engine(extended)),
    }
    acknowledge(subscription).await
}

/// Until the bus has the message, or never takes it.
async fn send<E, S: Subscription>(
    context: &Context<E>,
    bus: &impl Bus,
    message: &Message,
) -> Result<(), Ended> {
    let Context { counters, rule, .. } = context;
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    loop {
        let sent = bus.send(&message.body).await;
        if sent.is_ok() {
            counters.incoming.add(1);
            return Ok(());
        }
        let channel = rule.channel();
        match sent {
            Ok(()) => {}
            Err(SendError::MessageTooLong { len, max }) => counters.too_long.report(1, |new| {
                format!("{channel}: {new} messages did not come in, the last of {len} bytes, where the bus permits {max}; create the bus with a larger capacity")
            }),
            Err(SendError::NoSubscriber) => {
                counters.no_subscriber.report(1, |_| {
                    let fate = if S::KEEPS { "waits for one" } else { "is lost" };
                    format!("{channel}: a message {fate}, because the multicast bus has no subscriber; start one")
                });
                if S::KEEPS {
                    sleep(RETRY.1).await;
                    continue;
                }
            }
            Err(SendError::Destroyed) => return Err(Ended::Bus),
            Err(error) => {
                counters.send_failed.report(1, |_| {
                    let text = sluice::explain(&error);
                    format!("{channel}: cannot send on the bus: {text}; trying again")
                });
                backoff.wait().await;
                continue;
            }
        }
        return Ok(());
    }
}

async fn acknowledge(subscription: &mut impl Subscription) -> Result<(), Ended> {
    subscription.acknowledge().await.map_err(Ended::Engine)
}

/// Returns only if it fails.
async fn extend<S: Subscription>(subscription: &mut S) -> Failure {
    if !S::KEEPS {
        return pending().await;
    }
    loop {
        sleep(EXTEND).await;
        if let Err(failure) = subscription.extend().await {
            return failure;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use bytes::Bytes;
    use tokio::task::{LocalSet, spawn_local};

    use super::*;
    use crate::engine::memory::MemoryEngine;
    use crate::rule::tests::context;

    /// A bus whose results a test gives, and which then has room.
    #[derive(Default)]
    struct TestBus {
        results: RefCell<VecDeque<SendError>>,
        sent: RefCell<Vec<Vec<u8>>>,
    }

    impl Bus for Rc<TestBus> {
        async fn send(&self, message: &[u8]) -> Result<(), SendError> {
            if let Some(error) = self.results.borrow_mut().pop_front() {
                return Err(error);
            }
            self.sent.borrow_mut().push(message.to_vec());
            Ok(())
        }
    }

    fn message(body: &'static str, path: &str) -> Message {
        Message {
            subject: "orders.new".to_owned(),
            headers: vec![(headers::SENDER, format!("bridge={path}"))],
            body: Bytes::from_static(body.as_bytes()),
            reply_to: None,
        }
    }

    const RULE: &str = "direction = \"in\"\nsubject = \"orders.*\"";
    const STREAM: &str = "direction = \"in\"\nsubject = \"orders.*\"\nstream = \"ORDERS\"";

    /// Bridges the messages to a bus with these results, then to its end.
    fn bridge(
        rule: &str,
        results: Vec<SendError>,
        messages: Vec<Message>,
    ) -> (Rc<TestBus>, MemoryEngine, Context<MemoryEngine>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let engine = MemoryEngine::default();
        let context = context(rule, engine.clone());
        let bus = Rc::new(TestBus {
            results: RefCell::new(results.into()),
            ..TestBus::default()
        });
        LocalSet::new().block_on(&runtime, async {
            let (running, on) = (Rc::clone(&context), Rc::clone(&bus));
            let task = spawn_local(async move { run(&running, &on).await });
            for message in messages {
                engine.deliver(message);
            }
            sleep(Duration::from_secs(60)).await;
            bus.results.borrow_mut().push_back(SendError::Destroyed);
            engine.deliver(message("last", "b"));
            task.await.unwrap();
        });
        (bus, engine, Rc::into_inner(context).unwrap())
    }

    #[test]
    fn a_message_is_acknowledged_when_the_bus_has_it() {
        let (bus, engine, context) = bridge(STREAM, vec![], vec![message("one", "b")]);
        assert_eq!(*bus.sent.borrow(), [b"one"]);
        // Without the message that the bus refused.
        assert_eq!(
            (engine.acknowledged(), context.counters.incoming.get()),
            (1, 1)
        );
    }

    #[test]
    fn only_its_destruction_ends_a_bus() {
        let failures = || SendError::NotAddressable;
        let (bus, engine, context) = bridge(
            STREAM,
            vec![failures(), failures()],
            vec![message("one", "b")],
        );
        assert_eq!(*bus.sent.borrow(), [b"one"]);
        assert_eq!(
            (engine.acknowledged(), context.counters.send_failed.get()),
            (1, 2)
        );
    }

    #[test]
    fn a_message_that_waits_for_a_subscriber_is_extended() {
        let results = (0..11).map(|_| SendError::NoSubscriber).collect();
        let (bus, engine, _) = bridge(STREAM, results, vec![message("one", "b")]);
        assert_eq!(*bus.sent.borrow(), [b"one"]);
        // In 55 s.
        assert_eq!(engine.extended(), 13);
    }

    #[test]
    fn a_message_that_has_passed_this_bridge_does_not_come_in() {
        let messages = vec![message("loop", "a"), message("one", "b")];
        let (bus, engine, context) = bridge(STREAM, vec![], messages);
        assert_eq!(*bus.sent.borrow(), [b"one"]);
        assert_eq!(
            (engine.acknowledged(), context.counters.looped.get()),
            (2, 1)
        );
    }

    #[test]
    fn a_long_message_does_not_hold_up_the_others() {
        let results = vec![SendError::MessageTooLong { len: 9, max: 5 }];
        let messages = vec![message("long", "b"), message("one", "b")];
        let (bus, engine, context) = bridge(STREAM, results, messages);
        assert_eq!(*bus.sent.borrow(), [b"one"]);
        assert_eq!(
            (engine.acknowledged(), context.counters.too_long.get()),
            (2, 1)
        );
    }

    #[test]
    fn a_message_of_a_stream_waits_for_a_subscriber() {
        let results = || vec![SendError::NoSubscriber, SendError::NoSubscriber];
        let messages = || vec![message("one", "b"), message("two", "b")];
        let (bus, _, _) = bridge(STREAM, results(), messages());
        assert_eq!(*bus.sent.borrow(), [b"one", b"two"]);
        let (bus, _, context) = bridge(RULE, results(), messages());
        assert!(bus.sent.borrow().is_empty());
        assert_eq!(context.counters.no_subscriber.get(), 2);
    }
}
