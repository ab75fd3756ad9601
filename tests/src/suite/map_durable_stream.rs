// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the keeper of durable maps reads: the changes of a map, their order, and that they are delivered again.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::channel::{read_nowait, read_some, set_blocking};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn_keeping;
use crate::support::ctl::Open;
use crate::support::durable::{
    DURABLE, Durable, INTERVAL, NEW, NOWAIT, durable, failed, limit_for, path_of, post, set_with,
};
use crate::support::event::Event;
use crate::support::keeper::{
    self, Ack, DELETE, Keeper, LIMIT, Message, OPEN, RESUME, ROOM, SET, answering, parse,
};
use crate::support::map::{self, KEY_MAX, NAME, VALUE_MAX, delete, put, set_for, state};
use crate::support::memory::{GuardedBuffer, read_at};
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::random::stream_bytes;
use crate::support::signals;

topic!(
    "map_durable_stream",
    fifo: [],
    pipe_only: [
        a_record_has_key_value_and_number,
        a_record_has_the_value_of_its_time,
        the_longest_keys_and_values_are_delivered,
        changes_of_concurrent_writers_are_delivered_in_order,
        each_change_is_delivered_once,
        numbers_never_exceed_the_limit,
        changes_are_delivered_again_to_the_next_keeper,
        an_acknowledged_change_is_not_delivered_again,
        the_next_keeper_is_told_what_is_stored,
        numbers_go_on_with_the_next_keeper,
        changes_without_a_keeper_are_delivered_to_the_next,
        each_map_has_its_own_stream,
        a_full_stream_of_one_map_does_not_affect_another,
        a_read_returns_whole_messages,
        a_message_without_room_stays,
        a_message_for_inaccessible_memory_stays,
        a_read_without_messages_is_eagain_if_it_may_not_block,
        a_read_blocks_until_there_is_a_message,
        a_signal_interrupts_a_read,
        poll_tells_whether_there_is_a_message,
        a_write_is_refused,
    ],
);

const KEY: &[u8] = b"key";

fn record(kind: u32, stream: u64, sequence: u64, key: &[u8], value: &[u8]) -> Message {
    Message {
        kind,
        stream,
        sequence,
        expires_ns: 0,
        key: key.to_vec(),
        value: value.to_vec(),
    }
}

fn a_record_has_key_value_and_number(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    let mut expected = Vec::new();
    for (key, value) in [
        (&b"a"[..], &b"1"[..]),
        (b"b", b""),
        (b"a", b"12345678"),
        (&[0], &[0; 9]),
    ] {
        let number = put(&map.end, key, value)?;
        expected.push(record(SET, map.stream, number, key, value));
    }
    let number = delete(&map.end, b"a").context("deleting")?;
    expected.push(record(DELETE, map.stream, number, b"a", b""));
    let seen = map.keeper.records(map.stream, expected.len())?;
    expect("records", seen, expected)?;
    map.keeper.expect_nothing()
}

fn a_record_has_the_value_of_its_time(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    for value in [b"first", b"other", b"third"] {
        put(&map.end, KEY, value)?;
    }
    delete(&map.end, KEY).context("deleting")?;
    put(&map.end, KEY, b"last")?;
    let records = map.keeper.records(map.stream, 5)?;
    let values: Vec<&[u8]> = records.iter().map(|record| &record.value[..]).collect();
    let expected: [&[u8]; 5] = [b"first", b"other", b"third", b"", b"last"];
    expect("values", values, expected.to_vec())
}

fn the_longest_keys_and_values_are_delivered(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    for (number, (key, value)) in (1..).zip([
        (1, 1),
        (KEY_MAX, 0),
        (1, VALUE_MAX),
        (KEY_MAX, VALUE_MAX),
        (4095, 4097),
        (7, VALUE_MAX - 1),
    ]) {
        let key = stream_bytes(1, number, key);
        let value = stream_bytes(2, number, value);
        put(&map.end, &key, &value)?;
        let seen = map.keeper.expect_next(SET, map.stream)?;
        expect("its number", seen.sequence, number)?;
        expect_bytes("the key", &seen.key, &key)?;
        expect_bytes("the value", &seen.value, &value)?;
        map.ack(number)?;
        expect("pending", state(&map.end)?.pending, 0)?;
    }
    Ok(())
}

// ---- order ----

/// What a writer has done: numbers, with the value of a set or none of a delete.
type Written = BTreeMap<u64, (Vec<u8>, Option<Vec<u8>>)>;

const THREADS: u64 = 4;
const CHANGES: u64 = 60;

/// Sets and deletes keys that all writers share.
fn write_changes(map: &impl AsFd, writer: u64) -> Result<Written> {
    let mut written = Written::new();
    for change in 0..CHANGES {
        let key = (change % 5).to_ne_bytes();
        let value = [writer.to_ne_bytes(), change.to_ne_bytes()].concat();
        let number = put(map, &key, &value)?;
        written.insert(number, (key.to_vec(), Some(value)));
        if change % 3 == 0 {
            match delete(map, &key) {
                Ok(number) => {
                    written.insert(number, (key.to_vec(), None));
                }
                Err(Errno::ENOENT) => {}
                Err(error) => return Err(error).context("deleting"),
            }
        }
    }
    Ok(written)
}

/// Changes by concurrent writers, and their records.
fn concurrent_changes(map: &Durable) -> Result<(Written, Vec<Message>)> {
    let (end, keeper) = (&map.end, &map.keeper);
    let (written, seen) = keeper.serve(|| -> Result<Written> {
        thread::scope(|scope| {
            let writers: Vec<_> = (0..THREADS)
                .map(|writer| scope.spawn(move || write_changes(end, writer)))
                .collect();
            let mut all = Written::new();
            for writer in writers {
                let written = writer.join().expect("the thread does not panic")?;
                let before = all.len();
                let count = written.len();
                all.extend(written);
                expect("different numbers", all.len(), before + count)?;
            }
            Ok(all)
        })
    })?;
    Ok((written?, seen))
}

fn changes_of_concurrent_writers_are_delivered_in_order(_: &Context) -> Result<()> {
    for flags in [0, INTERVAL] {
        let map = Durable::new(durable(flags))?;
        let (_, records) = concurrent_changes(&map)?;
        for pair in records.windows(2) {
            let numbers = (pair[0].sequence, pair[1].sequence);
            ensure!(numbers.0 < numbers.1, "{numbers:?}");
        }
    }
    Ok(())
}

/// The records are what the writers did, and their result is the map.
fn each_change_is_delivered_once(_: &Context) -> Result<()> {
    for flags in [0, INTERVAL] {
        let map = Durable::new(durable(flags))?;
        let (written, records) = concurrent_changes(&map)?;
        let mut delivered = Written::new();
        let mut content = BTreeMap::new();
        for record in &records {
            let value = match record.kind {
                SET => Some(record.value.clone()),
                DELETE => None,
                _ => bail!("{record:?}"),
            };
            match &value {
                Some(value) => content.insert(record.key.clone(), value.clone()),
                None => content.remove(&record.key),
            };
            delivered.insert(record.sequence, (record.key.clone(), value));
        }
        expect("records", records.len(), written.len())?;
        expect("changes", delivered == written, true)?;
        let numbers: Vec<u64> = written.keys().copied().collect();
        expect("numbers", numbers, (1..=written.len() as u64).collect())?;
        let dumped = map::dump(&map.end)?.into_iter();
        let dumped: BTreeMap<_, _> = dumped.map(|entry| (entry.key, entry.value)).collect();
        expect("the map", dumped, content)?;
        let stored = state(&map.end)?.stored;
        expect("stored", stored, written.len() as u64)?;
    }
    Ok(())
}

/// The limit is raised step by step, whatever the writers need.
fn numbers_never_exceed_the_limit(_: &Context) -> Result<()> {
    for step in [1, 2, 7] {
        let mut limit = 3;
        let map = Durable::with_limit(durable(INTERVAL), limit)?;
        let (end, keeper) = (&map.end, &map.keeper);
        thread::scope(|scope| {
            let writers: Vec<_> = (0..THREADS)
                .map(|writer| scope.spawn(move || write_changes(end, writer)))
                .collect();
            while !writers.iter().all(|writer| writer.is_finished()) {
                poll::wait(keeper, libc::POLLIN, 1).context("poll")?;
                let last = state(end)?.sequence;
                ensure!(last <= limit, "number {last} of {limit}");
                for record in keeper.take()? {
                    ensure!(record.sequence <= limit, "{record:?} of {limit}");
                    keeper.ack(map.stream, record.sequence)?;
                }
                limit += step;
                let raised = keeper.send_ack(Ack::new(map.stream, 0, limit, 0));
                expect("more numbers", raised, Ok(()))?;
            }
            for writer in writers {
                writer.join().expect("the thread does not panic")?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

// ---- the next keeper ----

fn changes_are_delivered_again_to_the_next_keeper(_: &Context) -> Result<()> {
    let mut map = Durable::interval()?;
    for number in 0..5_u8 {
        put(&map.end, &[number], &[number; 100])?;
    }
    delete(&map.end, &[0]).context("deleting")?;
    set_for(&map.end, b"timed", b"1", Duration::from_secs(3600)).context("setting")?;
    let first = map.keeper.records(map.stream, 7)?;
    for _ in 0..2 {
        map.keeper.restart()?;
        map.keeper.expect_next(RESUME, map.stream)?;
        let again = map.keeper.records(map.stream, 7)?;
        expect("records", &again, &first)?;
        map.keeper.expect_nothing()?;
    }
    map.ack(7)
}

fn an_acknowledged_change_is_not_delivered_again(_: &Context) -> Result<()> {
    let mut map = Durable::interval()?;
    for _ in 0..5 {
        put(&map.end, KEY, b"")?;
    }
    map.keeper.records(map.stream, 5)?;
    map.ack(3)?;
    map.keeper.restart()?;
    let resume = map.keeper.expect_next(RESUME, map.stream)?;
    expect("stored", resume.sequence, 3)?;
    let records = map.keeper.records(map.stream, 2)?;
    let numbers: Vec<u64> = records.iter().map(|record| record.sequence).collect();
    expect("records", numbers, vec![4, 5])?;
    map.ack(5)?;
    map.keeper.restart()?;
    let resume = map.keeper.expect_next(RESUME, map.stream)?;
    expect("stored", resume.sequence, 5)?;
    map.keeper.expect_nothing()
}

fn the_next_keeper_is_told_what_is_stored(context: &Context) -> Result<()> {
    let params = map::Params {
        entries: 9,
        events: 32,
        interval_ms: 123,
        ..durable(INTERVAL)
    };
    let mut map = Durable::new(params)?;
    map.keeper.restart()?;
    let resume = map.keeper.expect_next(RESUME, map.stream)?;
    let seen = resume.map()?;
    let expected = keeper::Map {
        mode: seen.mode,
        events: 32,
        capacity: state(&map.end)?.capacity,
        entries: 9,
        deadline_ms: params.deadline_ms,
        interval_ms: 123,
        ..keeper::Map::new(NAME, DURABLE | INTERVAL)
    };
    expect("the map", seen, expected)?;
    let (channel, _) = map.maps.info().context("asking by name")?;
    expect("its mode", seen.mode, channel.mode)?;
    let path = path_of(context.cgroup()?)?;
    expect_bytes("its path", &resume.value, path.as_bytes())?;
    let numbers = (resume.sequence, resume.expires_ns);
    expect("stored", numbers, (0, 0))
}

fn numbers_go_on_with_the_next_keeper(_: &Context) -> Result<()> {
    let mut map = Durable::with_limit(durable(INTERVAL), limit_for(3))?;
    put(&map.end, KEY, b"")?;
    map.store(1)?;
    map.keeper.restart()?;
    map.keeper.expect_next(RESUME, map.stream)?;
    for number in 2..=3 {
        expect("a set", post(&map.end, KEY, b"")?, number)?;
    }
    // The reservation is that of the keeper before.
    let refused = set_with(&map.end, KEY, b"", NOWAIT);
    expect("without a number", refused, failed(Errno::EAGAIN, 0))?;
    let more = map
        .keeper
        .send_ack(Ack::new(map.stream, 0, limit_for(4), 0));
    expect("one more number", more, Ok(()))?;
    expect("with a number", post(&map.end, KEY, b"")?, 4)?;
    map.store(3)
}

fn changes_without_a_keeper_are_delivered_to_the_next(_: &Context) -> Result<()> {
    let mut map = Durable::interval()?;
    put(&map.end, b"a", b"1")?;
    map.keeper.records(map.stream, 1)?;
    map.keeper.stop();
    put(&map.end, b"b", b"2")?;
    map.keeper.start()?;
    map.keeper.expect_next(RESUME, map.stream)?;
    put(&map.end, b"c", b"3")?;
    let records = map.keeper.records(map.stream, 3)?;
    let expected = vec![
        record(SET, map.stream, 1, b"a", b"1"),
        record(SET, map.stream, 2, b"b", b"2"),
        record(SET, map.stream, 3, b"c", b"3"),
    ];
    expect("records", records, expected)?;
    map.ack(3)
}

// ---- several maps ----

/// One more map of the same keeper, with this name; its stream.
fn another(map: &Durable, name: &str) -> Result<(std::os::fd::OwnedFd, u64)> {
    let params = durable(INTERVAL);
    let request = Open {
        name: sluice_abi::padded(name),
        ..map::request(NEW, &params)
    };
    let (maps, keeper) = (&map.maps, &map.keeper);
    let (end, stream) = answering(|| maps.0.open(request), || keeper.answer_open(LIMIT))?;
    Ok((end.context("creating another map")?, stream))
}

fn each_map_has_its_own_stream(_: &Context) -> Result<()> {
    let mut map = Durable::interval()?;
    let (other, stream) = another(&map, "other")?;
    ensure!(stream != map.stream, "both have stream {stream}");
    for _ in 0..3 {
        put(&map.end, KEY, b"of the first")?;
        put(&other, KEY, b"of the other")?;
    }
    for _ in 0..2 {
        let mut numbers: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for message in map
            .keeper
            .take()?
            .iter()
            .filter(|message| message.is_record())
        {
            numbers
                .entry(message.stream)
                .or_default()
                .push(message.sequence);
            let value: &[u8] = match message.stream == stream {
                true => b"of the other",
                false => b"of the first",
            };
            expect_bytes("the value", &message.value, value)?;
        }
        let expected = BTreeMap::from([(map.stream, vec![1, 2, 3]), (stream, vec![1, 2, 3])]);
        expect("records", numbers, expected)?;
        map.keeper.restart()?;
    }
    map.keeper.take()?;
    map.keeper.ack(stream, 2)?;
    expect("stored of the other", state(&other)?.stored, 2)?;
    expect("stored of the first", state(&map.end)?.stored, 0)
}

fn a_full_stream_of_one_map_does_not_affect_another(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    let (other, stream) = another(&map, "other")?;
    let last = map.fill()?;
    put(&other, KEY, b"value")?;
    map.keeper.fail(map.stream, Errno::EIO)?;
    put(&other, KEY, b"value")?;
    let messages = map.keeper.take()?;
    let count = |of| {
        messages
            .iter()
            .filter(|message| message.stream == of)
            .count()
    };
    expect(
        "records",
        (count(map.stream), count(stream)),
        (last as usize, 2),
    )?;
    map.keeper.ack(stream, 2)
}

// ---- read(2) and poll(2) ----

fn a_read_returns_whole_messages(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    for number in 0..10_u8 {
        put(&map.end, &[number], &[number; 100])?;
    }
    // A record has 48 bytes, a key of 1 byte and a value of 100: 152 with the padding.
    let mut numbers = Vec::new();
    for (room, count) in [(152, 1), (303, 1), (304, 2), (455, 2), (ROOM, 4)] {
        let messages = map.keeper.read(room).context("reading")??;
        expect(&format!("messages in {room}"), messages.len(), count)?;
        numbers.extend(messages.iter().map(|message| message.sequence));
    }
    expect("numbers", numbers, (1..=10).collect())?;
    map.ack(10)
}

fn a_message_without_room_stays(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    put(&map.end, b"a", &[7; 100])?;
    put(&map.end, b"b", &vec![7; VALUE_MAX])?;
    expect(
        "no room at all",
        map.keeper.read(0)?.map(|seen| seen.len())?,
        0,
    )?;
    for room in [1, 47, 48, 151] {
        let seen = map.keeper.read(room).map(drop);
        expect(&format!("room for {room}"), seen, Err(Errno::EMSGSIZE))?;
    }
    expect("with room", map.keeper.read(152)??.len(), 1)?;
    for room in [152, VALUE_MAX, VALUE_MAX + 48] {
        let seen = map.keeper.read(room).map(drop);
        expect(&format!("room for {room}"), seen, Err(Errno::EMSGSIZE))?;
    }
    let message = map.keeper.expect_next(SET, map.stream)?;
    expect_bytes("the value", &message.value, &vec![7; VALUE_MAX])?;
    map.ack(2)
}

fn a_message_for_inaccessible_memory_stays(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    for number in 0..3_u8 {
        put(&map.end, &[number], &[number; 100])?;
    }
    for usable in [0, 1, 48, 100, 151] {
        let edge = GuardedBuffer::new(usable)?;
        let seen = read_at(&map.keeper, edge.start(), ROOM);
        expect(&format!("{usable} bytes"), seen, Err(Errno::EFAULT))?;
    }
    // Those before the fault are returned, or none is consumed.
    let edge = GuardedBuffer::new(200)?;
    match read_at(&map.keeper, edge.start(), ROOM) {
        Ok(152) => expect("the number", parse(&edge.to_vec(152))?[0].sequence, 1)?,
        Err(Errno::EFAULT) => {
            map.keeper.expect_next(SET, map.stream)?;
        }
        other => bail!("a read beyond the memory: {other:?}"),
    }
    let records = map.keeper.records(map.stream, 2)?;
    let numbers: Vec<u64> = records.iter().map(|record| record.sequence).collect();
    expect("the others", numbers, vec![2, 3])?;
    map.ack(3)
}

fn a_read_without_messages_is_eagain_if_it_may_not_block(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    let seen = map.keeper.read(ROOM).map(drop);
    expect("O_NONBLOCK", seen, Err(Errno::EAGAIN))?;
    set_blocking(&map.keeper)?;
    let seen = read_nowait(&map.keeper, ROOM);
    expect("RWF_NOWAIT", seen, Err(Errno::EAGAIN))?;
    put(&map.end, KEY, b"value")?;
    let bytes = read_nowait(&map.keeper, ROOM).context("RWF_NOWAIT")?;
    let expected = vec![record(SET, map.stream, 1, KEY, b"value")];
    expect("with a message", parse(&bytes)?, expected)?;
    let seen = read_nowait(&map.keeper, ROOM);
    expect("RWF_NOWAIT", seen, Err(Errno::EAGAIN))?;
    crate::support::channel::set_nonblocking(&map.keeper)?;
    map.ack(1)
}

fn a_read_blocks_until_there_is_a_message(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    set_blocking(&map.keeper)?;
    let reader = spawn_keeping("a reader", &[map.keeper.as_fd()], || {
        read_some(&map.keeper, ROOM).context("reading")
    })?;
    reader.wait_asleep_in(Call::Read)?;
    reader.expect_still_asleep_in(Call::Read)?;
    put(&map.end, KEY, b"value")?;
    let expected = vec![record(SET, map.stream, 1, KEY, b"value")];
    expect("the message", parse(&reader.finish()?)?, expected)?;
    // Of an open, too.
    let reader = spawn_keeping("a reader", &[map.keeper.as_fd()], || {
        read_some(&map.keeper, ROOM).context("reading")
    })?;
    reader.wait_asleep_in(Call::Read)?;
    let params = durable(0);
    let request = Open {
        name: sluice_abi::padded("other"),
        ..map::request(NEW, &params)
    };
    let (opened, ()) = answering(
        || map.maps.0.open(request).map(drop),
        || {
            let messages = parse(&reader.finish()?)?;
            let kinds: Vec<u32> = messages.iter().map(|message| message.kind).collect();
            expect("messages", kinds, vec![OPEN])?;
            let refused = map.keeper.refuse(messages[0].stream, Errno::EIO);
            refused.context("READY")
        },
    )?;
    expect("the open", opened, Err(Errno::EIO))?;
    crate::support::channel::set_nonblocking(&map.keeper)?;
    map.ack(1)
}

fn a_signal_interrupts_a_read(_: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    set_blocking(&keeper)?;
    let handled = Event::new()?;
    let read = || Ok(read_some(&keeper, ROOM).map_err(|errno| errno as i32));
    let reader =
        signals::spawn_blocked_keeping(Call::Read, &[keeper.as_fd()], &handled, false, read)?;
    signals::interrupt(&reader, &handled)?;
    expect("a read", reader.finish()?, Err(Errno::EINTR as i32))?;
    let reader =
        signals::spawn_blocked_keeping(Call::Read, &[keeper.as_fd()], &handled, true, read)?;
    signals::interrupt(&reader, &handled)?;
    reader.expect_still_asleep_in(Call::Read)?;
    reader.kill()?;
    crate::support::channel::set_nonblocking(&keeper)
}

fn poll_tells_whether_there_is_a_message(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    let readable = || poll::wait(&map.keeper, poll::IN, 0).map(|mask| mask != 0);
    expect("without a message", readable(), Ok(false))?;
    put(&map.end, KEY, b"")?;
    expect("with one", readable(), Ok(true))?;
    map.keeper.read(ROOM).context("reading")??;
    expect("after it was read", readable(), Ok(false))?;
    map.ack(1)?;
    expect("after the acknowledgement", readable(), Ok(false))?;
    let child = spawn_keeping("a poller", &[map.keeper.as_fd()], || {
        poll::wait(&map.keeper, libc::POLLIN, -1).context("poll")
    })?;
    child.wait_asleep_in(Call::Poll)?;
    put(&map.end, KEY, b"")?;
    expect("a poll that sleeps", child.finish()?, libc::POLLIN)?;
    map.store(1)
}

fn a_write_is_refused(_: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let seen = nix::unistd::write(&keeper, b"message");
    ensure!(
        matches!(seen, Err(Errno::EINVAL | Errno::EBADF)),
        "a write: {seen:?}"
    );
    keeper.expect_nothing()
}
