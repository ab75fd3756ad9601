// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps over generic netlink at the limits of a memory cgroup. A request holds a lock that every other user of generic
//! netlink needs, so it must neither wait for memory of its cgroup nor be slowed down in it.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::unistd::Pid;

use crate::registry::{Context, topic};
use crate::support::check::{expect, skip};
use crate::support::ctl::{BOTH, CREATE};
use crate::support::map::{Maps, NAME, state};
use crate::support::memcg::{Accounts, MemoryMax, lock_memory, memory_current, set_memory_high};
use crate::support::netlink::{Attrs, Request, Socket, VALUE_MAX, attr, command};
use crate::support::time::eventually;

topic!(
    "map_netlink_memory",
    fifo: [],
    pipe_only: [
        requests_are_not_slowed_down_under_the_lock_of_generic_netlink,
        a_request_without_memory_at_once_is_eagain,
        a_worker_makes_room_for_the_next_request,
        a_full_map_tells_first_that_the_version_differs,
    ],
);

const CAPACITY: u64 = 32 << 20;
/// Bytes that a cgroup may have more than it has: a few values.
const ROOM: u64 = 256 << 10;
/// More values than that, and than a processor charges in advance.
const VALUES: u32 = 200;

/// Opens a new map; its handle.
fn create(socket: &Socket) -> Result<u32> {
    let create = Attrs::new().name(NAME).flags(BOTH | CREATE);
    let reply = socket.must(command::OPEN, &create.u64(attr::CAPACITY, CAPACITY))?;
    reply.u32(attr::HANDLE)
}

fn set(handle: u32, number: u32) -> Request {
    let attrs = Attrs::new().handle(handle).key(&number.to_ne_bytes());
    Request::new(command::SET, attrs.value(&[7; VALUE_MAX]))
}

/// Whether a process that sleeps because of its memory cgroup does so in a request.
fn sleeps_for_memory(pid: Pid) -> Option<bool> {
    let stack = fs::read_to_string(format!("/proc/{pid}/stack")).ok()?;
    let limits = [
        "handle_over_high",
        "try_charge",
        "reclaim_high",
        "try_to_free",
    ];
    let sleeps = limits.iter().any(|name| stack.contains(name));
    sleeps.then(|| stack.contains("genl_rcv"))
}

/// A family of a module that is not loaded. Loading it takes the lock of generic netlink for writing, and so waits for a
/// request that sleeps under that lock.
const OTHER_FAMILY: &str = "team";

/// Asks for the other family. ENOENT: this kernel has no such module.
fn ask_for_other_family() -> Result<()> {
    match Socket::to_controller()?.get_family(OTHER_FAMILY)? {
        Ok(_) => Ok(()),
        Err(refusal) => expect("the other family", refusal.errno, Errno::ENOENT),
    }
}

fn requests_are_not_slowed_down_under_the_lock_of_generic_netlink(context: &Context) -> Result<()> {
    // An earlier run may have loaded the module.
    let _ = Command::new("modprobe")
        .args(["--remove", "--quiet", OTHER_FAMILY])
        .status();
    let accounts = Accounts::new(context)?;
    let child = accounts.creator.spawn("the sender", || {
        let socket = Socket::new()?;
        let handle = create(&socket)?;
        let end = Maps::new()?.attach()?;
        let requests: Vec<_> = (0..VALUES).map(|number| set(handle, number)).collect();
        let messages = socket.join(&requests)?;
        lock_memory()?;
        // The requests alone exceed ROOM.
        set_memory_high(&accounts.creator, memory_current(&accounts.creator)? + ROOM)?;
        socket.send_bytes(&messages)?;
        Ok(state(&end)?.entries)
    })?;
    let slowed_down = eventually("the sender is slowed down", || {
        Ok(sleeps_for_memory(child.pid()))
    });
    let answered = ask_for_other_family();
    // It would be slowed down for many seconds.
    set_memory_high(&accounts.creator, 1 << 30)?;
    expect("whether it was in a request", slowed_down?, false)?;
    answered?;
    expect("entries", child.finish()?, VALUES.into())
}

/// Sets values until one is refused: how many were set, and the error.
fn set_until_refused(socket: &Socket, handle: u32) -> Result<(u32, Errno)> {
    for number in 0..VALUES {
        if let Err(refusal) = socket.request(&set(handle, number))? {
            return Ok((number, refusal.errno));
        }
    }
    bail!("all of {VALUES} values have room")
}

/// In a cgroup that has so much room.
fn with_room(
    context: &Context,
    room: u64,
    body: impl FnOnce(&MemoryMax, &Socket, u32) -> Result<()>,
) -> Result<()> {
    let accounts = Accounts::new(context)?;
    let child = accounts.creator.spawn("the sender", || {
        let socket = Socket::new()?;
        let handle = create(&socket)?;
        let max = MemoryMax::open(&accounts.creator)?;
        lock_memory()?;
        // The process has the memory for a request.
        expect("a set", socket.request(&set(handle, 0))?.is_ok(), true)?;
        max.set(memory_current(&accounts.creator)? + room)?;
        body(&max, &socket, handle)
    })?;
    child.finish()?;
    accounts.expect_no_kill()
}

fn a_request_without_memory_at_once_is_eagain(context: &Context) -> Result<()> {
    with_room(context, ROOM, |max, socket, handle| {
        let (count, errno) = set_until_refused(socket, handle)?;
        expect("a set at the limit", errno, Errno::EAGAIN)?;
        max.set(1 << 30)?;
        let set = socket.request(&set(handle, count))?;
        expect("without it", set.is_ok(), true)
    })
}

/// A device whose bytes are in the page cache of whoever reads them.
const DISK: &str = "/dev/disk/by-id/virtio-programs";

fn a_worker_makes_room_for_the_next_request(context: &Context) -> Result<()> {
    const CACHE: u64 = 16 * ROOM;
    if !Path::new(DISK).exists() {
        return Err(skip("no disk of programs; run the suite with vm/run"));
    }
    with_room(context, CACHE, |_, socket, handle| {
        let mut disk = File::open(DISK).context("opening the disk")?;
        // SAFETY: BLKFLSBUF has no argument.
        Errno::result(unsafe { libc::ioctl(disk.as_raw_fd(), BLKFLSBUF, 0) })
            .context("emptying the cache of the disk")?;
        let mut bytes = [0; 4096];
        for _ in 0..2 * CACHE / 4096 {
            disk.read_exact(&mut bytes).context("reading the disk")?;
        }
        let mut refused = 0;
        for number in 0..VALUES / 2 {
            let request = set(handle, number);
            eventually("a set", || match socket.request(&request)? {
                Ok(_) => Ok(Some(())),
                Err(refusal) => {
                    refused += 1;
                    expect("a set", refusal.errno, Errno::EAGAIN).map(|()| None)
                }
            })?;
        }
        ensure!(refused > 0, "the cache did not fill the cgroup");
        Ok(())
    })
}

const BLKFLSBUF: libc::Ioctl = libc::_IO(0x12, 97);

/// Over netlink, too, the version is compared before memory is requested for a longer value.
fn a_full_map_tells_first_that_the_version_differs(_: &Context) -> Result<()> {
    /// More than the log of events on every kernel: with PREEMPT_RT and lockdep its locks are larger.
    const SMALL: u64 = 256 << 10;
    let socket = Socket::new()?;
    let create = Attrs::new().name(NAME).flags(BOTH | CREATE);
    let reply = socket.must(command::OPEN, &create.u64(attr::CAPACITY, SMALL))?;
    let handle = reply.u32(attr::HANDLE)?;
    let set = |number: u32| {
        let attrs = Attrs::new().handle(handle).key(&number.to_ne_bytes());
        attrs.value(&[7; 1000])
    };
    let mut number = 0;
    eventually("the map is full", || {
        while let Ok(result) = socket.request(&Request::new(command::SET, set(number))) {
            match result {
                Ok(_) => number += 1,
                // The log of the map is about to be freed.
                Err(refusal) if refusal.errno == Errno::EAGAIN => return Ok(None),
                Err(refusal) => return expect("a set", refusal.errno, Errno::ENOSPC).map(Some),
            }
        }
        bail!("a request failed")
    })?;
    for (number, version, errno) in [
        (0, u64::MAX, Errno::ESTALE),
        (0, 0, Errno::EEXIST),
        (number, 1, Errno::ENOENT),
    ] {
        let attrs = set(number).u64(attr::IF_VERSION, version);
        let refusal = socket.request(&Request::new(command::SET, attrs))?;
        let refusal = refusal.err().context("a set in a full map")?;
        expect("the error", refusal.errno, errno)?;
    }
    Ok(())
}
