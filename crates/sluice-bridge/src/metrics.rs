// SPDX-License-Identifier: MIT OR Apache-2.0
//! The metrics of the bridge, which docs/nats.md describes. A thread serves them, and asks the bridge for each request.

use std::fmt;
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use sluice_metrics::{Address, Labels, counter, encode, gauge};
use tokio::sync::{mpsc, oneshot};

use crate::bus_rule::BusRule;
use crate::counters::{COUNTERS, Counters};
use crate::log;
use crate::map_counters::{MAP_COUNTERS, MapCounters};
use crate::map_rule::MapRule;

/// The state of one moment.
#[derive(Debug)]
pub struct Snapshot {
    is_connected: bool,
    rules: Vec<(Labels, [u64; COUNTERS.len()])>,
    maps: Vec<(Labels, [u64; MAP_COUNTERS.len()])>,
}

impl Snapshot {
    pub fn new(is_connected: bool) -> Self {
        Self {
            is_connected,
            rules: Vec::new(),
            maps: Vec::new(),
        }
    }

    pub fn add(&mut self, rule: &BusRule, counters: &Counters) {
        let values = COUNTERS.map(|(_, _, _, counter)| counter(counters).get());
        self.rules
            .push((labels("bus", rule.name(), rule.scope()), values));
    }

    pub fn add_map(&mut self, rule: &MapRule, counters: &MapCounters) {
        let values = MAP_COUNTERS.map(|(_, _, _, counter)| counter(counters).get());
        self.maps
            .push((labels("map", rule.name(), rule.scope()), values));
    }
}

fn labels(kind: &'static str, name: &str, scope: Option<&Path>) -> Labels {
    let scope = scope.map(|scope| scope.display().to_string());
    vec![
        (kind, name.to_owned()),
        ("scope", scope.unwrap_or_default()),
    ]
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let encoder = &mut encoder;
        let connected = (Labels::new(), Some(self.is_connected.into()));
        let what = (
            "sluice_bridge_connected",
            "Whether there is a connection to a server",
        );
        gauge(encoder, what, [connected].into_iter())?;
        for (index, (name, _, help, _)) in COUNTERS.iter().enumerate() {
            write_counter(encoder, (name, help), &self.rules, index)?;
        }
        for (index, (name, _, help, _)) in MAP_COUNTERS.iter().enumerate() {
            write_counter(encoder, (name, help), &self.maps, index)?;
        }
        Ok(())
    }
}

/// That with this index of all rules.
fn write_counter<const COUNT: usize>(
    encoder: &mut DescriptorEncoder,
    (name, help): (&str, &str),
    rules: &[(Labels, [u64; COUNT])],
    index: usize,
) -> fmt::Result {
    let values = rules.iter();
    let values = values.map(|(labels, values)| (labels.clone(), Some(values[index])));
    counter(encoder, (&format!("sluice_bridge_{name}"), help), values)
}

/// Where a snapshot is to be sent.
pub type Reply = oneshot::Sender<Snapshot>;

pub fn serve(address: &Address) -> Result<mpsc::Receiver<Reply>> {
    let (listener, page) = address.bind()?;
    log::line(format_args!("metrics at {page}"));
    let (requests, received) = mpsc::channel(1);
    thread::spawn(move || {
        sluice_metrics::serve(&listener, || {
            let (reply, snapshot) = oneshot::channel();
            requests.blocking_send(reply).context(ENDING)?;
            encode(snapshot.blocking_recv().context(ENDING)?)
        })
    });
    Ok(received)
}

const ENDING: &str = "the bridge ends; try again";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{HEAD, parse, rule};

    #[test]
    fn each_rule_has_its_counters() {
        let rule = rule("name = \"orders\"\nscope = \"/a\"\ndirection = \"out\"\nsubject = \"a\"");
        let counters = Counters::default();
        counters.out.add(3);
        counters.lost.add(1);
        let mut snapshot = Snapshot::new(true);
        snapshot.add(&rule, &counters);
        let config = parse(&format!(
            "{HEAD}[[map]]\nname = \"m\"\nbucket = \"b\"\ndirection = \"in\""
        ));
        let of_map = MapCounters::default();
        of_map.conflicts.add(2);
        snapshot.add_map(&config.maps[0], &of_map);
        let text = encode(snapshot).unwrap();
        for line in [
            "sluice_bridge_connected 1",
            "# TYPE sluice_bridge_messages_out counter",
            "sluice_bridge_messages_out_total{bus=\"orders\",scope=\"/a\"} 3",
            "sluice_bridge_messages_lost_total{bus=\"orders\",scope=\"/a\"} 1",
            "sluice_bridge_messages_in_total{bus=\"orders\",scope=\"/a\"} 0",
            "sluice_bridge_map_conflicts_total{map=\"m\",scope=\"\"} 2",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
    }

    #[test]
    fn the_page_names_each_metric() {
        let page = include_str!("../../../docs/nats.md");
        let names = COUNTERS.map(|counter| counter.0).into_iter();
        for name in names.chain(MAP_COUNTERS.map(|counter| counter.0)) {
            assert!(
                page.contains(&format!("`sluice_bridge_{name}_total`")),
                "{name}"
            );
        }
    }
}
