// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the mapped table of a map, which docs/abi/map-mapped.md defines: a lookup without a system call, beside changes that do not wait for
//! readers. The caller provides the memory, as a [`Memory`].
//!
//! ```text
//!  block     | bucket            | cell 0                            | cell 1 | ... | cell 14 |
//!            | 15 tags, elsewhere | sequence, version, expiry, lengths, key, value |
//! ```
//! The hash of a key determines its home block and its tag. The tag determines the first cell, in which most entries are. [`Reader::get`]
//! reads that cell. If it has another key, the reader compares the tags of the home block, and reads the cells with an equal tag. If none
//! has the key, and `elsewhere` is 0, the key has no entry; otherwise its entry may be in one of the next blocks, or in no cell.
//!
//! # Why a value is never of two changes
//! A change makes the sequence of a cell odd before it stores anything else there, and even afterwards. A reader loads the sequence before
//! and after the content. The release after a change and the acquire of the first load order the content of that change before the content
//! that the reader loads; the release fence before a change and the acquire fence of the reader order the odd sequence of a later change
//! before the second load, if the reader has loaded anything of that change. So an even sequence that is the same twice belongs to all that
//! was loaded between.
//!
//! # Why a key that has an entry is found
//! An entry stays in its cell until it is removed. While it is in another block than its home block, or has no cell, `elsewhere` of the home
//! block counts it. A reader that finds neither a cell with the key nor a count has loaded both at times between which the key was absent,
//! also if the entry was removed and inserted elsewhere meanwhile.

// Words of the table are loaded as a whole from memory that is mapped read-only. Rust defines such loads up to the size of a pointer.
#[cfg(not(target_pointer_width = "64"))]
compile_error!("mapped tables need a 64-bit target");

mod memory;
mod reader;
mod shape;
pub mod sync;
mod tags;
pub mod writer;

pub use memory::Memory;
pub use reader::{Content, Lookup, Reader, Value};
pub use shape::Shape;
