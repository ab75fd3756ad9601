// SPDX-License-Identifier: MIT OR Apache-2.0
//! The channels of all scopes that the caller may list, for the commands that observe them.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum, ValueHint};
use sluice::{ChannelInfo, Error, Kind, Scope};

use crate::{cgroup, output};

/// The number of the root cgroup, whose scope has the feeds.
const ROOT_ID: u64 = 1;

#[derive(Args)]
#[group(id = "selection_options")]
pub struct SelectionArgs {
    /// Only the channels of this cgroup, given by its directory [default: all that one may list]
    ///
    /// Root may list those of all cgroups; others those of their own cgroup and of the cgroups above it.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    scope: Option<PathBuf>,

    /// Only the channels of this kind
    ///
    /// Can be given several times.
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<KindArg>,
}

#[derive(Clone, Copy, ValueEnum)]
enum KindArg {
    Pipe,
    Ring,
    Feed,
    Bus,
    Map,
}

impl From<KindArg> for Kind {
    fn from(kind: KindArg) -> Self {
        match kind {
            KindArg::Pipe => Self::Pipe,
            KindArg::Ring => Self::Ring,
            KindArg::Feed => Self::Feed,
            KindArg::Bus => Self::Bus,
            KindArg::Map => Self::Map,
        }
    }
}

/// A scope, and how it is shown.
#[derive(Debug)]
pub struct Place {
    /// The directory of the cgroup, printable.
    pub path: String,
    /// The inode of the directory.
    pub cgroup_id: Option<u64>,
    pub scope: Scope,
}

#[derive(Debug)]
pub struct Found {
    pub place: Arc<Place>,
    pub info: ChannelInfo,
}

/// The counts of a channel, as far as its kind has them.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Counts<T> {
    pub messages: Option<T>,
    pub bytes: Option<T>,
    pub lost: Option<T>,
}

impl SelectionArgs {
    /// What the caller may not list is left out, and what is removed meanwhile, but not the scope that the caller has named.
    pub fn list(&self) -> Result<Vec<Found>> {
        let mut found = Vec::new();
        for place in self.places()? {
            match self.list_in(&place) {
                Err(error) if self.scope.is_none() && may_be_left_out(&error) => {}
                listed => found.extend(listed?),
            }
        }
        Ok(found)
    }

    fn list_in(&self, place: &Arc<Place>) -> sluice::Result<Vec<Found>> {
        let is_selected = |info: &ChannelInfo| {
            let mut kinds = self.kinds.iter();
            self.kinds.is_empty() || kinds.any(|kind| Kind::from(*kind) == info.kind)
        };
        let found = |info: sluice::Result<ChannelInfo>| match info {
            Ok(info) if !is_selected(&info) => None,
            info => Some(info.map(|info| Found {
                place: Arc::clone(place),
                info,
            })),
        };
        sluice::list(&place.scope)?.filter_map(found).collect()
    }

    fn places(&self) -> Result<Vec<Arc<Place>>> {
        if let Some(directory) = &self.scope {
            return Ok(vec![Arc::new(Place::at(directory)?)]);
        }
        let directories = cgroup::directories().unwrap_or_default();
        let places = directories.iter().map(|path| Place::at(path));
        let mut places: Vec<_> = places.flatten().collect();
        if places.is_empty() {
            places.push(Place::without_directory(Scope::own(), None));
        }
        if places.iter().all(|place| place.cgroup_id != Some(ROOT_ID)) {
            places.push(Place::without_directory(Scope::root(), Some(ROOT_ID)));
        }
        Ok(places.into_iter().map(Arc::new).collect())
    }
}

impl Place {
    fn at(directory: &Path) -> Result<Self> {
        let cgroup_id = |directory| io::Result::Ok(fs::metadata(directory)?.ino());
        let scope = Scope::at(directory)?;
        let cgroup_id = cgroup_id(directory)
            .with_context(|| format!("cannot examine {}; does it exist?", directory.display()))?;
        Ok(Self {
            path: output::shown(directory.as_os_str().as_bytes()),
            cgroup_id: Some(cgroup_id),
            scope,
        })
    }

    fn without_directory(scope: Scope, cgroup_id: Option<u64>) -> Self {
        Self {
            path: scope.to_string(),
            cgroup_id,
            scope,
        }
    }
}

fn may_be_left_out(error: &Error) -> bool {
    match error {
        Error::OutsideScope { .. } => true,
        Error::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

impl Counts<u64> {
    pub fn of(info: &ChannelInfo) -> Self {
        let is_stream = matches!(info.kind, Kind::Pipe | Kind::Ring);
        let counts_messages = matches!(info.kind, Kind::Bus | Kind::Feed | Kind::Map);
        Self {
            messages: counts_messages.then_some(info.messages),
            bytes: is_stream.then_some(info.total_bytes),
            lost: counts_messages.then_some(info.lost),
        }
    }
}

/// The version of the loaded module; an older one has only that of its interface.
pub fn module_version() -> sluice::Result<String> {
    let features = sluice::features()?;
    let version = fs::read_to_string("/sys/module/sluice/version");
    Ok(match version {
        Ok(version) => version.trim_end().to_owned(),
        Err(_) => format!("interface {}", features.abi),
    })
}

/// None of the kinds that have no lag.
pub fn lag(info: &ChannelInfo) -> Option<u64> {
    matches!(info.kind, Kind::Bus | Kind::Map).then_some(info.lag)
}
