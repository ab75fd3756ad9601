// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was sent, stored and received, and whether that is what docs/nats.md promises.

use std::collections::{HashMap, HashSet};

use fastrand::Rng;

/// Violations of one kind that are told.
const TOLD: usize = 5;

/// A message: the number of its sender, and its number there, from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    pub sender: usize,
    pub number: u64,
}

impl Id {
    /// A function of the id, so that a message that is there in part is found.
    pub fn body(self) -> Vec<u8> {
        let mut body = format!("{:02} {:010} ", self.sender, self.number).into_bytes();
        let mut rng = Rng::with_seed(self.number * 100 + self.sender as u64);
        body.extend((0..rng.usize(0..600)).map(|_| rng.u8(..)));
        body
    }

    /// None: no sender has sent this.
    pub fn of(body: &[u8]) -> Option<Self> {
        let number = |from, to| std::str::from_utf8(body.get(from..to)?).ok()?.parse().ok();
        let id = Self {
            sender: number(0, 2)? as usize,
            number: number(3, 13)?,
        };
        (id.body() == body).then_some(id)
    }
}

/// What docs/nats.md promises of the messages of a bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    StoredOnce,
    /// Or lost by the bus.
    StoredAtMostOnce,
    /// Not stored, and received at most once, except around a kill of the bridge that publishes.
    Core,
}

#[derive(Clone, Debug)]
pub struct Sender {
    pub bus: &'static str,
    pub uid: u32,
    pub promise: Promise,
    pub in_flight: u64,
    /// Of each message whose send returned, the milliseconds until it was called.
    pub sent: Vec<u64>,
}

/// The headers of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub bus: String,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    pub bridge: String,
}

#[derive(Clone, Debug)]
pub struct Stored {
    pub id: Option<Id>,
    pub sequence: u64,
    pub origin: Origin,
}

#[derive(Clone, Debug, Default)]
pub struct History {
    pub senders: Vec<Sender>,
    /// The process of the senders, and the bridge that publishes.
    pub pid: u32,
    pub bridge: String,
    /// The stream.
    pub stored: Vec<Stored>,
    /// What came in from the stream, and without one, with the milliseconds.
    pub received: Vec<Option<Id>>,
    pub core: Vec<(Option<Id>, u64)>,
    /// When the bridge that publishes was killed.
    pub kills: Vec<u64>,
}

impl History {
    /// The violations, of each kind a few.
    pub fn check(&self) -> Vec<String> {
        let checks = [
            Self::check_stored,
            Self::check_lost,
            Self::check_origins,
            Self::check_sequences,
            Self::check_order,
            Self::check_received,
            Self::check_core,
        ];
        let told = |check: fn(&Self) -> Vec<String>| check(self).into_iter().take(TOLD);
        checks.into_iter().flat_map(told).collect()
    }

    /// The sender of a message that was sent.
    fn sender(&self, id: Id) -> Option<&Sender> {
        let sender = self.senders.get(id.sender)?;
        (id.number < sender.sent.len() as u64).then_some(sender)
    }

    fn is_stored_message(&self, id: Option<Id>) -> bool {
        let sender = id.and_then(|id| self.sender(id));
        sender.is_some_and(|sender| sender.promise != Promise::Core)
    }

    /// Positions in the stream.
    fn positions(&self) -> HashMap<Id, usize> {
        let positions = self.stored.iter().enumerate().rev();
        let known = |(position, stored): (usize, &Stored)| Some((stored.id?, position));
        positions.filter_map(known).collect()
    }

    fn check_stored(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        for (position, Stored { id, .. }) in self.stored.iter().enumerate() {
            if !self.is_stored_message(*id) {
                found.push(format!("{id:?} at {position} of the stream was never sent"));
            } else if !seen.insert(*id) {
                found.push(format!("{id:?} at {position} is stored a second time"));
            }
        }
        found
    }

    fn check_lost(&self) -> Vec<String> {
        let positions = self.positions();
        let mut found = Vec::new();
        for (number, sender) in self.senders.iter().enumerate() {
            if sender.promise == Promise::StoredOnce {
                let sent = (0..sender.sent.len() as u64).map(|message| Id {
                    sender: number,
                    number: message,
                });
                let lost = sent.filter(|id| !positions.contains_key(id));
                found.extend(lost.map(|id| format!("{id:?} was sent, and is not stored")));
            }
        }
        found
    }

    fn check_origins(&self) -> Vec<String> {
        let mut found = Vec::new();
        for stored in &self.stored {
            let Some(sender) = stored.id.and_then(|id| self.sender(id)) else {
                continue;
            };
            let expected = Origin {
                bus: sender.bus.to_owned(),
                uid: sender.uid,
                gid: 0,
                pid: self.pid,
                bridge: self.bridge.clone(),
            };
            if stored.origin != expected {
                let (id, origin) = (stored.id, &stored.origin);
                found.push(format!("{id:?} has the headers of {origin:?}"));
            }
        }
        found
    }

    /// Of each sender the sequences grow with the numbers, and no two messages of a bus have the same one.
    fn check_sequences(&self) -> Vec<String> {
        let mut messages: Vec<(Id, u64)> = Vec::new();
        let mut owners = HashMap::new();
        let mut found = Vec::new();
        for stored in &self.stored {
            let Some(id) = stored.id else { continue };
            messages.push((id, stored.sequence));
            let owner = owners.entry((&stored.origin.bus, stored.sequence));
            let owner = *owner.or_insert(id);
            if owner != id {
                found.push(format!("{id:?} has the sequence of {owner:?}"));
            }
        }
        messages.sort();
        for pair in messages.windows(2) {
            let ((one, sequence), (next, later)) = (pair[0], pair[1]);
            if one.sender == next.sender && one != next && sequence >= later {
                found.push(format!(
                    "{next:?} has the sequence {later}, after {sequence}"
                ));
            }
        }
        found
    }

    /// After a failure a message is stored after later ones, but not after one that was never in flight with it.
    fn check_order(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (Stored { id, sequence, .. }, last) in self.late() {
            let sender = id.and_then(|id| self.sender(id));
            if sender.is_some_and(|sender| sequence + sender.in_flight <= last) {
                let text = format!("{id:?} with the sequence {sequence} is stored after {last}");
                found.push(text);
            }
        }
        found
    }

    /// Messages that are stored after later ones of their bus, with the highest sequence of these.
    pub fn late(&self) -> Vec<(&Stored, u64)> {
        let mut highest: HashMap<&str, u64> = HashMap::new();
        let mut late = Vec::new();
        for stored in &self.stored {
            let last = highest.entry(&stored.origin.bus).or_default();
            if stored.sequence < *last {
                late.push((stored, *last));
            }
            *last = stored.sequence.max(*last);
        }
        late
    }

    /// What was not acknowledged is delivered again, before what follows it in the stream.
    fn check_received(&self) -> Vec<String> {
        let positions = self.positions();
        let mut next = 0;
        let mut found = Vec::new();
        for id in &self.received {
            match id.and_then(|id| positions.get(&id)) {
                None => found.push(format!("{id:?} came in, and is not stored")),
                Some(position) if *position > next => {
                    found.push(format!("{id:?} at {position} came in before {next}"));
                    next = position + 1;
                }
                Some(position) => next = next.max(position + 1),
            }
        }
        if next < self.stored.len() {
            found.push(format!("what is stored from {next} on did not come in"));
        }
        found
    }

    fn check_core(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut copies: HashMap<Id, usize> = HashMap::new();
        for (id, at) in &self.core {
            let sender = id.and_then(|id| self.sender(id));
            let sender = sender.filter(|sender| sender.promise == Promise::Core);
            let (Some(id), Some(sender)) = (id, sender) else {
                found.push(format!(
                    "{id:?} came in without a stream, and was never sent"
                ));
                continue;
            };
            let sent = sender.sent[id.number as usize];
            let kills = self
                .kills
                .iter()
                .filter(|kill| (sent..=*at).contains(*kill));
            let copies = copies.entry(*id).or_default();
            if *copies > kills.count() {
                found.push(format!("{id:?} came in again without a kill of the bridge"));
            }
            *copies += 1;
        }
        found
    }
}

type Damage = fn(&mut History, &mut Rng);

/// Each makes a correct history an incorrect one; it must have a message of each kind.
pub const DAMAGES: [(&str, Damage); 7] = [
    ("a message of the stream is lost", |history, rng| {
        let at = stored_at(history, rng, Promise::StoredOnce);
        let lost = history.stored.remove(at).id;
        history.received.retain(|id| *id != lost);
    }),
    ("a message did not come in", |history, rng| {
        let at = rng.usize(..history.stored.len());
        let lost = history.stored[at].id;
        history.received.retain(|id| *id != lost);
    }),
    ("a message is stored twice", |history, rng| {
        let at = rng.usize(..history.stored.len());
        let copy = history.stored[at].clone();
        history.stored.push(copy);
    }),
    ("a message was never sent", |history, rng| {
        let at = stored_at(history, rng, Promise::StoredAtMostOnce);
        let id = history.stored[at].id.as_mut();
        id.expect("it was sent").number += 1 << 20;
    }),
    ("a message came in too late", |history, rng| {
        let at = rng.usize(..history.stored.len() - 1);
        let [one, other] = [at, at + 1].map(|at| history.stored[at].id);
        history.received.retain(|id| *id != one);
        let after = history.received.iter().position(|id| *id == other);
        history.received.insert(after.map_or(0, |at| at + 1), one);
    }),
    ("a message has another user", |history, rng| {
        let at = rng.usize(..history.stored.len());
        history.stored[at].origin.uid += 1;
    }),
    ("a message came in again without a kill", |history, rng| {
        let (id, at) = history.core[rng.usize(..history.core.len())];
        history.kills.clear();
        history.core.push((id, at));
    }),
];

/// The position of a random message with this promise.
fn stored_at(history: &History, rng: &mut Rng, promise: Promise) -> usize {
    let has_promise = |stored: &Stored| {
        let sender = stored.id.and_then(|id| history.sender(id));
        sender.is_some_and(|sender| sender.promise == promise)
    };
    let first = rng.usize(..history.stored.len());
    let all = (first..history.stored.len()).chain(0..first);
    all.into_iter()
        .find(|at| has_promise(&history.stored[*at]))
        .expect("the history has such a message")
}
