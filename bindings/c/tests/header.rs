// SPDX-License-Identifier: MIT OR Apache-2.0
//! sluice.h is generated from the sources, and the synopses of the manual pages from sluice.h: these tests compare, and write them with
//! SLUICE_HEADER=update.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use cbindgen::{Builder, Config};

/// In the order of the header.
const SOURCES: [&str; 25] = [
    "error",
    "module",
    "options",
    "channels",
    "pipe",
    "ring/options",
    "ring/channel",
    "ring/socket",
    "ring/producer",
    "ring/consumer",
    "bus/options",
    "bus/message",
    "bus/state",
    "bus/sender",
    "bus/subscriber",
    "bus/mapped",
    "bus/client",
    "bus/server",
    "map/options",
    "map/entry",
    "map/endpoint",
    "map/batch",
    "map/entries",
    "map/watcher",
    "feed",
];

/// The pages have the functions with the prefixes that follow the first mark.
const PAGES: [&str; 6] = [
    "libsluice.3",
    "sluice-bus.3",
    "sluice-feed.3",
    "sluice-map.3",
    "sluice-pipe.3",
    "sluice-ring.3",
];
const BEGIN: &str = ".\\\" generated: ";
const END: &str = ".\\\" end of generated text";

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Compares a file with what it should be, or writes it.
fn expect(path: &Path, expected: &str) {
    if env::var_os("SLUICE_HEADER").is_some_and(|value| value == "update") {
        fs::write(path, expected).unwrap();
        return;
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut lines = text.lines().zip(expected.lines()).enumerate();
    let difference = lines.find(|(_, (old, new))| old != new);
    assert!(
        text == expected,
        "{} differs from the sources, first at {difference:?}; \
         run: SLUICE_HEADER=update cargo test -p sluice-c the_",
        path.display()
    );
}

fn generate() -> String {
    let config = Config::from_file(directory().join("cbindgen.toml")).unwrap();
    let sources = SOURCES.map(|name| directory().join(format!("src/{name}.rs")));
    let builder = sources
        .iter()
        .fold(Builder::new().with_config(config), Builder::with_src);
    let mut header = Vec::new();
    builder.generate().unwrap().write(&mut header);
    String::from_utf8(header).unwrap()
}

/// The inline functions follow the declarations.
fn header() -> String {
    let inline = fs::read_to_string(directory().join("src/ring/inline.h")).unwrap();
    let (_license, inline) = inline.split_once('\n').unwrap();
    let declared = generate();
    let end = declared.rfind("#ifdef __cplusplus\n}").unwrap();
    let (declarations, end) = declared.split_at(end);
    format!("{declarations}{inline}\n{end}")
}

/// The prototypes of a header, each in one line.
fn prototypes(header: &str) -> Vec<String> {
    let code: Vec<&str> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '/', '#']) || line.starts_with("      "))
        .collect();
    let statements = code.join(" ").replace("extern \"C\" {", "");
    let statements = statements.split(';').map(|statement| {
        let words: Vec<&str> = statement.split_whitespace().collect();
        words.join(" ")
    });
    statements
        .filter(|statement| statement.contains("sluice_") && statement.ends_with(')'))
        .collect()
}

fn function_name(prototype: &str) -> &str {
    let (declared, _) = prototype.split_once('(').unwrap();
    &declared[declared.rfind([' ', '*']).unwrap() + 1..]
}

/// A prototype in a synopsis.
fn synopsis(prototype: &str) -> String {
    let (declared, arguments) = prototype.split_once('(').unwrap();
    let name = function_name(prototype);
    let result = declared.trim_end_matches(name).trim_end();
    let result = match result.contains(' ') {
        true => format!("\"{result}\""),
        false => result.to_owned(),
    };
    let mut text = format!(".Ft {result}\n.Fo {name}\n");
    for argument in arguments.trim_end_matches(')').split(", ") {
        text += &format!(".Fa \"{argument}\"\n");
    }
    text + ".Fc\n"
}

#[test]
fn the_header_is_that_of_the_sources() {
    expect(&directory().join("sluice.h"), &header());
}

/// The names of the fields of a structure, without those that are reserved.
fn fields<'a>(header: &'a str, structure: &str) -> Vec<&'a str> {
    let begin = format!("struct {structure} {{");
    let (_, body) = header.split_once(&begin).unwrap();
    let (body, _) = body.split_once("};").unwrap();
    let declared = body.lines().filter_map(|line| line.strip_suffix(';'));
    let names = declared.map(|line| &line[line.rfind([' ', '*']).unwrap() + 1..]);
    names.filter(|name| !name.starts_with("reserved")).collect()
}

#[test]
fn the_page_of_maps_has_the_fields_of_what_is_received() {
    let page = directory().join("../../docs/man/sluice-map.3");
    let page = fs::read_to_string(page).unwrap();
    let header = generate();
    for structure in ["sluice_entry", "sluice_event"] {
        let (_, list) = page.split_once(&format!(".Vt struct {structure}")).unwrap();
        let (list, _) = list.split_once(".El").unwrap();
        let names = fields(&header, structure);
        assert!(names.len() > 4, "{names:?}");
        for name in names {
            let is_listed = list.lines().any(|line| {
                line.starts_with(".It Va ") && line.split([' ', ',']).any(|word| word == name)
            });
            assert!(is_listed, "sluice-map(3) lacks {structure}.{name}");
        }
    }
}

#[test]
fn the_pages_have_all_functions() {
    let prototypes = prototypes(&generate());
    let mut documented = 0;
    for page in PAGES {
        let path = directory().join("../../docs/man").join(page);
        let text = fs::read_to_string(&path).unwrap();
        let (before, rest) = text.split_once(BEGIN).unwrap();
        let (prefixes, rest) = rest.split_once('\n').unwrap();
        let (_, after) = rest.split_once(END).unwrap();
        let is_here = |prototype: &&String| {
            let name = function_name(prototype);
            prefixes.split(' ').any(|prefix| name.starts_with(prefix))
        };
        let here: Vec<&String> = prototypes.iter().filter(is_here).collect();
        documented += here.len();
        let generated: String = here.iter().map(|prototype| synopsis(prototype)).collect();
        let expected = format!("{before}{BEGIN}{prefixes}\n{generated}{END}{after}");
        expect(&path, &expected);
    }
    assert_eq!(documented, prototypes.len());
}
