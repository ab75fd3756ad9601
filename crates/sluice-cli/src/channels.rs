// SPDX-License-Identifier: MIT OR Apache-2.0
//! The channels of all scopes that the caller may list, for the commands that observe them.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum, ValueHint};
use sluice::{ChannelInfo, Error, Kind, Scope, Usage};

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
    /// It is not kept open, because there may be more cgroups than a process may have open files. None: the root, or the caller's cgroup.
    pub directory: Option<PathBuf>,
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
    /// Of all scopes, those are left out that the caller may not list.
    pub fn list(&self) -> Result<Vec<Found>> {
        match &self.scope {
            Some(directory) => {
                let scope = Scope::at(directory)?;
                Ok(self.list_in(Place::at(directory)?, &scope)?)
            }
            None => self.list_all(),
        }
    }

    fn list_all(&self) -> Result<Vec<Found>> {
        let (mut found, mut ids) = (Vec::new(), Vec::new());
        if let Ok(root) = cgroup::root() {
            cgroup::each_scope(&root, |directory, scope| {
                let place = Place::at(directory)?;
                ids.push(place.cgroup_id);
                found.extend(self.list_if_permitted(place, scope)?);
                Ok(())
            })?;
        }
        let mut without_directory = Vec::new();
        if ids.is_empty() {
            without_directory.push((Scope::own(), None));
        }
        if !ids.contains(&Some(ROOT_ID)) {
            without_directory.push((Scope::root(), Some(ROOT_ID)));
        }
        for (scope, cgroup_id) in without_directory {
            let place = Place::without_directory(&scope, cgroup_id);
            found.extend(self.list_if_permitted(place, &scope)?);
        }
        Ok(found)
    }

    fn list_if_permitted(&self, place: Place, scope: &Scope) -> sluice::Result<Vec<Found>> {
        match self.list_in(place, scope) {
            Err(error) if may_be_left_out(&error) => Ok(Vec::new()),
            listed => listed,
        }
    }

    fn list_in(&self, place: Place, scope: &Scope) -> sluice::Result<Vec<Found>> {
        let place = Arc::new(place);
        let is_selected = |info: &ChannelInfo| {
            let mut kinds = self.kinds.iter();
            self.kinds.is_empty() || kinds.any(|kind| Kind::from(*kind) == info.kind)
        };
        let found = |info: sluice::Result<ChannelInfo>| match info {
            Ok(info) if !is_selected(&info) => None,
            info => Some(info.map(|info| Found {
                place: Arc::clone(&place),
                info,
            })),
        };
        sluice::list(scope)?.filter_map(found).collect()
    }
}

impl Place {
    fn at(directory: &Path) -> Result<Self> {
        let metadata = fs::metadata(directory);
        let metadata = metadata
            .with_context(|| format!("cannot examine {}; does it exist?", directory.display()))?;
        Ok(Self {
            path: output::shown(directory.as_os_str().as_bytes()),
            cgroup_id: Some(metadata.ino()),
            directory: Some(directory.to_owned()),
        })
    }

    fn without_directory(scope: &Scope, cgroup_id: Option<u64>) -> Self {
        Self {
            path: scope.to_string(),
            cgroup_id,
            directory: None,
        }
    }

    pub fn usage(&self) -> sluice::Result<Usage> {
        let scope = match (&self.directory, self.cgroup_id) {
            (Some(directory), _) => Scope::at(directory)?,
            (None, Some(_)) => Scope::root(),
            (None, None) => Scope::own(),
        };
        sluice::usage(&scope)
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
