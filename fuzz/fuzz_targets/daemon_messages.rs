// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary lines on the socket of sluiced: what is a message stays the same when it is sent on, and is shown without control
//! characters.
#![no_main]

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sluiced_protocol::{Request, Response, Selection};

fn pass_on<T: DeserializeOwned + Serialize + PartialEq + Debug>(line: &[u8]) -> Option<T> {
    let message: T = serde_json::from_slice(line).ok()?;
    let sent = serde_json::to_vec(&message).expect("a message can be sent");
    assert!(!sent.contains(&b'\n'), "a message is one line");
    let received: T = serde_json::from_slice(&sent).expect("what was sent can be read");
    assert_eq!(received, message);
    Some(message)
}

libfuzzer_sys::fuzz_target!(|line: &[u8]| {
    if let Some(Request::Attach(Selection::Map(map)) | Request::Forget(map)) =
        pass_on::<Request>(line)
    {
        assert!(!map.to_string().contains(char::is_control));
    }
    pass_on::<Response>(line);
});
