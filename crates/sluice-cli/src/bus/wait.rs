// SPDX-License-Identifier: MIT OR Apache-2.0
//! The option `--wait` of pub and request.

use std::time::Duration;

use anyhow::Result;
use sluice::bus::{BusInfo, Mode, OpenError, Options};

use crate::ring::wait::WaitLimit;
use crate::wait_notice::elsewhere;

/// Opens a bus, and waits up to this time for it and for a receiver of its messages, which `peer` names.
pub fn open<E>(
    bus: &Options,
    time: Option<Duration>,
    peer: &str,
    open: impl Fn(&Options) -> Result<E, OpenError>,
    info: impl Fn(&E) -> sluice::Result<BusInfo>,
) -> Result<E> {
    let limit = WaitLimit::from_now(time);
    if !limit.is_given() {
        return Ok(open(bus)?);
    }
    let channel = bus.channel()?;
    let (name, scope) = (channel.name(), channel.scope());
    let awaited = elsewhere(&format!("the bus '{name}' in {scope}"));
    let end = limit.retry(&awaited, || match open(bus) {
        Err(OpenError::Open(sluice::Error::NotFound { .. })) => Ok(None),
        other => Ok(Some(other?)),
    })?;
    let awaited = elsewhere(&format!("{peer} of '{name}' in {scope}"));
    limit.retry(&awaited, || Ok(has_receiver(&info(&end)?).then_some(())))?;
    Ok(end)
}

/// A unicast bus keeps messages without one.
fn has_receiver(info: &BusInfo) -> bool {
    info.subscribers > 0 || info.mode == Mode::Unicast
}
