// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys and values of types that implement the traits of serde.

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::endpoint::Map;
use super::entry::{DeleteOptions, Entry, EntryInfo, Set, SetOptions};
use super::error::{ReadError, WatchError, WriteError};
use super::event::Event;
use super::watcher::{WatchFrom, Watcher};
use crate::diagnosis::{Diagnose, Diagnosis, diagnosed};

/// A [`Map`] with keys and values of types that implement the traits of serde, in the format of postcard. All processes that use the
/// map must agree on the types.
///
/// A key must have one encoding only, which a `HashMap` in it has not.
///
/// ```no_run
/// use serde::{Deserialize, Serialize};
/// use sluice::Map;
/// use sluice::map::TypedMap;
///
/// #[derive(Serialize, Deserialize)]
/// struct Session {
///     user: String,
///     logins: u32,
/// }
///
/// let map = Map::named("sessions").create(true).open()?;
/// let map: TypedMap<u64, Session> = TypedMap::new(map);
/// map.set(&4711, &Session { user: "alice".to_owned(), logins: 1 })?;
/// for entry in map.entries() {
///     let (id, entry) = entry?;
///     println!("{id}: {}, version {}", entry.value.user, entry.version);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TypedMap<K, V> {
    map: Map,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> TypedMap<K, V> {
    pub fn new(map: Map) -> Self {
        Self {
            map,
            types: PhantomData,
        }
    }

    /// The map with the bytes.
    pub fn get_ref(&self) -> &Map {
        &self.map
    }

    pub fn into_inner(self) -> Map {
        self.map
    }

    /// As [`Map::watch`]. [`decode`](Self::decode) decodes the key of an event.
    pub fn watch(&self, from: WatchFrom) -> Result<Watcher, WatchError> {
        self.map.watch(from)
    }
}

impl<K: Serialize, V: DeserializeOwned> TypedMap<K, V> {
    /// As [`Map::get`].
    pub fn get(&self, key: &K) -> Result<Option<Entry<V>>, TypedError<ReadError>> {
        let entry = self.map.get(encode_key(key)?)?;
        Ok(entry.map(decode_entry).transpose()?)
    }
}

impl<K: Serialize, V: Serialize> TypedMap<K, V> {
    /// As [`Map::set`].
    pub fn set(&self, key: &K, value: &V) -> Result<Set, TypedError<WriteError>> {
        self.set_with(key, value, SetOptions::new())
    }

    /// As [`Map::compare_and_set`].
    pub fn compare_and_set(
        &self,
        key: &K,
        version: u64,
        value: &V,
    ) -> Result<Set, TypedError<WriteError>> {
        self.set_with(key, value, SetOptions::new().if_version(version))
    }

    /// As [`Map::set_with`].
    pub fn set_with(
        &self,
        key: &K,
        value: &V,
        options: SetOptions,
    ) -> Result<Set, TypedError<WriteError>> {
        let (key, value) = (encode_key(key)?, encode("value", value)?);
        Ok(self.map.set_with(key, value, options)?)
    }
}

impl<K: Serialize, V> TypedMap<K, V> {
    /// As [`Map::delete`].
    pub fn delete(&self, key: &K) -> Result<Option<u64>, TypedError<WriteError>> {
        Ok(self.map.delete(encode_key(key)?)?)
    }

    /// As [`Map::delete_if_version`].
    pub fn delete_if_version(
        &self,
        key: &K,
        version: u64,
    ) -> Result<Option<u64>, TypedError<WriteError>> {
        Ok(self.map.delete_if_version(encode_key(key)?, version)?)
    }

    /// As [`Map::delete_with`].
    pub fn delete_with(
        &self,
        key: &K,
        options: DeleteOptions,
    ) -> Result<Option<u64>, TypedError<WriteError>> {
        Ok(self.map.delete_with(encode_key(key)?, options)?)
    }
}

impl<K: DeserializeOwned, V> TypedMap<K, V> {
    /// As [`Map::keys`]. A key that cannot be decoded does not end the iteration.
    pub fn keys(&self) -> impl Iterator<Item = Result<(K, EntryInfo), TypedError<ReadError>>> {
        self.map.keys().map(|item| {
            let (key, info) = item?;
            Ok((decode("key", &key)?, info))
        })
    }

    /// The event with its key.
    pub fn decode(&self, event: Event) -> Result<Event<K>, CodecError> {
        Ok(Event {
            key: decode("key", &event.key)?,
            change: event.change,
            sequence: event.sequence,
            version: event.version,
            missed: event.missed,
        })
    }
}

impl<K: DeserializeOwned, V: DeserializeOwned> TypedMap<K, V> {
    /// As [`Map::entries`]. An entry that cannot be decoded does not end the iteration.
    pub fn entries(&self) -> impl Iterator<Item = Result<(K, Entry<V>), TypedError<ReadError>>> {
        self.map.entries().map(|item| {
            let (key, entry) = item?;
            Ok((decode("key", &key)?, decode_entry(entry)?))
        })
    }
}

impl<K, V> fmt::Debug for TypedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedMap").field(&self.map).finish()
    }
}

/// Why an operation on a [`TypedMap`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TypedError<E: std::error::Error + 'static> {
    #[error(transparent)]
    Codec(CodecError),

    #[error(transparent)]
    Map(E),
}

impl TypedError<WriteError> {
    /// As [`WriteError::is_conflict`].
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Map(error) if error.is_conflict())
    }
}

impl<E: std::error::Error + 'static> From<CodecError> for TypedError<E> {
    fn from(error: CodecError) -> Self {
        Self::Codec(error)
    }
}

impl From<ReadError> for TypedError<ReadError> {
    fn from(error: ReadError) -> Self {
        Self::Map(error)
    }
}

impl From<WriteError> for TypedError<WriteError> {
    fn from(error: WriteError) -> Self {
        Self::Map(error)
    }
}

impl<E: Diagnose> TypedError<E> {
    fn diagnosis(&self) -> Diagnosis {
        match self {
            Self::Codec(error) => error.diagnosis(),
            Self::Map(error) => error.diagnose(),
        }
    }
}

diagnosed!(TypedError<ReadError>, TypedError<WriteError>);

/// Why a key or a value was not encoded or decoded.
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
        Diagnosis::new(
            libc::EBADMSG,
            "use the types of the other processes of the map",
        )
    }
}

diagnosed!(CodecError);

fn encode_key(key: &impl Serialize) -> Result<Vec<u8>, CodecError> {
    encode("key", key)
}

fn encode(what: &'static str, item: &impl Serialize) -> Result<Vec<u8>, CodecError> {
    postcard::to_stdvec(item).map_err(|error| CodecError {
        verb: "encode",
        what,
        cause: error.into(),
    })
}

fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, CodecError> {
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

fn decode_entry<V: DeserializeOwned>(entry: Entry) -> Result<Entry<V>, CodecError> {
    Ok(Entry {
        value: decode("value", &entry.value)?,
        version: entry.version,
        time_to_live: entry.time_to_live,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::map::Change;

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
    fn an_event_has_the_key_that_was_set() {
        let map = Map::new(UnixStream::pair().unwrap().0.into());
        let map: TypedMap<Named, ()> = TypedMap::new(map);
        let key: Named = ("alice".to_owned(), None);
        let event = Event {
            change: Change::Created,
            key: encode_key(&key).unwrap(),
            sequence: 1,
            version: 1,
            missed: 0,
        };
        let decoded = map.decode(event.clone()).unwrap();
        assert_eq!((decoded.key, decoded.sequence), (key, 1));
        let key = Vec::new();
        assert!(map.decode(Event { key, ..event }).is_err());
    }

    #[test]
    fn the_errors_of_the_map_are_kept() {
        let map = Map::new(UnixStream::pair().unwrap().0.into());
        let map: TypedMap<(), ()> = TypedMap::new(map);
        let empty = map.get(&()).unwrap_err();
        assert!(
            matches!(empty, TypedError::Map(ReadError::InvalidKey { len: 0 })),
            "{empty:?}"
        );
        let error = TypedError::Map(WriteError::AlreadyExists);
        assert!(error.is_conflict());
        assert_eq!(io::Error::from(error).kind(), ErrorKind::AlreadyExists);
    }
}
