// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits that apply to a ring, and the memory cgroup that is charged for its pages.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::child::{Child, spawn, spawn_keeping};
use crate::support::credentials::become_user;
use crate::support::ctl::{CREATE, EXCL, OWN, Open, PERSIST, READ, WRITE, expect_no_channel};
use crate::support::fd_passing;
use crate::support::memcg::{Accounts, SLACK, lock_memory, memory_current, set_memory_max};
use crate::support::memory::PAGE;
use crate::support::parameter::{Parameter, scope_limit};
use crate::support::ring::{CAPACITY, Rings, Role, Side, detach, request};
use crate::support::time::eventually;

topic!(
    "ring_limits",
    fifo: [],
    pipe_only: [
        a_scope_at_its_byte_limit_is_enospc,
        a_user_at_the_byte_limit_is_edquot_until_a_ring_is_freed,
        rings_and_pipes_share_the_limit_of_channels,
        a_mapping_is_charged_until_it_is_unmapped,
        a_session_is_ebusy_while_two_earlier_ones_are_held,
        a_session_beside_an_ended_one_is_charged,
        pages_are_charged_to_the_creator_and_uncharged_with_the_session,
        a_create_beyond_the_memory_limit_is_enomem_without_oom_kill,
        an_open_by_others_beyond_the_creators_memory_limit_is_enomem,
        racing_opens_allocate_one_session,
        a_process_killed_in_an_open_leaves_nothing,
    ],
);

const NAME: &str = "ring";
const MIB: u64 = 1 << 20;

fn sized(name: &str, capacity: u64) -> Open {
    Open {
        capacity,
        ..request(name, WRITE | CREATE | EXCL)
    }
}

fn a_scope_at_its_byte_limit_is_enospc(_: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_bytes", 4 * CAPACITY as u64)?;
    let rings = Rings::new()?;
    let open = |name: &str, pages: usize| rings.open(sized(name, (pages * PAGE) as u64));
    let full = Err(Errno::ENOSPC);
    let first = open("first", 4).context("half of the limit")?;
    // Rounded up to 8 pages.
    expect("too large", open("second", 5).map(drop), full)?;
    let second = open("second", 4).context("the other half")?;
    expect("a page more", open("third", 1).map(drop), full)?;
    let attached = rings.attach("first", Role::Consumer).map(drop);
    expect("attaching", attached, Ok(()))?;
    drop(first);
    expect("after closing", open("third", 3).map(drop), Ok(()))?;
    drop(second);
    expect_no_channel(&rings.0)
}

fn a_user_at_the_byte_limit_is_edquot_until_a_ring_is_freed(_: &Context) -> Result<()> {
    let _limit = Parameter::set("user_max_bytes", 2 * CAPACITY as u64)?;
    let user = spawn("a user", || {
        become_user(1001)?;
        let rings = Rings::new()?;
        let create = |name: &str| rings.role(name, Role::Producer);
        let full = Err(Errno::EDQUOT);
        let first = rings.side("first", Role::Producer)?;
        rings.persist("second").context("the second")?;
        expect("a third", create("third").map(drop), full)?;
        expect(
            "attaching",
            rings.attach("second", Role::Consumer).map(drop),
            Ok(()),
        )?;
        rings.unlink("first").context("unlinking the first")?;
        expect("unlinked but open", create("third").map(drop), full)?;
        drop(first);
        let third = create("third").context("after closing it")?;
        expect("a fourth", create("fourth").map(drop), full)?;
        rings.unlink("second").context("unlinking the second")?;
        let _fourth = create("fourth").context("after unlinking one")?;
        drop(third);
        Ok(())
    })?;
    user.finish()
}

fn rings_and_pipes_share_the_limit_of_channels(_: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_channels", 2)?;
    let rings = Rings::new()?;
    let _pipe = rings.0.create("pipe").context("a pipe")?;
    let ring = rings.role(NAME, Role::Producer).context("a ring")?;
    let full = Err(Errno::ENOSPC);
    let one_more = rings.role("more", Role::Producer).map(drop);
    expect("one more ring", one_more, full)?;
    expect("one more pipe", rings.0.create("more").map(drop), full)?;
    drop(ring);
    expect("after closing", rings.0.create("more").map(drop), Ok(()))
}

fn a_mapping_is_charged_until_it_is_unmapped(_: &Context) -> Result<()> {
    let _limit = scope_limit("scope_max_bytes", CAPACITY as u64)?;
    let rings = Rings::new()?;
    let Side {
        end,
        own,
        peer,
        data,
    } = rings.side(NAME, Role::Producer)?;
    rings.unlink(NAME).context("unlinking")?;
    drop((end, own, peer));
    let other = || rings.role("other", Role::Producer).map(drop);
    expect("while it is mapped", other(), Err(Errno::ENOSPC))?;
    drop(data);
    expect("after unmapping", other(), Ok(()))
}

/// A ring has at most twice the memory that it is charged for: its session, and one that has ended.
fn a_session_is_ebusy_while_two_earlier_ones_are_held(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    rings.persist(NAME)?;
    for role in Role::ALL {
        let ended = || {
            let side = rings.side(NAME, role)?;
            detach(&side).context("detaching")?;
            Ok::<_, anyhow::Error>(side)
        };
        let (first, second) = (ended()?, ended()?);
        for third in Role::ALL {
            let opened = rings.attach(NAME, third).map(drop);
            expect("a third session", opened, Err(Errno::EBUSY))?;
        }
        // One mapping holds a session as well as an endpoint.
        let kept = second.data;
        drop((second.end, second.own, second.peer));
        let opened = rings.attach(NAME, role).map(drop);
        expect("with a mapping", opened, Err(Errno::EBUSY))?;
        drop(kept);
        let again = ended().context("after unmapping")?;
        drop((first, again));
    }
    rings.unlink(NAME).context("unlinking")?;
    expect_no_channel(&rings.0)
}

/// A persistent ring without pages, created in the creator's cgroup by a process that has exited.
fn persist(accounts: &Accounts, capacity: u64) -> Result<()> {
    let creation = accounts.creator.spawn("the creator", || {
        let request = sized(NAME, capacity);
        let made = Rings::new()?.open(Open {
            flags: request.flags | PERSIST,
            ..request
        });
        made.map(drop).context("creating the ring")
    })?;
    creation.finish()
}

/// Opens a role of the creator's ring in the other cgroup.
fn open_by_other(accounts: &Accounts, role: Role) -> Result<nix::Result<OwnedFd>> {
    let directory = accounts.creator.directory()?;
    let (ours, theirs) = fd_passing::socket_pair()?;
    let keep = [theirs.as_fd(), directory.as_fd()];
    let opener = spawn_keeping("another process", &keep, || {
        accounts.other.enter()?;
        let opened = Rings::new()?.open(Open {
            scope_fd: directory.as_raw_fd(),
            ..request(NAME, role.flag())
        });
        match opened {
            Ok(end) => {
                fd_passing::send_fd(&theirs, end.as_fd())?;
                Ok(None)
            }
            Err(error) => Ok(Some(error as i32)),
        }
    })?;
    Ok(match opener.finish()? {
        None => Ok(fd_passing::receive_fd(&ours)?),
        Some(errno) => Err(Errno::from_raw(errno)),
    })
}

fn unlink(accounts: &Accounts) -> Result<()> {
    let directory = accounts.creator.directory()?;
    let unlinked = Rings::new()?.unlink_in(directory.as_raw_fd(), NAME);
    unlinked.context("unlinking")
}

fn a_session_beside_an_ended_one_is_charged(_: &Context) -> Result<()> {
    let capacity = 4 * PAGE as u64;
    let _limit = Parameter::set("user_max_bytes", 2 * capacity - 1)?;
    let child = spawn("a user", || {
        become_user(1001)?;
        let rings = Rings::new()?;
        let persist = Open {
            capacity,
            ..request(NAME, WRITE | CREATE | PERSIST)
        };
        rings.open(persist).map(drop).context("creating the ring")?;
        let (producer, consumer) = rings.sides(NAME)?;
        detach(&consumer.end).context("detaching")?;
        drop(producer);
        let next = rings.role(NAME, Role::Producer).map(drop);
        expect("another session", next, Err(Errno::EDQUOT))?;
        drop(consumer);
        rings.sides(NAME).map(drop).context("once it has ended")?;
        rings.unlink(NAME).context("unlinking")
    })?;
    child.finish()
}

fn pages_are_charged_to_the_creator_and_uncharged_with_the_session(
    context: &Context,
) -> Result<()> {
    const RING: u64 = 8 * MIB;
    let accounts = Accounts::new(context)?;
    persist(&accounts, RING)?;
    let vacant = memory_current(&accounts.creator)?;
    ensure!(vacant < RING / 2, "a ring without endpoints has {vacant} B");
    let other = memory_current(&accounts.other)?;

    let producer = Side::of(open_by_other(&accounts, Role::Producer)??)?;
    let grown = memory_current(&accounts.creator)?.saturating_sub(vacant);
    ensure!(
        grown >= RING - SLACK,
        "the creator's grew by {grown} B only"
    );
    let grown = memory_current(&accounts.other)?.saturating_sub(other);
    ensure!(grown <= SLACK, "the opener's cgroup grew by {grown} B");
    producer.publish(b"records");
    drop(producer);
    let kept = memory_current(&accounts.creator)?.saturating_sub(vacant);
    ensure!(
        kept >= RING - SLACK,
        "only {kept} B are kept for the consumer"
    );
    let consumer = Side::of(open_by_other(&accounts, Role::Consumer)??)?;
    drop(consumer);
    accounts.expect_uncharged(vacant)?;

    let producer = Side::of(open_by_other(&accounts, Role::Producer)??)?;
    producer.publish(b"records");
    drop(producer);
    unlink(&accounts)?;
    accounts.expect_uncharged(vacant)
}

fn a_create_beyond_the_memory_limit_is_enomem_without_oom_kill(context: &Context) -> Result<()> {
    let accounts = Accounts::new(context)?;
    set_memory_max(&accounts.creator, 8 * MIB)?;
    let creator = accounts.creator.spawn("the creator", || {
        lock_memory()?;
        let rings = Rings::new()?;
        for flags in [0, PERSIST] {
            let request = sized(NAME, 64 * MIB);
            let made = rings.open(Open {
                flags: request.flags | flags,
                ..request
            });
            expect("a large one", made.map(drop), Err(Errno::ENOMEM))?;
            expect("names", rings.0.names(OWN), Ok(vec![]))?;
        }
        let smaller = rings.open(sized(NAME, MIB)).map(drop);
        expect("a smaller one", smaller, Ok(()))
    })?;
    let seen = creator.finish();
    accounts.expect_no_kill()?;
    seen
}

fn an_open_by_others_beyond_the_creators_memory_limit_is_enomem(context: &Context) -> Result<()> {
    let accounts = Accounts::new(context)?;
    persist(&accounts, 16 * MIB)?;
    set_memory_max(&accounts.creator, 8 * MIB)?;
    for role in Role::ALL {
        let opened = open_by_other(&accounts, role)?.map(drop);
        expect("an open by another", opened, Err(Errno::ENOMEM))?;
    }
    set_memory_max(&accounts.creator, 64 * MIB)?;
    let opened = open_by_other(&accounts, Role::Consumer)?.map(drop);
    expect("after raising the limit", opened, Ok(()))?;
    accounts.expect_no_kill()?;
    unlink(&accounts)
}

/// The creator's cgroup has room for one session, which both sides open at once.
fn racing_opens_allocate_one_session(context: &Context) -> Result<()> {
    const ROUNDS: usize = 10;
    let accounts = Accounts::new(context)?;
    persist(&accounts, 32 * MIB)?;
    set_memory_max(&accounts.creator, 48 * MIB)?;
    let directory = accounts.creator.directory()?;
    let rings = Rings::new()?;
    let open = |role: Role| {
        rings.open(Open {
            scope_fd: directory.as_raw_fd(),
            ..request(NAME, role.flag())
        })
    };
    for round in 0..ROUNDS {
        let (producer, consumer) = std::thread::scope(|scope| {
            let producer = scope.spawn(|| open(Role::Producer));
            let consumer = open(Role::Consumer);
            (
                producer.join().expect("the thread does not panic"),
                consumer,
            )
        });
        let opened = (producer.map(drop), consumer.map(drop));
        expect(&format!("round {round}"), opened, (Ok(()), Ok(())))?;
    }
    accounts.expect_no_kill()?;
    unlink(&accounts)
}

/// The pages of the ring take longer to allocate than the signal takes to arrive, or not: both are permitted.
fn a_process_killed_in_an_open_leaves_nothing(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for _ in 0..10 {
        let opener: Child<()> = spawn("an opener", || {
            let opened = Rings::new()?.open(Open {
                capacity: 64 * MIB,
                ..request(NAME, READ | CREATE)
            });
            let _end = opened.context("opening")?;
            loop {
                std::thread::park();
            }
        })?;
        eventually("the child creates its ring", || {
            Ok((rings.info(NAME).is_ok() || opener.has_ended()?).then_some(()))
        })?;
        opener.kill()?;
    }
    expect_no_channel(&rings.0)
}
