// SPDX-License-Identifier: MIT OR Apache-2.0
//! How senders and receivers of a bus wait: blocking calls, signals, non-blocking calls, poll, epoll and io_uring.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use io_uring::{opcode, squeue};
use nix::errno::Errno;
use nix::sys::epoll::{EpollFlags, EpollTimeout};

use crate::registry::{Context, topic};
use crate::support::bus::{
    BLOCK, Buses, CAPACITY, DROP, EVICT, LARGEST, MESSAGE_MAX, MESSAGES, Params, UNICAST,
    broadcast, content, drain, fill, framed, id, longest, multicast, never_full, receive,
    receive_framed, receive_present, send, send_numbered, send_to, sleeping_receiver,
    sleeping_sender, state, unicast, with_policy,
};
use crate::support::channel::{read_nowait, read_some, set_blocking, write_nowait};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn_keeping;
use crate::support::ctl::BOTH;
use crate::support::event::Event;
use crate::support::poll::{self, epoll_event, epoll_on};
use crate::support::proc::Call;
use crate::support::signals;
use crate::support::time::{Deadline, eventually};
use crate::support::uring::{REQUEST, Ring, number, poll_for, read_into};

topic!(
    "bus_wait",
    fifo: [],
    pipe_only: [
        events_follow_the_messages,
        an_endpoint_that_does_both_has_both_events,
        a_bus_is_writable_while_the_largest_message_fits,
        a_bus_is_writable_while_a_quarter_of_the_places_is_free,
        a_subscriber_that_drops_keeps_the_bus_writable,
        level_triggered_epoll_reports_until_all_is_received,
        edge_triggered_epoll_reports_each_message,
        edge_triggered_epoll_reports_that_there_is_room,
        messages_for_others_are_no_event,
        a_blocking_read_waits_for_a_message,
        a_blocking_read_waits_for_a_message_for_it,
        a_message_wakes_all_subscribers,
        a_blocking_write_waits_for_room,
        a_sender_in_poll_is_woken_by_room,
        a_sender_in_poll_is_woken_when_the_bus_is_writable,
        a_sender_in_write_is_woken_when_the_bus_is_writable,
        a_reader_that_makes_room_wakes_all_senders,
        a_closed_subscriber_wakes_all_senders,
        a_receiver_of_messages_for_others_wakes_senders,
        a_look_past_messages_for_others_wakes_senders,
        an_eviction_ends_every_sleep,
        a_signal_interrupts_a_read,
        a_signal_interrupts_a_write,
        an_interrupted_write_sends_nothing,
        a_sleeping_process_can_be_killed,
        nonblocking_calls_do_not_wait,
        nowait_calls_do_not_wait,
        no_wake_up_is_lost,
        io_uring_reads_a_message_that_is_there,
        io_uring_read_completes_with_a_message,
        io_uring_read_can_be_cancelled_and_receives_nothing,
        io_uring_write_is_delivered,
        io_uring_write_completes_with_room,
        io_uring_write_can_be_cancelled_and_sends_nothing,
        io_uring_poll_completes_with_a_message,
        io_uring_poll_completes_with_room,
        io_uring_poll_can_be_cancelled,
        pending_requests_fail_when_the_bus_is_destroyed,
        pending_requests_fail_at_an_eviction,
        closing_the_ring_ends_its_pending_requests,
    ],
);

fn expect_events(what: &str, end: &OwnedFd, expected: &str) -> Result<()> {
    expect(what, poll::state(end)?, expected.to_owned())
}

fn events_follow_the_messages(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let sender = buses.create(params)?;
        let subscriber = buses.subscribe(Params::default())?;
        expect_events("of the sender", &sender, "OUT")?;
        expect_events("without a message", &subscriber, "nothing")?;
        for length in [0, 1, 100] {
            send(&sender, &content(0, length)).context("sending")?;
            send(&sender, &content(0, length)).context("sending")?;
            for _ in 0..2 {
                expect_events("with a message", &subscriber, "IN")?;
                receive(&subscriber).context("receiving")?;
            }
            expect_events("afterwards", &subscriber, "nothing")?;
        }
    }
    Ok(())
}

fn an_endpoint_that_does_both_has_both_events(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(broadcast())?;
    let both = buses
        .open(BOTH, with_policy(BLOCK))
        .context("opening both")?;
    expect_events("at first", &both, "OUT")?;
    send(&both, b"x").context("sending")?;
    expect_events("with a message", &both, "IN|OUT")?;
    fill(&both, 100)?;
    expect_events("full", &both, "IN")?;
    drain(&both)?;
    expect_events("empty", &both, "OUT")
}

/// A sender is not told that there is room before the largest message fits.
fn a_bus_is_writable_while_the_largest_message_fits(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), unicast()] {
        let policy = if params.mode == UNICAST { 0 } else { BLOCK };
        let sender = buses.create(params)?;
        let subscriber = buses.subscribe(with_policy(policy))?;
        // 64 bytes more than half of the capacity is free for it.
        for (length, events) in [(LARGEST, "OUT"), (128, "OUT"), (1, "nothing")] {
            send(&sender, &content(0, length)).context("sending")?;
            expect_events(&format!("after {length} bytes"), &sender, events)?;
        }
        expect("a shorter message", send(&sender, b"x"), Ok(()))?;
        let largest = send(&sender, &[0; LARGEST]);
        expect("the largest one", largest, Err(Errno::EAGAIN))?;
        receive(&subscriber).context("receiving")?;
        expect_events("after receiving the first", &sender, "OUT")?;
        expect("the largest one", send(&sender, &[0; LARGEST]), Ok(()))?;
    }
    Ok(())
}

fn a_bus_is_writable_while_a_quarter_of_the_places_is_free(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for (params, policy) in [(broadcast(), BLOCK), (unicast(), 0)] {
        let sender = buses.create(params)?;
        let subscriber = buses.subscribe(with_policy(policy))?;
        let events = |free| match free {
            0..4 => "nothing",
            _ => "OUT",
        };
        for free in (0..MESSAGES).rev() {
            expect("sending", send(&sender, b""), Ok(()))?;
            expect_events(&format!("with {free} places"), &sender, events(free))?;
        }
        for free in 1..=MESSAGES {
            receive(&subscriber).context("receiving")?;
            expect_events(&format!("again {free} places"), &sender, events(free))?;
        }
    }
    Ok(())
}

fn a_subscriber_that_drops_keeps_the_bus_writable(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for policy in [DROP, EVICT] {
        let sender = buses.create(broadcast())?;
        let _stalled = buses.subscribe(with_policy(policy))?;
        for _ in 0..3 * MESSAGES {
            expect_events("of the sender", &sender, "OUT")?;
            expect("sending", send(&sender, &[0; LARGEST]), Ok(()))?;
        }
    }
    Ok(())
}

fn level_triggered_epoll_reports_until_all_is_received(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(with_policy(DROP))?;
    let epoll = epoll_on(&subscriber, EpollFlags::EPOLLIN)?;
    let event = || epoll_event(&epoll, EpollTimeout::ZERO);
    expect("at first", event(), Ok(None))?;
    send_numbered(&sender, 0, 2, 10)?;
    for _ in 0..2 {
        for _ in 0..3 {
            expect("with a message", event(), Ok(Some(EpollFlags::EPOLLIN)))?;
        }
        receive(&subscriber).context("receiving")?;
    }
    expect("afterwards", event(), Ok(None))
}

fn edge_triggered_epoll_reports_each_message(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let sender = buses.create(params)?;
        let subscriber = buses.subscribe(Params::default())?;
        let epoll = epoll_on(&subscriber, EpollFlags::EPOLLIN | EpollFlags::EPOLLET)?;
        let event = || epoll_event(&epoll, EpollTimeout::ZERO);
        for _ in 0..3 {
            send(&sender, b"x").context("sending")?;
            expect("after it", event(), Ok(Some(EpollFlags::EPOLLIN)))?;
            expect("again", event(), Ok(None))?;
        }
    }
    Ok(())
}

fn edge_triggered_epoll_reports_that_there_is_room(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for length in [0, 100, 1000, LARGEST] {
        let sender = buses.create(broadcast())?;
        let subscriber = buses.subscribe(with_policy(BLOCK))?;
        let epoll = epoll_on(&sender, EpollFlags::EPOLLOUT | EpollFlags::EPOLLET)?;
        let event = || epoll_event(&epoll, EpollTimeout::ZERO);
        for round in 0..3 {
            fill(&sender, length)?;
            event().context("before")?;
            drain(&subscriber)?;
            let what = format!("round {round}, {length} bytes");
            expect(&what, event(), Ok(Some(EpollFlags::EPOLLOUT)))?;
        }
    }
    Ok(())
}

fn messages_for_others_are_no_event(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast()] {
        let _sender = buses.create(params)?;
        let framer = buses.framed_sender()?;
        let (target, other) = (
            buses.subscribe(framed(DROP))?,
            buses.subscribe(framed(DROP))?,
        );
        send_to(&framer, id(&target)?, b"x").context("sending")?;
        expect_events("of the target", &target, "IN")?;
        expect_events("of the other", &other, "nothing")?;
    }
    Ok(())
}

fn a_blocking_read_waits_for_a_message(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let sender = buses.create(params)?;
        let subscriber = buses.subscribe(Params::default())?;
        for bytes in [&b"x"[..], b""] {
            let child = sleeping_receiver(&subscriber)?;
            child.expect_still_asleep_in(Call::Read)?;
            send(&sender, bytes).context("sending")?;
            expect("its message", child.finish()?, Ok(bytes.to_vec()))?;
        }
    }
    Ok(())
}

fn a_blocking_read_waits_for_a_message_for_it(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(broadcast())?;
    let framer = buses.framed_sender()?;
    let (target, other) = (
        buses.subscribe(with_policy(DROP))?,
        buses.subscribe(with_policy(DROP))?,
    );
    let child = sleeping_receiver(&target)?;
    for _ in 0..2 * MESSAGES {
        send_to(&framer, id(&other)?, b"for the other").context("sending")?;
    }
    child.expect_still_asleep_in(Call::Read)?;
    send_to(&framer, id(&target)?, b"x").context("sending")?;
    expect("its message", child.finish()?, Ok(b"x".to_vec()))
}

fn a_message_wakes_all_subscribers(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let ends: Vec<_> = (0..4)
        .map(|_| buses.subscribe(with_policy(DROP)))
        .collect::<Result<_>>()?;
    let children: Vec<_> = ends.iter().map(sleeping_receiver).collect::<Result<_>>()?;
    send(&sender, b"to all").context("sending")?;
    for child in children {
        expect("its message", child.finish()?, Ok(b"to all".to_vec()))?;
    }
    Ok(())
}

fn a_blocking_write_waits_for_room(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), unicast()] {
        let policy = if params.mode == UNICAST { 0 } else { BLOCK };
        for length in [0, 100, 1000, LARGEST] {
            let filler = buses.create(params)?;
            let subscriber = buses.subscribe(with_policy(policy))?;
            fill(&filler, length)?;
            let bytes = content(1000, length);
            let child = sleeping_sender(&buses.sender()?, &bytes)?;
            child.expect_still_asleep_in(Call::Write)?;
            // What comes last is the message of the child, after it was woken.
            let mut last = Vec::new();
            eventually("the sender has sent", || {
                last = drain(&subscriber)?.pop().unwrap_or(last.clone());
                Ok((last == bytes && child.has_ended()?).then_some(()))
            })?;
            expect("the sender", child.finish()?, Ok(()))?;
        }
    }
    Ok(())
}

fn a_sender_in_poll_is_woken_by_room(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for length in [0, 100, 1000, LARGEST] {
        let sender = buses.create(broadcast())?;
        let subscriber = buses.subscribe(with_policy(BLOCK))?;
        fill(&sender, length)?;
        let child = spawn_keeping("a poller", &[sender.as_fd()], || {
            poll::wait(&sender, poll::OUT, -1).context("poll")
        })?;
        child.wait_asleep_in(Call::Poll)?;
        drain(&subscriber)?;
        expect("events", poll::name(child.finish()?), "OUT".to_owned())?;
    }
    Ok(())
}

/// Receives one message after the other until a sender is told that there is room.
fn receive_until_writable(sender: &OwnedFd, subscriber: &OwnedFd) -> Result<()> {
    while poll::state(sender)? != "OUT" {
        read_some(subscriber, MESSAGE_MAX as usize)
            .context("receiving while it is not writable")?;
    }
    Ok(())
}

fn a_sender_in_poll_is_woken_when_the_bus_is_writable(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), unicast()] {
        let policy = if params.mode == UNICAST { 0 } else { BLOCK };
        for (capacity, length) in [
            (CAPACITY, 0),
            (CAPACITY, 100),
            (CAPACITY, 1000),
            (CAPACITY, LARGEST),
            (8 << 20, 60_000),
            (8 << 20, longest()),
        ] {
            let sender = buses.create_sized(params, capacity)?;
            let subscriber = buses.subscribe(with_policy(policy))?;
            fill(&sender, length)?;
            let child = spawn_keeping("a poller", &[sender.as_fd()], || {
                poll::wait(&sender, poll::OUT, -1).context("poll")
            })?;
            child.wait_asleep_in(Call::Poll)?;
            receive_until_writable(&sender, &subscriber)?;
            let events = child
                .finish()
                .with_context(|| format!("{length} of {capacity} bytes"))?;
            expect("events", poll::name(events), "OUT".to_owned())?;
        }
    }
    Ok(())
}

fn a_sender_in_write_is_woken_when_the_bus_is_writable(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), unicast()] {
        let policy = if params.mode == UNICAST { 0 } else { BLOCK };
        // Messages in units of 64 bytes; the capacity is 64, the largest message 31.
        for (units, length) in [
            (&[8, 31, 9][..], 1500),
            (&[15, 31, 2], 1500),
            (&[15, 31, 2], LARGEST),
            (&[31, 2, 30], LARGEST),
            (&[31, 2, 30, 1], 1),
        ] {
            let filler = buses.create(params)?;
            let subscriber = buses.subscribe(with_policy(policy))?;
            for count in units {
                send(&filler, &content(0, 64 * count)).context("sending")?;
            }
            let bytes = content(1, length);
            let child = sleeping_sender(&buses.sender()?, &bytes)?;
            receive_until_writable(&filler, &subscriber)?;
            let sent = child
                .finish()
                .with_context(|| format!("{length} bytes after {units:?}"))?;
            expect("the sender", sent, Ok(()))?;
            expect("the last", drain(&subscriber)?.pop(), Some(bytes))?;
        }
    }
    Ok(())
}

fn a_reader_that_makes_room_wakes_all_senders(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let filler = buses.create(broadcast())?;
    let subscriber = buses.subscribe(with_policy(BLOCK))?;
    fill(&filler, 200)?;
    let children: Vec<_> = (0..4)
        .map(|_| sleeping_sender(&buses.sender()?, b"waits"))
        .collect::<Result<_>>()?;
    let received = drain(&subscriber)?.len();
    for child in children {
        expect("a sender", child.finish()?, Ok(()))?;
    }
    let all = received + drain(&subscriber)?.len();
    expect("messages", all as u64, state(&filler)?.sent)
}

/// A bus that is full of messages to a subscriber which has received them, held by another blocking one.
fn full_of_messages_for_another() -> Result<(Buses, OwnedFd, [OwnedFd; 2], u64)> {
    let buses = Buses::new()?;
    let creator = buses.create(broadcast())?;
    let framer = buses.framed_sender()?;
    drop(creator);
    let (target, other) = (
        buses.subscribe(never_full())?,
        buses.subscribe(framed(BLOCK))?,
    );
    let to = id(&target)?;
    while send_to(&framer, to, b"x").is_ok() {}
    expect("messages of the target", drain(&target)?.len(), MESSAGES)?;
    set_blocking(&framer)?;
    Ok((buses, framer, [target, other], to))
}

fn a_receiver_of_messages_for_others_wakes_senders(_: &Context) -> Result<()> {
    let (_buses, framer, [_target, other], to) = full_of_messages_for_another()?;
    let child = spawn_keeping("a sender", &[framer.as_fd()], || {
        send_to(&framer, to, b"waits").context("sending")
    })?;
    child.wait_asleep_in(Call::Write)?;
    expect("a message for the other", receive_framed(&other)?, None)?;
    child
        .finish()
        .context("after the other has passed the messages")
}

fn a_look_past_messages_for_others_wakes_senders(_: &Context) -> Result<()> {
    let (_buses, framer, [_target, other], to) = full_of_messages_for_another()?;
    let child = spawn_keeping("a sender", &[framer.as_fd()], || {
        send_to(&framer, to, b"waits").context("sending")
    })?;
    child.wait_asleep_in(Call::Write)?;
    expect_events("of the other", &other, "nothing")?;
    child
        .finish()
        .context("after the other has passed the messages")
}

fn an_eviction_ends_every_sleep(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(multicast())?;
    let framer = buses.framed_sender()?;
    let limited = Params {
        limit: 1,
        ..with_policy(EVICT)
    };
    let subscriber = buses.subscribe(limited)?;
    let polled = spawn_keeping("a poller", &[subscriber.as_fd()], || {
        poll::wait(&subscriber, libc::POLLPRI, -1).context("poll")
    })?;
    polled.wait_asleep_in(Call::Poll)?;
    let to = id(&subscriber)?;
    send_to(&framer, to, b"xx").context("sending")?;
    expect("one more", send_to(&framer, to, b"xx"), Err(Errno::ENOENT))?;
    expect("events", poll::name(polled.finish()?), "HUP".to_owned())
}

fn a_closed_subscriber_wakes_all_senders(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let filler = buses.create(broadcast())?;
    let stalled = buses.subscribe(with_policy(BLOCK))?;
    let other = buses.subscribe(with_policy(DROP))?;
    fill(&filler, 100)?;
    let children: Vec<_> = (0..3)
        .map(|_| sleeping_sender(&buses.sender()?, b"waits"))
        .collect::<Result<_>>()?;
    drop(stalled);
    for child in children {
        expect("a sender", child.finish()?, Ok(()))?;
    }
    let received = drain(&other)?;
    let expected = vec![b"waits".to_vec(); 3];
    expect(
        "what they sent",
        received[received.len() - 3..].to_vec(),
        expected,
    )
}

fn a_signal_interrupts_a_read(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let sender = buses.create(params)?;
        let end = buses.subscribe(Params::default())?;
        set_blocking(&end)?;
        let read = || Ok(receive(&end).map_err(|errno| errno as i32));
        let handled = Event::new()?;
        let keep = [end.as_fd()];
        let child = signals::spawn_blocked_keeping(Call::Read, &keep, &handled, false, read)?;
        signals::interrupt(&child, &handled)?;
        expect(
            "without SA_RESTART",
            child.finish()?,
            Err(Errno::EINTR as i32),
        )?;
        let handled = Event::new()?;
        let child = signals::spawn_blocked_keeping(Call::Read, &keep, &handled, true, read)?;
        signals::interrupt(&child, &handled)?;
        child.wait_asleep_in(Call::Read)?;
        send(&sender, b"x").context("sending")?;
        expect("with SA_RESTART", child.finish()?, Ok(b"x".to_vec()))?;
    }
    Ok(())
}

fn a_signal_interrupts_a_write(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for restart in [false, true] {
        let sender = buses.create(broadcast())?;
        let subscriber = buses.subscribe(with_policy(BLOCK))?;
        let sent = fill(&sender, 100)?;
        set_blocking(&sender)?;
        let handled = Event::new()?;
        let keep = [sender.as_fd()];
        let write = || Ok(send(&sender, b"waits").map_err(|errno| errno as i32));
        let child = signals::spawn_blocked_keeping(Call::Write, &keep, &handled, restart, write)?;
        signals::interrupt(&child, &handled)?;
        if !restart {
            expect(
                "without SA_RESTART",
                child.finish()?,
                Err(Errno::EINTR as i32),
            )?;
            expect("messages", drain(&subscriber)?.len() as u64, sent)?;
            continue;
        }
        child.wait_asleep_in(Call::Write)?;
        drain(&subscriber)?;
        expect("with SA_RESTART", child.finish()?, Ok(()))?;
    }
    Ok(())
}

fn an_interrupted_write_sends_nothing(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let limited = Params {
        limit: 1,
        ..framed(BLOCK)
    };
    let subscriber = buses.subscribe(limited)?;
    set_blocking(&sender)?;
    for round in 0..10 {
        send(&sender, b"xx").context("sending")?;
        let handled = Event::new()?;
        let keep = [sender.as_fd()];
        let write = || Ok(send(&sender, b"waits").map_err(|errno| errno as i32));
        let child = signals::spawn_blocked_keeping(Call::Write, &keep, &handled, false, write)?;
        signals::interrupt(&child, &handled)?;
        expect("the sender", child.finish()?, Err(Errno::EINTR as i32))?;
        let message = receive_present(&subscriber)?;
        expect_bytes("the message", &message.bytes, b"xx")?;
        expect("its sequence", message.frame.sequence, round)?;
        expect("the lag", state(&subscriber)?.own_lag, 0)?;
    }
    Ok(())
}

fn a_sleeping_process_can_be_killed(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), unicast()] {
        let policy = if params.mode == UNICAST { 0 } else { BLOCK };
        let filler = buses.create(params)?;
        let subscriber = buses.subscribe(with_policy(policy))?;
        sleeping_receiver(&subscriber)?.kill()?;
        crate::support::channel::set_nonblocking(&subscriber)?;
        let sent = fill(&filler, 100)?;
        sleeping_sender(&buses.sender()?, b"never")?.kill()?;
        expect("messages", drain(&subscriber)?.len() as u64, sent)?;
        expect("senders", state(&filler)?.senders, 1)?;
    }
    Ok(())
}

fn nonblocking_calls_do_not_wait(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let policy = if params.mode == UNICAST { 0 } else { BLOCK };
        let sender = buses.create(params)?;
        let subscriber = buses.subscribe(with_policy(policy))?;
        expect("receiving", receive(&subscriber), Err(Errno::EAGAIN))?;
        fill(&sender, LARGEST)?;
        let bytes = [0; LARGEST];
        expect("sending", send(&sender, &bytes), Err(Errno::EAGAIN))?;
    }
    Ok(())
}

fn nowait_calls_do_not_wait(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(with_policy(BLOCK))?;
    for end in [&sender, &subscriber] {
        set_blocking(end)?;
    }
    let nothing = read_nowait(&subscriber, CAPACITY);
    expect("receiving", nothing, Err(Errno::EAGAIN))?;
    expect("sending", write_nowait(&sender, b"x"), Ok(1))?;
    expect(
        "receiving it",
        read_nowait(&subscriber, 1),
        Ok(b"x".to_vec()),
    )?;
    for _ in 0..MESSAGES {
        expect("sending", write_nowait(&sender, b"x"), Ok(1))?;
    }
    expect("full", write_nowait(&sender, b"x"), Err(Errno::EAGAIN))
}

/// Each side answers the other one, and both sleep all the time.
fn no_wake_up_is_lost(_: &Context) -> Result<()> {
    const ROUNDS: u64 = 1000;
    const LONGEST: usize = 600;
    let buses = Buses::new()?;
    for (params, policy) in [(broadcast(), BLOCK), (multicast(), BLOCK), (unicast(), 0)] {
        let sender = buses.create(params)?;
        let subscriber = buses.subscribe(with_policy(policy))?;
        for end in [&sender, &subscriber] {
            set_blocking(end)?;
        }
        // More than the bus holds, so that both wait.
        let child = spawn_keeping("a sender", &[sender.as_fd()], || {
            let mut random = Rng::with_seed(1);
            for number in 0..ROUNDS {
                send(&sender, &content(number, random.usize(0..LONGEST))).context("sending")?;
                if random.u32(0..100) == 0 {
                    std::thread::sleep(Duration::from_micros(random.u64(0..500)));
                }
            }
            Ok(())
        })?;
        let (mut random, mut lengths) = (Rng::with_seed(2), Rng::with_seed(1));
        let deadline = Deadline::for_event();
        for number in 0..ROUNDS {
            ensure!(
                poll::wait_readable(&subscriber, &deadline)?,
                "message {number} did not arrive within {:?}",
                deadline.span()
            );
            let bytes = receive(&subscriber).context("receiving")?;
            let expected = content(number, lengths.usize(0..LONGEST));
            expect_bytes(&format!("message {number}"), &bytes, &expected)?;
            if lengths.u32(0..100) == 0 {
                lengths.u64(0..500);
            }
            if random.u32(0..100) == 0 {
                std::thread::sleep(Duration::from_micros(random.u64(0..500)));
            }
        }
        child.finish()?;
    }
    Ok(())
}

fn write_from(end: &impl AsFd, bytes: &[u8]) -> squeue::Entry {
    opcode::Write::new(number(end), bytes.as_ptr(), bytes.len() as u32).build()
}

/// A sender and a blocking subscriber, both in blocking mode so that requests stay pending.
fn blocking_pair(buses: &Buses) -> Result<(OwnedFd, OwnedFd)> {
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(with_policy(BLOCK))?;
    for end in [&sender, &subscriber] {
        set_blocking(end)?;
    }
    Ok((sender, subscriber))
}

/// As blocking_pair(), and the bus is full of this many messages.
fn full_pair(buses: &Buses) -> Result<(OwnedFd, OwnedFd, usize)> {
    let (sender, subscriber) = blocking_pair(buses)?;
    let sent = fill(&buses.sender()?, 100)?;
    Ok((sender, subscriber, sent as usize))
}

fn receive_count(end: &OwnedFd, count: usize) -> Result<()> {
    for _ in 0..count {
        receive(end).context("receiving")?;
    }
    Ok(())
}

fn io_uring_reads_a_message_that_is_there(_: &Context) -> Result<()> {
    let (sender, subscriber) = blocking_pair(&Buses::new()?)?;
    send_numbered(&sender, 0, 2, 50)?;
    let mut ring = Ring::new()?;
    let mut buffer = [0; 100];
    ring.submit(read_into(&subscriber, &mut buffer), REQUEST)?;
    expect("result", ring.result(REQUEST)?, Ok(50))?;
    expect_bytes("bytes", &buffer[..50], &content(0, 50))
}

fn io_uring_read_completes_with_a_message(_: &Context) -> Result<()> {
    let (sender, subscriber) = blocking_pair(&Buses::new()?)?;
    let mut ring = Ring::new()?;
    let mut buffer = [0; 100];
    for bytes in [&b"later"[..], b""] {
        ring.submit(read_into(&subscriber, &mut buffer), REQUEST)?;
        ring.expect_pending()?;
        send(&sender, bytes).context("sending")?;
        expect("result", ring.result(REQUEST)?, Ok(bytes.len() as i32))?;
        expect_bytes("bytes", &buffer[..bytes.len()], bytes)?;
    }
    Ok(())
}

fn io_uring_read_can_be_cancelled_and_receives_nothing(_: &Context) -> Result<()> {
    let (sender, subscriber) = blocking_pair(&Buses::new()?)?;
    let mut buffer = [0; 100];
    let mut ring = Ring::pending(read_into(&subscriber, &mut buffer))?;
    ring.cancel()?;
    send(&sender, b"mine").context("sending")?;
    expect(
        "received afterwards",
        receive(&subscriber),
        Ok(b"mine".to_vec()),
    )
}

fn io_uring_write_is_delivered(_: &Context) -> Result<()> {
    let (sender, subscriber) = blocking_pair(&Buses::new()?)?;
    let mut ring = Ring::new()?;
    for bytes in [&b"in"[..], b""] {
        ring.submit(write_from(&sender, bytes), REQUEST)?;
        expect("result", ring.result(REQUEST)?, Ok(bytes.len() as i32))?;
        expect("the message", receive(&subscriber), Ok(bytes.to_vec()))?;
    }
    Ok(())
}

fn io_uring_write_completes_with_room(_: &Context) -> Result<()> {
    let (sender, subscriber, sent) = full_pair(&Buses::new()?)?;
    let mut ring = Ring::pending(write_from(&sender, b"last"))?;
    receive_count(&subscriber, sent)?;
    expect("result", ring.result(REQUEST)?, Ok(4))?;
    expect("the message", receive(&subscriber), Ok(b"last".to_vec()))
}

fn io_uring_write_can_be_cancelled_and_sends_nothing(_: &Context) -> Result<()> {
    let (sender, subscriber, sent) = full_pair(&Buses::new()?)?;
    let mut ring = Ring::pending(write_from(&sender, b"never"))?;
    ring.cancel()?;
    receive_count(&subscriber, sent)?;
    send(&sender, b"mine").context("sending")?;
    expect(
        "received afterwards",
        receive(&subscriber),
        Ok(b"mine".to_vec()),
    )
}

fn io_uring_poll_completes_with_a_message(_: &Context) -> Result<()> {
    let (sender, subscriber) = blocking_pair(&Buses::new()?)?;
    let mut ring = Ring::pending(poll_for(&subscriber, libc::POLLIN))?;
    send(&sender, b"x").context("sending")?;
    expect("result", ring.result(REQUEST)?, Ok(libc::POLLIN.into()))
}

fn io_uring_poll_completes_with_room(_: &Context) -> Result<()> {
    let (sender, subscriber, sent) = full_pair(&Buses::new()?)?;
    let mut ring = Ring::pending(poll_for(&sender, libc::POLLOUT))?;
    receive_count(&subscriber, sent)?;
    expect("result", ring.result(REQUEST)?, Ok(libc::POLLOUT.into()))
}

fn io_uring_poll_can_be_cancelled(_: &Context) -> Result<()> {
    let (_sender, subscriber) = blocking_pair(&Buses::new()?)?;
    let mut ring = Ring::pending(poll_for(&subscriber, libc::POLLIN))?;
    ring.cancel()
}

fn pending_requests_fail_when_the_bus_is_destroyed(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let hang_up = (libc::POLLHUP | libc::POLLERR).into();
    for sends in [false, true] {
        let (sender, subscriber, sent) = full_pair(&buses)?;
        let mut buffer = [0; 100];
        let (request, poll) = match sends {
            true => (
                write_from(&sender, b"never"),
                poll_for(&sender, libc::POLLOUT),
            ),
            false => {
                receive_count(&subscriber, sent)?;
                let poll = poll_for(&subscriber, libc::POLLIN);
                (read_into(&subscriber, &mut buffer), poll)
            }
        };
        let (mut ring, mut other) = (Ring::new()?, Ring::new()?);
        ring.submit(request, REQUEST)?;
        other.submit(poll, REQUEST)?;
        ring.expect_pending()?;
        other.expect_pending()?;
        buses.destroy().context("destroying it")?;
        let seen = ring.result(REQUEST)?;
        expect("the read or write", seen, Err(Errno::EPIPE))?;
        expect("the poll", other.result(REQUEST)?, Ok(hang_up))?;
    }
    Ok(())
}

fn pending_requests_fail_at_an_eviction(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(multicast())?;
    let framer = buses.framed_sender()?;
    let limited = Params {
        limit: 1,
        ..with_policy(EVICT)
    };
    let subscriber = buses.subscribe(limited)?;
    let mut polling = Ring::pending(poll_for(&subscriber, libc::POLLPRI))?;
    let to = id(&subscriber)?;
    send_to(&framer, to, b"xx").context("sending")?;
    polling.expect_pending()?;
    expect("one more", send_to(&framer, to, b"xx"), Err(Errno::ENOENT))?;
    expect(
        "the poll",
        polling.result(REQUEST)?,
        Ok(libc::POLLHUP.into()),
    )?;
    let mut buffer = [0; 100];
    polling.submit(read_into(&subscriber, &mut buffer), REQUEST)?;
    expect("a read", polling.result(REQUEST)?, Err(Errno::ESHUTDOWN))
}

/// A closed ring must not keep the endpoint open.
fn closing_the_ring_ends_its_pending_requests(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for sends in [false, true] {
        let (sender, subscriber, sent) = full_pair(&buses)?;
        let keeper = buses.sender()?;
        let mut ring = Ring::new()?;
        let mut buffer = [0; 100];
        if sends {
            ring.submit(write_from(&sender, b"never"), REQUEST)?;
        } else {
            receive_count(&subscriber, sent)?;
            ring.submit(read_into(&subscriber, &mut buffer), REQUEST)?;
        }
        ring.expect_pending()?;
        drop(ring);
        drop((sender, subscriber));
        eventually("the endpoints are closed", || {
            let seen = state(&keeper)?;
            Ok((seen.subscribers == 0 && seen.senders == 1).then_some(()))
        })?;
    }
    Ok(())
}
