// SPDX-License-Identifier: MIT OR Apache-2.0
//! What calls return to C.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::ptr;

use libc::ssize_t;

use crate::error::Result;
use crate::input::given;

/// A result, as a number that is not negative.
pub trait Returned {
    type Number;
    fn returned(self) -> Self::Number;
    /// A negative errno.
    fn failed(errno: c_int) -> Self::Number;
}

macro_rules! returned {
    ($($type:ty as $number:ty: $value:ident => $returned:expr;)*) => {$(
        impl Returned for $type {
            type Number = $number;

            #[inline]
            fn returned(self) -> $number {
                let $value = self;
                $returned
            }

            fn failed(errno: c_int) -> $number {
                errno as $number
            }
        }
    )*};
}

returned! {
    () as c_int: _done => 0;
    bool as c_int: is_so => is_so.into();
    c_int as c_int: number => number;
    OwnedFd as c_int: fd => fd.into_raw_fd();
    // Nothing is longer than a mapping, and no count larger than an array.
    usize as ssize_t: length => length as ssize_t;
    u64 as i64: number => number as i64;
}

/// Runs a call of C.
#[inline]
pub fn call<T: Returned>(body: impl FnOnce() -> Result<T>) -> T::Number {
    match body() {
        Ok(result) => result.returned(),
        Err(failure) => T::failed(failure.returned()),
    }
}

/// Stores a new object for C, or NULL after a failure.
pub fn give<T, O: Into<T>>(
    out: Option<&mut MaybeUninit<*mut T>>,
    open: impl FnOnce() -> Result<O>,
) -> c_int {
    call(|| {
        let out = given(out)?;
        out.write(ptr::null_mut());
        out.write(boxed(open()?));
        Ok(())
    })
}

/// A new object of C.
pub fn boxed<T>(opened: impl Into<T>) -> *mut T {
    Box::into_raw(Box::new(opened.into()))
}

/// Stores a result for C.
pub fn put<T, R: Into<T>>(
    out: Option<&mut MaybeUninit<T>>,
    query: impl FnOnce() -> Result<R>,
) -> c_int {
    call(|| {
        given(out)?.write(query()?.into());
        Ok(())
    })
}

/// Stores the next element of an iteration for C, and returns whether there is one.
pub fn put_next<T, R: Into<T>>(
    out: Option<&mut MaybeUninit<T>>,
    next: impl FnOnce() -> Result<Option<R>>,
) -> c_int {
    call(|| {
        let out = given(out)?;
        Ok(next()?.map(|next| out.write(next.into())).is_some())
    })
}

/// Stores a result that C may not want.
pub fn put_optional<T>(out: Option<&mut MaybeUninit<T>>, result: Option<T>) {
    if let (Some(out), Some(result)) = (out, result) {
        out.write(result);
    }
}
