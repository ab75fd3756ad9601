// SPDX-License-Identifier: MIT OR Apache-2.0
//! The standard streams, and files in place of them.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow};

/// The path in the argument FILE; none if it stands for a standard stream.
pub fn file_path(argument: &Option<PathBuf>) -> Option<&Path> {
    argument.as_deref().filter(|path| *path != Path::new("-"))
}

/// The file of the argument FILE, or standard input.
pub fn open(argument: &Option<PathBuf>, purpose: &str) -> Result<File> {
    match file_path(argument) {
        Some(path) => File::open(path)
            .with_context(|| format!("cannot open {}; give a readable file", path.display())),
        None => duplicate(io::stdin())
            .with_context(|| format!("no standard input; give a file to {purpose}")),
    }
}

/// The new or emptied file of the argument FILE, or standard output.
pub fn create(argument: &Option<PathBuf>) -> Result<File> {
    match file_path(argument) {
        Some(path) => File::create(path)
            .with_context(|| format!("cannot write {}; give a writable file", path.display())),
        None => duplicate(io::stdout()).context("no standard output; give a file to write"),
    }
}

pub fn input() -> Result<File> {
    duplicate(io::stdin()).context("no standard input; redirect it from a file")
}

pub fn output() -> Result<File> {
    duplicate(io::stdout()).context("no standard output; redirect it to a file")
}

/// Without the buffer of the standard library.
fn duplicate(stream: impl AsFd) -> io::Result<File> {
    stream.as_fd().try_clone_to_owned().map(File::from)
}

/// The error of a write to standard output after up to so many messages or changes.
pub fn explain_output(count: u64, what: &str, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::BrokenPipe => anyhow!(
            "the reader of standard output closed it after up to {count} {what}; start again"
        ),
        _ => Error::new(error).context(format!(
            "cannot write to standard output after up to {count} {what}; check the free space"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_dash_is_a_standard_stream() {
        assert_eq!(file_path(&None), None);
        assert_eq!(file_path(&Some("-".into())), None);
        assert_eq!(file_path(&Some("./-".into())), Some(Path::new("./-")));
    }
}
