// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures that the kernel injects into the system calls of one thread: the n-th operation that can fail (an
//! allocation, a copy to or from user memory) does.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;

use super::check::skip;

const FILE: &str = "/proc/thread-self/fail-nth";

/// By default the kernel excludes allocations that may sleep, allocations of pages for user data and of single pages,
/// and logs each failure with a trace. Only fail-nth injects failures: the probabilities stay zero.
const SETTINGS: [(&str, &str); 7] = [
    ("failslab/ignore-gfp-wait", "N"),
    ("failslab/verbose", "0"),
    ("fail_page_alloc/ignore-gfp-wait", "N"),
    ("fail_page_alloc/ignore-gfp-highmem", "N"),
    ("fail_page_alloc/min-order", "0"),
    ("fail_page_alloc/verbose", "0"),
    ("fail_usercopy/verbose", "0"),
];

/// Failure injection for the calling thread.
pub struct FailNth(File);

/// The result of a call, and whether a failure was injected; if not, the call has fewer points that can fail.
pub struct Injected<T> {
    pub result: T,
    pub hit: bool,
}

impl FailNth {
    /// Skips the test if the kernel does not inject failures.
    pub fn for_this_thread() -> Result<Self> {
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

    /// `call` makes one system call. Its user memory must be resident: a page fault has points too.
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

    /// The number of points left, including the failing one. Reading it copies to user memory, which is the last
    /// point.
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
