// SPDX-License-Identifier: MIT OR Apache-2.0
//! The behaviours: for each a name and the steps, which command a peer and await its result.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};

const RING: &str = include_str!("../../../spec/conformance/ring.txt");
const DEVICE: &str = include_str!("../../../spec/conformance/device.txt");
const BUS: &str = include_str!("../../../spec/conformance/bus.txt");
const MAP: &str = include_str!("../../../spec/conformance/map.txt");
const DURABLE: &str = include_str!("../../../spec/conformance/durable.txt");
const PIPE: &str = include_str!("../../../spec/conformance/pipe.txt");
const FEED: &str = include_str!("../../../spec/conformance/feed.txt");

/// What carries the rings of ring.txt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    Memfd,
    /// The kernel module, which the behaviours of the other files need, too.
    Module,
}

pub struct Behaviour {
    pub name: String,
    pub steps: Vec<Step>,
}

/// `SIDE COMMAND -> RESULT`; without a result it is awaited by a later step, which has no command.
#[derive(Clone)]
pub struct Step {
    pub side: Side,
    pub command: Option<String>,
    pub result: Option<String>,
}

/// A process of a behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    pub name: &'static str,
    pub peer: Peer,
}

/// Which program is a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    First,
    Second,
    /// This one: it violates the protocol.
    Bad,
    /// The daemon of durable maps.
    Store,
}

const SIDES: [Side; 12] = [
    side("producer", Peer::First),
    side("consumer", Peer::Second),
    side("bad-producer", Peer::Bad),
    side("bad-consumer", Peer::Bad),
    side("sender", Peer::First),
    side("subscriber", Peer::Second),
    side("client", Peer::First),
    side("server", Peer::Second),
    side("writer", Peer::First),
    side("reader", Peer::Second),
    side("another", Peer::First),
    side("store", Peer::Store),
];

const fn side(name: &'static str, peer: Peer) -> Side {
    Side { name, peer }
}

impl Side {
    fn named(name: &str) -> Result<Self> {
        let mut sides = SIDES.into_iter();
        sides
            .find(|side| side.name == name)
            .with_context(|| format!("no side '{name}'"))
    }
}

/// The behaviours of durable maps, which need the daemon.
pub fn durable() -> Result<Vec<Behaviour>> {
    parse(DURABLE)
}

/// The behaviours over a carrier, each with the steps of its set-up.
pub fn behaviours(carrier: Carrier) -> Result<Vec<Behaviour>> {
    let rings = parse(RING)?.into_iter();
    Ok(match carrier {
        Carrier::Memfd => rings.map(over_memfd).collect::<Result<_>>()?,
        Carrier::Module => {
            let on_device = rings.filter(Behaviour::is_of_both_carriers).map(on_device);
            let mut all: Vec<Behaviour> = on_device.collect::<Result<_>>()?;
            for text in [DEVICE, BUS, MAP, PIPE, FEED] {
                all.extend(parse(text)?);
            }
            all
        }
    })
}

const HELLO: &str = "hello";

impl Step {
    fn new(side: Side, command: &str, result: &str) -> Self {
        let some = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        Self {
            side,
            command: some(command),
            result: some(result),
        }
    }

    fn is_hello(&self) -> bool {
        let command = self.command.as_deref().unwrap_or_default();
        command.starts_with(HELLO)
    }
}

impl Behaviour {
    /// The kernel prevents the others on a device ring.
    fn is_of_both_carriers(&self) -> bool {
        let is_of_both = |step: &Step| step.side.peer != Peer::Bad && !step.is_hello();
        self.steps.iter().all(is_of_both)
    }

    /// Whether a program is a side.
    pub fn has(&self, peer: Peer) -> bool {
        self.steps.iter().any(|step| step.side.peer == peer)
    }

    /// The side that sends, or that receives: `good`, or the bad one.
    fn side(&self, good: &str, bad: &str) -> Result<Side> {
        let is_bad = self.steps.iter().any(|step| step.side.name == bad);
        Side::named(if is_bad { bad } else { good })
    }
}

/// The sides open a ring of 4096 bytes.
fn on_device(behaviour: Behaviour) -> Result<Behaviour> {
    let mut steps = Vec::new();
    for side in ["producer", "consumer"] {
        let open = format!("open @name {side} create capacity=4096");
        steps.push(Step::new(Side::named(side)?, &open, "ok"));
    }
    steps.extend(behaviour.steps);
    Ok(Behaviour { steps, ..behaviour })
}

/// The sides connect by a socket. Which side listens differs from one behaviour to the next. The step `hello` of a side has the fields of a
/// hello that differ, and the result of the set-up.
fn over_memfd(behaviour: Behaviour) -> Result<Behaviour> {
    let mut sides = [
        behaviour.side("producer", "bad-producer")?,
        behaviour.side("consumer", "bad-consumer")?,
    ];
    if behaviour.name.len() % 2 == 1 {
        sides.reverse();
    }
    let mut steps = vec![Step::new(sides[0], "listen @path", "ok")];
    let mut results = Vec::new();
    for (side, verb) in sides.into_iter().zip(["accept", "connect @path"]) {
        let mut hellos = behaviour.steps.iter().filter(|step| step.is_hello());
        let hello = hellos.find(|step| step.side == side);
        let fields = hello.and_then(|step| step.command.as_deref()?.strip_prefix(HELLO));
        let result = hello.and_then(|step| step.result.as_deref());
        let command = format!("{verb} {} 4096{}", side.name, fields.unwrap_or_default());
        steps.push(Step::new(side, &command, ""));
        results.push(Step::new(side, "", result.unwrap_or("ok")));
    }
    steps.extend(results);
    steps.extend(behaviour.steps.into_iter().filter(|step| !step.is_hello()));
    Ok(Behaviour { steps, ..behaviour })
}

/// A line that begins with `#` belongs to the file; one that begins with `=` begins a behaviour.
fn parse(text: &str) -> Result<Vec<Behaviour>> {
    let mut behaviours: Vec<Behaviour> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('=') {
            behaviours.push(Behaviour {
                name: name.trim().to_owned(),
                steps: Vec::new(),
            });
            continue;
        }
        let step = parse_step(line).with_context(|| format!("line {}: {line}", number + 1))?;
        let behaviour = behaviours
            .last_mut()
            .context("a step before the first name")?;
        behaviour.steps.push(step);
    }
    Ok(behaviours)
}

fn parse_step(line: &str) -> Result<Step> {
    let Some((order, result)) = line.split_once("->") else {
        bail!("no '->'");
    };
    let order = order.trim();
    let (side, command) = order.split_once(' ').unwrap_or((order, ""));
    Ok(Step::new(Side::named(side)?, command, result))
}

/// What the words that begin with `@` stand for.
#[derive(Default)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.insert(format!("@{name}"), value.to_owned());
    }

    pub fn replace_in(&self, command: &str) -> String {
        let replaced = |text: String, (name, value): (&String, &String)| text.replace(name, value);
        self.0.iter().fold(command.to_owned(), replaced)
    }

    /// Whether a result is what a step expects: a `*` is any word, `a|b` one of two. A variable is any word the first time, and then that one.
    pub fn match_result(&mut self, result: &str, expected: &str) -> bool {
        let (seen, wanted): (Vec<_>, Vec<_>) =
            (result.split(' ').collect(), expected.split(' ').collect());
        seen.len() == wanted.len()
            && std::iter::zip(seen, wanted).all(|(seen, wanted)| match wanted {
                "*" => true,
                name if name.starts_with('@') => {
                    let value = self.0.entry(name.to_owned());
                    value.or_insert_with(|| seen.to_owned()) == seen
                }
                words => words.split('|').any(|word| word == seen),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expect_results(behaviours: &[Behaviour]) {
        for behaviour in behaviours {
            let awaited = behaviour.steps.iter().filter(|step| step.result.is_some());
            assert!(awaited.count() > 0, "{} expects nothing", behaviour.name);
        }
    }

    #[test]
    fn the_behaviours_can_be_read() {
        for carrier in [Carrier::Memfd, Carrier::Module] {
            let behaviours = behaviours(carrier).unwrap();
            assert!(behaviours.len() > 20, "{}", behaviours.len());
            expect_results(&behaviours);
        }
        expect_results(&durable().unwrap());
    }

    #[test]
    fn only_rings_over_memfd_have_sides_that_violate_the_protocol() {
        let has_bad = |behaviour: &Behaviour| behaviour.has(Peer::Bad);
        assert!(behaviours(Carrier::Memfd).unwrap().iter().any(has_bad));
        assert!(!behaviours(Carrier::Module).unwrap().iter().any(has_bad));
    }

    #[test]
    fn a_step_without_a_side_or_an_arrow_is_named() {
        for (text, word) in [
            ("= a\nproducer send 5", "no '->'"),
            ("= a\nnobody send 5 -> ok", "no side"),
            ("producer send 5 -> ok", "before the first name"),
        ] {
            let error = format!("{:#}", parse(text).err().unwrap());
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_star_is_any_word_and_a_bar_separates_alternatives() {
        let matches = |result, expected| Variables::default().match_result(result, expected);
        assert!(matches("sent 17 closed", "sent * closed"));
        assert!(matches("died", "closed|died"));
        assert!(!matches("sent 17", "sent * closed"));
        assert!(!matches("full", "ok"));
    }

    #[test]
    fn a_variable_is_the_word_that_it_was_the_first_time() {
        let mut variables = Variables::default();
        variables.set("name", "ring-1");
        assert_eq!(
            variables.replace_in("open @name create"),
            "open ring-1 create"
        );
        assert!(variables.match_result("5 6", "@id *"));
        assert!(variables.match_result("5", "@id"));
        assert!(!variables.match_result("6", "@id"));
        assert_eq!(
            variables.replace_in("send-to @id a if=@id"),
            "send-to 5 a if=5"
        );
    }
}
