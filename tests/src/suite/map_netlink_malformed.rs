// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps over generic netlink: malformed messages are refused with a reason, and change nothing.

use anyhow::Result;
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::ctl::{BOTH, CREATE, OWN};
use crate::support::map::{KEY_MAX, NAME, STEP_GET};
use crate::support::netlink::{
    Attrs, DO_FLAGS, DUMP_FLAGS, NESTED, Request, STEPS_MAX, attr, command,
};
use crate::support::netlink_refusals::{
    Fixture, HANDLE_ONLY, KEY, OPERATIONS, OTHER, Reason, Row, complete, named, set_step, step,
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
        a_missing_attribute_is_einval_and_named,
        a_malformed_step_refuses_the_batch,
    ],
);

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
