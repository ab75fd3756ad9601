// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration file. docs/nats.md describes its keys.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use sluice_metrics::Address;
use toml::Spanned;

use crate::bus_rule::BusRule;
use crate::channel::Identity;
use crate::config_error::{ConfigError, Mistake};
use crate::engine::nats;
use crate::map_rule::{self, MapRule};

/// Of the id of a bridge, which is a part of message ids and of the names of consumers.
const ID_MAX: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Names this bridge in message ids and in the path of a message; unlike that of any other bridge of the servers.
    id: Spanned<String>,
    pub server: Server,
    /// Where metrics are served.
    #[serde(default)]
    metrics: Option<Spanned<String>>,
    #[serde(default, rename = "bus")]
    pub buses: Vec<BusRule>,
    #[serde(default, rename = "map")]
    pub maps: Vec<MapRule>,
}

/// How to connect.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    pub urls: Spanned<Vec<String>>,
    pub user: Option<String>,
    /// Files, so that no secret is in the configuration.
    pub password: Option<PathBuf>,
    pub nkey: Option<PathBuf>,
    pub credentials: Option<PathBuf>,
    /// Of those who sign the certificates of servers. Default: those of the system.
    pub ca: Option<PathBuf>,
    /// Of this client, with its key.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

impl Config {
    pub fn read(path: &Path) -> Result<Self> {
        let file = path.display().to_string();
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read {file}; give the configuration with --config"))?;
        Ok(Self::parse(&file, &text)?)
    }

    /// `file` is for errors only.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        Self::parse_text(text).map_err(|mistake| mistake.in_file(file, text))
    }

    fn parse_text(text: &str) -> Result<Self, Mistake> {
        let config: Self = toml::from_str(text)?;
        check_token("id", &config.id, ID_MAX)?;
        config.server.check()?;
        config.check_metrics()?;
        let mut channels = BTreeSet::new();
        for rule in &config.buses {
            rule.check()?;
            if !channels.insert(Identity::new(rule.name(), rule.scope())) {
                return Err(Mistake::at(
                    rule.place(),
                    format!(
                        "{} has a rule already; write direction = \"both\" there, or one subject for all",
                        rule.channel()
                    ),
                ));
            }
        }
        map_rule::check_all(&config.maps)?;
        Ok(config)
    }

    pub fn id(&self) -> &str {
        self.id.get_ref()
    }

    pub fn metrics(&self) -> Option<Address> {
        self.metrics.as_ref()?.get_ref().parse().ok()
    }

    fn check_metrics(&self) -> Result<(), Mistake> {
        let Some(metrics) = &self.metrics else {
            return Ok(());
        };
        let parsed = metrics.get_ref().parse::<Address>();
        parsed
            .map(drop)
            .map_err(|text| Mistake::at(metrics.span(), text))
    }
}

impl Server {
    fn check(&self) -> Result<(), Mistake> {
        let place = self.urls.span();
        let urls = self.urls.get_ref();
        let is_url = |url: &String| {
            let rest = url
                .strip_prefix("nats://")
                .or_else(|| url.strip_prefix("tls://"));
            rest.is_some_and(|rest| !rest.is_empty() && !rest.contains('@')) && nats::is_server(url)
        };
        if urls.is_empty() || !urls.iter().all(is_url) {
            let text = "write the servers as [\"tls://HOST:4222\"] or [\"nats://HOST:4222\"], without passwords";
            return Err(Mistake::at(place, text));
        }
        let names_tls = [&self.ca, &self.certificate]
            .iter()
            .any(|file| file.is_some());
        if names_tls && !self.uses_tls() {
            let text = "ca and certificate are for TLS; write all urls with tls://, or remove them";
            return Err(Mistake::at(place, text));
        }
        let text = self.incomplete();
        text.map_or(Ok(()), |text| Err(Mistake::at(place, text)))
    }

    /// What is missing, or too much.
    fn incomplete(&self) -> Option<&'static str> {
        let files = [
            &self.password,
            &self.nkey,
            &self.credentials,
            &self.ca,
            &self.certificate,
            &self.key,
        ];
        // What is not a path may be a secret, which no message repeats.
        if files.into_iter().flatten().any(|file| !file.is_absolute()) {
            return Some(
                "password, nkey, credentials, ca, certificate and key are files; write their paths from / on",
            );
        }
        if self.user.is_some() != self.password.is_some() {
            return Some("a user needs a password: write both, user and password, which is a file");
        }
        if self.certificate.is_some() != self.key.is_some() {
            return Some("a certificate needs its key: write both, certificate and key");
        }
        let ways = [&self.password, &self.nkey, &self.credentials];
        (ways.iter().filter(|way| way.is_some()).count() > 1).then_some(
            "a client authenticates itself in one way: write credentials, nkey, or user and password",
        )
    }

    /// All connections are encrypted.
    pub fn uses_tls(&self) -> bool {
        let urls = self.urls.get_ref();
        urls.iter().all(|url| url.starts_with("tls://"))
    }
}

/// A part of names at the server, where dots and wildcards have a meaning.
pub fn check_token(key: &str, value: &Spanned<String>, max: usize) -> Result<(), Mistake> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    let text = value.get_ref();
    match (1..=max).contains(&text.len()) && text.chars().all(is_letter) {
        true => Ok(()),
        false => Err(Mistake::at(
            value.span(),
            format!("'{text}' is no {key}; write 1 to {max} of A-Z, a-z, 0-9, '-' and '_'"),
        )),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::bus_rule::Full;
    use crate::engine::nats::NatsEngine;

    pub const HEAD: &str = "id = \"a\"\nserver = { urls = [\"nats://127.0.0.1:4222\"] }\n";

    pub fn parse(text: &str) -> Config {
        Config::parse("bridge.toml", text).unwrap()
    }

    pub fn error(text: &str) -> String {
        Config::parse("bridge.toml", text).unwrap_err().to_string()
    }

    /// The configuration with a server that has these lines, too.
    fn server(lines: &str) -> String {
        format!("id = \"a\"\n[server]\nurls = [\"nats://127.0.0.1:4222\"]\n{lines}\n")
    }

    /// The configuration with a rule that consists of these lines, from line 4 on.
    fn with_rule(lines: &str) -> String {
        format!("{HEAD}[[bus]]\n{lines}\n")
    }

    pub fn rule(lines: &str) -> BusRule {
        let config = parse(&with_rule(lines));
        config.buses.into_iter().next().unwrap()
    }

    #[test]
    fn defaults_are_those_of_the_page() {
        let rule = rule("name = \"orders\"\ndirection = \"out\"\nsubject = \"orders\"");
        assert_eq!((rule.in_flight(), rule.in_flight_bytes()), (256, 4 << 20));
        assert_eq!((rule.full(), rule.stream()), (Full::Block, None));
        assert!(rule.permits(1, 2) && rule.is_out() && !rule.is_in());
        assert_eq!(rule.consumer("a"), "sluice-a=orders");
    }

    #[test]
    fn the_example_of_the_page_is_valid() {
        let page = include_str!("../../../docs/nats.md");
        let (_, example) = page.split_once("```toml\n").unwrap();
        let (example, _) = example.split_once("```").unwrap();
        let config = Config::parse("nats.md", example).unwrap();
        assert_eq!(config.buses.len(), 2);
        assert!(config.buses[0].permits(1001, 5) && !config.buses[0].permits(0, 0));
    }

    #[test]
    fn an_error_has_its_line_and_what_to_write() {
        let bus = "name = \"orders\"\n";
        let all = "name = \"orders\"\ndirection = \"in\"\nsubject = \"orders\"\n";
        for (text, line, words) in [
            (
                "id = \"a b\"\nserver = { urls = [\"nats://a\"] }".to_owned(),
                1,
                "write 1 to 64",
            ),
            (
                "id = \"a\"\n[server]\nurls = [\"a:4222\"]".to_owned(),
                3,
                "nats://HOST",
            ),
            (
                "id = \"a\"\nmetrics = \"9751\"\nserver = { urls = [\"nats://a\"] }".to_owned(),
                2,
                "give HOST:PORT",
            ),
            (
                "id = \"a\"\n[server]\nurls = [\"nats://\"]".to_owned(),
                3,
                "nats://HOST",
            ),
            (
                "id = \"a\"\n[server]\nurls = [\"nats://a:99999\"]".to_owned(),
                3,
                "nats://HOST",
            ),
            (server("user = \"a\""), 3, "write both"),
            (
                server("user = \"a\"\npassword = \"secret\""),
                3,
                "paths from / on",
            ),
            (server("user = \"a\"\npassword = 5"), 5, "path"),
            (
                "id = \"a\"\n[server]\nurls = \"nats://a:secret@b\"".to_owned(),
                3,
                "a sequence",
            ),
            (
                "id = \"a\"\nserver = \"nats://secret, expected @b\"".to_owned(),
                2,
                "write struct Server",
            ),
            (server("certificate = \"/a\"\nkey = \"/b\""), 3, "for TLS"),
            (
                server("credentials = \"/a\"\nnkey = \"/b\""),
                3,
                "in one way",
            ),
            (
                format!("{HEAD}[[bus]]\nnane = \"orders\""),
                4,
                "unknown field `nane`",
            ),
            (
                with_rule(&format!("{bus}direction = \"up\"\nsubject = \"a\"")),
                5,
                "`both`",
            ),
            (
                with_rule(&format!("{bus}direction = \"out\"\nsubject = \"a.>\"")),
                6,
                "write it out",
            ),
            (
                with_rule(&format!("{bus}direction = \"in\"\nsubject = \">\"")),
                6,
                "or write stream",
            ),
            (
                with_rule("name = \"a/b\"\ndirection = \"in\"\nsubject = \"a\""),
                4,
                "1 to 63 bytes",
            ),
            (with_rule(&format!("{all}full = \"drop\"")), 7, "remove it"),
            (
                with_rule(&format!("{all}allow = {{ uid = [1] }}")),
                7,
                "remove it",
            ),
            (with_rule(&format!("{all}stream = \"a.b\"")), 7, "no stream"),
            (
                with_rule(&format!("{all}consumer = \"a\"")),
                7,
                "write stream",
            ),
            (
                with_rule(&format!("{all}in_flight = 0")),
                7,
                "from 1 to 65536",
            ),
            (
                with_rule(&format!("{all}create = {{ permissions = \"999\" }}")),
                7,
                "octal",
            ),
            (
                format!("{}[[bus]]\n{all}", with_rule(all)),
                9,
                "has a rule already",
            ),
        ] {
            let error = error(&text);
            assert!(
                error.starts_with(&format!("bridge.toml:{line}: ")),
                "{error}"
            );
            assert!(error.contains(words), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(error("id = ").starts_with("bridge.toml:1: "));
        assert!(error("").contains("missing field `id`"));
    }

    #[test]
    fn a_secret_in_place_of_its_file_is_not_repeated() {
        let with_password = |text: &str| server(&format!("user = \"a\"\npassword = {text}"));
        for text in [
            "secret",
            "\"secret",
            "'secret",
            "[secret",
            "{ secret }",
            "{ a = secret",
            "se\u{1}cret",
            "\"\\secret\"",
            "\"secret\"",
        ] {
            let error = error(&with_password(text));
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(!error(&with_password("4711")).contains("4711"));
        for key in ["password", "nkey", "credentials"] {
            let user = if key == "password" {
                "user = \"a\""
            } else {
                ""
            };
            let config = parse(&server(&format!("{user}\n{key} = \"/secret\"")));
            let error = NatsEngine::check(&config.server).unwrap_err();
            let text = format!("{error:#}");
            assert!(text.contains(key) && !text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn nobody_in_an_allow_list_is_a_mistake() {
        let lines = "name = \"orders\"\ndirection = \"out\"\nsubject = \"orders\"\nallow = {}";
        assert!(error(&with_rule(lines)).contains("nobody"));
    }

    #[test]
    fn a_bus_in_another_scope_is_another_bus() {
        let all = "name = \"orders\"\ndirection = \"in\"\nsubject = \"orders\"\n";
        let text = format!(
            "{}[[bus]]\n{all}scope = \"/sys/fs/cgroup/a\"",
            with_rule(all)
        );
        let config = Config::parse("bridge.toml", &text).unwrap();
        assert_eq!(config.buses[1].channel(), "orders in /sys/fs/cgroup/a");
        // A token of the server, whatever the bus is called.
        let rule =
            rule("name = \"a.b c\"\ndirection = \"in\"\nsubject = \"orders\"\nstream = \"S\"");
        let consumer = rule.consumer("a");
        assert!(consumer.starts_with("sluice-a=a_b_c="), "{consumer}");
    }

    #[test]
    fn a_scope_has_one_path() {
        let scoped = |scope: &str| {
            let all = "name = \"orders\"\ndirection = \"in\"\nsubject = \"orders\"\n";
            format!("[[bus]]\n{all}scope = \"{scope}\"\n")
        };
        for scope in ["a", "./a", "/sys/../a"] {
            let error = error(&format!("{HEAD}{}", scoped(scope)));
            assert!(error.contains("path from / on"), "{error}");
        }
        for (one, other) in [("/a/b", "//a/./b/"), ("/", "/proc/self/root")] {
            let twice = format!("{HEAD}{}{}", scoped(one), scoped(other));
            assert!(error(&twice).contains("has a rule already"), "{other}");
        }
    }

    #[test]
    fn a_consumer_is_of_one_bridge_and_one_bus() {
        let consumer = |id: &str, name: &str| {
            let lines = "direction = \"in\"\nsubject = \"orders\"\nstream = \"S\"";
            rule(&format!("name = \"{name}\"\n{lines}")).consumer(id)
        };
        assert_ne!(consumer("a", "b-c"), consumer("a-b", "c"));
        assert_ne!(consumer("a", "b=c"), consumer("a", "b_c"));
    }

    /// A configuration with all keys.
    const ALL: &str = r#"id = "a"
metrics = "127.0.0.1:9751"
[server]
urls = ["tls://nats.example:4222", "tls://[::1]:4222"]
ca = "/ca"
certificate = "/certificate"
key = "/key"
user = "a"
password = "/password"
[[bus]]
name = "orders"
scope = "/sys/fs/cgroup/a"
direction = "both"
subject = "orders.new"
stream = "ORDERS"
consumer = "c"
full = "drop"
allow = { uid = [0, 1000], gid = [7] }
in_flight = 8
in_flight_bytes = 65536
create = { mode = "broadcast", capacity = 65536, permissions = "660" }
[[bus]]
name = "sums"
direction = "out"
subject = "sums"
requests = { timeout_ms = 2000 }
[[map]]
name = "settings"
bucket = "settings"
direction = "out"
ttl = false
create = { capacity = 65536, permissions = "600" }
"#;

    #[test]
    fn no_text_is_a_panic() {
        assert_eq!(parse(ALL).buses.len(), 2);
        let all: Vec<char> = ALL.chars().chain("ö\u{0}\\".chars()).collect();
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % below
        };
        let mut valid = 0;
        for _ in 0..5000 {
            let mut text: Vec<char> = ALL.chars().collect();
            for _ in 0..=random(3) {
                let (from, len) = (random(text.len()), random(12));
                let to = text.len().min(from + len);
                let begin = random(all.len() - 12);
                let new = all[begin..begin + random(12)].iter().copied();
                text.splice(from..to, new);
            }
            let text: String = text.into_iter().collect();
            match Config::parse("bridge.toml", &text) {
                Ok(_) => valid += 1,
                Err(error) => assert!(error.to_string().starts_with("bridge.toml"), "{error}"),
            }
        }
        assert!(valid > 0);
    }
}
