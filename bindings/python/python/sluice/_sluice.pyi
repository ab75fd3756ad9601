# SPDX-License-Identifier: MIT OR Apache-2.0
# The docstrings are a copy of those of the extension, for editors: see stubs.py.
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader, BufferedWriter, TextIOWrapper
from os import PathLike
from socket import socket
from threading import Event as ThreadEvent
from typing import Literal, NoReturn, TypeAlias, TypedDict, TypeVar, final, overload

from typing_extensions import Buffer, Self, Unpack, disjoint_base

from ._info import BusInfo, ChannelInfo, FeedInfo, MapInfo, PipeInfo, SubscriberInfo

_D = TypeVar("_D")

_Name: TypeAlias = str | bytes
_Scope: TypeAlias = str | PathLike[str] | int
_Policy: TypeAlias = Literal["drop", "block", "evict"]
_Outcome: TypeAlias = Entry | int | None | BaseException

# key, value, whether it is deleted, version, ttl, wait
_Operation: TypeAlias = tuple[bytes, bytes | None, bool, int | None, float | None, bool]

class _Options(TypedDict, total=False):
    scope: _Scope | None
    create: bool
    any_owner: bool
    exclusive: bool
    persistent: bool
    permissions: int
    capacity: int | None

class _SideOptions(TypedDict, total=False):
    spin_limit: float | None
    max_capacity: int | None
    mlock: bool
    numa_node: int | None

class _RingOptions(_Options, _SideOptions, total=False): ...

class _SocketOptions(_SideOptions, total=False):
    capacity: int | None
    huge_pages: bool
    allow_unsealed: bool
    handshake_timeout: float | None
    allow_users: list[int] | None
    allow_everyone: bool

class _BusOptions(_Options, total=False):
    delivery: Literal["broadcast", "multicast", "unicast"]
    policies: list[_Policy] | None
    mappable: bool
    policy: _Policy | None
    limit: int | None
    monitor: bool

class _MapOptions(_Options, total=False):
    entries: int | None
    events: int | None
    durable: bool
    interval: float | None
    deadline: float | None
    refuse: bool | None

@disjoint_base
class Endpoint:
    """An open endpoint of a channel. As a context manager it closes itself.

    An endpoint belongs to the process that opened it: it cannot be pickled.
    """
    @property
    def closed(self) -> bool:
        """Whether the endpoint is closed."""
    def close(self) -> None:
        """Closes the endpoint. Closing it again has no effect. A task that waits for it gets ValueError. A call that runs in a thread continues:
        see Client.call_async() and Request.reply_async().
        """
    def fileno(self) -> int:
        """The file descriptor, for selectors."""
    def __enter__(self) -> Self: ...
    def __exit__(self, exception: type[BaseException] | None = None, *_rest: object) -> None: ...
    def __reduce__(self) -> NoReturn: ...

@final
class Record(Buffer):
    """A received record in the memory of its endpoint, without a copy. It is a read-only buffer: pass it to memoryview(), bytes() or
    numpy.frombuffer().

    The end of the with block releases the record, also when an exception ends it: keep() leaves the record in the ring. A memoryview or
    array of it must not exist then: release or delete it before, otherwise the block ends with BufferError, and the record is released when
    this object and the last of them are deleted. Until it is released, the consumer receives nothing else. A new memoryview of a released
    record fails with BufferError.

    The producer can change the bytes of a ring at any time. Copy an untrusted record once, by bytes(), and validate the copy.
    """
    def release(self) -> None:
        """Releases the record, so that its room is free for the producer. Releasing it again has no effect."""
    def keep(self) -> None:
        """Leaves the record in the ring: it is the next one again. For a receiver that could not process it."""
    def __len__(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, exception: type[BaseException] | None = None, *_rest: object) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Reservation(Buffer):
    """Room for a record in the memory of a ring, without a copy. It is a writable buffer with unspecified content: pass it to memoryview(),
    struct.pack_into() or numpy.frombuffer().

    The end of the with block sends the record, an exception cancels it. A memoryview or array of it must not exist then: release or delete
    it before, otherwise the block ends with BufferError, and nothing is sent.
    """
    def commit(self, length: int | None = None) -> None:
        """Sends the first `length` bytes as the record, by default all. Has no effect after a commit or a cancel, and fails after a close."""
    def cancel(self) -> None:
        """Sends nothing. Has no effect after a commit or a cancel."""
    def __len__(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, exception: type[BaseException] | None = None, *_rest: object) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Ring:
    """Rings of the module: records from one producer to one consumer, by name, through shared memory.

    Options: scope, the directory of a cgroup; create; any_owner, the ring of another user, too; exclusive, of a create: fails if there is
    one; persistent; permissions, 0o600 by default; spin_limit, the seconds of a wait before it sleeps; max_capacity, the largest ring to map;
    mlock; of the open that creates the ring: capacity in bytes, 4 MiB by default, and numa_node.

    A ring without endpoints is freed with its records, unless it is persistent.
    """
    @staticmethod
    def producer(name: _Name, **options: Unpack[_RingOptions]) -> Producer:
        """Opens the ring for sending. Does not wait for the consumer."""
    @staticmethod
    def consumer(name: _Name, **options: Unpack[_RingOptions]) -> Consumer:
        """Opens the ring for receiving. Does not wait for the producer."""
    @staticmethod
    def create(name: _Name, **options: Unpack[_RingOptions]) -> None:
        """Creates a ring that exists until it is removed. Fails with AlreadyExists if it exists."""

@final
class SocketRing:
    """Rings over a Unix socket, without the module. One process connects to the Listener of the other, or both have one socket each of a pair().
    One process is the producer, the other one the consumer.

    Options: capacity, huge_pages, numa_node (of the producer), spin_limit, max_capacity, mlock, allow_unsealed, handshake_timeout,
    allow_users, allow_everyone.
    """
    @staticmethod
    def connect(path: str | PathLike[str], timeout: float | None = None) -> socket:
        """Connects to a Listener. Returns a socket, for producer() or consumer()."""
    @staticmethod
    def pair() -> tuple[socket, socket]:
        """A connected pair of sockets, for two processes. Each process closes the socket of the other one: otherwise the death of that process
        is not detected.
        """
    @staticmethod
    def producer(socket: socket, **options: Unpack[_SocketOptions]) -> Producer:
        """Sets up the sending side over a socket, which is closed with it. Waits for the other side up to the handshake_timeout, 5 s by
        default.
        """
    @staticmethod
    def consumer(socket: socket, **options: Unpack[_SocketOptions]) -> Consumer:
        """Sets up the receiving side over a socket, as producer() does the sending side."""

@final
class Listener(Endpoint):
    """A listening Unix socket at a path, for SocketRing. Closing it removes the path. A socket at the path whose process has ended is replaced."""
    def __new__(cls, path: str | PathLike[str]) -> Self: ...
    def accept(self, timeout: float | None = None) -> socket:
        """Waits for the next connection. Returns its socket, for SocketRing.producer() or consumer()."""
    async def accept_async(self) -> socket:
        """As accept(), for asyncio."""

@final
class Producer(Endpoint):
    """The sending side of a ring. Closing it ends the stream: the consumer receives all sent records before.

    Records of a ring of the module that is not persistent are lost if its consumer has not come before the close: call flush() before.
    """
    @property
    def pending(self) -> int:
        """Bytes, including headers, that the consumer has not released yet."""
    @property
    def capacity(self) -> int:
        """The capacity in bytes for unreleased records, including their headers."""
    @property
    def max_record_len(self) -> int:
        """The length limit of a record, in bytes."""
    @property
    def has_consumer(self) -> bool:
        """Whether the consumer has come, also if it has ended since. Over a socket it always has."""
    @property
    def peer_closed(self) -> bool:
        """Whether the consumer has closed the ring or died."""
    def send(self, record: Buffer, timeout: float | None = None) -> None:
        """Sends a record, a bytes-like object. Waits while the ring is full."""
    async def send_async(self, record: Buffer) -> None:
        """As send(), for asyncio."""
    def send_batch(self, records: Iterable[Buffer]) -> None:
        """Sends records, which become visible to the consumer together as far as they fit. Waits while the ring is full. An exception of the
        iterable ends the call after the records before it are sent.
        """
    def reserve(self, length: int, timeout: float | None = None) -> Reservation:
        """Reserves room for a record of this length, to be filled in place: see Reservation. Waits while the ring is full."""
    def flush(self, timeout: float | None = None) -> None:
        """Waits until the consumer has released all sent records."""
    def abort(self) -> None:
        """Closes this side without ending the stream: the consumer receives all sent records, then PeerDied."""
    def prepare_wait(self, length: int) -> bool:
        """Prepares to wait, by the descriptor, for room for a record. Returns False if there is room, or the consumer has ended. Call
        finish_wait() after the wait, or instead of it.
        """
    def finish_wait(self) -> None:
        """Ends a prepared wait: reads the wake-ups from the descriptor."""

@final
class Consumer(Endpoint):
    """The receiving side of a ring. Iteration returns the records up to the end of the stream."""
    @property
    def pending(self) -> int:
        """Bytes, including headers, that the producer has reported as sent and that were not received yet. Only a hint."""
    @property
    def capacity(self) -> int:
        """The capacity in bytes for unreleased records, including their headers."""
    @property
    def max_record_len(self) -> int:
        """The length limit of a record, in bytes."""
    @property
    def has_producer(self) -> bool:
        """Whether the producer has come, also if it has ended since. Over a socket it always has."""
    @property
    def peer_closed(self) -> bool:
        """Whether the producer has closed the ring or died. There may still be records."""
    def recv(self, timeout: float | None = None) -> bytes | None:
        """Returns a copy of the next record, or None at the end of the stream: compare with None, a record may be empty. Waits for a record."""
    async def recv_async(self) -> bytes | None:
        """As recv(), for asyncio."""
    def recv_view(self, timeout: float | None = None) -> Record:
        """Returns the next record in place, without a copy: see Record. Waits for a record. Raises EOFError at the end of the stream."""
    def recv_into(self, buffer: Buffer, timeout: float | None = None) -> int | None:
        """Copies the next record into a writable buffer and returns its length, or None at the end of the stream. Waits for a record. A
        record longer than the buffer is not received and stays the next one.
        """
    def recv_batch(self, limit: int = 1024, timeout: float | None = None) -> list[bytes]:
        """Returns copies of all available records, up to a number; an empty list at the end of the stream. Waits for the first one."""
    def abort(self) -> None:
        """Closes this side without ending the stream, so that the producer gets an error."""
    def prepare_wait(self) -> bool:
        """Prepares to wait, by the descriptor, for a record. Returns False if there is one, or the stream has ended. Call finish_wait() after
        the wait, or instead of it.
        """
    def finish_wait(self) -> None:
        """Ends a prepared wait: reads the wake-ups from the descriptor."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> bytes: ...

@final
class Pipe:
    """Pipes: bytes from writers to readers, by name, as through a FIFO. Without a name: the pipe of the caller's cgroup, /dev/sluice/pipe.

    Options: scope, create, any_owner, exclusive, persistent, permissions; of the open that creates the pipe: capacity in bytes. The pipe of
    the cgroup has none.
    """
    @staticmethod
    def reader(name: _Name | None = None, **options: Unpack[_Options]) -> PipeReader:
        """Opens the pipe for reading. Does not wait for a writer: the first read does."""
    @staticmethod
    def writer(
        name: _Name | None = None, *, timeout: float | None = None, **options: Unpack[_Options]
    ) -> PipeWriter:
        """Opens the pipe for writing. Waits for a reader, unless the timeout is 0."""
    @staticmethod
    def create(name: _Name, **options: Unpack[_Options]) -> None:
        """Creates a pipe that exists until it is removed. Fails with AlreadyExists if it exists."""

@final
class PipeReader(Endpoint):
    """The reading end of a pipe. Several threads may use it at the same time. Iteration returns what there is, up to the end of the stream.

    The descriptor is nonblocking.
    """
    def read(self, size: int = 65536, timeout: float | None = None) -> bytes:
        """Returns up to `size` bytes, or none at the end of the stream, when no writer has the pipe open. Waits for the first byte."""
    async def read_async(self, size: int = 65536) -> bytes:
        """As read(), for asyncio."""
    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        """As read(), into a writable buffer. Returns the number of bytes."""
    @overload
    def makefile(
        self, mode: Literal["b"] = "b", *, encoding: None = None, errors: None = None, newline: None = None
    ) -> BufferedReader:
        """A file object over the pipe: "b" for bytes, "t" for text. Closing it closes the pipe."""
    @overload
    def makefile(
        self, mode: Literal["t"], *, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> TextIOWrapper:
        """A file object over the pipe: "b" for bytes, "t" for text. Closing it closes the pipe."""
    def info(self) -> PipeInfo:
        """The state of the pipe: a PipeInfo."""
    def set_capacity(self, capacity: int) -> int:
        """Sets the capacity of the pipe in bytes, rounded up to a power of two of pages, and returns it."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> bytes: ...

@final
class PipeWriter(Endpoint):
    """The writing end of a pipe. Several threads may use it at the same time.

    The descriptor is nonblocking.
    """
    def write(self, bytes: Buffer, timeout: float | None = None) -> int:
        """Writes bytes, as many as there is room for, and returns their number. Waits for room. Fails with Closed when no reader has the pipe
        open.
        """
    def write_all(self, bytes: Buffer) -> None:
        """Writes all bytes."""
    async def write_async(self, data: Buffer) -> None:
        """As write_all(), for asyncio. If it is cancelled, a part of the bytes may be written."""
    @overload
    def makefile(
        self, mode: Literal["b"] = "b", *, encoding: None = None, errors: None = None, newline: None = None
    ) -> BufferedWriter:
        """A file object over the pipe: "b" for bytes, "t" for text. Closing it closes the pipe."""
    @overload
    def makefile(
        self, mode: Literal["t"], *, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> TextIOWrapper:
        """A file object over the pipe: "b" for bytes, "t" for text. Closing it closes the pipe."""
    def info(self) -> PipeInfo:
        """The state of the pipe: a PipeInfo."""
    def set_capacity(self, capacity: int) -> int:
        """Sets the capacity of the pipe in bytes, rounded up to a power of two of pages, and returns it."""

@final
class Bus:
    """Buses: messages from many senders to many subscribers, and requests with their replies.

    Options: scope, create, any_owner, exclusive, persistent, permissions; of the open that creates the bus: capacity in bytes, delivery
    ("broadcast", the default, "multicast" or "unicast"), policies (a list of "drop", "block" and "evict"), mappable; of a subscriber:
    policy, limit, monitor.
    """
    @staticmethod
    def sender(name: _Name, **options: Unpack[_BusOptions]) -> Sender:
        """Opens the bus to send."""
    @staticmethod
    def subscriber(name: _Name, **options: Unpack[_BusOptions]) -> Subscriber:
        """Opens the bus to receive the messages that are sent from then on."""
    @staticmethod
    def endpoint(name: _Name, **options: Unpack[_BusOptions]) -> tuple[Sender, Subscriber]:
        """Opens the bus to send and to receive, with one id for both. On a broadcast bus the subscriber also receives what it sends itself."""
    @staticmethod
    def client(name: _Name, **options: Unpack[_BusOptions]) -> Client:
        """Opens a multicast bus to send requests to its servers and receive their replies."""
    @staticmethod
    def server(name: _Name, **options: Unpack[_BusOptions]) -> Server:
        """Opens a multicast bus to receive requests and send replies."""
    @staticmethod
    def create(name: _Name, **options: Unpack[_BusOptions]) -> None:
        """Creates a bus that exists until it is removed. Fails with AlreadyExists if it exists."""

@final
class Sender(Endpoint):
    """Sends messages on a bus. Several threads may use it at the same time."""
    @property
    def id(self) -> int:
        """The id of the endpoint, which no other endpoint of the bus ever has."""
    @property
    def message_max(self) -> int:
        """The largest message of the bus, in bytes."""
    def send(self, message: Buffer, timeout: float | None = None, *, to: int | None = None) -> None:
        """Sends a message, a bytes-like object, to those whom the delivery mode determines; with `to`, to the subscriber with this id. Waits
        while a subscriber that blocks senders has not received enough.
        """
    async def send_async(self, message: Buffer, *, to: int | None = None) -> None:
        """As send(), for asyncio. Any number of tasks may send at the same time."""
    def info(self) -> BusInfo:
        """The state of the bus and of this endpoint: a BusInfo."""
    def subscribers(self) -> list[SubscriberInfo]:
        """The subscribers of the bus, as SubscriberInfo objects."""

@final
class Subscriber(Endpoint):
    """Receives messages. Iteration ends when the bus is destroyed."""
    @property
    def id(self) -> int:
        """The id of the endpoint, which no other endpoint of the bus ever has."""
    def recv(self, timeout: float | None = None) -> Message:
        """Returns the next Message. Waits for one. Fails with Closed when the bus is destroyed."""
    async def recv_async(self) -> Message:
        """As recv(), for asyncio."""
    def recv_batch(self, timeout: float | None = None) -> list[Message]:
        """Returns the next messages, as many as there are and the buffer holds: one system call for many small messages. Waits for the first
        one.
        """
    def info(self) -> BusInfo:
        """The state of the bus and of this endpoint: a BusInfo."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Message: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> Message: ...

@disjoint_base
class Message:
    """A message of a bus."""
    @property
    def data(self) -> bytes:
        """The bytes of the message."""
    @property
    def sender(self) -> int:
        """The endpoint that sent it, to which a reply can be sent if it also subscribes."""
    @property
    def target(self) -> int | None:
        """The subscriber that it is addressed to."""
    @property
    def sequence(self) -> int:
        """The number of the message, of all that were sent on the bus."""
    @property
    def lost(self) -> int:
        """Messages that this subscriber lost since the one that it received before."""
    @property
    def pid(self) -> int | None:
        """The process that opened the endpoint of the sender, if it is visible here."""
    @property
    def uid(self) -> int:
        """The user that opened the endpoint of the sender."""
    @property
    def gid(self) -> int:
        """The group that opened the endpoint of the sender."""
    def __bytes__(self) -> bytes: ...

@final
class Client(Endpoint):
    """Sends requests to the servers of a bus, each to the next one, and returns their replies. Several threads may use it at the same time.

    A call ends with the reply, or at once when it is known that none comes: PeerDied, if its server has ended, or NotConnected, if there is
    none. It waits for a server that is slow, so give it a timeout.
    """
    @property
    def id(self) -> int:
        """The id of the endpoint, which no other endpoint of the bus ever has."""
    def call(
        self, request: Buffer, timeout: float | None = None, *, _cancelled: ThreadEvent | None = None
    ) -> bytes:
        """Sends a request to the next server, and returns its reply. A request is sent once: after Timeout, PeerDied or KeyboardInterrupt the
        server may have received it, and a later reply is discarded.
        """
    async def call_async(self, request: Buffer, timeout: float | None = None) -> bytes:
        """As call(), for asyncio, in a thread. If it is cancelled, the server may have received the request. A close does not end it."""
    def info(self) -> BusInfo:
        """The state of the bus and of this endpoint: a BusInfo."""

@final
class Server(Endpoint):
    """Receives the requests of clients. The requests of a bus go to its servers in turn. Iteration ends when the bus is destroyed.

    One thread receives; any threads answer.
    """
    @property
    def id(self) -> int:
        """The id of the endpoint, which no other endpoint of the bus ever has."""
    def recv(self, timeout: float | None = None) -> Request:
        """Returns the next Request. Waits for one. Fails with Closed when the bus is destroyed."""
    async def recv_async(self) -> Request:
        """As recv(), for asyncio."""
    def serve(self, answer: Callable[[Request], Buffer]) -> None:
        """Answers each request with what answer(request) returns, one after the other, until the bus is destroyed.

        A client that does not take its reply within a second loses it. An exception of answer() ends the server.
        """
    def info(self) -> BusInfo:
        """The state of the bus and of this endpoint: a BusInfo."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Request: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> Request: ...

@final
class Request(Message):
    """A request of a client, which any thread may answer once. If it is not answered, its client keeps waiting."""
    def reply(self, reply: Buffer, timeout: float | None = None, *, _cancelled: ThreadEvent | None = None) -> None:
        """Sends the reply. Waits for room. Fails with NotFound if the client has ended. After an error the request cannot be answered again."""
    async def reply_async(self, reply: Buffer, timeout: float | None = None) -> None:
        """As reply(), for asyncio, in a thread. If it is cancelled, the reply may have been sent, and there is no second one."""

@disjoint_base
class Map(Endpoint):
    """An open map. Several threads may use it at the same time."""
    def __new__(cls, name: _Name, access: str = "both", **options: Unpack[_MapOptions]) -> Self: ...
    @staticmethod
    def create(name: _Name, **options: Unpack[_MapOptions]) -> None:
        """Creates a map that exists until it is removed. Fails with AlreadyExists if it exists."""
    @overload
    def get(self, key: Buffer, default: None = None) -> bytes | None:
        """Returns the value of a key, or the default if there is no entry."""
    @overload
    def get(self, key: Buffer, default: _D) -> bytes | _D:
        """Returns the value of a key, or the default if there is no entry."""
    def entry(self, key: Buffer) -> Entry | None:
        """Returns the Entry of a key: its value, version and time to live. None if there is no entry."""
    def entries(self) -> Iterator[tuple[bytes, Entry]]:
        """Iterates over the keys and their Entry objects, in no order."""
    def set(
        self, key: Buffer, value: Buffer, *, version: int | None = None, ttl: float | None = None, wait: bool = True
    ) -> int:
        """Sets the value of a key. Returns the version of the entry from then on.

        With a version, only if the entry has that version; 0: only if there is no entry. Otherwise it fails with Conflict. The entry is
        removed after ttl seconds; by default never. A durable map stores the change before this returns, unless wait is False.
        """
    def compare_and_set(self, key: Buffer, version: int, value: Buffer) -> int:
        """Sets the value of a key if its entry has this version; with version 0, creates the entry. Otherwise fails with Conflict. Returns the
        new version.
        """
    def delete(self, key: Buffer, *, version: int | None = None, wait: bool = True) -> int | None:
        """Deletes the entry of a key. Returns the number of that change, or None if there is no entry.

        With a version, only if the entry has that version. Otherwise it fails with Conflict. A durable map stores the change before this
        returns, unless wait is False.
        """
    def sync(self, number: int | None = None) -> int:
        """Waits until the changes of a durable map up to a number are stored, by default all. Returns the number up to which they are."""
    def watch(self, after: int | None = None) -> Watcher:
        """Watches the changes of the map. The first one is the next change, or the one after the sequence `after`; 0: all that the map keeps.
        An open map has one watcher at a time.
        """
    def info(self) -> MapInfo:
        """The state of the map: a MapInfo."""
    def _run(self, operations: list[_Operation], value_room: int) -> list[_Outcome]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __getitem__(self, key: Buffer, /) -> bytes: ...
    def __setitem__(self, key: Buffer, value: Buffer, /) -> None: ...
    def __delitem__(self, key: Buffer, /) -> None: ...

@final
class Entry:
    """An entry of a map."""
    @property
    def value(self) -> bytes: ...
    @property
    def version(self) -> int:
        """The sequence of the last change of the entry."""
    @property
    def ttl(self) -> float | None:
        """What was left of its time to live when it was read, in seconds. None: it never expires."""

@final
class Watcher(Endpoint):
    """Receives the changes of a map, in their order. Iteration ends when the map is destroyed."""
    @property
    def since(self) -> int:
        """The sequence of the last change before the first event."""
    def recv(self, timeout: float | None = None) -> Event:
        """Returns the next Event. Waits for one. Fails with Closed when the map is destroyed."""
    async def recv_async(self) -> Event:
        """As recv(), for asyncio."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Event: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> Event: ...

@final
class Event:
    """A change of a map. It has no value: get() of the map returns the present one, which may be that of a later change."""
    @property
    def change(self) -> str:
        """"created", "updated", "deleted" or "expired"."""
    @property
    def key(self) -> bytes: ...
    @property
    def sequence(self) -> int:
        """The number of the change."""
    @property
    def version(self) -> int:
        """The version of the entry; of one that was deleted or has expired, the version that it had."""
    @property
    def missed(self) -> int:
        """Changes directly before this one that the watcher has missed."""

@final
class Feed:
    """Feeds: packets from a kernel module to one process."""
    @staticmethod
    def consumer(name: _Name, *, spin_limit: float | None = None) -> FeedConsumer:
        """Claims the feed to receive its packets through mapped memory. The first packet is the next one that is published."""
    @staticmethod
    def info(name: _Name) -> FeedInfo:
        """The state of a feed, which is not claimed for it: a FeedInfo."""

@final
class FeedConsumer(Endpoint):
    """Receives the packets of a feed. Iteration ends when the publisher destroys the feed."""
    @property
    def capacity(self) -> int:
        """The capacity in bytes for unreleased packets, including their headers."""
    def recv(self, timeout: float | None = None) -> Packet:
        """Returns a copy of the next Packet. Waits for one. Fails with Closed at the end of the feed."""
    async def recv_async(self) -> Packet:
        """As recv(), for asyncio."""
    def recv_view(self, timeout: float | None = None) -> Record:
        """Returns the next packet in place, without a copy: see Record. Its header is not part of it: use recv() for that."""
    def prepare_wait(self) -> bool:
        """Prepares to wait, by the descriptor, for a packet. Returns False if there is one, or the feed has ended. Call finish_wait() after the
        wait, or instead of it.
        """
    def finish_wait(self) -> None:
        """Ends a prepared wait."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Packet: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> Packet: ...

@final
class Packet:
    """A packet of a feed."""
    @property
    def data(self) -> bytes:
        """The bytes of the publisher."""
    @property
    def sequence(self) -> int:
        """The number of the packet: the previous packet's sequence + 1 + `lost`."""
    @property
    def lost(self) -> int:
        """Packets lost directly before this one."""
    @property
    def time_ns(self) -> int:
        """The time just before the packet became visible, as of time.monotonic_ns()."""
    def __bytes__(self) -> bytes: ...

@final
class Channel:
    """The kind of a channel ("pipe", "ring", "bus", "map" or "feed"), its name and its scope, to query or remove it. The channel need not exist."""
    def __new__(cls, kind: str, name: _Name, *, scope: _Scope | None = None) -> Self: ...
    def info(self) -> ChannelInfo:
        """The state of the channel, which is not opened for it: a ChannelInfo."""
    def unlink(self) -> None:
        """Removes the name. Open endpoints stay connected; a channel without endpoints is freed. Of a durable map, the daemon first deletes
        what is stored.
        """
    def destroy(self) -> None:
        """As unlink(), and ends the channel for the processes that have it open."""

def channels(*, scope: _Scope | None = None) -> list[ChannelInfo]:
    """Lists the channels of a scope as ChannelInfo objects, sorted by kind and name."""
