// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program: the calls of one process, with all that they pass. Its text is JSON, one line, and its execution depends on
//! nothing else but the state of the kernel and, with several threads, on their scheduling.

use serde::{Deserialize, Serialize};

/// Numbers of descriptors and of mappings that calls can name.
pub const SLOTS: u8 = 16;
pub const CALLS_MAX: usize = 24;

#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub struct Program {
    /// Executed by a user without capabilities, in a cgroup of its own; otherwise by root.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unprivileged: u8,
    pub calls: Vec<Call>,
}

#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub struct Call {
    pub name: String,
    pub arguments: Vec<Value>,
    /// Where the descriptor that it returns goes; of a pair the second one goes to the next slot.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub to: u8,
    /// 0: the main thread. Another thread executes the call while the main thread goes on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub thread: u8,
    /// The operation of the call that fails by injection, from 1 on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fail: u8,
}

#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub enum Value {
    Number(u64),
    /// The descriptor of a slot.
    File(u8),
    /// An address in the space of a mapping.
    Mapping(u8, u64),
    /// The stream of the last message of a keeper, or that of the map that it created last.
    Stream,
    /// The bytes of an array within a structure.
    Bytes(#[serde(with = "hex")] Vec<u8>),
    /// The address of a content.
    Memory(Place, Content),
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
pub enum Place {
    Ordinary,
    /// Followed by a page that is not mapped.
    Edge,
    /// As Edge; and the last so many bytes are on that page.
    Beyond(u16),
    ReadOnly,
}

#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub enum Content {
    Bytes(#[serde(with = "hex")] Vec<u8>),
    /// So many bytes of this value.
    Fill(u8, u32),
    /// An array, as the values of each field.
    Structures(String, Vec<Vec<Value>>),
    /// One after the other.
    Joined(Vec<Content>),
    /// Requests of generic netlink.
    Requests(Vec<Request>),
}

#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub struct Request {
    pub command: u8,
    pub flags: u16,
    pub sequence: u32,
    pub attributes: Vec<Attribute>,
}

#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub struct Attribute {
    pub number: u16,
    pub content: AttributeContent,
}

#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub enum AttributeContent {
    Small(u32),
    Large(u64),
    File(u8),
    Bytes(#[serde(with = "hex")] Vec<u8>),
    Fill(u8, u16),
    Nest(Vec<Attribute>),
}

impl Program {
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a program is data")
    }
}

fn is_zero(number: &u8) -> bool {
    *number == 0
}

mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.as_bytes().chunks(2);
        let byte = |pair: &[u8]| {
            let pair = std::str::from_utf8(pair).map_err(D::Error::custom)?;
            u8::from_str_radix(pair, 16).map_err(D::Error::custom)
        };
        digits.map(byte).collect()
    }
}
