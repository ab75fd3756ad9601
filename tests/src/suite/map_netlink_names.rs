// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps over generic netlink: names, scopes and handles of requests, and the parameters of an open.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context as _, Result};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::ctl::{BOTH, CREATE, EXCL, OWN, PERSIST, READ, WRITE};
use crate::support::map::{DEFAULT_CAPACITY, DEFAULT_EVENTS, NAME, STEP_GET};
use crate::support::netlink::{Attrs, NESTED, Socket, attr, command};
use crate::support::netlink_refusals::{
    Fixture, HANDLE_ONLY, KEY, OPERATIONS, OTHER, Row, arguments, complete, named, set_step, step,
};

topic!(
    "map_netlink_names",
    fifo: [],
    pipe_only: [
        an_invalid_name_is_refused,
        an_invalid_scope_is_ebadf,
        an_invalid_handle_is_refused,
        a_handle_permits_what_it_was_opened_for,
        a_request_has_either_a_name_or_a_handle,
        an_invalid_open_is_refused,
        a_name_is_that_of_a_persistent_map,
        zero_is_the_default_of_an_open,
    ],
);

// ---- names, scopes and handles ----

fn an_invalid_name_is_refused(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let padded = [b"map\0".as_slice(), &[0; 61]].concat();
    let names: [(&str, &[u8], Errno); 11] = [
        ("no byte", b"", Errno::EINVAL),
        ("no NUL", b"map", Errno::EINVAL),
        (
            "64 characters",
            &[&[b'n'; 64], b"\0".as_slice()].concat(),
            Errno::EINVAL,
        ),
        ("64 characters without NUL", &[b'n'; 64], Errno::EINVAL),
        ("65 bytes", &padded, Errno::ERANGE),
        ("an empty name", b"\0", Errno::EINVAL),
        ("bytes after the NUL", b"map\0b\0", Errno::EINVAL),
        ("the directory", b".\0", Errno::EINVAL),
        ("the directory above", b"..\0", Errno::EINVAL),
        ("a slash", b"a/b\0", Errno::EINVAL),
        ("a slash at the end", b"map/\0", Errno::EINVAL),
    ];
    let mut rows = Vec::new();
    for command in OPERATIONS.into_iter().chain([command::OPEN]) {
        for (what, name, errno) in names {
            let name = Attrs::new().bytes(attr::NAME, name);
            rows.push(Row::new(what, command, complete(command, name), errno));
        }
        let nested = Attrs::new().bytes(attr::NAME | NESTED, b"map\0");
        rows.push(Row::new(
            "a nest",
            command,
            complete(command, nested),
            Errno::EINVAL,
        ));
    }
    fixture.expect_refused(rows)?;
    fixture.finish()
}

fn an_invalid_scope_is_ebadf(context: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let directory = File::open(&context.scratch).context("opening a directory")?;
    let file = context.cgroup()?.path().join("cgroup.procs");
    let file = File::open(file).context("opening a file of a cgroup")?;
    let closed = fixture.end.as_fd().try_clone_to_owned()?.as_raw_fd();
    let scopes = [
        ("-3", -3),
        ("the least number", i32::MIN),
        ("a closed file", closed),
        ("no file", i32::MAX),
        ("a directory that is no cgroup", directory.as_raw_fd()),
        ("a file of a cgroup", file.as_raw_fd()),
        ("an endpoint", fixture.end.as_raw_fd()),
        ("a socket", fixture.socket.as_fd().as_raw_fd()),
    ];
    let mut rows = Vec::new();
    for command in OPERATIONS.into_iter().chain([command::OPEN]) {
        for (what, scope) in scopes {
            let attrs = complete(command, named().scope(scope));
            rows.push(Row::new(what, command, attrs, Errno::EBADF));
        }
    }
    for command in OPERATIONS {
        let attrs = fixture.by_handle().scope(OWN).and(&arguments(command));
        rows.push(Row::new(
            "a scope with a handle",
            command,
            attrs,
            Errno::EINVAL,
        ));
    }
    fixture.expect_refused(rows)?;
    fixture.finish()
}

fn an_invalid_handle_is_refused(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let other = Socket::new()?;
    let foreign = other.open(NAME, BOTH)?;
    let closed = fixture.socket.open(NAME, BOTH)?;
    let attrs = Attrs::new().handle(closed);
    fixture
        .socket
        .must(command::CLOSE, &attrs)
        .context("closing a handle")?;
    let mut rows = Vec::new();
    for command in OPERATIONS.into_iter().chain(HANDLE_ONLY) {
        for (what, handle, errno) in [
            ("no handle", 0, Errno::ERANGE),
            ("that of another socket", foreign, Errno::ENOENT),
            ("a closed handle", closed, Errno::ENOENT),
            ("the greatest number", u32::MAX, Errno::ENOENT),
        ] {
            let attrs = Attrs::new().handle(handle).and(&arguments(command));
            rows.push(Row::new(what, command, attrs, errno));
        }
    }
    fixture.expect_refused(rows)?;
    fixture.finish()
}

fn a_handle_permits_what_it_was_opened_for(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let [reader, writer] = [READ, WRITE].map(|flags| fixture.socket.open(NAME, flags));
    let (reader, writer) = (reader?, writer?);
    let mut rows = Vec::new();
    for (what, handle, commands) in [
        ("for reading", reader, vec![command::SET, command::DELETE]),
        (
            "for writing",
            writer,
            vec![command::GET, command::DUMP, command::WATCH],
        ),
    ] {
        for command in commands {
            let attrs = Attrs::new().handle(handle).and(&arguments(command));
            rows.push(Row::new(what, command, attrs, Errno::EBADF));
        }
    }
    fixture.expect_refused(rows)?;
    let socket = &fixture.socket;
    for handle in [reader, writer] {
        let attrs = Attrs::new().handle(handle);
        socket
            .must(command::INFO, &attrs)
            .context("the state, which either of both permits")?;
    }
    let steps = |handle| {
        Attrs::new()
            .handle(handle)
            .step(&set_step(b"new", OTHER))
            .step(&step(STEP_GET).key(KEY))
    };
    let results = |handle| -> Result<Vec<_>> {
        let reply = socket.must(command::BATCH, &steps(handle))?;
        reply.steps()?.iter().map(|step| step.result()).collect()
    };
    let refused = Err(Errno::EBADF);
    expect(
        "a batch for reading",
        results(reader)?,
        vec![refused, Ok(0)],
    )?;
    expect(
        "a batch for writing",
        results(writer)?,
        vec![Ok(1), refused],
    )?;
    fixture.finish()
}

fn a_request_has_either_a_name_or_a_handle(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let mut rows = Vec::new();
    for command in OPERATIONS {
        let both = fixture.by_handle().name(NAME).and(&arguments(command));
        rows.push(Row::new("both", command, both, Errno::EINVAL));
        rows.push(Row::new(
            "neither",
            command,
            arguments(command),
            Errno::EINVAL,
        ));
        let scope = arguments(command).scope(OWN);
        rows.push(Row::new("a scope only", command, scope, Errno::EINVAL));
    }
    fixture.expect_refused(rows)?;
    fixture.finish()
}

// ---- open ----

fn an_invalid_open_is_refused(_: &Context) -> Result<()> {
    use attr::{CAPACITY, EVENTS, MODE};
    const ALL: u32 = BOTH | CREATE | PERSIST;
    let fixture = Fixture::new()?;
    let new = |flags| Attrs::new().name("new").flags(flags);
    let existing = |flags| named().flags(flags);
    // The log of 1024 changes takes more.
    let log = u64::from(DEFAULT_EVENTS) * 8;
    let rows = [
        ("no flags", existing(0), Errno::EINVAL),
        (
            "neither reading nor writing",
            existing(CREATE),
            Errno::EINVAL,
        ),
        ("an unknown flag", existing(READ | 1 << 30), Errno::EINVAL),
        ("the last flag", existing(READ | 1 << 31), Errno::EINVAL),
        (
            "exclusive without creating",
            new(BOTH | EXCL),
            Errno::EINVAL,
        ),
        (
            "persistent without creating",
            new(BOTH | PERSIST),
            Errno::EINVAL,
        ),
        (
            "an existing map",
            existing(BOTH | CREATE | EXCL),
            Errno::EEXIST,
        ),
        ("no map", new(BOTH), Errno::ENOENT),
        ("a sticky bit", new(ALL).u32(MODE, 0o1000), Errno::ERANGE),
        (
            "the greatest mode",
            new(ALL).u32(MODE, u32::MAX),
            Errno::ERANGE,
        ),
        ("a capacity of 1", new(ALL).u64(CAPACITY, 1), Errno::EINVAL),
        (
            "the capacity of the log",
            new(ALL).u64(CAPACITY, log),
            Errno::EINVAL,
        ),
        (
            "above the greatest capacity",
            new(ALL).u64(CAPACITY, (64 << 30) + 1),
            Errno::EINVAL,
        ),
        (
            "the last capacity",
            new(ALL).u64(CAPACITY, u64::MAX),
            Errno::EINVAL,
        ),
        ("three events", new(ALL).u32(EVENTS, 3), Errno::EINVAL),
        (
            "too many events",
            new(ALL).u32(EVENTS, 0x2_0000),
            Errno::EINVAL,
        ),
        ("most events", new(ALL).u32(EVENTS, u32::MAX), Errno::EINVAL),
    ];
    let rows = rows.map(|(what, attrs, errno)| Row::new(what, command::OPEN, attrs, errno));
    fixture.expect_refused(rows.into())?;
    fixture.finish()
}

fn a_name_is_that_of_a_persistent_map(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let on = || Attrs::new().name("transient");
    fixture.socket.open("transient", BOTH | CREATE)?;
    fixture
        .maps
        .0
        .persist(OWN, "pipe")
        .context("creating a pipe")?;
    let mut rows = Vec::new();
    for command in OPERATIONS {
        for (what, name, errno) in [
            ("not persistent", on(), Errno::EINVAL),
            ("none", Attrs::new().name("none"), Errno::ENOENT),
            ("a pipe", Attrs::new().name("pipe"), Errno::ENOENT),
        ] {
            rows.push(Row::new(
                what,
                command,
                name.and(&arguments(command)),
                errno,
            ));
        }
    }
    fixture.expect_refused(rows)?;
    fixture
        .maps
        .0
        .unlink(OWN, "pipe")
        .context("unlinking the pipe")?;
    fixture.finish()
}

fn zero_is_the_default_of_an_open(_: &Context) -> Result<()> {
    let socket = Socket::new()?;
    let attrs = named()
        .flags(BOTH | CREATE)
        .u32(attr::MODE, 0)
        .u64(attr::CAPACITY, 0)
        .u64(attr::ENTRIES_MAX, 0)
        .u32(attr::EVENTS, 0);
    let handle = socket.must(command::OPEN, &attrs)?.u32(attr::HANDLE)?;
    let info = socket.must(command::INFO, &Attrs::new().handle(handle))?;
    let limits = (
        info.u64(attr::CAPACITY)?,
        info.u64(attr::ENTRIES_MAX)?,
        info.u32(attr::EVENTS)?,
    );
    expect("its limits", limits, (DEFAULT_CAPACITY, 0, DEFAULT_EVENTS))
}
