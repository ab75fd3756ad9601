# SPDX-License-Identifier: MIT OR Apache-2.0
"""A second implementation of the rings over memfd, written from docs/abi.md alone, to show that the text is enough.

Producer(socket, ...) and Consumer(socket, ...) do the handshake over a connected SOCK_SEQPACKET socket.
"""

import ctypes
import mmap
import os
import select
import socket as sockets

from handshake import CONSUMER, F_MEMBARRIER, PRODUCER, CTRL_SIZE, PeerDied, Handshake, Tampering
from machine import (
    MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, MAP_SHARED, PROT_NONE, PROT_READ, PROT_WRITE, Word,
    barrier, futex_wait, futex_wake, map_memory, populate,
)


WAKE_FUTEX, WAKE_SOCKET, NEED_FENCE = 0x01, 0x02, 0x04
WAIT_SEQ = 0x08

PAGE = mmap.PAGESIZE
HEADER = 8

# Who sleeps on a futex does not see the socket hang up, and looks at it this often.
LOOK = 0.05


class Gone(Exception):
    """The other side closed the ring, and it was the producer that asked."""


class ProtocolViolation(Exception):
    """The memory of the other side has an invalid value."""


def longest(capacity):
    return capacity // 2 - HEADER


def end_of(position, length):
    return (position + HEADER + length + 7) & ~7


class Side:
    """struct sluice_ring_ctrl."""

    def __init__(self, address):
        self.pos = Word(address, ctypes.c_uint64)
        self.wait_flags = Word(address + 128, ctypes.c_uint32)
        self.wake_seq = Word(address + 132, ctypes.c_uint32)
        self.closed = Word(address + 136, ctypes.c_uint32)


class Data:
    """The data, twice in a row, so that a record's bytes are in one piece wherever it begins."""

    def __init__(self, address, capacity):
        self.address = address
        self.capacity = capacity

    def at(self, position):
        return self.address + position % self.capacity

    def length(self, position):
        return Word(self.at(position), ctypes.c_uint32)

    def state(self, position):
        return Word(self.at(position) + 4, ctypes.c_uint32)

    def put(self, position, content):
        ctypes.memmove(self.at(position) + HEADER, content, len(content))

    def get(self, position, length):
        return ctypes.string_at(self.at(position) + HEADER, length)


def map_side(fd, protection):
    return Side(map_memory(None, CTRL_SIZE, protection, MAP_SHARED, fd, 0))


def map_ring(fd, data, capacity, protection):
    base = map_memory(None, data + 2 * capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    map_memory(base, data + capacity, protection, MAP_SHARED | MAP_FIXED, fd, 0)
    map_memory(base + data + capacity, capacity, protection, MAP_SHARED | MAP_FIXED, fd, data)
    return Side(base), Data(base + data, capacity)


def make_file(name, length):
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, length)
    return fd


class Link:
    """How one side sleeps, wakes the other, and learns of its end."""

    def __init__(self, socket, own, other, how, registered, spins):
        self.socket = socket
        self.own = own
        self.other = other
        self.how = how
        self.registered = registered
        self.spins = spins
        self.wait_seq = 0
        self.answered = 0
        self.resting = 0
        self.hung_up = False
        socket.setblocking(False)

    def wait_until(self, ready):
        """True once `ready` says so; False when the other side is gone and will not make it so any more."""
        for _ in range(self.spins):
            if ready():
                return True
        while not ready():
            if self.gone():
                return ready()
            self._sleep(ready)
        return True

    def gone(self):
        # Who ends in order closes before its socket hangs up, so that is asked first.
        hung_up = self.is_hung_up()
        return self.other.closed.load_acquire() != 0 or hung_up

    def is_hung_up(self):
        """Takes what woke this side out of the socket, too, which would otherwise be readable for ever."""
        try:
            while not self.hung_up:
                self.hung_up = self.socket.recv(16) == b""
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.hung_up = True
        return self.hung_up

    def _sleep(self, ready):
        if self.registered and not self.resting:
            self.resting = NEED_FENCE
            self.own.wait_flags.store(NEED_FENCE)
            barrier()
        bell = self.other.wake_seq.load()
        self.wait_seq = (self.wait_seq + WAIT_SEQ) % (1 << 32)
        self.own.wait_flags.store(self.how | self.resting | self.wait_seq)
        barrier()
        if not ready() and not self.other.closed.load():
            if self.how & WAKE_SOCKET:
                select.select([self.socket], [], [])
            else:
                futex_wait(self.other.wake_seq.address, bell, LOOK)
        self.own.wait_flags.store(self.resting)

    def wake(self):
        if not self.registered:
            barrier()
        waiting = self.other.wait_flags.load()
        if waiting & NEED_FENCE:
            barrier()
            waiting = self.other.wait_flags.load()
        if not waiting & (WAKE_FUTEX | WAKE_SOCKET) or waiting == self.answered:
            return
        self.answered = waiting
        self.own.wake_seq.store((self.own.wake_seq.load() + 1) % (1 << 32))
        if waiting & WAKE_FUTEX:
            futex_wake(self.own.wake_seq.address)
        if waiting & WAKE_SOCKET:
            try:
                self.socket.send(b"\0", sockets.MSG_NOSIGNAL)
            except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                pass

    def close(self):
        self.own.closed.store_release(1)
        self.wake()
        self.socket.close()


class Producer:
    def __init__(self, socket, capacity, how=WAKE_FUTEX, registered=True, spins=0, tampering=Tampering()):
        fd = make_file("second-producer", PAGE + capacity)
        own, self.data = map_ring(fd, PAGE, capacity, PROT_READ | PROT_WRITE)
        hello, other = Handshake(PRODUCER, registered, tampering, PAGE, capacity).exchange(socket, fd)
        both = registered and bool(hello.flags & F_MEMBARRIER)
        self.link = Link(socket, own, map_side(other, PROT_READ), how, both, spins)
        self.longest = longest(capacity)
        self.position = 0
        self.released = 0
        os.close(fd)
        os.close(other)

    def send(self, record):
        self.send_batch([record])

    def send_batch(self, records):
        """All at once: the consumer sees none of them before the last is written."""
        begins = [self.position]
        for record in records:
            if len(record) > self.longest:
                raise ValueError(f"a record of {len(record)} bytes; at most {self.longest} fit")
            begins.append(end_of(begins[-1], len(record)))
        end = begins[-1]
        if end == self.position:
            return
        if end + HEADER - self.position > self.data.capacity:
            raise ValueError("the batch is longer than the ring")
        self._wait_for_room(end)
        for begin, record in zip(begins, records):
            self.data.length(begin).store(len(record))
            self.data.put(begin, record)
            if begin != self.position:
                self.data.state(begin).store(1)
        self.data.state(end).store(0)
        self.data.state(self.position).store_release(1)
        self.position = end
        self.link.own.pos.store(end)
        self.link.wake()

    def _wait_for_room(self, end):
        if not self.link.wait_until(lambda: self._has_room(end)) or self.link.gone():
            raise Gone("the consumer closed the ring") if self.link.other.closed.load() else PeerDied("the consumer died")

    def _has_room(self, end):
        if end + HEADER - self.released > self.data.capacity:
            released = self.link.other.pos.load_acquire()
            if released % 8 or not self.released <= released <= self.position:
                raise ProtocolViolation(f"position {released} after {self.released}, with {self.position} sent")
            self.released = released
        return end + HEADER - self.released <= self.data.capacity

    def close(self):
        self.link.close()


class Consumer:
    def __init__(self, socket, how=WAKE_FUTEX, registered=True, spins=0, tampering=Tampering()):
        fd = make_file("second-consumer", CTRL_SIZE)
        own = map_side(fd, PROT_READ | PROT_WRITE)
        hello, theirs = Handshake(CONSUMER, registered, tampering).exchange(socket, fd)
        other, self.data = map_ring(theirs, hello.data, hello.capacity, PROT_READ)
        if os.fstatvfs(theirs).f_bsize > PAGE:
            # A page that is missing later would be a signal.
            populate(self.data.address - hello.data, hello.data + 2 * hello.capacity)
        both = registered and bool(hello.flags & F_MEMBARRIER)
        self.link = Link(socket, own, other, how, both, spins)
        self.longest = longest(hello.capacity)
        self.position = 0
        os.close(fd)
        os.close(theirs)

    def receive(self):
        """The next record, or None after the last one of a producer that closed the ring."""
        records = self.receive_batch(1)
        return records[0] if records else None

    def receive_batch(self, most):
        """At least one record and what else is there already, up to `most`, released together; none at the end."""
        if not self.link.wait_until(self._has_record):
            if self.link.other.closed.load():
                return []
            raise PeerDied("the producer died")
        records = []
        while len(records) < most and self._has_record():
            length = self.data.length(self.position).load()
            if length > self.longest:
                raise ProtocolViolation(f"length {length}, with {self.longest} the most")
            records.append(self.data.get(self.position, length))
            self.position = end_of(self.position, length)
        self.link.own.pos.store_release(self.position)
        self.link.wake()
        return records

    def _has_record(self):
        state = self.data.state(self.position).load_acquire()
        if state > 1:
            raise ProtocolViolation(f"state {state}")
        return state == 1

    def close(self):
        self.link.close()
