// SPDX-License-Identifier: MIT OR Apache-2.0
//! A durable map that is stored, and not in the kernel: commands that do not find it say so, and none hides it by a volatile map of its
//! name. Only root and the user of sluiced can ask for it; for others the kernel's answer stands.

use std::fmt;
use std::path::Path;

use anyhow::{Error, Result};
use clap::Args;
use sluice::map::OpenError;
use sluice::{Channel, Name};
use sluiced_protocol::MapState;

use crate::store;

#[derive(Args)]
pub struct ForceArgs {
    /// Create a volatile map also if a durable one of its name is stored, which then cannot be restored
    #[arg(long, conflicts_with = "durable")]
    force: bool,
}

/// The map is not in the kernel.
#[derive(Debug)]
pub struct StoredOnly {
    name: Name,
    state: MapState,
    /// A volatile map of its name was to be created.
    would_hide: bool,
}

impl StoredOnly {
    fn find(name: Name, directory: Option<&Path>, would_hide: bool) -> Option<Self> {
        let state = store::state(&name, directory).ok()??;
        let is_loaded = matches!(state, MapState::Attached | MapState::Restoring);
        (!is_loaded).then_some(Self {
            name,
            state,
            would_hide,
        })
    }

    pub fn would_hide(&self) -> bool {
        self.would_hide
    }
}

impl fmt::Display for StoredOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, state) = (&self.name, self.state.as_str());
        write!(
            f,
            "the durable map '{name}' is stored, but not in the kernel (state: {state}); run 'sluice store attach {name}'"
        )?;
        match self.would_hide {
            true => f.write_str(", or give --force to create a volatile map in its place"),
            false => Ok(()),
        }
    }
}

impl std::error::Error for StoredOnly {}

impl ForceArgs {
    /// Before a volatile map is created: fails if it would hide a stored one.
    pub fn check(&self, channel: &Channel, directory: Option<&Path>) -> Result<()> {
        let is_missing = matches!(channel.info(), Err(sluice::Error::NotFound { .. }));
        if self.force || !is_missing {
            return Ok(());
        }
        match StoredOnly::find(*channel.name(), directory, true) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

/// The error of a command that uses this map.
pub fn explain(error: Error, name: &Name, directory: Option<&Path>) -> Error {
    let is_missing = |error: &sluice::Error| matches!(error, sluice::Error::NotFound { .. });
    let is_missing = match (error.downcast_ref(), error.downcast_ref()) {
        (Some(error), _) => is_missing(error),
        (_, Some(OpenError::Open(error))) => is_missing(error),
        _ => false,
    };
    match is_missing.then(|| StoredOnly::find(*name, directory, false)) {
        Some(Some(stored)) => stored.into(),
        _ => error,
    }
}
