// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipes: bytes between the processes of a scope, through the module, as through a FIFO.
//!
//! The reader:
//!
//! ```no_run
//! use std::io::Read as _;
//!
//! let mut reader = sluice::Pipe::named("frames").create(true).reader()?; // waits for a writer
//! let mut frame = [0; 1024];
//! reader.read_exact(&mut frame)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The writer:
//!
//! ```no_run
//! use std::io::Write as _;
//!
//! let mut writer = sluice::Pipe::named("frames").create(true).writer()?; // waits for a reader
//! writer.write_all(&[0; 1024])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Reader`] and a [`Writer`] behave like the two ends of a FIFO: see sluice-pipe(4) and fifo(7). [`Pipe::unnamed`] is the pipe of the
//! caller's cgroup without a name. With the feature `tokio` there are `AsyncReader` and `AsyncWriter`.

mod endpoint;
mod info;
mod options;
#[cfg(feature = "tokio")]
mod tokio;
mod unnamed;

#[cfg(feature = "tokio")]
pub use self::tokio::{AsyncReader, AsyncWriter};
pub use endpoint::{Reader, Writer};
pub use info::PipeInfo;
pub use options::{Options, Pipe};
pub use unnamed::Unnamed;
