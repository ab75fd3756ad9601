// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps over generic netlink: malformed messages and invalid requests are refused with a reason, and change nothing.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes};
use crate::support::ctl::{BOTH, CREATE, ChannelInfo, EXCL, OWN, PERSIST, READ, WRITE};
use crate::support::map::{
    DEFAULT_CAPACITY, DEFAULT_EVENTS, Dumped, Info, KEY_MAX, Maps, NAME, NOW, STEP_DELETE,
    STEP_GET, STEP_SET, delete, dump, dump_with, put,
};
use crate::support::netlink::{
    Attrs, DO_FLAGS, DUMP_FLAGS, NESTED, Request, STEPS_MAX, Socket, VALUE_MAX, attr, command,
    explains,
};

topic!(
    "map_netlink_malformed",
    fifo: [],
    pipe_only: [
        a_header_with_unknown_parts_is_einval,
        a_command_that_cannot_be_requested_is_eopnotsupp,
        a_malformed_stream_of_attributes_is_einval,
        an_attribute_of_another_command_is_einval,
        a_number_of_another_length_is_einval,
        an_invalid_name_is_refused,
        an_invalid_scope_is_ebadf,
        an_invalid_handle_is_refused,
        a_handle_permits_what_it_was_opened_for,
        a_request_has_either_a_name_or_a_handle,
        a_missing_attribute_is_einval_and_named,
        an_invalid_open_is_refused,
        a_name_is_that_of_a_persistent_map,
        keys_and_values_beyond_the_limits_are_refused,
        a_required_version_that_differs_is_refused,
        a_malformed_step_refuses_the_batch,
        a_failed_step_does_not_concern_the_others,
        a_failed_step_tells_the_version_of_the_entry,
        an_invalid_dump_is_refused,
        a_watch_after_a_later_change_is_einval,
        limits_are_accepted,
        zero_is_the_default_of_an_open,
        a_longer_value_has_only_its_length,
    ],
);

const KEY: &[u8] = b"key";
const VALUE: &[u8] = b"value";
/// What a request that is refused would set.
const OTHER: &[u8] = b"other";
/// For the entries of a test.
const DUMP_ROOM: usize = 4096;

/// All commands on a map, which a name or a handle stands for.
const OPERATIONS: [u8; 6] = [
    command::GET,
    command::SET,
    command::DELETE,
    command::BATCH,
    command::DUMP,
    command::INFO,
];
const HANDLE_ONLY: [u8; 2] = [command::CLOSE, command::WATCH];

/// A persistent map with one entry, and handles of it.
struct Fixture {
    maps: Maps,
    end: OwnedFd,
    socket: Socket,
    handle: u32,
}

/// What a refused request must not change.
struct State {
    names: Vec<Vec<u8>>,
    /// With the number of endpoints.
    info: (ChannelInfo, Info),
    entries: Vec<Dumped>,
}

impl State {
    fn expect_unchanged(&self, after: &Self) -> Result<()> {
        expect("names", &after.names, &self.names)?;
        expect("the state", &after.info, &self.info)?;
        ensure!(after.entries == self.entries, "the entries have changed");
        Ok(())
    }
}

impl Fixture {
    fn new() -> Result<Self> {
        let maps = Maps::new()?;
        let end = maps.persist()?;
        put(&end, KEY, VALUE)?;
        let socket = Socket::new()?;
        let handle = socket.open(NAME, BOTH)?;
        Ok(Fixture {
            maps,
            end,
            socket,
            handle,
        })
    }

    fn state(&self) -> Result<State> {
        Ok(State {
            names: self.maps.0.names(OWN).context("listing the names")?,
            info: self.maps.info().context("asking for the state")?,
            entries: dump_with(&self.end, 0, DUMP_ROOM)?,
        })
    }

    fn by_handle(&self) -> Attrs {
        Attrs::new().handle(self.handle)
    }

    /// Fails unless each request is refused like this, without a change of the map. Names all that are not.
    fn expect_refused(&self, rows: Vec<Row>) -> Result<()> {
        let (count, mut before, mut failed) = (rows.len(), self.state()?, Vec::new());
        for row in rows {
            let checked = row.check(self);
            let after = self.state()?;
            let unchanged = before.expect_unchanged(&after);
            if let Err(error) = checked.and(unchanged) {
                failed.push(format!("{}: {error:#}", row.what));
            }
            before = after;
        }
        ensure!(
            failed.is_empty(),
            "{} of {count} rows:\n{}",
            failed.len(),
            failed.join("\n")
        );
        Ok(())
    }

    /// The end of a test: without the map.
    fn finish(self) -> Result<()> {
        self.maps.unlink().context("unlinking the map")
    }
}

/// A request that is refused.
struct Row {
    what: String,
    request: Request,
    errno: Errno,
    reason: Reason,
}

/// What explains the errno.
#[derive(Clone, Copy)]
enum Reason {
    /// Nothing: generic netlink does not know the command, or not that it is one.
    None,
    Text,
    /// A text that contains this.
    Saying(&'static str),
    /// The type of the missing attribute.
    Missing(u16),
}

impl Row {
    fn new(what: impl Into<String>, command: u8, attrs: Attrs, errno: Errno) -> Self {
        Row {
            what: format!("command {command}, {}", what.into()),
            request: Request::new(command, attrs),
            errno,
            reason: Reason::Text,
        }
    }

    fn because(self, reason: Reason) -> Self {
        Row { reason, ..self }
    }

    fn check(&self, fixture: &Fixture) -> Result<()> {
        let refusal = match fixture.socket.request(&self.request)? {
            Ok(replies) => bail!("expected {}, saw {replies:?}", self.errno),
            Err(refusal) => refusal,
        };
        ensure!(
            refusal.errno == self.errno,
            "expected {}, saw {refusal:?}",
            self.errno
        );
        let explained = match self.reason {
            Reason::None => true,
            Reason::Text => refusal.text.is_some(),
            Reason::Saying(words) => refusal
                .text
                .as_ref()
                .is_some_and(|text| text.contains(words)),
            Reason::Missing(kind) => refusal.missing == Some(kind),
        };
        ensure!(
            explained || !explains(self.request.command)?,
            "without its reason: {refusal:?}"
        );
        Ok(())
    }
}

fn named() -> Attrs {
    Attrs::new().name(NAME)
}

fn step(number: u32) -> Attrs {
    Attrs::new().u32(attr::COMMAND, number)
}

fn set_step(key: &[u8], value: &[u8]) -> Attrs {
    step(STEP_SET).key(key).value(value)
}

/// What a command needs besides its map. It would change the entry, if it can.
fn arguments(command: u8) -> Attrs {
    match command {
        command::GET | command::DELETE => Attrs::new().key(KEY),
        command::SET => Attrs::new().key(KEY).value(OTHER),
        command::BATCH => Attrs::new().step(&set_step(KEY, OTHER)),
        _ => Attrs::new(),
    }
}

/// A complete request by name, and also one for an open that creates.
fn complete(command: u8, name: Attrs) -> Attrs {
    match command {
        command::OPEN => name.flags(BOTH | CREATE),
        _ => name.and(&arguments(command)),
    }
}

/// The attributes that a command knows.
fn known(command: u8) -> &'static [u16] {
    use attr::*;
    match command {
        command::OPEN => &[NAME, SCOPE_FD, FLAGS, MODE, CAPACITY, ENTRIES_MAX, EVENTS],
        command::CLOSE => &[HANDLE],
        command::GET => &[NAME, SCOPE_FD, HANDLE, KEY],
        command::SET => &[NAME, SCOPE_FD, HANDLE, KEY, VALUE, IF_VERSION, TTL_NS],
        command::DELETE => &[NAME, SCOPE_FD, HANDLE, KEY, IF_VERSION],
        command::BATCH => &[NAME, SCOPE_FD, HANDLE, STEP],
        command::DUMP => &[NAME, SCOPE_FD, HANDLE, KEYS],
        command::WATCH => &[HANDLE, AFTER],
        _ => &[NAME, SCOPE_FD, HANDLE],
    }
}

const STEP_KNOWN: [u16; 5] = [
    attr::COMMAND,
    attr::KEY,
    attr::VALUE,
    attr::IF_VERSION,
    attr::TTL_NS,
];

/// Adds an attribute of this type that is valid where it is known.
fn with_valid(attrs: Attrs, kind: u16) -> Attrs {
    use attr::{
        CHANGE, COMMAND, CREATED, DESTROYED, EVENTS, FLAGS, HANDLE, KEYS, MODE, PAD, RESULT,
        VALUE_LENGTH, WATCHERS,
    };
    match kind {
        attr::NAME => attrs.name("another"),
        attr::SCOPE_FD => attrs.scope(OWN),
        attr::KEY => attrs.key(b"another"),
        attr::VALUE => attrs.value(OTHER),
        attr::STEP => attrs.step(&set_step(KEY, OTHER)),
        PAD | CREATED | KEYS | DESTROYED => attrs.flag(kind),
        HANDLE | FLAGS | MODE | EVENTS | VALUE_LENGTH | COMMAND | RESULT | CHANGE | WATCHERS => {
            attrs.u32(kind, 1)
        }
        _ => attrs.u64(kind, 1),
    }
}

fn every_command() -> impl Iterator<Item = u8> {
    command::OPEN..=command::INFO
}

/// A valid request that changes something, if the command can.
fn valid(fixture: &Fixture, command: u8) -> Request {
    let attrs = match HANDLE_ONLY.contains(&command) {
        true => fixture.by_handle(),
        false => complete(command, named()),
    };
    Request::new(command, attrs)
}

// ---- headers and streams ----

fn a_header_with_unknown_parts_is_einval(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let mut rows = Vec::new();
    for command in every_command() {
        let mut row = |what: String, reason, change: &dyn Fn(&mut Request)| {
            let mut request = valid(&fixture, command);
            change(&mut request);
            rows.push(Row {
                what: format!("command {command}, {what}"),
                request,
                errno: Errno::EINVAL,
                reason,
            });
        };
        for length in 0..4 {
            row(
                format!("a header of {length} bytes"),
                Reason::None,
                &|request| {
                    request.limit = length;
                },
            );
        }
        for reserved in [1, 0x8000] {
            row(
                format!("reserved {reserved:#x}"),
                Reason::Text,
                &|request| {
                    request.reserved = reserved;
                },
            );
        }
        for flag in [libc::NLM_F_CREATE, libc::NLM_F_EXCL, libc::NLM_F_ROOT] {
            row(format!("flag {flag:#x}"), Reason::Text, &|request| {
                // Of the two flags of a dump, a dump then lacks the one.
                request.flags ^= flag as u16;
            });
        }
    }
    fixture.expect_refused(rows)?;
    fixture.finish()
}

fn a_command_that_cannot_be_requested_is_eopnotsupp(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let unknown = [0, command::EVENT, command::EVENT + 1, u8::MAX];
    let unknown = unknown.into_iter().flat_map(|command| {
        [DO_FLAGS, DUMP_FLAGS].map(|flags| ("unknown", command, flags, Attrs::new()))
    });
    let other_way = every_command().map(|command| {
        let request = valid(&fixture, command);
        let flags = DO_FLAGS ^ DUMP_FLAGS ^ request.flags;
        ("with the other flags", command, flags, request.attrs)
    });
    let rows = unknown
        .chain(other_way)
        .map(|(what, command, flags, attrs)| {
            let row = Row::new(what, command, attrs, Errno::EOPNOTSUPP);
            let request = Request {
                flags,
                ..row.request.clone()
            };
            Row { request, ..row }.because(Reason::None)
        });
    fixture.expect_refused(rows.collect())?;
    fixture.finish()
}

fn a_malformed_stream_of_attributes_is_einval(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let mut rows = Vec::new();
    for command in every_command() {
        let attrs = || valid(&fixture, command).attrs;
        for (what, attrs) in [
            ("one byte more", attrs().trailing(&[0])),
            ("two bytes more", attrs().trailing(&[0; 2])),
            ("three bytes more", attrs().trailing(&[4, 0, 1])),
            ("a length of 0", attrs().with_length(attr::KEY, 0, b"")),
            ("a length of 3", attrs().with_length(attr::KEY, 3, b"")),
            (
                "a length beyond the end",
                attrs().with_length(attr::KEY, 9, b"1234"),
            ),
            (
                "the longest length",
                attrs().with_length(attr::KEY, u16::MAX, b"1234"),
            ),
            (
                "a length beyond the end alone",
                Attrs::new().with_length(attr::HANDLE, 9, b"1234"),
            ),
        ] {
            rows.push(Row::new(what, command, attrs, Errno::EINVAL));
        }
    }
    fixture.expect_refused(rows)?;
    fixture.finish()
}

fn an_attribute_of_another_command_is_einval(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let every_type = (0..=attr::MAX + 1).chain([0x3fff]);
    let mut rows = Vec::new();
    for kind in every_type {
        for command in every_command().filter(|command| !known(*command).contains(&kind)) {
            let attrs = with_valid(valid(&fixture, command).attrs, kind);
            let what = format!("attribute {kind}");
            rows.push(Row::new(what, command, attrs, Errno::EINVAL));
        }
        if !STEP_KNOWN.contains(&kind) {
            let step = with_valid(set_step(KEY, OTHER), kind);
            let what = format!("attribute {kind} of a step");
            rows.push(Row::new(
                what,
                command::BATCH,
                named().step(&step),
                Errno::EINVAL,
            ));
        }
    }
    fixture.expect_refused(rows)?;
    fixture.finish()
}

fn a_number_of_another_length_is_einval(_: &Context) -> Result<()> {
    use attr::{
        AFTER, CAPACITY, COMMAND, ENTRIES_MAX, EVENTS, FLAGS, HANDLE, IF_VERSION, MODE, SCOPE_FD,
        TTL_NS,
    };
    let fixture = Fixture::new()?;
    let mut rows = Vec::new();
    let mut of = |command, kinds: &[u16], length, of_step: bool| {
        for kind in kinds {
            let mut malformed: Vec<_> = [0, length - 1, length + 1, 12 - length]
                .map(|length| (format!("{length} bytes"), *kind, length))
                .into();
            malformed.push(("a nest".to_owned(), kind | NESTED, length));
            for (what, kind, length) in malformed {
                let bytes = &[1_u8, 0, 0, 0, 0, 0, 0, 0, 0][..length];
                let attrs = match of_step {
                    true => named().step(&set_step(KEY, OTHER).bytes(kind, bytes)),
                    false => valid(&fixture, command).attrs.bytes(kind, bytes),
                };
                let what = format!("attribute {kind:#x}, step: {of_step}, {what}");
                rows.push(Row::new(what, command, attrs, Errno::EINVAL));
            }
        }
    };
    of(command::OPEN, &[SCOPE_FD, FLAGS, MODE, EVENTS], 4, false);
    of(command::OPEN, &[CAPACITY, ENTRIES_MAX], 8, false);
    of(command::SET, &[SCOPE_FD], 4, false);
    of(command::SET, &[IF_VERSION, TTL_NS], 8, false);
    of(command::DELETE, &[IF_VERSION], 8, false);
    of(command::WATCH, &[AFTER], 8, false);
    of(command::BATCH, &[COMMAND], 4, true);
    of(command::BATCH, &[IF_VERSION, TTL_NS], 8, true);
    for command in OPERATIONS.into_iter().chain(HANDLE_ONLY) {
        of(command, &[HANDLE], 4, false);
    }
    fixture.expect_refused(rows)?;
    fixture.finish()
}

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

fn a_missing_attribute_is_einval_and_named(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let on = || fixture.by_handle();
    let rows = [
        (command::OPEN, Attrs::new().flags(BOTH | CREATE), attr::NAME),
        (command::CLOSE, Attrs::new(), attr::HANDLE),
        (
            command::WATCH,
            Attrs::new().u64(attr::AFTER, 0),
            attr::HANDLE,
        ),
        (command::GET, on(), attr::KEY),
        (command::SET, on().value(OTHER), attr::KEY),
        (command::SET, on().key(KEY), attr::VALUE),
        (command::DELETE, on(), attr::KEY),
    ];
    let rows = rows.map(|(command, attrs, missing)| {
        let what = format!("attribute {missing}");
        Row::new(what, command, attrs, Errno::EINVAL).because(Reason::Missing(missing))
    });
    fixture.expect_refused(rows.into())?;
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

// ---- operations ----

fn keys_and_values_beyond_the_limits_are_refused(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let mut rows = Vec::new();
    let too_long = vec![b'k'; KEY_MAX + 1];
    for command in [command::GET, command::SET, command::DELETE] {
        let on = || match command {
            command::SET => fixture.by_handle().value(OTHER),
            _ => fixture.by_handle(),
        };
        rows.push(Row::new(
            "an empty key",
            command,
            on().key(b""),
            Errno::ERANGE,
        ));
        let attrs = on().key(&too_long);
        rows.push(Row::new(
            "a key of 4097 bytes",
            command,
            attrs,
            Errno::ERANGE,
        ));
        let nested = on().bytes(attr::KEY | NESTED, KEY);
        rows.push(Row::new("a nested key", command, nested, Errno::EINVAL));
    }
    for length in [VALUE_MAX + 1, 65_000] {
        let attrs = fixture.by_handle().key(KEY).value(&vec![1; length]);
        let row = Row::new(
            format!("{length} bytes"),
            command::SET,
            attrs,
            Errno::EMSGSIZE,
        );
        rows.push(row.because(Reason::Saying("/dev/sluice/ctl")));
    }
    let nested = fixture
        .by_handle()
        .key(KEY)
        .bytes(attr::VALUE | NESTED, OTHER);
    rows.push(Row::new(
        "a nested value",
        command::SET,
        nested,
        Errno::EINVAL,
    ));
    fixture.expect_refused(rows)?;
    fixture.finish()
}

fn a_required_version_that_differs_is_refused(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let mut rows = Vec::new();
    for command in [command::SET, command::DELETE] {
        let value = match command {
            command::SET => Attrs::new().value(OTHER),
            _ => Attrs::new(),
        };
        for (key, version, errno) in [
            (KEY, 0, Errno::EEXIST),
            (KEY, 2, Errno::ESTALE),
            (KEY, u64::MAX, Errno::ESTALE),
            (b"none", 1, Errno::ENOENT),
            (b"none", u64::MAX, Errno::ENOENT),
        ] {
            let attrs = fixture.by_handle().key(key).u64(attr::IF_VERSION, version);
            let what = format!("{} if version {version}", String::from_utf8_lossy(key));
            rows.push(Row::new(what, command, attrs.and(&value), errno));
        }
    }
    for command in [command::GET, command::DELETE] {
        let attrs = fixture.by_handle().key(b"none");
        rows.push(Row::new("no entry", command, attrs, Errno::ENOENT));
    }
    fixture.expect_refused(rows)?;
    fixture.finish()
}

// ---- batches ----

fn a_malformed_step_refuses_the_batch(_: &Context) -> Result<()> {
    use attr::{IF_VERSION, STEP};
    let fixture = Fixture::new()?;
    let get = || step(STEP_GET).key(KEY);
    let on = || fixture.by_handle().step(&set_step(KEY, OTHER));
    let plain = |bytes: &[u8]| on().bytes(STEP | NESTED, bytes);
    let mut rows = vec![
        ("no step", fixture.by_handle(), Errno::EINVAL),
        (
            "without the flag of a nest",
            on().bytes(STEP, &[8, 0, 19, 0, 0, 0, 0, 0]),
            Errno::EINVAL,
        ),
        // A nest that is not empty and shorter than the header of an attribute has a wrong length.
        ("a nest of 1 byte", plain(&[0]), Errno::ERANGE),
        ("a nest of 3 bytes", plain(&[4, 0, 19]), Errno::ERANGE),
        (
            "a nest that is cut off",
            plain(&[8, 0, 19, 0, 0, 0]),
            Errno::EINVAL,
        ),
        (
            "trailing bytes in a nest",
            on().step(&get().trailing(&[0, 0])),
            Errno::EINVAL,
        ),
        ("command 3", on().step(&step(3).key(KEY)), Errno::ERANGE),
        (
            "the last command",
            on().step(&step(u32::MAX).key(KEY)),
            Errno::ERANGE,
        ),
        (
            "an empty key",
            on().step(&step(STEP_GET).key(b"")),
            Errno::ERANGE,
        ),
        (
            "a long key",
            on().step(&step(STEP_GET).key(&[1; KEY_MAX + 1])),
            Errno::ERANGE,
        ),
        (
            "a step in a step",
            on().step(&get().step(&get())),
            Errno::EINVAL,
        ),
        (
            "a name in a step",
            on().step(&get().name(NAME)),
            Errno::EINVAL,
        ),
        (
            "a handle in a step",
            on().step(&get().handle(fixture.handle)),
            Errno::EINVAL,
        ),
        ("a key beside the steps", on().key(KEY), Errno::EINVAL),
        ("a value beside the steps", on().value(OTHER), Errno::EINVAL),
        (
            "a version beside the steps",
            on().u64(IF_VERSION, 1),
            Errno::EINVAL,
        ),
    ];
    let too_many = (0..=STEPS_MAX).fold(fixture.by_handle(), |attrs, _| {
        attrs.step(&set_step(KEY, OTHER))
    });
    rows.push(("65 steps", too_many, Errno::EINVAL));
    let rows = rows.into_iter();
    let rows = rows.map(|(what, attrs, errno)| Row::new(what, command::BATCH, attrs, errno));
    fixture.expect_refused(rows.collect())?;
    fixture.finish()
}

fn a_failed_step_does_not_concern_the_others(_: &Context) -> Result<()> {
    use attr::{IF_VERSION, TTL_NS};
    let fixture = Fixture::new()?;
    let get = || step(STEP_GET).key(KEY);
    let delete = || step(STEP_DELETE).key(KEY);
    let invalid = Errno::EINVAL;
    for (what, failing, errno) in [
        ("an empty nest", Attrs::new(), invalid),
        ("no command", Attrs::new().key(KEY), invalid),
        ("no key", step(STEP_GET), invalid),
        ("a set without a key", step(STEP_SET).value(OTHER), invalid),
        ("a set without a value", step(STEP_SET).key(KEY), invalid),
        ("a get with a value", get().value(OTHER), invalid),
        ("a get with a time to live", get().u64(TTL_NS, 1), invalid),
        ("a get with a version", get().u64(IF_VERSION, 1), invalid),
        ("a delete with a value", delete().value(OTHER), invalid),
        (
            "a delete with a time to live",
            delete().u64(TTL_NS, 1),
            invalid,
        ),
        (
            "a get without an entry",
            step(STEP_GET).key(b"none"),
            Errno::ENOENT,
        ),
        (
            "a delete without an entry",
            step(STEP_DELETE).key(b"none"),
            Errno::ENOENT,
        ),
        (
            "a long value",
            set_step(KEY, &[1; VALUE_MAX + 1]),
            Errno::EMSGSIZE,
        ),
    ] {
        let attrs = fixture
            .by_handle()
            .step(&set_step(b"before", b""))
            .step(&failing)
            .step(&set_step(b"after", b""))
            .step(&get());
        let reply = fixture.socket.must(command::BATCH, &attrs).context(what)?;
        let steps = reply.steps()?;
        let results: Vec<_> = steps
            .iter()
            .map(|step| step.result())
            .collect::<Result<_>>()?;
        expect(what, results, vec![Ok(1), Err(errno), Ok(1), Ok(0)])?;
        expect(what, steps[3].bytes(attr::VALUE), Some(VALUE))?;
        for key in [b"before".as_slice(), b"after"] {
            let on = fixture.by_handle().key(key);
            fixture.socket.must(command::DELETE, &on).context(what)?;
        }
    }
    fixture.finish()
}

fn a_failed_step_tells_the_version_of_the_entry(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    for (what, request) in [
        ("a set", set_step(KEY, OTHER)),
        ("a delete", step(STEP_DELETE).key(KEY)),
    ] {
        for (version, errno) in [(0, Errno::EEXIST), (9, Errno::ESTALE)] {
            let step = request.clone().u64(attr::IF_VERSION, version);
            let attrs = fixture.by_handle().step(&step);
            let reply = fixture.socket.must(command::BATCH, &attrs)?;
            let steps = reply.steps()?;
            let [step] = steps.as_slice() else {
                bail!("{what}: {} steps", steps.len());
            };
            expect(
                what,
                (step.result()?, step.u64(attr::VERSION)?),
                (Err(errno), 1),
            )?;
        }
    }
    expect("the version", dump(&fixture.end)?[0].version, 1)?;
    fixture.finish()
}

// ---- dumps and watches ----

fn an_invalid_dump_is_refused(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let on = || fixture.by_handle();
    let rows = [
        (
            "keys with a payload",
            on().u32(attr::KEYS, 1),
            Errno::ERANGE,
        ),
        (
            "keys as a nest",
            on().flag(attr::KEYS | NESTED),
            Errno::EINVAL,
        ),
        ("a key", on().key(KEY), Errno::EINVAL),
    ];
    let rows = rows.map(|(what, attrs, errno)| Row::new(what, command::DUMP, attrs, errno));
    fixture.expect_refused(rows.into())?;
    put(&fixture.end, b"empty", b"")?;
    for (attrs, with_values) in [(on(), true), (on().flag(attr::KEYS), false)] {
        let answer = fixture
            .socket
            .request(&Request::new(command::DUMP, attrs))?;
        let Ok(replies) = answer else {
            bail!("a dump, values: {with_values}: {answer:?}");
        };
        expect("entries", replies.len(), 2)?;
        for reply in replies {
            expect(
                "whether it has a value",
                reply.has(attr::VALUE),
                with_values,
            )?;
        }
    }
    fixture.finish()
}

fn a_watch_after_a_later_change_is_einval(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let rows = [2, 1000, u64::MAX - 1].map(|after| {
        let attrs = fixture.by_handle().u64(attr::AFTER, after);
        Row::new(
            format!("after {after}"),
            command::WATCH,
            attrs,
            Errno::EINVAL,
        )
    });
    fixture.expect_refused(rows.into())?;
    fixture.socket.expect_no_event()?;
    for (after, expected) in [(1, 1), (NOW, 1)] {
        expect(
            "a watch",
            fixture.socket.watch(fixture.handle, after)?,
            expected,
        )?;
    }
    fixture.finish()
}

// ---- what is accepted ----

fn limits_are_accepted(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let socket = &fixture.socket;
    let longest = [b'n'; 63];
    let longest = std::str::from_utf8(&longest)?;
    socket
        .open(longest, BOTH | CREATE)
        .context("a name of 63 characters")?;
    let mut padded = [0; 64];
    padded[..NAME.len()].copy_from_slice(NAME.as_bytes());
    let attrs = Attrs::new().bytes(attr::NAME, &padded).key(KEY);
    socket
        .must(command::GET, &attrs)
        .context("a name of 64 bytes")?;
    let (key, value) = (vec![7; KEY_MAX], vec![9; VALUE_MAX]);
    let on = || fixture.by_handle().key(&key);
    for value in [&value, &vec![]] {
        let attrs = on().value(value).u64(attr::TTL_NS, u64::MAX);
        socket
            .must(command::SET, &attrs)
            .context("the longest key")?;
        let reply = socket.must(command::GET, &on())?;
        let seen = reply.bytes(attr::VALUE).context("no value")?;
        expect_bytes("the value", seen, value)?;
        expect("whether it expires", reply.has(attr::TTL_NS), false)?;
    }
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

fn a_longer_value_has_only_its_length(_: &Context) -> Result<()> {
    let fixture = Fixture::new()?;
    let (socket, length) = (&fixture.socket, VALUE_MAX + 1);
    delete(&fixture.end, KEY).context("deleting")?;
    put(&fixture.end, b"long", &vec![1; length])?;
    let refusal = socket.call(command::GET, &fixture.by_handle().key(b"long"))?;
    let refusal = refusal.err().context("a get of a long value")?;
    expect("a get", refusal.errno, Errno::EMSGSIZE)?;
    let text = refusal.text.context("a get without a text")?;
    ensure!(
        text.contains("/dev/sluice/ctl"),
        "the text of a get: {text}"
    );
    let dump = Request::new(command::DUMP, fixture.by_handle());
    let entries = socket.request(&dump)?;
    let Ok([entry]) = entries.as_deref() else {
        bail!("a dump: {entries:?}");
    };
    let seen = (entry.has(attr::VALUE), entry.u32(attr::VALUE_LENGTH)?);
    expect("of a dump", seen, (false, length as u32))?;
    let batch = fixture.by_handle().step(&step(STEP_GET).key(b"long"));
    let steps = socket.must(command::BATCH, &batch)?.steps()?;
    let seen = (steps[0].result()?, steps[0].u32(attr::VALUE_LENGTH)?);
    expect("of a batch", seen, (Err(Errno::EMSGSIZE), length as u32))?;
    let versions = (steps[0].u64(attr::VERSION)?, entry.u64(attr::VERSION)?);
    expect("the version of a batch", versions.0, versions.1)?;
    fixture.finish()
}
