// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits that apply to a bus, and the memory cgroups that are charged for it and for long messages.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::unistd::{read, write};

use crate::registry::{Context, topic};
use crate::support::bus::{
    BLOCK, Buses, CAPACITY, DROP, EVICT, KIND_BUS, NAME, Params, broadcast, content, request, send,
    skip_without_long_messages, with_policy,
};
use crate::support::channel::read_some;
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{spawn, spawn_keeping};
use crate::support::credentials::become_user;
use crate::support::ctl::{
    CREATE, EXCL, NONBLOCK, OWN, Open, PERSIST, READ, UNLINK, WRITE, expect_no_channel,
};
use crate::support::kernel::expect_no_page_leak;
use crate::support::memcg::{
    Accounts, MemoryMax, SLACK, lock_memory, memory_current, set_memory_max,
};
use crate::support::parameter::{Parameter, scope_limit};

topic!(
    "bus_limits",
    fifo: [],
    pipe_only: [
        a_scope_at_its_byte_limit_is_enospc,
        a_user_at_the_byte_limit_is_edquot_until_a_bus_is_freed,
        buses_and_pipes_share_the_limit_of_channels,
        an_unlinked_bus_is_charged_until_its_last_endpoint,
        memory_is_charged_to_the_creator_and_uncharged_with_the_bus,
        a_create_beyond_the_memory_limit_is_enomem_without_oom_kill,
        a_long_send_beyond_the_senders_memory_limit_is_enomem,
        a_long_receive_beyond_the_receivers_memory_limit_is_enomem,
        opens_and_sends_leave_nothing,
    ],
);

const MIB: u64 = 1 << 20;

/// A bus of this name, without parameters.
fn open(buses: &Buses, name: &str, capacity: u64) -> nix::Result<OwnedFd> {
    buses.0.open(Open {
        kind: KIND_BUS,
        capacity,
        ..Open::new(name, WRITE | CREATE | EXCL)
    })
}

fn a_scope_at_its_byte_limit_is_enospc(_: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_bytes", 4 * CAPACITY as u64)?;
    let buses = Buses::new()?;
    let create = |name: &str, pages: usize| open(&buses, name, (pages * CAPACITY) as u64);
    let full = Err(Errno::ENOSPC);
    let first = create("first", 2).context("half of the limit")?;
    // Rounded up to 4 pages.
    expect("too large", create("second", 3).map(drop), full)?;
    let second = create("second", 2).context("the other half")?;
    expect("a page more", create("third", 1).map(drop), full)?;
    drop(first);
    expect("after closing", create("third", 1).map(drop), Ok(()))?;
    drop(second);
    expect_no_channel(&buses.0)
}

fn a_user_at_the_byte_limit_is_edquot_until_a_bus_is_freed(_: &Context) -> Result<()> {
    let _limit = Parameter::set("user_max_bytes", 2 * CAPACITY as u64)?;
    let user = spawn("a user", || {
        become_user(1001)?;
        let buses = Buses::new()?;
        let create = |name: &str| open(&buses, name, CAPACITY as u64);
        let first = create("first").context("the first")?;
        let _second = create("second").context("the second")?;
        expect("a third", create("third").map(drop), Err(Errno::EDQUOT))?;
        drop(first);
        expect("after closing one", create("third").map(drop), Ok(()))
    })?;
    user.finish()
}

fn buses_and_pipes_share_the_limit_of_channels(_: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_channels", 2)?;
    let buses = Buses::new()?;
    let _pipe = buses.0.create("pipe").context("a pipe")?;
    let bus = buses.create(broadcast())?;
    let full = Err(Errno::ENOSPC);
    expect("one more bus", open(&buses, "more", 4096).map(drop), full)?;
    expect("one more pipe", buses.0.create("more").map(drop), full)?;
    expect(
        "a subscriber",
        buses.subscribe(Params::default()).is_ok(),
        true,
    )?;
    drop(bus);
    expect("after closing", buses.0.create("more").map(drop), Ok(()))
}

fn an_unlinked_bus_is_charged_until_its_last_endpoint(_: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_bytes", CAPACITY as u64)?;
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(Params::default())?;
    buses.unlink().context("unlinking")?;
    let other = || open(&buses, "other", 4096).map(drop);
    drop(sender);
    expect("while it is open", other(), Err(Errno::ENOSPC))?;
    drop(subscriber);
    expect("after closing it", other(), Ok(()))
}

/// Creates a persistent bus in the creator's cgroup by a process that has exited.
fn persist(accounts: &Accounts, capacity: u64) -> Result<()> {
    let creation = accounts.creator.spawn("the creator", || {
        let made = Buses::new()?.0.open(Open {
            capacity,
            mode: 0o666,
            ..request(WRITE | CREATE | EXCL | PERSIST, &broadcast())
        });
        made.map(drop).context("creating the bus")
    })?;
    creation.finish()
}

/// Opens the creator's bus.
fn open_created(accounts: &Accounts, flags: u32, params: Params) -> Result<OwnedFd> {
    let directory = accounts.creator.directory()?;
    let opened = Buses::new()?.0.open(Open {
        scope_fd: directory.as_raw_fd(),
        ..request(flags | NONBLOCK, &params)
    });
    opened.context("opening the bus")
}

fn unlink(accounts: &Accounts) -> Result<()> {
    let directory = accounts.creator.directory()?;
    let buses = Buses::new()?;
    let unlinked = (buses.0).remove(UNLINK, KIND_BUS, directory.as_raw_fd(), NAME);
    unlinked.context("unlinking")
}

fn memory_is_charged_to_the_creator_and_uncharged_with_the_bus(context: &Context) -> Result<()> {
    const BUS: u64 = 8 * MIB;
    let accounts = Accounts::new(context)?;
    let before = memory_current(&accounts.creator)?;
    persist(&accounts, BUS)?;
    let created = memory_current(&accounts.creator)?.saturating_sub(before);
    // The bytes, and 64 to 128 bytes of slot for 256 of them.
    ensure!(
        created >= BUS + BUS / 4 - SLACK,
        "only {created} B are charged"
    );
    ensure!(created <= 2 * BUS, "{created} B are charged");
    let (sender, subscriber) = (
        open_created(&accounts, WRITE, Params::default())?,
        open_created(&accounts, READ, with_policy(BLOCK))?,
    );
    let after = memory_current(&accounts.creator)?;
    for number in 0..100 {
        send(&sender, &content(number, 50_000)).context("sending")?;
        let seen = read_some(&subscriber, 50_000).context("receiving")?;
        expect_bytes("a message", &seen, &content(number, 50_000))?;
    }
    let grown = memory_current(&accounts.creator)?.saturating_sub(after);
    ensure!(grown <= SLACK, "messages of others cost {grown} B");
    drop((sender, subscriber));
    unlink(&accounts)?;
    accounts.expect_uncharged(before)
}

fn a_create_beyond_the_memory_limit_is_enomem_without_oom_kill(context: &Context) -> Result<()> {
    let accounts = Accounts::new(context)?;
    set_memory_max(&accounts.creator, 8 * MIB)?;
    let creator = accounts.creator.spawn("the creator", || {
        lock_memory()?;
        let buses = Buses::new()?;
        let large = open(&buses, "large", 64 * MIB).map(drop);
        expect("a large one", large, Err(Errno::ENOMEM))?;
        expect("names", buses.0.names(OWN), Ok(vec![]))?;
        expect(
            "a smaller one",
            open(&buses, "small", MIB).map(drop),
            Ok(()),
        )
    })?;
    let seen = creator.finish();
    accounts.expect_no_kill()?;
    seen
}

/// The bytes of a message above 64 KiB are copied to memory that is charged to the caller.
fn at_the_memory_limit(
    accounts: &Accounts,
    end: &OwnedFd,
    call: impl FnOnce(&OwnedFd, &mut [u8]) -> nix::Result<()>,
) -> Result<()> {
    let body = || {
        accounts.other.enter()?;
        let mut bytes = vec![1; MIB as usize];
        let max = MemoryMax::open(&accounts.other)?;
        lock_memory()?;
        // Room for less than a message.
        max.set(memory_current(&accounts.other)? + MIB / 4)?;
        let seen = call(end, &mut bytes);
        max.set(1 << 40)?;
        Ok(seen.map_err(|errno| errno as i32))
    };
    let child = spawn_keeping("a process", &[end.as_fd()], body)?;
    let seen = child.finish();
    accounts.expect_no_kill()?;
    expect("the call", seen?, Err(Errno::ENOMEM as i32))
}

fn a_long_send_beyond_the_senders_memory_limit_is_enomem(context: &Context) -> Result<()> {
    skip_without_long_messages()?;
    let accounts = Accounts::new(context)?;
    persist(&accounts, 4 * MIB)?;
    let sender = open_created(&accounts, WRITE, Params::default())?;
    let subscriber = open_created(&accounts, READ, with_policy(BLOCK))?;
    at_the_memory_limit(&accounts, &sender, |end, bytes| write(end, bytes).map(drop))?;
    expect(
        "what is received",
        read_some(&subscriber, 1),
        Err(Errno::EAGAIN),
    )?;
    send(&sender, b"x").context("sending")?;
    expect("afterwards", read_some(&subscriber, 1), Ok(b"x".to_vec()))?;
    unlink(&accounts)
}

fn a_long_receive_beyond_the_receivers_memory_limit_is_enomem(context: &Context) -> Result<()> {
    skip_without_long_messages()?;
    let accounts = Accounts::new(context)?;
    persist(&accounts, 4 * MIB)?;
    let sender = open_created(&accounts, WRITE, Params::default())?;
    let subscriber = open_created(&accounts, READ, with_policy(BLOCK))?;
    let sent = content(1, MIB as usize);
    send(&sender, &sent).context("sending")?;
    at_the_memory_limit(&accounts, &subscriber, |end, bytes| {
        read(end, bytes).map(drop)
    })?;
    let seen = read_some(&subscriber, MIB as usize).context("receiving")?;
    expect_bytes("the message, which stays", &seen, &sent)?;
    unlink(&accounts)
}

/// Openers of senders are kept until their messages are overwritten.
fn opens_and_sends_leave_nothing(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let keeper = buses.create(broadcast())?;
    let stalled = buses.subscribe(with_policy(DROP))?;
    expect_no_page_leak(4000, |rounds| {
        for _ in 0..rounds {
            let sender = buses.sender()?;
            let end = buses.subscribe(with_policy(EVICT))?;
            send(&sender, b"x").context("sending")?;
            drop((sender, end));
        }
        Ok(())
    })?;
    drop((stalled, keeper));
    expect_no_channel(&buses.0)
}
