// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps over generic netlink: keys, values, versions, steps of a batch, dumps and watches that are refused or at a limit.

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes};
use crate::support::ctl::{BOTH, CREATE};
use crate::support::map::{KEY_MAX, NAME, NOW, STEP_DELETE, STEP_GET, STEP_SET, delete, dump, put};
use crate::support::netlink::{Attrs, NESTED, Request, VALUE_MAX, attr, command};
use crate::support::netlink_refusals::{Fixture, KEY, OTHER, Reason, Row, VALUE, set_step, step};

topic!(
    "map_netlink_operations",
    fifo: [],
    pipe_only: [
        keys_and_values_beyond_the_limits_are_refused,
        a_required_version_that_differs_is_refused,
        a_failed_step_does_not_concern_the_others,
        a_failed_step_tells_the_version_of_the_entry,
        an_invalid_dump_is_refused,
        a_watch_after_a_later_change_is_einval,
        limits_are_accepted,
        a_longer_value_has_only_its_length,
    ],
);

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
