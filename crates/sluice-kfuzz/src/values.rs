// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random values: numbers, descriptors, memory, and structures field by field. Most are valid; the rest is at a limit or beyond.

use crate::description::{Description, Field, Structure};
use crate::memory::length_of;
use crate::program::{Content, Place, SLOTS, Value};

/// What a descriptor of a slot is of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FileKind {
    None,
    Control,
    Pipe,
    Ring,
    Feed,
    Bus,
    Map,
    Keeper,
    Netlink,
    Cgroup,
    SystemPipe,
    Socket,
    Epoll,
    Other,
    /// Of an argument: any endpoint.
    Endpoint,
    /// Of an argument: any file.
    Any,
}

/// The kinds by their numbers, from 1 on.
pub const KINDS: [FileKind; 5] = [
    FileKind::Pipe,
    FileKind::Ring,
    FileKind::Feed,
    FileKind::Bus,
    FileKind::Map,
];

const NUMBERS: [u64; 26] = [
    0,
    1,
    2,
    3,
    7,
    8,
    16,
    63,
    64,
    255,
    256,
    1000,
    4095,
    4096,
    4097,
    8192,
    65535,
    65536,
    1 << 20,
    (1 << 20) + 1,
    (1 << 31) - 1,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    (1 << 63) - 1,
    u64::MAX,
];

/// Lengths of buffers and messages; few are long.
const LENGTHS: [u32; 20] = [
    0, 1, 5, 8, 16, 17, 48, 63, 64, 65, 100, 128, 256, 500, 1000, 4095, 4096, 4128, 5000, 20000,
];

const CAPACITIES: [u64; 12] = [
    0,
    0,
    1,
    4096,
    4096,
    4097,
    8192,
    16384,
    65536,
    1 << 20,
    1 << 26,
    (1 << 28) + 1,
];

const NAMES: [&[u8]; 8] = [b"a", b"a", b"a", b"b", b"b", b"c", b"..", b"a/b"];

/// Lists of the numbers that a field can have: (structure or "", field, numbers).
const CHOICES: [(&str, &str, &[u64]); 24] = [
    ("", "kind", &[1, 2, 3, 4, 5]),
    (
        "",
        "mode",
        &[0o666, 0o666, 0o600, 0o777, 0, 0o444, 0o222, 0o1000],
    ),
    ("sluice_bus_params", "mode", &[0, 0, 1, 1, 2, 3]),
    ("", "policies", &[0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
    ("", "policy", &[0, 0, 1, 2, 4, 3]),
    ("", "format", &[0, 0, 1, 1, 2, 3]),
    (
        "sluice_bus_params",
        "limit",
        &[0, 0, 1, 64, 256, 1024, 4096],
    ),
    ("", "node", &[u64::MAX, u64::MAX, 0, 1]),
    ("", "timeout_ns", &[0, 1000, 1_000_000, u64::MAX]),
    (
        "",
        "interval_ns",
        &[10_000, 100_000, 1_000_000, 0, 10_000_000_000],
    ),
    ("sluice_feed_start", "count", &[0, 1, 2, 10, 100]),
    (
        "sluice_feed_start",
        "length",
        &[0, 1, 8, 64, 1000, 4096, 4097],
    ),
    ("", "cpu", &[u64::MAX, u64::MAX, 0, 1, 2]),
    ("sluice_map_params", "entries", &[0, 0, 1, 2, 8, 100]),
    ("sluice_keep_map", "entries", &[0, 0, 1, 2, 8, 100]),
    ("", "events", &[0, 0, 1, 2, 16, 65536, 3]),
    ("", "deadline_ms", &[0, 1, 10, 1000]),
    ("", "interval_ms", &[0, 1, 10, 1000]),
    ("", "cell", &[0, 64, 128, 256, 4096, 65]),
    ("", "table", &[0, 4096, 8192, 65536, 1 << 20, 4095]),
    ("", "command", &[0, 1, 1, 1, 2, 3]),
    (
        "",
        "ttl_ns",
        &[0, 0, 1, 1000, 1_000_000, 10_000_000, u64::MAX],
    ),
    ("sluice_keep_create", "limit", &[100, 1000, 1 << 40, 0]),
    ("sluice_keep_ack", "limit", &[100, 1000, 1 << 40, 0]),
];

/// The flags of structures; of others they are reserved.
const FLAGS: [(&str, &[u64]); 9] = [
    ("sluice_open", &[1, 2, 4, 8, 16, 32, 64, 128]),
    ("sluice_bus_params", &[1, 2, 4, 8, 16]),
    ("sluice_map_params", &[1, 2, 4, 8, 16]),
    ("sluice_map_op", &[1, 2, 4]),
    ("sluice_map_step", &[1, 2, 4]),
    ("sluice_map_dump", &[1, 2]),
    ("sluice_keep", &[1, 2]),
    ("sluice_keep_map", &[1, 1, 2, 4, 8]),
    ("sluice_keep_end", &[1, 2]),
];

/// What the address in a field is of: (structure or "", field, structures; "": bytes).
const POINTERS: [(&str, &str, &[&str]); 15] = [
    ("sluice_info", "info", &["sluice_channel_info"]),
    (
        "sluice_info",
        "state",
        &[
            "sluice_pipe_info",
            "sluice_ring_info",
            "sluice_feed_info",
            "sluice_bus_info",
            "sluice_map_info",
        ],
    ),
    ("sluice_list", "entries", &["sluice_channel_info"]),
    ("sluice_bus_receive", "entries", &["sluice_bus_entry"]),
    (
        "sluice_bus_subscribers",
        "entries",
        &["sluice_bus_subscriber_info"],
    ),
    ("sluice_keep_restore", "entries", &["sluice_keep_entry"]),
    ("sluice_map_batch", "steps", &["sluice_map_step"]),
    ("sluice_keep_create", "map", &["sluice_keep_map"]),
    ("", "records", &[""]),
    ("", "key", &[""]),
    ("", "value", &[""]),
    ("iovec", "base", &[""]),
    ("msghdr", "vectors", &["iovec"]),
    ("msghdr", "control", &["rights"]),
    ("msghdr", "address", &[""]),
];

/// Fields that tell the length in bytes, or the number, of what the address in another field is of.
const LENGTH_FIELDS: [(&str, &str); 6] = [
    ("key", "key_length"),
    ("value", "value_length"),
    ("records", "length"),
    ("base", "length"),
    ("control", "control_length"),
    ("address", "address_length"),
];
const COUNT_FIELDS: [(&str, &str); 3] = [
    ("steps", "count"),
    ("entries", "count"),
    ("vectors", "vectors_length"),
];

/// What random values are made of.
pub struct Values {
    pub random: fastrand::Rng,
    /// What each slot has where the next call is inserted.
    pub slots: [FileKind; SLOTS as usize],
}

impl Values {
    pub fn new(seed: u64) -> Self {
        Values {
            random: fastrand::Rng::with_seed(seed),
            slots: [FileKind::None; SLOTS as usize],
        }
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: u32) -> bool {
        self.random.u32(..times) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.usize(..from.len())]
    }

    pub fn number(&mut self) -> u64 {
        match self.random.u8(..8) {
            0 => self.random.u64(..),
            1 => self
                .pick(&NUMBERS)
                .wrapping_add(self.random.u64(..3))
                .wrapping_sub(1),
            2..=4 => self.random.u64(..8),
            _ => self.pick(&NUMBERS),
        }
    }

    pub fn length(&mut self) -> u32 {
        match self.random.u8(..32) {
            0 => self.pick(&[1 << 16, 1 << 20, (1 << 20) + 1]),
            1..=4 => self.random.u32(..300),
            _ => self.pick(&LENGTHS),
        }
    }

    /// A sum of few of these.
    pub fn bits(&mut self, bits: &[u64]) -> u64 {
        (0..self.random.u8(..4)).fold(0, |sum, _| sum | self.pick(bits))
    }

    // ---- descriptors ----

    pub fn file(&mut self, wanted: FileKind) -> Value {
        let fits = |kind: FileKind| match wanted {
            FileKind::Any => kind != FileKind::None,
            FileKind::Endpoint => KINDS.contains(&kind),
            _ => kind == wanted,
        };
        let fitting: Vec<u8> = (0..SLOTS)
            .filter(|slot| fits(self.slots[usize::from(*slot)]))
            .collect();
        if fitting.is_empty() || self.once_in(40) {
            return Value::File(self.random.u8(..SLOTS));
        }
        Value::File(self.pick(&fitting))
    }

    /// A slot for a new file: a free one if possible.
    pub fn free_slot(&mut self) -> u8 {
        let free = |slot: &u8| self.slots[usize::from(*slot)] == FileKind::None;
        let free: Vec<u8> = (0..SLOTS - 1).filter(free).collect();
        if free.is_empty() || self.once_in(10) {
            return self.random.u8(..SLOTS - 1);
        }
        free[0]
    }

    // ---- memory ----

    pub fn place(&mut self) -> Place {
        match self.random.u8(..40) {
            0 => Place::Beyond(self.pick(&[1, 4, 8, 64])),
            1 => Place::ReadOnly,
            2..=10 => Place::Edge,
            _ => Place::Ordinary,
        }
    }

    pub fn bytes(&mut self) -> Content {
        let length = self.length();
        let few = [b'k', b'l', 0, 0xff];
        if length <= 16 && self.random.bool() {
            return Content::Bytes((0..length).map(|_| self.pick(&few)).collect());
        }
        Content::Fill(self.pick(&few), length)
    }

    pub fn memory(&mut self, content: Content) -> Value {
        if self.once_in(60) {
            return Value::Number(self.pick(&[0, 1, 1 << 47, u64::MAX - 4095]));
        }
        if self.once_in(60) {
            return Value::Mapping(self.random.u8(..SLOTS), 0);
        }
        Value::Memory(self.place(), content)
    }

    pub fn structure_at(&mut self, name: &str) -> Value {
        let content = Content::Structures(name.into(), vec![self.structure(name)]);
        self.memory(content)
    }

    // ---- structures ----

    pub fn structure(&mut self, name: &str) -> Vec<Value> {
        let Some(structure) = Description::get().structure(name) else {
            return Vec::new();
        };
        let mut values: Vec<Value> = (structure.fields.iter())
            .map(|field| self.field(name, structure, field))
            .collect();
        if name == "sluice_open" {
            self.match_parameters(structure, &mut values);
        }
        self.match_lengths(structure, &mut values);
        values
    }

    pub fn field(&mut self, name: &str, structure: &Structure, field: &Field) -> Value {
        let field_name = field.name.as_str();
        let is =
            |entry: (&str, &str)| (entry.0.is_empty() || entry.0 == name) && entry.1 == field_name;
        if field_name == "name" {
            return Value::Bytes(self.name());
        }
        if field.count > 1 || field.kind.starts_with("sluice") {
            return Value::Bytes(vec![0; Structure::width(field)]);
        }
        if self.once_in(50) {
            return Value::Number(self.number());
        }
        // The later entry is that of the structure itself.
        if let Some(choice) = CHOICES.iter().rfind(|entry| is((entry.0, entry.1))) {
            return Value::Number(self.pick(choice.2));
        }
        if let Some(pointer) = POINTERS.iter().find(|entry| is((entry.0, entry.1))) {
            return self.pointer(name, pointer.2);
        }
        match field_name {
            "size" => Value::Number(self.size(structure)),
            "entry_size" | "step_size" => {
                Value::Number(self.pick(&[40, 56, 32, 152, 40, 56, 64, 4096]))
            }
            "flags" | "open_flags" => Value::Number(self.flags(name)),
            "scope_fd" => self.scope(),
            "fd" => self.file(FileKind::Any),
            "stream" if !self.once_in(4) => Value::Stream,
            "capacity" => Value::Number(self.pick(&CAPACITIES)),
            "reserved" | "uid" | "gid" | "administrator" | "padding" | "error" => Value::Number(0),
            "target" | "sender" | "lost" | "pid" if !self.once_in(4) => Value::Number(0),
            "level" | "type" if name == "rights" => Value::Number(1),
            _ => Value::Number(self.number()),
        }
    }

    fn name(&mut self) -> Vec<u8> {
        let mut name = self.pick(&NAMES).to_vec();
        if self.once_in(40) {
            name = vec![b'x'; self.pick(&[0, 62, 63, 64])];
        }
        name.resize(64, 0);
        if self.once_in(60) {
            name[self.random.usize(..64)] = self.random.u8(..);
        }
        name
    }

    fn size(&mut self, structure: &Structure) -> u64 {
        let size = structure.size as u64;
        if !self.once_in(20) {
            return size;
        }
        self.pick(&[size - 1, size + 1, size + 8, size - 8, 0, 4096, 4097])
    }

    fn flags(&mut self, name: &str) -> u64 {
        if name == "sluice_open" && !self.once_in(4) {
            // What opens something: reading, writing or both, and mostly creation.
            return self.pick(&[1, 2, 3])
                | self.pick(&[0, 4, 4, 4])
                | self.pick(&[0, 0, 16, 32, 48, 64, 8]);
        }
        match FLAGS.iter().find(|entry| entry.0 == name) {
            Some(entry) => self.bits(entry.1),
            None => 0,
        }
    }

    fn scope(&mut self) -> Value {
        match self.random.u8(..8) {
            0 => Value::Number(self.pick(&[-2_i64 as u64, -3_i64 as u64, 0])),
            1 | 2 => self.file(FileKind::Cgroup),
            _ => Value::Number(-1_i64 as u64),
        }
    }

    fn pointer(&mut self, name: &str, structures: &[&str]) -> Value {
        if name == "sluice_info" && self.once_in(2) {
            return Value::Number(0);
        }
        let of = self.pick(structures);
        if of.is_empty() {
            let content = self.bytes();
            return self.memory(content);
        }
        let count = match self.once_in(40) {
            true => 30,
            false => self.pick(&[1, 1, 1, 2, 2, 3, 5, 0]),
        };
        let items = (0..count).map(|_| self.structure(of)).collect();
        self.memory(Content::Structures(of.into(), items))
    }

    /// The parameters of the kind that is opened, and for a feed the scope.
    fn match_parameters(&mut self, structure: &Structure, values: &mut [Value]) {
        let at = |name| structure.fields.iter().position(|field| field.name == name);
        let (Some(kind), Some(params), Some(scope)) = (at("kind"), at("params"), at("scope_fd"))
        else {
            return;
        };
        let name = match values[kind] {
            Value::Number(2) => "sluice_ring_params",
            Value::Number(4) => "sluice_bus_params",
            Value::Number(5) => "sluice_map_params",
            _ => "",
        };
        values[params] = match name {
            "" if !self.once_in(30) => Value::Number(0),
            "" => self.structure_at("sluice_ring_params"),
            "sluice_bus_params" => self.structure_at(name),
            _ if self.random.bool() => Value::Number(0),
            _ => self.structure_at(name),
        };
        if values[kind] == Value::Number(3) && !self.once_in(4) {
            values[scope] = Value::Number(-2_i64 as u64);
        }
    }

    /// Lengths and counts of what addresses are of.
    fn match_lengths(&mut self, structure: &Structure, values: &mut [Value]) {
        let at = |name| structure.fields.iter().position(|field| field.name == name);
        for (pointer, length) in LENGTH_FIELDS {
            if let (Some(pointer), Some(length)) = (at(pointer), at(length))
                && let Value::Memory(_, content) = &values[pointer]
            {
                let right = length_of(content) as u64;
                if !self.once_in(20) {
                    values[length] = Value::Number(right);
                }
            }
        }
        for (pointer, count) in COUNT_FIELDS {
            if let (Some(pointer), Some(count)) = (at(pointer), at(count))
                && let Value::Memory(_, Content::Structures(name, items)) = &values[pointer]
            {
                let number = items.len() as u64;
                let size = Description::get()
                    .structure(name)
                    .map_or(0, |item| item.size);
                if !self.once_in(20) {
                    values[count] = Value::Number(number);
                }
                if let Some(each) = at("entry_size").or(at("step_size"))
                    && !self.once_in(20)
                {
                    values[each] = Value::Number(size as u64);
                }
            }
        }
    }
}
