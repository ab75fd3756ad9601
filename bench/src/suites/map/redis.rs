// SPDX-License-Identifier: MIT OR Apache-2.0
//! Redis over a Unix socket, as its documentation advises for programs on one machine: without snapshots. A volatile store
//! has no append-only file, and its server is on a processor that no client uses; the several gets are one MGET. A durable
//! store has such a file. Requests are not pipelined.
//!
//! The packages of Debian have one program for all purposes, redis-check-rdb, which is the server under its name. The
//! package redis-server also starts a service of the system, so it is not used.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use sluice_testkit::clock;

use super::store::{Client, KEY_SIZE, Key, Store, StoreResources, VALUE_SIZE, Value, filled};
use crate::harness::rounds::Skipped;
use crate::harness::server::{Server, is_installed};
use crate::suites::setup::Confinement;

const PROGRAM: &str = "redis-check-rdb";
const NAME: &str = "redis-server";
/// The folder of the append-only files, by default.
const FILES: &str = "appendonlydir";

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

pub fn create(keys: u64, resources: &StoreResources) -> Result<Rc<dyn Store>> {
    filled(server_for(resources)?, keys)
}

pub fn server_for(resources: &StoreResources) -> Result<Redis> {
    let confinement = &resources.confinement;
    let [_, second] = confinement.cpus;
    Redis::start(resources.paths.next_path()?, None, confinement, &[second])
}

fn server() -> Command {
    let mut program = Command::new(PROGRAM);
    program.arg0(NAME);
    program
}

pub struct Redis {
    server: Server,
    /// Of its socket.
    pub path: PathBuf,
    files: Option<PathBuf>,
}

impl Redis {
    /// A durable store has its append-only files beside the socket. Returns as soon as it accepts connections.
    pub fn start(
        path: PathBuf,
        fsync: Option<&str>,
        confinement: &Confinement,
        cpus: &[usize],
    ) -> Result<Self> {
        let mut program = server();
        program.args(["--port", "0", "--save", "", "--daemonize", "no"]);
        match fsync {
            None => program.args(["--appendonly", "no"]),
            Some(fsync) => program
                .args(["--appendonly", "yes", "--appendfsync", fsync, "--dir"])
                .arg(path.with_file_name("")),
        };
        let mut server = Server::spawn(program.arg("--unixsocket").arg(&path))?;
        server.confine(confinement.cgroup.as_ref(), cpus)?;
        let started = server.await_start(|| Ok(UnixStream::connect(&path)?));
        started.with_context(|| format!("{NAME} did not start"))?;
        let files = fsync.map(|_| path.with_file_name(FILES));
        Ok(Self {
            server,
            path,
            files,
        })
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

    fn helper(&self) -> Result<(u64, u32)> {
        Ok((clock::cpu_ns_of(self.server.pid())?, 0))
    }

    /// Its files, which the server synchronizes once per second only.
    fn settle(&self) -> Result<()> {
        let Some(files) = &self.files else {
            return Ok(());
        };
        fs::read_dir(files)?.try_for_each(|file| Ok(File::open(file?.path())?.sync_all()?))
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
const OK: &[u8] = b"+OK\r\n";
const VALUE_BYTES: usize = BULK_VALUE.len() + VALUE_SIZE + END.len();

const _: () = assert!(KEY_SIZE == 16 && VALUE_SIZE == 64);

impl Connection {
    /// Sends the head of a command and its keys and values, and gets an answer of this length.
    fn call<'a>(
        &mut self,
        head: &[u8],
        arguments: impl IntoIterator<Item = &'a [u8]>,
        length: usize,
    ) -> Result<()> {
        self.request.clear();
        self.request.extend_from_slice(head);
        for argument in arguments {
            let is_key = argument.len() == KEY_SIZE;
            let prefix = if is_key { BULK_KEY } else { BULK_VALUE };
            for part in [prefix, argument, END] {
                self.request.extend_from_slice(part);
            }
        }
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

    fn expect_ok(&self) -> Result<()> {
        ensure!(self.answer == OK, "Redis did not set a value");
        Ok(())
    }
}

fn copy_value(answer: &[u8], value: &mut Value) -> Result<()> {
    let bytes = answer
        .strip_prefix(BULK_VALUE)
        .and_then(|rest| rest.strip_suffix(END));
    value.copy_from_slice(bytes.context("an answer of Redis is not the expected value")?);
    Ok(())
}

impl Client for Connection {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()> {
        self.call(b"*2\r\n$3\r\nGET\r\n", [&key[..]], VALUE_BYTES)?;
        copy_value(&self.answer, value)
    }

    fn set(&mut self, key: &Key, value: &Value) -> Result<()> {
        self.call(b"*3\r\n$3\r\nSET\r\n", [&key[..], value], OK.len())?;
        self.expect_ok()
    }

    fn set_batch(&mut self, keys: &[Key], values: &[Value]) -> Result<()> {
        let pairs = keys.iter().zip(values);
        let head = format!("*{}\r\n$4\r\nMSET\r\n", 1 + 2 * keys.len());
        let arguments = pairs.flat_map(|(key, value)| [&key[..], value]);
        self.call(head.as_bytes(), arguments, OK.len())?;
        self.expect_ok()
    }

    fn get_batch(&mut self, keys: &[Key], values: &mut [Value]) -> Result<()> {
        let request = format!("*{}\r\n$4\r\nMGET\r\n", 1 + keys.len());
        let head = format!("*{}\r\n", keys.len());
        let length = head.len() + keys.len() * VALUE_BYTES;
        self.call(request.as_bytes(), keys.iter().map(|key| &key[..]), length)?;
        let answers = self.answer.strip_prefix(head.as_bytes());
        let answers = answers.context("an answer of Redis has another number of values")?;
        let mut pairs = answers.chunks_exact(VALUE_BYTES).zip(values);
        pairs.try_for_each(|(answer, value)| copy_value(answer, value))
    }
}
