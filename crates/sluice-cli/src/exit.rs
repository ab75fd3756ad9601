// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exit statuses that the manual promises; 2, a usage error, is clap's own.

use std::process::ExitCode;

use sluice::Error;

const FAILURE: u8 = 1;
const NO_CHANNEL: u8 = 3;
const NAME_TAKEN: u8 = 4;
const NO_PERMISSION: u8 = 5;
const NOT_SET_UP: u8 = 6;

pub fn status(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(error.downcast_ref().map_or(FAILURE, number))
}

fn number(error: &Error) -> u8 {
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

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn the_reason_counts_whatever_was_said_around_it() {
        let error = Err::<(), _>(Error::NoCgroup2).context("sending");
        assert_eq!(status(&error.unwrap_err()), ExitCode::from(NOT_SET_UP));
        assert_eq!(status(&anyhow::anyhow!("other")), ExitCode::from(FAILURE));
    }
}
