// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server of NATS with files of its own, which tests kill and start again.

#![allow(dead_code, reason = "each program of tests uses a part")]

pub mod daemon;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, kv, stream};
use tokio::runtime::Runtime;

/// For whatever a test waits for.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A directory that is removed with the value.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("sluice-bridge-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub struct Server {
    child: Option<Child>,
    port: u16,
    config: PathBuf,
    directory: Directory,
}

impl Server {
    pub fn start(name: &str) -> Self {
        let directory = Directory::new(name);
        let store = directory.path().join("store");
        let jetstream = format!(
            "jetstream {{ store_dir: \"{}\", sync_interval: always }}",
            store.display()
        );
        Self::configured(directory, &jetstream)
    }

    /// With these lines of the configuration.
    pub fn with(name: &str, lines: &str) -> Self {
        Self::configured(Directory::new(name), lines)
    }

    fn configured(directory: Directory, lines: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let config = directory.path().join("nats.conf");
        let text = format!("listen: \"127.0.0.1:{port}\"\nmax_payload: 65536\n{lines}\n");
        fs::write(&config, text).unwrap();
        let mut server = Self {
            child: None,
            port,
            config,
            directory,
        };
        server.restart();
        server
    }

    pub fn restart(&mut self) {
        let program =
            std::env::var_os("SLUICE_NATS_SERVER").expect("tests/bridge gives SLUICE_NATS_SERVER");
        let log = fs::File::create(self.directory.path().join("log")).unwrap();
        let child = Command::new(program)
            .arg("--config")
            .arg(&self.config)
            .stderr(log)
            .stdout(Stdio::null())
            .spawn();
        self.child = Some(child.unwrap());
        until("the server listens", || {
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The stream of the subjects `orders.>`, by a client of its own.
pub async fn create_stream(server: &Server) -> (stream::Stream, jetstream::Context) {
    let client = async_nats::connect(server.url()).await.unwrap();
    let context = jetstream::new(client);
    let stream = context.create_stream(stream::Config {
        name: "ORDERS".to_owned(),
        subjects: vec!["orders.>".to_owned()],
        ..stream::Config::default()
    });
    (stream.await.unwrap(), context)
}

/// The bucket of this name as the client creates it, with a history of 1; with a marker TTL it permits times to live.
pub async fn create_bucket(server: &Server, name: &str, marker: Option<Duration>) -> kv::Store {
    let client = async_nats::connect(server.url()).await.unwrap();
    let context = jetstream::new(client);
    let created = context.create_key_value(kv::Config {
        bucket: name.to_owned(),
        limit_markers: marker,
        ..kv::Config::default()
    });
    created.await.unwrap()
}

pub fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        sleep(Duration::from_millis(10));
    }
}

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// A message whose header no client of NATS sends: the server takes it, and the client of the bridge panics.
pub fn publish_malformed(server: &Server, subject: &str) {
    let mut connection = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let header = "NATS/1.0\r\na: b\rc\r\n\r\n";
    let len = header.len();
    let text = format!(
        "CONNECT {{\"verbose\":false,\"headers\":true}}\r\nHPUB {subject} {len} {len}\r\n{header}\r\nPING\r\n"
    );
    connection.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    let mut lines = BufReader::new(connection);
    while !answer.contains("PONG") {
        assert!(lines.read_line(&mut answer).unwrap() > 0, "{answer}");
    }
}
