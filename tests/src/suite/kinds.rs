// SPDX-License-Identifier: MIT OR Apache-2.0
//! A second kind of channel, which only a test build of the module has (tests/kinds): everything common to all kinds
//! works for it, although no other source file mentions it.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::fcntl::{OFlag, readlink};
use nix::unistd::{read, write};

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::Channel;
use crate::support::check::{expect, skip};
use crate::support::child::spawn;
use crate::support::credentials::become_user;
use crate::support::ctl::{
    BOTH, CREATE, ChannelInfo, Ctl, DESTROY, EXCL, FEATURES, Features, INFO, Info, KIND_PIPE,
    KINDS, LIST, List, OWN, Open, PERSIST, PERSISTENT, READ, UNLINK, WRITE, expect_no_channel,
    padded,
};
use crate::support::ioctl::{raw, size_error};
use crate::support::kernel::expect_no_objects;
use crate::support::memory::PAGE;
use crate::support::parameter::Parameter;

topic!(
    "kinds",
    fifo: [],
    pipe_only: [
        features_reports_the_kind,
        the_node_opens_the_default_channel_of_the_cgroup,
        a_channel_is_created_with_its_parameters,
        parameters_of_any_known_size_are_accepted,
        a_failed_open_creates_nothing,
        info_and_state_are_filled_in,
        a_state_of_any_known_size_is_filled,
        kinds_have_separate_names,
        a_list_is_sorted_by_kind_and_then_by_name,
        a_persistent_channel_is_freed_by_unlink_or_cgroup_removal,
        a_destroyed_channel_is_ended_by_its_kind,
        limits_apply_to_all_kinds_together,
        mode_and_owner_decide_access,
    ],
);

const KIND_STUB: u32 = 40;
const NAME: &str = "channel";

/// struct sluice_stub_params.
#[repr(C)]
#[derive(Clone, Copy)]
struct Params {
    size: u32,
    initial: u32,
    step: u64,
}

const PARAMS_SIZE: u32 = 16;
const PARAMS_SIZE_VER0: u32 = 8;

/// struct sluice_stub_state.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    size: u32,
    endpoints: u32,
    count: u64,
    step: u64,
}

const STATE_SIZE: u32 = 24;
const STATE_SIZE_VER0: u32 = 16;

/// Ctl of a module that has the kind; skips the test otherwise.
fn ctl() -> Result<Ctl> {
    let ctl = Ctl::new()?;
    if features(&ctl)?.kinds & 1 << KIND_STUB == 0 {
        return Err(skip(
            "this module has no second kind; 'vm/build-module KERNEL stub' builds one that has",
        ));
    }
    Ok(ctl)
}

fn features(ctl: &Ctl) -> Result<Features> {
    let mut features = Features::default();
    raw(ctl, FEATURES, &mut features).context("features")?;
    Ok(features)
}

fn request(name: &str, flags: u32) -> Open {
    Open {
        kind: KIND_STUB,
        ..Open::new(name, flags)
    }
}

fn create(ctl: &Ctl, name: &str) -> nix::Result<OwnedFd> {
    ctl.open(request(name, BOTH | CREATE | EXCL))
}

/// Creates a channel with these bytes as parameters.
fn create_with(ctl: &Ctl, params: &[u8]) -> nix::Result<OwnedFd> {
    ctl.open(Open {
        params: params.as_ptr() as u64,
        ..request(NAME, BOTH | CREATE | EXCL)
    })
}

/// A page that starts with these parameters.
fn page_of(params: Params) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    page[..4].copy_from_slice(&params.size.to_ne_bytes());
    page[4..8].copy_from_slice(&params.initial.to_ne_bytes());
    page[8..16].copy_from_slice(&params.step.to_ne_bytes());
    page
}

fn remove(ctl: &Ctl, command: u64, name: &str) -> nix::Result<()> {
    ctl.remove(command, KIND_STUB, OWN, name)
}

fn unlink(ctl: &Ctl, name: &str) -> nix::Result<()> {
    remove(ctl, UNLINK, name)
}

/// Requests info and state, each if its address is not null.
fn ask(ctl: &Ctl, info: *mut ChannelInfo, state: *mut State) -> nix::Result<()> {
    let mut request = Info {
        kind: KIND_STUB,
        state: state as u64,
        ..Info::new(OWN, NAME, info)
    };
    raw(ctl, INFO, &mut request)
}

fn empty_state(size: u32) -> State {
    State {
        size,
        endpoints: 77,
        count: 77,
        step: 77,
    }
}

fn count(end: &OwnedFd) -> Result<u64> {
    let mut bytes = [0; 8];
    expect("bytes of the count", read(end, &mut bytes), Ok(8))?;
    Ok(u64::from_ne_bytes(bytes))
}

fn features_reports_the_kind(_: &Context) -> Result<()> {
    let kinds = features(&ctl()?)?.kinds;
    expect("kinds", kinds, KINDS | 1 << KIND_STUB)
}

fn the_node_opens_the_default_channel_of_the_cgroup(context: &Context) -> Result<()> {
    let ctl = ctl()?;
    let number = |name: &str| -> Result<u64> {
        Ok(fs::metadata(Path::new("/dev/sluice").join(name))
            .context(name.to_owned())?
            .rdev())
    };
    let (of_ctl, of_stub) = (number("ctl")?, number("stub")?);
    expect("its minor", of_stub - of_ctl, KIND_STUB.into())?;
    let open = || Channel::new("/dev/sluice/stub").open(OFlag::O_RDWR);
    let first = open().context("the default channel")?;
    let second = open().context("the default channel once more")?;
    expect("a write", write(&first, b"four"), Ok(4))?;
    expect("the count", count(&second)?, 4)?;
    let home = context.cgroup()?;
    home.create_child("other")?.enter()?;
    let other = open().context("that of another cgroup")?;
    expect("its count", count(&other)?, 0)?;
    home.enter()?;
    // The default channel has no name, so it is neither listed nor found.
    expect("names", ctl.names(OWN), Ok(vec![]))?;
    drop((first, second, other));
    expect_no_objects()
}

fn a_channel_is_created_with_its_parameters(_: &Context) -> Result<()> {
    let ctl = ctl()?;
    let page = page_of(Params {
        size: PARAMS_SIZE,
        initial: 100,
        step: 10,
    });
    let end = create_with(&ctl, &page).context("creating the channel")?;
    expect("the count", count(&end)?, 100)?;
    expect("a write", write(&end, b"abc"), Ok(3))?;
    expect("the count then", count(&end)?, 130)?;
    // Parameters of an open that attaches have no effect.
    let attached = ctl.open(Open {
        params: page.as_ptr() as u64,
        ..request(NAME, BOTH | CREATE)
    });
    expect("the count for another", count(&attached?)?, 130)?;
    let link = readlink(format!("/proc/self/fd/{}", end.as_raw_fd()).as_str());
    let link = link.context("what the endpoint is")?;
    expect(
        "its file",
        link.to_string_lossy().as_ref(),
        "anon_inode:[sluice-stub]",
    )?;
    drop(end);
    let end = create(&ctl, NAME).context("without parameters")?;
    expect("a write", write(&end, b"abc"), Ok(3))?;
    expect("the count", count(&end)?, 3)
}

fn parameters_of_any_known_size_are_accepted(_: &Context) -> Result<()> {
    let ctl = ctl()?;
    let params = |size| {
        page_of(Params {
            size,
            initial: 1,
            step: 5,
        })
    };
    for (size, step) in [
        (PARAMS_SIZE_VER0, 1),
        (PARAMS_SIZE, 5),
        (PARAMS_SIZE + 4, 5),
        (PAGE as u32, 5),
    ] {
        let end = create_with(&ctl, &params(size)).with_context(|| format!("size {size}"))?;
        expect("a write", write(&end, b"ab"), Ok(2))?;
        expect(
            &format!("the count with size {size}"),
            count(&end)?,
            1 + 2 * step,
        )?;
    }
    for size in [0, 4, PARAMS_SIZE_VER0 - 1, PAGE as u32 + 1, u32::MAX] {
        let refused = create_with(&ctl, &params(size)).map(drop);
        expect(&format!("size {size}"), refused, Err(size_error(size)))?;
    }
    let mut longer = params(PAGE as u32);
    longer[PAGE - 1] = 1;
    let refused = create_with(&ctl, &longer).map(drop);
    expect("something unknown", refused, Err(Errno::E2BIG))?;
    let nowhere = ctl.open(Open {
        params: 8,
        ..request(NAME, BOTH | CREATE)
    });
    expect("a bad address", nowhere.map(drop), Err(Errno::EFAULT))?;
    expect_no_channel(&ctl)
}

fn a_failed_open_creates_nothing(_: &Context) -> Result<()> {
    let ctl = ctl()?;
    for (what, wrong, error) in [
        ("no side", request(NAME, CREATE), Errno::EINVAL),
        ("no CREATE", request(NAME, BOTH), Errno::ENOENT),
        ("no name", request("", BOTH | CREATE), Errno::EINVAL),
        (
            "too large",
            Open {
                capacity: u64::MAX / 2,
                ..request(NAME, BOTH | CREATE | PERSIST)
            },
            Errno::ENOSPC,
        ),
    ] {
        expect(what, ctl.open(wrong).map(drop), Err(error))?;
    }
    expect_no_channel(&ctl)
}

fn info_and_state_are_filled_in(_: &Context) -> Result<()> {
    let ctl = ctl()?;
    let end = ctl.open(Open {
        capacity: 12_345,
        mode: 0o640,
        ..request(NAME, BOTH | CREATE | PERSIST)
    });
    let end = end.context("creating the channel")?;
    let _reader = ctl.open(request(NAME, READ)).context("a reader")?;
    expect("a write", write(&end, b"seven b"), Ok(7))?;
    let (mut info, mut state) = (ChannelInfo::EMPTY, empty_state(STATE_SIZE));
    ask(&ctl, &mut info, &mut state).context("info and state")?;
    expect(
        "kind and flags",
        (info.kind, info.flags),
        (KIND_STUB, PERSISTENT),
    )?;
    expect("name", info.name(), NAME.as_bytes())?;
    expect("mode", info.mode, 0o640)?;
    expect("endpoints", (info.readers, info.writers), (2, 1))?;
    expect("sizes", (info.capacity, info.bytes), (12_345, 7))?;
    let expected = State {
        size: STATE_SIZE,
        endpoints: 2,
        count: 7,
        step: 1,
    };
    expect("state", state, expected)?;
    unlink(&ctl, NAME).context("unlinking it")
}

fn a_state_of_any_known_size_is_filled(_: &Context) -> Result<()> {
    let ctl = ctl()?;
    let _end = create(&ctl, NAME).context("creating the channel")?;
    for (size, reported) in [
        (STATE_SIZE_VER0, STATE_SIZE_VER0),
        (STATE_SIZE_VER0 + 4, STATE_SIZE_VER0 + 4),
        (STATE_SIZE, STATE_SIZE),
        (PAGE as u32, STATE_SIZE),
    ] {
        let mut state = empty_state(size);
        ask(&ctl, ptr::null_mut(), &mut state).with_context(|| format!("size {size}"))?;
        expect("size", state.size, reported)?;
        expect(
            "endpoints and count",
            (state.endpoints, state.count),
            (1, 0),
        )?;
        if reported == STATE_SIZE {
            expect("step", state.step, 1)?;
        } else if reported == STATE_SIZE_VER0 {
            expect("step, which is left out", state.step, 77)?;
        }
    }
    for size in [0, STATE_SIZE_VER0 - 1, PAGE as u32 + 1] {
        let mut state = empty_state(size);
        let refused = ask(&ctl, ptr::null_mut(), &mut state);
        expect(&format!("size {size}"), refused, Err(size_error(size)))?;
    }
    Ok(())
}

fn kinds_have_separate_names(_: &Context) -> Result<()> {
    let ctl = ctl()?;
    let _pipe = ctl.create(NAME).context("a pipe")?;
    let stub = create(&ctl, NAME).context("a stub of the same name")?;
    expect(
        "another stub",
        create(&ctl, NAME).map(drop),
        Err(Errno::EEXIST),
    )?;
    let kind = ctl.info(OWN, NAME).map(|info| info.kind);
    expect("the kind of the pipe", kind, Ok(KIND_PIPE))?;
    unlink(&ctl, NAME).context("unlinking the stub")?;
    expect("a second time", unlink(&ctl, NAME), Err(Errno::ENOENT))?;
    let kind = ctl.info(OWN, NAME).map(|info| info.kind);
    expect("the pipe afterwards", kind, Ok(KIND_PIPE))?;
    expect("a write to the stub", write(&stub, b"x"), Ok(1))
}

fn a_list_is_sorted_by_kind_and_then_by_name(_: &Context) -> Result<()> {
    let ctl = ctl()?;
    let _ends = [
        create(&ctl, "b")?,
        ctl.create("c")?,
        create(&ctl, "a")?,
        ctl.create("b")?,
    ];
    let all = [
        (KIND_PIPE, "b"),
        (KIND_PIPE, "c"),
        (KIND_STUB, "a"),
        (KIND_STUB, "b"),
    ];
    for (skipped, after) in [None, Some(all[0]), Some(all[1]), Some(all[2]), Some(all[3])]
        .into_iter()
        .enumerate()
    {
        let mut entries = [ChannelInfo::EMPTY; 8];
        let mut list = List::new(OWN, entries.as_mut_ptr(), entries.len());
        if let Some((kind, name)) = after {
            list.kind = kind;
            list.name = padded(name);
        }
        raw(&ctl, LIST, &mut list).context("the list")?;
        let seen: Vec<_> = entries[..list.count as usize]
            .iter()
            .map(|info| (info.kind, String::from_utf8_lossy(info.name()).into_owned()))
            .collect();
        let expected: Vec<_> = all[skipped..]
            .iter()
            .map(|(kind, name)| (*kind, (*name).to_owned()))
            .collect();
        expect(&format!("the list after {after:?}"), seen, expected)?;
    }
    Ok(())
}

fn persist_in(ctl: &Ctl, cgroup: &Cgroup, name: &str) -> Result<nix::Result<()>> {
    let directory: File = cgroup.directory()?;
    let opened = ctl.open(Open {
        scope_fd: directory.as_raw_fd(),
        ..request(name, BOTH | CREATE | EXCL | PERSIST)
    });
    Ok(opened.map(drop))
}

fn a_persistent_channel_is_freed_by_unlink_or_cgroup_removal(context: &Context) -> Result<()> {
    let ctl = ctl()?;
    let home = context.cgroup()?;
    expect(
        "creating the channel",
        persist_in(&ctl, home, NAME)?,
        Ok(()),
    )?;
    let end = ctl.open(request(NAME, WRITE)).context("attaching")?;
    expect("a write", write(&end, b"x"), Ok(1))?;
    drop(end);
    let end = ctl.open(request(NAME, READ)).context("attaching again")?;
    expect("the count", count(&end)?, 1)?;
    drop(end);
    unlink(&ctl, NAME).context("unlinking it")?;
    expect_no_channel(&ctl)?;
    let dying = home.dying_descendants()?;
    let removed = home.create_child("removed")?;
    expect("in a cgroup", persist_in(&ctl, &removed, NAME)?, Ok(()))?;
    removed.remove()?;
    expect_no_objects()?;
    home.expect_dying(dying)
}

/// The kind of these tests sets its count to 0.
fn a_destroyed_channel_is_ended_by_its_kind(_: &Context) -> Result<()> {
    let ctl = ctl()?;
    let end = create(&ctl, NAME).context("creating the channel")?;
    expect("a write", write(&end, b"x"), Ok(1))?;
    remove(&ctl, DESTROY, NAME).context("destroying it")?;
    expect("the count", count(&end)?, 0)?;
    let again = remove(&ctl, DESTROY, NAME);
    expect("destroying it again", again, Err(Errno::ENOENT))?;
    drop(end);
    expect_no_channel(&ctl)
}

fn limits_apply_to_all_kinds_together(_: &Context) -> Result<()> {
    let ctl = ctl()?;
    let _limit = Parameter::set("scope_max_channels", 2)?;
    let pipe = ctl.create("pipe").context("a pipe")?;
    let _stub = create(&ctl, "stub").context("a stub")?;
    let full = Err(Errno::ENOSPC);
    expect("another stub", create(&ctl, "more").map(drop), full)?;
    expect("another pipe", ctl.create("more").map(drop), full)?;
    drop(pipe);
    expect("once one has gone", create(&ctl, "more").map(drop), Ok(()))?;
    let _user = Parameter::set("user_max_bytes", 2 * PAGE as u64)?;
    let user = spawn("a user", || {
        become_user(1001)?;
        let ctl = Ctl::new()?;
        let sized = |capacity| {
            ctl.open(Open {
                capacity,
                ..request("of a user", BOTH | CREATE | EXCL)
            })
            .map(drop)
        };
        let large = 2 * PAGE as u64 + 1;
        expect("too many bytes", sized(large), Err(Errno::EDQUOT))?;
        expect("all of its bytes", sized(large - 1), Ok(()))
    })?;
    user.finish()
}

fn mode_and_owner_decide_access(_: &Context) -> Result<()> {
    let ctl = ctl()?;
    let _end = ctl.open(Open {
        mode: 0o604,
        ..request(NAME, BOTH | CREATE)
    });
    let user = spawn("another user", || {
        become_user(1001)?;
        let ctl = Ctl::new()?;
        let open = |flags| ctl.open(request(NAME, flags)).map(drop);
        expect("reading", open(READ), Ok(()))?;
        expect("writing", open(WRITE), Err(Errno::EACCES))?;
        let persisted = open(READ | CREATE | PERSIST);
        expect("setting persistence", persisted, Err(Errno::EPERM))?;
        expect("unlinking", unlink(&ctl, NAME), Err(Errno::EPERM))
    })?;
    user.finish()
}
