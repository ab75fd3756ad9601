// SPDX-License-Identifier: MIT OR Apache-2.0
//! All mechanisms, in the order of the tables.

use std::rc::Rc;

use super::eventfd_shm::EventfdShm;
use super::fifo::Fifo;
use super::futex_shm::FutexShm;
use super::mmap::Mmap;
use super::peers::peers;
use super::posix_mq::PosixMq;
use super::shm_sem::ShmSem;
use super::shm_spin::ShmSpin;
use super::signal::Signal;
use super::sysv_mq::SysvMq;
use super::tcp::Tcp;
use super::unix_dgram::UnixDgram;
use super::unix_seqpacket::UnixSeqpacket;
use super::unix_stream::UnixStream;
use super::zeromq::ZeroMq;
use super::{Cacheline, Mechanism, MyIpc, Pipe, SluicePipe, SluiceRing, Waiting};
use crate::harness::cgroup::Tree;
use crate::harness::module::MYIPC;
use crate::harness::rounds::Skip;

/// Those that take part, and those that should and cannot.
pub struct Roster {
    pub present: Vec<Rc<dyn Mechanism>>,
    pub absent: Vec<Skip>,
}

impl Roster {
    /// Ours need cgroups of their own; or else it is known why there are none.
    pub fn call(tree: &Result<Rc<Tree>, Skip>) -> Self {
        let mut roster = Self {
            // What the others are compared with comes first.
            present: vec![Rc::new(Pipe)],
            absent: Vec::new(),
        };
        match MyIpc::is_there() {
            true => roster
                .present
                .push(Rc::new(MyIpc::new(tree.as_ref().ok().cloned()))),
            false => roster
                .absent
                .push(Skip::circumstance(MYIPC.name, MYIPC.how_to_load())),
        }
        match tree {
            Ok(tree) => roster.present.extend(sluice_pipes(tree)),
            Err(skip) => roster.absent.push(skip.clone()),
        }
        roster.present.extend(sluice_rings());
        roster.present.extend(kernel_ipc());
        roster.present.extend(shared_memory());
        roster.present.push(Rc::new(ZeroMq::load()));
        roster.present.push(Rc::new(Cacheline::SHARED));
        roster
    }

    /// And the libraries that do what ours does; ours also with the option for throughput, and as they do it: in memory that both sides may
    /// write to. The floor is shown for both kinds of memory.
    pub fn with_peers(mut self) -> Self {
        let ring = SluiceRing::Default.name();
        let last = self.present.iter().rposition(|one| one.name() == ring);
        let behind = last.map_or(self.present.len(), |last| last + 1);
        let more: [Rc<dyn Mechanism>; 2] = [
            Rc::new(SluiceRing::Throughput),
            Rc::new(SluiceRing::Unsealed),
        ];
        self.present.splice(behind..behind, more);
        self.present.push(Rc::new(Cacheline::READ_ONLY));
        for peer in peers() {
            match peer {
                Ok(mechanism) => self.present.push(mechanism),
                Err(skip) => self.absent.push(skip),
            }
        }
        self
    }

    /// Leaves those with one of these names, and the first, which the ratios are to. Fails with a name that is nobody's.
    pub fn choose(mut self, names: &[String]) -> Result<Self, String> {
        let known = |name: &String| {
            let present = self.present.iter().map(|one| one.name());
            let absent = self.absent.iter().map(|skip| skip.mechanism);
            present.chain(absent).any(|one| one == name)
        };
        if let Some(unknown) = names.iter().find(|name| !known(name)) {
            return Err(unknown.clone());
        }
        let wanted = |name: &str| names.is_empty() || names.iter().any(|one| one == name);
        let mut first = true;
        self.present
            .retain(|one| std::mem::take(&mut first) || wanted(one.name()));
        self.absent.retain(|skip| wanted(skip.mechanism));
        Ok(self)
    }

    pub fn names(&self) -> Vec<&'static str> {
        let present = self.present.iter().map(|one| one.name());
        let absent = self.absent.iter().map(|skip| skip.mechanism);
        let mut names: Vec<_> = present.chain(absent).collect();
        names.dedup();
        names
    }
}

/// Twice: as it comes, which is spinning for as long as the module thinks good, and with that turned off.
fn sluice_pipes(tree: &Rc<Tree>) -> [Rc<dyn Mechanism>; 2] {
    [Waiting::Sleep, Waiting::Spin]
        .map(|waiting| Rc::new(SluicePipe::new(Rc::clone(tree), waiting)) as _)
}

/// Over memfd, which needs neither the module nor a cgroup.
fn sluice_rings() -> [Rc<dyn Mechanism>; 3] {
    [
        SluiceRing::Default,
        SluiceRing::NeverSpins,
        SluiceRing::AlwaysSpins,
    ]
    .map(|ring| Rc::new(ring) as _)
}

/// What every Linux has, beside pipe(2).
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

/// What is built on memory that both sides have.
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

    fn roster() -> Roster {
        Roster::call(&Err(Skip::circumstance("sluice-pipe", "not in unit tests")))
    }

    fn choose(names: &[&str]) -> Result<Vec<&'static str>, String> {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        roster().choose(&names).map(|roster| roster.names())
    }

    #[test]
    fn without_a_choice_all_are_called() {
        assert_eq!(choose(&[]).unwrap(), roster().names());
        assert_eq!(roster().names()[0], "pipe");
    }

    #[test]
    fn the_chosen_are_measured_against_the_first() {
        assert_eq!(choose(&["cacheline"]).unwrap(), ["pipe", "cacheline"]);
        assert_eq!(choose(&["sluice-pipe"]).unwrap(), ["pipe", "sluice-pipe"]);
        assert_eq!(choose(&["myipc"]).unwrap(), ["pipe", "myipc"]);
    }

    #[test]
    fn peers_are_called_only_when_they_are_asked_for() {
        let peers = ["iceoryx2", "tachyon", "aeron"];
        let without = roster().names();
        assert!(peers.iter().all(|name| !without.contains(name)));
        let with = roster().with_peers().names();
        assert!(peers.iter().all(|name| with.contains(name)), "{with:?}");
    }

    #[test]
    fn a_name_that_is_nobodys_is_refused() {
        assert_eq!(choose(&["pipe", "hamster"]), Err("hamster".to_string()));
    }
}
