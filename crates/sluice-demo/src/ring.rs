// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows a ring between the containers, which needs neither the module nor the host, only a directory that both have.

use anyhow::Result;

use crate::container::Container;
use crate::staging::Staged;
use crate::verify;

/// Lines, which are the records of a ring, of any file.
const SEND_SCRIPT: &str = "base64 --wrap=65536 /input | sluice ring send /shared/ring";
const RECEIVE_SCRIPT: &str = "sluice ring recv /shared/ring | base64 --decode >/output/received";

/// Container a sends its file to container b.
pub fn show([a, b]: &[Container; 2], file: &Staged) -> Result<()> {
    eprintln!(
        "Connected by a ring, without the module: b listens on a socket in a directory that both have, and a connects:\n  \
         b runs '{RECEIVE_SCRIPT}'\n  a runs '{SEND_SCRIPT}'"
    );
    let receiver = b.exec(&["sh", "-c", RECEIVE_SCRIPT])?;
    let sender = a.exec(&["sh", "-c", SEND_SCRIPT])?;
    verify::await_transfer("the ring", b, file, &mut [sender, receiver])
}
