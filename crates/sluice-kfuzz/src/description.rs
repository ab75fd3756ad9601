// SPDX-License-Identifier: MIT OR Apache-2.0
//! The structures and ioctls of spec/abi.json, and the structures of the system in system.json.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

#[derive(Deserialize)]
pub struct Field {
    pub name: String,
    pub offset: usize,
    #[serde(rename = "type")]
    pub kind: String,
    pub count: usize,
}

#[derive(Deserialize)]
pub struct Structure {
    pub size: usize,
    pub fields: Vec<Field>,
}

#[derive(Deserialize)]
pub struct Ioctl {
    pub code: u64,
    pub argument: Option<String>,
}

#[derive(Deserialize)]
pub struct Description {
    #[serde(default)]
    pub ioctls: BTreeMap<String, Ioctl>,
    structures: BTreeMap<String, Structure>,
}

static DESCRIPTION: LazyLock<Description> = LazyLock::new(|| {
    let parse = |text| serde_json::from_str::<Description>(text).expect("a valid description");
    let mut all = parse(include_str!("../../../spec/abi.json"));
    all.structures
        .extend(parse(include_str!("../system.json")).structures);
    all
});

impl Description {
    pub fn get() -> &'static Self {
        &DESCRIPTION
    }

    /// None for a name in a program that an earlier description had.
    pub fn structure(&self, name: &str) -> Option<&Structure> {
        self.structures.get(name)
    }
}

impl Structure {
    /// A structure within this one is passed as its bytes.
    pub fn width(field: &Field) -> usize {
        let one = match field.kind.as_str() {
            "u8" => 1,
            "u16" | "s16" => 2,
            "u32" | "s32" => 4,
            "u64" => 8,
            nested => DESCRIPTION.structures[nested].size,
        };
        one * field.count
    }
}
