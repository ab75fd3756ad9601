// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an observer learns of channels without opening them: how much has passed, what was lost, who is behind, how many calls wait,
//! and what the limits count.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::sys::stat::{major, minor};
use sluice_abi::{CTL_USAGE, SCOPE_ROOT, USAGE_SIZE_VER0, Usage};

use crate::registry::{Context, topic};
use crate::support::bus::{self, Buses, broadcast, multicast};
use crate::support::channel::{CAPACITY, read_some, set_blocking, write_all};
use crate::support::check::expect;
use crate::support::child::{spawn, spawn_keeping};
use crate::support::credentials::{NOBODY, become_user, enter_cgroup_namespace};
use crate::support::ctl::{Ctl, NODE, OWN, usage_of};
use crate::support::ioctl::raw;
use crate::support::map::{self, Maps};
use crate::support::memory::PAGE;
use crate::support::parameter::{Parameter, scope_limit};
use crate::support::ring::{self, Rings};
use crate::support::time::eventually;
use crate::support::trace_buffer::TraceBuffer;

const FOREVER: u64 = u64::MAX;

topic!(
    "ctl_observe",
    fifo: [],
    pipe_only: [
        the_counts_of_a_pipe_never_decrease,
        a_ring_has_passed_what_its_producer_has_published,
        a_bus_counts_messages_losses_and_the_lag,
        a_map_counts_changes,
        tracepoints_tell_what_happens_to_which_channel,
        calls_that_sleep_are_counted,
        usage_counts_a_scope_and_all_below_it,
        usage_counts_a_user_in_its_cgroup_namespace,
        usage_of_a_scope_is_for_those_in_it,
        invalid_requests_for_usage_are_refused,
        the_device_number_is_of_the_local_range,
    ],
);

fn the_counts_of_a_pipe_never_decrease(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let pipe = ctl.create("pipe")?;
    let passed = || -> Result<_> {
        let info = ctl.info(OWN, "pipe").context("info")?;
        Ok((info.total_bytes, info.bytes, info.messages, info.lost))
    };
    expect("at first", passed()?, (0, 0, 0, 0))?;
    write_all(&pipe, &[7; 5000])?;
    expect("after a write", passed()?, (5000, 5000, 0, 0))?;
    read_some(&pipe, 5000).context("reading")?;
    expect("after the read", passed()?, (5000, 0, 0, 0))?;
    write_all(&pipe, b"more")?;
    expect("after another write", passed()?, (5004, 4, 0, 0))
}

fn a_ring_has_passed_what_its_producer_has_published(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let (producer, consumer) = rings.sides("ring")?;
    let passed = || rings.info("ring").map(|(info, _)| info.total_bytes);
    expect("at first", passed(), Ok(0))?;
    producer.publish(b"record");
    let published = passed().context("info")?;
    expect("after a record", published, 6)?;
    consumer.drain();
    expect("after it is received", passed(), Ok(published))
}

fn a_bus_counts_messages_losses_and_the_lag(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let slow = buses.subscribe(bus::with_policy(bus::DROP))?;
    let counts = || -> Result<_> {
        let (info, _) = buses.info().context("info")?;
        Ok((info.messages, info.lag, info.lost))
    };
    bus::send_numbered(&sender, 0, 3, 16)?;
    expect("after three messages", counts()?, (3, 3, 0))?;
    bus::receive(&slow).context("receiving")?;
    expect("after one is received", counts()?, (3, 2, 0))?;
    bus::send_numbered(&sender, 3, 4000, 64)?;
    let (messages, lag, lost) = counts()?;
    expect("messages", messages, 4003)?;
    expect("lost and behind", lost + lag, 4002)?;
    ensure!(lost > 0, "a full subscriber has lost nothing");
    Ok(())
}

fn a_map_counts_changes(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let end = maps.create()?;
    map::put(&end, b"a", b"1")?;
    map::put(&end, b"a", b"2")?;
    map::delete(&end, b"a").context("deleting")?;
    let (info, _) = maps.info().context("info")?;
    expect("changes", info.messages, 3)?;
    expect("of a volatile map", (info.lag, info.total_bytes), (0, 0))
}

/// docs/tracing.md lists the tracepoints.
fn tracepoints_tell_what_happens_to_which_channel(_: &Context) -> Result<()> {
    let buffer = TraceBuffer::new()?;
    let mut id = 0;
    let trace = buffer.during(&["sluice"], || {
        let buses = Buses::new()?;
        let sender = buses.create(broadcast())?;
        let subscriber = buses.subscribe(bus::with_policy(bus::EVICT))?;
        id = bus::state(&subscriber)?.id;
        for _ in 0..=bus::MESSAGES {
            bus::send(&sender, &[0; 100]).context("sending")?;
        }
        drop(subscriber);
        let map = Maps::new()?.create()?;
        map::put(&map, b"key", b"value").map(drop)
    })?;
    for expected in [
        format!("sluice_bus_subscribe: name=bus id={id}"),
        format!("sluice_bus_evict: name=bus id={id}"),
        format!("sluice_bus_unsubscribe: name=bus id={id}"),
        "sluice_map_change: name=map sequence=1 change=created version=1".to_owned(),
    ] {
        ensure!(trace.contains(&expected), "no '{expected}' in {trace}");
    }
    Ok(())
}

/// One call in each state of a channel that makes calls sleep.
fn calls_that_sleep_are_counted(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let pipe = ctl.create("pipe")?;
    let buses = Buses::new()?;
    let sender = buses.create(multicast())?;
    let subscriber = buses.subscribe(bus::Params::default())?;
    set_blocking(&subscriber)?;
    let rings = Rings::new()?;
    let (producer, consumer) = rings.sides("ring")?;
    let waiting = || -> Result<_> {
        let pipe = ctl.info(OWN, "pipe").context("of the pipe")?.waiting;
        let bus = buses.info().context("of the bus")?.0.waiting;
        let ring = rings.info("ring").context("of the ring")?.0.waiting;
        Ok([pipe, bus, ring])
    };
    expect("at first", waiting()?, [0, 0, 0])?;
    let of_pipe = spawn_keeping("a reader", &[pipe.as_fd()], || {
        read_some(&pipe, 1).map(drop).context("reading")
    })?;
    let of_bus = spawn_keeping("a subscriber", &[subscriber.as_fd()], || {
        bus::receive(&subscriber).map(drop).context("receiving")
    })?;
    let seq = consumer.seq();
    let of_ring = spawn_keeping("a consumer", &[consumer.end.as_fd()], || {
        ring::wait(&consumer.end, seq, FOREVER).context("waiting")
    })?;
    eventually("a call sleeps on each", || {
        Ok((waiting()? == [1, 1, 1]).then_some(()))
    })
    .with_context(|| format!("{:?}", waiting()))?;
    write_all(&pipe, b"x")?;
    bus::send(&sender, b"x").context("sending")?;
    producer.notify().context("waking")?;
    of_pipe.finish()?;
    of_bus.finish()?;
    of_ring.finish()?;
    expect("afterwards", waiting()?, [0, 0, 0])
}

fn usage_counts_a_scope_and_all_below_it(context: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_channels", 100)?;
    let ctl = Ctl::new()?;
    let before = usage_of(&ctl, OWN).context("at first")?;
    expect("the limit", before.scope_channels_max, 100)?;
    let child = context.cgroup()?.create_child("child")?;
    let directory = child.directory()?;
    ctl.persist(OWN, "own").context("creating")?;
    ctl.persist(directory.as_raw_fd(), "below")
        .context("creating below")?;
    let counts = |fd| -> Result<_> {
        let usage = usage_of(&ctl, fd).context("usage")?;
        Ok((usage.scope_channels, usage.scope_bytes))
    };
    let capacity = CAPACITY as u64;
    expect(
        "of both",
        counts(OWN)?,
        (before.scope_channels + 2, before.scope_bytes + 2 * capacity),
    )?;
    expect(
        "of the child",
        counts(directory.as_raw_fd())?,
        (1, capacity),
    )?;
    ctl.unlink(directory.as_raw_fd(), "below")
        .context("unlinking")?;
    expect("afterwards", counts(directory.as_raw_fd())?, (0, 0))?;
    let root = usage_of(&ctl, SCOPE_ROOT).context("of the root")?;
    expect("the limit of the root", root.scope_channels_max, u64::MAX)
}

fn usage_counts_a_user_in_its_cgroup_namespace(_: &Context) -> Result<()> {
    let counted = |namespace: bool| {
        let user = spawn("a user", || {
            let ctl = Ctl::new()?;
            if namespace {
                enter_cgroup_namespace()?;
            }
            become_user(NOBODY)?;
            let before = usage_of(&ctl, OWN).context("at first")?;
            let _channel = ctl.create("mine").context("creating")?;
            let after = usage_of(&ctl, OWN).context("afterwards")?;
            ensure!(after.user_channels_max < u64::MAX, "a user has no limit");
            expect(
                "bytes",
                after.user_bytes - before.user_bytes,
                CAPACITY as u64,
            )?;
            expect("channels", after.user_channels - before.user_channels, 1)
        })?;
        user.finish()
    };
    counted(false).context("in the first namespace")?;
    counted(true).context("in another one")
}

fn usage_of_a_scope_is_for_those_in_it(context: &Context) -> Result<()> {
    let other = context.cgroup()?.create_child("other")?;
    let directory = other.directory()?;
    let ctl = Ctl::new()?;
    expect(
        "for root",
        usage_of(&ctl, directory.as_raw_fd()).map(drop),
        Ok(()),
    )?;
    let user = spawn_keeping("a user", &[ctl.as_fd(), directory.as_fd()], || {
        become_user(NOBODY)?;
        let refused = usage_of(&ctl, directory.as_raw_fd()).map(drop);
        expect("for a user", refused, Err(Errno::EACCES))?;
        expect("of its own", usage_of(&ctl, OWN).map(drop), Ok(()))
    })?;
    user.finish()
}

fn invalid_requests_for_usage_are_refused(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let answer = |change: &dyn Fn(&mut Usage)| {
        let mut usage = Usage::new(OWN);
        change(&mut usage);
        raw(&ctl, CTL_USAGE, &mut usage)
    };
    expect(
        "flags",
        answer(&|usage| usage.flags = 1),
        Err(Errno::EINVAL),
    )?;
    expect(
        "reserved",
        answer(&|usage| usage.reserved = 1),
        Err(Errno::EINVAL),
    )?;
    expect(
        "no scope",
        answer(&|usage| usage.scope_fd = 9999),
        Err(Errno::EBADF),
    )?;
    for size in [0, 4, USAGE_SIZE_VER0 - 1] {
        expect(
            "a size",
            answer(&|usage| usage.size = size),
            Err(Errno::EINVAL),
        )?;
    }
    expect(
        "over a page",
        answer(&|usage| usage.size = PAGE as u32 + 1),
        Err(Errno::E2BIG),
    )
}

/// Another driver never gets a number of this range, so that a node that outlives the module opens nothing else.
fn the_device_number_is_of_the_local_range(_: &Context) -> Result<()> {
    let number = fs::metadata(NODE).context(NODE)?.rdev();
    expect("the major number", major(number), Parameter::get("major")?)?;
    expect("the minor number", minor(number), 0)?;
    ensure!((120..=127).contains(&major(number)), "{number:#x}");
    Ok(())
}
