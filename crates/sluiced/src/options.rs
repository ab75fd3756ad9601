// SPDX-License-Identifier: MIT OR Apache-2.0
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::engine::OrphanLimits;

/// Store the durable maps of Sluice in a database, and restore them
#[derive(Debug, Parser)]
#[command(name = "sluiced", version)]
pub struct Options {
    /// Directory of the database; created if its parent exists
    #[arg(long, value_name = "DIR", default_value = "/var/lib/sluice")]
    pub store: PathBuf,

    /// Socket for 'sluice store attach', 'detach', 'status' and 'forget'
    #[arg(long, value_name = "PATH", default_value = sluiced_protocol::SOCKET)]
    pub socket: PathBuf,

    /// Where the cgroup2 hierarchy is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/cgroup")]
    pub cgroup_root: PathBuf,

    /// Number of stored maps whose cgroup is gone
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub orphan_max_count: usize,

    /// Bytes of the keys and values of these maps
    #[arg(long, value_name = "N", default_value_t = 1 << 30)]
    pub orphan_max_bytes: u64,

    /// Days after which such a map is removed
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    pub orphan_max_age: u32,
}

impl Options {
    pub fn orphan_limits(&self) -> OrphanLimits {
        OrphanLimits {
            count: self.orphan_max_count,
            bytes: self.orphan_max_bytes,
            age: Duration::from_secs(u64::from(self.orphan_max_age) * 24 * 3600),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_options_are_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn the_age_is_in_days() {
        let options = Options::parse_from(["sluiced", "--orphan-max-age", "2"]);
        let limits = options.orphan_limits();
        assert_eq!(limits.age, Duration::from_secs(2 * 86_400));
        assert_eq!((limits.count, limits.bytes), (1024, 1 << 30));
    }
}
