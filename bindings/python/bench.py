# SPDX-License-Identifier: MIT OR Apache-2.0
"""bench.py [--rounds N] [--seconds S]: records from one process to another, by the ring and by other mechanisms of Python.

The rounds are interleaved: each measures every mechanism once. The table shows medians with the smallest and the largest round. "In place"
means that the sender writes the record in the ring and the receiver reads it there: both access the first and the last 8 bytes.
"""

import argparse
import multiprocessing
import os
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator

import sluice

Ends = tuple[Callable[[], None], Callable[[], Iterator[object]]]
Mechanism = Callable[[int, int], Ends]

SIZES = {"64 B": 64, "1 MiB": 1 << 20}
CAPACITY = 8 << 20
FIRST_COUNT = 50
fork = multiprocessing.get_context("fork")


def over_queue(size: int, count: int) -> Ends:
    queue = fork.Queue()

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


def over_zmq(size: int, count: int) -> Ends:
    import zmq

    path = f"ipc://{tempfile.mkdtemp()}/socket"

    def send() -> None:
        with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
            socket.connect(path)
            data = bytes(size)
            for _ in range(count):
                socket.send(data)

    def receive() -> Iterator[object]:
        with zmq.Context() as context, context.socket(zmq.PULL) as socket:
            socket.bind(path)
            for _ in range(count):
                yield socket.recv()

    return send, receive


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
    for sent in range(0, count, 100):
        producer.send_batch([data] * min(100, count - sent))


def receive_batches(consumer: sluice.Consumer) -> Iterator[object]:
    while batch := consumer.recv_batch():
        yield from batch


def send_in_place(producer: sluice.Producer, size: int, count: int) -> None:
    for number in range(count):
        with producer.reserve(size) as room:
            struct.pack_into("<Q", room, 0, number)
            struct.pack_into("<Q", room, size - 8, number)


def receive_in_place(consumer: sluice.Consumer) -> Iterator[object]:
    while True:
        try:
            record = consumer.recv_view()
        except EOFError:
            return
        with record:
            numbers = struct.unpack_from("<Q", record, 0) + struct.unpack_from("<Q", record, len(record) - 8)
        yield numbers


MECHANISMS: dict[str, Mechanism] = {
    "multiprocessing.Queue": over_queue,
    "multiprocessing.Pipe": over_pipe,
    "pyzmq, PUSH and PULL": over_zmq,
    "ring, send and recv": over_ring(send_copies, iter),
    "ring, batches of 100": over_ring(send_batches, receive_batches),
    "ring, in place": over_ring(send_in_place, receive_in_place),
}


def rate(mechanism: Mechanism, size: int, count: int) -> float:
    """Records per second, from the first received record on."""
    send, receive = mechanism(size, count + 1)
    sender = fork.Process(target=send)
    sender.start()
    records = receive()
    next(records)
    began = time.perf_counter()
    received = sum(1 for _ in records)
    elapsed = time.perf_counter() - began
    sender.join()
    if received != count or sender.exitcode != 0:
        raise SystemExit(f"received {received} of {count} records; the sender ended with {sender.exitcode}")
    return count / elapsed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement, about")
    options = parser.parse_args()
    try:
        import zmq as zmq
    except ImportError:
        del MECHANISMS["pyzmq, PUSH and PULL"]
    print(f"records per second; {options.rounds} rounds, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    for name, size in SIZES.items():
        counts = {
            key: max(FIRST_COUNT, int(options.seconds * rate(mechanism, size, FIRST_COUNT)))
            for key, mechanism in MECHANISMS.items()
        }
        rates: dict[str, list[float]] = {key: [] for key in MECHANISMS}
        for _ in range(options.rounds):
            for key, mechanism in MECHANISMS.items():
                rates[key].append(rate(mechanism, size, counts[key]))
        queue = rates["multiprocessing.Queue"]
        print(f"\n{name:<24}{'median':>12}{'smallest':>12}{'largest':>12}{'Queue = 1':>11}")
        for key, values in rates.items():
            ratio = statistics.median(one / other for one, other in zip(values, queue))
            row = (statistics.median(values), min(values), max(values))
            print(f"{key:<24}" + "".join(f"{value:>12,.0f}" for value in row) + f"{ratio:>11.1f}")


if __name__ == "__main__":
    main()
