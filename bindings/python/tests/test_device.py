# SPDX-License-Identifier: MIT OR Apache-2.0
"""Channels of the module. Skipped without it."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import background

import sluice

pytestmark = pytest.mark.device
LIMIT = 60.0


def test_a_ring_is_found_by_name(name: str) -> None:
    with sluice.Ring.producer(name, create=True, capacity=64 << 10) as producer:
        assert not producer.has_consumer
        with sluice.Ring.consumer(name) as consumer:
            assert producer.has_consumer
            producer.send(b"hello")
            with consumer.recv_view() as record:
                assert bytes(record) == b"hello"
            producer.close()
            assert list(consumer) == []
    with pytest.raises(sluice.NotFound, match="no ring named"):
        sluice.Ring.consumer(name)


def test_a_second_producer_is_refused(name: str) -> None:
    with sluice.Ring.producer(name, create=True):
        with pytest.raises(sluice.Error, match="already"):
            sluice.Ring.producer(name)


def test_a_destroyed_ring_ends_a_wait(name: str) -> None:
    with sluice.Ring.consumer(name, create=True) as consumer:
        received = background(consumer.recv)
        time.sleep(0.1)
        sluice.Channel("ring", name).destroy()
        with pytest.raises(sluice.Closed, match="destroyed"):
            received.result(LIMIT)


def test_a_device_ring_is_received_in_a_task(name: str) -> None:
    async def main() -> list[bytes]:
        with sluice.Ring.consumer(name, create=True, capacity=4096) as consumer:
            with sluice.Ring.producer(name) as producer:

                async def send() -> None:
                    for number in range(500):
                        await producer.send_async(b"%d" % number * 20)
                    producer.close()

                sending = asyncio.create_task(send())
                received = [record async for record in consumer]
                await sending
                return received

    assert asyncio.run(asyncio.wait_for(main(), LIMIT)) == [b"%d" % number * 20 for number in range(500)]


def test_channels_are_created_listed_and_removed(name: str) -> None:
    for kind, create in {
        "pipe": sluice.Pipe.create,
        "ring": sluice.Ring.create,
        "bus": sluice.Bus.create,
        "map": sluice.Map.create,
    }.items():
        create(name, permissions=0o640)
        with pytest.raises(sluice.AlreadyExists):
            create(name)
        info = sluice.Channel(kind, name).info()
        assert (info.kind, info.name, info.permissions, info.persistent) == (kind, name.encode(), 0o640, True)
        assert info in sluice.channels()
        sluice.Channel(kind, name).unlink()
        with pytest.raises(sluice.NotFound):
            sluice.Channel(kind, name).info()


def test_an_invalid_name_or_option_is_refused() -> None:
    with pytest.raises(sluice.InvalidInput, match="1 to 63 bytes"):
        sluice.Bus.sender("a/b")
    with pytest.raises(TypeError, match="no option 'nonblocking'"):
        sluice.Bus.sender("x", nonblocking=True)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="no policy 'lose'"):
        sluice.Bus.subscriber("x", policy="lose")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="durable maps"):
        sluice.Map.open("x", interval=1.0)
    with pytest.raises(sluice.Error, match="cgroup"):
        sluice.Map.open("x", scope="/proc")


def test_bytes_pass_through_a_pipe(name: str) -> None:
    sent = os.urandom(300_000)
    with sluice.Pipe.reader(name, create=True) as reader:
        with pytest.raises(sluice.WouldBlock):
            reader.read(timeout=0)
        writer = sluice.Pipe.writer(name)

        def write() -> None:
            with writer:
                writer.write_all(sent)

        written = background(write)
        assert b"".join(reader) == sent
        written.result(LIMIT)
        assert reader.read() == b""


def test_a_writer_waits_for_a_reader(name: str) -> None:
    with pytest.raises(sluice.Error, match="no reader"):
        sluice.Pipe.writer(name, create=True, timeout=0)
    with pytest.raises(sluice.Timeout):
        sluice.Pipe.writer(name, create=True, timeout=0.05)
    opened = background(lambda: sluice.Pipe.writer(name, create=True))
    with sluice.Pipe.reader(name, create=True) as reader, opened.result(LIMIT) as writer:
        writer.write(b"hello")
        assert reader.read() == b"hello"
        assert reader.info().writers == 1
        reader.close()
        with pytest.raises(sluice.Closed):
            writer.write(b"nobody")


def test_a_pipe_is_a_file(name: str) -> None:
    reader = sluice.Pipe.reader(name, create=True)
    with sluice.Pipe.writer(name).makefile("t") as file:
        print("one", "two", sep="\n", file=file)
    with reader.makefile("t") as lines:
        assert list(lines) == ["one\n", "two\n"]
    assert reader.closed


def test_a_pipe_is_read_in_a_task(name: str) -> None:
    async def main() -> bytes:
        with sluice.Pipe.reader(name, create=True) as reader, sluice.Pipe.writer(name) as writer:

            async def write() -> None:
                await writer.write_async(bytes(500_000))
                writer.close()

            writing = asyncio.create_task(write())
            read = b"".join([data async for data in reader])
            await writing
            return read

    assert asyncio.run(asyncio.wait_for(main(), LIMIT)) == bytes(500_000)


def test_a_timeout_without_a_peer_says_so(name: str) -> None:
    with sluice.Ring.consumer(name, create=True) as consumer:
        with pytest.raises(sluice.Timeout, match="after 120ms: no producer has the ring .* open in .*same cgroup"):
            consumer.recv(0.12)
        with sluice.Ring.producer(name), pytest.raises(sluice.Timeout, match="sent nothing for 10ms"):
            consumer.recv(0.01)
    with sluice.Bus.subscriber(name, create=True) as subscriber:
        with pytest.raises(sluice.Timeout, match="after 10ms: no sender has the bus"):
            subscriber.recv(0.01)
        with sluice.Bus.sender(name), pytest.raises(sluice.Timeout, match="no message for 10ms"):
            subscriber.recv(0.01)


def test_a_message_reaches_every_subscriber(name: str) -> None:
    with (
        sluice.Bus.subscriber(name, create=True) as first,
        sluice.Bus.subscriber(name) as second,
        sluice.Bus.sender(name) as sender,
    ):
        sender.send(b"one")
        sender.send(b"two", to=second.id)
        message = first.recv(LIMIT)
        assert (message.data, bytes(message), message.sender) == (b"one", b"one", sender.id)
        assert (message.uid, message.pid, message.lost) == (os.getuid(), os.getpid(), 0)
        assert "data=b'one'" in repr(message)
        assert [message.data for message in second.recv_batch(LIMIT)] == [b"one", b"two"]
        with pytest.raises(sluice.WouldBlock):
            first.recv(0)
        assert [subscriber.id for subscriber in sender.subscribers()] == sorted([first.id, second.id])
        assert sender.info().sent == 2
        with pytest.raises(sluice.NotFound):
            sender.send(b"nobody", to=999_999)


def test_a_subscriber_that_blocks_delays_the_sender(name: str) -> None:
    options = {"create": True, "capacity": 4096, "policies": ["block"], "policy": "block"}
    with sluice.Bus.subscriber(name, **options) as subscriber, sluice.Bus.sender(name) as sender:  # type: ignore[arg-type]
        sent = 0
        with pytest.raises(sluice.WouldBlock):
            while True:
                sender.send(bytes(500), timeout=0)
                sent += 1
        with pytest.raises(sluice.Timeout):
            sender.send(bytes(500), timeout=0.1)

        async def send() -> None:
            await asyncio.gather(*(sender.send_async(bytes(500)) for _ in range(20)))

        sending = background(lambda: asyncio.run(asyncio.wait_for(send(), LIMIT)))
        for _ in range(sent + 20):
            subscriber.recv(LIMIT)
        sending.result(LIMIT)


def test_a_destroyed_bus_ends_the_iteration(name: str) -> None:
    with sluice.Bus.subscriber(name, create=True) as subscriber:
        received = background(list, subscriber)
        time.sleep(0.1)
        sluice.Channel("bus", name).destroy()
        assert received.result(LIMIT) == []
        with pytest.raises(sluice.Closed):
            subscriber.recv()


def test_a_server_answers(name: str) -> None:
    server = sluice.Bus.server(name, create=True)
    with server, sluice.Bus.client(name) as client:
        serving = background(server.serve, lambda request: request.data.upper())
        assert [client.call(b"%d a" % number, LIMIT) for number in range(100)] == [
            b"%d A" % number for number in range(100)
        ]
        assert client.info().delivery == "multicast"
        sluice.Channel("bus", name).destroy()
        serving.result(LIMIT)


def test_the_end_of_a_server_ends_the_call(name: str) -> None:
    server = sluice.Bus.server(name, create=True)
    with sluice.Bus.client(name) as client:
        with pytest.raises(sluice.Timeout, match="no reply"):
            client.call(b"slow", 0.05)
        called = background(client.call, b"request")
        request = server.recv(LIMIT)
        if request.data == b"slow":
            request = server.recv(LIMIT)
        assert request.sender == client.id
        del request
        server.close()
        with pytest.raises(sluice.PeerDied):
            called.result(LIMIT)
        with pytest.raises(sluice.NotConnected, match="no server"):
            client.call(b"request")


def test_a_request_is_answered_once(name: str) -> None:
    with sluice.Bus.server(name, create=True) as server, sluice.Bus.client(name) as client:
        called = background(client.call, b"request")
        request = server.recv(LIMIT)
        request.reply(b"reply")
        assert called.result(LIMIT) == b"reply"
        with pytest.raises(RuntimeError, match="answered before"):
            request.reply(b"again")


def test_tasks_call_and_answer(name: str) -> None:
    async def main() -> list[bytes]:
        with sluice.Bus.server(name, create=True) as server, sluice.Bus.client(name) as client:

            async def answer() -> None:
                async for request in server:
                    await request.reply_async(request.data * 2)

            answering = asyncio.create_task(answer())
            replies = await asyncio.gather(*(client.call_async(b"%d" % number) for number in range(10)))
            answering.cancel()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.call_async(b"nobody"), 0.1)
            return replies

    assert asyncio.run(asyncio.wait_for(main(), LIMIT)) == [b"%d" % number * 2 for number in range(10)]


def test_a_map_is_a_mutable_mapping(name: str) -> None:
    with sluice.Map.open(name, create=True) as entries:
        entries[b"one"] = b"1"
        entries.update({b"two": b"2", b"three": bytearray(b"3")})
        assert entries[b"one"] == b"1" and b"two" in entries and b"four" not in entries and len(entries) == 3
        assert dict(entries) == dict(entries.items()) == {b"one": b"1", b"two": b"2", b"three": b"3"}
        assert sorted(entries) == sorted(entries.keys()) and sorted(entries.values()) == [b"1", b"2", b"3"]
        assert entries.get(b"four") is None and entries.get(b"four", b"4") == b"4"
        assert entries.pop(b"one") == b"1" and entries.setdefault(b"two", b"new") == b"2"
        for missing in (lambda: entries[b"one"], lambda: entries.__delitem__(b"one")):
            with pytest.raises(KeyError):
                missing()
        entries.clear()
        assert not entries
        entries[b"long"] = bytes(1 << 20)
        assert entries[b"long"] == bytes(1 << 20) and b"long" in entries
        with pytest.raises(sluice.InvalidInput):
            entries[b""] = b""


def test_a_map_that_others_change_is_changed_as_seen(name: str) -> None:
    with sluice.Map.open(name, create=True) as entries, sluice.Map.open(name) as others:
        entries[b"one"] = b"1"
        entry = entries.entry

        def seen(key: bytes) -> sluice.Entry | None:
            found = entry(key)
            if found and found.value == b"1":
                others[key] = b"2"
            return found

        class Raced(sluice.Map):
            entry = staticmethod(seen)  # type: ignore[assignment]

        with Raced.open(name) as raced:
            assert raced.pop(b"one") == b"2"
        assert b"one" not in entries and entries.pop(b"one", None) is None
        with pytest.raises(KeyError):
            entries.pop(b"one")
        entries[b"one"] = b"1"
        assert entries.popitem() == (b"one", b"1")
        with pytest.raises(KeyError):
            entries.popitem()
        assert entries.setdefault(b"two", bytearray(b"2")) == b"2" == others[b"two"]
        for operation in (lambda: entries.batch().set(b"key", 5), lambda: entries.batch().get(3)):  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                operation()


def test_a_child_that_closes_a_client_does_not_deafen_it(name: str) -> None:
    with sluice.Bus.server(name, create=True) as server, sluice.Bus.client(name) as client:
        child = os.fork()
        if child == 0:
            client.close()
            server.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        called = background(client.call, b"still heard", LIMIT)
        time.sleep(0.1)
        server.recv(LIMIT).reply(b"yes")
        assert called.result(LIMIT) == b"yes"


def test_an_entry_is_changed_as_seen(name: str) -> None:
    with sluice.Map.open(name, create=True) as entries:
        version = entries.compare_and_set(b"key", 0, b"1")
        entry = entries.entry(b"key")
        assert entry is not None
        assert (entry.value, entry.version, entry.ttl) == (b"1", version, None)
        assert "version=" in repr(entry)
        for required in (0, version + 1):
            with pytest.raises(sluice.Conflict):
                entries.compare_and_set(b"key", required, b"2")
        with pytest.raises(sluice.Conflict):
            entries.delete(b"key", version=version + 1)
        assert entries.compare_and_set(b"key", version, b"2") > version
        assert entries.delete(b"key") == version + 2
        assert entries.delete(b"key") is None


def test_an_entry_expires(name: str) -> None:
    with sluice.Map.open(name, create=True) as entries:
        entries.set(b"key", b"value", ttl=30)
        entry = entries.entry(b"key")
        assert entry is not None and entry.ttl is not None
        assert 0 < entry.ttl <= 30
        with entries.watch() as watcher:
            entries.set(b"key", b"value", ttl=0.01)
            assert [watcher.recv(LIMIT).change for _ in range(2)] == ["updated", "expired"]
        assert b"key" not in entries


def test_changes_are_watched(name: str) -> None:
    with sluice.Map.open(name, create=True) as entries:
        entries[b"key"] = b"1"
        with entries.watch(after=0) as watcher:
            with pytest.raises(sluice.Error, match="watched already"):
                entries.watch()
            event = watcher.recv(LIMIT)
            fields = f"change='created', key={event.key!r}, sequence={event.sequence}, version={event.version}, missed=0"
            assert repr(event) == f"Event({fields})"
            assert (event.change, event.key, event.sequence, event.missed) == ("created", b"key", 1, 0)
            with pytest.raises(sluice.WouldBlock):
                watcher.recv(0)

            changes: list[str] = []

            async def main() -> None:
                async for event in watcher:
                    changes.append(event.change)

            watching = background(lambda: asyncio.run(asyncio.wait_for(main(), LIMIT)))
            entries[b"key"] = b"2"
            del entries[b"key"]
            began = time.monotonic()
            while len(changes) < 2 and time.monotonic() - began < LIMIT:
                time.sleep(0.01)
            assert changes == ["updated", "deleted"]
            sluice.Channel("map", name).destroy()
            watching.result(LIMIT)


def test_a_batch_has_the_outcome_of_each_operation(name: str) -> None:
    with sluice.Map.open(name, create=True) as entries:
        batch = entries.batch().set(b"one", b"1").get(b"one").set(b"one", b"2", version=0).delete(b"one").get(b"one")
        assert len(batch) == 5
        set_, got, conflict, deleted, missing = batch.run()
        assert (set_, deleted, missing) == (1, 2, None)
        assert isinstance(got, sluice.Entry) and got.value == b"1"
        assert isinstance(conflict, sluice.Conflict)
        many = entries.batch()
        for number in range(1000):
            many.set(b"%d" % number, bytes(number))
        assert many.run()[-1] == 1002
        assert len(entries) == 1000


def test_a_reader_of_a_map_changes_nothing(name: str) -> None:
    with sluice.Map.open(name, create=True, entries=1), sluice.Map.open(name, access="read") as reader:
        with pytest.raises(sluice.Error, match="not open for writing"):
            reader[b"key"] = b"value"
    with sluice.Map.open(name, create=True, entries=1) as entries:
        entries[b"one"] = b""
        with pytest.raises(sluice.Full):
            entries[b"two"] = b""
        with pytest.raises(sluice.Error, match="not durable"):
            entries.sync()


def test_a_map_is_used_by_threads(name: str) -> None:
    with sluice.Map.open(name, create=True) as entries:

        def increment(_: int) -> None:
            while True:
                entry = entries.entry(b"count")
                value, version = (int(entry.value), entry.version) if entry else (0, 0)
                try:
                    entries.compare_and_set(b"count", version, b"%d" % (value + 1))
                    return
                except sluice.Conflict:
                    pass

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(increment, range(200)))
        assert entries[b"count"] == b"200"


def test_a_closed_map_finishes_its_iterators(name: str) -> None:
    entries = sluice.Map.open(name, create=True)
    entries[b"one"] = b"1"
    iterator = iter(entries.items())
    entries.close()
    assert list(iterator) == [(b"one", b"1")]
    with pytest.raises(ValueError, match="closed"):
        entries[b"one"]


def test_an_unknown_feed_is_not_found(name: str) -> None:
    for call in (sluice.Feed.consumer, sluice.Feed.info):
        with pytest.raises(sluice.Error):
            call(name)


WAITS: dict[str, Callable[[str], object]] = {
    "recv of a device ring": lambda name: sluice.Ring.consumer(name, create=True).recv(),
    "recv of a bus": lambda name: sluice.Bus.subscriber(name, create=True).recv(),
    "recv of a server": lambda name: sluice.Bus.server(name, create=True).recv(),
    "call": lambda name: call_of_a_silent_server(name),
    "recv of a watcher": lambda name: sluice.Map.open(name, create=True).watch().recv(),
    "read": lambda name: sluice.Pipe.reader(name, create=True).read(),
    "open of a writer": lambda name: sluice.Pipe.writer(name, create=True),
}


def call_of_a_silent_server(name: str) -> bytes:
    with sluice.Bus.server(name, create=True), sluice.Bus.client(name) as client:
        return client.call(b"request")


@pytest.mark.parametrize("wait", WAITS)
def test_an_interrupt_ends_a_wait_for_the_module(wait: str, name: str) -> None:
    # Also if the caller ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        WAITS[wait](name)
    assert time.monotonic() - began < 30
    timer.join()
    signal.signal(signal.SIGINT, before)
