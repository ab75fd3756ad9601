// SPDX-License-Identifier: MIT OR Apache-2.0
//! An endpoint of a bus: a sender, a subscriber or both, a client, or a server.

use nix::unistd::{getegid, geteuid};
use sluice::bus::{
    self, Client, Header, MappedSubscriber, Message, OpenError, Options, Policy, RecvError,
    Request, SendError, Sender, Server, Subscriber,
};

use crate::peer::{Endpoint, Opened};
use crate::words::{self, Settings, failed, refused, within};

enum End {
    /// At least one of the two.
    Open(Option<Sender>, Option<Subscriber>),
    Mapped(Box<MappedSubscriber>),
    Client(Client),
    /// With its last request, unless that has a reply.
    Server(Server, Option<Request>),
}

pub struct Bus {
    end: End,
    /// The credentials of the sender of the last message.
    from: String,
}

impl Bus {
    /// None: there is no such endpoint.
    pub fn open(name: &str, side: &str, settings: Settings<'_>) -> Option<Opened> {
        let options = options(name, settings)?;
        let opened = match side {
            "sender" => options.sender().map(|sender| End::Open(Some(sender), None)),
            "subscriber" => options
                .subscriber()
                .map(|subscriber| End::Open(None, Some(subscriber))),
            "endpoint" => options
                .endpoint()
                .map(|(sender, subscriber)| End::Open(Some(sender), Some(subscriber))),
            "mapped" => options
                .mapped_subscriber()
                .map(|subscriber| End::Mapped(Box::new(subscriber))),
            "client" => options.client().map(End::Client),
            "server" => options.server().map(|server| End::Server(server, None)),
            _ => return None,
        };
        Some(Self::boxed(opened))
    }

    fn boxed(opened: Result<End, OpenError>) -> Opened {
        let end = opened.map_err(|error| refused(error.raw_os_error()))?;
        let from = String::new();
        Ok(Box::new(Self { end, from }))
    }

    fn id(&self) -> Option<u64> {
        match &self.end {
            End::Open(Some(sender), _) => Some(sender.id()),
            End::Open(None, subscriber) => subscriber.as_ref().map(Subscriber::id),
            End::Mapped(subscriber) => Some(subscriber.id()),
            End::Client(client) => Some(client.id()),
            End::Server(server, _) => Some(server.id()),
        }
    }
}

/// None: a mode or a policy does not exist.
fn options(name: &str, settings: Settings<'_>) -> Option<Options> {
    let options = settings
        .apply(bus::Bus::named(name))
        .mappable(settings.has("mappable"));
    let mut options = match settings.text("mode") {
        None => options,
        Some("multicast") => options.multicast(),
        Some("unicast") => options.unicast(),
        Some(_) => return None,
    };
    if let Some(names) = settings.text("policies") {
        let policies: Option<bus::Policies> = names.split('+').map(policy).collect();
        options = options.policies(policies?);
    }
    if let Some(name) = settings.text("policy") {
        options = options.policy(policy(name)?);
    }
    Some(options.limit(settings.number("limit").unwrap_or(0)))
}

fn policy(name: &str) -> Option<Policy> {
    Some(match name {
        "drop" => Policy::Drop,
        "block" => Policy::Block,
        "evict" => Policy::Evict,
        _ => return None,
    })
}

impl Endpoint for Bus {
    fn execute(&mut self, words: &[&str]) -> Option<String> {
        if words == ["whoami"] {
            let (pid, uid, gid) = (std::process::id(), geteuid(), getegid());
            return Some(format!("{} {pid} {uid} {gid}", self.id()?));
        }
        if words == ["from"] {
            return Some(self.from.clone());
        }
        match &mut self.end {
            End::Open(sender, subscriber) => {
                let sent = sender.as_ref().and_then(|sender| send(sender, words));
                sent.or_else(|| receive(subscriber.as_mut()?, &mut self.from, words))
            }
            End::Mapped(subscriber) => receive_in_place(subscriber, words),
            End::Client(client) => call(client, words),
            End::Server(server, request) => serve(server, request, words),
        }
    }
}

fn send(sender: &Sender, words: &[&str]) -> Option<String> {
    let sent = match *words {
        ["send", word, ref time @ ..] => {
            let message = words::bytes(word);
            within!(time, sender, send | try_send | send_timeout(&message))
        }
        ["send-to", id, word] => sender.try_send_to(id.parse().ok()?, &words::bytes(word)),
        ["batch", word, count] => {
            return Some(send_batch(sender, &words::bytes(word), count.parse().ok()?));
        }
        _ => return None,
    };
    Some(of_send(sent))
}

/// Without waiting.
fn send_batch(sender: &Sender, message: &[u8], count: u64) -> String {
    for sent in 0..count {
        if let Err(error) = sender.try_send(message) {
            return format!("sent {sent} {}", of_send(Err(error)));
        }
    }
    format!("sent {count}")
}

fn of_send(sent: Result<(), SendError>) -> String {
    match sent {
        Ok(()) => "ok".to_owned(),
        Err(error) => failed(error.raw_os_error(), "full"),
    }
}

fn receive(subscriber: &mut Subscriber, from: &mut String, words: &[&str]) -> Option<String> {
    let result = match *words {
        ["recv", ref time @ ..] => {
            let received = within!(time, subscriber, recv | try_recv | recv_timeout());
            received.map(|message| of_message(&message, from))
        }
        ["recv-into", room] => {
            let mut buffer = vec![0; room.parse().ok()?];
            let received = subscriber.recv_into(&mut buffer);
            received.map(|header| of_bytes(&header, &buffer[..header.len]))
        }
        ["take", count] => receive_many(subscriber, Some(count.parse().ok()?)),
        ["drain"] => receive_many(subscriber, None),
        _ => return None,
    };
    Some(result.unwrap_or_else(|error| of_recv(&error)))
}

fn of_message(message: &Message<'_>, from: &mut String) -> String {
    let header = message.header();
    let pid = header.pid.unwrap_or(0);
    *from = format!("{} {pid} {} {}", header.sender, header.uid, header.gid);
    of_bytes(header, message.bytes())
}

fn of_bytes(header: &Header, bytes: &[u8]) -> String {
    let word = words::word(bytes);
    match header.lost {
        0 => format!("message {word}"),
        lost => format!("message {word} lost {lost}"),
    }
}

/// So many, or those that there are.
fn receive_many(subscriber: &mut Subscriber, count: Option<u64>) -> Result<String, RecvError> {
    let (mut received, mut lost) = (0, 0);
    while count.is_none_or(|count| received < count) {
        let next = match count {
            Some(_) => subscriber.recv(),
            None => subscriber.try_recv(),
        };
        match next {
            Ok(message) => lost += message.lost,
            Err(RecvError::Empty) => break,
            Err(error) => return Err(error),
        }
        received += 1;
    }
    Ok(match lost {
        0 => format!("received {received}"),
        lost => format!("received {received} lost {lost} of {}", received + lost),
    })
}

fn receive_in_place(subscriber: &mut MappedSubscriber, words: &[&str]) -> Option<String> {
    let result = match *words {
        ["recv", ref time @ ..] => {
            let received = within!(time, subscriber, recv | try_recv | recv_timeout());
            received.map(|message| format!("message {}", words::word(&message.bytes().to_vec())))
        }
        ["release"] => subscriber.release().map(|()| "ok".to_owned()),
        _ => return None,
    };
    Some(result.unwrap_or_else(|error| of_recv(&error)))
}

fn of_recv(error: &RecvError) -> String {
    match error {
        RecvError::BufferTooSmall { len, .. } => format!("too-small {len}"),
        error => failed(error.raw_os_error(), "empty"),
    }
}

fn call(client: &mut Client, words: &[&str]) -> Option<String> {
    let ["call", word, ref time @ ..] = *words else {
        return None;
    };
    let request = words::bytes(word);
    let replied = match words::time(time) {
        None => client.call(&request),
        Some(time) => client.call_timeout(&request, time),
    };
    Some(match replied {
        Ok(reply) => format!("reply {}", words::word(reply.bytes())),
        Err(error) => failed(error.raw_os_error(), "full"),
    })
}

fn serve(server: &mut Server, request: &mut Option<Request>, words: &[&str]) -> Option<String> {
    match *words {
        ["request", ref time @ ..] => {
            let received = within!(time, server, recv | try_recv | recv_timeout());
            Some(match received {
                Ok(received) => {
                    let word = words::word(received.bytes());
                    *request = Some(received);
                    format!("request {word}")
                }
                Err(error) => of_recv(&error),
            })
        }
        ["reply", word] => Some(of_send(request.take()?.reply(&words::bytes(word)))),
        _ => None,
    }
}
