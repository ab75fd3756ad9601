// SPDX-License-Identifier: MIT OR Apache-2.0
//! libsluice: the C library of Sluice. `sluice.h` is generated from the doc comments of this crate, whose conventions are at its top
//! (cbindgen.toml).
//!
//! - A file has the functions of one concept. An exported function has the name that it has in C, and is a few lines that convert
//!   arguments and results; the work is done by the crate `sluice`.
//! - An object of C is a `Box` of a type here. A function takes it as `Option<&mut T>`, and NULL is `None`.
//! - `// SAFETY: the conventions.` refers to the conventions of the header: a caller passes pointers that are NULL or valid for the call,
//!   with the lengths of what they point to.
//! - [`call`](result::call) turns a result into the value that C gets, and [`Failure`](error::Failure) keeps the text of an error.
//! - A panic does not cross: in a function that is `extern "C"` it aborts the process, as a failed assert(3) does.
mod bus;
mod channels;
mod error;
mod feed;
mod held;
mod input;
mod map;
mod module;
mod options;
mod pipe;
mod result;
mod ring;
