// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::system_error::SystemError;

/// Registers a duplicate of a descriptor.
pub(crate) fn register(
    source: &impl AsFd,
    interest: Interest,
    doing: &'static str,
) -> Result<AsyncFd<OwnedFd>, SystemError> {
    let failed = |error: io::Error| SystemError::new(doing, error);
    let descriptor = source.as_fd().try_clone_to_owned().map_err(failed)?;
    // SAFETY: the registered value owns the descriptor, and closes it when it is dropped.
    unsafe { AsyncFd::register_with_interest(descriptor, interest) }
        .map_err(|error| failed(error.into()))
}
