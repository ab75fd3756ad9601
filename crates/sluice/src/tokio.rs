// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors in a runtime of tokio.

use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::shared::setup_process::SetupProcess;
use crate::system_error::SystemError;

/// A duplicate of a descriptor in the runtime of the process that registered it.
#[derive(Debug)]
pub(crate) struct Registered {
    descriptor: ManuallyDrop<AsyncFd<OwnedFd>>,
    process: SetupProcess,
}

impl Registered {
    pub fn new(
        source: &impl AsFd,
        interest: Interest,
        doing: &'static str,
    ) -> Result<Self, SystemError> {
        let failed = |error: io::Error| SystemError::new(doing, error);
        let descriptor = source.as_fd().try_clone_to_owned().map_err(failed)?;
        // SAFETY: the registered value owns the descriptor, and closes it when it is dropped.
        let descriptor = unsafe { AsyncFd::register_with_interest(descriptor, interest) }
            .map_err(|error| failed(error.into()))?;
        Ok(Self {
            descriptor: ManuallyDrop::new(descriptor),
            process: SetupProcess::current(),
        })
    }
}

impl Deref for Registered {
    type Target = AsyncFd<OwnedFd>;

    fn deref(&self) -> &AsyncFd<OwnedFd> {
        &self.descriptor
    }
}

impl Drop for Registered {
    /// A forked child has the epoll instance of its parent, and must not remove the descriptor there.
    fn drop(&mut self) {
        match self.process.is_current() {
            // SAFETY: it is dropped once, here.
            true => unsafe { ManuallyDrop::drop(&mut self.descriptor) },
            // SAFETY: nothing uses or closes the descriptor from here on.
            false => unsafe { rustix::io::close(self.descriptor.as_raw_fd()) },
        }
    }
}
