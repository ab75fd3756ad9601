// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares spec/abi.json, the ABI for programs in other languages, with the structures and numbers; SLUICE_SPEC=update writes it.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::header::{all_constants, structures};
use super::pages::commands;

/// What a field can have.
pub(super) trait Type {
    const NAME: &'static str;
    const COUNT: usize = 1;
}

macro_rules! integers {
    ($($rust:ty = $name:literal),*) => {$(
        impl Type for $rust {
            const NAME: &'static str = $name;
        }
    )*};
}

integers!(
    u8 = "u8",
    u16 = "u16",
    u32 = "u32",
    u64 = "u64",
    i32 = "s32"
);

impl<T: Type, const N: usize> Type for [T; N] {
    const NAME: &'static str = T::NAME;
    const COUNT: usize = N;
}

pub(super) struct Structure {
    pub name: &'static str,
    pub size: usize,
    pub fields: Vec<Field>,
}

pub(super) struct Field {
    pub name: &'static str,
    pub offset: usize,
    kind: &'static str,
    count: usize,
}

impl Field {
    pub fn new<T: Type>(name: &'static str, offset: usize) -> Self {
        Self {
            name: name.trim_start_matches("r#"),
            offset,
            kind: T::NAME,
            count: T::COUNT,
        }
    }
}

const HEAD: &str = r#"{
"license": "SPDX-License-Identifier: MIT OR Apache-2.0",
"about": "The structures and numbers of docs/abi, in its types. Values of ioctls are those of x86 and Arm.",
"#;

/// One line for each constant, command and field.
fn text() -> String {
    let commands = commands();
    let is_command = |name: &str| commands.iter().any(|command| command.name == name);
    let constants = all_constants()
        .into_iter()
        .filter(|(name, _)| !is_command(name))
        .map(|(name, value)| format!("\"{name}\": {value}"));
    let ioctls = commands.iter().map(|command| {
        let argument = command.argument.as_ref();
        let argument = argument.map_or("null".to_owned(), |name| format!("\"{name}\""));
        format!(
            "\"{}\": {{\"code\": {}, \"argument\": {argument}}}",
            command.name, command.value
        )
    });
    let mut text = HEAD.to_owned();
    for (section, lines) in [
        ("constants", lines(constants)),
        ("ioctls", lines(ioctls)),
        ("structures", lines(structures().iter().map(of_structure))),
    ] {
        let comma = if section == "structures" { "" } else { "," };
        writeln!(text, "\"{section}\": {{\n{lines}\n}}{comma}").unwrap();
    }
    text + "}\n"
}

fn of_structure(structure: &Structure) -> String {
    let fields = lines(structure.fields.iter().map(|field| {
        let Field { name, offset, kind, count } = field;
        format!("  {{\"name\": \"{name}\", \"offset\": {offset}, \"type\": \"{kind}\", \"count\": {count}}}")
    }));
    format!(
        "\"{}\": {{\"size\": {}, \"fields\": [\n{fields}\n]}}",
        structure.name, structure.size
    )
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join(",\n")
}

#[test]
fn the_description_for_other_languages_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/abi.json");
    let text = text();
    if env::var_os("SLUICE_SPEC").is_some_and(|value| value == "update") {
        fs::write(&path, &text).unwrap();
    }
    let differs = fs::read_to_string(&path).map_or(true, |written| written != text);
    assert!(
        !differs,
        "spec/abi.json differs; run: SLUICE_SPEC=update cargo test -p sluice-abi the_description"
    );
}
