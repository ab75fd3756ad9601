// SPDX-License-Identifier: MIT OR Apache-2.0
//! SLUICE_CTL_DESTROY ends a pipe under its users: calls fail, blocked ones included, and the bytes are discarded.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::{EpollFlags, EpollTimeout};
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use nix::unistd::{read, write};
use serde::{Serialize, de::DeserializeOwned};

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::{
    CAPACITY, fill, read_all, read_nowait, read_some, set_blocking, set_nonblocking, write_all,
    write_nowait,
};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn, spawn_keeping};
use crate::support::controller::Controller;
use crate::support::credentials::{become_namespaces_root, become_user};
use crate::support::ctl::{
    BOTH, CREATE, Ctl, DESTROY, EXCL, NONBLOCK, OWN, Open, PERSIST, READ, Unlink, WRITE,
    expect_no_channel,
};
use crate::support::fault_blocked::{FaultBlocked, spawn_fault_blocked};
use crate::support::ioctl::{self, SET_CAPACITY, SET_SPIN, raw};
use crate::support::kernel::mark_log;
use crate::support::memcg::{account_memory_of_children, memory_current};
use crate::support::memory::{PAGE, read_at, write_at};
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::random::stream_bytes;
use crate::support::signals;
use crate::support::time::{Deadline, event_timeout, eventually};
use crate::support::vfs_pipe::{self, move_all, move_bytes, move_bytes_nonblocking, pipe};

topic!(
    "ctl_destroy",
    fifo: [],
    pipe_only: [
        every_later_call_fails,
        a_blocked_read_fails,
        a_blocked_write_fails,
        a_write_raises_sigpipe,
        a_blocked_open_fails,
        a_blocked_poll_ends,
        a_blocked_epoll_wait_ends,
        a_blocked_splice_out_fails,
        a_splice_blocked_by_its_full_target_fails_when_there_is_room,
        a_blocked_splice_in_fails,
        sigio_reports_it,
        the_name_is_free_at_once,
        a_persistent_channel_is_freed,
        endpoints_that_are_closed_afterwards_free_the_channel,
        a_destroyed_or_unlinked_channel_is_enoent,
        an_invalid_argument_is_einval_and_changes_nothing,
        the_owner_and_administrators_may_destroy,
        a_caller_outside_the_scope_may_not_destroy,
        pages_spliced_out_remain_valid,
        the_memory_of_unread_bytes_is_freed_at_once,
        a_reader_in_a_page_fault_delays_only_the_freeing,
        a_writer_in_a_page_fault_delays_only_the_freeing,
        the_last_of_both_sides_in_page_faults_frees_the_memory,
        a_resize_behind_a_page_fault_fails,
        destroying_pipes_in_use_leaves_no_memory,
        concurrent_operations_get_documented_errors_and_leak_nothing,
    ],
);

const NAME: &str = "channel";
const EPIPE: Result<usize, i32> = Err(Errno::EPIPE as i32);
const MIB: usize = 1 << 20;

/// A read-write endpoint of a new channel that is not persistent.
fn create(ctl: &Ctl) -> Result<OwnedFd> {
    ctl.create(NAME).context("creating the channel")
}

fn destroy(ctl: &Ctl) -> Result<()> {
    ctl.destroy(OWN, NAME).context("destroying it")
}

/// A result that a child can report.
fn reported(result: nix::Result<usize>) -> Result<usize, i32> {
    result.map_err(|errno| errno as i32)
}

/// Runs `body` in a child with an endpoint of its own until it is blocked in `call`.
fn blocked<T: Serialize + DeserializeOwned>(
    call: Call,
    keep: &[&OwnedFd],
    body: impl FnOnce(OwnedFd) -> Result<T>,
) -> Result<Child<T>> {
    let keep: Vec<_> = keep.iter().map(|fd| fd.as_fd()).collect();
    let child = spawn_keeping(&format!("a child in {call:?}"), &keep, || {
        body(Ctl::new()?.attach(OWN, NAME).context("attaching")?)
    })?;
    child.wait_asleep_in(call)?;
    Ok(child)
}

/// Fills the pipe; its endpoint stays in blocking mode.
fn fill_blocking(pipe: &OwnedFd) -> Result<usize> {
    set_nonblocking(pipe)?;
    let filled = fill(pipe, b'x')?;
    set_blocking(pipe)?;
    Ok(filled)
}

fn expect_reads_fail(end: &OwnedFd) -> Result<()> {
    let (_out, into) = pipe()?;
    let epipe = Err(Errno::EPIPE);
    expect("a read", read(end, &mut [0; 10]), epipe)?;
    expect("a read of 0 bytes", read(end, &mut []), Ok(0))?;
    let seen = read_nowait(end, 10).map(|bytes| bytes.len());
    expect("a read with RWF_NOWAIT", seen, epipe)?;
    expect("a splice out", move_bytes(end, &into, 10), epipe)?;
    let spliced = move_bytes_nonblocking(end, &into, 10);
    expect("a non-blocking splice out", spliced, epipe)
}

fn expect_writes_fail(end: &OwnedFd) -> Result<()> {
    let (out, into) = pipe()?;
    write_all(&into, b"bytes to splice in")?;
    let epipe = Err(Errno::EPIPE);
    expect("a write", write(end, b"x"), epipe)?;
    expect("a long write", write(end, &[0; 2 * CAPACITY]), epipe)?;
    expect("a write of 0 bytes", write(end, &[]), Ok(0))?;
    let seen = write_nowait(end, b"x");
    expect("a write with RWF_NOWAIT", seen, epipe)?;
    expect("a splice in", move_bytes(&out, end, 10), epipe)?;
    let spliced = move_bytes_nonblocking(&out, end, 10);
    expect("a non-blocking splice in", spliced, epipe)
}

/// Checks all calls on an endpoint of a destroyed pipe.
fn expect_destroyed(end: &OwnedFd) -> Result<()> {
    signals::ignore_sigpipe()?;
    expect("poll", poll::state(end)?, "ERR|HUP".to_owned())?;
    let access = OFlag::from_bits_retain(fcntl(end, FcntlArg::F_GETFL)?) & OFlag::O_ACCMODE;
    for set_mode in [set_blocking, set_nonblocking] {
        set_mode(end)?;
        if access != OFlag::O_WRONLY {
            expect_reads_fail(end)?;
        }
        if access != OFlag::O_RDONLY {
            expect_writes_fail(end)?;
        }
    }
    expect("FIONREAD", ioctl::bytes_waiting(end), Ok(0))?;
    let info = ioctl::info(end).context("info")?;
    let seen = (info.bytes, info.readers, info.writers);
    expect("bytes and endpoints in info", seen, (0, 0, 0))?;
    for capacity in [info.capacity, 2 * info.capacity] {
        let set = ioctl::set(end, SET_CAPACITY, capacity);
        expect("setting the capacity", set, Err(Errno::EPIPE))?;
    }
    expect("SET_SPIN", ioctl::set(end, SET_SPIN, 0), Ok(0))
}

fn every_later_call_fails(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for bytes in [0, 100, CAPACITY] {
        let both = create(&ctl)?;
        let reader = ctl.open(Open::new(NAME, READ))?;
        let writer = ctl.open(Open::new(NAME, WRITE))?;
        write_all(&both, &vec![b'x'; bytes])?;
        destroy(&ctl)?;
        for end in [&both, &reader, &writer] {
            expect_destroyed(end).with_context(|| format!("with {bytes} bytes in it"))?;
        }
    }
    expect_no_channel(&ctl)
}

fn a_blocked_read_fails(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let _both = create(&ctl)?;
    // The first is woken by an event, the second by the first or by an event that concerns all.
    let read = || blocked(Call::Read, &[], |fd| Ok(reported(read(&fd, &mut [0]))));
    let readers = [read()?, read()?];
    destroy(&ctl)?;
    for reader in readers {
        expect("the blocked read", reader.finish()?, EPIPE)?;
    }
    Ok(())
}

fn a_blocked_write_fails(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let both = create(&ctl)?;
    fill_blocking(&both)?;
    let write = || {
        blocked(Call::Write, &[], |fd| {
            signals::ignore_sigpipe()?;
            Ok(reported(write(&fd, &[0; PAGE])))
        })
    };
    let writers = [write()?, write()?];
    destroy(&ctl)?;
    for writer in writers {
        expect("the blocked write", writer.finish()?, EPIPE)?;
    }
    Ok(())
}

fn a_write_raises_sigpipe(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let both = create(&ctl)?;
    fill_blocking(&both)?;
    let writer = blocked(Call::Write, &[], |fd| {
        signals::restore_default(Signal::SIGPIPE)?;
        write(&fd, b"x").context("write")
    })?;
    let pid = writer.pid();
    destroy(&ctl)?;
    expect(
        "its exit status",
        writer.wait_end()?,
        WaitStatus::Signaled(pid, Signal::SIGPIPE, false),
    )
}

fn a_blocked_open_fails(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for side in [READ, WRITE] {
        for more in [0, EXCL, PERSIST] {
            let opener = spawn("an open by name", || {
                let opened = Ctl::new()?.open(Open::new(NAME, side | CREATE | more));
                Ok(reported(opened.map(|_| 0)))
            })?;
            opener.wait_asleep_in(Call::Ioctl)?;
            destroy(&ctl)?;
            let what = format!("the blocked open with flags {:#x}", side | more);
            expect(&what, opener.finish()?, EPIPE)?;
            expect_no_channel(&ctl)?;
        }
    }
    Ok(())
}

fn a_blocked_poll_ends(_: &Context) -> Result<()> {
    for (side, events) in [(READ, poll::IN), (WRITE, poll::OUT), (BOTH, 0)] {
        let ctl = Ctl::new()?;
        let both = create(&ctl)?;
        if side == WRITE {
            fill_blocking(&both)?;
        }
        let poller = spawn("a poll", || {
            let end = Ctl::new()?.open(Open::new(NAME, side))?;
            Ok(poll::name(poll::wait(&end, events, -1)?))
        })?;
        poller.wait_asleep_in(Call::Poll)?;
        destroy(&ctl)?;
        expect("the events", poller.finish()?, "ERR|HUP".to_owned())?;
    }
    Ok(())
}

/// A reader that never had a writer, and therefore gets no hang-up when one leaves, and edge-triggered and exclusive waiters.
fn a_blocked_epoll_wait_ends(_: &Context) -> Result<()> {
    let reads = EpollFlags::EPOLLIN;
    for flags in [
        reads,
        reads | EpollFlags::EPOLLET,
        reads | EpollFlags::EPOLLEXCLUSIVE,
    ] {
        let ctl = Ctl::new()?;
        let _reader = ctl.open(Open::new(NAME, READ | CREATE | NONBLOCK))?;
        let waiter = spawn("an epoll_wait", || {
            let end = Ctl::new()?.open(Open::new(NAME, READ | NONBLOCK))?;
            let epoll = poll::epoll_on(&end, flags)?;
            let event = poll::epoll_event(&epoll, EpollTimeout::NONE)?;
            Ok(event.context("no event")?.bits())
        })?;
        waiter.wait_asleep_in(Call::Epoll)?;
        destroy(&ctl)?;
        let expected = EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        let what = format!("the events for {flags:?}");
        expect(&what, waiter.finish()?, expected.bits())?;
    }
    Ok(())
}

fn a_blocked_splice_out_fails(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let _both = create(&ctl)?;
    let (_out, into) = pipe()?;
    let mover = blocked(Call::Splice, &[&into], |fd| {
        Ok(reported(move_bytes(&fd, &into, 10)))
    })?;
    destroy(&ctl)?;
    expect("the blocked splice", mover.finish()?, EPIPE)
}

/// It sleeps in the kernel's own wait for its target, before it reaches this pipe.
fn a_splice_blocked_by_its_full_target_fails_when_there_is_room(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let both = create(&ctl)?;
    write_all(&both, &[b'x'; PAGE])?;
    let (out, into) = pipe()?;
    set_nonblocking(&into)?;
    let filled = fill(&into, b'y')?;
    set_blocking(&into)?;
    let mover = blocked(Call::Splice, &[&into], |fd| {
        Ok(reported(move_bytes(&fd, &into, 10)))
    })?;
    destroy(&ctl)?;
    expect_bytes("the target", &read_all(&out, filled)?, &vec![b'y'; filled])?;
    expect("the blocked splice", mover.finish()?, EPIPE)?;
    expect("bytes in the target", ioctl::bytes_waiting(&out), Ok(0))
}

fn a_blocked_splice_in_fails(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let both = create(&ctl)?;
    fill_blocking(&both)?;
    let (out, into) = pipe()?;
    write_all(&into, &[b'y'; PAGE])?;
    let mover = blocked(Call::Splice, &[&out], |fd| {
        signals::ignore_sigpipe()?;
        Ok(reported(move_bytes(&out, &fd, PAGE)))
    })?;
    destroy(&ctl)?;
    expect("the blocked splice", mover.finish()?, EPIPE)?;
    let kept = read_all(&out, PAGE)?;
    expect_bytes("the bytes of the source", &kept, &[b'y'; PAGE])
}

/// The child is terminated by SIGIO while it waits for something else.
fn sigio_reports_it(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let _both = create(&ctl)?;
    let (never, _kept) = pipe()?;
    let owner = blocked(Call::Read, &[&never], |fd| {
        signals::restore_default(Signal::SIGIO)?;
        // SAFETY: changes only the owner of this endpoint.
        let owned = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETOWN, libc::getpid()) };
        Errno::result(owned).context("F_SETOWN")?;
        fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_ASYNC)).context("O_ASYNC")?;
        read(&never, &mut [0]).context("read")
    })?;
    let pid = owner.pid();
    destroy(&ctl)?;
    expect(
        "its exit status",
        owner.wait_end()?,
        WaitStatus::Signaled(pid, Signal::SIGIO, false),
    )
}

fn the_name_is_free_at_once(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let old = create(&ctl)?;
    destroy(&ctl)?;
    let new = create(&ctl)?;
    write_all(&new, b"new")?;
    expect_destroyed(&old)?;
    expect_bytes("bytes of the new one", &read_some(&new, 10)?, b"new")?;
    drop(old);
    expect("names", ctl.names(OWN), Ok(vec![NAME.into()]))
}

fn a_persistent_channel_is_freed(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let both = ctl.open(Open::new(NAME, BOTH | CREATE | PERSIST))?;
    write_all(&both, b"kept until now")?;
    drop(both);
    destroy(&ctl)?;
    expect_no_channel(&ctl)
}

fn endpoints_that_are_closed_afterwards_free_the_channel(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let both = ctl.open(Open::new(NAME, BOTH | CREATE | PERSIST))?;
    let reader = ctl.open(Open::new(NAME, READ))?;
    let writer = ctl.open(Open::new(NAME, WRITE))?;
    destroy(&ctl)?;
    drop(reader);
    expect_destroyed(&both)?;
    drop(writer);
    expect_destroyed(&both)?;
    drop(both);
    expect_no_channel(&ctl)
}

fn a_destroyed_or_unlinked_channel_is_enoent(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let enoent = Err(Errno::ENOENT);
    expect("one that never existed", ctl.destroy(OWN, NAME), enoent)?;
    let first = create(&ctl)?;
    destroy(&ctl)?;
    expect("a destroyed one", ctl.destroy(OWN, NAME), enoent)?;
    expect("unlinking it", ctl.unlink(OWN, NAME), enoent)?;
    drop(first);
    let second = create(&ctl)?;
    ctl.unlink(OWN, NAME).context("unlinking")?;
    expect("an unlinked one", ctl.destroy(OWN, NAME), enoent)?;
    write_all(&second, b"still there")?;
    let kept = read_some(&second, 64)?;
    expect_bytes("its bytes", &kept, b"still there")
}

fn an_invalid_argument_is_einval_and_changes_nothing(context: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let both = create(&ctl)?;
    let default = context.channel.open_read_write()?;
    let size = Unlink::new(OWN, NAME).size;
    let mut requests = vec![Unlink::new(OWN, "")];
    let mut request = |change: &dyn Fn(&mut Unlink)| {
        let mut request = Unlink::new(OWN, NAME);
        change(&mut request);
        requests.push(request);
    };
    for bit in 0..32 {
        request(&|request| request.flags = 1 << bit);
    }
    for kind in [0, 63, 64, u32::MAX] {
        request(&|request| request.kind = kind);
    }
    for size in [0, size - 1] {
        request(&|request| request.size = size);
    }
    for mut request in requests {
        let seen = raw(&ctl, DESTROY, &mut request);
        expect(&format!("{request:?}"), seen, Err(Errno::EINVAL))?;
    }
    let mut above = Unlink::new(OWN, NAME);
    above.size = u32::MAX;
    let seen = raw(&ctl, DESTROY, &mut above);
    expect("a size above a page", seen, Err(Errno::E2BIG))?;
    for end in [&both, &default] {
        write_all(end, b"still there")?;
        expect_bytes("bytes", &read_some(end, 64)?, b"still there")?;
    }
    Ok(())
}

const OWNER: u32 = 1001;
const OTHER: u32 = 1002;

/// The result of destroying it after `change_credentials`.
fn destroy_as(change_credentials: impl FnOnce() -> Result<()>) -> Result<Result<(), i32>> {
    let child = spawn("a process that destroys", || {
        change_credentials()?;
        let destroyed = Ctl::new()?.destroy(OWN, NAME);
        Ok(destroyed.map_err(|errno| errno as i32))
    })?;
    child.finish()
}

/// A persistent channel of this user that everyone may open.
fn create_as(user: u32) -> Result<()> {
    let creator = spawn("the owner", || {
        become_user(user)?;
        let request = Open::new(NAME, BOTH | CREATE | EXCL | PERSIST);
        let made = Ctl::new()?.open(Open {
            mode: 0o777,
            ..request
        });
        made.map(drop).context("creating the channel")
    })?;
    creator.finish()
}

/// As for unlink; the mode of the channel gives no permission.
fn the_owner_and_administrators_may_destroy(_: &Context) -> Result<()> {
    const EPERM: Result<(), i32> = Err(Errno::EPERM as i32);
    let ctl = Ctl::new()?;
    create_as(OWNER)?;
    let end = ctl.attach(OWN, NAME).context("attaching")?;
    expect("another user", destroy_as(|| become_user(OTHER))?, EPERM)?;
    let seen = destroy_as(|| become_namespaces_root(OTHER))?;
    expect("another user in its own namespaces", seen, EPERM)?;
    write_all(&end, b"still there")?;
    expect("names", ctl.names(OWN), Ok(vec![NAME.into()]))?;
    expect("the owner", destroy_as(|| become_user(OWNER))?, Ok(()))?;
    expect_destroyed(&end)?;
    drop(end);
    create_as(OWNER)?;
    let seen = destroy_as(|| become_namespaces_root(OWNER))?;
    expect("the owner in its own namespaces", seen, Ok(()))?;
    create_as(OWNER)?;
    expect("an administrator", destroy_as(|| Ok(()))?, Ok(()))?;
    expect_no_channel(&ctl)
}

fn a_caller_outside_the_scope_may_not_destroy(context: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let home = context.cgroup()?;
    let (scope, outside) = (home.create_child("scope")?, home.create_child("outside")?);
    let directory = scope.directory()?;
    let end = ctl.create_in(directory.as_raw_fd(), NAME)?;
    let attempt = |user: Option<u32>, name: &str| -> Result<Result<(), i32>> {
        let child = spawn_keeping("a process outside", &[directory.as_fd()], || {
            outside.enter()?;
            if let Some(user) = user {
                become_user(user)?;
            }
            let destroyed = Ctl::new()?.destroy(directory.as_raw_fd(), name);
            Ok(destroyed.map_err(|errno| errno as i32))
        })?;
        child.finish()
    };
    let eacces = Err(Errno::EACCES as i32);
    expect("a user", attempt(Some(OTHER), NAME)?, eacces)?;
    expect("a missing name", attempt(Some(OTHER), "none")?, eacces)?;
    write_all(&end, b"still there")?;
    expect("an administrator", attempt(None, NAME)?, Ok(()))?;
    expect_destroyed(&end)
}

/// Other pipes are filled afterwards, which would overwrite the pages if they had been freed.
fn pages_spliced_out_remain_valid(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let both = create(&ctl)?;
    let (out, into) = pipe()?;
    let bytes = stream_bytes(1, 0, CAPACITY);
    write_all(&both, &bytes)?;
    move_all(&both, &into, CAPACITY)?;
    let moved = ioctl::info(&both)?.pages_spliced_out;
    expect("pages moved", moved, (CAPACITY / PAGE) as u64)?;
    write_all(&both, &[b'x'; PAGE])?;
    destroy(&ctl)?;
    let mut others = Vec::new();
    for number in 0..32 {
        let other = ctl.create(format!("other-{number}"))?;
        fill_blocking(&other)?;
        others.push(other);
    }
    expect_bytes("the pages", &read_all(&out, CAPACITY)?, &bytes)
}

/// A pipe of 1 MiB in a cgroup of its own, whose memory is accounted.
struct Accounted {
    cgroup: Cgroup,
    /// Before the first pipe.
    empty: u64,
    _controller: Controller,
}

impl Accounted {
    /// Memory that CPUs may hold pre-charged.
    const SLACK: u64 = (MIB / 2) as u64;

    fn new(context: &Context) -> Result<Self> {
        let home = context.cgroup()?;
        let controller = account_memory_of_children(home)?;
        let cgroup = home.create_child("creator")?;
        let empty = memory_current(&cgroup)?;
        Ok(Accounted {
            cgroup,
            empty,
            _controller: controller,
        })
    }

    /// Creates the pipe in a process in the cgroup, and fills it.
    fn create_full(&self) -> Result<OwnedFd> {
        let creator = self.cgroup.spawn("the creator", || {
            let request = Open::new(NAME, BOTH | CREATE | EXCL | PERSIST);
            let created = Ctl::new()?.open(Open {
                capacity: MIB as u64,
                ..request
            });
            created.map(drop).context("creating the pipe")
        })?;
        creator.finish()?;
        let pipe = self.open()?;
        expect("bytes written", fill_blocking(&pipe)?, MIB)?;
        let charged = memory_current(&self.cgroup)?;
        ensure!(
            charged + Self::SLACK >= self.empty + MIB as u64,
            "only {charged} bytes are charged, {} before",
            self.empty
        );
        Ok(pipe)
    }

    fn open(&self) -> Result<OwnedFd> {
        let directory = self.cgroup.directory()?;
        let opened = Ctl::new()?.attach(directory.as_raw_fd(), NAME);
        opened.context("opening the pipe")
    }

    /// In a child, so that a call that blocks fails the test.
    fn destroy(&self) -> Result<()> {
        let directory = self.cgroup.directory()?;
        let child = spawn_keeping("a process that destroys", &[directory.as_fd()], || {
            let destroyed = Ctl::new()?.destroy(directory.as_raw_fd(), NAME);
            destroyed.context("destroying it")
        })?;
        child.finish()
    }

    fn expect_charged(&self) -> Result<()> {
        let now = memory_current(&self.cgroup)?;
        ensure!(
            now > self.empty + Self::SLACK,
            "{now} bytes are charged, {} before the pipe; its pages are in use",
            self.empty
        );
        Ok(())
    }

    fn expect_uncharged(&self) -> Result<()> {
        eventually("the creator's cgroup is uncharged", || {
            Ok((memory_current(&self.cgroup)? <= self.empty + Self::SLACK).then_some(()))
        })
    }

    fn faulting_reader(&self) -> Result<FaultBlocked<Result<usize, i32>>> {
        spawn_fault_blocked("a reader in a page fault", 0, |buffer| {
            let end = self.open()?;
            Ok(reported(read_at(&end, buffer.start(), buffer.len())))
        })
    }

    fn faulting_writer(&self) -> Result<FaultBlocked<Result<usize, i32>>> {
        spawn_fault_blocked("a writer in a page fault", 0, |buffer| {
            signals::ignore_sigpipe()?;
            let end = self.open()?;
            Ok(reported(write_at(&end, buffer.start(), buffer.len())))
        })
    }
}

/// The endpoint stays open.
fn the_memory_of_unread_bytes_is_freed_at_once(context: &Context) -> Result<()> {
    let accounted = Accounted::new(context)?;
    let pipe = accounted.create_full()?;
    accounted.destroy()?;
    accounted.expect_uncharged()?;
    expect_destroyed(&pipe)
}

/// In a child, so that a call that blocks behind the page fault fails the test.
fn expect_destroyed_in_child(pipe: &OwnedFd) -> Result<()> {
    let child = spawn_keeping("calls beside a page fault", &[pipe.as_fd()], || {
        expect_destroyed(pipe)
    })?;
    child.finish()
}

fn a_reader_in_a_page_fault_delays_only_the_freeing(context: &Context) -> Result<()> {
    let accounted = Accounted::new(context)?;
    let pipe = accounted.create_full()?;
    let reader = accounted.faulting_reader()?;
    accounted.destroy()?;
    reader.expect_still_blocked()?;
    accounted.expect_charged()?;
    expect_destroyed_in_child(&pipe)?;
    expect("the read in progress", reader.resume()?, EPIPE)?;
    accounted.expect_uncharged()?;
    expect_destroyed(&pipe)
}

fn a_writer_in_a_page_fault_delays_only_the_freeing(context: &Context) -> Result<()> {
    let accounted = Accounted::new(context)?;
    let pipe = accounted.create_full()?;
    read_all(&pipe, 2 * PAGE)?;
    let writer = accounted.faulting_writer()?;
    accounted.destroy()?;
    writer.expect_still_blocked()?;
    accounted.expect_charged()?;
    expect_destroyed_in_child(&pipe)?;
    expect("the write in progress", writer.resume()?, EPIPE)?;
    accounted.expect_uncharged()?;
    expect_destroyed(&pipe)
}

fn the_last_of_both_sides_in_page_faults_frees_the_memory(context: &Context) -> Result<()> {
    let accounted = Accounted::new(context)?;
    for reader_first in [true, false] {
        let pipe = accounted.create_full()?;
        read_all(&pipe, 2 * PAGE)?;
        let reader = accounted.faulting_reader()?;
        let writer = accounted.faulting_writer()?;
        accounted.destroy()?;
        let (first, last) = match reader_first {
            true => (reader, writer),
            false => (writer, reader),
        };
        expect("the first call in progress", first.resume()?, EPIPE)?;
        last.expect_still_blocked()?;
        accounted.expect_charged()?;
        expect_destroyed_in_child(&pipe)?;
        expect("the last call in progress", last.resume()?, EPIPE)?;
        accounted.expect_uncharged()?;
    }
    Ok(())
}

/// It waits for the mutex, for which nothing can wake it but its holder or a signal.
fn a_resize_behind_a_page_fault_fails(context: &Context) -> Result<()> {
    let accounted = Accounted::new(context)?;
    let pipe = accounted.create_full()?;
    let reader = accounted.faulting_reader()?;
    let resizer = spawn_keeping("a resize", &[pipe.as_fd()], || {
        let resized = ioctl::set(&pipe, SET_CAPACITY, 2 * MIB as u64);
        Ok(reported(resized.map(|bytes| bytes as usize)))
    })?;
    resizer.wait_asleep_in(Call::Ioctl)?;
    accounted.destroy()?;
    expect("the read in progress", reader.resume()?, EPIPE)?;
    expect("the resize", resizer.finish()?, EPIPE)?;
    accounted.expect_uncharged()
}

/// Reads, writes, splices or resizes until the pipe is destroyed.
fn use_until_destroyed(pipe: &OwnedFd, side: usize) -> Result<()> {
    signals::ignore_sigpipe()?;
    let (out, into) = vfs_pipe::pipe()?;
    let mut buffer = [0; 3 * PAGE];
    for round in 0u64.. {
        let result = match side {
            0 => read(pipe, &mut buffer),
            1 => write(pipe, &buffer),
            2 => write(pipe, &buffer[..100]),
            3 => move_bytes_nonblocking(pipe, &into, PAGE).and_then(|_| read(&out, &mut buffer)),
            _ => ioctl::set(pipe, SET_CAPACITY, (MIB as u64) << (round % 2)).map(|_| 0),
        };
        match result {
            Ok(_) | Err(Errno::EAGAIN | Errno::EBUSY) => {}
            Err(Errno::EPIPE) => return Ok(()),
            Err(error) => return Err(error).with_context(|| format!("side {side}")),
        }
    }
    Ok(())
}

/// The endpoint stays open while the memory is checked.
fn destroying_pipes_in_use_leaves_no_memory(context: &Context) -> Result<()> {
    const ROUNDS: u64 = 12;
    let accounted = Accounted::new(context)?;
    let mut random = Rng::with_seed(1);
    for round in 0..ROUNDS {
        let what = || format!("round {round}");
        let pipe = accounted.create_full()?;
        let users: Result<Vec<Child<()>>> = (0..5)
            .map(|side| {
                spawn_keeping("a user of the pipe", &[pipe.as_fd()], || {
                    use_until_destroyed(&pipe, side)
                })
            })
            .collect();
        sleep(Duration::from_micros(random.u64(..2000)));
        accounted.destroy()?;
        for user in users? {
            user.finish().with_context(what)?;
        }
        accounted.expect_uncharged().with_context(what)?;
        expect_destroyed(&pipe).with_context(what)?;
    }
    Ok(())
}

/// Until the deadline: opens the pipe, which may block until it is destroyed, reads or writes, and closes it. Returns the
/// number of opens that succeeded and of those that failed.
fn open_and_use(flags: u32, length: Duration) -> Result<(u64, u64)> {
    signals::ignore_sigpipe()?;
    let ctl = Ctl::new()?;
    let deadline = Deadline::after(length);
    let mut random = Rng::with_seed(u64::from(flags));
    let (mut opened, mut failed) = (0, 0);
    while !deadline.passed() {
        let persist = [0, PERSIST][random.usize(..2)];
        let end = match ctl.open(Open::new(NAME, flags | CREATE | persist)) {
            Ok(end) => end,
            Err(Errno::EPIPE) => {
                failed += 1;
                continue;
            }
            Err(error) => return Err(error).context("an open"),
        };
        opened += 1;
        for _ in 0..random.usize(..20) {
            let result = match flags & WRITE {
                0 => read(&end, &mut [0; 1000]),
                _ => write(&end, &[0; 1000]),
            };
            match result {
                Ok(_) => {}
                Err(Errno::EPIPE | Errno::EAGAIN) => break,
                Err(error) => return Err(error).context("a read or write"),
            }
        }
    }
    Ok((opened, failed))
}

/// Other processes open, use and close the pipe, and look at it.
fn concurrent_operations_get_documented_errors_and_leak_nothing(context: &Context) -> Result<()> {
    let length = context.durations.races;
    let user = |what: &str, flags: u32| spawn(what, move || open_and_use(flags, length));
    let users = [
        user("a reader", READ)?,
        user("a writer", WRITE)?,
        user("another writer", WRITE)?,
        user("a user of both sides", BOTH | NONBLOCK)?,
    ];
    let ctl = Ctl::new()?;
    let deadline = Deadline::after(length + event_timeout());
    let mut destroyed = 0;
    // Ends the opens that block at the end, too.
    while !users
        .iter()
        .all(|user| user.has_ended().unwrap_or(true) || deadline.passed())
    {
        match ctl.destroy(OWN, NAME) {
            Ok(()) => destroyed += 1,
            Err(Errno::ENOENT) => {}
            Err(error) => return Err(error).context("destroying it"),
        }
        match ctl.info(OWN, NAME) {
            Ok(_) | Err(Errno::ENOENT) => {}
            Err(error) => return Err(error).context("info"),
        }
    }
    let mut failed = 0;
    for user in users {
        let (some, none) = user.finish()?;
        ensure!(some > 0, "a user never opened the pipe");
        failed += none;
    }
    ensure!(destroyed > 0, "the pipe was never destroyed");
    ensure!(failed > 0, "no open met the destruction of the pipe");
    mark_log(&format!("{destroyed} destroyed, {failed} opens failed"));
    // The last one may be persistent.
    let last = ctl.destroy(OWN, NAME);
    ensure!(
        matches!(last, Ok(()) | Err(Errno::ENOENT)),
        "destroying the last one: {last:?}"
    );
    expect_no_channel(&ctl)
}
