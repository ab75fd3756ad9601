// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several frames in one write.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::sys::uio::writev;
use nix::unistd::write;

use crate::registry::{Context, topic};
use crate::support::bus::{
    BATCHED, BLOCK, Buses, CAPACITY, DROP, EVICT, FRAMED, Frame, LARGEST, MESSAGES, Message,
    Params, broadcast, content, drain_framed, framed, id, multicast, parse_batch, receive_present,
    set_format, sleeping_receiver, state, unicast, with_policy,
};
use crate::support::channel::{read_some, set_blocking};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn_keeping;
use crate::support::ctl::WRITE;
use crate::support::memory::{GuardedBuffer, Mapping, PAGE, write_at};
use crate::support::proc::Call;

topic!(
    "bus_batch",
    fifo: [],
    pipe_only: [
        a_write_sends_all_its_frames,
        frames_of_a_write_begin_at_multiples_of_8,
        a_frame_is_followed_by_nothing_or_another_one,
        a_vector_with_a_part_per_frame_is_a_batch,
        messages_of_a_batch_have_their_own_targets_and_tags,
        a_batch_of_a_multicast_bus_takes_turns,
        a_long_batch_replaces_old_messages,
        a_batch_without_subscribers_is_counted,
        a_batch_ends_where_the_bus_is_full,
        a_batch_ends_where_its_target_is_full,
        a_blocking_batch_waits_for_its_first_message_only,
        a_batch_ends_before_a_refused_frame,
        a_batch_ends_before_inaccessible_memory,
        a_batch_in_absent_memory_is_sent,
        a_batch_has_messages_of_any_length,
        a_batch_wakes_the_receivers_of_each_message,
        a_batch_can_be_longer_than_the_bus,
    ],
);

/// Frames of a write, each at a multiple of 8.
#[derive(Default)]
struct Frames {
    bytes: Vec<u8>,
    /// The offset of each frame, and of the end.
    at: Vec<usize>,
}

impl Frames {
    /// `count` messages of this length, numbered from `first`.
    fn numbered(first: u64, count: usize, length: usize) -> Self {
        let mut frames = Self::default();
        for number in (first..).take(count) {
            frames.push(Frame::new(length as u32, 0), &content(number, length));
        }
        frames
    }

    fn push(&mut self, frame: Frame, message: &[u8]) {
        // The module ignores what precedes a frame.
        self.bytes
            .resize(self.bytes.len().next_multiple_of(8), 0xff);
        self.at.push(self.bytes.len());
        self.bytes.extend(frame.to_bytes());
        self.bytes.extend(message);
    }

    fn send(&self, end: &OwnedFd) -> nix::Result<usize> {
        write(end, &self.bytes)
    }
}

fn expect_numbered(messages: &[Message], first: u64, count: usize, length: usize) -> Result<()> {
    expect("messages", messages.len(), count)?;
    for (number, message) in (first..).zip(messages) {
        expect("the sequence", message.frame.sequence, number)?;
        expect_bytes("the bytes", &message.bytes, &content(number, length))?;
    }
    Ok(())
}

/// A framed sender of a bus, and a framed subscriber.
fn pair(params: Params, policy: u32) -> Result<(Buses, OwnedFd, OwnedFd)> {
    let buses = Buses::new()?;
    let creator = buses.create(params)?;
    let sender = buses.framed_sender()?;
    drop(creator);
    let params = Params {
        limit: 2 * CAPACITY as u64,
        ..framed(policy)
    };
    let subscriber = buses.subscribe(params)?;
    Ok((buses, sender, subscriber))
}

fn a_write_sends_all_its_frames(_: &Context) -> Result<()> {
    for params in [broadcast(), multicast(), unicast()] {
        let policy = match params.policies {
            0 => 0,
            _ => DROP,
        };
        let (_buses, sender, subscriber) = pair(params, policy)?;
        for format in [FRAMED, BATCHED] {
            set_format(&sender, format).context("setting the format")?;
            for count in 1..=MESSAGES {
                let first = state(&sender)?.sent;
                let frames = Frames::numbered(first, count, 24);
                expect("a batch", frames.send(&sender), Ok(frames.bytes.len()))?;
                expect_numbered(&drain_framed(&subscriber)?, first, count, 24)?;
            }
        }
    }
    Ok(())
}

fn frames_of_a_write_begin_at_multiples_of_8(_: &Context) -> Result<()> {
    let (_buses, sender, subscriber) = pair(broadcast(), DROP)?;
    for length in 0..=16 {
        let first = state(&sender)?.sent;
        let frames = Frames::numbered(first, 3, length);
        let sent = frames.send(&sender);
        expect(
            &format!("of {length} bytes each"),
            sent,
            Ok(frames.bytes.len()),
        )?;
        expect_numbered(&drain_framed(&subscriber)?, first, 3, length)?;
    }
    Ok(())
}

/// Without this check a `length` that is too small would be accepted.
fn a_frame_is_followed_by_nothing_or_another_one(_: &Context) -> Result<()> {
    let (_buses, sender, _subscriber) = pair(broadcast(), DROP)?;
    for length in [4, 8] {
        let message = Frames::numbered(0, 1, length);
        let gap = length.next_multiple_of(8) - length;
        for more in [1, 7, 8, gap + Frame::SIZE - 1] {
            let mut bytes = message.bytes.clone();
            bytes.resize(bytes.len() + more, 0);
            let what = format!("{length} bytes and {more} more");
            expect(&what, write(&sender, &bytes), Err(Errno::EINVAL))?;
        }
    }
    expect("what was sent", state(&sender)?.sent, 0)
}

fn a_vector_with_a_part_per_frame_is_a_batch(_: &Context) -> Result<()> {
    let (_buses, sender, subscriber) = pair(broadcast(), DROP)?;
    let frames = Frames::numbered(0, MESSAGES, 64);
    let parts: Vec<_> = frames.bytes.chunks(64).map(IoSlice::new).collect();
    let sent = writev(&sender, &parts);
    expect("a vector", sent, Ok(frames.bytes.len()))?;
    expect_numbered(&drain_framed(&subscriber)?, 0, MESSAGES, 64)
}

fn messages_of_a_batch_have_their_own_targets_and_tags(_: &Context) -> Result<()> {
    let (buses, sender, first) = pair(broadcast(), DROP)?;
    let second = buses.subscribe(framed(DROP))?;
    let targets = [id(&first)?, 0, id(&second)?, id(&first)?];
    let mut frames = Frames::default();
    for (tag, target) in (1..).zip(targets) {
        let frame = Frame {
            tag,
            ..Frame::new(3, target)
        };
        frames.push(frame, b"abc");
    }
    expect("a batch", frames.send(&sender), Ok(frames.bytes.len()))?;
    for (subscriber, tags) in [(&first, vec![1, 2, 4]), (&second, vec![2, 3])] {
        let messages = drain_framed(subscriber)?;
        let seen: Vec<u64> = messages.iter().map(|message| message.frame.tag).collect();
        expect("the tags", seen, tags)?;
    }
    Ok(())
}

fn a_batch_of_a_multicast_bus_takes_turns(_: &Context) -> Result<()> {
    const SUBSCRIBERS: usize = 3;
    let (buses, sender, first) = pair(multicast(), DROP)?;
    let mut subscribers = vec![first];
    while subscribers.len() < SUBSCRIBERS {
        subscribers.push(buses.subscribe(framed(DROP))?);
    }
    let frames = Frames::numbered(0, 4 * SUBSCRIBERS, 8);
    expect("a batch", frames.send(&sender), Ok(frames.bytes.len()))?;
    let mut firsts = Vec::new();
    for subscriber in &subscribers {
        let messages = drain_framed(subscriber)?;
        expect("the messages of each", messages.len(), 4)?;
        firsts.push(messages[0].frame.sequence);
        for pair in messages.windows(2) {
            let [before, after] = [0, 1].map(|at| pair[at].frame.sequence);
            expect("the turn", after - before, SUBSCRIBERS as u64)?;
        }
    }
    firsts.sort_unstable();
    expect("the first ones", firsts, vec![0, 1, 2])
}

fn a_long_batch_replaces_old_messages(_: &Context) -> Result<()> {
    let (_buses, sender, subscriber) = pair(broadcast(), DROP)?;
    let count = 10 * MESSAGES;
    let frames = Frames::numbered(0, count, 24);
    expect("a batch", frames.send(&sender), Ok(frames.bytes.len()))?;
    let messages = drain_framed(&subscriber)?;
    let lost = messages[0].frame.lost as usize;
    expect("received and lost", messages.len() + lost, count)?;
    expect_numbered(&messages, lost as u64, count - lost, 24)
}

fn a_batch_without_subscribers_is_counted(_: &Context) -> Result<()> {
    let (_buses, sender, subscriber) = pair(broadcast(), DROP)?;
    drop(subscriber);
    let frames = Frames::numbered(0, 5, 20);
    expect("a batch", frames.send(&sender), Ok(frames.bytes.len()))?;
    let info = state(&sender)?;
    expect(
        "sent and unsubscribed",
        (info.sent, info.unsubscribed),
        (0, 5),
    )
}

fn a_batch_ends_where_the_bus_is_full(_: &Context) -> Result<()> {
    let (_buses, sender, subscriber) = pair(broadcast(), BLOCK)?;
    let frames = Frames::numbered(0, MESSAGES + 3, 24);
    expect("a batch", frames.send(&sender), Ok(frames.at[MESSAGES]))?;
    let rest = &frames.bytes[frames.at[MESSAGES]..];
    expect("the rest", write(&sender, rest), Err(Errno::EAGAIN))?;
    for number in 0..2 {
        expect("one", receive_present(&subscriber)?.frame.sequence, number)?;
    }
    let expected = frames.at[MESSAGES + 2] - frames.at[MESSAGES];
    expect("what there is room for", write(&sender, rest), Ok(expected))?;
    expect_numbered(&drain_framed(&subscriber)?, 2, MESSAGES, 24)
}

fn a_batch_ends_where_its_target_is_full(_: &Context) -> Result<()> {
    let (buses, sender, _other) = pair(multicast(), DROP)?;
    let params = Params {
        limit: 256,
        ..framed(BLOCK)
    };
    let target = buses.subscribe(params)?;
    let mut frames = Frames::default();
    for number in 0..4 {
        frames.push(Frame::new(8, id(&target)?), &content(number, 8));
    }
    expect("a batch", frames.send(&sender), Ok(frames.at[2]))?;
    let rest = &frames.bytes[frames.at[2]..];
    expect("the rest", write(&sender, rest), Err(Errno::EAGAIN))?;
    expect_numbered(&drain_framed(&target)?, 0, 2, 8)
}

fn a_blocking_batch_waits_for_its_first_message_only(_: &Context) -> Result<()> {
    let (_buses, sender, subscriber) = pair(broadcast(), BLOCK)?;
    let frames = Frames::numbered(0, MESSAGES, 24);
    expect("a batch", frames.send(&sender), Ok(frames.bytes.len()))?;
    set_blocking(&sender)?;
    let frames = Frames::numbered(MESSAGES as u64, 8 * MESSAGES, 24);
    let child = spawn_keeping("a sender", &[sender.as_fd()], || {
        Ok(frames.send(&sender).map_err(|errno| errno as i32))
    })?;
    child.wait_asleep_in(Call::Write)?;
    // Meanwhile it is woken, and may send several.
    let mut received = drain_framed(&subscriber)?;
    let sent = child.finish()?;
    let sent = sent.map_err(Errno::from_raw).context("the batch")?;
    let count = frames.at.iter().position(|at| *at == sent);
    let count = count.with_context(|| format!("no frame begins at {sent}"))?;
    ensure!(count > 0, "nothing was sent");
    received.extend(drain_framed(&subscriber)?);
    expect_numbered(&received, 0, MESSAGES + count, 24)
}

/// An invalid frame after a valid one ends the write; the next call, which begins with it, reports the error.
fn expect_refused(sender: &OwnedFd, refused: (Frame, &[u8]), errno: Errno) -> Result<()> {
    let sent = state(sender)?.sent;
    let mut frames = Frames::numbered(sent, 2, 8);
    frames.push(refused.0, refused.1);
    frames.push(Frame::new(8, 0), &content(sent + 2, 8));
    expect(
        &format!("before {errno}"),
        frames.send(sender),
        Ok(frames.at[2]),
    )?;
    let rest = &frames.bytes[frames.at[2]..];
    expect("the next call", write(sender, rest), Err(errno))?;
    let rest = &frames.bytes[frames.at[3]..];
    expect("the one after it", write(sender, rest), Ok(rest.len()))?;
    expect("messages", state(sender)?.sent, sent + 3)
}

fn a_batch_ends_before_a_refused_frame(_: &Context) -> Result<()> {
    let (buses, sender, subscriber) = pair(broadcast(), DROP)?;
    let invalid = Frame {
        lost: 1,
        ..Frame::new(8, 0)
    };
    let larger = Frame {
        size: Frame::SIZE as u32 + 8,
        ..Frame::new(0, 0)
    };
    let long = vec![0; LARGEST + 1];
    let unknown = u64::MAX;
    for (frame, message, errno) in [
        (invalid, &[0; 8][..], Errno::EINVAL),
        (larger, &[1; 8], Errno::E2BIG),
        (Frame::new(long.len() as u32, 0), &long, Errno::EMSGSIZE),
        (Frame::new(8, unknown), &[0; 8], Errno::ENOENT),
    ] {
        expect_refused(&sender, (frame, message), errno)?;
        expect("received", drain_framed(&subscriber)?.len(), 3)?;
    }
    drop((buses, sender, subscriber));
    let (_buses, sender, subscriber) = pair(unicast(), 0)?;
    expect_refused(&sender, (Frame::new(8, 1), &[0; 8]), Errno::EOPNOTSUPP)?;
    expect("received", drain_framed(&subscriber)?.len(), 3)
}

fn a_batch_ends_before_inaccessible_memory(_: &Context) -> Result<()> {
    let (_buses, sender, subscriber) = pair(broadcast(), DROP)?;
    let frames = Frames::numbered(0, 4, 24);
    for accessible in [1, 64, Frame::SIZE + 1] {
        let usable = frames.at[3] + accessible;
        let mut buffer = GuardedBuffer::new(usable)?;
        buffer.fill_from(&frames.bytes[..usable]);
        let sent = write_at(&sender, buffer.start(), frames.bytes.len());
        expect("those before it", sent, Ok(frames.at[3]))?;
        let messages = drain_framed(&subscriber)?;
        expect("received", messages.len(), 3)?;
        for (number, message) in (0..).zip(messages) {
            expect_bytes("the bytes", &message.bytes, &content(number, 24))?;
        }
    }
    Ok(())
}

fn a_batch_in_absent_memory_is_sent(_: &Context) -> Result<()> {
    const LENGTH: usize = 1000;
    let buses = Buses::new()?;
    let _creator = buses.create_sized(broadcast(), 1 << 20)?;
    let sender = buses.framed_sender()?;
    let subscriber = buses.subscribe(framed(DROP))?;
    let frames = Frames::numbered(0, 100, LENGTH);
    let len = frames.bytes.len().next_multiple_of(PAGE);
    let memory = Mapping::with_flags(len, libc::MAP_SHARED)?;
    // SAFETY: the mapping has at least as many bytes, and nobody else uses it.
    unsafe {
        let (from, count) = (frames.bytes.as_ptr(), frames.bytes.len());
        std::ptr::copy_nonoverlapping(from, memory.start(), count);
    }
    memory.discard_pages()?;
    let sent = write_at(&sender, memory.start(), frames.bytes.len());
    expect("a batch", sent, Ok(frames.bytes.len()))?;
    let messages = drain_framed(&subscriber)?;
    expect("messages", messages.len(), 100)?;
    for (number, message) in (0..).zip(messages) {
        expect_bytes("the bytes", &message.bytes, &content(number, LENGTH))?;
    }
    Ok(())
}

fn a_batch_has_messages_of_any_length(_: &Context) -> Result<()> {
    const LENGTHS: [usize; 7] = [10, 9000, 65_536, 65_537, 0, 200_001, 7];
    let buses = Buses::new()?;
    let _creator = buses.create_sized(broadcast(), 4 << 20)?;
    let sender = buses.framed_sender()?;
    let subscriber = buses.subscribe(with_policy(DROP))?;
    let max = state(&sender)?.message_max as usize;
    let lengths = LENGTHS.map(|length| length.min(max));
    let mut frames = Frames::default();
    for (number, length) in (0..).zip(lengths) {
        frames.push(Frame::new(length as u32, 0), &content(number, length));
    }
    expect("a batch", frames.send(&sender), Ok(frames.bytes.len()))?;
    for (number, length) in (0..).zip(lengths) {
        let bytes = read_some(&subscriber, max)?;
        expect_bytes("the bytes", &bytes, &content(number, length))?;
    }
    Ok(())
}

fn a_batch_wakes_the_receivers_of_each_message(_: &Context) -> Result<()> {
    const RECEIVERS: usize = 4;
    for params in [broadcast(), multicast(), unicast()] {
        let policy = match params.policies {
            0 => 0,
            _ => EVICT,
        };
        let (buses, sender, first) = pair(params, policy)?;
        let mut ends = vec![first];
        while ends.len() < RECEIVERS {
            ends.push(buses.subscribe(framed(policy))?);
        }
        let children: Vec<_> = ends.iter().map(sleeping_receiver).collect::<Result<_>>()?;
        let frames = Frames::numbered(0, RECEIVERS, 16);
        expect("a batch", frames.send(&sender), Ok(frames.bytes.len()))?;
        for child in children {
            let bytes = child.finish()?.map_err(Errno::from_raw);
            let messages = parse_batch(&bytes.context("receiving")?)?;
            expect("messages of each", messages.len(), 1)?;
        }
    }
    Ok(())
}

fn a_batch_can_be_longer_than_the_bus(_: &Context) -> Result<()> {
    const COUNT: usize = 20 * MESSAGES;
    let (buses, sender, subscriber) = pair(broadcast(), BLOCK)?;
    let params = Params {
        format: BATCHED,
        ..Params::default()
    };
    let blocking = buses.open(WRITE, params).context("opening a sender")?;
    set_blocking(&blocking)?;
    let frames = Frames::numbered(0, COUNT, 24);
    let child = spawn_keeping("a sender", &[blocking.as_fd()], || {
        let mut sent = 0;
        while sent < frames.bytes.len() {
            sent += write(&blocking, &frames.bytes[sent..]).context("sending the rest")?;
        }
        Ok(())
    })?;
    set_blocking(&subscriber)?;
    for number in 0..COUNT as u64 {
        let message = receive_present(&subscriber)?;
        expect("the sequence", message.frame.sequence, number)?;
        expect_bytes("the bytes", &message.bytes, &content(number, 24))?;
    }
    drop(sender);
    child.finish()
}
