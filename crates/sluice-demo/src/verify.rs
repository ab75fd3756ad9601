// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares received files with what was sent, by the program sha256sum.

use std::path::Path;
use std::process::Command;
use std::{fs, slice};

use anyhow::{Context, Result, ensure};
use sluice_testkit::units::megabytes;

use crate::container::Container;
use crate::process::Process;
use crate::progress::{self, Growing};
use crate::staging::Staged;
use crate::story::detail;

/// Waits for the end of a transfer from container a to b, and verifies it; `by` is the mechanism.
pub fn await_transfer(
    by: &str,
    b: &Container,
    file: &Staged,
    processes: &mut [Process],
) -> Result<()> {
    progress::watch(by, &[growing(b, file)], processes)?;
    check_received(slice::from_ref(b), slice::from_ref(file), by)?;
    let Staged { name, sha256, .. } = file;
    detail!(
        "  a sends {name}, {}; b receives SHA-256 {sha256}, as computed by sha256sum\n",
        megabytes(file.bytes)
    );
    Ok(())
}

/// The file that a container receives.
pub fn growing(container: &Container, file: &Staged) -> Growing {
    Growing {
        label: container.name.to_string(),
        path: container.received.clone(),
        bytes: file.bytes,
    }
}

/// Fails unless each container has received all of its file and nothing else. Removes what was received, so that a later
/// transfer cannot be mistaken for it.
pub fn check_received(containers: &[Container], files: &[Staged], by: &str) -> Result<()> {
    let paths: Vec<&Path> = containers
        .iter()
        .map(|container| container.received.as_path())
        .collect();
    let digests = sha256sums(&paths)?;
    for ((path, file), digest) in paths.into_iter().zip(files).zip(digests) {
        let length = fs::metadata(path)?.len();
        check(length, &digest, file)
            .with_context(|| format!("{}, received over {by}", path.display()))?;
        fs::remove_file(path)
            .with_context(|| format!("cannot remove {}; run as root", path.display()))?;
    }
    Ok(())
}

fn check(length: u64, digest: &str, file: &Staged) -> Result<()> {
    let Staged {
        name,
        bytes,
        sha256,
        ..
    } = file;
    ensure!(
        length == *bytes,
        "has {length} bytes instead of the {bytes} of {name}; report this as a bug"
    );
    ensure!(
        digest == sha256,
        "has SHA-256 {digest} instead of {sha256} of {name}; report this as a bug"
    );
    Ok(())
}

/// Computed at the same time: there are two processors.
pub fn sha256sums(paths: &[&Path]) -> Result<Vec<String>> {
    let start = |path: &&Path| {
        let title = format!("sha256sum of {}", path.display());
        Process::start(&title, Command::new("sha256sum").arg(path))
    };
    let processes = paths.iter().map(start).collect::<Result<Vec<_>>>()?;
    let digest = |process: Process| digest(&process.wait_success()?.stdout);
    processes.into_iter().map(digest).collect()
}

/// In a line of sha256sum.
pub fn digest(line: &str) -> Result<String> {
    let digest = line.split_whitespace().next().unwrap_or_default();
    ensure!(
        digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "sha256sum printed '{}' instead of a digest; check 'sha256sum --version'",
        line.trim()
    );
    Ok(digest.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_digest_is_taken_only_from_a_line_that_has_one() {
        assert_eq!(digest(&format!("{ABC}  /a/file\n")).unwrap(), ABC);
        assert!(digest("sha256sum: no such file\n").is_err());
        assert!(digest("").is_err());
    }

    #[test]
    fn a_missing_extra_or_wrong_byte_is_found() {
        let (path, name, sha256) = ("/a".into(), "file".into(), ABC.into());
        let file = Staged {
            path,
            name,
            bytes: 3,
            sha256,
        };
        check(3, ABC, &file).unwrap();
        for length in [2, 4] {
            assert!(
                check(length, ABC, &file)
                    .unwrap_err()
                    .to_string()
                    .contains("bytes")
            );
        }
        assert!(
            check(3, &ABC.replace('b', "c"), &file)
                .unwrap_err()
                .to_string()
                .contains("SHA-256")
        );
    }

    #[test]
    fn digests_are_in_the_order_of_the_files_and_a_missing_file_is_an_error() {
        let digests =
            sha256sums(&[Path::new("/dev/null"), Path::new("/proc/self/cmdline")]).unwrap();
        assert!(
            digests[0].starts_with("e3b0c44298fc1c14") && digests[1] != digests[0],
            "{digests:?}"
        );
        let error = sha256sums(&[Path::new("/no/such/file")])
            .unwrap_err()
            .to_string();
        assert!(error.contains("/no/such/file"), "{error}");
    }
}
