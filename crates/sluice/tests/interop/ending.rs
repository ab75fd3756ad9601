// SPDX-License-Identifier: MIT OR Apache-2.0
//! Close and death of each side, as the peer sees it.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sluice::ring::{RecvError, SendError};

use super::carrier::{End, HOW, MANY, Options, small};
use super::python_peer::{LONG, PythonPeer, content};

/// Fewer bytes than the capacity, so that all are sent without a receiver.
const FEW: usize = 3;

fn spin_options() -> [Options; 2] {
    [small().spin_limit(Duration::ZERO), small()]
}

/// Sends until an error.
fn send_for_ever(options: &Options, end: End) -> SendError {
    let mut producer = end.producer(options);
    let longest = producer.max_record_len();
    (0..)
        .find_map(|number| producer.send_timeout(content(number, longest), LONG).err())
        .expect("it never fails")
}

#[test]
fn the_library_learns_that_the_other_consumer_is_done() {
    for options in spin_options() {
        let Some((peer, end)) = PythonPeer::start(&format!("receive-and-close --records {MANY}"))
        else {
            return;
        };
        let error = send_for_ever(&options, end);
        assert!(matches!(error, SendError::Closed), "{error:?}");
        assert_eq!(peer.end(), Some(format!("received {MANY}")));
    }
}

#[test]
fn the_library_learns_that_the_other_consumer_died() {
    for options in spin_options() {
        let Some((peer, end)) = PythonPeer::start(&format!("receive-and-die --records {MANY}"))
        else {
            return;
        };
        let error = send_for_ever(&options, end);
        assert!(matches!(error, SendError::PeerDied), "{error:?}");
        assert_eq!(peer.end(), None);
    }
}

#[test]
fn the_library_learns_that_the_other_producer_died_after_what_that_sent() {
    for options in spin_options() {
        let Some((peer, end)) = PythonPeer::start(&format!("send-and-die --records {FEW}")) else {
            return;
        };
        let mut consumer = end.consumer(&options);
        // Nothing is received before its death.
        assert_eq!(peer.end(), None);
        let mut room = vec![0; consumer.max_record_len()];
        for number in 0..FEW {
            let length = consumer
                .recv_into_timeout(&mut room, LONG)
                .expect("not received");
            let length = length.expect("it ended instead of dying");
            assert_eq!(room[..length], *content(number, consumer.max_record_len()));
        }
        let error = consumer.recv_into_timeout(&mut room, LONG);
        assert!(matches!(error, Err(RecvError::PeerDied)), "{error:?}");
    }
}

#[test]
fn the_other_producer_learns_that_the_library_is_done() {
    for how in HOW {
        let Some((peer, end)) = PythonPeer::start(&format!("send --records 5000 --how {how}"))
        else {
            return;
        };
        let mut consumer = end.consumer(&small());
        let mut room = vec![0; consumer.max_record_len()];
        for _ in 0..MANY {
            consumer
                .recv_into_timeout(&mut room, LONG)
                .expect("not received");
        }
        drop(consumer);
        assert_eq!(
            peer.end().as_deref(),
            Some("gone: the consumer closed the ring")
        );
    }
}

/// Starts a process of the library that transfers a few records and is then killed.
fn dying_library(role: &str, end: End) -> Child {
    let exe = std::env::current_exe().expect("no path");
    let (_, module) = module_path!().split_once("::").expect("no module");
    let mut command = Command::new(exe);
    command
        .args(["--exact", &format!("{module}::dying_library_process")])
        .arg("--nocapture")
        .env("SLUICE_DYING_LIBRARY", role)
        .stdout(Stdio::null());
    end.give_to(&mut command);
    command.spawn().expect("no process")
}

/// The process of dying_library(). As a test it does nothing.
#[test]
fn dying_library_process() {
    let Ok(role) = std::env::var("SLUICE_DYING_LIBRARY") else {
        return;
    };
    let end = End::given();
    if role == "producer" {
        let mut producer = end.producer(&small());
        let longest = producer.max_record_len();
        for number in 0..FEW {
            producer.send(content(number, longest)).expect("not sent");
        }
        kill_ourselves();
    } else {
        let mut consumer = end.consumer(&small());
        let mut room = vec![0; consumer.max_record_len()];
        for _ in 0..FEW {
            consumer.recv_into(&mut room).expect("not received");
        }
        kill_ourselves();
    }
}

fn kill_ourselves() {
    let ourselves = rustix::process::getpid();
    rustix::process::kill_process(ourselves, rustix::process::Signal::KILL).expect("still alive");
}

#[test]
fn the_other_learns_that_the_library_died() {
    for how in HOW {
        for (role, task, last) in [
            (
                "producer",
                "receive",
                "died: the producer died after 3 records",
            ),
            ("consumer", "send", "died: the consumer died"),
        ] {
            let arguments = format!("{task} --records 5000 --how {how}");
            let Some((peer, end)) = PythonPeer::start(&arguments) else {
                return;
            };
            let mut library = dying_library(role, end);
            assert_eq!(peer.end().as_deref(), Some(last));
            library.wait().expect("no outcome");
        }
    }
}
