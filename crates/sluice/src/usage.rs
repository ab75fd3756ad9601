// SPDX-License-Identifier: MIT OR Apache-2.0
use sluice_abi as abi;

use crate::error::{Error, Result};
use crate::scope::Scope;
use crate::sys::Control;

/// What the limits count in a scope, and of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Of the scope and the cgroups below it, without what was created in a cgroup namespace whose root is below it.
    pub scope: Account,
    /// Of the caller's user, in the caller's cgroup namespace.
    pub user: Account,
}

/// What is counted, and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Account {
    pub channels: u64,
    /// `None`: no limit.
    pub channels_max: Option<u64>,
    /// The capacity of the channels, in bytes.
    pub bytes: u64,
    /// `None`: no limit.
    pub bytes_max: Option<u64>,
}

/// Queries what the limits count in a scope, in which the caller is or below which it is, and of the caller.
///
/// ```no_run
/// let usage = sluice::usage(&sluice::Scope::own())?;
/// println!("{} channels of {:?}", usage.user.channels, usage.user.channels_max);
/// # Ok::<(), sluice::Error>(())
/// ```
pub fn usage(scope: &Scope) -> Result<Usage> {
    let mut usage = abi::Usage::new(scope.scope_fd());
    Control::open()?
        .call(abi::CTL_USAGE, &mut usage)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENOTTY) => Error::ModuleTooOld {
                missing: "SLUICE_CTL_USAGE",
            },
            Some(libc::EACCES) => Error::OutsideScope {
                scope: scope.to_string(),
            },
            Some(libc::EBADF) => scope.not_a_cgroup_directory(),
            _ => Error::io(format!("querying the usage of {scope}"), error),
        })?;
    let limit = |max| (max != u64::MAX).then_some(max);
    Ok(Usage {
        scope: Account {
            channels: usage.scope_channels,
            channels_max: limit(usage.scope_channels_max),
            bytes: usage.scope_bytes,
            bytes_max: limit(usage.scope_bytes_max),
        },
        user: Account {
            channels: usage.user_channels,
            channels_max: limit(usage.user_channels_max),
            bytes: usage.user_bytes,
            bytes_max: limit(usage.user_bytes_max),
        },
    })
}
