# SPDX-License-Identifier: MIT OR Apache-2.0
# mypy: ignore-errors
# pyright: basic
"""Methods of the classes of the extension that are written in Python: asyncio, iteration, and file objects. _sluice.pyi has their types.

An asynchronous call tries without a wait, and then waits for the descriptor in the event loop. It is cancel safe, unless it says otherwise:
a cancelled call has sent or received nothing. One task waits for an endpoint at a time, except for sending on a bus.
"""

import asyncio
import contextlib
import functools
import io
import os
import select
import threading

from ._errors import Closed, NotFound, Timeout, WouldBlock
from ._sluice import (
    Client,
    Consumer,
    Endpoint,
    Entry,
    Event,
    FeedConsumer,
    Listener,
    Message,
    Packet,
    PipeReader,
    PipeWriter,
    Producer,
    Request,
    Sender,
    Server,
    Subscriber,
    Watcher,
)

# How long a reply of Server.serve() waits for room.
_REPLY_TIMEOUT = 1.0
# How long a wait is that the descriptor may not end: a reply can receive requests in another thread; a sender can be closed.
_INTERVAL = 0.1

# The loop whose task waits for a descriptor, and what ends that wait.
_waiting = {}
os.register_at_fork(after_in_child=_waiting.clear)


def _extends(*classes):
    """Adds the methods of a class to classes of the extension."""

    def extend(mixin):
        for name, method in vars(mixin).items():
            if callable(method):
                for cls in classes:
                    setattr(cls, name, method)
        return mixin

    return extend


def _wake(future):
    if not (future.done() or future.get_loop().is_closed()):
        future.set_result(None)


def _check(fd):
    # The task of a loop that was closed waits no more.
    if fd in _waiting and not _waiting[fd][0].is_closed():
        raise RuntimeError("another task waits for the endpoint; use one endpoint per task")


async def _wait(fd, *, write=False, limit=None):
    """Waits until a descriptor is readable, or writable."""
    loop = asyncio.get_running_loop()
    add, remove = (loop.add_writer, loop.remove_writer) if write else (loop.add_reader, loop.remove_reader)
    _check(fd)
    future = loop.create_future()
    timer = loop.call_later(limit, _wake, future) if limit else None

    def end():
        if _waiting.get(fd) == (loop, end):
            del _waiting[fd]
            remove(fd)
        _wake(future)

    _waiting[fd] = loop, end
    add(fd, _wake, future)
    try:
        await future
    finally:
        end()
        if timer:
            timer.cancel()


async def _until_ready(endpoint, call, *, write=False, limit=None):
    while True:
        try:
            return call()
        except WouldBlock:
            await _wait(endpoint.fileno(), write=write, limit=limit)


async def _until_woken(endpoint, call, *arguments):
    """As _until_ready(), where the peer has to know that this side waits."""
    while True:
        try:
            return call()
        except WouldBlock:
            pass
        # Checked first: the end of this wait would also end the announced wait of the other task.
        _check(endpoint.fileno())
        try:
            if endpoint.prepare_wait(*arguments):
                await _wait(endpoint.fileno())
        except BaseException:
            # The endpoint may be closed or in use meanwhile, which is no reason to hide the cancellation.
            with contextlib.suppress(BufferError, RuntimeError, ValueError):
                endpoint.finish_wait()
            raise
        endpoint.finish_wait()


def _ends_waits(close):
    """The method, which also wakes the task that waits for the endpoint: the loop does not learn that its descriptor is closed."""

    @functools.wraps(close)
    def method(self):
        waiting = None if self.closed else _waiting.get(self.fileno())
        close(self)
        if waiting:
            loop, end = waiting
            with contextlib.suppress(RuntimeError):  # The loop is closed, or was closed meanwhile.
                end() if loop is asyncio._get_running_loop() else loop.call_soon_threadsafe(end)

    return method


Endpoint.close = _ends_waits(Endpoint.close)
Producer.abort = _ends_waits(Producer.abort)
Consumer.abort = _ends_waits(Consumer.abort)


async def _in_thread(call, argument, timeout):
    """In a thread of its own: those of asyncio are few, and a reply must not wait for one that calls hold."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    cancelled = threading.Event()

    def end(set_result, result):
        if not future.done():
            set_result(result)

    def run():
        try:
            ended = future.set_result, call(argument, timeout, _cancelled=cancelled)
        except BaseException as error:
            ended = future.set_exception, error
        try:
            loop.call_soon_threadsafe(end, *ended)
        except RuntimeError:
            pass  # The loop was closed meanwhile.

    threading.Thread(target=run, daemon=True).start()
    try:
        return await future
    finally:
        cancelled.set()


@_extends(Consumer, FeedConsumer)
class _RecvWhenWoken:
    async def recv_async(self):
        """As recv(), for asyncio."""
        return await _until_woken(self, lambda: self.recv(0))


@_extends(Subscriber, Watcher)
class _RecvWhenReady:
    async def recv_async(self):
        """As recv(), for asyncio."""
        return await _until_ready(self, lambda: self.recv(0))


@_extends(FeedConsumer, Subscriber, Watcher, Server)
class _Receiver:
    def __iter__(self):
        return self

    def __next__(self):
        try:
            return self.recv()
        except Closed:
            raise StopIteration from None

    def __aiter__(self):
        return self

    async def __anext__(self):
        try:
            return await self.recv_async()
        except Closed:
            raise StopAsyncIteration from None


@_extends(Consumer)
class _Consumer:
    def __aiter__(self):
        return self

    async def __anext__(self):
        record = await self.recv_async()
        if record is None:
            raise StopAsyncIteration
        return record


@_extends(Producer)
class _Producer:
    async def send_async(self, record):
        """As send(), for asyncio."""
        return await _until_woken(self, lambda: self.send(record, 0), memoryview(record).nbytes)


@_extends(Listener)
class _Listener:
    async def accept_async(self):
        """As accept(), for asyncio."""
        return await _until_ready(self, lambda: self.accept(0))


@_extends(Sender)
class _Sender:
    async def send_async(self, message, *, to=None):
        """As send(), for asyncio. Any number of tasks may send at the same time."""
        try:
            return self.send(message, 0, to=to)
        except WouldBlock:
            pass
        # A bus is writable if the largest message fits, and a subscriber may be full nevertheless. So the wait is for edges, of which the
        # first comes at once if the bus is writable.
        with select.epoll() as room:
            room.register(self.fileno(), select.EPOLLOUT | select.EPOLLET)
            while True:
                await _wait(room.fileno(), limit=_INTERVAL)
                room.poll(0)
                try:
                    return self.send(message, 0, to=to)
                except WouldBlock:
                    pass


@_extends(Client)
class _Client:
    async def call_async(self, request, timeout=None):
        """As call(), for asyncio, in a thread. If it is cancelled, the server may have received the request. A close does not end it."""
        return await _in_thread(self.call, request, timeout)


@_extends(Server)
class _Server:
    async def recv_async(self):
        """As recv(), for asyncio."""
        return await _until_ready(self, lambda: self.recv(0), limit=_INTERVAL)

    def serve(self, answer):
        """Answers each request with what answer(request) returns, one after the other, until the bus is destroyed.

        A client that does not take its reply within a second loses it. An exception of answer() ends the server.
        """
        for request in self:
            reply = answer(request)
            try:
                request.reply(reply, _REPLY_TIMEOUT)
            except (NotFound, Timeout):
                pass  # The client has ended, or is slow.
            except Closed:
                return


@_extends(Request)
class _Request:
    async def reply_async(self, reply, timeout=None):
        """As reply(), for asyncio, in a thread. If it is cancelled, the reply may have been sent, and there is no second one."""
        return await _in_thread(self.reply, reply, timeout)


# In the order of the stub: the extension has no order of its own.
_FIELDS = {
    Message: ("data", "sender", "target", "sequence", "lost", "pid", "uid", "gid"),
    Entry: ("value", "version", "ttl"),
    Event: ("change", "key", "sequence", "version", "missed"),
    Packet: ("data", "sequence", "lost", "time_ns"),
}


@_extends(Message, Request, Entry, Event, Packet)
class _Fields:
    def __repr__(self):
        names = next(names for cls, names in _FIELDS.items() if isinstance(self, cls))
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


@_extends(PipeReader)
class _PipeReader:
    async def read_async(self, size=65536):
        """As read(), for asyncio."""
        return await _until_ready(self, lambda: self.read(size, 0))

    def __iter__(self):
        return self

    def __next__(self):
        data = self.read()
        if not data:
            raise StopIteration
        return data

    def __aiter__(self):
        return self

    async def __anext__(self):
        data = await self.read_async()
        if not data:
            raise StopAsyncIteration
        return data


@_extends(PipeWriter)
class _PipeWriter:
    async def write_async(self, data):
        """As write_all(), for asyncio. If it is cancelled, a part of the bytes may be written."""
        rest = memoryview(data).cast("B")
        while rest:
            written = await _until_ready(self, lambda: self.write(rest, 0), write=True)
            rest = rest[written:]


class _PipeFile(io.RawIOBase):
    """A raw file over an end of a pipe."""

    def __init__(self, end):
        self._end = end

    def readable(self):
        return isinstance(self._end, PipeReader)

    def writable(self):
        return isinstance(self._end, PipeWriter)

    def readinto(self, buffer):
        return self._end.readinto(buffer)

    def write(self, data):
        return self._end.write(data)

    def fileno(self):
        return self._end.fileno()

    def close(self):
        if not self.closed:
            super().close()
            self._end.close()


@_extends(PipeReader, PipeWriter)
class _Files:
    def makefile(self, mode="b", *, encoding=None, errors=None, newline=None):
        """A file object over the pipe: "b" for bytes, "t" for text. Closing it closes the pipe."""
        if mode not in ("b", "t"):
            raise ValueError(f"invalid mode {mode!r}: use 'b' or 't'")
        raw = _PipeFile(self)
        file = io.BufferedReader(raw) if raw.readable() else io.BufferedWriter(raw)
        return file if mode == "b" else io.TextIOWrapper(file, encoding, errors, newline)
