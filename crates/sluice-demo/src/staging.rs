// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies the files into memory. In the VM they come over 9P, which is slow and would dominate each measurement.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::containers::NAMES;
use crate::files::Source;
use crate::process::Process;
use crate::progress::{self, Growing};
use crate::verify;

/// A copy in memory.
pub struct Staged {
    pub path: PathBuf,
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
}

/// Copies the two files to `directory`, readable by all.
pub fn stage(sources: &[Source; 2], directory: &Path) -> Result<[Staged; 2]> {
    let paths = NAMES.map(|name| directory.join(name));
    copy_both(sources, &paths)?;
    let digests = verify::sha256sums(&[&paths[0], &paths[1]])?;
    let staged = |index: usize| Staged {
        path: paths[index].clone(),
        name: sources[index].name(),
        bytes: sources[index].bytes,
        sha256: digests[index].clone(),
    };
    Ok([staged(0), staged(1)])
}

fn copy_both(sources: &[Source; 2], paths: &[PathBuf; 2]) -> Result<()> {
    let growing = [0, 1].map(|index| Growing {
        label: sources[index].name(),
        path: paths[index].clone(),
        bytes: sources[index].bytes,
    });
    let start = |index: usize| {
        let (from, to) = (sources[index].path.display(), paths[index].display());
        let mut dd = Command::new("dd");
        dd.args([format!("if={from}"), format!("of={to}"), "bs=256K".into()]);
        Process::start(&format!("copying {from}"), &mut dd)
    };
    progress::watch("copying", &growing, &mut [start(0)?, start(1)?])?;
    for path in paths {
        fs::set_permissions(path, Permissions::from_mode(0o444))
            .with_context(|| format!("cannot make {} readable; run as root", path.display()))?;
    }
    Ok(())
}
