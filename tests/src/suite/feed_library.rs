// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module `sluice::feed` with the packet simulator.

use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use sluice::feed::{AsyncConsumer, Feed, Header, RecvError, Simulation, Simulator, SimulatorError};
use sluice::{Error, Kind, Scope};

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::feed::{NAME, Publisher};
use crate::support::time::eventually;

topic!(
    "feed_library",
    fifo: [],
    pipe_only: [
        a_reader_and_a_consumer_receive_in_sequence,
        losses_are_reported_with_the_next_packet,
        a_second_receiver_is_busy,
        calls_that_do_not_wait_and_timeouts,
        a_consumer_spins_or_sleeps_by_its_limit,
        a_consumer_waits_for_its_descriptor,
        a_task_sleeps_until_a_packet,
        an_idle_task_is_woken_by_a_packet_and_the_end,
        a_received_endpoint_is_the_same_consumer,
        each_failure_has_its_own_error,
    ],
);

const MILLISECOND: Duration = Duration::from_millis(1);
const COUNT: u64 = 50;

fn simulation(count: u64, length: u32) -> Simulation {
    Simulation {
        count,
        length,
        ..Simulation::every(MILLISECOND)
    }
}

/// Checks the next header of a series.
fn follow(next: &mut u64, header: &Header) -> Result<()> {
    expect("its sequence number", header.sequence, *next + header.lost)?;
    *next = header.sequence + 1;
    let latency = header.latency();
    ensure!(latency < Duration::from_secs(60), "{latency:?} old");
    Ok(())
}

/// All bytes of a packet of the simulator are the same, one more than those of the packet before.
fn follow_content(before: &mut Option<u8>, bytes: &[u8]) -> Result<()> {
    let Some(&first) = bytes.first() else {
        return Ok(());
    };
    let follows = before.is_none_or(|before| first == before.wrapping_add(1));
    ensure!(
        follows && bytes.iter().all(|byte| *byte == first),
        "{bytes:?} after {before:?}"
    );
    *before = Some(first);
    Ok(())
}

fn a_reader_and_a_consumer_receive_in_sequence(_: &Context) -> Result<()> {
    for length in [0, 65, 4096] {
        let feed = Simulator::open()?;
        let mut next = feed.info()?.sequence;
        let mut reader = feed.reader()?;
        let mut content = None;
        feed.start(&simulation(COUNT, length))?;
        for _ in 0..COUNT {
            let packet = reader.recv()?;
            follow(&mut next, &packet)?;
            expect("its length", packet.bytes().len(), length as usize)?;
            follow_content(&mut content, packet.bytes())?;
        }
        drop((reader, feed));
        let feed = Simulator::open()?;
        let mut consumer = feed.map()?;
        let mut content = None;
        feed.start(&simulation(COUNT, length))?;
        for _ in 0..COUNT {
            let packet = consumer.recv()?;
            follow(&mut next, &packet)?;
            let bytes = packet.bytes().to_vec();
            expect("its length", bytes.len(), length as usize)?;
            follow_content(&mut content, &bytes)?;
        }
        expect("the next number", feed.info()?.sequence, next)?;
    }
    Ok(())
}

/// More packets than the ring has room for.
fn losses_are_reported_with_the_next_packet(_: &Context) -> Result<()> {
    let feed = Simulator::open()?;
    let mut consumer = feed.map()?;
    let before = feed.info()?;
    let fits = consumer.capacity() / 4096;
    feed.start(&Simulation {
        interval: Duration::from_micros(50),
        ..simulation(2 * fits, 4096)
    })?;
    let full = finished(&feed)?;
    let lost = full.lost - before.lost;
    ensure!(lost >= fits, "{lost} lost of {}", 2 * fits);
    let mut next = before.sequence;
    for _ in 0..full.published - before.published {
        let packet = consumer.try_recv()?;
        expect("lost before it", packet.lost, 0)?;
        follow(&mut next, &packet)?;
    }
    feed.start(&simulation(1, 8))?;
    let packet = consumer.recv()?;
    expect("lost before the next one", packet.lost, lost)?;
    follow(&mut next, &packet)
}

fn finished(feed: &Feed) -> Result<sluice::feed::FeedInfo> {
    eventually("the simulator has reached its count", || {
        let info = feed.info()?;
        Ok((!info.running).then_some(info))
    })
}

fn a_second_receiver_is_busy(_: &Context) -> Result<()> {
    let (first, second) = (Simulator::open()?, Simulator::open()?);
    let is_busy = |feed: &Feed| {
        let errors = [feed.reader().map(drop), feed.map().map(drop)];
        ensure!(
            errors
                .iter()
                .all(|error| matches!(error, Err(RecvError::Busy))),
            "{errors:?}"
        );
        Ok(())
    };
    let reader = first.reader()?;
    is_busy(&second)?;
    ensure!(matches!(first.map().map(drop), Err(RecvError::Busy)));
    drop((reader, first));
    let first = Simulator::open()?;
    let consumer = first.map()?;
    is_busy(&second)?;
    drop((consumer, first));
    second.map().map(drop).context("after both have closed")
}

fn calls_that_do_not_wait_and_timeouts(_: &Context) -> Result<()> {
    let time = 20 * MILLISECOND;
    let feed = Simulator::open()?;
    let mut reader = feed.reader()?;
    let empty = reader.try_recv().map(drop);
    ensure!(matches!(empty, Err(RecvError::Empty)), "{empty:?}");
    let began = Instant::now();
    let late = reader.recv_timeout(time).map(drop);
    ensure!(matches!(late, Err(RecvError::TimedOut(_))), "{late:?}");
    ensure!(began.elapsed() >= time, "after {:?}", began.elapsed());
    feed.start(&simulation(2, 8))?;
    reader
        .recv_timeout(Duration::from_secs(60))
        .context("a packet")?;
    drop((reader, feed));

    let feed = Simulator::open()?;
    let mut consumer = feed.map()?;
    for spin in [Duration::ZERO, Duration::MAX] {
        consumer.set_spin_limit(spin);
        let empty = consumer.try_recv().map(drop);
        ensure!(matches!(empty, Err(RecvError::Empty)), "{empty:?}");
        let began = Instant::now();
        let late = consumer.recv_timeout(time).map(drop);
        ensure!(matches!(late, Err(RecvError::TimedOut(_))), "{late:?}");
        ensure!(began.elapsed() >= time, "after {:?}", began.elapsed());
    }
    feed.start(&simulation(1, 8))?;
    let packet = consumer.recv_timeout(Duration::from_secs(60));
    packet.map(drop).context("a packet")
}

/// How often this thread has slept.
fn sleeps() -> Result<i64> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).context("getrusage")?;
    Ok(usage.voluntary_context_switches())
}

fn a_consumer_spins_or_sleeps_by_its_limit(_: &Context) -> Result<()> {
    let feed = Simulator::open()?;
    let mut consumer = feed.map()?;
    let mut receive = |spin| {
        consumer.set_spin_limit(spin);
        feed.start(&simulation(COUNT, 8))?;
        let before = sleeps()?;
        for _ in 0..COUNT {
            drop(consumer.recv()?);
        }
        let slept = sleeps()? - before;
        finished(&feed)?;
        Ok::<_, anyhow::Error>(slept)
    };
    expect("sleeps while it spins", receive(Duration::MAX)?, 0)?;
    let slept = receive(Duration::ZERO)?;
    ensure!(slept > 0, "without spinning it never slept");
    Ok(())
}

fn a_consumer_waits_for_its_descriptor(_: &Context) -> Result<()> {
    let feed = Simulator::open()?;
    let mut next = feed.info()?.sequence;
    let mut consumer = feed.map()?;
    feed.start(&simulation(COUNT, 8))?;
    let mut received = 0;
    while received < COUNT {
        if consumer.prepare_wait()? {
            let mut fds = [PollFd::new(consumer.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::from(60_000_u16)).context("poll")?;
        }
        consumer.finish_wait();
        while let Ok(packet) = consumer.try_recv() {
            follow(&mut next, &packet)?;
            received += 1;
        }
    }
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().context("a runtime")
}

fn a_task_sleeps_until_a_packet(_: &Context) -> Result<()> {
    let feed = Simulator::open()?;
    let mut next = feed.info()?.sequence;
    let consumer = feed.map()?;
    runtime()?.block_on(async {
        let mut consumer = AsyncConsumer::new(consumer)?;
        let late = consumer.recv_timeout(20 * MILLISECOND).await.map(drop);
        ensure!(matches!(late, Err(RecvError::TimedOut(_))), "{late:?}");
        feed.start(&simulation(COUNT, 8))?;
        let (before, mut content) = (sleeps()?, None);
        for _ in 0..COUNT {
            let packet = consumer.recv().await?;
            follow(&mut next, &packet)?;
            follow_content(&mut content, &packet.bytes().to_vec())?;
        }
        ensure!(sleeps()? > before, "the thread never slept");
        let empty = consumer.get_mut().try_recv().map(drop);
        ensure!(matches!(empty, Err(RecvError::Empty)), "{empty:?}");
        Ok(())
    })
}

fn an_idle_task_is_woken_by_a_packet_and_the_end(context: &Context) -> Result<()> {
    let publisher = Publisher::small(context)?;
    let consumer = Feed::named(NAME).open()?.map()?;
    runtime()?.block_on(async {
        let mut consumer = AsyncConsumer::new(consumer)?;
        let publishing = tokio::task::spawn_blocking(move || {
            thread::sleep(20 * MILLISECOND);
            publisher.publish("task", 1, 16)?;
            thread::sleep(20 * MILLISECOND);
            publisher.unload()
        });
        let packet = consumer.recv().await?;
        expect("its length", packet.bytes().len(), 16)?;
        drop(packet);
        for _ in 0..2 {
            let end = consumer.recv().await.map(drop);
            ensure!(matches!(end, Err(RecvError::Closed)), "{end:?}");
        }
        publishing.await?
    })
}

/// As it arrives from another process.
fn a_received_endpoint_is_the_same_consumer(_: &Context) -> Result<()> {
    let feed = Simulator::open()?;
    let passed: OwnedFd = feed.as_fd().try_clone_to_owned()?;
    let mut reader = feed.reader()?;
    let mut other = Feed::from(passed).reader()?;
    feed.start(&simulation(2, 8))?;
    let first = reader.recv()?.sequence;
    expect("the next packet", other.recv()?.sequence, first + 1)
}

fn each_failure_has_its_own_error(_: &Context) -> Result<()> {
    let missing = Feed::named("nothing").open().map(drop);
    ensure!(
        matches!(missing, Err(Error::NotFound { .. })),
        "{missing:?}"
    );
    let missing = Feed::named("nothing").info().map(drop);
    ensure!(
        matches!(missing, Err(Error::NotFound { .. })),
        "{missing:?}"
    );
    for channel in sluice::list(&Scope::root())? {
        expect("a kind in the root scope", channel?.kind, Kind::Feed)?;
    }

    let (first, second) = (Simulator::open()?, Simulator::open()?);
    first.start(&simulation(0, 8))?;
    let running = second.start(&simulation(1, 8));
    ensure!(
        matches!(running, Err(SimulatorError::Running)),
        "{running:?}"
    );
    let stopped = second.stop();
    ensure!(
        matches!(stopped, Err(SimulatorError::StartedByAnother)),
        "{stopped:?}"
    );
    first.stop()?;
    for invalid in [
        Simulation::every(Duration::from_micros(9)),
        Simulation::every(Duration::from_secs(11)),
        simulation(1, 4097),
        Simulation {
            cpu: Some(1 << 20),
            ..simulation(1, 8)
        },
    ] {
        let started = first.start(&invalid);
        ensure!(
            matches!(started, Err(SimulatorError::OutOfRange)),
            "{invalid:?}: {started:?}"
        );
    }
    let read_only = OwnedFd::from(std::fs::File::open("/dev/sluice/feed")?);
    let mapped = Feed::from(read_only).map().map(drop);
    ensure!(matches!(mapped, Err(RecvError::ReadOnly)), "{mapped:?}");
    Ok(())
}
