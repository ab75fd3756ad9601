// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::Duration;

use sluice::Ring;
use sluice::ring::Attach;

/// The options of one side, as sluice::ring::SocketOptions are over memfd: the ring has no name yet.
#[derive(Clone, Debug, Default)]
pub struct Options {
    capacity: Option<u64>,
    spin: Option<Duration>,
    max_capacity: Option<u64>,
    numa_node: Option<u32>,
}

impl Options {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = Some(bytes);
        self
    }

    pub fn spin_limit(mut self, limit: Duration) -> Self {
        self.spin = Some(limit);
        self
    }

    pub fn max_capacity(mut self, bytes: u64) -> Self {
        self.max_capacity = Some(bytes);
        self
    }

    pub fn numa_node(mut self, node: u32) -> Self {
        self.numa_node = Some(node);
        self
    }

    /// Those of a side of the ring of this name.
    pub fn named(&self, name: &str) -> sluice::Options<Ring> {
        let mut options = Ring::named(name);
        if let Some(bytes) = self.capacity {
            options = options.capacity(bytes);
        }
        if let Some(limit) = self.spin {
            options = options.spin_limit(limit);
        }
        if let Some(bytes) = self.max_capacity {
            options = options.max_capacity(bytes);
        }
        if let Some(node) = self.numa_node {
            options = options.numa_node(node);
        }
        options
    }

    /// Those of a side that has an endpoint.
    pub fn attach(&self) -> Attach {
        let mut options = Ring::attach();
        if let Some(limit) = self.spin {
            options = options.spin_limit(limit);
        }
        if let Some(bytes) = self.max_capacity {
            options = options.max_capacity(bytes);
        }
        options
    }
}
