// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects that hold bytes in place between two calls of C: records, a reservation, a message, a packet.
//!
//! In Rust bytes in place borrow their object, so that the compiler prevents other uses of it. C has no borrows: other calls fail meanwhile.

use crate::error::{Failure, Result};
use crate::input::given;

pub trait Holder {
    fn is_holding(&self) -> bool;
}

/// The object. Fails while it holds something.
#[inline]
pub fn idle<T: Holder>(object: Option<&mut T>) -> Result<&mut T> {
    let object = given(object)?;
    match object.is_holding() {
        false => Ok(object),
        true => Err(is_held()),
    }
}

/// The object, which holds something.
#[inline]
pub fn holding<T: Holder>(object: Option<&mut T>) -> Result<&mut T> {
    let object = given(object)?;
    match object.is_holding() {
        true => Ok(object),
        false => Err(is_not_held()),
    }
}

#[cold]
fn is_held() -> Failure {
    Failure::new(
        libc::EBUSY,
        c"a record or a reservation of this object is held",
        c"release, commit or cancel it first",
    )
}

#[cold]
fn is_not_held() -> Failure {
    Failure::invalid(
        c"no record or reservation of this object is held",
        c"receive or reserve first",
    )
}
