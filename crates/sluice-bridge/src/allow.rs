// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose messages leave this host: decided by the ids that the kernel has put into each message.

use serde::Deserialize;

/// A message is allowed if its sender has one of the users or one of the groups.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Allow {
    #[serde(default)]
    uid: Vec<u32>,
    #[serde(default)]
    gid: Vec<u32>,
}

impl Allow {
    pub fn is_empty(&self) -> bool {
        self.uid.is_empty() && self.gid.is_empty()
    }

    pub fn permits(&self, uid: u32, gid: u32) -> bool {
        self.uid.contains(&uid) || self.gid.contains(&gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_or_a_group_suffices() {
        let allow = Allow {
            uid: vec![1000],
            gid: vec![7],
        };
        assert!(allow.permits(1000, 1) && allow.permits(1, 7));
        assert!(!allow.permits(7, 1000));
        assert!(!Allow::default().permits(0, 0));
    }
}
