// SPDX-License-Identifier: MIT OR Apache-2.0
//! An HTTP/1.1 server of one page. It closes a connection after one response. A request, and then the response, have some seconds.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::listener::Listener;

/// Connections at the same time; further ones wait.
const CONNECTIONS: usize = 8;
/// The longest time for a request, and for a response when the metrics are there.
const TIME: Duration = Duration::from_secs(5);
/// How long the end of the client is awaited after the response.
const LINGER: Duration = Duration::from_secs(1);
const HEAD_MAX: usize = 8192;
const HEADERS_MAX: usize = 64;
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

struct Response {
    status: &'static str,
    content_type: &'static str,
    body: String,
    is_head: bool,
}

/// Does not return. Takes the metrics for one request at a time, because those of many channels need much memory.
pub fn serve(listener: &Listener, metrics: impl FnMut() -> Result<String> + Send) -> Result<()> {
    let metrics = Mutex::new(metrics);
    let metrics = || metrics.lock().unwrap_or_else(PoisonError::into_inner)();
    thread::scope(|threads| {
        for _ in 0..CONNECTIONS {
            threads.spawn(|| {
                loop {
                    match listener.accept() {
                        // A client that fails learns it by itself.
                        Ok(stream) => drop(answer(stream, TIME, metrics)),
                        // For example because this process has too many open files.
                        Err(_) => thread::sleep(Duration::from_millis(100)),
                    }
                }
            });
        }
    });
    Ok(())
}

fn answer(
    stream: UnixStream,
    time: Duration,
    metrics: impl Fn() -> Result<String>,
) -> io::Result<()> {
    let mut connection = Connection {
        stream,
        end: Instant::now() + time,
    };
    let response = match connection.read_request()? {
        Ok(request) => respond(&request, metrics),
        Err(status) => Response::failed(status),
    };
    // The metrics may have taken longer, on a busy host or after those for other requests.
    connection.end = Instant::now() + time;
    connection.write_all(response.head().as_bytes())?;
    if !response.is_head {
        connection.write_all(response.body.as_bytes())?;
    }
    connection.close()
}

struct Request {
    method: String,
    path: String,
}

fn respond(request: &Request, metrics: impl Fn() -> Result<String>) -> Response {
    let is_head = request.method == "HEAD";
    let mut response = match (request.path.as_str(), request.method.as_str()) {
        ("/metrics", "GET" | "HEAD") => match metrics() {
            Ok(body) => Response {
                status: "200 OK",
                content_type: OPENMETRICS,
                body,
                is_head,
            },
            Err(_) => Response::failed("500 Internal Server Error"),
        },
        ("/metrics", _) => Response::failed("405 Method Not Allowed\r\nAllow: GET, HEAD"),
        _ => Response::failed("404 Not Found"),
    };
    response.is_head = is_head;
    response
}

impl Response {
    fn failed(status: &'static str) -> Self {
        Self {
            status,
            content_type: TEXT,
            body: "The metrics are at /metrics, for GET.\n".to_owned(),
            is_head: false,
        }
    }

    fn head(&self) -> String {
        format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len()
        )
    }
}

/// A connection whose reads and writes have a time limit in all.
struct Connection {
    stream: UnixStream,
    end: Instant,
}

impl Connection {
    /// The inner error is the status for an invalid request.
    fn read_request(&mut self) -> io::Result<Result<Request, &'static str>> {
        let (mut head, mut part) = (Vec::new(), [0; 1024]);
        loop {
            let count = self.read(&mut part)?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            head.extend_from_slice(&part[..count]);
            if let Some(parsed) = parse(&head) {
                return Ok(parsed);
            }
            if head.len() > HEAD_MAX {
                return Ok(Err("431 Request Header Fields Too Large"));
            }
        }
    }

    /// Reads what the client still sends: if it were not read, the kernel would discard the response with a reset.
    fn close(mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        self.end = self.end.min(Instant::now() + LINGER);
        io::copy(&mut self.take(1 << 20), &mut io::sink())?;
        Ok(())
    }

    fn rest(&self) -> io::Result<Option<Duration>> {
        let rest = self.end.saturating_duration_since(Instant::now());
        match rest.is_zero() {
            true => Err(ErrorKind::TimedOut.into()),
            false => Ok(Some(rest)),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.rest()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.rest()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// None if the head is not complete.
fn parse(head: &[u8]) -> Option<Result<Request, &'static str>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => None,
        Err(httparse::Error::TooManyHeaders) => Some(Err("431 Request Header Fields Too Large")),
        Err(_) => Some(Err("400 Bad Request")),
        Ok(httparse::Status::Complete(_)) => {
            let has_host = request
                .headers
                .iter()
                .any(|header| header.name.eq_ignore_ascii_case("host"));
            let (Some(method), Some(target)) = (request.method, request.path) else {
                return Some(Err("400 Bad Request"));
            };
            // HTTP/1.1 requires it.
            if request.version == Some(1) && !has_host {
                return Some(Err("400 Bad Request"));
            }
            Some(Ok(Request {
                method: method.to_owned(),
                path: path(target).to_owned(),
            }))
        }
    }
}

/// Of a target, which may be a URI, without its query.
fn path(target: &str) -> &str {
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |start| &rest[start..]),
        None => target,
    };
    path.split('?').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The response to the bytes, after which the client sends no more.
    fn response(bytes: &[u8]) -> String {
        let (mut client, server) = UnixStream::pair().unwrap();
        thread::scope(|threads| {
            threads.spawn(|| answer(server, TIME, || Ok("x 1\n# EOF\n".to_owned())));
            let _ = client.write_all(bytes);
            client.shutdown(Shutdown::Write).unwrap();
            let mut text = String::new();
            client.read_to_string(&mut text).unwrap();
            text
        })
    }

    #[test]
    fn a_request_gets_the_metrics() {
        let text = response(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        let expected = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {OPENMETRICS}\r\nContent-Length: 10\r\nConnection: close\r\n\r\nx 1\n# EOF\n"
        );
        assert_eq!(text, expected);
        let head = response(b"HEAD /metrics HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(Some(head.as_str()), expected.strip_suffix("x 1\n# EOF\n"));
        for request in [
            "GET http://a:1/metrics HTTP/1.1\r\nHost: a:1\r\n\r\n",
            "GET /metrics HTTP/1.0\r\n\r\n",
        ] {
            assert_eq!(response(request.as_bytes()), expected, "{request}");
        }
    }

    #[test]
    fn other_requests_get_their_status() {
        for (request, status) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
            ("GET /metricsx HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
            (
                "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab",
                "405",
            ),
            ("GET /metrics HTTP/1.1\r\n\r\n", "400"),
            ("GET /metrics HTTP/2.0\r\nHost: a\r\n\r\n", "400"),
            ("\u{1}\u{2}\r\n\r\n", "400"),
        ] {
            let text = response(request.as_bytes());
            assert!(
                text.starts_with(&format!("HTTP/1.1 {status} ")),
                "{request}: {text}"
            );
            assert!(text.contains("\r\nContent-Length: "), "{text}");
        }
        let text = response(b"POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(text.contains("\r\nAllow: GET, HEAD\r\n"), "{text}");
        let long = format!(
            "GET /metrics HTTP/1.1\r\nHost: a\r\nx: {}\r\n\r\n",
            "y".repeat(20000)
        );
        assert!(response(long.as_bytes()).starts_with("HTTP/1.1 431 "));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(100));
        assert!(response(many.as_bytes()).starts_with("HTTP/1.1 431 "));
        assert_eq!(response(b"GET /metr"), "");
    }

    #[test]
    fn slow_metrics_leave_time_for_the_response() {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let limit = Duration::from_secs(1);
        let metrics = || {
            thread::sleep(limit);
            Ok("# EOF\n".to_owned())
        };
        answer(server, limit, metrics).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("\r\n\r\n# EOF\n"), "{text}");
    }

    #[test]
    fn a_slow_client_is_cut_off() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let limit = Duration::from_millis(100);
        thread::scope(|threads| {
            let outcome = threads.spawn(|| answer(server, limit, || Ok(String::new())));
            let started = Instant::now();
            // One byte at a time does not extend the time.
            while client.write_all(b"G").is_ok() {
                assert!(started.elapsed() < Duration::from_secs(60));
                thread::sleep(Duration::from_millis(10));
            }
            assert!(outcome.join().unwrap().is_err());
        });
    }

    #[test]
    fn a_client_that_does_not_read_is_cut_off() {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let body = || Ok("x".repeat(64 << 20));
        assert!(answer(server, Duration::from_millis(100), body).is_err());
    }
}
