// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests over generic netlink that are refused with a reason, and change nothing.

use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;

use super::check::expect;
use super::ctl::{BOTH, CREATE, ChannelInfo, OWN};
use super::map::{Dumped, Info, Maps, NAME, STEP_SET, dump_with, put};
use super::netlink::{Attrs, Request, Socket, attr, command, explains};

pub const KEY: &[u8] = b"key";
pub const VALUE: &[u8] = b"value";
/// What a request that is refused would set.
pub const OTHER: &[u8] = b"other";
/// For the entries of a test.
const DUMP_ROOM: usize = 4096;

/// All commands on a map, which a name or a handle stands for.
pub const OPERATIONS: [u8; 6] = [
    command::GET,
    command::SET,
    command::DELETE,
    command::BATCH,
    command::DUMP,
    command::INFO,
];
pub const HANDLE_ONLY: [u8; 2] = [command::CLOSE, command::WATCH];

/// A persistent map with one entry, and handles of it.
pub struct Fixture {
    pub maps: Maps,
    pub end: OwnedFd,
    pub socket: Socket,
    pub handle: u32,
}

/// What a refused request must not change.
struct State {
    names: Vec<Vec<u8>>,
    /// With the number of endpoints.
    info: (ChannelInfo, Info),
    entries: Vec<Dumped>,
}

impl State {
    fn expect_unchanged(&self, after: &Self) -> Result<()> {
        expect("names", &after.names, &self.names)?;
        expect("the state", &after.info, &self.info)?;
        ensure!(after.entries == self.entries, "the entries have changed");
        Ok(())
    }
}

impl Fixture {
    pub fn new() -> Result<Self> {
        let maps = Maps::new()?;
        let end = maps.persist()?;
        put(&end, KEY, VALUE)?;
        let socket = Socket::new()?;
        let handle = socket.open(NAME, BOTH)?;
        Ok(Fixture {
            maps,
            end,
            socket,
            handle,
        })
    }

    fn state(&self) -> Result<State> {
        Ok(State {
            names: self.maps.0.names(OWN).context("listing the names")?,
            info: self.maps.info().context("asking for the state")?,
            entries: dump_with(&self.end, 0, DUMP_ROOM)?,
        })
    }

    pub fn by_handle(&self) -> Attrs {
        Attrs::new().handle(self.handle)
    }

    /// Fails unless each request is refused like this, without a change of the map. Names all that are not.
    pub fn expect_refused(&self, rows: Vec<Row>) -> Result<()> {
        let (count, mut before, mut failed) = (rows.len(), self.state()?, Vec::new());
        for row in rows {
            let checked = row.check(self);
            let after = self.state()?;
            let unchanged = before.expect_unchanged(&after);
            if let Err(error) = checked.and(unchanged) {
                failed.push(format!("{}: {error:#}", row.what));
            }
            before = after;
        }
        ensure!(
            failed.is_empty(),
            "{} of {count} rows:\n{}",
            failed.len(),
            failed.join("\n")
        );
        Ok(())
    }

    /// The end of a test: without the map.
    pub fn finish(self) -> Result<()> {
        self.maps.unlink().context("unlinking the map")
    }
}

/// A request that is refused.
pub struct Row {
    pub what: String,
    pub request: Request,
    pub errno: Errno,
    pub reason: Reason,
}

/// What explains the errno.
#[derive(Clone, Copy)]
pub enum Reason {
    /// Nothing: generic netlink does not know the command, or not that it is one.
    None,
    Text,
    /// A text that contains this.
    Saying(&'static str),
    /// The type of the missing attribute.
    Missing(u16),
}

impl Row {
    pub fn new(what: impl Into<String>, command: u8, attrs: Attrs, errno: Errno) -> Self {
        Row {
            what: format!("command {command}, {}", what.into()),
            request: Request::new(command, attrs),
            errno,
            reason: Reason::Text,
        }
    }

    pub fn because(self, reason: Reason) -> Self {
        Row { reason, ..self }
    }

    fn check(&self, fixture: &Fixture) -> Result<()> {
        let refusal = match fixture.socket.request(&self.request)? {
            Ok(replies) => bail!("expected {}, saw {replies:?}", self.errno),
            Err(refusal) => refusal,
        };
        ensure!(
            refusal.errno == self.errno,
            "expected {}, saw {refusal:?}",
            self.errno
        );
        let explained = match self.reason {
            Reason::None => true,
            Reason::Text => refusal.text.is_some(),
            Reason::Saying(words) => refusal
                .text
                .as_ref()
                .is_some_and(|text| text.contains(words)),
            Reason::Missing(kind) => refusal.missing == Some(kind),
        };
        ensure!(
            explained || !explains(self.request.command)?,
            "without its reason: {refusal:?}"
        );
        Ok(())
    }
}

pub fn named() -> Attrs {
    Attrs::new().name(NAME)
}

pub fn step(number: u32) -> Attrs {
    Attrs::new().u32(attr::COMMAND, number)
}

pub fn set_step(key: &[u8], value: &[u8]) -> Attrs {
    step(STEP_SET).key(key).value(value)
}

/// What a command needs besides its map. It would change the entry, if it can.
pub fn arguments(command: u8) -> Attrs {
    match command {
        command::GET | command::DELETE => Attrs::new().key(KEY),
        command::SET => Attrs::new().key(KEY).value(OTHER),
        command::BATCH => Attrs::new().step(&set_step(KEY, OTHER)),
        _ => Attrs::new(),
    }
}

/// A complete request by name, and also one for an open that creates.
pub fn complete(command: u8, name: Attrs) -> Attrs {
    match command {
        command::OPEN => name.flags(BOTH | CREATE),
        _ => name.and(&arguments(command)),
    }
}
