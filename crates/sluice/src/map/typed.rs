// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys and values of types that implement the traits of serde.

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::endpoint::Map;
use super::entry::{DeleteOptions, Entry, EntryInfo, Set, SetOptions};
use super::error::{ReadError, WatchError, WriteError};
use super::event::Event;
use super::watcher::{WatchFrom, Watcher};
use crate::typed::{CodecError, TypedError, call_errors, decode, encode};

/// A [`Map`] with keys and values of types that implement the traits of serde, in the format of postcard. All processes that use the
/// map must agree on the types.
///
/// A key must have one encoding only, which a `HashMap` in it has not. A call also takes what a key can be borrowed as, such as `&str` for
/// `String`, which must have the same encoding: an array and a slice have not.
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
/// let map: TypedMap<String, Session> = TypedMap::new(map);
/// map.set("4711", &Session { user: "alice".to_owned(), logins: 1 })?;
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

impl<K, V: DeserializeOwned> TypedMap<K, V> {
    /// As [`Map::get`].
    pub fn get<Q: Serialize + ?Sized>(
        &self,
        key: &Q,
    ) -> Result<Option<Entry<V>>, TypedError<ReadError>>
    where
        K: Borrow<Q>,
    {
        let entry = self.map.get(encode_key(key)?)?;
        Ok(entry.map(decode_entry).transpose()?)
    }
}

impl<K, V: Serialize> TypedMap<K, V> {
    /// As [`Map::set`].
    pub fn set<Q: Serialize + ?Sized>(
        &self,
        key: &Q,
        value: &V,
    ) -> Result<Set, TypedError<WriteError>>
    where
        K: Borrow<Q>,
    {
        self.set_with(key, value, SetOptions::new())
    }

    /// As [`Map::compare_and_set`].
    pub fn compare_and_set<Q: Serialize + ?Sized>(
        &self,
        key: &Q,
        version: u64,
        value: &V,
    ) -> Result<Set, TypedError<WriteError>>
    where
        K: Borrow<Q>,
    {
        self.set_with(key, value, SetOptions::new().if_version(version))
    }

    /// As [`Map::set_with`].
    pub fn set_with<Q: Serialize + ?Sized>(
        &self,
        key: &Q,
        value: &V,
        options: SetOptions,
    ) -> Result<Set, TypedError<WriteError>>
    where
        K: Borrow<Q>,
    {
        let (key, value) = (encode_key(key)?, encode("value", value)?);
        Ok(self.map.set_with(key, value, options)?)
    }
}

impl<K, V> TypedMap<K, V> {
    /// As [`Map::delete`].
    pub fn delete<Q: Serialize + ?Sized>(
        &self,
        key: &Q,
    ) -> Result<Option<u64>, TypedError<WriteError>>
    where
        K: Borrow<Q>,
    {
        Ok(self.map.delete(encode_key(key)?)?)
    }

    /// As [`Map::delete_if_version`].
    pub fn delete_if_version<Q: Serialize + ?Sized>(
        &self,
        key: &Q,
        version: u64,
    ) -> Result<Option<u64>, TypedError<WriteError>>
    where
        K: Borrow<Q>,
    {
        Ok(self.map.delete_if_version(encode_key(key)?, version)?)
    }

    /// As [`Map::delete_with`].
    pub fn delete_with<Q: Serialize + ?Sized>(
        &self,
        key: &Q,
        options: DeleteOptions,
    ) -> Result<Option<u64>, TypedError<WriteError>>
    where
        K: Borrow<Q>,
    {
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

call_errors!(ReadError, WriteError);

impl TypedError<WriteError> {
    /// As [`WriteError::is_conflict`].
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Call(error) if error.is_conflict())
    }
}

fn encode_key(key: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, CodecError> {
    encode("key", key)
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
            matches!(empty, TypedError::Call(ReadError::InvalidKey { len: 0 })),
            "{empty:?}"
        );
        let error = TypedError::Call(WriteError::AlreadyExists);
        assert!(error.is_conflict());
        assert_eq!(io::Error::from(error).kind(), ErrorKind::AlreadyExists);
    }
}
