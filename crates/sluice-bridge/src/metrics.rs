// SPDX-License-Identifier: MIT OR Apache-2.0
//! The metrics of the bridge, which docs/nats.md describes. A thread serves them, and asks the bridge for each request.

use std::fmt;
use std::thread;

use anyhow::{Context as _, Result};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use sluice_metrics::{Address, Labels, counter, encode, gauge};
use tokio::sync::{mpsc, oneshot};

use crate::bus_rule::BusRule;
use crate::counters::{COUNTERS, Counters};
use crate::log;

/// The state of one moment.
#[derive(Debug)]
pub struct Snapshot {
    is_connected: bool,
    rules: Vec<(Labels, [u64; COUNTERS.len()])>,
}

impl Snapshot {
    pub fn new(is_connected: bool) -> Self {
        Self {
            is_connected,
            rules: Vec::new(),
        }
    }

    pub fn add(&mut self, rule: &BusRule, counters: &Counters) {
        let scope = rule.scope().map(|scope| scope.display().to_string());
        let labels = vec![
            ("bus", rule.name().to_owned()),
            ("scope", scope.unwrap_or_default()),
        ];
        let values = COUNTERS.map(|(_, _, _, counter)| counter(counters).get());
        self.rules.push((labels, values));
    }
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
            let values = self.rules.iter();
            let values = values.map(|(labels, values)| (labels.clone(), Some(values[index])));
            let name = format!("sluice_bridge_{name}");
            counter(encoder, (&name, help), values)?;
        }
        Ok(())
    }
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
    use crate::config::tests::rule;

    #[test]
    fn each_rule_has_its_counters() {
        let rule = rule("name = \"orders\"\nscope = \"/a\"\ndirection = \"out\"\nsubject = \"a\"");
        let counters = Counters::default();
        counters.out.add(3);
        counters.lost.add(1);
        let mut snapshot = Snapshot::new(true);
        snapshot.add(&rule, &counters);
        let text = encode(snapshot).unwrap();
        for line in [
            "sluice_bridge_connected 1",
            "# TYPE sluice_bridge_messages_out counter",
            "sluice_bridge_messages_out_total{bus=\"orders\",scope=\"/a\"} 3",
            "sluice_bridge_messages_lost_total{bus=\"orders\",scope=\"/a\"} 1",
            "sluice_bridge_messages_in_total{bus=\"orders\",scope=\"/a\"} 0",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
    }

    #[test]
    fn the_page_names_each_metric() {
        let page = include_str!("../../../docs/nats.md");
        for (name, _, _, _) in COUNTERS {
            assert!(
                page.contains(&format!("`sluice_bridge_{name}_total`")),
                "{name}"
            );
        }
    }
}
