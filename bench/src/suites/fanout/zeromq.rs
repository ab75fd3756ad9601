// SPDX-License-Identifier: MIT OR Apache-2.0
//! ZeroMQ over ipc://: a publishing socket, one I/O thread in each process, and otherwise the defaults of the library.
//! XPUB is PUB that shows subscriptions, for which the sender waits, and it is told to wait for a slow receiver instead
//! of dropping its messages, as the other mechanisms do. The processor time of the I/O thread is the sender's.

use std::rc::Rc;

use anyhow::{Context, Result, anyhow};

use super::channel::{Channel, Receiver, Resources, Sender, Shape};
use crate::mechanisms::zmq_library::{Kind, Socket, Zmq};

pub fn unavailable() -> Option<String> {
    let missing = Zmq::load().err()?;
    Some(format!("{missing:#}; install libzmq5"))
}

pub fn create(shape: &Shape, resources: &Resources) -> Result<Box<dyn Channel>> {
    let zmq = Zmq::load().map_err(|error| anyhow!("{error:#}"))?;
    let path = resources.paths.next_path()?;
    Ok(Box::new(Endpoint {
        zmq: Rc::new(zmq),
        name: format!("ipc://{}", path.display()),
        shape: *shape,
    }))
}

/// The sockets are created after the fork, because their threads start with them.
struct Endpoint {
    zmq: Rc<Zmq>,
    name: String,
    shape: Shape,
}

impl Channel for Endpoint {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        let socket = Socket::new(self.zmq, Kind::XPub)?;
        socket.deliver_all()?;
        socket.bind(&self.name)?;
        for _ in 0..self.shape.receivers {
            let subscription = socket.receive(&mut [0; 1]);
            subscription.context("cannot receive a subscription")?;
        }
        Ok(Box::new(Publisher(socket)))
    }

    fn receiver(self: Box<Self>, _number: usize) -> Result<Box<dyn Receiver>> {
        let socket = Socket::new(self.zmq, Kind::Sub)?;
        socket.subscribe_to_all()?;
        socket.connect(&self.name)?;
        Ok(Box::new(Subscriber {
            socket,
            blocking: self.shape.blocking,
            message: vec![0; self.shape.size],
        }))
    }
}

struct Publisher(Socket);

impl Sender for Publisher {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.0.send(message)
    }
}

struct Subscriber {
    socket: Socket,
    blocking: bool,
    message: Vec<u8>,
}

impl Receiver for Subscriber {
    fn receive(&mut self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<bool> {
        let received = match self.blocking {
            true => Some(self.socket.receive(&mut self.message)?),
            false => self.socket.receive_now(&mut self.message)?,
        };
        let Some(length) = received else {
            return Ok(false);
        };
        visit(&self.message[..length])?;
        Ok(true)
    }
}
