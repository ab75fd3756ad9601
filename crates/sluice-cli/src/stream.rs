// SPDX-License-Identifier: MIT OR Apache-2.0
//! The standard streams, and files in place of them.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, ensure};
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The bits of the standard streams that were closed at the start. Before main, the standard library opens /dev/null in their place, which
/// would take all output, and be an empty input.
static CLOSED: AtomicU32 = AtomicU32::new(0);

extern "C" fn note_closed() {
    for fd in 0..3 {
        // SAFETY: the command has no argument and no effect.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
}

/// Called before the standard library starts.
// SAFETY: the section has pointers to functions of C, which need nothing of the standard library here.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = note_closed;

/// Fails if the stream, "input" or "output", was closed at the start.
pub fn require_open(stream: &impl AsRawFd, name: &str) -> Result<()> {
    let closed = CLOSED.load(Ordering::Relaxed) >> stream.as_raw_fd() & 1;
    let advice = match name {
        "input" => "redirect it from a file",
        _ => "redirect it to a file, or to /dev/null",
    };
    ensure!(closed == 0, "standard {name} is closed; {advice}");
    Ok(())
}

/// The path in the argument FILE; none if it stands for a standard stream.
pub fn file_path(argument: &Option<PathBuf>) -> Option<&Path> {
    argument.as_deref().filter(|path| *path != Path::new("-"))
}

/// The file of the argument FILE, or standard input.
pub fn open(argument: &Option<PathBuf>, purpose: &str) -> Result<File> {
    match file_path(argument) {
        Some(path) => File::open(path)
            .with_context(|| format!("cannot open {}; give a readable file", path.display())),
        None => input().with_context(|| format!("no file to {purpose}")),
    }
}

/// Fails if the argument FILE stands for standard output, which was closed at the start.
pub fn require_output(argument: &Option<PathBuf>) -> Result<()> {
    match file_path(argument) {
        Some(_) => Ok(()),
        None => require_open(&io::stdout(), "output"),
    }
}

/// The new or emptied file of the argument FILE, or standard output.
pub fn create(argument: &Option<PathBuf>) -> Result<File> {
    match file_path(argument) {
        Some(path) => File::create(path)
            .with_context(|| format!("cannot write {}; give a writable file", path.display())),
        None => output(),
    }
}

pub fn input() -> Result<File> {
    require_open(&io::stdin(), "input")?;
    duplicate(io::stdin()).context("cannot use standard input")
}

pub fn output() -> Result<File> {
    require_open(&io::stdout(), "output")?;
    duplicate(io::stdout()).context("cannot use standard output")
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

/// Waits until the source is readable; returns false after the timeout, and true early after a signal. Fails with
/// [`ErrorKind::BrokenPipe`] if the output has no reader any more, as after `head`: otherwise only the next write would fail.
pub fn wait(source: impl AsFd, output: &File, timeout: Option<Duration>) -> io::Result<bool> {
    let limit = match timeout {
        Some(timeout) => PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX),
        None => PollTimeout::NONE,
    };
    let mut fds = [
        PollFd::new(source.as_fd(), PollFlags::POLLIN),
        PollFd::new(output.as_fd(), PollFlags::empty()),
    ];
    let ready = match poll(&mut fds, limit) {
        Err(Errno::EINTR) => return Ok(true),
        other => other? > 0,
    };
    match fds[1].any() {
        Some(true) => Err(ErrorKind::BrokenPipe.into()),
        _ => Ok(ready),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_wait_ends_by_data_by_time_and_by_the_end_of_the_reader() {
        let (source, mut peer) = UnixStream::pair().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let output = File::from(std::os::fd::OwnedFd::from(writer));
        let short = Some(Duration::from_millis(5));
        assert!(!wait(&source, &output, short).unwrap());
        io::Write::write_all(&mut peer, b"x").unwrap();
        assert!(wait(&source, &output, None).unwrap());
        drop(reader);
        let closed = wait(&source, &output, None).unwrap_err();
        assert_eq!(closed.kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn only_a_dash_is_a_standard_stream() {
        assert_eq!(file_path(&None), None);
        assert_eq!(file_path(&Some("-".into())), None);
        assert_eq!(file_path(&Some("./-".into())), Some(Path::new("./-")));
    }
}
