// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device node itself. A FIFO is a node of another kind.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

use crate::registry::{Context, topic};
use crate::support::channel::{read_some, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn;
use crate::support::proc::Call;

topic!(
    "device",
    fifo: [],
    pipe_only: [
        it_is_a_character_device_for_everyone,
        a_process_without_privileges_can_use_it,
        a_waiting_open_does_not_delay_the_open_of_another_device,
    ],
);

fn it_is_a_character_device_for_everyone(context: &Context) -> Result<()> {
    let path = context.channel.path()?;
    let metadata = fs::metadata(path).with_context(|| format!("looking at {}", path.display()))?;
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

fn a_process_without_privileges_can_use_it(context: &Context) -> Result<()> {
    let child = spawn("a process of nobody's", || {
        setgroups(&[]).context("setgroups")?;
        setgid(Gid::from_raw(65534)).context("setgid")?;
        setuid(Uid::from_raw(65534)).context("setuid")?;
        let both = context.channel.open_both_ways()?;
        write_all(&both, b"mine")?;
        read_some(&both, 64).context("read")
    })?;
    expect_bytes("what it read back", &child.finish()?, b"mine")
}

/// Opens of misc devices hold one lock for the whole machine: a driver that sleeps under it stops them all.
fn a_waiting_open_does_not_delay_the_open_of_another_device(context: &Context) -> Result<()> {
    const OTHER: &str = "/dev/fuse";
    if !Path::new(OTHER).exists() {
        let loaded = Command::new("modprobe")
            .arg("fuse")
            .status()
            .context("running modprobe")?;
        ensure!(
            loaded.success(),
            "modprobe fuse failed, and without it there is no {OTHER}"
        );
    }
    let waiting = spawn("a reader that waits", || {
        context.channel.open_reader().map(drop)
    })?;
    waiting.wait_asleep_in(Call::Open)?;
    let other = spawn("an open of another device", || {
        File::open(OTHER).with_context(|| format!("opening {OTHER}"))?;
        Ok(())
    })?;
    other.finish()?;
    waiting.expect_still_asleep_in(Call::Open)
}
