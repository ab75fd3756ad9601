// SPDX-License-Identifier: MIT OR Apache-2.0

use arbitrary::Arbitrary;

const MAGIC: u32 = 0x474e_5253;

/// struct sluice_ring_hello, with arbitrary values.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Hello {
    pub magic: u32,
    pub size: u32,
    pub version: u32,
    pub role: u32,
    pub flags: u32,
    pub data: u32,
    pub capacity: u64,
}

impl Hello {
    /// A valid hello of a producer.
    pub fn producer(capacity: usize) -> Self {
        Self {
            magic: MAGIC,
            size: 32,
            version: 1,
            role: 1,
            flags: 0,
            data: super::DATA as u32,
            capacity: capacity as u64,
        }
    }

    /// A valid hello of a consumer.
    pub fn consumer() -> Self {
        Self {
            role: 2,
            data: 0,
            capacity: 0,
            ..Self::producer(0)
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let words = [
            self.magic,
            self.size,
            self.version,
            self.role,
            self.flags,
            self.data,
        ];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend(self.capacity.to_ne_bytes());
        bytes
    }
}

/// struct sluice_ring_reply.
pub fn reply(error: u32) -> Vec<u8> {
    [MAGIC, error]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect()
}
