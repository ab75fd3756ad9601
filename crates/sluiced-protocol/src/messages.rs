// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// A stored map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MapName {
    /// Of the cgroup, from the root of the hierarchy.
    pub path: Bytes,
    pub name: Bytes,
}

/// For messages.
impl fmt::Display for MapName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "map '{}' of {}", self.name, self.path)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Selection {
    All,
    Map(MapName),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(
    tag = "verb",
    content = "which",
    rename_all = "lowercase",
    deny_unknown_fields
)]
pub enum Request {
    /// Makes the kernel's copy of stored maps, also of those that were detached.
    Attach(Selection),
    /// Drops the kernel's copy of maps, which stay stored.
    Detach(Selection),
    Status,
    /// Deletes a stored map that is not attached.
    Forget(MapName),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Response {
    /// Each map with what was done.
    Done(Vec<Outcome>),
    Status(Status),
    /// Nothing was done.
    Failed(Failure),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Outcome {
    #[serde(flatten)]
    pub map: MapName,
    /// Of this map; none: it is done.
    pub error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Failure {
    pub kind: FailureKind,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// There is no such stored map.
    NotFound,
    /// The map is attached.
    Attached,
    /// The request is not one.
    Invalid,
    /// The store does not work.
    Store,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Status {
    /// Why the store does not work; none: it does.
    pub error: Option<String>,
    pub maps: Vec<MapStatus>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct MapStatus {
    #[serde(flatten)]
    pub map: MapName,
    pub uid: u32,
    pub gid: u32,
    pub state: MapState,
    /// Why it is in this state, if that is a failure.
    pub reason: Option<String>,
    /// Stored entries.
    pub entries: u64,
    /// Bytes of the stored keys and values.
    pub bytes: u64,
    /// All changes up to this number are stored.
    pub stored: u64,
    pub sync: SyncMode,
    /// Between commits, with `interval`.
    pub interval_ms: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MapState {
    /// The kernel has a copy.
    Attached,
    /// Stored only.
    Stored,
    /// Stored only, and not attached at the start of the daemon.
    Detached,
    /// The cgroup is gone.
    Orphan,
    /// A limit of channels prevents the kernel's copy.
    OverQuota,
    /// The kernel's copy is being made.
    Restoring,
    Error,
}

impl MapState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Attached => "attached",
            Self::Stored => "stored",
            Self::Detached => "detached",
            Self::Orphan => "orphan",
            Self::OverQuota => "over-quota",
            Self::Restoring => "restoring",
            Self::Error => "error",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncMode {
    Always,
    Interval,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock() -> MapName {
        MapName {
            path: "/a".into(),
            name: "lock".into(),
        }
    }

    #[test]
    fn requests_are_what_the_manual_says() {
        for (request, line) in [
            (Request::Status, r#"{"verb":"status"}"#),
            (
                Request::Attach(Selection::All),
                r#"{"verb":"attach","which":"all"}"#,
            ),
            (
                Request::Detach(Selection::Map(lock())),
                r#"{"verb":"detach","which":{"map":{"path":"/a","name":"lock"}}}"#,
            ),
            (
                Request::Forget(lock()),
                r#"{"verb":"forget","which":{"path":"/a","name":"lock"}}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&request).unwrap(), line);
            assert_eq!(serde_json::from_str::<Request>(line).unwrap(), request);
        }
    }

    #[test]
    fn an_incomplete_request_is_invalid() {
        for line in [
            r#"{"verb":"detach"}"#,
            r#"{"verb":"forget","which":"all"}"#,
            r#"{"verb":"forget","which":{"path":"/a"}}"#,
            r#"{"verb":"drop"}"#,
            "",
        ] {
            assert!(serde_json::from_str::<Request>(line).is_err(), "{line}");
        }
    }

    #[test]
    fn states_have_one_name() {
        for state in [
            MapState::Attached,
            MapState::Stored,
            MapState::Detached,
            MapState::Orphan,
            MapState::OverQuota,
            MapState::Restoring,
            MapState::Error,
        ] {
            let json = serde_json::to_value(state).unwrap();
            assert_eq!(json, state.as_str());
        }
    }
}
