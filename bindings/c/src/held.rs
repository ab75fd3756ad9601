// SPDX-License-Identifier: MIT OR Apache-2.0
//! An object, and what borrows it between two calls of C: a record in place, a reservation, a packet.

use std::mem;
use std::ptr::NonNull;

use crate::error::{Failure, Result};

/// Owns an object on the heap, and what is held of it.
///
/// In Rust a record in place borrows its consumer, so that the compiler prevents other uses. C has no borrows: the holder keeps both, and
/// gives no reference to the object while something is held.
pub struct Holder<T, H> {
    /// Borrows the object, so it is dropped before it.
    held: Option<H>,
    /// Not a box: a box says that nothing else refers to its content, which is wrong while something is held.
    object: NonNull<T>,
}

impl<T: 'static, H> Holder<T, H> {
    pub fn new(object: T) -> Self {
        Self {
            held: None,
            object: NonNull::from(Box::leak(Box::new(object))),
        }
    }

    /// The object. Fails while something is held.
    #[inline]
    pub fn idle(&mut self) -> Result<&mut T> {
        match self.held {
            // SAFETY: the holder owns the object, and nothing borrows it.
            None => Ok(unsafe { self.object.as_mut() }),
            Some(_) => Err(is_held()),
        }
    }

    /// Holds what `borrow` returns. Fails if something is held already.
    ///
    /// # Safety
    /// `borrow` stores the reference in its result only. Callers of held() and take() copy no reference out of the result.
    #[inline]
    pub unsafe fn hold(
        &mut self,
        borrow: impl FnOnce(&'static mut T) -> Result<H>,
    ) -> Result<&mut H> {
        if self.held.is_some() {
            return Err(is_held());
        }
        // SAFETY: the object is at one address until the holder drops it, and what is held is dropped before. As long as something is
        // held, no other reference to the object is made.
        let object = unsafe { self.object.as_mut() };
        let borrowed = borrow(object)?;
        Ok(self.held.insert(borrowed))
    }

    #[inline]
    pub fn held(&mut self) -> Option<&mut H> {
        self.held.as_mut()
    }

    /// What is held, which the caller drops or consumes before it uses the holder again.
    #[inline]
    pub fn take(&mut self) -> Option<H> {
        self.held.take()
    }

    /// As take(), but fails if nothing is held.
    #[inline]
    pub fn take_held(&mut self) -> Result<H> {
        self.take().ok_or_else(is_not_held)
    }

    /// The object. What is held is dropped.
    pub fn into_object(mut self) -> T {
        self.held = None;
        let object = self.object;
        mem::forget(self);
        // SAFETY: the object was a box, which nothing borrows and nothing else frees.
        *unsafe { Box::from_raw(object.as_ptr()) }
    }
}

impl<T, H> Drop for Holder<T, H> {
    fn drop(&mut self) {
        self.held = None;
        // SAFETY: the object was a box, which nothing borrows and nothing else frees.
        drop(unsafe { Box::from_raw(self.object.as_ptr()) });
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds one to the object when it is dropped.
    struct Borrow(&'static mut u32);

    impl Drop for Borrow {
        fn drop(&mut self) {
            *self.0 += 1;
        }
    }

    fn hold(holder: &mut Holder<u32, Borrow>) -> Result<()> {
        // SAFETY: the reference is in the result only.
        unsafe { holder.hold(|object| Ok(Borrow(object))) }.map(drop)
    }

    #[test]
    fn the_object_is_not_used_while_something_is_held() {
        let mut holder = Holder::new(1);
        *holder.idle().unwrap() = 5;
        hold(&mut holder).unwrap();
        assert_eq!(holder.idle().unwrap_err().returned(), -libc::EBUSY);
        assert_eq!(hold(&mut holder).unwrap_err().returned(), -libc::EBUSY);
        drop(holder.take().unwrap());
        assert_eq!(*holder.idle().unwrap(), 6);
        assert!(holder.take_held().is_err());
        hold(&mut holder).unwrap();
        assert_eq!(holder.into_object(), 7);
    }
}
