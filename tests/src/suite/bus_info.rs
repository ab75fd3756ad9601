// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a bus tells about itself: the state of the bus and of an endpoint, the list of its subscribers, and its entry
//! among the channels.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::unistd::{getpid, getuid};

use crate::registry::{Context, topic};
use crate::support::bus::{
    BLOCK, Buses, CAPACITY, DROP, EVICT, INFO, INFO_SIZE_VER0, Info, KIND_BUS, MAPPABLE, MAPPED,
    NAME, Params, SUBSCRIBERS, SUBSCRIBERS_MAX, SUBSCRIBERS_SIZE_VER0, SubscriberInfo, Subscribers,
    broadcast, framed, id, list, mappable, multicast, receive, request, send, send_numbered, state,
    unicast, with_policy,
};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn_keeping;
use crate::support::container::{User, spawn_in_container};
use crate::support::credentials::become_user;
use crate::support::ctl::{BOTH, CREATE, OWN, Open, READ};
use crate::support::ioctl::{raw, size_error};
use crate::support::memory::{Mapping, PAGE};
use crate::support::parameter::Parameter;
use crate::support::requests::bytes_of;

topic!(
    "bus_info",
    fifo: [],
    pipe_only: [
        the_counts_of_endpoints_follow_opens_and_closes,
        the_counts_of_messages_follow_sends,
        the_lag_is_that_of_the_subscriber_furthest_behind,
        the_lag_of_a_multicast_subscriber_counts_its_messages,
        an_info_of_any_size_up_to_a_page_is_filled_as_far_as_known,
        invalid_infos_are_refused,
        the_state_by_name_has_no_endpoint,
        a_bus_is_listed_among_the_channels,
        the_bytes_of_a_bus_are_those_that_are_held,
        subscribers_are_listed_by_id,
        a_list_continues_after_an_id,
        a_list_has_at_most_the_maximum_of_entries,
        a_list_names_the_opener_of_each_subscriber,
        a_list_translates_the_opener,
        a_list_shows_lag_and_loss,
        invalid_lists_are_refused,
        a_queue_is_not_listed,
    ],
);

fn the_counts_of_endpoints_follow_opens_and_closes(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let keeper = buses.create(params)?;
        let counts = || -> Result<_> {
            let (channel, seen) = buses.info().context("asking by name")?;
            let by_endpoint = state(&keeper)?;
            let own = (by_endpoint.subscribers, by_endpoint.senders);
            expect("by endpoint", own, (seen.subscribers, seen.senders))?;
            expect("of the channel", (channel.readers, channel.writers), own)?;
            Ok(own)
        };
        expect("at first", counts()?, (0, 1))?;
        let reader = buses.subscribe(Params::default())?;
        expect("with a subscriber", counts()?, (1, 1))?;
        let both = buses
            .open(BOTH, Params::default())
            .context("opening both")?;
        expect("with one that does both", counts()?, (2, 2))?;
        drop(reader);
        expect("without the first", counts()?, (1, 2))?;
        drop(both);
        expect("without both", counts()?, (0, 1))?;
    }
    Ok(())
}

fn the_counts_of_messages_follow_sends(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let counts = || -> Result<_> {
        let seen = state(&sender)?;
        Ok((seen.sent, seen.unsubscribed, seen.lost, seen.evicted))
    };
    send_numbered(&sender, 0, 3, 10)?;
    expect("to nobody", counts()?, (0, 3, 0, 0))?;
    let subscriber = buses.subscribe(with_policy(DROP))?;
    send_numbered(&sender, 0, 5, 10)?;
    expect("to one", counts()?, (5, 3, 0, 0))?;
    send_numbered(&sender, 5, 95, 10)?;
    let own_lost = state(&subscriber)?.own_lost;
    expect("to a stalled one", counts()?, (100, 3, own_lost, 0))?;
    drop(subscriber);
    expect("after its close", counts()?, (100, 3, own_lost, 0))
}

fn the_lag_is_that_of_the_subscriber_furthest_behind(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let first = buses.subscribe(with_policy(BLOCK))?;
    send_numbered(&sender, 0, 2, 10)?;
    let second = buses.subscribe(with_policy(DROP))?;
    send_numbered(&sender, 2, 3, 10)?;
    let lags = || -> Result<_> {
        Ok((
            state(&sender)?.lag,
            state(&first)?.own_lag,
            state(&second)?.own_lag,
        ))
    };
    expect("the lags", lags()?, (5, 5, 3))?;
    for _ in 0..4 {
        receive(&first).context("receiving")?;
    }
    expect("the lags", lags()?, (3, 1, 3))?;
    drop(second);
    expect("that of the bus", state(&sender)?.lag, 1)
}

fn the_lag_of_a_multicast_subscriber_counts_its_messages(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let ends = [
        buses.subscribe(with_policy(DROP))?,
        buses.subscribe(with_policy(DROP))?,
    ];
    send_numbered(&sender, 0, 10, 10)?;
    expect(
        "the lags",
        (state(&ends[0])?.own_lag, state(&ends[1])?.own_lag),
        (5, 5),
    )?;
    receive(&ends[0]).context("receiving")?;
    expect(
        "the lags",
        (state(&ends[0])?.own_lag, state(&ends[1])?.own_lag),
        (4, 5),
    )?;
    expect("that of the bus", state(&sender)?.lag, 5)
}

fn an_info_of_any_size_up_to_a_page_is_filled_as_far_as_known(_: &Context) -> Result<()> {
    let end = Buses::new()?.create(broadcast())?;
    let known = INFO_SIZE_VER0 as usize;
    for size in [known, known + 1, known + 8, PAGE] {
        let mut page = vec![0xA5; PAGE];
        page[..4].copy_from_slice(&(size as u32).to_ne_bytes());
        raw(&end, INFO, page.as_mut_ptr()).with_context(|| format!("{size} bytes"))?;
        expect_bytes("the state", &page[..known], &bytes_of(&state(&end)?))?;
        let untouched = page[known..].iter().all(|byte| *byte == 0xA5);
        expect("nothing behind it is written", untouched, true)?;
    }
    Ok(())
}

fn invalid_infos_are_refused(_: &Context) -> Result<()> {
    let end = Buses::new()?.create(broadcast())?;
    for size in [0, 1, INFO_SIZE_VER0 - 1, PAGE as u32 + 1, u32::MAX] {
        let mut info = Info {
            size,
            ..Info::default()
        };
        let seen = raw(&end, INFO, &mut info);
        expect(&format!("{size} bytes"), seen, Err(size_error(size)))?;
    }
    let mapping = Mapping::new(2)?;
    mapping.unmap_from(PAGE)?;
    let start = mapping.start().wrapping_add(PAGE - 8);
    // SAFETY: before the inaccessible page, in our own mapping.
    unsafe { start.cast::<u32>().write_volatile(INFO_SIZE_VER0) };
    expect("cut off", raw(&end, INFO, start), Err(Errno::EFAULT))?;
    let none = std::ptr::null_mut::<u8>();
    expect("no memory", raw(&end, INFO, none), Err(Errno::EFAULT))
}

fn the_state_by_name_has_no_endpoint(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let subscriber = buses.subscribe(Params {
        flags: MAPPED,
        ..Params::default()
    })?;
    send_numbered(&sender, 0, 3, 10)?;
    let own = state(&subscriber)?;
    let own_fields = (own.flags, own.policy, own.own_lag);
    expect("of the endpoint", own_fields, (MAPPABLE | MAPPED, BLOCK, 3))?;
    let expected = Info {
        flags: MAPPABLE,
        id: 0,
        policy: 0,
        format: 0,
        own_lag: 0,
        spin_limit_ns: 0,
        ..own
    };
    let (_, seen) = buses.info().context("asking by name")?;
    expect("by name", seen, expected)
}

fn a_bus_is_listed_among_the_channels(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(broadcast())?;
    let _ends = [
        buses.subscribe(Params::default())?,
        buses.subscribe(Params::default())?,
    ];
    // A pipe of the same name is another channel.
    let _pipe = buses.0.create(NAME).context("creating a pipe")?;
    let page = buses.0.page(OWN, None, 10).context("listing")?;
    expect("channels", page.len(), 2)?;
    let found = page.iter().find(|channel| channel.kind == KIND_BUS);
    let channel = found.context("the bus is not listed")?;
    expect("its name", channel.name(), NAME.as_bytes())?;
    let fields = (
        channel.readers,
        channel.writers,
        channel.capacity,
        channel.mode,
    );
    expect("its fields", fields, (2, 1, CAPACITY as u64, 0o600))?;
    let by_name = buses.info().context("asking by name")?.0;
    expect("as by name", &by_name, channel)
}

fn the_bytes_of_a_bus_are_those_that_are_held(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for (params, policy) in [(broadcast(), BLOCK), (broadcast(), DROP), (unicast(), 0)] {
        let sender = buses.create(params)?;
        let subscriber = buses.subscribe(with_policy(policy))?;
        let bytes = || buses.info().map(|(channel, _)| channel.bytes);
        expect("at first", bytes(), Ok(0))?;
        for (length, held) in [(1, 64), (64, 128), (65, 256), (0, 256)] {
            send(&sender, &vec![0; length]).context("sending")?;
            expect(&format!("after {length} bytes"), bytes(), Ok(held))?;
        }
        for held in [192, 128, 0, 0] {
            receive(&subscriber).context("receiving")?;
            expect("after a message", bytes(), Ok(held))?;
        }
    }
    Ok(())
}

fn ids_of(entries: &[SubscriberInfo]) -> Vec<u64> {
    entries.iter().map(|entry| entry.id).collect()
}

/// Subscribers whose places in the table of the kernel are not in the order of their ids.
fn shuffled(buses: &Buses, count: usize) -> Result<(Vec<OwnedFd>, Vec<u64>)> {
    let mut ends: Vec<OwnedFd> = (0..2 * count)
        .map(|_| buses.subscribe(with_policy(DROP)))
        .collect::<Result<_>>()?;
    for index in 0..count {
        drop(ends.remove(index));
    }
    let mut ids: Vec<u64> = ends.iter().map(id).collect::<Result<_>>()?;
    ids.sort_unstable();
    Ok((ends, ids))
}

fn subscribers_are_listed_by_id(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast()] {
        let sender = buses.create(params)?;
        expect("none", list(&sender, 0, 10), Ok(vec![]))?;
        let (ends, ids) = shuffled(&buses, 20)?;
        for end in [&sender, &ends[0]] {
            let listed = list(end, 0, 64).context("listing")?;
            expect("the ids", ids_of(&listed), ids.clone())?;
        }
    }
    Ok(())
}

fn a_list_continues_after_an_id(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let (_ends, ids) = shuffled(&buses, 20)?;
    for count in [1, 3, 7, 20] {
        let (mut seen, mut after) = (Vec::new(), 0);
        loop {
            let page = ids_of(&list(&sender, after, count).context("listing")?);
            after = page.last().copied().unwrap_or(after);
            let is_last = page.len() < count;
            seen.extend(page);
            if is_last {
                break;
            }
        }
        expect(&format!("in pages of {count}"), &seen, &ids)?;
    }
    let last = ids[ids.len() - 1];
    for after in [last, last + 1, u64::MAX] {
        expect("behind the last", list(&sender, after, 5), Ok(vec![]))?;
    }
    expect("of no entries", list(&sender, 0, 0), Ok(vec![]))
}

fn a_list_has_at_most_the_maximum_of_entries(_: &Context) -> Result<()> {
    let _limit = Parameter::set("bus_max_subscribers", 100)?;
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let (_ends, ids) = shuffled(&buses, 50)?;
    let more: Vec<_> = (0..50)
        .map(|_| buses.subscribe(with_policy(DROP)))
        .collect::<Result<_>>()?;
    let listed = ids_of(&list(&sender, 0, 200).context("listing")?);
    expect("entries", listed.len(), SUBSCRIBERS_MAX)?;
    expect("the first", &listed[..50], &ids[..])?;
    let rest = list(&sender, listed[SUBSCRIBERS_MAX - 1], 200).context("listing")?;
    expect("the rest", rest.len(), 100 - SUBSCRIBERS_MAX)?;
    drop(more);
    Ok(())
}

fn a_list_names_the_opener_of_each_subscriber(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let created = buses.0.open(Open {
        mode: 0o666,
        ..request(READ | CREATE, &broadcast())
    });
    let own = created.context("creating a bus")?;
    let other = spawn_keeping("another user", &[own.as_fd()], || {
        become_user(1001)?;
        let _end = Buses::new()?.subscribe(framed(EVICT))?;
        let listed = list(&own, 0, 10).context("listing")?;
        ensure!(listed.len() == 2, "{} are listed", listed.len());
        let fields = |entry: &SubscriberInfo| (entry.pid, entry.uid, entry.policy);
        Ok((
            getpid().as_raw() as u32,
            fields(&listed[0]),
            fields(&listed[1]),
        ))
    })?;
    let (pid, first, second) = other.finish()?;
    let own_pid = getpid().as_raw() as u32;
    expect("the first", first, (own_pid, getuid().as_raw(), DROP))?;
    expect("the second", second, (pid, 1001, EVICT))
}

fn a_list_translates_the_opener(context: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(broadcast())?;
    let end = buses.subscribe(with_policy(DROP))?;
    let child = spawn_in_container(
        context.cgroup()?,
        User::NamespaceRoot,
        "another container",
        &[end.as_fd()],
        || {
            let listed = list(&end, 0, 1).context("listing")?;
            Ok((listed[0].pid, listed[0].uid))
        },
    )?;
    expect("the process and the user", child.finish()?, (0, 65534))
}

fn a_list_shows_lag_and_loss(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let ends = [
        buses.subscribe(with_policy(DROP))?,
        buses.subscribe(with_policy(EVICT))?,
        buses.subscribe(Params {
            flags: MAPPED,
            ..Params::default()
        })?,
    ];
    send_numbered(&sender, 0, 10, 10)?;
    receive(&ends[1]).context("receiving")?;
    let listed = list(&sender, 0, 10).context("listing")?;
    for (entry, end) in listed.iter().zip(&ends) {
        let seen = state(end)?;
        let expected = SubscriberInfo {
            id: seen.id,
            policy: seen.policy,
            flags: seen.flags & MAPPED,
            lag: seen.own_lag,
            lost: seen.own_lost,
            pid: getpid().as_raw() as u32,
            uid: getuid().as_raw(),
        };
        expect("an entry", *entry, expected)?;
    }
    expect("entries", listed.len(), 3)
}

fn invalid_lists_are_refused(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let _ends = [
        buses.subscribe(with_policy(DROP))?,
        buses.subscribe(with_policy(DROP))?,
    ];
    let mut entry = SubscriberInfo::default();
    let valid = Subscribers::new(0, &mut entry, 1);
    let page_with = |size| {
        let mut page = bytes_of(&Subscribers { size, ..valid });
        page.resize(PAGE, 0);
        page
    };
    let first = SUBSCRIBERS_SIZE_VER0;
    for size in [0, first - 1, PAGE as u32 + 1] {
        let seen = raw(&sender, SUBSCRIBERS, page_with(size).as_mut_ptr());
        expect(&format!("{size} bytes"), seen, Err(size_error(size)))?;
    }
    let mut page = page_with(first + 8);
    page[first as usize] = 1;
    let seen = raw(&sender, SUBSCRIBERS, page.as_mut_ptr());
    expect("an unknown field", seen, Err(Errno::E2BIG))?;
    let mut list = Subscribers::new(0, std::ptr::null_mut(), 2);
    let seen = raw(&sender, SUBSCRIBERS, &mut list);
    expect("no memory for entries", seen, Err(Errno::EFAULT))?;
    let none = std::ptr::null_mut::<u8>();
    expect(
        "no memory",
        raw(&sender, SUBSCRIBERS, none),
        Err(Errno::EFAULT),
    )
}

fn a_queue_is_not_listed(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(unicast())?;
    let _end = buses.subscribe(framed(0))?;
    expect("listed", list(&sender, 0, 10), Ok(vec![]))
}
