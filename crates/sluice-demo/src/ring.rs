// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows a ring between the containers, which needs neither the module nor the host, only a directory that both have.

use anyhow::Result;
use sluice_testkit::units::megabytes;

use crate::container::Container;
use crate::staging::Staged;
use crate::story::detail;
use crate::verify;

/// The socket over which the two sides connect.
const SOCKET: &str = "/shared/ring";

/// Sends the input as lines, which are the records of a ring. `place` are the arguments of `sluice ring` for the ring.
pub fn send_script(place: &str) -> String {
    format!("base64 --wrap=65536 /input-part | sluice ring send {place}")
}

pub fn receive_script(place: &str) -> String {
    format!("sluice ring recv {place} | base64 --decode >/output/received")
}

/// Container a sends its file to container b.
pub fn show([a, b]: &[Container; 2], file: &Staged) -> Result<String> {
    let place = format!("--socket {SOCKET}");
    let (send, receive) = (send_script(&place), receive_script(&place));
    detail!(
        "Connected by a ring, without the module: b listens on a socket in a directory that both have, and a connects:\n  \
         b runs '{receive}'\n  a runs '{send}'"
    );
    let receiver = b.exec(&["sh", "-c", &receive])?;
    let sender = a.exec(&["sh", "-c", &send])?;
    verify::await_transfer("the ring", b, file, &mut [sender, receiver])?;
    Ok(format!(
        "without the module, over a socket: a sends {}, b receives it intact",
        megabytes(file.bytes)
    ))
}
