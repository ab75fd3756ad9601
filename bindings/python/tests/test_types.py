# SPDX-License-Identifier: MIT OR Apache-2.0
"""The stubs: a program type-checks, and they describe what is there."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import sluice

PROGRAM = """
import asyncio

import sluice

def send(name: str) -> None:
    with sluice.Ring.producer(name, create=True, permissions=0o660, capacity=1 << 20) as producer:
        producer.send(b"bytes", timeout=1.5)
        with producer.reserve(8) as room:
            memoryview(room)[:] = bytearray(8)

def receive(socket_path: str) -> list[bytes]:
    socket = sluice.SocketRing.connect(socket_path)
    with sluice.SocketRing.consumer(socket, allow_users=[1000]) as consumer:
        with consumer.recv_view() as record:
            print(len(record), bytes(memoryview(record)))
        return [record for record in consumer]

def count(entries: sluice.Map) -> int:
    total = sum(len(value) for value in entries.values())
    entry = entries.entry(b"key")
    version: int = entries.compare_and_set(b"key", entry.version if entry else 0, b"value")
    return total + version

async def answer(name: str) -> None:
    with sluice.Bus.server(name, create=True, policy="block") as server:
        async for request in server:
            await request.reply_async(request.data)

def lines(name: str) -> list[str]:
    with sluice.Pipe.reader(name).makefile("t") as file:
        return list(file)

try:
    asyncio.run(answer("x"))
except sluice.Error as error:
    print(error.errno, error.hint)
"""


def check(*command: str) -> None:
    if importlib.util.find_spec(command[0].partition(".")[0]) is None:
        pytest.skip(f"needs {command[0]}")
    checked = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("command", [["mypy", "--strict", "--no-incremental"], ["pyright", "--pythonpath", sys.executable]])
def test_a_program_has_no_type_errors(command: list[str], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    check(*command, str(program))


def test_the_stubs_describe_what_is_there(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    # Only Python 3.12 and newer show the buffer protocol as a method.
    buffer = "" if sys.version_info >= (3, 12) else r"sluice\._sluice\.Re(cord|servation)\.__buffer__"
    allowed.write_text(rf"sluice\._sluice\.__all__{chr(10)}{buffer}")
    check("mypy.stubtest", "sluice", "--allowlist", str(allowed))


def test_everything_public_has_a_docstring() -> None:
    for name in sluice.__all__:
        thing = getattr(sluice, name)
        assert thing.__doc__, name
        if isinstance(thing, type) and thing.__module__.startswith("sluice"):
            for member, value in vars(thing).items():
                # The fields of records have the description of their class.
                if not member.startswith("_") and callable(value):
                    assert value.__doc__, f"{name}.{member}"


def test_a_representation_has_all_fields() -> None:
    for cls, names in sluice._methods._FIELDS.items():
        shown = {name for name, value in vars(cls).items() if not name.startswith("_") and not callable(value)}
        assert set(names) == shown, cls
