// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon with the module and a real server: tests/bridge runs this in the VM. The test is the service manager of the daemon.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use async_nats::RequestErrorKind;
use async_nats::jetstream::{self, consumer, stream};
use futures_util::StreamExt as _;
use nix::sys::signal::Signal;
use sluice::Bus;
use sluice::bus::{CallError, Client, Policy, SendError, Sender, Server as BusServer, Subscriber};
use tokio::runtime::Runtime;

use support::daemon::{Bridge, as_user, metrics};
use support::{LIMIT, Server, create_stream, publish_malformed, runtime, until};

/// A stream, and a client of the server.
struct Stream {
    runtime: Runtime,
    stream: stream::Stream,
    context: jetstream::Context,
}

impl Stream {
    fn create(server: &Server) -> Self {
        let runtime = runtime();
        let (stream, context) = runtime.block_on(create_stream(server));
        Self {
            runtime,
            stream,
            context,
        }
    }

    fn len(&self) -> u64 {
        let info = self.runtime.block_on(self.stream.get_info());
        info.map_or(0, |info| info.state.messages)
    }

    fn wait_for(&self, count: u64) {
        until("the stream has the messages", || self.len() >= count);
        // A message that is stored twice would come later.
        thread::sleep(Duration::from_millis(200));
        assert_eq!(self.len(), count);
    }

    /// The number in the body of a message of the stream.
    fn number(&self, sequence: u64) -> u64 {
        let message = self.stream.get_raw_message(sequence);
        number(&self.runtime.block_on(message).unwrap().payload)
    }

    /// Those of all messages, in the order of the stream.
    fn numbers(&self) -> Vec<u64> {
        let len = self.len() as usize;
        let config = consumer::pull::Config {
            ack_policy: consumer::AckPolicy::None,
            ..consumer::pull::Config::default()
        };
        self.runtime.block_on(async {
            let consumer = self.stream.create_consumer(config).await.unwrap();
            let messages = consumer.fetch().max_messages(len).messages();
            let numbers = messages
                .await
                .unwrap()
                .map(|message| number(&message.unwrap().payload));
            numbers.collect().await
        })
    }

    fn publish(&self, body: Vec<u8>) {
        self.runtime.block_on(async {
            let acknowledged = self
                .context
                .publish("orders.new", body.into())
                .await
                .unwrap();
            acknowledged.await.unwrap();
        });
    }
}

fn body(number: u64) -> Vec<u8> {
    let mut body = number.to_string().into_bytes();
    body.resize(100, b' ');
    body
}

fn number(body: &[u8]) -> u64 {
    std::str::from_utf8(body).unwrap().trim().parse().unwrap()
}

fn rule(name: &str, lines: &str) -> String {
    format!("[[bus]]\nname = \"{name}\"\n{lines}\n")
}

const OUT: &str = "direction = \"out\"\nsubject = \"orders.new\"\nstream = \"ORDERS\"\ncreate = { capacity = 65536 }";
const IN: &str = "direction = \"in\"\nsubject = \"orders.new\"\nstream = \"ORDERS\"\ncreate = { capacity = 65536 }";

/// Waits until the bridge has created the bus and has subscribed.
fn sender(name: &str) -> Sender {
    until("the bridge has opened the bus", || {
        Bus::named(name)
            .info()
            .is_ok_and(|info| info.subscribers > 0)
    });
    Bus::named(name).sender().unwrap()
}

fn subscriber(name: &str) -> Subscriber {
    let bus = Bus::named(name).policy(Policy::Block);
    until("the bridge has opened the bus", || bus.info().is_ok());
    bus.subscriber().unwrap()
}

#[test]
fn messages_go_out_with_what_the_kernel_knows_of_their_sender() {
    let server = Server::start("headers");
    let stream = Stream::create(&server);
    let bridge = Bridge::start(&server, "a", &rule("headers", OUT));
    sender("headers").send(&body(7)).unwrap();
    stream.wait_for(1);
    let message = stream
        .runtime
        .block_on(stream.stream.get_raw_message(1))
        .unwrap();
    let sender = message.headers.get("Sluice-Sender").unwrap();
    let pid = std::process::id();
    let expected = format!("bridge=a uid=0 gid=0 pid={pid} sequence=0 bus=headers");
    assert_eq!(sender.as_str(), expected);
    assert!(bridge.stop().contains("headers: 1 out, 0 in"));
}

#[test]
fn nothing_is_lost_or_twice_when_server_and_bridge_are_killed() {
    let mut server = Server::start("killed");
    let stream = Stream::create(&server);
    let mut bridge = Bridge::start(&server, "a", &rule("killed", OUT));
    let sender = sender("killed");
    let is_enough = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_enough);
    let sending = thread::spawn(move || {
        let sent = (0..).take_while(|_| !ends.load(Ordering::SeqCst));
        sent.inspect(|number| sender.send(&body(*number)).unwrap())
            .count() as u64
    });
    let mut len = 0;
    for round in 0..6 {
        until("messages go on", || stream.len() > len + 100);
        len = stream.len();
        match round % 3 {
            0 => {
                bridge.kill();
                bridge.restart();
            }
            1 => {
                server.kill();
                server.restart();
            }
            _ => {
                server.kill();
                bridge.kill();
                bridge.restart();
                server.restart();
            }
        }
    }
    until("messages go on", || stream.len() > len + 100);
    is_enough.store(true, Ordering::SeqCst);
    let sent = sending.join().unwrap();
    stream.wait_for(sent);
    let numbers: BTreeSet<u64> = stream.numbers().into_iter().collect();
    assert!(numbers.into_iter().eq(0..sent));
    bridge.stop();
}

#[test]
fn with_one_message_in_flight_the_stream_has_the_order_of_the_bus() {
    const COUNT: u64 = 200;
    let mut server = Server::start("order");
    let stream = Stream::create(&server);
    let mut bridge = Bridge::start(
        &server,
        "a",
        &rule("order", &format!("{OUT}\nin_flight = 1")),
    );
    let sender = sender("order");
    for sequence in 0..COUNT {
        if sequence == 70 {
            server.kill();
            server.restart();
        }
        if sequence == 140 {
            bridge.kill();
            bridge.restart();
        }
        sender.send(&body(sequence)).unwrap();
    }
    stream.wait_for(COUNT);
    assert!(stream.numbers().into_iter().eq(0..COUNT));
    bridge.stop();
}

#[test]
fn senders_wait_while_the_server_is_gone() {
    let mut server = Server::start("wait");
    let stream = Stream::create(&server);
    server.kill();
    let rules = rule(
        "wait",
        &format!("{OUT}\nin_flight_bytes = 65536\nin_flight = 64"),
    );
    let bridge = Bridge::start(&server, "a", &rules);
    let sender = sender("wait");
    let mut sent = 0;
    let limit = Duration::from_secs(2);
    let error = loop {
        match sender.send_timeout(&body(sent), limit) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 100_000, "senders do not wait");
    };
    assert!(matches!(error, SendError::TimedOut(_)), "{error}");
    server.restart();
    stream.wait_for(sent);
    bridge.stop();
}

#[test]
fn with_drop_what_is_lost_is_counted() {
    const COUNT: u64 = 5000;
    let mut server = Server::start("drop");
    let stream = Stream::create(&server);
    server.kill();
    let bridge = Bridge::start(
        &server,
        "a",
        &rule("drop", &format!("{OUT}\nfull = \"drop\"\nin_flight = 16")),
    );
    let sender = sender("drop");
    for sequence in 0..COUNT {
        sender.try_send(&body(sequence)).unwrap();
    }
    server.restart();
    until("the last message arrives", || {
        let len = stream.len();
        len > 0 && stream.number(len) == COUNT - 1
    });
    let arrived = stream.len();
    let log = bridge.stop();
    let lost = COUNT - arrived;
    assert!(
        arrived < COUNT && log.contains(&format!("drop: {arrived} out, 0 in, {lost} lost")),
        "{arrived}: {log}"
    );
}

#[test]
fn a_sender_that_allow_does_not_name_is_counted() {
    let server = Server::start("allow");
    let stream = Stream::create(&server);
    let rules = OUT.replace("65536", "65536, permissions = \"666\"");
    let bridge = Bridge::start(
        &server,
        "a",
        &rule("allow", &format!("{rules}\nallow = {{ uid = [1000] }}")),
    );
    let root = sender("allow");
    let user = as_user(1000, || Bus::named("allow").sender().unwrap());
    root.send(&body(1)).unwrap();
    user.send(&body(2)).unwrap();
    stream.wait_for(1);
    assert_eq!(stream.numbers(), [2]);
    let log = bridge.stop();
    assert!(
        log.contains("allow: 1 out, 0 in, 1 not allowed") && log.contains("uid 0, gid 0"),
        "{log}"
    );
}

#[test]
fn messages_of_a_stream_come_in_at_least_once_and_in_order() {
    const COUNT: u64 = 300;
    let mut server = Server::start("in");
    let stream = Stream::create(&server);
    for number in 0..COUNT {
        stream.publish(body(number));
    }
    // Before the bridge: a broadcast bus without subscribers takes messages for nobody.
    let bus = Bus::named("in")
        .create(true)
        .capacity(65536)
        .policies([Policy::Block]);
    let mut subscriber = bus.policy(Policy::Block).subscriber().unwrap();
    let mut bridge = Bridge::start(&server, "a", &rule("in", &format!("{IN}\nin_flight = 8")));
    let mut next = 0;
    let mut killed = false;
    while next < COUNT {
        let message = subscriber.recv_timeout(LIMIT);
        let received = match message {
            Ok(message) => number(message.bytes()),
            Err(error) => panic!("{error}: {}", bridge.log()),
        };
        // Unacknowledged messages are delivered again.
        assert!(received <= next, "{received} before {next}");
        next = next.max(received + 1);
        if next == COUNT / 2 && !killed {
            killed = true;
            bridge.kill();
            server.kill();
            server.restart();
            bridge.restart();
        }
    }
    bridge.stop();
}

#[test]
fn a_message_passes_two_bridges_once() {
    let server = Server::start("loop");
    let _stream = Stream::create(&server);
    let rules = |name| rule(name, &OUT.replace("\"out\"", "\"both\""));
    let first = Bridge::start(&server, "a", &rules("loop-a"));
    let second = Bridge::start(&server, "b", &rules("loop-b"));
    let senders = [sender("loop-a"), sender("loop-b")];
    let mut subscribers = [subscriber("loop-a"), subscriber("loop-b")];
    for number in 0..20 {
        senders[number as usize % 2].send(&body(number)).unwrap();
    }
    for subscriber in &mut subscribers {
        let mut received = BTreeSet::new();
        for _ in 0..20 {
            let message = subscriber.recv_timeout(LIMIT).unwrap();
            assert!(received.insert(number(message.bytes())));
        }
        // The other messages would come at once.
        assert!(subscriber.recv_timeout(Duration::from_millis(500)).is_err());
    }
    for bridge in [first, second] {
        assert!(bridge.stop().contains("10 out, 10 in, 10 looped"));
    }
}

#[test]
fn a_bus_that_was_destroyed_is_opened_again() {
    let server = Server::start("again");
    let stream = Stream::create(&server);
    let bridge = Bridge::start(&server, "a", &rule("again", OUT));
    for number in 0..2 {
        let sender = sender("again");
        sender.send(&body(number)).unwrap();
        stream.wait_for(number + 1);
        let id = sender.id();
        Bus::named("again").destroy().unwrap();
        assert!(sender.send(b"").is_err(), "{id}");
    }
    assert_eq!(stream.numbers(), [0, 1]);
    sender("again");
    until("the service manager keeps the new bus", || {
        bridge.kept.lock().unwrap().len() == 2
    });
    assert!(bridge.stop().contains("the bus has ended"));
}

#[test]
fn a_reload_continues_with_a_valid_configuration_only() {
    let server = Server::start("reload");
    let stream = Stream::create(&server);
    let socket = server.directory().join("metrics");
    let rules = format!(
        "metrics = \"{}\"\n{}",
        socket.display(),
        rule("reload", OUT)
    );
    let bridge = Bridge::start(&server, "a", &rules);
    let first = sender("reload");
    first.send(&body(0)).unwrap();
    stream.wait_for(1);
    let line = "sluice_bridge_messages_out_total{bus=\"reload\",scope=\"\"} 1\n";
    until("the metrics have the message", || {
        metrics(&socket).contains(line)
    });
    bridge.configure("wrong");
    bridge.signal(Signal::SIGHUP);
    until("the bridge has read the configuration", || {
        bridge.log().contains("the configuration stays as it was: ")
    });
    first.send(&body(1)).unwrap();
    stream.wait_for(2);
    bridge.configure(&format!("{rules}{}", rule("reload-more", OUT)));
    bridge.reload();
    // The bus would have ended with the last of its endpoints that keep it.
    first.send(&body(2)).unwrap();
    sender("reload-more").send(&body(3)).unwrap();
    stream.wait_for(4);
    assert!(metrics(&socket).contains("{bus=\"reload-more\",scope=\"\"}"));
    assert!(!bridge.stop().contains("is not used"));
    assert!(!socket.exists());
}

fn requests(name: &str, direction: &str, lines: &str) -> String {
    let lines = format!(
        "direction = \"{direction}\"\nsubject = \"sums\"\nrequests = {{ timeout_ms = 2000 }}\n{lines}"
    );
    rule(name, &lines)
}

/// Until requests go this way: before, the bus has no server, or the server that it had has ended.
fn until_answered(client: &mut Client) {
    until("requests are answered", || {
        match client.call_timeout(b"1", LIMIT) {
            Ok(reply) => reply.bytes() == b"2",
            Err(CallError::NoServer | CallError::ServerEnded { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    });
}

/// Replies with the next number, until the bus is destroyed.
fn add_one(mut server: BusServer) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let served = server.serve(|request| (number(request.bytes()) + 1).to_string());
        served.unwrap();
    })
}

#[test]
fn requests_and_replies_pass_two_bridges() {
    let server = Server::start("requests");
    let create = "create = { permissions = \"666\" }";
    let rules = requests("asks", "out", &format!("{create}\nallow = {{ uid = [0] }}"));
    let asks = Bridge::start(&server, "a", &rules);
    let answers = Bridge::start(&server, "b", &requests("sums", "in", create));
    let mut client = Bus::named("asks").client().unwrap();
    // Nobody answers on the other host, which the bus tells at once.
    let is_told = |error: CallError| match error {
        CallError::NoServer => false,
        CallError::ServerEnded { .. } => true,
        error => panic!("{error}"),
    };
    until("a request was told that nobody answers", || {
        is_told(client.call_timeout(b"1", LIMIT).map(drop).unwrap_err())
    });
    let sums = add_one(Bus::named("sums").server().unwrap());
    until_answered(&mut client);
    for number in 0..50_u64 {
        let reply = client.call_timeout(number.to_string().as_bytes(), LIMIT);
        assert_eq!(reply.unwrap().bytes(), (number + 1).to_string().as_bytes());
    }
    let refused = as_user(1000, || {
        let mut client = Bus::named("asks").client().unwrap();
        let limit = Duration::from_secs(1);
        client.call_timeout(b"1", limit).map(drop).unwrap_err()
    });
    assert!(matches!(refused, CallError::TimedOut(_)), "{refused}");
    // A client that ends before its reply is there costs the others nothing.
    let ended = thread::spawn(|| {
        let mut client = Bus::named("asks").client().unwrap();
        client.call_timeout(b"1", Duration::ZERO).is_err()
    });
    ended.join().unwrap();
    until_answered(&mut client);
    Bus::named("sums").destroy().unwrap();
    sums.join().unwrap();
    until("the end of the servers is told", || {
        client.call_timeout(b"1", LIMIT).is_err()
    });
    // The other bridge has created the bus again.
    until("the bus exists", || Bus::named("sums").info().is_ok());
    let sums = add_one(Bus::named("sums").server().unwrap());
    until_answered(&mut client);
    let log = asks.stop();
    assert!(log.contains("1 not allowed"), "{log}");
    answers.stop();
    Bus::named("sums").destroy().unwrap();
    sums.join().unwrap();
}

#[test]
fn a_client_of_nats_is_told_why_there_is_no_reply() {
    let server = Server::start("service");
    let bridge = Bridge::start(
        &server,
        "a",
        &requests("service", "in", "create = {}\nin_flight = 2"),
    );
    let runtime = runtime();
    let nats = runtime.block_on(async_nats::connect(server.url())).unwrap();
    let ask = |body: &'static str| {
        let request = async_nats::Request::new()
            .payload(body.into())
            .timeout(Some(LIMIT));
        runtime.block_on(nats.send_request("sums", request))
    };
    let error = ask("1").unwrap_err();
    assert_eq!(error.kind(), RequestErrorKind::NoResponders);
    let mut service = Bus::named("service").server().unwrap();
    let serving = thread::spawn(move || {
        let mut request = service.recv_timeout(LIMIT).unwrap();
        while request.bytes() != b"slow" {
            request.reply(b"2").unwrap();
            request = service.recv_timeout(LIMIT).unwrap();
        }
        // Until the bridge has given up.
        let began = Instant::now();
        assert!(service.recv_timeout(Duration::from_secs(3)).is_err());
        drop(request);
        assert!(began.elapsed() > Duration::from_secs(2));
    });
    until("the bridge has subscribed", || match ask("1") {
        Ok(reply) => reply.payload == "2",
        Err(error) => {
            assert_eq!(error.kind(), RequestErrorKind::NoResponders);
            false
        }
    });
    let reply = ask("slow").unwrap();
    let headers = reply.headers.unwrap();
    let code = headers.get("Nats-Service-Error-Code").unwrap();
    assert_eq!(code.as_str(), "504");
    serving.join().unwrap();
    until("the bridge has ended its subscription", || {
        ask("1").is_err_and(|error| error.kind() == RequestErrorKind::NoResponders)
    });
    let log = bridge.stop();
    assert!(log.contains("without reply"), "{log}");
}

#[test]
fn what_is_sent_before_there_is_memory_for_it_goes_out() {
    let server = Server::start("memory");
    let stream = Stream::create(&server);
    // The bus of the rule does not exist yet.
    let lines = "direction = \"out\"\nsubject = \"orders.new\"\nstream = \"ORDERS\"\nin_flight_bytes = 67108864";
    let bridge = Bridge::start(&server, "a", &rule("memory", lines));
    bridge.limit_memory(Some(64 << 20));
    let sender = Bus::named("memory")
        .create(true)
        .policies([Policy::Drop, Policy::Block])
        .sender()
        .unwrap();
    until("the bridge has failed", || {
        bridge
            .log()
            .contains("no addresses for the bytes in flight")
    });
    for number in 0..3 {
        sender.send(&body(number)).unwrap();
    }
    bridge.limit_memory(None);
    stream.wait_for(3);
    assert!(bridge.stop().contains("memory: 3 out, 0 in"));
}

#[test]
fn messages_that_a_removed_rule_has_left_are_told() {
    let mut server = Server::start("removed");
    let stream = Stream::create(&server);
    let mut bridge = Bridge::start(&server, "a", &rule("removed", OUT));
    let sender = sender("removed");
    sender.send(&body(0)).unwrap();
    stream.wait_for(1);
    server.kill();
    for number in 1..4 {
        sender.send(&body(number)).unwrap();
    }
    bridge.kill();
    bridge.configure("");
    bridge.restart();
    let log = bridge.stop();
    let lost = log.lines().filter_map(|line| {
        let (_, lost) = line.split_once("is of no rule any more, and is closed; ")?;
        lost.split(' ').next()?.parse::<u64>().ok()
    });
    assert_eq!(lost.sum::<u64>(), 3, "{log}");
}

#[test]
fn a_malformed_header_does_not_end_the_bridge() {
    let server = Server::start("malformed");
    let stream = Stream::create(&server);
    let lines = "direction = \"in\"\nsubject = \"prices\"\ncreate = { capacity = 65536 }";
    let rules = [rule("malformed-out", OUT), rule("malformed-in", lines)].concat();
    let bridge = Bridge::start(&server, "a", &rules);
    let sender = sender("malformed-out");
    let mut prices = subscriber("malformed-in");
    sender.send(&body(0)).unwrap();
    stream.wait_for(1);
    publish_malformed(&server, "prices");
    sender.send(&body(1)).unwrap();
    stream.wait_for(2);
    let publish = || {
        let client = stream.context.client();
        let published = client.publish("prices", body(2).into());
        stream.runtime.block_on(published).unwrap();
    };
    until("prices come in again", || {
        publish();
        prices
            .try_recv()
            .is_ok_and(|price| number(price.bytes()) == 2)
    });
    assert!(
        bridge
            .stop()
            .contains("the client of the server has failed")
    );
}
