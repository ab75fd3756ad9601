// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rule of the configuration: a bus, and the subject that it continues as.

use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use sluice::bus::{self, Mode, Policy};
use sluice::{Bus, Name, Scope};
use toml::Spanned;

use crate::allow::Allow;
use crate::channel;
use crate::config::check_token;
use crate::config_error::Mistake;
use crate::subject;
use crate::window::hash;

/// The messages and the bytes of a rule in flight to the server, by default.
const MESSAGES: u32 = 256;
const BYTES: u64 = 4 << 20;
/// The requests in progress by default, and the time for a reply.
const REQUESTS: u32 = 64;
const TIMEOUT_MS: u32 = 5000;
const TIMEOUT_RANGE: RangeInclusive<u64> = 1..=3_600_000;
const MESSAGES_RANGE: RangeInclusive<u64> = 1..=65_536;
const BYTES_RANGE: RangeInclusive<u64> = 64 << 10..=256 << 20;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusRule {
    name: Spanned<String>,
    scope: Option<PathBuf>,
    direction: Spanned<Direction>,
    subject: Spanned<String>,
    stream: Option<Spanned<String>>,
    /// The durable consumer of the stream.
    consumer: Option<Spanned<String>>,
    full: Option<Spanned<Full>>,
    allow: Option<Spanned<Allow>>,
    in_flight: Option<Spanned<u32>>,
    in_flight_bytes: Option<Spanned<u64>>,
    create: Option<Create>,
    requests: Option<Spanned<Requests>>,
}

/// The messages of the bus are requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Requests {
    timeout_ms: Option<Spanned<u32>>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Direction {
    Out,
    In,
    Both,
}

/// What happens when messages leave this host more slowly than they are sent.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Full {
    /// The senders wait.
    #[default]
    Block,
    /// The oldest messages are lost, and counted.
    Drop,
}

/// How a bus is created that does not exist.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    mode: Option<BusMode>,
    capacity: Option<u64>,
    permissions: Option<Permissions>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum BusMode {
    Broadcast,
    Multicast,
    Unicast,
}

impl From<BusMode> for Mode {
    fn from(mode: BusMode) -> Self {
        match mode {
            BusMode::Broadcast => Self::Broadcast,
            BusMode::Multicast => Self::Multicast,
            BusMode::Unicast => Self::Unicast,
        }
    }
}

/// Octal digits, as the command takes them.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Permissions(pub u32);

impl TryFrom<String> for Permissions {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match u32::from_str_radix(&text, 8) {
            Ok(bits) if bits <= 0o777 => Ok(Self(bits)),
            _ => Err(format!(
                "'{text}' are no permissions; write octal digits, such as \"660\""
            )),
        }
    }
}

impl BusRule {
    pub fn check(&self) -> Result<(), Mistake> {
        let name = self.name.get_ref();
        if name.chars().any(char::is_control) || Name::new(name).is_err() {
            let text =
                "no bus has this name; write 1 to 63 bytes without '/' and control characters";
            return Err(Mistake::at(self.name.span(), text));
        }
        if let Some(text) = channel::scope_error(self.scope()) {
            return Err(Mistake::at(self.name.span(), text));
        }
        let error = match self.is_out() {
            true => subject::literal_error(self.subject()),
            false => subject::pattern_error(self.subject()),
        };
        let is_core = self.stream.is_none();
        let error = error.or_else(|| subject::reply_error(self.subject()).filter(|_| is_core));
        if let Some(text) = error {
            return Err(Mistake::at(self.subject.span(), text));
        }
        for (key, value) in [("stream", &self.stream), ("consumer", &self.consumer)] {
            value
                .as_ref()
                .map_or(Ok(()), |value| check_token(key, value, 255))?;
        }
        self.check_direction()?;
        self.check_requests()?;
        check_range("in_flight", self.in_flight.as_ref(), MESSAGES_RANGE)?;
        check_range(
            "in_flight_bytes",
            self.in_flight_bytes.as_ref(),
            BYTES_RANGE,
        )
    }

    /// A key that would have no effect is a mistake.
    fn check_direction(&self) -> Result<(), Mistake> {
        if let Some(allow) = &self.allow {
            if !self.is_out() {
                let text = "allow is for messages that leave this host; remove it, or write direction = \"out\" or \"both\"";
                return Err(Mistake::at(allow.span(), text));
            }
            if allow.get_ref().is_empty() {
                let text =
                    "nobody is allowed; write allow = { uid = [0] }, or remove it to allow all";
                return Err(Mistake::at(allow.span(), text));
            }
        }
        if let Some(full) = self.full.as_ref().filter(|_| !self.is_out()) {
            let text = "full is for messages that leave this host; remove it, or write direction = \"out\" or \"both\"";
            return Err(Mistake::at(full.span(), text));
        }
        match &self.consumer {
            Some(consumer) if !self.is_in() || self.stream.is_none() => Err(Mistake::at(
                consumer.span(),
                "consumer is for messages from a stream; remove it, or write stream and direction = \"in\" or \"both\"",
            )),
            _ => Ok(()),
        }
    }

    /// Requests are neither stored nor lost.
    fn check_requests(&self) -> Result<(), Mistake> {
        let Some(requests) = &self.requests else {
            return Ok(());
        };
        for (key, place) in [
            ("stream", self.stream.as_ref().map(Spanned::span)),
            ("full", self.full.as_ref().map(Spanned::span)),
            (
                "in_flight_bytes",
                self.in_flight_bytes.as_ref().map(Spanned::span),
            ),
        ] {
            let text = || format!("{key} is not for requests; remove it, or remove requests");
            place.map_or(Ok(()), |place| Err(Mistake::at(place, text())))?;
        }
        if *self.direction.get_ref() == Direction::Both {
            let text = "requests go one way; write direction = \"out\" for services of other hosts, or \"in\" for those of this one";
            return Err(Mistake::at(self.direction.span(), text));
        }
        if self
            .created_mode()
            .is_some_and(|mode| mode != Mode::Multicast)
        {
            let text =
                "a bus of requests has the mode multicast; write it, or remove the mode of create";
            return Err(Mistake::at(requests.span(), text));
        }
        let timeout = requests.get_ref().timeout_ms.as_ref();
        check_range("timeout_ms", timeout, TIMEOUT_RANGE)
    }

    pub fn name(&self) -> &str {
        self.name.get_ref()
    }

    pub fn scope(&self) -> Option<&Path> {
        self.scope.as_deref()
    }

    pub fn subject(&self) -> &str {
        self.subject.get_ref()
    }

    pub fn stream(&self) -> Option<&str> {
        self.stream.as_ref().map(|stream| stream.get_ref().as_str())
    }

    pub fn is_out(&self) -> bool {
        *self.direction.get_ref() != Direction::In
    }

    pub fn is_in(&self) -> bool {
        *self.direction.get_ref() != Direction::Out
    }

    pub fn full(&self) -> Full {
        self.full
            .as_ref()
            .map(|full| *full.get_ref())
            .unwrap_or_default()
    }

    /// Whether a message of this sender leaves the host.
    pub fn permits(&self, uid: u32, gid: u32) -> bool {
        self.allow
            .as_ref()
            .is_none_or(|allow| allow.get_ref().permits(uid, gid))
    }

    pub fn in_flight(&self) -> u32 {
        let default = match self.requests {
            Some(_) => REQUESTS,
            None => MESSAGES,
        };
        self.in_flight
            .as_ref()
            .map_or(default, |count| *count.get_ref())
    }

    /// The time for a reply, if the messages of the bus are requests.
    pub fn request_timeout(&self) -> Option<Duration> {
        let timeout = self.requests.as_ref()?.get_ref().timeout_ms.as_ref();
        let timeout = timeout.map_or(TIMEOUT_MS, |timeout| *timeout.get_ref());
        Some(Duration::from_millis(timeout.into()))
    }

    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
            .as_ref()
            .map_or(BYTES, |bytes| *bytes.get_ref())
    }

    /// The durable consumer by default has the names of bridge and bus, and is of this bus only: the separator is no letter of either.
    pub fn consumer(&self, bridge: &str) -> String {
        let default = || {
            let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
            let name = self.name().replace(|letter| !is_letter(letter), "_");
            match self.scope.is_none() && name == self.name() {
                true => format!("sluice-{bridge}={name}"),
                false => format!("sluice-{bridge}={name}={:016x}", hash(&self.channel())),
            }
        };
        self.consumer
            .as_ref()
            .map_or_else(default, |name| name.get_ref().clone())
    }

    /// Where the rule is in the text.
    pub fn place(&self) -> Range<usize> {
        self.name.span()
    }

    /// The mode of the bus, if this rule creates it.
    pub fn created_mode(&self) -> Option<Mode> {
        let default = match self.requests {
            Some(_) => Mode::Multicast,
            None => Mode::Broadcast,
        };
        let create = self.create.as_ref()?;
        Some(create.mode.map_or(default, Mode::from))
    }

    /// The channel, for messages and as what a stored descriptor belongs to.
    pub fn channel(&self) -> String {
        channel::text(self.name(), self.scope())
    }

    /// How the bus is opened. The directory of the scope is opened each time: a cgroup that was removed may exist again.
    pub fn bus(&self) -> sluice::Result<bus::Options> {
        let mut bus = Bus::named(self.name()).nonblocking(true);
        if let Some(scope) = &self.scope {
            bus = bus.scope(Scope::at(scope)?);
        }
        let Some(create) = &self.create else {
            return Ok(bus);
        };
        bus = bus.create(true).capacity(create.capacity.unwrap_or(0));
        if let Some(Permissions(bits)) = create.permissions {
            bus = bus.permissions(bits);
        }
        let mode = self.created_mode().unwrap_or_default();
        bus = bus.delivery(mode);
        if mode != Mode::Unicast {
            bus = bus.policies([Policy::Drop, Policy::Block]);
        }
        Ok(bus)
    }
}

fn check_range<T: Copy + Into<u64>>(
    key: &str,
    value: Option<&Spanned<T>>,
    range: RangeInclusive<u64>,
) -> Result<(), Mistake> {
    let is_outside = |value: &&Spanned<T>| !range.contains(&(*value.get_ref()).into());
    let place: Option<Range<usize>> = value.filter(is_outside).map(Spanned::span);
    place.map_or(Ok(()), |place| {
        let (start, end) = range.into_inner();
        Err(Mistake::at(
            place,
            format!("{key} is out of range; write a number from {start} to {end}"),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule of requests with these lines.
    fn requests(lines: &str) -> Result<BusRule, String> {
        let text = format!("name = \"sums\"\nsubject = \"sums\"\n{lines}");
        let rule: BusRule = toml::from_str(&text).map_err(|error| error.to_string())?;
        match rule.check() {
            Ok(()) => Ok(rule),
            Err(mistake) => Err(mistake.in_file("bridge.toml", &text).to_string()),
        }
    }

    #[test]
    fn a_rule_of_requests_has_a_multicast_bus_and_a_timeout() {
        let rule = requests("direction = \"in\"\nrequests = {}\ncreate = {}").unwrap();
        assert_eq!(rule.request_timeout(), Some(Duration::from_secs(5)));
        assert_eq!(
            (rule.created_mode(), rule.in_flight()),
            (Some(Mode::Multicast), 64)
        );
        let rule = requests("direction = \"out\"\nrequests = { timeout_ms = 7 }").unwrap();
        assert_eq!(rule.request_timeout(), Some(Duration::from_millis(7)));
        assert_eq!(
            requests("direction = \"in\"").unwrap().request_timeout(),
            None
        );
    }

    #[test]
    fn the_example_of_the_page_is_valid() {
        let page = include_str!("../../../docs/nats.md");
        let (_, section) = page.split_once("\n## Requests\n").unwrap();
        let (_, example) = section.split_once("```toml\n[[bus]]\n").unwrap();
        let (example, _) = example.split_once("```").unwrap();
        let rule: BusRule = toml::from_str(example).unwrap();
        assert_eq!(rule.check(), Ok(()));
        assert_eq!(rule.request_timeout(), Some(Duration::from_secs(2)));
    }

    #[test]
    fn what_has_no_meaning_for_requests_is_a_mistake() {
        for (lines, words) in [
            ("direction = \"both\"", "one way"),
            ("direction = \"in\"\nstream = \"S\"", "stream is not for"),
            ("direction = \"out\"\nfull = \"drop\"", "full is not for"),
            (
                "direction = \"out\"\nin_flight_bytes = 65536",
                "in_flight_bytes is not for",
            ),
            (
                "direction = \"in\"\ncreate = { mode = \"broadcast\" }",
                "mode multicast",
            ),
        ] {
            let error = requests(&format!("{lines}\nrequests = {{}}")).unwrap_err();
            assert!(error.contains(words), "{lines}: {error}");
        }
        let error = requests("direction = \"in\"\nrequests = { timeout_ms = 0 }").unwrap_err();
        assert!(error.contains("from 1 to 3600000"), "{error}");
    }
}
