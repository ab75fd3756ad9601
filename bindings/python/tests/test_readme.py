# SPDX-License-Identifier: MIT OR Apache-2.0
"""The examples of README.md, as they are written there."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import background, set_up

import sluice

README = Path(__file__).parents[1] / "README.md"
ALONE, BY_NAME, IN_PLACE, ALL_IN_PLACE = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
LIMIT = 60.0


@contextmanager
def running(text: str) -> Iterator[subprocess.Popen[str]]:
    """A program, which is killed at the end: some examples wait for ever."""
    program = subprocess.Popen([sys.executable, "-u", "-c", text], stdout=subprocess.PIPE, text=True)
    with program:
        yield program
        program.kill()


def line(program: subprocess.Popen[str]) -> str:
    assert program.stdout
    return background(program.stdout.readline).result(LIMIT)


def printed(text: str) -> str:
    return subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT).stdout


def test_a_ring_between_two_processes(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(ALONE)
    done = subprocess.run([sys.executable, program], stdout=subprocess.PIPE, text=True, check=True, timeout=4 * LIMIT)
    assert done.stdout == f"{sum(range(1_000_000))}\n"


def test_records_in_place() -> None:
    pytest.importorskip("numpy")
    producer, consumer = set_up()
    exec(IN_PLACE, {"producer": producer, "consumer": consumer})
    producer.close()
    consumer.close()


def test_all_records_in_place(capsys: pytest.CaptureFixture[str]) -> None:
    producer, consumer = set_up()
    producer.send(b"ab")
    producer.send(b"c")
    producer.close()
    exec(ALL_IN_PLACE, {"consumer": consumer, "sluice": sluice})
    consumer.close()
    assert capsys.readouterr().out == "97 2\n99 1\n"


def wait_for(kind: str, name: str) -> None:
    """Waits for a reader of a channel."""
    while True:
        try:
            if sluice.Channel(kind, name).info().readers:
                return
        except sluice.NotFound:
            pass
        time.sleep(0.01)


@pytest.mark.device
def test_channels_with_names() -> None:
    imported, *examples = BY_NAME.strip().split("\n\n")
    send, receive, configure, watch, publish, serve, call, read = (f"{imported}\n{example}" for example in examples)
    with running(send):
        assert printed(receive) == "b'4711 99.50'\n"
    printed(configure)
    with running(watch) as watcher, sluice.Map.open("config") as config:
        while not config.info().watchers:
            time.sleep(0.01)
        config[b"color"] = b"red"
        assert line(watcher) == "updated b'color' b'red'\n"
    sluice.Channel("map", "config").destroy()
    assert printed(publish) == "b'deployed 1.4'\n"
    with running(serve):
        wait_for("bus", "upper")
        assert printed(call) == "b'HELLO'\n"
    with running(read) as reader, sluice.Pipe.writer("logs", create=True) as writer:
        writer.write_all(b"GET /index.html 200\n")
        assert line(reader) == "GET /index.html 200\n"
