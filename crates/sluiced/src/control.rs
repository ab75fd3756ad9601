// SPDX-License-Identifier: MIT OR Apache-2.0
//! The socket of administrators: lines with requests, each of which is answered by a line. No client can delay the others or the
//! maps: nothing here waits, and what a client does not read is limited.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sluiced_protocol::{Failure, FailureKind, REQUEST_MAX, Request, Response};

/// Clients at a time; the next ones wait for these.
const CLIENTS: usize = 32;
/// After this time without a byte a client is closed, unless its request is being executed.
const IDLE: Duration = Duration::from_secs(10);

pub struct Control {
    listener: UnixListener,
    path: PathBuf,
    clients: BTreeMap<u64, Client>,
    last_client: u64,
    idle: Duration,
}

struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// A request of it is being executed; the next one is read after the response.
    is_waiting: bool,
    has_ended: bool,
    /// When it has sent or received something.
    active: Instant,
}

impl Control {
    /// Only the user of the daemon, and root, may connect.
    pub fn listen(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent().filter(|parent| !parent.exists()) {
            fs::create_dir(parent)?;
        }
        remove_stale(path)?;
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            clients: BTreeMap::new(),
            last_client: 0,
            idle: IDLE,
        })
    }

    /// What is to be watched: for connections and requests, and for room.
    pub fn interests(&self) -> (Vec<BorrowedFd<'_>>, Vec<BorrowedFd<'_>>) {
        let clients = self.clients.values();
        let reading = clients
            .clone()
            .filter(|client| !client.is_waiting && !client.has_ended);
        let writing = clients.filter(|client| !client.output.is_empty());
        let mut readers: Vec<_> = reading.map(|client| client.stream.as_fd()).collect();
        if self.clients.len() < CLIENTS {
            readers.push(self.listener.as_fd());
        }
        let writers = writing.map(|client| client.stream.as_fd()).collect();
        (readers, writers)
    }

    /// How long until a client is closed because it is idle, if none of them does anything.
    pub fn next_close(&self) -> Option<Duration> {
        let clients = self.clients.values();
        let idle = clients.filter_map(Client::idle_time).max()?;
        Some(self.idle.saturating_sub(idle))
    }

    pub fn has_clients(&self) -> bool {
        !self.clients.is_empty()
    }

    /// The requests that are there, each with the number for its response.
    pub fn requests(&mut self) -> Vec<(u64, Request)> {
        self.accept();
        let mut requests = Vec::new();
        for (id, client) in &mut self.clients {
            client.read();
            if let Some(request) = client.next_request() {
                requests.push((*id, request));
            }
        }
        self.clean();
        requests
    }

    pub fn respond(&mut self, id: u64, response: &Response) {
        // A client that has gone meanwhile.
        if let Some(client) = self.clients.get_mut(&id) {
            client.is_waiting = false;
            client.respond(response);
        }
        self.clean();
    }

    /// Writes what clients have not read yet.
    pub fn flush(&mut self) {
        for client in self.clients.values_mut() {
            client.write();
        }
        self.clean();
    }

    fn accept(&mut self) {
        while self.clients.len() < CLIENTS {
            let Ok((stream, _)) = self.listener.accept() else {
                return;
            };
            if stream.set_nonblocking(true).is_ok() {
                self.last_client += 1;
                self.clients.insert(self.last_client, Client::new(stream));
            }
        }
    }

    fn clean(&mut self) {
        let is_idle = |client: &Client| client.idle_time().is_some_and(|time| time >= self.idle);
        self.clients
            .retain(|_, client| !client.is_over() && !is_idle(client));
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A socket to which nobody listens any more.
fn remove_stale(path: &Path) -> io::Result<()> {
    match UnixStream::connect(path) {
        Ok(_) => Err(ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

impl Client {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            input: Vec::new(),
            output: Vec::new(),
            is_waiting: false,
            has_ended: false,
            active: Instant::now(),
        }
    }

    fn read(&mut self) {
        let mut buffer = [0; 4096];
        while !self.is_waiting && !self.has_ended && self.input.len() <= REQUEST_MAX {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.has_ended = true,
                Ok(len) => {
                    self.active = Instant::now();
                    self.input.extend_from_slice(&buffer[..len]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.fail(),
            }
        }
    }

    /// One that is not valid is answered at once.
    fn next_request(&mut self) -> Option<Request> {
        while !self.is_waiting {
            let Some(end) = self.input.iter().position(|byte| *byte == b'\n') else {
                if self.input.len() > REQUEST_MAX {
                    self.refuse(&format!("the request has more than {REQUEST_MAX} bytes"));
                    self.input.clear();
                    self.has_ended = true;
                }
                return None;
            };
            let line: Vec<u8> = self.input.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(request) => {
                    self.is_waiting = true;
                    return Some(request);
                }
                Err(error) => self.refuse(&format!("the request is invalid: {error}")),
            }
        }
        None
    }

    fn refuse(&mut self, text: &str) {
        let text = format!("{text}; see sluiced(8)");
        let kind = FailureKind::Invalid;
        self.respond(&Response::Failed(Failure { kind, text }));
    }

    fn respond(&mut self, response: &Response) {
        match serde_json::to_vec(response) {
            Ok(line) => self.output.extend(line),
            Err(_) => return self.fail(),
        }
        self.output.push(b'\n');
        self.write();
    }

    fn write(&mut self) {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(len) => {
                    self.active = Instant::now();
                    self.output.drain(..len);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.fail(),
            }
        }
    }

    fn fail(&mut self) {
        self.has_ended = true;
        self.is_waiting = false;
        self.output.clear();
    }

    /// For how long nothing has happened; none: its request is being executed.
    fn idle_time(&self) -> Option<Duration> {
        (!self.is_waiting).then(|| self.active.elapsed())
    }

    fn is_over(&self) -> bool {
        self.has_ended && !self.is_waiting && self.output.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use sluiced_protocol::Status;

    use super::*;
    use crate::test_directory::TestDirectory;

    fn listen(directory: &TestDirectory) -> Control {
        Control::listen(&directory.path().join("run/sluiced.sock")).unwrap()
    }

    fn connect(control: &Control) -> BufReader<UnixStream> {
        BufReader::new(UnixStream::connect(&control.path).unwrap())
    }

    fn send(client: &BufReader<UnixStream>, text: &str) {
        client.get_ref().write_all(text.as_bytes()).unwrap();
    }

    fn line(client: &mut BufReader<UnixStream>) -> String {
        let mut line = String::new();
        client.read_line(&mut line).unwrap();
        line
    }

    fn empty() -> Response {
        Response::Status(Status {
            error: None,
            maps: Vec::new(),
        })
    }

    #[test]
    fn requests_are_answered_one_after_the_other() {
        let directory = TestDirectory::new();
        let mut control = listen(&directory);
        let mut client = connect(&control);
        send(&client, "{\"verb\":\"status\"}\n{\"verb\":");
        let requests = control.requests();
        assert!(
            matches!(requests[..], [(1, Request::Status)]),
            "{requests:?}"
        );
        assert!(control.requests().is_empty());
        send(&client, "\"status\"}\n");
        control.respond(1, &empty());
        assert_eq!(control.requests().len(), 1);
        assert_eq!(
            line(&mut client),
            "{\"status\":{\"error\":null,\"maps\":[]}}\n"
        );
        control.respond(1, &empty());
        assert!(line(&mut client).starts_with("{\"status\""));
    }

    #[test]
    fn an_invalid_request_is_answered_with_its_error() {
        let directory = TestDirectory::new();
        let mut control = listen(&directory);
        let mut client = connect(&control);
        send(&client, "{\"verb\":\"drop\"}\n");
        assert!(control.requests().is_empty());
        let answer = line(&mut client);
        assert!(
            answer.contains("\"kind\":\"invalid\"") && answer.contains("sluiced(8)"),
            "{answer}"
        );
    }

    #[test]
    fn an_endless_request_ends_the_connection() {
        let directory = TestDirectory::new();
        let mut control = listen(&directory);
        let mut client = connect(&control);
        send(&client, &"x".repeat(REQUEST_MAX + 5000));
        assert!(control.requests().is_empty());
        assert!(line(&mut client).contains("more than"));
        assert!(control.clients.is_empty());
    }

    #[test]
    fn a_client_that_goes_away_leaves_nothing() {
        let directory = TestDirectory::new();
        let mut control = listen(&directory);
        let client = connect(&control);
        send(&client, "{\"verb\":\"status\"}\n");
        assert_eq!(control.requests().len(), 1);
        drop(client);
        control.respond(1, &empty());
        control.requests();
        assert!(control.clients.is_empty());
    }

    #[test]
    fn a_client_that_does_not_read_delays_nobody() {
        let directory = TestDirectory::new();
        let mut control = listen(&directory);
        let slow = connect(&control);
        send(&slow, "{\"verb\":\"status\"}\n");
        control.requests();
        let text = "x".repeat(8 << 20);
        let large = Response::Status(Status {
            error: Some(text),
            maps: Vec::new(),
        });
        control.respond(1, &large);
        assert_eq!(control.interests().1.len(), 1);
        let mut other = connect(&control);
        send(&other, "{\"verb\":\"status\"}\n");
        let requests = control.requests();
        assert!(
            matches!(requests[..], [(2, Request::Status)]),
            "{requests:?}"
        );
        control.respond(2, &empty());
        assert!(line(&mut other).starts_with("{\"status\""));
    }

    #[test]
    fn idle_clients_make_room_for_others() {
        let directory = TestDirectory::new();
        let mut control = listen(&directory);
        assert_eq!(control.next_close(), None);
        let busy = connect(&control);
        send(&busy, "{\"verb\":\"status\"}\n");
        let _idle: Vec<_> = (1..CLIENTS).map(|_| connect(&control)).collect();
        assert_eq!(control.requests().len(), 1);
        let mut last = connect(&control);
        send(&last, "{\"verb\":\"status\"}\n");
        assert!(control.requests().is_empty());
        assert!(control.next_close().is_some_and(|time| time <= IDLE));
        control.idle = Duration::ZERO;
        control.requests();
        control.idle = IDLE;
        let requests = control.requests();
        assert!(
            matches!(requests[..], [(_, Request::Status)]),
            "{requests:?}"
        );
        control.respond(requests[0].0, &empty());
        assert!(line(&mut last).starts_with("{\"status\""));
        // A request that is being executed keeps its connection.
        assert!(control.clients.contains_key(&1));
    }

    #[test]
    fn only_the_owner_may_connect_and_a_stale_socket_is_replaced() {
        let directory = TestDirectory::new();
        let path = directory.path().join("sluiced.sock");
        drop(UnixListener::bind(&path).unwrap());
        let control = Control::listen(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let second = Control::listen(&path).err().unwrap();
        assert_eq!(second.kind(), ErrorKind::AddrInUse);
        drop(control);
        assert!(!path.exists());
    }
}
