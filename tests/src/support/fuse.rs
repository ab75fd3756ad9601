// SPDX-License-Identifier: MIT OR Apache-2.0
//! A FUSE file system whose server holds one answer back. Its root is a file of one page, so no name is looked up; it is
//! mounted over the device, for a moment, in a mount namespace of the test.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::child::{Child, spawn_keeping};
use super::event::Event;
use super::memory::PAGE;

pub const DEVICE: &str = "/dev/fuse";

// Operations of linux/fuse.h. The kernel does without those that are answered with ENOSYS.
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
pub const READ: u32 = 15;
pub const WRITE: u32 = 16;
const INIT: u32 = 26;

/// Without it, a process that waits for a page could not be killed.
const ASYNC_READ: u32 = 1;
/// Without it, a process that closes the file would wait until its pages are written.
const NO_FLUSH: u32 = 1 << 5;
const MODE: u32 = libc::S_IFREG | 0o600;

/// FUSE is a module of some kernels.
pub fn load() -> Result<()> {
    if !Path::new(DEVICE).exists() {
        let loaded = Command::new("modprobe").arg("fuse").status();
        ensure!(
            loaded.context("running modprobe")?.success(),
            "modprobe fuse failed, and without it there is no {DEVICE}"
        );
    }
    // As udev does.
    fs::set_permissions(DEVICE, Permissions::from_mode(0o666)).context("chmod")
}

/// The server, and its file, which has no path any more. The server notifies `arrived` when the first request of the
/// operation `held` arrives, and answers it after `resume`. It ends when the file is closed, and drops requests that it has
/// not read.
pub fn serve(
    content: &[u8; PAGE],
    held: u32,
    arrived: &Event,
    resume: &Event,
) -> Result<(Child<()>, File)> {
    let mut open = File::options();
    open.read(true).write(true);
    let device = open.open(DEVICE).context("opening /dev/fuse")?;
    let fd = device.as_raw_fd();
    let options = format!("fd={fd},rootmode={MODE:o},user_id=0,group_id=0");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("slow"), DEVICE, Some("fuse"), flags, Some(&*options)).context("mounting FUSE")?;
    let [arrived_fds, resume_fds] = [arrived.fds(), resume.fds()];
    let keep = [&[device.as_fd()], &arrived_fds[..], &resume_fds].concat();
    let server = spawn_keeping("the FUSE server", &keep, || {
        answer(&device, content, held, arrived, resume)
    })?;
    let file = open.open(DEVICE).context("opening the file of FUSE")?;
    umount2(DEVICE, MntFlags::MNT_DETACH).context("unmounting FUSE")?;
    // Only this tells the kernel the size.
    file.metadata().context("the size of the file of FUSE")?;
    Ok((server, file))
}

/// Answers requests until the file is closed, the others also while one is held back.
fn answer(
    mut device: &File,
    content: &[u8; PAGE],
    held: u32,
    arrived: &Event,
    resume: &Event,
) -> Result<()> {
    // A shorter buffer is EINVAL.
    let mut request = [0; 4 * PAGE];
    let mut held_back = None;
    loop {
        let fds = [device.as_fd(), resume.fds()[0]];
        let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        poll(&mut fds, PollTimeout::NONE).context("poll")?;
        if fds[0].any() == Some(false) {
            resume.wait("the answer")?;
            reply(device, held_back.context("no request")?, held, content)?;
            continue;
        }
        match device.read(&mut request) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
            Err(error) => bail!("reading a request: {error}"),
        }
        let operation = u32::from_ne_bytes(request[4..8].try_into()?);
        let unique = request[8..16].try_into()?;
        if operation == held && held_back.is_none() {
            held_back = Some(unique);
            arrived.notify()?;
        } else {
            reply(device, unique, operation, content)?;
        }
    }
}

fn reply(mut device: &File, unique: [u8; 8], operation: u32, content: &[u8; PAGE]) -> Result<()> {
    let page = PAGE as u32;
    let (error, body) = match operation {
        // Version 7.31, the longest read-ahead, flags, the longest write.
        INIT => (
            0,
            words::<16>(&[(0, 7), (1, 31), (2, page), (3, ASYNC_READ), (5, page)]),
        ),
        // The number of the inode, its size, mode and links.
        GETATTR => (0, words::<26>(&[(4, 1), (6, page), (19, MODE), (20, 1)])),
        // The flags.
        OPEN => (0, words::<4>(&[(2, NO_FLUSH)])),
        READ => (0, content.to_vec()),
        WRITE => (0, words::<2>(&[(0, page)])),
        _ => (-libc::ENOSYS, Vec::new()),
    };
    let length = (16 + body.len()) as u32;
    let message = [
        &length.to_ne_bytes()[..],
        &error.to_ne_bytes(),
        &unique,
        &body,
    ]
    .concat();
    device.write_all(&message).context("answering a request")
}

/// A structure of `N` words; those not in `set` are 0.
fn words<const N: usize>(set: &[(usize, u32)]) -> Vec<u8> {
    let mut words = [0; N];
    for (at, word) in set {
        words[*at] = *word;
    }
    words.iter().copied().flat_map(u32::to_ne_bytes).collect()
}
