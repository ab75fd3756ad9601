// SPDX-License-Identifier: MIT OR Apache-2.0
//! A keeper of durable maps of which a test decides every step: it reads messages, and answers when it is told to. It
//! stores nothing.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::errno::Errno;
use sluice_abi::CTL_KEEP;
use sluice_abi::keeper::Message as Header;
use sluice_abi::map::{DURABLE, INTERVAL};

use super::channel::set_nonblocking;
use super::check::expect;
use super::ctl::{Ctl, OWN};
use super::ioctl::{raw, raw_with_result};
use super::memory::read_at;
use super::poll;
use super::process::panic_message;
use super::time::{Deadline, event_timeout, eventually, wait_grace_period};

pub use sluice_abi::keeper::{
    ACK, Ack, CLOSED, CREATE, Create, DELETE, END, EXPIRE, End, Entry, Keep, Map, OPEN, READY,
    RESTORE, RESTORE_MAX, RESUME, Ready, Restore, SET, SYNC, TABLES, UNLINK, UNLINKED,
};

/// Room for any message.
pub const ROOM: usize = (1 << 20) + (8 << 10);
/// The numbers that a test's keeper reserves unless the test is about them.
pub const LIMIT: u64 = 1 << 40;

/// A map that is stored every second, with a deadline that does not pass in a test that succeeds.
pub fn stored_map(name: &str) -> Map {
    Map {
        mode: 0o600,
        events: 1024,
        capacity: 8 << 20,
        deadline_ms: event_timeout().as_millis() as u32,
        interval_ms: 1000,
        ..Map::new(name, DURABLE | INTERVAL)
    }
}

/// A message with its key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: u32,
    pub stream: u64,
    pub sequence: u64,
    pub expires_ns: u64,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

impl Message {
    /// Of an OPEN or a RESUME.
    pub fn map(&self) -> Result<Map> {
        let bytes = self.key.first_chunk();
        let map = Map::from_bytes(bytes.context("the description of a map is cut off")?);
        let sizes = (map.size as usize, self.key.len());
        expect(
            "its size and that of the key",
            sizes,
            (Map::SIZE, Map::SIZE),
        )?;
        Ok(map)
    }

    /// Whether it is a change.
    pub fn is_record(&self) -> bool {
        [SET, DELETE, EXPIRE].contains(&self.kind)
    }

    fn parse(bytes: &[u8]) -> Result<(Self, usize)> {
        let header = Header::from_bytes(bytes.first_chunk().context("a message is cut off")?);
        let key_end = Header::SIZE + header.key_length as usize;
        let end = key_end + header.value_length as usize;
        let fixed = (header.header as usize, header.reserved);
        expect("header, reserved", fixed, (Header::SIZE, 0))?;
        expect("size", header.size as usize, end.next_multiple_of(8))?;
        let bytes = bytes.get(..header.size as usize);
        let bytes = bytes.context("a message is cut off")?;
        ensure!(bytes[end..].iter().all(|byte| *byte == 0), "padding");
        let message = Message {
            kind: header.r#type,
            stream: header.stream,
            sequence: header.sequence,
            expires_ns: header.expires_ns,
            key: bytes[Header::SIZE..key_end].to_vec(),
            value: bytes[key_end..end].to_vec(),
        };
        Ok((message, bytes.len()))
    }
}

pub fn parse(mut bytes: &[u8]) -> Result<Vec<Message>> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let (message, length) = Message::parse(bytes)?;
        messages.push(message);
        bytes = &bytes[length..];
    }
    Ok(messages)
}

/// An entry to restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub version: u64,
    pub expires_ns: u64,
}

impl Stored {
    pub fn new(key: &[u8], value: &[u8], version: u64) -> Self {
        Stored {
            key: key.to_vec(),
            value: value.to_vec(),
            version,
            expires_ns: 0,
        }
    }
}

/// The descriptor of the keeper; its number is that of a new file.
pub fn open_descriptor(ctl: &Ctl) -> nix::Result<OwnedFd> {
    open_descriptor_with(ctl, TABLES)
}

fn open_descriptor_with(ctl: &Ctl, flags: u32) -> nix::Result<OwnedFd> {
    let mut keep = Keep {
        flags,
        ..Keep::default()
    };
    let fd = raw_with_result(ctl, CTL_KEEP, &mut keep)?;
    // SAFETY: a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// When it is dropped, it ends all streams that it knows.
pub struct Keeper {
    /// None while it is stopped.
    fd: Option<OwnedFd>,
    room: RefCell<Vec<u8>>,
    arrived: RefCell<VecDeque<Message>>,
    /// The last number that was delivered of each stream.
    delivered: RefCell<BTreeMap<u64, u64>>,
}

impl Keeper {
    /// A keeper without streams: what a failed test has left is ended.
    pub fn new() -> Result<Self> {
        let mut keeper = Keeper {
            fd: None,
            room: RefCell::new(vec![0; ROOM]),
            arrived: RefCell::default(),
            delivered: RefCell::default(),
        };
        keeper.start()?;
        keeper.end_all();
        keeper.delivered.borrow_mut().clear();
        Ok(keeper)
    }

    /// Begins again. The descriptor is in non-blocking mode.
    pub fn start(&mut self) -> Result<()> {
        self.start_with(TABLES)
    }

    pub fn start_with(&mut self, flags: u32) -> Result<()> {
        let ctl = Ctl::new()?;
        // A child that was just forked may still have the descriptor before.
        let fd = eventually("there is no other keeper", || {
            match open_descriptor_with(&ctl, flags) {
                Ok(fd) => Ok(Some(fd)),
                Err(Errno::EBUSY) => Ok(None),
                Err(error) => Err(error).context("becoming the keeper"),
            }
        })?;
        set_nonblocking(&fd)?;
        self.fd = Some(fd);
        Ok(())
    }

    /// As if its process had died.
    pub fn stop(&mut self) {
        self.fd = None;
        self.arrived.borrow_mut().clear();
    }

    pub fn restart(&mut self) -> Result<()> {
        self.stop();
        self.start()
    }

    // ---- messages ----

    /// One read with this much room, which must be up to `ROOM`.
    pub fn read(&self, room: usize) -> nix::Result<Result<Vec<Message>>> {
        let mut bytes = self.room.borrow_mut();
        let count = read_at(self, bytes.as_mut_ptr(), room)?;
        let messages = parse(&bytes[..count]);
        for message in messages.as_ref().into_iter().flatten() {
            self.note(message);
        }
        Ok(messages)
    }

    fn note(&self, message: &Message) {
        let mut delivered = self.delivered.borrow_mut();
        let last = delivered.entry(message.stream).or_default();
        if message.is_record() || message.kind == RESUME {
            *last = message.sequence.max(*last);
        }
    }

    /// Adds what is there to the messages that have arrived.
    fn receive(&self) -> Result<()> {
        match self.read(ROOM) {
            Ok(messages) => self.arrived.borrow_mut().extend(messages?),
            Err(Errno::EAGAIN) => {}
            Err(error) => return Err(error).context("reading messages of the keeper"),
        }
        Ok(())
    }

    /// The next message; waits for it.
    pub fn next(&self) -> Result<Message> {
        let deadline = Deadline::for_event();
        loop {
            if let Some(message) = self.arrived.borrow_mut().pop_front() {
                return Ok(message);
            }
            if !poll::wait_readable(self, &deadline)? {
                bail!("no message for the keeper within {:?}", deadline.span());
            }
            self.receive()?;
        }
    }

    /// The next message, which must be of this type.
    pub fn next_of(&self, kind: u32) -> Result<Message> {
        let message = self.next()?;
        if message.kind != kind {
            bail!("expected a message of type {kind}, saw {message:?}");
        }
        Ok(message)
    }

    /// The next message, which must be of this type and stream.
    pub fn expect_next(&self, kind: u32, stream: u64) -> Result<Message> {
        let message = self.next_of(kind)?;
        expect("its stream", message.stream, stream)?;
        Ok(message)
    }

    /// The next changes, all of this stream.
    pub fn records(&self, stream: u64, count: usize) -> Result<Vec<Message>> {
        let mut records = Vec::new();
        for number in 0..count {
            let message = self.next().with_context(|| format!("record {number}"))?;
            if !message.is_record() || message.stream != stream {
                bail!("expected a record of stream {stream}, saw {message:?}");
            }
            records.push(message);
        }
        Ok(records)
    }

    /// Everything that is there.
    pub fn take(&self) -> Result<Vec<Message>> {
        loop {
            let before = self.arrived.borrow().len();
            self.receive()?;
            let mut arrived = self.arrived.borrow_mut();
            if arrived.len() == before {
                return Ok(arrived.drain(..).collect());
            }
        }
    }

    /// Fails if there is a message within the grace period.
    pub fn expect_nothing(&self) -> Result<()> {
        wait_grace_period();
        expect("messages", self.take()?, vec![])
    }

    // ---- answers ----

    /// Of the stream of an OPEN, or with stream 0 in this scope; returns the stream.
    pub fn create_at(
        &self,
        stream: u64,
        scope_fd: RawFd,
        map: &Map,
        sequence: u64,
        limit: u64,
    ) -> nix::Result<u64> {
        let mut create = Create::new(stream, scope_fd, map, sequence, limit);
        raw(self, CREATE, &mut create)?;
        self.delivered
            .borrow_mut()
            .entry(create.stream)
            .or_default();
        Ok(create.stream)
    }

    /// Of an OPEN: with all numbers after `sequence`.
    pub fn create(&self, open: &Message, sequence: u64) -> Result<()> {
        let created = self.create_at(open.stream, OWN, &open.map()?, sequence, LIMIT);
        expect("CREATE", created, Ok(open.stream))
    }

    /// The number of restored entries.
    pub fn restore(&self, stream: u64, entries: &[Stored]) -> nix::Result<usize> {
        let entries: Vec<Entry> = entries
            .iter()
            .map(|entry| Entry::new(&entry.key, &entry.value, entry.version, entry.expires_ns))
            .collect();
        let mut restore = Restore::new(stream, &entries);
        raw(self, RESTORE, &mut restore)?;
        Ok(restore.count as usize)
    }

    pub fn ready(&self, stream: u64) -> nix::Result<()> {
        raw(self, READY, &mut Ready::new(stream, 0))
    }

    pub fn refuse(&self, stream: u64, errno: Errno) -> nix::Result<()> {
        raw(self, READY, &mut Ready::new(stream, errno as u32))
    }

    /// Acknowledges all changes up to this number.
    pub fn ack(&self, stream: u64, sequence: u64) -> Result<()> {
        self.send_ack(Ack::new(stream, sequence, 0, 0))
            .with_context(|| format!("acknowledging {sequence}"))
    }

    /// Reports that the store fails.
    pub fn fail(&self, stream: u64, errno: Errno) -> Result<()> {
        self.send_ack(Ack::new(stream, 0, 0, errno as u32))
            .with_context(|| format!("reporting {errno}"))
    }

    pub fn send_ack(&self, mut ack: Ack) -> nix::Result<()> {
        raw(self, ACK, &mut ack)
    }

    /// Drops the kernel's copy.
    pub fn detach(&self, stream: u64) -> nix::Result<()> {
        raw(self, END, &mut End::new(stream, 0, 0))
    }

    /// Answers an UNLINK.
    pub fn unlinked(&self, stream: u64) -> nix::Result<()> {
        raw(self, END, &mut End::new(stream, UNLINKED, 0))
    }

    /// Answers an UNLINK with an error.
    pub fn not_unlinked(&self, stream: u64, errno: Errno) -> nix::Result<()> {
        raw(self, END, &mut End::new(stream, UNLINKED, errno as u32))
    }

    // ---- a keeper that works ----

    /// The answer to the next message, which must be an OPEN: an empty map with the numbers up to `limit`. Its stream.
    pub fn answer_open(&self, limit: u64) -> Result<u64> {
        self.answer_open_with(limit, |_| {})
    }

    /// As answer_open(); `change` decides what is stored of the map.
    pub fn answer_open_with(&self, limit: u64, change: impl FnOnce(&mut Map)) -> Result<u64> {
        let open = self.next_of(OPEN)?;
        let mut map = open.map()?;
        change(&mut map);
        let created = self.create_at(open.stream, OWN, &map, 0, limit);
        expect("CREATE", created, Ok(open.stream))?;
        self.ready(open.stream).context("READY")?;
        Ok(open.stream)
    }

    /// Answers messages until `call`, which runs in a thread, has returned. Returns its result and all messages.
    pub fn serve<T: Send>(&self, call: impl FnOnce() -> T + Send) -> Result<(T, Vec<Message>)> {
        thread::scope(|scope| {
            let calling = scope.spawn(call);
            let mut seen = Vec::new();
            while !calling.is_finished() {
                // The end of the call is not an event of this file.
                if poll::wait(self, libc::POLLIN, 1).context("poll")? != 0 {
                    seen.extend(self.answer_all()?);
                }
            }
            seen.extend(self.answer_all()?);
            let result = calling.join();
            let result = result.map_err(|panic| anyhow!("{}", panic_message(&*panic)))?;
            Ok((result, seen))
        })
    }

    fn answer_all(&self) -> Result<Vec<Message>> {
        let messages = self.take()?;
        let mut changed = BTreeSet::new();
        for message in &messages {
            match message.kind {
                OPEN => {
                    self.create(message, 0)?;
                    self.ready(message.stream).context("READY")?;
                }
                UNLINK => self.unlinked(message.stream).context("END")?,
                SET | DELETE | EXPIRE => {
                    changed.insert(message.stream);
                }
                _ => {}
            }
        }
        for stream in changed {
            let last = self.delivered.borrow()[&stream];
            // A stream may have ended.
            match self.send_ack(Ack::new(stream, last, 0, 0)) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(error) => return Err(error).context("ACK"),
            }
        }
        Ok(messages)
    }

    /// Ends all streams, in whatever state they are. Errors say that one is in another state.
    fn end_all(&self) {
        let _ = self.take();
        for (stream, last) in &*self.delivered.borrow() {
            let _ = self.send_ack(Ack::new(*stream, *last, 0, 0));
            let _ = self.refuse(*stream, Errno::EIO);
            let _ = self.unlinked(*stream);
            let _ = self.detach(*stream);
        }
        let _ = self.take();
    }
}

impl AsFd for Keeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let fd = self.fd.as_ref().expect("the keeper is stopped");
        fd.as_fd()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Another keeper may have taken over: then that one ends them.
        if self.fd.is_some() || self.start().is_ok() {
            self.end_all();
        }
    }
}

/// Runs `call` in a thread, and `answer` meanwhile in this one.
pub fn answering<T: Send, A>(
    call: impl FnOnce() -> T + Send,
    answer: impl FnOnce() -> Result<A>,
) -> Result<(T, A)> {
    thread::scope(|scope| {
        let calling = scope.spawn(call);
        let answered = answer();
        if let Err(error) = &answered {
            // The call may last until the runner ends this process.
            eprintln!("the keeper failed: {error:#}");
        }
        let result = calling.join();
        let result = result.map_err(|panic| anyhow!("{}", panic_message(&*panic)))?;
        Ok((result, answered?))
    })
}
