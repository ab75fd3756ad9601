// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who comes together with whom, and who does not.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Uid;
use sluice::ring::{Listener, Socket};
use sluice_hostile::{Hello, Peer, SEALS, UNSEALED, memfd, seal};

use crate::support::{LONG, Place, SHORT, Side, eventually};

const NOBODY_CAME: i32 = 3;
const PATH_TAKEN: i32 = 4;
const NO_PERMISSION: i32 = 5;

#[test]
fn either_side_may_listen_and_either_may_come_first() {
    let roles = [("--connect", "--listen"), ("--listen", "--connect")];
    for (sending, receiving) in roles {
        for sender_first in [true, false] {
            let place = Place::new();
            let start = |sends| match sends {
                true => place.start("send", sending),
                false => place.start("recv", receiving),
            };
            let first = start(sender_first);
            thread::sleep(SHORT);
            let second = start(!sender_first);
            let (sender, receiver) = match sender_first {
                true => (first, second),
                false => (second, first),
            };
            sender.fed(b"hello\n".to_vec()).succeeded();
            assert_eq!(receiver.end().succeeded().stdout, b"hello\n");
            assert!(!place.socket().exists());
        }
    }
}

#[test]
fn who_waits_is_told_for_whom_and_what_to_run() {
    for (verb, arguments, words) in [
        (
            "recv",
            "",
            "a sender at socket; run 'sluice ring send socket'",
        ),
        (
            "recv",
            "--connect",
            "run 'sluice ring send --listen socket'",
        ),
        (
            "send",
            "",
            "a receiver at socket; run 'sluice ring recv socket'",
        ),
        (
            "send",
            "--listen",
            "run 'sluice ring recv --connect socket'",
        ),
    ] {
        let place = Place::new();
        let arguments = format!("{arguments} --wait 2");
        let ended = place.start(verb, &arguments).end();
        let said = ended.failed(NOBODY_CAME, &["waited 2 s in vain for ", words]);
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        let note = said.lines().next().expect("it said nothing");
        assert!(note.starts_with("sluice: waiting for a "), "{note}");
        assert!(note.contains(words), "{note}");
        assert!(!place.socket().exists());
    }
}

#[test]
fn a_path_at_which_somebody_listens_is_taken_and_stays_theirs() {
    let place = Place::new();
    let receiver = place.receiver("");
    let words = ["somebody listens at socket", "--connect"];
    place.start("recv", "").end().failed(PATH_TAKEN, &words);
    place
        .start("send", "--listen")
        .end()
        .failed(PATH_TAKEN, &words);
    place.start("send", "").fed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.end().succeeded().stdout, b"hello\n");
}

#[test]
fn a_socket_that_a_killed_process_left_is_in_nobodys_way() {
    let place = Place::new();
    let receiver = place.receiver("");
    receiver.signal(Signal::SIGKILL);
    assert!(!receiver.end().0.status.success());
    assert!(place.socket().exists());
    // Whoever connects waits until somebody listens there again.
    let sender = place.start("send", "");
    thread::sleep(SHORT);
    let receiver = place.start("recv", "");
    sender.fed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.end().succeeded().stdout, b"hello\n");
    assert!(!place.socket().exists());
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let place = Place::new();
    fs::write(place.socket(), "precious").expect("cannot write");
    place
        .start("recv", "")
        .end()
        .failed(PATH_TAKEN, &["cannot listen at socket", "choose a path"]);
    place
        .start("send", "")
        .end()
        .failed(1, &["socket is there and is no socket", "remove it"]);
    assert_eq!(fs::read(place.socket()).expect("gone"), b"precious");
}

#[test]
fn a_socket_of_another_kind_is_left_alone() {
    let place = Place::new();
    let _listener = UnixListener::bind(place.socket()).expect("cannot listen");
    place
        .start("recv", "")
        .end()
        .failed(PATH_TAKEN, &["somebody listens at socket"]);
    place
        .start("send", "")
        .end()
        .failed(1, &["cannot connect to socket"]);
    assert!(place.socket().exists());
}

#[test]
fn a_path_that_cannot_be_is_refused_at_once() {
    let place = Place::new();
    let bad = |verb: &str, path: &str| {
        let mut command = place.command(verb, "");
        let program = command.get_program().to_owned();
        command = Command::new(program);
        command.args(["ring", verb, path]).current_dir(place.path());
        let output = command.output().expect("no process");
        crate::support::Ended(output)
    };
    let long = "long".repeat(50);
    for (verb, path, status, words) in [
        ("recv", "no/socket", 1, "cannot listen at no/socket"),
        (
            "send",
            "no/socket",
            1,
            "give a path in a directory that both sides have",
        ),
        ("recv", long.as_str(), 1, "cannot listen at longlong"),
        ("send", long.as_str(), 1, "cannot connect to longlong"),
        ("recv", "", 2, "<PATH>"),
        ("send", "", 2, "<PATH>"),
    ] {
        bad(verb, path).failed(status, &[words]);
    }
}

#[test]
fn a_node_that_is_not_there_is_named() {
    let place = Place::new();
    if std::path::Path::new("/sys/devices/system/node").exists() {
        let words = ["no memory node 1023", "leave --node out"];
        place.start("send", "--node 1023").end().failed(1, &words);
    }
}

#[test]
fn what_a_ring_cannot_have_is_said() {
    let place = Place::new();
    let mut receiver = place.receiver("");
    let words = ["capacity of 536870912 bytes", "to 268435456 bytes"];
    place
        .start("send", "--capacity 512M")
        .end()
        .failed(1, &words);
    // It had nothing to offer.
    receiver.reports("turned away a peer");
    place.start("send", "").fed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.end().succeeded().stdout, b"hello\n");
}

#[test]
fn two_senders_are_told_so() {
    let place = Place::new();
    let listener = place.start("send", "--listen");
    place.until_there();
    let words = ["both ends want to be the producer"];
    place
        .start("send", "")
        .fed(b"lost\n".to_vec())
        .failed(1, &words);
    // Whoever listens goes on.
    let receiver = place.start("recv", "--connect");
    listener.fed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.end().succeeded().stdout, b"hello\n");
}

/// One that has connected and is about to say something.
fn peer(place: &Place) -> Peer {
    let socket = Socket::connect(place.socket()).expect("cannot connect");
    Peer::from(OwnedFd::from(socket))
}

/// What cannot be a producer's hello, or not with these files, for one reason each.
fn bad_hellos() -> Vec<(Hello, OwnedFd)> {
    let good = || Hello::producer(4096);
    let sealed = |bytes: u64| {
        let file = memfd(bytes);
        seal(&file, SEALS);
        file
    };
    let write_only = |file: OwnedFd| {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let opened = fs::OpenOptions::new().write(true).open(path);
        OwnedFd::from(opened.expect("not opened"))
    };
    vec![
        (
            Hello {
                capacity: 4097,
                ..good()
            },
            sealed(8193),
        ),
        (
            Hello {
                capacity: 1 << 40,
                ..good()
            },
            sealed(1 << 40),
        ),
        (
            Hello {
                flags: UNSEALED,
                ..good()
            },
            sealed(8192),
        ),
        (
            Hello {
                data: 2 << 20,
                capacity: 2 << 20,
                ..good()
            },
            sealed(4 << 20),
        ),
        (
            Hello {
                version: 2,
                ..good()
            },
            sealed(8192),
        ),
        (good(), write_only(sealed(8192))),
        (good(), sealed(8193)),
        (good(), memfd(8192)),
        (
            good(),
            fs::File::open("/dev/null").expect("no /dev/null").into(),
        ),
    ]
}

#[test]
fn every_bad_hello_is_turned_away_and_few_are_reported() {
    let place = Place::new();
    let mut receiver = place.receiver("");
    let hellos = bad_hellos();
    let mut peers = Vec::new();
    for (hello, file) in &hellos {
        let peer = peer(&place);
        peer.send(&hello.bytes(), &[file.as_fd()])
            .expect("not sent");
        let until = Instant::now() + LONG;
        let told = loop {
            match peer.last_reply() {
                None => assert!(Instant::now() < until, "{hello:?} was not answered"),
                told => break told,
            }
            thread::sleep(Duration::from_millis(2));
        };
        assert!(told.is_some_and(|error| error != 0), "{hello:?}: {told:?}");
        peers.push(peer);
    }
    let mut said = receiver.reports("not reported");
    place.start("send", "").fed(b"hello\n".to_vec()).succeeded();
    let received = receiver.end().succeeded();
    assert_eq!(received.stdout, b"hello\n");
    said += &String::from_utf8_lossy(&received.stderr);
    assert_eq!(said.matches("turned away a peer").count(), 5, "{said}");
    assert!(
        !said.contains("sluice doctor"),
        "no fault of this system: {said}"
    );
    assert!(!said.contains(['{', '}']), "text for a debugger: {said}");
}

#[test]
fn silent_peers_delay_nobody() {
    let place = Place::new();
    let receiver = place.receiver("");
    // More than are served at the same time.
    let _silent: Vec<Peer> = (0..50).map(|_| peer(&place)).collect();
    let began = Instant::now();
    place.start("send", "").fed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.end().succeeded().stdout, b"hello\n");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
}

#[test]
fn who_connects_waits_no_longer_than_told_when_too_many_wait_already() {
    let place = Place::new();
    let _listener = Listener::bind(place.socket()).expect("cannot listen");
    let mut waiting = Vec::new();
    while let Ok(socket) = Socket::try_connect(place.socket()) {
        waiting.push(socket);
    }
    for verb in ["send", "recv --connect"] {
        let (verb, arguments) = verb.split_once(' ').unwrap_or((verb, ""));
        let ended = place.start(verb, &format!("{arguments} --wait 1")).end();
        ended.failed(NOBODY_CAME, &["waited 1 s in vain"]);
    }
}

#[test]
fn a_sender_with_a_larger_ring_than_is_allowed_is_turned_away() {
    let place = Place::new();
    let mut receiver = place.receiver("--max-capacity 64K");
    let words = ["refuses this side", "capacity"];
    place
        .start("send", "--capacity 128K")
        .end()
        .failed(1, &words);
    receiver.reports("131072 bytes, and this side allows 65536");
    let sender = place.start("send", "--capacity 64K");
    sender.fed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.end().succeeded().stdout, b"hello\n");
}

/// A side that runs as another user, from a copy of the command that this user can reach.
fn stranger(place: &Place, verb: &str, arguments: &str) -> Side {
    let reachable = place.path().join("sluice");
    if !reachable.exists() {
        // Not by this process: what another thread starts meanwhile would have the file open for writing.
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_sluice"))
            .arg(&reachable)
            .status();
        assert!(copied.expect("no cp").success());
    }
    let like = place.command(verb, arguments);
    let mut command = Command::new(reachable);
    command
        .args(like.get_args())
        .current_dir(place.path())
        .uid(1234)
        .gid(1234)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Side(command.spawn().expect("no process"))
}

fn open_to_all(path: &std::path::Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("no permissions");
}

#[test]
fn a_stranger_is_turned_away_and_the_next_one_served() {
    if !Uid::effective().is_root() {
        // Only root can play somebody else.
        return;
    }
    let place = Place::new();
    let mut receiver = place.receiver("");
    // The socket's mode keeps strangers out before anything else does.
    stranger(&place, "send", "--allow-everyone")
        .end()
        .failed(NO_PERMISSION, &["Permission denied"]);
    open_to_all(&place.socket());
    let words = ["the peer refuses this side", "this user"];
    stranger(&place, "send", "--allow-everyone")
        .end()
        .failed(1, &words);
    receiver.reports("the peer runs as user 1234");
    place.start("send", "").fed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.end().succeeded().stdout, b"hello\n");
}

#[test]
fn who_connects_to_a_stranger_is_told() {
    if !Uid::effective().is_root() {
        return;
    }
    let place = Place::new();
    open_to_all(place.path());
    let receiver = stranger(&place, "recv", "");
    place.until_there();
    let words = ["runs as user 1234", "allow that one"];
    place.start("send", "").end().failed(NO_PERMISSION, &words);
    let sender = place.start("send", "--allow-user 1234");
    sender.fed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.end().succeeded().stdout, b"hello\n");
}

/// As in two containers: the process at the other end has no number that the kernel could tell.
#[test]
fn processes_of_two_pid_namespaces_meet() {
    if !Uid::effective().is_root() {
        return;
    }
    let place = Place::new();
    let receiver = place.receiver("");
    let like = place.command("send", "");
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork"])
        .arg(like.get_program())
        .args(like.get_args())
        .current_dir(place.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let sender = Side(command.spawn().expect("no process"));
    sender.fed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.end().succeeded().stdout, b"hello\n");
}

#[test]
fn a_user_who_is_allowed_may_come() {
    if !Uid::effective().is_root() {
        return;
    }
    for allowed in ["--allow-user 7 --allow-user 1234", "--allow-everyone"] {
        let place = Place::new();
        let receiver = place.receiver(allowed);
        eventually("the socket is not open to others", || {
            fs::metadata(place.socket()).is_ok_and(|socket| socket.mode() & 0o666 == 0o666)
        });
        let sender = stranger(&place, "send", "");
        sender.fed(b"hello\n".to_vec()).succeeded();
        assert_eq!(receiver.end().succeeded().stdout, b"hello\n");
    }
}
