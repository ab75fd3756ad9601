// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening a feed: its node, its name in the root scope, who may open it, that users can neither create nor remove one,
//! and what is reported of it.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open as open_path};
use nix::sys::prctl;
use nix::sys::stat::Mode;
use nix::unistd::{Whence, lseek, write};

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::check::{expect, skip};
use crate::support::child::{spawn, spawn_keeping};
use crate::support::container::{User, spawn_in_container};
use crate::support::credentials::{
    CAP_DAC_OVERRIDE, NOBODY, become_user, become_user_with_capability, become_user_with_groups,
    drop_capabilities, enter_cgroup_namespace,
};
use crate::support::ctl::{
    BOTH, CREATE, Ctl, DESTROY, EXCL, OWN, Open, PERSIST, READ, UNLINK, WRITE, expect_no_channel,
};
use crate::support::feed::{
    self, CONSUMER_MAPS, CONSUMER_NONE, CONSUMER_READS, CPU_ANY, Consumer, Info, NAME, NODE,
    Publisher, Start, claim_as, claim_by_read, info, info_by_name, open, open_node, open_node_with,
    read_packet, request,
};
use crate::support::ioctl::{raw, size_error};
use crate::support::kernel::LoadedModule;
use crate::support::memory::PAGE;
use crate::support::parameter::Parameter;
use sluice_abi::{KIND_FEED, RING_DETACH, RING_INFO, RING_WAKE, SCOPE_ROOT};

topic!(
    "feed_open",
    fifo: [],
    pipe_only: [
        the_node_is_for_root_only,
        a_user_may_not_open_the_node,
        the_node_is_closed_in_another_cgroup_namespace,
        an_endpoint_cannot_be_opened_again,
        the_node_is_checked_when_it_is_opened_by_an_endpoint,
        an_endpoint_for_writing_alone_is_einval,
        a_feed_of_a_module_has_a_name_in_the_root_scope,
        creating_a_feed_is_eperm,
        an_exclusive_open_of_a_feed_is_eexist,
        unlinking_or_destroying_a_feed_is_eperm,
        making_a_feed_persistent_is_eperm,
        the_root_scope_is_visible_below_the_root_of_its_namespace,
        the_root_scope_is_invisible_in_another_cgroup_namespace,
        the_mode_decides_who_may_open_a_feed,
        overriding_modes_opens_the_node_only,
        invalid_names_and_capacities_are_einval,
        a_taken_name_is_eexist,
        the_capacity_is_rounded_up_to_a_power_of_two,
        info_and_list_describe_a_feed,
        an_info_of_any_size_up_to_a_page_is_filled_as_far_as_known,
        the_info_of_an_endpoint_has_its_spin_limit,
        unknown_commands_are_enotty,
        writing_and_seeking_fail,
        a_passed_endpoint_works_in_a_container,
    ],
);

fn the_node_is_for_root_only(_: &Context) -> Result<()> {
    let node = fs::metadata(NODE).with_context(|| format!("stat of {NODE}"))?;
    expect("character device", node.file_type().is_char_device(), true)?;
    expect("its mode", node.permissions().mode() & 0o7777, 0o660)?;
    expect("its owner and group", (node.uid(), node.gid()), (0, 0))
}

fn a_user_may_not_open_the_node(_: &Context) -> Result<()> {
    let user = spawn("a user", || {
        become_user(NOBODY)?;
        for flags in [OFlag::O_RDONLY, OFlag::O_RDWR] {
            let opened = open_node_with(flags).map(drop);
            expect("an open of the node", opened, Err(Errno::EACCES))?;
        }
        Ok(())
    })?;
    user.finish()
}

fn the_node_is_closed_in_another_cgroup_namespace(_: &Context) -> Result<()> {
    for (enters, expected) in [(false, Ok(())), (true, Err(Errno::EACCES))] {
        let owner = spawn("the owner of the node", || {
            if enters {
                enter_cgroup_namespace()?;
                let opened = open_node_with(OFlag::O_RDWR).map(drop);
                expect("an administrator", opened, Ok(()))?;
            }
            drop_capabilities()?;
            let opened = open_node_with(OFlag::O_RDWR).map(drop);
            expect("without capabilities", opened, expected)
        })?;
        let what = || format!("in another namespace: {enters}");
        owner.finish().with_context(what)?;
    }
    Ok(())
}

/// Opens the file of this descriptor again.
fn open_again(end: &impl AsFd, flags: OFlag) -> nix::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", end.as_fd().as_raw_fd());
    open_path(path.as_str(), flags | OFlag::O_CLOEXEC, Mode::empty())
}

fn an_endpoint_cannot_be_opened_again(context: &Context) -> Result<()> {
    let _publisher = Publisher::small(context)?;
    let end = open(NAME)?;
    for flags in [OFlag::O_RDONLY, OFlag::O_RDWR] {
        let again = open_again(&end, flags).map(drop);
        expect("opening it again", again, Err(Errno::ENXIO))?;
    }
    Ok(())
}

fn the_node_is_checked_when_it_is_opened_by_an_endpoint(_: &Context) -> Result<()> {
    let end = open_node()?;
    claim_by_read(&end)?;
    let again = open_again(&end, OFlag::O_RDWR).context("opening it again")?;
    let claimed = claim_as(&again, CONSUMER_READS).map(drop);
    expect("a claim of another endpoint", claimed, Err(Errno::EBUSY))?;
    for in_namespace in [false, true] {
        let other = spawn_keeping("another process", &[end.as_fd()], || {
            if in_namespace {
                enter_cgroup_namespace()?;
                drop_capabilities()?;
            } else {
                become_user(NOBODY)?;
            }
            // Otherwise it may not look into its own /proc/self/fd.
            prctl::set_dumpable(true).context("becoming dumpable")?;
            let path = format!("/proc/self/fd/{}", end.as_raw_fd());
            fs::read_link(path).context("looking up the endpoint")?;
            let opened = open_again(&end, OFlag::O_RDWR).map(drop);
            expect("opening it again", opened, Err(Errno::EACCES))
        })?;
        other.finish()?;
    }
    Ok(())
}

fn an_endpoint_for_writing_alone_is_einval(context: &Context) -> Result<()> {
    let opened = open_node_with(OFlag::O_WRONLY).map(drop);
    expect("an open of the node", opened, Err(Errno::EINVAL))?;
    let _publisher = Publisher::small(context)?;
    let opened = Ctl::new()?.open(request(NAME, WRITE)).map(drop);
    expect("an open by name", opened, Err(Errno::EINVAL))?;
    expect("readers", info_by_name(NAME)?.0.readers, 0)
}

fn a_feed_of_a_module_has_a_name_in_the_root_scope(context: &Context) -> Result<()> {
    let publisher = Publisher::small(context)?;
    let ctl = Ctl::new()?;
    let end = open(NAME)?;
    claim_by_read(&end)?;
    publisher.publish("task", 1, 16)?;
    ensure!(read_packet(&end)?.is_some(), "the feed has ended");
    let elsewhere = Open {
        scope_fd: OWN,
        ..request(NAME, READ)
    };
    let opened = ctl.open(elsewhere).map(drop);
    expect("in the own scope", opened, Err(Errno::ENOENT))?;
    publisher.unload()?;
    let opened = ctl.open(request(NAME, READ)).map(drop);
    expect("after its end", opened, Err(Errno::ENOENT))
}

fn creating_a_feed_is_eperm(_: &Context) -> Result<()> {
    let create = || -> Result<()> {
        let ctl = Ctl::new()?;
        for flags in [READ, BOTH, READ | EXCL, READ | PERSIST] {
            let own = Open {
                scope_fd: OWN,
                ..request("new", flags | CREATE)
            };
            let created = ctl.open(own).map(drop);
            expect("in the own scope", created, Err(Errno::EPERM))?;
            let created = ctl.open(request("new", flags | CREATE)).map(drop);
            expect("in the root scope", created, Err(Errno::EACCES))?;
        }
        Ok(())
    };
    create()?;
    let user = spawn("a user", || {
        become_user(NOBODY)?;
        create()
    })?;
    user.finish()?;
    expect_no_channel(&Ctl::new()?)
}

fn an_exclusive_open_of_a_feed_is_eexist(context: &Context) -> Result<()> {
    let _publisher = Publisher::small(context)?;
    let ctl = Ctl::new()?;
    let opened = ctl.open(request(NAME, READ | CREATE | EXCL)).map(drop);
    expect("an exclusive open", opened, Err(Errno::EEXIST))?;
    let opened = ctl.open(request(NAME, READ | CREATE)).map(drop);
    expect("an open that would create it", opened, Ok(()))
}

fn unlinking_or_destroying_a_feed_is_eperm(context: &Context) -> Result<()> {
    let publisher = Publisher::load(context, c"mode=0666")?.context("loading the publisher")?;
    let end = open(NAME)?;
    claim_by_read(&end)?;
    let remove = || -> Result<()> {
        for (what, command) in [("unlinking", UNLINK), ("destroying", DESTROY)] {
            let removed = Ctl::new()?.remove(command, KIND_FEED, SCOPE_ROOT, NAME);
            expect(what, removed, Err(Errno::EPERM))?;
        }
        Ok(())
    };
    remove()?;
    let user = spawn("a user", || {
        become_user(NOBODY)?;
        remove()
    })?;
    user.finish()?;
    publisher.publish("task", 1, 16)?;
    ensure!(read_packet(&end)?.is_some(), "the feed has ended");
    open(NAME).map(drop)
}

fn making_a_feed_persistent_is_eperm(context: &Context) -> Result<()> {
    let publisher = Publisher::small(context)?;
    let request = request(NAME, READ | CREATE | PERSIST);
    let opened = Ctl::new()?.open(request).map(drop);
    expect("making it persistent", opened, Err(Errno::EPERM))?;
    expect("its flags", info_by_name(NAME)?.0.flags, 0)?;
    publisher.unload()
}

/// Opens, describes and lists the feeds of the root scope.
fn try_everything() -> Result<nix::Result<()>> {
    let ctl = Ctl::new()?;
    let opened = ctl.open(request(NAME, READ)).map(drop);
    let described = info_by_name(NAME).map(drop);
    let listed = ctl.page(SCOPE_ROOT, None, 1).map(drop);
    expect("info as an open", described, opened)?;
    expect("a list as an open", listed, opened)?;
    Ok(opened)
}

fn the_root_scope_is_visible_below_the_root_of_its_namespace(context: &Context) -> Result<()> {
    let _publisher = Publisher::load(context, c"mode=0444")?.context("loading the publisher")?;
    let below = context.cgroup()?.create_child("below")?;
    let user = below.spawn("a user", || {
        become_user(NOBODY)?;
        expect("a user in a cgroup", try_everything()?, Ok(()))
    })?;
    user.finish()?;
    let root = Cgroup::root()?;
    let user = root.spawn("a user", || {
        enter_cgroup_namespace()?;
        become_user(NOBODY)?;
        expect("a namespace with this root", try_everything()?, Ok(()))
    })?;
    user.finish()
}

fn the_root_scope_is_invisible_in_another_cgroup_namespace(context: &Context) -> Result<()> {
    const REFUSED: nix::Result<()> = Err(Errno::EACCES);
    let _publisher = Publisher::load(context, c"mode=0444")?.context("loading the publisher")?;
    for user in User::ALL {
        let cgroup = context.cgroup()?.create_child(&format!("{user:?}"))?;
        let container = spawn_in_container(&cgroup, user, "a container", &[], || {
            expect("the feed of a module", try_everything()?, REFUSED)?;
            let found = Ctl::new()?.open(request("nothing", READ)).map(drop);
            expect("a name that does not exist", found, REFUSED)
        })?;
        container.finish()?;
    }
    let namespace = spawn("a namespace", || {
        enter_cgroup_namespace()?;
        expect("an administrator", try_everything()?, Ok(()))?;
        become_user(NOBODY)?;
        expect("a user", try_everything()?, REFUSED)
    })?;
    namespace.finish()
}

fn the_mode_decides_who_may_open_a_feed(context: &Context) -> Result<()> {
    const YES: nix::Result<()> = Ok(());
    const NO: nix::Result<()> = Err(Errno::EACCES);
    let cases: [(&CStr, _, _); 4] = [
        (c"mode=0600", NO, NO),
        (c"mode=0440", YES, NO),
        (c"mode=0404", NO, YES),
        (c"mode=0222", NO, NO),
    ];
    for (mode, member, other) in cases {
        let publisher = Publisher::load(context, mode)?.context("loading the publisher")?;
        for (group, expected) in [(0, member), (NOBODY, other)] {
            let user = spawn("a user", || {
                become_user_with_groups(NOBODY, group, &[])?;
                let opened = Ctl::new()?.open(request(NAME, READ)).map(drop);
                expect(&format!("{mode:?}, group {group}"), opened, expected)
            })?;
            user.finish()?;
        }
        publisher.unload()?;
    }
    Ok(())
}

fn overriding_modes_opens_the_node_only(context: &Context) -> Result<()> {
    let _publisher = Publisher::load(context, c"mode=0600")?.context("loading the publisher")?;
    let user = spawn("a user", || {
        become_user_with_capability(NOBODY, CAP_DAC_OVERRIDE)?;
        let opened = open_node_with(OFlag::O_RDWR).map(drop);
        expect("the node", opened, Ok(()))?;
        let opened = Ctl::new()?.open(request(NAME, READ)).map(drop);
        expect("the feed of a module", opened, Err(Errno::EACCES))
    })?;
    user.finish()
}

/// Loads the publisher with this name or capacity.
fn load_error(context: &Context, parameters: &str) -> Result<Option<Errno>> {
    let parameters = CString::new(parameters)?;
    Ok(Publisher::load(context, &parameters)?.err())
}

fn invalid_names_and_capacities_are_einval(context: &Context) -> Result<()> {
    let long = "x".repeat(64);
    for name in ["", ".", "..", "a/b", "/", &long] {
        let error = load_error(context, &format!("name={name}"))?;
        expect(&format!("the name '{name}'"), error, Some(Errno::EINVAL))?;
    }
    let most = Parameter::get("feed_max_bytes")?;
    for capacity in [most + 1, 1 << 32, u64::MAX] {
        let error = load_error(context, &format!("capacity={capacity}"))?;
        expect(&format!("capacity {capacity}"), error, Some(Errno::EINVAL))?;
    }
    let longest = "x".repeat(63);
    let error = load_error(context, &format!("name={longest} capacity={most}"))?;
    expect("the longest name and largest capacity", error, None)
}

fn a_taken_name_is_eexist(context: &Context) -> Result<()> {
    let sample = context.modules.sample.as_ref();
    let sample = sample.ok_or_else(|| skip("no sample was given; name it with --sample"))?;
    let mut sample = LoadedModule::load(sample, c"sluice_frames", c"")?.context("loading it")?;
    let error = load_error(context, "name=frames")?;
    // Newer kernels change EEXIST of a module's init function: it would mean that the module is loaded.
    let is_taken = matches!(error, Some(Errno::EEXIST | Errno::EBUSY));
    ensure!(is_taken, "the name of the sample: {error:?}");
    open("frames")?;
    sample.unload().context("unloading the sample")?;
    expect("a free name", load_error(context, "name=frames")?, None)
}

fn the_capacity_is_rounded_up_to_a_power_of_two(context: &Context) -> Result<()> {
    for (wanted, capacity) in [
        (0, 1 << 20),
        (1, 1 << 14),
        ((1 << 14) + 1, 1 << 15),
        (1 << 16, 1 << 16),
    ] {
        let parameters = CString::new(format!("capacity={wanted}"))?;
        let publisher = Publisher::load(context, &parameters)?.context("loading it")?;
        expect("the capacity", info_by_name(NAME)?.1.capacity, capacity)?;
        let consumer = Consumer::claim(open(NAME)?)?;
        publisher.publish("task", 2 * capacity as usize / 1000, 1000)?;
        let held = consumer.published();
        ensure!(
            held <= capacity && held > capacity - 2000,
            "{held} bytes were published into {capacity}"
        );
        drop(consumer);
        publisher.unload()?;
    }
    Ok(())
}

fn info_and_list_describe_a_feed(context: &Context) -> Result<()> {
    let parameters = c"mode=0640 capacity=16384";
    let publisher = Publisher::load(context, parameters)?.context("loading the publisher")?;
    let (common, state) = info_by_name(NAME)?;
    expect("the kind", common.kind, KIND_FEED)?;
    expect("the name", common.name(), NAME.as_bytes())?;
    expect("the mode", common.mode, 0o640)?;
    expect("owner and group", (common.uid, common.gid), (0, 0))?;
    expect(
        "readers and writers",
        (common.readers, common.writers),
        (0, 1),
    )?;
    expect(
        "capacity and bytes",
        (common.capacity, common.bytes),
        (16384, 0),
    )?;
    let unused = Info {
        capacity: 16384,
        cpu: CPU_ANY,
        ..Info::default()
    };
    expect("the state", state, unused)?;
    let ctl = Ctl::new()?;
    let listed = ctl.page(SCOPE_ROOT, None, 8)?;
    let names: Vec<_> = listed.iter().map(|entry| entry.name().to_vec()).collect();
    expect("names in the root scope", names, vec![NAME.into()])?;
    expect("the entry of the list", listed[0], common)?;

    let end = open(NAME)?;
    claim_by_read(&end)?;
    publisher.publish("task", 3, 24)?;
    let (common, state) = info_by_name(NAME)?;
    expect(
        "readers and writers",
        (common.readers, common.writers),
        (1, 1),
    )?;
    // A record has a header of 8 bytes; the packet has one of 32.
    expect("bytes of three records", common.bytes, 3 * (8 + 32 + 24))?;
    expect("the consumer", state.consumer, CONSUMER_READS)?;
    expect(
        "sequence and published",
        (state.sequence, state.published),
        (3, 3),
    )?;
    expect(
        "lost and violations",
        (state.lost, state.violations),
        (0, 0),
    )?;
    read_packet(&end)?;
    expect("bytes that are left", info_by_name(NAME)?.0.bytes, 2 * 64)?;
    drop(end);
    let (common, state) = info_by_name(NAME)?;
    expect("readers after the close", common.readers, 0)?;
    expect("bytes after the close", common.bytes, 0)?;
    expect("the consumer after it", state.consumer, CONSUMER_NONE)?;
    let consumer = Consumer::claim(open(NAME)?)?;
    let (common, state) = info_by_name(NAME)?;
    expect("readers", common.readers, 1)?;
    expect("the consumer that maps", state.consumer, CONSUMER_MAPS)?;
    drop(consumer);
    publisher.unload()
}

/// The size of the structure of this version.
const KNOWN: u32 = size_of::<Info>() as u32;

fn an_info_of_any_size_up_to_a_page_is_filled_as_far_as_known(_: &Context) -> Result<()> {
    let end = open_node()?;
    let bytes_of = |size: u32| -> Result<Vec<u8>> {
        let mut bytes = vec![0xAA; PAGE];
        feed::info_of_size(&end, &mut bytes, size).with_context(|| format!("size {size}"))?;
        Ok(bytes)
    };
    for size in [KNOWN, KNOWN + 8, PAGE as u32] {
        let bytes = bytes_of(size)?;
        let filled = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        expect("bytes filled in", filled, KNOWN)?;
        let capacity = info(&end)?.capacity.to_ne_bytes();
        expect("the capacity", &bytes[8..16], &capacity[..])?;
        let beyond = bytes[KNOWN as usize..].iter().all(|byte| *byte == 0xAA);
        expect("whether bytes beyond are unchanged", beyond, true)?;
    }
    for size in [0, KNOWN - 8, PAGE as u32 + 1] {
        let mut bytes = vec![0; 2 * PAGE];
        let result = feed::info_of_size(&end, &mut bytes, size);
        expect(&format!("size {size}"), result, Err(size_error(size)))?;
    }
    Ok(())
}

fn the_info_of_an_endpoint_has_its_spin_limit(context: &Context) -> Result<()> {
    let _publisher = Publisher::small(context)?;
    let (end, other) = (open(NAME)?, open(NAME)?);
    let most = Parameter::get("spin_limit_us")? * 1000;
    expect("the first limit", info(&end)?.spin_limit_ns, most)?;
    expect("a new limit", feed::set_spin(&end, 5000), Ok(5000))?;
    expect("a large limit", feed::set_spin(&other, u64::MAX), Ok(most))?;
    expect("this endpoint", info(&end)?.spin_limit_ns, 5000)?;
    expect("the other one", info(&other)?.spin_limit_ns, most)?;
    expect("by name", info_by_name(NAME)?.1.spin_limit_ns, 0)
}

fn unknown_commands_are_enotty(context: &Context) -> Result<()> {
    const ENOTTY: nix::Result<()> = Err(Errno::ENOTTY);
    let _publisher = Publisher::small(context)?;
    let end = open(NAME)?;
    let mut zeros = [0_u64; 32];
    for command in [RING_WAKE, RING_DETACH, RING_INFO, libc::FIONREAD, 0xC7FF] {
        let result = raw(&end, command, zeros.as_mut_ptr());
        expect(&format!("command {command:#x}"), result, ENOTTY)?;
    }
    let started = feed::start(&end, Start::new(1_000_000, 1, 16));
    expect("a start of another feed", started, ENOTTY)?;
    expect("a stop of another feed", feed::stop(&end), ENOTTY)
}

fn writing_and_seeking_fail(context: &Context) -> Result<()> {
    let _publisher = Publisher::small(context)?;
    for end in [open(NAME)?, open_node()?] {
        expect("a write", write(&end, b"x"), Err(Errno::EINVAL))?;
        let sought = lseek(&end, 0, Whence::SeekSet);
        expect("a seek", sought, Err(Errno::ESPIPE))?;
    }
    Ok(())
}

fn a_passed_endpoint_works_in_a_container(context: &Context) -> Result<()> {
    for user in User::ALL {
        let publisher = Publisher::small(context)?;
        let end = open(NAME)?;
        let cgroup = context.cgroup()?.create_child(&format!("{user:?}"))?;
        let container = spawn_in_container(&cgroup, user, "a container", &[end.as_fd()], || {
            let opened = open_node_with(OFlag::O_RDWR).is_ok();
            expect("whether it can open the node", opened, false)?;
            claim_by_read(&end)?;
            let packet = read_packet(&end)?.context("the feed has ended")?;
            packet.origin().map(|origin| origin.number)
        })?;
        crate::support::time::eventually("the container claims it", || {
            Ok((info(&end)?.consumer == CONSUMER_READS).then_some(()))
        })?;
        publisher.publish("task", 1, 16)?;
        expect("the number of the packet", container.finish()?, 0)?;
        publisher.unload()?;
    }
    Ok(())
}
