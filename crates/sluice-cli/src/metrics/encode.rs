// SPDX-License-Identifier: MIT OR Apache-2.0
//! The metrics of one moment. sluice-metrics(1) describes them.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::{fmt, path};

use anyhow::Result;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use sluice::{ChannelInfo, Usage};
use sluice_metrics::{Labels, counter, gauge};
use sluiced_protocol::Status;

use crate::channels::{self, Counts, Found, Place, SelectionArgs, lag};
use crate::store;

/// Empty if the module does not answer.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The version of the module.
    module: Option<String>,
    channels: Vec<Found>,
    /// The scopes with channels, by the number of their cgroup.
    scopes: BTreeMap<Option<u64>, ScopeState>,
    /// None if sluiced does not answer, or not to this user.
    store: Option<Status>,
}

#[derive(Debug)]
struct ScopeState {
    label: String,
    /// None if the scope is removed meanwhile.
    usage: Option<Usage>,
}

impl ScopeState {
    fn of(place: &Place) -> Self {
        Self {
            label: label(place),
            usage: place.usage().ok(),
        }
    }
}

/// The directory of the scope, escaped so that different directories have different labels, which `Place::path` does not ensure.
fn label(place: &Place) -> String {
    let directory = place.directory.as_deref().map(path::absolute);
    match directory {
        Some(Ok(directory)) => sluice::escape(directory.as_os_str().as_bytes()),
        _ => place.path.clone(),
    }
}

impl Snapshot {
    pub fn take(selection: &SelectionArgs) -> Result<Self> {
        let module = Some(channels::module_version()?);
        let channels = selection.list()?;
        let mut scopes = BTreeMap::new();
        for Found { place, .. } in &channels {
            let scope = scopes.entry(place.cgroup_id);
            scope.or_insert_with(|| ScopeState::of(place));
        }
        Ok(Self {
            module,
            channels,
            scopes,
            store: store::status_soon(),
        })
    }

    fn channel_labels(&self, found: &Found) -> Labels {
        let Found { place, info } = found;
        let scope = self.scopes.get(&place.cgroup_id);
        vec![
            ("kind", info.kind.to_string()),
            ("name", info.name.to_string()),
            (
                "scope",
                scope.map_or_else(String::new, |scope| scope.label.clone()),
            ),
            ("uid", info.uid.to_string()),
        ]
    }
}

type Read<T> = fn(&T) -> Option<u64>;

const COUNTERS: [(&str, &str, Read<ChannelInfo>); 3] = [
    (
        "sluice_channel_messages",
        "Messages of a bus, packets of a feed, changes of a map",
        |info| Counts::of(info).messages,
    ),
    (
        "sluice_channel_bytes",
        "Bytes through a pipe or a ring",
        |info| Counts::of(info).bytes,
    ),
    (
        "sluice_channel_lost",
        "Messages, packets or changes that receivers lost",
        |info| Counts::of(info).lost,
    ),
];

const GAUGES: [(&str, &str, Read<ChannelInfo>); 6] = [
    (
        "sluice_channel_backlog_bytes",
        "Bytes in the channel",
        |info| Some(info.bytes),
    ),
    ("sluice_channel_capacity_bytes", "Capacity", |info| {
        Some(info.capacity)
    }),
    ("sluice_channel_readers", "Endpoints that receive", |info| {
        Some(info.readers.into())
    }),
    ("sluice_channel_writers", "Endpoints that send", |info| {
        Some(info.writers.into())
    }),
    (
        "sluice_channel_lag",
        "Messages that the slowest subscriber has not received, or changes that are not stored",
        lag,
    ),
    ("sluice_channel_waiting", "Calls that sleep", |info| {
        Some(info.waiting.into())
    }),
];

const OF_SCOPE: [(&str, &str, Read<Usage>); 4] = [
    (
        "sluice_scope_channels",
        "Channels of the scope and of those below it",
        |usage| Some(usage.scope.channels),
    ),
    (
        "sluice_scope_channels_limit",
        "Limit of channels of the scope",
        |usage| usage.scope.channels_max,
    ),
    (
        "sluice_scope_capacity_bytes",
        "Capacity of the channels of the scope and of those below it",
        |usage| Some(usage.scope.bytes),
    ),
    (
        "sluice_scope_capacity_limit_bytes",
        "Limit of the capacity of the scope",
        |usage| usage.scope.bytes_max,
    ),
];

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let encoder = &mut encoder;
        let up = (Vec::new(), Some(self.module.is_some().into()));
        let what = ("sluice_up", "Whether the module answers");
        gauge(encoder, what, [up].into_iter())?;
        let version = self.module.iter();
        let info = version.map(|version| (vec![("version", version.clone())], Some(1)));
        let what = ("sluice_module_info", "Version of the module");
        gauge(encoder, what, info)?;

        let channels = |read: Read<ChannelInfo>| {
            let channels = self.channels.iter();
            channels.map(move |found| (self.channel_labels(found), read(&found.info)))
        };
        for (name, help, read) in COUNTERS {
            counter(encoder, (name, help), channels(read))?;
        }
        for (name, help, read) in GAUGES {
            gauge(encoder, (name, help), channels(read))?;
        }
        for (name, help, read) in OF_SCOPE {
            let values = self.scopes.values().map(|scope| {
                let labels = vec![("scope", scope.label.clone())];
                (labels, scope.usage.as_ref().and_then(read))
            });
            gauge(encoder, (name, help), values)?;
        }
        self.store
            .iter()
            .try_for_each(|status| encode_store(encoder, status))
    }
}

fn encode_store(encoder: &mut DescriptorEncoder, status: &Status) -> fmt::Result {
    let failed = (Vec::new(), Some(status.error.is_some().into()));
    let what = (
        "sluice_store_failed",
        "Whether the store of sluiced has failed",
    );
    gauge(encoder, what, [failed].into_iter())?;
    let mut states = BTreeMap::new();
    for map in &status.maps {
        *states.entry(map.state.as_str()).or_insert(0) += 1;
    }
    let values = states
        .into_iter()
        .map(|(state, count)| (vec![("state", state.to_owned())], Some(count)));
    gauge(
        encoder,
        ("sluice_store_maps", "Stored maps by their state"),
        values,
    )
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use sluice_abi as abi;

    use super::*;
    use crate::channels::Place;
    use crate::store::tests::stored_map;

    fn found(kind: u32, name: &str, set: impl FnOnce(&mut abi::ChannelInfo)) -> Found {
        let mut info = abi::ChannelInfo::EMPTY;
        (info.kind, info.name) = (kind, abi::padded(name.as_bytes()));
        set(&mut info);
        let place = Place {
            path: "/sys/fs/cgroup/a".to_owned(),
            cgroup_id: Some(7),
            directory: None,
        };
        Found {
            place: Arc::new(place),
            info: info.into(),
        }
    }

    fn example() -> Snapshot {
        let map = stored_map();
        let bus = |info: &mut abi::ChannelInfo| {
            (info.messages, info.lag, info.uid) = (u64::MAX, 3, 1000);
        };
        let channels = vec![
            found(abi::KIND_BUS, "a \"quoted\" \\ name\n", bus),
            found(abi::KIND_PIPE, "p", |info| info.total_bytes = 4096),
        ];
        let scope = ScopeState {
            label: label(&channels[0].place),
            usage: None,
        };
        Snapshot {
            module: Some("0.1.0".to_owned()),
            channels,
            scopes: [(Some(7), scope)].into(),
            store: Some(Status {
                error: None,
                maps: vec![map.clone(), map],
            }),
        }
    }

    #[test]
    fn channels_have_labels_and_only_what_their_kind_counts() {
        let text = sluice_metrics::encode(example()).unwrap();
        // The escape of the name has its backslashes escaped again.
        let bus =
            r#"{kind="bus",name="a \"quoted\" \\\\ name\\n",scope="/sys/fs/cgroup/a",uid="1000"}"#;
        let pipe = r#"{kind="pipe",name="p",scope="/sys/fs/cgroup/a",uid="0"}"#;
        for line in [
            "# TYPE sluice_channel_messages counter".to_owned(),
            format!("sluice_channel_messages_total{bus} {}", u64::MAX),
            format!("sluice_channel_lag{bus} 3"),
            format!("sluice_channel_bytes_total{pipe} 4096"),
            r#"sluice_module_info{version="0.1.0"} 1"#.to_owned(),
            "sluice_up 1".to_owned(),
            "sluice_store_failed 0".to_owned(),
            r#"sluice_store_maps{state="attached"} 2"#.to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
        }
        assert!(!text.contains(&format!("sluice_channel_messages_total{pipe}")));
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn directories_that_look_alike_have_different_labels() {
        let label = |name: &str| {
            let directory = PathBuf::from("/sys/fs/cgroup").join(name);
            label(&Place {
                path: crate::output::shown(directory.as_os_str().as_bytes()),
                cgroup_id: None,
                directory: Some(directory),
            })
        };
        let (control, text) = (label("a\u{1b}"), label(r"a\x1b"));
        assert!(control.ends_with(r"/a\x1b"), "{control}");
        assert!(text.ends_with(r"/a\\x1b"), "{text}");
    }

    #[test]
    fn a_missing_module_is_a_metric() {
        let text = sluice_metrics::encode(Snapshot::default()).unwrap();
        assert!(text.contains("\nsluice_up 0\n"), "{text}");
    }
}
