// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments that several commands share: the scope, the channel, and the properties of a new channel.

use std::fmt::Display;
use std::ops::Bound::Included;
use std::ops::RangeBounds;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{OsStringValueParser, StringValueParser, TypedValueParser};
use clap::{Args, ValueHint};
use sluice::ring::Attach;
use sluice::{Channel, ChannelKind, Creatable, Kind, Name, Options, Scope, ring};

/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;

#[derive(Args)]
pub struct ScopeArgs {
    /// The directory of the cgroup to look in [default: the cgroup of this process]
    ///
    /// For example /sys/fs/cgroup/system.slice/example.service.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    scope: Option<PathBuf>,
}

impl ScopeArgs {
    pub fn scope(&self) -> sluice::Result<Scope> {
        scope(self.scope.as_deref())
    }
}

fn scope(directory: Option<&Path>) -> sluice::Result<Scope> {
    directory.map_or(Ok(Scope::own()), Scope::at)
}

#[derive(Args)]
pub struct ChannelArgs {
    /// The name of the channel
    #[arg(value_parser = name())]
    name: Name,

    #[command(flatten)]
    scope: ScopeArgs,
}

impl ChannelArgs {
    /// The options of the channel, which `named` of its kind begins.
    pub fn options<'a, K: Creatable>(
        &'a self,
        named: impl FnOnce(&'a Name) -> Options<K>,
    ) -> sluice::Result<Options<K>> {
        Ok(named(&self.name).scope(self.scope.scope()?))
    }

    pub fn channel(&self, kind: Kind) -> sluice::Result<Channel> {
        Ok(Channel::new(kind, self.name)?.in_scope(self.scope.scope()?))
    }

    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The name, and the directory of the cgroup.
    pub fn place(&self) -> (&Name, Option<&Path>) {
        (&self.name, self.scope.scope.as_deref())
    }
}

/// The arguments of `info`.
#[derive(Args)]
pub struct InfoArgs {
    #[command(flatten)]
    pub channel: ChannelArgs,

    /// Print user and group IDs instead of names
    ///
    /// IDs without a name are always printed as numbers, and so are all IDs in JSON.
    #[arg(short, long)]
    pub numeric: bool,

    /// Print a JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Parses a name of any bytes.
pub fn name() -> impl TypedValueParser<Value = Name> {
    OsStringValueParser::new()
        .try_map(|name| Name::new(name.as_bytes()).map_err(|error| sluice::explain(&error)))
}

/// Parses the name of a ring. A path is refused with a hint to --socket.
pub fn ring_name() -> impl TypedValueParser<Value = Name> {
    OsStringValueParser::new().try_map(|name| match name.as_bytes().contains(&b'/') {
        true => Err("the name contains '/'; give the path of a socket with --socket".to_owned()),
        false => Name::new(name.as_bytes()).map_err(|error| sluice::explain(&error)),
    })
}

/// The arguments of `create`.
#[derive(Args)]
pub struct NewChannelArgs {
    /// Permission bits of a new channel, in octal [default: {PERMISSIONS}]
    ///
    /// Receiving, getting and watching need the permission to read; sending and changing need the one to write.
    #[arg(long, value_name = "OCTAL", value_parser = permissions)]
    permissions: Option<u32>,
}

impl NewChannelArgs {
    pub fn apply<K: Creatable>(&self, options: Options<K>) -> Options<K> {
        options.with(self.permissions, Options::permissions)
    }
}

/// How `send` and `recv` open a channel. The argument with its name has the ID `channel`.
#[derive(Args)]
#[group(id = "channel_options")]
pub struct OpenChannelArgs {
    /// The directory of the cgroup to look in [default: the cgroup of this process]
    ///
    /// For example /sys/fs/cgroup/system.slice/example.service.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "channel")]
    scope: Option<PathBuf>,

    /// Create the channel if it does not exist
    ///
    /// It is removed when the last process closes it. It fails if the channel belongs to a user other than this one, root or the
    /// owner of the directory of --scope: see --any-owner.
    #[arg(long, requires = "channel")]
    create: bool,

    /// With --create: use the channel also if another user has created it
    #[arg(long, requires = "create")]
    any_owner: bool,

    /// Permission bits of a new channel, in octal [default: {PERMISSIONS}]
    ///
    /// Receiving, getting and watching need the permission to read; sending and changing need the one to write.
    #[arg(long, value_name = "OCTAL", requires = "create", value_parser = permissions)]
    permissions: Option<u32>,

    /// Make the channel persistent: keep it until it is removed
    #[arg(long, requires = "create")]
    persist: bool,
}

impl OpenChannelArgs {
    pub fn directory(&self) -> Option<&Path> {
        self.scope.as_deref()
    }

    pub fn creates(&self) -> bool {
        self.create
    }

    pub fn apply<K: Creatable>(&self, options: Options<K>) -> sluice::Result<Options<K>> {
        Ok(options
            .scope(scope(self.scope.as_deref())?)
            .create(self.create)
            .any_owner(self.any_owner)
            .persistent(self.persist)
            .with(self.permissions, Options::permissions))
    }
}

/// Options that are set if an argument is given.
pub trait With: Sized {
    fn with<V>(self, given: Option<V>, set: impl FnOnce(Self, V) -> Self) -> Self {
        match given {
            Some(value) => set(self, value),
            None => self,
        }
    }
}

impl<K: ChannelKind> With for Options<K> {}
impl With for ring::SocketOptions {}
impl With for Attach {}

pub fn permissions(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|bits| *bits <= 0o777)
        .ok_or_else(|| "give permission bits in octal, from 0 to 777, such as 660".to_owned())
}

/// Parses a whole number of this range.
pub fn number<T>(
    range: impl RangeBounds<T> + Clone + Send + Sync + 'static,
) -> impl TypedValueParser<Value = T>
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    StringValueParser::new().try_map(move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| match (range.start_bound(), range.end_bound()) {
            (Included(least), Included(most)) => {
                format!("give a whole number from {least} to {most}")
            }
            (Included(least), _) => format!("give a whole number, at least {least}"),
            _ => "give a whole number".to_owned(),
        })
    })
}

pub fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.chars().last() {
        Some('K') => (&text[..text.len() - 1], 1 << 10),
        Some('M') => (&text[..text.len() - 1], 1 << 20),
        Some('G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "give a number of bytes above 0, such as 65536, 64K, 1M or 1G".to_owned())
}

/// The units of times, in nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 60 * 60 * SECOND),
    ("d", 24 * 60 * 60 * SECOND),
];

/// A time above 0 with its unit.
pub fn time(text: &str) -> Result<Duration, String> {
    match time_or_zero(text)? {
        Duration::ZERO => Err("give a time above 0".to_owned()),
        time => Ok(time),
    }
}

/// A time with its unit; 0 needs none.
pub fn time_or_zero(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let (number, name) = (digits.parse::<u64>(), &text[digits.len()..]);
    let unit = UNITS.iter().find(|(unit, _)| *unit == name);
    match (number, unit) {
        (Ok(0), _) if name.is_empty() => Ok(Duration::ZERO),
        (Ok(number), Some((_, unit))) => number
            .checked_mul(*unit)
            .map(Duration::from_nanos)
            .ok_or_else(|| "give a time of up to 584 years, such as 200000d".to_owned()),
        (Ok(number), None) if name.is_empty() => Err(format!(
            "a time has a unit: give {number}s or {number}ms, for example"
        )),
        _ => Err(
            "give a whole number with one of the units ns, us, ms, s, m, h and d, such as 1500ms"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024() {
        assert_eq!(size("65536"), Ok(65536));
        assert_eq!(size("64K"), Ok(65536));
        assert_eq!(size("1G"), Ok(1 << 30));
        for bad in [
            "",
            "K",
            "0",
            "1T",
            "-1",
            "1.5M",
            "99999999999999999999",
            "18446744073709551615K",
        ] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_have_a_unit() {
        for (text, nanoseconds) in [
            ("1ns", 1),
            ("50µs", 50_000),
            ("50us", 50_000),
            ("500ms", 500_000_000),
            ("30s", 30 * SECOND),
            ("5m", 300 * SECOND),
            ("2h", 7200 * SECOND),
            ("1d", 86_400 * SECOND),
        ] {
            assert_eq!(time(text), Ok(Duration::from_nanos(nanoseconds)));
        }
        assert_eq!(time_or_zero("0"), Ok(Duration::ZERO));
        assert_eq!(time_or_zero("0s"), Ok(Duration::ZERO));
        for (bad, says) in [
            ("5", "5s"),
            ("0", "above 0"),
            ("0s", "above 0"),
            ("999999d", "584 years"),
            ("", "1500ms"),
            ("ms", "1500ms"),
            ("1.5s", "1500ms"),
            ("-1s", "1500ms"),
            ("1 s", "1500ms"),
            ("1w", "1500ms"),
            ("99999999999999999999s", "1500ms"),
        ] {
            let error = time(bad).unwrap_err();
            assert!(error.contains(says), "{bad}: {error}");
        }
    }

    #[test]
    fn permissions_are_octal() {
        assert_eq!(permissions("0660"), Ok(0o660));
        for bad in ["", "800", "1000", "rw"] {
            assert!(permissions(bad).is_err(), "{bad}");
        }
    }
}
