// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures that the kernel injects into the system calls of one thread: the n-th operation that can fail (an
//! allocation, a copy to or from user memory) does.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use sluice_testkit::fail_nth::SETTINGS;

use super::check::{note, skip};
use super::ctl::{Ctl, expect_no_channel};

const FILE: &str = "/proc/thread-self/fail-nth";

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

/// An upper bound of the points of any operation.
const MAX_POINTS: u32 = 1000;

/// The operations of a test, and the number of points at which each was made to fail.
pub struct FailureSweep {
    fail: FailNth,
    pub ctl: Ctl,
    points: RefCell<Vec<String>>,
}

impl FailureSweep {
    pub fn new() -> Result<Self> {
        Ok(FailureSweep {
            fail: FailNth::for_this_thread()?,
            ctl: Ctl::new()?,
            points: RefCell::default(),
        })
    }

    /// Runs `call` with a failure at its first point, its second, and so on, until no failure is injected any more;
    /// each time in a new state from `setup`. `verify` checks the result of the call that succeeded, which may be the
    /// second attempt.
    pub fn sweep<S, T>(
        &self,
        what: &str,
        setup: impl Fn() -> Result<S>,
        call: impl Fn(&S) -> nix::Result<T>,
        verify: impl Fn(&S, T) -> Result<()>,
    ) -> Result<()> {
        for nth in 1..=MAX_POINTS {
            let at = || format!("{what}, failing at point {nth}");
            let state = setup().with_context(at)?;
            let seen = self.fail.during(nth, || call(&state))?;
            let value = match seen.result {
                Ok(value) => value,
                Err(Errno::ENOMEM | Errno::EFAULT) if seen.hit => {
                    call(&state).with_context(|| format!("{}: the second attempt", at()))?
                }
                Err(error) => bail!("{}: {error}", at()),
            };
            verify(&state, value).with_context(at)?;
            drop(state);
            if !seen.hit {
                expect_no_channel(&self.ctl).with_context(|| what.to_owned())?;
                self.points
                    .borrow_mut()
                    .push(format!("{what} × {}", nth - 1));
                return Ok(());
            }
        }
        bail!("{what}: more than {MAX_POINTS} points")
    }

    pub fn finish(self) -> Result<()> {
        note(self.points.into_inner().join(", "));
        Ok(())
    }
}

pub fn nothing<T>(_: &impl Sized, _: T) -> Result<()> {
    Ok(())
}
