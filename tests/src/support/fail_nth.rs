// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures that the kernel injects into the system calls of one thread: of what can fail in them (allocations, copies from
//! and to user memory), the n-th does.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;

use super::check::skip;

const FILE: &str = "/proc/thread-self/fail-nth";

/// Without these the kernel spares the allocations that may sleep, those of pages for user data, and those of single pages,
/// and logs each failure with a trace. Nothing is injected but what fail-nth asks for: the probabilities stay zero.
const SETTINGS: [(&str, &str); 7] = [
    ("failslab/ignore-gfp-wait", "N"),
    ("failslab/verbose", "0"),
    ("fail_page_alloc/ignore-gfp-wait", "N"),
    ("fail_page_alloc/ignore-gfp-highmem", "N"),
    ("fail_page_alloc/min-order", "0"),
    ("fail_page_alloc/verbose", "0"),
    ("fail_usercopy/verbose", "0"),
];

/// The calling thread's injection.
pub struct FailNth(File);

/// What a call returned, and whether the failure was injected into it: it has fewer points that can fail if not.
pub struct Injected<T> {
    pub result: T,
    pub hit: bool,
}

impl FailNth {
    /// Skips the test where the kernel injects nothing.
    pub fn of_this_thread() -> Result<Self> {
        let file = match OpenOptions::new().read(true).write(true).open(FILE) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(skip(
                    "this kernel injects no failures (CONFIG_FAULT_INJECTION)",
                ));
            }
            Err(error) => return Err(error).with_context(|| format!("opening {FILE}")),
        };
        for (name, value) in SETTINGS {
            let path = format!("/sys/kernel/debug/{name}");
            fs::write(&path, value).with_context(|| format!("writing {value} to {path}"))?;
        }
        Ok(FailNth(file))
    }

    /// `call` makes one system call. What it touches in user memory must be there already: a page fault has points, too.
    pub fn during<T>(&self, nth: u32, call: impl FnOnce() -> T) -> Result<Injected<T>> {
        let number = nth.to_string();
        self.0
            .write_all_at(number.as_bytes(), 0)
            .context("arming the injection")?;
        let result = call();
        let left = self.left()?;
        self.disarm()?;
        Ok(Injected {
            result,
            hit: left == 0,
        })
    }

    /// Points that the injection still lets pass, with the one that fails. Telling it is a copy to user memory: the last point.
    fn left(&self) -> Result<u32> {
        let mut text = [0; 16];
        match self.0.read_at(&mut text, 0) {
            Ok(count) => {
                let text = String::from_utf8_lossy(&text[..count]);
                let number = text.trim().parse();
                number.with_context(|| format!("{FILE} says {text:?}"))
            }
            Err(error) if is_fault(&error) => Ok(1),
            Err(error) => Err(error).context("reading the injection back"),
        }
    }

    fn disarm(&self) -> Result<()> {
        for _ in 0..3 {
            match self.0.write_all_at(b"0", 0) {
                Ok(()) => return Ok(()),
                Err(error) if is_fault(&error) => {}
                Err(error) => return Err(error).context("disarming the injection"),
            }
        }
        bail!("{FILE} cannot be set to 0")
    }
}

fn is_fault(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EFAULT as i32)
}
