// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bus in the mode unicast: one queue, from which the first receiver gets each message.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::bus::{
    BATCHED, Buses, LARGEST, MESSAGES, Params, content, drain, drain_framed, fill, framed, id,
    receive, receive_present, send, send_numbered, send_to, set_format, sleeping_sender, state,
    unicast, with_policy,
};
use crate::support::channel::{read_some, set_blocking};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn_keeping};
use crate::support::ctl::{BOTH, CREATE, PERSIST, WRITE, expect_no_channel};
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::shared::SharedWords;
use crate::support::time::eventually;

topic!(
    "bus_unicast",
    fifo: [],
    pipe_only: [
        each_message_goes_to_one_receiver,
        an_endpoint_that_does_both_receives_its_own_messages,
        the_first_receiver_gets_the_message,
        messages_wait_without_a_receiver,
        a_full_queue_is_eagain_and_loses_nothing,
        a_receiver_makes_room_for_a_sleeping_sender,
        messages_of_a_persistent_bus_outlive_all_endpoints,
        messages_outlive_their_receivers,
        a_closed_sender_is_still_named,
        an_addressed_message_is_eopnotsupp,
        a_message_wakes_one_receiver,
        every_message_is_received_once_by_competing_receivers,
        a_killed_receiver_loses_at_most_its_message,
        the_lag_is_that_of_the_queue,
        no_wake_up_is_lost_with_several_of_each,
        a_batch_that_empties_the_bus_wakes_a_sender,
    ],
);

fn receivers(buses: &Buses, count: usize) -> Result<Vec<OwnedFd>> {
    (0..count).map(|_| buses.subscribe(framed(0))).collect()
}

fn each_message_goes_to_one_receiver(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(unicast())?;
    let ends = receivers(&buses, 3)?;
    send_numbered(&sender, 0, 9, 100)?;
    for number in 0..9 {
        let message = receive_present(&ends[number as usize % 3])?;
        expect("its sequence", message.frame.sequence, number)?;
        expect("its loss", message.frame.lost, 0)?;
        expect_bytes("its bytes", &message.bytes, &content(number, 100))?;
    }
    for end in &ends {
        expect("one more", receive(end), Err(Errno::EAGAIN))?;
    }
    Ok(())
}

fn an_endpoint_that_does_both_receives_its_own_messages(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(unicast())?;
    let both = buses
        .open(BOTH, Params::default())
        .context("opening both")?;
    send_numbered(&both, 0, 3, 20)?;
    for number in 0..3 {
        let bytes = receive(&both).context("receiving")?;
        expect_bytes("its own message", &bytes, &content(number, 20))?;
    }
    expect("one more", receive(&both), Err(Errno::EAGAIN))
}

fn the_first_receiver_gets_the_message(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(unicast())?;
    let ends = receivers(&buses, 2)?;
    send_numbered(&sender, 0, 5, 10)?;
    expect("the second", drain_framed(&ends[1])?.len(), 5)?;
    expect("the first", drain_framed(&ends[0])?.len(), 0)
}

fn messages_wait_without_a_receiver(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(unicast())?;
    let sent = fill(&sender, 100)?;
    expect("messages", sent, MESSAGES as u64)?;
    let seen = state(&sender)?;
    let counts = (seen.sent, seen.lag, seen.lost, seen.unsubscribed);
    expect("the counts", counts, (sent, sent, 0, 0))?;
    let late = receivers(&buses, 1)?;
    let received = drain_framed(&late[0])?;
    expect("received", received.len() as u64, sent)?;
    for (number, message) in (0..).zip(received) {
        expect_bytes("its bytes", &message.bytes, &content(number, 100))?;
    }
    Ok(())
}

fn a_full_queue_is_eagain_and_loses_nothing(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(unicast())?;
    let ends = receivers(&buses, 2)?;
    for length in [0, 100, LARGEST] {
        let first = state(&sender)?.sent;
        let sent = fill(&sender, length)?;
        for _ in 0..5 {
            let more = send(&sender, &content(0, length));
            expect("one more", more, Err(Errno::EAGAIN))?;
        }
        expect("events", poll::state(&sender)?, "nothing".to_owned())?;
        let sequences: Vec<u64> = drain_framed(&ends[0])?
            .iter()
            .map(|m| m.frame.sequence)
            .collect();
        expect("received", sequences, (first..first + sent).collect())?;
    }
    expect("lost", state(&sender)?.lost, 0)
}

fn a_receiver_makes_room_for_a_sleeping_sender(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(unicast())?;
    let end = buses.subscribe(Params::default())?;
    let sent = fill(&sender, 100)?;
    set_blocking(&sender)?;
    let child = spawn_keeping("a sender", &[sender.as_fd()], || {
        send(&sender, b"waits").context("sending")
    })?;
    child.wait_asleep_in(Call::Write)?;
    expect("received", drain(&end)?.len() as u64 >= sent, true)?;
    child.finish()?;
    expect("left", state(&sender)?.sent, sent + 1)
}

fn messages_of_a_persistent_bus_outlive_all_endpoints(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.open(WRITE | CREATE | PERSIST, unicast());
    let sender = sender.context("creating a persistent bus")?;
    let from = id(&sender)?;
    send_numbered(&sender, 0, 5, 300)?;
    drop(sender);
    let (channel, seen) = buses.info().context("asking without an endpoint")?;
    expect("bytes", channel.bytes, 5 * 320)?;
    expect(
        "endpoints and lag",
        (seen.subscribers, seen.senders, seen.lag),
        (0, 0, 5),
    )?;
    let end = buses.subscribe(framed(0))?;
    for number in 0..5 {
        let message = receive_present(&end)?;
        expect("its sender", message.frame.sender, from)?;
        expect_bytes("its bytes", &message.bytes, &content(number, 300))?;
    }
    drop(end);
    buses.unlink().context("unlinking")?;
    expect_no_channel(&buses.0)
}

fn messages_outlive_their_receivers(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(unicast())?;
    let end = buses.subscribe(framed(0))?;
    send_numbered(&sender, 0, 3, 10)?;
    receive_present(&end)?;
    drop(end);
    let seen = state(&sender)?;
    expect("the lag, and lost", (seen.lag, seen.lost), (2, 0))?;
    let end = buses.subscribe(framed(0))?;
    expect("its first", receive_present(&end)?.frame.sequence, 1)
}

fn a_closed_sender_is_still_named(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let keeper = buses.create(unicast())?;
    let mut from = Vec::new();
    for number in 0..MESSAGES as u64 {
        let sender = buses.sender()?;
        send(&sender, &content(number, 10)).context("sending")?;
        from.push(id(&sender)?);
    }
    let end = buses.subscribe(framed(0))?;
    let seen: Vec<u64> = drain_framed(&end)?.iter().map(|m| m.frame.sender).collect();
    expect("the senders", seen, from)?;
    // Those whose messages have been overwritten are freed; nothing here can see it but the end of the test.
    for _ in 0..10 {
        let sender = buses.sender()?;
        fill(&sender, 10)?;
        drop(sender);
        drain(&end)?;
    }
    expect("senders", state(&keeper)?.senders, 1)
}

fn an_addressed_message_is_eopnotsupp(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(unicast())?;
    let end = buses.subscribe(framed(0))?;
    let framer = buses.framed_sender()?;
    for target in [id(&end)?, 1, u64::MAX] {
        let seen = send_to(&framer, target, b"x");
        expect("addressed", seen, Err(Errno::EOPNOTSUPP))?;
    }
    expect("to none in particular", send_to(&framer, 0, b"x"), Ok(()))?;
    expect("its target", receive_present(&end)?.frame.target, 0)
}

fn a_message_wakes_one_receiver(_: &Context) -> Result<()> {
    const RECEIVERS: usize = 3;
    let buses = Buses::new()?;
    let sender = buses.create(unicast())?;
    let mut children = Vec::new();
    for _ in 0..RECEIVERS {
        let end = buses.subscribe(Params::default())?;
        set_blocking(&end)?;
        let child = spawn_keeping("a receiver", &[end.as_fd()], || {
            receive(&end).context("receiving")
        })?;
        child.wait_asleep_in(Call::Read)?;
        children.push(child);
    }
    for number in 0..RECEIVERS as u8 {
        send(&sender, &[number]).context("sending")?;
        // In order of arrival.
        let first = children.remove(0);
        expect("its message", first.finish()?, vec![number])?;
        for other in &children {
            other.expect_still_asleep_in(Call::Read)?;
        }
    }
    Ok(())
}

/// Children that receive until the bus is destroyed, and mark the number of each message.
fn every_message_is_received_once_by_competing_receivers(_: &Context) -> Result<()> {
    const COUNT: u64 = 5000;
    let buses = Buses::new()?;
    let sender = buses.create_sized(unicast(), 1 << 14)?;
    let marks = SharedWords::new(COUNT as usize / 64 + 1)?;
    let received = SharedWords::new(1)?;
    let mut children = Vec::new();
    for _ in 0..4 {
        let end = buses.subscribe(Params::default())?;
        set_blocking(&end)?;
        children.push(spawn_keeping("a receiver", &[end.as_fd()], || {
            loop {
                let bytes = match receive(&end) {
                    Err(Errno::EPIPE) => return Ok(()),
                    bytes => bytes.context("receiving")?,
                };
                let (number, rest) = bytes.split_first_chunk().context("a short message")?;
                let number = u64::from_ne_bytes(*number);
                expect_bytes("its bytes", rest, &content(number, number as usize % 500))?;
                expect("received before", marks.mark(number as usize), false)?;
                received.words()[0].fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        })?);
    }
    set_blocking(&sender)?;
    for number in 0..COUNT {
        let bytes = [
            &number.to_ne_bytes()[..],
            &content(number, number as usize % 500),
        ]
        .concat();
        send(&sender, &bytes).context("sending")?;
    }
    crate::support::time::eventually("all are received", || {
        Ok((received.get(0) == COUNT).then_some(()))
    })?;
    buses.destroy().context("destroying it")?;
    for child in children {
        child.finish()?;
    }
    Ok(())
}

fn a_killed_receiver_loses_at_most_its_message(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(unicast())?;
    let end = buses.subscribe(framed(0))?;
    for round in 0..10 {
        let other = buses.subscribe(Params::default())?;
        set_blocking(&other)?;
        let child = spawn_keeping("a receiver", &[other.as_fd()], || {
            receive(&other).context("receiving")
        })?;
        drop(other);
        child.wait_asleep_in(Call::Read)?;
        child.kill()?;
        send(&sender, &content(round, 10)).context("sending")?;
        let message = receive_present(&end)?;
        expect_bytes("its bytes", &message.bytes, &content(round, 10))?;
    }
    Ok(())
}

fn the_lag_is_that_of_the_queue(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(unicast())?;
    let ends = receivers(&buses, 2)?;
    send_numbered(&sender, 0, 7, 10)?;
    receive_present(&ends[0])?;
    for end in &ends {
        let seen = state(end)?;
        let counts = (seen.lag, seen.own_lag, seen.own_lost, seen.subscribers);
        expect("lags, loss, receivers", counts, (6, 6, 0, 2))?;
    }
    expect("of the sender", state(&sender)?.own_lag, 0)
}

/// Two senders and three receivers share one queue, and move its head and its cursor for each other. A lost wake-up
/// would leave messages unreceived.
fn no_wake_up_is_lost_with_several_of_each(_: &Context) -> Result<()> {
    const ROUNDS: usize = 3000;
    let buses = Buses::new()?;
    let keeper = buses.create(unicast())?;
    let sender = || {
        let end = buses.sender()?;
        set_blocking(&end)?;
        spawn_keeping("a sender", &[end.as_fd()], || {
            for _ in 0..ROUNDS {
                send(&end, b"x").context("sending")?;
            }
            Ok(())
        })
    };
    let senders = [sender()?, sender()?];
    let received = SharedWords::new(1)?;
    let receiver = || {
        let end = buses.subscribe(with_policy(0))?;
        set_blocking(&end)?;
        spawn_keeping("a receiver", &[end.as_fd()], || {
            loop {
                receive(&end).context("receiving")?;
                received.words()[0].fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let receivers: [Child<()>; 3] = [receiver()?, receiver()?, receiver()?];
    for sender in senders {
        sender.finish()?;
    }
    eventually("all messages are received", || {
        let all = received.get(0) as usize == 2 * ROUNDS;
        Ok(all.then_some(()))
    })?;
    for receiver in receivers {
        receiver.kill()?;
    }
    drop(keeper);
    Ok(())
}

/// The batch passes also a message that was sent after the sender began to wait.
fn a_batch_that_empties_the_bus_wakes_a_sender(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let filler = buses.create(unicast())?;
    let subscriber = buses.subscribe(with_policy(0))?;
    set_format(&subscriber, BATCHED).context("the format")?;
    for length in [512, 512, 512, 512, 512, 512, 64] {
        send(&filler, &content(1, length)).context("sending")?;
    }
    let child = sleeping_sender(&buses.sender()?, &content(2, 1024))?;
    child.expect_still_asleep_in(Call::Write)?;
    send(&filler, &content(3, 64)).context("sending what fits")?;
    read_some(&subscriber, 1 << 16).context("receiving")?;
    eventually("the sender has sent", || {
        Ok(child.has_ended()?.then_some(()))
    })?;
    expect("the sender", child.finish()?, Ok(()))
}
