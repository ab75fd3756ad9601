// SPDX-License-Identifier: MIT OR Apache-2.0
//! Redis over a Unix socket, as its documentation advises for programs on one machine: without snapshots and without an
//! append-only file, on a processor that no client uses; the several gets are one MGET. Requests are not pipelined. The suite
//! for durable maps starts it with such a file.
//!
//! The packages of Debian have one program for all purposes, redis-check-rdb, which is the server under its name. The
//! package redis-server also starts a service of the system, so it is not used.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sluice_testkit::clock;

use super::store::{Client, KEY_SIZE, Key, Resources, Store, VALUE_SIZE, Value};
use crate::harness::rounds::Skipped;
use crate::harness::server::{Server, is_installed};
use crate::suites::setup::Confinement;

const PROGRAM: &str = "redis-check-rdb";
const NAME: &str = "redis-server";

pub fn unavailable(_: &Resources) -> Option<Skipped> {
    missing()
}

/// The reason why it cannot be started.
pub fn missing() -> Option<Skipped> {
    let reason = format!("{PROGRAM} is not in PATH; install redis-tools");
    (!is_installed(PROGRAM)).then(|| Skipped::unavailable("redis", reason))
}

/// From what the server prints about itself: "Redis server v=7.0.15 sha=00000000:0 ...".
pub fn version() -> Option<String> {
    let output = server().arg("--version").output().ok()?;
    let line = String::from_utf8_lossy(&output.stdout);
    let version = line.split(' ').find_map(|word| word.strip_prefix("v="));
    version.map(str::to_owned)
}

pub fn create(_: u64, resources: &Resources) -> Result<Box<dyn Store>> {
    Ok(Box::new(server_for(resources)?))
}

pub fn server_for(resources: &Resources) -> Result<Redis> {
    let path = resources.paths.next_path()?;
    let [_, second] = resources.confinement.cpus;
    let arguments = ["--appendonly", "no"];
    Redis::start(&path, &arguments, &resources.confinement, &[second])
}

fn server() -> Command {
    let mut program = Command::new(PROGRAM);
    program.arg0(NAME);
    program
}

pub struct Redis {
    server: Server,
    path: PathBuf,
}

impl Redis {
    /// With an append-only file in this folder, on the processors of the clients.
    pub fn start_with_file(folder: &Path, fsync: &str, confinement: &Confinement) -> Result<Self> {
        let folder_text = folder
            .to_str()
            .context("the path of a folder is not UTF-8")?;
        let arguments = ["--appendonly", "yes", "--appendfsync", fsync];
        let arguments = [&arguments[..], &["--dir", folder_text]].concat();
        let path = folder.join("socket");
        Self::start(&path, &arguments, confinement, &confinement.cpus)
    }

    /// Returns as soon as it accepts connections.
    fn start(
        path: &Path,
        arguments: &[&str],
        confinement: &Confinement,
        cpus: &[usize],
    ) -> Result<Self> {
        let mut program = server();
        program
            .args(["--port", "0", "--save", ""])
            .args(arguments)
            .args(["--daemonize", "no", "--unixsocket"])
            .arg(path);
        let mut server = Server::spawn(&mut program)?;
        server.confine(confinement.cgroup.as_ref(), cpus)?;
        server
            .await_start(|| Ok(UnixStream::connect(path)?))
            .with_context(|| format!("{NAME} did not start"))?;
        let path = path.into();
        Ok(Self { server, path })
    }

    /// Of its socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Store for Redis {
    fn client(&self) -> Result<Box<dyn Client>> {
        Ok(Box::new(Connection {
            stream: UnixStream::connect(&self.path)?,
            request: Vec::new(),
            answer: Vec::new(),
        }))
    }

    fn helper_ns(&self) -> Result<u64> {
        clock::cpu_ns_of(self.server.pid())
    }
}

struct Connection {
    stream: UnixStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

const BULK_KEY: &[u8] = b"$16\r\n";
const BULK_VALUE: &[u8] = b"$64\r\n";
const END: &[u8] = b"\r\n";
/// Bytes of a value in an answer.
const VALUE_BYTES: usize = BULK_VALUE.len() + VALUE_SIZE + END.len();

const _: () = assert!(KEY_SIZE == 16 && VALUE_SIZE == 64);

impl Connection {
    fn begin(&mut self, command: &[u8]) {
        self.request.clear();
        self.request.extend_from_slice(command);
    }

    fn add(&mut self, prefix: &[u8], bytes: &[u8]) {
        for part in [prefix, bytes, END] {
            self.request.extend_from_slice(part);
        }
    }

    /// Sends a request to set values.
    fn expect_ok(&mut self) -> Result<()> {
        const OK: &[u8] = b"+OK\r\n";
        self.exchange(OK.len())?;
        ensure!(self.answer == OK, "Redis did not set a value");
        Ok(())
    }

    /// Sends the request, and gets an answer of this length.
    fn exchange(&mut self, length: usize) -> Result<()> {
        let sent = self.stream.write_all(&self.request);
        sent.context("cannot send a request to Redis")?;
        self.answer.resize(length, 0);
        let mut received = 0;
        while received < length {
            let count = self.stream.read(&mut self.answer[received..]);
            let count = count.context("cannot get an answer of Redis")?;
            ensure!(count > 0, "Redis closed the connection");
            received += count;
            // An error, or a missing value; both may be shorter.
            if self.answer[0] == b'-' || self.answer.starts_with(b"$-1") {
                let text = String::from_utf8_lossy(&self.answer[..received]);
                bail!("Redis answered {}", text.trim_end());
            }
        }
        Ok(())
    }
}

fn copy_value(answer: &[u8], value: &mut Value) -> Result<()> {
    let bytes = answer
        .strip_prefix(BULK_VALUE)
        .and_then(|rest| rest.strip_suffix(END));
    let bytes = bytes.context("an answer of Redis is not the expected value")?;
    value.copy_from_slice(bytes);
    Ok(())
}

impl Client for Connection {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()> {
        self.begin(b"*2\r\n$3\r\nGET\r\n");
        self.add(BULK_KEY, key);
        self.exchange(VALUE_BYTES)?;
        copy_value(&self.answer, value)
    }

    fn set(&mut self, key: &Key, value: &Value) -> Result<()> {
        self.begin(b"*3\r\n$3\r\nSET\r\n");
        self.add(BULK_KEY, key);
        self.add(BULK_VALUE, value);
        self.expect_ok()
    }

    fn set_batch(&mut self, keys: &[Key], values: &[Value]) -> Result<()> {
        self.begin(format!("*{}\r\n$4\r\nMSET\r\n", 1 + 2 * keys.len()).as_bytes());
        for (key, value) in keys.iter().zip(values) {
            self.add(BULK_KEY, key);
            self.add(BULK_VALUE, value);
        }
        self.expect_ok()
    }

    fn get_batch(&mut self, keys: &[Key], values: &mut [Value]) -> Result<()> {
        self.begin(format!("*{}\r\n$4\r\nMGET\r\n", 1 + keys.len()).as_bytes());
        keys.iter().for_each(|key| self.add(BULK_KEY, key));
        let head = format!("*{}\r\n", keys.len());
        self.exchange(head.len() + keys.len() * VALUE_BYTES)?;
        let answers = self.answer.strip_prefix(head.as_bytes());
        let answers = answers.context("an answer of Redis has another number of values")?;
        let mut pairs = answers.chunks_exact(VALUE_BYTES).zip(values);
        pairs.try_for_each(|(answer, value)| copy_value(answer, value))
    }
}
