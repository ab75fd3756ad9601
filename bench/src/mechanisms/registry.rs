// SPDX-License-Identifier: MIT OR Apache-2.0
//! All mechanisms, in the order of the tables.

use std::rc::Rc;

use super::sluice_ring::Variant;
// All files, so that a mechanism is registered with one line below.
use super::*;
use crate::harness::rounds::Skipped;
use crate::harness::waiting::Waiting;
use sluice_testkit::cgroup::Tree;

/// The available mechanisms, and those that are not available here.
#[derive(Default)]
pub struct Registry {
    pub available: Vec<Rc<Mechanism>>,
    pub unavailable: Vec<Skipped>,
}

/// The cgroups of the mechanisms that need the module, or the reason why there are none.
type Cgroups = Result<Rc<Tree>, Skipped>;

/// All mechanisms, or the reasons why they are not available. The reference comes first.
fn mechanisms(cgroups: &Cgroups) -> Vec<Result<Mechanism, Skipped>> {
    let tree = |name| cgroups.as_ref().map_err(|skip: &Skipped| skip.of(name));
    // With the adaptive spinning of the module, and with spinning turned off.
    let sluice_pipe = |waiting| Ok(sluice_pipe::mechanism(tree("sluice-pipe")?, waiting));
    let device_ring = |variant| Ok(sluice_ring::mechanism(tree(sluice_ring::NAME)?, variant));
    vec![
        Ok(pipe::mechanism()),
        myipc::mechanism(),
        sluice_pipe(Waiting::Sleep),
        sluice_pipe(Waiting::Spin),
        device_ring(Variant::Default),
        device_ring(Variant::NeverSpins),
        device_ring(Variant::AlwaysSpins),
        Ok(sluice_ring_memfd::mechanism(Variant::Default)),
        Ok(sluice_ring_memfd::mechanism(Variant::NeverSpins)),
        Ok(sluice_ring_memfd::mechanism(Variant::AlwaysSpins)),
        Ok(pipe::large()),
        Ok(pipe::nonblocking()),
        Ok(pipe::fifo()),
        Ok(unix_stream::mechanism()),
        Ok(unix_stream::with_large_buffer()),
        Ok(unix_stream::nonblocking()),
        Ok(packets::seqpacket()),
        Ok(packets::dgram()),
        Ok(tcp::mechanism()),
        Ok(tcp::coalescing()),
        Ok(posix_mq::mechanism()),
        Ok(posix_mq::deep()),
        Ok(mmap::mechanism()),
        Ok(waits::eventfd_shm()),
        Ok(waits::futex_shm()),
        Ok(shm_sem::mechanism()),
        Ok(waits::shm_spin()),
        Ok(zeromq::mechanism()),
        Ok(cacheline_pingpong::mechanism(false)),
    ]
}

/// Third-party ring libraries, each spinning and in its ways of sleeping, or the reason why one is not available. Each has
/// dependencies that are not always available, so they are measured only on request.
#[allow(
    clippy::vec_init_then_push,
    reason = "what is pushed depends on the features"
)]
fn third_party() -> Vec<Result<Mechanism, Skipped>> {
    let mut all = Vec::new();
    #[cfg(feature = "iceoryx2")]
    all.extend(iceoryx2::mechanisms().map(Ok));
    #[cfg(not(feature = "iceoryx2"))]
    all.push(not_built_in("iceoryx2"));
    #[cfg(feature = "tachyon")]
    all.extend(tachyon::mechanisms().map(Ok));
    #[cfg(not(feature = "tachyon"))]
    all.push(not_built_in("tachyon"));
    #[cfg(feature = "aeron")]
    all.extend(aeron::mechanisms().map(Ok));
    #[cfg(not(feature = "aeron"))]
    all.push(not_built_in("aeron"));
    all
}

#[cfg(not(all(feature = "iceoryx2", feature = "tachyon", feature = "aeron")))]
fn not_built_in(name: &'static str) -> Result<Mechanism, Skipped> {
    let reason = "this program was built without it; run 'make bench-peers', which enables it";
    Err(Skipped::unavailable(name, reason))
}

impl Registry {
    pub fn new(cgroups: &Cgroups) -> Self {
        Self::default().with(mechanisms(cgroups))
    }

    /// Adds third-party ring libraries, and Sluice's ring in unsealed memory, as in those libraries. The lower bound is
    /// measured for both kinds of memory.
    pub fn with_third_party(mut self) -> Self {
        let is_ring = |one: &Rc<Mechanism>| one.name == sluice_ring_memfd::NAME;
        let after = self.available.iter().rposition(is_ring);
        let later = self.available.split_off(after.map_or(0, |last| last + 1));
        let unsealed = sluice_ring_memfd::mechanism(Variant::Unsealed);
        self.available.push(Rc::new(unsealed));
        self.available.extend(later);
        self.with(vec![Ok(cacheline_pingpong::mechanism(true))])
            .with(third_party())
    }

    /// Puts the first one of these that is available before all others, as the reference.
    pub fn refer_to(mut self, names: &[&str]) -> Self {
        let position = |name: &&str| self.available.iter().position(|one| one.name == *name);
        if let Some(found) = names.iter().find_map(position) {
            self.available[..=found].rotate_right(1);
        }
        self
    }

    fn with(mut self, mechanisms: Vec<Result<Mechanism, Skipped>>) -> Self {
        for one in mechanisms {
            match one {
                Ok(mechanism) => self.available.push(Rc::new(mechanism)),
                // The variants of a mechanism have one reason.
                Err(skip) if self.names().contains(&skip.mechanism) => {}
                Err(skip) => self.unavailable.push(skip),
            }
        }
        self
    }

    /// Keeps the mechanisms with these names, and the first one, the reference. Fails with the first unknown name.
    pub fn choose(mut self, names: &[String], of_suites: &[&str]) -> Result<Self, String> {
        let known = [&self.names(), of_suites].concat();
        if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(unknown.clone());
        }
        let wanted = |name: &str| names.is_empty() || names.iter().any(|one| one == name);
        let mut first = true;
        self.available
            .retain(|one| std::mem::take(&mut first) || wanted(one.name));
        self.unavailable.retain(|skip| wanted(skip.mechanism));
        Ok(self)
    }

    pub fn names(&self) -> Vec<&'static str> {
        let available = self.available.iter().map(|one| one.name);
        let unavailable = self.unavailable.iter().map(|skip| skip.mechanism);
        let mut names: Vec<_> = available.chain(unavailable).collect();
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry() -> Registry {
        Registry::new(&Err(Skipped::unavailable(
            "sluice-pipe",
            "not in unit tests",
        )))
    }

    fn choose(names: &[&str]) -> Result<Vec<&'static str>, String> {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        registry()
            .choose(&names, &["of-a-suite"])
            .map(|registry| registry.names())
    }

    #[test]
    fn the_reference_is_always_selected() {
        assert_eq!(choose(&[]).unwrap(), registry().names());
        assert_eq!(registry().names()[0], "pipe");
        assert_eq!(choose(&["cacheline"]).unwrap(), ["pipe", "cacheline"]);
        assert_eq!(choose(&["sluice-pipe"]).unwrap(), ["pipe", "sluice-pipe"]);
        assert_eq!(choose(&["of-a-suite"]).unwrap(), ["pipe"]);
        assert_eq!(choose(&["pipe", "unknown"]), Err("unknown".to_string()));
    }

    #[test]
    fn third_party_libraries_are_included_only_on_request() {
        let libraries = ["iceoryx2", "tachyon", "aeron"];
        let without = registry().names();
        assert!(libraries.iter().all(|name| !without.contains(name)));
        let with = registry().with_third_party().names();
        assert!(libraries.iter().all(|name| with.contains(name)), "{with:?}");
    }

    #[test]
    fn the_first_available_rival_is_the_reference() {
        let count = registry().names().len();
        let registry = registry().refer_to(&["of-a-suite", "shm-spin", "fifo"]);
        let all = registry.names();
        assert_eq!((&all[..2], all.len()), (&["shm-spin", "pipe"][..], count));
        let ours = ["sluice-ring-memfd".to_string()];
        let chosen = registry.choose(&ours, &[]).ok().unwrap().names();
        assert_eq!(chosen, ["shm-spin", "sluice-ring-memfd"]);
    }
}
