// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request and its reply by the calls that each library has for requests, over one connection instead of a link per direction. The loops are those of the suite rtt.

mod bus;
mod dbus;
#[cfg(feature = "iceoryx2")]
mod iceoryx2;

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use nix::sys::socket::SockType;
use sluice_testkit::workers::Side;

use super::plan::Plan;
use super::rtt;
use crate::harness::rounds::{Case, Skipped};
use crate::harness::waiting::Waiting;
use crate::mechanisms::registry::Registry;
use crate::mechanisms::stream::{StreamReceiver, StreamSender};
use crate::mechanisms::{Ends, Exchange, MarksEnd, Mechanism, copy, unix_socket};

pub fn mechanisms() -> Vec<&'static str> {
    vec!["unix-stream", bus::NAME, dbus::NAME, "iceoryx2"]
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let plan = Plan {
        registry: registry(plan),
        ..plan.clone()
    };
    rtt::cases_of("requests", &plan)
}

/// The reference comes first, whatever is chosen.
fn registry(plan: &Plan) -> Registry {
    let of_bus = |waiting| bus::mechanism(&plan.tree, waiting);
    let mut all = vec![
        of_bus(Waiting::Spin),
        of_bus(Waiting::Sleep),
        dbus::mechanism(),
    ];
    #[cfg(feature = "iceoryx2")]
    all.push(Ok(iceoryx2::mechanism()));
    let name = |one: &Result<Mechanism, Skipped>| {
        one.as_ref()
            .map_or_else(|skip| skip.mechanism, |one| one.name)
    };
    all.retain(|one| plan.wants(name(one)));
    all.insert(0, Ok(unix_stream()));
    Registry::default().with(all)
}

/// A mechanism with one connection in both directions.
fn exchange(
    name: &'static str,
    waiting: Waiting,
    open: impl Fn(usize) -> Result<Exchange> + 'static,
) -> Mechanism {
    Mechanism {
        exchange: Some(Box::new(open)),
        ..Mechanism::new(name, waiting, |_| {
            bail!("it has no one-way link; use the suite requests")
        })
    }
}

/// The ends of a process whose requests are calls of this function, which appends the reply.
fn requesting(mut call: impl FnMut(&[u8], &mut Vec<u8>) -> Result<()> + 'static) -> Ends {
    let reply = Rc::new(RefCell::new(Vec::new()));
    let replied = Rc::clone(&reply);
    let call = move |request: &[u8]| {
        let mut reply = replied.borrow_mut();
        reply.clear();
        call(request, &mut reply)
    };
    let take = move |message: &mut [u8]| copy(&reply.borrow(), message);
    (Box::new(MarksEnd(call)), Box::new(take))
}

/// The ends of a process that receives a request by one function, which copies it, and replies by the other.
fn replying<R: 'static>(
    mut receive: impl FnMut(&mut [u8]) -> Result<(R, usize)> + 'static,
    mut reply: impl FnMut(R, &[u8]) -> Result<()> + 'static,
) -> Ends {
    let open = Rc::new(RefCell::new(None));
    let opened = Rc::clone(&open);
    let receive = move |message: &mut [u8]| {
        let (request, len) = receive(message)?;
        opened.replace(Some(request));
        Ok(len)
    };
    let reply = move |message: &[u8]| {
        let request = open.take().context("there is no request")?;
        reply(request, message)
    };
    (Box::new(reply), Box::new(receive))
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
    #[test]
    fn every_request_has_its_reply() {
        let _serial = sluice_testkit::workers::serial();
        let plan = crate::suites::plan::tests::plan();
        for subject in super::cases(&plan).unwrap().remove(0).subjects {
            subject.job.check().expect(&subject.label);
        }
    }
}
