// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening a ring: its roles, when a role is vacant again, sessions and their pages, parameters, and the endpoint as a
//! file.

use std::fs::{self, File};
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, SpliceFFlags, fcntl, open, readlink, splice};
use nix::sys::stat::Mode;
use nix::unistd::{Whence, lseek, pipe2, read, write};

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn, spawn_keeping};
use crate::support::credentials::{NOBODY, become_user, become_user_with_groups};
use crate::support::ctl::{
    BOTH, CREATE, EXCL, NONBLOCK, OWN, Open, PERSIST, PERSISTENT, READ, WRITE, expect_no_channel,
};
use crate::support::fd_passing;
use crate::support::ioctl::{self, raw, size_error};
use crate::support::kernel::expect_no_objects;
use crate::support::memory::{Mapping, PAGE};
use crate::support::poll;
use crate::support::random::stream_bytes;
use crate::support::ring::{
    CAPACITY, CAPACITY_MAX, CLOSED, DIED, Header, NODE_ANY, READ_ONLY, RECORD_READY, RING_INFO,
    RING_INFO_SIZE_VER0, RING_PARAMS_SIZE_VER0, RING_WAKE, ROLE_CLOSED, ROLE_DIED, ROLE_TAKEN,
    ROLE_VACANT, Region, RingInfo, RingParams, Rings, Role, Side, detach, info, request,
    spawn_side, wake,
};

topic!(
    "ring_open",
    fifo: [],
    pipe_only: [
        each_flag_opens_its_role,
        both_roles_at_once_is_einval_and_creates_nothing,
        an_open_never_waits_for_the_other_role,
        a_taken_role_is_ebusy,
        a_role_that_ended_is_ebusy_while_the_peer_lives,
        the_role_of_a_killed_process_is_ebusy_while_the_peer_lives,
        an_endpoint_that_never_mapped_gives_its_role_back,
        a_role_that_was_given_back_can_be_taken_by_another_endpoint,
        a_failed_mapping_gives_the_role_back_as_none,
        records_outlive_their_producer_for_one_consumer,
        records_wait_for_a_consumer_that_maps_them,
        a_first_record_outlives_its_producer_without_a_position,
        a_producer_that_published_nothing_leaves_no_session,
        a_consumer_alone_leaves_no_session,
        a_new_session_has_zeroed_pages,
        a_session_ends_with_an_unlinked_channel,
        a_name_that_was_unlinked_is_another_ring,
        the_capacity_is_rounded_up_to_a_power_of_two,
        the_capacity_of_an_existing_ring_stays,
        parameters_of_any_size_up_to_a_page_are_accepted,
        invalid_parameters_are_einval_and_create_nothing,
        a_ring_has_no_node_and_no_default_name,
        a_ring_and_a_pipe_may_have_the_same_name,
        the_mode_decides_who_may_open_which_role,
        info_and_list_describe_a_ring,
        info_reports_every_state_of_a_role,
        invalid_positions_are_reported_as_bytes_within_the_capacity,
        an_info_of_any_size_up_to_a_page_is_filled_as_far_as_known,
        an_endpoint_is_a_file_for_reading_and_writing_closed_on_exec,
        an_endpoint_is_named_in_proc_and_cannot_be_reopened,
        reading_writing_and_seeking_fail,
        unknown_commands_are_enotty,
        a_passed_endpoint_keeps_its_role,
    ],
);

const NAME: &str = "ring";
const BUSY: nix::Result<()> = Err(Errno::EBUSY);
const RECORDS: &[u8] = b"records of the producer";

fn each_flag_opens_its_role(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for first in Role::ALL {
        let one = rings.role(NAME, first).context("the first role")?;
        expect("the role", info(&one)?.role, first.number())?;
        expect("its state", first.state_in(&info(&one)?), ROLE_TAKEN)?;
        let other = first.peer();
        expect("the other", other.state_in(&info(&one)?), ROLE_VACANT)?;
        let two = rings.role(NAME, other).context("the second role")?;
        expect("the role", info(&two)?.role, other.number())?;
        expect("its state", other.state_in(&info(&one)?), ROLE_TAKEN)?;
    }
    expect_no_channel(&rings.0)
}

fn both_roles_at_once_is_einval_and_creates_nothing(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for flags in [CREATE, CREATE | EXCL, CREATE | PERSIST, CREATE | NONBLOCK] {
        for roles in [BOTH, 0] {
            let opened = rings.open(request(NAME, roles | flags)).map(drop);
            expect("creating", opened, Err(Errno::EINVAL))?;
            expect_no_channel(&rings.0)?;
        }
    }
    let _producer = rings.role(NAME, Role::Producer)?;
    let opened = rings.open(request(NAME, BOTH)).map(drop);
    expect("attaching", opened, Err(Errno::EINVAL))
}

fn an_open_never_waits_for_the_other_role(_: &Context) -> Result<()> {
    for role in Role::ALL {
        for flags in [0, NONBLOCK] {
            let opener = spawn("an opener", || {
                let opened = Rings::new()?.open(request(NAME, role.flag() | CREATE | flags));
                opened.map(drop).context("opening")
            })?;
            opener.finish()?;
        }
    }
    Ok(())
}

fn a_taken_role_is_ebusy(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let (producer, consumer) = rings.sides(NAME)?;
    for role in Role::ALL {
        expect("a second", rings.role(NAME, role).map(drop), BUSY)?;
        let nonblocking = rings.open(request(NAME, role.flag() | NONBLOCK));
        expect("without blocking", nonblocking.map(drop), BUSY)?;
    }
    // Neither of them was disturbed.
    for side in [&producer, &consumer] {
        expect("the peer's state", side.peer.closed(), 0)?;
        expect("events", poll::state(side)?, "nothing".to_owned())?;
    }
    drop((producer, consumer));
    let vacant = rings.attach(NAME, Role::Producer).map(drop);
    expect("after both", vacant, Err(Errno::ENOENT))
}

/// Ends this role, and checks that it cannot be taken before the other one ends.
fn expect_busy_after(role: Role, end: impl FnOnce(Side) -> Option<OwnedFd>) -> Result<()> {
    let rings = Rings::new()?;
    rings.persist(NAME)?;
    let ending = rings.side(NAME, role)?;
    let living = rings.side(NAME, role.peer())?;
    let detached = end(ending);
    for flags in [0, CREATE, CREATE | PERSIST, NONBLOCK] {
        let taken = rings.open(request(NAME, role.flag() | flags)).map(drop);
        expect(&format!("{role:?} with {flags:#x}"), taken, BUSY)?;
    }
    drop(detached);
    expect("still", rings.attach(NAME, role).map(drop), BUSY)?;
    drop(living);
    let again = rings.attach(NAME, role);
    expect("after both", again.map(drop), Ok(()))?;
    rings.unlink(NAME).context("unlinking")
}

fn a_role_that_ended_is_ebusy_while_the_peer_lives(_: &Context) -> Result<()> {
    for role in Role::ALL {
        expect_busy_after(role, |side| {
            drop(side);
            None
        })
        .context("closed")?;
        expect_busy_after(role, |side| {
            side.own.set_closed(CLOSED);
            drop(side);
            None
        })
        .context("closed by the process itself")?;
        expect_busy_after(role, |side| {
            detach(&side).expect("it has a role");
            Some(side.end)
        })
        .context("detached")?;
    }
    expect_no_objects()
}

fn the_role_of_a_killed_process_is_ebusy_while_the_peer_lives(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        let victim: Child<()> = spawn_side(NAME, role, |_| {
            loop {
                std::thread::park();
            }
        })?;
        let survivor = rings.side(NAME, role.peer())?;
        victim.kill()?;
        expect("closed", survivor.peer.closed(), DIED)?;
        expect("a successor", rings.role(NAME, role).map(drop), BUSY)?;
        drop(survivor);
        expect_no_channel(&rings.0)?;
    }
    Ok(())
}

fn an_endpoint_that_never_mapped_gives_its_role_back(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    rings.persist(NAME)?;
    for role in Role::ALL {
        let peer = rings.side(NAME, role.peer())?;
        for round in 0..3 {
            let what = format!("{role:?}, round {round}");
            let end = rings.attach(NAME, role).context(what.clone())?;
            if round == 1 {
                expect(&what, detach(&end), Ok(()))?;
            }
            drop(end);
            expect(&what, role.state_in(&info(&peer)?), ROLE_VACANT)?;
            expect(&what, peer.peer.closed(), 0)?;
            expect(&what, poll::state(&peer)?, "nothing".to_owned())?;
        }
    }
    rings.unlink(NAME).context("unlinking")
}

/// The endpoint that gave the role back remains open.
fn a_role_that_was_given_back_can_be_taken_by_another_endpoint(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        let peer = rings.side(NAME, role.peer())?;
        let first = rings.attach(NAME, role)?;
        detach(&first).context("detaching the first")?;
        let second = rings.side(NAME, role)?;
        let mapped = Region::ctrl(&first, role, READ_ONLY).map(drop);
        expect("mapping the first", mapped, Err(Errno::EPIPE))?;
        expect("waking by the first", wake(&first), Err(Errno::EPIPE))?;
        expect("detaching it again", detach(&first), Err(Errno::EPIPE))?;
        drop(first);
        expect("the second", role.state_in(&info(&second)?), ROLE_TAKEN)?;
        expect("closed", peer.peer.closed(), 0)?;
        drop(second);
        expect("closed after the second", peer.peer.closed(), DIED)?;
    }
    Ok(())
}

fn a_failed_mapping_gives_the_role_back_as_none(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let _peer = rings.side(NAME, Role::Consumer)?;
    let end = rings.attach(NAME, Role::Producer)?;
    let foreign = Region::ctrl(&end, Role::Consumer, libc::PROT_WRITE).map(drop);
    expect("a foreign page", foreign, Err(Errno::EACCES))?;
    let part = Region::map(&end, PAGE as u64, PAGE, READ_ONLY).map(drop);
    expect("between the regions", part, Err(Errno::EINVAL))?;
    drop(end);
    let again = rings.attach(NAME, Role::Producer).map(drop);
    expect("taking the role", again, Ok(()))
}

fn records_outlive_their_producer_for_one_consumer(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for closed in [CLOSED, DIED] {
        rings.persist(NAME)?;
        let producer = rings.side(NAME, Role::Producer)?;
        producer.publish(RECORDS);
        if closed == CLOSED {
            producer.own.set_closed(CLOSED);
        }
        drop(producer);
        let taken = rings.attach(NAME, Role::Producer).map(drop);
        expect("a producer while they wait", taken, BUSY)?;
        let (channel, _) = rings.info(NAME)?;
        expect("bytes that wait", channel.bytes, RECORDS.len() as u64)?;

        let consumer = rings.side(NAME, Role::Consumer)?;
        expect_bytes("records", &consumer.data.read(0, RECORDS.len()), RECORDS)?;
        let published = consumer.peer.pos().load(Ordering::Acquire);
        expect("published", published, RECORDS.len() as u64)?;
        expect("closed", consumer.peer.closed(), closed)?;
        for role in Role::ALL {
            expect("a further open", rings.attach(NAME, role).map(drop), BUSY)?;
        }
        drop(consumer);

        let producer = rings.side(NAME, Role::Producer)?;
        ensure!(producer.data.is_zero(), "the next session has old records");
        drop(producer);
        rings.unlink(NAME).context("unlinking")?;
    }
    expect_no_objects()
}

/// A consumer that only looks leaves the records to the next one.
fn records_wait_for_a_consumer_that_maps_them(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    rings.persist(NAME)?;
    let producer = rings.side(NAME, Role::Producer)?;
    producer.publish(RECORDS);
    drop(producer);
    drop(rings.attach(NAME, Role::Consumer)?);
    let consumer = rings.side(NAME, Role::Consumer)?;
    expect_bytes("records", &consumer.data.read(0, RECORDS.len()), RECORDS)?;
    drop(consumer);
    rings.unlink(NAME).context("unlinking")
}

/// A process that is killed may have published its first record without storing its position.
fn a_first_record_outlives_its_producer_without_a_position(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    rings.persist(NAME)?;
    let producer = rings.side(NAME, Role::Producer)?;
    let state = offset_of!(Header, state);
    producer.data.write(state, &RECORD_READY.to_ne_bytes());
    drop(producer);
    let taken = rings.attach(NAME, Role::Producer).map(drop);
    expect("a producer while it waits", taken, BUSY)?;
    let consumer = rings.side(NAME, Role::Consumer)?;
    let seen = consumer.data.read(state, 4);
    expect("its state", seen, RECORD_READY.to_ne_bytes().to_vec())?;
    drop(consumer);
    rings.unlink(NAME).context("unlinking")
}

fn a_producer_that_published_nothing_leaves_no_session(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    rings.persist(NAME)?;
    let producer = rings.side(NAME, Role::Producer)?;
    // The content of a record whose header says that it is not complete.
    producer.data.write(size_of::<Header>(), RECORDS);
    drop(producer);
    let producer = rings.side(NAME, Role::Producer)?;
    ensure!(producer.data.is_zero(), "the next session has old bytes");
    drop(producer);
    let (_, state) = rings.info(NAME)?;
    expect("the producer", state.producer, ROLE_VACANT)?;
    rings.unlink(NAME).context("unlinking")
}

fn a_consumer_alone_leaves_no_session(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    rings.persist(NAME)?;
    for _ in 0..2 {
        let consumer = rings.side(NAME, Role::Consumer)?;
        ensure!(consumer.own.0.is_zero(), "its page has old words");
        consumer.own.pos().store(77, Ordering::Relaxed);
    }
    let producer = rings.side(NAME, Role::Producer)?;
    expect("closed", producer.peer.closed(), 0)?;
    ensure!(
        producer.peer.0.is_zero(),
        "the consumer's page has old words"
    );
    drop(producer);
    rings.unlink(NAME).context("unlinking")
}

/// Freed pages are allocated again soon, so every page of a session is written, and several sessions follow.
fn a_new_session_has_zeroed_pages(_: &Context) -> Result<()> {
    const PAGES: usize = 64;
    let rings = Rings::new()?;
    let persist = Open {
        capacity: (PAGES * PAGE) as u64,
        ..request(NAME, WRITE | CREATE | PERSIST)
    };
    rings.open(persist).map(drop).context("creating the ring")?;
    for round in 0..20 {
        let (producer, consumer) = rings.sides(NAME)?;
        for (what, region) in [
            ("the data", &producer.data),
            ("the producer's page", &producer.own.0),
            ("the consumer's page", &consumer.own.0),
        ] {
            ensure!(region.is_zero(), "round {round}: {what} is not zeroed");
        }
        producer.data.write(0, &vec![0xff; PAGES * PAGE]);
        producer.own.0.write(0, &[0xff; PAGE]);
        consumer.own.0.write(0, &[0xff; PAGE]);
    }
    rings.unlink(NAME).context("unlinking")
}

fn a_session_ends_with_an_unlinked_channel(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    rings.persist(NAME)?;
    let producer = rings.side(NAME, Role::Producer)?;
    producer.publish(RECORDS);
    drop(producer);
    rings.unlink(NAME).context("unlinking")?;
    expect_no_channel(&rings.0)
}

fn a_name_that_was_unlinked_is_another_ring(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let (producer, consumer) = rings.sides(NAME)?;
    rings.unlink(NAME).context("unlinking")?;
    let gone = rings.attach(NAME, Role::Producer).map(drop);
    expect("the name", gone, Err(Errno::ENOENT))?;
    let (other, _other_consumer) = rings.sides(NAME)?;
    producer.publish(RECORDS);
    expect_bytes("data", &consumer.data.read(0, RECORDS.len()), RECORDS)?;
    ensure!(other.data.is_zero(), "the new ring has the data of the old");
    producer.notify().context("waking the old consumer")?;
    expect("its events", poll::state(&consumer)?, "IN".to_owned())
}

fn the_capacity_is_rounded_up_to_a_power_of_two(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let (page, most) = (PAGE as u64, CAPACITY_MAX);
    for (asked, expected) in [
        (0, 4 << 20),
        (1, page),
        (page, page),
        (page + 1, 2 * page),
        (3 << 20, 4 << 20),
        (most - page, most),
    ] {
        let end = rings.open(Open {
            capacity: asked,
            ..request(NAME, READ | CREATE)
        });
        let what = format!("capacity for {asked}");
        expect(&what, info(&end.context(what.clone())?)?.capacity, expected)?;
    }
    for asked in [most + 1, 2 * most, u64::MAX] {
        let opened = rings.open(Open {
            capacity: asked,
            ..request(NAME, READ | CREATE)
        });
        let what = format!("creating one of {asked}");
        expect(&what, opened.map(drop), Err(Errno::EINVAL))?;
    }
    expect_no_channel(&rings.0)
}

fn the_capacity_of_an_existing_ring_stays(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let _producer = rings.role(NAME, Role::Producer)?;
    let consumer = rings.open(Open {
        capacity: CAPACITY_MAX,
        ..request(NAME, READ | CREATE)
    })?;
    expect("capacity", info(&consumer)?.capacity, CAPACITY as u64)
}

/// Creates a ring with these bytes as parameters and returns the information about it.
fn create_with(rings: &Rings, params: &[u8]) -> nix::Result<RingInfo> {
    let end = rings.open(Open {
        params: params.as_ptr() as u64,
        ..request(NAME, WRITE | CREATE | EXCL)
    })?;
    info(&end)
}

/// A page that starts with these parameters.
fn params_page(params: RingParams) -> Vec<u8> {
    let words = [
        params.size,
        params.flags,
        params.node as u32,
        params.reserved,
    ];
    let mut page: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
    page.resize(PAGE, 0);
    page
}

fn parameters_of_any_size_up_to_a_page_are_accepted(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let first = RING_PARAMS_SIZE_VER0;
    for node in [NODE_ANY, 0] {
        for size in [first, first + 4, first + 8, 1000, PAGE as u32] {
            let page = params_page(RingParams {
                size,
                ..RingParams::new(node)
            });
            let seen = create_with(&rings, &page);
            expect(&format!("{size} bytes"), seen.map(|i| i.node), Ok(node))?;
        }
    }
    let none = rings.role(NAME, Role::Producer)?;
    expect("node without parameters", info(&none)?.node, NODE_ANY)?;
    drop(none);
    let mut longer = params_page(RingParams {
        size: first + 8,
        ..RingParams::new(NODE_ANY)
    });
    longer[first as usize] = 1;
    let seen = create_with(&rings, &longer).map(drop);
    expect("an unknown field", seen, Err(Errno::E2BIG))?;
    expect_no_channel(&rings.0)
}

fn invalid_parameters_are_einval_and_create_nothing(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let any = RingParams::new(NODE_ANY);
    let sized = |size| RingParams { size, ..any };
    let first = RING_PARAMS_SIZE_VER0;
    let invalid = [
        ("no size", sized(0)),
        ("a size below the first", sized(first - 1)),
        ("an unknown flag", RingParams { flags: 1, ..any }),
        ("a reserved field", RingParams { reserved: 1, ..any }),
        ("a negative node", RingParams::new(-2)),
        ("the lowest node", RingParams::new(i32::MIN)),
        ("a node that does not exist", RingParams::new(1023)),
        ("a node beyond the kernel's", RingParams::new(1 << 20)),
        ("the highest node", RingParams::new(i32::MAX)),
    ];
    for (what, params) in invalid {
        let seen = create_with(&rings, &params_page(params)).map(drop);
        expect(what, seen, Err(Errno::EINVAL))?;
        expect_no_channel(&rings.0)?;
    }
    let above = params_page(sized(PAGE as u32 + 1));
    let seen = create_with(&rings, &above).map(drop);
    expect("a size above a page", seen, Err(Errno::E2BIG))?;
    let inaccessible = Mapping::new(1)?;
    inaccessible.unmap_from(0)?;
    let seen = rings.open(Open {
        params: inaccessible.start() as u64,
        ..request(NAME, WRITE | CREATE)
    });
    expect("no memory", seen.map(drop), Err(Errno::EFAULT))
}

fn a_ring_has_no_node_and_no_default_name(_: &Context) -> Result<()> {
    ensure!(!Path::new("/dev/sluice/ring").exists(), "it has a node");
    let unnamed = Rings::new()?.role("", Role::Producer).map(drop);
    expect("an empty name", unnamed, Err(Errno::EINVAL))
}

fn a_ring_and_a_pipe_may_have_the_same_name(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let pipe = rings.0.create(NAME).context("creating a pipe")?;
    let ring = rings.open(request(NAME, WRITE | CREATE | EXCL));
    let ring = ring.context("creating a ring")?;
    expect("its role", info(&ring)?.role, Role::Producer.number())?;
    rings.unlink(NAME).context("unlinking the ring")?;
    expect("the pipe", rings.0.info(OWN, NAME).map(drop), Ok(()))?;
    drop((pipe, ring));
    expect_no_channel(&rings.0)
}

fn the_mode_decides_who_may_open_which_role(_: &Context) -> Result<()> {
    const OWNER: u32 = 1001;
    const GROUP: u32 = 2001;
    for (mode, may_produce, may_consume) in [
        (0o600, false, false),
        (0o604, false, true),
        (0o602, true, false),
        (0o606, true, true),
        (0o660, false, false),
    ] {
        let creator = spawn("the owner", || {
            become_user_with_groups(OWNER, GROUP, &[])?;
            let persist = request(NAME, WRITE | CREATE | EXCL | PERSIST);
            let made = Rings::new()?.open(Open { mode, ..persist });
            made.map(drop).context("creating the ring")
        })?;
        creator.finish()?;
        let opener = spawn("another user", || {
            become_user(NOBODY)?;
            let rings = Rings::new()?;
            for (role, may) in Role::ALL.into_iter().zip([may_produce, may_consume]) {
                let expected = if may { Ok(()) } else { Err(Errno::EACCES) };
                let opened = rings.attach(NAME, role).map(drop);
                expect(&format!("mode {mode:o}, {role:?}"), opened, expected)?;
            }
            Ok(())
        })?;
        opener.finish()?;
        Rings::new()?.unlink(NAME).context("unlinking")?;
    }
    Ok(())
}

fn info_and_list_describe_a_ring(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    rings.persist(NAME)?;
    let (channel, state) = rings.info(NAME)?;
    expect("name", channel.name(), NAME.as_bytes())?;
    expect("flags", channel.flags, PERSISTENT)?;
    expect("mode", channel.mode, 0o600)?;
    expect("capacity", channel.capacity, CAPACITY as u64)?;
    expect("ends", (channel.readers, channel.writers), (0, 0))?;
    expect("bytes", channel.bytes, 0)?;
    let expected = RingInfo {
        node: NODE_ANY,
        capacity: CAPACITY as u64,
        ..RingInfo::default()
    };
    expect("the state without endpoints", state, expected)?;

    let (producer, consumer) = rings.sides(NAME)?;
    producer.own.pos().store(5000, Ordering::Relaxed);
    consumer.own.pos().store(1000, Ordering::Relaxed);
    let (channel, state) = rings.info(NAME)?;
    expect("ends", (channel.readers, channel.writers), (1, 1))?;
    expect("bytes", channel.bytes, 4000)?;
    let both = RingInfo {
        producer: ROLE_TAKEN,
        consumer: ROLE_TAKEN,
        published: 5000,
        released: 1000,
        ..expected
    };
    expect("the state by name", state, both)?;
    for (side, role) in [(&producer, Role::Producer), (&consumer, Role::Consumer)] {
        let role = role.number();
        expect("by endpoint", info(side)?, RingInfo { role, ..both })?;
    }
    let list = rings.0.page(OWN, None, 2)?;
    expect("the list", list, vec![channel])?;
    drop((producer, consumer));
    rings.unlink(NAME).context("unlinking")
}

fn info_reports_every_state_of_a_role(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        let peer = rings.side(NAME, role.peer())?;
        let state = || Ok::<_, anyhow::Error>(role.state_in(&info(&peer)?));
        expect("before it", state()?, ROLE_VACANT)?;
        let side = rings.side(NAME, role)?;
        expect("while it is open", state()?, ROLE_TAKEN)?;
        detach(&side).context("detaching")?;
        expect("detached", state()?, ROLE_CLOSED)?;
        expect("by itself", role.state_in(&info(&side)?), ROLE_CLOSED)?;
        drop(side);
        expect("detached and closed", state()?, ROLE_CLOSED)?;
    }
    for (role, closed, expected) in [
        (Role::Producer, CLOSED, ROLE_CLOSED),
        (Role::Consumer, 77, ROLE_CLOSED),
        (Role::Producer, 0, ROLE_DIED),
        (Role::Consumer, 0, ROLE_DIED),
    ] {
        let peer = rings.side(NAME, role.peer())?;
        let side = rings.side(NAME, role)?;
        side.own.set_closed(closed);
        expect("stored only", role.state_in(&info(&peer)?), ROLE_TAKEN)?;
        drop(side);
        let what = format!("{role:?} after storing {closed}");
        expect(&what, role.state_in(&info(&peer)?), expected)?;
        let (channel, _) = rings.info(NAME)?;
        let ends = [channel.writers, channel.readers];
        let living = [Role::Producer, Role::Consumer].map(|r| u32::from(r != role));
        expect(&what, ends, living)?;
    }
    Ok(())
}

fn invalid_positions_are_reported_as_bytes_within_the_capacity(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let (producer, consumer) = rings.sides(NAME)?;
    let capacity = CAPACITY as u64;
    for (published, released, bytes) in [
        (capacity, 0, capacity),
        (capacity + 1, 0, capacity),
        (u64::MAX, 0, capacity),
        (0, 1, 0),
        (0, u64::MAX, 0),
        (u64::MAX, u64::MAX - 8, 8),
    ] {
        producer.own.pos().store(published, Ordering::Relaxed);
        consumer.own.pos().store(released, Ordering::Relaxed);
        let (channel, state) = rings.info(NAME)?;
        let what = format!("{published} and {released}");
        expect(&what, channel.bytes, bytes)?;
        expect(
            &what,
            (state.published, state.released),
            (published, released),
        )?;
    }
    Ok(())
}

fn an_info_of_any_size_up_to_a_page_is_filled_as_far_as_known(_: &Context) -> Result<()> {
    const UNTOUCHED: u8 = 0xa5;
    let end = Rings::new()?.role(NAME, Role::Producer)?;
    let first = RING_INFO_SIZE_VER0 as usize;
    let page_of = |size: usize| {
        let mut page = vec![UNTOUCHED; PAGE + 8];
        page[..4].copy_from_slice(&(size as u32).to_ne_bytes());
        page
    };
    let mut expected = page_of(first);
    raw(&end, RING_INFO, expected.as_mut_ptr()).context("the first size")?;
    ensure!(
        expected[4..first].iter().all(|byte| *byte != UNTOUCHED),
        "unwritten bytes: {:?}",
        &expected[..first]
    );
    for size in [first, first + 1, first + 8, 1000, PAGE] {
        let mut page = page_of(size);
        let what = format!("{size} bytes");
        expect(&what, raw(&end, RING_INFO, page.as_mut_ptr()), Ok(()))?;
        expect_bytes(&what, &page, &expected)?;
    }
    for size in [0, 4, first - 1, PAGE + 1, u32::MAX as usize] {
        let seen = raw(&end, RING_INFO, page_of(size).as_mut_ptr());
        expect(&format!("{size} bytes"), seen, Err(size_error(size as u32)))?;
    }
    let null = std::ptr::null_mut::<u8>();
    expect("no memory", raw(&end, RING_INFO, null), Err(Errno::EFAULT))
}

fn an_endpoint_is_a_file_for_reading_and_writing_closed_on_exec(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        for (flag, expected) in [(0, OFlag::empty()), (NONBLOCK, OFlag::O_NONBLOCK)] {
            let end = rings.open(request(NAME, role.flag() | CREATE | flag))?;
            let flags = OFlag::from_bits_truncate(fcntl(&end, FcntlArg::F_GETFL)?);
            expect("access", flags & OFlag::O_ACCMODE, OFlag::O_RDWR)?;
            expect("blocking", flags & OFlag::O_NONBLOCK, expected)?;
            let kept = FdFlag::from_bits_truncate(fcntl(&end, FcntlArg::F_GETFD)?);
            expect("on exec", kept, FdFlag::FD_CLOEXEC)?;
        }
    }
    Ok(())
}

fn an_endpoint_is_named_in_proc_and_cannot_be_reopened(_: &Context) -> Result<()> {
    let end = Rings::new()?.role(NAME, Role::Consumer)?;
    let path = format!("/proc/self/fd/{}", end.as_raw_fd());
    let name = readlink(path.as_str()).context("readlink")?;
    expect("name", name.to_str(), Some("anon_inode:[sluice-ring]"))?;
    for flags in [OFlag::O_RDONLY, OFlag::O_RDWR] {
        let again = open(path.as_str(), flags, Mode::empty()).map(drop);
        expect("opening it again", again, Err(Errno::ENXIO))?;
    }
    let position = fs::read_to_string(format!("/proc/self/fdinfo/{}", end.as_raw_fd()))?;
    ensure!(position.starts_with("pos:\t0"), "fdinfo says {position}");
    Ok(())
}

fn reading_writing_and_seeking_fail(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let (out, into) = pipe2(OFlag::O_CLOEXEC).context("pipe2")?;
    write(&into, b"bytes").context("filling the pipe")?;
    let move_bytes = |from: &OwnedFd, to: &OwnedFd| {
        splice(from, None, to, None, 5, SpliceFFlags::SPLICE_F_NONBLOCK).map(drop)
    };
    for role in Role::ALL {
        let side = rings.side(NAME, role)?;
        let end = &side.end;
        let einval = Err(Errno::EINVAL);
        expect("read", read(end, &mut [0; 8]).map(drop), einval)?;
        expect("write", write(end, b"bytes").map(drop), einval)?;
        let sought = lseek(end, 0, Whence::SeekCur).map(drop);
        expect("lseek", sought, Err(Errno::ESPIPE))?;
        expect("splice in", move_bytes(&out, end), einval)?;
        expect("splice out", move_bytes(end, &into), einval)?;
        let truncated = File::from(end.try_clone()?).set_len(0);
        let errno = truncated.map_err(|error| error.raw_os_error());
        expect("ftruncate", errno, Err(Some(libc::EINVAL)))?;
        ensure!(side.own.0.is_zero(), "the memory was written");
    }
    let mut left = [0; 8];
    let count = read(&out, &mut left).context("reading the pipe")?;
    expect_bytes("the pipe", &left[..count], b"bytes")
}

fn unknown_commands_are_enotty(_: &Context) -> Result<()> {
    const OTHER_TYPE: u64 = 0xc623;
    const UNUSED: u64 = 0xc73f;
    let rings = Rings::new()?;
    let end = rings.role(NAME, Role::Producer)?;
    let mut page = vec![0_u8; PAGE];
    for command in [OTHER_TYPE, UNUSED, ioctl::INFO, libc::FIONREAD] {
        let seen = raw(&end, command, page.as_mut_ptr());
        expect(&format!("{command:#x}"), seen, Err(Errno::ENOTTY))?;
    }
    let pipe = rings.0.create("pipe").context("creating a pipe")?;
    for other in [pipe.as_fd(), rings.0.as_fd()] {
        let seen = raw(&other, RING_WAKE, page.as_mut_ptr());
        expect("a ring's on another file", seen, Err(Errno::ENOTTY))?;
    }
    // Only type and number count, not the size.
    let sized = RING_INFO & 0xffff;
    page[..4].copy_from_slice(&RING_INFO_SIZE_VER0.to_ne_bytes());
    expect(
        "without a size",
        raw(&end, sized, page.as_mut_ptr()),
        Ok(()),
    )
}

fn a_passed_endpoint_keeps_its_role(_: &Context) -> Result<()> {
    let (ours, theirs) = fd_passing::socket_pair()?;
    let rings = Rings::new()?;
    let sender = spawn_keeping("the sender", &[theirs.as_fd()], || {
        let end = Rings::new()?.role(NAME, Role::Producer)?;
        fd_passing::send_fd(&theirs, end.as_fd())
    })?;
    let end = fd_passing::receive_fd(&ours)?;
    sender.finish()?;
    let producer = Side::of(end)?;
    let consumer = rings.side(NAME, Role::Consumer)?;
    let bytes = stream_bytes(1, 0, CAPACITY);
    producer.publish(&bytes);
    expect_bytes("data", &consumer.data.read(0, CAPACITY), &bytes)?;
    expect(
        "a second one",
        rings.role(NAME, Role::Producer).map(drop),
        BUSY,
    )?;
    drop(producer);
    expect("closed", consumer.peer.closed(), DIED)
}
