// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of one endpoint: its direction, its flags, its duplicates, its file.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::fstat;
use nix::unistd::{dup, read, write};

use crate::registry::{Context, topic};
use crate::support::channel::{read_some, set_blocking, set_nonblocking, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn_keeping};
use crate::support::ctl::{BOTH, CREATE, Ctl, Open};
use crate::support::kernel::is_6_1;
use crate::support::proc::Call;
use crate::support::time::wait_grace_period;

topic!(
    "endpoint_flags",
    fifo: [
        an_endpoint_supports_only_its_own_direction,
        writes_have_no_message_boundaries,
        nonblocking_can_be_turned_on_and_off,
        a_duplicate_keeps_the_endpoint_open,
        a_forked_child_keeps_the_write_end_open,
        a_forked_child_keeps_the_read_end_open,
        an_o_direct_open_is_einval_and_leaves_no_endpoint,
    ],
    pipe_only: [
        packet_mode_is_einval,
        f_getpipe_sz_and_f_setpipe_sz_are_ebadf,
        reading_and_writing_do_not_change_timestamps,
        fdinfo_shows_the_channel,
        each_endpoint_opened_by_name_has_its_own_inode,
    ],
);

fn an_endpoint_supports_only_its_own_direction(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    expect(
        "a write to the read end",
        write(&reader, b"x"),
        Err(Errno::EBADF),
    )?;
    expect(
        "a read from the write end",
        read(&writer, &mut [0]),
        Err(Errno::EBADF),
    )
}

fn writes_have_no_message_boundaries(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    for piece in [&b"one"[..], b"", b"two", b"three"] {
        write_all(&writer, piece)?;
    }
    let seen = read_some(&reader, 64).context("read")?;
    expect_bytes("bytes of one read", &seen, b"onetwothree")
}

fn nonblocking_can_be_turned_on_and_off(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    set_nonblocking(&reader)?;
    expect(
        "a read while it is on",
        read(&reader, &mut [0]),
        Err(Errno::EAGAIN),
    )?;
    set_blocking(&reader)?;
    let child = spawn_keeping("a read while it is off", &[reader.as_fd()], || {
        read_some(&reader, 64).context("read")
    })?;
    child.wait_asleep_in(Call::Read)?;
    write_all(&writer, b"x")?;
    expect_bytes("bytes read", &child.finish()?, b"x")
}

fn a_duplicate_keeps_the_endpoint_open(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    let duplicate = dup(&writer).context("dup")?;
    drop(writer);
    expect(
        "a read while the duplicate is open",
        read(&reader, &mut [0]),
        Err(Errno::EAGAIN),
    )?;
    write_all(&duplicate, b"same")?;
    expect_bytes(
        "bytes written to the duplicate",
        &read_some(&reader, 64).context("read")?,
        b"same",
    )?;
    drop(duplicate);
    expect("a read after it was closed", read(&reader, &mut [0]), Ok(0))
}

/// A child that holds an inherited endpoint without using it.
fn holder(end: &OwnedFd) -> Result<Child<()>> {
    spawn_keeping("a child that holds an end", &[end.as_fd()], || {
        loop {
            std::thread::park();
        }
    })
}

fn a_forked_child_keeps_the_write_end_open(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    let child = holder(&writer)?;
    drop(writer);
    expect(
        "a read while the child lives",
        read(&reader, &mut [0]),
        Err(Errno::EAGAIN),
    )?;
    child.kill()?;
    expect("a read after its end", read(&reader, &mut [0]), Ok(0))
}

fn a_forked_child_keeps_the_read_end_open(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    let child = holder(&reader)?;
    drop(reader);
    expect("a write while the child lives", write(&writer, b"x"), Ok(1))?;
    child.kill()?;
    expect(
        "a write after its end",
        write(&writer, b"x"),
        Err(Errno::EPIPE),
    )
}

/// The kernel checks the flag after the pipe's open, and closes the endpoint again.
fn an_o_direct_open_is_einval_and_leaves_no_endpoint(context: &Context) -> Result<()> {
    // Only open(2) accepts this flag.
    context.channel.path()?;
    let reader = context.channel.open_reader_nonblocking()?;
    let refused = context.channel.open(OFlag::O_RDWR | OFlag::O_DIRECT);
    expect("result of the open", refused.map(drop), Err(Errno::EINVAL))?;
    expect("a read without a writer", read(&reader, &mut [0]), Ok(0))
}

/// On a FIFO, each read then returns one write. Since it is not supported here, fcntl() must not pretend that it is
/// set.
fn packet_mode_is_einval(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    expect(
        "setting O_DIRECT",
        fcntl(&both, FcntlArg::F_SETFL(OFlag::O_DIRECT)),
        Err(Errno::EINVAL),
    )
}

/// SLUICE_PIPE_SET_CAPACITY replaces them.
fn f_getpipe_sz_and_f_setpipe_sz_are_ebadf(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    expect(
        "F_GETPIPE_SZ",
        fcntl(&both, FcntlArg::F_GETPIPE_SZ),
        Err(Errno::EBADF),
    )?;
    expect(
        "F_SETPIPE_SZ",
        fcntl(&both, FcntlArg::F_SETPIPE_SZ(4096)),
        Err(Errno::EBADF),
    )
}

/// All cgroups use the same node: its timestamps would reveal the activity of others.
fn reading_and_writing_do_not_change_timestamps(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let times = || -> Result<_> {
        let stat = fstat(&both).context("fstat")?;
        Ok([
            (stat.st_atime, stat.st_atime_nsec),
            (stat.st_mtime, stat.st_mtime_nsec),
        ])
    };
    let before = times()?;
    wait_grace_period();
    write_all(&both, b"x")?;
    read_some(&both, 1).context("read")?;
    expect("the times after a write and a read", times()?, before)
}

/// A name may contain line breaks; fdinfo escapes them, so that they begin no new line.
fn fdinfo_shows_the_channel(context: &Context) -> Result<()> {
    let end = Ctl::new()?.open(Open::new("two\r\nlines", BOTH | CREATE))?;
    write_all(&end, b"five!")?;
    let path = format!("/proc/self/fdinfo/{}", end.as_raw_fd());
    let lines = fs::read_to_string(&path).context(path)?;
    let cgroup = fs::metadata(context.cgroup()?.path())
        .context("the cgroup")?
        .ino();
    for line in [
        "sluice-kind:\tpipe",
        r"sluice-name:	two\015\012lines",
        &format!("sluice-cgroup:\t{cgroup}"),
        "sluice-access:\trw",
        "sluice-uid:\t0",
        "sluice-readers:\t1",
        "sluice-writers:\t1",
        "sluice-capacity:\t65536",
        "sluice-bytes:\t5",
    ] {
        ensure!(
            lines.lines().any(|one| one == line),
            "no line {line:?} in:\n{lines}"
        );
    }
    Ok(())
}

/// So security modules can tell them apart, and no lock of the inode is shared with other anonymous files.
fn each_endpoint_opened_by_name_has_its_own_inode(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let open = || ctl.open(Open::new("channel", BOTH | CREATE));
    let (one, other) = (open().context("an open")?, open().context("another")?);
    let inode = |end: &OwnedFd| fstat(end).map(|stat| stat.st_ino).context("fstat");
    expect(
        "whether they differ",
        inode(&one)? != inode(&other)?,
        !is_6_1()?,
    )
}
