// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a bus to the engine: messages are published in order, and each leaves the window when the engine has it.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::future::pending;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::BytesMut;
use futures_util::FutureExt as _;
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::sync::watch;

use crate::backoff::Backoff;
use crate::engine::{Engine, Failure, FailureKind, Publisher, Stored};
use crate::headers;
use crate::rule::Context;
use crate::window::{Received, Record, Window};

const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Messages that are received before others run.
const RECEIVED_MAX: usize = 64;
/// Bytes of an allocation for copies of messages; a longer message has one of its own.
const COPIES: usize = 64 << 10;

type Receipt<E> = <<E as Engine>::Publisher as Publisher>::Receipt;

pub struct Outgoing<E: Engine> {
    context: Rc<Context<E>>,
    publisher: E::Publisher,
    window: Window,
    /// Room for copies of the next messages, which share an allocation.
    copies: BytesMut,
    /// None: the bus has ended, and only the window is left.
    subscriber: Option<AsyncFd<OwnedFd>>,
    /// The next message needs more room than is free.
    is_full: bool,
    /// `in_flight` was reached, and less than a quarter of it has become free since. A write of few messages costs as much as a write of many.
    is_saturated: bool,
    /// In order.
    in_flight: VecDeque<(Record, Fate<Receipt<E>>)>,
    /// After a failure only the oldest message is published, until the engine has one: each attempt occupies memory of the client.
    is_probing: bool,
    /// The stream has stored a message, so it has the subject. Until then each message names the stream, and the server compares the name.
    is_stream_known: bool,
    backoff: Backoff,
}

/// What becomes of a message.
enum Fate<R> {
    Published(R),
    Stored,
    /// It is to be published again.
    Failed,
    NotAllowed,
    /// This bridge has sent it on the bus.
    Own,
    TooLong(String),
    /// The last process was killed before it had the message whole, and the bus does not have it any more.
    Lost,
}

/// Why [`Outgoing::run`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The bus has ended, and the engine has all messages of it.
    Bus,
    /// The bridge ends, and the engine has all messages that were received.
    Stopped,
}

impl<E: Engine> Outgoing<E> {
    /// `subscriber` is a nonblocking descriptor with the format SLUICE_BUS_FRAMED.
    pub fn new(
        context: Rc<Context<E>>,
        window: Window,
        subscriber: Option<OwnedFd>,
    ) -> Result<Self> {
        // SAFETY: the registered value owns the descriptor, and closes it when it is dropped.
        let register = |fd| unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        let subscriber = subscriber.map(register).transpose();
        let (engine, rule) = (&context.engine, &context.rule);
        Ok(Self {
            publisher: engine.publisher(rule.subject(), rule.stream()),
            context,
            window,
            copies: BytesMut::with_capacity(COPIES),
            subscriber: subscriber.map_err(io::Error::from).context(WAITING)?,
            is_full: false,
            is_saturated: false,
            in_flight: VecDeque::new(),
            is_probing: false,
            is_stream_known: false,
            backoff: Backoff::new(RETRY.0, RETRY.1),
        })
    }

    pub async fn run(&mut self, stop: &mut watch::Receiver<bool>) -> Result<End> {
        if self.subscriber.is_none() {
            self.window.end();
        }
        loop {
            // What the last process received in part is received again before it is published.
            if self.window.is_uncertain() && !self.is_full {
                self.receive()?;
            }
            if let Err(failure) = self.publish().await {
                self.retry(&failure).await;
                continue;
            }
            let is_stopping = *stop.borrow();
            if self.window.is_empty() && (is_stopping || self.subscriber.is_none()) {
                return Ok(if is_stopping { End::Stopped } else { End::Bus });
            }
            let receives = !is_stopping && self.has_room();
            let subscriber = self.subscriber.as_ref().filter(|_| receives);
            tokio::select! {
                receipt = oldest(&mut self.in_flight) => {
                    if let Err(failure) = receipt.and_then(|()| self.release_all()) {
                        self.retry(&failure).await;
                    }
                }
                ready = readable(subscriber) => {
                    let mut ready = ready.context(WAITING)?;
                    match receive_some(&mut self.window, ready.get_inner())? {
                        Received::Nothing => ready.clear_ready(),
                        received => self.note(received),
                    }
                }
                _ = stop.changed() => {}
            }
        }
    }

    fn has_room(&self) -> bool {
        !self.is_full && !self.is_saturated
    }

    fn limit(&self) -> usize {
        match self.is_probing {
            true => 1,
            false => self.context.rule.in_flight() as usize,
        }
    }

    fn receive(&mut self) -> Result<()> {
        if let Some(subscriber) = &self.subscriber {
            let received = receive_some(&mut self.window, subscriber.get_ref())?;
            self.note(received);
        }
        Ok(())
    }

    fn note(&mut self, received: Received) {
        match received {
            Received::Full => self.is_full = true,
            Received::Ended => self.subscriber = None,
            Received::Message | Received::Nothing => {}
        }
    }

    /// Publishes what was received, up to the limit.
    async fn publish(&mut self) -> Result<(), Failure> {
        let limit = self.limit();
        let enough = if self.is_saturated {
            limit - limit / 4
        } else {
            limit
        };
        self.is_saturated = self.in_flight.len() >= enough;
        while !self.is_saturated
            && let Some(record) = self.window.take()
        {
            let fate = match self.decided(&record) {
                Some(fate) => fate,
                None => {
                    self.release_decided();
                    self.context.engine.connected().await;
                    match self.publish_message(&record).await {
                        Ok(fate) => fate,
                        Err(failure) => {
                            self.window.put_back([record].into_iter());
                            return Err(failure);
                        }
                    }
                }
            };
            self.in_flight.push_back((record, fate));
            self.is_saturated = self.in_flight.len() >= limit;
        }
        Ok(())
    }

    /// The fate of a message that is not published.
    fn decided(&self, record: &Record) -> Option<Fate<Receipt<E>>> {
        let header = &record.header;
        if record.is_stored() {
            Some(Fate::Stored)
        } else if record.is_lost() {
            Some(Fate::Lost)
        } else if header.sender == self.window.subscriber() {
            // Also if the rule had both directions in the last process.
            Some(Fate::Own)
        } else if !self.context.rule.permits(header.uid, header.gid) {
            Some(Fate::NotAllowed)
        } else {
            None
        }
    }

    async fn publish_message(&mut self, record: &Record) -> Result<Fate<Receipt<E>>, Failure> {
        let Context { rule, bridge, .. } = &*self.context;
        let sender = headers::sender(rule.name(), bridge, &record.header);
        self.copies.extend_from_slice(self.window.body(record));
        let body = self.copies.split().freeze();
        let stored = Stored {
            id: self.message_id(record),
            is_stream_known: self.is_stream_known,
        };
        match self.publisher.publish(&sender, body, stored).await {
            Ok(receipt) => Ok(Fate::Published(receipt)),
            Err(failure) if failure.kind == FailureKind::TooLong => Ok(Fate::TooLong(failure.text)),
            Err(failure) => Err(failure),
        }
    }

    /// The same for each attempt, also of the next process.
    fn message_id(&self, record: &Record) -> String {
        let (bridge, incarnation) = (&self.context.bridge, self.window.incarnation());
        let mut id = String::with_capacity(bridge.len() + 40);
        // Writing to a String cannot fail.
        let _ = write!(id, "{bridge}-{incarnation:016x}-{}", record.header.sequence);
        id
    }

    /// Messages that need no server do not wait for one.
    fn release_decided(&mut self) {
        let is_decided = |(_, fate): &(Record, Fate<_>)| !matches!(fate, Fate::Published(_));
        while self.in_flight.front().is_some_and(is_decided) {
            self.release();
        }
    }

    /// The oldest messages whose fates are known; at least one.
    fn release_all(&mut self) -> Result<(), Failure> {
        self.release();
        while let Some(receipt) = oldest(&mut self.in_flight).now_or_never() {
            receipt?;
            self.release();
        }
        Ok(())
    }

    /// The oldest message has its fate.
    fn release(&mut self) {
        let Some((record, fate)) = self.in_flight.pop_front() else {
            return;
        };
        let Context { counters, rule, .. } = &*self.context;
        let (header, channel) = (&record.header, || rule.channel());
        match fate {
            Fate::Stored => {
                counters.out.add(1);
                self.backoff.reset();
                self.is_probing = false;
                self.is_stream_known = true;
            }
            Fate::Lost => counters.lost.report(1, |_| {
                format!("{}: the last message that the bridge received before it was killed is lost with the bus", channel())
            }),
            Fate::Published(_) | Fate::Failed | Fate::Own => {}
            Fate::NotAllowed => counters.not_allowed.report(1, |new| {
                let (channel, uid, gid) = (channel(), header.uid, header.gid);
                format!("{channel}: {new} messages of senders that allow does not name, the last of uid {uid}, gid {gid}; add it to allow, or stop the sender")
            }),
            Fate::TooLong(text) => counters.too_long.report(1, |new| {
                let (channel, len) = (channel(), header.len);
                format!("{channel}: {new} messages did not go out, the last of {len} bytes: {text}")
            }),
        }
        if header.lost > 0 {
            counters.lost.report(header.lost, |new| {
                format!("{}: {new} messages were lost, because the server is slower than their senders; write full = \"block\", or create the bus with a larger capacity", channel())
            });
        }
        self.window.release(&record);
        self.is_full = false;
    }

    /// What the engine has not acknowledged is published again, in order. The stream recognises a message that it has, but not for ever:
    /// an acknowledgement that has arrived is not forgotten.
    async fn retry(&mut self, failure: &Failure) {
        let mut records = Vec::with_capacity(self.in_flight.len());
        for (mut record, fate) in self.in_flight.drain(..) {
            let is_stored = match fate {
                Fate::Published(receipt) => receipt.now_or_never() == Some(Ok(())),
                Fate::Stored => true,
                _ => false,
            };
            if is_stored {
                self.window.set_stored(&mut record);
            }
            records.push(record);
        }
        self.window.put_back(records.into_iter());
        self.is_probing = true;
        self.is_stream_known = false;
        let channel = self.context.rule.channel();
        let text = &failure.text;
        self.context.counters.retried.report(1, |_| {
            format!("{channel}: a message is published again, until it succeeds: {text}")
        });
        self.backoff.wait().await;
    }
}

const WAITING: &str = "cannot wait for the bus in the runtime";

/// Until there is nothing, no room, or the end. Message: there may be more.
fn receive_some(window: &mut Window, subscriber: &OwnedFd) -> Result<Received> {
    for _ in 0..RECEIVED_MAX {
        let received = window.receive(subscriber.as_fd());
        match received.context("cannot receive from the bus; restart the bridge")? {
            Received::Message => {}
            received => return Ok(received),
        }
    }
    Ok(Received::Message)
}

async fn readable(
    subscriber: Option<&AsyncFd<OwnedFd>>,
) -> io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
    match subscriber {
        Some(subscriber) => subscriber.readable().await,
        None => pending().await,
    }
}

/// Waits until the oldest message has its fate.
async fn oldest<R>(in_flight: &mut VecDeque<(Record, Fate<R>)>) -> Result<(), Failure>
where
    R: Future<Output = Result<(), Failure>> + Unpin,
{
    let Some((_, fate)) = in_flight.front_mut() else {
        return pending().await;
    };
    let Fate::Published(receipt) = fate else {
        return Ok(());
    };
    match receipt.await {
        Ok(()) => *fate = Fate::Stored,
        Err(failure) if failure.kind == FailureKind::TooLong => *fate = Fate::TooLong(failure.text),
        Err(failure) => {
            *fate = Fate::Failed;
            return Err(failure);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use tokio::task::{JoinHandle, LocalSet, spawn_local, yield_now};

    use super::*;
    use crate::engine::memory::{MESSAGE_MAX, MemoryEngine};
    use crate::rule::tests::context;
    use crate::window::tests::{frame, subscriber};

    /// A task that bridges from a socket with frames to an engine in memory.
    struct Bridge {
        engine: MemoryEngine,
        context: Rc<Context<MemoryEngine>>,
        sender: UnixDatagram,
        subscriber: UnixDatagram,
        /// Of the memory of the window.
        window: OwnedFd,
        stop: watch::Sender<bool>,
        task: JoinHandle<Result<End>>,
    }

    impl Bridge {
        fn start(rule: &str) -> Self {
            let engine = MemoryEngine::default();
            let context = context(rule, engine.clone());
            let (sender, subscriber) = subscriber();
            let window = Window::new(4096, "orders", 3).unwrap();
            Self::begin(engine, context, sender, subscriber, window)
        }

        fn begin(
            engine: MemoryEngine,
            context: Rc<Context<MemoryEngine>>,
            sender: UnixDatagram,
            subscriber: UnixDatagram,
            window: Window,
        ) -> Self {
            let (stop, mut stopped) = watch::channel(false);
            let file = window.as_fd().try_clone_to_owned().unwrap();
            let descriptor = subscriber.try_clone().unwrap().into();
            let mut outgoing =
                Outgoing::new(Rc::clone(&context), window, Some(descriptor)).unwrap();
            let task = spawn_local(async move { outgoing.run(&mut stopped).await });
            Self {
                engine,
                context,
                sender,
                subscriber,
                window: file,
                stop,
                task,
            }
        }

        /// The process is killed, and the next one has what the service manager kept.
        async fn restart(self) -> Self {
            self.task.abort();
            assert!(self.task.await.is_err());
            let window = Window::restore(self.window, "orders").unwrap();
            let engine = MemoryEngine::default();
            let context = context(RULE, engine.clone());
            Self::begin(engine, context, self.sender, self.subscriber, window)
        }

        fn send(&self, sequence: u64, body: &[u8]) {
            self.sender.send(&frame(sequence, body)).unwrap();
        }

        async fn until(&self, is_true: impl Fn(&MemoryEngine) -> bool) {
            let wait = async {
                while !is_true(&self.engine) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), wait)
                .await
                .unwrap();
        }

        async fn stop(self) -> Context<MemoryEngine> {
            self.stop.send(true).unwrap();
            let ended = tokio::time::timeout(Duration::from_secs(10), self.task).await;
            assert_eq!(ended.unwrap().unwrap().unwrap(), End::Stopped);
            Rc::into_inner(self.context).unwrap()
        }

        fn bodies(&self) -> Vec<Vec<u8>> {
            self.engine
                .stored()
                .iter()
                .map(|message| message.body.to_vec())
                .collect()
        }
    }

    const RULE: &str =
        "direction = \"out\"\nsubject = \"orders.new\"\nstream = \"ORDERS\"\nin_flight = 2";

    fn test(future: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        LocalSet::new().block_on(&runtime, future);
    }

    #[test]
    fn messages_have_headers_of_the_kernel_and_are_counted() {
        test(async {
            let bridge = Bridge::start(RULE);
            bridge.send(7, b"one");
            bridge.until(|engine| engine.pending() == 1).await;
            bridge.engine.acknowledge();
            let message = bridge.engine.stored().remove(0);
            assert_eq!(message.subject, "orders.new");
            let sender = "bridge=a uid=1000 gid=100 pid=77 sequence=7 bus=orders";
            assert!(message.values(headers::SENDER).eq([sender]), "{message:?}");
            assert_eq!(bridge.stop().await.counters.out.get(), 1);
        });
    }

    #[test]
    fn no_more_messages_are_in_flight_than_the_rule_says() {
        test(async {
            let bridge = Bridge::start(RULE);
            for sequence in 0..5 {
                bridge.send(sequence, &[sequence as u8]);
            }
            bridge.until(|engine| engine.pending() == 2).await;
            for _ in 0..100 {
                yield_now().await;
            }
            assert_eq!(bridge.engine.pending(), 2);
            for _ in 0..5 {
                bridge.until(|engine| engine.pending() > 0).await;
                bridge.engine.acknowledge();
            }
            assert_eq!(bridge.bodies(), [[0], [1], [2], [3], [4]]);
            bridge.stop().await;
        });
    }

    #[test]
    fn more_messages_go_out_when_more_than_a_quarter_is_free() {
        test(async {
            let bridge = Bridge::start(&RULE.replace("in_flight = 2", "in_flight = 8"));
            for sequence in 0..16 {
                bridge.send(sequence, b"a");
            }
            bridge.until(|engine| engine.pending() == 8).await;
            for pending in [7, 6] {
                bridge.engine.acknowledge();
                for _ in 0..100 {
                    yield_now().await;
                }
                assert_eq!(bridge.engine.pending(), pending);
            }
            bridge.engine.acknowledge();
            bridge.until(|engine| engine.pending() == 8).await;
        });
    }

    #[test]
    fn the_stream_is_named_until_it_has_stored_a_message() {
        test(async {
            let bridge = Bridge::start(RULE);
            bridge.send(0, b"a");
            bridge.until(|engine| engine.pending() == 1).await;
            bridge.engine.acknowledge();
            let counter = &bridge.context.counters.out;
            bridge.until(|_| counter.get() == 1).await;
            bridge.send(1, b"b");
            bridge.until(|engine| engine.pending() == 1).await;
            bridge.engine.refuse();
            bridge.until(|engine| engine.pending() == 1).await;
            bridge.engine.acknowledge();
            assert_eq!(bridge.engine.known(), [false, true, false]);
            bridge.stop().await;
        });
    }

    #[test]
    fn a_message_without_acknowledgement_is_stored_once() {
        test(async {
            let bridge = Bridge::start(RULE);
            bridge.send(0, b"a");
            bridge.send(1, b"b");
            bridge.until(|engine| engine.pending() == 2).await;
            bridge.engine.lose_acknowledgement();
            bridge.engine.acknowledge();
            bridge.until(|engine| engine.pending() == 1).await;
            bridge.engine.acknowledge();
            assert_eq!(bridge.bodies(), [b"a", b"b"]);
            let context = bridge.stop().await;
            assert_eq!(
                (context.counters.out.get(), context.counters.retried.get()),
                (2, 1)
            );
        });
    }

    #[test]
    fn a_refused_message_is_published_again() {
        test(async {
            let bridge = Bridge::start(RULE);
            bridge.send(0, b"a");
            for _ in 0..2 {
                bridge.until(|engine| engine.pending() == 1).await;
                bridge.engine.refuse();
            }
            bridge.until(|engine| engine.pending() == 1).await;
            bridge.engine.acknowledge();
            assert_eq!(bridge.bodies(), [b"a"]);
            bridge.stop().await;
        });
    }

    /// Refuses the first message for longer than the stream recognises duplicates.
    async fn refuse_the_first(bridge: &Bridge) {
        bridge.send(0, b"a");
        bridge.send(1, b"b");
        bridge.until(|engine| engine.pending() == 2).await;
        bridge.engine.swap();
        bridge.engine.acknowledge();
        bridge.engine.refuse();
        bridge.engine.forget_ids();
        bridge.until(|engine| engine.pending() > 0).await;
    }

    #[test]
    fn a_message_behind_a_refused_one_is_stored_once() {
        test(async {
            let bridge = Bridge::start(RULE);
            refuse_the_first(&bridge).await;
            for _ in 0..3 {
                bridge.until(|engine| engine.pending() == 1).await;
                bridge.engine.refuse();
            }
            bridge.until(|engine| engine.pending() == 1).await;
            bridge.engine.acknowledge();
            let context = bridge.context.clone();
            bridge.until(|_| context.counters.out.get() == 2).await;
            assert_eq!(bridge.bodies(), [b"b", b"a"]);
            drop(context);
            bridge.stop().await;
        });
    }

    #[test]
    fn the_next_process_knows_which_messages_behind_a_refused_one_are_stored() {
        test(async {
            let bridge = Bridge::start(RULE);
            refuse_the_first(&bridge).await;
            let bridge = bridge.restart().await;
            bridge.until(|engine| engine.pending() > 0).await;
            bridge.engine.acknowledge();
            bridge.send(2, b"c");
            bridge.until(|engine| engine.pending() > 0).await;
            bridge.engine.acknowledge();
            assert_eq!(bridge.bodies(), [b"a", b"c"]);
            bridge.stop().await;
        });
    }

    #[test]
    fn a_message_that_the_stream_does_not_permit_does_not_hold_up_others() {
        test(async {
            let bridge = Bridge::start(RULE);
            bridge.send(0, b"a");
            bridge.send(1, b"b");
            bridge.until(|engine| engine.pending() == 2).await;
            bridge.engine.refuse_as_too_long();
            bridge.engine.acknowledge();
            assert_eq!(bridge.bodies(), [b"b"]);
            let context = bridge.stop().await;
            assert_eq!(
                (context.counters.out.get(), context.counters.too_long.get()),
                (1, 1)
            );
        });
    }

    #[test]
    fn the_next_process_publishes_what_was_not_acknowledged() {
        test(async {
            let bridge = Bridge::start(RULE);
            for sequence in 0..4 {
                bridge.send(sequence, &[sequence as u8]);
            }
            bridge.until(|engine| engine.pending() == 2).await;
            bridge.engine.acknowledge();
            bridge.until(|engine| engine.pending() == 2).await;
            let bridge = bridge.restart().await;
            for _ in 1..4 {
                bridge.until(|engine| engine.pending() > 0).await;
                bridge.engine.acknowledge();
            }
            assert_eq!(bridge.bodies(), [[1], [2], [3]]);
            bridge.stop().await;
        });
    }

    #[test]
    fn only_senders_that_are_allowed_leave_the_host() {
        test(async {
            let bridge = Bridge::start(&format!("{RULE}\nallow = {{ uid = [0], gid = [7] }}"));
            bridge.send(0, b"a");
            bridge.send(1, b"b");
            let context = Rc::clone(&bridge.context);
            bridge
                .until(|_| context.counters.not_allowed.get() == 2)
                .await;
            drop(context);
            assert_eq!(bridge.engine.pending(), 0);
            assert_eq!(bridge.stop().await.counters.out.get(), 0);
        });
    }

    #[test]
    fn a_message_that_is_not_allowed_does_not_wait_for_the_server() {
        test(async {
            let rule = RULE.replace("in_flight = 2", "in_flight = 8");
            let bridge = Bridge::start(&format!("{rule}\nallow = {{ uid = [0] }}"));
            bridge.engine.disconnect();
            let mut allowed = frame(2, b"c");
            allowed[44..48].copy_from_slice(&0_u32.to_ne_bytes());
            bridge.send(0, b"a");
            bridge.send(1, b"b");
            bridge.sender.send(&allowed).unwrap();
            let counter = &bridge.context.counters.not_allowed;
            bridge.until(|_| counter.get() == 2).await;
            assert_eq!(bridge.engine.pending(), 0);
            bridge.engine.connect();
            bridge.until(|engine| engine.pending() == 1).await;
            bridge.engine.acknowledge();
            assert_eq!(bridge.bodies(), [b"c"]);
            bridge.stop().await;
        });
    }

    #[test]
    fn what_the_bridge_has_sent_does_not_go_back() {
        test(async {
            for direction in ["both", "out"] {
                let bridge = Bridge::start(&RULE.replace("out", direction));
                let mut own = frame(0, b"own");
                own[16..24].copy_from_slice(&3_u64.to_ne_bytes());
                bridge.sender.send(&own).unwrap();
                bridge.send(1, b"other");
                bridge.until(|engine| engine.pending() == 1).await;
                bridge.engine.acknowledge();
                assert_eq!(bridge.bodies(), [b"other"]);
                bridge.stop().await;
            }
        });
    }

    #[test]
    fn a_message_that_the_engine_does_not_take_is_counted() {
        test(async {
            let bridge = Bridge::start(RULE);
            bridge.send(0, &[0; MESSAGE_MAX + 1]);
            bridge.send(1, b"b");
            bridge.until(|engine| engine.pending() == 1).await;
            bridge.engine.acknowledge();
            let context = bridge.stop().await;
            assert_eq!(
                (context.counters.out.get(), context.counters.too_long.get()),
                (1, 1)
            );
        });
    }

    #[test]
    fn what_is_uncertain_is_published_only_if_it_is_whole() {
        test(async {
            for ends in [false, true] {
                let (sender, subscriber) = subscriber();
                let engine = MemoryEngine::default();
                let context = context(RULE, engine.clone());
                let mut window = Window::new(4096, "orders", 3).unwrap();
                window.copy_only(&frame(0, b"uncertain"));
                let file = window.as_fd().try_clone_to_owned().unwrap();
                let window = Window::restore(file, "orders").unwrap();
                let descriptor = (!ends).then(|| subscriber.into());
                let mut outgoing = Outgoing::new(Rc::clone(&context), window, descriptor).unwrap();
                let (_stop, mut stopped) = watch::channel(false);
                let run = outgoing.run(&mut stopped);
                let limited = tokio::time::timeout(Duration::from_millis(100), run).await;
                let lost = context.counters.lost.get();
                match ends {
                    true => assert_eq!((limited.unwrap().unwrap(), lost), (End::Bus, 1)),
                    false => assert_eq!((engine.pending(), lost), (1, 0)),
                }
                drop(sender);
            }
        });
    }

    #[test]
    fn losses_of_the_subscriber_are_counted() {
        test(async {
            let bridge = Bridge::start(RULE);
            let mut message = frame(9, b"a");
            message[32..40].copy_from_slice(&4_u64.to_ne_bytes());
            bridge.sender.send(&message).unwrap();
            bridge.until(|engine| engine.pending() == 1).await;
            bridge.engine.acknowledge();
            assert_eq!(bridge.stop().await.counters.lost.get(), 4);
        });
    }
}
