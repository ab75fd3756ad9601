// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of a bus in the mode broadcast: whom they reach, their boundaries, and what a subscriber that does not
//! keep up loses or delays.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use nix::errno::Errno;
use nix::sys::uio::{readv, writev};

use crate::registry::{Context, topic};
use crate::support::bus::{
    BLOCK, Buses, CAPACITY, DROP, EVICT, LARGEST, MESSAGES, Params, broadcast, content, drain,
    drain_framed, fill, framed, id, longest, never_full, next_length, receive, receive_framed,
    receive_present, send, send_numbered, send_to, state, with_policy,
};
use crate::support::channel::read_some;
use crate::support::check::{expect, expect_bytes};
use crate::support::ctl::BOTH;
use crate::support::poll;
use crate::support::ring::{READ_ONLY, Region};

topic!(
    "bus_broadcast",
    fifo: [],
    pipe_only: [
        every_subscriber_receives_every_message,
        messages_of_all_senders_are_in_one_order,
        a_sender_that_subscribes_receives_its_own_messages,
        messages_keep_their_boundaries,
        a_message_may_be_empty,
        the_largest_message_passes_and_one_byte_more_is_emsgsize,
        the_largest_message_of_a_large_bus_passes,
        a_message_longer_than_the_buffer_stays,
        a_message_may_be_sent_and_received_in_pieces,
        fionread_is_the_length_of_the_next_message,
        a_subscriber_starts_at_the_head,
        a_message_to_nobody_is_counted,
        messages_of_every_length_wrap_around_intact,
        an_empty_bus_holds_one_message_per_256_bytes,
        each_message_uses_a_multiple_of_64_bytes,
        an_endpoint_that_is_not_mapped_cannot_map,
        a_stalled_blocking_subscriber_holds_senders,
        a_closed_blocking_subscriber_releases_senders,
        a_stalled_dropping_subscriber_loses_the_oldest_messages,
        a_stalled_dropping_subscriber_delays_nobody,
        each_loss_is_reported_once,
        a_loss_is_not_reported_to_a_raw_subscriber_but_counted,
        a_stalled_subscriber_is_evicted,
        an_evicted_subscriber_leaves_the_bus,
        an_evicted_subscriber_can_subscribe_again,
        policies_apply_to_each_subscriber,
        a_blocking_subscriber_saves_the_messages_of_a_dropping_one,
        an_addressed_message_reaches_its_target_only,
        an_addressed_message_keeps_its_place,
        an_addressed_message_to_an_unknown_id_is_enoent,
        an_addressed_message_needs_no_other_subscriber,
        a_full_dropping_target_gets_the_message,
        a_full_blocking_target_is_waited_for,
        a_full_evicting_target_is_evicted,
        a_lost_addressed_message_is_counted_for_its_target_only,
        messages_for_others_are_no_loss,
        passing_messages_for_others_frees_their_room,
    ],
);

fn every_subscriber_receives_every_message(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create_sized(broadcast(), 1 << 16)?;
    let subscribers: Vec<OwnedFd> = [DROP, BLOCK, EVICT, DROP, BLOCK, EVICT]
        .into_iter()
        .map(|policy| buses.subscribe(with_policy(policy)))
        .collect::<Result<_>>()?;
    send_numbered(&sender, 0, 50, 100)?;
    let expected: Vec<_> = (0..50).map(|number| content(number, 100)).collect();
    for end in &subscribers {
        expect("the lag", state(end)?.own_lag, 50)?;
        expect("the messages", drain(end)? == expected, true)?;
        expect("the lag afterwards", state(end)?.own_lag, 0)?;
    }
    let seen = state(&sender)?;
    let counts = (
        seen.sent,
        seen.unsubscribed,
        seen.lost,
        seen.evicted,
        seen.lag,
    );
    expect("the counts", counts, (50, 0, 0, 0, 0))
}

fn messages_of_all_senders_are_in_one_order(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let first = buses.create(broadcast())?;
    let senders = [first, buses.sender()?, buses.sender()?];
    let ids: Vec<u64> = senders.iter().map(id).collect::<Result<_>>()?;
    let subscribers = [
        buses.subscribe(framed(BLOCK))?,
        buses.subscribe(framed(DROP))?,
    ];
    let order = [2, 0, 1, 1, 0, 2, 2, 0, 1];
    for (number, from) in order.into_iter().enumerate() {
        send(&senders[from], &content(number as u64, 20)).context("sending")?;
    }
    for end in &subscribers {
        let received = drain_framed(end)?;
        expect("messages", received.len(), order.len())?;
        for (number, message) in received.iter().enumerate() {
            let frame = message.frame;
            expect("sequence", frame.sequence, number as u64)?;
            expect("sender", frame.sender, ids[order[number]])?;
            expect_bytes("bytes", &message.bytes, &content(number as u64, 20))?;
        }
    }
    Ok(())
}

fn a_sender_that_subscribes_receives_its_own_messages(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let both = buses
        .open(BOTH, Params::default())
        .context("opening both")?;
    send(&both, b"own").context("sending")?;
    send(&sender, b"other").context("sending")?;
    let expected = vec![b"own".to_vec(), b"other".to_vec()];
    expect("what it receives", drain(&both)?, expected)
}

fn messages_keep_their_boundaries(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(Params::default())?;
    let lengths = [1, 63, 64, 65, 127, 128, 200, 7];
    for (number, length) in lengths.into_iter().enumerate() {
        send(&sender, &content(number as u64, length)).context("sending")?;
    }
    for (number, length) in lengths.into_iter().enumerate() {
        let bytes = receive(&subscriber).context("receiving")?;
        expect_bytes(
            &format!("message {number}"),
            &bytes,
            &content(number as u64, length),
        )?;
    }
    expect("one more", receive(&subscriber), Err(Errno::EAGAIN))
}

fn a_message_may_be_empty(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(Params::default())?;
    let frames = buses.subscribe(framed(DROP))?;
    for bytes in [&b""[..], b"x", b"", b""] {
        send(&sender, bytes).context("sending")?;
    }
    expect("events", poll::state(&subscriber)?, "IN".to_owned())?;
    expect("its length", next_length(&subscriber), Ok(0))?;
    // A buffer of no bytes is large enough.
    expect("the first", read_some(&subscriber, 0), Ok(vec![]))?;
    let expected = vec![b"x".to_vec(), vec![], vec![]];
    expect("the others", drain(&subscriber)?, expected)?;
    let lengths: Vec<_> = drain_framed(&frames)?
        .iter()
        .map(|m| m.frame.length)
        .collect();
    expect("the lengths", lengths, vec![0, 1, 0, 0])
}

fn the_largest_message_passes_and_one_byte_more_is_emsgsize(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let to_nobody = send(&sender, &[0; LARGEST + 1]);
    expect("to nobody", to_nobody, Err(Errno::EMSGSIZE))?;
    let subscriber = buses.subscribe(Params::default())?;
    expect("as documented", state(&sender)?.message_max, LARGEST as u64)?;
    for round in 0..10 {
        let bytes = content(round, LARGEST);
        expect("the largest", send(&sender, &bytes), Ok(()))?;
        let more = send(&sender, &content(round, LARGEST + 1));
        expect("one byte more", more, Err(Errno::EMSGSIZE))?;
        let seen = receive(&subscriber).context("receiving")?;
        expect_bytes("the message", &seen, &bytes)?;
    }
    let framer = buses.framed_sender()?;
    expect("framed", send_to(&framer, 0, &[1; LARGEST]), Ok(()))?;
    let more = send_to(&framer, 0, &[1; LARGEST + 1]);
    expect("one byte more", more, Err(Errno::EMSGSIZE))?;
    expect("what was sent", state(&sender)?.sent, 11)
}

fn the_largest_message_of_a_large_bus_passes(_: &Context) -> Result<()> {
    let limit = longest();
    let buses = Buses::new()?;
    let sender = buses.create_sized(broadcast(), 4 << 20)?;
    let subscribers = [
        buses.subscribe(with_policy(BLOCK))?,
        buses.subscribe(with_policy(DROP))?,
    ];
    for round in 0..9 {
        let bytes = content(round, limit);
        send(&sender, &bytes).context("sending")?;
        for end in &subscribers {
            let seen = read_some(end, limit).context("receiving")?;
            expect_bytes("the message", &seen, &bytes)?;
        }
    }
    let more = send(&sender, &vec![0; limit + 1]);
    expect("one byte more", more, Err(Errno::EMSGSIZE))
}

fn a_message_longer_than_the_buffer_stays(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(Params::default())?;
    let frames = buses.subscribe(framed(DROP))?;
    let bytes = content(1, 1000);
    send(&sender, &bytes).context("sending")?;
    for limit in [0, 1, 999] {
        let seen = read_some(&subscriber, limit);
        expect(&format!("into {limit} bytes"), seen, Err(Errno::EMSGSIZE))?;
    }
    for limit in [0, 63, 64, 1063] {
        let seen = read_some(&frames, limit);
        expect(
            &format!("a frame into {limit} bytes"),
            seen,
            Err(Errno::EMSGSIZE),
        )?;
    }
    expect("the lag", state(&subscriber)?.own_lag, 1)?;
    let seen = read_some(&subscriber, 1000).context("into as many")?;
    expect_bytes("the message", &seen, &bytes)?;
    let seen = read_some(&frames, 1064).context("with its frame")?;
    expect_bytes("the message", &seen[64..], &bytes)?;
    expect("again", receive(&subscriber), Err(Errno::EAGAIN))
}

fn a_message_may_be_sent_and_received_in_pieces(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(Params::default())?;
    let bytes = content(1, 900);
    let pieces = [&bytes[..1], &bytes[1..1], &bytes[1..500], &bytes[500..]].map(IoSlice::new);
    expect("writev", writev(&sender, &pieces), Ok(900))?;
    let mut parts = [vec![0; 7], vec![0; 0], vec![0; 600], vec![0; 400]];
    let mut slices: Vec<_> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
    expect("readv", readv(&subscriber, &mut slices), Ok(900))?;
    let seen = parts.concat();
    expect_bytes("the message", &seen[..900], &bytes)?;
    expect("after it", &seen[900..], &[0; 107][..])
}

fn fionread_is_the_length_of_the_next_message(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(Params::default())?;
    expect("of none", next_length(&subscriber), Ok(0))?;
    for length in [300, 0, 1, LARGEST] {
        send(&sender, &content(1, length)).context("sending")?;
    }
    for length in [300, 0, 1, LARGEST] {
        for _ in 0..2 {
            expect("the length", next_length(&subscriber), Ok(length))?;
        }
        receive(&subscriber).context("receiving")?;
    }
    expect("afterwards", next_length(&subscriber), Ok(0))
}

fn a_subscriber_starts_at_the_head(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let early = buses.subscribe(framed(BLOCK))?;
    send_numbered(&sender, 0, 3, 10)?;
    let late = buses.subscribe(framed(BLOCK))?;
    expect("its lag", state(&late)?.own_lag, 0)?;
    expect("an earlier message", receive_framed(&late)?, None)?;
    send_numbered(&sender, 3, 2, 10)?;
    for (end, sequences) in [(&late, vec![3, 4]), (&early, vec![0, 1, 2, 3, 4])] {
        let frames: Vec<_> = drain_framed(end)?.iter().map(|m| m.frame).collect();
        let seen: Vec<u64> = frames.iter().map(|frame| frame.sequence).collect();
        expect("the sequences", seen, sequences)?;
        ensure!(
            frames.iter().all(|frame| frame.lost == 0),
            "something was lost"
        );
    }
    Ok(())
}

fn a_message_to_nobody_is_counted(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    for _ in 0..3 * MESSAGES {
        expect("sending", send(&sender, &[1; LARGEST]), Ok(()))?;
    }
    let seen = state(&sender)?;
    let counts = (seen.sent, seen.unsubscribed, seen.lost);
    expect("the counts", counts, (0, 3 * MESSAGES as u64, 0))?;
    let subscriber = buses.subscribe(framed(DROP))?;
    send(&sender, b"first").context("sending")?;
    expect(
        "its sequence",
        receive_present(&subscriber)?.frame.sequence,
        0,
    )?;
    drop(subscriber);
    send(&sender, b"to nobody").context("sending")?;
    expect(
        "the count",
        state(&sender)?.unsubscribed,
        3 * MESSAGES as u64 + 1,
    )
}

/// Keeps up to `held` messages of random lengths in the bus, so that they begin and end everywhere in the ring.
fn messages_of_every_length_wrap_around_intact(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for capacity in [CAPACITY, 4 * CAPACITY] {
        let sender = buses.create_sized(broadcast(), capacity)?;
        let subscriber = buses.subscribe(with_policy(BLOCK))?;
        let largest = state(&sender)?.message_max as usize;
        let mut random = Rng::with_seed(capacity as u64);
        let mut held: VecDeque<(u64, usize)> = VecDeque::new();
        let lengths = (0..=largest).chain((0..2000).map(|_| random.usize(0..=largest)));
        for (number, length) in (0..).zip(lengths) {
            while send(&sender, &content(number, length)) == Err(Errno::EAGAIN) {
                let (oldest, length) = held.pop_front().context("an empty bus is full")?;
                let bytes = receive(&subscriber).context("receiving")?;
                expect_bytes(
                    &format!("message {oldest}"),
                    &bytes,
                    &content(oldest, length),
                )?;
            }
            held.push_back((number, length));
        }
        expect("what is left", drain(&subscriber)?.len(), held.len())?;
    }
    Ok(())
}

fn an_empty_bus_holds_one_message_per_256_bytes(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for length in [0, 1, 64, 192, 256] {
        let sender = buses.create(broadcast())?;
        let _stalled = buses.subscribe(with_policy(BLOCK))?;
        let sent = fill(&sender, length)?;
        expect(
            &format!("messages of {length} bytes"),
            sent,
            MESSAGES as u64,
        )?;
    }
    Ok(())
}

fn each_message_uses_a_multiple_of_64_bytes(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for (length, bytes) in [
        (257, 320),
        (320, 320),
        (321, 384),
        (1024, 1024),
        (LARGEST, 1984),
    ] {
        let sender = buses.create(broadcast())?;
        let _stalled = buses.subscribe(with_policy(BLOCK))?;
        let sent = fill(&sender, length)?;
        let fitting = (CAPACITY / bytes) as u64;
        expect(&format!("messages of {length} bytes"), sent, fitting)?;
        let (channel, _) = buses.info().context("asking by name")?;
        expect("bytes in the bus", channel.bytes, sent * bytes as u64)?;
    }
    Ok(())
}

fn an_endpoint_that_is_not_mapped_cannot_map(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(crate::support::bus::mappable())?;
    let subscriber = buses.subscribe(with_policy(BLOCK))?;
    let offset = crate::support::bus::MMAP_DATA;
    let mapped = Region::map(&subscriber, offset, 2 * CAPACITY, READ_ONLY);
    expect("mapping", mapped.map(drop), Err(Errno::EACCES))
}

fn a_stalled_blocking_subscriber_holds_senders(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let stalled = buses.subscribe(with_policy(BLOCK))?;
    let others = [
        buses.subscribe(with_policy(DROP))?,
        buses.subscribe(with_policy(EVICT))?,
    ];
    let sent = fill(&sender, 100)?;
    for end in &others {
        expect("what others receive", drain(end)?.len() as u64, sent)?;
    }
    let full = send(&sender, b"more");
    expect("while it holds all", full, Err(Errno::EAGAIN))?;
    expect("its first", receive(&stalled), Ok(content(0, 100)))?;
    expect("with room for one", send(&sender, b"more"), Ok(()))?;
    expect(
        "while it is full",
        send(&sender, b"more"),
        Err(Errno::EAGAIN),
    )?;
    let rest = drain(&stalled)?;
    expect("the rest", rest.len() as u64, sent)?;
    let seen = state(&sender)?;
    expect("lost and evicted", (seen.lost, seen.evicted), (0, 0))
}

fn a_closed_blocking_subscriber_releases_senders(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let stalled = buses.subscribe(with_policy(BLOCK))?;
    let other = buses.subscribe(with_policy(DROP))?;
    fill(&sender, 100)?;
    drop(stalled);
    expect("sending", send(&sender, b"more"), Ok(()))?;
    expect(
        "the last message",
        drain(&other)?.pop(),
        Some(b"more".to_vec()),
    )
}

/// Sends `count` messages and checks that the framed subscriber receives the last ones, and is told how many it lost.
fn expect_newest(sender: &OwnedFd, subscriber: &OwnedFd, count: u64, length: usize) -> Result<()> {
    let first = state(sender)?.sent;
    let lost_before = state(subscriber)?.own_lost;
    send_numbered(sender, first, count, length)?;
    let received = drain_framed(subscriber)?;
    let lost = received.first().context("nothing was received")?.frame.lost;
    expect("received and lost", received.len() as u64 + lost, count)?;
    for (number, message) in (first + lost..).zip(&received) {
        expect("the sequence", message.frame.sequence, number)?;
        expect_bytes("the bytes", &message.bytes, &content(number, length))?;
    }
    ensure!(
        received[1..].iter().all(|message| message.frame.lost == 0),
        "a loss is reported twice"
    );
    let own_lost = state(subscriber)?.own_lost;
    expect("the count of the subscriber", own_lost, lost_before + lost)?;
    // At most a sixteenth of the ring is freed in advance.
    let per_message = length.next_multiple_of(64).max(256);
    let kept = (CAPACITY - CAPACITY / 16) / per_message;
    ensure!(
        count < kept as u64 || received.len() + 1 >= kept,
        "only {} of {count} messages were kept",
        received.len()
    );
    Ok(())
}

fn a_stalled_dropping_subscriber_loses_the_oldest_messages(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for length in [0, 10, 64, 300, 1000, LARGEST] {
        let sender = buses.create(broadcast())?;
        let subscriber = buses.subscribe(framed(DROP))?;
        for count in [1, 2, 15, 16, 17, 18, 40, 100, 1000] {
            expect_newest(&sender, &subscriber, count, length)
                .with_context(|| format!("{count} messages of {length} bytes"))?;
        }
        let (all, own) = (state(&sender)?.lost, state(&subscriber)?.own_lost);
        expect("the count of the bus", all, own)?;
    }
    Ok(())
}

fn a_stalled_dropping_subscriber_delays_nobody(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let stalled = buses.subscribe(framed(DROP))?;
    let other = buses.subscribe(framed(BLOCK))?;
    for number in 0..500 {
        expect("events", poll::state(&sender)?, "OUT".to_owned())?;
        send(&sender, &content(number, 100)).context("sending")?;
        let message = receive_present(&other)?;
        expect("the sequence", message.frame.sequence, number)?;
        expect("the loss", message.frame.lost, 0)?;
    }
    let lost = state(&stalled)?.own_lost;
    expect("the rest", drain_framed(&stalled)?.len() as u64 + lost, 500)?;
    expect("lost by the other", state(&other)?.own_lost, 0)
}

fn each_loss_is_reported_once(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(framed(DROP))?;
    let (mut received, mut lost) = (0, 0);
    let mut next = 0;
    let mut random = Rng::with_seed(1);
    for _ in 0..300 {
        let count = random.u64(0..30);
        send_numbered(&sender, state(&sender)?.sent, count, 50)?;
        for _ in 0..random.u64(0..20) {
            let Some(message) = receive_framed(&subscriber)? else {
                break;
            };
            next += message.frame.lost;
            expect("the sequence", message.frame.sequence, next)?;
            next += 1;
            received += 1;
            lost += message.frame.lost;
        }
        let seen = state(&subscriber)?;
        let all = received + seen.own_lost + seen.own_lag;
        expect("received, lost and to come", all, seen.sent)?;
    }
    ensure!(lost > 0, "nothing was lost");
    for message in drain_framed(&subscriber)? {
        received += 1;
        lost += message.frame.lost;
    }
    let seen = state(&subscriber)?;
    expect("the count", seen.own_lost, lost)?;
    expect("received and lost", received + lost, seen.sent)
}

fn a_loss_is_not_reported_to_a_raw_subscriber_but_counted(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(with_policy(DROP))?;
    send_numbered(&sender, 0, 100, 10)?;
    let received = drain(&subscriber)?;
    let own_lost = state(&subscriber)?.own_lost;
    expect("received and lost", received.len() as u64 + own_lost, 100)?;
    expect_bytes("the first", &received[0], &content(own_lost, 10))?;
    expect_bytes("the last", &received[received.len() - 1], &content(99, 10))?;
    // Frames report it when they are used later.
    crate::support::bus::set_format(&subscriber, crate::support::bus::FRAMED)?;
    send(&sender, b"more").context("sending")?;
    expect(
        "the loss",
        receive_present(&subscriber)?.frame.lost,
        own_lost,
    )
}

/// Sends until the subscriber is evicted, and returns the number of messages.
fn evict(sender: &OwnedFd, subscriber: &OwnedFd) -> Result<u64> {
    for number in 0..1000 {
        if poll::state(subscriber)?.contains("HUP") {
            return Ok(number);
        }
        send(sender, &content(number, 100)).context("sending")?;
    }
    anyhow::bail!("it was not evicted");
}

fn a_stalled_subscriber_is_evicted(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(with_policy(EVICT))?;
    send_numbered(&sender, 0, MESSAGES as u64, 100)?;
    expect("at the limit", poll::state(&subscriber)?, "IN".to_owned())?;
    expect("one more", send(&sender, b"more"), Ok(()))?;
    expect("events", poll::state(&subscriber)?, "HUP".to_owned())?;
    for _ in 0..2 {
        expect("receiving", receive(&subscriber), Err(Errno::ESHUTDOWN))?;
        expect(
            "the length",
            next_length(&subscriber),
            Err(Errno::ESHUTDOWN),
        )?;
    }
    let seen = state(&sender)?;
    expect(
        "subscribers and evicted",
        (seen.subscribers, seen.evicted),
        (0, 1),
    )?;
    expect("its lag", state(&subscriber)?.own_lag, 0)
}

fn an_evicted_subscriber_leaves_the_bus(_: &Context) -> Result<()> {
    let _limit = crate::support::parameter::Parameter::set("bus_max_subscribers", 2)?;
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let evicted = buses.subscribe(with_policy(EVICT))?;
    let other = buses.subscribe(with_policy(DROP))?;
    evict(&sender, &evicted)?;
    drain(&other)?;
    let third = buses.subscribe(with_policy(DROP)).context("in its place")?;
    let framer = buses.framed_sender()?;
    let addressed = send_to(&framer, id(&evicted)?, b"x");
    expect("addressed to it", addressed, Err(Errno::ENOENT))?;
    // Its close removes no other subscriber.
    drop(evicted);
    expect("subscribers", state(&sender)?.subscribers, 2)?;
    send(&sender, b"on").context("sending")?;
    for end in [&other, &third] {
        expect("the message", receive(end), Ok(b"on".to_vec()))?;
    }
    Ok(())
}

fn an_evicted_subscriber_can_subscribe_again(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    for round in 1..=20 {
        let subscriber = buses.subscribe(with_policy(EVICT))?;
        send(&sender, b"first").context("sending")?;
        expect("the first", receive(&subscriber), Ok(b"first".to_vec()))?;
        evict(&sender, &subscriber)?;
        expect("evicted", state(&sender)?.evicted, round)?;
    }
    Ok(())
}

fn policies_apply_to_each_subscriber(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let dropping = buses.subscribe(framed(DROP))?;
    let evicted = buses.subscribe(with_policy(EVICT))?;
    let blocking = buses.subscribe(framed(BLOCK))?;
    let late = buses.subscribe(framed(DROP))?;
    let sent = 200;
    let mut received = 0;
    for number in 0..sent {
        if send(&sender, &content(number, 100)) == Err(Errno::EAGAIN) {
            received += drain_framed(&blocking)?.len() as u64;
            send(&sender, &content(number, 100)).context("after it has received")?;
        }
    }
    received += drain_framed(&blocking)?.len() as u64;
    expect("received by the blocking one", received, sent)?;
    for end in [&dropping, &late] {
        let own_lost = state(end)?.own_lost;
        ensure!(own_lost > 0, "it lost nothing");
        let kept = drain_framed(end)?.len() as u64;
        expect("received and lost", kept + own_lost, sent)?;
    }
    expect("the third", receive(&evicted), Err(Errno::ESHUTDOWN))?;
    expect("lost by the blocking one", state(&blocking)?.own_lost, 0)
}

/// No message is lost as long as that makes no room.
fn a_blocking_subscriber_saves_the_messages_of_a_dropping_one(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let dropping = buses.subscribe(framed(DROP))?;
    let evicting = buses.subscribe(framed(EVICT))?;
    let _blocking = buses.subscribe(framed(BLOCK))?;
    let sent = fill(&sender, 100)?;
    for _ in 0..10 {
        expect("sending", send(&sender, b"more"), Err(Errno::EAGAIN))?;
    }
    for end in [&dropping, &evicting] {
        expect("received", drain_framed(end)?.len() as u64, sent)?;
        expect("lost", state(end)?.own_lost, 0)?;
    }
    Ok(())
}

/// A bus, a sender of frames, and two framed subscribers with this policy.
fn addressed(policy: u32) -> Result<(Buses, OwnedFd, [OwnedFd; 2])> {
    let buses = Buses::new()?;
    let creator = buses.create(broadcast())?;
    let sender = buses.framed_sender()?;
    drop(creator);
    let subscribers = [
        buses.subscribe(framed(policy))?,
        buses.subscribe(framed(policy))?,
    ];
    Ok((buses, sender, subscribers))
}

fn an_addressed_message_reaches_its_target_only(_: &Context) -> Result<()> {
    for policy in [DROP, BLOCK, EVICT] {
        let (_buses, sender, subscribers) = addressed(policy)?;
        for end in &subscribers {
            let target = id(end)?;
            send_to(&sender, target, b"for one").context("sending")?;
            let message = receive_present(end)?;
            expect("its target", message.frame.target, target)?;
            expect_bytes("its bytes", &message.bytes, b"for one")?;
            for end in &subscribers {
                expect("what else there is", receive_framed(end)?, None)?;
            }
        }
    }
    Ok(())
}

fn an_addressed_message_keeps_its_place(_: &Context) -> Result<()> {
    let (_buses, sender, subscribers) = addressed(DROP)?;
    let [first, second] = [id(&subscribers[0])?, id(&subscribers[1])?];
    for target in [0, first, second, 0, second, second, 0] {
        send_to(&sender, target, b"x").context("sending")?;
    }
    for (end, sequences) in subscribers
        .iter()
        .zip([vec![0, 1, 3, 6], vec![0, 2, 3, 4, 5, 6]])
    {
        let received = drain_framed(end)?;
        let seen: Vec<u64> = received.iter().map(|m| m.frame.sequence).collect();
        expect("the sequences", seen, sequences)?;
        ensure!(
            received.iter().all(|m| m.frame.lost == 0),
            "a loss is reported"
        );
    }
    Ok(())
}

fn an_addressed_message_to_an_unknown_id_is_enoent(_: &Context) -> Result<()> {
    let (buses, sender, subscribers) = addressed(DROP)?;
    let [first, second] = [id(&subscribers[0])?, id(&subscribers[1])?];
    let own = id(&sender)?;
    for target in [own, second + 1, u64::MAX] {
        let seen = send_to(&sender, target, b"x");
        expect(&format!("to {target}"), seen, Err(Errno::ENOENT))?;
    }
    let [closed, other] = subscribers;
    drop(closed);
    expect(
        "to a closed one",
        send_to(&sender, first, b"x"),
        Err(Errno::ENOENT),
    )?;
    expect("to the other", send_to(&sender, second, b"x"), Ok(()))?;
    expect("sent", buses.info().map(|(_, i)| i.sent), Ok(1))?;
    expect("received", drain_framed(&other)?.len(), 1)
}

fn an_addressed_message_needs_no_other_subscriber(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _creator = buses.create(broadcast())?;
    let sender = buses.framed_sender()?;
    expect("to nobody", send_to(&sender, 1, b"x"), Err(Errno::ENOENT))?;
    expect("unsubscribed", state(&sender)?.unsubscribed, 0)?;
    let only = buses.subscribe(framed(DROP))?;
    expect(
        "to the only one",
        send_to(&sender, id(&only)?, b"x"),
        Ok(()),
    )?;
    expect("received", drain_framed(&only)?.len(), 1)
}

fn a_full_dropping_target_gets_the_message(_: &Context) -> Result<()> {
    let (_buses, sender, [target, other]) = addressed(DROP)?;
    let to = id(&target)?;
    for number in 0..200 {
        send_to(&sender, to, &content(number, 100)).context("sending")?;
    }
    let received = drain_framed(&target)?;
    let own_lost = state(&target)?.own_lost;
    expect("received and lost", received.len() as u64 + own_lost, 200)?;
    let last = received.last().context("nothing was received")?;
    expect_bytes("the last", &last.bytes, &content(199, 100))?;
    expect("received by the other", drain_framed(&other)?.len(), 0)?;
    expect("lost by the other", state(&other)?.own_lost, 0)
}

/// Sends addressed messages until it is full, and returns their number.
fn fill_target(sender: &OwnedFd, target: u64, length: usize) -> Result<(u64, Errno)> {
    for number in 0..1000 {
        if let Err(errno) = send_to(sender, target, &content(number, length)) {
            return Ok((number, errno));
        }
    }
    anyhow::bail!("it is never full")
}

fn a_full_blocking_target_is_waited_for(_: &Context) -> Result<()> {
    let (buses, sender, [target, other]) = addressed(BLOCK)?;
    let limited = Params {
        limit: 900,
        ..framed(BLOCK)
    };
    let limited = buses.subscribe(limited)?;
    // It is full when it holds more than the limit.
    let seen = fill_target(&sender, id(&limited)?, 300)?;
    expect("by its limit", seen, (4, Errno::EAGAIN))?;
    expect("its first", receive_framed(&limited)?.is_some(), true)?;
    expect("one more", send_to(&sender, id(&limited)?, b"x"), Ok(()))?;
    for end in [&target, &other, &limited] {
        drain_framed(end)?;
    }
    let seen = fill_target(&sender, id(&target)?, 500)?;
    expect("by half of the capacity", seen, (5, Errno::EAGAIN))?;
    // Messages to all do not wait for it.
    expect("to all", send_to(&sender, 0, b"x"), Ok(()))?;
    expect("to the other", send_to(&sender, id(&other)?, b"x"), Ok(()))?;
    expect("received", drain_framed(&target)?.len(), 6)?;
    expect("the other", drain_framed(&other)?.len(), 2)
}

fn a_full_evicting_target_is_evicted(_: &Context) -> Result<()> {
    let (_buses, sender, [target, other]) = addressed(EVICT)?;
    let seen = fill_target(&sender, id(&target)?, 500)?;
    expect("the sends", seen, (5, Errno::ENOENT))?;
    expect("the target", receive(&target), Err(Errno::ESHUTDOWN))?;
    expect("events", poll::state(&target)?, "HUP".to_owned())?;
    expect("the other", poll::state(&other)?, "nothing".to_owned())?;
    let seen = state(&sender)?;
    expect(
        "subscribers and evicted",
        (seen.subscribers, seen.evicted),
        (1, 1),
    )?;
    // What was addressed to it is lost.
    expect("lost", seen.lost, 5)
}

fn a_lost_addressed_message_is_counted_for_its_target_only(_: &Context) -> Result<()> {
    let (_buses, sender, subscribers) = addressed(DROP)?;
    let targets = [0, id(&subscribers[0])?, id(&subscribers[1])?];
    let mut random = Rng::with_seed(3);
    let mut sent = [0; 3];
    for number in 0..300 {
        let to = random.usize(0..3);
        send_to(&sender, targets[to], &content(number, 50)).context("sending")?;
        sent[to] += 1;
    }
    for (index, end) in subscribers.iter().enumerate() {
        let received = drain_framed(end)?;
        let reported: u64 = received.iter().map(|m| m.frame.lost).sum();
        expect("reported and counted", reported, state(end)?.own_lost)?;
        let all = received.len() as u64 + reported;
        expect("received and lost", all, sent[0] + sent[index + 1])?;
    }
    let lost: Vec<u64> = subscribers
        .iter()
        .map(|end| state(end).map(|seen| seen.own_lost))
        .collect::<Result<_>>()?;
    expect("lost by all", state(&sender)?.lost, lost.iter().sum())
}

fn messages_for_others_are_no_loss(_: &Context) -> Result<()> {
    let (_buses, sender, [target, other]) = addressed(DROP)?;
    let to = id(&target)?;
    for _ in 0..300 {
        send_to(&sender, to, b"x").context("sending")?;
        expect("received", receive_framed(&target)?.is_some(), true)?;
    }
    expect("lost by the other", state(&other)?.own_lost, 0)?;
    expect("lost", state(&sender)?.lost, 0)?;
    send_to(&sender, 0, b"to all").context("sending")?;
    expect("reported", receive_present(&other)?.frame.lost, 0)
}

fn passing_messages_for_others_frees_their_room(_: &Context) -> Result<()> {
    let (buses, sender, [other, _]) = addressed(BLOCK)?;
    let target = buses.subscribe(never_full())?;
    let to = id(&target)?;
    for _ in 0..MESSAGES {
        send_to(&sender, to, b"x").context("sending")?;
    }
    expect("the target's", drain_framed(&target)?.len(), MESSAGES)?;
    expect("the other's", receive_framed(&other)?, None)?;
    for _ in 0..MESSAGES {
        expect("sending", send_to(&sender, to, b"x"), Ok(()))?;
    }
    expect("events", poll::state(&sender)?, "nothing".to_owned())?;
    drain_framed(&target)?;
    expect(
        "the other's events",
        poll::state(&other)?,
        "nothing".to_owned(),
    )?;
    expect("afterwards", poll::state(&sender)?, "OUT".to_owned())?;
    Ok(())
}
