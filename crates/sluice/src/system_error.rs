// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io;

use crate::diagnosis::{Diagnosis, diagnosed, system_hint};

/// A system call that failed for a reason without an error of its own.
#[derive(Debug, thiserror::Error)]
#[error("{what} failed")]
pub struct SystemError {
    what: &'static str,
    source: io::Error,
}

impl SystemError {
    pub(crate) fn new(what: &'static str, source: impl Into<io::Error>) -> Self {
        Self {
            what,
            source: source.into(),
        }
    }

    fn diagnosis(&self) -> Diagnosis {
        Diagnosis::of_io(&self.source, system_hint(&self.source))
    }
}

diagnosed!(SystemError);
