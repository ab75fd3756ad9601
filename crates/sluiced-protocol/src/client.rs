// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::{Request, Response};

/// Sends a request, and waits for the response.
pub fn call(socket: &Path, request: &Request) -> io::Result<Response> {
    exchange(UnixStream::connect(socket)?, request)
}

/// As [`call`]; fails with [`io::ErrorKind::WouldBlock`] if there is no response for the time of `limit`.
pub fn call_within(limit: Duration, socket: &Path, request: &Request) -> io::Result<Response> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    exchange(stream, request)
}

fn exchange(mut stream: UnixStream, request: &Request) -> io::Result<Response> {
    let line = serde_json::to_string(request)? + "\n";
    stream.write_all(line.as_bytes())?;
    let mut response = String::new();
    match BufReader::new(stream).read_line(&mut response)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(serde_json::from_str(&response)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_the_response_ends() {
        let (here, _there) = UnixStream::pair().unwrap();
        here.set_read_timeout(Some(Duration::from_millis(10)))
            .unwrap();
        let error = exchange(here, &Request::Status).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
