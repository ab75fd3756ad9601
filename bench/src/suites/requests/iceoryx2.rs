// SPDX-License-Identifier: MIT OR Apache-2.0
//! Request and response of iceoryx2, as in its examples: loaned memory, which both sides poll.

use std::hint::spin_loop;

use anyhow::Result;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::PortFactory as _;
use iceoryx2::service::port_factory::request_response::PortFactory;
use sluice_testkit::workers::Side;

use super::{exchange, replying, requesting};
use crate::harness::waiting::Waiting;
use crate::mechanisms::iceoryx2::{Files, Topic};
use crate::mechanisms::{Ends, Mechanism, await_peer, copy};

type Service = PortFactory<ipc::Service, [u8], (), [u8], ()>;

pub fn mechanism() -> Mechanism {
    let files = Files::new();
    Mechanism {
        never_sleeps: true,
        ..exchange("iceoryx2", Waiting::Spin, move |size| {
            let topic = files.topic(size, Waiting::Spin)?;
            Ok(Box::new(move |side| match side {
                Side::First => client_ends(topic),
                Side::Second => server_ends(topic),
            }))
        })
    }
}

fn open(topic: &Topic) -> Result<(Node<ipc::Service>, Service)> {
    let (node, name) = topic.node()?;
    let service = node.service_builder(&name);
    let service = service.request_response::<[u8], [u8]>();
    let service = service.max_clients(1).max_servers(1).max_nodes(2);
    Ok((node, service.open_or_create()?))
}

fn client_ends(topic: Topic) -> Result<Ends> {
    let (node, service) = open(&topic)?;
    let client = service.client_builder();
    let client = client.initial_max_slice_len(topic.size).create()?;
    await_peer("server", || {
        Ok((service.dynamic_config().number_of_servers() > 0).then_some(()))
    })?;
    Ok(requesting(move |message, reply| {
        let _lives = &node;
        let request = client.loan_slice_uninit(message.len())?;
        let pending = request.write_from_slice(message).send()?;
        if message.is_empty() {
            // The end has no reply, and the server would miss it if the client had gone.
            return topic.await_peer("server");
        }
        loop {
            if let Some(response) = pending.receive()? {
                reply.extend_from_slice(response.payload());
                return Ok(());
            }
            spin_loop();
        }
    }))
}

fn server_ends(topic: Topic) -> Result<Ends> {
    let (node, service) = open(&topic)?;
    let server = service.server_builder();
    let server = server.initial_max_slice_len(topic.size).create()?;
    let receive = move |message: &mut [u8]| {
        let _lives = &node;
        loop {
            if let Some(request) = server.receive()? {
                let len = copy(request.payload(), message)?;
                if len == 0 {
                    topic.tell_peer();
                }
                return Ok((request, len));
            }
            spin_loop();
        }
    };
    Ok(replying(receive, |request, message| {
        let response = request.loan_slice_uninit(message.len())?;
        Ok(response.write_from_slice(message).send()?)
    }))
}
