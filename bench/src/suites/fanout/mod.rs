// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages from one process to several, as in report 4: the processor time of the sender by the number of receivers and
//! by message size, the rate at which bytes are delivered, and the processor time of a receiver.

mod bus;
mod bus_mapped;
mod bus_uring;
mod channel;
pub(super) mod dbus;
mod dbus_library;
mod eventfd_shm;
mod exchange;
mod pipe;
mod progress;
mod unix;
mod zeromq;

use std::rc::Rc;

use anyhow::Result;

use self::channel::{Delivery, Resources, Way};
use self::exchange::Exchange;
use super::{Plan, Scale};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Metric, ReceiverState, Sharing, Skipped, Subject};
use crate::harness::waiting::Waiting;
use crate::reports::fanout::{Conditions, Cost, SUITE};

const EXTREMES: [usize; 2] = [64, 32768];
/// The sizes of conditions that are measured beside the others.
const FEW_SIZES: [usize; 3] = [64, 4096, 32768];
const ALL_SIZES: [usize; 6] = [64, 256, 1024, 4096, 16384, 32768];
const MOST_RECEIVERS: usize = 16;
const RECEIVERS: [usize; 5] = [1, 2, 4, 8, MOST_RECEIVERS];

/// The first one is the reference.
#[rustfmt::skip]
const WAYS: [Way; 13] = [
    Way { name: "pipe", delivery: Delivery::All, own_threads: false,
        unavailable: |_| unavailable("pipe", pipe::unavailable()), create: |shape, _| pipe::create(shape) },
    Way { name: "pipe-tee", delivery: Delivery::All, own_threads: false,
        unavailable: |_| unavailable("pipe-tee", pipe::unavailable()), create: |shape, _| pipe::create_tee(shape) },
    Way { name: "unix-stream", delivery: Delivery::All, own_threads: false,
        unavailable: |_| unavailable("unix-stream", unix::unavailable()), create: |shape, _| unix::create_stream(shape) },
    Way { name: "unix-seqpacket", delivery: Delivery::All, own_threads: false,
        unavailable: |_| unavailable("unix-seqpacket", unix::unavailable()), create: |shape, _| unix::create_seqpacket(shape) },
    Way { name: "eventfd-shm", delivery: Delivery::All, own_threads: false,
        unavailable: |_| None, create: |shape, _| eventfd_shm::create_copies(shape) },
    Way { name: "eventfd-shm-shared", delivery: Delivery::All, own_threads: false,
        unavailable: |_| None, create: |shape, _| eventfd_shm::create_shared(shape) },
    Way { name: "zeromq", delivery: Delivery::All, own_threads: true,
        unavailable: |_| unavailable("zeromq", zeromq::unavailable()), create: zeromq::create },
    Way { name: "dbus-daemon", delivery: Delivery::All, own_threads: false,
        unavailable: |_| unavailable("dbus-daemon", dbus::unavailable()), create: dbus::create },
    Way { name: "sluice-bus", delivery: Delivery::All, own_threads: false, unavailable: bus::unavailable, create: bus::create_broadcast },
    Way { name: "sluice-bus-map", delivery: Delivery::All, own_threads: false, unavailable: bus::unavailable, create: bus::create_mapped },
    Way { name: "sluice-bus-uring", delivery: Delivery::All, own_threads: false, unavailable: bus_uring::unavailable, create: bus::create_uring },
    Way { name: "sluice-bus-multicast", delivery: Delivery::One, own_threads: false, unavailable: bus::unavailable, create: bus::create_multicast },
    Way { name: "sluice-bus-unicast", delivery: Delivery::One, own_threads: false, unavailable: bus::unavailable, create: bus::create_unicast },
];

/// Conditions of the same kind, and the mechanisms to measure in them beside the reference, unless others are chosen.
struct Comparison {
    state: ReceiverState,
    cost: Cost,
    receivers: &'static [usize],
    sizes: &'static [usize],
    /// Empty for all.
    mechanisms: &'static [&'static str],
}

/// What a standard run measures: all mechanisms with the shortest message to one receiver and to the most, and elsewhere those
/// that a criterion of the report or a table needs. Starting 17 emulated processes takes longer than a round.
#[rustfmt::skip]
const STANDARD: [Comparison; 8] = [
    Comparison { state: ReceiverState::Busy, cost: Cost::Sender, receivers: &[1, MOST_RECEIVERS], sizes: &[64], mechanisms: &[] },
    Comparison { state: ReceiverState::Busy, cost: Cost::Sender, receivers: &[1, MOST_RECEIVERS], sizes: &[32768],
        mechanisms: &["pipe-tee", "unix-stream", "eventfd-shm", "eventfd-shm-shared", "zeromq", "dbus-daemon", "sluice-bus", "sluice-bus-uring",
            "sluice-bus-multicast"] },
    Comparison { state: ReceiverState::Busy, cost: Cost::Sender, receivers: &[1], sizes: &[4096], mechanisms: &["sluice-bus-multicast"] },
    Comparison { state: ReceiverState::Busy, cost: Cost::Sender, receivers: &[MOST_RECEIVERS], sizes: &[256, 1024, 4096],
        mechanisms: &["eventfd-shm", "eventfd-shm-shared", "sluice-bus", "sluice-bus-multicast"] },
    Comparison { state: ReceiverState::Asleep, cost: Cost::Sender, receivers: &[MOST_RECEIVERS], sizes: &[64],
        mechanisms: &["unix-stream", "eventfd-shm", "sluice-bus"] },
    Comparison { state: ReceiverState::Streaming, cost: Cost::Sender, receivers: &[1], sizes: &EXTREMES,
        mechanisms: &["unix-stream", "zeromq", "sluice-bus", "sluice-bus-unicast"] },
    Comparison { state: ReceiverState::Streaming, cost: Cost::Sender, receivers: &[MOST_RECEIVERS], sizes: &[32768],
        mechanisms: &["unix-stream", "zeromq", "sluice-bus"] },
    Comparison { state: ReceiverState::Busy, cost: Cost::Receiver, receivers: &[1], sizes: &EXTREMES,
        mechanisms: &["eventfd-shm-shared", "sluice-bus", "sluice-bus-map", "sluice-bus-uring"] },
];

/// What a quick run measures with many receivers: what most people use, and what criteria need.
const MOST_USED: [&str; 7] = [
    "unix-stream",
    "eventfd-shm",
    "eventfd-shm-shared",
    "zeromq",
    "dbus-daemon",
    "sluice-bus",
    "sluice-bus-multicast",
];

fn unavailable(name: &'static str, reason: Option<String>) -> Option<Skipped> {
    reason.map(|reason| Skipped::unavailable(name, reason))
}

pub fn mechanisms() -> Vec<&'static str> {
    WAYS.iter().map(|way| way.name).collect()
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    if plan.one_placement() == Placement::SameCpu {
        return Ok(vec![unsupported()]);
    }
    let resources = Rc::new(Resources::new(plan.tree.clone()));
    let conditions = conditions(plan).into_iter();
    conditions
        .map(|(one, mechanisms)| case(plan, &resources, one, mechanisms))
        .collect()
}

/// The conditions of all cases, and the mechanisms to measure in each; empty for all.
fn conditions(plan: &Plan) -> Vec<(Conditions, &'static [&'static str])> {
    let chosen = (!plan.sizes.is_empty()).then_some(plan.sizes.as_slice());
    let conditions = match (plan.scale, chosen) {
        (Scale::Standard, None) => return standard(),
        (Scale::Standard, Some(sizes)) => few(sizes),
        (Scale::Quick | Scale::ThirdParty, sizes) => {
            return quick(sizes.unwrap_or(&EXTREMES[..1]));
        }
        (Scale::Full, sizes) => full(sizes.unwrap_or(&ALL_SIZES)),
    };
    conditions.into_iter().map(|one| (one, &[][..])).collect()
}

fn quick(sizes: &[usize]) -> Vec<(Conditions, &'static [&'static str])> {
    let busy = |receivers| grid(ReceiverState::Busy, Cost::Sender, &[receivers], sizes);
    let one = busy(1).into_iter().map(|one| (one, &[][..]));
    let most = busy(MOST_RECEIVERS).into_iter();
    one.chain(most.map(|most| (most, &MOST_USED[..]))).collect()
}

fn standard() -> Vec<(Conditions, &'static [&'static str])> {
    let conditions = |one: &Comparison| grid(one.state, one.cost, one.receivers, one.sizes);
    STANDARD
        .iter()
        .flat_map(|one| {
            conditions(one)
                .into_iter()
                .map(|each| (each, one.mechanisms))
        })
        .collect()
}

/// A standard run with sizes of the user's choice.
fn few(sizes: &[usize]) -> Vec<Conditions> {
    [
        grid(
            ReceiverState::Busy,
            Cost::Sender,
            &[1, MOST_RECEIVERS],
            sizes,
        ),
        grid(ReceiverState::Streaming, Cost::Sender, &[1], sizes),
    ]
    .concat()
}

fn full(sizes: &[usize]) -> Vec<Conditions> {
    let few = sizes.iter().filter(|size| FEW_SIZES.contains(size));
    let few: Vec<usize> = few.copied().collect();
    let ends = [1, MOST_RECEIVERS];
    [
        grid(ReceiverState::Busy, Cost::Sender, &RECEIVERS, sizes),
        grid(ReceiverState::Asleep, Cost::Sender, &ends, sizes),
        grid(ReceiverState::Polling, Cost::Sender, &ends, &few),
        grid(ReceiverState::Streaming, Cost::Sender, &[1], sizes),
        grid(
            ReceiverState::Streaming,
            Cost::Sender,
            &[MOST_RECEIVERS],
            &few,
        ),
        grid(ReceiverState::Busy, Cost::Receiver, &[1], &few),
    ]
    .concat()
}

fn grid(state: ReceiverState, cost: Cost, receivers: &[usize], sizes: &[usize]) -> Vec<Conditions> {
    let pairs = receivers
        .iter()
        .flat_map(|&receivers| sizes.iter().map(move |&size| (receivers, size)));
    pairs
        .map(|(receivers, size)| Conditions {
            receivers,
            size,
            state,
            cost,
        })
        .collect()
}

fn case(
    plan: &Plan,
    resources: &Rc<Resources>,
    conditions: Conditions,
    mechanisms: &[&str],
) -> Result<Case> {
    let placement = Placement::TwoCpus;
    let confinement = plan.confinement(placement)?;
    let metric = match conditions.state {
        ReceiverState::Streaming => Metric::Rate,
        _ => Metric::Cost,
    };
    let [reference, ..] = WAYS;
    let mut case = Case {
        size: Some(conditions.size),
        reference: Some(reference.name),
        ..Case::new(SUITE, conditions.title(), placement, metric)
    };
    let everything = mechanisms.is_empty() || !plan.chosen.is_empty();
    let wanted = |way: &&Way| {
        way.name == reference.name
            || match everything {
                true => plan.wants(way.name),
                false => mechanisms.contains(&way.name),
            }
    };
    let ways = WAYS.iter().filter(wanted);
    for way in ways.filter(|way| applies(way, &conditions)) {
        if let Some(skip) = (way.unavailable)(resources) {
            case.skipped.push(skip.of(way.name));
            continue;
        }
        let exchange = Exchange {
            way: *way,
            resources: Rc::clone(resources),
            confinement: confinement.clone(),
            conditions,
            duration: plan.duration,
        };
        case.subjects.push(subject(exchange));
    }
    Ok(case)
}

/// Unicast with several receivers differs from multicast only in who receives. A message that one process receives is not
/// delivered to sixteen, so its rate is not compared there.
/// D-Bus does not stop a sender that is faster than the receivers.
fn applies(way: &Way, conditions: &Conditions) -> bool {
    let streams = conditions.state == ReceiverState::Streaming;
    match (way.name, conditions.receivers) {
        ("dbus-daemon", _) if streams => false,
        (_, 1) => true,
        ("sluice-bus-unicast", _) => false,
        _ => way.delivery == Delivery::All || !streams,
    }
}

fn subject(exchange: Exchange) -> Subject {
    let name = exchange.way.name;
    let Conditions {
        receivers, state, ..
    } = exchange.conditions;
    let waiting = match state {
        ReceiverState::Busy | ReceiverState::Polling => Waiting::Spin,
        ReceiverState::Asleep | ReceiverState::Streaming => Waiting::Sleep,
    };
    Subject {
        processes: 1 + receivers,
        sharing: Some(Sharing {
            writers: 1,
            readers: receivers,
        }),
        receiver_state: Some(state),
        ..Subject::new(name, name.into(), waiting, exchange)
    }
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
    use std::time::Duration;

    use sluice_testkit::workers::serial;

    use super::*;
    use crate::harness::rounds::Job;
    use crate::harness::rows::Row;
    use crate::reports::fanout::text;
    use crate::suites::plan::tests::plan;
    use crate::suites::setup::Confinement;

    const STATES: [ReceiverState; 4] = [
        ReceiverState::Busy,
        ReceiverState::Polling,
        ReceiverState::Asleep,
        ReceiverState::Streaming,
    ];

    fn exchange(
        way: &Way,
        resources: &Rc<Resources>,
        state: ReceiverState,
        size: usize,
    ) -> Exchange {
        let cpus = Placement::SameCpu.cpus().unwrap().unwrap();
        Exchange {
            way: *way,
            resources: Rc::clone(resources),
            confinement: Confinement { cgroup: None, cpus },
            conditions: Conditions {
                receivers: 3,
                size,
                state,
                cost: Cost::Sender,
            },
            duration: Duration::from_millis(20),
        }
    }

    #[test]
    fn every_receiver_gets_every_message() {
        let _serial = serial();
        let resources = Rc::new(Resources::new(plan().tree));
        for way in WAYS {
            if (way.unavailable)(&resources).is_some() {
                continue;
            }
            for (state, size) in STATES
                .into_iter()
                .flat_map(|state| [(state, 64), (state, 5000)])
            {
                let exchange = exchange(&way, &resources, state, size);
                if !applies(&way, &exchange.conditions) {
                    continue;
                }
                let context = format!("{} {}", way.name, exchange.conditions.title());
                exchange.check().expect(&context);
                let measurement = exchange.measure().expect(&context);
                assert!(
                    measurement.messages > 0 && measurement.cpu_ns > 0,
                    "{context}"
                );
                let received = measurement.messages * 3 * size as u64;
                assert_eq!(measurement.bytes, received, "{context}");
            }
        }
    }

    #[test]
    fn all_criteria_of_the_report_are_measured() {
        let plan = Plan {
            placements: vec![Placement::TwoCpus],
            ..plan()
        };
        if Placement::TwoCpus.cpus().unwrap().is_none() {
            return;
        }
        let row = |case: &Case, mechanism: &str| Row {
            suite: case.suite.into(),
            title: case.title.clone(),
            mechanism: mechanism.into(),
            median: Some(1.0),
            spread: Some([1.0, 1.0]),
            values: Some(vec![(0, 1.0)]),
            msgs_per_s: Some(1.0),
            ..Row::default()
        };
        let cases = cases(&plan).unwrap();
        let rows = cases.iter().flat_map(|case| {
            let measured = case.subjects.iter().map(|subject| subject.mechanism);
            let skipped = case.skipped.iter().map(|skip| skip.mechanism);
            measured
                .chain(skipped)
                .map(|mechanism| row(case, mechanism))
        });
        let rows: Vec<Row> = rows.collect();
        let text = text(&rows).unwrap();
        assert!(
            text.contains(" met") && !text.contains("not measured"),
            "{text}"
        );
    }

    #[test]
    fn one_processor_is_not_enough() {
        let cases = cases(&plan()).unwrap();
        assert!(cases[0].subjects.is_empty());
        assert!(cases[0].skipped[0].reason.contains("another"));
    }
}
