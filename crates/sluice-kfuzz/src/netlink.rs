// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of the netlink family: random ones, by the tables of spec/sluice.yaml, and their bytes.

use anyhow::{Context, Result, ensure};

use crate::memory::descriptor;
use crate::program::{Attribute, AttributeContent, Content, Request, Value};
use crate::values::{FileKind, Values};

const YAML: &str = include_str!("../../../spec/sluice.yaml");

/// The attributes, by their numbers from 1 on: name and type.
fn attributes() -> Vec<(&'static str, &'static str)> {
    let section = YAML.split("\noperations:").next().unwrap_or_default();
    let field = |part: &'static str, name: &str| {
        let line = part.lines().find_map(|line| line.trim().strip_prefix(name));
        line.map(str::trim).unwrap_or_default()
    };
    (section.split("\n      -\n").skip(1))
        .map(|part| (field(part, "name:"), field(part, "type:")))
        .collect()
}

/// The attributes that the request of each command names, from 1 on.
fn commands() -> Vec<Vec<u16>> {
    let all = attributes();
    let operations = YAML.split("\noperations:").nth(1).unwrap_or_default();
    let number = |name: &str| all.iter().position(|known| known.0 == name);
    (operations.split("\n    -\n").skip(1))
        .map(|part| {
            let request = part.split("request:").nth(1).unwrap_or_default();
            let request = request.split("reply:").next().unwrap_or_default();
            let names = request
                .lines()
                .filter_map(|line| line.trim().strip_prefix("- "));
            let numbers = names.filter_map(number);
            let mut numbers: Vec<u16> = numbers.map(|number| number as u16 + 1).collect();
            numbers.sort_unstable();
            numbers
        })
        .collect()
}

const SEND_FLAGS: [u16; 6] = [1, 5, 5, 5, 0x301, 0x305];

pub fn random(values: &mut Values) -> Content {
    let count = values.pick(&[1, 1, 1, 2, 3]);
    Content::Requests((0..count).map(|_| request(values)).collect())
}

fn request(values: &mut Values) -> Request {
    let commands = commands();
    let command = values.random.u8(..11);
    let mut numbers: Vec<u16> = match commands.get(usize::from(command).wrapping_sub(1)) {
        // A map is named by name or by handle; what else may be there is there every other time.
        Some(permitted) => {
            let by_handle = values.random.bool();
            let named = |number: &u16| match number {
                2 => !by_handle || command == 1,
                3 => !by_handle,
                4 => by_handle || command == 2 || command == 8,
                _ => true,
            };
            permitted.iter().copied().filter(named).collect()
        }
        None => Vec::new(),
    };
    numbers.retain(|number| matches!(number, 2 | 4 | 10 | 11 | 18) || values.random.bool());
    if values.once_in(20) {
        numbers.push(values.random.u16(..34));
    }
    if values.once_in(20) {
        numbers.pop();
    }
    let mut attributes: Vec<Attribute> = numbers
        .into_iter()
        .map(|number| attribute(values, number))
        .collect();
    if values.once_in(4) {
        let again = attributes
            .iter()
            .filter(|attribute| attribute.number == 18)
            .cloned()
            .collect::<Vec<_>>();
        attributes.extend(again);
    }
    let flags = match command {
        7 => 0x301,
        _ => 5,
    };
    Request {
        command,
        flags: if values.once_in(10) {
            values.pick(&SEND_FLAGS)
        } else {
            flags
        },
        sequence: values.random.u32(..4),
        attributes,
    }
}

fn attribute(values: &mut Values, number: u16) -> Attribute {
    let all = attributes();
    let (name, kind) = all
        .get(usize::from(number).wrapping_sub(1))
        .copied()
        .unwrap_or_default();
    let kind = if values.once_in(40) { "u64" } else { kind };
    let content = match (name, kind) {
        ("name", "string") => {
            let letter = values.pick(&[b'a', b'a', b'b', b'c', b'/', 0]);
            AttributeContent::Bytes(vec![letter, 0])
        }
        ("scope-fd", "s32") => match values.file(FileKind::Cgroup) {
            Value::File(slot) if values.random.bool() => AttributeContent::File(slot),
            _ => AttributeContent::Small(values.pick(&[u32::MAX, u32::MAX - 1])),
        },
        ("handle", "u32") => AttributeContent::Small(values.pick(&[1, 1, 2, 3, 0])),
        ("flags", "u32") => {
            let flags = values.pick(&[1, 2, 3, 7, 7, 7, 23, 23, 23, 15, 39]);
            AttributeContent::Small(flags)
        }
        ("command", "u32") => AttributeContent::Small(values.pick(&[0, 1, 1, 2, 3])),
        ("mode", "u32") => AttributeContent::Small(values.pick(&[0o600, 0o666, 0o1000])),
        ("step", "nest") => {
            let mut step = vec![attribute(values, 19), attribute(values, 10)];
            for number in [11, 14, 15] {
                if values.random.bool() {
                    step.push(attribute(values, number));
                }
            }
            AttributeContent::Nest(step)
        }
        (_, "binary") => {
            let length = values.length().min(20000) as u16;
            AttributeContent::Fill(values.pick(b"kl"), length)
        }
        (_, "flag") => AttributeContent::Bytes(Vec::new()),
        (_, "u64") => AttributeContent::Large(values.number()),
        _ => AttributeContent::Small(values.number() as u32),
    };
    Attribute { number, content }
}

// ---- bytes ----

pub fn encode(requests: &[Request], family: u16) -> Vec<u8> {
    let mut all = Vec::new();
    for request in requests {
        let mut payload = vec![request.command, 1, 0, 0];
        payload.extend(encode_attributes(&request.attributes));
        all.extend((payload.len() as u32 + 16).to_ne_bytes());
        all.extend(family.to_ne_bytes());
        all.extend(request.flags.to_ne_bytes());
        all.extend(request.sequence.to_ne_bytes());
        all.extend([0; 4]);
        all.extend(payload);
        all.resize(all.len().next_multiple_of(4), 0);
    }
    all
}

fn encode_attributes(attributes: &[Attribute]) -> Vec<u8> {
    let mut all = Vec::new();
    for attribute in attributes {
        let mut number = attribute.number;
        let content = match &attribute.content {
            AttributeContent::Small(value) => value.to_ne_bytes().to_vec(),
            AttributeContent::Large(value) => value.to_ne_bytes().to_vec(),
            AttributeContent::File(slot) => descriptor(*slot).to_ne_bytes().to_vec(),
            AttributeContent::Bytes(bytes) => bytes.clone(),
            AttributeContent::Fill(byte, length) => vec![*byte; (*length).into()],
            AttributeContent::Nest(nested) => {
                number |= 0x8000;
                encode_attributes(nested)
            }
        };
        all.extend((content.len() as u16).wrapping_add(4).to_ne_bytes());
        all.extend(number.to_ne_bytes());
        all.extend(content);
        all.resize(all.len().next_multiple_of(4), 0);
    }
    all
}

/// The number of the family, which the controller of generic netlink tells.
pub fn family() -> Result<u16> {
    let mut request = encode(
        &[Request {
            command: 3,
            flags: 1,
            sequence: 1,
            attributes: vec![Attribute {
                number: 2,
                content: AttributeContent::Bytes(b"sluice\0".to_vec()),
            }],
        }],
        libc::GENL_ID_CTRL as u16,
    );
    request.resize(512, 0);
    // SAFETY: the buffer has the lengths given.
    let received = unsafe {
        let socket = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC);
        let length = u32::from_ne_bytes([request[0], request[1], request[2], request[3]]);
        libc::send(socket, request.as_ptr().cast(), length as usize, 0);
        let received = libc::recv(socket, request.as_mut_ptr().cast(), request.len(), 0);
        libc::close(socket);
        received
    };
    ensure!(
        received > 20,
        "the controller of generic netlink does not answer"
    );
    let mut at = 20;
    while let Some(&[low, high, number, _]) = request.get(at..at + 4) {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        if number == 1 {
            let found = request
                .get(at + 4..at + 6)
                .context("a family without a number")?;
            return Ok(u16::from_ne_bytes([found[0], found[1]]));
        }
        at += length.next_multiple_of(4).max(4);
    }
    anyhow::bail!("there is no netlink family 'sluice'; load the module")
}

#[cfg(test)]
mod tests {
    use sluice_abi::netlink::attr;

    use super::*;

    #[test]
    fn the_tables_of_the_specification_are_read() {
        let attributes = attributes();
        assert_eq!(attributes.len(), usize::from(attr::MAX));
        assert_eq!(attributes[17], ("step", "nest"));
        let commands = commands();
        assert!(commands[5].contains(&18), "a batch has steps: {commands:?}");
        assert!(
            !commands[2].contains(&13),
            "a get has no version: {commands:?}"
        );
    }
}
