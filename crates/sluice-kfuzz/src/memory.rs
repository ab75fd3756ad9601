// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts what a call passes into the memory of the process.

use std::ptr::null_mut;

use crate::description::{Description, Structure};
use crate::netlink;
use crate::program::{Content, Place, SLOTS, Value};

const PAGE: usize = 4096;
const SIZE: usize = 32 << 20;

/// Mappings of programs are in spaces of their own, so that no call on one touches other memory of the process.
const SPACES: u64 = 0x1000_0000_0000;
const SPACE: u64 = 1 << 36;

/// The descriptor of a slot is always this one.
pub fn descriptor(slot: u8) -> i32 {
    100 + i32::from(slot % SLOTS)
}

pub fn length_of(content: &Content) -> usize {
    match content {
        Content::Bytes(bytes) => bytes.len(),
        Content::Fill(_, length) => *length as usize,
        Content::Structures(name, items) => {
            items.len()
                * Description::get()
                    .structure(name)
                    .map_or(0, |found| found.size)
        }
        Content::Joined(parts) => parts.iter().map(length_of).sum(),
        Content::Requests(requests) => netlink::encode(requests, 0).len(),
    }
}

/// The memory, from which contents are allocated and never freed.
pub struct Memory {
    base: *mut u8,
    used: usize,
    pub family: u16,
    pub stream: u64,
}

impl Memory {
    pub fn new(family: u16) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping touches no memory that exists.
        let base = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(null_mut(), SIZE, access, flags, -1, 0)
        };
        assert_ne!(base, libc::MAP_FAILED, "no memory for the arguments");
        Memory {
            base: base.cast(),
            used: 0,
            family,
            stream: 0,
        }
    }

    /// The number that the kernel is passed.
    pub fn place(&mut self, value: &Value) -> u64 {
        match value {
            Value::Number(number) => *number,
            Value::File(slot) => descriptor(*slot) as u64,
            Value::Mapping(slot, offset) => {
                SPACES + SPACE * u64::from(slot % SLOTS) + offset % SPACE
            }
            Value::Stream => self.stream,
            Value::Bytes(_) => 0,
            Value::Memory(place, content) => {
                let bytes = self.bytes(content);
                self.put(*place, &bytes)
            }
        }
    }

    fn bytes(&mut self, content: &Content) -> Vec<u8> {
        match content {
            Content::Bytes(bytes) => bytes.clone(),
            Content::Fill(byte, length) => vec![*byte; (*length as usize).min(2 << 20)],
            Content::Structures(name, items) => self.structures(name, items),
            Content::Joined(parts) => parts.iter().flat_map(|part| self.bytes(part)).collect(),
            Content::Requests(requests) => netlink::encode(requests, self.family),
        }
    }

    fn structures(&mut self, name: &str, items: &[Vec<Value>]) -> Vec<u8> {
        let Some(structure) = Description::get().structure(name) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for item in items {
            let mut bytes = vec![0; structure.size];
            for (field, value) in structure.fields.iter().zip(item) {
                let number = self.place(value).to_ne_bytes();
                let content: &[u8] = match value {
                    Value::Bytes(bytes) => bytes,
                    _ => &number,
                };
                let width = Structure::width(field).min(content.len());
                bytes[field.offset..][..width].copy_from_slice(&content[..width]);
            }
            all.extend(bytes);
        }
        all
    }

    /// Copies bytes to where a call finds them; without room to the end of the memory, where a call does not.
    fn put(&mut self, place: Place, bytes: &[u8]) -> u64 {
        // The byte after a structure is zero, for calls with a size that is one too large.
        let (pages, room) = match place {
            Place::Ordinary => (false, (bytes.len() + 64).next_multiple_of(8)),
            _ => (true, bytes.len().next_multiple_of(PAGE).max(PAGE) + PAGE),
        };
        let start = if pages {
            self.used.next_multiple_of(PAGE)
        } else {
            self.used
        };
        if start + room > SIZE {
            return self.base as u64 + SIZE as u64;
        }
        self.used = start + room;
        let guard = (start + room).saturating_sub(PAGE);
        let at = match place {
            Place::Ordinary => start,
            Place::Edge | Place::ReadOnly => guard - bytes.len(),
            Place::Beyond(missing) => guard - bytes.len() + bytes.len().min(missing.into()),
        };
        let kept = if pages {
            bytes.len().min(guard - at)
        } else {
            bytes.len()
        };
        // SAFETY: the range is within the memory, and nothing else refers to it.
        unsafe {
            let target = self.base.add(at);
            target.copy_from_nonoverlapping(bytes.as_ptr(), kept);
            if pages {
                let guard = self.base.add(guard);
                libc::mprotect(guard.cast(), PAGE, libc::PROT_NONE);
            }
            if place == Place::ReadOnly {
                libc::mprotect(self.base.add(start).cast(), room - PAGE, libc::PROT_READ);
            }
            target as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_laid_out_by_the_description() {
        let mut memory = Memory::new(0);
        let fields = vec![Value::Number(16), Value::Number(2), Value::Number(3)];
        let setting = Content::Structures("sluice_setting".into(), vec![fields]);
        let mut expected = vec![16, 0, 0, 0, 2, 0, 0, 0, 3];
        expected.resize(16, 0);
        assert_eq!(memory.bytes(&setting), expected);
        assert_eq!(length_of(&setting), expected.len());
    }

    #[test]
    fn a_content_at_an_edge_ends_at_a_page() {
        let mut memory = Memory::new(0);
        let content = Content::Fill(7, 5000);
        let address = memory.place(&Value::Memory(Place::Edge, content.clone()));
        assert_eq!((address as usize + 5000) % PAGE, 0);
        let beyond = memory.place(&Value::Memory(Place::Beyond(8), content));
        assert_eq!((beyond as usize + 5000) % PAGE, 8);
    }

    #[test]
    fn what_does_not_fit_is_at_an_address_without_memory() {
        let mut memory = Memory::new(0);
        let large = Value::Memory(Place::Ordinary, Content::Fill(0, 1 << 20));
        let addresses: Vec<u64> = (0..40).map(|_| memory.place(&large)).collect();
        assert_eq!(addresses[39], memory.base as u64 + SIZE as u64);
    }
}
