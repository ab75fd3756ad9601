// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests, one file a topic, one behaviour a test.

mod atomicity;
mod command;
mod ctl_bad_input;
mod ctl_bad_memory;
mod ctl_containers;
mod ctl_handing;
mod ctl_list;
mod ctl_names;
mod ctl_open;
mod ctl_permissions;
mod ctl_persist;
mod ctl_quota;
mod ctl_quota_memory;
mod ctl_quota_scopes;
mod ctl_races;
mod ctl_scopes;
mod ctl_struct_size;
mod ctl_waits;
mod device;
mod ends;
mod exclusive;
mod fail_nth;
mod faults;
mod hostile;
mod interrupts;
mod isolation;
mod kill;
mod kinds;
mod library;
mod lifetime;
mod locks;
mod myipc;
mod no_cgroup2;
mod open;
mod pages;
mod poll;
mod programs;
mod read_write;
mod settings;
mod splice;
mod stress;
mod uring;
mod wakeups;

use crate::registry::Topic;

/// In this order: simple things first, so that the first failure is the one to look at.
pub const TOPICS: &[Topic] = &[
    open::TOPIC,
    read_write::TOPIC,
    ends::TOPIC,
    poll::TOPIC,
    interrupts::TOPIC,
    hostile::TOPIC,
    wakeups::TOPIC,
    exclusive::TOPIC,
    atomicity::TOPIC,
    faults::TOPIC,
    splice::TOPIC,
    settings::TOPIC,
    pages::TOPIC,
    uring::TOPIC,
    device::TOPIC,
    isolation::TOPIC,
    locks::TOPIC,
    kill::TOPIC,
    lifetime::TOPIC,
    programs::TOPIC,
    ctl_open::TOPIC,
    ctl_waits::TOPIC,
    ctl_names::TOPIC,
    ctl_scopes::TOPIC,
    ctl_containers::TOPIC,
    ctl_handing::TOPIC,
    ctl_permissions::TOPIC,
    ctl_list::TOPIC,
    ctl_persist::TOPIC,
    ctl_quota::TOPIC,
    ctl_quota_scopes::TOPIC,
    ctl_quota_memory::TOPIC,
    ctl_bad_input::TOPIC,
    ctl_bad_memory::TOPIC,
    ctl_struct_size::TOPIC,
    ctl_races::TOPIC,
    kinds::TOPIC,
    fail_nth::TOPIC,
    library::TOPIC,
    command::TOPIC,
    myipc::TOPIC,
    stress::TOPIC,
    no_cgroup2::TOPIC,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::TOPICS;

    const FIFO_PAGE: &str = include_str!("../../../docs/fifo.md");

    fn is_test_name(text: &str) -> bool {
        let is_word = |word: &str| {
            let mut letters = word.chars();
            letters.all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit())
        };
        text.split_once("::")
            .is_some_and(|(topic, name)| is_word(topic) && is_word(name))
    }

    #[test]
    fn every_test_that_the_page_on_fifos_names_exists() {
        let known: BTreeSet<String> = TOPICS
            .iter()
            .flat_map(|topic| {
                let tests = topic.tests.iter();
                tests.map(|test| format!("{}::{}", topic.name, test.name))
            })
            .collect();
        let named: BTreeSet<String> = FIFO_PAGE
            .split('`')
            .filter(|text| is_test_name(text))
            .map(str::to_owned)
            .collect();
        assert!(named.len() > 50, "only {} names were found", named.len());
        let missing: Vec<_> = named.difference(&known).collect();
        assert!(missing.is_empty(), "these do not exist: {missing:?}");
    }
}
