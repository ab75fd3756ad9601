// SPDX-License-Identifier: MIT OR Apache-2.0
//! Valid names, and how long a name refers to its channel.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::unistd::write;

use crate::registry::{Context, topic};
use crate::support::channel::{CAPACITY, read_some, set_nonblocking, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn;
use crate::support::ctl::{
    BOTH, CREATE, ChannelInfo, Ctl, INFO, Info, KIND_PIPE, NAME_SIZE, OWN, Open, READ, UNLINK,
    Unlink, WRITE, padded,
};
use crate::support::ioctl::raw;
use crate::support::kernel::expect_no_objects;
use crate::support::proc::Call;

topic!(
    "ctl_names",
    fifo: [],
    pipe_only: [
        a_name_has_1_to_63_bytes,
        every_byte_except_slash_is_allowed,
        a_slash_is_einval_at_any_position,
        dot_and_dotdot_are_einval,
        an_unterminated_name_is_einval,
        bytes_after_the_terminator_are_einval,
        names_that_differ_in_one_byte_are_different_channels,
        a_name_is_removed_with_the_last_endpoint,
        an_unlinked_name_can_be_reused_at_once,
        endpoints_stay_connected_after_unlink,
        a_blocked_open_of_an_unlinked_channel_is_not_found,
        unlinking_twice_is_enoent,
        info_reports_every_field,
    ],
);

/// The results of all calls that take a name, with a channel of that name if it is valid.
fn results(ctl: &Ctl, name: [u8; NAME_SIZE]) -> [nix::Result<()>; 3] {
    let mut which = Unlink::new(OWN, b"");
    which.name = name;
    let mut answer = ChannelInfo::EMPTY;
    let mut info = Info::new(OWN, b"", &mut answer);
    info.name = name;
    let opened = ctl.open(Open {
        name,
        ..Open::new(b"", BOTH | CREATE)
    });
    [
        opened.as_ref().map(drop).map_err(|errno| *errno),
        raw(ctl, INFO, &mut info),
        raw(ctl, UNLINK, &mut which),
    ]
}

fn expect_name(ctl: &Ctl, name: &[u8]) -> Result<()> {
    expect(
        &format!(
            "open, info and unlink of {:?}",
            name.escape_ascii().to_string()
        ),
        results(ctl, padded(name)),
        [Ok(()); 3],
    )
}

fn expect_no_name(ctl: &Ctl, name: [u8; NAME_SIZE]) -> Result<()> {
    expect(
        &format!(
            "open, info and unlink of {:?}",
            name.escape_ascii().to_string()
        ),
        results(ctl, name),
        [Err(Errno::EINVAL); 3],
    )
}

fn a_name_has_1_to_63_bytes(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    expect_no_name(&ctl, padded(b""))?;
    (1..NAME_SIZE).try_for_each(|length| expect_name(&ctl, &vec![b'n'; length]))?;
    expect_no_objects()
}

fn every_byte_except_slash_is_allowed(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for byte in (1..=u8::MAX).filter(|byte| *byte != b'/') {
        expect_name(&ctl, &[byte, byte, byte])?;
    }
    expect_no_objects()
}

fn a_slash_is_einval_at_any_position(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    expect_no_name(&ctl, padded(b"/"))?;
    for at in 0..NAME_SIZE - 1 {
        let mut name = padded([b'n'; NAME_SIZE - 1]);
        name[at] = b'/';
        expect_no_name(&ctl, name)?;
    }
    Ok(())
}

fn dot_and_dotdot_are_einval(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    expect_no_name(&ctl, padded(b"."))?;
    expect_no_name(&ctl, padded(b".."))?;
    [&b"..."[..], b".a", b"..a", b"a.", b"-"]
        .iter()
        .try_for_each(|name| expect_name(&ctl, name))
}

fn an_unterminated_name_is_einval(_: &Context) -> Result<()> {
    expect_no_name(&Ctl::new()?, [b'n'; NAME_SIZE])
}

fn bytes_after_the_terminator_are_einval(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for end in 0..NAME_SIZE - 1 {
        for at in [end + 1, NAME_SIZE - 1] {
            let mut name = padded(vec![b'n'; end]);
            name[at] = b'x';
            expect_no_name(&ctl, name)?;
        }
    }
    Ok(())
}

fn expect_read(what: &str, fd: &impl AsFd, expected: &[u8]) -> Result<()> {
    let seen = read_some(fd, 64).with_context(|| format!("reading {what}"))?;
    expect_bytes(what, &seen, expected)
}

fn names_that_differ_in_one_byte_are_different_channels(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let long = [b'n'; NAME_SIZE - 1];
    let mut names: Vec<Vec<u8>> = vec![b"N".to_vec(), b"n".to_vec(), b"n ".to_vec()];
    for at in [0, 31, NAME_SIZE - 2] {
        let mut name = long;
        name[at] = b'o';
        names.push(name.to_vec());
    }
    names.push(long.to_vec());
    let mut channels: Vec<OwnedFd> = Vec::new();
    for name in &names {
        let channel = ctl.create(name).context("creating a channel")?;
        set_nonblocking(&channel)?;
        write_all(&channel, name)?;
        channels.push(channel);
    }
    for (channel, name) in channels.iter().zip(&names) {
        expect_read("a channel", channel, name)?;
    }
    Ok(())
}

fn a_name_is_removed_with_the_last_endpoint(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let both = ctl.create("channel")?;
    let reader = ctl.open(Open::new("channel", READ))?;
    write_all(&both, b"left in it")?;
    drop(both);
    expect(
        "its name with a reader left",
        ctl.info(OWN, "channel").map(|i| i.readers),
        Ok(1),
    )?;
    drop(reader);
    expect(
        "its name",
        ctl.attach(OWN, "channel").map(drop),
        Err(Errno::ENOENT),
    )?;
    expect("names", ctl.names(OWN), Ok(vec![]))?;
    expect_no_objects()
}

fn an_unlinked_name_can_be_reused_at_once(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let mut old = Vec::new();
    for round in 0..10u8 {
        let channel = ctl.create("channel").context("creating the channel")?;
        set_nonblocking(&channel)?;
        write_all(&channel, &[round])?;
        ctl.unlink(OWN, "channel").context("unlinking it")?;
        let gone = ctl.attach(OWN, "channel").map(drop);
        expect("its name", gone, Err(Errno::ENOENT))?;
        old.push(channel);
    }
    let fresh = ctl.create("channel").context("creating it once more")?;
    set_nonblocking(&fresh)?;
    expect(
        "a read of the new channel",
        read_some(&fresh, 1),
        Err(Errno::EAGAIN),
    )?;
    for (round, channel) in old.iter().enumerate() {
        expect_read("an unlinked channel", channel, &[round as u8])?;
    }
    // Freeing the unlinked channels must not remove the name of the new one.
    drop(old);
    ctl.info(OWN, "channel").map(drop).context("the new one")
}

fn endpoints_stay_connected_after_unlink(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let both = ctl.create("channel")?;
    let reader = ctl.open(Open::new("channel", READ))?;
    let writer = ctl.open(Open::new("channel", WRITE))?;
    drop(both);
    ctl.unlink(OWN, "channel")?;
    write_all(&writer, b"still there")?;
    expect_read("the channel without a name", &reader, b"still there")?;
    drop(reader);
    expect(
        "a write without a reader",
        write(&writer, b"x"),
        Err(Errno::EPIPE),
    )?;
    drop(writer);
    expect_no_objects()
}

fn a_blocked_open_of_an_unlinked_channel_is_not_found(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let waiting = spawn("a blocked reader", || {
        let opened = Ctl::new()?.open(Open::new("channel", READ | CREATE));
        opened.map(drop).context("open")
    })?;
    waiting.wait_asleep_in(Call::Ioctl)?;
    ctl.unlink(OWN, "channel")?;
    let _other = ctl.create("channel").context("a new one of its name")?;
    waiting.expect_still_asleep_in(Call::Ioctl)?;
    waiting.kill()
}

fn unlinking_twice_is_enoent(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    expect(
        "a name that never existed",
        ctl.unlink(OWN, "channel"),
        Err(Errno::ENOENT),
    )?;
    let _endpoint = ctl.create("channel")?;
    expect("the first time", ctl.unlink(OWN, "channel"), Ok(()))?;
    expect(
        "the second time",
        ctl.unlink(OWN, "channel"),
        Err(Errno::ENOENT),
    )
}

fn info_reports_every_field(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let reader = ctl.create("channel")?;
    let _writer = ctl.open(Open::new("channel", WRITE))?;
    write_all(&reader, &[0; 5000])?;
    expect(
        "the info",
        ctl.info(OWN, "channel"),
        Ok(ChannelInfo {
            kind: KIND_PIPE,
            name: padded("channel"),
            mode: 0o600,
            uid: 0,
            gid: 0,
            readers: 1,
            writers: 2,
            capacity: CAPACITY as u64,
            bytes: 5000,
            total_bytes: 5000,
            ..ChannelInfo::EMPTY
        }),
    )
}
