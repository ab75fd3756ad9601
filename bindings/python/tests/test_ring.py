# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rings over a socket: records, views, waits, ends."""

import gc
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import background, set_up

import sluice

Ring = tuple[sluice.Producer, sluice.Consumer]


def test_records_arrive_in_order_up_to_the_end(ring: Ring) -> None:
    producer, consumer = ring
    records = [bytes([n % 256]) * (n * 7 % 500) for n in range(5000)]

    def send() -> None:
        with producer:
            for record in records:
                producer.send(record)

    sent = background(send)
    assert list(consumer) == records
    sent.result(60)
    assert consumer.recv() is None
    with pytest.raises(EOFError):
        consumer.recv_view()
    assert consumer.peer_closed


@pytest.mark.parametrize("record", [b"", b"bytes", bytearray(b"array"), memoryview(b"view"), struct.pack("<d", 1.5)])
def test_any_contiguous_buffer_is_a_record(ring: Ring, record: bytes) -> None:
    producer, consumer = ring
    producer.send(record)
    assert consumer.recv() == bytes(record)


def test_a_buffer_with_gaps_is_refused(ring: Ring) -> None:
    with pytest.raises(BufferError, match="not contiguous"):
        ring[0].send(memoryview(b"every second byte")[::2])


def test_batches_are_sent_and_received(ring: Ring) -> None:
    producer, consumer = ring
    records = [b"%d" % n * 50 for n in range(3000)]
    sent = background(producer.send_batch, records)
    received: list[bytes] = []
    while len(received) < len(records):
        batch = consumer.recv_batch(limit=100)
        assert 0 < len(batch) <= 100
        received += batch
    sent.result(60)
    assert received == records
    producer.close()
    assert consumer.recv_batch() == []


def test_a_record_is_received_into_a_buffer(ring: Ring) -> None:
    producer, consumer = ring
    producer.send(b"seven b")
    with pytest.raises(sluice.Error, match="7 bytes, and the buffer 3"):
        consumer.recv_into(bytearray(3))
    buffer = bytearray(10)
    assert consumer.recv_into(buffer) == 7
    assert buffer == b"seven b\0\0\0"
    with pytest.raises(BufferError, match="read-only"):
        consumer.recv_into(b"constant")


def test_a_view_is_the_record_in_place(ring: Ring) -> None:
    producer, consumer = ring
    producer.send(struct.pack("<Qd", 7, 99.5))
    with consumer.recv_view() as record:
        assert struct.unpack_from("<Qd", record) == (7, 99.5)
        assert len(record) == 16
        view = memoryview(record)
        assert view.readonly
        with pytest.raises(TypeError):
            view[0] = 1
        view.release()
        assert producer.pending > 0
    assert producer.pending == 0


def test_a_released_record_has_no_buffer(ring: Ring) -> None:
    producer, consumer = ring
    producer.send(b"one")
    record = consumer.recv_view()
    record.release()
    record.release()
    with pytest.raises(BufferError, match="released"):
        memoryview(record)


def test_an_exported_record_is_not_released(ring: Ring) -> None:
    producer, consumer = ring
    producer.send(b"one")
    record = consumer.recv_view()
    view = memoryview(record)
    for release in (record.release, consumer.close):
        with pytest.raises(BufferError, match="exist, 1 of them"):
            release()
    assert bytes(view) == b"one"
    view.release()
    record.release()
    assert producer.pending == 0


def test_one_record_is_out_at_a_time(ring: Ring) -> None:
    producer, consumer = ring
    producer.send_batch([b"one", b"two"])
    with consumer.recv_view():
        with pytest.raises(BufferError, match="release it first"):
            consumer.recv()
    assert consumer.recv() == b"two"


def test_a_kept_record_is_the_next_one_again(ring: Ring) -> None:
    producer, consumer = ring
    producer.send(b"one")
    record = consumer.recv_view()
    record.keep()
    assert consumer.recv() == b"one"


def test_a_deleted_record_is_released_with_its_last_view(ring: Ring) -> None:
    producer, consumer = ring
    producer.send(b"one")
    record = consumer.recv_view()
    view = memoryview(record)
    del record
    gc.collect()
    assert bytes(view) == b"one" and producer.pending > 0
    del view
    gc.collect()
    assert producer.pending == 0


def test_an_exception_is_not_hidden_by_a_view_in_its_traceback(ring: Ring) -> None:
    producer, consumer = ring
    producer.send(b"one")
    with pytest.raises(KeyError):
        with consumer.recv_view() as record:
            view = memoryview(record)
            raise KeyError(view.nbytes)


def test_an_exception_ends_the_block_of_an_endpoint_with_a_view() -> None:
    producer, consumer = set_up()
    producer.send(b"one")
    with pytest.raises(KeyError):
        with consumer:
            view = memoryview(consumer.recv_view())
            raise KeyError(view.nbytes)


def test_a_released_record_is_released_during_a_wait(ring: Ring) -> None:
    producer, consumer = ring
    producer.send(b"one")
    record = consumer.recv_view()
    record.release()
    received = background(consumer.recv)
    time.sleep(0.1)
    record.release()
    with pytest.raises(BufferError, match="released"):
        memoryview(record)
    producer.send(b"two")
    assert received.result(60) == b"two"


def test_the_memory_outlives_the_consumer_object() -> None:
    producer, consumer = set_up()
    producer.send(b"still here")
    record = consumer.recv_view()
    view = memoryview(record)
    del consumer, record
    gc.collect()
    assert bytes(view) == b"still here"


def test_a_reservation_is_sent_at_the_end_of_its_block(ring: Ring) -> None:
    producer, consumer = ring
    with producer.reserve(16) as room:
        struct.pack_into("<Qd", room, 0, 7, 99.5)
    assert consumer.recv() == struct.pack("<Qd", 7, 99.5)
    with producer.reserve(100) as room:
        memoryview(room)[:5] = b"short"
        room.commit(5)
    assert consumer.recv() == b"short"


def test_a_cancelled_reservation_sends_nothing(ring: Ring) -> None:
    producer, consumer = ring
    with pytest.raises(KeyError):
        with producer.reserve(4) as room:
            memoryview(room)[:] = b"lost"
            raise KeyError
    room = producer.reserve(4)
    with pytest.raises(BufferError, match="release it first"):
        producer.send(b"too early")
    room.cancel()
    with pytest.raises(BufferError, match="released"):
        memoryview(room)
    room.commit()
    producer.send(b"sent")
    assert consumer.recv() == b"sent"


def test_a_reservation_of_a_closed_ring_is_not_sent_silently() -> None:
    producer, consumer = set_up()
    with consumer, pytest.raises(ValueError, match="closed"):
        with producer.reserve(4):
            producer.close()


def test_a_reservation_with_a_view_is_not_sent(ring: Ring) -> None:
    producer, consumer = ring
    room = producer.reserve(4)
    view = memoryview(room)
    with pytest.raises(BufferError):
        room.commit()
    view[:] = b"good"
    view.release()
    room.commit()
    with pytest.raises(BufferError, match="5 bytes"):
        producer.reserve(4).commit(5)
    assert consumer.recv() == b"good"


def test_arrays_of_numpy_are_read_and_written_in_place(ring: Ring) -> None:
    numpy = pytest.importorskip("numpy")
    producer, consumer = ring
    with producer.reserve(800) as room:
        numpy.frombuffer(room, numpy.float64)[:] = numpy.arange(100)
    with consumer.recv_view() as record:
        assert numpy.frombuffer(record, numpy.float64).sum() == 4950
    producer.send(numpy.arange(10, dtype=numpy.uint16))
    assert consumer.recv() == numpy.arange(10, dtype=numpy.uint16).tobytes()


def test_a_call_waits_for_its_timeout(ring: Ring) -> None:
    producer, consumer = ring
    with pytest.raises(BlockingIOError) as failure:
        consumer.recv(timeout=0)
    assert isinstance(failure.value, sluice.WouldBlock)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="120ms; use a longer timeout") as timeout:
        consumer.recv(timeout=0.12)
    assert time.monotonic() - began >= 0.12
    assert isinstance(timeout.value, sluice.Timeout)
    for invalid in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="invalid time"):
            consumer.recv(invalid)


def test_a_full_ring_has_no_room(ring: Ring) -> None:
    producer, consumer = ring
    record = bytes(producer.max_record_len)
    with pytest.raises(sluice.WouldBlock, match="the ring is full"):
        while True:
            producer.send(record, timeout=0)
    with pytest.raises(sluice.Timeout):
        producer.reserve(len(record), timeout=0.01)
    with pytest.raises(sluice.Timeout):
        producer.flush(timeout=0.01)
    sent = background(producer.send, record)
    assert consumer.recv() == record
    sent.result(60)


def test_flush_waits_for_the_consumer(ring: Ring) -> None:
    producer, consumer = ring
    producer.send(b"one")
    flushed = background(producer.flush)
    assert consumer.recv() == b"one"
    flushed.result(60)
    producer.flush(timeout=0)


def test_a_waiting_thread_releases_the_gil(ring: Ring) -> None:
    producer, consumer = ring
    received = background(consumer.recv)
    counted = sum(1 for _ in range(100_000))
    producer.send(b"now")
    assert received.result(60) == b"now" and counted == 100_000


def test_a_second_thread_gets_an_error(ring: Ring) -> None:
    producer, consumer = ring
    started = threading.Event()

    def receive() -> bytes | None:
        started.set()
        return consumer.recv()

    received = background(receive)
    started.wait()
    time.sleep(0.1)
    for call in (consumer.recv, consumer.close):
        with pytest.raises(RuntimeError, match="another call"):
            call()
    producer.send(b"one")
    assert received.result(60) == b"one"


def test_the_end_of_the_peer_has_an_error_of_its_own() -> None:
    producer, consumer = set_up()
    producer.send(b"last")
    producer.abort()
    assert consumer.recv() == b"last"
    with pytest.raises(ConnectionResetError) as died:
        consumer.recv()
    assert isinstance(died.value, sluice.PeerDied)
    producer, consumer = set_up()
    consumer.close()
    with pytest.raises(BrokenPipeError) as closed:
        producer.send(b"nobody")
    assert isinstance(closed.value, sluice.Closed) and closed.value.hint


def test_a_closed_endpoint_is_closed(ring: Ring) -> None:
    producer, consumer = ring
    assert not consumer.closed and consumer.fileno() >= 0
    consumer.close()
    consumer.close()
    assert consumer.closed and "closed" in repr(consumer)
    for call in (consumer.recv, consumer.fileno):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_an_exception_of_an_iterable_ends_the_batch(ring: Ring) -> None:
    producer, consumer = ring

    def records() -> Iterator[bytes]:
        yield b"one"
        with pytest.raises(RuntimeError, match="another call"):
            producer.send(b"from the iterable")
        raise KeyError

    with pytest.raises(KeyError):
        producer.send_batch(records())
    assert consumer.recv_batch() == [b"one"]


def test_a_record_that_is_too_long_is_refused(ring: Ring) -> None:
    producer, _ = ring
    with pytest.raises(ValueError) as failure:
        producer.send(bytes(producer.max_record_len + 1))
    assert isinstance(failure.value, sluice.InvalidInput)
    assert "split the record" in failure.value.hint


def test_a_listener_accepts_connections(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with pytest.raises(ConnectionRefusedError):
        stale = sluice.Listener(path)
        stale.close()
        path.touch()
        sluice.SocketRing.connect(path)
    path.unlink()
    with sluice.Listener(path) as listener:
        with pytest.raises(sluice.WouldBlock):
            listener.accept(timeout=0)
        connected = background(sluice.SocketRing.connect, str(path))
        accepted = listener.accept(timeout=60)
        producing = background(sluice.SocketRing.producer, connected.result())
        with sluice.SocketRing.consumer(accepted) as consumer, producing.result() as producer:
            producer.send(b"hello")
            assert consumer.recv() == b"hello"
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        sluice.SocketRing.connect(path)


def test_a_handshake_has_a_timeout() -> None:
    here, there = sluice.SocketRing.pair()
    with there, pytest.raises(sluice.Timeout, match="handshake"):
        sluice.SocketRing.producer(here, handshake_timeout=0.05)
    with pytest.raises(ValueError, match="socket is closed"):
        sluice.SocketRing.producer(here)


def test_an_unknown_option_is_refused() -> None:
    here, there = sluice.SocketRing.pair()
    with here, there, pytest.raises(TypeError, match="no option 'durable'"):
        sluice.SocketRing.producer(here, durable=True)  # type: ignore[call-arg]
