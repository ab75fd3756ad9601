// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handshakes that fail, and the reason that each side gets.

use sluice::ring::{SetupError, Socket};

use super::carrier::small;
use super::python_peer::PythonPeer;

/// Performs a handshake with these arguments. Returns the result of the library and the output of the other side.
fn handshake(arguments: &str) -> Option<(Result<(), SetupError>, Option<String>)> {
    let (peer, end) = PythonPeer::start(arguments)?;
    let socket = Socket::from(end);
    let ours = match arguments.starts_with("send") {
        true => small().consumer(socket).map(drop),
        false => small().producer(socket).map(drop),
    };
    Some((ours, peer.end()))
}

/// The library rejects this hello, and the other side gets the reason.
fn is_refused(arguments: &str, expected: impl Fn(&SetupError) -> bool, reply: &str) {
    let Some((ours, printed)) = handshake(arguments) else {
        return;
    };
    let error = ours.expect_err(arguments);
    assert!(expected(&error), "{arguments}: {error:?}");
    let reply = format!("was refused: {reply}");
    assert_eq!(printed, Some(reply), "{arguments}");
}

#[test]
fn the_other_side_gets_the_reason_of_the_library() {
    for task in ["send", "receive"] {
        is_refused(
            &format!("{task} --field version=2"),
            |error| matches!(error, SetupError::Version { theirs: 2 }),
            "EPROTONOSUPPORT",
        );
        is_refused(
            &format!("{task} --unsealed"),
            |error| matches!(error, SetupError::InvalidMemfd(_)),
            "EACCES",
        );
    }
    for wrong in ["magic=1", "size=40", "flags=4", "role=3", "data=0"] {
        is_refused(
            &format!("send --field {wrong}"),
            |error| matches!(error, SetupError::ProtocolMismatch(_)),
            "EPROTO",
        );
    }
    for wrong in [0, 2048, 12288, 1 << 29] {
        is_refused(
            &format!("send --field capacity={wrong}"),
            |error| matches!(error, SetupError::PeerCapacity(_)),
            "ERANGE",
        );
    }
    is_refused(
        "send --field capacity=8192",
        |error| matches!(error, SetupError::InvalidMemfd(_)),
        "EACCES",
    );
    for wrong in ["data=4096", "capacity=4096"] {
        is_refused(
            &format!("receive --field {wrong}"),
            |error| matches!(error, SetupError::ProtocolMismatch(_)),
            "EPROTO",
        );
    }
}

#[test]
fn two_producers_do_not_connect() {
    let Some((peer, end)) = PythonPeer::start("send") else {
        return;
    };
    let ours = small().producer(Socket::from(end)).map(drop);
    assert!(
        matches!(ours, Err(SetupError::RoleConflict { .. })),
        "{ours:?}"
    );
    assert_eq!(peer.end().as_deref(), Some("refused: EALREADY"));
}

/// The other side rejects the library, which gets the reason.
fn refuses(arguments: &str, reply: &str, reason: &str) {
    let Some((ours, printed)) = handshake(&format!("{arguments} --refuse {reply}")) else {
        return;
    };
    let error = ours.expect_err(arguments);
    assert!(
        matches!(error, SetupError::Refused(_) | SetupError::NotAllowedByPeer)
            && error.to_string().contains(reason),
        "{arguments}, {reply}: {error:?}"
    );
    assert_eq!(printed, Some(format!("refused: {reply}")), "{arguments}");
}

#[test]
fn the_library_gets_the_reason_of_the_other_side() {
    for (reply, reason) in [
        ("EPERM", "the user of this process"),
        ("EPROTONOSUPPORT", "other protocol version"),
        ("EALREADY", "the same role"),
        ("EACCES", "memory"),
        ("EPROTO", "protocol mismatch"),
        ("ERANGE", "capacity not allowed"),
        ("ECANCELED", "its setup failed"),
        ("ETIMEDOUT", "its time for the handshake was over"),
    ] {
        refuses("receive", reply, reason);
    }
    refuses("send", "EACCES", "memory");
}

#[test]
fn a_reply_in_place_of_a_hello_is_reported() {
    for task in ["send", "receive"] {
        refuses(
            &format!("{task} --before-hello"),
            "EPERM",
            "the user of this process",
        );
    }
}
