// SPDX-License-Identifier: MIT OR Apache-2.0
//! The formats of messages: raw, framed, and batched.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::unistd::{getgid, getpid, getuid, write};

use crate::registry::{Context, topic};
use crate::support::bus::{
    BATCHED, Buses, DROP, FRAMED, Frame, LARGEST, MESSAGES, Params, RAW, broadcast, content,
    drain_framed, framed, id, parse_batch, receive, receive_present, request, send, send_numbered,
    send_to, set_format, state, unicast, with_frame, with_policy,
};
use crate::support::channel::read_some;
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn_keeping;
use crate::support::container::{User, spawn_in_container};
use crate::support::credentials::{NOBODY, become_user_namespace_root, become_user_with_groups};
use crate::support::ctl::{BOTH, CREATE, Open, WRITE};
use crate::support::memory::{GuardedBuffer, PAGE, read_at, write_at};
use crate::support::near;

topic!(
    "bus_formats",
    fifo: [],
    pipe_only: [
        a_frame_has_the_fields_of_its_message,
        formats_of_senders_and_receivers_are_independent,
        a_frame_names_the_opener_of_the_sender,
        a_frame_has_the_users_of_the_receivers_namespace,
        a_frame_has_no_process_id_for_another_pid_namespace,
        a_frame_has_the_process_id_of_the_receivers_pid_namespace,
        a_frame_without_a_whole_header_is_einval,
        a_frame_of_invalid_size_is_einval,
        a_frame_with_reserved_fields_is_einval,
        a_frame_of_another_length_is_einval,
        a_longer_frame_is_accepted_if_the_rest_is_zero,
        a_frame_in_inaccessible_memory_is_efault,
        a_refused_frame_sends_nothing,
        a_framed_read_returns_one_message,
        a_batch_has_all_messages_that_fit,
        frames_of_a_batch_are_aligned,
        a_batch_whose_first_message_does_not_fit_is_emsgsize,
        a_batch_ends_before_a_message_that_does_not_fit,
        a_batch_reports_losses_in_its_first_frame,
        a_batch_of_a_unicast_bus_takes_the_queue,
        a_batch_writes_nothing_behind_the_buffer,
        the_format_applies_to_the_next_read,
    ],
);

fn batched() -> Params {
    Params {
        format: BATCHED,
        ..with_policy(DROP)
    }
}

fn a_frame_has_the_fields_of_its_message(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(framed(DROP))?;
    for (number, length) in (0..).zip([0, 1, 8, 100, LARGEST]) {
        send(&sender, &content(number, length)).context("sending")?;
        let message = receive_present(&subscriber)?;
        let expected = Frame {
            sender: id(&sender)?,
            sequence: number,
            pid: getpid().as_raw() as u32,
            uid: getuid().as_raw(),
            gid: getgid().as_raw(),
            ..Frame::new(length as u32, 0)
        };
        expect("the frame", message.frame, expected)?;
        expect_bytes("the bytes", &message.bytes, &content(number, length))?;
    }
    Ok(())
}

fn formats_of_senders_and_receivers_are_independent(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let framer = buses.framed_sender()?;
    let raw = buses.subscribe(with_policy(DROP))?;
    let frames = buses.subscribe(framed(DROP))?;
    for (number, from) in [(0, &sender), (1, &framer)] {
        match number {
            0 => send(from, &content(number, 40)),
            _ => send_to(from, 0, &content(number, 40)),
        }
        .context("sending")?;
        let bytes = receive(&raw).context("receiving raw")?;
        expect_bytes("raw", &bytes, &content(number, 40))?;
        let message = receive_present(&frames)?;
        expect("its sender", message.frame.sender, id(from)?)?;
        expect_bytes("framed", &message.bytes, &content(number, 40))?;
    }
    Ok(())
}

/// Who opened the endpoint counts, not who writes.
fn a_frame_names_the_opener_of_the_sender(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let subscriber = {
        let creator = buses.0.open(Open {
            mode: 0o666,
            ..request(WRITE | CREATE, &broadcast())
        });
        let _creator = creator.context("creating a bus")?;
        buses.subscribe(framed(DROP))?
    };
    let own = buses.sender()?;
    let other = spawn_keeping("another user", &[own.as_fd()], || {
        become_user_with_groups(1001, 1002, &[])?;
        send(&own, b"by another").context("sending with a passed endpoint")?;
        let sender = Buses::new()?.sender()?;
        send(&sender, b"of another").context("sending")?;
        Ok(getpid().as_raw() as u32)
    })?;
    let pid = other.finish()?;
    let passed = receive_present(&subscriber)?.frame;
    let opener = (passed.pid, passed.uid, passed.gid);
    let expected = (
        getpid().as_raw() as u32,
        getuid().as_raw(),
        getgid().as_raw(),
    );
    expect("the opener of the passed one", opener, expected)?;
    let frame = receive_present(&subscriber)?.frame;
    let opener = (frame.pid, frame.uid, frame.gid);
    expect("the opener of the other", opener, (pid, 1001, 1002))
}

fn a_frame_has_the_users_of_the_receivers_namespace(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(framed(DROP))?;
    send(&sender, b"of root").context("sending")?;
    let receiver = spawn_keeping("a receiver", &[subscriber.as_fd()], || {
        become_user_namespace_root(NOBODY)?;
        let frame = receive_present(&subscriber)?.frame;
        Ok((frame.uid, frame.gid))
    })?;
    expect("an unmapped user", receiver.finish()?, (NOBODY, NOBODY))?;
    let receiver = spawn_keeping("a mapped user", &[buses.0.as_fd()], || {
        become_user_namespace_root(0)?;
        let own = buses.open(BOTH, framed(DROP)).context("opening inside")?;
        send_to(&own, 0, b"of root").context("sending")?;
        let frame = receive_present(&own)?.frame;
        Ok((frame.uid, frame.gid))
    })?;
    expect("a mapped user", receiver.finish()?, (0, 0))
}

fn a_frame_has_no_process_id_for_another_pid_namespace(context: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(framed(DROP))?;
    send(&sender, b"from outside").context("sending")?;
    let receiver = spawn_in_container(
        context.cgroup()?,
        User::NamespaceRoot,
        "a receiver",
        &[subscriber.as_fd()],
        || Ok(receive_present(&subscriber)?.frame.pid),
    )?;
    expect("the process id", receiver.finish()?, 0)
}

fn a_frame_has_the_process_id_of_the_receivers_pid_namespace(context: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _keeper = buses.create(broadcast())?;
    let subscriber = buses.subscribe(framed(DROP))?;
    let own = spawn_in_container(
        context.cgroup()?,
        User::BareRoot,
        "a sender and receiver",
        &[subscriber.as_fd(), buses.0.as_fd()],
        || {
            let inside = buses.open(BOTH, framed(DROP));
            let inside = inside.context("opening inside")?;
            send_to(&inside, 0, b"from inside").context("sending")?;
            Ok((getpid().as_raw(), receive_present(&inside)?.frame.pid))
        },
    )?;
    let (pid, seen) = own.finish()?;
    expect("inside", (pid, seen), (1, 1))?;
    let outside = receive_present(&subscriber)?.frame.pid;
    ensure!(outside > 1, "outside it is process {outside}");
    Ok(())
}

/// A framed sender, and a subscriber that sees whether anything was sent.
fn framer() -> Result<(Buses, OwnedFd, OwnedFd)> {
    let buses = Buses::new()?;
    let creator = buses.create(broadcast())?;
    let sender = buses.framed_sender()?;
    drop(creator);
    let subscriber = buses.subscribe(framed(DROP))?;
    Ok((buses, sender, subscriber))
}

fn expect_refused(what: &str, sender: &OwnedFd, bytes: &[u8], errno: Errno) -> Result<()> {
    expect(what, write(sender, bytes), Err(errno))?;
    expect("messages sent", state(sender)?.sent, 0)
}

/// A frame followed by bytes.
fn framed_bytes(frame: Frame, bytes: &[u8]) -> Vec<u8> {
    [frame.to_bytes().as_slice(), bytes].concat()
}

fn a_frame_without_a_whole_header_is_einval(_: &Context) -> Result<()> {
    let (_buses, sender, _subscriber) = framer()?;
    let whole = with_frame(0, b"");
    for count in [0, 1, 4, 8, 63] {
        expect_refused(
            &format!("{count} bytes"),
            &sender,
            &whole[..count],
            Errno::EINVAL,
        )?;
    }
    Ok(())
}

fn a_frame_of_invalid_size_is_einval(_: &Context) -> Result<()> {
    let (_buses, sender, _subscriber) = framer()?;
    for size in [0, 1, 63, 65, PAGE as u32, u32::MAX] {
        let frame = Frame {
            size,
            ..Frame::new(0, 0)
        };
        let bytes = framed_bytes(frame, b"");
        expect_refused(&format!("size {size}"), &sender, &bytes, Errno::EINVAL)?;
    }
    let size = PAGE as u32 + 8;
    let frame = Frame {
        size,
        ..Frame::new(0, 0)
    };
    let bytes = framed_bytes(frame, &[0; 2 * PAGE]);
    expect_refused("larger than a page", &sender, &bytes, Errno::EINVAL)
}

fn a_frame_with_reserved_fields_is_einval(_: &Context) -> Result<()> {
    let (_buses, sender, _subscriber) = framer()?;
    // All bytes between the target and the tag.
    for at in 16..Frame::SIZE - 8 {
        let mut bytes = with_frame(0, b"x");
        bytes[at] = 1;
        expect_refused(&format!("byte {at}"), &sender, &bytes, Errno::EINVAL)?;
    }
    Ok(())
}

fn a_frame_of_another_length_is_einval(_: &Context) -> Result<()> {
    let (_buses, sender, _subscriber) = framer()?;
    for length in [0, 9, 11, 74, u32::MAX] {
        let bytes = framed_bytes(Frame::new(length, 0), &[1; 10]);
        expect_refused(&format!("length {length}"), &sender, &bytes, Errno::EINVAL)?;
    }
    Ok(())
}

fn a_longer_frame_is_accepted_if_the_rest_is_zero(_: &Context) -> Result<()> {
    let (_buses, sender, subscriber) = framer()?;
    let longer = |size: usize| Frame {
        size: size as u32,
        ..Frame::new(3, 0)
    };
    for size in [Frame::SIZE + 8, PAGE] {
        let rest = size - Frame::SIZE;
        for at in [0, rest - 1] {
            let mut bytes = framed_bytes(longer(size), &vec![0; rest]);
            bytes[Frame::SIZE + at] = 1;
            bytes.extend(b"abc");
            expect(
                "an unknown field",
                write(&sender, &bytes),
                Err(Errno::E2BIG),
            )?;
        }
        let mut bytes = framed_bytes(longer(size), &vec![0; rest]);
        bytes.extend(b"abc");
        expect("zeros", write(&sender, &bytes), Ok(bytes.len()))?;
        let message = receive_present(&subscriber)?;
        expect("the length", message.frame.length, 3)?;
        expect_bytes("the bytes", &message.bytes, b"abc")?;
    }
    Ok(())
}

fn a_frame_in_inaccessible_memory_is_efault(_: &Context) -> Result<()> {
    let (_buses, sender, subscriber) = framer()?;
    let bytes = with_frame(0, &[]);
    for usable in [1, 63] {
        let mut buffer = GuardedBuffer::new(usable)?;
        buffer.fill_from(&bytes[..usable]);
        let seen = write_at(&sender, buffer.start(), Frame::SIZE);
        expect("a frame that is cut off", seen, Err(Errno::EFAULT))?;
    }
    expect("what was sent", receive(&subscriber), Err(Errno::EAGAIN))
}

fn a_refused_frame_sends_nothing(_: &Context) -> Result<()> {
    let (_buses, sender, subscriber) = framer()?;
    let refused = framed_bytes(
        Frame {
            lost: 1,
            ..Frame::new(1, 0)
        },
        b"x",
    );
    for number in 0..5 {
        expect("refused", write(&sender, &refused), Err(Errno::EINVAL))?;
        expect("accepted", send_to(&sender, 0, b"x"), Ok(()))?;
        let frame = receive_present(&subscriber)?.frame;
        expect(
            "its sequence and loss",
            (frame.sequence, frame.lost),
            (number, 0),
        )?;
    }
    Ok(())
}

fn a_framed_read_returns_one_message(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(framed(DROP))?;
    send_numbered(&sender, 0, 3, 8)?;
    for _ in 0..3 {
        let seen = read_some(&subscriber, PAGE).context("receiving")?;
        expect("the bytes of a read", seen.len(), Frame::SIZE + 8)?;
    }
    Ok(())
}

fn a_batch_has_all_messages_that_fit(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(batched())?;
    for count in 1..=MESSAGES as u64 {
        let first = state(&sender)?.sent;
        send_numbered(&sender, first, count, 24)?;
        let bytes = receive(&subscriber).context("receiving")?;
        let batch = parse_batch(&bytes)?;
        expect("messages", batch.len() as u64, count)?;
        for (number, message) in (first..).zip(&batch) {
            expect("the sequence", message.frame.sequence, number)?;
            expect_bytes("the bytes", &message.bytes, &content(number, 24))?;
        }
        expect("a further read", receive(&subscriber), Err(Errno::EAGAIN))?;
    }
    Ok(())
}

fn frames_of_a_batch_are_aligned(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(batched())?;
    for length in 0..=16 {
        let first = state(&sender)?.sent;
        send_numbered(&sender, first, 3, length)?;
        let bytes = receive(&subscriber).context("receiving")?;
        let step = (Frame::SIZE + length).next_multiple_of(8);
        let expected = 2 * step + Frame::SIZE + length;
        expect(&format!("bytes of {length} each"), bytes.len(), expected)?;
        for (number, at) in (first..).zip([0, step, 2 * step]) {
            let frame = bytes[at..].first_chunk().context("cut off")?;
            let sequence = near::message_from_zero(Frame::from_bytes(frame).sequence);
            expect("the sequence", sequence, number)?;
            let padding = (at + Frame::SIZE + length..at + step).filter(|at| *at < bytes.len());
            ensure!(
                padding.into_iter().all(|at| bytes[at] == 0),
                "padding that is not 0"
            );
        }
    }
    Ok(())
}

fn a_batch_whose_first_message_does_not_fit_is_emsgsize(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(batched())?;
    send_numbered(&sender, 0, 2, 100)?;
    for limit in [0, 63, 64, 163] {
        let seen = read_some(&subscriber, limit);
        expect(&format!("into {limit} bytes"), seen, Err(Errno::EMSGSIZE))?;
    }
    let bytes = read_some(&subscriber, 164).context("into as many")?;
    expect("messages", parse_batch(&bytes)?.len(), 1)
}

fn a_batch_ends_before_a_message_that_does_not_fit(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(batched())?;
    // Each uses 64 + 20 bytes, and 4 to the next frame.
    for (limit, fitting) in [
        (84, 1),
        (88, 1),
        (171, 1),
        (172, 2),
        (176, 2),
        (259, 2),
        (260, 3),
    ] {
        send_numbered(&sender, 0, 3, 20)?;
        let bytes = read_some(&subscriber, limit).context("receiving")?;
        let batch = parse_batch(&bytes)?;
        expect(&format!("messages in {limit} bytes"), batch.len(), fitting)?;
        let rest = match fitting {
            3 => 0,
            _ => parse_batch(&receive(&subscriber).context("the rest")?)?.len(),
        };
        expect("the rest", rest, 3 - fitting)?;
    }
    Ok(())
}

fn a_batch_reports_losses_in_its_first_frame(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(batched())?;
    for _ in 0..5 {
        let (first, lost_before) = (state(&sender)?.sent, state(&subscriber)?.own_lost);
        send_numbered(&sender, first, 100, 24)?;
        let lost = state(&subscriber)?.own_lost - lost_before;
        let batch = parse_batch(&receive(&subscriber).context("receiving")?)?;
        expect("its first frame", batch[0].frame.lost, lost)?;
        expect("its first sequence", batch[0].frame.sequence, first + lost)?;
        ensure!(
            batch[1..].iter().all(|m| m.frame.lost == 0),
            "a loss is reported twice"
        );
        expect("received and lost", batch.len() as u64 + lost, 100)?;
    }
    Ok(())
}

fn a_batch_of_a_unicast_bus_takes_the_queue(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(unicast())?;
    let first = buses.subscribe(Params {
        format: BATCHED,
        ..Params::default()
    })?;
    let second = buses.subscribe(framed(0))?;
    send_numbered(&sender, 0, 5, 10)?;
    expect("the second", receive_present(&second)?.frame.sequence, 0)?;
    let batch = parse_batch(&receive(&first).context("receiving")?)?;
    let sequences: Vec<u64> = batch.iter().map(|m| m.frame.sequence).collect();
    expect("the batch", sequences, vec![1, 2, 3, 4])?;
    expect("what is left", drain_framed(&second)?.len(), 0)
}

fn a_batch_writes_nothing_behind_the_buffer(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(batched())?;
    for usable in [84, 86, 88, 171, 172, 174, 176, 180, 260] {
        send_numbered(&sender, 0, 3, 20)?;
        let buffer = GuardedBuffer::new(usable)?;
        let count = read_at(&subscriber, buffer.start(), usable);
        let count = count.with_context(|| format!("into {usable} bytes"))?;
        let batch = parse_batch(&buffer.to_vec(count))?;
        expect("messages", batch.len(), (usable + 4) / 88)?;
        while receive(&subscriber).is_ok() {}
    }
    Ok(())
}

fn the_format_applies_to_the_next_read(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(with_policy(DROP))?;
    send_numbered(&sender, 0, 4, 8)?;
    for (format, bytes) in [(RAW, 8), (FRAMED, 72), (BATCHED, 144)] {
        set_format(&subscriber, format).context("setting the format")?;
        let seen = receive(&subscriber).context("receiving")?;
        expect(&format!("bytes in format {format}"), seen.len(), bytes)?;
    }
    Ok(())
}
