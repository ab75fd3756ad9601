// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several operations on a map with one system call.

use std::ffi::{c_int, c_void};

use sluice::map::{Batch, Outcome, ReadError, WriteError};

use super::endpoint::{Map, no_entry, version_of};
use super::entry::left;
use super::options::Change;
use crate::error::{Failure, Result};
use crate::input::{array_mut, bytes, check_zero, given, room};
use crate::result::call;

/// The actions of operations.
pub const SLUICE_GET: u32 = 1;
pub const SLUICE_SET: u32 = 2;
pub const SLUICE_DELETE: u32 = 3;

/// An operation of sluice_map_batch(), and its result.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Operation {
    /// SLUICE_GET, SLUICE_SET or SLUICE_DELETE.
    pub action: u32,
    /// Of a set or a delete: SLUICE_IF_VERSION, SLUICE_NOWAIT.
    pub flags: u32,
    pub key: *const c_void,
    pub key_length: usize,
    /// Of a set.
    pub value: *const c_void,
    /// Of a set: the length of the value. Of a get, out: the length of the value that was found, also if it is longer than the buffer.
    pub value_length: usize,
    /// Of a get: room for the value.
    pub buffer: *mut c_void,
    pub buffer_size: usize,
    /// In: with SLUICE_IF_VERSION. Out: the version of the entry, or the number of the change, as of the single call.
    pub version: u64,
    /// Of a set, in: the time after which the entry is removed, 0: never. Of a get, out: the remaining time, 0: it never expires.
    pub time_to_live_ns: u64,
    /// Out: what the single call would return. Of a get, the length of the value.
    pub result: i64,
    /// Zero.
    pub reserved: [u64; 2],
}

impl Operation {
    fn change(&self) -> Change {
        Change {
            flags: self.flags,
            version: self.version,
            time_to_live_ns: self.time_to_live_ns,
        }
    }

    /// Adds the operation to a batch.
    ///
    /// # Safety
    /// Key and value are valid during 'a.
    unsafe fn add<'a>(&self, batch: Batch<'a>) -> Result<Batch<'a>> {
        check_zero(self.reserved == [0; 2])?;
        // SAFETY: as the caller guarantees.
        let key = unsafe { bytes(self.key, self.key_length) }?;
        match self.action {
            SLUICE_GET if self.flags == 0 => Ok(batch.get_with_room(key, self.buffer_size)),
            SLUICE_SET => {
                // SAFETY: as the caller guarantees.
                let value = unsafe { bytes(self.value, self.value_length) }?;
                Ok(batch.set_with(key, value, self.change().set()?))
            }
            SLUICE_DELETE => Ok(batch.delete_with(key, self.change().delete()?)),
            _ => {
                let message = c"unknown action of an operation, or a get with flags";
                let hint = c"use SLUICE_GET, SLUICE_SET or SLUICE_DELETE";
                Err(Failure::invalid(message, hint))
            }
        }
    }

    /// Stores the result. Returns whether the operation has failed.
    ///
    /// # Safety
    /// The buffer of a get is valid.
    unsafe fn finish(&mut self, outcome: Outcome) -> bool {
        let result = match outcome {
            Outcome::Get(found) => self.finish_get(found),
            Outcome::Set(set) => self.finish_change(set, |set| (set.created.into(), set.version)),
            Outcome::Delete(deleted) => self.finish_change(deleted, |number| match number {
                Some(number) => (1, number),
                None => (0, 0),
            }),
        };
        self.result = result.unwrap_or_else(|failure| failure.returned().into());
        self.result < 0
    }

    fn finish_get(
        &mut self,
        found: std::result::Result<Option<sluice::map::Entry>, ReadError>,
    ) -> Result<i64> {
        if let Err(ReadError::BufferTooSmall { len, .. }) = found {
            self.value_length = len;
        }
        let entry = found?.ok_or_else(no_entry)?;
        // Not longer than the buffer, which is the room of the get.
        let len = entry.value.len();
        self.value_length = len;
        self.version = entry.version;
        self.time_to_live_ns = left(entry.time_to_live);
        // SAFETY: the caller of sluice_map_batch() passes a buffer of this size.
        unsafe { room(self.buffer, self.buffer_size) }?[..len].copy_from_slice(&entry.value);
        Ok(len as i64)
    }

    fn finish_change<T>(
        &mut self,
        changed: std::result::Result<T, WriteError>,
        numbers: impl FnOnce(T) -> (i64, u64),
    ) -> Result<i64> {
        if let Some(version) = changed.as_ref().err().and_then(version_of) {
            self.version = version;
        }
        let (result, version) = numbers(changed?);
        self.version = version;
        Ok(result)
    }
}

/// Executes operations one after the other, with one system call for up to 256 of them, and stores the result of each. Returns the number
/// of those that have failed; sluice_error_message() is of the last of them. Together they are not atomic. A negative result means that
/// none was executed, because one is invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_map_batch(
    map: Option<&Map>,
    operations: *mut Operation,
    count: usize,
) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        let operations = unsafe { array_mut(operations, count) }?;
        let mut batch = given(map)?.map.batch();
        for operation in &*operations {
            // SAFETY: the conventions; the batch ends before this call does.
            batch = unsafe { operation.add(batch) }?;
        }
        let outcomes = batch.run();
        let finished = operations.iter_mut().zip(outcomes);
        // There are not more than the caller has memory for.
        Ok(finished
            // SAFETY: the conventions.
            .map(|(operation, outcome)| unsafe { operation.finish(outcome) })
            .filter(|failed| *failed)
            .count() as c_int)
    })
}
