// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rule of the configuration: a map, and the bucket that has the same entries.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sluice::map;
use sluice::{Map, Name, Scope};
use toml::Spanned;

use crate::bus_rule::Permissions;
use crate::channel::{self, Identity};
use crate::config::check_token;
use crate::config_error::Mistake;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapRule {
    name: Spanned<String>,
    scope: Option<PathBuf>,
    bucket: Spanned<String>,
    direction: Direction,
    /// Entries keep their times to live on the other side.
    ttl: Option<Spanned<bool>>,
    /// Not possible; for the error.
    allow: Option<Spanned<toml::Value>>,
    create: Option<Create>,
}

/// Which side is the writer.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The map.
    Out,
    /// The bucket.
    In,
    Both,
}

/// How a map is created that does not exist.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    capacity: Option<u64>,
    permissions: Option<Permissions>,
}

impl MapRule {
    pub fn check(&self) -> Result<(), Mistake> {
        let name = self.name.get_ref();
        if name.chars().any(char::is_control) || Name::new(name).is_err() {
            let text =
                "no map has this name; write 1 to 63 bytes without '/' and control characters";
            return Err(Mistake::at(self.name.span(), text));
        }
        if let Some(text) = channel::scope_error(self.scope()) {
            return Err(Mistake::at(self.name.span(), text));
        }
        check_token("bucket", &self.bucket, 255)?;
        if let Some(allow) = &self.allow {
            let text = "the kernel does not tell who has set an entry; remove allow: the permissions of the map decide who may";
            return Err(Mistake::at(allow.span(), text));
        }
        match &self.ttl {
            Some(ttl) if self.direction == Direction::In => Err(Mistake::at(
                ttl.span(),
                "the map gets the times to live of the bucket in any case; remove ttl",
            )),
            _ => Ok(()),
        }
    }

    pub fn name(&self) -> &str {
        self.name.get_ref()
    }

    pub fn scope(&self) -> Option<&Path> {
        self.scope.as_deref()
    }

    pub fn bucket(&self) -> &str {
        self.bucket.get_ref()
    }

    pub fn direction(&self) -> Direction {
        self.direction
    }

    pub fn is_out(&self) -> bool {
        self.direction != Direction::In
    }

    pub fn is_in(&self) -> bool {
        self.direction != Direction::Out
    }

    pub fn keeps_time_to_live(&self) -> bool {
        self.ttl.as_ref().is_none_or(|ttl| *ttl.get_ref())
    }

    /// The map, for messages.
    pub fn channel(&self) -> String {
        channel::text(self.name(), self.scope())
    }

    /// How the map is opened. The directory of the scope is opened each time: a cgroup that was removed may exist again.
    pub fn map(&self) -> sluice::Result<map::Options> {
        let mut map = Map::named(self.name());
        if let Some(scope) = &self.scope {
            map = map.scope(Scope::at(scope)?);
        }
        let Some(create) = &self.create else {
            return Ok(map);
        };
        map = map.create(true).capacity(create.capacity.unwrap_or(0));
        if let Some(Permissions(bits)) = create.permissions {
            map = map.permissions(bits);
        }
        Ok(map)
    }
}

/// Whether the rules contradict each other.
pub fn check_all(rules: &[MapRule]) -> Result<(), Mistake> {
    let mut maps = BTreeSet::new();
    for (position, rule) in rules.iter().enumerate() {
        rule.check()?;
        let before = &rules[..position];
        if !maps.insert(Identity::new(rule.name(), rule.scope())) {
            return Err(Mistake::at(
                rule.name.span(),
                format!(
                    "{} has a rule already; a map has one bucket",
                    rule.channel()
                ),
            ));
        }
        // A map that is the writer deletes what it does not have.
        let is_only_writer = |one: &MapRule, other: &MapRule| {
            one.direction == Direction::Out && other.is_out() && one.bucket() == other.bucket()
        };
        if before
            .iter()
            .any(|other| is_only_writer(rule, other) || is_only_writer(other, rule))
        {
            return Err(Mistake::at(
                rule.bucket.span(),
                format!(
                    "the bucket {} has another map as its writer; write direction = \"both\" in both rules",
                    rule.bucket()
                ),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::tests::{HEAD, error, parse};

    fn with_rules(rules: &[&str]) -> String {
        let rule = |lines: &&str| format!("[[map]]\n{lines}\n");
        format!("{HEAD}{}", rules.iter().map(rule).collect::<String>())
    }

    #[test]
    fn an_error_has_its_line_and_what_to_write() {
        let all = "name = \"a\"\ndirection = \"out\"\nbucket = \"b\"";
        for (rules, line, words) in [
            (
                vec!["name = \"a/b\"\ndirection = \"in\"\nbucket = \"b\""],
                4,
                "1 to 63 bytes",
            ),
            (
                vec!["name = \"a\"\ndirection = \"up\"\nbucket = \"b\""],
                5,
                "`both`",
            ),
            (
                vec!["name = \"a\"\ndirection = \"in\"\nbucket = \"b.c\""],
                6,
                "no bucket",
            ),
            (
                vec![&format!("{all}\nallow = {{ uid = [0] }}")],
                7,
                "permissions of the map",
            ),
            (
                vec![&format!("{all}\nsubject = \"a\"")],
                7,
                "unknown field `subject`",
            ),
            (
                vec![&format!("{}\nttl = false", all.replace("out", "in"))],
                7,
                "remove ttl",
            ),
            (vec![all, all], 8, "has a rule already"),
            (
                vec![all, &all.replace("\"a\"", "\"c\"")],
                10,
                "direction = \"both\"",
            ),
            (
                vec![all, &all.replace("\"a\"", "\"c\"").replace("out", "both")],
                10,
                "direction = \"both\"",
            ),
        ] {
            let error = error(&with_rules(&rules));
            assert!(
                error.starts_with(&format!("bridge.toml:{line}: ")),
                "{error}"
            );
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn the_example_of_the_page_is_valid() {
        let page = include_str!("../../../docs/nats.md");
        let mut examples = page.split("```toml\n");
        let example = examples
            .find(|example| example.contains("name = \"sessions\""))
            .unwrap();
        let (example, _) = example.split_once("```").unwrap();
        let config = parse(&format!("{HEAD}{example}"));
        let rule = &config.maps[0];
        assert_eq!((rule.name(), rule.bucket()), ("sessions", "sessions"));
        assert!(rule.is_in() && rule.is_out() && rule.keeps_time_to_live());
    }

    #[test]
    fn several_maps_may_have_one_bucket() {
        let all = "name = \"a\"\ndirection = \"both\"\nbucket = \"b\"";
        for direction in ["both", "in"] {
            let other = all.replace("\"a\"", "\"c\"").replace("both", direction);
            let config = parse(&with_rules(&[all, &other]));
            assert_eq!(config.maps.len(), 2);
        }
    }
}
