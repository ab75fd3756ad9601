// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which two files are sent: compiler libraries or kernels that the machine already has.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, bail};
use sluice_testkit::units::megabytes;

pub const SMALLEST: u64 = 50 << 20;

/// What the wanted files are called. Names are looked at first: inside the VM every look at a file itself is slow.
const NAMES: [&str; 8] = [
    "librustc_driver",
    "libLLVM",
    "libclang",
    "libgccjit",
    "cc1",
    "lto1",
    "vmlinux",
    "vmlinuz",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub path: PathBuf,
    pub bytes: u64,
    /// The device and inode, since the same file may have several names.
    identity: (u64, u64),
}

impl Source {
    fn look_at(path: &Path) -> Result<Self> {
        let describe = || format!("cannot look at {}", path.display());
        let path = path.canonicalize().with_context(describe)?;
        let metadata = fs::metadata(&path).with_context(describe)?;
        if !metadata.is_file() {
            bail!("{} is not a file", path.display());
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

/// The files that were asked for, or the smallest two that serve.
pub fn choose(asked: &[PathBuf]) -> Result<[Source; 2]> {
    match asked {
        [] => smallest_two(search(&folders())),
        [first, second] => check([Source::look_at(first)?, Source::look_at(second)?]),
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
            "found {} of the two compiler libraries or kernels of at least {} that are to be sent; name two large files with --file A --file B",
            found.len(),
            megabytes(SMALLEST)
        ),
    }
}

fn search(folders: &[PathBuf]) -> Vec<Source> {
    let paths = folders.iter().flat_map(|folder| children(folder));
    let wanted = paths.filter(|path| is_wanted(path));
    // A name that leads nowhere is no reason to stop: others may do.
    wanted
        .filter_map(|path| Source::look_at(&path).ok())
        .collect()
}

fn is_wanted(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    NAMES.iter().any(|wanted| name.starts_with(wanted))
}

/// Where compilers keep their libraries, and where kernels are.
fn folders() -> Vec<PathBuf> {
    let toolchains = rustup_homes()
        .into_iter()
        .flat_map(|home| children(&home.join("toolchains")));
    let llvms = children(Path::new("/usr/lib"))
        .into_iter()
        .filter(|path| path.to_string_lossy().contains("llvm"));
    let gccs = children(Path::new("/usr/lib/gcc/x86_64-linux-gnu"));
    let fixed = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib",
        "/usr/lib64",
        "/boot",
    ]
    .map(PathBuf::from);
    toolchains
        .chain(llvms)
        .map(|folder| folder.join("lib"))
        .chain(gccs)
        .chain(fixed)
        .collect()
}

fn rustup_homes() -> Vec<PathBuf> {
    let said = env::var_os("RUSTUP_HOME").map(PathBuf::from);
    let own = env::var_os("HOME").map(PathBuf::from);
    let people = children(Path::new("/home"));
    let homes = own
        .into_iter()
        .chain(people)
        .map(|home| home.join(".rustup"));
    said.into_iter()
        .chain([PathBuf::from("/usr/local/rustup")])
        .chain(homes)
        .collect()
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
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
    fn the_two_smallest_that_are_large_enough_are_taken() {
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
    fn too_few_or_too_small_is_said_with_what_to_do() {
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
    fn only_compilers_and_kernels_are_wanted() {
        assert!(is_wanted(Path::new("/usr/lib/libLLVM-14.so.1")));
        assert!(is_wanted(Path::new("/boot/vmlinuz-6.12")));
        assert!(!is_wanted(Path::new("/usr/lib/libc.so.6")));
    }
}
