# SPDX-License-Identifier: MIT OR Apache-2.0
"""conform.py: a peer for sluice-conform, which docs/abi/conformance.md describes. It knows no timeouts, no places and no children."""

import errno
import os
import signal
import socket as sockets
import sys

import memfd
from exchange import content_of, length_of
from handshake import Refused
from ring import PeerClosed, PeerDied, ProtocolViolation


def listen(path):
    listener = sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(1)
    return listener


def connect(path):
    socket = sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET)
    socket.connect(path)
    return socket


def set_up(socket, side, capacity):
    if side == "producer":
        return Sender(memfd.producer(socket, int(capacity)))
    return Receiver(memfd.consumer(socket))


class Sender:
    def __init__(self, producer):
        self.side = producer
        self.number = 0

    def send(self, length, timeout=None):
        if int(length) > self.side.max_record_len:
            return "too-long"
        if timeout not in (None, "0"):
            return "unsupported"
        if timeout == "0" and not self.side._has_room((self.side.position + 15 + int(length)) & ~7):
            return "closed" if self.side.connection.has_ended() else "full"
        self.side.send(content_of(self.number, int(length)))
        self.number += 1
        return "ok"

    def batch(self, length, count):
        records = [content_of(self.number + more, int(length)) for more in range(int(count))]
        self.side.send_batch(records)
        self.number += len(records)
        return "ok"

    def stream(self, count):
        for sent in range(int(count)):
            try:
                self.send(length_of(self.number, self.side.max_record_len))
            except PeerClosed:
                return f"sent {sent} closed"
            except PeerDied:
                return f"sent {sent} died"
        return f"sent {count}"


class Receiver:
    def __init__(self, consumer):
        self.side = consumer
        self.number = 0

    def recv(self, timeout=None):
        if timeout not in (None, "0"):
            return "unsupported"
        if timeout == "0" and not self.side._has_record() and not self.side.connection.has_ended():
            return "empty"
        record = self.side.receive()
        if record is None:
            return "end"
        self.number += 1
        return f"record {len(record)}" if record == content_of(self.number - 1, len(record)) else "wrong"

    def stream(self, count):
        for received in range(int(count)):
            expected = length_of(self.number, self.side.max_record_len)
            result = self.recv()
            if result != f"record {expected}":
                return f"received {received} {result}"
        return f"received {count}"


def answer(peer, words):
    if words[0] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if words[0] == "close":
        peer.side.close()
        return "ok"
    command = getattr(peer, words[0], None)
    return command(*words[1:]) if callable(command) else "unsupported"


def main():
    peer = listener = None
    violated = False
    for line in sys.stdin:
        words = line.split()
        result = "ok"
        try:
            if words[0] == "listen":
                listener = listen(words[1])
            elif words[0] == "accept":
                peer = set_up(listener.accept()[0], *words[1:])
            elif words[0] == "connect":
                peer = set_up(connect(words[1]), *words[2:])
            else:
                result = "violation" if violated else answer(peer, words)
        except Refused as refused:
            result = f"refused {errno.errorcode.get(refused.error, refused.error)}"
        except ProtocolViolation:
            result, violated = "violation", True
        except PeerDied:
            result = "died"
        except PeerClosed:
            result = "closed"
        print(result, flush=True)


main()
