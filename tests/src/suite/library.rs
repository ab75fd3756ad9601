// SPDX-License-Identifier: MIT OR Apache-2.0
//! The crate `sluice` with the real devices.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice::pipe::{AsyncReader, AsyncWriter, Reader, Writer};
use sluice::{Error, Kind, Pipe, Scope};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::registry::{Context, topic};
use crate::support::channel::CAPACITY;
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn;
use crate::support::parameter::Parameter;
use crate::support::proc::Call;
use crate::support::random::stream_bytes;

topic!(
    "library",
    fifo: [],
    pipe_only: [
        default_and_named_pipes_carry_bytes_until_eof,
        a_nonblocking_end_returns_would_block,
        capacity_and_spin_limit_can_be_set,
        a_list_spans_several_pages,
        each_failure_has_its_own_error,
        a_destroyed_channel_fails_its_endpoints_and_opens,
        a_full_scope_is_scope_quota_exceeded,
        the_module_has_all_features,
        a_waiting_task_does_not_block_another,
    ],
);

/// Both ends of a named pipe in this process.
fn named_ends(name: &str) -> Result<(Reader, Writer)> {
    let pipe = Pipe::named(name).create(true).nonblocking(true);
    Ok((pipe.reader()?, pipe.writer()?))
}

fn default_and_named_pipes_carry_bytes_until_eof(_: &Context) -> Result<()> {
    let own = Pipe::unnamed().nonblocking(true);
    for (mut reader, mut writer) in [(own.reader()?, own.writer()?), named_ends("frames")?] {
        writer.write_all(b"some bytes").context("write")?;
        drop(writer);
        let mut all = Vec::new();
        reader.read_to_end(&mut all).context("read")?;
        expect_bytes("bytes received", &all, b"some bytes")?;
    }
    Ok(())
}

fn a_nonblocking_end_returns_would_block(_: &Context) -> Result<()> {
    let (mut reader, mut writer) = named_ends("frames")?;
    let empty = reader.read(&mut [0]).map_err(|error| error.kind());
    expect("a read", empty, Err(ErrorKind::WouldBlock))?;
    writer.write_all(&[0; CAPACITY]).context("filling it")?;
    let full = writer.write(&[0]).map_err(|error| error.kind());
    expect("a write", full, Err(ErrorKind::WouldBlock))?;
    drop(reader);
    let broken = writer.write(&[0]).map_err(|error| error.kind());
    expect(
        "a write without a reader",
        broken,
        Err(ErrorKind::BrokenPipe),
    )
}

fn capacity_and_spin_limit_can_be_set(_: &Context) -> Result<()> {
    let (reader, mut writer) = named_ends("frames")?;
    expect("the capacity", writer.set_capacity(70_000)?, 131_072)?;
    let limit = Duration::from_nanos(1500);
    expect("the limit", reader.set_spin_limit(limit)?, limit)?;
    writer.write_all(b"four").context("write")?;
    let info = reader.info()?;
    expect("ends", (info.readers, info.writers), (1, 1))?;
    expect("its state", (info.capacity, info.bytes), (131_072, 4))?;
    expect("the spin limit", info.spin_limit, limit)?;
    let failure = writer.set_capacity(0);
    ensure!(
        matches!(failure, Err(Error::CapacityRange { .. })),
        "{failure:?}"
    );
    Ok(())
}

/// One more than two full pages.
fn a_list_spans_several_pages(_: &Context) -> Result<()> {
    let names: Vec<String> = (0..129).map(|number| format!("n{number:03}")).collect();
    let mut ends = Vec::new();
    // Created in another order than they are listed.
    for name in names.iter().rev() {
        ends.push(Pipe::named(name).create(true).nonblocking(true).reader()?);
    }
    let mut listed = Vec::new();
    for info in sluice::list(&Scope::own())? {
        let info = info?;
        expect(
            "its kind and readers",
            (info.kind, info.readers),
            (Kind::Pipe, 1),
        )?;
        listed.push(info.name.to_string());
    }
    expect("the names", listed, names)
}

fn each_failure_has_its_own_error(_: &Context) -> Result<()> {
    let pipe = Pipe::named("frames");
    let missing = pipe.reader().map(drop);
    ensure!(
        matches!(missing, Err(Error::NotFound { .. })),
        "{missing:?}"
    );
    let options = pipe.clone().create(true).nonblocking(true);
    let lonely = options.writer().map(drop);
    ensure!(matches!(lonely, Err(Error::NoReader { .. })), "{lonely:?}");
    let lonely = Pipe::unnamed().nonblocking(true).writer().map(drop);
    ensure!(matches!(lonely, Err(Error::NoReader { .. })), "{lonely:?}");
    let reader = options.reader()?;
    let taken = options.clone().exclusive(true).reader().map(drop);
    ensure!(
        matches!(taken, Err(Error::AlreadyExists { .. })),
        "{taken:?}"
    );
    let nowhere = pipe.clone().scope(Scope::at("/proc")?).info();
    ensure!(
        matches!(nowhere, Err(Error::NotACgroupDirectory { .. })),
        "{nowhere:?}"
    );
    pipe.unlink()?;
    let unlinked = pipe.info();
    ensure!(
        matches!(unlinked, Err(Error::NotFound { .. })),
        "{unlinked:?}"
    );
    drop(reader);
    let huge = options.capacity(1 << 40).reader().map(drop);
    ensure!(matches!(huge, Err(Error::CapacityRange { .. })), "{huge:?}");
    Ok(())
}

fn a_destroyed_channel_fails_its_endpoints_and_opens(_: &Context) -> Result<()> {
    let pipe = Pipe::named("frames");
    let (mut reader, mut writer) = named_ends("frames")?;
    writer.write_all(b"never read").context("write")?;
    pipe.destroy()?;
    let seen = reader.read(&mut [0]).map_err(|error| error.kind());
    expect("a read", seen, Err(ErrorKind::BrokenPipe))?;
    let seen = writer.write(b"x").map_err(|error| error.kind());
    expect("a write", seen, Err(ErrorKind::BrokenPipe))?;
    expect("unread bytes", reader.info()?.bytes, 0)?;
    let again = pipe.destroy();
    ensure!(matches!(again, Err(Error::NotFound { .. })), "{again:?}");
    let opener = spawn("a blocked open", || {
        let opened = Pipe::named("frames").create(true).reader();
        Ok(format!("{opened:?}"))
    })?;
    opener.wait_asleep_in(Call::Ioctl)?;
    pipe.destroy()?;
    let opened = opener.finish()?;
    ensure!(opened.starts_with("Err(Destroyed"), "{opened}");
    Ok(())
}

/// The limit is lowered for this one open only, and no other test runs meanwhile.
fn a_full_scope_is_scope_quota_exceeded(_: &Context) -> Result<()> {
    let options = Pipe::named("frames").create(true).nonblocking(true);
    let lowered = Parameter::set("scope_max_channels", 0)?;
    let refused = options.reader().map(drop);
    drop(lowered);
    ensure!(
        matches!(refused, Err(Error::ScopeQuotaExceeded { .. })),
        "{refused:?}"
    );
    options.reader().map(drop).context("with the usual limit")
}

fn the_module_has_all_features(_: &Context) -> Result<()> {
    let features = sluice::features()?;
    ensure!(features.has_all(), "features are missing: {features:?}");
    expect("kind 63", features.has_kind(Kind::Other(63)), false)
}

/// Both tasks run in one thread and transfer many times the capacity.
fn a_waiting_task_does_not_block_another(_: &Context) -> Result<()> {
    let (reader, writer) = named_ends("frames")?;
    let sent = stream_bytes(0, 0, 10 * CAPACITY + 1);
    let copy = sent.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("a runtime")?;
    let received = runtime.block_on(async move {
        let (mut reader, mut writer) = (AsyncReader::new(reader)?, AsyncWriter::new(writer)?);
        let sending = tokio::spawn(async move { writer.write_all(&copy).await });
        let mut received = Vec::new();
        reader.read_to_end(&mut received).await?;
        sending.await??;
        anyhow::Ok(received)
    })?;
    expect_bytes("bytes received", &received, &sent)
}
