# SPDX-License-Identifier: MIT OR Apache-2.0
"""conform.py: a peer for sluice-conform, which docs/abi/conformance.md describes: commands in, results out."""

import errno
import os
import signal
import sys

import sluice

TABLE = bytes((place * 2654435761 >> 16) & 0xFF for place in range(1 << 18))
RESULTS = {
    errno.ETIMEDOUT: "timeout",
    errno.EMSGSIZE: "too-long",
    errno.EPIPE: "closed",
    errno.ECONNRESET: "died",
    errno.EPROTO: "violation",
    errno.ENXIO: "forked",
}


def content(number: int, length: int) -> bytes:
    start = number * 17 % 8191
    return TABLE[start : start + length].ljust(length, b"\0")


def result_of(error: sluice.Error, would_wait: str) -> str:
    if error.errno == errno.EAGAIN:
        return would_wait
    return RESULTS.get(error.errno or 0, f"error {error}")


def seconds(milliseconds: str | None) -> float | None:
    return None if milliseconds is None else int(milliseconds) / 1000


def is_in_child() -> bool:
    """Whether this is the child of a fork; its parent waits for it."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return child == 0


class Side:
    """What both sides do. A method is a command."""

    side: sluice.Producer | sluice.Consumer
    would_wait: str

    def __init__(self) -> None:
        # Of the next record.
        self.number = 0

    def next_length(self) -> int:
        return self.number * 7919 % (self.side.max_record_len + 1)

    def pending(self) -> str:
        return str(self.side.pending)

    def close(self) -> str:
        self.side.close()
        return "ok"

    def abort(self) -> str:
        self.side.abort()
        return "ok"

    def die(self) -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    def fork(self) -> str:
        if is_in_child():
            print(self.call("send", "0", "0") if isinstance(self, Sender) else self.call("recv", "0"), flush=True)
            os._exit(0)
        return "forked"

    def call(self, name: str, *words: str) -> str:
        command = getattr(self, name.replace("-", "_"), None)
        if command is None:
            return "unsupported"
        try:
            return str(command(*words))
        except sluice.Error as error:
            return result_of(error, self.would_wait)


class Sender(Side):
    would_wait = "full"

    def __init__(self, producer: sluice.Producer) -> None:
        super().__init__()
        self.side = self.producer = producer

    def send(self, length: str, milliseconds: str | None = None) -> str:
        self.producer.send(content(self.number, int(length)), seconds(milliseconds))
        self.number += 1
        return "ok"

    def place(self, length: str, count: str) -> str:
        with self.producer.reserve(int(length)) as room:
            memoryview(room)[: int(count)] = content(self.number, int(count))
            room.commit(int(count))
        self.number += 1
        return "ok"

    def cancel(self, length: str) -> str:
        self.producer.reserve(int(length)).cancel()
        return "ok"

    def batch(self, length: str, count: str) -> str:
        self.producer.send_batch(content(self.number + more, int(length)) for more in range(int(count)))
        self.number += int(count)
        return "ok"

    def stream(self, count: str) -> str:
        for sent in range(int(count)):
            result = self.call("send", str(self.next_length()))
            if result != "ok":
                return f"sent {sent} {result}"
        return f"sent {count}"


class Receiver(Side):
    would_wait = "empty"

    def __init__(self, consumer: sluice.Consumer) -> None:
        super().__init__()
        self.side = self.consumer = consumer

    def received(self, record: bytes | bytearray | None) -> str:
        if record is None:
            return "end"
        self.number += 1
        return f"record {len(record)}" if record == content(self.number - 1, len(record)) else "wrong"

    def recv(self, milliseconds: str | None = None) -> str:
        return self.received(self.consumer.recv(seconds(milliseconds)))

    def recv_into(self, size: str) -> str:
        buffer = bytearray(int(size))
        try:
            length = self.consumer.recv_into(buffer)
        except sluice.Error as error:
            if error.errno != errno.EMSGSIZE:
                raise
            record = self.consumer.recv_view(0)
            record.keep()
            return f"too-small {len(record)}"
        return self.received(None if length is None else buffer[:length])

    def stream(self, count: str) -> str:
        for received in range(int(count)):
            length = self.next_length()
            result = self.call("recv")
            if result != f"record {length}":
                return f"received {received} {result}"
        return f"received {count}"


def set_up(listener: sluice.Listener | None, words: list[str]) -> Side:
    if listener is None:
        socket = sluice.SocketRing.connect(words[1])
    else:
        socket = listener.accept()
    if words[-2] == "producer":
        return Sender(sluice.SocketRing.producer(socket, capacity=int(words[-1])))
    return Receiver(sluice.SocketRing.consumer(socket))


def main() -> None:
    listener = side = None
    for line in sys.stdin:
        words = line.split()
        try:
            if words[0] == "listen":
                listener, result = sluice.Listener(words[1]), "ok"
            elif words[0] in ("accept", "connect"):
                side, result = set_up(listener, words), "ok"
            else:
                assert side is not None
                result = side.call(*words)
        except sluice.Error as error:
            result = f"refused {errno.errorcode.get(error.errno or 0, error)}"
        print(result, flush=True)


if __name__ == "__main__":
    main()
