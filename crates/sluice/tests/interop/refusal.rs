// SPDX-License-Identifier: MIT OR Apache-2.0
//! Greetings that come to nothing, and what each side learns of the reason.

use sluice::ring::SetupError;

use crate::partner::{Partner, small};

/// Both sides meet as they are told; what became of it on either.
fn meet(arguments: &str) -> Option<(Result<(), SetupError>, Option<String>)> {
    let (partner, socket) = Partner::start(arguments)?;
    let ours = match arguments.starts_with("send") {
        true => small().consumer(socket).map(drop),
        false => small().producer(socket).map(drop),
    };
    Some((ours, partner.end()))
}

/// The library rejects this hello, and the other is told why.
fn is_refused(arguments: &str, expected: impl Fn(&SetupError) -> bool, reply: &str) {
    let Some((ours, said)) = meet(arguments) else {
        return;
    };
    let error = ours.expect_err(arguments);
    assert!(expected(&error), "{arguments}: {error:?}");
    let reply = format!("was refused: {reply}");
    assert_eq!(said, Some(reply), "{arguments}");
}

#[test]
fn the_other_is_told_why_the_library_refuses_it() {
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
fn two_of_one_side_do_not_meet() {
    let Some((partner, socket)) = Partner::start("send") else {
        return;
    };
    let ours = small().producer(socket).map(drop);
    assert!(
        matches!(ours, Err(SetupError::RoleConflict { .. })),
        "{ours:?}"
    );
    assert_eq!(partner.end().as_deref(), Some("refused: EALREADY"));
}

/// The other refuses the library, which is told why.
fn refuses(arguments: &str, reply: &str, reason: &str) {
    let Some((ours, said)) = meet(&format!("{arguments} --refuse {reply}")) else {
        return;
    };
    let error = ours.expect_err(arguments);
    assert!(
        matches!(&error, SetupError::Refused(why) if why.contains(reason)),
        "{arguments}, {reply}: {error:?}"
    );
    assert_eq!(said, Some(format!("refused: {reply}")), "{arguments}");
}

#[test]
fn the_library_is_told_why_the_other_refuses_it() {
    for (reply, reason) in [
        ("EPERM", "this user"),
        ("EPROTONOSUPPORT", "other protocol version"),
        ("EALREADY", "the same role"),
        ("EACCES", "memory"),
        ("EPROTO", "protocol mismatch"),
        ("ERANGE", "capacity not allowed"),
        ("ECANCELED", "its setup failed"),
    ] {
        refuses("receive", reply, reason);
    }
    refuses("send", "EACCES", "memory");
}

#[test]
fn a_refusal_in_place_of_a_hello_is_understood() {
    for task in ["send", "receive"] {
        refuses(&format!("{task} --before-hello"), "EPERM", "this user");
    }
}
