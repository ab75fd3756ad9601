# SPDX-License-Identifier: MIT OR Apache-2.0
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

import sluice

T = TypeVar("T")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skip(reason="needs the module: no /dev/sluice/ctl")
    for item in items:
        if "device" in item.keywords and not os.path.exists("/dev/sluice/ctl"):
            item.add_marker(missing)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "device: needs the module")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name of channels, which are removed after the test."""
    name = f"{request.node.originalname[:40]}-{os.getpid()}"
    yield name
    for kind in ("pipe", "ring", "bus", "map"):
        try:
            sluice.Channel(kind, name).destroy()
        except sluice.Error:
            pass


def background(call: Callable[..., T], *arguments: Any, **options: Any) -> "Future[T]":
    """Calls it in a thread that does not outlive a failed test."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call(*arguments, **options))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def set_up(**options: Any) -> tuple[sluice.Producer, sluice.Consumer]:
    """Both sides of a ring in this process."""
    here, there = sluice.SocketRing.pair()
    producer = background(sluice.SocketRing.producer, here, handshake_timeout=60, **options)
    consumer = sluice.SocketRing.consumer(there, handshake_timeout=60)
    return producer.result(), consumer


@pytest.fixture
def ring() -> Iterator[tuple[sluice.Producer, sluice.Consumer]]:
    producer, consumer = set_up(capacity=64 << 10)
    with producer, consumer:
        yield producer, consumer

