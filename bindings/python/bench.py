# SPDX-License-Identifier: MIT OR Apache-2.0
"""bench.py [--rounds N] [--seconds S] [--only WORD]: Sluice and other mechanisms of Python, side by side.

Two tables: records from one process to another, and gets and sets of one process on a store that processes share. The rounds are
interleaved: each measures every way once. A table shows medians with the smallest and the largest round, and the median of the rounds'
ratios to the way of the standard library. "In place" means that the sender writes the record in shared memory and the receiver reads it
there: both access the first and the last 8 bytes.

What is not installed is named as not measured. ./bench installs all.
"""

import argparse
import ctypes
import importlib.util
import itertools
import multiprocessing
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import sluice

T = TypeVar("T")
# What sends a number of records, in a process of its own, and what receives them.
Ends = tuple[Callable[[], None], Callable[[], Iterator[object]]]
Mechanism = Callable[[int, int], Ends]
# Calls or records per second, of so many.
Rate = Callable[[int], float]

SIZES = {"64 B": 64, "1 MiB": 1 << 20}
# Of the ring; the others queue as many bytes, if they have a limit.
CAPACITY = 8 << 20
# Records of 64 B, or keys; longer records fill a quarter of the ring.
BATCH = 100
FIRST_COUNT = 50
KEYS = [b"key-%d" % number for number in range(BATCH)]
VALUE = bytes(64)
BASELINE = "multiprocessing.Queue"
# The size, the way, and how many times as many records per second as the baseline it has to reach.
BARS = [("64 B", "ring, send and recv", 5.0), ("1 MiB", "ring, in place", 20.0)]

fork = multiprocessing.get_context("fork")
directory = tempfile.TemporaryDirectory()
numbers = itertools.count()


def new_path() -> str:
    return f"{directory.name}/{next(numbers)}"


def touch(memory: memoryview, number: int) -> None:
    struct.pack_into("<Q", memory, 0, number)
    struct.pack_into("<Q", memory, len(memory) - 8, number)


def look(memory: memoryview) -> tuple[int, int]:
    return struct.unpack_from("<Q", memory, 0)[0], struct.unpack_from("<Q", memory, len(memory) - 8)[0]


def batches(count: int, size: int = len(VALUE)) -> Iterable[int]:
    """The lengths of the batches that have so many records together."""
    length = max(1, min(BATCH, CAPACITY // 4 // size))
    return (min(length, count - sent) for sent in range(0, count, length))


# ---- the standard library ----


def over_queue(size: int, count: int) -> Ends:
    queue = fork.Queue()

    def send() -> None:
        data = bytes(size)
        for _ in range(count):
            queue.put(data)

    return send, lambda: (queue.get() for _ in range(count))


def over_simple_queue(size: int, count: int) -> Ends:
    queue = fork.SimpleQueue()

    def send() -> None:
        data = bytes(size)
        for _ in range(count):
            queue.put(data)

    return send, lambda: (queue.get() for _ in range(count))


def over_pipe(size: int, count: int) -> Ends:
    receiver, sender = fork.Pipe(duplex=False)

    def send() -> None:
        data = bytes(size)
        for _ in range(count):
            sender.send_bytes(data)

    return send, lambda: (receiver.recv_bytes() for _ in range(count))


# ---- rings ----


def over_ring(
    send_all: Callable[[sluice.Producer, int, int], None], receive_all: Callable[[sluice.Consumer], Iterator[object]]
) -> Mechanism:
    def mechanism(size: int, count: int) -> Ends:
        here, there = sluice.SocketRing.pair()

        def send() -> None:
            here.close()
            with sluice.SocketRing.producer(there, capacity=CAPACITY, handshake_timeout=60) as producer:
                send_all(producer, size, count)

        def receive() -> Iterator[object]:
            there.close()
            with sluice.SocketRing.consumer(here, handshake_timeout=60) as consumer:
                yield from receive_all(consumer)

        return send, receive

    return mechanism


def send_copies(producer: sluice.Producer, size: int, count: int) -> None:
    data = bytes(size)
    for _ in range(count):
        producer.send(data)


def send_batches(producer: sluice.Producer, size: int, count: int) -> None:
    data = bytes(size)
    for length in batches(count, size):
        producer.send_batch([data] * length)


def receive_batches(consumer: sluice.Consumer) -> Iterator[object]:
    while batch := consumer.recv_batch():
        yield from batch


def send_in_place(producer: sluice.Producer, size: int, count: int) -> None:
    for number in range(count):
        with producer.reserve(size) as room, memoryview(room) as memory:
            touch(memory, number)


def receive_in_place(consumer: sluice.Consumer) -> Iterator[object]:
    while True:
        try:
            record = consumer.recv_view()
        except EOFError:
            return
        with record, memoryview(record) as memory:
            ends = look(memory)
        yield ends


# ---- packages ----


def over_zmq(size: int, count: int) -> Ends:
    """Without copies of long messages. The limits of both queues together are the ring's capacity."""
    import zmq

    path = f"ipc://{new_path()}"
    limit = max(4, CAPACITY // size // 2)
    copy = size < zmq.COPY_THRESHOLD

    def send() -> None:
        with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
            socket.set_hwm(limit)
            socket.connect(path)
            data = bytes(size)
            for _ in range(count):
                socket.send(data, copy=copy)

    def receive() -> Iterator[object]:
        with zmq.Context() as context, context.socket(zmq.PULL) as socket:
            socket.set_hwm(limit)
            socket.bind(path)
            for _ in range(count):
                yield socket.recv(copy=copy)

    return send, receive


def over_iceoryx2(size: int, count: int) -> Ends:
    """Samples are lent in shared memory, and both sides poll, as in its examples. A sample that is not delivered is sent again: its own
    strategy for that, RetryUntilDelivered, did not return here in some runs when the receiver was slow.
    """
    import iceoryx2

    name = f"sluice-bench-{os.getpid()}-{next(numbers)}"
    slots = max(4, CAPACITY // size)
    iceoryx2.set_log_level(iceoryx2.LogLevel.Error)

    def service() -> tuple[object, object]:
        node = iceoryx2.NodeBuilder.new().create(iceoryx2.ServiceType.Ipc)
        builder = node.service_builder(iceoryx2.ServiceName.new(name))
        words = builder.publish_subscribe(iceoryx2.Slice[ctypes.c_uint64])
        words = words.enable_safe_overflow(False).subscriber_max_buffer_size(slots).max_publishers(1).max_subscribers(1)
        return node, words.open_or_create()

    # Its own access to an element casts the address anew, which takes longer.
    def ends_of(words) -> tuple[ctypes.c_uint64, ctypes.c_uint64]:  # type: ignore[no-untyped-def]
        start = words.as_ptr()
        return ctypes.c_uint64.from_address(start), ctypes.c_uint64.from_address(start + size - 8)

    def send() -> None:
        node, opened = service()
        publisher = (
            opened.publisher_builder()
            .initial_max_slice_len(size // 8)
            .backpressure_strategy(iceoryx2.BackpressureStrategy.DiscardData)
            .create()
        )
        while opened.dynamic_config.number_of_subscribers == 0:
            time.sleep(0.001)
        publisher.update_connections()
        for number in range(count):
            delivered = 0
            while not delivered:
                room = publisher.loan_slice_uninit(size // 8)
                first, last = ends_of(room.payload())
                first.value = last.value = number
                delivered = room.assume_init().send()
        # Its memory ends with the publisher.
        while opened.dynamic_config.number_of_subscribers:
            time.sleep(0.001)

    def receive() -> Iterator[object]:
        node, opened = service()
        subscriber = opened.subscriber_builder().buffer_size(slots).create()
        for _ in range(count):
            while (sample := subscriber.receive()) is None:
                pass
            first, last = ends_of(sample.payload())
            ends = first.value, last.value
            sample.delete()
            yield ends
        subscriber.delete()

    return send, receive


def over_tachyon(
    send_all: Callable[[object, int, int], None], receive_all: Callable[[object, int], Iterator[object]]
) -> Mechanism:
    def mechanism(size: int, count: int) -> Ends:
        import tachyon

        if size > 1 << 16:
            raise Unsupported("its ring stayed full when it was tried with 1 MiB")
        path = new_path()

        def send() -> None:
            while True:
                try:
                    bus = tachyon.Bus.connect(path)
                    break
                except ConnectionError:
                    time.sleep(0.001)
            with bus:
                send_all(bus, size, count)
                # Its __exit__ does not wait for the receiver.
                while os.path.exists(path + ".received"):
                    time.sleep(0.001)

        def receive() -> Iterator[object]:
            open(path + ".received", "x").close()
            with tachyon.Bus.listen(path, CAPACITY) as bus:
                yield from receive_all(bus, count)
                os.unlink(path + ".received")

        return send, receive

    return mechanism


# Tachyon's calls fail if the ring is full, and are repeated.
def send_tachyon_copies(bus: object, size: int, count: int) -> None:
    import tachyon

    data = bytes(size)
    for _ in range(count):
        while True:
            try:
                bus.send(data)
                break
            except tachyon.TachyonError:
                time.sleep(0)


def receive_tachyon_copies(bus: object, count: int) -> Iterator[object]:
    return itertools.islice(iter(bus), count)


def receive_tachyon_batches(bus: object, count: int) -> Iterator[object]:
    received = 0
    while received < count:
        with bus.drain_batch() as batch:
            for record in batch:
                received += 1
                with memoryview(record) as memory:
                    yield memory.tobytes()


def send_tachyon_in_place(bus: object, size: int, count: int) -> None:
    import tachyon

    for number in range(count):
        while True:
            try:
                with bus.send_zero_copy(size=size) as room:
                    with memoryview(room) as memory:
                        touch(memory, number)
                    room.actual_size = size
                break
            except tachyon.TachyonError:
                time.sleep(0)


def receive_tachyon_in_place(bus: object, count: int) -> Iterator[object]:
    for _ in range(count):
        with bus.recv_zero_copy() as record, memoryview(record) as memory:
            ends = look(memory)
        yield ends


def over_posix_ipc(size: int, count: int) -> Ends:
    """As many messages in the queue as the limits of this process admit."""
    import posix_ipc

    name = f"/sluice-bench-{os.getpid()}-{next(numbers)}"
    queue = None
    for messages in (1024, posix_ipc.QUEUE_MESSAGES_MAX_DEFAULT):
        try:
            queue = posix_ipc.MessageQueue(name, posix_ipc.O_CREX, max_messages=messages, max_message_size=size)
            break
        except (ValueError, OSError):
            pass
    if queue is None:
        raise Unsupported("longer than the limit of a message, fs.mqueue.msgsize_max")
    queue.unlink()

    def send() -> None:
        data = bytes(size)
        for _ in range(count):
            queue.send(data)

    return send, lambda: (queue.receive() for _ in range(count))


class Redis:
    """A server without snapshots on a Unix socket, as its documentation advises for one machine."""

    # Debian has one program for all purposes, of the package redis-tools; redis-server also starts a service.
    PROGRAM = "/usr/bin/redis-check-rdb"

    def __init__(self) -> None:
        self.path = new_path()
        self.server: subprocess.Popen[bytes] | None = None

    def connect(self):  # type: ignore[no-untyped-def]
        import redis

        if self.server is None:
            arguments = ["redis-server", "--port", "0", "--unixsocket", self.path, "--save", "", "--appendonly", "no"]
            self.server = subprocess.Popen(arguments, executable=self.PROGRAM, stdout=subprocess.DEVNULL)
        client = redis.Redis(unix_socket_path=self.path)
        while True:
            try:
                client.ping()
                return client
            except redis.exceptions.ConnectionError:
                time.sleep(0.01)

    def stop(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait()


redis_server = Redis()


def over_redis(batched: bool) -> Mechanism:
    """A list, with one record or a batch in a command."""

    def mechanism(size: int, count: int) -> Ends:
        redis_server.connect().delete("records")

        def send() -> None:
            client = redis_server.connect()
            data = bytes(size)
            for length in batches(count, size) if batched else itertools.repeat(1, count):
                client.rpush("records", *[data] * length)

        def receive() -> Iterator[object]:
            client = redis_server.connect()
            at_once = next(iter(batches(count, size))) if batched else 1
            received = 0
            while received < count:
                _, records = client.blmpop(0, 1, "records", direction="LEFT", count=at_once)
                received += len(records)
                yield from records

        return send, receive

    return mechanism


# ---- stores ----


def of_mapping(mapping) -> dict[str, Rate]:  # type: ignore[no-untyped-def]
    def get(count: int) -> None:
        for number in range(count):
            mapping[KEYS[number % BATCH]]

    def set_(count: int) -> None:
        for number in range(count):
            mapping[KEYS[number % BATCH]] = VALUE

    mapping.update(dict.fromkeys(KEYS, VALUE))
    return {"get": calls(get), "set": calls(set_)}


def of_manager() -> dict[str, Rate]:
    return of_mapping(multiprocessing.Manager().dict())


def of_map() -> dict[str, Rate]:
    if not os.path.exists("/dev/sluice/ctl"):
        raise Unsupported("needs the module: no /dev/sluice/ctl")
    return of_mapping(sluice.Map.open(f"bench-{os.getpid()}", create=True))


def of_map_batches() -> dict[str, Rate]:
    if not os.path.exists("/dev/sluice/ctl"):
        raise Unsupported("needs the module: no /dev/sluice/ctl")
    entries = sluice.Map.open(f"bench-batches-{os.getpid()}", create=True)

    def run(add: Callable[[sluice.Batch, bytes], object], count: int) -> None:
        for length in batches(count):
            batch = entries.batch(len(VALUE))
            for key in KEYS[:length]:
                add(batch, key)
            batch.run()

    rates = {
        "set": calls(lambda count: run(lambda batch, key: batch.set(key, VALUE), count)),
        "get": calls(lambda count: run(lambda batch, key: batch.get(key), count)),
    }
    rates["set"](BATCH)
    return rates


def of_redis() -> dict[str, Rate]:
    client = redis_server.connect()

    def get(count: int) -> None:
        for number in range(count):
            client.get(KEYS[number % BATCH])

    def set_(count: int) -> None:
        for number in range(count):
            client.set(KEYS[number % BATCH], VALUE)

    set_(BATCH)
    return {"get": calls(get), "set": calls(set_)}


def of_redis_batches() -> dict[str, Rate]:
    client = redis_server.connect()

    def get(count: int) -> None:
        for length in batches(count):
            client.mget(KEYS[:length])

    def set_(count: int) -> None:
        for length in batches(count):
            client.mset(dict.fromkeys(KEYS[:length], VALUE))

    set_(BATCH)
    return {"get": calls(get), "set": calls(set_)}


# ---- measuring ----


class Unsupported(Exception):
    """Why a way is not measured."""


class Way(NamedTuple):
    name: str
    # Mechanism, or a function that returns the rates of a store.
    make: Callable[..., object]
    package: str | None = None


RECORDS = [
    Way(BASELINE, over_queue),
    Way("multiprocessing.SimpleQueue", over_simple_queue),
    Way("multiprocessing.Pipe", over_pipe),
    Way("posix_ipc message queue", over_posix_ipc, "posix_ipc"),
    Way("pyzmq, PUSH and PULL", over_zmq, "zmq"),
    Way("Redis list", over_redis(False), "redis"),
    Way("Redis list, batches", over_redis(True), "redis"),
    Way("iceoryx2, in place", over_iceoryx2, "iceoryx2"),
    Way("Tachyon, send", over_tachyon(send_tachyon_copies, receive_tachyon_copies), "tachyon"),
    Way("Tachyon, batches", over_tachyon(send_tachyon_copies, receive_tachyon_batches), "tachyon"),
    Way("Tachyon, in place", over_tachyon(send_tachyon_in_place, receive_tachyon_in_place), "tachyon"),
    Way("ring, send and recv", over_ring(send_copies, iter)),
    Way("ring, batches", over_ring(send_batches, receive_batches)),
    Way("ring, in place", over_ring(send_in_place, receive_in_place)),
]
STORES = [
    Way("multiprocessing.Manager", of_manager),
    Way("Redis", of_redis, "redis"),
    Way("Redis, MGET and MSET of 100", of_redis_batches, "redis"),
    Way("map", of_map),
    Way("map, batches of 100", of_map_batches),
]


def calls(run: Callable[[int], None]) -> Rate:
    def rate(count: int) -> float:
        began = time.perf_counter()
        run(count)
        return count / (time.perf_counter() - began)

    return rate


def run_sender(send: Callable[[], None]) -> None:
    """If it fails, ends the program: most receivers would wait for ever."""
    try:
        send()
    except BaseException:
        traceback.print_exc()
        os.kill(os.getppid(), signal.SIGTERM)


def records(mechanism: Mechanism, size: int) -> Rate:
    """From the first received record on."""

    def rate(count: int) -> float:
        send, receive = mechanism(size, count + 1)
        sender = fork.Process(target=run_sender, args=(send,), daemon=True)
        sender.start()
        received = receive()
        next(received)
        began = time.perf_counter()
        number = sum(1 for _ in received)
        elapsed = time.perf_counter() - began
        sender.join()
        if number != count or sender.exitcode != 0:
            raise SystemExit(f"received {number} of {count} records; the sender ended with {sender.exitcode}")
        return count / elapsed

    return rate


def usable(ways: list[Way], words: list[str]) -> list[Way]:
    """Prints what is not."""
    chosen = [way for way in ways if way is ways[0] or not words or any(word in way.name for word in words)]
    for way in chosen:
        if way.package and importlib.util.find_spec(way.package) is None:
            print(f"not measured: {way.name}: no package {way.package}")
        elif way.package == "redis" and not os.path.exists(Redis.PROGRAM):
            print(f"not measured: {way.name}: no {Redis.PROGRAM}")
    return [
        way
        for way in chosen
        if not way.package
        or importlib.util.find_spec(way.package) and (way.package != "redis" or os.path.exists(Redis.PROGRAM))
    ]


def compare(title: str, rates: dict[str, Rate], options: argparse.Namespace) -> dict[str, float]:
    """Measures all in each round, prints a table, and returns the ratios to the first one."""
    counts = {}
    for name, rate in list(rates.items()):
        try:
            counts[name] = max(FIRST_COUNT, int(options.seconds * rate(FIRST_COUNT)))
            # A first run has the costs of a start.
            counts[name] = max(FIRST_COUNT, int(options.seconds * rate(counts[name])))
        except Unsupported as reason:
            print(f"not measured: {name}, {title}: {reason}")
    rounds = [{name: rates[name](count) for name, count in counts.items()} for _ in range(options.rounds)]
    baseline = next(iter(counts))
    print(f"\n{title:<30}{'median':>12}{'smallest':>12}{'largest':>12}{'ratio':>9}")
    ratios = {}
    for name in counts:
        values = [values[name] for values in rounds]
        ratios[name] = statistics.median(values[name] / values[baseline] for values in rounds)
        row = statistics.median(values), min(values), max(values)
        print(f"{name:<30}" + "".join(f"{value:>12,.0f}" for value in row) + f"{ratios[name]:>9.1f}", flush=True)
    return ratios


def compare_records(options: argparse.Namespace) -> bool:
    """Whether the bars are reached."""
    ways = usable(RECORDS, options.only)
    reached = True
    for title, size in SIZES.items():
        ratios = compare(title, {way.name: records(way.make, size) for way in ways}, options)  # type: ignore[arg-type]
        for size_name, name, bar in BARS:
            if size_name == title and name in ratios:
                verdict = "reached" if ratios[name] >= bar else "missed"
                reached &= ratios[name] >= bar
                print(f"bar: {name}, {title}: {ratios[name]:.1f} x {BASELINE}, at least {bar:.0f}: {verdict}")
    return reached


def compare_stores(options: argparse.Namespace) -> None:
    stores = {}
    for way in usable(STORES, options.only):
        try:
            stores[way.name] = way.make()
        except Unsupported as reason:
            print(f"not measured: {way.name}: {reason}")
    for call in ("get", "set"):
        compare(f"{call} of 64 B", {name: rates[call] for name, rates in stores.items()}, options)  # type: ignore[index]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement, about")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="ways whose names contain it; may be repeated")
    options = parser.parse_args()
    # So that the server of Redis ends, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM, as after a failure of a sender"))
    print(
        f"per second; {options.rounds} rounds, Python {sys.version.split()[0]}, Linux {os.uname().release}, "
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"
    )
    try:
        reached = compare_records(options)
        compare_stores(options)
    finally:
        redis_server.stop()
    sys.exit(not reached)


if __name__ == "__main__":
    main()
