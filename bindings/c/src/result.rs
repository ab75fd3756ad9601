// SPDX-License-Identifier: MIT OR Apache-2.0
//! What calls return to C.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use crate::error::Result;
use crate::input::given;

/// A result that is not negative, or a negative errno.
pub trait Returned {
    fn failed(errno: c_int) -> Self;
}

macro_rules! returned {
    ($($integer:ty),*) => {$(
        impl Returned for $integer {
            fn failed(errno: c_int) -> Self {
                errno as Self
            }
        }
    )*};
}

returned!(c_int, i64, isize);

/// Runs a call of C.
#[inline]
pub fn call<T: Returned>(body: impl FnOnce() -> Result<T>) -> T {
    body().unwrap_or_else(|failure| T::failed(failure.returned()))
}

/// Stores a new object for C, or NULL after a failure.
pub fn give<T>(out: Option<&mut MaybeUninit<*mut T>>, make: impl FnOnce() -> Result<T>) -> c_int {
    call(|| {
        let out = given(out)?;
        out.write(ptr::null_mut());
        out.write(Box::into_raw(Box::new(make()?)));
        Ok(0)
    })
}

/// Stores a result for C.
pub fn put<T>(out: Option<&mut MaybeUninit<T>>, make: impl FnOnce() -> Result<T>) -> c_int {
    call(|| {
        given(out)?.write(make()?);
        Ok(0)
    })
}
