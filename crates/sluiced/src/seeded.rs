// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bugs for tests of crashes, which must detect them. Only the feature `seeded` contains them.

/// Chosen by `SLUICED_BUG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// `early-ack`: changes are acknowledged before they are stored.
    EarlyAck,
    /// `missing-sync`: nothing waits for the disk.
    MissingSync,
    /// `no-wal-sync`: only checkpoints wait for the disk.
    NoWalSync,
    /// `applied-outside`: the number of the last change is stored in a transaction of its own, before the changes.
    AppliedOutside,
}

#[cfg(feature = "seeded")]
pub fn is_on(bug: Bug) -> bool {
    let name = match bug {
        Bug::EarlyAck => "early-ack",
        Bug::MissingSync => "missing-sync",
        Bug::NoWalSync => "no-wal-sync",
        Bug::AppliedOutside => "applied-outside",
    };
    std::env::var_os("SLUICED_BUG").is_some_and(|chosen| chosen == name)
}

#[cfg(not(feature = "seeded"))]
pub const fn is_on(_: Bug) -> bool {
    false
}
