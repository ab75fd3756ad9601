// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::{Request, Response};

/// How long the daemon may be silent in [`call`]: a commit may have to wait for a slow disk.
pub const SILENCE: Duration = Duration::from_secs(30);

/// Sends a request, and waits for the response, as long as the daemon answers other requests. Fails with
/// [`io::ErrorKind::WouldBlock`] if it was silent for [`SILENCE`].
pub fn call(socket: &Path, request: &Request) -> io::Result<Response> {
    call_while_answering(SILENCE, socket, request)
}

fn call_while_answering(limit: Duration, socket: &Path, request: &Request) -> io::Result<Response> {
    let mut exchange = Exchange::begin(limit, UnixStream::connect(socket)?, request)?;
    loop {
        match exchange.response() {
            // Many maps take long to attach, but not to list.
            Err(error) if is_silent(&error) && *request != Request::Status => {
                call_within(limit, socket, &Request::Status)?
            }
            result => return result,
        };
    }
}

/// Sends a request; fails with [`io::ErrorKind::WouldBlock`] if there is no response for the time of `limit`.
pub fn call_within(limit: Duration, socket: &Path, request: &Request) -> io::Result<Response> {
    Exchange::begin(limit, UnixStream::connect(socket)?, request)?.response()
}

fn is_silent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

struct Exchange {
    stream: BufReader<UnixStream>,
    line: Vec<u8>,
}

impl Exchange {
    fn begin(limit: Duration, stream: UnixStream, request: &Request) -> io::Result<Self> {
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        let line = serde_json::to_string(request)? + "\n";
        (&stream).write_all(line.as_bytes())?;
        Ok(Self {
            stream: BufReader::new(stream),
            line: Vec::new(),
        })
    }

    /// May be called again after a timeout.
    fn response(&mut self) -> io::Result<Response> {
        self.stream.read_until(b'\n', &mut self.line)?;
        match self.line.is_empty() {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => Ok(serde_json::from_slice(&self.line)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::{env, fs, process, thread};

    use super::*;
    use crate::{Selection, Status};

    const LIMIT: Duration = Duration::from_millis(50);

    struct Socket(PathBuf);

    impl Socket {
        fn new(name: &str) -> (Self, UnixListener) {
            let path = env::temp_dir().join(format!("sluiced-{name}-{}", process::id()));
            let listener = UnixListener::bind(&path).unwrap();
            (Self(path), listener)
        }
    }

    impl Drop for Socket {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn answer(mut stream: &UnixStream, response: &Response) {
        // A socket that is closed with a request in it resets the connection.
        BufReader::new(stream)
            .read_line(&mut String::new())
            .unwrap();
        let line = serde_json::to_string(response).unwrap() + "\n";
        let (first, rest) = line.split_at(1);
        for part in [first, rest] {
            stream.write_all(part.as_bytes()).unwrap();
        }
    }

    #[test]
    fn a_daemon_that_is_stopped_is_not_waited_for() {
        let (socket, _listener) = Socket::new("stopped");
        for request in [Request::Status, Request::Detach(Selection::All)] {
            for call in [call_within, call_while_answering] {
                let error = call(LIMIT, &socket.0, &request).unwrap_err();
                assert!(is_silent(&error), "{error}");
            }
        }
    }

    #[test]
    fn a_daemon_that_answers_others_is_waited_for() {
        // Long enough for an answer, also on a busy machine.
        const LIMIT: Duration = Duration::from_secs(1);
        let (socket, listener) = Socket::new("slow");
        let daemon = move || {
            let (slow, _) = listener.accept().unwrap();
            let (other, _) = listener.accept().unwrap();
            let status = Status {
                error: None,
                maps: Vec::new(),
            };
            answer(&other, &Response::Status(status));
            answer(&slow, &Response::Done(Vec::new()));
        };
        // It does not end if the call fails.
        thread::spawn(daemon);
        let request = Request::Attach(Selection::All);
        let response = call_while_answering(LIMIT, &socket.0, &request).unwrap();
        assert_eq!(response, Response::Done(Vec::new()));
    }
}
