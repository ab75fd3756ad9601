// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::{Request, Response};

/// Sends a request, and waits for the response.
pub fn call(socket: &Path, request: &Request) -> io::Result<Response> {
    let mut stream = UnixStream::connect(socket)?;
    let line = serde_json::to_string(request)? + "\n";
    stream.write_all(line.as_bytes())?;
    let mut response = String::new();
    match BufReader::new(stream).read_line(&mut response)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(serde_json::from_str(&response)?),
    }
}
