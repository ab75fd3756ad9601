// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows that two containers that have a directory in common need nobody else to have a ring in common.

use anyhow::{Result, bail};
use sluice_testkit::units::megabytes;

use crate::crew::Crew;
use crate::protocol::{Event, Order};
use crate::staging::Staged;
use crate::talk;
use crate::worker::SHARED;

/// Container b listens in the shared directory, and container a sends its file there.
pub fn show(crew: &mut Crew, staged: &[Staged; 2], write_size: usize) -> Result<()> {
    eprintln!(
        "Without the module: both containers have the directory {SHARED}. Container b makes a socket in it, a connects, and each\n\
         hands the other memory of its own that the other can read and not write, a ring:"
    );
    crew.order(1, &Order::ReceiveByRing)?;
    match crew.next_of(1)? {
        Event::Ready => {}
        event => bail!("container b was to listen and answered {event:?}"),
    }
    crew.order(0, &Order::SendByRing { write_size })?;
    let file = &staged[0];
    talk::verify(&talk::collect(crew)?, file)?;
    eprintln!(
        "  a sends {}, {}, through it; b receives SHA-256 {}, as sha256sum says\n",
        file.name,
        megabytes(file.bytes),
        file.sha256
    );
    Ok(())
}
