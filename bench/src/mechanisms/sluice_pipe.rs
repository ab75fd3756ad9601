// SPDX-License-Identifier: MIT OR Apache-2.0
//! /dev/sluice/pipe. Each cgroup has its own pipe, so each link uses its own cgroup: both processes enter it, open the
//! node, and may then move, because an endpoint stays with the pipe on which it was opened. There are two variants:
//! with the adaptive spinning of the module, and with spinning turned off.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::rc::Rc;

use anyhow::{Context, Result};
use nix::errno::Errno;
use sluice_abi::{PIPE_SET_SPIN, Setting};
use sluice_testkit::cgroup::{Cgroup, Tree};
use sluice_testkit::module::PIPE_NODE;

use super::stream::{StreamReceiver, StreamSender};
use super::{Link, Mechanism};
use crate::harness::waiting::Waiting;

pub fn mechanism(tree: &Rc<Tree>, waiting: Waiting) -> Mechanism {
    let [one, shared] = [tree; 2].map(Rc::clone);
    Mechanism {
        own_cgroups: Some(Rc::clone(tree)),
        is_file: true,
        shared_links: Some(Box::new(move |users| {
            let cgroup = shared.create_temporary()?;
            Ok((0..users).map(|_| link(cgroup.clone(), waiting)).collect())
        })),
        ..Mechanism::new("sluice-pipe", waiting, move |_| {
            Ok(link(one.create_temporary()?, waiting))
        })
    }
}

fn link(cgroup: Cgroup, waiting: Waiting) -> Link {
    Link::new(
        cgroup,
        move |cgroup| open(cgroup, File::options().write(true), waiting).map(StreamSender),
        move |cgroup| open(cgroup, File::options().read(true), waiting).map(StreamReceiver),
    )
}

fn open(cgroup: Cgroup, options: &mut OpenOptions, waiting: Waiting) -> Result<File> {
    cgroup.enter()?;
    let file = options.open(PIPE_NODE).with_context(|| format!(
        "cannot open {PIPE_NODE}; check that the module is loaded and cgroup v2 is mounted; see 'dmesg | tail'"
    ))?;
    if waiting == Waiting::Sleep {
        let mut setting = Setting::new(0);
        // SAFETY: the kernel reads and writes one Setting, whose size is in the command.
        let set = unsafe { libc::ioctl(file.as_raw_fd(), PIPE_SET_SPIN, &raw mut setting) };
        Errno::result(set).with_context(|| {
            format!("cannot turn off spinning on {PIPE_NODE}; check the version of the module")
        })?;
    }
    Ok(file)
}
