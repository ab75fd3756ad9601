# SPDX-License-Identifier: MIT OR Apache-2.0
"""conform.py: a peer for sluice-conform, which docs/abi/conformance.md describes. It has rings, and knows no timeouts, no places and no children."""

import argparse
import errno
import socket as sockets
import sys

import device
import memfd
from handshake import Refused
from ring import PeerClosed, PeerDied, ProtocolViolation

# Long and without a period, so that a byte identifies its position and record.
TABLE = bytes((position * 2654435761 >> 16) & 0xFF for position in range(1 << 18))


def length_of(number, max_len):
    """Takes every value from 0 to the maximum before it repeats one, because the factor is prime."""
    return number * 7919 % (max_len + 1)


def content_of(number, length):
    start = number * 17 % 8191
    return TABLE[start : start + length]


def parse():
    """How a side waits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", choices=["futex", "socket"], default="futex", help="over memfd")
    parser.add_argument("--device", choices=["wait", "poll"], default="wait", help="on the device")
    parser.add_argument("--spins", type=int, default=0)
    parser.add_argument("--unregistered", action="store_true", help="with membarrier(2)")
    return parser.parse_args()


OPTIONS = parse()
SETTINGS = {"registered": not OPTIONS.unregistered, "spins": OPTIONS.spins}


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
        return Sender(memfd.producer(socket, int(capacity), OPTIONS.socket, **SETTINGS))
    return Receiver(memfd.consumer(socket, OPTIONS.socket, **SETTINGS))


FLAGS = {"create": device.OPEN_CREATE, "exclusive": device.OPEN_EXCL, "persistent": device.OPEN_PERSIST}


def open_side(name, side, settings):
    """A side of a device ring."""
    flags = sum(FLAGS.get(word, 0) for word in settings)
    capacity = sum(int(word[len("capacity="):]) for word in settings if word.startswith("capacity="))
    if side == "producer":
        return Sender(device.producer(name, capacity, flags, OPTIONS.device, **SETTINGS))
    return Receiver(device.consumer(name, capacity, flags, OPTIONS.device, **SETTINGS))


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

    def pending(self):
        return str(self.side.position - self.side.connection.other.pos.load())

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

    def pending(self):
        return str(self.side.connection.other.pos.load() - self.side.position)

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


REMOVE = {"unlink": device.CTL_UNLINK, "destroy": device.CTL_DESTROY}


def answer(peer, words):
    if words[0] in REMOVE and words[1] == "ring":
        device.remove(words[2], REMOVE[words[0]])
        return "ok"
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
            elif words[0] == "open" and words[2] in ("producer", "consumer"):
                peer = open_side(words[1], words[2], words[3:])
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
        except device.Destroyed:
            result = "destroyed"
        except OSError as failed:
            result = f"refused {errno.errorcode[failed.errno]}"
        print(result, flush=True)


main()
