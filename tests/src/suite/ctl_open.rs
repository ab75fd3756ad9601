// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening a channel by name: the channel created, and the properties of the endpoint.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl, readlink};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{read, write};

use crate::registry::{Context, topic};
use crate::support::channel::{CAPACITY, fill, read_all, read_some, set_nonblocking, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn;
use crate::support::credentials::{NOBODY, become_user};
use crate::support::ctl::{
    BOTH, CREATE, Ctl, EXCL, NONBLOCK, OWN, Open, PERSIST, READ, WRITE, expect_no_channel,
};
use crate::support::ioctl;
use crate::support::kernel::expect_no_objects;
use crate::support::memory::PAGE;
use crate::support::parameter::Parameter;
use crate::support::poll;

topic!(
    "ctl_open",
    fifo: [],
    pipe_only: [
        a_missing_channel_is_enoent,
        create_makes_a_channel_or_opens_an_existing_one,
        excl_makes_a_channel_or_is_eexist,
        neither_reading_nor_writing_is_einval,
        excl_or_persist_without_create_is_einval,
        a_new_channel_has_the_requested_mode_and_capacity,
        an_existing_channel_keeps_its_mode_and_capacity,
        a_capacity_is_checked_as_by_set_capacity,
        an_open_without_a_free_descriptor_leaves_no_channel,
        the_descriptor_is_closed_on_exec,
        the_endpoint_is_an_anonymous_file,
        the_endpoint_has_the_flags_it_was_opened_with,
        named_endpoints_behave_as_those_of_a_pipe,
        a_named_pipe_is_not_the_default_pipe,
    ],
);

fn a_missing_channel_is_enoent(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for flags in [READ, WRITE, BOTH, BOTH | NONBLOCK] {
        expect(
            &format!("an open with flags {flags:#x}"),
            ctl.open(Open::new("missing", flags)).map(drop),
            Err(Errno::ENOENT),
        )?;
    }
    expect_no_channel(&ctl)
}

fn create_makes_a_channel_or_opens_an_existing_one(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let request = Open::new("channel", BOTH | CREATE);
    let first = ctl.open(request).context("creating the channel")?;
    let second = ctl.open(request).context("opening it again")?;
    write_all(&first, b"from first to second")?;
    expect_bytes(
        "bytes read from the second endpoint",
        &read_all(&second, 20)?,
        b"from first to second",
    )
}

fn excl_makes_a_channel_or_is_eexist(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let request = Open::new("channel", BOTH | CREATE | EXCL);
    let _first = ctl.open(request).context("creating the channel")?;
    for more in [0, NONBLOCK, PERSIST] {
        let flags = request.flags | more;
        expect(
            &format!("again with flags {flags:#x}"),
            ctl.open(Open { flags, ..request }).map(drop),
            Err(Errno::EEXIST),
        )?;
    }
    let info = ctl.info(OWN, "channel").context("info")?;
    expect("endpoints left", (info.readers, info.writers), (1, 1))
}

fn neither_reading_nor_writing_is_einval(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for flags in [0, CREATE, CREATE | EXCL, CREATE | PERSIST, NONBLOCK] {
        expect(
            &format!("an open with flags {flags:#x}"),
            ctl.open(Open::new("channel", flags)).map(drop),
            Err(Errno::EINVAL),
        )?;
    }
    expect_no_channel(&ctl)
}

fn excl_or_persist_without_create_is_einval(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let _there = ctl.create("there").context("creating a channel")?;
    for name in ["there", "missing"] {
        for flags in [EXCL, PERSIST, EXCL | PERSIST] {
            expect(
                &format!("an open of {name} with flags {flags:#x}"),
                ctl.open(Open::new(name, BOTH | flags)).map(drop),
                Err(Errno::EINVAL),
            )?;
        }
    }
    Ok(())
}

fn a_new_channel_has_the_requested_mode_and_capacity(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for (mode, capacity, given) in [
        (0, 0, CAPACITY),
        (0o777, 1, PAGE),
        (0o640, 5 * PAGE, 8 * PAGE),
        (0o7, 1 << 20, 1 << 20),
    ] {
        // The umask has no effect.
        let endpoint = ctl.open(Open {
            mode,
            capacity: capacity as u64,
            ..Open::new("channel", BOTH | CREATE | EXCL)
        });
        let endpoint = endpoint.with_context(|| format!("mode {mode:o}, capacity {capacity}"))?;
        let info = ctl.info(OWN, "channel").context("info")?;
        expect("mode", info.mode, mode)?;
        expect("capacity", info.capacity, given as u64)?;
        expect("flags", info.flags, 0)?;
        set_nonblocking(&endpoint)?;
        expect("bytes that fit", fill(&endpoint, b'x')?, given)?;
    }
    expect_no_channel(&ctl)
}

fn an_existing_channel_keeps_its_mode_and_capacity(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let _first = ctl.create("channel").context("creating the channel")?;
    let _second = ctl.open(Open {
        mode: 0o777,
        capacity: PAGE as u64,
        ..Open::new("channel", BOTH | CREATE)
    });
    let info = ctl.info(OWN, "channel").context("info")?;
    expect("mode", info.mode, 0o600)?;
    expect("capacity", info.capacity, CAPACITY as u64)
}

fn a_capacity_is_checked_as_by_set_capacity(_: &Context) -> Result<()> {
    let limit = Parameter::get("pipe_max_size")?;
    let ctl = Ctl::new()?;
    let with = |capacity| Open {
        capacity,
        ..Open::new("channel", BOTH | CREATE)
    };
    for capacity in [(1 << 30) + 1, u64::MAX] {
        expect(
            &format!("a capacity of {capacity}"),
            ctl.open(with(capacity)).map(drop),
            Err(Errno::EINVAL),
        )?;
    }
    let unprivileged = spawn("an unprivileged process", || {
        become_user(NOBODY)?;
        let ctl = Ctl::new()?;
        expect("at the limit", ctl.open(with(limit)).map(drop), Ok(()))?;
        expect(
            "above the limit",
            ctl.open(with(limit + 1)).map(drop),
            Err(Errno::EPERM),
        )
    })?;
    unprivileged.finish()?;
    expect(
        "above it with privilege",
        ctl.open(with(limit + 1)).map(drop),
        Ok(()),
    )?;
    expect_no_channel(&ctl)
}

fn an_open_without_a_free_descriptor_leaves_no_channel(_: &Context) -> Result<()> {
    let crowded = spawn("a process without a free descriptor", || {
        let ctl = Ctl::new()?;
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("getrlimit")?;
        setrlimit(Resource::RLIMIT_NOFILE, 0, hard).context("setrlimit")?;
        for more in [0, PERSIST] {
            expect(
                "an open",
                ctl.open(Open::new("channel", BOTH | CREATE | more))
                    .map(drop),
                Err(Errno::EMFILE),
            )?;
            expect("names left", ctl.names(OWN), Ok(vec![]))?;
        }
        Ok(())
    })?;
    crowded.finish()?;
    expect_no_objects()
}

fn the_descriptor_is_closed_on_exec(_: &Context) -> Result<()> {
    let endpoint = Ctl::new()?.create("channel")?;
    let flags = fcntl(&endpoint, FcntlArg::F_GETFD).context("F_GETFD")?;
    expect("flags", flags, FdFlag::FD_CLOEXEC.bits())
}

fn the_endpoint_is_an_anonymous_file(_: &Context) -> Result<()> {
    let endpoint = Ctl::new()?.create("channel")?;
    let link = format!("/proc/self/fd/{}", endpoint.as_raw_fd());
    let target = readlink(Path::new(&link)).with_context(|| format!("reading {link}"))?;
    let target = target.to_string_lossy();
    ensure!(
        target.starts_with("anon_inode:"),
        "{link} leads to {target}, expected an anonymous inode"
    );
    Ok(())
}

fn the_endpoint_has_the_flags_it_was_opened_with(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let _other = ctl.create("channel")?;
    for (flags, expected) in [
        (READ, OFlag::O_RDONLY),
        (WRITE, OFlag::O_WRONLY),
        (BOTH, OFlag::O_RDWR),
        (READ | NONBLOCK, OFlag::O_RDONLY | OFlag::O_NONBLOCK),
        (BOTH | NONBLOCK, OFlag::O_RDWR | OFlag::O_NONBLOCK),
    ] {
        let endpoint = ctl.open(Open::new("channel", flags))?;
        let seen = fcntl(&endpoint, FcntlArg::F_GETFL).context("F_GETFL")?;
        let seen = OFlag::from_bits_retain(seen) & (OFlag::O_ACCMODE | OFlag::O_NONBLOCK);
        expect(&format!("opened with {flags:#x}"), seen, expected)?;
    }
    let reader = ctl.open(Open::new("channel", READ))?;
    expect(
        "a write to a reader",
        write(&reader, b"x"),
        Err(Errno::EBADF),
    )?;
    let writer = ctl.open(Open::new("channel", WRITE))?;
    expect(
        "a read from a writer",
        read(&writer, &mut [0]),
        Err(Errno::EBADF),
    )
}

/// Both endpoints in this process.
fn ends(ctl: &Ctl) -> Result<(OwnedFd, OwnedFd)> {
    let reader = ctl.open(Open::new("channel", READ | CREATE | NONBLOCK));
    let reader = reader.context("opening for reading")?;
    let writer = ctl.open(Open::new("channel", WRITE | NONBLOCK));
    Ok((reader, writer.context("opening for writing")?))
}

fn named_endpoints_behave_as_those_of_a_pipe(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let (reader, writer) = ends(&ctl)?;
    expect(
        "a read of nothing",
        read_some(&reader, 9),
        Err(Errno::EAGAIN),
    )?;
    expect(
        "an empty one's writer",
        poll::state(&writer)?,
        "OUT".to_owned(),
    )?;
    expect("bytes that fill it", fill(&writer, b'x')?, CAPACITY)?;
    expect(
        "a full one's writer",
        poll::state(&writer)?,
        "nothing".to_owned(),
    )?;
    expect("its bytes", ioctl::info(&reader)?.bytes, CAPACITY as u64)?;
    drop(writer);
    read_all(&reader, CAPACITY)?;
    expect("the reader then", poll::state(&reader)?, "HUP".to_owned())?;
    expect("a read then", read(&reader, &mut [0]), Ok(0))?;
    drop(reader);
    let (reader, writer) = ends(&ctl)?;
    drop(reader);
    expect(
        "a write without a reader",
        write(&writer, b"x"),
        Err(Errno::EPIPE),
    )
}

fn a_named_pipe_is_not_the_default_pipe(context: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let default = context.channel.open_read_write()?;
    set_nonblocking(&default)?;
    expect("names beside it", ctl.names(OWN), Ok(vec![]))?;
    let named = ctl.create("channel")?;
    write_all(&named, b"named")?;
    expect("a read of it", read(&default, &mut [0]), Err(Errno::EAGAIN))
}
