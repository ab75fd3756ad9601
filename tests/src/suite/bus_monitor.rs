// SPDX-License-Identifier: MIT OR Apache-2.0
//! Monitors: subscribers of the administrator that see all messages and delay none.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::bus::{
    BLOCK, Buses, DROP, EVICT, FRAMED, MAPPED, MONITOR, Params, broadcast, content, drain_framed,
    framed, id, list, multicast, receive, receive_framed, receive_present, request, send,
    send_numbered, send_to, state, unicast, with_policy,
};
use crate::support::channel::set_blocking;
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn_keeping;
use crate::support::credentials::{become_user, become_user_namespace_root, drop_capabilities};
use crate::support::ctl::{BOTH, CREATE, Open, READ, WRITE};
use crate::support::parameter::Parameter;
use crate::support::poll;
use crate::support::proc::Call;

topic!(
    "bus_monitor",
    fifo: [],
    pipe_only: [
        a_monitor_needs_the_capability_in_the_initial_namespace,
        invalid_monitors_are_refused,
        a_monitor_needs_no_permitted_policy,
        a_monitor_sees_messages_to_all,
        a_monitor_sees_addressed_messages,
        a_monitor_sees_the_messages_of_every_subscriber_of_a_multicast_bus,
        a_monitor_takes_no_message_of_a_queue,
        a_monitor_starts_at_the_head,
        a_stalled_monitor_delays_nobody,
        a_stalled_monitor_learns_what_it_lost,
        the_losses_of_a_monitor_are_not_those_of_the_bus,
        a_monitor_is_no_subscriber,
        a_monitor_takes_no_turn,
        a_monitor_is_no_target,
        a_message_with_only_a_monitor_is_not_unsubscribed,
        a_sleeping_monitor_takes_no_wake_up_of_a_receiver,
        a_polling_monitor_takes_no_wake_up_of_a_receiver,
        the_limit_of_monitors_is_eusers,
        a_monitor_is_listed_as_such,
    ],
);

const PARAMS: Params = Params {
    size: size_of::<Params>() as u32,
    flags: MONITOR,
    mode: 0,
    policies: 0,
    policy: 0,
    format: FRAMED,
    limit: 0,
};

fn monitor(buses: &Buses) -> Result<OwnedFd> {
    buses.subscribe(PARAMS)
}

/// The parameters of a subscriber of each mode.
fn modes() -> [(Params, u32); 3] {
    [(broadcast(), BLOCK), (multicast(), BLOCK), (unicast(), 0)]
}

fn a_monitor_needs_the_capability_in_the_initial_namespace(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let created = buses.0.open(Open {
        mode: 0o666,
        ..request(WRITE | CREATE, &broadcast())
    });
    let _sender = created.context("creating a bus")?;
    type Becoming = fn() -> Result<()>;
    let others: [(&str, Becoming); 3] = [
        ("a user", || become_user(1001)),
        ("root without capabilities", drop_capabilities),
        ("root of a user namespace", || {
            become_user_namespace_root(1001)
        }),
    ];
    for (what, become_other) in others {
        let child = spawn_keeping(what, &[buses.0.as_fd()], || {
            become_other()?;
            let open = |params| buses.open(READ, params).map(drop).map_err(|e| e as i32);
            Ok((open(PARAMS), open(framed(DROP))))
        })?;
        let expected = (Err(Errno::EPERM as i32), Ok(()));
        expect(what, child.finish()?, expected)?;
    }
    monitor(&buses).map(drop).context("the administrator")
}

fn invalid_monitors_are_refused(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for (params, _) in modes() {
        let _sender = buses.create(params)?;
        for (what, flags, params) in [
            (
                "with the policy BLOCK",
                READ,
                Params {
                    policy: BLOCK,
                    ..PARAMS
                },
            ),
            (
                "with the policy EVICT",
                READ,
                Params {
                    policy: EVICT,
                    ..PARAMS
                },
            ),
            (
                "mapped",
                READ,
                Params {
                    flags: MONITOR | MAPPED,
                    ..PARAMS
                },
            ),
            ("without receiving", WRITE, PARAMS),
        ] {
            let opened = buses.open(flags, params).map(drop);
            expect(what, opened, Err(Errno::EINVAL))?;
        }
    }
    Ok(())
}

fn a_monitor_needs_no_permitted_policy(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(Params {
        policies: BLOCK,
        ..Params::default()
    })?;
    let refused = buses.open(READ, with_policy(DROP)).map(drop);
    expect("a subscriber that drops", refused, Err(Errno::EPERM))?;
    let end = monitor(&buses)?;
    let seen = state(&end)?;
    expect(
        "policy and flags",
        (seen.policy, seen.flags),
        (DROP, MONITOR),
    )
}

fn a_monitor_sees_messages_to_all(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(framed(BLOCK))?;
    let end = monitor(&buses)?;
    send_numbered(&sender, 0, 10, 50)?;
    let (seen, received) = (drain_framed(&end)?, drain_framed(&subscriber)?);
    expect("what it sees", seen.len(), 10)?;
    expect("what it sees", seen, received)
}

fn a_monitor_sees_addressed_messages(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(broadcast())?;
    let framer = buses.framed_sender()?;
    let ends = [
        buses.subscribe(framed(DROP))?,
        buses.subscribe(framed(DROP))?,
    ];
    let seeing = monitor(&buses)?;
    let ids = [id(&ends[0])?, id(&ends[1])?];
    let targets = [ids[0], 0, ids[1], ids[1], ids[0]];
    for target in targets {
        send_to(&framer, target, b"x").context("sending")?;
    }
    let seen: Vec<u64> = drain_framed(&seeing)?
        .iter()
        .map(|m| m.frame.target)
        .collect();
    expect("the targets", seen, targets.to_vec())?;
    expect("those of the first", drain_framed(&ends[0])?.len(), 3)
}

fn a_monitor_sees_the_messages_of_every_subscriber_of_a_multicast_bus(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let ends = [
        buses.subscribe(framed(DROP))?,
        buses.subscribe(framed(DROP))?,
    ];
    let seeing = monitor(&buses)?;
    send_numbered(&sender, 0, 10, 50)?;
    let mut received = [drain_framed(&ends[0])?, drain_framed(&ends[1])?].concat();
    received.sort_by_key(|message| message.frame.sequence);
    expect("received", received.len(), 10)?;
    expect("what it sees", drain_framed(&seeing)?, received)
}

fn a_monitor_takes_no_message_of_a_queue(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(unicast())?;
    let seeing = monitor(&buses)?;
    send_numbered(&sender, 0, 5, 50)?;
    expect("what it sees", drain_framed(&seeing)?.len(), 5)?;
    let end = buses.subscribe(framed(0))?;
    expect("the lag of the queue", state(&end)?.own_lag, 5)?;
    expect("received", drain_framed(&end)?.len(), 5)
}

fn a_monitor_starts_at_the_head(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for (params, policy) in modes() {
        let sender = buses.create(params)?;
        let _subscriber = buses.subscribe(with_policy(policy))?;
        send_numbered(&sender, 0, 3, 10)?;
        let seeing = monitor(&buses)?;
        expect("an earlier one", receive_framed(&seeing)?, None)?;
        send(&sender, b"x").context("sending")?;
        let frame = receive_present(&seeing)?.frame;
        expect("its first", (frame.sequence, frame.lost), (3, 0))?;
    }
    Ok(())
}

fn a_stalled_monitor_delays_nobody(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for (params, policy) in modes() {
        let sender = buses.create(params)?;
        let _stalled = monitor(&buses)?;
        let end = buses.subscribe(framed(policy))?;
        for number in 0..200 {
            expect("events", poll::state(&sender)?, "OUT".to_owned())?;
            send(&sender, &content(number, 100)).context("sending")?;
            let message = receive_present(&end)?;
            expect("its loss", message.frame.lost, 0)?;
            expect_bytes("a message", &message.bytes, &content(number, 100))?;
        }
    }
    Ok(())
}

fn a_stalled_monitor_learns_what_it_lost(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for (params, policy) in modes() {
        let sender = buses.create(params)?;
        let seeing = monitor(&buses)?;
        let end = buses.subscribe(with_policy(policy))?;
        let (mut seen, mut lost) = (0, 0);
        for round in 1..=5 {
            for number in 0..100 {
                send(&sender, &content(number, 10)).context("sending")?;
                receive(&end).context("receiving")?;
            }
            for message in drain_framed(&seeing)? {
                seen += 1;
                lost += message.frame.lost;
            }
            expect("seen and lost", seen + lost, round * 100)?;
            expect("the count", state(&seeing)?.own_lost, lost)?;
        }
    }
    Ok(())
}

fn the_losses_of_a_monitor_are_not_those_of_the_bus(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let seeing = monitor(&buses)?;
    let end = buses.subscribe(with_policy(BLOCK))?;
    for number in 0..100 {
        send(&sender, &content(number, 10)).context("sending")?;
        receive(&end).context("receiving")?;
    }
    let seen = state(&seeing)?;
    expect("lost by it", seen.own_lost > 0, true)?;
    expect("lost, and the lag", (seen.lost, seen.lag), (0, 0))
}

fn a_monitor_is_no_subscriber(_: &Context) -> Result<()> {
    let _limit = Parameter::set("bus_max_subscribers", 1)?;
    let buses = Buses::new()?;
    for (params, policy) in modes() {
        let sender = buses.create(params)?;
        let _first = monitor(&buses)?;
        expect("subscribers", state(&sender)?.subscribers, 0)?;
        let _only = buses.subscribe(with_policy(policy))?;
        let _second = monitor(&buses)?;
        expect("subscribers", state(&sender)?.subscribers, 1)?;
    }
    Ok(())
}

fn a_monitor_takes_no_turn(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let _seeing = monitor(&buses)?;
    expect("alone", send(&sender, b"x"), Err(Errno::ENOTCONN))?;
    let ends = [
        buses.subscribe(framed(DROP))?,
        buses.subscribe(framed(DROP))?,
    ];
    for _ in 0..12 {
        send(&sender, b"x").context("sending")?;
    }
    let received = drain_framed(&ends[0])?.len() + drain_framed(&ends[1])?.len();
    expect("received", received, 12)
}

fn a_monitor_is_no_target(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast()] {
        let _sender = buses.create(params)?;
        let framer = buses.framed_sender()?;
        let seeing = monitor(&buses)?;
        let _subscriber = buses.subscribe(framed(DROP))?;
        let sent = send_to(&framer, id(&seeing)?, b"x");
        expect("an addressed message", sent, Err(Errno::ENOENT))?;
    }
    Ok(())
}

fn a_message_with_only_a_monitor_is_not_unsubscribed(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let seeing = monitor(&buses)?;
    send(&sender, b"x").context("sending")?;
    expect("what it sees", drain_framed(&seeing)?.len(), 1)?;
    let seen = state(&sender)?;
    expect(
        "sent and unsubscribed",
        (seen.sent, seen.unsubscribed),
        (1, 0),
    )
}

fn a_sleeping_monitor_takes_no_wake_up_of_a_receiver(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for (params, policy) in modes() {
        for monitor_first in [false, true] {
            let sender = buses.create(params)?;
            let ends = [monitor(&buses)?, buses.subscribe(framed(policy))?];
            let order = if monitor_first { [0, 1] } else { [1, 0] };
            let mut children = Vec::new();
            for index in order {
                let end = &ends[index];
                set_blocking(end)?;
                let child = spawn_keeping("a receiver", &[end.as_fd()], || {
                    Ok(receive_present(end)?.bytes)
                })?;
                child.wait_asleep_in(Call::Read)?;
                children.push(child);
            }
            send(&sender, b"for both").context("sending")?;
            for child in children {
                expect("its message", child.finish()?, b"for both".to_vec())?;
            }
        }
    }
    Ok(())
}

fn a_polling_monitor_takes_no_wake_up_of_a_receiver(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(unicast())?;
    let (seeing, end) = (monitor(&buses)?, buses.subscribe(framed(0))?);
    let polling = spawn_keeping("a monitor", &[seeing.as_fd()], || {
        poll::wait(&seeing, poll::IN, -1).context("poll")
    })?;
    polling.wait_asleep_in(Call::Poll)?;
    set_blocking(&end)?;
    let receiving = spawn_keeping("a receiver", &[end.as_fd()], || {
        Ok(receive_present(&end)?.bytes)
    })?;
    receiving.wait_asleep_in(Call::Read)?;
    send(&sender, b"x").context("sending")?;
    expect("the receiver", receiving.finish()?, b"x".to_vec())?;
    expect(
        "the monitor",
        poll::name(polling.finish()?),
        "IN".to_owned(),
    )
}

fn the_limit_of_monitors_is_eusers(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for (params, policy) in modes() {
        let sender = buses.create(params)?;
        let mut held: Vec<_> = (0..16).map(|_| monitor(&buses)).collect::<Result<_>>()?;
        let more = buses.open(READ, PARAMS).map(drop);
        expect("one more", more, Err(Errno::EUSERS))?;
        let end = buses.subscribe(framed(policy)).context("a subscriber")?;
        send(&sender, b"x").context("sending")?;
        for seeing in &held {
            expect("what it sees", drain_framed(seeing)?.len(), 1)?;
        }
        expect("received", drain_framed(&end)?.len(), 1)?;
        held.pop();
        monitor(&buses).context("in the place of a closed one")?;
    }
    Ok(())
}

fn a_monitor_is_listed_as_such(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for (params, _) in modes() {
        let sender = buses.create(params)?;
        let seeing = buses.open(BOTH, PARAMS).context("opening a monitor")?;
        let listed = list(&sender, 0, 10).context("listing")?;
        expect("listed", listed.len(), 1)?;
        let fields = (listed[0].id, listed[0].flags, listed[0].policy);
        expect(
            "its id, flags and policy",
            fields,
            (id(&seeing)?, MONITOR, DROP),
        )?;
    }
    Ok(())
}
