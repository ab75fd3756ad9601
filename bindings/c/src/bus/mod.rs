// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buses: messages from many senders to many subscribers, and requests with replies.

mod client;
mod mapped;
mod message;
mod options;
mod sender;
mod server;
mod state;
mod subscriber;
