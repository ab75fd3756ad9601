// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies the files into memory. In the VM they come over 9P, which is slow and would dominate each measurement.

use std::fs::{self, File, Permissions};
use std::io::Read;
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

pub struct Files {
    pub whole: [Staged; 2],
    /// The beginning of the first, for the other steps.
    pub part: Staged,
}

/// Long enough that a subscriber that is stopped for most of it loses messages.
pub const PART: u64 = 8 << 20;

/// Copies the two files to `directory`, readable by all.
pub fn stage(sources: &[Source; 2], directory: &Path) -> Result<Files> {
    let paths = NAMES.map(|name| directory.join(name));
    let part = directory.join("part");
    copy_both(sources, &paths)?;
    copy_part(&paths[0], &part)?;
    let digests = verify::sha256sums(&[&paths[0], &paths[1], &part])?;
    let staged = |index: usize| Staged {
        path: paths[index].clone(),
        name: sources[index].name(),
        bytes: sources[index].bytes,
        sha256: digests[index].clone(),
    };
    Ok(Files {
        whole: [staged(0), staged(1)],
        part: Staged {
            bytes: fs::metadata(&part)?.len(),
            name: format!("the first part of {}", sources[0].name()),
            path: part,
            sha256: digests[2].clone(),
        },
    })
}

fn copy_part(from: &Path, to: &Path) -> Result<()> {
    let copy = || {
        let mut bytes = Vec::new();
        File::open(from)?.take(PART).read_to_end(&mut bytes)?;
        fs::write(to, bytes)?;
        fs::set_permissions(to, Permissions::from_mode(0o444))
    };
    copy().with_context(|| format!("cannot create {}; run as root", to.display()))
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
