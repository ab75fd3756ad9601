// SPDX-License-Identifier: MIT OR Apache-2.0
//! Request and response of iceoryx2, as in its examples: loaned memory, which both sides poll.

use std::cell::RefCell;
use std::hint::spin_loop;
use std::rc::Rc;

use anyhow::{Context, Result};
use iceoryx2::active_request::ActiveRequest;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::PortFactory as _;
use iceoryx2::service::port_factory::request_response::PortFactory;
use sluice_testkit::workers::Side;

use super::exchange;
use crate::harness::waiting::Waiting;
use crate::mechanisms::iceoryx2::{Files, Topic};
use crate::mechanisms::{Ends, Mechanism, await_peer, copy, marks_end};

type Open = ActiveRequest<ipc::Service, [u8], (), [u8], ()>;
type Service = PortFactory<ipc::Service, [u8], (), [u8], ()>;

pub fn mechanism() -> Mechanism {
    let files = Files::new();
    Mechanism {
        never_sleeps: true,
        ..exchange("iceoryx2", Waiting::Spin, move |size| {
            let topic = files.topic(size, Waiting::Spin)?;
            Ok(Box::new(move |side| match side {
                Side::First => requesting(&topic),
                Side::Second => replying(&topic),
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

fn requesting(topic: &Topic) -> Result<Ends> {
    let (node, service) = open(topic)?;
    let client = service.client_builder();
    let client = client.initial_max_slice_len(topic.size).create()?;
    await_peer("server", || {
        Ok((service.dynamic_config().number_of_servers() > 0).then_some(()))
    })?;
    let reply = Rc::new(RefCell::new(vec![0; topic.size]));
    let replied = Rc::clone(&reply);
    let call = move |message: &[u8]| {
        let _lives = &node;
        let request = client.loan_slice_uninit(message.len())?;
        let pending = request.write_from_slice(message).send()?;
        // The last message, which marks the end, has no reply.
        while !message.is_empty() {
            if let Some(response) = pending.receive()? {
                replied.borrow_mut().copy_from_slice(response.payload());
                break;
            }
            spin_loop();
        }
        Ok(())
    };
    let take = move |message: &mut [u8]| copy(&reply.borrow(), message);
    Ok((marks_end(call), Box::new(take)))
}

fn replying(topic: &Topic) -> Result<Ends> {
    let (node, service) = open(topic)?;
    let server = service.server_builder();
    let server = server.initial_max_slice_len(topic.size).create()?;
    let request: Rc<RefCell<Option<Open>>> = Rc::default();
    let received = Rc::clone(&request);
    let reply = move |message: &[u8]| {
        let request = request.take().context("there is no request")?;
        let response = request.loan_slice_uninit(message.len())?;
        Ok(response.write_from_slice(message).send()?)
    };
    let receive = move |message: &mut [u8]| {
        let _lives = &node;
        loop {
            if let Some(request) = server.receive()? {
                let len = copy(request.payload(), message)?;
                received.replace(Some(request));
                return Ok(len);
            }
            spin_loop();
        }
    };
    Ok((Box::new(reply), Box::new(receive)))
}
