// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies one descriptor to another until the end of the first: in the kernel if it supports that, and otherwise through a
//! buffer.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileTypeExt;

use nix::errno::Errno;
use nix::fcntl::{SpliceFFlags, splice};
use nix::sys::sendfile::sendfile;

use crate::progress::Progress;

/// The limit of one call in bytes: far above the capacity of most pipes, and small enough for a smooth progress bar.
const CHUNK: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyMethod {
    /// splice(2), if one of the two is a pipe(2) or a FIFO.
    Splice,
    /// sendfile(2), from a regular file.
    Sendfile,
    Buffer,
}

/// Copies until the end of `from`. Returns the number of copied bytes, also after an error.
pub fn copy_all(from: &File, to: &File, progress: &Progress) -> (u64, io::Result<()>) {
    let mut copied = 0;
    let outcome = copy(from, to, &mut |bytes| {
        copied += bytes as u64;
        progress.advance(bytes);
    });
    (copied, outcome)
}

fn copy(from: &File, to: &File, count: &mut impl FnMut(usize)) -> io::Result<()> {
    let method = choose_method(from, to)?;
    // Some files do not support the method. Only the first call can fail with these errors, before any byte is copied.
    match copy_in_kernel(method, from, to, count) {
        Err(Errno::EINVAL | Errno::ENOSYS) => copy_through_buffer(from, to, count),
        other => Ok(other?),
    }
}

fn choose_method(from: &File, to: &File) -> io::Result<CopyMethod> {
    let (from, to) = (from.metadata()?.file_type(), to.metadata()?.file_type());
    if from.is_fifo() || to.is_fifo() {
        Ok(CopyMethod::Splice)
    } else if from.is_file() {
        Ok(CopyMethod::Sendfile)
    } else {
        Ok(CopyMethod::Buffer)
    }
}

fn copy_in_kernel(
    method: CopyMethod,
    from: &File,
    to: &File,
    count: &mut impl FnMut(usize),
) -> nix::Result<()> {
    loop {
        let copied = match method {
            CopyMethod::Splice => splice(from, None, to, None, CHUNK, SpliceFFlags::SPLICE_F_MOVE),
            CopyMethod::Sendfile => sendfile(to, from, None, CHUNK),
            CopyMethod::Buffer => Err(Errno::EINVAL),
        };
        match copied {
            Ok(0) => return Ok(()),
            Ok(bytes) => count(bytes),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

fn copy_through_buffer(
    mut from: &File,
    mut to: &File,
    count: &mut impl FnMut(usize),
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(bytes) => {
                to.write_all(&buffer[..bytes])?;
                count(bytes);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use std::{fs, process, thread};

    use super::*;

    const SIZE: usize = 3 * CHUNK + 17;

    fn content() -> Vec<u8> {
        (0..SIZE).map(|n| (n / 7) as u8).collect()
    }

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("sluice-copy-{}-{name}", process::id()));
        fs::write(&path, content()).unwrap();
        path
    }

    fn pair() -> (File, File) {
        let (a, b) = UnixStream::pair().unwrap();
        (OwnedFd::from(a).into(), OwnedFd::from(b).into())
    }

    fn pipe() -> (File, File) {
        let (read, write) = nix::unistd::pipe().unwrap();
        (read.into(), write.into())
    }

    /// Copies `source` to the second end and expects all of the content at the first.
    fn expect_all(source: File, (mut first, second): (File, File), method: CopyMethod) {
        assert_eq!(choose_method(&source, &second).unwrap(), method);
        let receiving = thread::spawn(move || {
            let mut all = Vec::new();
            first.read_to_end(&mut all).unwrap();
            all
        });
        let (copied, outcome) = copy_all(&source, &second, &Progress::hidden());
        outcome.unwrap();
        drop(second);
        assert_eq!(copied, SIZE as u64);
        assert!(receiving.join().unwrap() == content());
    }

    fn filled(ends: (File, File)) -> File {
        let (first, mut second) = ends;
        thread::spawn(move || second.write_all(&content()).unwrap());
        first
    }

    #[test]
    fn a_file_is_copied_by_sendfile() {
        let path = scratch("sendfile");
        expect_all(File::open(&path).unwrap(), pair(), CopyMethod::Sendfile);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_pipe_is_copied_by_splice_in_both_directions() {
        expect_all(filled(pipe()), pair(), CopyMethod::Splice);
        let path = scratch("splice");
        expect_all(File::open(&path).unwrap(), pipe(), CopyMethod::Splice);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_socket_is_copied_through_a_buffer() {
        expect_all(filled(pair()), pair(), CopyMethod::Buffer);
    }

    /// sendfile(2) rejects a destination in append mode.
    #[test]
    fn an_unsupported_method_falls_back_to_the_buffer() {
        let (from, to) = (scratch("from"), scratch("to"));
        let target = File::options().append(true).open(&to).unwrap();
        let (copied, outcome) = copy_all(&File::open(&from).unwrap(), &target, &Progress::hidden());
        outcome.unwrap();
        assert_eq!(copied, SIZE as u64);
        assert!(fs::read(&to).unwrap() == [content(), content()].concat());
        fs::remove_file(from).unwrap();
        fs::remove_file(to).unwrap();
    }

    #[test]
    fn a_failure_returns_the_number_of_copied_bytes() {
        let (first, second) = pair();
        drop(first);
        let path = scratch("failure");
        let (copied, outcome) = copy_all(&File::open(&path).unwrap(), &second, &Progress::hidden());
        assert_eq!(copied, 0);
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::BrokenPipe);
        fs::remove_file(path).unwrap();
    }
}
