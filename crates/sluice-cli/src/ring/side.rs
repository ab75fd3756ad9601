// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a producer and a consumer have in common for their setup.

use std::os::fd::OwnedFd;

use sluice::ring::{
    Attach, Consumer, Producer, RingInfo, RoleState, SetupError, Socket, SocketOptions,
};
use sluice::{Ring, SystemError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Sender,
    Receiver,
}

impl Role {
    /// The other side for messages, and the verb that starts it.
    pub fn peer(self) -> (&'static str, &'static str) {
        match self {
            Self::Sender => ("a receiver", "recv"),
            Self::Receiver => ("a sender", "send"),
        }
    }

    pub fn peer_state(self, ring: &RingInfo) -> RoleState {
        match self {
            Self::Sender => ring.consumer,
            Self::Receiver => ring.producer,
        }
    }
}

pub trait Side: Send + Sized {
    const ROLE: Role;

    fn connect(options: &SocketOptions, socket: Socket) -> Result<Self, SetupError>;
    fn open(ring: &sluice::Options<Ring>) -> Result<Self, SetupError>;
    fn attach(options: &Attach, endpoint: OwnedFd) -> Result<Self, SetupError>;
    fn has_peer(&self) -> Result<bool, SystemError>;
    fn abort(self);
}

impl Side for Producer {
    const ROLE: Role = Role::Sender;

    fn connect(options: &SocketOptions, socket: Socket) -> Result<Self, SetupError> {
        options.producer(socket)
    }

    fn open(ring: &sluice::Options<Ring>) -> Result<Self, SetupError> {
        ring.producer()
    }

    fn attach(options: &Attach, endpoint: OwnedFd) -> Result<Self, SetupError> {
        options.producer(endpoint)
    }

    fn has_peer(&self) -> Result<bool, SystemError> {
        self.has_consumer()
    }

    fn abort(self) {
        Self::abort(self);
    }
}

impl Side for Consumer {
    const ROLE: Role = Role::Receiver;

    fn connect(options: &SocketOptions, socket: Socket) -> Result<Self, SetupError> {
        options.consumer(socket)
    }

    fn open(ring: &sluice::Options<Ring>) -> Result<Self, SetupError> {
        ring.consumer()
    }

    fn attach(options: &Attach, endpoint: OwnedFd) -> Result<Self, SetupError> {
        options.consumer(endpoint)
    }

    fn has_peer(&self) -> Result<bool, SystemError> {
        self.has_producer()
    }

    fn abort(self) {
        Self::abort(self);
    }
}
