# SPDX-License-Identifier: MIT OR Apache-2.0
"""The map as a mutable mapping, and batches of operations."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView
from typing import TYPE_CHECKING, Any

from . import _sluice
from ._errors import Conflict

if TYPE_CHECKING:
    from os import PathLike

    from typing_extensions import Buffer


class Map(_sluice.Map, MutableMapping[bytes, bytes]):
    """Keys and values in the module, which processes set, get and watch: a mutable mapping of bytes to bytes.

    Map.open() opens one. A map without endpoints is freed with its entries, unless it is persistent or durable; those exist until
    Channel("map", name).unlink(). Several threads may use it at the same time. Keys have 1 to 4096 bytes, values up to 1 MiB. Each change
    has a number. The number of its last change is the version of an entry, so that a process can change exactly what it has seen:

        with sluice.Map.open("counters", create=True) as counters:
            while True:
                entry = counters.entry(b"visits")
                value, version = (int(entry.value), entry.version) if entry else (0, 0)
                try:
                    counters.compare_and_set(b"visits", version, str(value + 1).encode())
                    break
                except sluice.Conflict:
                    pass  # changed since
    """

    __slots__ = ()

    @classmethod
    def open(
        cls,
        name: str | bytes,
        *,
        access: str = "both",
        scope: str | PathLike[str] | int | None = None,
        create: bool = False,
        any_owner: bool = False,
        exclusive: bool = False,
        persistent: bool = False,
        permissions: int = 0o600,
        capacity: int | None = None,
        entries: int | None = None,
        events: int | None = None,
        durable: bool = False,
        interval: float | None = None,
        deadline: float | None = None,
        refuse: bool | None = None,
    ) -> Map:
        """Opens a map, with access "both", "read" or "write".

        capacity, entries and events are the limits of a map that this open creates. A durable map is stored by the daemon sluiced: a change
        returns when it is stored, or, with an interval in seconds, at once. deadline limits each wait for the store; with refuse, changes
        for which there is no room fail at once.
        """
        return cls(
            name,
            access,
            scope=scope,
            create=create,
            any_owner=any_owner,
            exclusive=exclusive,
            persistent=persistent,
            permissions=permissions,
            capacity=capacity,
            entries=entries,
            events=events,
            durable=durable,
            interval=interval,
            deadline=deadline,
            refuse=refuse,
        )

    def items(self) -> ItemsView[bytes, bytes]:
        """A view of the keys and values. Iteration reads many entries with one system call, in no order."""
        return _Items(self)

    def values(self) -> ValuesView[bytes]:
        """A view of the values, as items()."""
        return _Values(self)

    def pop(self, key: Buffer, *default: Any) -> Any:
        """Deletes an entry and returns its value: exactly the one that is deleted."""
        if len(default) > 1:
            raise TypeError(f"pop() takes a key and at most one default, not {len(default)}")
        while (entry := self.entry(key)) is not None:
            if self._delete_seen(key, entry.version):
                return entry.value
        if default:
            return default[0]
        raise KeyError(key)

    def popitem(self) -> tuple[bytes, bytes]:
        """Deletes some entry and returns its key and value."""
        for key, entry in self.entries():
            if self._delete_seen(key, entry.version):
                return key, entry.value
        raise KeyError("the map is empty")

    def setdefault(self, key: Buffer, default: Buffer = b"") -> bytes:  # type: ignore[override]
        """Returns the value, after it has set the default where there was none."""
        while (value := self.get(key)) is None:
            try:
                self.compare_and_set(key, 0, default)
                return bytes(memoryview(default))
            except Conflict:
                pass  # set since
        return value

    def _delete_seen(self, key: Buffer, version: int) -> bool:
        """Deletes an entry, unless it was changed or deleted since."""
        try:
            return self.delete(key, version=version) is not None
        except Conflict:
            return False

    def clear(self) -> None:
        """Deletes all entries, one by one."""
        for key in self:
            self.delete(key)

    def batch(self, value_room: int = 4096) -> Batch:
        """A batch of operations. value_room is the longest value that a get of it can return."""
        return Batch(self, value_room)


class _Items(ItemsView[bytes, bytes]):
    _mapping: Map

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return ((key, entry.value) for key, entry in self._mapping.entries())


class _Values(ValuesView[bytes]):
    _mapping: Map

    def __iter__(self) -> Iterator[bytes]:
        return (entry.value for _, entry in self._mapping.entries())


def _bytes(buffer: Buffer) -> bytes:
    # bytes() of a number, which is no buffer, would be so many zeros.
    return buffer if type(buffer) is bytes else bytes(memoryview(buffer))


class Batch:
    """Operations that run() executes one after the other, with one system call for up to 256 of them. Together they are not atomic.

    On a durable map run() waits for the store once. The calls of other maps are faster one by one, in Python.
    """

    __slots__ = ("_map", "_operations", "_value_room")

    def __init__(self, map: Map, value_room: int) -> None:
        self._map = map
        self._value_room = value_room
        self._operations: list[_sluice._Operation] = []

    def get(self, key: Buffer) -> Batch:
        """Adds a get, whose outcome is an Entry or None."""
        self._operations.append((_bytes(key), None, False, None, None, True))
        return self

    def set(
        self, key: Buffer, value: Buffer, *, version: int | None = None, ttl: float | None = None, wait: bool = True
    ) -> Batch:
        """Adds a set, whose outcome is the new version."""
        self._operations.append((_bytes(key), _bytes(value), False, version, ttl, wait))
        return self

    def delete(self, key: Buffer, *, version: int | None = None, wait: bool = True) -> Batch:
        """Adds a delete, whose outcome is the number of the change, or None."""
        self._operations.append((_bytes(key), None, True, version, None, wait))
        return self

    def __len__(self) -> int:
        return len(self._operations)

    def run(self) -> list[_sluice.Entry | int | None | BaseException]:
        """Executes the operations, and returns the outcome of each, in their order: what the single call returns, or its exception."""
        operations, self._operations = self._operations, []
        return self._map._run(operations, self._value_room)
