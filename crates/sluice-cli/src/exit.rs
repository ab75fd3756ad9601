// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exit statuses, which sluice(1) lists. Status 2, a usage error, comes from clap.

use std::io;
use std::process::ExitCode;

use sluice::Error;
use sluice::bus::{self, OpenError, SendError};
use sluice::feed::{RecvError, SimulatorError};
use sluice::map::{self, SyncError, WatchError, WriteError};
use sluice::ring::SetupError;
use sluiced_protocol::FailureKind;

use crate::map::{NoSuchKey, StoredOnly};
use crate::ring::{PathInUse, WaitTimeout};
use crate::store::{DaemonError, failure_kind};

const FAILURE: u8 = 1;
const NOT_FOUND: u8 = 3;
const ALREADY_EXISTS: u8 = 4;
const PERMISSION_DENIED: u8 = 5;
const NOT_SET_UP: u8 = 6;
const NOT_KNOWN_TO_BE_STORED: u8 = 7;
const TIMED_OUT: u8 = 8;

pub fn status(error: &anyhow::Error) -> ExitCode {
    let number = match (error.downcast_ref(), error.downcast_ref()) {
        (Some(error), _) => of_module_error(error),
        (_, Some(error)) => of_ring_error(error),
        _ => of_feed_error(error)
            .or_else(|| of_bus_error(error))
            .or_else(|| of_map_error(error))
            .or_else(|| of_entry_error(error))
            .or_else(|| error.downcast_ref().map(of_daemon_error))
            .unwrap_or_else(|| of_other_error(error)),
    };
    ExitCode::from(number)
}

fn of_other_error(error: &anyhow::Error) -> u8 {
    match error {
        _ if error.is::<WaitTimeout>() => TIMED_OUT,
        _ if error.is::<NoSuchKey>() => NOT_FOUND,
        _ if error.is::<PathInUse>() => ALREADY_EXISTS,
        _ => match error.downcast_ref::<StoredOnly>() {
            Some(stored) if stored.would_hide() => ALREADY_EXISTS,
            Some(_) => NOT_FOUND,
            None => FAILURE,
        },
    }
}

fn of_feed_error(error: &anyhow::Error) -> Option<u8> {
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(RecvError::Busy), _) | (_, Some(SimulatorError::Running)) => Some(ALREADY_EXISTS),
        (_, Some(SimulatorError::NotPermitted)) => Some(PERMISSION_DENIED),
        _ => None,
    }
}

fn of_bus_error(error: &anyhow::Error) -> Option<u8> {
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(OpenError::Open(error)), _) => Some(of_module_error(error)),
        (Some(OpenError::PolicyNotPermitted { .. } | OpenError::MonitorNotPermitted), _) => {
            Some(PERMISSION_DENIED)
        }
        (_, Some(SendError::UnknownSubscriber { .. } | SendError::NoSubscriber)) => Some(NOT_FOUND),
        _ => match error.downcast_ref()? {
            bus::RecvError::TimedOut(_) => Some(TIMED_OUT),
            _ => None,
        },
    }
}

fn of_map_error(error: &anyhow::Error) -> Option<u8> {
    if let Some(WatchError::TimedOut(_)) = error.downcast_ref() {
        return Some(TIMED_OUT);
    }
    match error.downcast_ref()? {
        map::OpenError::Open(error) => Some(of_module_error(error)),
        map::OpenError::NotDurable { .. } => Some(ALREADY_EXISTS),
        _ => None,
    }
}

fn of_entry_error(error: &anyhow::Error) -> Option<u8> {
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(WriteError::NotFound { .. }), _) => Some(NOT_FOUND),
        (Some(WriteError::AlreadyExists | WriteError::VersionMismatch { .. }), _) => {
            Some(ALREADY_EXISTS)
        }
        (Some(WriteError::Refused | WriteError::Store(_)), _) => Some(NOT_SET_UP),
        (Some(WriteError::Unacknowledged { .. }), _) | (_, Some(SyncError::TimedOut)) => {
            Some(NOT_KNOWN_TO_BE_STORED)
        }
        _ => None,
    }
}

fn of_daemon_error(error: &DaemonError) -> u8 {
    match (error, failure_kind(error)) {
        (DaemonError::NotRunning(_) | DaemonError::Silent, _) => NOT_SET_UP,
        (DaemonError::NotPermitted(_), _) => PERMISSION_DENIED,
        (_, Some(FailureKind::NotFound)) => NOT_FOUND,
        _ => FAILURE,
    }
}

fn of_module_error(error: &Error) -> u8 {
    match error {
        Error::NotFound { .. } => NOT_FOUND,
        Error::AlreadyExists { .. } => ALREADY_EXISTS,
        Error::PermissionDenied { .. }
        | Error::OtherOwner { .. }
        | Error::OutsideScope { .. }
        | Error::NotOwner { .. }
        | Error::CapacityLimit { .. } => PERMISSION_DENIED,
        Error::ModuleNotLoaded { .. }
        | Error::ModuleTooOld { .. }
        | Error::NoCgroup2
        | Error::StoreTimeout { .. }
        | Error::StoreFailed { .. }
        | Error::UnlinkPending { .. } => NOT_SET_UP,
        _ => FAILURE,
    }
}

fn of_ring_error(error: &SetupError) -> u8 {
    match error {
        SetupError::PeerNotAllowed { .. } | SetupError::NotAllowedByPeer => PERMISSION_DENIED,
        SetupError::RoleTaken { .. } => ALREADY_EXISTS,
        SetupError::Open(error) => of_module_error(error),
        SetupError::Listen { source, .. } | SetupError::Connect { source, .. } => {
            match source.kind() {
                io::ErrorKind::AddrInUse => ALREADY_EXISTS,
                io::ErrorKind::PermissionDenied => PERMISSION_DENIED,
                _ => FAILURE,
            }
        }
        _ => FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::Context;

    use super::*;

    #[test]
    fn the_status_is_that_of_the_cause_below_any_context() {
        let error = Err::<(), _>(Error::NoCgroup2).context("sending");
        assert_eq!(status(&error.unwrap_err()), ExitCode::from(NOT_SET_UP));
        let error = Err::<(), _>(SetupError::PeerNotAllowed { uid: 7 }).context("connecting");
        assert_eq!(
            status(&error.unwrap_err()),
            ExitCode::from(PERMISSION_DENIED)
        );
        let error = anyhow::Error::new(RecvError::Busy);
        assert_eq!(status(&error), ExitCode::from(ALREADY_EXISTS));
        let error = anyhow::Error::new(SimulatorError::NotPermitted);
        assert_eq!(status(&error), ExitCode::from(PERMISSION_DENIED));
        let error = anyhow::Error::new(OpenError::MonitorNotPermitted).context("subscribing");
        assert_eq!(status(&error), ExitCode::from(PERMISSION_DENIED));
        let error = anyhow::Error::new(SendError::NoSubscriber);
        assert_eq!(status(&error), ExitCode::from(NOT_FOUND));
        let error = anyhow::Error::new(map::OpenError::Open(Error::NoCgroup2));
        assert_eq!(status(&error), ExitCode::from(NOT_SET_UP));
        let error = anyhow::Error::new(WriteError::NotFound { required: 7 }).context("setting");
        assert_eq!(status(&error), ExitCode::from(NOT_FOUND));
        let error = anyhow::Error::new(WriteError::AlreadyExists).context("setting");
        assert_eq!(status(&error), ExitCode::from(ALREADY_EXISTS));
        let error = anyhow::Error::new(WriteError::Full).context("setting");
        assert_eq!(status(&error), ExitCode::from(FAILURE));
        let error = anyhow::Error::new(WriteError::Refused).context("setting");
        assert_eq!(status(&error), ExitCode::from(NOT_SET_UP));
        let error = WriteError::Unacknowledged { number: 7 };
        let error = anyhow::Error::new(error).context("setting");
        assert_eq!(status(&error), ExitCode::from(NOT_KNOWN_TO_BE_STORED));
        assert_eq!(
            status(&SyncError::TimedOut.into()),
            ExitCode::from(NOT_KNOWN_TO_BE_STORED)
        );
        let what = "opening".to_owned();
        let error = map::OpenError::Open(Error::StoreTimeout { what });
        assert_eq!(status(&error.into()), ExitCode::from(NOT_SET_UP));
        let name = "jobs".to_owned();
        let error = map::OpenError::NotDurable { name };
        assert_eq!(status(&error.into()), ExitCode::from(ALREADY_EXISTS));
        let time = Duration::from_secs(1);
        let error = anyhow::Error::new(bus::RecvError::TimedOut(time)).context("receiving");
        assert_eq!(status(&error), ExitCode::from(TIMED_OUT));
        let error = anyhow::Error::new(WatchError::TimedOut(time)).context("watching");
        assert_eq!(status(&error), ExitCode::from(TIMED_OUT));
        let error = SetupError::RoleTaken { role: "producer" };
        assert_eq!(status(&error.into()), ExitCode::from(ALREADY_EXISTS));
        assert_eq!(status(&anyhow::anyhow!("other")), ExitCode::from(FAILURE));
    }
}
