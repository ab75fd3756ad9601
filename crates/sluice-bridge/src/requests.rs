// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rule whose messages are requests: clients of the bus ask services of other hosts, or the other way round.
//!
//! A client learns at once that no service answers: the bridge is a server of the bus while requests of this host have an answer, and
//! subscribed to the subject while the bus has a server.

use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use sluice::bus::{
    AsyncClient, AsyncRequest, AsyncServer, CallError, Client, Header, RecvError, SendError,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout};

use crate::backoff::Backoff;
use crate::bus_rule::BusRule;
use crate::engine::{
    ERROR, ERROR_CODE, Engine, Failure, FailureKind, Message, Subscription, UNAVAILABLE,
};
use crate::headers;
use crate::log;
use crate::rule::Context;

const REOPEN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// How long the bridge is no server of the bus after a request that nobody answers: the first and the longest delay.
const ABSENT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// The interval of the checks of the servers of the bus, and of the connection.
const LOOK: Duration = Duration::from_millis(250);
/// How long the other requests in progress may still get replies after one that nobody answers, and after SIGTERM.
const FINISH: Duration = Duration::from_secs(1);
/// How long a reply waits for room on the bus.
const REPLY: Duration = Duration::from_secs(1);

/// Until `stop` is true. `opening` is dropped after the first attempt to open the bus.
pub async fn run<E: Engine>(
    context: Rc<Context<E>>,
    mut stop: watch::Receiver<bool>,
    opening: mpsc::Sender<()>,
) -> Result<()> {
    let mut opening = Some(opening);
    let mut calls = Calls::new();
    let mut backoff = Backoff::new(REOPEN.0, REOPEN.1);
    let mut told = String::new();
    while !*stop.borrow() {
        let began = Instant::now();
        let ended = tokio::select! {
            ended = bridge(&context, &mut opening, &mut calls) => ended,
            _ = stop.wait_for(|stop| *stop) => Ok(()),
        };
        calls.finish(&context).await;
        if *stop.borrow() {
            break;
        }
        if began.elapsed() > REOPEN.1 {
            told.clear();
            backoff.reset();
        }
        let text = match ended {
            Ok(()) => "the bus has ended; opening it again".to_owned(),
            Err(error) => format!("{}; trying again", sluice::explain(error.as_ref())),
        };
        if text != told {
            log::line(format_args!("{}: {text}", context.rule.channel()));
            told = text;
        }
        tokio::select! {
            () = backoff.wait() => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }
    Ok(())
}

/// Until the bus has ended. Fails if it cannot be opened, and if the subscription fails.
async fn bridge<E: Engine>(
    context: &Rc<Context<E>>,
    opening: &mut Option<mpsc::Sender<()>>,
    calls: &mut Calls<E>,
) -> Result<()> {
    let client = client(&context.rule);
    drop(opening.take());
    let client = client?;
    match context.rule.is_in() {
        true => ask_servers(context, client, calls).await,
        false => serve_clients(context, client, calls).await,
    }
}

fn client(rule: &BusRule) -> Result<Client> {
    Ok(rule.bus()?.client()?)
}

/// The requests in progress, of which there are at most `in_flight`, and where those of other hosts come from.
struct Calls<E: Engine> {
    tasks: JoinSet<Result<After>>,
    subscription: Option<E::Subscription>,
}

/// What the task of a rule does after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Next,
    /// There is nobody who answers.
    Nobody,
    /// The bus was destroyed.
    End,
}

impl<E: Engine> Calls<E> {
    fn new() -> Self {
        Self {
            tasks: JoinSet::new(),
            subscription: None,
        }
    }

    fn have_room(&self, context: &Context<E>) -> bool {
        self.tasks.len() < context.rule.in_flight() as usize
    }

    /// No further requests. Those in progress may still have a reply, and those on the way are told that they have none.
    async fn finish(&mut self, context: &Context<E>) {
        let subscription = self.subscription.take();
        let refused = async {
            if let Some(mut subscription) = subscription {
                refuse(context, &mut subscription).await;
            }
        };
        let answered = async { while self.tasks.join_next().await.is_some() {} };
        // Without a connection the first one has no end.
        let _ = timeout(FINISH, async { tokio::join!(refused, answered) }).await;
        self.tasks.shutdown().await;
    }
}

async fn refuse<E: Engine>(context: &Context<E>, subscription: &mut E::Subscription) {
    if subscription.drain().await.is_err() {
        return;
    }
    while let Ok(request) = subscription.next().await {
        let text = "the bus has no server";
        report(context, text);
        if let Some(reply_to) = request.reply_to {
            reply(context, reply_to, error(UNAVAILABLE, text)).await;
        }
    }
}

/// Requests of other hosts. `client` keeps a bus that the rule has created.
async fn ask_servers<E: Engine>(
    context: &Rc<Context<E>>,
    mut client: Client,
    calls: &mut Calls<E>,
) -> Result<()> {
    loop {
        // A bus of this name may be another one by now.
        while client.info()?.subscribers == 0 {
            sleep(LOOK).await;
            client = self::client(&context.rule)?;
        }
        let servers = AsyncClient::new(client)?;
        if ask_subscribed(context, &servers, calls).await? == After::End {
            return Ok(());
        }
        client = self::client(&context.rule)?;
        calls.finish(context).await;
    }
}

/// Passes requests to the servers of the bus until it has none.
async fn ask_subscribed<E: Engine>(
    context: &Rc<Context<E>>,
    servers: &AsyncClient,
    calls: &mut Calls<E>,
) -> Result<After> {
    let requests = context.engine.share(context.rule.subject()).await?;
    calls.subscription = Some(requests);
    let mut looks = interval(LOOK);
    loop {
        let has_room = calls.have_room(context);
        tokio::select! {
            request = next(&mut calls.subscription), if has_room => {
                let (context, servers, request) = (Rc::clone(context), servers.clone(), request?);
                let call = async move { ask_server(&context, &servers, request).await };
                calls.tasks.spawn_local(call);
            }
            Some(ended) = calls.tasks.join_next() => match ended.context(BUG)?? {
                After::Next => {}
                after => return Ok(after),
            },
            _ = looks.tick() => if servers.info()?.subscribers == 0 {
                return Ok(After::Nobody);
            }
        }
    }
}

async fn next<S: Subscription>(subscription: &mut Option<S>) -> Result<Message, Failure> {
    match subscription {
        Some(subscription) => subscription.next().await,
        None => pending().await,
    }
}

/// Requests of this host. `_client` keeps a bus that the rule has created.
async fn serve_clients<E: Engine>(
    context: &Rc<Context<E>>,
    _client: Client,
    calls: &mut Calls<E>,
) -> Result<()> {
    let mut backoff = Backoff::new(ABSENT.0, ABSENT.1);
    loop {
        context.engine.connected().await;
        let mut server = AsyncServer::new(context.rule.bus()?.server()?)?;
        if serve(context, &mut server, calls, &mut backoff).await? == After::End {
            return Ok(());
        }
        calls.finish(context).await;
        // The bus tells the clients whose requests are left that their server has ended.
        drop(server);
        backoff.wait().await;
    }
}

/// Passes requests of local clients to NATS until nobody answers one.
async fn serve<E: Engine>(
    context: &Rc<Context<E>>,
    server: &mut AsyncServer,
    calls: &mut Calls<E>,
    backoff: &mut Backoff,
) -> Result<After> {
    let mut looks = interval(LOOK);
    loop {
        let has_room = calls.have_room(context);
        tokio::select! {
            request = server.recv(), if has_room => {
                let request = match request {
                    Err(RecvError::Destroyed) => return Ok(After::End),
                    request => request?,
                };
                let context = Rc::clone(context);
                let answer = async move { answer(&context, request).await };
                calls.tasks.spawn_local(answer);
            }
            Some(ended) = calls.tasks.join_next() => match ended.context(BUG)?? {
                After::Next => backoff.reset(),
                after => return Ok(after),
            },
            _ = looks.tick() => if !context.engine.is_connected() {
                return Ok(After::Nobody);
            }
        }
    }
}

const BUG: &str = "a request has failed; report it as a bug";

/// The servers of a bus; tests have others.
trait Servers {
    async fn call(&self, request: &[u8], limit: Duration) -> Result<Vec<u8>, CallError>;
}

impl Servers for AsyncClient {
    async fn call(&self, request: &[u8], limit: Duration) -> Result<Vec<u8>, CallError> {
        self.call_timeout(request, limit).await
    }
}

/// A request of another host.
async fn ask_server<E: Engine>(
    context: &Context<E>,
    servers: &impl Servers,
    mut request: Message,
) -> Result<After> {
    let Context { counters, rule, .. } = context;
    // Nobody waits for a reply without a subject.
    let Some(reply_to) = request.reply_to.take() else {
        report(context, "its sender waits for none");
        return Ok(After::Next);
    };
    if headers::check_path(&request, &context.bridge).is_err() {
        counters.looped.add(1);
        let text = "the request has passed this bridge already, or more than 8 bridges";
        reply(context, reply_to, error(LOOP, text)).await;
        return Ok(After::Next);
    }
    let limit = rule.request_timeout().unwrap_or_default();
    match servers.call(&request.body, limit).await {
        Ok(body) => {
            let body = Bytes::from(body);
            let message = Message {
                body,
                ..Message::default()
            };
            if reply(context, reply_to, message).await {
                counters.incoming.add(1);
            }
            Ok(After::Next)
        }
        Err(failed) => {
            report(context, &sluice::explain(&failed));
            let message = error(code(&failed), &failed.to_string());
            reply(context, reply_to, message).await;
            Ok(what_follows(&failed))
        }
    }
}

fn what_follows(error: &CallError) -> After {
    match error {
        CallError::NoServer => After::Nobody,
        CallError::Recv(RecvError::Destroyed | RecvError::Evicted)
        | CallError::Send(SendError::Destroyed) => After::End,
        _ => After::Next,
    }
}

fn code(error: &CallError) -> &'static str {
    match error {
        CallError::TimedOut(_) => "504",
        CallError::Send(SendError::MessageTooLong { .. }) => TOO_LONG,
        _ => UNAVAILABLE,
    }
}

const NO_CONNECTION: &str = "there is no connection to a server; check the servers";
const TOO_LONG: &str = "413";
const LOOP: &str = "508";

/// A reply that is an error.
fn error(code: &str, text: &str) -> Message {
    Message {
        headers: vec![(ERROR, text.to_owned()), (ERROR_CODE, code.to_owned())],
        ..Message::default()
    }
}

/// Sends a reply. Returns false if it was not sent, for example because it is too long.
async fn reply<E: Engine>(context: &Context<E>, subject: String, message: Message) -> bool {
    let Err(failure) = publish(context, subject.clone(), message).await else {
        return true;
    };
    report(context, &failure.text);
    if failure.kind == FailureKind::TooLong {
        let message = error(TOO_LONG, "the reply is too long");
        // The failure is counted.
        let _ = publish(context, subject, message).await;
    }
    false
}

/// Returns when the message has left this process.
async fn publish<E: Engine>(
    context: &Context<E>,
    subject: String,
    message: Message,
) -> Result<(), Failure> {
    // Without connection it would only occupy memory.
    if !context.engine.is_connected() {
        return Err(Failure::temporary(NO_CONNECTION));
    }
    let message = Message { subject, ..message };
    context.engine.publish(message).await
}

/// A request of a client of this host.
async fn answer<E: Engine>(context: &Context<E>, request: AsyncRequest) -> Result<After> {
    let reply = match ask_service(context, request.header(), request.bytes()).await {
        Ok(Some(reply)) => reply,
        Ok(None) => return Ok(After::Next),
        Err(failure) => {
            report(context, &failure.text);
            return Ok(match failure.kind {
                FailureKind::NoResponder => After::Nobody,
                _ => After::Next,
            });
        }
    };
    match request.reply_timeout(&reply, REPLY).await {
        Ok(()) => context.counters.out.add(1),
        // The client has ended.
        Err(SendError::UnknownSubscriber { .. }) => {}
        Err(SendError::Destroyed) => return Ok(After::End),
        Err(error) => report(context, &sluice::explain(&error)),
    }
    Ok(After::Next)
}

/// None: the client may not ask.
async fn ask_service<E: Engine>(
    context: &Context<E>,
    header: &Header,
    body: &[u8],
) -> Result<Option<Bytes>, Failure> {
    let Context { counters, rule, .. } = context;
    let (uid, gid) = (header.uid, header.gid);
    if !rule.permits(uid, gid) {
        let channel = rule.channel();
        counters.not_allowed.report(1, |new| {
            format!("{channel}: {new} requests of senders that allow does not name, the last of uid {uid}, gid {gid}; add it to allow, or stop the sender")
        });
        return Ok(None);
    }
    let sender = headers::sender(rule.name(), &context.bridge, header);
    let message = Message {
        subject: rule.subject().to_owned(),
        headers: vec![(headers::SENDER, sender)],
        body: Bytes::copy_from_slice(body),
        reply_to: None,
    };
    if !context.engine.is_connected() {
        return Err(Failure {
            kind: FailureKind::NoResponder,
            text: NO_CONNECTION.to_owned(),
        });
    }
    let limit = rule.request_timeout().unwrap_or_default();
    Ok(Some(context.engine.request(message, limit).await?.body))
}

fn report<E>(context: &Context<E>, reason: &str) {
    let channel = context.rule.channel();
    context.counters.no_reply.report(1, |new| {
        format!("{channel}: {new} requests had no reply, the last one because: {reason}")
    });
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::engine::memory::{MESSAGE_MAX, MemoryEngine};
    use crate::rule::tests::context;
    use crate::window::tests::frame;

    const IN: &str = "direction = \"in\"\nsubject = \"sums\"\nrequests = {}";
    const OUT: &str = "direction = \"out\"\nsubject = \"sums\"\nrequests = {}";

    /// What the servers of the bus reply.
    struct TestServers(fn() -> Result<Vec<u8>, CallError>);

    impl Servers for TestServers {
        async fn call(&self, request: &[u8], limit: Duration) -> Result<Vec<u8>, CallError> {
            assert_eq!((request, limit), (&b"1 + 1"[..], Duration::from_secs(5)));
            (self.0)()
        }
    }

    fn request(path: &str) -> Message {
        Message {
            subject: "sums".to_owned(),
            headers: vec![(headers::SENDER, format!("bridge={path}"))],
            body: Bytes::from_static(b"1 + 1"),
            reply_to: Some("inbox".to_owned()),
        }
    }

    /// What follows, and the reply to another host.
    fn asked(
        servers: fn() -> Result<Vec<u8>, CallError>,
        request: Message,
    ) -> (After, Option<Message>, [u64; 3]) {
        let engine = MemoryEngine::default();
        let context = context(IN, engine.clone());
        let servers = TestServers(servers);
        let asked = ask_server(&context, &servers, request);
        let after = asked.now_or_never().unwrap().unwrap();
        let counters = &context.counters;
        let counts = [&counters.incoming, &counters.no_reply, &counters.looped];
        (after, engine.published().pop(), counts.map(|one| one.get()))
    }

    fn code_of(reply: Option<Message>) -> String {
        let reply = reply.unwrap();
        assert!(reply.body.is_empty() && reply.subject == "inbox");
        assert_ne!(reply.values(ERROR).next(), None);
        let code = reply.values(ERROR_CODE).next();
        code.unwrap().to_owned()
    }

    #[test]
    fn a_request_of_another_host_has_the_reply_of_a_server() {
        let (after, reply, counts) = asked(|| Ok(b"2".to_vec()), request("b"));
        let reply = reply.unwrap();
        assert_eq!(
            (after, reply.subject.as_str(), &reply.body[..]),
            (After::Next, "inbox", &b"2"[..])
        );
        assert!(reply.headers.is_empty());
        assert_eq!(counts, [1, 0, 0]);
    }

    #[test]
    fn another_host_is_told_why_there_is_no_reply() {
        type Case = (fn() -> Result<Vec<u8>, CallError>, After, &'static str);
        let cases: [Case; 5] = [
            (|| Err(CallError::NoServer), After::Nobody, "503"),
            (
                || Err(CallError::ServerEnded { server: 1 }),
                After::Next,
                "503",
            ),
            (
                || Err(CallError::TimedOut(Duration::ZERO)),
                After::Next,
                "504",
            ),
            (
                || Err(SendError::MessageTooLong { len: 9, max: 5 }.into()),
                After::Next,
                "413",
            ),
            (|| Err(RecvError::Destroyed.into()), After::End, "503"),
        ];
        for (servers, follows, code) in cases {
            let (after, reply, counts) = asked(servers, request("b"));
            assert_eq!((after, counts), (follows, [0, 1, 0]));
            assert_eq!(code_of(reply), code);
        }
    }

    #[test]
    fn a_reply_that_is_too_long_becomes_an_error() {
        let (_, reply, _) = asked(|| Ok(vec![0; MESSAGE_MAX + 1]), request("b"));
        assert_eq!(code_of(reply), "413");
    }

    #[test]
    fn a_request_that_has_passed_this_bridge_does_not_come_in() {
        let (after, reply, counts) = asked(|| unreachable!(), request("a"));
        assert_eq!((after, counts), (After::Next, [0, 0, 1]));
        assert_eq!(code_of(reply), "508");
    }

    #[test]
    fn a_message_without_a_subject_for_the_reply_is_no_request() {
        let message = Message {
            reply_to: None,
            ..request("b")
        };
        let (_, reply, counts) = asked(|| unreachable!(), message);
        assert_eq!((reply, counts), (None, [0, 1, 0]));
    }

    #[test]
    fn a_request_on_the_way_is_told_when_the_bridge_leaves() {
        let engine = MemoryEngine::default();
        let context = context(IN, engine.clone());
        let mut calls = Calls::new();
        calls.subscription = engine.share("sums").now_or_never().unwrap().ok();
        engine.deliver(request("b"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(calls.finish(&context));
        assert_eq!(code_of(engine.published().pop()), "503");
        assert_eq!(context.counters.no_reply.get(), 1);
    }

    fn header() -> Header {
        let frame = frame(7, b"");
        Header::from_bytes(frame[..Header::LEN].try_into().unwrap()).unwrap()
    }

    #[test]
    fn a_request_of_this_host_has_headers_of_the_kernel() {
        let engine = MemoryEngine::default();
        let context = context(OUT, engine.clone());
        engine.reply(Ok(Message {
            body: Bytes::from_static(b"2"),
            ..Message::default()
        }));
        let header = header();
        let reply = ask_service(&context, &header, b"1 + 1").now_or_never();
        assert_eq!(reply, Some(Ok(Some(Bytes::from_static(b"2")))));
        let request = engine.requests().remove(0);
        assert_eq!(
            (request.subject.as_str(), &request.body[..]),
            ("sums", &b"1 + 1"[..])
        );
        let sender = "bridge=a uid=1000 gid=100 pid=77 sequence=7 bus=orders";
        assert!(request.values(headers::SENDER).eq([sender]), "{request:?}");
    }

    #[test]
    fn only_clients_that_are_allowed_ask_other_hosts() {
        let engine = MemoryEngine::default();
        let context = context(&format!("{OUT}\nallow = {{ uid = [0] }}"), engine.clone());
        let header = header();
        let reply = ask_service(&context, &header, b"1 + 1").now_or_never();
        assert_eq!(reply, Some(Ok(None)));
        assert!(engine.requests().is_empty());
        assert_eq!(context.counters.not_allowed.get(), 1);
    }
}
