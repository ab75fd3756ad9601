// SPDX-License-Identifier: MIT OR Apache-2.0
//! Container a sends its file to container b.

use anyhow::{Context, Result, bail, ensure};

use crate::crew::{Crew, NAMES};
use crate::protocol::Event;
use crate::rounds::Delivery;
use crate::staging::Staged;

/// What both tell of it when it is over.
pub fn collect(crew: &mut Crew) -> Result<Delivery> {
    let mut delivery = Delivery::default();
    for _ in 0..2 {
        match crew.next()? {
            (0, Event::Sent { bytes, begin_ns }) => {
                (delivery.sent, delivery.begin_ns) = (bytes, begin_ns);
            }
            (
                1,
                Event::Received {
                    bytes,
                    end_ns,
                    sha256,
                },
            ) => (delivery.received, delivery.end_ns, delivery.sha256) = (bytes, end_ns, sha256),
            (index, event) => bail!(
                "container {} answered {event:?} while the two talked",
                NAMES[index]
            ),
        }
    }
    Ok(delivery)
}

/// Fails unless all of the file and nothing else has arrived.
pub fn verify(delivery: &Delivery, file: &Staged) -> Result<()> {
    ensure!(
        delivery.sent == file.bytes && delivery.received == file.bytes,
        "of the {} bytes of {} container a sent {} and container b received {}",
        file.bytes,
        file.name,
        delivery.sent,
        delivery.received
    );
    let digest = delivery.sha256.as_deref().context("b told no SHA-256")?;
    ensure!(
        digest == file.sha256,
        "container b received something else than {}: its SHA-256 is {digest}, not {}",
        file.name,
        file.sha256
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_or_missing_byte_is_found() {
        let file = Staged {
            path: "/a".into(),
            name: "file".into(),
            bytes: 10,
            sha256: "aa".into(),
        };
        let delivery = |received, sha256: &str| Delivery {
            sent: 10,
            received,
            sha256: Some(sha256.into()),
            ..Delivery::default()
        };
        verify(&delivery(10, "aa"), &file).unwrap();
        assert!(verify(&delivery(9, "aa"), &file).is_err());
        assert!(verify(&delivery(10, "bb"), &file).is_err());
    }
}
