# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rings in asyncio, and with selectors."""

import asyncio
import selectors
from pathlib import Path

import pytest
from conftest import set_up

import sluice

Ring = tuple[sluice.Producer, sluice.Consumer]


def test_tasks_send_and_receive(ring: Ring) -> None:
    producer, consumer = ring
    records = [b"%d" % n * 100 for n in range(3000)]

    async def send() -> None:
        for record in records:
            await producer.send_async(record)
        producer.close()

    async def receive() -> list[bytes]:
        return [record async for record in consumer]

    async def main() -> list[bytes]:
        _, received = await asyncio.gather(send(), receive())
        return received

    assert asyncio.run(main()) == records


def test_a_cancelled_receiver_has_received_nothing(ring: Ring) -> None:
    producer, consumer = ring

    async def main() -> bytes | None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.recv_async(), 0.05)
        producer.send(b"later")
        return await asyncio.wait_for(consumer.recv_async(), 60)

    assert asyncio.run(main()) == b"later"


def test_a_closed_endpoint_does_not_hide_a_cancellation(ring: Ring) -> None:
    _, consumer = ring

    async def main() -> None:
        receiver = asyncio.create_task(consumer.recv_async())
        await asyncio.sleep(0)
        receiver.cancel()
        consumer.close()
        with pytest.raises(asyncio.CancelledError):
            await receiver

    asyncio.run(main())


def test_a_call_does_not_take_the_wake_up_of_a_task(ring: Ring) -> None:
    producer, consumer = ring

    async def main() -> bytes | None:
        receiver = asyncio.create_task(consumer.recv_async())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="a task or a selector waits"):
            consumer.recv(0.01)
        with pytest.raises(sluice.WouldBlock):
            consumer.recv(0)
        producer.send(b"for the task")
        return await asyncio.wait_for(receiver, 60)

    assert asyncio.run(main()) == b"for the task"


def test_the_task_of_a_closed_loop_waits_no_more(ring: Ring) -> None:
    producer, consumer = ring
    loop = asyncio.new_event_loop()
    task = loop.create_task(consumer.recv_async())
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    consumer.finish_wait()
    producer.send(b"next")
    assert asyncio.run(consumer.recv_async()) == b"next"
    consumer.close()
    del task


def test_a_second_task_gets_an_error(ring: Ring) -> None:
    producer, consumer = ring

    async def main() -> None:
        first = asyncio.create_task(consumer.recv_async())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task"):
            await consumer.recv_async()
        producer.send(b"one")
        assert await first == b"one"

    asyncio.run(main())


def test_the_death_of_the_producer_ends_a_task() -> None:
    producer, consumer = set_up()

    async def main() -> None:
        waiting = asyncio.create_task(consumer.recv_async())
        await asyncio.sleep(0.05)
        producer.abort()
        with pytest.raises(sluice.PeerDied):
            await asyncio.wait_for(waiting, 60)

    asyncio.run(main())


@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_close_ends_a_task_that_waits(end: str, ring: Ring) -> None:
    _, consumer = ring

    async def main() -> None:
        waiting = asyncio.create_task(consumer.recv_async())
        await asyncio.sleep(0.05)
        getattr(consumer, end)()
        # Its descriptor is free for another endpoint at once.
        sender, receiver = set_up()
        with sender, receiver, pytest.raises(TimeoutError):
            await asyncio.wait_for(receiver.recv_async(), 0.05)
        with pytest.raises(ValueError, match="closed"):
            await asyncio.wait_for(waiting, 60)

    asyncio.run(main())


def test_a_listener_accepts_in_a_task(tmp_path: Path) -> None:
    async def main() -> None:
        with sluice.Listener(tmp_path / "ring") as listener:
            accepting = asyncio.create_task(listener.accept_async())
            await asyncio.sleep(0)
            there = sluice.SocketRing.connect(tmp_path / "ring")
            here = await asyncio.wait_for(accepting, 60)
            both = asyncio.to_thread(sluice.SocketRing.producer, there), asyncio.to_thread(sluice.SocketRing.consumer, here)
            producer, consumer = await asyncio.gather(*both)
            producer.close()
            assert [record async for record in consumer] == []

    asyncio.run(main())


def test_a_selector_waits_for_a_consumer(ring: Ring) -> None:
    producer, consumer = ring
    with selectors.DefaultSelector() as selector:
        selector.register(consumer, selectors.EVENT_READ)
        assert consumer.prepare_wait()
        assert not selector.select(timeout=0)
        producer.send(b"one")
        assert selector.select(timeout=60)
        consumer.finish_wait()
        assert consumer.recv(0) == b"one"
        assert not selector.select(timeout=0)
