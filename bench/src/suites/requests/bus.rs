// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client and a server of a bus, by the library.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use sluice::bus::{Client, Request, Server};
use sluice::{Bus, Scope};
use sluice_testkit::cgroup::Tree;
use sluice_testkit::workers::Side;

use super::exchange;
use crate::harness::rounds::Skipped;
use crate::harness::waiting::Waiting;
use crate::mechanisms::{Ends, Mechanism, copy, marks_end};

pub const NAME: &str = "sluice-bus";

pub fn mechanism(tree: &Result<Rc<Tree>, Skipped>, waiting: Waiting) -> Result<Mechanism, Skipped> {
    let tree = Rc::clone(tree.as_ref().map_err(|skip| skip.of(NAME))?);
    Ok(Mechanism {
        own_cgroups: Some(Rc::clone(&tree)),
        ..exchange(NAME, waiting, move |_| {
            let scope = Scope::at(tree.create_temporary()?.path())?;
            let bus = Bus::named("requests").scope(scope).create(true);
            let (server, client) = (bus.server()?, bus.client()?);
            if waiting == Waiting::Sleep {
                server.set_spin_limit(Duration::ZERO)?;
                client.set_spin_limit(Duration::ZERO)?;
            }
            Ok(Box::new(move |side| match side {
                Side::First => Ok(requesting(client)),
                Side::Second => Ok(replying(server)),
            }))
        })
    })
}

fn requesting(mut client: Client) -> Ends {
    let reply = Rc::new(RefCell::new(Vec::new()));
    let replied = Rc::clone(&reply);
    let call = move |request: &[u8]| {
        let (received, reply) = (client.call(request)?, &mut *replied.borrow_mut());
        reply.clear();
        reply.extend_from_slice(received.bytes());
        Ok(())
    };
    let take = move |message: &mut [u8]| copy(&reply.borrow(), message);
    (marks_end(call), Box::new(take))
}

fn replying(mut server: Server) -> Ends {
    let open: Rc<RefCell<Option<Request>>> = Rc::default();
    let opened = Rc::clone(&open);
    let reply = move |message: &[u8]| {
        let request = open.take().context("there is no request")?;
        Ok(request.reply(message)?)
    };
    let receive = move |message: &mut [u8]| {
        let request = server.recv()?;
        let len = copy(request.bytes(), message)?;
        opened.replace(Some(request));
        Ok(len)
    };
    (Box::new(reply), Box::new(receive))
}
