// SPDX-License-Identifier: MIT OR Apache-2.0
//! Subscribers that map the memory of a bus: what they can map, which messages they get, and when they release them.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;

use crate::registry::{Context, topic};
use crate::support::bus::{
    BLOCK, Buses, CAPACITY, DROP, EVICT, Entry, LARGEST, MAPPED, MESSAGES, MMAP_DATA, Params,
    RECEIVE, RECEIVE_MAX, RECEIVE_SIZE_VER0, Receive, content, drain, fill, framed, id, mappable,
    next_length, receive, receive_framed, receive_mapped, send, send_numbered, send_to, state,
    with_policy,
};
use crate::support::channel::set_blocking;
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{spawn, spawn_keeping};
use crate::support::ctl::{BOTH, READ};
use crate::support::event::Event;
use crate::support::ioctl::{raw, size_error};
use crate::support::memory::{GuardedBuffer, Mapping, PAGE, write_at};
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::requests::bytes_of;
use crate::support::ring::{READ_ONLY, READ_WRITE, Region, expect_not_executable, smaps_flags};
use crate::support::signals;
use crate::support::time::{Deadline, eventually};

topic!(
    "bus_map",
    fifo: [],
    pipe_only: [
        only_the_whole_memory_can_be_mapped,
        the_memory_can_only_be_read,
        a_store_to_the_memory_is_sigsegv,
        the_memory_is_zero_at_first,
        the_memory_is_mapped_twice_in_a_row,
        the_memory_outlives_the_endpoint_and_the_bus,
        messages_are_handed_out_in_place,
        messages_of_every_length_are_contiguous,
        a_message_is_complete_when_it_is_handed_out,
        each_message_is_handed_out_once,
        a_call_hands_out_at_most_its_count,
        a_call_hands_out_at_most_the_maximum,
        a_count_of_zero_only_releases,
        messages_are_kept_until_they_are_released,
        a_release_may_be_partial_and_repeated,
        a_release_of_what_was_not_handed_out_is_einval,
        a_subscriber_starts_at_the_head,
        mapped_and_other_subscribers_receive_the_same,
        without_a_message_a_call_is_eagain,
        a_blocking_call_waits_for_a_message,
        a_signal_interrupts_a_blocking_call,
        a_sleeping_process_can_be_killed,
        read_of_a_mapped_subscriber_is_einval,
        receive_of_another_endpoint_is_einval,
        calls_of_any_size_up_to_a_page_are_accepted,
        invalid_calls_are_refused,
        entries_in_inaccessible_memory_are_handed_out_again,
        addressed_messages_are_eopnotsupp,
        the_bytes_of_a_failed_send_are_not_visible,
        a_failed_send_is_no_message,
        a_sleeping_subscriber_releases_failed_sends,
        a_look_past_a_failed_send_hides_no_message,
        a_look_past_a_failed_send_in_a_full_bus_hides_no_message,
        a_closed_mapped_subscriber_releases_senders,
    ],
);

/// A mapped subscriber with its memory.
struct Mapped {
    end: OwnedFd,
    memory: Region,
    /// The sequence after the last message that was handed out.
    next: u64,
}

impl Mapped {
    fn subscribe(buses: &Buses) -> Result<Self> {
        let end = subscribe(buses)?;
        let len = 2 * state(&end)?.capacity as usize;
        let memory = Region::map(&end, MMAP_DATA, len, READ_ONLY).context("mapping")?;
        Ok(Mapped {
            end,
            memory,
            next: 0,
        })
    }

    fn bytes(&self, entry: &Entry) -> Vec<u8> {
        self.memory
            .read(entry.offset as usize, entry.length as usize)
    }

    /// Releases all messages that were handed out, and returns the next ones.
    fn exchange(&mut self, count: usize) -> Result<Vec<Entry>> {
        let entries = match receive_mapped(&self.end, self.next, count) {
            Err(Errno::EAGAIN) => Vec::new(),
            entries => entries.context("receiving")?,
        };
        self.next = entries.last().map_or(self.next, |entry| entry.sequence + 1);
        Ok(entries)
    }

    fn release(&mut self) -> Result<()> {
        let entries = receive_mapped(&self.end, self.next, 0);
        expect("a release", entries, Ok(vec![]))
    }
}

fn subscribe(buses: &Buses) -> Result<OwnedFd> {
    buses.subscribe(Params {
        flags: MAPPED,
        ..Params::default()
    })
}

fn only_the_whole_memory_can_be_mapped(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for capacity in [CAPACITY, 4 * CAPACITY] {
        let sender = buses.create_sized(mappable(), capacity)?;
        let end = subscribe(&buses)?;
        let whole = 2 * capacity;
        let map = |offset, len| Region::map(&end, offset, len, READ_ONLY).map(drop);
        expect("the whole", map(MMAP_DATA, whole), Ok(()))?;
        expect("again", map(MMAP_DATA, whole), Ok(()))?;
        let invalid = Err(Errno::EINVAL);
        for len in [PAGE, capacity, whole - PAGE, whole + PAGE] {
            if len != whole {
                expect(&format!("{len} bytes"), map(MMAP_DATA, len), invalid)?;
            }
        }
        for offset in [
            0,
            0x1000,
            0x10_0000,
            MMAP_DATA - 4096,
            MMAP_DATA + 4096,
            1 << 40,
        ] {
            let seen = map(offset, whole);
            expect(&format!("offset {offset:#x}"), seen, invalid)?;
            expect("a page of it", map(offset, PAGE), invalid)?;
        }
        let of_sender = Region::map(&sender, MMAP_DATA, whole, READ_ONLY);
        expect("a sender", of_sender.map(drop), Err(Errno::EACCES))?;
    }
    Ok(())
}

/// Mappings of a subscriber, and of one that may also send.
fn for_each_mapping(body: impl Fn(&OwnedFd, &Region) -> Result<()>) -> Result<()> {
    for flags in [READ, BOTH] {
        let buses = Buses::new()?;
        let _sender = buses.create(mappable())?;
        let mapped = Params {
            flags: MAPPED,
            ..Params::default()
        };
        let end = buses.open(flags, mapped).context("subscribing")?;
        let region = Region::map(&end, MMAP_DATA, 2 * CAPACITY, READ_ONLY);
        let what = || format!("opened with {flags:#x}");
        body(&end, &region.with_context(what)?).with_context(what)?;
    }
    Ok(())
}

fn the_memory_can_only_be_read(_: &Context) -> Result<()> {
    for_each_mapping(|end, region| {
        let executable = libc::PROT_READ | libc::PROT_EXEC;
        let map = |protection| Region::map(end, MMAP_DATA, region.len(), protection).map(drop);
        expect_not_executable("a mapping", map(executable))?;
        for protection in [READ_WRITE, libc::PROT_WRITE] {
            expect("mapping it so", map(protection), Err(Errno::EACCES))?;
        }
        for protection in [READ_WRITE, libc::PROT_WRITE, executable] {
            let seen = region.protect(protection);
            expect("mprotect", seen, Err(Errno::EACCES))?;
        }
        let private = libc::MAP_PRIVATE;
        let seen = Region::map_with(end, MMAP_DATA, region.len(), READ_ONLY, private);
        expect("a private mapping", seen.map(drop), Err(Errno::EINVAL))?;
        let flags = smaps_flags(region.start())?;
        let has = |flag: &str| flags.iter().any(|seen| seen == flag);
        let what = "may be shared, expanded, written, executed";
        let seen = [has("ms"), !has("de"), has("mw"), has("me")];
        expect(what, seen, [true, false, false, false])
    })
}

fn a_store_to_the_memory_is_sigsegv(_: &Context) -> Result<()> {
    for_each_mapping(|_, region| {
        for offset in [0, CAPACITY, 2 * CAPACITY - 1] {
            let child = spawn("a child that stores", || {
                region.write(offset, &[1]);
                Ok(())
            })?;
            match child.wait_end()? {
                WaitStatus::Signaled(_, Signal::SIGSEGV, _) => {}
                status => bail!("it ended so: {status:?}"),
            }
        }
        ensure!(region.is_zero(), "a byte was stored");
        Ok(())
    })
}

fn the_memory_is_zero_at_first(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for capacity in [CAPACITY, 1 << 20] {
        let _sender = buses.create_sized(mappable(), capacity)?;
        let mapped = Mapped::subscribe(&buses)?;
        ensure!(
            mapped.memory.is_zero(),
            "a bus of {capacity} bytes is not zeroed"
        );
    }
    Ok(())
}

fn the_memory_is_mapped_twice_in_a_row(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mut mapped = Mapped::subscribe(&buses)?;
    for round in 0..20 {
        let bytes = content(round, LARGEST);
        send(&sender, &bytes).context("sending")?;
        mapped.exchange(1)?;
        let first = mapped.memory.read(0, CAPACITY);
        let second = mapped.memory.read(CAPACITY, CAPACITY);
        expect_bytes("the second half", &second, &first)?;
    }
    Ok(())
}

fn the_memory_outlives_the_endpoint_and_the_bus(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mut mapped = Mapped::subscribe(&buses)?;
    send(&sender, &content(1, 500)).context("sending")?;
    let entry = mapped.exchange(1)?[0];
    buses.destroy().context("destroying it")?;
    let Mapped { end, memory, .. } = mapped;
    drop((sender, end));
    let seen = memory.read(entry.offset as usize, 500);
    expect_bytes("the message", &seen, &content(1, 500))
}

fn messages_are_handed_out_in_place(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let senders = [buses.create(mappable())?, buses.sender()?];
    let mut mapped = Mapped::subscribe(&buses)?;
    for number in 0..100 {
        let sender = &senders[number as usize % 2];
        send(sender, &content(number, 200)).context("sending")?;
        let entries = mapped.exchange(4)?;
        let expected = Entry {
            offset: number * 256 % CAPACITY as u64,
            sequence: number,
            sender: id(sender)?,
            length: 200,
            reserved: 0,
        };
        expect("the entries", &entries, &vec![expected])?;
        expect_bytes(
            "the bytes",
            &mapped.bytes(&entries[0]),
            &content(number, 200),
        )?;
    }
    Ok(())
}

fn messages_of_every_length_are_contiguous(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mut mapped = Mapped::subscribe(&buses)?;
    let mut crossed = false;
    for (number, length) in (0..).zip(0..=LARGEST) {
        send(&sender, &content(number, length)).context("sending")?;
        let entries = mapped.exchange(2)?;
        expect("entries", entries.len(), 1)?;
        let seen = (entries[0].sequence, entries[0].length as usize);
        expect("sequence and length", seen, (number, length))?;
        expect("the alignment", entries[0].offset % 64, 0)?;
        crossed |= entries[0].offset as usize + length > CAPACITY;
        expect_bytes(
            "the bytes",
            &mapped.bytes(&entries[0]),
            &content(number, length),
        )?;
    }
    ensure!(crossed, "no message crossed the end");
    Ok(())
}

/// The end of a long message is what is copied last, and looked at first here.
fn a_message_is_complete_when_it_is_handed_out(_: &Context) -> Result<()> {
    const LENGTH: usize = 60_000;
    const COUNT: u64 = 2000;
    let buses = Buses::new()?;
    let sender = buses.create_sized(mappable(), 1 << 18)?;
    let mut mapped = Mapped::subscribe(&buses)?;
    set_blocking(&sender)?;
    let child = spawn_keeping("a sender", &[sender.as_fd()], || {
        for number in 1..=COUNT {
            let bytes = number.to_ne_bytes().repeat(LENGTH / 8);
            send(&sender, &bytes).context("sending")?;
        }
        Ok(())
    })?;
    let mut deadline = Deadline::for_event();
    let mut number = 0;
    while number < COUNT {
        let Some(entry) = mapped.exchange(1)?.pop() else {
            ensure!(!deadline.passed(), "message {number} did not arrive");
            continue;
        };
        number += 1;
        deadline = Deadline::for_event();
        let start = entry.offset as usize;
        for at in [start + LENGTH - 8, start + LENGTH / 2, start] {
            let seen = mapped.memory.read(at, 8);
            expect_bytes(&format!("message {number}"), &seen, &number.to_ne_bytes())?;
        }
    }
    child.finish()
}

fn sequences(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.sequence).collect()
}

fn each_message_is_handed_out_once(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mut mapped = Mapped::subscribe(&buses)?;
    send_numbered(&sender, 0, 10, 50)?;
    let first = receive_mapped(&mapped.end, 0, 4).context("receiving")?;
    expect("the first", sequences(&first), vec![0, 1, 2, 3])?;
    let second = receive_mapped(&mapped.end, 0, 20).context("receiving")?;
    expect("the others", sequences(&second), (4..10).collect())?;
    let third = receive_mapped(&mapped.end, 0, 20);
    expect("no more", third, Err(Errno::EAGAIN))?;
    for entry in first.iter().chain(&second) {
        let sent = content(entry.sequence, 50);
        expect_bytes("a message that is held", &mapped.bytes(entry), &sent)?;
    }
    mapped.next = 10;
    expect("released", mapped.exchange(20)?, vec![])
}

fn a_call_hands_out_at_most_its_count(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mut mapped = Mapped::subscribe(&buses)?;
    for count in 1..=MESSAGES {
        send_numbered(&sender, 0, MESSAGES as u64, 10)?;
        let mut entries = vec![Entry::default(); MESSAGES + 1];
        let mut call = Receive::new(entries.as_mut_ptr(), count, mapped.next);
        raw(&mapped.end, RECEIVE, &mut call).context("receiving")?;
        expect("filled in", call.count as usize, count)?;
        let rest = entries[count..]
            .iter()
            .all(|entry| *entry == Entry::default());
        expect("what is behind", rest, true)?;
        mapped.next = entries[count - 1].sequence + 1;
        while !mapped.exchange(32)?.is_empty() {}
    }
    Ok(())
}

fn a_call_hands_out_at_most_the_maximum(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create_sized(mappable(), 16 * CAPACITY)?;
    let mut mapped = Mapped::subscribe(&buses)?;
    send_numbered(&sender, 0, 100, 10)?;
    for fitting in [RECEIVE_MAX, RECEIVE_MAX, RECEIVE_MAX, 4, 0] {
        expect("entries", mapped.exchange(200)?.len(), fitting)?;
    }
    Ok(())
}

fn a_count_of_zero_only_releases(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mut mapped = Mapped::subscribe(&buses)?;
    set_blocking(&mapped.end)?;
    mapped.release().context("without a message")?;
    send_numbered(&sender, 0, 2, 10)?;
    mapped.release().context("with messages")?;
    expect("the lag", state(&mapped.end)?.own_lag, 2)?;
    mapped.exchange(2)?;
    mapped.release()?;
    expect("the lag afterwards", state(&mapped.end)?.own_lag, 0)
}

fn messages_are_kept_until_they_are_released(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mut mapped = Mapped::subscribe(&buses)?;
    let sent = fill(&sender, 100)?;
    expect("messages", sent, MESSAGES as u64)?;
    let entries = mapped.exchange(MESSAGES)?;
    expect(
        "while they are held",
        send(&sender, b"x"),
        Err(Errno::EAGAIN),
    )?;
    expect("events", poll::state(&sender)?, "nothing".to_owned())?;
    expect("the lag", state(&mapped.end)?.own_lag, sent)?;
    for (number, entry) in (0..).zip(&entries) {
        expect_bytes("the bytes", &mapped.bytes(entry), &content(number, 100))?;
    }
    mapped.release()?;
    expect("after the release", send(&sender, b"x"), Ok(()))
}

fn a_release_may_be_partial_and_repeated(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mapped = Mapped::subscribe(&buses)?;
    send_numbered(&sender, 0, 10, 10)?;
    receive_mapped(&mapped.end, 0, 10).context("receiving")?;
    for (released, lag) in [(3, 7), (3, 7), (0, 7), (2, 7), (4, 6), (10, 0), (1, 0)] {
        let seen = receive_mapped(&mapped.end, released, 0);
        expect(&format!("releasing {released}"), seen, Ok(vec![]))?;
        expect("the lag", state(&mapped.end)?.own_lag, lag)?;
    }
    Ok(())
}

fn a_release_of_what_was_not_handed_out_is_einval(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mapped = Mapped::subscribe(&buses)?;
    let invalid = Err(Errno::EINVAL);
    expect(
        "of an empty bus",
        receive_mapped(&mapped.end, 1, 1),
        invalid,
    )?;
    send_numbered(&sender, 0, 5, 10)?;
    for released in [1, 5, 6, u64::MAX / 2, u64::MAX] {
        for count in [0, 5] {
            let seen = receive_mapped(&mapped.end, released, count);
            expect(&format!("{released}"), seen, Err(Errno::EINVAL))?;
        }
    }
    let entries = receive_mapped(&mapped.end, 0, 3).context("receiving")?;
    expect("the first", sequences(&entries), vec![0, 1, 2])?;
    expect(
        "one more",
        receive_mapped(&mapped.end, 4, 5),
        Err(Errno::EINVAL),
    )?;
    let entries = receive_mapped(&mapped.end, 3, 5).context("releasing them")?;
    expect("the next", sequences(&entries), vec![3, 4])
}

fn a_subscriber_starts_at_the_head(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mut early = Mapped::subscribe(&buses)?;
    send_numbered(&sender, 0, 3, 10)?;
    let mut late = Mapped::subscribe(&buses)?;
    expect("an earlier message", late.exchange(10)?, vec![])?;
    send_numbered(&sender, 3, 2, 10)?;
    expect("the late one", sequences(&late.exchange(10)?), vec![3, 4])?;
    expect(
        "the early one",
        sequences(&early.exchange(10)?),
        (0..5).collect(),
    )
}

fn mapped_and_other_subscribers_receive_the_same(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mut mapped = [Mapped::subscribe(&buses)?, Mapped::subscribe(&buses)?];
    let reading = [DROP, BLOCK, EVICT].map(|policy| buses.subscribe(with_policy(policy)));
    for number in 0..200 {
        let bytes = content(number, number as usize * 7 % LARGEST);
        send(&sender, &bytes).context("sending")?;
        for end in &mut mapped {
            let entries = end.exchange(1)?;
            expect("entries", entries.len(), 1)?;
            expect_bytes("mapped", &end.bytes(&entries[0]), &bytes)?;
        }
        for end in &reading {
            let end = end.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
            expect_bytes("read", &receive(end).context("receiving")?, &bytes)?;
        }
    }
    Ok(())
}

fn without_a_message_a_call_is_eagain(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(mappable())?;
    let mapped = Mapped::subscribe(&buses)?;
    expect(
        "a call",
        receive_mapped(&mapped.end, 0, 1),
        Err(Errno::EAGAIN),
    )?;
    expect("events", poll::state(&mapped.end)?, "nothing".to_owned())?;
    expect("the length", next_length(&mapped.end), Ok(0))
}

fn a_blocking_call_waits_for_a_message(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let end = subscribe(&buses)?;
    set_blocking(&end)?;
    for number in 0..3 {
        let child = spawn_keeping("a receiver", &[end.as_fd()], || {
            let entries = receive_mapped(&end, number, 4).context("receiving")?;
            Ok(sequences(&entries))
        })?;
        child.wait_asleep_in(Call::Ioctl)?;
        child.expect_still_asleep_in(Call::Ioctl)?;
        send(&sender, b"x").context("sending")?;
        expect("what it gets", child.finish()?, vec![number])?;
    }
    Ok(())
}

fn a_signal_interrupts_a_blocking_call(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let end = subscribe(&buses)?;
    set_blocking(&end)?;
    for restart in [false, true] {
        let handled = Event::new()?;
        let keep = [end.as_fd()];
        let call = || {
            Ok(receive_mapped(&end, 0, 1)
                .map(drop)
                .map_err(|errno| errno as i32))
        };
        let child = signals::spawn_blocked_keeping(Call::Ioctl, &keep, &handled, restart, call)?;
        signals::interrupt(&child, &handled)?;
        expect("the call", child.finish()?, Err(Errno::EINTR as i32))?;
    }
    send(&sender, b"x").context("sending")?;
    let entries = receive_mapped(&end, 0, 1).context("receiving")?;
    expect("afterwards", sequences(&entries), vec![0])
}

fn a_sleeping_process_can_be_killed(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let end = subscribe(&buses)?;
    set_blocking(&end)?;
    let child = spawn_keeping("a receiver", &[end.as_fd()], || {
        receive_mapped(&end, 0, 1).map(drop).context("receiving")
    })?;
    drop(end);
    child.wait_asleep_in(Call::Ioctl)?;
    child.kill()?;
    eventually("its subscription ends", || {
        Ok((state(&sender)?.subscribers == 0).then_some(()))
    })
}

fn read_of_a_mapped_subscriber_is_einval(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mut mapped = Mapped::subscribe(&buses)?;
    expect(
        "without a message",
        receive(&mapped.end),
        Err(Errno::EINVAL),
    )?;
    send(&sender, b"x").context("sending")?;
    expect("with a message", receive(&mapped.end), Err(Errno::EINVAL))?;
    expect("which stays", mapped.exchange(1)?.len(), 1)
}

fn receive_of_another_endpoint_is_einval(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let reading = buses.subscribe(with_policy(BLOCK))?;
    send(&sender, b"x").context("sending")?;
    for end in [&sender, &reading] {
        for count in [0, 1] {
            let seen = receive_mapped(end, 0, count);
            expect("a call", seen, Err(Errno::EINVAL))?;
        }
    }
    expect("the message stays", drain(&reading)?.len(), 1)
}

/// A page that starts with this call.
fn call_page(call: Receive) -> Vec<u8> {
    let mut page = bytes_of(&call);
    page.resize(PAGE, 0);
    page
}

fn calls_of_any_size_up_to_a_page_are_accepted(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mapped = Mapped::subscribe(&buses)?;
    let first = RECEIVE_SIZE_VER0;
    for (number, size) in (0..).zip([first, first + 1, first + 8, 1000, PAGE as u32]) {
        send(&sender, b"x").context("sending")?;
        let mut entry = Entry::default();
        let call = Receive::new(&mut entry, 1, number);
        let mut page = call_page(Receive { size, ..call });
        let seen = raw(&mapped.end, RECEIVE, page.as_mut_ptr());
        expect(&format!("{size} bytes"), seen, Ok(()))?;
        expect("the sequence", entry.sequence, number)?;
    }
    Ok(())
}

fn invalid_calls_are_refused(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mut mapped = Mapped::subscribe(&buses)?;
    send(&sender, b"x").context("sending")?;
    let mut entry = Entry::default();
    let valid = Receive::new(&mut entry, 1, 0);
    let first = RECEIVE_SIZE_VER0;
    for size in [0, first - 1, PAGE as u32 + 1] {
        let mut page = call_page(Receive { size, ..valid });
        let seen = raw(&mapped.end, RECEIVE, page.as_mut_ptr());
        expect(&format!("{size} bytes"), seen, Err(size_error(size)))?;
    }
    let size = first + 8;
    let mut page = call_page(Receive { size, ..valid });
    page[first as usize + 7] = 1;
    let seen = raw(&mapped.end, RECEIVE, page.as_mut_ptr());
    expect("an unknown field", seen, Err(Errno::E2BIG))?;
    let seen = raw(&mapped.end, RECEIVE, std::ptr::null_mut::<u8>());
    expect("no memory", seen, Err(Errno::EFAULT))?;
    expect("the message stays", mapped.exchange(1)?.len(), 1)
}

fn entries_in_inaccessible_memory_are_handed_out_again(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mut mapped = Mapped::subscribe(&buses)?;
    send_numbered(&sender, 0, 5, 10)?;
    let mapping = Mapping::new(2)?;
    mapping.unmap_from(PAGE)?;
    // One entry is accessible, or none.
    for start in [
        mapping.start().wrapping_add(PAGE - size_of::<Entry>()),
        mapping.start().wrapping_add(PAGE),
    ] {
        let mut call = Receive::new(start.cast(), 3, 0);
        let seen = raw(&mapped.end, RECEIVE, &mut call);
        expect("a call", seen, Err(Errno::EFAULT))?;
        expect("the lag", state(&mapped.end)?.own_lag, 5)?;
    }
    expect(
        "handed out again",
        sequences(&mapped.exchange(2)?),
        vec![0, 1],
    )?;
    // What was handed out before and is not released is, too.
    let mut call = Receive::new(std::ptr::null_mut(), 3, 0);
    let seen = raw(&mapped.end, RECEIVE, &mut call);
    expect("a call", seen, Err(Errno::EFAULT))?;
    let entries = receive_mapped(&mapped.end, 0, 5).context("receiving")?;
    expect(
        "from the first held one on",
        sequences(&entries),
        (0..5).collect(),
    )
}

fn addressed_messages_are_eopnotsupp(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(mappable())?;
    let framer = buses.framed_sender()?;
    let reading = buses.subscribe(framed(DROP))?;
    for target in [id(&reading)?, 1, u64::MAX] {
        let seen = send_to(&framer, target, b"x");
        expect("an addressed message", seen, Err(Errno::EOPNOTSUPP))?;
    }
    expect("to all", send_to(&framer, 0, b"x"), Ok(()))?;
    expect("received", receive_framed(&reading)?.is_some(), true)
}

/// Sends `length` bytes of which only the first are accessible.
fn send_inaccessible(sender: &OwnedFd, accessible: usize, length: usize) -> Result<()> {
    let mut buffer = GuardedBuffer::new(accessible)?;
    buffer.fill_from(&vec![0xAA; accessible]);
    let sent = write_at(sender, buffer.start(), length);
    expect("the send", sent, Err(Errno::EFAULT))
}

fn the_bytes_of_a_failed_send_are_not_visible(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mapped = Mapped::subscribe(&buses)?;
    for accessible in [1, 64, 100, 1000] {
        send_inaccessible(&sender, accessible, accessible + 1)?;
        ensure!(mapped.memory.is_zero(), "{accessible} bytes are visible");
    }
    Ok(())
}

fn a_failed_send_is_no_message(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mut mapped = Mapped::subscribe(&buses)?;
    for round in 0..20 {
        send_inaccessible(&sender, 100, 200)?;
        expect("an entry", mapped.exchange(4)?, vec![])?;
        send(&sender, &content(round, 50)).context("sending")?;
        let entries = mapped.exchange(4)?;
        expect("entries", entries.len(), 1)?;
        expect_bytes(
            "the message",
            &mapped.bytes(&entries[0]),
            &content(round, 50),
        )?;
    }
    Ok(())
}

/// Otherwise they would fill the bus, although the subscriber has released everything.
fn a_sleeping_subscriber_releases_failed_sends(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for call in [Call::Ioctl, Call::Poll] {
        let sender = buses.create(mappable())?;
        let end = subscribe(&buses)?;
        set_blocking(&end)?;
        let child = spawn_keeping("a subscriber", &[end.as_fd()], || {
            if call == Call::Poll {
                poll::wait(&end, poll::IN, -1).context("poll")?;
            }
            let entries = receive_mapped(&end, 0, 4).context("receiving")?;
            Ok(entries.iter().map(|entry| entry.length).collect::<Vec<_>>())
        })?;
        child.wait_asleep_in(call)?;
        for _ in 0..3 * MESSAGES {
            send_inaccessible(&sender, 100, LARGEST)?;
            child.wait_asleep_in(call)?;
        }
        expect("sending", send(&sender, &content(0, 50)), Ok(()))?;
        expect("the lengths", child.finish()?, vec![50])?;
    }
    Ok(())
}

/// poll(2) and FIONREAD must not change what is handed out next.
fn a_look_past_a_failed_send_hides_no_message(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    for looks_at_length in [false, true] {
        let mut mapped = Mapped::subscribe(&buses)?;
        send_inaccessible(&sender, 100, 200)?;
        send(&sender, &content(1, 50)).context("sending")?;
        if looks_at_length {
            expect("the length", next_length(&mapped.end), Ok(50))?;
        } else {
            expect("events", poll::state(&mapped.end)?, "IN".to_owned())?;
        }
        let entries = mapped.exchange(4)?;
        expect("entries", entries.len(), 1)?;
        expect_bytes("the message", &mapped.bytes(&entries[0]), &content(1, 50))?;
    }
    Ok(())
}

/// As before, when the place of the failed send is used again.
fn a_look_past_a_failed_send_in_a_full_bus_hides_no_message(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let mut mapped = Mapped::subscribe(&buses)?;
    send_inaccessible(&sender, 1, 2)?;
    send(&sender, &content(0, 50)).context("sending")?;
    expect("events", poll::state(&mapped.end)?, "IN".to_owned())?;
    for number in 1..MESSAGES as u64 {
        send(&sender, &content(number, 50)).context("sending")?;
    }
    let mut entries = mapped.exchange(MESSAGES)?;
    expect("entries", entries.len(), MESSAGES)?;
    for (number, entry) in (0..).zip(entries.drain(..)) {
        expect_bytes("the message", &mapped.bytes(&entry), &content(number, 50))?;
    }
    Ok(())
}

fn a_closed_mapped_subscriber_releases_senders(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let Mapped { end, memory, .. } = Mapped::subscribe(&buses)?;
    // The child must not have the mapping.
    memory.advise(libc::MADV_DONTFORK).context("advising")?;
    fill(&sender, 100)?;
    set_blocking(&sender)?;
    let child = spawn_keeping("a sender", &[sender.as_fd()], || {
        send(&sender, b"waits").context("sending")
    })?;
    child.wait_asleep_in(Call::Write)?;
    // A mapping keeps the file open.
    drop(end);
    child.expect_still_asleep_in(Call::Write)?;
    drop(memory);
    child.finish()
}
