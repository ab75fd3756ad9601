// SPDX-License-Identifier: MIT OR Apache-2.0
//! The synopses and options in the manual pages of section 1, from the help texts of the command. In a page they are between
//!
//! ```text
//! .\" generated: synopsis pipe ls      or     .\" generated: options pipe
//! .\" end of generated text
//! ```
//!
//! which name commands; `bus...` stands for one line with all subcommands. The test here compares, and updates with SLUICE_MANUAL=update.

use std::env;
use std::fs;
use std::path::Path;

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, ArgGroup, Command};

const BEGIN: &str = ".\\\" generated: ";
const END: &str = ".\\\" end of generated text";
const PAGES: [&str; 6] = [
    "sluice.1",
    "sluice-bus.1",
    "sluice-feed.1",
    "sluice-map.1",
    "sluice-metrics.1",
    "sluice-top.1",
];
const WIDTH: usize = 95;
/// An option with more possible values has the name of its value instead, and the page a list of the values.
const VALUES_MAX: usize = 8;

/// A subcommand without subcommands, such as `map get`.
struct Leaf<'a> {
    path: String,
    command: &'a Command,
}

/// An option: its names, and its texts with the subcommands that have this text.
struct Item {
    tag: String,
    texts: Vec<(Vec<String>, String)>,
}

/// The page with its generated parts replaced.
fn update(page: &str, root: &Command) -> String {
    let mut updated = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        updated += &format!("{line}\n");
        if let Some(what) = line.strip_prefix(BEGIN) {
            updated += &format!("{}{END}\n", render(what, root));
            lines.find(|line| *line == END).expect("a part has no end");
        }
    }
    updated
}

fn render(what: &str, root: &Command) -> String {
    let mut words = what.split(' ');
    let kind = words.next();
    let find = |name| root.find_subcommand(name).expect("no such command");
    match kind {
        Some("synopsis") => words
            .map(|name| match name.strip_suffix("...") {
                Some(name) => summary(find(name)),
                None => leaves(find(name), "").iter().map(synopsis).collect(),
            })
            .collect(),
        Some("options") => {
            let leaves: Vec<_> = words.flat_map(|name| leaves(find(name), "")).collect();
            options(&leaves)
        }
        _ => panic!("generated: {what}: neither synopsis nor options"),
    }
}

fn leaves<'a>(command: &'a Command, prefix: &str) -> Vec<Leaf<'a>> {
    let path = format!("{prefix}{}", command.get_name());
    if !command.has_subcommands() {
        return vec![Leaf { path, command }];
    }
    let inner = command.get_subcommands();
    let prefix = format!("{path} ");
    inner.flat_map(|inner| leaves(inner, &prefix)).collect()
}

/// A line for a command with its subcommands.
fn summary(command: &Command) -> String {
    let verbs: Vec<_> = command.get_subcommands().map(Command::get_name).collect();
    format!(
        ".Nm sluice\n.Cm {}\n.Cm {}\n.Op Ar argument ...\n",
        command.get_name(),
        verbs.join(" | ")
    )
}

fn synopsis(leaf: &Leaf) -> String {
    let command = leaf.command;
    let mut text = format!(".Nm sluice\n.Cm {}\n", leaf.path);
    let mut line = |usage: String, is_required| {
        text += &match is_required {
            true => format!(".{usage}\n"),
            false => format!(".Op {usage}\n"),
        };
    };
    let single = |argument: &&Arg| exclusive_group(command, argument).is_none();
    for option in command.get_opts().filter(single) {
        line(usage(option), option.is_required_set());
    }
    for argument in command.get_positionals() {
        match exclusive_group(command, argument) {
            None if argument.is_last_set() => line(format!("Cm -- {}", usage(argument)), true),
            None => line(usage(argument), argument.is_required_set()),
            Some(group) => {
                let members = command
                    .get_arguments()
                    .filter(|argument| group.get_args().any(|id| id == argument.get_id()));
                let members: Vec<_> = members.map(usage).collect();
                line(members.join(" | "), group.is_required_set());
            }
        }
    }
    text
}

/// The group of alternatives of which this argument is one.
fn exclusive_group<'a>(command: &'a Command, argument: &Arg) -> Option<&'a ArgGroup> {
    command.get_groups().find(|group| {
        !(*group).clone().is_multiple()
            && group.get_args().count() > 1
            && group.get_args().any(|id| id == argument.get_id())
    })
}

fn usage(argument: &Arg) -> String {
    let value = value(argument);
    match (argument.get_short(), argument.get_long()) {
        (Some(short), _) => format!("Fl {short}{value}"),
        (None, Some(long)) => format!("Fl -{long}{value}"),
        (None, None) => match argument.get_action() {
            ArgAction::Append => format!("{} ...", value.trim_start()),
            _ => value.trim_start().to_owned(),
        },
    }
}

/// The value of an argument with a space before it; empty for a flag.
fn value(argument: &Arg) -> String {
    let values = argument.get_possible_values();
    let names: Vec<_> = values.iter().map(PossibleValue::get_name).collect();
    match argument.get_value_names() {
        _ if !argument.get_action().takes_values() => String::new(),
        _ if (1..=VALUES_MAX).contains(&names.len())
            && argument.get_value_delimiter().is_none() =>
        {
            format!(" Cm {}", names.join(" | "))
        }
        // The value may be left out.
        Some([name, ..]) if argument.is_require_equals_set() => {
            format!(" Ns Oo = Ns Ar {} Oc", name.to_lowercase())
        }
        Some([name, ..]) => format!(" Ar {}", name.to_lowercase()),
        _ => format!(" Ar {}", argument.get_id().as_str().to_lowercase()),
    }
}

fn options(leaves: &[Leaf]) -> String {
    let arguments = leaves.iter().flat_map(|leaf| leaf.command.get_arguments());
    let names: Vec<_> = arguments
        .filter(|argument| argument.get_action().takes_values())
        .filter_map(Arg::get_value_names)
        .flatten()
        .map(|name| name.as_str())
        .collect();
    let mut items: Vec<Item> = Vec::new();
    for leaf in leaves {
        let name = leaf.path.rsplit(' ').next().unwrap_or_default().to_owned();
        for option in leaf.command.get_opts() {
            let (tag, text) = (tag(option), text(option, &names));
            let index = items.iter().position(|item| item.tag == tag);
            let index = index.unwrap_or(items.len());
            if index == items.len() {
                let texts = Vec::new();
                items.push(Item { tag, texts });
            }
            let texts = &mut items[index].texts;
            match texts.iter_mut().find(|(_, other)| *other == text) {
                Some((names, _)) => names.push(name.clone()),
                None => texts.push((vec![name.clone()], text)),
            }
        }
    }
    let items: String = items.iter().map(Item::render).collect();
    format!(".Bl -tag -width Ds\n{items}.El\n")
}

impl Item {
    fn render(&self) -> String {
        let Self { tag, texts } = self;
        match &texts[..] {
            [(_, text)] => format!(".It {tag}\n{text}"),
            _ => {
                let texts = texts
                    .iter()
                    .map(|(names, text)| format!(".It Cm {}\n{text}", names.join(" , ")));
                let texts: String = texts.collect();
                format!(".It {tag}\n.Bl -tag -width Ds -compact\n{texts}.El\n")
            }
        }
    }
}

/// All names of an option.
fn tag(option: &Arg) -> String {
    let value = value(option);
    let mut names = Vec::new();
    names.extend(option.get_short().map(|short| format!("Fl {short}")));
    names.extend(option.get_long().map(|long| format!("Fl -{long}{value}")));
    let aliases = option.get_visible_aliases().unwrap_or_default();
    names.extend(aliases.iter().map(|alias| format!("Fl -{alias}{value}")));
    names.join(" , ")
}

/// The help text of an option, with its default at the end.
fn text(option: &Arg, names: &[&str]) -> String {
    let help = option.get_long_help().or(option.get_help());
    let help = help.expect("an option has no help").to_string();
    let (mut help, mut default) = match help.split_once(" [default: ") {
        Some((before, rest)) => {
            let (default, after) = rest.split_once(']').expect("a default has no end");
            (format!("{before}{after}"), Some(default.to_owned()))
        }
        None => (help, None),
    };
    if let ([value, ..], false) = (
        option.get_default_values(),
        option.is_hide_default_value_set(),
    ) {
        default = Some(value.to_string_lossy().into_owned());
    }
    if let Some(default) = default {
        help += &format!("\n\nDefault: {default}");
    }
    let sentences = help.split("\n\n").flat_map(|paragraph| {
        let end = if paragraph.ends_with('.') { "" } else { "." };
        let sentences = format!("{paragraph}{end}").replace(". ", ".\n");
        sentences.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    let mut text: String = sentences.map(|line| mdoc(&line, names)).collect();
    let values = option.get_possible_values();
    if values.iter().any(|value| value.get_help().is_some()) {
        text += ".Bl -tag -width Ds -compact\n";
        for value in values {
            text += &format!(".It Cm {}\n", value.get_name());
            text += &value
                .get_help()
                .map_or(String::new(), |help| mdoc(&help.to_string(), names));
        }
        text += ".El\n";
    }
    text
}

/// A sentence: macros for options, pages and arguments, a line each, and text between them.
fn mdoc(sentence: &str, names: &[&str]) -> String {
    let mut text = String::new();
    let mut line = String::new();
    for word in sentence.split(' ') {
        let end = word.trim_end_matches([',', '.', ';', ':']).len();
        let (word, punctuation) = word.split_at(end);
        if let Some(request) = request(word, names) {
            flush(&mut line, &mut text);
            let spaced: String = punctuation.chars().map(|mark| format!(" {mark}")).collect();
            text += &format!(".{request}{spaced}\n");
            continue;
        }
        if line.len() + word.len() > WIDTH {
            flush(&mut line, &mut text);
        }
        let space = if line.is_empty() { "" } else { " " };
        line += &format!("{space}{}{punctuation}", word.replace('\\', "\\e"));
    }
    flush(&mut line, &mut text);
    text
}

/// The macro of a word, if it is more than text.
fn request(word: &str, names: &[&str]) -> Option<String> {
    if let Some(option) = word.strip_prefix("--") {
        return Some(format!("Fl -{option}"));
    }
    if let Some((page, section)) = word.strip_suffix(')').and_then(|word| word.split_once('(')) {
        let is_page = section.len() == 1 && section.parse::<u8>().is_ok();
        return is_page.then(|| format!("Xr {page} {section}"));
    }
    names
        .contains(&word)
        .then(|| format!("Ar {}", word.to_lowercase()))
}

/// A line of text must not look like one of macros.
fn flush(line: &mut String, text: &mut String) {
    if !line.is_empty() {
        let escape = if line.starts_with(['.', '\'']) {
            "\\&"
        } else {
            ""
        };
        *text += &format!("{escape}{line}\n");
        line.clear();
    }
}

#[test]
fn the_pages_have_the_options_of_the_command() {
    let root = crate::command();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man");
    for name in PAGES {
        let path = directory.join(name);
        let page = fs::read_to_string(&path).unwrap();
        let updated = update(&page, &root);
        if env::var_os("SLUICE_MANUAL").is_some_and(|value| value == "update") {
            fs::write(&path, &updated).unwrap();
            continue;
        }
        let mut lines = page.lines().zip(updated.lines()).enumerate();
        let difference = lines.find(|(_, (old, new))| old != new);
        assert!(
            page == updated,
            "docs/man/{name} differs from the help texts of the command, first at {difference:?}; \
             run: SLUICE_MANUAL=update cargo test -p sluice-cli the_pages"
        );
    }
}

#[test]
fn every_command_is_in_a_synopsis() {
    let root = crate::command();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man");
    let pages: String = PAGES
        .iter()
        .map(|name| fs::read_to_string(directory.join(name)).unwrap())
        .collect();
    for leaf in root
        .get_subcommands()
        .flat_map(|command| leaves(command, ""))
    {
        assert!(pages.contains(&synopsis(&leaf)), "{}", leaf.path);
        for option in leaf.command.get_opts() {
            let item = format!("\n.It {}\n", tag(option));
            assert!(pages.contains(&item), "{}: {}", leaf.path, tag(option));
        }
    }
}

#[test]
fn a_help_text_becomes_mdoc() {
    let command = Command::new("demo").arg(
        Arg::new("limit")
            .short('l')
            .long("limit")
            .value_name("BYTES")
            .help("Limit of KEY, as --size of sluice(1) [default: 4M]")
            .long_help(
                "Limit of BYTES, as --size of sluice(1) [default: 4M]\n\n'x' is \\n. Not 0.",
            ),
    );
    let leaf = Leaf {
        path: "demo".to_owned(),
        command: &command,
    };
    let expected = ".Bl -tag -width Ds\n.It Fl l , Fl -limit Ar bytes\nLimit of\n.Ar bytes ,\nas\n.Fl -size\nof\n.Xr sluice 1 .\n\
                    \\&'x' is \\en.\nNot 0.\nDefault: 4M.\n.El\n";
    assert_eq!(options(&[leaf]), expected);
}
