// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request to a service and its reply, as programs call one: over one connection instead of a link per direction, and by the library's
//! own calls for it. The loops are those of the suite rtt.

mod bus;
mod dbus;
#[cfg(feature = "iceoryx2")]
mod iceoryx2;

use anyhow::{Context, Result, bail};
use nix::sys::socket::SockType;
use sluice_testkit::workers::Side;

use super::plan::{Plan, title};
use super::rtt::{RoundTrip, SIZES};
use crate::harness::rounds::{Case, Metric};
use crate::harness::waiting::Waiting;
use crate::mechanisms::registry::Registry;
use crate::mechanisms::stream::{StreamReceiver, StreamSender};
use crate::mechanisms::{Exchange, Mechanism, Workload, unix_socket};

const SUITE: &str = "requests";
const NAMES: [&str; 4] = ["unix-stream", bus::NAME, dbus::NAME, "iceoryx2"];

pub fn mechanisms() -> Vec<&'static str> {
    NAMES.to_vec()
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let registry = registry(plan);
    let tasks = plan.tasks(&SIZES, Workload::RequestReply);
    let case = |task| {
        let job = |setup| RoundTrip::new(setup, plan.duration);
        plan.case_of(
            &registry,
            SUITE,
            title(&task, ""),
            Metric::Latency,
            task,
            job,
        )
    };
    tasks.map(case).collect()
}

/// The reference comes first, whatever is chosen.
fn registry(plan: &Plan) -> Registry {
    let mut all = vec![
        bus::mechanism(&plan.tree, Waiting::Spin),
        bus::mechanism(&plan.tree, Waiting::Sleep),
        dbus::mechanism(),
    ];
    #[cfg(feature = "iceoryx2")]
    all.push(Ok(iceoryx2::mechanism()));
    all.retain(|one| match one {
        Ok(mechanism) => plan.wants(mechanism.name),
        Err(skip) => plan.wants(skip.mechanism),
    });
    all.insert(0, Ok(unix_stream()));
    Registry::default().with(all)
}

/// A mechanism whose two processes open their ends of this.
fn exchange(
    name: &'static str,
    waiting: Waiting,
    open: impl Fn(usize) -> Result<Exchange> + 'static,
) -> Mechanism {
    Mechanism {
        exchange: Some(Box::new(open)),
        ..Mechanism::new(name, waiting, |_| bail!("it has no link of one direction"))
    }
}

fn unix_stream() -> Mechanism {
    exchange("unix-stream", Waiting::Sleep, |_| {
        let (first, second) = unix_socket::pair(SockType::Stream)?;
        Ok(Box::new(move |side| {
            let socket = match side {
                Side::First => first,
                Side::Second => second,
            };
            let duplicate = socket.try_clone().context("cannot duplicate a socket")?;
            Ok((
                Box::new(StreamSender(duplicate.into())),
                Box::new(StreamReceiver(socket.into())),
            ))
        }))
    })
}

#[cfg(test)]
mod tests {
    use sluice_testkit::workers::serial;

    use super::*;
    use crate::suites::plan::tests::plan;

    #[test]
    fn every_request_has_its_reply() {
        let _serial = serial();
        for subject in cases(&plan()).unwrap().remove(0).subjects {
            subject.job.check().expect(&subject.label);
            let measured = subject.job.measure().expect(&subject.label);
            assert!(!measured.samples.is_empty(), "{}", subject.label);
        }
    }
}
