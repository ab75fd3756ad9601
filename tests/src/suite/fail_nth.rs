// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every operation with an injected failure (of an allocation, or of a copy to or from user memory) at every possible
//! point: it fails with a documented errno, leaves nothing behind, and succeeds when it is repeated. Only the debug
//! kernel injects failures.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::unistd::{pipe2, write};

use crate::registry::{Context, topic};
use crate::support::bus::{
    self, ADDRESSED, BATCHED, BLOCK, Buses, DROP, MAPPED, MONITOR, MULTICAST, Params, TURN, framed,
    mappable, multicast, unicast, with_policy,
};
use crate::support::channel::{CAPACITY, read_nowait, read_some, set_nonblocking};
use crate::support::check::{expect, expect_bytes};
use crate::support::ctl::{
    BOTH, CREATE, ChannelInfo, Ctl, EXCL, FEATURES, Features, INFO, NONBLOCK, OWN, Open, PERSIST,
    READ, WRITE,
};
use crate::support::fail_nth::{FailureSweep, nothing};
use crate::support::feed::{self, CONSUMER_MAPS, CONSUMER_READS, Publisher, Start};
use crate::support::ioctl::{self, SET_CAPACITY, SET_SPIN, raw};
use crate::support::memory::PAGE;
use crate::support::poll;
use crate::support::random::stream_bytes;
use crate::support::ring::{
    CLOSED, FOREVER, MMAP_DATA, READ_ONLY, READ_WRITE, ROLE_TAKEN, Region, Rings, Role, Side,
    detach, info, request, wait, wake,
};
use sluice_abi::ring::MMAP_PRODUCER;

topic!(
    "fail_nth",
    fifo: [],
    pipe_only: [
        creating_a_channel,
        attaching_to_a_channel,
        unlinking_a_channel,
        destroying_a_channel,
        querying_channels,
        opening_the_node,
        reading,
        writing,
        splicing,
        waiting_for_events,
        pipe_ioctls,
        creating_a_feed,
        opening_a_feed,
        claiming_a_feed,
        reading_a_feed,
        feed_ioctls,
        opening_a_ring,
        mapping_a_ring,
        sleeping_at_a_ring,
        ending_a_side_of_a_ring,
        opening_a_bus,
        sending_on_a_bus,
        receiving_from_a_bus,
        mapping_a_bus,
        bus_ioctls,
    ],
);

const NAME: &str = "channel";

/// A named read-write endpoint of a channel that is not persistent.
fn endpoint(ctl: &Ctl) -> Result<OwnedFd> {
    ctl.open(Open::new(NAME, BOTH | CREATE | EXCL | NONBLOCK))
        .context("creating a channel")
}

fn creating_a_channel(context: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let ctl = &all.ctl;
    let make = |flags| {
        let request = Open::new(NAME, BOTH | NONBLOCK | CREATE | flags);
        move |_: &()| ctl.open(request)
    };
    all.sweep("create", || Ok(()), make(0), nothing)?;
    all.sweep("create excl", || Ok(()), make(EXCL), nothing)?;
    all.sweep(
        "create persist",
        || Ok(()),
        make(EXCL | PERSIST),
        |_, end| {
            drop(end);
            ctl.unlink(OWN, NAME).context("unlinking it")
        },
    )?;
    let below = context.cgroup()?.create_child("below")?;
    let directory = below.directory()?;
    let request = Open {
        scope_fd: directory.as_raw_fd(),
        ..Open::new(NAME, BOTH | CREATE | EXCL)
    };
    all.sweep("create below", || Ok(()), |_| ctl.open(request), nothing)?;
    all.finish()
}

fn attaching_to_a_channel(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let ctl = &all.ctl;
    let attach = |_: &OwnedFd| ctl.attach(OWN, NAME);
    all.sweep(
        "attach",
        || endpoint(ctl),
        attach,
        |_, end| {
            expect("endpoints that read", ctl.info(OWN, NAME)?.readers, 2)?;
            drop(end);
            expect("after closing", ctl.info(OWN, NAME)?.readers, 1)
        },
    )?;
    all.finish()
}

fn unlinking_a_channel(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let ctl = &all.ctl;
    all.sweep(
        "unlink",
        || ctl.persist(OWN, NAME).context("creating a channel"),
        |_| ctl.unlink(OWN, NAME),
        |_, ()| expect("names", ctl.names(OWN), Ok(vec![])),
    )?;
    all.finish()
}

fn destroying_a_channel(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let ctl = &all.ctl;
    all.sweep(
        "destroy",
        || filled(ctl, &some_bytes()),
        |_| ctl.destroy(OWN, NAME),
        |end, ()| {
            expect("names", ctl.names(OWN), Ok(vec![]))?;
            expect("a read", read_some(end, 1), Err(Errno::EPIPE))
        },
    )?;
    all.finish()
}

fn querying_channels(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let ctl = &all.ctl;
    let open = || endpoint(ctl);
    all.sweep(
        "info",
        open,
        |_| ctl.info(OWN, NAME),
        |_, info| expect("the capacity", info.capacity, CAPACITY as u64),
    )?;
    // The memory for the results is allocated and touched before.
    all.sweep(
        "list",
        open,
        |_| ctl.page(OWN, None, 2),
        |_, page| expect("channels", page.len(), 1),
    )?;
    let features = |_: &OwnedFd| raw(ctl, FEATURES, &mut Features::default());
    all.sweep("features", open, features, nothing)?;
    all.finish()
}

fn opening_the_node(context: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    for (what, flags) in [("read", OFlag::O_RDONLY), ("both", OFlag::O_RDWR)] {
        let open = |_: &()| context.channel.open(flags | OFlag::O_NONBLOCK);
        all.sweep(
            &format!("open {what}"),
            || Ok(()),
            open,
            |_, end| {
                expect(
                    "a read",
                    read_some(&end, 1).is_ok_and(|b| !b.is_empty()),
                    false,
                )
            },
        )?;
    }
    let reader = || context.channel.open_reader_nonblocking();
    let open = |_: &OwnedFd| context.channel.open(OFlag::O_WRONLY | OFlag::O_NONBLOCK);
    all.sweep("open write", reader, open, nothing)?;
    all.finish()
}

/// Bytes that cover several pages, none completely.
fn some_bytes() -> Vec<u8> {
    stream_bytes(1, 0, 2 * PAGE + 100)
}

fn drain(fd: &impl AsFd) -> Result<Vec<u8>> {
    match read_some(fd, 2 * CAPACITY) {
        Ok(bytes) => Ok(bytes),
        Err(Errno::EAGAIN) => Ok(Vec::new()),
        Err(error) => Err(error).context("reading what is left"),
    }
}

fn filled(ctl: &Ctl, bytes: &[u8]) -> Result<OwnedFd> {
    let end = endpoint(ctl)?;
    expect("bytes in the pipe", write(&end, bytes), Ok(bytes.len()))?;
    Ok(end)
}

fn reading(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let bytes = some_bytes();
    let read = |end: &OwnedFd| read_some(end, CAPACITY);
    all.sweep(
        "read",
        || filled(&all.ctl, &bytes),
        read,
        |end, mut seen| {
            ensure!(!seen.is_empty(), "nothing was read");
            // Bytes after a failed copy stay in the pipe.
            seen.extend(drain(end)?);
            expect_bytes("bytes read", &seen, &bytes)
        },
    )?;
    all.finish()
}

fn writing(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let bytes = some_bytes();
    for (what, count) in [("write", bytes.len()), ("short write", 100)] {
        let written = &bytes[..count];
        let call = |end: &OwnedFd| write(end, written);
        all.sweep(
            what,
            || endpoint(&all.ctl),
            call,
            |end, count| {
                ensure!(count > 0, "nothing was written");
                expect_bytes("bytes written", &drain(end)?, &written[..count])
            },
        )?;
    }
    all.finish()
}

/// A pipe(2) in non-blocking mode.
fn kernel_pipe() -> Result<(OwnedFd, OwnedFd)> {
    pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).context("pipe2")
}

fn move_bytes(from: &impl AsFd, to: &impl AsFd) -> nix::Result<usize> {
    splice(
        from,
        None,
        to,
        None,
        CAPACITY,
        SpliceFFlags::SPLICE_F_NONBLOCK,
    )
}

/// Fails unless the moved and the remaining bytes are all of them.
fn expect_all(moved: &impl AsFd, left: &impl AsFd, bytes: &[u8]) -> Result<()> {
    let mut seen = drain(moved)?;
    ensure!(!seen.is_empty(), "nothing was moved");
    seen.extend(drain(left)?);
    expect_bytes("what was moved, and what is left", &seen, bytes)
}

fn splicing(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let ctl = &all.ctl;
    let bytes = some_bytes();
    all.sweep(
        "splice in",
        || {
            let (out, into) = kernel_pipe()?;
            expect("bytes in the source", write(&into, &bytes), Ok(bytes.len()))?;
            Ok((out, endpoint(ctl)?))
        },
        |(out, end)| move_bytes(out, end),
        |(out, end), _| expect_all(end, out, &bytes),
    )?;
    all.sweep(
        "splice out",
        || Ok((filled(ctl, &bytes)?, kernel_pipe()?)),
        |(end, (_, into))| move_bytes(end, into),
        |(end, (out, _)), _| expect_all(out, end, &bytes),
    )?;
    all.finish()
}

fn waiting_for_events(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let open = || endpoint(&all.ctl);
    let look = |end: &OwnedFd| poll::wait(end, poll::IN | poll::OUT, 0);
    all.sweep("poll", open, look, |_, state| {
        expect("the state", poll::name(state), "OUT".to_owned())
    })?;
    all.sweep(
        "epoll add",
        || {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create1")?;
            Ok((epoll, open()?))
        },
        |(epoll, end)| epoll.add(end, EpollEvent::new(EpollFlags::EPOLLIN, 0)),
        nothing,
    )?;
    let ask = |end: &OwnedFd| fcntl(end, FcntlArg::F_SETFL(OFlag::O_ASYNC | OFlag::O_NONBLOCK));
    all.sweep("fasync", open, ask, nothing)?;
    all.finish()
}

fn pipe_ioctls(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let bytes = some_bytes();
    let open = || filled(&all.ctl, &bytes);
    for (what, capacity) in [("grow", 4 * CAPACITY), ("shrink", CAPACITY / 4)] {
        let set = |end: &OwnedFd| ioctl::set(end, SET_CAPACITY, capacity as u64);
        all.sweep(what, open, set, |end, seen| {
            expect("the new capacity", seen, capacity as u64)?;
            expect_bytes("its content", &drain(end)?, &bytes)
        })?;
    }
    let spin = |end: &OwnedFd| ioctl::set(end, SET_SPIN, 1000);
    all.sweep("set spin", open, spin, |_, seen| {
        expect("the limit", seen, 1000)
    })?;
    all.sweep("pipe info", open, ioctl::info, |_, info| {
        expect("bytes", info.bytes, bytes.len() as u64)
    })?;
    all.sweep("fionread", open, ioctl::bytes_waiting, |_, seen| {
        expect("bytes", seen, bytes.len())
    })?;
    all.finish()
}

fn creating_a_feed(context: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let publisher = Publisher::small(context)?;
    all.sweep(
        "create a feed",
        || publisher.creator(),
        |creator| write(creator, b"another"),
        |_, count| expect("bytes written", count, 7),
    )?;
    all.finish()
}

fn opening_a_feed(context: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let _publisher = Publisher::small(context)?;
    let open = |_: &()| feed::open_node_with(OFlag::O_RDWR);
    all.sweep("open the node", || Ok(()), open, nothing)?;
    let request = feed::request(feed::NAME, READ);
    all.sweep("open", || Ok(()), |_| all.ctl.open(request), nothing)?;
    all.sweep(
        "info by name",
        || Ok(()),
        |_| {
            let mut info = ChannelInfo::EMPTY;
            raw(
                &all.ctl,
                INFO,
                &mut feed::info_request(feed::NAME, &mut info),
            )?;
            Ok(info)
        },
        |_, info| expect("the capacity", info.capacity, 16384),
    )?;
    all.finish()
}

fn claiming_a_feed(context: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let _publisher = Publisher::small(context)?;
    let open = || feed::open(feed::NAME);
    let map = |end: &OwnedFd| Region::map(end, MMAP_PRODUCER, PAGE, READ_ONLY);
    all.sweep("claim by mmap", open, map, |end, _| {
        let consumer = feed::info(end)?.consumer;
        expect("the consumer", consumer, CONSUMER_MAPS)
    })?;
    let expect_reader = |end: &OwnedFd| {
        let consumer = feed::info(end)?.consumer;
        expect("the consumer", consumer, CONSUMER_READS)
    };
    // RWF_NOWAIT would claim nothing.
    let open_nonblocking = || {
        let end = open()?;
        set_nonblocking(&end)?;
        Ok(end)
    };
    let read = |end: &OwnedFd| match read_some(end, 1) {
        Err(Errno::EAGAIN) => Ok(()),
        Ok(_) => Err(Errno::EBADMSG),
        Err(error) => Err(error),
    };
    all.sweep("claim by read", open_nonblocking, read, |end, ()| {
        expect_reader(end)
    })?;
    let claim = |end: &OwnedFd| feed::claim_as(end, CONSUMER_READS);
    all.sweep("claim by ioctl", open, claim, |end, _| expect_reader(end))?;
    all.finish()
}

fn reading_a_feed(context: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let publisher = Publisher::small(context)?;
    let claimed = || {
        let end = feed::open(feed::NAME)?;
        feed::claim_by_read(&end)?;
        publisher.publish("task", 1, 4096)?;
        Ok(end)
    };
    let read = |end: &OwnedFd| read_some(end, feed::LARGEST);
    all.sweep("read a packet", claimed, read, |end, bytes| {
        let packet = feed::Packet::parse(&bytes)?;
        expect("lost packets", packet.header.lost, 0)?;
        expect("bytes", packet.bytes.len(), 4096)?;
        packet.origin()?;
        let further = read_nowait(end, feed::LARGEST);
        expect("a further packet", further, Err(Errno::EAGAIN))
    })?;
    all.finish()
}

fn feed_ioctls(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let open = feed::open_node;
    all.sweep("feed info", open, feed::info, |_, info| {
        expect("whether it runs", info.running, 0)
    })?;
    let spin = |end: &OwnedFd| feed::set_spin(end, 1000);
    all.sweep("set spin", open, spin, |_, seen| {
        expect("the limit", seen, 1000)
    })?;
    let slow = Start::new(1_000_000_000, 0, 16);
    all.sweep(
        "start",
        open,
        |end| feed::start(end, slow),
        |end, ()| {
            expect("whether it runs", feed::info(end)?.running, 1)?;
            feed::stop(end).context("stopping it")
        },
    )?;
    all.finish()
}

fn opening_a_ring(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let rings = Rings::new()?;
    for (what, flags) in [
        ("create producer", WRITE | CREATE),
        ("create consumer", READ | CREATE | EXCL),
    ] {
        let open = |_: &()| rings.open(request(NAME, flags));
        all.sweep(
            what,
            || Ok(()),
            open,
            |(), end| {
                ensure!(Side::of(end)?.data.is_zero(), "its pages are not zeroed");
                Ok(())
            },
        )?;
    }
    all.sweep(
        "create persist",
        || Ok(()),
        |()| rings.open(request(NAME, WRITE | CREATE | PERSIST)),
        |(), end| {
            drop(end);
            rings.unlink(NAME).context("unlinking it")
        },
    )?;
    all.sweep(
        "attach",
        || rings.side(NAME, Role::Producer),
        |_| rings.attach(NAME, Role::Consumer),
        |producer, end| {
            let state = |info: nix::Result<_>| info.map(|i| Role::Consumer.state_in(&i));
            expect("the role", state(info(&end)), Ok(ROLE_TAKEN))?;
            expect("the producer's view", state(info(producer)), Ok(ROLE_TAKEN))
        },
    )?;
    all.finish()
}

/// Populating a mapping takes page faults, which allocate page tables.
fn mapping_a_ring(_: &Context) -> Result<()> {
    const POPULATE_READ: libc::c_int = 22;
    const POPULATE_WRITE: libc::c_int = 23;
    const FAR: *mut u8 = (1_usize << 44) as *mut u8;
    let all = FailureSweep::new()?;
    let rings = Rings::new()?;
    let open = || rings.side(NAME, Role::Producer);
    let len = |side: &Side| side.data.len();
    all.sweep(
        "map",
        open,
        |side| Region::map(side, MMAP_DATA, len(side), READ_WRITE),
        |side, region| {
            region.write(0, b"mapped");
            expect_bytes("data", &side.data.read(0, 6), b"mapped")
        },
    )?;
    all.sweep(
        "map control",
        open,
        |side| Region::ctrl(side, Role::Consumer, READ_ONLY),
        |_, region| {
            let written = region.protect(READ_WRITE);
            expect("mprotect", written, Err(Errno::EACCES))
        },
    )?;
    // Far from any other mapping, so that its page tables do not exist.
    let far = || {
        let side = open()?;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
        let region = Region::map_at(FAR, &side, MMAP_DATA, len(&side), READ_WRITE, flags);
        Ok((region.context("mapping it far away")?, side))
    };
    for (what, advice) in [("fault", POPULATE_READ), ("write fault", POPULATE_WRITE)] {
        all.sweep(
            what,
            far,
            |(region, _)| region.advise(advice),
            |(region, _), ()| {
                ensure!(region.is_zero(), "the pages are not zeroed");
                Ok(())
            },
        )?;
    }
    all.finish()
}

fn sleeping_at_a_ring(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let rings = Rings::new()?;
    let open = || rings.sides(NAME);
    // The expected sequence is outdated, so it does not sleep.
    let outdated = |(_, consumer): &(Side, Side)| wait(consumer, 1, FOREVER);
    all.sweep("wait", open, outdated, nothing)?;
    let until_timeout = |(_, consumer): &(Side, Side)| match wait(consumer, 0, 1) {
        Err(Errno::ETIMEDOUT) => Ok(()),
        result => result,
    };
    all.sweep("wait with timeout", open, until_timeout, nothing)?;
    let notify = |(producer, _): &(Side, Side)| wake(producer);
    all.sweep("wake", open, notify, nothing)?;
    let woken = || {
        let sides = open()?;
        sides.0.notify().context("waking")?;
        Ok(sides)
    };
    let look = |(_, consumer): &(Side, Side)| poll::wait(consumer, poll::IN, 0);
    all.sweep("poll", woken, look, |_, events| {
        expect("events", poll::name(events), "IN".to_owned())
    })?;
    all.sweep(
        "epoll add",
        || {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create1")?;
            Ok((epoll, open()?))
        },
        |(epoll, (_, consumer))| epoll.add(consumer, EpollEvent::new(EpollFlags::EPOLLIN, 0)),
        nothing,
    )?;
    all.finish()
}

fn ending_a_side_of_a_ring(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let rings = Rings::new()?;
    let open = || rings.sides(NAME);
    all.sweep(
        "info",
        open,
        |(producer, _)| info(producer),
        |_, state| expect("the consumer", state.consumer, ROLE_TAKEN),
    )?;
    all.sweep(
        "info by name",
        open,
        |_| rings.info(NAME),
        |_, (_, state)| expect("the producer", state.producer, ROLE_TAKEN),
    )?;
    all.sweep(
        "detach",
        open,
        |(producer, _)| detach(producer),
        |(_, consumer), ()| expect("closed", consumer.peer.closed(), CLOSED),
    )?;
    all.sweep("unlink", open, |_| rings.unlink(NAME), nothing)?;
    all.finish()
}

/// The parameters of a bus of each mode, and the policy of a subscriber.
fn bus_modes() -> [(Params, u32); 3] {
    [
        (bus::broadcast(), BLOCK),
        (multicast(), BLOCK),
        (unicast(), 0),
    ]
}

fn opening_a_bus(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let buses = Buses::new()?;
    for (params, policy) in bus_modes() {
        let mode = ["broadcast", "multicast", "unicast"][params.mode as usize];
        all.sweep(
            &format!("create {mode}"),
            || Ok(()),
            |()| buses.open(BOTH | CREATE | EXCL, params),
            |(), end| {
                bus::send(&end, b"x").ok();
                expect("the mode", bus::state(&end)?.mode, params.mode)
            },
        )?;
        all.sweep(
            &format!("subscribe {mode}"),
            || buses.create(params),
            |_| buses.open(READ, with_policy(policy)),
            |sender, end| {
                expect("subscribers", bus::state(sender)?.subscribers, 1)?;
                bus::send(sender, b"x").context("sending")?;
                expect("the message", bus::receive(&end), Ok(b"x".to_vec()))
            },
        )?;
        let monitor = Params {
            flags: MONITOR,
            ..Params::default()
        };
        let open = |_: &OwnedFd| buses.open(READ, monitor);
        all.sweep(
            &format!("monitor {mode}"),
            || buses.create(params),
            open,
            nothing,
        )?;
        if params.mode == MULTICAST {
            let client = Params {
                flags: ADDRESSED,
                ..Params::default()
            };
            let open = |_: &OwnedFd| buses.open(BOTH, client);
            all.sweep("client", || buses.create(params), open, nothing)?;
        }
        let open = |_: &OwnedFd| buses.open(WRITE, Params::default());
        all.sweep(
            &format!("send {mode}"),
            || buses.create(params),
            open,
            |sender, _| expect("senders", bus::state(sender)?.senders, 2),
        )?;
    }
    all.finish()
}

/// A sender and a framed subscriber of a bus that holds the largest message.
fn bus_pair(buses: &Buses, params: Params, policy: u32) -> Result<(OwnedFd, OwnedFd)> {
    let sender = buses.create_sized(params, 1 << 20)?;
    Ok((sender, buses.subscribe(framed(policy))?))
}

/// A failed send may leave a reservation, but no message.
fn sending_on_a_bus(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let buses = Buses::new()?;
    for (params, policy) in bus_modes() {
        for length in [100, 100_000] {
            let bytes = bus::content(1, length);
            all.sweep(
                &format!("send {length} bytes in mode {}", params.mode),
                || bus_pair(&buses, params, policy),
                |(sender, _)| write(sender, &bytes),
                |(_, end), count| {
                    expect("bytes sent", count, length)?;
                    let received = read_some(end, 2 * length).context("receiving")?;
                    expect_bytes("the message", &received[bus::Frame::SIZE..], &bytes)?;
                    expect("what is left", bus::state(end)?.own_lag, 0)?;
                    expect("lost", bus::state(end)?.own_lost, 0)
                },
            )?;
        }
    }
    let message = bus::with_frame(0, b"framed");
    all.sweep(
        "send framed",
        || {
            let (sender, end) = bus_pair(&buses, bus::broadcast(), DROP)?;
            Ok((sender, end, buses.framed_sender()?))
        },
        |(_, _, framer)| write(framer, &message),
        |(_, end, _), _| {
            let received = bus::receive_present(end)?;
            expect_bytes("the message", &received.bytes, b"framed")
        },
    )?;
    all.finish()
}

fn receiving_from_a_bus(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let buses = Buses::new()?;
    for (params, policy) in bus_modes() {
        for length in [100, 100_000] {
            let bytes = bus::content(1, length);
            let filled = || {
                let (sender, end) = bus_pair(&buses, params, policy)?;
                bus::send(&sender, &bytes).context("sending")?;
                Ok((sender, end))
            };
            all.sweep(
                &format!("receive {length} bytes in mode {}", params.mode),
                filled,
                |(_, end)| read_some(end, 2 * length),
                |(_, end), received| {
                    expect_bytes("the message", &received[bus::Frame::SIZE..], &bytes)?;
                    expect("what is left", bus::state(end)?.own_lag, 0)
                },
            )?;
        }
    }
    let filled = || {
        let (sender, end) = bus_pair(&buses, bus::broadcast(), DROP)?;
        bus::set_format(&end, BATCHED).context("setting the format")?;
        bus::send_numbered(&sender, 0, 5, 100)?;
        Ok((sender, end))
    };
    all.sweep(
        "receive a batch",
        filled,
        |(_, end)| read_some(end, 4096),
        |(_, end), received| {
            let first = bus::parse_batch(&received)?.len();
            let rest = match first {
                5 => 0,
                _ => bus::parse_batch(&read_some(end, 4096).context("the rest")?)?.len(),
            };
            expect("messages", first + rest, 5)
        },
    )?;
    all.finish()
}

fn mapping_a_bus(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let buses = Buses::new()?;
    let mapped = Params {
        flags: MAPPED,
        ..Params::default()
    };
    let filled = || {
        let sender = buses.create(mappable())?;
        let end = buses.subscribe(mapped)?;
        bus::send_numbered(&sender, 0, 3, 100)?;
        Ok((sender, end))
    };
    let map = |end: &OwnedFd| Region::map(end, bus::MMAP_DATA, 2 * bus::CAPACITY, READ_ONLY);
    all.sweep(
        "map",
        filled,
        |(_, end)| map(end),
        |_, region| expect_bytes("the first", &region.read(0, 100), &bus::content(0, 100)),
    )?;
    all.sweep(
        "receive",
        filled,
        |(_, end)| bus::receive_mapped(end, 0, 3),
        |(_, end), entries| {
            let sequences: Vec<u64> = entries.iter().map(|entry| entry.sequence).collect();
            expect("the entries", sequences, vec![0, 1, 2])?;
            expect("a release", bus::receive_mapped(end, 3, 0), Ok(vec![]))?;
            expect("what is left", bus::state(end)?.own_lag, 0)
        },
    )?;
    all.finish()
}

fn bus_ioctls(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let buses = Buses::new()?;
    let open = || {
        let (sender, end) = bus_pair(&buses, bus::broadcast(), DROP)?;
        bus::send(&sender, b"x").context("sending")?;
        Ok((sender, end))
    };
    all.sweep(
        "bus info",
        open,
        |(_, end)| bus::info(end),
        |_, info| expect("the lag", info.own_lag, 1),
    )?;
    all.sweep(
        "bus info by name",
        open,
        |_| buses.info(),
        |_, (channel, info)| expect("readers and sent", (channel.readers, info.sent), (1, 1)),
    )?;
    all.sweep(
        "subscribers",
        open,
        |(end, _)| bus::list(end, 0, 4),
        |_, listed| expect("listed", listed.len(), 1),
    )?;
    all.sweep(
        "fionread",
        open,
        |(_, end)| bus::next_length(end),
        |_, length| expect("the length", length, 1),
    )?;
    let turns = || bus_pair(&buses, bus::multicast(), BLOCK);
    let turn = |(sender, _): &(OwnedFd, OwnedFd)| ioctl::set(sender, TURN, 0);
    all.sweep("take a turn", turns, turn, |(_, end), id| {
        expect("the subscriber", bus::id(end)?, id)
    })?;
    let set = |(_, end): &(OwnedFd, OwnedFd)| bus::set_format(end, BATCHED);
    all.sweep("set format", open, set, |(_, end), _| {
        expect("the format", bus::state(end)?.format, BATCHED)
    })?;
    let look = |(_, end): &(OwnedFd, OwnedFd)| poll::wait(end, poll::IN, 0);
    all.sweep("bus poll", open, look, |_, events| {
        expect("events", poll::name(events), "IN".to_owned())
    })?;
    all.sweep(
        "destroy a bus",
        open,
        |_| buses.destroy(),
        |(_, end), ()| expect("a receive", bus::receive(end), Err(Errno::EPIPE)),
    )?;
    all.sweep("unlink a bus", open, |_| buses.unlink(), nothing)?;
    all.finish()
}
