// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that are values of types that implement the traits of serde.

use std::ops::Deref;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{RecvError, SendError};
use super::message::{Header, Message};
use super::sender::Sender;
use super::subscriber::Subscriber;
#[cfg(feature = "tokio")]
use super::tokio::{AsyncSender, AsyncSubscriber};
use crate::typed::{
    CodecError, Encoded, Typed, TypedError, call_errors, decode, typed_recvs, typed_sends,
};

call_errors!(SendError, RecvError);

typed_sends!(Sender, SendError, "message", self [] [] []);
typed_recvs!(Subscriber, RecvError, TypedMessage<T>, decode_message, self [] []);

#[cfg(feature = "tokio")]
typed_sends!(AsyncSender, SendError, "message", self [] [async] [.await]);
#[cfg(feature = "tokio")]
typed_recvs!(AsyncSubscriber, RecvError, TypedMessage<T>, decode_message, self [async] [.await]);

/// The calls that send a value to one subscriber.
macro_rules! typed_sends_to {
    ($end:ty, [$($async:tt)?] [$($await:tt)*]) => {
        impl<T: Serialize> Typed<$end, T> {
            /// As [`Sender::send_to`].
            pub $($async)? fn send_to(&self, id: u64, value: &T) -> Result<(), TypedError<SendError>> {
                let bytes = Encoded::new("message", value)?;
                Ok(self.endpoint.send_to(id, bytes.as_ref())$($await)*?)
            }

            /// As [`Sender::try_send_to`].
            pub fn try_send_to(&self, id: u64, value: &T) -> Result<(), TypedError<SendError>> {
                let bytes = Encoded::new("message", value)?;
                Ok(self.endpoint.try_send_to(id, bytes.as_ref())?)
            }

            /// As [`Sender::send_to_timeout`]. An asynchronous endpoint needs timers enabled.
            pub $($async)? fn send_to_timeout(
                &self,
                id: u64,
                value: &T,
                timeout: Duration,
            ) -> Result<(), TypedError<SendError>> {
                let bytes = Encoded::new("message", value)?;
                Ok(self.endpoint.send_to_timeout(id, bytes.as_ref(), timeout)$($await)*?)
            }
        }
    };
}

typed_sends_to!(Sender, [] []);
#[cfg(feature = "tokio")]
typed_sends_to!(AsyncSender, [async] [.await]);

/// A message that a [`Typed`](crate::Typed) subscriber has received. Dereferences to its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypedMessage<T> {
    pub value: T,
    header: Header,
}

impl<T> Deref for TypedMessage<T> {
    type Target = Header;

    fn deref(&self) -> &Header {
        &self.header
    }
}

fn decode_message<T: DeserializeOwned>(
    message: Message<'_>,
) -> Result<TypedMessage<T>, CodecError> {
    Ok(TypedMessage {
        value: decode("message", message.bytes())?,
        header: *message.header(),
    })
}
