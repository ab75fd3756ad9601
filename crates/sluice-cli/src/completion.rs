// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion at the prompt of a shell. The script that `sluice completion` prints makes the shell run this program at each completion, and
//! clap_complete then prints candidates: commands, options and files, and here names of channels and keys of maps.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::str;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Arg, ArgMatches, Args, Command};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use sluice::{Kind, Map, Name, Scope};

use crate::{command, output};

/// By which the script asks for candidates.
const VARIABLE: &str = "SLUICE_COMPLETE";

/// The position of the word to complete. Without it, the last word is completed.
const INDEX: &str = "_CLAP_COMPLETE_INDEX";

/// Limits of one completion: of its candidates, and of the time in which they are looked for.
const CANDIDATES_MAX: usize = 256;
const TIME_MAX: Duration = Duration::from_millis(200);

/// Commands whose NAME is not that of a channel which exists.
const WITH_NEW_NAME: [&str; 3] = ["create", "attach", "forget"];

#[derive(Args)]
pub struct Arguments {
    /// The shell
    shell: Shell,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    output::print(&script(arguments.shell)?)
}

fn script(shell: Shell) -> Result<String> {
    let shells = Shells::builtins();
    let shell = shells.completer(&shell.to_string());
    let shell = shell.context("no completion for this shell; use another one")?;
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "sluice", "sluice", &own_path(), &mut script)?;
    Ok(String::from_utf8(script)?)
}

/// The program that the script runs: this one, by its name if the shell has found it by that.
fn own_path() -> String {
    let name = env::args().next().unwrap_or_default();
    match (name.contains('/'), env::current_exe()) {
        (true, Ok(path)) => path.to_string_lossy().into_owned(),
        _ => "sluice".to_owned(),
    }
}

/// If the script of a shell has started this process: prints the candidates, and returns true. Never prints an error, which would appear in
/// the line that the user types.
pub fn answer() -> bool {
    let directory = env::current_dir().ok();
    CompleteEnv::with_factory(|| Words::of_this_process().command())
        .var(VARIABLE)
        .try_complete(env::args_os(), directory.as_deref())
        .unwrap_or(true)
}

/// The words of the command line except for the one to complete, which is at the index.
struct Words {
    others: Vec<OsString>,
    completed: OsString,
}

/// What a command line says about the channel.
#[derive(Clone, Debug, Default, PartialEq)]
struct Given {
    scope: Option<PathBuf>,
    name: Option<Name>,
}

impl Words {
    fn of_this_process() -> Self {
        let words = env::args_os().skip_while(|word| word != "--").skip(1);
        let index = env::var(INDEX).ok().and_then(|index| index.parse().ok());
        Self::new(words.collect(), index)
    }

    fn new(mut words: Vec<OsString>, index: Option<usize>) -> Self {
        let index = index.unwrap_or(words.len().saturating_sub(1));
        let completed = match index < words.len() {
            true => words.remove(index),
            false => OsString::new(),
        };
        Self {
            others: words,
            completed,
        }
    }

    /// The command with the completers of its arguments. Options are candidates if the word begins like one, or if there is nothing else.
    fn command(&self) -> Command {
        let given = Given::parse(&self.others);
        let is_option = self.completed.as_encoded_bytes().starts_with(b"-");
        let command = command()
            .disable_help_flag(!is_option)
            .disable_version_flag(!is_option)
            .disable_help_subcommand(true);
        command.mut_subcommands(|noun| {
            let kind = kind(noun.get_name());
            let noun = hide_options(noun, !is_option);
            noun.mut_subcommands(|verb| {
                let has_new_name = WITH_NEW_NAME.contains(&verb.get_name());
                let verb = hide_options(verb, !is_option);
                match kind {
                    Some(kind) if !has_new_name => {
                        verb.mut_args(|argument| with_completer(argument, kind, &given))
                    }
                    _ => verb,
                }
            })
        })
    }
}

impl Given {
    /// Ignores what is missing or invalid.
    fn parse(words: &[OsString]) -> Self {
        let parsed = command().ignore_errors(true).try_get_matches_from(words);
        let Ok(matches) = parsed else {
            return Self::default();
        };
        let mut matches = &matches;
        while let Some((_, inner)) = matches.subcommand() {
            matches = inner;
        }
        Self {
            scope: value(matches, "scope"),
            name: value(matches, "name").or_else(|| value(matches, "channel")),
        }
    }

    fn scope(&self) -> Option<Scope> {
        match &self.scope {
            Some(directory) => Scope::at(directory).ok(),
            None => Some(Scope::own()),
        }
    }

    /// The names of the channels of this kind.
    fn names(&self, kind: Kind) -> impl Iterator<Item = Vec<u8>> + use<> {
        let scope = match kind {
            Kind::Feed => Some(Scope::root()),
            _ => self.scope(),
        };
        let channels = scope.and_then(|scope| sluice::list(&scope).ok());
        let channels = channels.into_iter().flatten().map_while(Result::ok);
        let of_kind = channels.filter(move |channel| channel.kind == kind);
        of_kind.map(|channel| channel.name.as_bytes().to_vec())
    }

    /// The candidates among the keys of the map.
    fn keys(&self, typed: &OsStr) -> Option<Vec<CompletionCandidate>> {
        let map = Map::named(self.name?)
            .scope(self.scope()?)
            .open_reader()
            .ok()?;
        let keys = map.keys().map_while(Result::ok).map(|(key, _)| key);
        Some(candidates(keys, typed))
    }
}

fn value<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> Option<T> {
    matches.try_get_one(id).ok().flatten().cloned()
}

fn kind(noun: &str) -> Option<Kind> {
    Some(match noun {
        "pipe" => Kind::Pipe,
        "ring" => Kind::Ring,
        "bus" => Kind::Bus,
        "map" | "store" => Kind::Map,
        "feed" => Kind::Feed,
        _ => return None,
    })
}

fn hide_options(command: Command, hide: bool) -> Command {
    command.mut_args(|argument| match argument.is_positional() {
        true => argument,
        false => argument.hide(hide),
    })
}

fn with_completer(argument: Arg, kind: Kind, given: &Given) -> Arg {
    let given = given.clone();
    match argument.get_id().as_str() {
        "name" | "channel" => argument.add(ArgValueCompleter::new(move |typed: &OsStr| {
            candidates(given.names(kind), typed)
        })),
        "key" => argument.add(ArgValueCompleter::new(move |typed: &OsStr| {
            given.keys(typed).unwrap_or_default()
        })),
        _ => argument,
    }
}

/// Those that begin with `typed`, sorted, up to the limits.
fn candidates(all: impl Iterator<Item = Vec<u8>>, typed: &OsStr) -> Vec<CompletionCandidate> {
    let end = Instant::now() + TIME_MAX;
    let mut chosen: Vec<String> = all
        .take_while(|_| Instant::now() < end)
        .filter(|bytes| bytes.starts_with(typed.as_encoded_bytes()))
        .filter_map(|bytes| String::from_utf8(bytes).ok())
        .filter(|text| is_plain(text))
        .take(CANDIDATES_MAX)
        .collect();
    chosen.sort_unstable();
    chosen.into_iter().map(CompletionCandidate::new).collect()
}

/// Whether it is one word to a shell as it is, which inserts candidates without quotes, and not an option to this program.
fn is_plain(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_alphanumeric() || "_-.,+@%/:".contains(letter);
    !text.starts_with('-') && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn scope_and_name_are_found_in_an_incomplete_line() {
        let given = |scope: Option<&str>, name: Option<&str>| Given {
            scope: scope.map(PathBuf::from),
            name: name.map(|name| Name::new(name).unwrap()),
        };
        for (line, expected) in [
            ("sluice", given(None, None)),
            ("sluice map get", given(None, None)),
            ("sluice map get jobs", given(None, Some("jobs"))),
            (
                "sluice map get -e jobs --scope /a",
                given(Some("/a"), Some("jobs")),
            ),
            ("sluice map set --ttl never jobs", given(None, None)),
            (
                "sluice map set --create --scope=/a jobs",
                given(Some("/a"), Some("jobs")),
            ),
            ("sluice pipe rm --scope /a", given(Some("/a"), None)),
            ("sluice ring send --scope", given(None, None)),
        ] {
            assert_eq!(Given::parse(&words(line)), expected, "{line}");
        }
    }

    #[test]
    fn the_completed_word_is_at_the_index_or_the_last() {
        let last = Words::new(words("sluice pipe rm jo"), None);
        assert_eq!(
            (last.others, last.completed),
            (words("sluice pipe rm"), "jo".into())
        );
        let second = Words::new(words("sluice pipe rm jobs"), Some(2));
        assert_eq!(
            (second.others, second.completed),
            (words("sluice pipe jobs"), "rm".into())
        );
        let none = Words::new(Vec::new(), None);
        assert_eq!((none.others, none.completed), (Vec::new(), "".into()));
    }

    #[test]
    fn candidates_are_plain_sorted_and_limited() {
        let texts = |all: &[&str], typed: &str| {
            let all = all.iter().map(|text| text.as_bytes().to_vec());
            let chosen = candidates(all, OsStr::new(typed));
            let texts = chosen
                .iter()
                .map(|candidate| candidate.get_value().to_string_lossy());
            texts.map(String::from).collect::<Vec<_>>()
        };
        let all = [
            "jobs",
            "jitter",
            "a b",
            "$(reboot)",
            "-n",
            "jo\nbs",
            "\u{1b}[2J",
        ];
        assert_eq!(texts(&all, ""), ["jitter", "jobs"]);
        assert_eq!(texts(&all, "jo"), ["jobs"]);
        let endless = (0_u64..).map(|number| number.to_string().into_bytes());
        assert_eq!(candidates(endless, OsStr::new("")).len(), CANDIDATES_MAX);
        let endless = std::iter::repeat(b"other".to_vec());
        assert!(candidates(endless, OsStr::new("none")).is_empty());
    }
}
