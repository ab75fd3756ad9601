// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares received files with what was sent, by the program sha256sum.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use crate::container::Container;
use crate::harness::units::megabytes;
use crate::process::Process;
use crate::progress::{self, Growing};
use crate::staging::Staged;

/// Waits for the end of a transfer from container a to b, and verifies it; `by` is the mechanism.
pub fn await_transfer(
    by: &str,
    b: &Container,
    file: &Staged,
    processes: &mut [Process],
) -> Result<()> {
    progress::watch(by, &[growing(b, file)], processes)?;
    check_received(b, file, by)?;
    let Staged { name, sha256, .. } = file;
    eprintln!(
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

/// Fails unless the container has received all of the file and nothing else; `by` is the mechanism. Removes what was
/// received, so that a later transfer cannot be mistaken for it.
pub fn check_received(container: &Container, file: &Staged, by: &str) -> Result<()> {
    check_file(&container.received, file)
        .with_context(|| format!("over {by}, container {}", container.name))?;
    fs::remove_file(&container.received).context("cannot remove a verified file; run as root")
}

fn check_file(received: &Path, file: &Staged) -> Result<()> {
    let bytes = fs::metadata(received)
        .context("received nothing; 'dmesg | tail' may give the reason")?
        .len();
    ensure!(
        bytes == file.bytes,
        "received {bytes} bytes instead of the {} of {}; report this as a bug",
        file.bytes,
        file.name
    );
    let digest = sha256sum(received)?;
    ensure!(
        digest == file.sha256,
        "received data with SHA-256 {digest} instead of {} of {}; report this as a bug",
        file.sha256,
        file.name
    );
    Ok(())
}

/// Of both at the same time: there are two processors.
pub fn in_parallel<T: Send>(action: impl Fn(usize) -> Result<T> + Sync) -> Result<[T; 2]> {
    thread::scope(|scope| {
        let threads = [0, 1].map(|index| {
            let action = &action;
            scope.spawn(move || action(index))
        });
        let [a, b] = threads.map(|thread| thread.join().expect("the thread does not panic"));
        Ok([a?, b?])
    })
}

pub fn sha256sum(path: &Path) -> Result<String> {
    let output = Command::new("sha256sum").arg(path).output();
    let output = output.context("cannot start sha256sum; install coreutils")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{}; check that the file can be read", error.trim());
    }
    digest(&String::from_utf8_lossy(&output.stdout))
}

fn digest(line: &str) -> Result<String> {
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
    use std::path::PathBuf;

    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn received(name: &str, content: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("sluice-demo-{}-{name}", std::process::id()));
        fs::write(&path, content).unwrap();
        path
    }

    fn abc() -> Staged {
        Staged {
            path: "/a".into(),
            name: "file".into(),
            bytes: 3,
            sha256: ABC.into(),
        }
    }

    #[test]
    fn a_digest_is_taken_only_from_a_line_that_has_one() {
        assert_eq!(digest(&format!("{ABC}  /a/file\n")).unwrap(), ABC);
        assert!(digest("sha256sum: no such file\n").is_err());
        assert!(digest("").is_err());
    }

    #[test]
    fn a_missing_extra_or_wrong_byte_is_found() {
        let path = received("abc", "abc");
        check_file(&path, &abc()).unwrap();
        for (content, expected) in [("ab", "2 bytes"), ("abcd", "4 bytes"), ("abd", "SHA-256")] {
            fs::write(&path, content).unwrap();
            let error = check_file(&path, &abc()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        fs::remove_file(&path).unwrap();
        assert!(check_file(&path, &abc()).is_err());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_of_sha256sum() {
        let error = sha256sum(Path::new("/no/such/file"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("/no/such/file"), "{error}");
    }

    #[test]
    fn a_failure_of_either_is_a_failure_of_both() {
        assert_eq!(in_parallel(|index| Ok(index * 2)).unwrap(), [0, 2]);
        assert!(in_parallel(|index| if index == 1 { bail!("lost") } else { Ok(()) }).is_err());
    }
}
