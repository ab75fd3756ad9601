// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library as a peer. docs/abi/conformance.md has the commands and the results.

use std::io::{self, BufRead as _, Write as _};
use std::time::Duration;

use anyhow::Result;
use nix::errno::Errno;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use sluice::ring::{
    Consumer, Listener, Producer, RecvError, SendError, SetupError, Socket, SocketOptions,
};

use crate::bad_peer::BadPeer;
use crate::content;
use crate::process::UNSUPPORTED;

enum Side {
    Producer(Producer),
    Consumer(Consumer),
    Bad(BadPeer),
}

/// Answers commands until the end of the input.
pub fn serve() -> Result<()> {
    let mut served = Served::default();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let result = served.answer(&words);
        writeln!(io::stdout(), "{result}")?;
    }
    Ok(())
}

#[derive(Default)]
struct Served {
    listener: Option<Listener>,
    peer: Option<Peer>,
}

impl Served {
    fn answer(&mut self, words: &[&str]) -> String {
        let done = match *words {
            ["listen", path] => Listener::bind(path)
                .map(|listener| self.listener = Some(listener))
                .map_err(refused),
            ["accept", side, capacity, ref fields @ ..] => match self.listener.take() {
                Some(listener) => self.set_up(listener.accept(), side, capacity, fields),
                None => return UNSUPPORTED.to_owned(),
            },
            ["connect", path, side, capacity, ref fields @ ..] => {
                self.set_up(Socket::connect(path), side, capacity, fields)
            }
            ["die"] => raise(Signal::SIGKILL).map_err(|error| format!("error {error:?}")),
            ["close"] => {
                drop(self.peer.take());
                Ok(())
            }
            ["abort"] => {
                abort(self.peer.take());
                Ok(())
            }
            _ => match &mut self.peer {
                Some(peer) => return peer.execute(words),
                None => return UNSUPPORTED.to_owned(),
            },
        };
        done.err().unwrap_or_else(|| "ok".to_owned())
    }

    fn set_up(
        &mut self,
        socket: Result<Socket, SetupError>,
        side: &str,
        capacity: &str,
        fields: &[&str],
    ) -> Result<(), String> {
        let socket = socket.map_err(refused)?;
        let capacity = capacity.parse().unwrap_or(0);
        let options = SocketOptions::new().capacity(capacity);
        let side = match side {
            "producer" => Side::Producer(options.producer(socket).map_err(refused)?),
            "consumer" => Side::Consumer(options.consumer(socket).map_err(refused)?),
            bad => Side::Bad(BadPeer::set_up(bad, socket.into(), capacity, fields)?),
        };
        self.peer = Some(Peer { side, number: 0 });
        Ok(())
    }
}

fn refused(error: SetupError) -> String {
    let number = error.raw_os_error().unwrap_or(0);
    format!("refused {:?}", Errno::from_raw(number))
}

fn abort(peer: Option<Peer>) {
    match peer.map(|peer| peer.side) {
        Some(Side::Producer(producer)) => producer.abort(),
        Some(Side::Consumer(consumer)) => consumer.abort(),
        other => drop(other),
    }
}

struct Peer {
    side: Side,
    /// Of the next record.
    number: usize,
}

impl Peer {
    fn execute(&mut self, words: &[&str]) -> String {
        if words == ["fork"] {
            return self.call_in_child();
        }
        let result = match &mut self.side {
            Side::Producer(producer) => produce(producer, &mut self.number, words),
            Side::Consumer(consumer) => consume(consumer, &mut self.number, words),
            Side::Bad(bad) => bad.execute(words),
        };
        result.unwrap_or_else(|| UNSUPPORTED.to_owned())
    }

    /// What a call in a child process answers.
    fn call_in_child(&mut self) -> String {
        let _ = io::stdout().flush();
        // SAFETY: this process has one thread.
        match unsafe { fork() } {
            Ok(ForkResult::Child) => {
                let result = match &mut self.side {
                    Side::Producer(producer) => of_send(producer.try_send(&[])),
                    Side::Consumer(consumer) => consumer
                        .try_recv()
                        .map_or_else(|error| of_recv(&error).to_owned(), |_| "ok".to_owned()),
                    Side::Bad(_) => UNSUPPORTED.to_owned(),
                };
                let _ = writeln!(io::stdout(), "{result}");
                let _ = raise(Signal::SIGKILL);
                result
            }
            Ok(ForkResult::Parent { child }) => {
                let _ = waitpid(child, None);
                "forked".to_owned()
            }
            Err(error) => format!("error {error:?}"),
        }
    }
}

/// None: it is no command of a producer.
fn produce(producer: &mut Producer, number: &mut usize, words: &[&str]) -> Option<String> {
    let result = match *words {
        ["send", length] => producer.send(&bytes(*number, length.parse().ok()?)),
        ["send", length, "0"] => producer.try_send(&bytes(*number, length.parse().ok()?)),
        ["send", length, timeout] => producer.send_timeout(
            &bytes(*number, length.parse().ok()?),
            milliseconds(timeout)?,
        ),
        ["place", length, commit] => place(
            producer,
            *number,
            length.parse().ok()?,
            commit.parse().ok()?,
        ),
        ["cancel", length] => {
            return Some(of_send(producer.reserve(length.parse().ok()?).map(drop)));
        }
        ["batch", length, count] => {
            return Some(send_batch(
                producer,
                number,
                length.parse().ok()?,
                count.parse().ok()?,
            ));
        }
        ["stream", count] => return Some(send_stream(producer, number, count.parse().ok()?)),
        ["pending"] => {
            return Some(
                producer
                    .pending()
                    .map_or_else(|error| of_send(Err(error)), |bytes| bytes.to_string()),
            );
        }
        _ => return None,
    };
    *number += usize::from(result.is_ok());
    Some(of_send(result))
}

/// A record too long for the table is one of zeros: it is refused.
fn bytes(number: usize, length: usize) -> Vec<u8> {
    match length <= 1 << 17 {
        true => content::record(number, length).to_vec(),
        false => vec![0; length],
    }
}

fn milliseconds(text: &str) -> Option<Duration> {
    Some(Duration::from_millis(text.parse().ok()?))
}

fn place(
    producer: &mut Producer,
    number: usize,
    length: usize,
    commit: usize,
) -> Result<(), SendError> {
    let mut reservation = producer.reserve(length)?;
    let content = content::record(number, commit.min(length));
    for (place, byte) in content.iter().enumerate() {
        reservation.write_at(place, byte);
    }
    reservation.commit_len(commit);
    Ok(())
}

fn send_batch(producer: &mut Producer, number: &mut usize, length: usize, count: usize) -> String {
    let mut batch = producer.send_batch();
    for _ in 0..count {
        if let Err(error) = batch.send(content::record(*number, length)) {
            return of_send(Err(error));
        }
        *number += 1;
    }
    batch.publish();
    "ok".to_owned()
}

/// How many were sent, and why not all.
fn send_stream(producer: &mut Producer, number: &mut usize, count: usize) -> String {
    let longest = producer.max_record_len();
    for sent in 0..count {
        let record = content::record(*number, content::length(*number, longest));
        if let Err(error) = producer.send(record) {
            return format!("sent {sent} {}", of_send(Err(error)));
        }
        *number += 1;
    }
    format!("sent {count}")
}

fn consume(consumer: &mut Consumer, number: &mut usize, words: &[&str]) -> Option<String> {
    let result = match *words {
        ["recv"] => consumer
            .recv()
            .map(|record| record.map(|record| record.to_vec())),
        ["recv", "0"] => consumer
            .try_recv()
            .map(|record| record.map(|record| record.to_vec())),
        ["recv", timeout] => consumer
            .recv_timeout(milliseconds(timeout)?)
            .map(|record| record.map(|record| record.to_vec())),
        ["recv-into", room] => return Some(receive_into(consumer, number, room.parse().ok()?)),
        ["stream", count] => return Some(receive_stream(consumer, number, count.parse().ok()?)),
        ["pending"] => return Some(consumer.pending().to_string()),
        _ => return None,
    };
    Some(of_record(number, result))
}

fn of_record(number: &mut usize, result: Result<Option<Vec<u8>>, RecvError>) -> String {
    match result {
        Ok(Some(record)) => {
            *number += 1;
            match record == content::record(*number - 1, record.len()) {
                true => format!("record {}", record.len()),
                false => "wrong".to_owned(),
            }
        }
        Ok(None) => "end".to_owned(),
        Err(error) => of_recv(&error),
    }
}

fn receive_into(consumer: &mut Consumer, number: &mut usize, room: usize) -> String {
    let mut buffer = vec![0; room];
    let result = consumer.recv_into(&mut buffer);
    of_record(
        number,
        result.map(|length| length.map(|length| buffer[..length].to_vec())),
    )
}

/// How many were received, and why not all.
fn receive_stream(consumer: &mut Consumer, number: &mut usize, count: usize) -> String {
    let longest = consumer.max_record_len();
    for received in 0..count {
        let expected = content::length(*number, longest);
        let result = consumer
            .recv()
            .map(|record| record.map(|record| record.to_vec()));
        let result = of_record(number, result);
        if result != format!("record {expected}") {
            return format!("received {received} {result}");
        }
    }
    format!("received {count}")
}

fn of_send(result: Result<(), SendError>) -> String {
    let word = match result {
        Ok(()) => "ok",
        Err(SendError::RecordTooLong { .. }) => "too-long",
        Err(SendError::Full) => "full",
        Err(SendError::TimedOut(_)) => "timeout",
        Err(SendError::Closed) => "closed",
        Err(SendError::PeerDied) => "died",
        Err(SendError::ProtocolViolation(_)) => "violation",
        Err(SendError::Forked) => "forked",
        Err(error) => return format!("error {error}"),
    };
    word.to_owned()
}

fn of_recv(error: &RecvError) -> String {
    let word = match error {
        RecvError::BufferTooSmall { len, .. } => return format!("too-small {len}"),
        RecvError::Empty => "empty",
        RecvError::TimedOut(_) => "timeout",
        RecvError::PeerDied => "died",
        RecvError::ProtocolViolation(_) => "violation",
        RecvError::Forked => "forked",
        error => return format!("error {error}"),
    };
    word.to_owned()
}
