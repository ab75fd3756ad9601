// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bus in the mode multicast: each message goes to one subscriber, in turn, as far as they have room.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::bus::{
    BLOCK, Buses, CAPACITY, DROP, EVICT, LARGEST, MESSAGES, Params, content, drain, drain_framed,
    framed, id, multicast, never_full, receive, receive_framed, receive_present, send, send_to,
    state, with_policy,
};
use crate::support::channel::set_blocking;
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn_keeping;
use crate::support::poll;
use crate::support::proc::Call;

topic!(
    "bus_multicast",
    fifo: [],
    pipe_only: [
        each_message_goes_to_one_subscriber_in_turn,
        the_turn_is_strict_with_any_number_of_subscribers,
        the_turn_includes_later_subscribers,
        the_turn_excludes_closed_subscribers,
        without_a_subscriber_a_send_is_enotconn,
        a_subscriber_is_full_above_its_limit,
        the_default_limit_is_half_of_the_capacity,
        a_full_dropping_subscriber_is_skipped,
        a_full_dropping_subscriber_gets_messages_again_with_room,
        all_full_and_dropping_is_eagain,
        a_sender_waits_for_room_in_any_dropping_subscriber,
        a_full_blocking_subscriber_is_waited_for,
        a_wait_for_a_subscriber_ends_with_its_close,
        a_wait_for_the_last_subscriber_ends_with_enotconn,
        a_full_evicting_subscriber_is_evicted,
        an_eviction_of_the_last_subscriber_is_enotconn,
        an_idle_subscriber_holds_no_room,
        an_idle_subscriber_loses_nothing,
        many_messages_of_others_before_an_unread_one_hold_no_room,
        an_unread_message_of_a_blocking_subscriber_holds_the_ring,
        a_subscriber_holds_the_ring_from_its_oldest_unread_message_on,
        an_unread_message_of_a_dropping_subscriber_is_lost,
        an_addressed_message_reaches_its_target,
        an_addressed_message_to_an_unknown_id_is_enoent,
        a_full_dropping_target_gets_the_message,
        a_full_blocking_target_is_waited_for,
        a_full_evicting_target_is_evicted,
        messages_of_a_closed_subscriber_are_lost,
        a_message_wakes_its_receiver_only,
    ],
);

fn subscribers(buses: &Buses, params: Params, count: usize) -> Result<Vec<OwnedFd>> {
    (0..count).map(|_| buses.subscribe(params)).collect()
}

fn lags(ends: &[OwnedFd]) -> Result<Vec<u64>> {
    ends.iter().map(|end| Ok(state(end)?.own_lag)).collect()
}

fn each_message_goes_to_one_subscriber_in_turn(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let ends = subscribers(&buses, framed(DROP), 4)?;
    for number in 0..12 {
        send(&sender, &content(number, 30)).context("sending")?;
    }
    expect("the lags", lags(&ends)?, vec![3; 4])?;
    let mut all = Vec::new();
    for end in &ends {
        let received = drain_framed(end)?;
        let sequences: Vec<u64> = received.iter().map(|m| m.frame.sequence).collect();
        let first = sequences[0];
        expect("the turn", &sequences, &vec![first, first + 4, first + 8])?;
        for message in &received {
            expect("its target", message.frame.target, id(end)?)?;
            let sent = content(message.frame.sequence, 30);
            expect_bytes("its bytes", &message.bytes, &sent)?;
        }
        all.extend(sequences);
    }
    all.sort_unstable();
    expect("all messages", all, (0..12).collect())?;
    let seen = state(&sender)?;
    expect("sent and lost", (seen.sent, seen.lost), (12, 0))
}

/// Also where the counter of turns passes 2^32, near which it begins in a build for tests. Sequences count from the first
/// message, because a seeded bug moves their beginning too.
fn the_turn_is_strict_with_any_number_of_subscribers(_: &Context) -> Result<()> {
    for count in [2, 3, 5, 7] {
        let buses = Buses::new()?;
        let sender = buses.create(multicast())?;
        let ends = subscribers(&buses, framed(DROP), count)?;
        for number in 0..12 {
            send(&sender, &content(number, 30)).context("sending")?;
        }
        let mut all = Vec::new();
        for end in &ends {
            let received = drain_framed(end)?;
            let sequences: Vec<u64> = received.iter().map(|m| m.frame.sequence).collect();
            all.push(sequences);
        }
        all.sort_unstable();
        let first = all[0]
            .first()
            .copied()
            .context("a subscriber has nothing")?;
        let turns: Vec<Vec<u64>> = (0..count as u64)
            .map(|turn| (first + turn..first + 12).step_by(count).collect())
            .collect();
        expect(&format!("the turns of {count}"), &all, &turns)?;
    }
    Ok(())
}

fn the_turn_includes_later_subscribers(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let mut ends = subscribers(&buses, with_policy(DROP), 1)?;
    send(&sender, b"x").context("sending")?;
    ends.extend(subscribers(&buses, with_policy(DROP), 2)?);
    for _ in 0..6 {
        send(&sender, b"x").context("sending")?;
    }
    expect("the lags", lags(&ends)?, vec![3, 2, 2])
}

fn the_turn_excludes_closed_subscribers(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let mut ends = subscribers(&buses, with_policy(DROP), 3)?;
    drop(ends.remove(0));
    for _ in 0..6 {
        send(&sender, b"x").context("sending")?;
    }
    expect("the lags", lags(&ends)?, vec![3, 3])
}

fn without_a_subscriber_a_send_is_enotconn(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let refused = Err(Errno::ENOTCONN);
    expect("without any", send(&sender, b"x"), refused)?;
    let subscriber = buses.subscribe(with_policy(DROP))?;
    expect("with one", send(&sender, b"x"), Ok(()))?;
    drop(subscriber);
    expect("after its close", send(&sender, b"x"), refused)?;
    set_blocking(&sender)?;
    expect("blocking", send(&sender, b"x"), refused)?;
    let seen = state(&sender)?;
    expect(
        "sent and unsubscribed",
        (seen.sent, seen.unsubscribed),
        (1, 0),
    )
}

/// Sends to the only subscriber until it is full; returns the number of messages.
fn fill_turn(sender: &OwnedFd, length: usize) -> Result<usize> {
    for number in 0..1000 {
        match send(sender, &content(number, length)) {
            Ok(()) => {}
            Err(Errno::EAGAIN) => return Ok(number as usize),
            Err(error) => return Err(error).context("sending"),
        }
    }
    anyhow::bail!("it is never full")
}

fn a_subscriber_is_full_above_its_limit(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for policy in [DROP, BLOCK] {
        for (limit, length, fitting) in [
            (256, 1, 2),
            (256, 256, 2),
            (600, 300, 3),
            (300, 301, 1),
            (1, 0, 1),
        ] {
            let sender = buses.create(multicast())?;
            let params = Params {
                limit,
                ..with_policy(policy)
            };
            let subscriber = buses.subscribe(params)?;
            let sent = fill_turn(&sender, length)?;
            let what = format!("messages of {length} bytes, limit {limit}");
            expect(&what, sent, fitting)?;
            receive(&subscriber).context("receiving")?;
            let again = send(&sender, &content(0, length));
            expect("with room for one", again, Ok(()))?;
        }
    }
    Ok(())
}

fn the_default_limit_is_half_of_the_capacity(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let _subscriber = buses.subscribe(with_policy(DROP))?;
    let fitting = CAPACITY / 2 / 512 + 1;
    expect("messages of 512 bytes", fill_turn(&sender, 512)?, fitting)
}

/// Parameters of a subscriber that is full with its second byte.
fn small(policy: u32) -> Params {
    Params {
        limit: 1,
        ..framed(policy)
    }
}

fn a_full_dropping_subscriber_is_skipped(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let full = buses.subscribe(small(DROP))?;
    send(&sender, b"xx").context("sending")?;
    let others = subscribers(&buses, framed(DROP), 2)?;
    for _ in 0..9 {
        expect("sending", send(&sender, b"xx"), Ok(()))?;
    }
    expect("its lag", state(&full)?.own_lag, 1)?;
    expect("the others'", lags(&others)?.iter().sum(), 9_u64)?;
    ensure!(
        lags(&others)?.iter().all(|lag| *lag >= 3),
        "one was preferred"
    );
    expect("lost", state(&sender)?.lost, 0)
}

fn a_full_dropping_subscriber_gets_messages_again_with_room(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let ends = subscribers(&buses, small(DROP), 2)?;
    for round in 0..20 {
        for _ in 0..2 {
            expect("sending", send(&sender, b"xx"), Ok(()))?;
        }
        expect("one more", send(&sender, b"xx"), Err(Errno::EAGAIN))?;
        for end in &ends {
            expect(&format!("round {round}"), drain_framed(end)?.len(), 1)?;
        }
    }
    Ok(())
}

fn all_full_and_dropping_is_eagain(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let ends = subscribers(&buses, small(DROP), 3)?;
    expect("messages", fill_turn(&sender, 2)?, 3)?;
    for _ in 0..5 {
        expect("one more", send(&sender, b"xx"), Err(Errno::EAGAIN))?;
    }
    receive_present(&ends[1])?;
    expect("with room in one", send(&sender, b"xx"), Ok(()))?;
    expect("which gets it", lags(&ends)?, vec![1, 1, 1])?;
    expect("lost", state(&sender)?.lost, 0)
}

/// A child asleep in a blocking send on its own copy of the endpoint.
fn sleeping_sender(buses: &Buses) -> Result<crate::support::child::Child<Result<(), i32>>> {
    let sender = buses.sender()?;
    set_blocking(&sender)?;
    let child = spawn_keeping("a sender", &[sender.as_fd()], || {
        Ok(send(&sender, b"waits").map_err(|errno| errno as i32))
    })?;
    child.wait_asleep_in(Call::Write)?;
    Ok(child)
}

fn a_sender_waits_for_room_in_any_dropping_subscriber(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let ends = subscribers(&buses, small(DROP), 3)?;
    for end in &ends {
        fill_turn(&sender, 2)?;
        let child = sleeping_sender(&buses)?;
        receive_present(end)?;
        expect("the sender", child.finish()?, Ok(()))?;
        let message = receive_present(end)?;
        expect_bytes("what it sent", &message.bytes, b"waits")?;
    }
    Ok(())
}

fn a_full_blocking_subscriber_is_waited_for(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let full = buses.subscribe(small(BLOCK))?;
    send(&sender, b"xx").context("sending")?;
    let other = buses.subscribe(framed(DROP))?;
    // The turn of the full one comes with the first or the second message, and stays.
    let results: Vec<_> = (0..4).map(|_| send(&sender, b"xx")).collect();
    let sent = results.iter().take_while(|result| result.is_ok()).count();
    ensure!(sent <= 1, "{sent} messages in the turn of one");
    for result in &results[sent..] {
        expect(
            "a send in the turn of the full one",
            *result,
            Err(Errno::EAGAIN),
        )?;
    }
    expect("the other's", drain_framed(&other)?.len(), sent)?;
    let child = sleeping_sender(&buses)?;
    expect("the other's", receive_framed(&other)?, None)?;
    child.expect_still_asleep_in(Call::Write)?;
    receive_present(&full)?;
    expect("the sender", child.finish()?, Ok(()))?;
    let message = receive_present(&full)?;
    expect_bytes("what it sent", &message.bytes, b"waits")
}

fn a_wait_for_a_subscriber_ends_with_its_close(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let full = buses.subscribe(small(BLOCK))?;
    fill_turn(&sender, 2)?;
    let child = sleeping_sender(&buses)?;
    let other = buses.subscribe(framed(DROP))?;
    child.expect_still_asleep_in(Call::Write)?;
    drop(full);
    expect("the sender", child.finish()?, Ok(()))?;
    let message = receive_present(&other)?;
    expect_bytes("what it sent", &message.bytes, b"waits")
}

fn a_wait_for_the_last_subscriber_ends_with_enotconn(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for policy in [DROP, BLOCK] {
        let sender = buses.create(multicast())?;
        let full = buses.subscribe(small(policy))?;
        fill_turn(&sender, 2)?;
        let child = sleeping_sender(&buses)?;
        drop(full);
        let seen = child.finish()?;
        expect("the sender", seen, Err(Errno::ENOTCONN as i32))?;
    }
    Ok(())
}

fn a_full_evicting_subscriber_is_evicted(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let full = buses.subscribe(small(EVICT))?;
    send(&sender, b"xx").context("sending")?;
    let other = buses.subscribe(framed(DROP))?;
    for _ in 0..4 {
        expect("sending", send(&sender, b"xx"), Ok(()))?;
    }
    expect("the full one", receive(&full), Err(Errno::ESHUTDOWN))?;
    expect("its events", poll::state(&full)?, "HUP".to_owned())?;
    expect("the other's", drain_framed(&other)?.len(), 4)?;
    let seen = state(&sender)?;
    let counts = (seen.subscribers, seen.evicted, seen.lost);
    expect("subscribers, evicted, lost", counts, (1, 1, 1))
}

fn an_eviction_of_the_last_subscriber_is_enotconn(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let full = buses.subscribe(small(EVICT))?;
    expect("sending", send(&sender, b"xx"), Ok(()))?;
    expect("one more", send(&sender, b"xx"), Err(Errno::ENOTCONN))?;
    expect("it", receive(&full), Err(Errno::ESHUTDOWN))
}

fn an_idle_subscriber_holds_no_room(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for policy in [DROP, BLOCK, EVICT] {
        let sender = buses.create(multicast())?;
        let idle = buses.subscribe(framed(policy))?;
        let busy = buses.subscribe(framed(BLOCK))?;
        let framer = buses.framed_sender()?;
        let to = id(&busy)?;
        for number in 0..20 * MESSAGES as u64 {
            let sent = send_to(&framer, to, &content(number, LARGEST));
            expect(&format!("message {number}"), sent, Ok(()))?;
            let message = receive_present(&busy)?;
            expect_bytes("its bytes", &message.bytes, &content(number, LARGEST))?;
        }
        expect("the idle one", receive_framed(&idle)?, None)?;
        send_to(&framer, id(&idle)?, b"finally").context("sending")?;
        let message = receive_present(&idle)?;
        expect_bytes("its message", &message.bytes, b"finally")?;
        expect("its loss", message.frame.lost, 0)?;
        let seen = state(&sender)?;
        expect("lost and evicted", (seen.lost, seen.evicted), (0, 0))?;
    }
    Ok(())
}

/// A sender that finds no room scans only a bounded number of messages of other subscribers per attempt, counted over all
/// cursors; later attempts continue.
fn many_messages_of_others_before_an_unread_one_hold_no_room(_: &Context) -> Result<()> {
    const SIZE: usize = 2 << 20;
    const SLOTS: usize = SIZE / 256;
    let buses = Buses::new()?;
    let _sender = buses.create_sized(multicast(), SIZE)?;
    let framer = buses.framed_sender()?;
    let late = subscribers(&buses, framed(BLOCK), 3)?;
    let busy = buses.subscribe(framed(BLOCK))?;
    let to = id(&busy)?;
    let send_many = |count: usize| -> Result<()> {
        for number in 0..count {
            send_to(&framer, to, b"x").with_context(|| format!("message {number} of {count}"))?;
            receive_present(&busy)?;
        }
        Ok(())
    };
    send_many(SLOTS - 500)?;
    for subscriber in &late {
        send_to(&framer, id(subscriber)?, b"late").context("sending")?;
    }
    send_many(1000)?;
    for subscriber in &late {
        let message = receive_present(subscriber)?;
        expect_bytes("its message", &message.bytes, b"late")?;
        expect("its loss", message.frame.lost, 0)?;
    }
    Ok(())
}

fn an_idle_subscriber_loses_nothing(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let idle = buses.subscribe(framed(DROP))?;
    let stalled = buses.subscribe(framed(DROP))?;
    let framer = buses.framed_sender()?;
    for number in 0..200 {
        send_to(&framer, id(&stalled)?, &content(number, 10)).context("sending")?;
    }
    expect("lost by the idle one", state(&idle)?.own_lost, 0)?;
    let lost = state(&stalled)?.own_lost;
    expect(
        "the other",
        drain_framed(&stalled)?.len() as u64 + lost,
        200,
    )?;
    expect("lost by all", state(&sender)?.lost, lost)
}

fn an_unread_message_of_a_blocking_subscriber_holds_the_ring(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(multicast())?;
    let stalled = buses.subscribe(framed(BLOCK))?;
    let busy = buses.subscribe(framed(DROP))?;
    let framer = buses.framed_sender()?;
    send_to(&framer, id(&stalled)?, b"unread").context("sending")?;
    let mut sent = 0;
    while send_to(&framer, id(&busy)?, b"x").is_ok() {
        drain_framed(&busy)?;
        sent += 1;
    }
    expect("messages to the other", sent, MESSAGES - 1)?;
    let message = receive_present(&stalled)?;
    expect_bytes("its message", &message.bytes, b"unread")?;
    for _ in 0..2 * MESSAGES {
        expect("sending", send_to(&framer, id(&busy)?, b"x"), Ok(()))?;
        drain_framed(&busy)?;
    }
    Ok(())
}

fn a_subscriber_holds_the_ring_from_its_oldest_unread_message_on(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for policy in [EVICT, BLOCK, DROP] {
        let sender = buses.create(multicast())?;
        let late = buses.subscribe(framed(policy))?;
        let busy = buses.subscribe(framed(BLOCK))?;
        let framer = buses.framed_sender()?;
        let to = id(&busy)?;
        let pass = |count| -> Result<()> {
            for _ in 0..count {
                expect("sending", send_to(&framer, to, b"x"), Ok(()))?;
                receive_present(&busy)?;
            }
            Ok(())
        };
        pass(MESSAGES - 1)?;
        for round in 0..3 {
            send_to(&framer, id(&late)?, b"late").context("sending")?;
            // As many as fit behind it.
            pass(MESSAGES - 1).with_context(|| format!("policy {policy}, round {round}"))?;
            let message = receive_present(&late)?;
            expect_bytes("its message", &message.bytes, b"late")?;
            expect("its loss", message.frame.lost, 0)?;
        }
        let seen = state(&sender)?;
        expect("lost and evicted", (seen.lost, seen.evicted), (0, 0))?;
    }
    Ok(())
}

fn an_unread_message_of_a_dropping_subscriber_is_lost(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let stalled = buses.subscribe(framed(DROP))?;
    let busy = buses.subscribe(framed(DROP))?;
    let framer = buses.framed_sender()?;
    send_to(&framer, id(&stalled)?, b"unread").context("sending")?;
    for _ in 0..2 * MESSAGES {
        expect("sending", send_to(&framer, id(&busy)?, b"x"), Ok(()))?;
        drain_framed(&busy)?;
    }
    let seen = state(&stalled)?;
    expect("its loss and lag", (seen.own_lost, seen.own_lag), (1, 0))?;
    send_to(&framer, id(&stalled)?, b"next").context("sending")?;
    let message = receive_present(&stalled)?;
    expect_bytes("the next", &message.bytes, b"next")?;
    expect("its loss", message.frame.lost, 1)?;
    expect("lost by all", state(&sender)?.lost, 1)
}

fn an_addressed_message_reaches_its_target(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(multicast())?;
    let ends = subscribers(&buses, framed(DROP), 3)?;
    let framer = buses.framed_sender()?;
    for (index, count) in [(0, 3), (1, 0), (2, 2)] {
        for _ in 0..count {
            send_to(&framer, id(&ends[index])?, b"x").context("sending")?;
        }
    }
    expect("the lags", lags(&ends)?, vec![3, 0, 2])
}

fn an_addressed_message_to_an_unknown_id_is_enoent(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(multicast())?;
    let framer = buses.framed_sender()?;
    let unknown = Err(Errno::ENOENT);
    expect("without any", send_to(&framer, 1, b"x"), unknown)?;
    let subscriber = buses.subscribe(framed(DROP))?;
    for target in [id(&framer)?, id(&subscriber)? + 1, u64::MAX] {
        expect("with one", send_to(&framer, target, b"x"), unknown)?;
    }
    expect("what it has", receive_framed(&subscriber)?, None)
}

fn a_full_dropping_target_gets_the_message(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(multicast())?;
    let full = buses.subscribe(small(DROP))?;
    let framer = buses.framed_sender()?;
    for number in 0..5 {
        let sent = send_to(&framer, id(&full)?, &content(number, 2));
        expect("sending", sent, Ok(()))?;
    }
    expect("its messages", drain_framed(&full)?.len(), 5)
}

fn a_full_blocking_target_is_waited_for(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(multicast())?;
    let (full, other) = (
        buses.subscribe(small(BLOCK))?,
        buses.subscribe(framed(DROP))?,
    );
    let framer = buses.framed_sender()?;
    let to = id(&full)?;
    send_to(&framer, to, b"xx").context("sending")?;
    expect("one more", send_to(&framer, to, b"xx"), Err(Errno::EAGAIN))?;
    set_blocking(&framer)?;
    let child = spawn_keeping("a sender", &[framer.as_fd()], || {
        send_to(&framer, to, b"waits").context("sending")
    })?;
    child.wait_asleep_in(Call::Write)?;
    receive_present(&full)?;
    child.finish()?;
    let message = receive_present(&full)?;
    expect_bytes("what it sent", &message.bytes, b"waits")?;
    expect("the other's", receive_framed(&other)?, None)
}

fn a_full_evicting_target_is_evicted(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let full = buses.subscribe(small(EVICT))?;
    let framer = buses.framed_sender()?;
    let to = id(&full)?;
    send_to(&framer, to, b"xx").context("sending")?;
    expect("one more", send_to(&framer, to, b"xx"), Err(Errno::ENOENT))?;
    expect("it", receive(&full), Err(Errno::ESHUTDOWN))?;
    let seen = state(&sender)?;
    expect("evicted and lost", (seen.evicted, seen.lost), (1, 1))
}

fn messages_of_a_closed_subscriber_are_lost(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let closed = buses.subscribe(never_full())?;
    for _ in 0..MESSAGES {
        send(&sender, b"x").context("sending")?;
    }
    let other = buses.subscribe(with_policy(BLOCK))?;
    drop(closed);
    expect("lost", state(&sender)?.lost, MESSAGES as u64)?;
    expect("sending", send(&sender, b"other"), Ok(()))?;
    expect("the other's", drain(&other)?, vec![b"other".to_vec()])
}

fn a_message_wakes_its_receiver_only(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(multicast())?;
    let framer = buses.framed_sender()?;
    let ends = subscribers(&buses, with_policy(DROP), 2)?;
    for end in &ends {
        set_blocking(end)?;
    }
    let mut children = Vec::new();
    for end in &ends {
        let child = spawn_keeping("a receiver", &[end.as_fd()], || {
            receive(end).context("receiving")
        })?;
        child.wait_asleep_in(Call::Read)?;
        children.push(child);
    }
    for (end, number) in ends.iter().zip(0_u8..) {
        send_to(&framer, id(end)?, &[number]).context("sending")?;
        let child = children.remove(0);
        expect("its message", child.finish()?, vec![number])?;
        if let Some(other) = children.first() {
            other.expect_still_asleep_in(Call::Read)?;
        }
    }
    Ok(())
}
