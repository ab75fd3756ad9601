// SPDX-License-Identifier: MIT OR Apache-2.0
//! The destruction of a ring under its users: both sides learn of it, their calls fail, and their mappings stay.

use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes, note};
use crate::support::child::{Child, spawn, spawn_keeping};
use crate::support::ctl::{CREATE, PERSIST, expect_no_channel};
use crate::support::kernel::expect_no_objects;
use crate::support::memory::PAGE;
use crate::support::parameter::scope_limit;
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::ring::{
    CAPACITY, CLOSED, DESTROYED, DIED, FOREVER, MMAP_CONSUMER, MMAP_DATA, MMAP_PRODUCER, READ_ONLY,
    ROLE_CLOSED, ROLE_DESTROYED, ROLE_DIED, Region, Rings, Role, Side, detach, info, request,
    spawn_side, wait, wake,
};
use crate::support::time::Deadline;

topic!(
    "ring_destroy",
    fifo: [],
    pipe_only: [
        a_destroyed_ring_has_no_name,
        both_control_pages_say_that_it_is_destroyed,
        every_call_on_a_destroyed_ring_is_epipe,
        a_destruction_ends_every_kind_of_sleep,
        a_stored_reason_is_not_overwritten,
        a_role_that_ended_before_stays_as_it_ended,
        a_vacant_role_is_destroyed_too,
        mappings_outlive_the_destruction,
        a_destroyed_ring_is_charged_until_its_mappings_are_gone,
        a_persistent_ring_with_records_is_freed,
        a_destroyed_endpoint_that_never_mapped_gives_no_role_back,
        racing_opens_and_destructions_leak_nothing,
    ],
);

const NAME: &str = "ring";
const EPIPE: nix::Result<()> = Err(Errno::EPIPE);
const DEAD: &str = "IN|ERR|HUP";

fn destroy(rings: &Rings) -> Result<()> {
    rings.destroy(NAME).context("destroying the ring")
}

fn a_destroyed_ring_has_no_name(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let missing = Err(Errno::ENOENT);
    expect("without a ring", rings.destroy(NAME), missing)?;
    for flags in [CREATE, CREATE | PERSIST] {
        let _end = rings.open(request(NAME, Role::Producer.flag() | flags))?;
        destroy(&rings)?;
        expect("again", rings.destroy(NAME), missing)?;
        expect("unlinking", rings.unlink(NAME), missing)?;
        let attached = rings.attach(NAME, Role::Consumer).map(drop);
        expect("attaching", attached, missing)?;
        expect("info", rings.info(NAME).map(drop), missing)?;
    }
    expect_no_channel(&rings.0)
}

fn both_control_pages_say_that_it_is_destroyed(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let (producer, consumer) = rings.sides(NAME)?;
    destroy(&rings)?;
    for side in [&producer, &consumer] {
        expect("own page", side.own.closed(), DESTROYED)?;
        expect("the peer's page", side.peer.closed(), DESTROYED)?;
        let state = info(side).context("info")?;
        let roles = (state.producer, state.consumer);
        expect("roles", roles, (ROLE_DESTROYED, ROLE_DESTROYED))?;
        expect("events", poll::state(side)?, DEAD.to_owned())?;
    }
    drop(producer);
    expect("after one end", consumer.peer.closed(), DESTROYED)?;
    let state = info(&consumer).context("info")?;
    expect("its role", state.producer, ROLE_DESTROYED)
}

fn every_call_on_a_destroyed_ring_is_epipe(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let (producer, consumer) = rings.sides(NAME)?;
    destroy(&rings)?;
    for side in [&producer, &consumer] {
        for seq in [0, 1] {
            expect("wait", wait(side, seq, FOREVER), EPIPE)?;
        }
        expect("wake", wake(side), EPIPE)?;
        expect("detach", detach(side), EPIPE)?;
        for (offset, len) in [
            (MMAP_PRODUCER, PAGE),
            (MMAP_CONSUMER, PAGE),
            (MMAP_DATA, 2 * CAPACITY),
        ] {
            let mapped = Region::map(side, offset, len, READ_ONLY).map(drop);
            expect("mmap", mapped, EPIPE)?;
        }
    }
    Ok(())
}

/// Each of these sleeps until the ring is destroyed.
fn a_destruction_ends_every_kind_of_sleep(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        let waiter = spawn_side(NAME, role, |side| {
            let waited = wait(side, side.seq(), FOREVER);
            Ok((waited.map_err(|errno| errno as i32), side.own.closed()))
        })?;
        let peer = rings.side(NAME, role.peer())?;
        let poller = spawn_keeping("a poller", &[peer.as_fd()], || {
            let events = poll::wait(&peer, poll::IN | poll::RDHUP, -1);
            Ok(poll::name(events.context("poll")?))
        })?;
        waiter.wait_asleep_in(Call::Ioctl)?;
        poller.wait_asleep_in(Call::Poll)?;
        destroy(&rings)?;
        let waited = (Err(Errno::EPIPE as i32), DESTROYED);
        expect("the wait", waiter.finish()?, waited)?;
        expect("the poll", poller.finish()?, DEAD.to_owned())?;
    }
    Ok(())
}

fn a_stored_reason_is_not_overwritten(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        for stored in [CLOSED, DIED, 77] {
            let side = rings.side(NAME, role)?;
            let peer = rings.side(NAME, role.peer())?;
            side.own.set_closed(stored);
            destroy(&rings)?;
            expect("stored before", peer.peer.closed(), stored)?;
            expect("the peer's", side.peer.closed(), DESTROYED)?;
            let state = role.state_in(&info(&peer)?);
            expect("the role", state, ROLE_DESTROYED)?;
            expect("a wait", wait(&side, side.seq(), FOREVER), EPIPE)?;
            expect("events", poll::state(&peer)?, DEAD.to_owned())?;
        }
    }
    Ok(())
}

fn a_role_that_ended_before_stays_as_it_ended(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        for (detached, closed, state) in [(true, CLOSED, ROLE_CLOSED), (false, DIED, ROLE_DIED)] {
            let peer = rings.side(NAME, role.peer())?;
            let side = rings.side(NAME, role)?;
            if detached {
                detach(&side).context("detaching")?;
            }
            drop(side);
            destroy(&rings)?;
            expect("closed", peer.peer.closed(), closed)?;
            expect("the role", role.state_in(&info(&peer)?), state)?;
            expect("own page", peer.own.closed(), DESTROYED)?;
            expect("events", poll::state(&peer)?, DEAD.to_owned())?;
            expect("a wait", wait(&peer, peer.seq(), FOREVER), EPIPE)?;
        }
    }
    Ok(())
}

fn a_vacant_role_is_destroyed_too(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        let side = rings.side(NAME, role)?;
        destroy(&rings)?;
        expect("the vacant role's page", side.peer.closed(), DESTROYED)?;
        expect("own page", side.own.closed(), DESTROYED)?;
    }
    Ok(())
}

fn mappings_outlive_the_destruction(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let (producer, consumer) = rings.sides(NAME)?;
    producer.publish(b"published before");
    destroy(&rings)?;
    let (other, _other_consumer) = rings.sides(NAME)?;
    ensure!(other.data.is_zero(), "the new ring has the data of the old");
    other.data.write(0, &[0xee; CAPACITY]);
    expect_bytes("before", &consumer.data.read(0, 16), b"published before")?;
    producer.data.write(CAPACITY, b"written later...");
    let dropped = consumer.data.advise(libc::MADV_DONTNEED);
    expect("dropping its page tables", dropped, Ok(()))?;
    expect_bytes("later", &consumer.data.read(0, 16), b"written later...")?;
    expect("the other ring", other.peer.closed(), 0)
}

fn a_destroyed_ring_is_charged_until_its_mappings_are_gone(_: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_bytes", CAPACITY as u64)?;
    let rings = Rings::new()?;
    let producer = rings.side(NAME, Role::Producer)?;
    destroy(&rings)?;
    let again = || rings.role(NAME, Role::Producer).map(drop);
    expect("while it is open", again(), Err(Errno::ENOSPC))?;
    let Side {
        end,
        own,
        peer,
        data,
    } = producer;
    drop((end, own, peer));
    expect("while it is mapped", again(), Err(Errno::ENOSPC))?;
    drop(data);
    expect("afterwards", again(), Ok(()))
}

fn a_persistent_ring_with_records_is_freed(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    rings.persist(NAME)?;
    let producer = rings.side(NAME, Role::Producer)?;
    producer.publish(b"records");
    drop(producer);
    destroy(&rings)?;
    expect_no_channel(&rings.0)
}

fn a_destroyed_endpoint_that_never_mapped_gives_no_role_back(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        let peer = rings.side(NAME, role.peer())?;
        let end = rings.attach(NAME, role)?;
        destroy(&rings)?;
        drop(end);
        let state = role.state_in(&info(&peer)?);
        expect("the role", state, ROLE_DESTROYED)?;
        expect("closed", peer.peer.closed(), DESTROYED)?;
    }
    Ok(())
}

/// Two processes open the two roles while a third one destroys the ring.
fn racing_opens_and_destructions_leak_nothing(context: &Context) -> Result<()> {
    let deadline = Deadline::after(context.durations.races.min(Duration::from_secs(3)));
    let open_and_use = |role: Role| {
        let deadline = &deadline;
        move || {
            let rings = Rings::new()?;
            let mut destroyed = 0;
            while !deadline.passed() {
                let end = match rings.open(request(NAME, role.flag() | CREATE | PERSIST)) {
                    Ok(end) => end,
                    Err(Errno::EPIPE | Errno::EBUSY) => continue,
                    Err(error) => bail!("opening the {role:?}: {error}"),
                };
                let mapped = Region::ctrl(&end, role, READ_ONLY);
                match wait(&end, 0, 100_000) {
                    Ok(()) | Err(Errno::ETIMEDOUT) => {}
                    Err(Errno::EPIPE) => destroyed += 1,
                    Err(error) => bail!("waiting as the {role:?}: {error}"),
                }
                drop(mapped);
            }
            Ok(destroyed)
        }
    };
    let users: Vec<Child<u64>> = Role::ALL
        .into_iter()
        .map(|role| spawn(&format!("the {role:?}"), open_and_use(role)))
        .collect::<Result<_>>()?;
    let rings = Rings::new()?;
    let mut random = Rng::with_seed(5);
    while !deadline.passed() {
        match rings.destroy(NAME) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(error) => bail!("destroying it: {error}"),
        }
        std::thread::sleep(Duration::from_micros(random.u64(..2000)));
    }
    let mut destroyed = 0;
    for user in users {
        destroyed += user.finish()?;
    }
    note(format!("{destroyed} destroyed under their users"));
    ensure!(destroyed > 0, "no endpoint saw a destruction");
    match rings.destroy(NAME) {
        Ok(()) | Err(Errno::ENOENT) => expect_no_objects(),
        Err(error) => bail!("destroying it at last: {error}"),
    }
}
