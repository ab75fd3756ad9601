// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves bytes from one descriptor to another until the first has no more: by reference where the kernel can, and
//! otherwise through one large buffer.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileTypeExt;

use nix::errno::Errno;
use nix::fcntl::{SpliceFFlags, splice};
use nix::sys::sendfile::sendfile;

use crate::progress::Progress;

/// What one call may move. It is far above what a pipe holds, and low enough for progress to be seen.
const PIECE: usize = 1 << 20;

/// How the kernel can move the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// splice(2): one of both is a pipe(2) or a FIFO.
    Splice,
    /// sendfile(2): they come from a file.
    Sendfile,
    Buffer,
}

/// Moves everything; how many bytes that was, also when it failed.
pub fn run(from: &File, to: &File, progress: &Progress) -> (u64, io::Result<()>) {
    let mut moved = 0;
    let outcome = move_all(from, to, &mut |bytes| {
        moved += bytes as u64;
        progress.advance(bytes);
    });
    (moved, outcome)
}

fn move_all(from: &File, to: &File, count: &mut impl FnMut(usize)) -> io::Result<()> {
    let way = choose(from, to)?;
    // Some files cannot be moved from by reference, which shows with the first call; no byte is gone by then.
    match by_reference(way, from, to, count) {
        Err(Errno::EINVAL | Errno::ENOSYS) => through_buffer(from, to, count),
        other => Ok(other?),
    }
}

fn choose(from: &File, to: &File) -> io::Result<Way> {
    let (from, to) = (from.metadata()?.file_type(), to.metadata()?.file_type());
    if from.is_fifo() || to.is_fifo() {
        Ok(Way::Splice)
    } else if from.is_file() {
        Ok(Way::Sendfile)
    } else {
        Ok(Way::Buffer)
    }
}

fn by_reference(
    way: Way,
    from: &File,
    to: &File,
    count: &mut impl FnMut(usize),
) -> nix::Result<()> {
    loop {
        let moved = match way {
            Way::Splice => splice(from, None, to, None, PIECE, SpliceFFlags::SPLICE_F_MOVE),
            Way::Sendfile => sendfile(to, from, None, PIECE),
            Way::Buffer => Err(Errno::EINVAL),
        };
        match moved {
            Ok(0) => return Ok(()),
            Ok(bytes) => count(bytes),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

fn through_buffer(mut from: &File, mut to: &File, count: &mut impl FnMut(usize)) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
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

    const SIZE: usize = 3 * PIECE + 17;

    fn content() -> Vec<u8> {
        (0..SIZE).map(|n| (n / 7) as u8).collect()
    }

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("sluice-transfer-{}-{name}", process::id()));
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

    /// Moves from `source` into the ends' second and expects all of the content at their first.
    fn expect_all(source: File, (mut first, second): (File, File), way: Way) {
        assert_eq!(choose(&source, &second).unwrap(), way);
        let receiving = thread::spawn(move || {
            let mut all = Vec::new();
            first.read_to_end(&mut all).unwrap();
            all
        });
        let (moved, outcome) = run(&source, &second, &Progress::hidden());
        outcome.unwrap();
        drop(second);
        assert_eq!(moved, SIZE as u64);
        assert!(receiving.join().unwrap() == content());
    }

    fn fed(ends: (File, File)) -> File {
        let (first, mut second) = ends;
        thread::spawn(move || second.write_all(&content()).unwrap());
        first
    }

    #[test]
    fn a_file_goes_by_sendfile() {
        let path = scratch("sendfile");
        expect_all(File::open(&path).unwrap(), pair(), Way::Sendfile);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_pipe_goes_by_splice_and_so_does_what_goes_into_one() {
        expect_all(fed(pipe()), pair(), Way::Splice);
        let path = scratch("splice");
        expect_all(File::open(&path).unwrap(), pipe(), Way::Splice);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn anything_else_goes_through_a_buffer() {
        expect_all(fed(pair()), pair(), Way::Buffer);
    }

    /// sendfile(2) refuses a destination that only appends.
    #[test]
    fn what_the_kernel_refuses_goes_through_a_buffer() {
        let (from, to) = (scratch("from"), scratch("to"));
        let target = File::options().append(true).open(&to).unwrap();
        let (moved, outcome) = run(&File::open(&from).unwrap(), &target, &Progress::hidden());
        outcome.unwrap();
        assert_eq!(moved, SIZE as u64);
        assert!(fs::read(&to).unwrap() == [content(), content()].concat());
        fs::remove_file(from).unwrap();
        fs::remove_file(to).unwrap();
    }

    #[test]
    fn a_failure_tells_how_far_it_came() {
        let (first, second) = pair();
        drop(first);
        let path = scratch("failure");
        let (moved, outcome) = run(&File::open(&path).unwrap(), &second, &Progress::hidden());
        assert_eq!(moved, 0);
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::BrokenPipe);
        fs::remove_file(path).unwrap();
    }
}
