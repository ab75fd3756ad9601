// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the examples of the library. Not among them: `ring`, which starts a second process, and `bus_io_uring`, which never ends.

use anyhow::{Result, anyhow};

use crate::registry::{Context, topic};

/// A module and a test for each.
macro_rules! examples {
    ($($name:ident: $file:literal;)*) => {
        $(
            #[path = $file]
            mod $name;
        )*

        topic!("examples", fifo: [], pipe_only: [$($name),*]);

        $(
            fn $name(_: &Context) -> Result<()> {
                $name::main().map_err(|error| anyhow!("{}", sluice::explain(&*error)))
            }
        )*
    };
}

examples! {
    pipe: "../../../crates/sluice/examples/pipe.rs";
    pipe_tokio: "../../../crates/sluice/examples/pipe_tokio.rs";
    ring_tokio: "../../../crates/sluice/examples/ring_tokio.rs";
    bus: "../../../crates/sluice/examples/bus.rs";
    bus_tokio: "../../../crates/sluice/examples/bus_tokio.rs";
    requests: "../../../crates/sluice/examples/requests.rs";
    requests_tokio: "../../../crates/sluice/examples/requests_tokio.rs";
    map: "../../../crates/sluice/examples/map.rs";
    map_tokio: "../../../crates/sluice/examples/map_tokio.rs";
    feed: "../../../crates/sluice/examples/feed.rs";
    feed_tokio: "../../../crates/sluice/examples/feed_tokio.rs";
}
