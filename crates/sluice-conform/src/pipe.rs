// SPDX-License-Identifier: MIT OR Apache-2.0
//! An endpoint of a pipe.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sluice::pipe::{Reader, Writer};

use crate::peer::{Endpoint, Opened};
use crate::words::{self, Settings, refused};

/// Its descriptor does not block: the calls wait with poll(2), which has a limit.
pub enum Pipe {
    Reader(Reader),
    Writer(Writer),
}

impl Pipe {
    pub fn open(name: &str, side: &str, settings: Settings<'_>) -> Opened {
        let options = settings.apply(sluice::Pipe::named(name));
        let options = options.nonblocking(settings.has("nowait"));
        let opened = match side {
            "pipe-reader" => options.reader().map(Self::Reader),
            _ => options.writer().map(Self::Writer),
        };
        let pipe = opened.map_err(|error| refused(error.raw_os_error()))?;
        let nonblocking = FcntlArg::F_SETFL(OFlag::O_NONBLOCK);
        fcntl(pipe.fd(), nonblocking).map_err(|errno| refused(Some(errno as i32)))?;
        Ok(Box::new(pipe))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Reader(reader) => reader.as_fd(),
            Self::Writer(writer) => writer.as_fd(),
        }
    }
}

impl Endpoint for Pipe {
    fn execute(&mut self, words: &[&str]) -> Option<String> {
        match (self, words) {
            (Self::Reader(reader), ["read", length, time @ ..]) => {
                let mut buffer = vec![0; length.parse().ok()?];
                let read = within(
                    words::time(time),
                    reader,
                    PollFlags::POLLIN,
                    |mut reader| reader.read(&mut buffer),
                );
                Some(match read {
                    Ok(0) => "end".to_owned(),
                    Ok(length) => format!("bytes {}", words::word(&buffer[..length])),
                    Err(error) => failed(&error),
                })
            }
            (Self::Writer(writer), ["write", word, time @ ..]) => {
                let (bytes, mut done) = (words::bytes(word), 0);
                while done < bytes.len() {
                    let rest = &bytes[done..];
                    let time = words::time(time);
                    match within(time, writer, PollFlags::POLLOUT, |mut writer| {
                        writer.write(rest)
                    }) {
                        Ok(written) => done += written,
                        Err(error) => return Some(failed(&error)),
                    }
                }
                Some("ok".to_owned())
            }
            _ => None,
        }
    }
}

/// Repeats a call that would block until the descriptor is ready. None: without a limit.
fn within<'a, E: AsFd>(
    limit: Option<Duration>,
    end: &'a E,
    events: PollFlags,
    mut call: impl FnMut(&'a E) -> io::Result<usize>,
) -> io::Result<usize> {
    let began = Instant::now();
    loop {
        match call(end) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            done => return done,
        }
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        let left = left.map_or(Ok(PollTimeout::NONE), PollTimeout::try_from);
        let left = left.map_err(io::Error::other)?;
        if poll(&mut [PollFd::new(end.as_fd(), events)], left)? == 0 {
            return Err(ErrorKind::TimedOut.into());
        }
    }
}

fn failed(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut => "timeout".to_owned(),
        _ => refused(error.raw_os_error()),
    }
}
