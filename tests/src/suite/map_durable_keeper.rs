// SPDX-License-Identifier: MIT OR Apache-2.0
use crate::registry::topic;
topic!("map_durable_keeper", fifo: [], pipe_only: []);
