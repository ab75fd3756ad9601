// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests and replies over a multicast bus: a client sends each request to the next server, and waits for its reply.

mod client;
mod error;
mod server;
#[cfg(feature = "tokio")]
mod tokio;

pub use client::Client;
pub use error::{CallError, ServeError};
pub use server::{Request, Server};
#[cfg(feature = "tokio")]
pub use tokio::{AsyncClient, AsyncRequest, AsyncServer};

use sluice_abi::bus::Info;

use super::message::Header;

/// The server and the tag of a request.
#[derive(Clone, Copy, Debug)]
struct Asked {
    server: u64,
    tag: u64,
}

impl Asked {
    /// Any sender can address a client; only the server that was asked can answer.
    fn is_answered_by(self, header: &Header) -> bool {
        header.sender == self.server && header.tag == self.tag
    }
}

/// As many messages as the bus can hold at a time. A number of `Info` would not tell: `sent` has no cancelled attempts, which use
/// numbers of messages.
fn most_messages(bus: &Info) -> u64 {
    bus.capacity / 256
}

/// The messages that a client has lost. A frame and the state of the endpoint both report each of them, which counts once.
#[derive(Debug, Default)]
struct Losses {
    by_frames: u64,
    counted: u64,
}

impl Losses {
    /// Returns the losses that were not counted before.
    fn add_frame(&mut self, header: &Header) -> u64 {
        self.by_frames += header.lost;
        self.set_total(self.by_frames)
    }

    /// Returns the losses that were not counted before.
    fn set_total(&mut self, total: u64) -> u64 {
        let new = total.saturating_sub(self.counted);
        self.counted += new;
        new
    }
}

#[cfg(test)]
mod tests {
    use sluice_abi::bus::Frame;

    use super::*;

    fn header(frame: Frame) -> Header {
        Header::from_bytes(&frame.to_bytes()).unwrap()
    }

    #[test]
    fn a_reply_is_that_of_the_server_to_the_request() {
        let asked = Asked { server: 3, tag: 7 };
        let reply = |sender, tag| {
            header(Frame {
                sender,
                tag,
                ..Frame::new(0, 1)
            })
        };
        assert!(asked.is_answered_by(&reply(3, 7)));
        assert!(!asked.is_answered_by(&reply(4, 7)));
        assert!(!asked.is_answered_by(&reply(3, 6)));
    }

    #[test]
    fn each_loss_is_new_once() {
        let lost = |lost| {
            header(Frame {
                lost,
                ..Frame::new(0, 1)
            })
        };
        let mut losses = Losses::default();
        assert_eq!(losses.set_total(2), 2);
        assert_eq!(losses.add_frame(&lost(2)), 0);
        assert_eq!(losses.add_frame(&lost(1)), 1);
        assert_eq!(losses.set_total(3), 0);
        assert_eq!(losses.add_frame(&lost(0)), 0);
    }
}
