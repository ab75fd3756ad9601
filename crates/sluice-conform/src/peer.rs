// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library as a peer. docs/abi/conformance.md has the commands and the results.

use std::io::{self, BufRead as _, Write as _};
use std::time::Duration;

use anyhow::Result;
use sluice::ring::{Listener, Socket, SocketOptions};
use sluice::{Channel, Kind, Options};

use crate::bus::Bus;
use crate::feed::Feed;
use crate::map::Map;
use crate::pipe::Pipe;
use crate::process::UNSUPPORTED;
use crate::ring::Ring;
use crate::words::{Settings, refused};

/// What a peer has open. It is closed when it is dropped.
pub trait Endpoint {
    /// None: it is no command of this endpoint.
    fn execute(&mut self, words: &[&str]) -> Option<String>;

    /// Leaves without a close, where that differs.
    fn abort(self: Box<Self>) {}
}

/// An endpoint, or why there is none.
pub type Opened = Result<Box<dyn Endpoint>, String>;

/// Answers commands until the end of the input. Sides of rings have this spin limit, or the default.
pub fn serve(spin_limit: Option<Duration>) -> Result<()> {
    let mut served = Served {
        spin_limit,
        listener: None,
        endpoint: None,
    };
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let result = served.answer(&words);
        writeln!(io::stdout(), "{result}")?;
    }
    Ok(())
}

struct Served {
    spin_limit: Option<Duration>,
    listener: Option<Listener>,
    endpoint: Option<Box<dyn Endpoint>>,
}

impl Served {
    fn answer(&mut self, words: &[&str]) -> String {
        self.execute(words)
            .unwrap_or_else(|| UNSUPPORTED.to_owned())
    }

    fn execute(&mut self, words: &[&str]) -> Option<String> {
        let done = match *words {
            ["listen", path] => Listener::bind(path)
                .map(|listener| self.listener = Some(listener))
                .map_err(|error| refused(error.raw_os_error())),
            ["accept", side, capacity, ref fields @ ..] => {
                let socket = self.listener.take()?.accept();
                let options = self.socket_options(capacity);
                self.keep(Ring::over(socket, side, options, fields))
            }
            ["connect", path, side, capacity, ref fields @ ..] => {
                let options = self.socket_options(capacity);
                self.keep(Ring::over(Socket::connect(path), side, options, fields))
            }
            ["open", name, side, ref settings @ ..] => {
                let settings = Settings(settings);
                let opened = match side {
                    "producer" | "consumer" => Ring::open(self.ring_options(name, settings), side),
                    "map" | "reader" | "writer" => Map::open(name, side, settings),
                    "pipe-reader" | "pipe-writer" => Pipe::open(name, side, settings),
                    "feed-reader" | "feed-consumer" => Feed::open(name, side),
                    _ => Bus::open(name, side, settings)?,
                };
                self.keep(opened)
            }
            [verb @ ("unlink" | "destroy"), kind, name] => remove(verb, kind, name)?,
            ["close"] => {
                drop(self.endpoint.take());
                Ok(())
            }
            ["abort"] => {
                self.endpoint.take()?.abort();
                Ok(())
            }
            _ => return self.endpoint.as_mut()?.execute(words),
        };
        Some(done.err().unwrap_or_else(|| "ok".to_owned()))
    }

    fn socket_options(&self, capacity: &str) -> SocketOptions {
        let options = SocketOptions::new().capacity(capacity.parse().unwrap_or(0));
        match self.spin_limit {
            Some(limit) => options.spin_limit(limit),
            None => options,
        }
    }

    fn ring_options(&self, name: &str, settings: Settings<'_>) -> Options<sluice::Ring> {
        let options = settings.apply(sluice::Ring::named(name));
        match self.spin_limit {
            Some(limit) => options.spin_limit(limit),
            None => options,
        }
    }

    fn keep(&mut self, opened: Opened) -> Result<(), String> {
        self.endpoint = Some(opened?);
        Ok(())
    }
}

/// None: there is no such kind.
fn remove(verb: &str, kind: &str, name: &str) -> Option<Result<(), String>> {
    let kind = match kind {
        "pipe" => Kind::Pipe,
        "ring" => Kind::Ring,
        "bus" => Kind::Bus,
        "map" => Kind::Map,
        _ => return None,
    };
    let removed = Channel::new(kind, name).and_then(|channel| match verb {
        "unlink" => channel.unlink(),
        _ => channel.destroy(),
    });
    Some(removed.map_err(|error| refused(error.raw_os_error())))
}
