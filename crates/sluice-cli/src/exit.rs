// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exit statuses, which sluice(1) lists. Status 2, a usage error, comes from clap.

use std::io::ErrorKind;
use std::process::ExitCode;

use sluice::bus::SendError;
use sluice::map::{self, SyncError, WriteError};
use sluice::ring::SetupError;
use sluice::{Diagnosis, Error};
use sluiced_protocol::FailureKind;

use crate::map::{NoSuchKey, StoredOnly};
use crate::ring::{PathInUse, WaitTimeout};
use crate::store::{DaemonError, failure_kind};
use crate::unload::UnloadError;

const FAILURE: u8 = 1;
const NOT_FOUND: u8 = 3;
const ALREADY_EXISTS: u8 = 4;
const PERMISSION_DENIED: u8 = 5;
const NOT_SET_UP: u8 = 6;
const NOT_KNOWN_TO_BE_STORED: u8 = 7;
const TIMED_OUT: u8 = 8;

/// The status is that of the kind of the error, except where sluice(1) distinguishes more.
pub fn status(error: &anyhow::Error) -> ExitCode {
    let number = of_command(error)
        .or_else(|| of_store(error))
        .or_else(|| of_system(error))
        .or_else(|| of_usage(error))
        .unwrap_or_else(|| of_kind(error));
    ExitCode::from(number)
}

/// The command's own errors.
fn of_command(error: &anyhow::Error) -> Option<u8> {
    match error {
        _ if error.is::<WaitTimeout>() => Some(TIMED_OUT),
        _ if error.is::<NoSuchKey>() => Some(NOT_FOUND),
        _ if error.is::<PathInUse>() => Some(ALREADY_EXISTS),
        _ => match error.downcast_ref::<StoredOnly>() {
            Some(stored) if stored.would_hide() => Some(ALREADY_EXISTS),
            Some(_) => Some(NOT_FOUND),
            None => {
                let daemon = error.downcast_ref().map(of_daemon_error);
                daemon.or_else(|| error.downcast_ref().map(of_unload))
            }
        },
    }
}

fn of_unload(error: &UnloadError) -> u8 {
    match error {
        UnloadError::NotLoaded => NOT_SET_UP,
        UnloadError::BuiltIn => FAILURE,
        UnloadError::NotPermitted(_) | UnloadError::ModulesDisabled => PERMISSION_DENIED,
        UnloadError::InUse { .. } => ALREADY_EXISTS,
        UnloadError::TimedOut { .. } => TIMED_OUT,
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

/// Of a durable map: whether the change is made matters more than what has failed.
fn of_store(error: &anyhow::Error) -> Option<u8> {
    if let Some(SyncError::TimedOut) = error.downcast_ref() {
        return Some(NOT_KNOWN_TO_BE_STORED);
    }
    match error.downcast_ref() {
        Some(WriteError::Unacknowledged { .. }) => return Some(NOT_KNOWN_TO_BE_STORED),
        Some(WriteError::Refused | WriteError::Store(_)) => return Some(NOT_SET_UP),
        _ => {}
    }
    let of_channel = match error.downcast_ref() {
        Some(map::OpenError::Open(error)) => Some(error),
        _ => error.downcast_ref(),
    };
    match of_channel? {
        Error::StoreTimeout { .. } | Error::StoreFailed { .. } | Error::UnlinkPending { .. } => {
            Some(NOT_SET_UP)
        }
        _ => None,
    }
}

/// A system call that failed, for example because of a path that does not exist, says nothing of a channel or of the module.
fn of_system(error: &anyhow::Error) -> Option<u8> {
    let is_io = |error: &Error| matches!(error, Error::Io { .. });
    match (error.downcast_ref(), error.downcast_ref::<SetupError>()) {
        (Some(error), _) | (_, Some(SetupError::Open(error))) if is_io(error) => Some(FAILURE),
        (_, Some(SetupError::System(_) | SetupError::NotLocked(..))) => Some(FAILURE),
        (_, Some(SetupError::Listen { source, .. } | SetupError::Connect { source, .. })) => {
            (source.kind() == ErrorKind::NotFound).then_some(FAILURE)
        }
        _ => None,
    }
}

/// What a channel does not support is no fault of the system.
fn of_usage(error: &anyhow::Error) -> Option<u8> {
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(SyncError::NotDurable), _) | (_, Some(SendError::NotAddressable)) => Some(FAILURE),
        _ => None,
    }
}

fn of_kind(error: &anyhow::Error) -> u8 {
    let Some(diagnosis) = Diagnosis::of(error.as_ref()) else {
        return FAILURE;
    };
    match diagnosis.kind {
        ErrorKind::NotFound | ErrorKind::NotConnected => NOT_FOUND,
        ErrorKind::AlreadyExists | ErrorKind::AddrInUse | ErrorKind::ResourceBusy => ALREADY_EXISTS,
        ErrorKind::PermissionDenied => PERMISSION_DENIED,
        ErrorKind::Unsupported => NOT_SET_UP,
        ErrorKind::TimedOut => TIMED_OUT,
        _ => FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::Context;
    use sluice::bus::{self, OpenError};
    use sluice::feed::{RecvError, SimulatorError};
    use sluice::map::WatchError;

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
        let error = anyhow::Error::new(bus::RecvError::TimedOut(time.into())).context("receiving");
        assert_eq!(status(&error), ExitCode::from(TIMED_OUT));
        let error = anyhow::Error::new(WatchError::TimedOut(time)).context("watching");
        assert_eq!(status(&error), ExitCode::from(TIMED_OUT));
        let error = SetupError::RoleTaken { role: "producer" };
        assert_eq!(status(&error.into()), ExitCode::from(ALREADY_EXISTS));
        let source = std::io::Error::from(ErrorKind::NotFound);
        let path = "no/socket".into();
        let error = SetupError::Connect { path, source };
        assert_eq!(status(&error.into()), ExitCode::from(FAILURE));
        let error = anyhow::Error::new(SyncError::NotDurable);
        assert_eq!(status(&error), ExitCode::from(FAILURE));
        let error = anyhow::Error::new(UnloadError::InUse {
            advice: "wait".to_owned(),
        });
        assert_eq!(status(&error), ExitCode::from(ALREADY_EXISTS));
        let error = anyhow::Error::new(UnloadError::ModulesDisabled);
        assert_eq!(status(&error), ExitCode::from(PERMISSION_DENIED));
        assert_eq!(status(&anyhow::anyhow!("other")), ExitCode::from(FAILURE));
    }
}
