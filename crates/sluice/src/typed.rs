// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of types that implement the traits of serde, as records, messages, keys and values, in the format of postcard.

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::diagnosis::{Diagnose, Diagnosis, diagnosed};

/// An endpoint of a ring or a bus whose records or messages are values of a type that implements the traits of serde, in the format of
/// postcard. Both sides must agree on the type. The endpoints are the producers and consumers of rings and the senders and subscribers of
/// buses, asynchronous ones included, but not clients and servers: encode what these carry.
///
/// It has `send` and `recv`, and `send_to` of a bus, with their `try_` and `_timeout` forms. The future of an asynchronous send is Send if
/// the type is Sync. A record or message that cannot be decoded is
/// released: the next call returns the one after it.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use sluice::Typed;
/// use sluice::ring::{Socket, SocketOptions};
///
/// #[derive(Serialize, Deserialize)]
/// struct Order {
///     item: String,
///     count: u32,
/// }
///
/// let (here, there) = Socket::pair()?;
/// let sender = std::thread::spawn(move || {
///     let mut orders = Typed::new(SocketOptions::new().producer(there)?);
///     orders.send(&Order { item: "tea".to_owned(), count: 2 })?;
///     Ok::<(), std::io::Error>(())
/// });
/// let mut orders: Typed<_, Order> = Typed::new(SocketOptions::new().consumer(here)?);
/// while let Some(order) = orders.recv()? {
///     println!("{} of {}", order.count, order.item);
/// }
/// sender.join().expect("the sender panicked")?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Typed<E, T> {
    pub(crate) endpoint: E,
    types: PhantomData<fn(T) -> T>,
}

impl<E, T> Typed<E, T> {
    pub fn new(endpoint: E) -> Self {
        Self {
            endpoint,
            types: PhantomData,
        }
    }

    /// The endpoint, which sends or receives bytes.
    pub fn get_ref(&self) -> &E {
        &self.endpoint
    }

    /// The endpoint, for calls that change it.
    pub fn get_mut(&mut self) -> &mut E {
        &mut self.endpoint
    }

    pub fn into_inner(self) -> E {
        self.endpoint
    }
}

impl<E: fmt::Debug, T> fmt::Debug for Typed<E, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Typed").field(&self.endpoint).finish()
    }
}

/// The calls that send a value. `$async` and `$await` are empty, or what an asynchronous call has.
macro_rules! typed_sends {
    ($end:ty, $error:ty, $what:literal, $self:ident [$($mut:tt)?] [$($async:tt)?] [$($await:tt)*]) => {
        impl<T: serde::Serialize> $crate::typed::Typed<$end, T> {
            /// Sends a value, as the endpoint sends bytes.
            pub $($async)? fn send(
                & $($mut)? $self,
                value: &T,
            ) -> Result<(), $crate::typed::TypedError<$error>> {
                let bytes = $crate::typed::Encoded::new($what, value)?;
                Ok($self.endpoint.send(bytes.as_ref())$($await)*?)
            }

            /// As [`send`](Self::send), but fails with the error `Full` of the endpoint instead of waiting.
            pub fn try_send(
                & $($mut)? $self,
                value: &T,
            ) -> Result<(), $crate::typed::TypedError<$error>> {
                let bytes = $crate::typed::Encoded::new($what, value)?;
                Ok($self.endpoint.try_send(bytes.as_ref())?)
            }

            /// As [`send`](Self::send), but waits at most for `timeout`, then fails with the error `TimedOut` of the endpoint. An
            /// asynchronous endpoint needs timers enabled.
            pub $($async)? fn send_timeout(
                & $($mut)? $self,
                value: &T,
                timeout: std::time::Duration,
            ) -> Result<(), $crate::typed::TypedError<$error>> {
                let bytes = $crate::typed::Encoded::new($what, value)?;
                Ok($self.endpoint.send_timeout(bytes.as_ref(), timeout)$($await)*?)
            }
        }
    };
}

/// The calls that receive a value, of which `$decode` makes `$received` from what the endpoint returns.
macro_rules! typed_recvs {
    ($end:ty, $error:ty, $received:ty, $decode:path, $self:ident [$($async:tt)?] [$($await:tt)*]) => {
        impl<T: serde::de::DeserializeOwned> $crate::typed::Typed<$end, T> {
            /// Receives a value, as the endpoint receives bytes.
            pub $($async)? fn recv(
                &mut $self,
            ) -> Result<$received, $crate::typed::TypedError<$error>> {
                Ok($decode($self.endpoint.recv()$($await)*?)?)
            }

            /// As [`recv`](Self::recv), but fails with the error `Empty` of the endpoint instead of waiting.
            pub fn try_recv(
                &mut $self,
            ) -> Result<$received, $crate::typed::TypedError<$error>> {
                Ok($decode($self.endpoint.try_recv()?)?)
            }

            /// As [`recv`](Self::recv), but waits at most for `timeout`, then fails with the error `TimedOut` of the endpoint. An
            /// asynchronous endpoint needs timers enabled.
            pub $($async)? fn recv_timeout(
                &mut $self,
                timeout: std::time::Duration,
            ) -> Result<$received, $crate::typed::TypedError<$error>> {
                Ok($decode($self.endpoint.recv_timeout(timeout)$($await)*?)?)
            }
        }
    };
}

pub(crate) use {typed_recvs, typed_sends};

/// Why a call on a [`Typed`] endpoint, or on a `TypedMap`, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TypedError<E: std::error::Error + 'static> {
    /// The value was not encoded or decoded.
    #[error(transparent)]
    Codec(CodecError),

    /// The error of the call on the endpoint or the map.
    #[error(transparent)]
    Call(E),
}

impl<E: std::error::Error + 'static> From<CodecError> for TypedError<E> {
    fn from(error: CodecError) -> Self {
        Self::Codec(error)
    }
}

impl<E: Diagnose> TypedError<E> {
    pub(crate) fn diagnosis(&self) -> Diagnosis {
        match self {
            Self::Codec(error) => error.diagnosis(),
            Self::Call(error) => error.diagnose(),
        }
    }
}

/// Implements the conversion to [`TypedError`], and its diagnosis, for the errors of an endpoint or a map.
macro_rules! call_errors {
    ($($error:ty),*) => {
        $(
            impl From<$error> for $crate::typed::TypedError<$error> {
                fn from(error: $error) -> Self {
                    Self::Call(error)
                }
            }
        )*

        $crate::diagnosis::diagnosed!($($crate::typed::TypedError<$error>),*);
    };
}

pub(crate) use call_errors;

/// Why a value was not encoded or decoded.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} the {what}")]
pub struct CodecError {
    verb: &'static str,
    what: &'static str,
    #[source]
    cause: Cause,
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Format(#[from] postcard::Error),

    #[error("{0} bytes are left")]
    Trailing(usize),
}

impl CodecError {
    fn diagnosis(&self) -> Diagnosis {
        Diagnosis::new(libc::EBADMSG, "use the same type in all processes")
    }
}

diagnosed!(CodecError);

/// Short values need no allocation.
pub(crate) const SHORT: usize = 256;

/// The bytes of a value.
#[expect(
    clippy::large_enum_variant,
    reason = "the short ones are there to need no allocation"
)]
pub(crate) enum Encoded {
    Short([u8; SHORT], usize),
    Long(Vec<u8>),
}

impl Encoded {
    pub fn new(what: &'static str, value: &impl Serialize) -> Result<Self, CodecError> {
        let mut room = [0; SHORT];
        let len = postcard::to_slice(value, &mut room).map(|used| used.len());
        match len {
            Ok(len) => Ok(Self::Short(room, len)),
            Err(_) => encode(what, value).map(Self::Long),
        }
    }
}

impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Short(bytes, len) => &bytes[..*len],
            Self::Long(bytes) => bytes,
        }
    }
}

pub(crate) fn encode(
    what: &'static str,
    item: &(impl Serialize + ?Sized),
) -> Result<Vec<u8>, CodecError> {
    postcard::to_stdvec(item).map_err(|error| CodecError {
        verb: "encode",
        what,
        cause: error.into(),
    })
}

pub(crate) fn decode<T: DeserializeOwned>(
    what: &'static str,
    bytes: &[u8],
) -> Result<T, CodecError> {
    let failed = |cause| CodecError {
        verb: "decode",
        what,
        cause,
    };
    match postcard::take_from_bytes(bytes) {
        Ok((item, [])) => Ok(item),
        Ok((_, rest)) => Err(failed(Cause::Trailing(rest.len()))),
        Err(error) => Err(failed(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};

    use super::*;

    type Named = (String, Option<u32>);

    #[test]
    fn what_was_encoded_is_decoded() {
        let value: Named = ("alice".to_owned(), Some(7));
        let bytes = encode("value", &value).unwrap();
        assert_eq!(decode::<Named>("value", &bytes).unwrap(), value);
    }

    #[test]
    fn bytes_of_another_type_are_an_error() {
        let bytes = encode("value", &("alice", 7_u64)).unwrap();
        let left = decode::<String>("value", &bytes).unwrap_err();
        let left = crate::explain(&left);
        assert!(left.contains("1 bytes are left"), "{left}");
        let short = decode::<(String, u64, u64)>("value", &bytes).unwrap_err();
        assert!(
            short.to_string().contains("cannot decode the value"),
            "{short}"
        );
        assert_eq!(io::Error::from(short).kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_value_of_any_length_has_one_encoding() {
        for len in [0, 1, SHORT - 3, SHORT - 2, SHORT - 1, 70_000] {
            let value = "x".repeat(len);
            let bytes = Encoded::new("value", &value).unwrap();
            assert_eq!(bytes.as_ref(), encode("value", &value).unwrap(), "{len}");
        }
    }
}
