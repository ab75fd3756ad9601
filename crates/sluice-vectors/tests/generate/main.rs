// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes and compares spec/vectors.json; SLUICE_SPEC=update writes it. The bytes are those of the structures of sluice-abi and of the
//! producer of sluice-ring, the fields those that spec/abi.json finds in them.

mod handshake;
mod memory;
mod netlink;
mod ring;
mod structures;

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

const HEAD: &str = r#"{
"license": "SPDX-License-Identifier: MIT OR Apache-2.0",
"about": "Examples of the bytes that docs/abi defines; docs/abi/conformance.md describes this file.",
"machine": {"byte_order": "little", "page_size": 4096},
"vectors": [
"#;

/// An example of bytes.
struct Vector {
    name: &'static str,
    /// Of docs/abi.
    page: &'static str,
    form: &'static str,
    given: Value,
    bytes: Vec<u8>,
    /// What they mean, or how a reader refuses them.
    outcome: Result<Value, &'static str>,
}

impl Vector {
    fn line(&self) -> String {
        let mut line = format!(
            "{{\"name\": {}, \"page\": {}, \"form\": {}, ",
            json!(self.name),
            json!(self.page),
            json!(self.form)
        );
        if !self.given.is_null() {
            write!(line, "\"given\": {}, ", self.given).unwrap();
        }
        write!(line, "\"bytes\": {}, ", hex(&self.bytes)).unwrap();
        match &self.outcome {
            Ok(value) => write!(line, "\"value\": {value}}}").unwrap(),
            Err(error) => write!(line, "\"error\": {}}}", json!(error)).unwrap(),
        }
        line
    }
}

fn hex(bytes: &[u8]) -> Value {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    Value::String(digits.collect())
}

/// spec/abi.json.
static ABI: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../../spec/abi.json")).expect("spec/abi.json")
});

/// The fields of a structure by spec/abi.json, without reserved ones. An array of bytes is a name.
fn fields(structure: &str, bytes: &[u8]) -> Map<String, Value> {
    let fields = ABI["structures"][structure]["fields"].as_array();
    let fields = fields.expect(structure).iter().filter_map(|field| {
        let name = field["name"].as_str()?;
        let bytes = &bytes[field["offset"].as_u64()? as usize..];
        let value = match field["type"].as_str()? {
            "u8" => {
                let end = bytes.iter().position(|byte| *byte == 0)?;
                json!(String::from_utf8_lossy(&bytes[..end]))
            }
            "u16" => json!(u16::from_le_bytes(*bytes.first_chunk()?)),
            "u32" => json!(u32::from_le_bytes(*bytes.first_chunk()?)),
            "u64" => json!(u64::from_le_bytes(*bytes.first_chunk()?)),
            other => panic!("a field of {other}"),
        };
        (!name.starts_with("reserved")).then(|| (name.to_owned(), value))
    });
    fields.collect()
}

#[test]
fn the_vectors_are_up_to_date() {
    let vectors = [
        ring::vectors(),
        handshake::vectors(),
        structures::vectors(),
        netlink::vectors(),
    ];
    let lines: Vec<_> = vectors.iter().flatten().map(Vector::line).collect();
    let text = format!("{HEAD}{}\n]\n}}\n", lines.join(",\n"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors.json");
    if env::var_os("SLUICE_SPEC").is_some_and(|value| value == "update") {
        fs::write(&path, &text).unwrap();
    }
    let differs = fs::read_to_string(&path).map_or(true, |written| written != text);
    assert!(
        !differs,
        "spec/vectors.json differs; run: SLUICE_SPEC=update cargo test -p sluice-vectors the_vectors"
    );
}
