// SPDX-License-Identifier: MIT OR Apache-2.0
//! All mechanisms, in the order of the tables.

use std::collections::BTreeSet;
use std::rc::Rc;

use anyhow::bail;

use super::sluice_ring::Variant;
// All files, so that a mechanism is registered with one line below.
use super::*;
use crate::harness::rounds::Skipped;
use crate::harness::waiting::Waiting;
use sluice_testkit::cgroup::Tree;

#[derive(Clone, Default)]
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
    let variants = [Variant::Default, Variant::NeverSpins, Variant::AlwaysSpins];
    let mut all = vec![Ok(pipe::mechanism()), myipc::mechanism()];
    all.extend([Waiting::Sleep, Waiting::Spin].map(sluice_pipe));
    all.extend(variants.map(device_ring));
    all.extend(variants.map(sluice_ring::over_memfd).map(Ok));
    all.extend(pipe::variants().map(Ok));
    all.extend(unix_socket::mechanisms().map(Ok));
    let [eventfd, futex, spin] = shared_ring::mechanisms();
    all.extend([eventfd, futex, shm_sem::mechanism(), spin].map(Ok));
    all.extend([zeromq::mechanism(), cacheline_pingpong::mechanism(false)].map(Ok));
    all
}

/// Third-party ring libraries. Their dependencies are not always available, so they are measured only on request.
fn third_party() -> Vec<Result<Mechanism, Skipped>> {
    let mut all = Vec::new();
    #[cfg(feature = "iceoryx2")]
    all.extend(iceoryx2::mechanisms().map(Ok));
    #[cfg(feature = "tachyon")]
    all.extend(tachyon::mechanisms().map(Ok));
    #[cfg(feature = "aeron")]
    all.extend(aeron::mechanisms().map(Ok));
    let reason = "this program was built without it; run 'make bench-peers', which enables it";
    for (name, is_built_in) in [
        ("iceoryx2", cfg!(feature = "iceoryx2")),
        ("tachyon", cfg!(feature = "tachyon")),
        ("aeron", cfg!(feature = "aeron")),
    ] {
        if !is_built_in {
            all.push(Err(Skipped::unavailable(name, reason)));
        }
    }
    all
}

impl Registry {
    pub fn new(cgroups: &Cgroups) -> Self {
        Self::default().with(mechanisms(cgroups))
    }

    /// Adds third-party ring libraries, Sluice's ring in unsealed memory, as in those libraries, and the lower bound of sealed memory.
    pub fn with_third_party(mut self) -> Self {
        let is_ring = |one: &Rc<Mechanism>| one.name == sluice_ring::MEMFD;
        let last = self.available.iter().rposition(is_ring);
        let unsealed = Rc::new(sluice_ring::over_memfd(Variant::Unsealed));
        self.available
            .insert(last.map_or(0, |last| last + 1), unsealed);
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

    pub fn with(mut self, mechanisms: Vec<Result<Mechanism, Skipped>>) -> Self {
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

    /// Keeps the mechanisms with these names, and the first one, the reference.
    pub fn choose(mut self, names: &[String], of_suites: &[&str]) -> anyhow::Result<Self> {
        // Some mechanisms of single suites have the name of one of the registry.
        let known = BTreeSet::from_iter([&self.names(), of_suites].concat());
        if let Some(unknown) = names.iter().find(|name| !known.contains(name.as_str())) {
            let known = Vec::from_iter(known).join(", ");
            bail!("there is no mechanism '{unknown}'; choose from {known}");
        }
        let wanted = |name: &str| names.is_empty() || names.iter().any(|one| one == name);
        let mut first = true;
        self.available
            .retain(|one| std::mem::take(&mut first) || wanted(one.name));
        self.unavailable.retain(|skip| wanted(skip.mechanism));
        Ok(self)
    }

    /// Of variants of a mechanism that follow each other, once.
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

    #[test]
    fn the_first_one_is_the_reference_and_is_always_selected() {
        let skip = Skipped::unavailable("sluice-pipe", "not in unit tests");
        let references = ["of-a-suite", "shm-spin", "fifo"];
        for (references, name, expected) in [
            (&[][..], "cacheline", Some(&["pipe", "cacheline"][..])),
            (&[], "sluice-pipe", Some(&["pipe", "sluice-pipe"])),
            (&[], "of-a-suite", Some(&["pipe"])),
            (&[], "unknown", None),
            (&references, "pipe", Some(&["shm-spin", "pipe"])),
        ] {
            let registry = Registry::new(&Err(skip.clone())).refer_to(references);
            let chosen = registry.choose(&[name.into()], &["of-a-suite"]);
            let names = chosen.ok().map(|chosen| chosen.names());
            assert_eq!(names.as_deref(), expected);
        }
    }
}
