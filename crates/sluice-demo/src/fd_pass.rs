// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows how the host connects two containers: it passes the ends of a pipe to them, as file descriptors.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use sluice::{Pipe, Scope};

use sluice_testkit::units::megabytes;

use crate::containers::Containers;
use crate::named;
use crate::staging::Staged;
use crate::story::detail;
use crate::verify;

const NAME: &str = "between";

/// Container a sends its file to container b.
pub fn show(containers: &Containers, file: &Staged, size: usize) -> Result<String> {
    detail!(
        "Connected by the host: it opens the pipe '{NAME}' in the cgroup above both, and passes an end to each, as file\n\
         descriptor 3 (crun exec --preserve-fds 1):"
    );
    let [a, b] = &containers.both;
    let [reader, writer] = open_both(containers.parent_cgroup())?;
    for container in [a, b] {
        named::check_not_found(container, "pipe", NAME)?;
    }
    detail!("  'sluice pipe info {NAME}' finds no such channel in either container");
    let size = size.to_string();
    let receive = "exec dd of=/output/received bs=$1 status=none <&3";
    let receiver = b.exec_with_fd(reader, &["sh", "-c", receive, "sh", &size])?;
    let send = "exec dd if=/input-part bs=$1 status=none >&3";
    let sender = a.exec_with_fd(writer, &["sh", "-c", send, "sh", &size])?;
    verify::await_transfer("the passed descriptors", b, file, &mut [sender, receiver])?;
    Ok(format!(
        "the host passes an end to each container: a sends {}, b receives it intact",
        megabytes(file.bytes)
    ))
}

/// The reader and the writer.
fn open_both(cgroup: &Path) -> Result<[OwnedFd; 2]> {
    let pipe = Pipe::named(NAME).scope(Scope::at(cgroup)?);
    // A blocking open would wait for the other one.
    let reader = pipe.clone().create(true).nonblocking(true).reader()?;
    let writer = pipe.writer()?;
    fcntl(reader.as_fd(), FcntlArg::F_SETFL(OFlag::empty()))
        .context("cannot make the read end blocking; 'dmesg | tail' may give the reason")?;
    Ok([reader.into(), writer.into()])
}
