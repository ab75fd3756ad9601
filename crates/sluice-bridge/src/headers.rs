// SPDX-License-Identifier: MIT OR Apache-2.0
//! The headers of the bridge. Those of a message that comes in are text that any client of the server may have written: of them only the
//! path is read, and nothing of them reaches a bus.

use sluice::bus;

use crate::engine::Message;

const BUS: &str = "Sluice-Bus";
const SEQUENCE: &str = "Sluice-Sequence";
const UID: &str = "Sluice-Uid";
const GID: &str = "Sluice-Gid";
const PID: &str = "Sluice-Pid";
/// The bridges that a message has passed, separated by commas.
const PATH: &str = "Sluice-Bridge";
const PATH_MAX: usize = 8;

/// Those of a message that leaves this host.
pub fn of_message(bus: &str, bridge: &str, header: &bus::Header) -> Vec<(String, String)> {
    let mut headers = vec![
        (BUS, bus.to_owned()),
        (SEQUENCE, header.sequence.to_string()),
        (UID, header.uid.to_string()),
        (GID, header.gid.to_string()),
        (PATH, bridge.to_owned()),
    ];
    headers.extend(header.pid.map(|pid| (PID, pid.to_string())));
    let owned = |(name, value): (&str, String)| (name.to_owned(), value);
    headers.into_iter().map(owned).collect()
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
    for id in message.values(PATH).flat_map(|path| path.split(',')) {
        if id.trim() == bridge {
            return Err(PathError::Loop);
        }
        passed += 1;
    }
    match passed > PATH_MAX {
        true => Err(PathError::TooLong),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(paths: &[&str]) -> Message {
        let path = |path: &&str| ("sluice-bridge".to_owned(), (*path).to_owned());
        Message {
            headers: paths.iter().map(path).collect(),
            ..Message::default()
        }
    }

    #[test]
    fn a_message_does_not_pass_a_bridge_twice() {
        for paths in [&["a"][..], &["b, a"], &["b", "a,c"]] {
            assert_eq!(
                check_path(&passed(paths), "a"),
                Err(PathError::Loop),
                "{paths:?}"
            );
        }
        for paths in [&[][..], &["b"], &["aa,b"]] {
            assert_eq!(check_path(&passed(paths), "a"), Ok(()), "{paths:?}");
        }
    }

    #[test]
    fn a_path_has_a_maximum_length() {
        let eight = ["b"; 8].join(",");
        assert_eq!(check_path(&passed(&[&eight]), "a"), Ok(()));
        assert_eq!(
            check_path(&passed(&[&eight, "b"]), "a"),
            Err(PathError::TooLong)
        );
    }
}
