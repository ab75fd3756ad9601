// SPDX-License-Identifier: MIT OR Apache-2.0
//! The standard streams, and files in place of them.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal as _};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, ensure};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::output;
use crate::signals::FinalReport;

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

/// Ends the process when the output has no reader any more, as after `head`: a receiver that waits would only learn of it by its next write.
/// The report is printed before, and then the error.
pub fn end_with_reader(
    output: &File,
    report: Arc<FinalReport>,
    error: impl Fn(io::Error) -> Error + Send + 'static,
) -> Result<()> {
    if !has_reader(output) {
        return Ok(());
    }
    let output = duplicate(output).context("cannot use standard output")?;
    thread::spawn(move || {
        wait_for_reader(&output);
        // A write in progress fails, too, and reports its own error.
        thread::sleep(Duration::from_millis(100));
        let _ = report.print();
        let error = error(ErrorKind::BrokenPipe.into());
        output::note(&format!("sluice: {}", sluice::explain(error.as_ref())));
        process::exit(1)
    });
    Ok(())
}

/// Whether it is a pipe, a socket or a terminal: other files may always have an event.
fn has_reader(output: &File) -> bool {
    let kind = output.metadata().map(|metadata| metadata.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket()) || output.is_terminal()
}

/// Until there is none.
fn wait_for_reader(output: &File) {
    loop {
        let mut fds = [PollFd::new(output.as_fd(), PollFlags::empty())];
        if poll(&mut fds, PollTimeout::NONE).is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn the_end_of_the_reader_is_noticed() {
        let (reader, writer) = io::pipe().unwrap();
        let output = File::from(OwnedFd::from(writer));
        assert!(has_reader(&output));
        drop(reader);
        wait_for_reader(&output);
        assert!(!has_reader(&File::open("/dev/null").unwrap()));
    }

    #[test]
    fn only_a_dash_is_a_standard_stream() {
        assert_eq!(file_path(&None), None);
        assert_eq!(file_path(&Some("-".into())), None);
        assert_eq!(file_path(&Some("./-".into())), Some(Path::new("./-")));
    }
}
