// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random programs, and changes of programs.

use std::sync::LazyLock;

use crate::calls::{FORMS, Form, Kind, PATHS, Way};
use crate::description::Description;
use crate::memory::length_of;
use crate::netlink;
use crate::program::{CALLS_MAX, Call, Content, Place, Program, SLOTS, Value};
use crate::values::{FileKind, KINDS, Values};

/// What a call can be: a form, or an ioctl of the description, with how often it is chosen.
static CHOICES: LazyLock<Vec<(&'static str, u32)>> = LazyLock::new(|| {
    let forms = FORMS.iter().map(|form| (form.name, form.weight));
    let ioctls = Description::get().ioctls.keys().map(|name| {
        let weight = match name.as_str() {
            "SLUICE_CTL_OPEN" => 70,
            "SLUICE_CTL_DESTROY" | "SLUICE_CTL_UNLINK" => 12,
            "SLUICE_MAP_SET" => 14,
            _ => 8,
        };
        (name.as_str(), weight)
    });
    forms.chain(ioctls).collect()
});

/// Calls on one kind need a file of it: the file that an ioctl is made on, by the beginning of its name.
const FILES: [(&str, FileKind); 8] = [
    ("SLUICE_CTL_", FileKind::Control),
    ("SLUICE_ENDPOINT_", FileKind::Endpoint),
    ("SLUICE_PIPE_", FileKind::Pipe),
    ("SLUICE_RING_", FileKind::Ring),
    ("SLUICE_FEED_", FileKind::Feed),
    ("SLUICE_BUS_", FileKind::Bus),
    ("SLUICE_MAP_", FileKind::Map),
    ("SLUICE_KEEP_", FileKind::Keeper),
];

pub fn form(name: &str) -> Option<&'static Form> {
    FORMS.iter().find(|form| form.name == name)
}

impl Values {
    // ---- programs ----

    /// A new program: a few calls, of which the first one opens the file that channels are opened with.
    pub fn program(&mut self) -> Program {
        let mut program = Program {
            unprivileged: u8::from(self.random.bool()),
            calls: vec![control()],
        };
        for _ in 0..self.random.usize(3..12) {
            self.insert(&mut program, usize::MAX);
        }
        program
    }

    /// Changes a program, by one or several steps. `other` is another one of the corpus.
    pub fn mutate(&mut self, program: &mut Program, other: &Program) {
        loop {
            self.mutate_once(program, other);
            if self.random.bool() {
                break;
            }
        }
        program.calls.truncate(CALLS_MAX);
    }

    fn mutate_once(&mut self, program: &mut Program, other: &Program) {
        let count = program.calls.len();
        if count == 0 {
            return self.insert(program, 0);
        }
        let at = self.random.usize(..count);
        match self.random.u8(..32) {
            0..=9 => {
                // Mostly near the end, where the calls before have made the state.
                let at = at.max(self.random.usize(..=count));
                self.insert(program, at);
            }
            10..=12 => drop(program.calls.remove(at)),
            13..=14 => {
                let call = program.calls[at].clone();
                program.calls.insert(self.random.usize(at..=count), call);
            }
            15..=16 => {
                let from = self.random.usize(..=other.calls.len());
                program.calls.truncate(at + 1);
                program.calls.extend_from_slice(&other.calls[from..]);
            }
            17 => {
                let to = self.random.usize(..count);
                program.calls.swap(at, to);
            }
            18..=19 => program.calls[at].thread = self.random.u8(..3),
            20 => program.calls[at].fail = self.random.u8(..24),
            21 => program.unprivileged ^= 1,
            _ => self.change_argument(program, at),
        }
    }

    fn insert(&mut self, program: &mut Program, at: usize) {
        let at = at.min(program.calls.len());
        self.slots = slots_after(&program.calls[..at]);
        let call = self.call();
        program.calls.insert(at, call);
    }

    // ---- calls ----

    /// A call that suits the files that are open.
    fn call(&mut self) -> Call {
        let mut name = self.choose();
        for _ in 0..8 {
            if self.suits(name) {
                break;
            }
            name = self.choose();
        }
        let (arguments, opens) = self.arguments(name);
        let thread = if self.once_in(6) {
            self.random.u8(1..3)
        } else {
            0
        };
        let fail = if self.once_in(24) {
            self.random.u8(1..24)
        } else {
            0
        };
        Call {
            name: name.to_owned(),
            arguments,
            to: if opens { self.free_slot() } else { 0 },
            thread,
            fail,
        }
    }

    fn choose(&mut self) -> &'static str {
        let sum: u32 = CHOICES.iter().map(|choice| choice.1).sum();
        let mut left = self.random.u32(..sum);
        for (name, weight) in CHOICES.iter() {
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => return name,
            }
        }
        "close"
    }

    fn suits(&self, name: &str) -> bool {
        let wanted = match FILES.iter().find(|file| name.starts_with(file.0)) {
            Some(file) => Some(file.1),
            None => form(name).and_then(|form| {
                form.arguments.iter().find_map(|kind| match kind {
                    Kind::File(wanted) => Some(*wanted),
                    _ => None,
                })
            }),
        };
        wanted.is_none_or(|wanted| {
            self.slots.iter().any(|kind| match wanted {
                FileKind::Any => *kind != FileKind::None,
                FileKind::Endpoint => KINDS.contains(kind),
                _ => *kind == wanted,
            })
        })
    }

    /// The arguments, and whether the call returns a descriptor.
    pub fn arguments(&mut self, name: &str) -> (Vec<Value>, bool) {
        if let Some(form) = form(name) {
            let mut arguments: Vec<Value> = Vec::new();
            for kind in form.arguments {
                let value = self.argument(*kind, arguments.last());
                arguments.push(value);
            }
            return (arguments, form.opens != FileKind::None);
        }
        let file = FILES.iter().find(|file| name.starts_with(file.0));
        let wanted = match file {
            Some(file) if !self.once_in(30) => file.1,
            _ => FileKind::Any,
        };
        let mut arguments = vec![self.file(wanted)];
        let ioctl = Description::get().ioctls.get(name);
        if let Some(structure) = ioctl.and_then(|ioctl| ioctl.argument.as_deref()) {
            arguments.push(self.structure_at(structure));
        }
        (
            arguments,
            matches!(name, "SLUICE_CTL_OPEN" | "SLUICE_CTL_KEEP"),
        )
    }

    fn argument(&mut self, kind: Kind, before: Option<&Value>) -> Value {
        match kind {
            Kind::File(wanted) => self.file(wanted),
            Kind::One(numbers) => Value::Number(self.pick(numbers)),
            Kind::Bits(bits) => Value::Number(self.bits(bits)),
            Kind::Number => Value::Number(self.number()),
            Kind::Length => Value::Number(self.length().into()),
            Kind::LengthBefore => match before {
                Some(Value::Memory(_, content)) if !self.once_in(20) => {
                    Value::Number(length_of(content) as u64)
                }
                _ => Value::Number(self.length().into()),
            },
            Kind::CountBefore => match before {
                Some(Value::Memory(_, Content::Structures(_, items))) if !self.once_in(30) => {
                    Value::Number(items.len() as u64)
                }
                _ => Value::Number(self.pick(&[0, 1, 8, 1025, u64::MAX])),
            },
            Kind::Buffer => {
                let length = if self.random.bool() {
                    4224
                } else {
                    self.length()
                };
                self.memory(Content::Fill(0, length))
            }
            Kind::Messages => {
                let content = self.messages();
                self.memory(content)
            }
            Kind::Structure(name) => self.structure_at(name),
            Kind::Array(name) => {
                let count = self.pick(&[1, 1, 2, 3, 5, 0]);
                let items = (0..count).map(|_| self.structure(name)).collect();
                self.memory(Content::Structures(name.into(), items))
            }
            Kind::Path => {
                let path = self.pick(&PATHS);
                Value::Memory(
                    Place::Ordinary,
                    Content::Bytes([path.as_bytes(), b"\0"].concat()),
                )
            }
            Kind::Space => Value::Mapping(self.random.u8(..4), 0),
            Kind::Address => {
                let fields = [0, 0, 128, 132, 136, 140, 144, 4096, 8192, 64];
                Value::Mapping(self.random.u8(..4), self.pick(&fields))
            }
            Kind::Requests => {
                let content = netlink::random(self);
                self.memory(content)
            }
        }
    }

    /// Bytes, or one or more frames of a bus, each with its message.
    fn messages(&mut self) -> Content {
        if self.random.bool() {
            return self.bytes();
        }
        let mut parts = Vec::new();
        for _ in 0..self.pick(&[1, 1, 1, 2, 3]) {
            let length = self.length();
            let mut frame = self.structure("sluice_bus_frame");
            if !self.once_in(20) {
                frame[1] = Value::Number(length.into());
            }
            parts.push(Content::Structures("sluice_bus_frame".into(), vec![frame]));
            parts.push(Content::Fill(b'm', length.next_multiple_of(8)));
        }
        // After the last message there is nothing.
        if let (Some(Content::Fill(_, last)), false) = (parts.pop(), self.once_in(20)) {
            let length = match &parts[parts.len() - 1] {
                Content::Structures(_, items) => match items[0][1] {
                    Value::Number(length) => (length as u32).min(last),
                    _ => last,
                },
                _ => last,
            };
            parts.push(Content::Fill(b'm', length));
        }
        Content::Joined(parts)
    }

    // ---- arguments ----

    fn change_argument(&mut self, program: &mut Program, at: usize) {
        self.slots = slots_after(&program.calls[..at]);
        let count = program.calls[at].arguments.len();
        if count == 0 {
            return;
        }
        let which = self.random.usize(..count);
        if self.once_in(4) {
            let name = program.calls[at].name.clone();
            let mut fresh = self.arguments(&name).0;
            if which < fresh.len() {
                program.calls[at].arguments[which] = fresh.swap_remove(which);
            }
            return;
        }
        let mut value = program.calls[at].arguments[which].clone();
        self.change(&mut value);
        program.calls[at].arguments[which] = value;
    }

    fn change(&mut self, value: &mut Value) {
        match value {
            Value::Number(number) => *number = self.change_number(*number),
            Value::File(_) => *value = self.file(FileKind::Any),
            Value::Mapping(slot, offset) => {
                *slot = self.random.u8(..4);
                *offset = self.change_number(*offset) % (1 << 32);
            }
            Value::Stream => *value = Value::Number(self.number()),
            Value::Bytes(bytes) => self.change_bytes(bytes),
            Value::Memory(place, content) => {
                if self.once_in(8) {
                    *place = self.place();
                } else {
                    self.change_content(content);
                }
            }
        }
    }

    fn change_number(&mut self, number: u64) -> u64 {
        match self.random.u8(..8) {
            0 => number.wrapping_add(1),
            1 => number.wrapping_sub(1),
            2 => number ^ 1 << self.random.u8(..64),
            3 => number ^ 1 << self.random.u8(..8),
            4 => number.wrapping_mul(2),
            _ => self.number(),
        }
    }

    fn change_bytes(&mut self, bytes: &mut [u8]) {
        if !bytes.is_empty() {
            let at = self.random.usize(..bytes.len());
            bytes[at] = self.pick(&[0, b'a', b'b', b'/', b'.', 0xff]);
        }
    }

    fn change_content(&mut self, content: &mut Content) {
        match content {
            Content::Bytes(bytes) => self.change_bytes(bytes),
            Content::Fill(_, length) => *length = self.length(),
            Content::Joined(parts) => {
                if !parts.is_empty() {
                    let at = self.random.usize(..parts.len());
                    self.change_content(&mut parts[at]);
                }
            }
            Content::Requests(requests) => {
                if let Content::Requests(fresh) = netlink::random(self) {
                    let at = self.random.usize(..=requests.len());
                    requests.truncate(at);
                    requests.extend(fresh);
                }
            }
            Content::Structures(name, items) => {
                let name = name.clone();
                self.change_items(&name, items);
            }
        }
    }

    fn change_items(&mut self, name: &str, items: &mut Vec<Vec<Value>>) {
        if items.is_empty() || self.once_in(16) {
            items.push(self.structure(name));
            return;
        }
        let at = self.random.usize(..items.len());
        if self.once_in(16) {
            items.remove(at);
            return;
        }
        let Some(structure) = Description::get().structure(name) else {
            return;
        };
        let item = &mut items[at];
        let which = self.random.usize(..item.len().max(1));
        if let (Some(field), Some(value)) = (structure.fields.get(which), item.get_mut(which)) {
            if self.random.bool() {
                *value = self.field(name, structure, field);
            } else {
                self.change(value);
            }
        }
    }
}

/// Opens /dev/sluice/ctl as the file of slot 0.
pub fn control() -> Call {
    let path = Content::Bytes(b"/dev/sluice/ctl\0".to_vec());
    Call {
        name: "openat".into(),
        arguments: vec![
            Value::Number(u64::MAX - 99),
            Value::Memory(Place::Ordinary, path),
            Value::Number(2),
            Value::Number(0),
        ],
        to: 0,
        thread: 0,
        fail: 0,
    }
}

/// What the slots have after these calls, if they succeed.
fn slots_after(calls: &[Call]) -> [FileKind; SLOTS as usize] {
    let mut slots = [FileKind::None; SLOTS as usize];
    for call in calls {
        let opened = opens(call, &slots);
        let to = usize::from(call.to % SLOTS);
        if opened != FileKind::None {
            slots[to] = opened;
        }
        if matches!(opened, FileKind::SystemPipe | FileKind::Socket) {
            slots[(to + 1) % slots.len()] = opened;
        }
        if let ("close", Some(Value::File(slot))) = (call.name.as_str(), call.arguments.first()) {
            slots[usize::from(slot % SLOTS)] = FileKind::None;
        }
    }
    slots
}

fn opens(call: &Call, slots: &[FileKind]) -> FileKind {
    match call.name.as_str() {
        "SLUICE_CTL_KEEP" => FileKind::Keeper,
        "SLUICE_CTL_OPEN" => match call.arguments.get(1) {
            Some(Value::Memory(_, Content::Structures(_, items))) => {
                match items.first().and_then(|item| item.get(1)) {
                    Some(Value::Number(kind @ 1..=5)) => KINDS[*kind as usize - 1],
                    _ => FileKind::None,
                }
            }
            _ => FileKind::None,
        },
        "dup" => match call.arguments.first() {
            Some(Value::File(slot)) => slots[usize::from(slot % SLOTS)],
            _ => FileKind::None,
        },
        "openat" => match call.arguments.get(1) {
            Some(Value::Memory(_, Content::Bytes(path))) => match path.as_slice() {
                b"/dev/sluice/ctl\0" => FileKind::Control,
                b"/dev/sluice/pipe\0" => FileKind::Pipe,
                b"/dev/sluice/feed\0" => FileKind::Feed,
                _ => FileKind::Other,
            },
            _ => FileKind::None,
        },
        name => form(name).map_or(FileKind::None, |form| form.opens),
    }
}

/// How a call is executed; None for a name that is unknown.
pub fn way(name: &str) -> Option<Way> {
    match form(name) {
        Some(form) => Some(form.way),
        None => Description::get()
            .ioctls
            .contains_key(name)
            .then_some(Way::System(libc::SYS_ioctl)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_its_text() {
        let mut values = Values::new(7);
        let mut program = values.program();
        for _ in 0..2000 {
            let other = values.program();
            values.mutate(&mut program, &other);
            let text = program.to_text();
            let parsed: Program = serde_json::from_str(&text).expect("it is JSON");
            assert_eq!(parsed, program);
            assert!(!text.contains('\n'), "a program is one line");
        }
    }

    #[test]
    fn the_same_seed_makes_the_same_programs() {
        let programs = |seed| {
            let mut values = Values::new(seed);
            (0..100).map(|_| values.program()).collect::<Vec<_>>()
        };
        assert_eq!(programs(3), programs(3));
        assert_ne!(programs(3), programs(4));
    }

    #[test]
    fn every_ioctl_of_the_description_is_made_on_a_file_of_its_kind() {
        for name in Description::get().ioctls.keys() {
            let found = FILES.iter().filter(|file| name.starts_with(file.0));
            assert_eq!(found.count(), 1, "{name}");
        }
    }

    #[test]
    fn every_call_is_chosen() {
        let mut values = Values::new(1);
        let mut missing: Vec<_> = CHOICES.iter().map(|choice| choice.0).collect();
        for _ in 0..3000 {
            for call in values.program().calls {
                assert!(way(&call.name).is_some(), "{}", call.name);
                missing.retain(|name| *name != call.name);
            }
        }
        assert!(missing.is_empty(), "{missing:?}");
    }
}
