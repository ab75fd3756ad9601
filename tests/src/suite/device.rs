// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device node itself, which a FIFO does not have.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

use crate::registry::{Context, topic};
use crate::support::channel::{read_some, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn;
use crate::support::fuse;
use crate::support::proc::Call;

topic!(
    "device",
    fifo: [],
    pipe_only: [
        the_node_is_a_character_device_with_mode_666,
        the_nodes_have_one_major_number,
        a_minor_without_a_node_is_enxio,
        an_unprivileged_process_can_use_it,
        a_blocked_open_does_not_block_opens_of_other_devices,
    ],
);

fn the_node_is_a_character_device_with_mode_666(context: &Context) -> Result<()> {
    let path = context.channel.path()?;
    let metadata = fs::metadata(path).with_context(|| format!("stat of {}", path.display()))?;
    expect(
        "whether it is a character device",
        metadata.file_type().is_char_device(),
        true,
    )?;
    expect(
        "its mode",
        format!("{:o}", metadata.permissions().mode() & 0o7777),
        "666".to_owned(),
    )
}

/// The device number of a node in /sys/class.
fn number_of(name: &str) -> Result<(u64, u64)> {
    let path = Path::new("/sys/class/sluice").join(name).join("dev");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let numbers = text.trim().split_once(':');
    let (major, minor) = numbers.with_context(|| format!("{text} is no device number"))?;
    Ok((major.parse()?, minor.parse()?))
}

fn the_nodes_have_one_major_number(_: &Context) -> Result<()> {
    let class = fs::read_dir("/sys/class/sluice").context("listing the class")?;
    let mut names: Vec<_> = class.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    expect(
        "the devices of the class",
        names,
        vec!["ctl".into(), "feed".into(), "pipe".into()],
    )?;
    let (major, _) = number_of("ctl")?;
    for (name, minor, mode) in [("ctl", 0, 0o666), ("feed", 3, 0o660), ("pipe", 1, 0o666)] {
        expect(name, number_of(name)?, (major, minor))?;
        let node = fs::metadata(Path::new("/dev/sluice").join(name)).context(name)?;
        expect(name, node.rdev(), makedev(major, minor))?;
        expect(name, node.permissions().mode() & 0o7777, mode)?;
    }
    Ok(())
}

fn a_minor_without_a_node_is_enxio(_: &Context) -> Result<()> {
    let (major, _) = number_of("ctl")?;
    let path = PathBuf::from(format!("/dev/sluice-tests-{}", std::process::id()));
    for minor in [2, 63] {
        let number = makedev(major, minor);
        mknod(&path, SFlag::S_IFCHR, Mode::S_IRUSR, number).context("mknod")?;
        let opened = File::open(&path).map(drop);
        fs::remove_file(&path).context("removing a node")?;
        let error = opened.map_err(|error| error.raw_os_error());
        let what = format!("an open of minor {minor}");
        expect(&what, error, Err(Some(Errno::ENXIO as i32)))?;
    }
    Ok(())
}

fn an_unprivileged_process_can_use_it(context: &Context) -> Result<()> {
    let child = spawn("an unprivileged process", || {
        setgroups(&[]).context("setgroups")?;
        setgid(Gid::from_raw(65534)).context("setgid")?;
        setuid(Uid::from_raw(65534)).context("setuid")?;
        let both = context.channel.open_read_write()?;
        write_all(&both, b"mine")?;
        read_some(&both, 64).context("read")
    })?;
    expect_bytes("bytes read back", &child.finish()?, b"mine")
}

/// All misc devices are opened under one global mutex, so a driver that blocks in open would block them all.
fn a_blocked_open_does_not_block_opens_of_other_devices(context: &Context) -> Result<()> {
    fuse::load()?;
    let waiting = spawn("a blocked reader", || {
        context.channel.open_reader().map(drop)
    })?;
    waiting.wait_asleep_in(Call::Open)?;
    let other = spawn("an open of another device", || {
        File::open(fuse::DEVICE).context("opening /dev/fuse")?;
        Ok(())
    })?;
    other.finish()?;
    waiting.expect_still_asleep_in(Call::Open)
}
