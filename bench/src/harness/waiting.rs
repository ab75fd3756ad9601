// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a process waits.

use serde::{Deserialize, Serialize};

/// Ratios between the two kinds are labelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    Spin,
    Sleep,
}

impl Waiting {
    /// The label of a mechanism without variants.
    pub fn label(self, name: &str) -> String {
        match self {
            Self::Sleep => name.into(),
            Self::Spin => format!("{name} (spins)"),
        }
    }
}
