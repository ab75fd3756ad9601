// SPDX-License-Identifier: MIT OR Apache-2.0
//! All mechanisms, in the order of the tables.

use std::rc::Rc;

use sluice_testkit::cgroup::Tree;
use sluice_testkit::module::MYIPC;

use super::eventfd_shm::EventfdShm;
use super::fifo::Fifo;
use super::futex_shm::FutexShm;
use super::mmap::Mmap;
use super::posix_mq::PosixMq;
use super::shm_sem::ShmSem;
use super::shm_spin::ShmSpin;
use super::signal::Signal;
use super::sysv_mq::SysvMq;
use super::tcp::Tcp;
use super::third_party::third_party;
use super::unix_dgram::UnixDgram;
use super::unix_seqpacket::UnixSeqpacket;
use super::unix_stream::UnixStream;
use super::zeromq::ZeroMq;
use super::{CachelinePingPong, Mechanism, MyIpc, Pipe, SluicePipe, SluiceRing, Waiting};
use crate::harness::rounds::Skipped;

/// The available mechanisms, and those that are not available here.
pub struct Registry {
    pub available: Vec<Rc<dyn Mechanism>>,
    pub unavailable: Vec<Skipped>,
}

impl Registry {
    /// sluice-pipe needs cgroups; `tree` holds them, or the reason why there are none.
    pub fn new(tree: &Result<Rc<Tree>, Skipped>) -> Self {
        let mut registry = Self {
            // The reference comes first.
            available: vec![Rc::new(Pipe)],
            unavailable: Vec::new(),
        };
        match MyIpc::is_available() {
            true => registry
                .available
                .push(Rc::new(MyIpc::new(tree.as_ref().ok().cloned()))),
            false => registry
                .unavailable
                .push(Skipped::unavailable(MYIPC.name, MYIPC.how_to_load())),
        }
        match tree {
            Ok(tree) => registry.available.extend(sluice_pipes(tree)),
            Err(skip) => registry.unavailable.push(skip.clone()),
        }
        registry.available.extend(sluice_rings());
        registry.available.extend(kernel_ipc());
        registry.available.extend(shared_memory());
        registry.available.push(Rc::new(ZeroMq::load()));
        registry.available.push(Rc::new(CachelinePingPong::SHARED));
        registry
    }

    /// Adds third-party ring libraries, and two variants of Sluice's ring: with the throughput option, and with
    /// unsealed memory as in those libraries. The lower bound is measured for both kinds of memory.
    pub fn with_third_party(mut self) -> Self {
        let ring = SluiceRing::Default.name();
        let last = self.available.iter().rposition(|one| one.name() == ring);
        let after = last.map_or(self.available.len(), |last| last + 1);
        let variants: [Rc<dyn Mechanism>; 2] = [
            Rc::new(SluiceRing::Throughput),
            Rc::new(SluiceRing::Unsealed),
        ];
        self.available.splice(after..after, variants);
        self.available.push(Rc::new(CachelinePingPong::READ_ONLY));
        for library in third_party() {
            match library {
                Ok(mechanism) => self.available.push(mechanism),
                Err(skip) => self.unavailable.push(skip),
            }
        }
        self
    }

    /// Keeps the mechanisms with these names, and the first one, the reference. Fails with the first unknown name.
    pub fn choose(mut self, names: &[String]) -> Result<Self, String> {
        let known = |name: &String| {
            let available = self.available.iter().map(|one| one.name());
            let unavailable = self.unavailable.iter().map(|skip| skip.mechanism);
            available.chain(unavailable).any(|one| one == name)
        };
        if let Some(unknown) = names.iter().find(|name| !known(name)) {
            return Err(unknown.clone());
        }
        let wanted = |name: &str| names.is_empty() || names.iter().any(|one| one == name);
        let mut first = true;
        self.available
            .retain(|one| std::mem::take(&mut first) || wanted(one.name()));
        self.unavailable.retain(|skip| wanted(skip.mechanism));
        Ok(self)
    }

    pub fn names(&self) -> Vec<&'static str> {
        let available = self.available.iter().map(|one| one.name());
        let unavailable = self.unavailable.iter().map(|skip| skip.mechanism);
        let mut names: Vec<_> = available.chain(unavailable).collect();
        names.dedup();
        names
    }
}

/// With the adaptive spinning of the module, and with spinning turned off.
fn sluice_pipes(tree: &Rc<Tree>) -> [Rc<dyn Mechanism>; 2] {
    [Waiting::Sleep, Waiting::Spin]
        .map(|waiting| Rc::new(SluicePipe::new(Rc::clone(tree), waiting)) as _)
}

/// Over memfd, without the module and without cgroups.
fn sluice_rings() -> [Rc<dyn Mechanism>; 3] {
    [
        SluiceRing::Default,
        SluiceRing::NeverSpins,
        SluiceRing::AlwaysSpins,
    ]
    .map(|ring| Rc::new(ring) as _)
}

/// Mechanisms of every Linux kernel, except pipe(2).
fn kernel_ipc() -> [Rc<dyn Mechanism>; 9] {
    [
        Rc::new(Fifo),
        Rc::new(UnixStream),
        Rc::new(UnixSeqpacket),
        Rc::new(UnixDgram),
        Rc::new(Tcp),
        Rc::new(PosixMq),
        Rc::new(SysvMq::default()),
        Rc::new(Signal),
        Rc::new(Mmap),
    ]
}

/// Mechanisms over shared memory.
fn shared_memory() -> [Rc<dyn Mechanism>; 4] {
    [
        Rc::new(EventfdShm),
        Rc::new(FutexShm),
        Rc::new(ShmSem),
        Rc::new(ShmSpin),
    ]
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
        registry().choose(&names).map(|registry| registry.names())
    }

    #[test]
    fn without_a_choice_all_are_selected() {
        assert_eq!(choose(&[]).unwrap(), registry().names());
        assert_eq!(registry().names()[0], "pipe");
    }

    #[test]
    fn the_reference_is_always_selected() {
        assert_eq!(choose(&["cacheline"]).unwrap(), ["pipe", "cacheline"]);
        assert_eq!(choose(&["sluice-pipe"]).unwrap(), ["pipe", "sluice-pipe"]);
        assert_eq!(choose(&["myipc"]).unwrap(), ["pipe", "myipc"]);
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
    fn an_unknown_name_is_rejected() {
        assert_eq!(choose(&["pipe", "unknown"]), Err("unknown".to_string()));
    }
}
