// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps over generic netlink: the events of watches, sockets without room for them, and the end of a map.

use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::ctl::{BOTH, READ};
use crate::support::map::{
    CREATED, Change, DELETED, Maps, NAME, NOW, Params, UPDATED, delete, put, state,
};
use crate::support::near;
use crate::support::netlink::{Attrs, Event, News, Request, Socket, attr, command, explains};
use crate::support::time::{eventually, wait_grace_period};

topic!(
    "map_netlink_watch",
    fifo: [],
    pipe_only: [
        a_watch_sends_each_change_in_order,
        a_watch_begins_where_it_wants,
        a_watch_that_begins_again_sends_changes_again,
        each_handle_has_its_own_watch,
        a_closed_handle_has_no_events,
        events_fill_a_quarter_of_the_receive_buffer,
        a_drained_socket_gets_the_following_events,
        an_overwritten_log_is_told_by_the_next_event,
        an_event_that_a_filter_drops_delays_no_other,
        a_destroyed_map_is_one_event,
        a_destroyed_map_is_epipe,
        changes_before_the_destruction_arrive_first,
    ],
);

/// A map, and a socket with a handle of it.
struct Fixture {
    maps: Maps,
    end: OwnedFd,
    socket: Socket,
    handle: u32,
}

impl Fixture {
    fn new() -> Result<Self> {
        Self::with_log(0)
    }

    /// With a log of so many changes; 0: the default.
    fn with_log(events: u32) -> Result<Self> {
        let maps = Maps::new()?;
        let params = Params {
            events,
            ..Params::default()
        };
        let end = maps.create_with(params, 0)?;
        let socket = Socket::new()?;
        let handle = socket.open(NAME, BOTH)?;
        Ok(Fixture {
            maps,
            end,
            socket,
            handle,
        })
    }

    fn by_handle(&self) -> Attrs {
        Attrs::new().handle(self.handle)
    }

    fn put_many(&self, count: u32) -> Result<()> {
        for number in 0..count {
            put(&self.end, &number.to_ne_bytes(), b"")?;
        }
        Ok(())
    }
}

fn change(change: u16, key: &[u8], sequence: u64, version: u64) -> Change {
    Change {
        change,
        key: key.to_vec(),
        sequence,
        version,
        missed: 0,
    }
}

fn sequences(changes: &[Change]) -> Vec<u64> {
    changes.iter().map(|change| change.sequence).collect()
}

fn a_watch_sends_each_change_in_order(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let (socket, end) = (&fixture.socket, &fixture.end);
    expect("the number", socket.watch(fixture.handle, NOW)?, 0)?;
    put(end, b"a", b"1")?;
    put(end, b"a", b"2")?;
    delete(end, b"a").context("deleting")?;
    let own = fixture.by_handle().key(b"b").value(b"");
    socket
        .must(command::SET, &own)
        .context("a set by the watching socket")?;
    let expected = vec![
        change(CREATED, b"a", 1, 1),
        change(UPDATED, b"a", 2, 2),
        change(DELETED, b"a", 3, 2),
        change(CREATED, b"b", 4, 4),
    ];
    expect("the changes", socket.changes(4)?, expected)?;
    socket.expect_no_event()
}

fn a_watch_begins_where_it_wants(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    fixture.put_many(5)?;
    for after in 0..=5 {
        let socket = Socket::new()?;
        let handle = socket.open(NAME, READ)?;
        expect("the number", socket.watch(handle, after)?, after)?;
        let changes = socket.changes(5 - after as usize)?;
        expect("numbers", sequences(&changes), (after + 1..=5).collect())?;
        socket.expect_no_event()?;
    }
    for attrs in [
        fixture.by_handle(),
        fixture.by_handle().u64(attr::AFTER, NOW),
    ] {
        let reply = fixture.socket.must(command::WATCH, &attrs)?;
        let last = near::change_from_zero(reply.u64(attr::SEQUENCE)?);
        expect("the number of now", last, 5)?;
    }
    fixture.socket.expect_no_event()?;
    put(&fixture.end, b"one more", b"")?;
    expect("numbers", sequences(&fixture.socket.changes(1)?), vec![6])
}

fn a_watch_that_begins_again_sends_changes_again(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    fixture.put_many(3)?;
    for after in [0, 2, 1, 0] {
        expect(
            "the number",
            fixture.socket.watch(fixture.handle, after)?,
            after,
        )?;
        let changes = fixture.socket.changes(3 - after as usize)?;
        expect("numbers", sequences(&changes), (after + 1..=3).collect())?;
    }
    fixture.socket.expect_no_event()?;
    expect("watchers", state(&fixture.end)?.watchers, 1)
}

fn each_handle_has_its_own_watch(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let second = fixture.socket.open(NAME, READ)?;
    put(&fixture.end, b"a", b"")?;
    fixture.socket.watch(fixture.handle, 0)?;
    fixture.socket.watch(second, NOW)?;
    put(&fixture.end, b"b", b"")?;
    let events = fixture.socket.events(3)?;
    for (handle, expected) in [(fixture.handle, vec![1, 2]), (second, vec![2])] {
        let own = events.iter().filter(|event| event.handle == handle);
        let changes: Vec<Change> = own
            .map(|event| event.change().cloned())
            .collect::<Result<_>>()?;
        expect("numbers", sequences(&changes), expected)?;
    }
    Ok(())
}

fn a_closed_handle_has_no_events(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    fixture.socket.watch(fixture.handle, NOW)?;
    put(&fixture.end, b"a", b"")?;
    fixture.socket.changes(1)?;
    fixture.socket.must(command::CLOSE, &fixture.by_handle())?;
    put(&fixture.end, b"b", b"")?;
    fixture.socket.expect_no_event()?;
    expect("watchers", state(&fixture.end)?.watchers, 0)
}

// ---- sockets without room ----

/// SO_RCVBUF, of which the kernel makes twice as much.
const SMALL_BUFFER: i32 = 32 << 10;
const CHANGES: u32 = 60;
/// Enough for these changes, but not for more.
const LOG: u32 = 64;

/// A watch of a socket with a small receive buffer, of which events have filled as much as they may.
fn with_full_queue(log: u32) -> Result<Fixture> {
    let fixture = Fixture::with_log(log)?;
    fixture.socket.set_buffer(SMALL_BUFFER)?;
    fixture.socket.watch(fixture.handle, NOW)?;
    fixture.put_many(CHANGES)?;
    eventually("events fill a quarter of the receive buffer", || {
        let state = fixture.socket.queue_state()?;
        Ok((state.used >= state.size / 4).then_some(()))
    })?;
    Ok(fixture)
}

fn events_fill_a_quarter_of_the_receive_buffer(_: &Context) -> Result<()> {
    const LARGEST_EVENT: u32 = 1024;
    let fixture = with_full_queue(0)?;
    let socket = &fixture.socket;
    wait_grace_period();
    let state = socket.queue_state()?;
    ensure!(state.used < state.size / 4 + LARGEST_EVENT, "{state:?}");
    // Receiving a reply removes the events before it, so all requests are sent first.
    let requests = [
        (command::GET, fixture.by_handle().key(&0_u32.to_ne_bytes())),
        (command::SET, fixture.by_handle().key(b"own").value(b"")),
        (command::INFO, fixture.by_handle()),
    ];
    let sent = requests.map(|(command, attrs)| socket.send(&Request::new(command, attrs)));
    for sequence in sent {
        let replies = socket.finish(sequence?).context("with a full queue")?;
        expect("replies", replies.map(|replies| replies.len()), Ok(1))?;
    }
    expect("messages dropped", socket.queue_state()?.drops, 0)
}

fn a_drained_socket_gets_the_following_events(_: &Context) -> Result<()> {
    let fixture = with_full_queue(0)?;
    let changes = fixture.socket.changes(CHANGES as usize)?;
    let expected: Vec<u64> = (1..=CHANGES.into()).collect();
    expect("numbers", sequences(&changes), expected)?;
    expect(
        "missed",
        changes.iter().map(|change| change.missed).sum(),
        0_u64,
    )?;
    put(&fixture.end, b"one more", b"")?;
    let next = fixture.socket.changes(1)?;
    expect("the next", sequences(&next), vec![u64::from(CHANGES) + 1])?;
    fixture.socket.expect_no_event()
}

fn an_overwritten_log_is_told_by_the_next_event(_: &Context) -> Result<()> {
    let fixture = with_full_queue(LOG)?;
    fixture.put_many(2 * CHANGES)?;
    let last = 3 * u64::from(CHANGES);
    let (mut next, mut missed) = (1, 0);
    while next <= last {
        for change in fixture.socket.changes(1)? {
            expect("its number", change.sequence, next + change.missed)?;
            missed += change.missed;
            next = change.sequence + 1;
        }
    }
    ensure!(
        missed >= u64::from(2 * CHANGES - LOG),
        "{missed} were missed"
    );
    expect("of the map", state(&fixture.end)?.missed, missed)?;
    fixture.socket.expect_no_event()
}

fn an_event_that_a_filter_drops_delays_no_other(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let socket = &fixture.socket;
    socket.watch(fixture.handle, NOW)?;
    put(&fixture.end, b"short", b"")?;
    let length = socket.events(1)?[0].length;
    socket.drop_longer_than(length as u32)?;
    for key in [b"long".repeat(10), b"SHORT".to_vec(), b"LONG".repeat(10)] {
        put(&fixture.end, &key, b"")?;
    }
    put(&fixture.end, b"again", b"")?;
    let expected = vec![
        change(CREATED, b"SHORT", 3, 3),
        change(CREATED, b"again", 5, 5),
    ];
    expect("the changes", socket.changes(2)?, expected)?;
    socket.expect_no_event()
}

// ---- the end of a map ----

fn a_destroyed_map_is_one_event(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let (socket, idle) = (&fixture.socket, Socket::new()?);
    let second = socket.open(NAME, READ)?;
    idle.open(NAME, BOTH)?;
    socket.watch(fixture.handle, NOW)?;
    socket.watch(second, NOW)?;
    fixture.maps.destroy().context("destroying")?;
    let mut handles: Vec<u32> = Vec::new();
    for event in socket.events(2)? {
        expect("the event", &event.news, &News::Destroyed)?;
        handles.push(event.handle);
    }
    handles.sort_unstable();
    let mut expected = vec![fixture.handle, second];
    expected.sort_unstable();
    expect("its handles", handles, expected)?;
    socket.expect_no_event()?;
    idle.expect_no_event()
}

fn a_destroyed_map_is_epipe(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    put(&fixture.end, b"key", b"")?;
    fixture.maps.destroy().context("destroying")?;
    let on = || fixture.by_handle();
    let step = Attrs::new().u32(attr::COMMAND, 0).key(b"key");
    for (command, attrs) in [
        (command::GET, on().key(b"key")),
        (command::SET, on().key(b"key").value(b"")),
        (command::DELETE, on().key(b"key")),
        (command::BATCH, on().step(&step)),
        (command::DUMP, on()),
        (command::INFO, on()),
        (command::WATCH, on()),
        (command::WATCH, on().u64(attr::AFTER, 0)),
    ] {
        let what = format!("command {command}");
        let refusal = fixture.socket.call(command, &attrs)?.err();
        let refusal = refusal.with_context(|| format!("{what} succeeded"))?;
        expect(&what, refusal.errno, Errno::EPIPE)?;
        ensure!(
            refusal.is_explained() || !explains(command)?,
            "{what}: no text"
        );
    }
    fixture
        .socket
        .must(command::CLOSE, &on())
        .context("closing the handle")?;
    let new = fixture.maps.create().context("a new map with its name")?;
    let handle = fixture.socket.open(NAME, BOTH)?;
    let on = Attrs::new().handle(handle).key(b"key").value(b"");
    fixture
        .socket
        .must(command::SET, &on)
        .context("a set in the new map")?;
    expect("its entries", state(&new)?.entries, 1)
}

fn changes_before_the_destruction_arrive_first(_: &Context) -> Result<()> {
    let fixture = with_full_queue(0)?;
    fixture.maps.destroy().context("destroying")?;
    let events = fixture.socket.events(CHANGES as usize + 1)?;
    let (last, changes) = events.split_last().context("no event")?;
    let changes: Vec<Change> = changes
        .iter()
        .map(|event| event.change().cloned())
        .collect::<Result<_>>()?;
    expect(
        "numbers",
        sequences(&changes),
        (1..=CHANGES.into()).collect(),
    )?;
    let end = Event {
        handle: fixture.handle,
        news: News::Destroyed,
        length: last.length,
    };
    expect("the last event", last, &end)?;
    fixture.socket.expect_no_event()
}
