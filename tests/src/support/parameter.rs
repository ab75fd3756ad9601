// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module's parameters.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::kernel::expect_no_objects;

/// Lowers a limit of scopes at the begin of a test. The channels of earlier tests count in the parent of all tests until
/// the kernel has freed them.
pub fn scope_limit(name: &str, value: u64) -> Result<Parameter> {
    expect_no_objects()?;
    Parameter::set(name, value)
}

/// A parameter that has another value until this is dropped.
pub struct Parameter {
    path: PathBuf,
    before: u64,
}

impl Parameter {
    pub fn get(name: &str) -> Result<u64> {
        let path = path_of(name);
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        text.trim()
            .parse()
            .with_context(|| format!("{} is no number: {text}", path.display()))
    }

    pub fn set(name: &str, value: u64) -> Result<Self> {
        let parameter = Parameter {
            path: path_of(name),
            before: Self::get(name)?,
        };
        parameter.write(value)?;
        Ok(parameter)
    }

    fn write(&self, value: u64) -> Result<()> {
        fs::write(&self.path, value.to_string())
            .with_context(|| format!("writing {value} to {}", self.path.display()))
    }
}

impl Drop for Parameter {
    fn drop(&mut self) {
        // An error cannot be reported here; the wrong value makes later tests fail.
        let _ = self.write(self.before);
    }
}

fn path_of(name: &str) -> PathBuf {
    PathBuf::from("/sys/module/sluice/parameters").join(name)
}
