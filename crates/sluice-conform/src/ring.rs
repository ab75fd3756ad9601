// SPDX-License-Identifier: MIT OR Apache-2.0
//! A side of a ring, over memfd or on the device.

use std::io::{self, Write as _};

use nix::sys::signal::{Signal, raise};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use sluice::Options;
use sluice::ring::{
    self, Consumer, Producer, RecvError, SendError, SetupError, Socket, SocketOptions,
};

use crate::bad_peer::BadPeer;
use crate::content;
use crate::peer::{Endpoint, Opened};
use crate::process::UNSUPPORTED;
use crate::words::{refused, within};

enum Side {
    Producer(Producer),
    Consumer(Consumer),
    Bad(BadPeer),
}

pub struct Ring {
    side: Side,
    /// Of the next record.
    number: usize,
}

impl Ring {
    /// A side over a socket, which may violate the protocol.
    pub fn over(
        socket: Result<Socket, SetupError>,
        side: &str,
        options: SocketOptions,
        fields: &[&str],
    ) -> Opened {
        let socket = socket.map_err(|error| refused(error.raw_os_error()))?;
        match side {
            "producer" => Self::boxed(options.producer(socket).map(Side::Producer)),
            "consumer" => Self::boxed(options.consumer(socket).map(Side::Consumer)),
            bad => {
                let bad = BadPeer::set_up(bad, socket.into(), fields)?;
                Self::boxed(Ok(Side::Bad(bad)))
            }
        }
    }

    /// A side of a ring on the device.
    pub fn open(options: Options<ring::Ring>, side: &str) -> Opened {
        Self::boxed(match side {
            "producer" => options.producer().map(Side::Producer),
            _ => options.consumer().map(Side::Consumer),
        })
    }

    fn boxed(side: Result<Side, SetupError>) -> Opened {
        let side = side.map_err(|error| refused(error.raw_os_error()))?;
        Ok(Box::new(Self { side, number: 0 }))
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

impl Endpoint for Ring {
    fn execute(&mut self, words: &[&str]) -> Option<String> {
        if words == ["fork"] {
            return Some(self.call_in_child());
        }
        match &mut self.side {
            Side::Producer(producer) => produce(producer, &mut self.number, words),
            Side::Consumer(consumer) => consume(consumer, &mut self.number, words),
            Side::Bad(bad) => bad.execute(words),
        }
    }

    fn abort(self: Box<Self>) {
        match self.side {
            Side::Producer(producer) => producer.abort(),
            Side::Consumer(consumer) => consumer.abort(),
            Side::Bad(bad) => drop(bad),
        }
    }
}

/// None: it is no command of a producer.
fn produce(producer: &mut Producer, number: &mut usize, words: &[&str]) -> Option<String> {
    let result = match *words {
        ["send", length, ref time @ ..] => {
            let record = bytes(*number, length.parse().ok()?);
            within!(time, producer, send | try_send | send_timeout(&record))
        }
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
        ["recv", ref time @ ..] => {
            let received = within!(time, consumer, recv | try_recv | recv_timeout());
            received.map(|record| record.map(|record| record.to_vec()))
        }
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
        Err(SendError::Destroyed) => "destroyed",
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
        RecvError::Destroyed => "destroyed",
        RecvError::ProtocolViolation(_) => "violation",
        RecvError::Forked => "forked",
        error => return format!("error {error}"),
    };
    word.to_owned()
}
