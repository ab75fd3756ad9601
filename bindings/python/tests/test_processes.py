# SPDX-License-Identifier: MIT OR Apache-2.0
"""Several processes: multiprocessing, forks, and signals."""

import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import time

import pytest
from conftest import set_up

import sluice


def send(there: socket.socket, count: int) -> None:
    with sluice.SocketRing.producer(there, handshake_timeout=60) as producer:
        for number in range(count):
            producer.send(b"%d" % number)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_socket_is_passed_to_a_process(method: str) -> None:
    here, there = sluice.SocketRing.pair()
    process = multiprocessing.get_context(method).Process(target=send, args=(there, 1000))
    process.start()
    there.close()
    with sluice.SocketRing.consumer(here, handshake_timeout=60) as consumer:
        assert list(consumer) == [b"%d" % number for number in range(1000)]
    process.join()
    assert process.exitcode == 0


def test_an_endpoint_is_not_pickled() -> None:
    producer, consumer = set_up()
    with producer, consumer:
        for endpoint in (producer, consumer):
            with pytest.raises(TypeError, match="cannot pickle a .*pair"):
                pickle.dumps(endpoint)


def test_an_error_is_pickled_with_its_hint() -> None:
    producer, consumer = set_up()
    producer.abort()
    with pytest.raises(sluice.PeerDied) as died:
        consumer.recv()
    copy = pickle.loads(pickle.dumps(died.value))
    assert isinstance(copy, sluice.PeerDied)
    assert (copy.errno, str(copy), copy.hint) == (died.value.errno, str(died.value), died.value.hint)


def test_a_forked_child_cannot_use_a_ring() -> None:
    producer, consumer = set_up()
    with producer, consumer:
        child = os.fork()
        if child == 0:
            try:
                producer.send(b"from the child")
            except sluice.Error as error:
                os._exit(7 if "child" in str(error) else 8)
            finally:
                os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        producer.send(b"from the parent")
        assert consumer.recv() == b"from the parent"


@pytest.mark.parametrize("call", ["consumer.recv()", "list(consumer)"])
def test_an_interpreter_ends_while_a_thread_waits(call: str) -> None:
    program = f"""
import sys, threading, time
sys.path.insert(0, {os.path.dirname(__file__)!r})
from conftest import set_up
producer, consumer = set_up()
threading.Thread(target=lambda: {call}, daemon=True).start()
time.sleep(0.2)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_subinterpreters_are_refused() -> None:
    interpreters = pytest.importorskip("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    program = "try:\n    import sluice\nexcept ImportError:\n    pass\nelse:\n    raise SystemError"
    interpreter = interpreters.create()
    try:
        # Until 3.12 a failure is raised, then it is returned.
        assert interpreters.run_string(interpreter, program) is None
    finally:
        interpreters.destroy(interpreter)


WAITS = {
    "recv": "consumer.recv()",
    "iteration": "list(consumer)",
    "recv_view": "consumer.recv_view()",
    "send": "[producer.send(bytes(1000)) for _ in range(1000)]",
    "reserve": "[producer.reserve(1000).commit() for _ in range(1000)]",
    "send_batch": "producer.send_batch(bytes(1000) for _ in range(1000))",
    "flush": "producer.send(b''); producer.flush()",
    "accept": "sluice.Listener(sys.argv[1] + '/ring').accept()",
    "handshake": "ends = sluice.SocketRing.pair(); sluice.SocketRing.producer(ends[0], handshake_timeout=600)",
    "asyncio": "import asyncio; asyncio.run(consumer.recv_async())",
}


@pytest.mark.parametrize("wait", WAITS)
def test_an_interrupt_ends_a_wait(wait: str, tmp_path: object) -> None:
    program = f"""
import signal, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
signal.signal(signal.SIGINT, signal.default_int_handler)  # also if the caller ignores it
import sluice
from conftest import set_up
producer, consumer = set_up(capacity=4096)
print("waits", flush=True)
try:
    {WAITS[wait]}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waits\n"
        time.sleep(0.3)
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        # Far less than a user waits, and more than a loaded machine needs.
        assert time.monotonic() - began < 5
    assert child.returncode == 0
