// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads spec/vectors.json, for the tests of other crates; docs/abi/conformance.md describes it. tests/generate.rs makes the file.

use serde_json::Value;

const FILE: &str = include_str!("../../../spec/vectors.json");

/// An example of bytes.
#[derive(Clone, Debug)]
pub struct Vector {
    pub name: String,
    pub form: String,
    /// What a reader knows beside the bytes.
    pub given: Value,
    pub bytes: Vec<u8>,
    /// What the bytes mean.
    pub value: Value,
    /// How a reader refuses them.
    pub error: Option<String>,
}

impl Vector {
    /// The meaning of what follows one another in the bytes.
    pub fn parts(&self) -> &[Value] {
        self.value.as_array().map_or(&[], Vec::as_slice)
    }
}

/// All vectors, except on a machine of another byte order.
pub fn all() -> Vec<Vector> {
    let file: Value = serde_json::from_str(FILE).expect("spec/vectors.json");
    let vectors = file["vectors"].as_array().expect("vectors");
    match cfg!(target_endian = "little") {
        true => vectors.iter().map(parse).collect(),
        false => Vec::new(),
    }
}

/// The vectors of a form.
pub fn of(form: &str) -> Vec<Vector> {
    let vectors: Vec<_> = all().into_iter().filter(|one| one.form == form).collect();
    assert!(cfg!(target_endian = "big") || !vectors.is_empty(), "{form}");
    vectors
}

pub fn named(name: &str) -> Vector {
    let found = all().into_iter().find(|vector| vector.name == name);
    found.unwrap_or_else(|| panic!("spec/vectors.json has no vector {name}"))
}

fn parse(vector: &Value) -> Vector {
    let text = |field: &str| vector[field].as_str().expect(field).to_owned();
    Vector {
        name: text("name"),
        form: text("form"),
        given: vector["given"].clone(),
        bytes: bytes(&vector["bytes"]),
        value: vector["value"].clone(),
        error: vector["error"].as_str().map(str::to_owned),
    }
}

pub fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// The bytes that a string in hexadecimal has.
pub fn bytes(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("bytes in hexadecimal");
    let digits: Vec<u32> = text
        .chars()
        .map(|digit| digit.to_digit(16).expect(text))
        .collect();
    digits
        .chunks(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8)
        .collect()
}
