// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the two files to send: compiler libraries or kernels that the machine has.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sluice_testkit::units::megabytes;

const SMALLEST: u64 = 16 << 20;

/// Prints paths of compiler libraries and kernels, and patterns without a match.
const SEARCH_SCRIPT: &str = r#"
    for directory in "${RUSTUP_HOME:-$HOME/.rustup}"/toolchains/*/lib /usr/local/rustup/toolchains/*/lib \
        /home/*/.rustup/toolchains/*/lib /usr/lib/*llvm*/lib /usr/lib/gcc/x86_64-linux-gnu/* \
        /usr/lib/x86_64-linux-gnu /usr/lib /usr/lib64 /boot; do
        for prefix in librustc_driver libLLVM libclang libgccjit cc1 lto1 vmlinux vmlinuz; do
            printf '%s\n' "$directory/$prefix"*
        done
    done"#;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub path: PathBuf,
    pub bytes: u64,
    /// Device and inode: a file can have several names.
    identity: (u64, u64),
}

impl Source {
    fn inspect(path: &Path) -> Result<Self> {
        let describe = || {
            format!(
                "cannot read {}; name another file with --file",
                path.display()
            )
        };
        let path = path.canonicalize().with_context(describe)?;
        let metadata = fs::metadata(&path).with_context(describe)?;
        if !metadata.is_file() {
            bail!(
                "{} is not a regular file; name another one with --file",
                path.display()
            );
        }
        let identity = (metadata.dev(), metadata.ino());
        Ok(Self {
            path,
            bytes: metadata.len(),
            identity,
        })
    }

    pub fn name(&self) -> String {
        self.path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }
}

/// The named files, or the smallest two that are large enough.
pub fn choose(named: &[PathBuf]) -> Result<[Source; 2]> {
    match named {
        [] => smallest_two(search()?),
        [first, second] => check([Source::inspect(first)?, Source::inspect(second)?]),
        _ => bail!("give --file twice, or not at all"),
    }
}

fn check(sources: [Source; 2]) -> Result<[Source; 2]> {
    if let Some(small) = sources.iter().find(|source| source.bytes < SMALLEST) {
        bail!(
            "{} has only {}; choose a file of at least {}",
            small.path.display(),
            megabytes(small.bytes),
            megabytes(SMALLEST)
        );
    }
    if sources[0].identity == sources[1].identity {
        bail!("both --file name the same file; choose two different ones");
    }
    Ok(sources)
}

fn smallest_two(mut sources: Vec<Source>) -> Result<[Source; 2]> {
    sources.retain(|source| source.bytes >= SMALLEST);
    sources.sort_by(|a, b| (a.bytes, &a.path).cmp(&(b.bytes, &b.path)));
    let mut seen = BTreeSet::new();
    sources.retain(|source| seen.insert(source.identity));
    match <[Source; 2]>::try_from(sources.into_iter().take(2).collect::<Vec<_>>()) {
        Ok(two) => Ok(two),
        Err(found) => bail!(
            "found {} instead of two compiler libraries or kernels of at least {}; name two files with --file A --file B",
            found.len(),
            megabytes(SMALLEST)
        ),
    }
}

fn search() -> Result<Vec<Source>> {
    let output = Command::new("sh").args(["-c", SEARCH_SCRIPT]).output();
    let output = output.context("cannot start sh; install dash")?;
    let paths = String::from_utf8_lossy(&output.stdout);
    Ok(paths
        .lines()
        .filter_map(|path| Source::inspect(Path::new(path)).ok())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str, bytes: u64, inode: u64) -> Source {
        Source {
            path: name.into(),
            bytes,
            identity: (1, inode),
        }
    }

    #[test]
    fn the_two_smallest_that_are_large_enough_are_chosen() {
        let sources = vec![
            source("large", SMALLEST * 3, 1),
            source("tiny", SMALLEST - 1, 2),
            source("second", SMALLEST * 2, 3),
            source("first", SMALLEST, 4),
        ];
        let [first, second] = smallest_two(sources).unwrap();
        assert_eq!(
            (first.name(), second.name()),
            ("first".into(), "second".into())
        );
    }

    #[test]
    fn two_names_of_one_file_count_once() {
        let sources = vec![
            source("a", SMALLEST, 1),
            source("b", SMALLEST, 1),
            source("c", SMALLEST * 2, 2),
        ];
        let [first, second] = smallest_two(sources).unwrap();
        assert_eq!((first.name(), second.name()), ("a".into(), "c".into()));
        assert!(check([source("a", SMALLEST, 1), source("b", SMALLEST, 1)]).is_err());
    }

    #[test]
    fn too_few_or_too_small_is_an_error_with_what_to_do() {
        let error = smallest_two(vec![source("a", SMALLEST, 1)])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("found 1") && error.contains("--file"),
            "{error}"
        );
        let error = check([source("a", SMALLEST, 1), source("b", 10, 2)])
            .unwrap_err()
            .to_string();
        assert!(error.contains("b has only"), "{error}");
        assert!(choose(&["/etc/hostname".into()]).is_err());
    }

    #[test]
    fn only_compilers_and_kernels_are_found() {
        let prefixes = ["lib", "cc1", "lto1", "vmlinu"];
        for source in search().unwrap() {
            assert!(
                prefixes
                    .iter()
                    .any(|prefix| source.name().starts_with(prefix)),
                "{source:?}"
            );
            assert_ne!(source.name(), "libc.so.6");
        }
    }
}
