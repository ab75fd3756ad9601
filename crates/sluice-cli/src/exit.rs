// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exit statuses that the manual promises; 2, a usage error, is clap's own.

use std::io;
use std::process::ExitCode;

use sluice::Error;
use sluice::ring::SetupError;

use crate::ring::{Absent, Taken};

const FAILURE: u8 = 1;
const NO_CHANNEL: u8 = 3;
const NAME_TAKEN: u8 = 4;
const NO_PERMISSION: u8 = 5;
const NOT_SET_UP: u8 = 6;

pub fn status(error: &anyhow::Error) -> ExitCode {
    let number = match (error.downcast_ref(), error.downcast_ref()) {
        (Some(error), _) => of_module(error),
        (_, Some(error)) => of_ring(error),
        _ if error.is::<Absent>() => NO_CHANNEL,
        _ if error.is::<Taken>() => NAME_TAKEN,
        _ => FAILURE,
    };
    ExitCode::from(number)
}

fn of_module(error: &Error) -> u8 {
    match error {
        Error::NotFound { .. } => NO_CHANNEL,
        Error::Exists { .. } => NAME_TAKEN,
        Error::Denied { .. }
        | Error::OutsideScope { .. }
        | Error::NotOwner { .. }
        | Error::CapacityLimit { .. } => NO_PERMISSION,
        Error::NotLoaded { .. } | Error::OldModule { .. } | Error::NoCgroup2 => NOT_SET_UP,
        _ => FAILURE,
    }
}

fn of_ring(error: &SetupError) -> u8 {
    match error {
        SetupError::PeerNotAllowed { .. } => NO_PERMISSION,
        SetupError::Listen { source, .. } | SetupError::Connect { source, .. } => {
            match source.kind() {
                io::ErrorKind::AddrInUse => NAME_TAKEN,
                io::ErrorKind::PermissionDenied => NO_PERMISSION,
                _ => FAILURE,
            }
        }
        _ => FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn the_reason_counts_whatever_was_said_around_it() {
        let error = Err::<(), _>(Error::NoCgroup2).context("sending");
        assert_eq!(status(&error.unwrap_err()), ExitCode::from(NOT_SET_UP));
        let error = Err::<(), _>(SetupError::PeerNotAllowed { uid: 7 }).context("meeting");
        assert_eq!(status(&error.unwrap_err()), ExitCode::from(NO_PERMISSION));
        assert_eq!(status(&anyhow::anyhow!("other")), ExitCode::from(FAILURE));
    }
}
