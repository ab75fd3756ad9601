// SPDX-License-Identifier: MIT OR Apache-2.0
//! ZeroMQ over ipc://: a publishing socket, one I/O thread in each process, and otherwise the defaults of the library.
//! XPUB is PUB that shows subscriptions, for which the sender waits, and it is told to wait for a slow receiver instead
//! of dropping its messages, as the other mechanisms do. The processor time of the I/O thread is the sender's.

use std::rc::Rc;

use anyhow::{Context, Result};

use super::channel::{Create, End, Visit};
use super::conditions::Conditions;
use crate::mechanisms::temp_paths::TempPaths;
use crate::mechanisms::zeromq::endpoint;
use crate::mechanisms::zmq_library::{Kind, Socket, zmq};
use crate::suites::plan::Plan;

pub fn prepare(_: &Plan, paths: &Rc<TempPaths>) -> Result<Create> {
    zmq()?;
    let paths = Rc::clone(paths);
    Ok(Rc::new(move |&conditions: &Conditions| {
        let endpoint = endpoint(&paths)?;
        Ok(Box::new(move |number| match number {
            None => publisher(&endpoint, conditions.receivers),
            Some(_) => subscriber(&endpoint, &conditions),
        }))
    }))
}

fn publisher(endpoint: &str, receivers: usize) -> Result<End> {
    let socket = Socket::new(Kind::XPub)?.bind(endpoint)?;
    for _ in 0..receivers {
        let subscription = socket.receive(&mut [0; 1]);
        subscription.context("cannot receive a subscription")?;
    }
    End::sender(move |message| socket.send(message))
}

fn subscriber(endpoint: &str, conditions: &Conditions) -> Result<End> {
    let socket = Socket::new(Kind::Sub)?.connect(endpoint)?;
    let blocks = conditions.blocks();
    let mut message = vec![0; conditions.size];
    End::receiver(move |visit: Visit| {
        let length = match blocks {
            true => Some(socket.receive(&mut message)?),
            false => socket.receive_now(&mut message)?,
        };
        if let Some(length) = length {
            visit(&message[..length])?;
        }
        Ok(length.is_some())
    })
}
