// SPDX-License-Identifier: MIT OR Apache-2.0
//! pipe(2) with a buffer of 1 MiB instead of 64 KiB, set with F_SETPIPE_SZ: the largest for a process without
//! privileges.

use anyhow::{Context, Result};
use nix::fcntl::{FcntlArg, fcntl};

use super::{Link, Mechanism, Task, pipe, stream, sysctl};
use crate::harness::waiting::Waiting;

const CAPACITY: usize = 1 << 20;
const LIMIT: &str = "fs.pipe-max-size";

pub fn mechanism() -> Mechanism {
    Mechanism {
        label: "pipe-large (1 MiB)".into(),
        unsupported_reason: Box::new(unsupported_reason),
        ..Mechanism::new("pipe-large", Waiting::Sleep, |_| link())
    }
}

fn link() -> Result<Link> {
    let (receiver, sender) = pipe::pipe()?;
    let capacity = CAPACITY.try_into()?;
    fcntl(&sender, FcntlArg::F_SETPIPE_SZ(capacity)).with_context(|| {
        format!("cannot set the size of a pipe to {CAPACITY} bytes; see fs.pipe-user-pages-soft")
    })?;
    Ok(stream::link(receiver, sender))
}

fn unsupported_reason(_task: &Task) -> Option<String> {
    match sysctl::read(LIMIT) {
        Some(most) if most < CAPACITY => Some(format!(
            "pipes are limited to {most} bytes; raise the limit with sysctl {LIMIT}={CAPACITY}"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mebibyte_is_accepted_before_anything_is_received() {
        let mut sender = link().unwrap().sender().unwrap();
        let file = sender.file().unwrap().try_clone_to_owned().unwrap();
        let capacity = fcntl(&file, FcntlArg::F_GETPIPE_SZ).unwrap();
        assert_eq!(capacity as usize, CAPACITY);
        // The other end is closed by sender(), so nothing can be sent here.
        assert!(sender.send(b"a").is_err());
    }
}
