// SPDX-License-Identifier: MIT OR Apache-2.0
//! The behaviours: for each a name and the steps, which command a peer and await its result.

use anyhow::{Context as _, Result, bail};

pub const RING: &str = include_str!("../../../spec/conformance/ring.txt");

pub struct Behaviour {
    pub name: String,
    pub steps: Vec<Step>,
}

/// `SIDE COMMAND -> RESULT`; without a result it is awaited by a later step, which has no command.
pub struct Step {
    pub side: Side,
    pub command: Option<String>,
    /// `*` stands for any word.
    pub result: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Producer,
    Consumer,
    /// It violates the protocol.
    BadProducer,
    BadConsumer,
}

impl Side {
    pub fn sends(self) -> bool {
        matches!(self, Self::Producer | Self::BadProducer)
    }

    pub fn is_bad(self) -> bool {
        matches!(self, Self::BadProducer | Self::BadConsumer)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Consumer => "consumer",
            Self::BadProducer => "bad-producer",
            Self::BadConsumer => "bad-consumer",
        }
    }
}

/// What is special about the set-up of a side.
pub struct Hello<'a> {
    /// As in ` version=2`: what the hello of a bad side has.
    pub fields: &'a str,
    pub result: &'a str,
}

impl Behaviour {
    /// The side of the producer, or of the consumer.
    pub fn side(&self, sends: bool) -> Side {
        let mut sides = self.steps.iter().map(|step| step.side);
        let found = sides.find(|side| side.sends() == sends);
        found.unwrap_or(if sends {
            Side::Producer
        } else {
            Side::Consumer
        })
    }

    /// Its step `hello`, if it has one.
    pub fn hello(&self, sends: bool) -> Option<Hello<'_>> {
        let mut steps = self.steps.iter().filter(|step| step.side.sends() == sends);
        steps.find_map(|step| {
            let fields = step.command.as_deref()?.strip_prefix(HELLO)?;
            let result = step.result.as_deref()?;
            Some(Hello { fields, result })
        })
    }

    pub fn after_set_up(&self) -> impl Iterator<Item = &Step> {
        let is_hello = |step: &&Step| {
            step.command
                .as_deref()
                .is_some_and(|command| command.starts_with(HELLO))
        };
        self.steps.iter().filter(move |step| !is_hello(step))
    }
}

const HELLO: &str = "hello";

/// A line that begins with `#` belongs to the file; one that begins with `=` begins a behaviour.
pub fn parse(text: &str) -> Result<Vec<Behaviour>> {
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
    let (order, result) = line.split_once("->").context("no '->'")?;
    let order = order.trim();
    let (side, command) = order.split_once(' ').unwrap_or((order, ""));
    let side = match side {
        "producer" => Side::Producer,
        "consumer" => Side::Consumer,
        "bad-producer" => Side::BadProducer,
        "bad-consumer" => Side::BadConsumer,
        _ => bail!("no side '{side}'"),
    };
    let some = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    Ok(Step {
        side,
        command: some(command),
        result: some(result),
    })
}

/// Whether a result is what a step expects.
pub fn matches(result: &str, expected: &str) -> bool {
    let (mut seen, mut wanted) = (result.split(' '), expected.split(' '));
    loop {
        match (seen.next(), wanted.next()) {
            (None, None) => return true,
            (Some(_), Some("*")) => {}
            (Some(seen), Some(wanted)) if wanted.split('|').any(|word| word == seen) => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_behaviours_can_be_read() {
        let behaviours = parse(RING).unwrap();
        assert!(behaviours.len() > 20, "{}", behaviours.len());
        for behaviour in &behaviours {
            let awaited = behaviour.steps.iter().filter(|step| step.result.is_some());
            assert!(awaited.count() > 0, "{} expects nothing", behaviour.name);
        }
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
        assert!(matches("sent 17 closed", "sent * closed"));
        assert!(matches("died", "closed|died"));
        assert!(!matches("sent 17", "sent * closed"));
        assert!(!matches("full", "ok"));
    }
}
