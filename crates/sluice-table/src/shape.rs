// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the parts of a table are, and the hash of a key.

use std::mem::offset_of;

use sluice_abi::map::{BUCKET_CELLS, Bucket, CELL_MAX, CELL_MIN, Cell, HASH_FACTOR, PROBES};

/// The cells of a block, with that of the bucket.
const BLOCK_CELLS: u64 = BUCKET_CELLS as u64 + 1;

pub const ELSEWHERE: u64 = offset_of!(Bucket, elsewhere) as u64;
pub const VERSION: u64 = offset_of!(Cell, version) as u64;
pub const EXPIRES: u64 = offset_of!(Cell, expires_ns) as u64;
/// The word of both lengths.
pub const LENGTHS: u64 = offset_of!(Cell, value_length) as u64;
pub const KEY: u64 = Cell::SIZE as u64;
pub const WORD: u64 = size_of::<u64>() as u64;

/// What the header of a table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    seed: u64,
    cell: u64,
    blocks: u64,
}

impl Shape {
    /// None: no table has these sizes in bytes.
    pub fn new(seed: u64, table: u64, cell: u32) -> Option<Self> {
        let blocks = table / (u64::from(cell).max(1) * BLOCK_CELLS);
        let is_valid = cell.is_power_of_two()
            && (CELL_MIN..=CELL_MAX).contains(&cell)
            && table.is_power_of_two()
            && blocks > 0;
        is_valid.then_some(Self {
            seed,
            cell: cell.into(),
            blocks,
        })
    }

    /// The size of the smallest table for so many entries of cells of this size: on average, two thirds of the cells are free or less.
    pub fn table_for(entries: u64, cell: u32) -> Option<u64> {
        let blocks = entries.div_ceil(ENTRIES_PER_BLOCK).max(1);
        let blocks = blocks.checked_next_power_of_two()?;
        blocks.checked_mul(u64::from(cell) * BLOCK_CELLS)
    }

    pub fn table(&self) -> u64 {
        self.blocks * self.cell * BLOCK_CELLS
    }

    pub fn cell_size(&self) -> u64 {
        self.cell
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// docs/abi/map-mapped.md defines it.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let (mut hash, mut rest) = (self.seed ^ key.len() as u64, key);
        while let Some((word, after)) = rest.split_first_chunk() {
            hash = mix(hash ^ u64::from_ne_bytes(*word));
            rest = after;
        }
        mix(mix(hash ^ padded(rest)) ^ self.seed)
    }

    /// The home block of a key.
    #[inline]
    pub fn home(&self, hash: u64) -> u64 {
        (hash >> 32) & (self.blocks - 1)
    }

    /// The blocks in which an entry may be, the home block first.
    #[inline]
    pub fn probes(&self, home: u64) -> impl Iterator<Item = u64> {
        let mask = self.blocks - 1;
        (0..PROBES.min(self.blocks)).map(move |probe| (home + probe) & mask)
    }

    /// The position of the bucket of a block.
    #[inline]
    pub fn bucket(&self, block: u64) -> u64 {
        block * self.cell * BLOCK_CELLS
    }

    /// The position of the first cell of a key: the cell that an insertion tries first.
    #[inline]
    pub fn first_cell(&self, home: u64, tag: u32) -> u64 {
        self.cell(home, first_of(tag))
    }

    /// The position of the tag of this index.
    #[inline]
    pub fn tag(&self, block: u64, index: u64) -> u64 {
        self.bucket(block) + index * size_of::<u32>() as u64
    }

    /// The position of the cell that has a tag of this index.
    #[inline]
    pub fn cell(&self, block: u64, index: u64) -> u64 {
        self.bucket(block) + (index + 1) * self.cell
    }

    /// Where a value begins in its cell; None: the key does not fit.
    #[inline]
    pub fn value_at(&self, key_length: usize) -> Option<u64> {
        let at = KEY + (key_length as u64).next_multiple_of(WORD);
        (at <= self.cell).then_some(at)
    }
}

/// Up to so many entries in a block on average, which has 15 cells: fewer than one in 20 is then not in its home block.
const ENTRIES_PER_BLOCK: u64 = 10;

#[inline]
pub fn tag_of(hash: u64) -> u32 {
    (hash as u32).max(1)
}

/// The index of the cell that is tried first in each block.
#[inline]
pub fn first_of(tag: u32) -> u64 {
    (u64::from(tag) * BUCKET_CELLS as u64) >> 32
}

/// Up to a word, with zeros behind it.
#[inline]
pub fn padded(bytes: &[u8]) -> u64 {
    // Without the call that copies nothing, for most keys.
    if bytes.is_empty() {
        return 0;
    }
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

/// The word of the lengths of a value and of a key.
pub fn lengths(value: u32, key: u16) -> u64 {
    let ([a, b, c, d], [e, f]) = (value.to_ne_bytes(), key.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, 0, 0])
}

#[inline]
pub fn lengths_of(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, _, _] = word.to_ne_bytes();
    [
        u32::from_ne_bytes([a, b, c, d]),
        u16::from_ne_bytes([e, f]).into(),
    ]
}

#[inline]
fn mix(hash: u64) -> u64 {
    let product = u128::from(hash) * u128::from(HASH_FACTOR);
    product as u64 ^ (product >> 64) as u64
}
