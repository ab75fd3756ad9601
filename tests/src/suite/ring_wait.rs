// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleep and wake-up of a ring's sides: WAIT, WAKE, poll, epoll and io_uring, and how each side learns of the end of the
//! other one.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use nix::errno::Errno;
use nix::sys::epoll::{EpollFlags, EpollTimeout};

use crate::registry::{Context, topic};
use crate::support::check::{expect, note};
use crate::support::child::{Child, spawn_keeping};
use crate::support::event::Event;
use crate::support::ioctl::raw;
use crate::support::memory::PAGE;
use crate::support::poll::{self, epoll_event, epoll_on};
use crate::support::proc::Call;
use crate::support::ring::{
    CLOSED, DIED, FOREVER, RING_WAIT, RING_WAIT_SIZE_VER0, ROLE_CLOSED, RingWait, Rings, Role,
    Side, detach, info, spawn_side, wait, wake,
};
use crate::support::signals;
use crate::support::time::{Deadline, eventually};
use crate::support::uring::{REQUEST, Ring as Uring, poll_for};

topic!(
    "ring_wait",
    fifo: [],
    pipe_only: [
        a_wake_up_is_readable_until_it_is_acknowledged,
        positions_and_flags_are_no_wake_up,
        without_a_peer_nothing_is_readable,
        a_stored_reason_is_no_end_before_the_file_is_closed,
        level_triggered_epoll_reports_until_the_acknowledgement,
        edge_triggered_epoll_reports_each_wake_up,
        io_uring_poll_completes_at_a_wake_up,
        io_uring_poll_can_be_cancelled,
        a_wait_for_an_outdated_sequence_returns_at_once,
        a_wait_times_out,
        a_wait_is_interrupted_and_never_restarted,
        a_wait_of_any_size_up_to_a_page_is_accepted,
        invalid_waits_are_refused,
        a_wake_up_ends_every_kind_of_sleep,
        a_wake_up_without_a_new_sequence_ends_no_sleep,
        a_wake_up_of_the_own_side_ends_no_sleep,
        a_wake_up_ends_all_sleeps_of_a_side,
        a_wake_up_without_a_peer_is_kept_for_it,
        no_wake_up_is_lost,
        the_death_of_the_peer_ends_every_kind_of_sleep,
        a_process_asleep_in_a_wait_can_be_killed,
        a_detach_of_the_peer_ends_every_kind_of_sleep,
        a_detach_ends_the_own_sleeps,
        after_detach_every_call_is_epipe,
        a_closed_peer_is_told_from_a_dead_one,
        a_stored_reason_is_not_overwritten,
        a_consumer_that_comes_later_sees_how_the_producer_ended,
    ],
);

const NAME: &str = "ring";

fn expect_events(what: &str, side: &Side, expected: &str) -> Result<()> {
    expect(what, poll::state(side)?, expected.to_owned())
}

fn a_wake_up_is_readable_until_it_is_acknowledged(_: &Context) -> Result<()> {
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    for (from, to) in [(&producer, &consumer), (&consumer, &producer)] {
        expect_events("before it", to, "nothing")?;
        for _ in 0..2 {
            from.notify().context("waking")?;
            expect_events("after it", to, "IN")?;
            expect_events("of the other side", from, "nothing")?;
        }
        to.drain();
        expect_events("acknowledged", to, "nothing")?;
        for (seq, ack, expected) in [
            (u32::MAX, u32::MAX, "nothing"),
            (0, u32::MAX, "IN"),
            (0, 0, "nothing"),
            (0, 1, "IN"),
        ] {
            from.own.wake_seq().store(seq, Ordering::SeqCst);
            to.own.wake_ack().store(ack, Ordering::SeqCst);
            expect_events(&format!("{seq} and {ack}"), to, expected)?;
        }
        from.own.wake_seq().store(0, Ordering::SeqCst);
        to.own.wake_ack().store(0, Ordering::SeqCst);
    }
    Ok(())
}

/// Stores a value to every word of a control page but wake_seq, wake_ack and closed.
fn store_other_words(side: &Side) {
    const WAKE_SEQ: usize = 132;
    const WAKE_ACK: usize = 140;
    const CLOSED: usize = 136;
    for offset in (0..PAGE).step_by(4) {
        if ![WAKE_SEQ, WAKE_ACK, CLOSED].contains(&offset) {
            side.own.0.write(offset, &[0x55; 4]);
        }
    }
}

fn positions_and_flags_are_no_wake_up(_: &Context) -> Result<()> {
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    for side in [&producer, &consumer] {
        store_other_words(side);
        wake(side).context("waking")?;
    }
    for side in [&producer, &consumer] {
        expect_events("events", side, "nothing")?;
        let waited = wait(side, 0, 0);
        expect("a wait", waited, Err(Errno::ETIMEDOUT))?;
    }
    Ok(())
}

fn without_a_peer_nothing_is_readable(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        let side = rings.side(NAME, role)?;
        expect_events("events", &side, "nothing")?;
        expect("a wait", wait(&side, 0, 0), Err(Errno::ETIMEDOUT))?;
        expect("a wake-up", wake(&side), Ok(()))?;
    }
    Ok(())
}

fn a_stored_reason_is_no_end_before_the_file_is_closed(_: &Context) -> Result<()> {
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    for (from, to) in [(&producer, &consumer), (&consumer, &producer)] {
        from.own.set_closed(CLOSED);
        wake(from).context("waking")?;
        expect_events("events", to, "nothing")?;
        expect("a wait", wait(to, 0, 0), Err(Errno::ETIMEDOUT))?;
    }
    Ok(())
}

fn level_triggered_epoll_reports_until_the_acknowledgement(_: &Context) -> Result<()> {
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    for (from, to) in [(&producer, &consumer), (&consumer, &producer)] {
        let epoll = epoll_on(to, EpollFlags::EPOLLIN)?;
        let event = || epoll_event(&epoll, EpollTimeout::ZERO);
        expect("before it", event(), Ok(None))?;
        from.notify().context("waking")?;
        for _ in 0..3 {
            expect("after it", event(), Ok(Some(EpollFlags::EPOLLIN)))?;
        }
        to.drain();
        expect("acknowledged", event(), Ok(None))?;
    }
    Ok(())
}

fn edge_triggered_epoll_reports_each_wake_up(_: &Context) -> Result<()> {
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    for (from, to) in [(&producer, &consumer), (&consumer, &producer)] {
        let epoll = epoll_on(to, EpollFlags::EPOLLIN | EpollFlags::EPOLLET)?;
        let event = || epoll_event(&epoll, EpollTimeout::ZERO);
        for _ in 0..3 {
            from.notify().context("waking")?;
            expect("after it", event(), Ok(Some(EpollFlags::EPOLLIN)))?;
            expect("again", event(), Ok(None))?;
        }
        to.drain();
        from.notify().context("waking")?;
        expect("after a pause", event(), Ok(Some(EpollFlags::EPOLLIN)))?;
    }
    Ok(())
}

fn io_uring_poll_completes_at_a_wake_up(_: &Context) -> Result<()> {
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    for (from, to) in [(&producer, &consumer), (&consumer, &producer)] {
        let mut uring = Uring::new()?;
        uring.submit(poll_for(to, libc::POLLIN), REQUEST)?;
        from.own.pos().store(77, Ordering::SeqCst);
        uring.expect_pending()?;
        from.notify().context("waking")?;
        let done = uring.result(REQUEST)?;
        expect("result", done, Ok(libc::POLLIN.into()))?;
        uring.submit(poll_for(to, libc::POLLIN), REQUEST)?;
        let ready = uring.result(REQUEST)?;
        expect("while it is ready", ready, Ok(libc::POLLIN.into()))?;
    }
    Ok(())
}

fn io_uring_poll_can_be_cancelled(_: &Context) -> Result<()> {
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    let mut uring = Uring::pending(poll_for(&consumer, libc::POLLIN))?;
    uring.cancel()?;
    producer.notify().context("waking")?;
    expect_events("events", &consumer, "IN")
}

fn a_wait_for_an_outdated_sequence_returns_at_once(_: &Context) -> Result<()> {
    let (producer, consumer) = Rings::new()?.sides(NAME)?;
    for (from, to) in [(&producer, &consumer), (&consumer, &producer)] {
        for seq in [1, u32::MAX] {
            expect("another number", wait(to, seq, FOREVER), Ok(()))?;
        }
        from.own.wake_seq().store(5, Ordering::SeqCst);
        expect("a new number", wait(to, 0, FOREVER), Ok(()))?;
        let same = wait(to, 5, 1);
        expect("the number now", same, Err(Errno::ETIMEDOUT))?;
        // The acknowledgement is for poll only.
        to.drain();
        expect("acknowledged", wait(to, 0, FOREVER), Ok(()))?;
    }
    Ok(())
}

fn a_wait_times_out(_: &Context) -> Result<()> {
    let (_producer, consumer) = Rings::new()?.sides(NAME)?;
    for timeout in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_millis(20),
    ] {
        let began = Instant::now();
        let waited = wait(&consumer, 0, timeout.as_nanos() as u64);
        expect(&format!("{timeout:?}"), waited, Err(Errno::ETIMEDOUT))?;
        let took = began.elapsed();
        ensure!(took >= timeout, "it waited {took:?} instead of {timeout:?}");
    }
    for timeout in [FOREVER, FOREVER - 1, i64::MAX as u64, i64::MAX as u64 + 1] {
        let sleeper = spawn_keeping("a waiter", &[consumer.as_fd()], || {
            Ok(outcome(wait(&consumer, 0, timeout)))
        })?;
        sleeper
            .expect_still_asleep_in(Call::Ioctl)
            .with_context(|| format!("timeout {timeout:#x}"))?;
        sleeper.kill()?;
    }
    Ok(())
}

/// A result that a child can report.
fn outcome<T>(result: nix::Result<T>) -> Result<T, i32> {
    result.map_err(|errno| errno as i32)
}

fn a_wait_is_interrupted_and_never_restarted(_: &Context) -> Result<()> {
    let (_producer, consumer) = Rings::new()?.sides(NAME)?;
    for restart in [false, true] {
        for timeout in [FOREVER, 1 << 40] {
            let handled = Event::new()?;
            let child = signals::spawn_blocked_keeping(
                Call::Ioctl,
                &[consumer.as_fd()],
                &handled,
                restart,
                || Ok(outcome(wait(&consumer, 0, timeout))),
            )?;
            signals::interrupt(&child, &handled)?;
            let seen = child.finish()?;
            expect("result", seen, Err(Errno::EINTR as i32))?;
        }
    }
    Ok(())
}

/// A page that starts with this structure.
fn wait_page(request: RingWait) -> Vec<u8> {
    let words = [
        request.size,
        request.flags,
        request.seq,
        request.reserved,
        request.timeout_ns as u32,
        (request.timeout_ns >> 32) as u32,
    ];
    let mut page: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    page.resize(PAGE, 0);
    page
}

fn a_wait_of_any_size_up_to_a_page_is_accepted(_: &Context) -> Result<()> {
    let (_producer, consumer) = Rings::new()?.sides(NAME)?;
    let first = RING_WAIT_SIZE_VER0;
    for size in [first, first + 1, first + 8, 1000, PAGE as u32] {
        let mut page = wait_page(RingWait {
            size,
            ..RingWait::new(0, 1)
        });
        let waited = raw(&consumer, RING_WAIT, page.as_mut_ptr());
        expect(&format!("{size} bytes"), waited, Err(Errno::ETIMEDOUT))?;
    }
    Ok(())
}

fn invalid_waits_are_refused(_: &Context) -> Result<()> {
    let (_producer, consumer) = Rings::new()?.sides(NAME)?;
    // It would return at once.
    let valid = RingWait::new(1, FOREVER);
    let sized = |size| RingWait { size, ..valid };
    let first = RING_WAIT_SIZE_VER0;
    for (what, request) in [
        ("no size", sized(0)),
        ("a size below the first", sized(first - 1)),
        ("an unknown flag", RingWait { flags: 1, ..valid }),
        (
            "the last flag",
            RingWait {
                flags: 1 << 31,
                ..valid
            },
        ),
        (
            "a reserved field",
            RingWait {
                reserved: 1,
                ..valid
            },
        ),
    ] {
        let seen = raw(&consumer, RING_WAIT, wait_page(request).as_mut_ptr());
        expect(what, seen, Err(Errno::EINVAL))?;
    }
    let mut above = wait_page(sized(PAGE as u32 + 1));
    let seen = raw(&consumer, RING_WAIT, above.as_mut_ptr());
    expect("a size above a page", seen, Err(Errno::E2BIG))?;
    let mut longer = wait_page(sized(first + 8));
    longer[first as usize + 7] = 1;
    let seen = raw(&consumer, RING_WAIT, longer.as_mut_ptr());
    expect("an unknown field", seen, Err(Errno::E2BIG))?;
    let null = std::ptr::null_mut::<u8>();
    expect(
        "no memory",
        raw(&consumer, RING_WAIT, null),
        Err(Errno::EFAULT),
    )
}

/// The ways to sleep until the peer wakes a side or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    Wait,
    Poll,
    Epoll,
    Uring,
}

impl Sleep {
    const ALL: [Self; 4] = [Self::Wait, Self::Poll, Self::Epoll, Self::Uring];

    /// The events after it, or the errno of WAIT.
    fn run(self, side: &Side, seq: u32) -> Result<Result<String, i32>> {
        Ok(match self {
            Self::Wait => match wait(side, seq, FOREVER) {
                Ok(()) => Ok(poll::state(side)?),
                Err(errno) => Err(errno as i32),
            },
            Self::Poll => Ok(poll::name(poll::wait(side, poll::IN | poll::RDHUP, -1)?)),
            Self::Epoll => {
                let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDNORM | EpollFlags::EPOLLRDHUP;
                let epoll = epoll_on(side, flags)?;
                let event = epoll_event(&epoll, EpollTimeout::NONE)?;
                let bits = event.context("no event without a timeout")?.bits();
                Ok(poll::name(bits as i16))
            }
            Self::Uring => {
                let mut uring = Uring::new()?;
                uring.submit(poll_for(side, poll::IN | poll::RDHUP), REQUEST)?;
                let done = uring.wait_result(REQUEST)?;
                done.map(|events| poll::name(events as i16))
                    .map_err(|errno| errno as i32)
            }
        })
    }

    fn call(self) -> Call {
        match self {
            Self::Wait => Call::Ioctl,
            Self::Poll => Call::Poll,
            Self::Epoll => Call::Epoll,
            Self::Uring => Call::UringEnter,
        }
    }

    /// A child asleep with this role of its own.
    fn spawn(self, role: Role) -> Result<Child<Result<String, i32>>> {
        let child = spawn_side(NAME, role, |side| self.run(side, side.seq()))?;
        child.wait_asleep_in(self.call())?;
        Ok(child)
    }

    /// A child that is asleep with the same endpoint.
    fn spawn_with(self, side: &Side) -> Result<Child<Result<String, i32>>> {
        let child = spawn_keeping("a sleeper", &[side.as_fd()], || self.run(side, side.seq()))?;
        child.wait_asleep_in(self.call())?;
        Ok(child)
    }
}

/// Events are those that the sleeper asked for, and those that are always reported.
fn woken(events: &str) -> Result<String, i32> {
    Ok(events.to_owned())
}

fn a_wake_up_ends_every_kind_of_sleep(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        for sleep in Sleep::ALL {
            let sleeper = sleep.spawn(role)?;
            let peer = rings.side(NAME, role.peer())?;
            peer.notify().context("waking")?;
            let what = format!("{role:?} in {sleep:?}");
            expect(&what, sleeper.finish()?, woken("IN"))?;
        }
    }
    Ok(())
}

/// Not of io_uring, which completes a poll with the events of the wake-up itself.
fn a_wake_up_without_a_new_sequence_ends_no_sleep(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        for sleep in [Sleep::Wait, Sleep::Poll, Sleep::Epoll] {
            let sleeper = sleep.spawn(role)?;
            let peer = rings.side(NAME, role.peer())?;
            store_other_words(&peer);
            wake(&peer).context("waking")?;
            sleeper.expect_still_asleep_in(sleep.call())?;
            peer.notify().context("waking with a new number")?;
            expect("its end", sleeper.finish()?, woken("IN"))?;
        }
    }
    Ok(())
}

fn a_wake_up_of_the_own_side_ends_no_sleep(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        for sleep in Sleep::ALL {
            let peer = rings.side(NAME, role.peer())?;
            let side = rings.side(NAME, role)?;
            let sleeper = sleep.spawn_with(&side)?;
            side.notify().context("waking the peer")?;
            sleeper.expect_still_asleep_in(sleep.call())?;
            peer.notify().context("waking")?;
            expect("its end", sleeper.finish()?, woken("IN"))?;
        }
    }
    Ok(())
}

fn a_wake_up_ends_all_sleeps_of_a_side(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        let peer = rings.side(NAME, role.peer())?;
        let side = rings.side(NAME, role)?;
        let sleepers: Vec<_> = [Sleep::ALL, Sleep::ALL]
            .concat()
            .into_iter()
            .map(|sleep| sleep.spawn_with(&side))
            .collect::<Result<_>>()?;
        peer.notify().context("waking")?;
        for sleeper in sleepers {
            expect("a sleeper", sleeper.finish()?, woken("IN"))?;
        }
    }
    Ok(())
}

fn a_wake_up_without_a_peer_is_kept_for_it(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        let early = rings.side(NAME, role)?;
        early.notify().context("waking nobody")?;
        let late = rings.side(NAME, role.peer())?;
        expect_events("events", &late, "IN")?;
        expect("a wait", wait(&late, 0, FOREVER), Ok(()))?;
        expect("the number", late.seq(), 1)?;
    }
    Ok(())
}

/// Waits in a random way until the peer's position is at least this one.
fn await_position(side: &Side, position: u64, random: &mut Rng) -> Result<()> {
    loop {
        let seq = side.seq();
        side.own.wake_ack().store(seq, Ordering::SeqCst);
        if side.peer.pos().load(Ordering::SeqCst) >= position {
            return Ok(());
        }
        for _ in 0..random.u32(..200) {
            std::hint::spin_loop();
        }
        let slept = match random.u8(..5) {
            0 => poll::wait(side, poll::IN, -1).map(drop),
            1 => {
                let epoll = epoll_on(side, EpollFlags::EPOLLIN | EpollFlags::EPOLLET)?;
                epoll_event(&epoll, EpollTimeout::NONE).map(drop)
            }
            2 => match wait(side, seq, random.u64(..100_000)) {
                Err(Errno::ETIMEDOUT) => Ok(()),
                slept => slept,
            },
            _ => wait(side, seq, FOREVER),
        };
        slept.context("sleeping")?;
    }
}

/// Two processes take turns; a lost wake-up leaves both asleep.
fn no_wake_up_is_lost(context: &Context) -> Result<()> {
    const LAST: u64 = u64::MAX;
    let rings = Rings::new()?;
    let play = |side: &Side, seed: u64, last: &dyn Fn(u64) -> bool| -> Result<u64> {
        let mut random = Rng::with_seed(seed);
        for turn in 1.. {
            let position = if last(turn) { LAST } else { turn };
            side.own.pos().store(position, Ordering::SeqCst);
            for _ in 0..random.u32(1..3) {
                side.notify().context("waking")?;
            }
            if position == LAST || side.peer.pos().load(Ordering::SeqCst) == LAST {
                return Ok(turn);
            }
            await_position(side, turn, &mut random)?;
        }
        Ok(0)
    };
    let deadline = Deadline::after(context.durations.races.min(Duration::from_secs(5)));
    let consumer = spawn_side(NAME, Role::Consumer, |side| play(side, 1, &|_| false))?;
    let producer = rings.side(NAME, Role::Producer)?;
    let turns = play(&producer, 2, &|_| deadline.passed())?;
    consumer.finish()?;
    note(format!("{turns} turns"));
    ensure!(turns > 10, "only {turns} turns");
    Ok(())
}

const DEAD: &str = "IN|ERR|HUP";
const ENDED: &str = "IN|RDHUP";

fn the_death_of_the_peer_ends_every_kind_of_sleep(_: &Context) -> Result<()> {
    for role in Role::ALL {
        for sleep in Sleep::ALL {
            let victim: Child<()> = spawn_side(NAME, role.peer(), |_| {
                loop {
                    std::thread::park();
                }
            })?;
            let sleeper = spawn_side(NAME, role, |side| {
                let seen = sleep.run(side, side.seq())?;
                let again = wait(side, side.seq(), FOREVER);
                Ok((seen, outcome(again), side.peer.closed(), poll::state(side)?))
            })?;
            sleeper.wait_asleep_in(sleep.call())?;
            victim.kill()?;
            let expected = (woken(DEAD), Ok(()), DIED, DEAD.to_owned());
            let what = format!("{role:?} in {sleep:?}");
            expect(&what, sleeper.finish()?, expected)?;
        }
    }
    Ok(())
}

fn a_process_asleep_in_a_wait_can_be_killed(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        for sleep in Sleep::ALL {
            let sleeper = sleep.spawn(role)?;
            let peer = rings.side(NAME, role.peer())?;
            sleeper.kill()?;
            // io_uring closes its files after the end of the process.
            eventually("the role ends", || {
                Ok((peer.peer.closed() == DIED).then_some(()))
            })
            .with_context(|| format!("{role:?} in {sleep:?}"))?;
            wait(&peer, peer.seq(), FOREVER).context("waiting for the end")?;
            expect_events("events of the peer", &peer, DEAD)?;
        }
    }
    Ok(())
}

fn a_detach_of_the_peer_ends_every_kind_of_sleep(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        for sleep in Sleep::ALL {
            let sleeper = spawn_side(NAME, role, |side| {
                let seen = sleep.run(side, side.seq())?;
                let again = wait(side, side.seq(), FOREVER);
                let closed = side.peer.closed();
                Ok((seen, outcome(again), closed, poll::state(side)?))
            })?;
            let peer = rings.side(NAME, role.peer())?;
            sleeper.wait_asleep_in(sleep.call())?;
            detach(&peer).context("detaching")?;
            let expected = (woken(ENDED), Ok(()), CLOSED, ENDED.to_owned());
            let what = format!("{role:?} in {sleep:?}");
            expect(&what, sleeper.finish()?, expected)?;
        }
    }
    Ok(())
}

fn a_detach_ends_the_own_sleeps(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        for sleep in Sleep::ALL {
            let name = format!("{sleep:?}");
            let _peer = rings.side(&name, role.peer())?;
            let side = rings.side(&name, role)?;
            let sleeper = sleep.spawn_with(&side)?;
            detach(&side).context("detaching")?;
            let expected = match sleep {
                Sleep::Wait => Err(Errno::EPIPE as i32),
                _ => woken(DEAD),
            };
            expect(&name, sleeper.finish()?, expected)?;
        }
    }
    Ok(())
}

fn after_detach_every_call_is_epipe(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        let peer = rings.side(NAME, role.peer())?;
        let side = rings.side(NAME, role)?;
        expect("detach", detach(&side), Ok(()))?;
        for seq in [0, 1] {
            expect("wait", wait(&side, seq, FOREVER), Err(Errno::EPIPE))?;
        }
        expect("wake", wake(&side), Err(Errno::EPIPE))?;
        expect("detach again", detach(&side), Err(Errno::EPIPE))?;
        expect_events("own events", &side, DEAD)?;
        let state = info(&side).map(|info| role.state_in(&info));
        expect("info", state, Ok(ROLE_CLOSED))?;
        // Neither the later calls nor the end of the file change what the peer sees.
        expect_events("events of the peer", &peer, ENDED)?;
        drop(side);
        expect_events("events after the end", &peer, ENDED)?;
        expect("closed", peer.peer.closed(), CLOSED)?;
    }
    Ok(())
}

fn a_closed_peer_is_told_from_a_dead_one(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        for (stored, closed, events) in [
            (0, DIED, DEAD),
            (CLOSED, CLOSED, ENDED),
            // Any other reason is one of the process itself.
            (77, 77, ENDED),
        ] {
            let peer = rings.side(NAME, role.peer())?;
            let side = rings.side(NAME, role)?;
            side.own.set_closed(stored);
            drop(side);
            expect("closed", peer.peer.closed(), closed)?;
            expect_events(&format!("{role:?}, {stored}"), &peer, events)?;
            expect("a wait", wait(&peer, peer.seq(), FOREVER), Ok(()))?;
            expect("a wake-up", wake(&peer), Ok(()))?;
        }
    }
    Ok(())
}

fn a_stored_reason_is_not_overwritten(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        for stored in [CLOSED, DIED, 77, u32::MAX] {
            let peer = rings.side(NAME, role.peer())?;
            let side = rings.side(NAME, role)?;
            side.own.set_closed(stored);
            detach(&side).context("detaching")?;
            expect("after detach", peer.peer.closed(), stored)?;
            drop(side);
            expect("after the end", peer.peer.closed(), stored)?;
            expect_events("events", &peer, ENDED)?;
        }
    }
    Ok(())
}

fn a_consumer_that_comes_later_sees_how_the_producer_ended(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for (closed, events) in [(CLOSED, ENDED), (DIED, DEAD)] {
        rings.persist(NAME)?;
        let producer = rings.side(NAME, Role::Producer)?;
        producer.publish(b"records");
        if closed == CLOSED {
            detach(&producer).context("detaching")?;
        }
        drop(producer);
        let consumer = rings.side(NAME, Role::Consumer)?;
        expect("closed", consumer.peer.closed(), closed)?;
        expect_events("events", &consumer, events)?;
        expect("a wait", wait(&consumer, 0, FOREVER), Ok(()))?;
        drop(consumer);
        rings.unlink(NAME).context("unlinking")?;
    }
    Ok(())
}
