// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages from one process to several, as in report 4: the processor time of the sender by the number of receivers and
//! by message size, the rate at which bytes are delivered, and the processor time of a receiver.

mod bus;
mod channel;
mod conditions;
mod counters;
pub(super) mod dbus;
mod eventfd_shm;
mod exchange;
mod files;
mod messages;
mod scales;
mod zeromq;

use std::rc::Rc;

use anyhow::Result;
use nix::sys::socket::SockType::{SeqPacket, Stream};
use sluice_abi::bus::{BROADCAST, MULTICAST, UNICAST};

use self::bus::Calls::{Mapped, Plain, Uring};
use self::channel::{Create, Prepare, Way};
use self::conditions::{Conditions, ReceiverState};
use self::exchange::Exchange;
use super::plan::Plan;
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Metric, Skipped, Subject};
use crate::harness::waiting::Waiting;
use crate::mechanisms::temp_paths::TempPaths;

const SUITE: &str = "fanout";
const REFERENCE: &str = "pipe";

#[rustfmt::skip]
const WAYS: [Way; 13] = [
    way(REFERENCE, |_, _| files::pipes()),
    way("pipe-tee", |_, _| files::tee_pipes()),
    way("unix-stream", |_, _| files::sockets(Stream)),
    way("unix-seqpacket", |_, _| files::sockets(SeqPacket)),
    way("eventfd-shm", |_, _| eventfd_shm::rings(|conditions| conditions.receivers)),
    way("eventfd-shm-shared", |_, _| eventfd_shm::rings(|_| 1)),
    Way { own_threads: true, ..way("zeromq", zeromq::prepare) },
    way("dbus-daemon", dbus::prepare),
    way("sluice-bus", |plan, _| bus::prepare(plan, BROADCAST, Plain)),
    way("sluice-bus-map", |plan, _| bus::prepare(plan, BROADCAST, Mapped)),
    way("sluice-bus-uring", |plan, _| bus::prepare(plan, BROADCAST, Uring)),
    Way { to_one: true, ..way("sluice-bus-multicast", |plan, _| bus::prepare(plan, MULTICAST, Plain)) },
    Way { to_one: true, ..way("sluice-bus-unicast", |plan, _| bus::prepare(plan, UNICAST, Plain)) },
];

const fn way(name: &'static str, prepare: Prepare) -> Way {
    Way {
        name,
        to_one: false,
        own_threads: false,
        prepare,
    }
}

impl Way {
    /// Unicast with several receivers differs from multicast only in who receives. A message that one process receives is not
    /// delivered to sixteen, so its rate is not compared there.
    /// D-Bus does not stop a sender that is faster than the receivers.
    fn applies(&self, conditions: &Conditions) -> bool {
        let streams = conditions.state == ReceiverState::Streaming;
        match (self.name, conditions.receivers) {
            ("dbus-daemon", _) if streams => false,
            (_, 1) => true,
            ("sluice-bus-unicast", _) => false,
            _ => !(self.to_one && streams),
        }
    }
}

pub fn mechanisms() -> Vec<&'static str> {
    WAYS.map(|way| way.name).to_vec()
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    if plan.one_placement() == Placement::SameCpu {
        return Ok(vec![unsupported()]);
    }
    let ways = prepared(plan);
    let conditions = scales::conditions(plan).into_iter();
    conditions
        .map(|(one, mechanisms)| case(plan, &ways, one, mechanisms))
        .collect()
}

/// With what creates their channels, or why they cannot be measured here.
fn prepared(plan: &Plan) -> Vec<(Way, Result<Create>)> {
    let paths = Rc::new(TempPaths::in_directory(std::env::temp_dir()));
    WAYS.map(|way| (way, (way.prepare)(plan, &paths))).into()
}

fn case(
    plan: &Plan,
    ways: &[(Way, Result<Create>)],
    conditions: Conditions,
    mechanisms: &[&str],
) -> Result<Case> {
    let placement = Placement::TwoCpus;
    let confinement = plan.confinement(placement)?;
    let metric = match conditions.state {
        ReceiverState::Streaming => Metric::Rate,
        _ => Metric::Cost,
    };
    let mut case = Case {
        size: Some(conditions.size),
        reference: Some(REFERENCE),
        ..Case::new(SUITE, conditions.title(), placement, metric)
    };
    let everything = mechanisms.is_empty() || !plan.chosen.is_empty();
    let wants = |name| match everything {
        true => plan.wants(name),
        false => mechanisms.contains(&name),
    };
    for (way, create) in ways {
        if !(way.name == REFERENCE || wants(way.name)) || !way.applies(&conditions) {
            continue;
        }
        match create {
            Err(error) => case.skipped.push(match &plan.tree {
                // It tells a failure from a module that is not loaded.
                Err(skip) if way.name.starts_with("sluice") => skip.of(way.name),
                _ => Skipped::unavailable(way.name, format!("{error:#}")),
            }),
            Ok(create) => case.subjects.push(subject(Exchange {
                way: *way,
                create: Rc::clone(create),
                confinement: confinement.clone(),
                conditions,
                duration: plan.duration,
            })),
        }
    }
    Ok(case)
}

fn subject(exchange: Exchange) -> Subject {
    let (name, conditions) = (exchange.way.name, exchange.conditions);
    let waiting = match conditions.blocks() {
        true => Waiting::Sleep,
        false => Waiting::Spin,
    };
    let mut subject = Subject::new(name, name.into(), waiting, exchange);
    subject.processes = 1 + conditions.receivers;
    subject
        .axis("receivers", conditions.receivers)
        .axis("receiver_state", conditions.state.name())
        .axis("cost", conditions.cost.name())
}

fn unsupported() -> Case {
    let reason = "it needs a processor for the sender and another one for the receivers";
    let title = "messages to several receivers".into();
    Case {
        skipped: vec![Skipped::unavailable(SUITE, reason)],
        ..Case::new(SUITE, title, Placement::SameCpu, Metric::Cost)
    }
}

#[cfg(test)]
mod tests {
    use sluice_testkit::workers::serial;

    use self::conditions::Cost;
    use super::*;
    use crate::suites::plan::tests::plan;

    /// None: this machine has too few processors.
    fn plan_of_two_cpus() -> Option<Plan> {
        Placement::TwoCpus.cpus().unwrap()?;
        Some(Plan {
            placements: vec![Placement::TwoCpus],
            ..plan()
        })
    }

    #[test]
    fn every_receiver_gets_every_message() {
        use ReceiverState::{Asleep, Busy, Polling, Streaming};
        let _serial = serial();
        let Some(plan) = plan_of_two_cpus() else {
            return;
        };
        let ways = prepared(&plan);
        let states = [Busy, Polling, Asleep, Streaming].into_iter();
        for (state, size) in states.flat_map(|state| [(state, 64), (state, 5000)]) {
            let conditions = Conditions {
                receivers: 3,
                size,
                state,
                cost: Cost::Sending,
            };
            for subject in case(&plan, &ways, conditions, &[]).unwrap().subjects {
                let context = format!("{} {}", subject.label, conditions.title());
                subject.job.check().expect(&context);
                let measured = subject.job.measure().expect(&context);
                assert!(measured.messages > 0 && measured.cpu_ns > 0, "{context}");
                let received = measured.messages * 3 * size as u64;
                assert_eq!(measured.bytes, received, "{context}");
            }
        }
    }

    #[test]
    fn a_standard_run_measures_what_the_criteria_compare() {
        let Some(plan) = plan_of_two_cpus() else {
            return;
        };
        let cases = cases(&plan).unwrap();
        let rings = "pipe eventfd-shm eventfd-shm-shared sluice-bus";
        let streams = "pipe sluice-bus sluice-bus-unicast";
        for (title, mechanisms) in [
            (
                "1 receiver 64 B busy, cost of sending",
                "sluice-bus-multicast",
            ),
            (
                "1 receiver 4 KiB busy, cost of sending",
                "sluice-bus-multicast",
            ),
            (
                "1 receiver 32 KiB busy, cost of sending",
                "sluice-bus-multicast",
            ),
            ("16 receivers 64 B busy, cost of sending", rings),
            ("16 receivers 256 B busy, cost of sending", rings),
            ("16 receivers 1 KiB busy, cost of sending", rings),
            ("16 receivers 4 KiB busy, cost of sending", rings),
            (
                "16 receivers 32 KiB busy, cost of sending",
                "pipe-tee sluice-bus-uring",
            ),
            ("1 receiver 64 B streaming", streams),
            ("1 receiver 32 KiB streaming", streams),
            ("16 receivers 32 KiB streaming", "pipe sluice-bus"),
            (
                "1 receiver 64 B busy, cost of receiving",
                "sluice-bus sluice-bus-uring",
            ),
            (
                "1 receiver 32 KiB busy, cost of receiving",
                "sluice-bus sluice-bus-map",
            ),
        ] {
            let case = cases.iter().find(|case| case.title == title).expect(title);
            let measured = case.subjects.iter().map(|subject| subject.mechanism);
            let skipped = case.skipped.iter().map(|skip| skip.mechanism);
            let all: Vec<_> = measured.chain(skipped).collect();
            assert!(
                mechanisms.split(' ').all(|name| all.contains(&name)),
                "{title}: {all:?}"
            );
        }
    }

    #[test]
    fn one_processor_is_not_enough() {
        let cases = cases(&plan()).unwrap();
        assert!(cases[0].subjects.is_empty());
        assert!(cases[0].skipped[0].reason.contains("another"));
    }
}
