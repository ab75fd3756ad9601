// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module `sluice::bus` with the kernel module.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use sluice::bus::{
    AsyncMappedSubscriber, AsyncSender, AsyncSubscriber, Mode, OpenError, Options, Policy,
    RecvError, SendError, Sender, Subscriber,
};
use sluice::{Bus, Error, Typed, TypedError};

use crate::registry::{Context, topic};
use crate::support::bus::longest;
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn;
use crate::support::proc::Call;
use crate::support::random::stream_bytes;

topic!(
    "bus_library",
    fifo: [],
    pipe_only: [
        every_subscriber_receives_a_message_with_its_header,
        a_message_for_a_small_buffer_stays,
        messages_of_all_sizes_arrive_one_by_one_and_in_batches,
        losses_are_reported_with_the_next_message,
        a_slow_subscriber_is_evicted,
        a_blocking_subscriber_limits_senders,
        a_batch_is_sent_as_far_as_there_is_room,
        a_batch_goes_on_behind_a_message_that_fails,
        jobs_go_to_one_subscriber_each,
        a_timeout_with_full_subscribers_sleeps,
        a_queue_keeps_messages_without_subscribers,
        a_request_is_answered_by_the_id_of_its_sender,
        values_are_sent_and_received,
        messages_are_received_in_place,
        a_mapped_subscriber_delays_senders_until_it_releases,
        a_mapped_subscriber_receives_from_memory_that_was_not_present,
        blocked_calls_end_when_the_bus_is_destroyed,
        calls_that_do_not_wait_and_timeouts,
        tasks_of_one_thread_send_and_receive,
        an_idle_task_is_woken_by_a_reply,
        tasks_of_one_thread_send_and_receive_in_place,
        an_idle_task_with_mapped_memory_is_woken,
        the_state_of_the_bus_and_of_each_endpoint_is_shown,
        a_list_of_subscribers_spans_several_pages,
        a_timeout_without_a_sender_says_so,
        an_endpoint_can_be_attached_again,
        each_failure_has_its_own_error,
    ],
);

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(60);

/// The bus `frames`, which the first open creates.
fn frames() -> Options {
    Bus::named("frames").create(true)
}

/// All policies, in the smallest capacity that a message of 1 KiB fits into several times.
fn small() -> Options {
    let policies = [Policy::Drop, Policy::Block, Policy::Evict];
    frames().policies(policies).capacity(16 << 10)
}

/// Sends messages with their number until the bus is full, and returns how many.
fn fill(sender: &Sender) -> Result<u32> {
    for number in 0..10_000_u32 {
        match sender.try_send(&number.to_ne_bytes()) {
            Err(SendError::Full) => return Ok(number),
            other => other?,
        }
    }
    anyhow::bail!("the bus is never full")
}

fn every_subscriber_receives_a_message_with_its_header(_: &Context) -> Result<()> {
    let bus = frames();
    let (first, second, sender) = (bus.subscriber()?, bus.subscriber()?, bus.sender()?);
    sender.send(b"to all")?;
    sender.send_to(second.id(), b"to one")?;
    sender.send(b"")?;
    for (mut subscriber, addressed) in [(first, false), (second, true)] {
        let message = subscriber.recv()?;
        expect_bytes("the first", message.bytes(), b"to all")?;
        let seen = (message.sender, message.target);
        expect("its header", seen, (sender.id(), None))?;
        // A message that was in memory that is not present has taken a number more.
        let number = message.sequence;
        expect("its sender's process", message.pid, Some(process::id()))?;
        expect("its sender's user", (message.uid, message.gid), (0, 0))?;
        let id = subscriber.id();
        if addressed {
            let message = subscriber.recv()?;
            expect_bytes("the second", message.bytes(), b"to one")?;
            expect("its target", message.target, Some(id))?;
        }
        let message = subscriber.recv()?;
        let seen = (message.len, message.sequence - number);
        expect("the last", seen, (0, 2))?;
        expect("losses", message.lost, 0)?;
    }
    Ok(())
}

fn a_message_for_a_small_buffer_stays(_: &Context) -> Result<()> {
    let bus = frames();
    let (mut subscriber, sender) = (bus.subscriber()?, bus.sender()?);
    sender.send(b"eight by")?;
    for _ in 0..2 {
        let failure = subscriber.recv_into(&mut [0; 7]);
        let small = matches!(failure, Err(RecvError::BufferTooSmall { len: 8, room: 7 }));
        ensure!(small, "{failure:?}");
    }
    let mut buffer = [0; 9];
    let header = subscriber.recv_into_timeout(&mut buffer, LONG)?;
    expect("its header", (header.len, header.sender), (8, sender.id()))?;
    expect_bytes("its bytes", &buffer[..8], b"eight by")?;
    let empty = subscriber.try_recv_into(&mut buffer);
    ensure!(matches!(empty, Err(RecvError::Empty)), "{empty:?}");
    Ok(())
}

fn messages_of_all_sizes_arrive_one_by_one_and_in_batches(_: &Context) -> Result<()> {
    let bus = frames().capacity(8 << 20);
    let (mut subscriber, sender) = (bus.subscriber()?, bus.sender()?);
    let max = usize::try_from(sender.message_max())?;
    expect("the largest message", max, longest())?;
    let lengths = [0, 1, 63, 64, 4032, 4033, 5000, 65_536, 65_537.min(max), max];
    let message = |length| stream_bytes(0, length as u64, length);
    for length in lengths {
        sender.send(&message(length))?;
        let received = subscriber.recv()?;
        expect_bytes("a message", received.bytes(), &message(length))?;
    }
    for length in lengths {
        sender.send(&message(length))?;
    }
    let mut received = Vec::new();
    let mut calls = 0;
    while received.len() < lengths.len() {
        let batch = subscriber.recv_batch()?;
        received.extend(batch.map(|message| message.bytes().to_vec()));
        calls += 1;
    }
    ensure!(calls < lengths.len(), "{calls} calls");
    for (length, bytes) in lengths.into_iter().zip(received) {
        expect_bytes("a message of a batch", &bytes, &message(length))?;
    }
    // The format changes back.
    sender.send(b"one")?;
    sender.send(b"two")?;
    expect_bytes("one of two", subscriber.recv()?.bytes(), b"one")?;
    expect("the rest", subscriber.try_recv_batch()?.len(), 1)
}

fn losses_are_reported_with_the_next_message(_: &Context) -> Result<()> {
    let bus = small();
    let (mut subscriber, sender) = (bus.subscriber()?, bus.sender()?);
    for number in 0..1000_u32 {
        sender.send(&number.to_ne_bytes())?;
    }
    let mut next = 0;
    while next < 1000 {
        let message = subscriber.try_recv()?;
        next += message.lost;
        expect("its number", message.bytes(), &(next as u32).to_ne_bytes())?;
        expect("its sequence", message.sequence, next)?;
        next += 1;
    }
    let info = subscriber.info()?;
    let own = info.endpoint.context("no state of the endpoint")?;
    ensure!(own.lost > 0, "nothing was lost");
    expect("losses", (own.lost, own.lag), (info.lost, 0))
}

fn a_slow_subscriber_is_evicted(_: &Context) -> Result<()> {
    let bus = small();
    let (mut subscriber, sender) = (
        bus.clone().policy(Policy::Evict).subscriber()?,
        bus.sender()?,
    );
    for _ in 0..1000 {
        sender.send(&[0; 1000])?;
    }
    for _ in 0..2 {
        let seen = subscriber.recv().map(drop);
        ensure!(matches!(seen, Err(RecvError::Evicted)), "{seen:?}");
        let seen = subscriber.recv_batch_timeout(LONG).map(drop);
        ensure!(matches!(seen, Err(RecvError::Evicted)), "{seen:?}");
    }
    let gone = sender.send_to(subscriber.id(), b"x");
    let unknown = matches!(gone, Err(SendError::UnknownSubscriber { id }) if id == subscriber.id());
    ensure!(unknown, "{gone:?}");
    let info = sender.info()?;
    expect("its state", (info.evicted, info.subscribers), (1, 0))
}

fn a_blocking_subscriber_limits_senders(_: &Context) -> Result<()> {
    let bus = small();
    let (mut subscriber, sender) = (
        bus.clone().policy(Policy::Block).subscriber()?,
        bus.sender()?,
    );
    let sent = fill(&sender)?;
    let began = Instant::now();
    let late = sender.send_timeout(b"late", SHORT);
    ensure!(matches!(late, Err(SendError::TimedOut(SHORT))), "{late:?}");
    ensure!(began.elapsed() >= SHORT, "after {:?}", began.elapsed());
    for number in 0..sent {
        let message = subscriber.try_recv()?;
        expect("its number", message.bytes(), &number.to_ne_bytes())?;
        expect("losses", message.lost, 0)?;
    }
    fill(&sender)?;
    // Both ways to wait for room end when the subscriber receives.
    let blocked = spawn("a blocked sender", || {
        let bus = small();
        bus.sender()?.send(b"blocked")?;
        Ok(String::new())
    })?;
    blocked.wait_asleep_in(Call::Write)?;
    let polling = thread::spawn(move || sender.send_timeout(b"polling", LONG));
    let mut last = Vec::new();
    while last.len() < 2 {
        let message = subscriber.recv_timeout(LONG)?;
        if message.len > 4 {
            last.push(message.bytes().to_vec());
        }
    }
    last.sort();
    expect(
        "the last",
        last,
        vec![b"blocked".to_vec(), b"polling".to_vec()],
    )?;
    polling.join().map_err(|_| anyhow::anyhow!("a panic"))??;
    blocked.finish().map(drop)
}

fn a_batch_is_sent_as_far_as_there_is_room(_: &Context) -> Result<()> {
    const COUNT: u32 = 1000;
    let bus = small();
    let mut subscriber = bus.clone().policy(Policy::Block).subscriber()?;
    let sender = bus.sender()?;
    let mut batch = sender.batch();
    for number in 0..COUNT {
        batch.push(&number.to_ne_bytes())?;
    }
    let full = sender.try_send_batch(&mut batch);
    ensure!(matches!(full, Err(SendError::Full)), "{full:?}");
    let late = sender.send_batch_timeout(&mut batch, SHORT);
    ensure!(matches!(late, Err(SendError::TimedOut(SHORT))), "{late:?}");
    // As many as the bus has slots.
    expect("unsent", batch.len(), COUNT as usize - (16 << 10) / 256)?;
    let rest = thread::spawn(move || sender.send_batch(&mut batch).map(|()| batch.len()));
    for number in 0..COUNT {
        let message = subscriber.recv_timeout(LONG)?;
        expect("its number", message.bytes(), &number.to_ne_bytes())?;
    }
    let rest = rest.join().map_err(|_| anyhow::anyhow!("a panic"))??;
    expect("messages left", rest, 0)
}

fn a_batch_goes_on_behind_a_message_that_fails(_: &Context) -> Result<()> {
    let bus = small();
    let mut subscriber = bus.subscriber()?;
    let sender = bus.sender()?;
    let mut batch = sender.batch();
    batch.push(b"first")?;
    batch.push_to(u64::MAX, b"nobody's")?;
    batch.push_to(subscriber.id(), b"second")?;
    let failed = sender.send_batch(&mut batch);
    ensure!(
        matches!(failed, Err(SendError::UnknownSubscriber { id: u64::MAX })),
        "{failed:?}"
    );
    expect("unsent", batch.len(), 2)?;
    batch.remove_first();
    sender.send_batch(&mut batch)?;
    expect("unsent", batch.len(), 0)?;
    for bytes in [&b"first"[..], b"second"] {
        expect_bytes("the message", subscriber.try_recv()?.bytes(), bytes)?;
    }
    Ok(())
}

fn jobs_go_to_one_subscriber_each(_: &Context) -> Result<()> {
    let bus = small().multicast();
    let sender = bus.sender()?;
    let alone = sender.send(b"none");
    ensure!(matches!(alone, Err(SendError::NoSubscriber)), "{alone:?}");
    let mut subscribers = [bus.subscriber()?, bus.subscriber()?];
    for number in 0..10_u8 {
        sender.send(&[number])?;
    }
    sender.send_to(subscribers[1].id(), &[10])?;
    let mut received = Vec::new();
    for (subscriber, count) in subscribers.iter_mut().zip([5, 6]) {
        let batch = subscriber.try_recv_batch()?;
        expect("its messages", batch.len(), count)?;
        received.extend(batch.map(|message| message.bytes()[0]));
    }
    received.sort_unstable();
    expect("all", received, (0..=10).collect())
}

/// The descriptor of the sender is writable all the time.
fn a_timeout_with_full_subscribers_sleeps(_: &Context) -> Result<()> {
    let bus = small().multicast().limit(64);
    let (mut subscriber, sender) = (bus.subscriber()?, bus.sender()?);
    let sent = fill(&sender)?;
    let before = processor_time()?;
    let late = sender.send_timeout(b"late", 25 * SHORT);
    ensure!(matches!(late, Err(SendError::TimedOut(_))), "{late:?}");
    let used = processor_time()? - before;
    ensure!(used < 5 * SHORT, "{used:?} of processor time");
    let polling = thread::spawn(move || sender.send_timeout(b"polling", LONG));
    for _ in 0..=sent {
        subscriber.recv_timeout(LONG)?;
    }
    polling
        .join()
        .map_err(|_| anyhow::anyhow!("a panic"))?
        .context("a send")
}

fn processor_time() -> Result<Duration> {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    Ok(time.into())
}

fn a_queue_keeps_messages_without_subscribers(_: &Context) -> Result<()> {
    let bus = frames().unicast();
    let sender = bus.sender()?;
    for number in 0..4_u8 {
        sender.send(&[number])?;
    }
    let mut subscribers = [bus.subscriber()?, bus.subscriber()?];
    for number in 0..4_u8 {
        let message = subscribers[usize::from(number % 2)].try_recv()?;
        expect("its bytes", message.bytes(), &[number])?;
    }
    let addressed = sender.send_to(subscribers[0].id(), b"x");
    let refused = matches!(addressed, Err(SendError::NotAddressable));
    ensure!(refused, "{addressed:?}");
    expect("policies", sender.info()?.policies.is_empty(), true)
}

fn a_request_is_answered_by_the_id_of_its_sender(_: &Context) -> Result<()> {
    let bus = frames();
    let both = || bus.endpoint();
    let ((asker, mut replies), (replier, mut requests)) = (both()?, both()?);
    expect("the ids", asker.id(), replies.id())?;
    asker.send(b"request")?;
    let request = requests.recv()?;
    replier.send_to(request.sender, b"reply")?;
    expect_bytes("its own", replies.recv()?.bytes(), b"request")?;
    let reply = replies.recv()?;
    expect_bytes("the reply", reply.bytes(), b"reply")?;
    expect("its sender", reply.sender, replier.id())?;
    drop(asker);
    let info = replier.info()?;
    // The endpoint is open for both as long as one of the two is left.
    expect("endpoints", (info.senders, info.subscribers), (2, 2))?;
    drop(replies);
    let info = replier.info()?;
    expect("endpoints", (info.senders, info.subscribers), (1, 1))
}

fn mappable() -> Options {
    small().mappable(true)
}

fn values_are_sent_and_received(_: &Context) -> Result<()> {
    let (sender, subscriber) = frames().endpoint()?;
    let id = sender.id();
    let sender: Typed<_, (String, u32)> = Typed::new(sender);
    let mut subscriber: Typed<_, (String, u32)> = Typed::new(subscriber);
    for len in [0, 1, 254, 256, 60_000] {
        let value = ("x".repeat(len), len as u32);
        sender.send(&value)?;
        let message = subscriber.recv()?;
        expect("the value", &message.value, &value)?;
        expect("its sender", message.sender, id)?;
    }
    sender.send_to(id, &("for one".to_owned(), 1))?;
    expect("the target", subscriber.recv()?.target, Some(id))?;

    sender.get_ref().send(&[0xff; 20])?;
    sender.get_ref().send(&7_u32.to_ne_bytes())?;
    let other = subscriber.recv().map(drop);
    ensure!(matches!(other, Err(TypedError::Codec(_))), "{other:?}");
    let plain: Option<u32> = subscriber.get_mut().recv()?.read_at(0);
    expect("a plain value", plain, Some(7))?;
    let empty = subscriber.try_recv().map(drop);
    ensure!(
        matches!(empty, Err(TypedError::Call(RecvError::Empty))),
        "{empty:?}"
    );
    Ok(())
}

fn messages_are_received_in_place(_: &Context) -> Result<()> {
    let bus = mappable();
    let sender = bus.sender()?;
    let mut subscriber = bus.mapped_subscriber()?;
    let message = |number: usize| stream_bytes(0, number as u64, number * 37 % 4000);
    for round in 0..50 {
        // More than one call returns.
        let numbers = round * 3..round * 3 + 3;
        for number in numbers.clone() {
            sender.try_send(&message(number))?;
        }
        for number in numbers {
            let received = subscriber.recv()?;
            expect_bytes("in place", &received.bytes().to_vec(), &message(number))?;
            let seen = (received.sender(), received.sequence());
            expect("its header", seen, (sender.id(), number as u64))?;
        }
    }
    // As many as there is room for, less those that are dropped and not released yet.
    for number in 0..50_u8 {
        sender.try_send(&[number])?;
    }
    for number in 0..50_u8 {
        let received = subscriber.try_recv()?;
        expect("its bytes", received.bytes().to_vec(), vec![number])?;
    }
    let empty = subscriber.try_recv().map(drop);
    ensure!(matches!(empty, Err(RecvError::Empty)), "{empty:?}");
    let late = subscriber.recv_timeout(SHORT).map(drop);
    ensure!(
        matches!(&late, Err(RecvError::TimedOut(over)) if over.limit() == SHORT),
        "{late:?}"
    );
    let own = subscriber.info()?.endpoint.context("no endpoint")?;
    expect("its state", (own.mapped, own.lag), (true, 0))
}

fn a_mapped_subscriber_delays_senders_until_it_releases(_: &Context) -> Result<()> {
    let bus = mappable();
    let sender = bus.sender()?;
    let mut subscriber = bus.mapped_subscriber()?;
    let sent = fill(&sender)?;
    for _ in 0..sent - 1 {
        drop(subscriber.try_recv()?);
    }
    let last = subscriber.try_recv()?;
    let bytes = (sent - 1).to_ne_bytes();
    // The room of the others is used again, and that of the last one is not.
    let refilled = fill(&sender)?;
    ensure!(refilled > 0, "nothing was released");
    expect("the last", last.bytes().to_vec(), bytes.to_vec())?;
    drop(last);
    let mut received = 0;
    while subscriber.try_recv().is_ok() {
        received += 1;
    }
    expect("the others", received, refilled)?;
    subscriber.release()?;
    expect("the lag", sender.info()?.lag, 0)
}

/// The first attempt to copy such a message fails, which leaves a hole in the bus.
fn a_mapped_subscriber_receives_from_memory_that_was_not_present(_: &Context) -> Result<()> {
    let bus = mappable();
    let sender = bus.sender()?;
    let mut subscriber = bus.mapped_subscriber()?;
    for round in 0..100 {
        let length = NonZeroUsize::MIN.saturating_add(4095);
        let (protection, flags) = (ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE);
        // SAFETY: new memory, which stays mapped.
        let bytes = unsafe {
            let memory = mmap_anonymous(None, length, protection, flags).context("mmap")?;
            std::slice::from_raw_parts(memory.as_ptr().cast::<u8>(), 100)
        };
        sender.try_send(bytes)?;
        let received = match round % 2 {
            0 => subscriber.try_recv(),
            _ => subscriber.recv(),
        };
        let received = received.with_context(|| format!("message {round}"))?;
        expect_bytes("its bytes", &received.bytes().to_vec(), &[0; 100])?;
    }
    Ok(())
}

fn blocked_calls_end_when_the_bus_is_destroyed(_: &Context) -> Result<()> {
    let bus = mappable();
    let sender = bus.sender()?;
    let mut mapped = bus.mapped_subscriber()?;
    let (mut subscriber, mut other) = (bus.subscriber()?, bus.subscriber()?);
    let is_destroyed = |seen: Result<(), RecvError>| matches!(seen, Err(RecvError::Destroyed));
    let receivers = [
        thread::spawn(move || is_destroyed(subscriber.recv().map(drop))),
        thread::spawn(move || is_destroyed(other.recv_batch_timeout(LONG).map(drop))),
        thread::spawn(move || is_destroyed(mapped.recv().map(drop))),
    ];
    thread::sleep(SHORT);
    bus.destroy()?;
    for receiver in receivers {
        let destroyed = receiver.join().map_err(|_| anyhow::anyhow!("a panic"))?;
        expect("destroyed", destroyed, true)?;
    }
    let sent = sender.send(b"x");
    ensure!(matches!(sent, Err(SendError::Destroyed)), "{sent:?}");
    Ok(())
}

fn calls_that_do_not_wait_and_timeouts(_: &Context) -> Result<()> {
    let bus = frames();
    let sender = bus.sender()?;
    let mut nonblocking = bus.clone().nonblocking(true).subscriber()?;
    let mut blocking = bus.subscriber()?;
    for empty in [
        nonblocking.recv().map(drop),
        nonblocking.recv_batch().map(drop),
        nonblocking.recv_into(&mut [0]).map(drop),
        blocking.try_recv().map(drop),
        blocking.try_recv_batch().map(drop),
        blocking.try_recv_into(&mut [0]).map(drop),
    ] {
        ensure!(matches!(empty, Err(RecvError::Empty)), "{empty:?}");
    }
    for subscriber in [&mut nonblocking, &mut blocking] {
        let began = Instant::now();
        for late in [
            subscriber.recv_timeout(SHORT).map(drop),
            subscriber.recv_batch_timeout(SHORT).map(drop),
            subscriber.recv_into_timeout(&mut [0], SHORT).map(drop),
        ] {
            ensure!(
                matches!(&late, Err(RecvError::TimedOut(over)) if over.limit() == SHORT),
                "{late:?}"
            );
        }
        ensure!(began.elapsed() >= 3 * SHORT, "{:?}", began.elapsed());
    }
    let late = thread::spawn(move || {
        thread::sleep(SHORT);
        sender.send(b"late")
    });
    expect_bytes("late", blocking.recv_timeout(LONG)?.bytes(), b"late")?;
    late.join()
        .map_err(|_| anyhow::anyhow!("a panic"))?
        .context("a send")
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().context("a runtime")
}

/// Many times the capacity, so that the tasks wait for each other.
fn tasks_of_one_thread_send_and_receive(_: &Context) -> Result<()> {
    for mode in [Mode::Broadcast, Mode::Multicast, Mode::Unicast] {
        let options = match mode {
            Mode::Unicast => frames().capacity(16 << 10),
            _ => small(),
        };
        let bus = options.delivery(mode);
        let subscriber = match mode {
            Mode::Unicast => bus.subscriber()?,
            _ => bus.clone().policy(Policy::Block).subscriber()?,
        };
        let sender = bus.sender()?;
        runtime()?.block_on(async move {
            let sender = AsyncSender::new(sender)?;
            let mut subscriber = AsyncSubscriber::new(subscriber)?;
            let sending = tokio::spawn(async move {
                for number in 0..5000_u32 {
                    sender.send(&number.to_ne_bytes().repeat(100)).await?;
                }
                anyhow::Ok(())
            });
            let mut next = 0_u32;
            while next < 5000 {
                let message = subscriber.recv().await?;
                expect("losses", message.lost, 0)?;
                let bytes = next.to_ne_bytes().repeat(100);
                expect_bytes("a message", message.bytes(), &bytes)?;
                next += 1;
                if next == 2500 {
                    next += subscriber.recv_batch().await?.len() as u32;
                }
            }
            sending.await?.with_context(|| format!("sending, {mode}"))
        })?;
    }
    Ok(())
}

fn an_idle_task_is_woken_by_a_reply(_: &Context) -> Result<()> {
    let bus = frames();
    let (subscriber, sender) = (bus.subscriber()?, bus.sender()?);
    runtime()?.block_on(async move {
        let (id, mut buffer) = (subscriber.id(), [0; 8]);
        let sender = AsyncSender::new(sender)?;
        let mut subscriber = AsyncSubscriber::new(subscriber)?;
        let late = subscriber.recv_timeout(SHORT).await.map(drop);
        ensure!(
            matches!(&late, Err(RecvError::TimedOut(over)) if over.limit() == SHORT),
            "{late:?}"
        );
        let sending = tokio::spawn(async move {
            tokio::time::sleep(SHORT).await;
            sender.send_to(id, b"reply").await
        });
        let header = subscriber.recv_into(&mut buffer).await?;
        expect("its header", (header.len, header.target), (5, Some(id)))?;
        sending.await?.context("a send")
    })
}

/// Many times the capacity: the sender waits for the release of messages, the subscriber for the next one.
fn tasks_of_one_thread_send_and_receive_in_place(_: &Context) -> Result<()> {
    let bus = mappable();
    let sender = bus.sender()?;
    let subscriber = bus.mapped_subscriber()?;
    runtime()?.block_on(async move {
        let (id, sender) = (sender.id(), AsyncSender::new(sender)?);
        let mut subscriber = AsyncMappedSubscriber::new(subscriber)?;
        let sending = tokio::spawn(async move {
            for number in 0..5000_u32 {
                sender.send(&number.to_ne_bytes().repeat(100)).await?;
            }
            anyhow::Ok(())
        });
        for number in 0..5000_u32 {
            let message = subscriber.recv().await?;
            let seen = (message.sender(), message.sequence());
            expect("its header", seen, (id, number.into()))?;
            let bytes = number.to_ne_bytes().repeat(100);
            expect_bytes("in place", &message.bytes().to_vec(), &bytes)?;
        }
        let empty = subscriber.get_mut().try_recv().map(drop);
        ensure!(matches!(empty, Err(RecvError::Empty)), "{empty:?}");
        sending.await?.context("sending")
    })
}

fn an_idle_task_with_mapped_memory_is_woken(_: &Context) -> Result<()> {
    let bus = mappable();
    let sender = bus.sender()?;
    let subscriber = bus.mapped_subscriber()?;
    sender.send(b"one")?;
    runtime()?.block_on(async move {
        let mut subscriber = AsyncMappedSubscriber::new(subscriber)?;
        drop(subscriber.recv().await?);
        expect("the lag before a wait", sender.info()?.lag, 1)?;
        let late = subscriber.recv_timeout(SHORT).await.map(drop);
        ensure!(
            matches!(&late, Err(RecvError::TimedOut(over)) if over.limit() == SHORT),
            "{late:?}"
        );
        expect("the lag after it", sender.info()?.lag, 0)?;
        let sending = tokio::spawn(async move {
            tokio::time::sleep(SHORT).await;
            sender.send(b"late")
        });
        let message = subscriber.recv().await?;
        expect_bytes("a message", &message.bytes().to_vec(), b"late")?;
        drop(message);
        sending.await?.context("a send")?;
        let destroying = tokio::spawn(async move {
            tokio::time::sleep(SHORT).await;
            bus.destroy()
        });
        for _ in 0..2 {
            let seen = subscriber.recv().await.map(drop);
            ensure!(matches!(seen, Err(RecvError::Destroyed)), "{seen:?}");
        }
        destroying.await?.context("destroying the bus")
    })
}

fn the_state_of_the_bus_and_of_each_endpoint_is_shown(_: &Context) -> Result<()> {
    let bus = mappable();
    let sender = bus.sender()?;
    sender.send(b"unsubscribed")?;
    let subscriber = bus.clone().policy(Policy::Evict).subscriber()?;
    let mapped = bus.mapped_subscriber()?;
    let monitor = frames().monitor(true).subscriber()?;
    // In memory that is present: an attempt to copy that fails counts in the lag until it is passed.
    sender.send(&Vec::from(*b"one"))?;
    for (info, has_endpoint) in [(bus.info()?, false), (sender.info()?, true)] {
        expect(
            "its mode",
            (info.mode, info.mappable),
            (Mode::Broadcast, true),
        )?;
        let policies = info.policies.to_string();
        expect("its policies", policies, "drop,block,evict".to_owned())?;
        let limits = (info.capacity, info.message_max);
        expect("its limits", limits, (16 << 10, (8 << 10) - 64))?;
        expect("endpoints", (info.subscribers, info.senders), (2, 1))?;
        expect("sends", (info.sent, info.unsubscribed), (1, 1))?;
        expect("losses", (info.lost, info.evicted, info.lag), (0, 0, 1))?;
        expect("an endpoint", info.endpoint.is_some(), has_endpoint)?;
    }
    let limit = Duration::from_nanos(1500);
    expect("the limit", subscriber.set_spin_limit(limit)?, limit)?;
    let own = subscriber.info()?.endpoint.context("no endpoint")?;
    let seen = (own.id, own.policy, own.lag, own.spin_limit);
    let expected = (subscriber.id(), Some(Policy::Evict), 1, limit);
    expect("the subscriber", seen, expected)?;
    let listed = sender.subscribers()?;
    let seen: Vec<_> = listed
        .iter()
        .map(|one| {
            (
                one.id,
                one.policy,
                one.mapped,
                one.monitor,
                one.lag,
                one.pid,
            )
        })
        .collect();
    let (pid, drop, block) = (Some(process::id()), Policy::Drop, Policy::Block);
    let expected = vec![
        (subscriber.id(), Some(Policy::Evict), false, false, 1, pid),
        (mapped.id(), Some(block), true, false, 1, pid),
        (monitor.id(), Some(drop), false, true, 1, pid),
    ];
    expect("the list", seen, expected)
}

/// One more than two full pages.
fn a_list_of_subscribers_spans_several_pages(_: &Context) -> Result<()> {
    let bus = frames();
    let all = (0..129).map(|_| bus.subscriber());
    let all = all.collect::<Result<Vec<_>, _>>()?;
    let listed = all[0].subscribers()?;
    let ids = |one: &sluice::bus::SubscriberInfo| one.id;
    let expected: Vec<u64> = all.iter().map(Subscriber::id).collect();
    expect("the ids", listed.iter().map(ids).collect(), expected)
}

fn a_timeout_without_a_sender_says_so(_: &Context) -> Result<()> {
    let bus = frames().mappable(true).policies([Policy::Block]);
    let (mut copying, mut mapped) = (bus.subscriber()?, bus.mapped_subscriber()?);
    let mut texts = || {
        let copied = copying.recv_timeout(SHORT).map(drop).err();
        let in_place = mapped.recv_timeout(SHORT).map(drop).err();
        [copied, in_place].map(|late| late.map(|late| sluice::explain(&late)))
    };
    let channel = bus.channel()?;
    let absent = format!("no sender has the bus 'frames' open in {}", channel.scope());
    for text in texts() {
        let text = text.context("a message")?;
        ensure!(
            text.contains(&absent) && text.contains("in the same cgroup"),
            "{text}"
        );
    }
    let _sender = bus.sender()?;
    for text in texts() {
        let text = text.context("a message")?;
        ensure!(
            text.contains("had no message for") && !text.contains("cgroup"),
            "{text}"
        );
    }
    Ok(())
}

fn an_endpoint_can_be_attached_again(_: &Context) -> Result<()> {
    let bus = frames();
    let (mut subscriber, sender) = (bus.subscriber()?, bus.sender()?);
    sender.send(b"one")?;
    sender.send(b"two")?;
    // The format of a batch is that of the endpoint.
    expect("a batch", subscriber.recv_batch()?.len(), 2)?;
    let id = subscriber.id();
    let mut subscriber = Subscriber::attach(OwnedFd::from(subscriber))?;
    let sender = Sender::attach(OwnedFd::from(sender))?;
    sender.send(b"three")?;
    sender.send(b"four")?;
    expect_bytes("the third", subscriber.recv()?.bytes(), b"three")?;
    expect("the id", subscriber.id(), id)?;
    let copy = sender.as_fd().try_clone_to_owned()?;
    let wrong = Subscriber::attach(copy).map(drop);
    ensure!(
        matches!(wrong, Err(OpenError::WrongRole { .. })),
        "{wrong:?}"
    );
    let wrong = Sender::attach(subscriber.into()).map(drop);
    ensure!(
        matches!(wrong, Err(OpenError::WrongRole { .. })),
        "{wrong:?}"
    );
    Ok(())
}

fn each_failure_has_its_own_error(_: &Context) -> Result<()> {
    let bus = Bus::named("frames");
    let missing = bus.sender().map(drop);
    let not_found = matches!(missing, Err(OpenError::Open(Error::NotFound { .. })));
    ensure!(not_found, "{missing:?}");
    bus.create_persistent()?;
    let taken = bus.create_persistent();
    let exists = matches!(taken, Err(OpenError::Open(Error::AlreadyExists { .. })));
    ensure!(exists, "{taken:?}");
    let (sender, subscriber) = (bus.sender()?, bus.subscriber()?);
    let (max, huge) = (sender.message_max(), vec![0; 1 << 20]);
    let long = sender.send(&huge);
    let expected = matches!(long, Err(SendError::MessageTooLong { len, max: limit })
        if len == huge.len() && limit == max);
    ensure!(expected, "{long:?}");
    for id in [0, sender.id(), subscriber.id() + 1] {
        let unknown = sender.try_send_to(id, b"x");
        let expected = matches!(unknown, Err(SendError::UnknownSubscriber { id: of }) if of == id);
        ensure!(expected, "{unknown:?}");
    }
    let policy = bus.clone().policy(Policy::Block).subscriber().map(drop);
    let expected = matches!(
        policy,
        Err(OpenError::PolicyNotPermitted {
            policy: Policy::Block
        })
    );
    ensure!(expected, "{policy:?}");
    let mapped = bus.mapped_subscriber().map(drop);
    ensure!(matches!(mapped, Err(OpenError::NotMappable)), "{mapped:?}");
    let queue = Bus::named("jobs").unicast();
    queue.create_persistent()?;
    let policy = queue.policy(Policy::Drop).subscriber().map(drop);
    ensure!(
        matches!(policy, Err(OpenError::NotInMode { .. })),
        "{policy:?}"
    );
    let many = (0..1025).map(|_| bus.subscriber());
    let many = many.collect::<Result<Vec<_>, _>>().map(drop);
    ensure!(
        matches!(many, Err(OpenError::TooManySubscribers)),
        "{many:?}"
    );
    Ok(())
}
