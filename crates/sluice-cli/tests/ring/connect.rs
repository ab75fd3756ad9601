// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which sides connect, and which are rejected.

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

use crate::support::{LONG, Running, SHORT, TestDir, eventually};

const TIMEOUT: i32 = 8;
/// Longer than the limit of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(6);
const PATH_IN_USE: i32 = 4;
const PERMISSION_DENIED: i32 = 5;

#[test]
fn either_side_may_listen_and_either_may_start_first() {
    let roles = [("--connect", "--listen"), ("--listen", "--connect")];
    for (sending, receiving) in roles {
        for sender_first in [true, false] {
            let dir = TestDir::new();
            let start = |sends| match sends {
                true => dir.start("send", sending),
                false => dir.start("recv", receiving),
            };
            let first = start(sender_first);
            thread::sleep(SHORT);
            let second = start(!sender_first);
            let (sender, receiver) = match sender_first {
                true => (first, second),
                false => (second, first),
            };
            sender.feed(b"hello\n".to_vec()).succeeded();
            assert_eq!(receiver.wait().succeeded().stdout, b"hello\n");
            assert!(!dir.socket().exists());
        }
    }
}

#[test]
fn a_waiting_side_prints_the_command_for_the_other() {
    for (verb, arguments, words) in [
        (
            "recv",
            "",
            "a sender at socket; run 'sluice ring send --socket socket'",
        ),
        (
            "recv",
            "--connect",
            "run 'sluice ring send --listen --socket socket'",
        ),
        (
            "send",
            "",
            "a receiver at socket; run 'sluice ring recv --socket socket'",
        ),
        (
            "send",
            "--listen",
            "run 'sluice ring recv --connect --socket socket'",
        ),
    ] {
        let dir = TestDir::new();
        let arguments = format!("{arguments} --wait 2s");
        let exited = dir.start(verb, &arguments).wait();
        let errors = exited.failed(TIMEOUT, &["timeout after 2s waiting for ", words]);
        let errors = String::from_utf8_lossy(&errors.stderr).into_owned();
        let note = errors.lines().next().expect("it printed nothing");
        assert!(note.starts_with("sluice: waiting for a "), "{note}");
        assert!(note.contains(words), "{note}");
        assert!(!dir.socket().exists());
    }
}

#[test]
fn a_path_with_a_listener_is_in_use_and_left_unchanged() {
    let dir = TestDir::new();
    let receiver = dir.receiver("");
    let words = ["another process listens at socket", "--connect"];
    dir.start("recv", "").wait().failed(PATH_IN_USE, &words);
    dir.start("send", "--listen")
        .wait()
        .failed(PATH_IN_USE, &words);
    dir.start("send", "").feed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.wait().succeeded().stdout, b"hello\n");
}

#[test]
fn a_socket_of_a_killed_process_is_replaced() {
    let dir = TestDir::new();
    let receiver = dir.receiver("");
    receiver.signal(Signal::SIGKILL);
    assert!(!receiver.wait().0.status.success());
    assert!(dir.socket().exists());
    // The connecting side waits until a process listens there again.
    let sender = dir.start("send", "");
    thread::sleep(SHORT);
    let receiver = dir.start("recv", "");
    sender.feed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.wait().succeeded().stdout, b"hello\n");
    assert!(!dir.socket().exists());
}

#[test]
fn a_file_at_the_path_is_left_unchanged() {
    let dir = TestDir::new();
    fs::write(dir.socket(), "precious").expect("cannot write");
    dir.start("recv", "")
        .wait()
        .failed(PATH_IN_USE, &["cannot listen at socket", "choose a path"]);
    dir.start("send", "")
        .wait()
        .failed(1, &["socket exists and is not a socket", "remove it"]);
    assert_eq!(fs::read(dir.socket()).expect("gone"), b"precious");
}

#[test]
fn a_socket_of_another_type_is_left_unchanged() {
    let dir = TestDir::new();
    let _listener = UnixListener::bind(dir.socket()).expect("cannot listen");
    dir.start("recv", "")
        .wait()
        .failed(PATH_IN_USE, &["another process listens at socket"]);
    dir.start("send", "")
        .wait()
        .failed(1, &["cannot connect to socket"]);
    assert!(dir.socket().exists());
}

#[test]
fn an_invalid_path_fails_at_once() {
    let dir = TestDir::new();
    let bad = |verb: &str, path: &str| {
        let mut command = dir.command(verb, "");
        let program = command.get_program().to_owned();
        command = Command::new(program);
        command
            .args(["ring", verb, "--socket", path])
            .current_dir(dir.path());
        let output = command.output().expect("no process");
        crate::support::Exited(output)
    };
    let long = "long".repeat(50);
    for (verb, path, status, words) in [
        ("recv", "no/socket", 1, "cannot listen at no/socket"),
        (
            "send",
            "no/socket",
            1,
            "give a path in a directory of both sides",
        ),
        ("recv", long.as_str(), 1, "cannot listen at longlong"),
        ("send", long.as_str(), 1, "cannot connect to longlong"),
        ("recv", "", 2, "--socket"),
        ("send", "", 2, "--socket"),
    ] {
        bad(verb, path).failed(status, &[words]);
    }
}

#[test]
fn a_missing_numa_node_is_named() {
    let dir = TestDir::new();
    if std::path::Path::new("/sys/devices/system/node").exists() {
        let words = ["no NUMA node 1023", "omit --node"];
        dir.start("send", "--node 1023").wait().failed(1, &words);
    }
}

#[test]
fn an_invalid_capacity_is_named() {
    let dir = TestDir::new();
    let mut receiver = dir.receiver("");
    let words = ["capacity of 536870912 bytes", "to 268435456 bytes"];
    dir.start("send", "--capacity 512M")
        .wait()
        .failed(1, &words);
    // The sender disconnected without a hello.
    receiver.read_errors_until("rejected a peer");
    dir.start("send", "").feed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.wait().succeeded().stdout, b"hello\n");
}

#[test]
fn two_senders_are_rejected() {
    let dir = TestDir::new();
    let listener = dir.start("send", "--listen");
    dir.wait_for_socket();
    let words = ["both sides are the producer"];
    dir.start("send", "")
        .feed(b"lost\n".to_vec())
        .failed(1, &words);
    // The listening side continues.
    let receiver = dir.start("recv", "--connect");
    listener.feed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.wait().succeeded().stdout, b"hello\n");
}

/// A connected peer, before its hello.
fn peer(dir: &TestDir) -> Peer {
    // A socket whose owner does not listen yet refuses connections.
    let mut socket = Socket::connect(dir.socket());
    for _ in 0..100 {
        if socket.is_ok() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
        socket = Socket::connect(dir.socket());
    }
    Peer::from(OwnedFd::from(socket.expect("cannot connect")))
}

/// Hellos of a producer that are invalid, by themselves or with their file, for one reason each.
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
fn every_bad_hello_is_rejected_and_few_are_reported() {
    let dir = TestDir::new();
    let mut receiver = dir.receiver("");
    let hellos = bad_hellos();
    let mut peers = Vec::new();
    for (hello, file) in &hellos {
        let peer = peer(&dir);
        peer.send(&hello.bytes(), &[file.as_fd()])
            .expect("not sent");
        let until = Instant::now() + LONG;
        let reply = loop {
            match peer.last_reply() {
                None => assert!(Instant::now() < until, "{hello:?} was not answered"),
                reply => break reply,
            }
            thread::sleep(Duration::from_millis(2));
        };
        assert!(
            reply.is_some_and(|error| error != 0),
            "{hello:?}: {reply:?}"
        );
        peers.push(peer);
    }
    let mut errors = receiver.read_errors_until("not reported");
    dir.start("send", "").feed(b"hello\n".to_vec()).succeeded();
    let received = receiver.wait().succeeded();
    assert_eq!(received.stdout, b"hello\n");
    errors += &String::from_utf8_lossy(&received.stderr);
    assert_eq!(errors.matches("rejected a peer").count(), 5, "{errors}");
    assert!(
        !errors.contains("sluice doctor"),
        "a problem of the peer is not one of this system: {errors}"
    );
    assert!(
        !errors.contains(['{', '}']),
        "text for a debugger: {errors}"
    );
}

#[test]
fn silent_peers_cause_no_delay() {
    let dir = TestDir::new();
    let receiver = dir.receiver("");
    // More than the limit of concurrent handshakes.
    let _silent: Vec<Peer> = (0..50).map(|_| peer(&dir)).collect();
    let began = Instant::now();
    dir.start("send", "").feed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.wait().succeeded().stdout, b"hello\n");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
}

#[test]
fn a_connecting_side_times_out_when_the_backlog_is_full() {
    let dir = TestDir::new();
    let _listener = Listener::bind(dir.socket()).expect("cannot listen");
    let mut waiting = Vec::new();
    while let Ok(socket) = Socket::try_connect(dir.socket()) {
        waiting.push(socket);
    }
    for verb in ["send", "recv --connect"] {
        let (verb, arguments) = verb.split_once(' ').unwrap_or((verb, ""));
        let exited = dir.start(verb, &format!("{arguments} --wait 1s")).wait();
        exited.failed(TIMEOUT, &["timeout after 1s"]);
    }
}

#[test]
fn a_sender_with_a_too_large_ring_is_rejected() {
    let dir = TestDir::new();
    let mut receiver = dir.receiver("--max-capacity 64K");
    let words = ["rejected this side", "capacity"];
    dir.start("send", "--capacity 128K")
        .wait()
        .failed(1, &words);
    receiver.read_errors_until("131072 bytes, and this side allows 65536");
    let sender = dir.start("send", "--capacity 64K");
    sender.feed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.wait().succeeded().stdout, b"hello\n");
}

/// A side that runs as another user, from a copy of the command that this user can access.
fn as_other_user(dir: &TestDir, verb: &str, arguments: &str) -> Running {
    let reachable = dir.path().join("sluice");
    if !reachable.exists() {
        // Not copied by this process: a child of another thread would inherit the descriptor that is open for writing (ETXTBSY).
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_sluice"))
            .arg(&reachable)
            .status();
        assert!(copied.expect("no cp").success());
    }
    let template = dir.command(verb, arguments);
    let mut command = Command::new(reachable);
    command
        .args(template.get_args())
        .current_dir(dir.path())
        .uid(1234)
        .gid(1234)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Running(command.spawn().expect("no process"))
}

fn open_to_all(path: &std::path::Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("no permissions");
}

#[test]
fn a_disallowed_user_is_rejected_and_the_next_peer_accepted() {
    if !Uid::effective().is_root() {
        // Only root can run the peer as another user.
        return;
    }
    let dir = TestDir::new();
    let mut receiver = dir.receiver("");
    // The mode of the socket rejects other users before the handshake.
    as_other_user(&dir, "send", "--allow-everyone")
        .wait()
        .failed(PERMISSION_DENIED, &["Permission denied"]);
    open_to_all(&dir.socket());
    let words = ["the peer does not allow the user", "--allow-user"];
    as_other_user(&dir, "send", "--allow-everyone")
        .wait()
        .failed(PERMISSION_DENIED, &words);
    receiver.read_errors_until("the peer runs as user 1234");
    dir.start("send", "").feed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.wait().succeeded().stdout, b"hello\n");
}

#[test]
fn a_connecting_side_rejects_a_disallowed_user() {
    if !Uid::effective().is_root() {
        return;
    }
    let dir = TestDir::new();
    open_to_all(dir.path());
    let receiver = as_other_user(&dir, "recv", "");
    dir.wait_for_socket();
    let words = ["runs as user 1234", "allow that user"];
    dir.start("send", "")
        .wait()
        .failed(PERMISSION_DENIED, &words);
    let sender = dir.start("send", "--allow-user 1234");
    sender.feed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.wait().succeeded().stdout, b"hello\n");
}

/// As in two containers: the peer has no process ID in this namespace.
#[test]
fn processes_of_two_pid_namespaces_connect() {
    if !Uid::effective().is_root() {
        return;
    }
    let dir = TestDir::new();
    let receiver = dir.receiver("");
    let template = dir.command("send", "");
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork"])
        .arg(template.get_program())
        .args(template.get_args())
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let sender = Running(command.spawn().expect("no process"));
    sender.feed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.wait().succeeded().stdout, b"hello\n");
}

#[test]
fn an_allowed_user_is_accepted() {
    if !Uid::effective().is_root() {
        return;
    }
    for allowed in ["--allow-user 7 --allow-user 1234", "--allow-everyone"] {
        let dir = TestDir::new();
        let receiver = dir.receiver(allowed);
        eventually("the socket is not open to others", || {
            fs::metadata(dir.socket()).is_ok_and(|socket| socket.mode() & 0o666 == 0o666)
        });
        let sender = as_other_user(&dir, "send", "");
        sender.feed(b"hello\n".to_vec()).succeeded();
        assert_eq!(receiver.wait().succeeded().stdout, b"hello\n");
    }
}

/// A sender repeats a handshake that timed out, as long as it waits.
#[test]
fn a_sender_waits_for_a_receiver_that_is_stopped() {
    let dir = TestDir::new();
    let receiver = dir.receiver("");
    receiver.signal(Signal::SIGSTOP);
    let sender = dir.start("send", "");
    thread::sleep(HANDSHAKE);
    receiver.signal(Signal::SIGCONT);
    sender.feed(b"hello\n".to_vec()).succeeded();
    assert_eq!(receiver.wait().succeeded().stdout, b"hello\n");
}
