// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the options of all kinds have in common.

use std::ffi::c_char;

use sluice::{Creatable, Scope};

use crate::error::Result;
use crate::input::{check_flags, check_zero, has, path};

/// A flag in struct sluice_channel: creates the channel if it does not exist. An existing channel of another user fails with -EACCES,
/// because any user may have taken its name; except a channel of root, or of the owner of the directory of the scope.
pub const SLUICE_CREATE: u32 = 1;
/// With SLUICE_CREATE: fails with -EEXIST if the channel exists.
pub const SLUICE_EXCLUSIVE: u32 = 2;
/// With SLUICE_CREATE: opens the channel also if another user has created it.
pub const SLUICE_ANY_OWNER: u32 = 4;
/// With SLUICE_CREATE: keeps the channel and its content without endpoints, until it is unlinked or its cgroup is removed.
pub const SLUICE_PERSISTENT: u32 = 8;

const FLAGS: u32 = SLUICE_CREATE | SLUICE_EXCLUSIVE | SLUICE_ANY_OWNER | SLUICE_PERSISTENT;

/// How a channel of any kind is opened. Capacity and permissions apply to a channel that the call creates; an existing channel keeps its
/// own.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Channel {
    /// The path of the directory of the cgroup in which the name is looked up, "/" for the root of the hierarchy. NULL: the cgroup of the
    /// calling thread.
    pub scope: *const c_char,
    /// Bytes, of the call that creates the channel: an existing channel keeps its own. 0: the default of the kind.
    pub capacity: u64,
    /// SLUICE_CREATE and others.
    pub flags: u32,
    /// Permission bits, as of a file. 0: 0600.
    pub permissions: u32,
    /// Zero.
    pub reserved: [u64; 2],
}

impl Channel {
    pub fn is_default(&self) -> bool {
        self.scope.is_null() && self.capacity == 0 && self.flags == 0 && self.permissions == 0
    }

    pub fn check_reserved(&self) -> Result<()> {
        check_zero(self.reserved == [0; 2])
    }

    /// # Safety
    /// The scope is NULL or a text.
    pub unsafe fn apply<K: Creatable>(
        &self,
        options: sluice::Options<K>,
    ) -> Result<sluice::Options<K>> {
        check_flags(self.flags, FLAGS)?;
        self.check_reserved()?;
        // SAFETY: as the caller guarantees.
        let mut options = unsafe { in_scope(options, self.scope) }?;
        if self.capacity != 0 {
            options = options.capacity(self.capacity);
        }
        if self.permissions != 0 {
            options = options.permissions(self.permissions);
        }
        Ok(options
            .create(has(self.flags, SLUICE_CREATE))
            .exclusive(has(self.flags, SLUICE_EXCLUSIVE))
            .any_owner(has(self.flags, SLUICE_ANY_OWNER))
            .persistent(has(self.flags, SLUICE_PERSISTENT)))
    }
}

/// The channel of a name, in the scope of a path.
///
/// # Safety
/// The path is NULL or a text.
pub unsafe fn in_scope<K: Creatable>(
    named: sluice::Options<K>,
    directory: *const c_char,
) -> Result<sluice::Options<K>> {
    // SAFETY: as the caller guarantees.
    Ok(match unsafe { scope_at(directory) }? {
        Some(scope) => named.scope(scope),
        None => named,
    })
}

/// The scope of a path; none if it is NULL.
///
/// # Safety
/// The path is NULL or a text.
pub unsafe fn scope_at(directory: *const c_char) -> Result<Option<Scope>> {
    if directory.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller guarantees.
    let directory = unsafe { path(directory) }?;
    Ok(Some(match directory.to_str() {
        Some("/") => Scope::root(),
        _ => Scope::at(directory)?,
    }))
}
