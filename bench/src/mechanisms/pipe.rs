// SPDX-License-Identifier: MIT OR Apache-2.0
//! pipe(2), the reference, and its variants: with a larger buffer, and with a name.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::Mode;
use nix::unistd::{mkfifo, pipe2};

use super::stream::Ends;
use super::temp_paths::{MEMORY, private_directory};
use super::{Batching, Link, Mechanism, stream};

/// Instead of 64 KiB: the largest for a process without privileges.
const LARGE: usize = 1 << 20;

pub fn mechanism() -> Mechanism {
    Mechanism {
        // The reference of batches, too.
        batching: Some(Batching::OneByOne),
        shared_links: Some(Box::new(shared_links)),
        ..stream::mechanism("pipe", pipe)
    }
}

pub fn variants() -> [Mechanism; 2] {
    let large = stream::mechanism("pipe-large", || large_pipe(LARGE));
    let named = || named_pipe().context("cannot create and open a FIFO");
    let large = large.labelled("pipe-large (1 MiB)");
    [large, stream::mechanism("fifo", named)]
}

fn shared_links(users: usize) -> Result<Vec<Link>> {
    let (receiver, sender) = pipe()?;
    let link = |_| Ok(stream::link((receiver.try_clone()?, sender.try_clone()?)));
    (0..users).map(link).collect()
}

pub fn pipe() -> Result<Ends> {
    pipe2(OFlag::O_CLOEXEC).context("cannot create a pipe")
}

pub fn large_pipe(bytes: usize) -> Result<Ends> {
    let ends = pipe()?;
    let resize = FcntlArg::F_SETPIPE_SZ(bytes.try_into()?);
    fcntl(&ends.1, resize).with_context(|| {
        format!("cannot set the size of a pipe to {bytes} bytes; raise the limit with sysctl fs.pipe-max-size={bytes}, see also fs.pipe-user-pages-soft")
    })?;
    Ok(ends)
}

/// The name is removed at once. It is in a directory of this user, so that no other user can open the FIFO.
fn named_pipe() -> Result<Ends> {
    let directory = private_directory(Path::new(MEMORY))?;
    let path = directory.path().join("fifo");
    mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
    // A blocking open would wait for the other end, which only this process can open.
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let receiver = options.open(&path)?;
    let sender = File::options().write(true).open(&path)?;
    fcntl(&receiver, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok((receiver.into(), sender.into()))
}
