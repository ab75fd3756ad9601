// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests and replies on a multicast bus: clients take no turn, choose the next server, give their requests a tag, and
//! learn of the end of a server and of their own losses.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::registry::{Context, topic};
use crate::support::bus::{
    ADDRESSED, BATCHED, BLOCK, Buses, DROP, EVICT, Frame, MAPPED, MESSAGES, MONITOR, Message,
    Params, TURN, broadcast, content, drain_framed, framed, id, list, multicast, receive,
    receive_present, send, send_to, state, unicast, with_policy,
};
use crate::support::channel::set_blocking;
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn_keeping;
use crate::support::ctl::{BOTH, READ, WRITE};
use crate::support::event::Event;
use crate::support::ioctl;
use crate::support::parameter::Parameter;
use crate::support::poll;
use crate::support::proc::Call;

topic!(
    "bus_requests",
    fifo: [],
    pipe_only: [
        a_client_takes_no_turn,
        a_client_is_no_subscriber_in_turn,
        only_a_multicast_bus_has_clients,
        clients_and_subscribers_have_a_limit_each,
        a_limit_beyond_its_range_is_the_nearest_in_it,
        a_client_can_be_evicted,
        a_tag_arrives_with_its_message,
        a_message_without_a_frame_has_no_tag,
        a_turn_is_taken_once,
        a_turn_skips_a_full_dropping_subscriber,
        a_turn_can_be_that_of_a_full_subscriber,
        refused_turns,
        a_refused_turn_is_that_of_the_next_message,
        the_end_of_a_server_is_noticed_once,
        the_eviction_of_a_server_is_noticed,
        every_client_gets_a_notice,
        other_ends_are_not_noticed,
        a_reply_comes_before_the_notice,
        a_sleeping_client_gets_the_notice,
        a_killed_server_is_noticed,
        a_lost_reply_is_noticed,
        the_end_of_the_bus_comes_before_the_notice,
        short_messages_fill_a_subscriber_before_the_bus,
        a_full_server_is_writable,
    ],
);

/// What read(2) returns for a notice.
const NOTICE: Errno = Errno::ENOLINK;

/// Parameters of a client with this policy.
fn client(policy: u32) -> Params {
    Params {
        flags: ADDRESSED,
        ..framed(policy)
    }
}

fn open_client(buses: &Buses) -> Result<OwnedFd> {
    let end = buses.open(BOTH, client(DROP));
    end.context("opening a client")
}

fn open_server(buses: &Buses) -> Result<OwnedFd> {
    let end = buses.open(BOTH, framed(BLOCK));
    end.context("opening a server")
}

fn take_turn(end: &impl AsFd) -> nix::Result<u64> {
    ioctl::set(end, TURN, 0)
}

/// Sends a request or a reply.
fn send_tagged(end: &impl AsFd, target: u64, tag: u64, bytes: &[u8]) -> nix::Result<()> {
    let frame = Frame {
        tag,
        ..Frame::new(bytes.len() as u32, target)
    };
    send(end, &[&frame.to_bytes(), bytes].concat())
}

fn reply(server: &impl AsFd, request: &Message, bytes: &[u8]) -> nix::Result<()> {
    send_tagged(server, request.frame.sender, request.frame.tag, bytes)
}

fn expect_nothing(client: &OwnedFd) -> Result<()> {
    expect("events", poll::state(client)?, "OUT".to_owned())?;
    expect("a receive", receive(client), Err(Errno::EAGAIN))
}

fn expect_notice(client: &OwnedFd) -> Result<()> {
    let events = poll::wait(client, poll::IN | libc::POLLPRI, 0).context("poll")?;
    expect("events", events, poll::IN | libc::POLLPRI)?;
    expect("a receive", receive(client), Err(NOTICE))?;
    expect_nothing(client)
}

// ---- clients ----

fn a_client_takes_no_turn(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let clients = [open_client(&buses)?, open_client(&buses)?];
    let servers = [open_server(&buses)?, open_server(&buses)?];
    for _ in 0..6 {
        send(&sender, b"x").context("sending")?;
    }
    for server in &servers {
        expect("of a server", drain_framed(server)?.len(), 3)?;
    }
    for client in &clients {
        expect_nothing(client)?;
        send_to(&servers[0], id(client)?, b"reply").context("replying")?;
        expect_bytes("its message", &receive_present(client)?.bytes, b"reply")?;
        expect_nothing(client)?;
    }
    Ok(())
}

fn a_client_is_no_subscriber_in_turn(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let client = open_client(&buses)?;
    let refused = Err(Errno::ENOTCONN);
    expect("with a client only", send(&sender, b"x"), refused)?;
    let seen = state(&client)?;
    let own = (seen.subscribers, seen.senders, seen.flags);
    expect("subscribers, senders, flags", own, (0, 2, ADDRESSED))?;
    let listed = list(&sender, 0, 4).context("listing")?;
    let listed: Vec<_> = listed.iter().map(|entry| (entry.id, entry.flags)).collect();
    expect("listed", listed, vec![(id(&client)?, ADDRESSED)])
}

fn only_a_multicast_bus_has_clients(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), unicast()] {
        let _sender = buses.create(params)?;
        let opened = buses.open(READ, client(0)).map(drop);
        expect("of another mode", opened, Err(Errno::EINVAL))?;
    }
    let _sender = buses.create(multicast())?;
    for (flags, params) in [
        (WRITE, client(0)),
        (
            READ,
            Params {
                flags: ADDRESSED | MONITOR,
                ..client(DROP)
            },
        ),
        (
            READ,
            Params {
                flags: ADDRESSED | MAPPED,
                ..client(BLOCK)
            },
        ),
    ] {
        let opened = buses.open(flags, params).map(drop);
        expect("contradictory", opened, Err(Errno::EINVAL))?;
    }
    for policy in [DROP, BLOCK, EVICT] {
        let end = buses.open(READ, client(policy)).context("opening")?;
        expect("its policy", state(&end)?.policy, policy)?;
    }
    Ok(())
}

fn clients_and_subscribers_have_a_limit_each(_: &Context) -> Result<()> {
    let _limit = Parameter::set("bus_max_subscribers", 2)?;
    let buses = Buses::new()?;
    let _sender = buses.create(multicast())?;
    let mut ends = Vec::new();
    for params in [client(DROP), framed(DROP)] {
        for _ in 0..2 {
            ends.push(buses.subscribe(params)?);
        }
        let more = buses.open(READ, params).map(drop);
        expect("one more", more, Err(Errno::EUSERS))?;
    }
    ends.remove(0);
    let again = buses.open(READ, client(DROP)).map(drop);
    expect("after the close of a client", again, Ok(()))
}

fn a_limit_beyond_its_range_is_the_nearest_in_it(_: &Context) -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("getrlimit")?;
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(8192), hard).context("setrlimit")?;
    for (limit, most) in [(0, 1), (4096, 1024)] {
        let _limit = Parameter::set("bus_max_subscribers", limit)?;
        let buses = Buses::new()?;
        let sender = buses.create(multicast())?;
        for params in [client(DROP), framed(DROP)] {
            let open = || buses.open(READ, params);
            let held: Vec<_> = (0..most).map(|_| open()).collect::<nix::Result<_>>()?;
            expect("one more", open().map(drop), Err(Errno::EUSERS))?;
            drop(held);
        }
        drop(sender);
    }
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).context("setrlimit")
}

fn a_client_can_be_evicted(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(multicast())?;
    let server = open_server(&buses)?;
    let mut others = vec![open_client(&buses)?];
    let full = Params {
        limit: 1,
        ..client(EVICT)
    };
    let full = buses.subscribe(full)?;
    others.push(open_client(&buses)?);
    send_to(&server, id(&full)?, b"xx").context("filling it")?;
    let refused = send_to(&server, id(&full)?, b"xx");
    expect("sending to it", refused, Err(Errno::ENOENT))?;
    expect("it", receive(&full), Err(Errno::ESHUTDOWN))?;
    expect("evicted", state(&server)?.evicted, 1)?;
    for client in &others {
        expect("another", receive(client), Err(Errno::EAGAIN))?;
        send_to(&server, id(client)?, b"x").context("sending")?;
        receive_present(client)?;
    }
    expect("the server", receive(&server), Err(Errno::EAGAIN))
}

// ---- tags ----

fn a_tag_arrives_with_its_message(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let _keeper = buses.create(params)?;
        let sender = buses.framed_sender()?;
        for format in [framed(0).format, BATCHED] {
            let subscriber = buses.subscribe(Params {
                format,
                ..framed(0)
            })?;
            for tag in [0, 1, u64::MAX, 1 << 63] {
                send_tagged(&sender, 0, tag, b"tagged").context("sending")?;
                let message = receive_present(&subscriber)?;
                expect("the tag", message.frame.tag, tag)?;
                expect_bytes("the message", &message.bytes, b"tagged")?;
            }
        }
    }
    Ok(())
}

fn a_message_without_a_frame_has_no_tag(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let framer = buses.framed_sender()?;
    let subscriber = buses.subscribe(framed(DROP))?;
    // Each slot is used again.
    for _ in 0..3 * MESSAGES {
        send_tagged(&framer, 0, 7, b"x").context("sending")?;
        expect("with one", receive_present(&subscriber)?.frame.tag, 7)?;
        send(&sender, b"x").context("sending")?;
        expect("without", receive_present(&subscriber)?.frame.tag, 0)?;
    }
    Ok(())
}

// ---- turns ----

fn a_turn_is_taken_once(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let servers = [0, 1, 2].map(|_| open_server(&buses));
    let servers: Vec<OwnedFd> = servers.into_iter().collect::<Result<_>>()?;
    let client = open_client(&buses)?;
    let mut turns = Vec::new();
    for _ in 0..3 {
        turns.push(take_turn(&client).context("taking a turn")?);
    }
    let mut ids = turns.clone();
    ids.sort_unstable();
    let all: Vec<u64> = servers.iter().map(id).collect::<Result<_>>()?;
    expect("each once", &ids, &all)?;
    // A message has the next turn.
    expect("the first again", take_turn(&client), Ok(turns[0]))?;
    send(&sender, b"x").context("sending")?;
    for server in &servers {
        let messages = drain_framed(server)?.len();
        let expected = usize::from(id(server)? == turns[1]);
        expect("of a server", messages, expected)?;
    }
    expect("after it", take_turn(&client), Ok(turns[2]))
}

/// Parameters of a server that is full with its first message.
fn small(policy: u32) -> Params {
    Params {
        limit: 1,
        ..framed(policy)
    }
}

fn a_turn_skips_a_full_dropping_subscriber(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let full = buses.subscribe(small(DROP))?;
    send(&sender, b"xx").context("filling it")?;
    expect("all are full", take_turn(&sender), Err(Errno::EAGAIN))?;
    let other = buses.subscribe(small(DROP))?;
    for _ in 0..4 {
        expect("a turn", take_turn(&sender), Ok(id(&other)?))?;
    }
    receive_present(&full)?;
    let mut turns = [take_turn(&sender)?, take_turn(&sender)?];
    turns.sort_unstable();
    expect("with room", turns, [id(&full)?, id(&other)?])
}

fn a_turn_can_be_that_of_a_full_subscriber(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for (policy, errno) in [(BLOCK, Errno::EAGAIN), (EVICT, Errno::ENOENT)] {
        let _sender = buses.create(multicast())?;
        let full = buses.subscribe(small(policy))?;
        let client = open_client(&buses)?;
        let turn = take_turn(&client)?;
        expect("filling it", send_to(&client, turn, b"xx"), Ok(()))?;
        expect("a turn", take_turn(&client), Ok(id(&full)?))?;
        let sent = send_to(&client, turn, b"xx");
        expect("one more", sent, Err(errno))?;
    }
    Ok(())
}

fn refused_turns(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), unicast()] {
        let sender = buses.create(params)?;
        let _subscriber = buses.subscribe(with_policy(0))?;
        let refused = Err(Errno::EOPNOTSUPP);
        expect("of another mode", take_turn(&sender), refused)?;
    }
    let sender = buses.create(multicast())?;
    expect("of nobody", take_turn(&sender), Err(Errno::ENOTCONN))?;
    let client = open_client(&buses)?;
    expect("of a client", take_turn(&sender), Err(Errno::ENOTCONN))?;
    let server = buses.subscribe(framed(BLOCK))?;
    expect("by a receiver", take_turn(&server), Err(Errno::EBADF))?;
    let given = ioctl::set(&client, TURN, 1);
    expect("with a value", given, Err(Errno::EINVAL))?;
    let null = std::ptr::null_mut::<u8>();
    let fault = ioctl::raw(&client, TURN, null);
    expect("without a structure", fault, Err(Errno::EFAULT))?;
    buses.destroy().context("destroying the bus")?;
    expect("of no bus", take_turn(&client), Err(Errno::EPIPE))
}

fn a_refused_turn_is_that_of_the_next_message(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let ends = [buses.subscribe(small(DROP))?, buses.subscribe(small(DROP))?];
    let first = take_turn(&sender)?;
    for _ in &ends {
        send(&sender, b"xx").context("filling one")?;
    }
    for _ in 0..3 {
        expect("all are full", take_turn(&sender), Err(Errno::EAGAIN))?;
    }
    for end in &ends {
        receive_present(end)?;
    }
    let next = take_turn(&sender)?;
    expect("after three turns", next == first, false)
}

// ---- notices ----

fn the_end_of_a_server_is_noticed_once(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _keeper = buses.create(multicast())?;
    let client = open_client(&buses)?;
    for round in 0..20 {
        let servers = [open_server(&buses)?, open_server(&buses)?];
        expect_nothing(&client).with_context(|| format!("round {round}"))?;
        drop(servers);
        expect_notice(&client).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

fn the_eviction_of_a_server_is_noticed(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let client = open_client(&buses)?;
    let server = buses.subscribe(small(EVICT))?;
    send(&sender, b"xx").context("filling it")?;
    expect_nothing(&client)?;
    expect("one more", send(&sender, b"xx"), Err(Errno::ENOTCONN))?;
    expect_notice(&client)?;
    // It has ended already.
    drop(server);
    expect_nothing(&client)
}

fn every_client_gets_a_notice(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _keeper = buses.create(multicast())?;
    let clients = [0; 5].map(|_| open_client(&buses));
    let clients: Vec<OwnedFd> = clients.into_iter().collect::<Result<_>>()?;
    let _other = open_server(&buses)?;
    drop(open_server(&buses)?);
    clients.iter().try_for_each(expect_notice)
}

fn other_ends_are_not_noticed(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _keeper = buses.create(multicast())?;
    let server = open_server(&buses)?;
    let client = open_client(&buses)?;
    drop(open_client(&buses)?);
    drop(buses.sender()?);
    let monitor = Params {
        flags: MONITOR,
        ..framed(0)
    };
    drop(buses.subscribe(monitor)?);
    expect_nothing(&client)?;
    // A subscriber that is no client gets none.
    drop(open_server(&buses)?);
    expect_nothing(&server)?;
    expect_notice(&client)
}

fn a_reply_comes_before_the_notice(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _keeper = buses.create(multicast())?;
    let client = open_client(&buses)?;
    let server = open_server(&buses)?;
    for tag in [5, 6] {
        let turn = take_turn(&client)?;
        send_tagged(&client, turn, tag, b"request").context("asking")?;
        let request = receive_present(&server)?;
        reply(&server, &request, b"reply").context("replying")?;
    }
    let own = id(&server)?;
    drop(server);
    for tag in [5, 6] {
        let message = receive_present(&client)?;
        let seen = (message.frame.sender, message.frame.tag);
        expect("sender and tag", seen, (own, tag))?;
    }
    expect_notice(&client)
}

fn a_sleeping_client_gets_the_notice(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _keeper = buses.create(multicast())?;
    let client = open_client(&buses)?;
    let server = open_server(&buses)?;
    set_blocking(&client)?;
    let sleeping = spawn_keeping("a client", &[client.as_fd()], || {
        Ok(receive(&client).map(drop).map_err(|errno| errno as i32))
    })?;
    sleeping.wait_asleep_in(Call::Read)?;
    drop(server);
    expect("the receive", sleeping.finish()?, Err(NOTICE as i32))
}

fn a_killed_server_is_noticed(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _keeper = buses.create(multicast())?;
    let client = open_client(&buses)?;
    let received = Event::new()?;
    let end = open_server(&buses)?;
    let [reader, writer] = received.fds();
    let server = spawn_keeping(
        "a server",
        &[end.as_fd(), reader, writer],
        || -> Result<()> {
            poll::wait(&end, poll::IN, -1).context("poll")?;
            receive(&end).context("receiving")?;
            received.notify()?;
            loop {
                std::thread::park();
            }
        },
    )?;
    drop(end);
    let turn = take_turn(&client)?;
    send_tagged(&client, turn, 1, b"request").context("asking")?;
    received.wait("the receipt of a request")?;
    expect_nothing(&client)?;
    server.kill()?;
    expect_notice(&client)?;
    expect(
        "who is left",
        list(&client, turn - 1, 1)?
            .first()
            .map(|entry| entry.id == turn),
        None,
    )
}

fn a_lost_reply_is_noticed(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _keeper = buses.create(multicast())?;
    let (client, other) = (open_client(&buses)?, open_client(&buses)?);
    let server = open_server(&buses)?;
    send_to(&server, id(&client)?, b"lost").context("replying")?;
    for number in 0..2 * MESSAGES as u64 {
        send_to(&server, id(&other)?, &content(number, 300)).context("replying")?;
    }
    expect("lost", state(&client)?.own_lost, 1)?;
    expect_notice(&client)?;
    // The next frame tells it, too.
    send_to(&server, id(&client)?, b"next").context("replying")?;
    expect("as told", receive_present(&client)?.frame.lost, 1)?;
    expect_nothing(&client)
}

fn the_end_of_the_bus_comes_before_the_notice(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _keeper = buses.create(multicast())?;
    let client = open_client(&buses)?;
    drop(open_server(&buses)?);
    buses.destroy().context("destroying the bus")?;
    expect("events", poll::state(&client)?, "ERR|HUP".to_owned())?;
    expect("a receive", receive(&client), Err(Errno::EPIPE))
}

/// So that a server with waiting requests leaves room for its replies.
fn short_messages_fill_a_subscriber_before_the_bus(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let server = open_server(&buses)?;
    let client = open_client(&buses)?;
    let mut waiting = 0;
    while send(&sender, b"").is_ok() {
        waiting += 1;
    }
    expect("waiting requests", waiting, MESSAGES / 2 + 1)?;
    send_to(&server, id(&client)?, b"reply").context("replying")?;
    expect_bytes("the reply", &receive_present(&client)?.bytes, b"reply")
}

/// It may have a reply for a client that is not full.
fn a_full_server_is_writable(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let server = buses.open(BOTH, small(BLOCK)).context("a server")?;
    let client = open_client(&buses)?;
    send(&sender, b"xx").context("filling it")?;
    expect("of a sender", poll::state(&sender)?, "nothing".to_owned())?;
    expect("of the client", poll::state(&client)?, "nothing".to_owned())?;
    expect("of the server", poll::state(&server)?, "IN|OUT".to_owned())?;
    send_to(&server, id(&client)?, b"reply").context("replying")?;
    expect_bytes("the reply", &receive_present(&client)?.bytes, b"reply")
}
