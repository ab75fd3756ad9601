// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls of a map with addresses in their structures.

use std::io;
use std::os::fd::BorrowedFd;

use sluice_abi::map;

use super::entry::{DeleteOptions, SetOptions};
use crate::sys::{checked, is_interrupt, raw, retry};

/// Copies the value of a key into the room. Returns the operation with its results, some of which it has after an error, too.
pub(super) fn get(fd: BorrowedFd<'_>, key: &[u8], room: &mut [u8]) -> (map::Op, io::Result<()>) {
    let mut op = map::Op::get(key, room);
    // SAFETY: the addresses and lengths are those of the key and of the room, which nothing else accesses until the call returns.
    let called = retry(|| checked(unsafe { raw(fd, map::GET, &raw mut op) }));
    (op, called.map(drop))
}

/// Sets a value, and returns whether that created the entry. Also returns the operation, as get() does; after an error its version
/// tells whether the change is made.
pub(super) fn set(
    fd: BorrowedFd<'_>,
    key: &[u8],
    value: &[u8],
    options: SetOptions,
) -> (map::Op, io::Result<bool>) {
    let mut op = options.apply(map::Op::set(key, value));
    // SAFETY: the addresses and lengths are those of the key and of the value, which the kernel only reads.
    let called = unsafe { change(fd, map::SET, &mut op) };
    (op, called.map(|created| created > 0))
}

/// Deletes the entry of a key. Returns the operation, as set() does.
pub(super) fn delete(
    fd: BorrowedFd<'_>,
    key: &[u8],
    options: DeleteOptions,
) -> (map::Op, io::Result<()>) {
    let mut op = options.apply(map::Op::delete(key));
    // SAFETY: the address and length are those of the key, which the kernel only reads.
    let called = unsafe { change(fd, map::DELETE, &mut op) };
    (op, called.map(drop))
}

/// Calls a set or a delete, and repeats it after a signal, unless that came while a change that is made waited for the store.
///
/// # Safety
/// The command is one of the two, and the addresses in the operation are valid for it.
unsafe fn change(fd: BorrowedFd<'_>, command: libc::Ioctl, op: &mut map::Op) -> io::Result<i32> {
    let passed = op.version;
    loop {
        // SAFETY: as the caller guarantees.
        match checked(unsafe { raw(fd, command, std::ptr::from_mut(op)) }) {
            Err(error) if is_interrupt(&error) && op.version == passed => {}
            other => return other,
        }
    }
}

/// What a call with steps has done.
pub(super) struct Executed {
    /// The steps that were executed.
    pub count: usize,
    /// Why those changes of them that are made, and wait for the store, are not known to be stored.
    pub unstored: Option<io::Error>,
}

/// The result of a step before it is executed, which no operation returns.
const UNEXECUTED: i32 = i32::MIN;

/// Executes the steps up to a signal, and fills in their results.
///
/// # Safety
/// Every address in the steps is valid for its length and its command, and nothing else accesses what a get writes to.
pub(super) unsafe fn batch(fd: BorrowedFd<'_>, steps: &mut [map::Step]) -> io::Result<Executed> {
    steps.iter_mut().for_each(|step| step.result = UNEXECUTED);
    loop {
        let mut batch = map::Batch::new(steps.as_mut_ptr(), steps.len());
        // SAFETY: the address is that of `count` steps, accessed by nothing else until the call returns; those in them are valid, as
        // the caller guarantees.
        let called = checked(unsafe { raw(fd, map::BATCH, &raw mut batch) });
        let count = (batch.count as usize).min(steps.len());
        match executed(called, count, steps) {
            Err(error) if is_interrupt(&error) => {}
            other => return other,
        }
    }
}

/// Fails only if no step was executed.
fn executed(called: io::Result<i32>, count: usize, steps: &[map::Step]) -> io::Result<Executed> {
    let is_executed = |step: &&map::Step| step.result != UNEXECUTED;
    match called {
        Ok(_) => Ok(Executed {
            count,
            unstored: None,
        }),
        Err(error) => match steps.iter().take_while(is_executed).count() {
            0 => Err(error),
            count => Ok(Executed {
                count,
                unstored: Some(error),
            }),
        },
    }
}

/// A page of a dump.
pub(super) struct DumpPage {
    /// Bytes with records.
    pub len: usize,
    pub count: u32,
}

/// Why there is no page.
pub(super) enum DumpFailure {
    /// The room for the next record.
    TooSmall {
        needed: usize,
    },
    Call(io::Error),
}

/// The next entries of a dump, as many as the room holds.
pub(super) fn dump(
    fd: BorrowedFd<'_>,
    flags: u32,
    cursor: &mut map::Cursor,
    room: &mut [u8],
) -> Result<DumpPage, DumpFailure> {
    let mut dump = map::Dump::new(flags, *cursor, room);
    // SAFETY: the address and length are those of the room, which nothing else accesses until the call returns.
    let called = retry(|| checked(unsafe { raw(fd, map::DUMP, &raw mut dump) }));
    let len = dump.length as usize;
    match called {
        Ok(_) => {
            *cursor = dump.cursor;
            Ok(DumpPage {
                len: len.min(room.len()),
                count: dump.count,
            })
        }
        Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
            Err(DumpFailure::TooSmall { needed: len })
        }
        Err(error) => Err(DumpFailure::Call(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(results: [i32; 3]) -> [map::Step; 3] {
        results.map(|result| map::Step {
            result,
            ..map::Step::default()
        })
    }

    #[test]
    fn only_a_batch_without_an_executed_step_fails() {
        let interrupted = || Err(io::Error::from_raw_os_error(libc::EINTR));
        let none = executed(interrupted(), 3, &steps([UNEXECUTED; 3]));
        assert!(none.is_err_and(|error| is_interrupt(&error)));
        let some = executed(interrupted(), 3, &steps([0, -libc::ENOENT, UNEXECUTED])).unwrap();
        assert_eq!(some.count, 2);
        assert!(some.unstored.is_some_and(|error| is_interrupt(&error)));
        let all = executed(Ok(0), 2, &steps([0, 1, UNEXECUTED])).unwrap();
        assert_eq!(all.count, 2);
        assert!(all.unstored.is_none());
    }
}
