// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers that cannot find each other's channels by name are connected by endpoints that are passed to them.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::{
    CAPACITY, read_all, read_some, read_to_end, set_blocking, set_nonblocking, write_all,
};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn_keeping};
use crate::support::container::{User, spawn_in_container};
use crate::support::crun::{self, Runtime};
use crate::support::ctl::{CREATE, Ctl, EXCL, NONBLOCK, OWN, Open, READ, WRITE};
use crate::support::event::Event;
use crate::support::fd_passing;
use crate::support::random::stream_bytes;

topic!(
    "ctl_fd_passing",
    fifo: [],
    pipe_only: [
        endpoints_passed_over_sockets_connect_two_containers_both_ways,
        endpoints_preserved_by_crun_connect_a_container_both_ways,
        a_shell_connects_two_crun_containers_by_its_default_pipe,
        a_passed_endpoint_outlives_its_sender,
        a_passed_endpoint_outlives_the_cgroup_of_its_scope,
        a_passed_named_endpoint_cannot_be_reopened,
        reopening_a_passed_default_pipe_opens_the_callers_own,
    ],
);

const TOTAL: usize = 8 * CAPACITY;

/// Both endpoints of a new channel in the own cgroup, in blocking mode.
fn ends(name: &str) -> Result<(OwnedFd, OwnedFd)> {
    let ctl = Ctl::new()?;
    let reader = ctl
        .open(Open::new(name, READ | CREATE | EXCL | NONBLOCK))
        .context("the read end")?;
    let writer = ctl.open(Open::new(name, WRITE)).context("the write end")?;
    set_blocking(&reader)?;
    Ok((reader, writer))
}

fn endpoints_passed_over_sockets_connect_two_containers_both_ways(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let (to_left, left_socket) = fd_passing::socket_pair()?;
    let (to_right, right_socket) = fd_passing::socket_pair()?;
    let left = spawn_in_container(
        &home.create_child("left")?,
        User::NamespaceRoot,
        "the left container",
        &[left_socket.as_fd()],
        || {
            let there = fd_passing::receive_fd(&left_socket)?;
            let back = fd_passing::receive_fd(&left_socket)?;
            write_all(&there, &stream_bytes(1, 0, TOTAL))?;
            expect_stream("and back", &read_all(&back, TOTAL)?, 2)
        },
    )?;
    let right = spawn_in_container(
        &home.create_child("right")?,
        User::Nobody,
        "the right container",
        &[right_socket.as_fd()],
        || {
            let there = fd_passing::receive_fd(&right_socket)?;
            let back = fd_passing::receive_fd(&right_socket)?;
            expect_stream("there", &read_all(&there, TOTAL)?, 1)?;
            write_all(&back, &stream_bytes(2, 0, TOTAL))
        },
    )?;
    let (there_reader, there_writer) = ends("there")?;
    let (back_reader, back_writer) = ends("back")?;
    fd_passing::send_fd(&to_left, there_writer.as_fd())?;
    fd_passing::send_fd(&to_left, back_reader.as_fd())?;
    fd_passing::send_fd(&to_right, there_reader.as_fd())?;
    fd_passing::send_fd(&to_right, back_writer.as_fd())?;
    right.finish()?;
    left.finish()
}

/// In the process that has received them: it takes long to pass so many bytes to the parent.
fn expect_stream(what: &str, seen: &[u8], stream: u64) -> Result<()> {
    expect_bytes(what, seen, &stream_bytes(stream, 0, TOTAL))
}

/// A container runtime; its process is in a sibling of the containers' cgroups, below one without processes.
fn runtime(context: &Context) -> Result<Runtime> {
    let home = context.cgroup()?;
    home.create_child("host")?.enter()?;
    Runtime::new(&context.scratch, home)
}

fn endpoints_preserved_by_crun_connect_a_container_both_ways(context: &Context) -> Result<()> {
    let runtime = runtime(context)?;
    let echo = runtime.prepare("echo", 2, "! test -e /dev/sluice && exec cat <&3 >&4")?;
    let (there_reader, there_writer) = ends("there")?;
    let (back_reader, back_writer) = ends("back")?;
    let script = format!("exec {echo} 3<&0 4>&1 </dev/null >/dev/null");
    let container = crun::shell(&script, there_reader, back_writer)?;
    let sent = stream_bytes(3, 0, TOTAL);
    let sender = spawn_keeping("the sender", &[there_writer.as_fd()], || {
        write_all(&there_writer, &sent)
    })?;
    drop(there_writer);
    let echoed = read_to_end(&back_reader)?;
    sender.finish()?;
    crun::expect_success(container)?;
    expect_bytes("bytes returned", &echoed, &sent)
}

fn a_shell_connects_two_crun_containers_by_its_default_pipe(context: &Context) -> Result<()> {
    let runtime = runtime(context)?;
    let original = stream_bytes(4, 0, TOTAL);
    let (from, to) = (context.scratch.join("from"), context.scratch.join("to"));
    fs::write(&from, &original).context("writing a file")?;
    let receiver = runtime.prepare("receiver", 1, "exec cat <&3")?;
    let sender = runtime.prepare("sender", 1, "exec cat >&3")?;
    let pipe = context.channel.path()?.display();
    let script = format!("{receiver} 3<{pipe} & {sender} 3>{pipe} >/dev/null; wait $!");
    let input = File::open(&from).context("opening a file")?;
    let output = File::create(&to).context("creating a file")?;
    crun::expect_success(crun::shell(&script, input.into(), output.into())?)?;
    let copy = fs::read(&to).context("reading the copy")?;
    expect_bytes("the copy", &copy, &original)
}

/// Passes endpoints of a channel from a process in `scope` to two containers. They transfer data after that process has
/// exited and `then` is done.
fn transfer_after_sender_exit(context: &Context, then: fn(&Cgroup) -> Result<()>) -> Result<()> {
    let home = context.cgroup()?;
    let scope = home.create_child("scope")?;
    let (to_reader, reader_socket) = fd_passing::socket_pair()?;
    let (to_writer, writer_socket) = fd_passing::socket_pair()?;
    let go = Event::new()?;
    let reader = spawn_in_container(
        &home.create_child("reader")?,
        User::NamespaceRoot,
        "the reader",
        &[reader_socket.as_fd()],
        || {
            let bytes = read_to_end(&fd_passing::receive_fd(&reader_socket)?)?;
            expect_stream("bytes received", &bytes, 5)
        },
    )?;
    let [go_reader, _] = go.fds();
    let writer = spawn_in_container(
        &home.create_child("writer")?,
        User::Nobody,
        "the writer",
        &[writer_socket.as_fd(), go_reader],
        || {
            let end = fd_passing::receive_fd(&writer_socket)?;
            go.wait("the sender has exited")?;
            write_all(&end, &stream_bytes(5, 0, TOTAL))
        },
    )?;
    send_ends(&scope, &to_reader, &to_writer)?.finish()?;
    then(&scope)?;
    go.notify()?;
    writer.finish()?;
    reader.finish()
}

fn send_ends(scope: &Cgroup, to_reader: &OwnedFd, to_writer: &OwnedFd) -> Result<Child<()>> {
    spawn_keeping(
        "the sender",
        &[to_reader.as_fd(), to_writer.as_fd()],
        || {
            scope.enter()?;
            let (reader, writer) = ends("channel")?;
            fd_passing::send_fd(to_reader, reader.as_fd())?;
            fd_passing::send_fd(to_writer, writer.as_fd())
        },
    )
}

fn a_passed_endpoint_outlives_its_sender(context: &Context) -> Result<()> {
    transfer_after_sender_exit(context, |_| Ok(()))
}

fn a_passed_endpoint_outlives_the_cgroup_of_its_scope(context: &Context) -> Result<()> {
    transfer_after_sender_exit(context, Cgroup::remove)
}

fn a_passed_named_endpoint_cannot_be_reopened(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let (reader, writer) = ends("above")?;
    for user in User::ALL {
        let cgroup = home.create_child(&format!("{user:?}"))?;
        let container =
            spawn_in_container(&cgroup, user, "a container", &[writer.as_fd()], || {
                let ctl = Ctl::new()?;
                let found = ctl.attach(OWN, "above").map(drop);
                expect("its name", found, Err(Errno::ENOENT))?;
                let scope = writer.as_raw_fd();
                let found = ctl.attach(scope, "above").map(drop);
                expect("as a scope", found, Err(Errno::EBADF))?;
                // ENXIO, or EACCES if the kernel does not consider the process the owner of the anonymous file.
                let reopened = reopen(&writer, OFlag::O_RDWR).is_ok();
                expect("whether it opens by /proc", reopened, false)?;
                write_all(&writer, b"passed")
            })?;
        container.finish()?;
        expect_bytes("bytes written", &read_some(&reader, 64)?, b"passed")?;
    }
    Ok(())
}

fn reopening_a_passed_default_pipe_opens_the_callers_own(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let end = context.channel.open_read_write()?;
    set_nonblocking(&end)?;
    write_all(&end, b"of the host")?;
    for user in User::ALL {
        let cgroup = home.create_child(&format!("{user:?}"))?;
        let container = spawn_in_container(&cgroup, user, "a container", &[end.as_fd()], || {
            let own = reopen(&end, OFlag::O_RDWR | OFlag::O_NONBLOCK).context("by /proc")?;
            let seen = read_some(&own, 64);
            expect("a read of its own pipe", seen, Err(Errno::EAGAIN))?;
            write_all(&own, b"of the container")
        })?;
        container.finish()?;
    }
    let left = read_some(&end, 64).context("reading")?;
    expect_bytes("bytes in the host's pipe", &left, b"of the host")
}

fn reopen(end: &OwnedFd, flags: OFlag) -> nix::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", end.as_raw_fd());
    open(path.as_str(), flags | OFlag::O_CLOEXEC, Mode::empty())
}
