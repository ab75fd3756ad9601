// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header of the bridge. In a message that comes in, it is untrusted text: the bridge reads only the ids of bridges from it, and passes
//! nothing of it to the bus. It is one header, because each one costs the server and both clients.

use std::fmt::Write as _;

use sluice::bus;

use crate::engine::Message;

/// What is known of the sender: `bridge=ID uid=UID gid=GID pid=PID sequence=NUMBER bus=NAME`. Only the name may contain blanks.
pub const SENDER: &str = "Sluice-Sender";
/// Bridges that a message has passed.
const PASSED_MAX: usize = 8;

/// The value of the header in a message that leaves this host.
pub fn sender(bus: &str, bridge: &str, header: &bus::Header) -> String {
    let bus::Header {
        uid, gid, sequence, ..
    } = header;
    // Room for all, because growing costs more than the text.
    let mut value = String::with_capacity(128 + bridge.len() + bus.len());
    // Writing to a String cannot fail.
    let _ = write!(value, "bridge={bridge} uid={uid} gid={gid}");
    if let Some(pid) = header.pid {
        let _ = write!(value, " pid={pid}");
    }
    let _ = write!(value, " sequence={sequence} bus={bus}");
    value
}

/// Why a message does not come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// It has passed this bridge.
    Loop,
    TooLong,
}

pub fn check_path(message: &Message, bridge: &str) -> Result<(), PathError> {
    let mut passed = 0;
    for sender in message.values(SENDER) {
        let mut words = sender.split(' ');
        if words.next().and_then(|word| word.strip_prefix("bridge=")) == Some(bridge) {
            return Err(PathError::Loop);
        }
        passed += 1;
    }
    match passed > PASSED_MAX {
        true => Err(PathError::TooLong),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(bridges: &[&str]) -> Message {
        let header = |id: &&str| ("sluice-sender", format!("bridge={id} uid=0"));
        Message {
            headers: bridges.iter().map(header).collect(),
            ..Message::default()
        }
    }

    #[test]
    fn a_message_does_not_pass_a_bridge_twice() {
        for bridges in [&["a"][..], &["b", "a"]] {
            assert_eq!(
                check_path(&passed(bridges), "a"),
                Err(PathError::Loop),
                "{bridges:?}"
            );
        }
        for bridges in [&[][..], &["b"], &["aa", "b"]] {
            assert_eq!(check_path(&passed(bridges), "a"), Ok(()), "{bridges:?}");
        }
    }

    #[test]
    fn a_path_has_a_maximum_length() {
        assert_eq!(check_path(&passed(&["b"; 8]), "a"), Ok(()));
        assert_eq!(check_path(&passed(&["b"; 9]), "a"), Err(PathError::TooLong));
    }
}
