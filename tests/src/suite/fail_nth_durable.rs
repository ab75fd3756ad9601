// SPDX-License-Identifier: MIT OR Apache-2.0
use crate::registry::topic;
topic!("fail_nth_durable", fifo: [], pipe_only: []);
