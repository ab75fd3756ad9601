// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bus of the module, without spinning, with receivers that block the sender: the guarantee that the rivals give. By
//! plain calls, by mapped memory, and through io_uring.

mod endpoint;
mod mapped;
mod uring;

use std::fs::File;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Result, anyhow, ensure};
use sluice_abi::bus::{self, Params};
use sluice_abi::{OPEN_CREATE, OPEN_NONBLOCK, OPEN_READ, OPEN_WRITE};
use sluice_testkit::module::SLUICE;

use super::channel::{Channel, Create};
use super::conditions::Conditions;
use super::files::{receiver, to_each};
use crate::suites::plan::Plan;

/// How an endpoint is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    Plain,
    Mapped,
    Uring,
}

pub fn prepare(plan: &Plan, mode: u32, calls: Calls) -> Result<Create> {
    ensure!(Path::new(endpoint::CTL).exists(), SLUICE.how_to_load());
    let tree = plan.tree.clone().map_err(|skip| anyhow!(skip.reason))?;
    if calls == Calls::Uring {
        uring::ring()?;
    }
    Ok(Rc::new(move |conditions: &Conditions| {
        let scope = tree.create_cgroup()?.directory()?;
        create(&scope, *conditions, mode, calls)
    }))
}

fn create(scope: &File, conditions: Conditions, mode: u32, calls: Calls) -> Result<Channel> {
    let if_mapped = |flag| if calls == Calls::Mapped { flag } else { 0 };
    let params = Params {
        mode,
        // The queue of a unicast bus has no policies.
        policies: if mode == bus::UNICAST { 0 } else { bus::BLOCK },
        flags: if_mapped(bus::MAPPABLE),
        ..Params::default()
    };
    let sending = endpoint::open(scope, OPEN_WRITE | OPEN_CREATE, params)?;
    let params = Params {
        policy: params.policies,
        flags: if_mapped(bus::MAPPED),
        ..Params::default()
    };
    let flags = match conditions.blocks() {
        true => OPEN_READ,
        false => OPEN_READ | OPEN_NONBLOCK,
    };
    let receiving = (0..conditions.receivers).map(|_| endpoint::open(scope, flags, params));
    let mut receiving = receiving.collect::<Result<Vec<_>>>()?;
    Ok(Box::new(move |number| {
        let Some(number) = number else {
            return match calls {
                Calls::Plain | Calls::Mapped => to_each(vec![sending]),
                Calls::Uring => uring::sender(sending),
            };
        };
        let endpoint = receiving.swap_remove(number);
        match calls {
            Calls::Plain => receiver(endpoint, conditions.size, 1),
            Calls::Mapped => mapped::receiver(endpoint, conditions.size),
            Calls::Uring => uring::receiver(endpoint, &conditions),
        }
    }))
}
