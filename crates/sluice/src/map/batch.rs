// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;

use sluice_abi::map::{self, Op, Step};

use super::calls::{self, Executed};
use super::endpoint::{Map, deleted, set};
use super::entry::{DeleteOptions, Entry, Set, SetOptions, time_to_live};
use super::error::{ReadError, SyncError, WriteError};
use crate::system_error::SystemError;

/// The default room for the value of a get, in bytes.
const ROOM: usize = 4 << 10;

/// Operations that [`run`](Self::run) executes one after the other, with one system call for up to 256 of them. Together they are not
/// atomic: other processes can see and change entries in between, and a failed operation does not prevent the next ones.
///
/// Of a durable map each call waits once, until its last change is stored. If that fails, all changes of the call that wait for it have
/// the result [`WriteError::Unacknowledged`]. After a change that was [refused](WriteError::Refused) the later ones are refused, too,
/// except those that do [not wait](SetOptions::nowait).
///
/// ```no_run
/// use sluice::map::Outcome;
///
/// # let map: sluice::map::Map = unimplemented!();
/// let outcomes = map.batch().get("first").set("second", b"2").delete("third").run();
/// if let Outcome::Get(Ok(Some(entry))) = &outcomes[0] {
///     println!("{:?}", entry.value);
/// }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Batch<'a> {
    map: &'a Map,
    operations: Vec<Operation<'a>>,
    room: usize,
}

#[derive(Clone, Copy, Debug)]
enum Operation<'a> {
    Get {
        key: &'a [u8],
        /// None: that of the batch.
        room: Option<usize>,
    },
    Set {
        key: &'a [u8],
        value: &'a [u8],
        options: SetOptions,
    },
    Delete {
        key: &'a [u8],
        options: DeleteOptions,
    },
}

/// The result of one operation of a [`Batch`]: that of [`Map::get`], [`Map::set_with`] or [`Map::delete`].
#[derive(Debug)]
pub enum Outcome {
    Get(Result<Option<Entry>, ReadError>),
    Set(Result<Set, WriteError>),
    Delete(Result<Option<u64>, WriteError>),
}

impl<'a> Batch<'a> {
    pub(super) fn new(map: &'a Map) -> Self {
        Self {
            map,
            operations: Vec::new(),
            room: ROOM,
        }
    }

    /// The longest value in bytes that a get of this batch can return, 4 KiB by default. For a longer one its result is
    /// [`ReadError::BufferTooSmall`]; to get it again by itself would not keep the order of the operations.
    pub fn value_room(mut self, bytes: usize) -> Self {
        self.room = bytes.min(map::VALUE_MAX);
        self
    }

    /// Adds a [get](Map::get).
    pub fn get(self, key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        let key = key.as_ref();
        self.with(Operation::Get { key, room: None })
    }

    /// As [`get`](Self::get), but with a room of its own: the longest value in bytes that it can return.
    pub fn get_with_room(self, key: &'a (impl AsRef<[u8]> + ?Sized), bytes: usize) -> Self {
        let (key, room) = (key.as_ref(), Some(bytes.min(map::VALUE_MAX)));
        self.with(Operation::Get { key, room })
    }

    /// Adds a [set](Map::set).
    pub fn set(
        self,
        key: &'a (impl AsRef<[u8]> + ?Sized),
        value: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> Self {
        self.set_with(key, value, SetOptions::new())
    }

    /// Adds a [set with options](Map::set_with).
    pub fn set_with(
        self,
        key: &'a (impl AsRef<[u8]> + ?Sized),
        value: &'a (impl AsRef<[u8]> + ?Sized),
        options: SetOptions,
    ) -> Self {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.with(Operation::Set {
            key,
            value,
            options,
        })
    }

    /// Adds a [delete](Map::delete).
    pub fn delete(self, key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.delete_with(key, DeleteOptions::new())
    }

    /// Adds a [conditional delete](Map::delete_if_version).
    pub fn delete_if_version(self, key: &'a (impl AsRef<[u8]> + ?Sized), version: u64) -> Self {
        self.delete_with(key, DeleteOptions::new().if_version(version))
    }

    /// Adds a [delete with options](Map::delete_with).
    pub fn delete_with(self, key: &'a (impl AsRef<[u8]> + ?Sized), options: DeleteOptions) -> Self {
        let key = key.as_ref();
        self.with(Operation::Delete { key, options })
    }

    fn with(mut self, operation: Operation<'a>) -> Self {
        self.operations.push(operation);
        self
    }

    /// The number of operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Executes the operations, and returns the result of each, in their order.
    pub fn run(self) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(self.operations.len());
        let mut rest = &self.operations[..];
        while !rest.is_empty() {
            let (part, _) = rest.split_at(rest.len().min(map::BATCH_MAX));
            let executed = self.run_part(part, &mut outcomes);
            let waited_in_vain = match (part[..executed].last(), outcomes.last()) {
                (Some(operation), Some(outcome)) => operation.waits() && outcome.is_refused(),
                _ => false,
            };
            rest = &rest[executed..];
            if waited_in_vain {
                self.run_without_waits(rest, &mut outcomes);
                break;
            }
        }
        outcomes
    }

    /// Executes the rest after a change that has waited for room in vain: the next ones would wait as long.
    fn run_without_waits(&self, rest: &[Operation<'_>], outcomes: &mut Vec<Outcome>) {
        for operation in rest {
            match operation.refused() {
                Some(outcome) => outcomes.push(outcome),
                None => {
                    self.run_part(std::slice::from_ref(operation), outcomes);
                }
            }
        }
    }

    /// Executes operations up to a signal, and returns their number. After an error all of them have it as their result.
    fn run_part(&self, part: &[Operation<'_>], outcomes: &mut Vec<Outcome>) -> usize {
        let rooms = part.iter().map(|operation| operation.room(self.room));
        let mut values = vec![0; rooms.sum()];
        let mut rest = &mut values[..];
        let mut steps = Vec::with_capacity(part.len());
        for operation in part {
            let (room, rooms) = rest.split_at_mut(operation.room(self.room));
            rest = rooms;
            steps.push(operation.step(room));
        }
        // SAFETY: the addresses in the steps are those of the keys and values of the operations, which are only read, and of the
        // separate rooms in `values`, which nothing else accesses until the call returns.
        let called = unsafe { calls::batch(self.map.as_fd(), &mut steps) };
        let (executed, is_stored) = match called {
            Ok(executed) => (executed.count, self.is_stored(&executed, part, &steps)),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                steps.iter_mut().for_each(|step| step.result = -errno);
                (steps.len(), true)
            }
        };
        let mut rest = &values[..];
        for (operation, step) in part.iter().zip(&steps[..executed]) {
            let (room, rooms) = rest.split_at(operation.room(self.room));
            rest = rooms;
            let outcome = operation.outcome(step, room).explained(self.map);
            outcomes.push(match is_stored || !operation.waits() {
                true => outcome,
                false => outcome.unacknowledged(),
            });
        }
        executed
    }

    /// Whether the changes are stored that wait for it. Waits again after a signal.
    fn is_stored(&self, executed: &Executed, part: &[Operation<'_>], steps: &[Step]) -> bool {
        let made = part
            .iter()
            .zip(&steps[..executed.count])
            .filter(|(operation, step)| operation.waits() && step.result >= 0);
        let last = made.map(|(_, step)| step.version).max();
        match (&executed.unstored, last) {
            (Some(error), Some(last)) => {
                let is_interrupt = error.kind() == ErrorKind::Interrupted;
                // What was unlinked meanwhile is gone as if it had been unlinked afterwards.
                let is_over = |synced| matches!(synced, Ok(_) | Err(SyncError::Removed));
                is_interrupt && is_over(self.map.sync_to(last))
            }
            _ => true,
        }
    }
}

/// Sets a value of a durable map by a batch of one, whose result is known although the wait for the store fails.
pub(super) fn set_and_wait(
    map: &Map,
    key: &[u8],
    value: &[u8],
    options: SetOptions,
) -> Result<Set, WriteError> {
    match map.batch().set_with(key, value, options).run().pop() {
        Some(Outcome::Set(result)) => result,
        other => Err(unexpected(other)),
    }
}

/// As [`set_and_wait`].
pub(super) fn delete_and_wait(
    map: &Map,
    key: &[u8],
    options: DeleteOptions,
) -> Result<Option<u64>, WriteError> {
    match map.batch().delete_with(key, options).run().pop() {
        Some(Outcome::Delete(result)) => result,
        other => Err(unexpected(other)),
    }
}

/// Each operation has its outcome.
fn unexpected(outcome: Option<Outcome>) -> WriteError {
    let error = io::Error::other(format!("the outcome of a change is {outcome:?}"));
    SystemError::new("changing the map", error).into()
}

impl Outcome {
    /// A change is made, and not known to be stored.
    fn unacknowledged(self) -> Self {
        let error = |number| WriteError::Unacknowledged { number };
        match self {
            Self::Set(Ok(set)) => Self::Set(Err(error(set.version))),
            Self::Delete(Ok(Some(number))) => Self::Delete(Err(error(number))),
            other => other,
        }
    }

    fn is_refused(&self) -> bool {
        matches!(
            self,
            Self::Set(Err(WriteError::Refused)) | Self::Delete(Err(WriteError::Refused))
        )
    }

    /// As the single call would fail.
    fn explained(self, map: &Map) -> Self {
        match self {
            Self::Set(Err(error)) => Self::Set(Err(map.explain(error))),
            Self::Delete(Err(error)) => Self::Delete(Err(map.explain(error))),
            other => other,
        }
    }
}

impl Operation<'_> {
    /// The room for the value of a get, in bytes.
    fn room(&self, default: usize) -> usize {
        match self {
            Self::Get { room, .. } => room.unwrap_or(default),
            Self::Set { .. } | Self::Delete { .. } => 0,
        }
    }

    /// Whether it waits for the store of a durable map.
    fn waits(&self) -> bool {
        match self {
            Self::Get { .. } => false,
            Self::Set { options, .. } => options.change.waits(),
            Self::Delete { options, .. } => options.change.waits(),
        }
    }

    /// The outcome without a call. None: it does not wait.
    fn refused(&self) -> Option<Outcome> {
        let refused = || WriteError::Refused;
        self.waits().then_some(())?;
        match *self {
            Self::Get { .. } => None,
            Self::Set { key, value, .. } => {
                let valid = WriteError::check_key(key).and(WriteError::check_value(value));
                Some(Outcome::Set(Err(valid.err().unwrap_or_else(refused))))
            }
            Self::Delete { key, .. } => {
                let valid = WriteError::check_key(key);
                Some(Outcome::Delete(Err(valid.err().unwrap_or_else(refused))))
            }
        }
    }

    /// The step, with the address of the room for a value.
    fn step(&self, room: &mut [u8]) -> Step {
        match *self {
            Self::Get { key, .. } => Step::new(map::STEP_GET, &Op::get(key, room)),
            Self::Set {
                key,
                value,
                options,
            } => Step::new(map::STEP_SET, &options.apply(Op::set(key, value))),
            Self::Delete { key, options } => {
                Step::new(map::STEP_DELETE, &options.apply(Op::delete(key)))
            }
        }
    }

    fn outcome(&self, step: &Step, room: &[u8]) -> Outcome {
        let called = result(step);
        match *self {
            Self::Get { key, .. } => Outcome::Get(got(key, called, step, room)),
            Self::Set {
                key,
                value,
                options,
            } => {
                let valid = WriteError::check_key(key).and(WriteError::check_value(value));
                let called = called.map(|returned| returned > 0);
                Outcome::Set(valid.and_then(|()| set(called, options, step.version)))
            }
            Self::Delete { key, options } => {
                let valid = WriteError::check_key(key);
                let called = called.map(drop);
                Outcome::Delete(valid.and_then(|()| deleted(called, options, step.version)))
            }
        }
    }
}

/// As the single call would return it.
fn result(step: &Step) -> io::Result<i32> {
    match step.result {
        ..0 => Err(io::Error::from_raw_os_error(step.result.saturating_neg())),
        returned => Ok(returned),
    }
}

fn got(
    key: &[u8],
    called: io::Result<i32>,
    step: &Step,
    room: &[u8],
) -> Result<Option<Entry>, ReadError> {
    ReadError::check_key(key)?;
    let len = step.value_length as usize;
    match called {
        Ok(_) => {
            let value = room.get(..len).ok_or(ReadError::InvalidEntry { len })?;
            Ok(Some(Entry {
                value: value.to_vec(),
                version: step.version,
                time_to_live: time_to_live(step.ttl_ns),
            }))
        }
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT) => Ok(None),
            Some(libc::EMSGSIZE) => {
                let room = room.len();
                Err(ReadError::BufferTooSmall { len, room })
            }
            _ => Err(ReadError::new(error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::map::{KEY_MAX, VALUE_MAX};

    const GET: Operation<'_> = Operation::Get {
        key: b"key",
        room: None,
    };

    /// With a descriptor that fails every call.
    fn socket() -> Map {
        Map::new(UnixStream::pair().unwrap().0.into())
    }

    #[test]
    fn every_operation_has_the_error_of_a_failed_call() {
        let map = socket();
        let many: Vec<_> = (0..300_u32).map(u32::to_ne_bytes).collect();
        let mut batch = map.batch();
        assert!(batch.is_empty());
        for (number, key) in many.iter().enumerate() {
            batch = match number % 3 {
                0 => batch.get(key),
                1 => batch.set(key, b"value"),
                _ => batch.delete(key),
            };
        }
        assert_eq!(batch.len(), many.len());
        let outcomes = batch.run();
        assert_eq!(outcomes.len(), many.len());
        for (number, outcome) in outcomes.iter().enumerate() {
            let failed = match (number % 3, outcome) {
                (0, Outcome::Get(result)) => matches!(result, Err(ReadError::System(_))),
                (1, Outcome::Set(result)) => matches!(result, Err(WriteError::System(_))),
                (2, Outcome::Delete(result)) => matches!(result, Err(WriteError::System(_))),
                _ => false,
            };
            assert!(failed, "{number}: {outcome:?}");
        }
    }

    #[test]
    fn each_get_has_its_room() {
        let map = socket();
        let batch = map.batch().get("a").get_with_room("b", 7).set("c", "value");
        let batch = batch.get_with_room("d", usize::MAX).value_room(100);
        let rooms: Vec<_> = batch
            .operations
            .iter()
            .map(|o| o.room(batch.room))
            .collect();
        assert_eq!(rooms, [100, 7, 0, VALUE_MAX]);
        assert_eq!(batch.run().len(), rooms.len());
    }

    #[test]
    fn each_operation_becomes_its_step() {
        let mut room = [0; 7];
        let step = GET.step(&mut room);
        assert_eq!((step.command, step.value_length), (map::STEP_GET, 7));
        let options = SetOptions::new().if_version(9);
        let step = Operation::Set {
            key: b"key",
            value: b"value",
            options,
        }
        .step(&mut []);
        let seen = (step.command, step.value_length, step.flags, step.version);
        assert_eq!(seen, (map::STEP_SET, 5, map::IF_VERSION, 9));
        let options = DeleteOptions::new().if_version(0);
        let step = Operation::Delete {
            key: b"key",
            options,
        }
        .step(&mut []);
        let seen = (step.command, step.key_length, step.flags, step.version);
        assert_eq!(seen, (map::STEP_DELETE, 3, map::IF_VERSION, 0));
    }

    fn step(result: i32) -> Step {
        Step {
            result,
            value_length: 3,
            version: 9,
            ttl_ns: 1500,
            ..Step::default()
        }
    }

    #[test]
    fn each_result_becomes_an_outcome() {
        let get = |result| {
            let outcome = GET.outcome(&step(result), b"abcd");
            format!("{outcome:?}")
        };
        assert_eq!(
            get(0),
            "Get(Ok(Some(Entry { value: [97, 98, 99], version: 9, time_to_live: Some(1.5µs) })))"
        );
        assert_eq!(get(-libc::ENOENT), "Get(Ok(None))");
        assert_eq!(
            get(-libc::EMSGSIZE),
            "Get(Err(BufferTooSmall { len: 3, room: 4 }))"
        );
        assert_eq!(get(-libc::EPIPE), "Get(Err(Destroyed))");
        let too_long = GET.outcome(&step(0), b"ab");
        assert!(matches!(
            too_long,
            Outcome::Get(Err(ReadError::InvalidEntry { len: 3 }))
        ));
        let set = |result| {
            let operation = Operation::Set {
                key: b"key",
                value: b"",
                options: SetOptions::new().if_version(7),
            };
            format!("{:?}", operation.outcome(&step(result), &[]))
        };
        assert_eq!(set(1), "Set(Ok(Set { created: true, version: 9 }))");
        assert_eq!(set(0), "Set(Ok(Set { created: false, version: 9 }))");
        assert_eq!(
            set(-libc::ESTALE),
            "Set(Err(VersionMismatch { required: 7, found: 9 }))"
        );
        let delete = |result| {
            let options = DeleteOptions::new();
            let operation = Operation::Delete {
                key: b"key",
                options,
            };
            format!("{:?}", operation.outcome(&step(result), &[]))
        };
        assert_eq!(delete(0), "Delete(Ok(Some(9)))");
        assert_eq!(delete(-libc::ENOENT), "Delete(Ok(None))");
        assert_eq!(delete(-libc::EBADF), "Delete(Err(NotWritable))");
    }

    #[test]
    fn only_a_change_that_is_made_and_waits_is_not_acknowledged() {
        let text = |outcome: Outcome| format!("{:?}", outcome.unacknowledged());
        let (created, version) = (true, 9);
        assert_eq!(
            text(Outcome::Set(Ok(Set { created, version }))),
            "Set(Err(Unacknowledged { number: 9 }))"
        );
        assert_eq!(
            text(Outcome::Delete(Ok(Some(9)))),
            "Delete(Err(Unacknowledged { number: 9 }))"
        );
        assert_eq!(text(Outcome::Delete(Ok(None))), "Delete(Ok(None))");
        assert_eq!(text(Outcome::Get(Ok(None))), "Get(Ok(None))");
        let refused = Outcome::Set(Err(WriteError::Refused));
        assert_eq!(text(refused), "Set(Err(Refused))");
        let set = |options| Operation::Set {
            key: b"key",
            value: b"",
            options,
        };
        assert!(set(SetOptions::new()).waits());
        assert!(!set(SetOptions::new().nowait(true)).waits());
        assert!(!GET.waits());
    }

    #[test]
    fn after_a_refusal_only_what_does_not_wait_is_executed() {
        let map = socket();
        let nowait = SetOptions::new().nowait(true);
        let batch = map
            .batch()
            .set("key", "")
            .set_with("key", "", nowait)
            .get("key")
            .delete("key")
            .delete("");
        let mut outcomes = Vec::new();
        batch.run_without_waits(&batch.operations, &mut outcomes);
        let [set, executed, get, delete, invalid] = &outcomes[..] else {
            panic!("{outcomes:?}");
        };
        assert!(set.is_refused() && delete.is_refused(), "{outcomes:?}");
        // The socket fails each call.
        assert!(matches!(executed, Outcome::Set(Err(WriteError::System(_)))));
        assert!(matches!(get, Outcome::Get(Err(ReadError::System(_)))));
        assert!(matches!(
            invalid,
            Outcome::Delete(Err(WriteError::InvalidKey { len: 0 }))
        ));
    }

    #[test]
    fn only_an_interrupted_wait_is_continued() {
        let map = socket();
        let batch = map.batch().set("key", "").get("key");
        let made = [step(1), step(0)];
        let is_stored = |unstored: Option<i32>| {
            let executed = Executed {
                count: 2,
                unstored: unstored.map(io::Error::from_raw_os_error),
            };
            batch.is_stored(&executed, &batch.operations, &made)
        };
        assert!(is_stored(None));
        assert!(!is_stored(Some(libc::ETIMEDOUT)));
        // The socket fails the second wait.
        assert!(!is_stored(Some(libc::EINTR)));
        let executed = Executed {
            count: 1,
            unstored: Some(io::Error::from_raw_os_error(libc::EINTR)),
        };
        let refused = [step(-libc::EAGAIN)];
        assert!(batch.is_stored(&executed, &batch.operations, &refused));
    }

    #[test]
    fn a_change_that_waits_is_a_batch_of_one() {
        let map = socket();
        let set = set_and_wait(&map, b"key", b"value", SetOptions::new());
        assert!(matches!(set, Err(WriteError::System(_))), "{set:?}");
        let delete = delete_and_wait(&map, b"key", DeleteOptions::new());
        assert!(matches!(delete, Err(WriteError::System(_))), "{delete:?}");
        let text = crate::explain(&unexpected(None));
        assert!(text.contains("the outcome of a change is None"), "{text}");
    }

    #[test]
    fn an_invalid_key_or_value_is_the_error_of_its_operation() {
        let map = socket();
        let (key, value) = (vec![0; KEY_MAX + 1], vec![0; VALUE_MAX + 1]);
        let outcomes = map
            .batch()
            .get("")
            .set(&key, b"")
            .set("key", &value)
            .delete_if_version("", 1)
            .run();
        let lens = outcomes.iter().map(|outcome| match outcome {
            Outcome::Get(Err(ReadError::InvalidKey { len }))
            | Outcome::Set(Err(
                WriteError::InvalidKey { len } | WriteError::ValueTooLong { len },
            ))
            | Outcome::Delete(Err(WriteError::InvalidKey { len })) => *len,
            other => panic!("{other:?}"),
        });
        assert!(lens.eq([0, KEY_MAX + 1, VALUE_MAX + 1, 0]));
    }
}
