// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packet simulator: who may start and stop it, its parameters, its end, its processor, and that it leaves half of
//! that processor to others.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::registry::{Context, topic};
use crate::support::channel::read_nowait;
use crate::support::check::{expect, note, skip};
use crate::support::child::spawn_keeping;
use crate::support::credentials::{
    NOBODY, become_user, become_user_namespace_root, drop_capabilities,
};
use crate::support::event::Event;
use crate::support::feed::{
    CPU_ANY, Consumer, Header, Info, LARGEST, PACKET_MAX, START, START_SIZE_VER0, Sleep, Start,
    claim_by_read, expect_growth, info, open_node, read_packet, start, stop,
};
use crate::support::ioctl::{raw, size_error};
use crate::support::kernel::expect_module_in_use;
use crate::support::sched::Processor;
use crate::support::time::{eventually, wait_grace_period};
use crate::support::timer_trace::expiries_during;

topic!(
    "feed_simulator",
    fifo: [],
    pipe_only: [
        it_publishes_the_requested_number_of_packets,
        a_consumer_that_maps_gets_its_packets,
        it_runs_without_a_consumer,
        invalid_parameters_are_einval,
        a_start_of_any_size_up_to_a_page_is_accepted,
        a_second_start_is_ebusy,
        only_its_owner_may_stop_it,
        a_start_without_the_capability_is_eperm,
        root_of_a_user_namespace_may_not_start_it,
        it_stops_when_its_owner_closes,
        it_stops_when_its_owner_is_killed,
        it_runs_on_the_requested_processor,
        an_offline_processor_is_einval,
        packets_have_the_requested_interval,
        its_counts_only_grow_while_it_publishes,
        the_shortest_interval_leaves_half_of_the_processor,
        an_open_node_keeps_the_module_loaded,
    ],
);

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// Waits until its count is reached.
fn finished(end: &OwnedFd) -> Result<Info> {
    eventually("the simulator has published all packets", || {
        let state = info(end)?;
        Ok((state.running == 0).then_some(state))
    })
}

fn it_publishes_the_requested_number_of_packets(_: &Context) -> Result<()> {
    let end = open_node()?;
    claim_by_read(&end)?;
    let mut next = info(&end)?.sequence;
    for (count, length) in [(1, 0), (20, 100), (5, PACKET_MAX)] {
        start(&end, Start::new(100 * MICROSECOND, count, length)).context("starting")?;
        let mut last = 0;
        for _ in 0..count {
            let packet = read_packet(&end)?.context("the feed has ended")?;
            expect("its bytes", packet.bytes.len(), length as usize)?;
            expect("its sequence number", packet.header.sequence, next)?;
            ensure!(packet.header.time_ns > last, "time runs backwards");
            (next, last) = (next + 1, packet.header.time_ns);
        }
        let state = finished(&end)?;
        expect("expiries", state.expired, count)?;
        expect("the interval", state.interval_ns, 100 * MICROSECOND)?;
        let further = read_nowait(&end, LARGEST);
        expect("a further packet", further, Err(Errno::EAGAIN))?;
    }
    Ok(())
}

fn a_consumer_that_maps_gets_its_packets(_: &Context) -> Result<()> {
    const COUNT: u64 = 300;
    for sleep in [Sleep::Wait, Sleep::Poll] {
        let end = open_node()?;
        let first = info(&end)?.sequence;
        let owner = end.try_clone()?;
        let mut consumer = Consumer::claim(end)?;
        start(&owner, Start::new(200 * MICROSECOND, COUNT, 64)).context("starting")?;
        for number in 0..COUNT {
            let packet = consumer
                .take_sleeping(sleep)?
                .context("the feed has ended")?;
            expect(
                "its sequence number",
                packet.header.sequence,
                first + number,
            )?;
        }
    }
    Ok(())
}

fn it_runs_without_a_consumer(_: &Context) -> Result<()> {
    let end = open_node()?;
    let before = info(&end)?;
    start(&end, Start::new(100 * MICROSECOND, 10, 16)).context("starting")?;
    let after = finished(&end)?;
    expect("expiries", after.expired, 10)?;
    expect("the sequence number", after.sequence, before.sequence)?;
    expect("published", after.published, before.published)
}

fn invalid_parameters_are_einval(_: &Context) -> Result<()> {
    let end = open_node()?;
    let valid = Start::new(SECOND, 1, 16);
    let interval = |interval_ns| Start {
        interval_ns,
        ..valid
    };
    let cpu = |cpu| Start { cpu, ..valid };
    for invalid in [
        Start { flags: 1, ..valid },
        interval(0),
        interval(10 * MICROSECOND - 1),
        interval(10 * SECOND + 1),
        interval(u64::MAX),
        Start {
            length: PACKET_MAX + 1,
            ..valid
        },
        cpu(-2),
        cpu(1 << 20),
        cpu(i32::MIN),
    ] {
        let started = start(&end, invalid);
        expect(&format!("{invalid:?}"), started, Err(Errno::EINVAL))?;
    }
    expect("whether it runs", info(&end)?.running, 0)?;
    for valid in [interval(10 * MICROSECOND), interval(10 * SECOND), cpu(0)] {
        expect(&format!("{valid:?}"), start(&end, valid), Ok(()))?;
        expect("stopping it", stop(&end), Ok(()))?;
    }
    Ok(())
}

fn a_start_of_any_size_up_to_a_page_is_accepted(_: &Context) -> Result<()> {
    let end = open_node()?;
    let send = |size: u32, beyond: u8| {
        let mut words = [0_u64; 1024];
        let mut start = Start::new(SECOND, 1, 16);
        start.size = size;
        // SAFETY: the array is larger than the structure and aligned; both consist of integers.
        unsafe { words.as_mut_ptr().cast::<Start>().write(start) };
        words[size_of::<Start>() / 8] = u64::from(beyond);
        raw(&end, START, words.as_mut_ptr())
    };
    for size in [START_SIZE_VER0, START_SIZE_VER0 + 8, 4096] {
        expect(&format!("size {size}"), send(size, 0), Ok(()))?;
        stop(&end)?;
    }
    let unknown = send(START_SIZE_VER0 + 8, 1);
    expect("an unknown field", unknown, Err(Errno::E2BIG))?;
    for size in [0, START_SIZE_VER0 - 8, 4097] {
        expect(
            &format!("size {size}"),
            send(size, 0),
            Err(size_error(size)),
        )?;
    }
    Ok(())
}

fn a_second_start_is_ebusy(_: &Context) -> Result<()> {
    let (end, other) = (open_node()?, open_node()?);
    let slow = Start::new(SECOND, 0, 16);
    start(&end, slow).context("starting")?;
    for end in [&end, &other] {
        expect("another start", start(end, slow), Err(Errno::EBUSY))?;
    }
    expect("whether it runs", info(&other)?.running, 1)?;
    stop(&end)?;
    expect("after the stop", start(&other, slow), Ok(()))?;
    stop(&other)?;
    start(&end, Start::new(100 * MICROSECOND, 1, 16)).context("a single packet")?;
    finished(&end)?;
    expect("after its end", start(&other, slow), Ok(()))
}

fn only_its_owner_may_stop_it(_: &Context) -> Result<()> {
    let (end, other) = (open_node()?, open_node()?);
    expect("before the start", stop(&end), Ok(()))?;
    start(&end, Start::new(SECOND, 0, 16)).context("starting")?;
    expect("another endpoint", stop(&other), Err(Errno::EPERM))?;
    expect("whether it runs", info(&end)?.running, 1)?;
    drop(other);
    expect("after the other's close", info(&end)?.running, 1)?;
    expect("its owner", stop(&end), Ok(()))?;
    expect("whether it runs", info(&end)?.running, 0)?;
    expect("a second time", stop(&end), Ok(()))
}

fn a_start_without_the_capability_is_eperm(_: &Context) -> Result<()> {
    let end = open_node()?;
    for become_unprivileged in [|| become_user(NOBODY), drop_capabilities] {
        let user = spawn_keeping("a user", &[end.as_fd()], || {
            become_unprivileged()?;
            let started = start(&end, Start::new(SECOND, 1, 16));
            expect("a start", started, Err(Errno::EPERM))?;
            let invalid = start(&end, Start::new(0, 1, 16));
            expect("an invalid start", invalid, Err(Errno::EINVAL))
        })?;
        user.finish()?;
    }
    expect("whether it runs", info(&end)?.running, 0)
}

fn root_of_a_user_namespace_may_not_start_it(_: &Context) -> Result<()> {
    let end = open_node()?;
    let user = spawn_keeping("root of a user namespace", &[end.as_fd()], || {
        become_user_namespace_root(NOBODY)?;
        let started = start(&end, Start::new(SECOND, 1, 16));
        expect("a start", started, Err(Errno::EPERM))
    })?;
    user.finish()
}

fn it_stops_when_its_owner_closes(_: &Context) -> Result<()> {
    let (end, reader) = (open_node()?, open_node()?);
    claim_by_read(&reader)?;
    start(&end, Start::new(100 * MICROSECOND, 0, 16)).context("starting")?;
    read_packet(&reader)?.context("the feed has ended")?;
    drop(end);
    expect_stopped(&reader)
}

fn it_stops_when_its_owner_is_killed(_: &Context) -> Result<()> {
    let reader = open_node()?;
    claim_by_read(&reader)?;
    let started = Event::new()?;
    let owner = spawn_keeping::<(), _>("the owner", &started.fds(), || {
        let end = open_node()?;
        start(&end, Start::new(100 * MICROSECOND, 0, 16)).context("starting")?;
        started.notify()?;
        loop {
            std::thread::park();
        }
    })?;
    started.wait("it runs")?;
    read_packet(&reader)?.context("the feed has ended")?;
    owner.kill()?;
    eventually("it stops", || {
        Ok((info(&reader)?.running == 0).then_some(()))
    })?;
    expect_stopped(&reader)
}

/// Fails if packets arrive after those that were there.
fn expect_stopped(reader: &OwnedFd) -> Result<()> {
    expect("whether it runs", info(reader)?.running, 0)?;
    let before = info(reader)?;
    wait_grace_period();
    expect("expiries afterwards", info(reader)?.expired, before.expired)?;
    while read_nowait(reader, LARGEST).is_ok() {}
    let further = read_nowait(reader, LARGEST);
    expect("a further packet", further, Err(Errno::EAGAIN))
}

/// How many interrupts of its own timer each processor has handled.
fn timer_interrupts() -> Result<Vec<u64>> {
    let table = fs::read_to_string("/proc/interrupts").context("reading /proc/interrupts")?;
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix("LOC:"));
    let line = line.ok_or_else(|| skip("this machine has no local timer interrupts"))?;
    Ok(line
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect())
}

fn pin_to(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set).context("sched_setaffinity")
}

fn it_runs_on_the_requested_processor(_: &Context) -> Result<()> {
    const COUNT: u64 = 1000;
    let end = open_node()?;
    let cpus = timer_interrupts()?.len();
    if cpus < 2 {
        return Err(skip("only one processor"));
    }
    for (own, wanted, used) in [(0, 1, 1), (1, 0, 0), (0, CPU_ANY, 0), (1, CPU_ANY, 1)] {
        pin_to(own)?;
        let before = timer_interrupts()?;
        let request = Start {
            cpu: wanted,
            ..Start::new(500 * MICROSECOND, COUNT, 16)
        };
        start(&end, request).context("starting")?;
        let state = finished(&end)?;
        let after = timer_interrupts()?;
        expect("its processor", state.cpu, used)?;
        let used = used as usize;
        let interrupts = after[used] - before[used];
        // On a slow machine one interrupt serves several expiries. A processor without the timer has fewer by far.
        ensure!(
            interrupts >= COUNT / 2,
            "processor {used} handled {interrupts} timer interrupts while {COUNT} packets were published"
        );
    }
    Ok(())
}

fn an_offline_processor_is_einval(_: &Context) -> Result<()> {
    let end = open_node()?;
    start(&end, Start::new(100 * MICROSECOND, 3, 16)).context("starting")?;
    let before = finished(&end)?;
    let processor = Processor::last()?;
    let request = Start {
        cpu: processor.number() as i32,
        ..Start::new(MILLISECOND, 0, 16)
    };
    processor.set_online(false)?;
    expect("a start", start(&end, request), Err(Errno::EINVAL))?;
    expect("the state afterwards", info(&end)?, before)?;
    processor.set_online(true)?;
    expect("online again", start(&end, request), Ok(()))
}

fn packets_have_the_requested_interval(_: &Context) -> Result<()> {
    const INTERVAL: u64 = 2 * MILLISECOND;
    const COUNT: u64 = 100;
    let end = open_node()?;
    claim_by_read(&end)?;
    start(&end, Start::new(INTERVAL, COUNT, 16)).context("starting")?;
    let times: Vec<Header> = (0..COUNT)
        .map(|_| Ok(read_packet(&end)?.context("the feed has ended")?.header))
        .collect::<Result<_>>()?;
    let state = finished(&end)?;
    let span = times[COUNT as usize - 1].time_ns - times[0].time_ns;
    // A late expiry does not move those after it; what was skipped is counted.
    let intervals = COUNT - 1 + state.missed;
    let expected = intervals * INTERVAL;
    ensure!(
        span.abs_diff(expected) < INTERVAL * 10,
        "{COUNT} packets and {} missed took {span} ns, expected {expected}",
        state.missed
    );
    ensure!(
        state.elapsed_ns.abs_diff((COUNT + state.missed) * INTERVAL) < INTERVAL * 10,
        "elapsed: {} ns",
        state.elapsed_ns
    );
    Ok(())
}

fn median(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Of packets that are received at first, and later lost.
fn its_counts_only_grow_while_it_publishes(_: &Context) -> Result<()> {
    const COUNT: u64 = 4000;
    const INTERVAL: u64 = 100 * MICROSECOND;
    let end = open_node()?;
    claim_by_read(&end)?;
    let first = info(&end)?;
    start(&end, Start::new(INTERVAL, COUNT, PACKET_MAX)).context("starting")?;
    let (mut last, mut changes) = (info(&end)?, 0);
    while last.running == 1 {
        if last.expired < COUNT / 2 {
            let _ = read_nowait(&end, LARGEST);
        }
        let now = info(&end)?;
        expect_growth(&last, &now)?;
        let numbers = |info: &Info| info.sequence - first.sequence;
        ensure!(
            last.expired <= numbers(&now) && numbers(&now) <= now.expired + 1,
            "{} packets of {} to {} expiries",
            numbers(&now),
            last.expired,
            now.expired
        );
        ensure!(
            now.elapsed_ns >= now.expired * INTERVAL,
            "{} expiries within {} ns",
            now.expired,
            now.elapsed_ns
        );
        changes += u64::from(now.expired > last.expired);
        last = now;
    }
    ensure!(changes > 10, "only {changes} states were seen");
    let published = last.published - first.published;
    let lost = last.lost - first.lost;
    expect("expiries", last.expired, COUNT)?;
    expect("published and lost", published + lost, COUNT)?;
    expect("the next number", last.sequence - first.sequence, COUNT)?;
    ensure!(
        published > 0 && lost > 0,
        "{published} packets were published, {lost} lost"
    );
    Ok(())
}

/// It is idle for as long as a packet took. What the trace adds, and delays of the machine, are within the half. Without room
/// each packet is an event, which makes it take longer than the interval: else the next expiry leaves enough by itself.
fn the_shortest_interval_leaves_half_of_the_processor(_: &Context) -> Result<()> {
    const COUNT: u64 = 200;
    const INTERVAL: u64 = 10 * MICROSECOND;
    let end = open_node()?;
    claim_by_read(&end)?;
    let filling = info(&end)?.capacity / u64::from(PACKET_MAX);
    start(&end, Start::new(INTERVAL, filling, PACKET_MAX)).context("filling the ring")?;
    finished(&end)?;
    let expiries = expiries_during("publish_next", "sluice/sluice_feed_lost", || {
        start(&end, Start::new(INTERVAL, COUNT, PACKET_MAX)).context("starting")?;
        finished(&end).map(drop)
    })?;
    expect(
        "expiries that were traced",
        expiries.len() as u64,
        COUNT - 1,
    )?;
    let duration = median(expiries.iter().map(|expiry| expiry.duration_ns).collect());
    let idle = median(expiries.iter().map(|expiry| expiry.idle_ns).collect());
    let state = info(&end)?;
    note(format!(
        "medians: {duration} ns per packet, then {idle} ns idle; {} expired and {} missed in {} us",
        state.expired,
        state.missed,
        state.elapsed_ns / 1000
    ));
    ensure!(
        idle >= duration / 2,
        "{duration} ns per packet, but only {idle} ns idle"
    );
    // Each multiple of the interval is used or counted as missed.
    let passed = state.elapsed_ns / INTERVAL;
    let counted = state.expired + state.missed;
    ensure!(
        counted.abs_diff(passed) <= passed / 10 + 10,
        "{counted} expiries were used or missed in {passed} intervals"
    );
    ensure!(state.missed > 0, "no expiry was missed");
    Ok(())
}

fn an_open_node_keeps_the_module_loaded(_: &Context) -> Result<()> {
    let end = open_node()?;
    expect_module_in_use()?;
    start(&end, Start::new(100 * MICROSECOND, 0, 16)).context("starting")?;
    expect_module_in_use()
}
