// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text of the metrics of one moment.

use std::fmt;

use anyhow::{Context as _, Result};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

pub type Labels = Vec<(&'static str, String)>;

pub fn encode(metrics: impl Collector) -> Result<String> {
    let (mut registry, mut encoded) = (Registry::default(), String::new());
    registry.register_collector(Box::new(metrics));
    text::encode(&mut encoded, &registry).context("cannot encode the metrics")?;
    Ok(encoded)
}

/// A metric with its name and its description. A value of `None` is not exported.
pub fn gauge(
    encoder: &mut DescriptorEncoder,
    what: (&str, &str),
    values: impl Iterator<Item = (Labels, Option<u64>)>,
) -> fmt::Result {
    family(encoder, MetricType::Gauge, what, values)
}

/// The same for a value that only grows.
pub fn counter(
    encoder: &mut DescriptorEncoder,
    what: (&str, &str),
    values: impl Iterator<Item = (Labels, Option<u64>)>,
) -> fmt::Result {
    family(encoder, MetricType::Counter, what, values)
}

fn family(
    encoder: &mut DescriptorEncoder,
    kind: MetricType,
    (name, help): (&str, &str),
    values: impl Iterator<Item = (Labels, Option<u64>)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in values {
        let Some(value) = value else { continue };
        let mut metric = family.encode_family(&labels)?;
        match kind {
            MetricType::Counter => metric.encode_counter::<NoLabelSet, _, u64>(&value, None)?,
            _ => metric.encode_gauge(&value)?,
        }
    }
    Ok(())
}
