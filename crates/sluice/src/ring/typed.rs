// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records that are values of types that implement the traits of serde.

use serde::de::DeserializeOwned;

#[cfg(feature = "tokio")]
use super::tokio::{AsyncConsumer, AsyncProducer};
use super::{Consumer, Producer, Record, RecvError, SendError};
use crate::typed::{CodecError, SHORT, call_errors, decode, typed_recvs, typed_sends};

call_errors!(SendError, RecvError);

typed_sends!(Producer, SendError, "record", self [mut] [] []);
typed_recvs!(Consumer, RecvError, Option<T>, decode_record, self [] []);

#[cfg(feature = "tokio")]
typed_sends!(AsyncProducer, SendError, "record", self [mut] [async] [.await]);
#[cfg(feature = "tokio")]
typed_recvs!(AsyncConsumer, RecvError, Option<T>, decode_record, self [async] [.await]);

/// Of a copy: the producer may change the record meanwhile.
fn decode_record<T: DeserializeOwned>(record: Option<Record<'_>>) -> Result<Option<T>, CodecError> {
    let decoded = record.map(|record| {
        let mut room = [0; SHORT];
        match room.get_mut(..record.len()) {
            Some(room) => {
                record.copy_to(0, room);
                decode("record", room)
            }
            None => decode("record", &record.to_vec()),
        }
    });
    decoded.transpose()
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};

    use super::*;
    use crate::ring::{Socket, SocketOptions};
    use crate::typed::{Typed, TypedError};

    type Named = (String, Option<u32>);

    fn ring() -> (Producer, Consumer) {
        let (here, there) = Socket::pair().unwrap();
        let options = SocketOptions::new().capacity(1 << 20);
        let other = options.clone();
        let producer = std::thread::spawn(move || other.producer(there).unwrap());
        let consumer = options.consumer(here).unwrap();
        (producer.join().unwrap(), consumer)
    }

    #[test]
    fn what_was_sent_is_received_and_the_end_is_none() {
        let (producer, consumer) = ring();
        let (mut sender, mut receiver) = (Typed::new(producer), Typed::new(consumer));
        let values: Vec<Named> = [0, 1, 253, 254, 255, 256, 257, 70_000]
            .map(|len| ("x".repeat(len), Some(len as u32)))
            .into();
        for value in &values {
            sender.send(value).unwrap();
        }
        drop(sender);
        for value in &values {
            assert_eq!(receiver.recv().unwrap().as_ref(), Some(value));
        }
        assert_eq!(receiver.recv().unwrap(), None);
    }

    #[test]
    fn a_record_of_another_type_is_received_and_its_error_is_that_of_the_data() {
        let (mut producer, consumer) = ring();
        producer.send(&[0xff; 20]).unwrap();
        let mut sender = Typed::new(producer);
        sender.send(&7_u32).unwrap();
        let mut receiver = Typed::<_, u32>::new(consumer);
        let error = receiver.recv().unwrap_err();
        assert!(matches!(error, TypedError::Codec(_)), "{error:?}");
        assert!(crate::explain(&error).contains("decode the record"));
        assert_eq!(io::Error::from(error).kind(), ErrorKind::InvalidData);
        assert_eq!(receiver.recv().unwrap(), Some(7));
        let empty = receiver.try_recv().unwrap_err();
        assert!(matches!(empty, TypedError::Call(RecvError::Empty)));
        assert_eq!(empty.kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn a_plain_value_is_written_and_read_in_place() {
        let (mut producer, mut consumer) = ring();
        let mut room = producer.reserve(12).unwrap();
        assert_eq!(room.write_at(4, &7_u64), Some(()));
        assert_eq!(room.write_at(0, &3_u32), Some(()));
        assert_eq!(room.write_at(5, &0_u64), None);
        assert_eq!(room.write_at(usize::MAX, &0_u8), None);
        room.commit();
        let record = consumer.recv().unwrap().unwrap();
        assert_eq!(record.read_at::<u32>(0), Some(3));
        assert_eq!(record.read_at::<u64>(4), Some(7));
        assert_eq!(record.read_at::<u64>(5), None);
    }

    #[cfg(feature = "tokio")]
    #[tokio::test]
    async fn a_runtime_sends_and_receives_values() {
        let (producer, consumer) = ring();
        let mut sender = Typed::new(AsyncProducer::new(producer).unwrap());
        let mut receiver = Typed::<_, Named>::new(AsyncConsumer::new(consumer).unwrap());
        let value = ("alice".to_owned(), None);
        sender.send(&value).await.unwrap();
        assert_eq!(receiver.recv().await.unwrap(), Some(value));
        let short = std::time::Duration::from_millis(5);
        let late = receiver.recv_timeout(short).await.unwrap_err();
        assert!(matches!(late, TypedError::Call(RecvError::TimedOut(_))));
        drop(sender);
        assert_eq!(receiver.recv().await.unwrap(), None);
    }
}
