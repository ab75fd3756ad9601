// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creation of a bus, subscription, the parameters of both, and the end of a bus.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::bus::{
    ALL_POLICIES, BATCHED, BLOCK, BROADCAST, Buses, CAPACITY, CAPACITY_MAX, DROP, EVICT, FRAMED,
    Info, KIND_BUS, LARGEST, MAPPABLE, MAPPED, MMAP_DATA, MONITOR, MULTICAST, PARAMS_SIZE_VER0,
    Params, RAW, UNICAST, broadcast, framed, id, info, longest, mappable, multicast, next_length,
    receive, request, send, set_format, state, unicast, with_policy,
};
use crate::support::channel::set_blocking;
use crate::support::check::expect;
use crate::support::child::{Child, spawn, spawn_keeping};
use crate::support::credentials::become_user;
use crate::support::ctl::{
    BOTH, CREATE, EXCL, Open, PERSIST, PERSISTENT, READ, WRITE, expect_no_channel,
};
use crate::support::ioctl::{raw, size_error};
use crate::support::memory::{Mapping, PAGE};
use crate::support::parameter::Parameter;
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::requests::bytes_of;
use crate::support::ring::{READ_ONLY, Region};

topic!(
    "bus_open",
    fifo: [],
    pipe_only: [
        a_bus_has_the_documented_defaults,
        a_capacity_is_rounded_up_to_a_power_of_two,
        a_capacity_above_the_maximum_is_invalid,
        parameters_of_any_size_up_to_a_page_are_accepted,
        parameters_of_invalid_size_are_refused,
        parameters_in_inaccessible_memory_are_efault,
        invalid_parameters_of_a_bus_are_refused,
        invalid_parameters_of_an_endpoint_are_refused,
        a_refused_creation_leaves_nothing,
        a_mappable_bus_needs_broadcast_and_block,
        a_mapped_subscriber_needs_a_mappable_bus_block_and_raw,
        only_permitted_policies_are_granted,
        the_default_policy_is_the_first_permitted_one,
        a_unicast_bus_has_no_policies,
        parameters_of_the_bus_apply_to_its_creation_only,
        the_limit_of_subscribers_is_eusers,
        a_closed_subscriber_makes_place_for_another,
        the_mode_bits_permit_sending_and_receiving,
        an_endpoint_only_does_what_it_was_opened_for,
        unknown_calls_of_an_endpoint_are_enotty,
        an_endpoint_is_named_in_proc,
        a_bus_ends_with_its_last_endpoint,
        a_persistent_bus_keeps_its_counts,
        an_unlinked_bus_works_on_and_leaves_its_name,
        ids_are_never_used_again,
        the_format_of_an_endpoint_can_be_changed,
        the_spin_limit_of_an_endpoint_can_be_changed,
        a_destroyed_bus_is_epipe,
        a_bus_is_destroyed_once_and_only_by_its_owner,
        a_destruction_ends_every_sleep,
        a_destruction_ends_the_sleep_of_a_mapped_subscriber,
    ],
);

fn a_bus_has_the_documented_defaults(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let end = buses.0.open(Open {
        kind: KIND_BUS,
        ..Open::new("bus", BOTH | CREATE | EXCL)
    });
    let end = end.context("creating a bus without parameters")?;
    let seen = state(&end)?;
    let spin_limit_ns = seen.spin_limit_ns;
    let expected = Info {
        mode: BROADCAST,
        policies: DROP | EVICT,
        capacity: 1 << 20,
        message_max: ((1 << 19) - 64).min(longest() as u64),
        subscribers: 1,
        senders: 1,
        id: seen.id,
        policy: DROP,
        format: RAW,
        spin_limit_ns,
        ..Info::default()
    };
    expect("its state", seen, expected)?;
    ensure!(seen.id > 0, "the id is 0");
    let (channel, of_bus) = buses.info().context("asking by name")?;
    let without_endpoint = Info {
        id: 0,
        policy: 0,
        spin_limit_ns: 0,
        ..expected
    };
    expect("the state by name", of_bus, without_endpoint)?;
    let counts = (channel.readers, channel.writers, channel.bytes);
    expect("readers, writers, bytes", counts, (1, 1, 0))?;
    expect("the capacity", channel.capacity, 1 << 20)
}

fn a_capacity_is_rounded_up_to_a_power_of_two(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for (requested, granted) in [
        (1, 4096),
        (4096, 4096),
        (4097, 8192),
        (3 << 19, 1 << 21),
        (1 << 22, 1 << 22),
    ] {
        let end = buses.create_sized(broadcast(), requested)?;
        let seen = state(&end)?;
        expect(&format!("for {requested}"), seen.capacity, granted)?;
        let largest = (longest() as u64).min(granted / 2 - 64);
        expect("the largest message", seen.message_max, largest)?;
    }
    Ok(())
}

fn a_capacity_above_the_maximum_is_invalid(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for capacity in [CAPACITY_MAX + 1, 1 << 62, u64::MAX] {
        let opened = buses.0.open(Open {
            capacity,
            ..request(WRITE | CREATE, &broadcast())
        });
        let seen = opened.map(drop);
        expect(&format!("{capacity:#x}"), seen, Err(Errno::EINVAL))?;
    }
    expect_no_channel(&buses.0)
}

/// A page that starts with these parameters.
fn page_with(params: Params) -> Vec<u8> {
    let mut page = bytes_of(&params);
    page.resize(PAGE, 0);
    page
}

fn create_with_page(buses: &Buses, page: &[u8]) -> nix::Result<OwnedFd> {
    buses.0.open(Open {
        params: page.as_ptr() as u64,
        ..request(BOTH | CREATE | EXCL, &Params::default())
    })
}

fn parameters_of_any_size_up_to_a_page_are_accepted(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let first = PARAMS_SIZE_VER0;
    for size in [first, first + 1, first + 8, 1000, PAGE as u32] {
        let page = page_with(Params {
            size,
            ..multicast()
        });
        let end = create_with_page(&buses, &page).with_context(|| format!("{size} bytes"))?;
        expect("the mode", state(&end)?.mode, MULTICAST)?;
    }
    Ok(())
}

fn parameters_of_invalid_size_are_refused(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let first = PARAMS_SIZE_VER0;
    for size in [0, 1, first - 1, PAGE as u32 + 1, u32::MAX] {
        let page = page_with(Params {
            size,
            ..broadcast()
        });
        let seen = create_with_page(&buses, &page).map(drop);
        expect(&format!("{size} bytes"), seen, Err(size_error(size)))?;
    }
    for at in [first as usize, first as usize + 7] {
        let mut page = page_with(Params {
            size: first + 8,
            ..broadcast()
        });
        page[at] = 1;
        let seen = create_with_page(&buses, &page).map(drop);
        expect("an unknown field", seen, Err(Errno::E2BIG))?;
    }
    expect_no_channel(&buses.0)
}

fn parameters_in_inaccessible_memory_are_efault(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let mapping = Mapping::new(2)?;
    mapping.unmap_from(PAGE)?;
    let params = broadcast();
    for start in [
        mapping.start().wrapping_add(PAGE),
        mapping.start().wrapping_add(PAGE - 4),
    ] {
        let inside = PAGE - (start as usize & (PAGE - 1));
        for (at, byte) in bytes_of(&params).iter().enumerate().take(inside % PAGE) {
            // SAFETY: before the inaccessible page, in our own mapping.
            unsafe { start.wrapping_add(at).write_volatile(*byte) };
        }
        let opened = buses.0.open(Open {
            params: start as u64,
            ..request(BOTH | CREATE, &params)
        });
        expect("an open", opened.map(drop), Err(Errno::EFAULT))?;
    }
    expect_no_channel(&buses.0)
}

fn invalid_parameters_of_a_bus_are_refused(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let valid = broadcast();
    for (what, params) in [
        ("an unknown flag", Params { flags: 8, ..valid }),
        (
            "the last flag",
            Params {
                flags: 1 << 31,
                ..valid
            },
        ),
        ("an unknown mode", Params { mode: 3, ..valid }),
        (
            "the last mode",
            Params {
                mode: u32::MAX,
                ..valid
            },
        ),
        (
            "an unknown policy",
            Params {
                policies: 8,
                ..valid
            },
        ),
        (
            "all bits",
            Params {
                policies: u32::MAX,
                ..valid
            },
        ),
        (
            "policies of a unicast bus",
            Params {
                policies: DROP,
                ..unicast()
            },
        ),
    ] {
        let opened = buses.open(WRITE | CREATE, params).map(drop);
        expect(what, opened, Err(Errno::EINVAL))?;
    }
    expect_no_channel(&buses.0)
}

fn invalid_parameters_of_an_endpoint_are_refused(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let valid = Params::default();
    for (what, flags, params) in [
        ("two policies", READ, with_policy(DROP | BLOCK)),
        ("an unknown policy", READ, with_policy(8)),
        ("an unknown format", READ, Params { format: 3, ..valid }),
        (
            "the last format",
            READ,
            Params {
                format: u32::MAX,
                ..valid
            },
        ),
        (
            "a limit above the capacity of any bus",
            READ,
            Params {
                limit: CAPACITY_MAX + 1,
                ..valid
            },
        ),
        (
            "an unknown mode, which is not used",
            READ,
            Params { mode: 3, ..valid },
        ),
        ("an unknown flag", READ, Params { flags: 16, ..valid }),
        ("a sender with a policy", WRITE, with_policy(DROP)),
        (
            "a mapped sender",
            WRITE,
            Params {
                flags: MAPPED,
                ..valid
            },
        ),
        (
            "a monitoring sender",
            WRITE,
            Params {
                flags: MONITOR,
                ..valid
            },
        ),
    ] {
        let opened = buses.open(flags, params).map(drop);
        expect(what, opened, Err(Errno::EINVAL))?;
    }
    let seen = state(&sender)?;
    expect("the endpoints", (seen.subscribers, seen.senders), (0, 1))
}

fn a_refused_creation_leaves_nothing(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for (params, errno) in [
        (
            Params {
                policy: BLOCK,
                policies: DROP,
                ..Params::default()
            },
            Errno::EPERM,
        ),
        (
            Params {
                policy: DROP | EVICT,
                ..broadcast()
            },
            Errno::EINVAL,
        ),
        (
            Params {
                flags: MAPPED,
                ..broadcast()
            },
            Errno::EINVAL,
        ),
    ] {
        let opened = buses.open(READ | CREATE, params).map(drop);
        expect("the open", opened, Err(errno))?;
        expect_no_channel(&buses.0)?;
    }
    Ok(())
}

fn a_mappable_bus_needs_broadcast_and_block(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for (mode, policies, expected) in [
        (BROADCAST, BLOCK, Ok(())),
        (BROADCAST, ALL_POLICIES, Ok(())),
        (BROADCAST, 0, Err(Errno::EINVAL)),
        (BROADCAST, DROP | EVICT, Err(Errno::EINVAL)),
        (MULTICAST, BLOCK, Err(Errno::EINVAL)),
        (UNICAST, 0, Err(Errno::EINVAL)),
    ] {
        let params = Params {
            flags: MAPPABLE,
            mode,
            policies,
            ..Params::default()
        };
        let opened = buses.open(WRITE | CREATE, params);
        if let Ok(end) = &opened {
            expect("its flags", state(end)?.flags, MAPPABLE)?;
        }
        let what = format!("mode {mode}, policies {policies:#x}");
        expect(&what, opened.map(drop), expected)?;
    }
    Ok(())
}

fn a_mapped_subscriber_needs_a_mappable_bus_block_and_raw(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let mapped = Params {
        flags: MAPPED,
        ..Params::default()
    };
    let ordinary = buses.create(broadcast())?;
    let opened = buses.open(READ, mapped).map(drop);
    expect("on another bus", opened, Err(Errno::EINVAL))?;
    drop(ordinary);
    let sender = buses.create(mappable())?;
    for (what, params) in [
        (
            "with the policy DROP",
            Params {
                policy: DROP,
                ..mapped
            },
        ),
        (
            "with the policy EVICT",
            Params {
                policy: EVICT,
                ..mapped
            },
        ),
        (
            "framed",
            Params {
                format: FRAMED,
                ..mapped
            },
        ),
        (
            "batched",
            Params {
                format: BATCHED,
                ..mapped
            },
        ),
        (
            "as a monitor",
            Params {
                flags: MAPPED | MONITOR,
                ..mapped
            },
        ),
    ] {
        let opened = buses.open(READ, params).map(drop);
        expect(what, opened, Err(Errno::EINVAL))?;
    }
    for policy in [0, BLOCK] {
        let end = buses.subscribe(Params { policy, ..mapped })?;
        let seen = state(&end)?;
        let policy_and_flags = (seen.policy, seen.flags);
        expect(
            "policy and flags",
            policy_and_flags,
            (BLOCK, MAPPABLE | MAPPED),
        )?;
    }
    expect("the flags of a sender", state(&sender)?.flags, MAPPABLE)
}

fn only_permitted_policies_are_granted(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for mode in [BROADCAST, MULTICAST] {
        for policies in 1..=ALL_POLICIES {
            let sender = buses.create(Params {
                mode,
                policies,
                ..Params::default()
            })?;
            for policy in [DROP, BLOCK, EVICT] {
                let opened = buses.open(READ, with_policy(policy));
                let seen = opened.map(|end| info(&end).map(|i| i.policy));
                let expected = match policies & policy {
                    0 => Err(Errno::EPERM),
                    _ => Ok(Ok(policy)),
                };
                expect(&format!("{policy} of {policies:#x}"), seen, expected)?;
            }
            expect("subscribers", state(&sender)?.subscribers, 0)?;
        }
    }
    Ok(())
}

fn the_default_policy_is_the_first_permitted_one(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for policies in 0..=ALL_POLICIES {
        let end = buses.open(
            READ | CREATE,
            Params {
                policies,
                ..Params::default()
            },
        );
        let end = end.context("creating a bus by subscribing")?;
        let expected = match policies {
            0 => DROP,
            _ => 1 << policies.trailing_zeros(),
        };
        expect(&format!("of {policies:#x}"), state(&end)?.policy, expected)?;
    }
    Ok(())
}

fn a_unicast_bus_has_no_policies(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(unicast())?;
    for policy in [DROP, BLOCK, EVICT] {
        let opened = buses.open(READ, with_policy(policy)).map(drop);
        expect("with a policy", opened, Err(Errno::EINVAL))?;
    }
    let opened = buses.open(
        READ,
        Params {
            flags: MAPPED,
            ..Params::default()
        },
    );
    expect("mapped", opened.map(drop), Err(Errno::EINVAL))?;
    let receiver = buses.subscribe(Params::default())?;
    expect("its policy", state(&receiver)?.policy, 0)?;
    let seen = state(&sender)?;
    expect("the endpoints", (seen.subscribers, seen.senders), (1, 1))
}

fn parameters_of_the_bus_apply_to_its_creation_only(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(Params {
        mode: MULTICAST,
        policies: DROP,
        ..Params::default()
    })?;
    let other = Params {
        flags: MAPPABLE,
        mode: BROADCAST,
        policies: BLOCK,
        ..Params::default()
    };
    let end = buses.open(READ | CREATE, other).context("attaching")?;
    let seen = state(&end)?;
    let of_bus = (seen.flags, seen.mode, seen.policies, seen.capacity);
    expect("the bus", of_bus, (0, MULTICAST, DROP, CAPACITY as u64))?;
    let exclusive = buses.open(READ | CREATE | EXCL, other).map(drop);
    expect("creating it", exclusive, Err(Errno::EEXIST))
}

fn the_limit_of_subscribers_is_eusers(_: &Context) -> Result<()> {
    let _limit = Parameter::set("bus_max_subscribers", 3)?;
    let buses = Buses::new()?;
    for params in [broadcast(), multicast()] {
        let sender = buses.create(params)?;
        // The limit is that of the time of the creation.
        let _later = Parameter::set("bus_max_subscribers", 1)?;
        let subscribe = || buses.open(READ, Params::default());
        let held: Vec<_> = (0..3).map(|_| subscribe()).collect::<nix::Result<_>>()?;
        expect("one more", subscribe().map(drop), Err(Errno::EUSERS))?;
        let both = buses.open(BOTH, Params::default()).map(drop);
        expect("one more that sends, too", both, Err(Errno::EUSERS))?;
        expect("a sender", buses.sender().is_ok(), true)?;
        let seen = state(&sender)?;
        expect("the endpoints", (seen.subscribers, seen.senders), (3, 1))?;
        drop(held);
    }
    // The queue of a unicast bus counts as one.
    let _sender = buses.create(unicast())?;
    let receivers: Vec<_> = (0..5)
        .map(|_| buses.open(READ, Params::default()))
        .collect::<nix::Result<_>>()?;
    expect("receivers", state(&receivers[0])?.subscribers, 5)
}

fn a_closed_subscriber_makes_place_for_another(_: &Context) -> Result<()> {
    let _limit = Parameter::set("bus_max_subscribers", 2)?;
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscribe = || buses.subscribe(Params::default());
    let (mut first, mut second) = (subscribe()?, subscribe()?);
    for round in 0..20_u8 {
        drop(first);
        first = second;
        second = subscribe().with_context(|| format!("round {round}"))?;
        send(&sender, &[round]).context("sending")?;
        for end in [&first, &second] {
            expect("the message", receive(end), Ok(vec![round]))?;
        }
    }
    Ok(())
}

fn the_mode_bits_permit_sending_and_receiving(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for (mode, may_read, may_write) in [
        (0o600, false, false),
        (0o604, true, false),
        (0o602, false, true),
        (0o606, true, true),
    ] {
        let owned = buses.0.open(Open {
            mode,
            ..request(WRITE | CREATE | EXCL, &broadcast())
        });
        let owned = owned.context("creating a bus")?;
        let other = spawn("another user", || {
            become_user(1001)?;
            let buses = Buses::new()?;
            let open = |flags| buses.open(flags, Params::default()).map(drop);
            let seen = [READ, WRITE, BOTH].map(|flags| open(flags).map_err(|e| e as i32));
            Ok(seen)
        })?;
        let granted = |is| {
            if is {
                Ok(())
            } else {
                Err(Errno::EACCES as i32)
            }
        };
        let expected = [may_read, may_write, may_read && may_write].map(granted);
        expect(&format!("{mode:o}"), other.finish()?, expected)?;
        drop(owned);
    }
    Ok(())
}

fn an_endpoint_only_does_what_it_was_opened_for(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(Params::default())?;
    expect("receiving", receive(&sender), Err(Errno::EBADF))?;
    expect("the next length", next_length(&sender), Err(Errno::EBADF))?;
    expect("sending", send(&subscriber, b"x"), Err(Errno::EBADF))?;
    for end in [&sender, &subscriber] {
        let mapped = Region::map(end, MMAP_DATA, 2 * CAPACITY, READ_ONLY);
        expect("mapping", mapped.map(drop), Err(Errno::EACCES))?;
        // SAFETY: takes numbers only.
        let seek = unsafe { libc::lseek(end.as_raw_fd(), 0, libc::SEEK_CUR) };
        expect("seeking", Errno::result(seek), Err(Errno::ESPIPE))?;
    }
    let both = buses
        .open(BOTH, Params::default())
        .context("opening both")?;
    send(&both, b"own").context("sending")?;
    expect("the own message", receive(&both), Ok(b"own".to_vec()))
}

fn unknown_calls_of_an_endpoint_are_enotty(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let end = buses.create(broadcast())?;
    let nothing = std::ptr::null_mut::<u8>();
    for command in [0xC73F, 0xC746, 0xC700, 0xC710, 0x0040, libc::TCGETS] {
        let seen = raw(&end, command, nothing);
        expect(&format!("{command:#x}"), seen, Err(Errno::ENOTTY))?;
    }
    Ok(())
}

fn an_endpoint_is_named_in_proc(_: &Context) -> Result<()> {
    let end = Buses::new()?.create(broadcast())?;
    let link = fs::read_link(format!("/proc/self/fd/{}", end.as_raw_fd()))?;
    let link = link.to_string_lossy().into_owned();
    ensure!(link.contains("[sluice-bus]"), "it is named {link}");
    Ok(())
}

fn a_bus_ends_with_its_last_endpoint(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let sender = buses.create(params)?;
        let subscriber = buses.subscribe(Params::default())?;
        send(&sender, b"never received").context("sending")?;
        drop(sender);
        expect("the name", buses.info().is_ok(), true)?;
        drop(subscriber);
        expect("the name", buses.info().map(drop), Err(Errno::ENOENT))?;
        expect_no_channel(&buses.0)?;
    }
    Ok(())
}

fn a_persistent_bus_keeps_its_counts(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.open(WRITE | CREATE | PERSIST, broadcast());
    let sender = sender.context("creating a persistent bus")?;
    send(&sender, b"to nobody").context("sending")?;
    let subscriber = buses.subscribe(Params::default())?;
    send(&sender, b"to one").context("sending")?;
    drop((sender, subscriber));
    let (channel, seen) = buses.info().context("asking without an endpoint")?;
    expect("its flags", channel.flags, PERSISTENT)?;
    expect("the endpoints", (seen.subscribers, seen.senders), (0, 0))?;
    expect("the counts", (seen.sent, seen.unsubscribed), (1, 1))?;
    let again = buses.subscribe(Params::default())?;
    expect("an earlier message", receive(&again), Err(Errno::EAGAIN))?;
    drop(again);
    buses.unlink().context("unlinking")?;
    expect_no_channel(&buses.0)
}

fn an_unlinked_bus_works_on_and_leaves_its_name(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(Params::default())?;
    buses.unlink().context("unlinking")?;
    expect("a second time", buses.unlink(), Err(Errno::ENOENT))?;
    let attached = buses.open(READ, Params::default()).map(drop);
    expect("attaching", attached, Err(Errno::ENOENT))?;
    let other = buses.create(multicast())?;
    expect("the mode of the other", state(&other)?.mode, MULTICAST)?;
    send(&sender, b"on").context("sending")?;
    expect("the message", receive(&subscriber), Ok(b"on".to_vec()))
}

fn ids_are_never_used_again(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let keeper = buses.create(params)?;
        let mut last = id(&keeper)?;
        for flags in [READ, WRITE, BOTH, READ, READ] {
            let end = buses.open(flags, Params::default()).context("opening")?;
            let next = id(&end)?;
            ensure!(next > last, "{next} follows {last}");
            expect("asked again", id(&end)?, next)?;
            last = next;
        }
        // Nor is that of an endpoint whose open failed.
        let refused = buses.open(READ, with_policy(DROP | BLOCK)).map(drop);
        expect("a refused open", refused, Err(Errno::EINVAL))?;
        let next = id(&buses.sender()?)?;
        ensure!(next > last, "{next} follows {last}");
    }
    Ok(())
}

fn the_format_of_an_endpoint_can_be_changed(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(mappable())?;
    let subscriber = buses.subscribe(framed(DROP))?;
    expect("its format", state(&subscriber)?.format, FRAMED)?;
    for end in [&sender, &subscriber] {
        for format in [BATCHED, RAW, FRAMED] {
            expect("setting it", set_format(end, format), Ok(format.into()))?;
            expect("its format", state(end)?.format, format)?;
        }
        for format in [3, u32::MAX] {
            expect(
                "an unknown one",
                set_format(end, format),
                Err(Errno::EINVAL),
            )?;
        }
        expect("its format", state(end)?.format, FRAMED)?;
    }
    let mapped = buses.subscribe(Params {
        flags: MAPPED,
        ..Params::default()
    })?;
    for format in [RAW, FRAMED, BATCHED] {
        expect(
            "of a mapped one",
            set_format(&mapped, format),
            Err(Errno::EINVAL),
        )?;
    }
    Ok(())
}

fn the_spin_limit_of_an_endpoint_can_be_changed(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let (end, other) = (buses.create(broadcast())?, buses.sender()?);
    let before = state(&other)?.spin_limit_ns;
    let set = crate::support::ioctl::set(&end, crate::support::bus::SET_SPIN, 1000);
    expect("setting it", set, Ok(1000))?;
    expect("its limit", state(&end)?.spin_limit_ns, 1000)?;
    expect("that of another", state(&other)?.spin_limit_ns, before)
}

fn a_destroyed_bus_is_epipe(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let sender = buses.create(params)?;
        let subscriber = buses.subscribe(Params::default())?;
        send(&sender, b"there").context("sending")?;
        buses.destroy().context("destroying it")?;
        expect("sending", send(&sender, b"more"), Err(Errno::EPIPE))?;
        expect("receiving", receive(&subscriber), Err(Errno::EPIPE))?;
        for end in [&sender, &subscriber] {
            expect("events", poll::state(end)?, "ERR|HUP".to_owned())?;
            expect("the state is there", info(end).is_ok(), true)?;
        }
        let attached = buses.open(READ, Params::default()).map(drop);
        expect("attaching", attached, Err(Errno::ENOENT))?;
        let again = buses.create(params)?;
        expect("another of this name", state(&again)?.sent, 0)?;
    }
    Ok(())
}

fn a_bus_is_destroyed_once_and_only_by_its_owner(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let sender = buses.0.open(Open {
            mode: 0o666,
            ..request(WRITE | CREATE | EXCL, &params)
        });
        let sender = sender.context("creating a bus")?;
        let other = spawn("another user", || {
            become_user(1001)?;
            let destroyed = Buses::new()?.destroy();
            Ok(destroyed.map_err(|errno| errno as i32))
        })?;
        let refused = Err(Errno::EPERM as i32);
        expect("by another user", other.finish()?, refused)?;
        expect(
            "its endpoints work",
            poll::state(&sender)?,
            "OUT".to_owned(),
        )?;
        expect("by its owner", buses.destroy(), Ok(()))?;
        expect("once more", buses.destroy(), Err(Errno::ENOENT))?;
        drop(sender);
        expect("without endpoints", buses.destroy(), Err(Errno::ENOENT))?;
    }
    Ok(())
}

/// A child asleep in a call on this endpoint, which is made blocking.
fn sleeper<F>(end: &OwnedFd, call: Call, body: F) -> Result<Child<Result<(), i32>>>
where
    F: FnOnce(&OwnedFd) -> Result<nix::Result<()>>,
{
    set_blocking(end)?;
    let child = spawn_keeping("a sleeper", &[end.as_fd()], || {
        Ok(body(end)?.map_err(|errno| errno as i32))
    })?;
    child.wait_asleep_in(call)?;
    Ok(child)
}

fn a_destruction_ends_every_sleep(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let policy = if params.mode == UNICAST { 0 } else { BLOCK };
        let filler = buses.create(params)?;
        let stalled = buses.subscribe(with_policy(policy))?;
        crate::support::bus::fill(&filler, LARGEST)?;
        let sender = buses.sender()?;
        let waiting = sleeper(&sender, Call::Write, |end| Ok(send(end, &[0; LARGEST])))?;
        let poller = buses.sender()?;
        let polling = sleeper(&poller, Call::Poll, |end| {
            let events = poll::wait(end, poll::OUT, -1)?;
            expect("events", poll::name(events), "ERR|HUP".to_owned())?;
            Ok(Ok(()))
        })?;
        buses.destroy().context("destroying it")?;
        expect("the sender", waiting.finish()?, Err(Errno::EPIPE as i32))?;
        expect("the poller", polling.finish()?, Ok(()))?;
        drop(stalled);

        let _sender = buses.create(params)?;
        let subscriber = buses.subscribe(with_policy(policy))?;
        let waiting = sleeper(&subscriber, Call::Read, |end| Ok(receive(end).map(drop)))?;
        let other = buses.subscribe(with_policy(policy))?;
        let polling = sleeper(&other, Call::Poll, |end| {
            let events = poll::wait(end, poll::IN, -1)?;
            expect("events", poll::name(events), "ERR|HUP".to_owned())?;
            Ok(Ok(()))
        })?;
        buses.destroy().context("destroying it")?;
        expect(
            "the subscriber",
            waiting.finish()?,
            Err(Errno::EPIPE as i32),
        )?;
        expect("the poller", polling.finish()?, Ok(()))?;
    }
    Ok(())
}

fn a_destruction_ends_the_sleep_of_a_mapped_subscriber(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _sender = buses.create(mappable())?;
    let subscriber = buses.subscribe(Params {
        flags: MAPPED,
        ..Params::default()
    })?;
    let waiting = sleeper(&subscriber, Call::Ioctl, |end| {
        Ok(crate::support::bus::receive_mapped(end, 0, 1).map(drop))
    })?;
    buses.destroy().context("destroying it")?;
    expect(
        "the subscriber",
        waiting.finish()?,
        Err(Errno::EPIPE as i32),
    )?;
    let released = crate::support::bus::receive_mapped(&subscriber, 0, 0);
    expect("a release", released, Err(Errno::EPIPE))
}
