// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice::bus::{Client, Server}` and their asynchronous types with the kernel module.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sluice::Bus;
use sluice::bus::{
    AsyncClient, AsyncServer, CallError, Mode, OpenError, Options, Policy, RecvError, SendError,
    Server,
};

use crate::registry::{Context, topic};
use crate::support::bus::{Frame, send};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn_keeping};
use crate::support::event::Event;
use crate::support::random::stream_bytes;

topic!(
    "bus_requests_library",
    fifo: [],
    pipe_only: [
        a_request_is_answered,
        requests_go_to_servers_in_turn,
        requests_and_replies_of_all_sizes_arrive,
        a_call_without_a_server_fails_at_once,
        a_call_ends_by_its_timeout,
        a_late_reply_is_discarded,
        a_forged_reply_is_discarded,
        the_end_of_the_server_ends_a_call,
        a_killed_server_ends_a_call,
        the_end_of_another_server_does_not,
        the_last_reply_of_a_server_arrives,
        a_loss_before_a_call_is_not_of_it,
        a_lost_reply_ends_a_call,
        a_blocking_client_holds_no_old_replies_while_it_calls,
        an_evicted_client_sends_nothing,
        a_flood_does_not_delay_a_timeout,
        the_end_of_the_bus_ends_call_and_server,
        a_client_that_does_not_receive_holds_up_nobody,
        a_reply_that_is_too_long_is_dropped,
        a_server_with_a_full_queue_replies,
        a_server_has_a_policy_that_loses_nothing,
        requests_are_answered_by_other_threads,
        a_full_server_is_waited_for,
        a_server_is_evicted_where_the_bus_demands_it,
        only_a_multicast_bus_has_requests,
        calls_of_one_task_after_the_other,
        many_calls_at_the_same_time,
        a_dropped_call_is_cancelled,
        the_end_of_a_server_ends_its_calls_only,
        asynchronous_calls_end_with_the_bus,
        an_asynchronous_server_serves,
        an_asynchronous_server_with_a_full_queue_replies,
    ],
);

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(60);

/// The bus `sums`, which the first open creates.
fn sums() -> Options {
    Bus::named("sums").create(true)
}

/// Serves in a thread until the bus is destroyed.
fn serve<R: AsRef<[u8]>>(
    mut server: Server,
    answer: impl Fn(&[u8]) -> R + Send + 'static,
) -> thread::JoinHandle<Result<()>> {
    thread::spawn(move || Ok(server.serve(|request| answer(request.bytes()))?))
}

/// What a thread has returned.
fn joined<T>(thread: thread::JoinHandle<T>) -> Result<T> {
    let result = thread.join();
    result.map_err(|_| anyhow::anyhow!("a panic"))
}

fn end(serving: thread::JoinHandle<Result<()>>) -> Result<()> {
    sums().destroy()?;
    let joined = joined(serving)?;
    joined.context("the server")
}

// ---- one thread ----

fn a_request_is_answered(_: &Context) -> Result<()> {
    let serving = serve(sums().server()?, <[u8]>::to_ascii_uppercase);
    let mut client = sums().client()?;
    for number in 0..1000_u32 {
        let request = format!("request {number}");
        let reply = client.call(request.as_bytes())?;
        let expected = request.to_ascii_uppercase();
        expect_bytes("the reply", reply.bytes(), expected.as_bytes())?;
        expect("its losses", reply.lost, 0)?;
    }
    let seen = client.info()?;
    expect("subscribers", seen.subscribers, 1)?;
    let own = seen.endpoint.context("no endpoint")?;
    ensure!(own.client && !own.monitor, "{own:?}");
    end(serving)
}

fn requests_go_to_servers_in_turn(_: &Context) -> Result<()> {
    let names: [&[u8]; 3] = [b"one", b"two", b"three"];
    let mut serving = Vec::new();
    for name in names {
        serving.push(serve(sums().server()?, move |_| name));
    }
    let mut client = sums().client()?;
    let mut replies = Vec::new();
    for _ in 0..6 {
        replies.push(client.call(b"who?")?.bytes().to_vec());
    }
    expect("the second round", &replies[3..], &replies[..3])?;
    replies.truncate(3);
    replies.sort();
    let mut expected = names.map(<[u8]>::to_vec);
    expected.sort();
    expect("each once", replies.as_slice(), &expected)?;
    sums().destroy()?;
    for server in serving {
        joined(server)??;
    }
    Ok(())
}

fn requests_and_replies_of_all_sizes_arrive(_: &Context) -> Result<()> {
    let serving = serve(sums().server()?, <[u8]>::to_vec);
    let mut client = sums().client()?;
    let max = usize::try_from(client.message_max())?;
    for length in [0, 1, 255, 4096, 65_536, max / 2, max] {
        let request = stream_bytes(1, 0, length);
        let reply = client.call_timeout(&request, LONG)?;
        expect_bytes("the reply", reply.bytes(), &request)?;
    }
    let refused = client.call(&vec![0; max + 1]).map(drop);
    let too_long = matches!(
        refused,
        Err(CallError::Send(SendError::MessageTooLong { .. }))
    );
    ensure!(too_long, "{refused:?}");
    end(serving)
}

// ---- without a reply ----

fn a_call_without_a_server_fails_at_once(_: &Context) -> Result<()> {
    let mut client = sums().client()?;
    let _other = sums().client()?;
    let began = Instant::now();
    let refused = client.call_timeout(b"x", LONG).map(drop);
    ensure!(matches!(refused, Err(CallError::NoServer)), "{refused:?}");
    let refused = client.call(b"x").map(drop);
    ensure!(matches!(refused, Err(CallError::NoServer)), "{refused:?}");
    ensure!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    Ok(())
}

fn expect_timeout<T: std::fmt::Debug>(result: Result<T, CallError>) -> Result<()> {
    let timed_out = matches!(result, Err(CallError::TimedOut(SHORT)));
    ensure!(timed_out, "{result:?}");
    Ok(())
}

fn a_call_ends_by_its_timeout(_: &Context) -> Result<()> {
    let mut server = sums().server()?;
    let mut client = sums().client()?;
    let began = Instant::now();
    expect_timeout(client.call_timeout(b"x", SHORT))?;
    ensure!(began.elapsed() >= SHORT, "{:?}", began.elapsed());
    expect_bytes("the request", server.try_recv()?.bytes(), b"x")?;
    let nothing = server.recv_timeout(SHORT).map(drop);
    let timed_out = matches!(&nothing, Err(RecvError::TimedOut(over)) if over.limit() == SHORT);
    ensure!(timed_out, "{nothing:?}");
    let nothing = server.try_recv().map(drop);
    ensure!(matches!(nothing, Err(RecvError::Empty)), "{nothing:?}");
    Ok(())
}

fn a_late_reply_is_discarded(_: &Context) -> Result<()> {
    let mut server = sums().server()?;
    let mut client = sums().client()?;
    expect_timeout(client.call_timeout(b"first", SHORT))?;
    let late = server.recv()?;
    let serving = thread::spawn(move || {
        let second = server.recv()?;
        late.reply(b"late")?;
        second.reply(b"second")?;
        anyhow::Ok(())
    });
    let reply = client.call(b"second")?;
    expect_bytes("the reply", reply.bytes(), b"second")?;
    joined(serving)?
}

/// Any sender can address a client, also with the tag of its request.
fn a_forged_reply_is_discarded(_: &Context) -> Result<()> {
    let mut server = sums().server()?;
    let mut client = sums().client()?;
    let forger = OwnedFd::from(sums().sender()?);
    let serving = thread::spawn(move || {
        let request = server.recv()?;
        let frame = Frame {
            tag: request.tag,
            ..Frame::new(6, request.sender)
        };
        send(&forger, &[&frame.to_bytes()[..], b"forged"].concat())?;
        request.reply(b"genuine")?;
        anyhow::Ok(())
    });
    let reply = client.call(b"x")?;
    expect_bytes("the reply", reply.bytes(), b"genuine")?;
    joined(serving)?
}

fn expect_server_ended<T: std::fmt::Debug>(result: Result<T, CallError>, id: u64) -> Result<()> {
    let ended = matches!(result, Err(CallError::ServerEnded { server }) if server == id);
    ensure!(ended, "{result:?}");
    Ok(())
}

fn the_end_of_the_server_ends_a_call(_: &Context) -> Result<()> {
    let mut client = sums().client()?;
    for wait in [None, Some(LONG)] {
        let mut server = sums().server()?;
        let id = server.id();
        let serving = thread::spawn(move || server.recv().map(drop));
        let seen = match wait {
            None => client.call(b"x").map(drop),
            Some(time) => client.call_timeout(b"x", time).map(drop),
        };
        expect_server_ended(seen, id)?;
        joined(serving)??;
    }
    Ok(())
}

/// A child that receives a request, tells it, and waits to be killed.
fn stuck_server(server: Server, received: &Event) -> Result<Child<()>> {
    let [reader, writer] = received.fds();
    let keep = [server.as_fd(), reader, writer];
    spawn_keeping("a server", &keep, || -> Result<()> {
        let fd = server.as_fd();
        crate::support::poll::wait(&fd, crate::support::poll::IN, -1).context("poll")?;
        crate::support::channel::read_some(&fd, 4096).context("receiving")?;
        received.notify()?;
        loop {
            thread::park();
        }
    })
}

fn a_killed_server_ends_a_call(_: &Context) -> Result<()> {
    let server = sums().server()?;
    let (id, received) = (server.id(), Event::new()?);
    let child = stuck_server(server, &received)?;
    let mut client = sums().client()?;
    let calling = thread::spawn(move || client.call(b"x").map(drop));
    received.wait("a request")?;
    child.kill()?;
    let seen = joined(calling)?;
    expect_server_ended(seen, id)
}

fn the_end_of_another_server_does_not(_: &Context) -> Result<()> {
    let mut server = sums().server()?;
    let mut client = sums().client()?;
    let calling = thread::spawn(move || {
        let reply = client.call(b"x")?.bytes().to_vec();
        anyhow::Ok(reply)
    });
    let request = server.recv()?;
    for _ in 0..5 {
        drop(sums().server()?);
        thread::sleep(SHORT / 5);
    }
    request.reply(b"reply")?;
    let reply = joined(calling)??;
    expect_bytes("the reply", &reply, b"reply")
}

fn the_last_reply_of_a_server_arrives(_: &Context) -> Result<()> {
    let mut client = sums().client()?;
    for round in 0..100_u32 {
        let mut server = sums().server()?;
        let serving = thread::spawn(move || {
            let request = server.recv()?;
            let reply = request.bytes().to_vec();
            request.reply(&reply)?;
            // It ends with its last reply.
            anyhow::Ok(())
        });
        let reply = client
            .call(&round.to_ne_bytes())
            .with_context(|| format!("round {round}"))?;
        expect_bytes("the reply", reply.bytes(), &round.to_ne_bytes())?;
        joined(serving)??;
    }
    Ok(())
}

/// What takes the place of an unread reply, on a bus of 16 KiB.
fn overrun(bus: &Options) -> Result<()> {
    let (other, sender) = (bus.client()?, bus.sender()?);
    for _ in 0..200 {
        sender.send_to(other.id(), &[0; 1000])?;
    }
    Ok(())
}

fn a_loss_before_a_call_is_not_of_it(_: &Context) -> Result<()> {
    let bus = sums().capacity(16 << 10);
    let mut server = bus.server()?;
    let mut client = bus.client()?;
    expect_timeout(client.call_timeout(b"first", SHORT))?;
    server.try_recv()?.reply(b"lost")?;
    overrun(&bus)?;
    let own = client.info()?.endpoint.context("no endpoint")?;
    expect("lost", own.lost, 1)?;
    let serving = thread::spawn(move || {
        server.recv()?.reply(b"second")?;
        server.recv()?.reply(b"third").context("replying")
    });
    for number in [b"second".as_slice(), b"third"] {
        let reply = client.call(number)?;
        expect_bytes("the reply", reply.bytes(), number)?;
    }
    joined(serving)?
}

/// The call does not receive while the bus is overrun.
fn a_lost_reply_ends_a_call(_: &Context) -> Result<()> {
    let bus = sums().capacity(16 << 10);
    let mut server = bus.server()?;
    let client = bus.client()?;
    runtime()?.block_on(async move {
        let client = AsyncClient::new(client)?;
        let mut call = std::pin::pin!(client.call(b"first"));
        // Until the request is sent.
        let request = loop {
            tokio::select! { biased;
                outcome = &mut call => anyhow::bail!("the call has ended: {outcome:?}"),
                () = tokio::task::yield_now() => {}
            }
            match server.try_recv() {
                Err(RecvError::Empty) => {}
                request => break request?,
            }
        };
        request.reply(b"lost")?;
        overrun(&bus)?;
        let seen = call.await;
        let lost = matches!(seen, Err(CallError::ReplyLost { count: 1 }));
        ensure!(lost, "{seen:?}");
        // The loss is reported once, though the next frame tells it again.
        let serving = thread::spawn(move || server.recv()?.reply(b"second").context("replying"));
        expect_bytes("the reply", &client.call(b"second").await?, b"second")?;
        joined(serving)?
    })
}

/// Late replies would hold the whole bus.
fn a_blocking_client_holds_no_old_replies_while_it_calls(_: &Context) -> Result<()> {
    let bus = sums().policies([Policy::Block]).capacity(16 << 10);
    let mut server = bus.server()?;
    let mut client = bus.client()?;
    expect_timeout(client.call_timeout(b"first", SHORT))?;
    server.try_recv()?.reply(b"late")?;
    let serving = serve(server, <[u8]>::to_vec);
    let mut other = bus.client()?;
    // Fills the ring behind the late reply.
    while other.call_timeout(&[0; 1000], SHORT).is_ok() {}
    let reply = client.call_timeout(b"second", LONG)?;
    expect_bytes("the reply", reply.bytes(), b"second")?;
    end(serving)
}

fn an_evicted_client_sends_nothing(_: &Context) -> Result<()> {
    let bus = sums().policies([Policy::Block, Policy::Evict]);
    let mut server = bus.server()?;
    let mut client = bus.clone().policy(Policy::Evict).limit(1).client()?;
    for _ in 0..2 {
        let sent = client.call_timeout(b"x", Duration::ZERO);
        ensure!(matches!(sent, Err(CallError::TimedOut(_))), "{sent:?}");
    }
    server.try_recv()?.reply(b"fills it")?;
    let refused = server.try_recv()?.reply(b"evicts it");
    let gone = matches!(refused, Err(SendError::UnknownSubscriber { .. }));
    ensure!(gone, "{refused:?}");
    let seen = client.call(b"never").map(drop);
    let evicted = matches!(seen, Err(CallError::Recv(RecvError::Evicted)));
    ensure!(evicted, "{seen:?}");
    let nothing = server.try_recv().map(drop);
    ensure!(matches!(nothing, Err(RecvError::Empty)), "{nothing:?}");
    Ok(())
}

/// Anybody may send it messages, also so many that its reply could be lost.
fn a_flood_does_not_delay_a_timeout(_: &Context) -> Result<()> {
    let mut server = sums().server()?;
    let mut client = sums().client()?;
    // Unread, the request would hold the ring, and the senders would wait.
    let receiving = thread::spawn(move || server.recv().map(|request| (request, server)));
    let (id, ended) = (client.id(), Arc::new(AtomicBool::new(false)));
    let flooding = [0; 2].map(|_| {
        let ended = ended.clone();
        thread::spawn(move || {
            let sender = sums().sender()?;
            while !ended.load(Ordering::Relaxed) {
                sender.send_to(id, b"flood")?;
            }
            anyhow::Ok(())
        })
    });
    let began = Instant::now();
    let seen = client.call_timeout(b"x", SHORT).map(drop);
    let took = began.elapsed();
    ended.store(true, Ordering::Relaxed);
    for thread in flooding {
        joined(thread)??;
    }
    let (_request, _server) = joined(receiving)??;
    ensure!(took < LONG / 2, "{took:?}");
    match seen {
        Err(CallError::ReplyLost { .. }) => Ok(()),
        other => expect_timeout(other),
    }
}

fn the_end_of_the_bus_ends_call_and_server(_: &Context) -> Result<()> {
    let mut server = sums().server()?;
    let mut client = sums().client()?;
    let calling = thread::spawn(move || client.call(b"x").map(drop));
    let _request = server.recv()?;
    let serving = thread::spawn(move || server.serve(|_| b""));
    thread::sleep(SHORT);
    sums().destroy()?;
    let seen = joined(calling)?;
    let destroyed = matches!(seen, Err(CallError::Recv(RecvError::Destroyed)));
    ensure!(destroyed, "{seen:?}");
    let served = joined(serving)?;
    served.context("the server")
}

// ---- servers ----

fn a_client_that_does_not_receive_holds_up_nobody(_: &Context) -> Result<()> {
    let bus = sums().capacity(64 << 10);
    let mut server = bus.server()?;
    server.set_reply_timeout(SHORT);
    // With the policy Block, a full one would be waited for.
    let mut full = bus.clone().policy(Policy::Block).limit(1).client()?;
    for _ in 0..30 {
        let sent = full.call_timeout(b"never received", Duration::ZERO);
        ensure!(matches!(sent, Err(CallError::TimedOut(_))), "{sent:?}");
    }
    // Its first reply fills it, and the others wait in vain.
    let serving = serve(server, <[u8]>::to_vec);
    let mut client = bus.client()?;
    for _ in 0..10 {
        let reply = client.call_timeout(b"x", LONG)?;
        expect_bytes("the reply", reply.bytes(), b"x")?;
    }
    end(serving)
}

fn a_reply_that_is_too_long_is_dropped(_: &Context) -> Result<()> {
    let serving = serve(sums().server()?, |request| match request {
        b"long" => vec![0; 1 << 20],
        _ => b"short".to_vec(),
    });
    let mut client = sums().client()?;
    expect_timeout(client.call_timeout(b"long", SHORT))?;
    expect_bytes("the next", client.call(b"x")?.bytes(), b"short")?;
    end(serving)
}

/// Its own requests hold the room of its replies.
fn a_server_with_a_full_queue_replies(_: &Context) -> Result<()> {
    let bus = sums()
        .policies([Policy::Drop, Policy::Block])
        .capacity(16 << 10);
    let mut server = bus.clone().limit(16 << 10).server()?;
    let mut clients = Vec::new();
    for _ in 0..15 {
        let mut client = bus.client()?;
        let sent = client.call_timeout(&[0; 900], Duration::ZERO);
        ensure!(matches!(sent, Err(CallError::TimedOut(_))), "{sent:?}");
        clients.push(client);
    }
    for number in 0..15 {
        let request = server
            .try_recv()
            .with_context(|| format!("request {number}"))?;
        request
            .reply_timeout(&[1; 5000], LONG)
            .with_context(|| format!("reply {number}"))?;
    }
    Ok(())
}

fn a_server_has_a_policy_that_loses_nothing(_: &Context) -> Result<()> {
    let refused = sums().policy(Policy::Drop).server().map(drop);
    let invalid = matches!(refused, Err(OpenError::DroppingServer));
    ensure!(invalid, "{refused:?}");
    Ok(())
}

fn requests_are_answered_by_other_threads(_: &Context) -> Result<()> {
    let mut server = sums().server()?;
    let mut clients = Vec::new();
    for number in 0..4_u32 {
        let mut client = sums().client()?;
        clients.push(thread::spawn(move || {
            for round in 0..50_u32 {
                let request = (number * 1000 + round).to_ne_bytes();
                let reply = client.call(&request)?;
                expect_bytes("the reply", reply.bytes(), &request)?;
            }
            anyhow::Ok(())
        }));
    }
    let mut workers = Vec::new();
    for _ in 0..200 {
        let request = server.recv()?;
        workers.push(thread::spawn(move || {
            let reply = request.bytes().to_vec();
            request.reply_timeout(&reply, LONG)
        }));
    }
    for worker in workers {
        joined(worker)??;
    }
    for client in clients {
        joined(client)??;
    }
    Ok(())
}

fn a_full_server_is_waited_for(_: &Context) -> Result<()> {
    let bus = sums().capacity(64 << 10);
    let mut server = bus.server()?;
    let mut client = bus.client()?;
    // A sixteenth is full with 4 KiB.
    for _ in 0..2 {
        expect_timeout(client.call_timeout(&[0; 4000], SHORT))?;
    }
    let full = client.call_timeout(b"full", SHORT).map(drop);
    expect_timeout(full)?;
    let mut received = 0;
    while server.try_recv().is_ok() {
        received += 1;
    }
    expect("requests", received, 2)?;
    let serving = serve(server, |_| b"with room");
    let reply = client.call_timeout(b"x", LONG)?;
    expect_bytes("the reply", reply.bytes(), b"with room")?;
    end(serving)
}

fn a_server_is_evicted_where_the_bus_demands_it(_: &Context) -> Result<()> {
    let bus = sums().policies([Policy::Drop, Policy::Evict]);
    let mut server = bus.clone().limit(1).server()?;
    let mut client = bus.client()?;
    let policy = server.info()?.endpoint.context("no endpoint")?.policy;
    expect("its policy", policy, Some(Policy::Evict))?;
    expect_timeout(client.call_timeout(b"xx", SHORT))?;
    let refused = client.call_timeout(b"xx", LONG).map(drop);
    ensure!(matches!(refused, Err(CallError::NoServer)), "{refused:?}");
    let evicted = server.recv().map(drop);
    ensure!(matches!(evicted, Err(RecvError::Evicted)), "{evicted:?}");
    Ok(())
}

fn only_a_multicast_bus_has_requests(_: &Context) -> Result<()> {
    for mode in [Mode::Broadcast, Mode::Unicast] {
        let _sender = sums().delivery(mode).sender()?;
        let is_refused = |error: OpenError| {
            let refused = matches!(error, OpenError::NotInMode { mode: seen, option: "requests" } if seen == mode);
            ensure!(refused, "{error:?}");
            Ok(())
        };
        let error = sums().client().map(drop).err();
        is_refused(error.context("a client")?)?;
        let error = sums().server().map(drop).err();
        is_refused(error.context("a server")?)?;
    }
    Ok(())
}

// ---- tasks ----

fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().context("a runtime")
}

fn calls_of_one_task_after_the_other(_: &Context) -> Result<()> {
    let serving = serve(sums().server()?, <[u8]>::to_vec);
    let client = sums().client()?;
    runtime()?.block_on(async move {
        let client = AsyncClient::new(client)?;
        for number in 0..500_u32 {
            let reply = client.call(&number.to_ne_bytes()).await?;
            expect_bytes("the reply", &reply, &number.to_ne_bytes())?;
        }
        anyhow::Ok(())
    })?;
    end(serving)
}

/// On two threads, so that tasks also receive for each other.
fn many_calls_at_the_same_time(_: &Context) -> Result<()> {
    let serving = serve(sums().server()?, <[u8]>::to_vec);
    let client = sums().client()?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build()?;
    runtime.block_on(async move {
        let client = AsyncClient::new(client)?;
        let mut tasks = Vec::new();
        for number in 0..50_u32 {
            let client = client.clone();
            tasks.push(tokio::spawn(async move {
                for round in 0..20_u32 {
                    let request = (number * 1000 + round).to_ne_bytes();
                    let reply = client.call_timeout(&request, LONG).await?;
                    expect_bytes("the reply", &reply, &request)?;
                }
                anyhow::Ok(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        anyhow::Ok(())
    })?;
    end(serving)
}

fn a_dropped_call_is_cancelled(_: &Context) -> Result<()> {
    let mut server = sums().server()?;
    let client = sums().client()?;
    runtime()?.block_on(async move {
        let client = AsyncClient::new(client)?;
        expect_timeout(client.call_timeout(b"first", SHORT).await)?;
        let late = server.try_recv()?;
        late.reply(b"late")?;
        let mut server = AsyncServer::new(server)?;
        let answering = async {
            let request = server.recv().await?;
            request.reply(b"second").await?;
            anyhow::Ok(())
        };
        let (reply, answered) = tokio::join!(client.call(b"second"), answering);
        answered?;
        expect_bytes("the reply", &reply?, b"second")
    })
}

fn the_end_of_a_server_ends_its_calls_only(_: &Context) -> Result<()> {
    let servers = [sums().server()?, sums().server()?];
    let ids = [servers[0].id(), servers[1].id()];
    let client = sums().client()?;
    runtime()?.block_on(async move {
        let client = AsyncClient::new(client)?;
        let servers = servers.map(AsyncServer::new);
        let [ending, answering] = servers;
        let (mut ending, mut answering) = (ending?, answering?);
        let serving = async {
            let (lost, request) = (ending.recv().await?, answering.recv().await?);
            drop((lost, ending));
            tokio::time::sleep(SHORT).await;
            request.reply(b"reply").await?;
            anyhow::Ok(())
        };
        let (first, second, served) = tokio::join!(client.call(b"x"), client.call(b"y"), serving);
        served?;
        let (failed, reply) = match first {
            Err(error) => (error, second),
            reply => (second.expect_err("both were answered"), reply),
        };
        expect_server_ended(Err::<(), _>(failed), ids[0])?;
        expect_bytes("the reply", &reply?, b"reply")
    })
}

fn asynchronous_calls_end_with_the_bus(_: &Context) -> Result<()> {
    let server = sums().server()?;
    let client = sums().client()?;
    runtime()?.block_on(async move {
        let client = AsyncClient::new(client)?;
        let mut server = AsyncServer::new(server)?;
        let ending = async {
            let requests = (server.recv().await?, server.recv().await?);
            sums().destroy()?;
            drop(requests);
            server.serve(|_, _| async { b"" }).await?;
            anyhow::Ok(())
        };
        let (first, second, ended) = tokio::join!(client.call(b"x"), client.call(b"y"), ending);
        ended?;
        for seen in [first, second] {
            let destroyed = matches!(seen, Err(CallError::Recv(RecvError::Destroyed)));
            ensure!(destroyed, "{seen:?}");
        }
        Ok(())
    })
}

fn an_asynchronous_server_serves(_: &Context) -> Result<()> {
    let server = sums().server()?;
    let mut client = sums().client()?;
    let calling = thread::spawn(move || {
        for number in 0..100_u32 {
            let reply = client.call(&number.to_ne_bytes())?;
            expect_bytes("the reply", reply.bytes(), &number.to_be_bytes())?;
        }
        sums().destroy()?;
        anyhow::Ok(())
    });
    runtime()?.block_on(async move {
        let mut server = AsyncServer::new(server)?;
        let answer = |_, mut request: Vec<u8>| async move {
            tokio::task::yield_now().await;
            request.reverse();
            request
        };
        anyhow::Ok(server.serve(answer).await?)
    })?;
    joined(calling)?
}

/// One task receives and replies.
fn an_asynchronous_server_with_a_full_queue_replies(_: &Context) -> Result<()> {
    let bus = sums()
        .policies([Policy::Drop, Policy::Block])
        .capacity(16 << 10);
    let server = bus.clone().limit(16 << 10).server()?;
    let mut clients = Vec::new();
    for _ in 0..15 {
        let mut client = bus.client()?;
        let sent = client.call_timeout(&[0; 900], Duration::ZERO);
        ensure!(matches!(sent, Err(CallError::TimedOut(_))), "{sent:?}");
        clients.push(client);
    }
    runtime()?.block_on(async move {
        let mut server = AsyncServer::new(server)?;
        for number in 0..15 {
            let request = server.recv().await?;
            request
                .reply_timeout(&[1; 5000], LONG)
                .await
                .with_context(|| format!("reply {number}"))?;
        }
        anyhow::Ok(())
    })
}
