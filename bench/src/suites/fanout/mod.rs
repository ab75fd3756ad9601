// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages from one process to several, as in report 4: the processor time of the sender by the number of receivers and
//! by message size, the rate at which bytes are delivered, and the processor time of a receiver.

mod bus;
mod channel;
mod conditions;
pub(super) mod dbus;
mod eventfd_shm;
mod exchange;
mod files;
mod messages;
mod zeromq;

use std::rc::Rc;

use anyhow::Result;
use nix::sys::socket::SockType;
use sluice_abi::bus::{BROADCAST, MULTICAST, UNICAST};

use self::bus::Calls::{Batched, Mapped, Plain, Uring};
use self::channel::{Create, FanoutMechanism, Prepare};
use self::conditions::{Conditions, Measured};
use self::exchange::Exchange;
use self::files::{duplicate, of_pairs, pipe, socket_pair, to_each};
use super::plan::{Plan, without_two_cpus};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Metric, Skipped, Subject};
use crate::harness::waiting::Waiting;
use crate::mechanisms::temp_paths::TempPaths;

const SUITE: &str = "fanout";
const REFERENCE: &str = "pipe";

#[rustfmt::skip]
const MECHANISMS: [FanoutMechanism; 14] = [
    mechanism(REFERENCE, |_, _| of_pairs(pipe, to_each, true)),
    mechanism("pipe-tee", |_, _| of_pairs(pipe, duplicate, true)),
    mechanism("unix-stream", |_, _| of_pairs(|| socket_pair(SockType::Stream), to_each, true)),
    mechanism("unix-seqpacket", |_, _| of_pairs(|| socket_pair(SockType::SeqPacket), to_each, false)),
    mechanism("eventfd-shm", |_, _| eventfd_shm::rings(|conditions| conditions.receivers)),
    mechanism("eventfd-shm-shared", |_, _| eventfd_shm::rings(|_| 1)),
    FanoutMechanism { own_threads: true, ..mechanism("zeromq", zeromq::prepare) },
    mechanism("dbus-daemon", dbus::prepare),
    mechanism("sluice-bus", |plan, _| bus::prepare(plan, BROADCAST, Plain)),
    mechanism("sluice-bus-batch", |plan, _| bus::prepare(plan, BROADCAST, Batched)),
    mechanism("sluice-bus-map", |plan, _| bus::prepare(plan, BROADCAST, Mapped)),
    mechanism("sluice-bus-uring", |plan, _| bus::prepare(plan, BROADCAST, Uring)),
    FanoutMechanism { to_one: true, ..mechanism("sluice-bus-multicast", |plan, _| bus::prepare(plan, MULTICAST, Plain)) },
    FanoutMechanism { to_one: true, ..mechanism("sluice-bus-unicast", |plan, _| bus::prepare(plan, UNICAST, Plain)) },
];

const fn mechanism(name: &'static str, prepare: Prepare) -> FanoutMechanism {
    FanoutMechanism {
        name,
        to_one: false,
        own_threads: false,
        prepare,
    }
}

impl FanoutMechanism {
    /// Unicast with several receivers differs from multicast only in who receives. The rate of a message that one process receives is not
    /// comparable with a message to sixteen. D-Bus does not stop a sender that is faster than the receivers.
    fn applies(&self, conditions: &Conditions) -> bool {
        let streams = conditions.what == Measured::Streaming;
        match (self.name, conditions.receivers) {
            ("dbus-daemon", _) if streams => false,
            (_, 1) => true,
            ("sluice-bus-unicast", _) => false,
            _ => !(self.to_one && streams),
        }
    }
}

pub fn mechanisms() -> Vec<&'static str> {
    MECHANISMS.map(|mechanism| mechanism.name).to_vec()
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let title = "messages to several receivers";
    if let Some(case) = without_two_cpus(plan, SUITE, title, Metric::Cost) {
        return Ok(vec![case]);
    }
    let prepared = prepared(plan);
    let case = |(one, mechanisms)| case(plan, &prepared, one, mechanisms);
    conditions::of(plan).into_iter().map(case).collect()
}

/// With what creates their channels, or why they cannot be measured here.
fn prepared(plan: &Plan) -> Vec<(FanoutMechanism, Result<Create>)> {
    let paths = Rc::new(TempPaths::in_directory(std::env::temp_dir()));
    MECHANISMS
        .map(|mechanism| (mechanism, (mechanism.prepare)(plan, &paths)))
        .into()
}

fn case(
    plan: &Plan,
    prepared: &[(FanoutMechanism, Result<Create>)],
    conditions: Conditions,
    mechanisms: &[&str],
) -> Result<Case> {
    let confinement = plan.confinement(Placement::TwoCpus)?;
    let metric = match conditions.what {
        Measured::Streaming => Metric::Rate,
        _ => Metric::Cost,
    };
    let waiting = match conditions.blocks() {
        true => Waiting::Sleep,
        false => Waiting::Spin,
    };
    let mut case = Case {
        size: Some(conditions.size),
        processes: 1 + conditions.receivers,
        reference: Some(REFERENCE),
        ..Case::new(SUITE, conditions.title(), Placement::TwoCpus, metric)
    };
    let wants = |name| match mechanisms.is_empty() || !plan.chosen.is_empty() {
        true => plan.wants(name),
        false => mechanisms.contains(&name),
    };
    for (mechanism, create) in prepared {
        let name = mechanism.name;
        if !(name == REFERENCE || wants(name)) || !mechanism.applies(&conditions) {
            continue;
        }
        let create = match create {
            Ok(create) => Rc::clone(create),
            Err(error) => {
                let skip = plan.tree.as_ref().err();
                // It tells a failure from a module that is not loaded.
                let skip = skip.filter(|_| name.starts_with("sluice"));
                let unavailable = || Skipped::unavailable(name, format!("{error:#}"));
                let skip = skip.map_or_else(unavailable, |skip| skip.of(name));
                case.skipped.push(skip);
                continue;
            }
        };
        let exchange = Exchange {
            mechanism: *mechanism,
            create,
            confinement: confinement.clone(),
            conditions,
            duration: plan.duration,
        };
        let subject = Subject::new(name, name.into(), waiting, exchange);
        case.subjects.push(subject);
    }
    let case = case.axis("receivers", conditions.receivers);
    let [state, cost] = conditions.what.names();
    Ok(case.axis("receiver_state", state).axis("cost", cost))
}

#[cfg(test)]
mod tests {
    use sluice_testkit::workers::serial;

    use super::*;
    use crate::suites::plan::tests::plan;

    #[test]
    fn every_receiver_gets_every_message() {
        use Measured::{Asleep, Busy, Streaming};
        let _serial = serial();
        if Placement::TwoCpus.cpus().unwrap().is_none() {
            return;
        }
        let plan = plan();
        let prepared = prepared(&plan);
        for (what, size) in [(Busy, 64), (Asleep, 5000), (Streaming, 5000)] {
            let receivers = 3;
            let conditions = Conditions {
                receivers,
                size,
                what,
            };
            for subject in case(&plan, &prepared, conditions, &[]).unwrap().subjects {
                let context = format!("{} {}", subject.label, conditions.title());
                subject.job.check().expect(&context);
                let measured = subject.job.measure().expect(&context);
                let received = measured.messages * 3 * size as u64;
                assert_eq!(measured.bytes, received, "{context}");
            }
        }
    }
}
