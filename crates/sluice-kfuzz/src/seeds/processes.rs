// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users, cgroups and processes: other credentials in a thread, another cgroup, forks, and descriptors that are passed.

use sluice_abi::{
    KIND_BUS, KIND_FEED, KIND_MAP, KIND_PIPE, KIND_RING, OPEN_ANY_OWNER, SCOPE_ROOT, ring,
};

use super::calls::*;
use crate::program::{Call, Content, Value};
use crate::worker::USER;

pub fn all() -> Vec<Vec<Call>> {
    vec![
        other_user(),
        limits(),
        other_cgroup(),
        removed_cgroup(),
        fork(),
        namespaces(),
        passed_descriptor(),
    ]
}

fn path(text: &str) -> Value {
    bytes(&[text.as_bytes(), b"\0"].concat())
}

fn enter(folder: &str) -> Call {
    call("enter", 0, vec![path(folder)])
}

/// Opens the directory of a cgroup, by which calls name its scope.
fn directory(to: u8, folder: &str) -> Call {
    let flags = libc::O_DIRECTORY | libc::O_CLOEXEC;
    let arguments = vec![
        n(libc::AT_FDCWD as u64),
        path(folder),
        n(flags as u64),
        n(0),
    ];
    call("cgroup", to, arguments)
}

fn in_scope(call: Call, directory: u8) -> Call {
    with(call, "scope_fd", Value::File(directory))
}

/// In a thread, which keeps its own file system user.
fn other_user() -> Vec<Call> {
    let other = |call| on_thread(1, call);
    vec![
        with(
            open(1, KIND_PIPE, READ | WRITE | CREATE | PERSIST, None),
            "mode",
            n(0o640),
        ),
        other(call("setfsuid", 0, vec![n(USER.into())])),
        other(open(2, KIND_PIPE, READ, None)),
        other(open(2, KIND_PIPE, READ | WRITE | CREATE, None)),
        other(open(2, KIND_PIPE, READ | WRITE | OPEN_ANY_OWNER, None)),
        other(remove(KIND_PIPE, "SLUICE_CTL_UNLINK")),
        other(remove(KIND_PIPE, "SLUICE_CTL_DESTROY")),
        other(state(KIND_PIPE, "sluice_pipe_info")),
        other(open(3, KIND_MAP, READ | WRITE | CREATE | PERSIST, None)),
        pause(),
        open(4, KIND_MAP, READ | WRITE | OPEN_ANY_OWNER, None),
        open(4, KIND_MAP, READ | WRITE, None),
        ioctl("SLUICE_CTL_USAGE", 0, &[]),
        ioctl("SLUICE_PIPE_SET_CAPACITY", 1, &[("value", n(65536))]),
        remove(KIND_MAP, "SLUICE_CTL_UNLINK"),
        list(),
    ]
}

/// More than the user of unprivileged programs may have; tests/guest/kfuzz sets the limit.
fn limits() -> Vec<Call> {
    const LARGE: u64 = 32 << 20;
    let flags = WRITE | CREATE;
    vec![
        open_sized(1, KIND_RING, flags, LARGE, None),
        open_sized(2, KIND_BUS, flags, LARGE, None),
        open_sized(3, KIND_PIPE, READ | flags, LARGE, None),
        open_sized(4, KIND_MAP, READ | flags, LARGE, None),
        close(1),
        open_sized(4, KIND_MAP, READ | flags, LARGE, None),
        ioctl("SLUICE_CTL_USAGE", 0, &[]),
    ]
}

fn other_cgroup() -> Vec<Call> {
    vec![
        directory(5, "/sys/fs/cgroup/kfuzz/root/a"),
        directory(6, "/sys/fs/cgroup/kfuzz/user/a"),
        open(1, KIND_PIPE, READ | WRITE | CREATE | NONBLOCK, None),
        enter("/sys/fs/cgroup/kfuzz/root/a"),
        enter("/sys/fs/cgroup/kfuzz/user/a"),
        write(1, Content::Fill(b'p', 9000), 9000),
        open(2, KIND_PIPE, READ | WRITE | CREATE | PERSIST, None),
        in_scope(open(3, KIND_PIPE, READ | WRITE | CREATE, None), 5),
        in_scope(open(4, KIND_BUS, READ | CREATE, None), 6),
        in_scope(open(7, KIND_RING, WRITE | CREATE | PERSIST, None), 6),
        in_scope(list(), 5),
        in_scope(list(), 6),
        in_scope(ioctl("SLUICE_CTL_USAGE", 0, &[]), 6),
        in_scope(remove(KIND_PIPE, "SLUICE_CTL_UNLINK"), 6),
        with(list(), "scope_fd", n(SCOPE_ROOT as u64)),
        with(
            state(KIND_FEED, "sluice_feed_info"),
            "scope_fd",
            n(SCOPE_ROOT as u64),
        ),
        in_scope(open(8, KIND_PIPE, READ, None), 1),
    ]
}

/// With persistent channels, and without.
fn removed_cgroup() -> Vec<Call> {
    let folders = ["/sys/fs/cgroup/kfuzz/root/a", "/sys/fs/cgroup/kfuzz/user/a"];
    let mut calls = Vec::new();
    for (number, folder) in folders.into_iter().enumerate() {
        let (scope, file) = (5 + number as u8, 1 + 2 * number as u8);
        let flags = READ | WRITE | CREATE | PERSIST;
        calls.extend([
            directory(scope, folder),
            in_scope(open(file, KIND_MAP, flags, None), scope),
            in_scope(open(file + 1, KIND_PIPE, flags, None), scope),
            call("rmdir", 0, vec![path(folder)]),
            in_scope(open(7, KIND_PIPE, flags, None), scope),
            in_scope(list(), scope),
            write(file + 1, Content::Fill(b'p', 100), 100),
        ]);
    }
    calls
}

/// The child keeps files and mappings open for a while.
fn fork() -> Vec<Call> {
    let child = || call("fork", 0, vec![n(10)]);
    vec![
        open(1, KIND_RING, WRITE | CREATE, None),
        open(2, KIND_RING, READ, None),
        mmap(0, 1, 4096, 3, ring::MMAP_PRODUCER),
        mmap(1, 2, 32768, 1, ring::MMAP_DATA),
        open(3, KIND_BUS, READ | WRITE | CREATE | NONBLOCK, None),
        open(4, KIND_MAP, READ | WRITE | CREATE, None),
        open(5, KIND_PIPE, READ | WRITE | CREATE | NONBLOCK, None),
        child(),
        close(1),
        close(3),
        write(5, Content::Fill(b'p', 100), 100),
        poll(2),
        child(),
        remove(KIND_RING, "SLUICE_CTL_DESTROY"),
        remove(KIND_PIPE, "SLUICE_CTL_DESTROY"),
        close(2),
        open(1, KIND_RING, WRITE | CREATE, None),
        child(),
    ]
}

fn namespaces() -> Vec<Call> {
    let unshare = |flags: i32| call("unshare", 0, vec![n(flags as u64)]);
    vec![
        open(
            1,
            KIND_PIPE,
            READ | WRITE | CREATE | NONBLOCK | PERSIST,
            None,
        ),
        unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWCGROUP),
        open(2, KIND_PIPE, READ | WRITE, None),
        open(3, KIND_MAP, READ | WRITE | CREATE, None),
        ioctl("SLUICE_CTL_USAGE", 0, &[]),
        with(list(), "scope_fd", n(SCOPE_ROOT as u64)),
        list(),
        ioctl("SLUICE_PIPE_SET_CAPACITY", 1, &[("value", n(1 << 20))]),
        with(
            open(4, KIND_PIPE, READ | WRITE | CREATE, None),
            "scope_fd",
            n(SCOPE_ROOT as u64),
        ),
        remove(KIND_PIPE, "SLUICE_CTL_UNLINK"),
    ]
}

/// The last reference to an endpoint is in a socket.
fn passed_descriptor() -> Vec<Call> {
    let rights = [
        ("length", n(20)),
        ("level", n(libc::SOL_SOCKET as u64)),
        ("type", n(libc::SCM_RIGHTS as u64)),
        ("fd", Value::File(1)),
    ];
    let vector = [("base", bytes(b"x")), ("length", n(1))];
    let message = |control| {
        let fields = [
            ("vectors", at(structure("iovec", &vector))),
            ("vectors_length", n(1)),
            ("control", at(control)),
            ("control_length", n(24)),
        ];
        at(structure("msghdr", &fields))
    };
    let pair = vec![
        n(libc::AF_UNIX as u64),
        n(libc::SOCK_STREAM as u64),
        n(0),
        at(Content::Fill(0, 8)),
    ];
    let send = |file| {
        let arguments = vec![
            Value::File(file),
            message(structure("rights", &rights)),
            n(0),
        ];
        call("sendmsg", 0, arguments)
    };
    let receive = vec![
        Value::File(3),
        message(Content::Fill(0, 24)),
        n(libc::MSG_DONTWAIT as u64),
    ];
    vec![
        call("socketpair", 2, pair),
        open(1, KIND_BUS, READ | WRITE | CREATE | NONBLOCK, None),
        send(2),
        send(2),
        close(1),
        call("recvmsg", 0, receive),
        open(4, KIND_BUS, READ | WRITE | NONBLOCK, None),
        write(4, Content::Fill(b'm', 100), 100),
        close(2),
        close(3),
        list(),
    ]
}
