// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client and a server of a bus, by the library.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use sluice::{Bus, Scope};
use sluice_testkit::cgroup::Tree;
use sluice_testkit::workers::Side;

use super::{exchange, replying, requesting};
use crate::harness::rounds::Skipped;
use crate::harness::waiting::Waiting;
use crate::mechanisms::{Mechanism, copy};

pub const NAME: &str = "sluice-bus";

pub fn mechanism(tree: &Result<Rc<Tree>, Skipped>, waiting: Waiting) -> Result<Mechanism, Skipped> {
    let tree = Rc::clone(tree.as_ref().map_err(|skip| skip.of(NAME))?);
    Ok(Mechanism {
        own_cgroups: Some(Rc::clone(&tree)),
        ..exchange(NAME, waiting, move |_| {
            let scope = Scope::at(tree.create_temporary()?.path())?;
            let bus = Bus::named("requests").scope(scope).create(true);
            let (mut server, mut client) = (bus.server()?, bus.client()?);
            if waiting == Waiting::Sleep {
                server.set_spin_limit(Duration::ZERO)?;
                client.set_spin_limit(Duration::ZERO)?;
            }
            Ok(Box::new(move |side| match side {
                Side::First => Ok(requesting(move |request, reply| {
                    reply.extend_from_slice(client.call(request)?.bytes());
                    Ok(())
                })),
                Side::Second => Ok(replying(
                    move |message| {
                        let request = server.recv()?;
                        let len = copy(request.bytes(), message)?;
                        Ok((request, len))
                    },
                    |request, message| Ok(request.reply(message)?),
                )),
            }))
        })
    })
}
