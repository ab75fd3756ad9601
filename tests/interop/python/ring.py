# SPDX-License-Identifier: MIT OR Apache-2.0
"""An independent implementation of rings over memfd, written from docs/abi.md alone, to show that the page is complete.

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


WAKE_FUTEX, WAKE_FD, NEED_FENCE = 0x01, 0x02, 0x04
WAIT_SEQ = 0x08

PAGE = mmap.PAGESIZE
HEADER = 8

# In seconds. A futex wait does not end when the socket hangs up, so the socket is checked at this interval.
HANG_UP_CHECK_INTERVAL = 0.05


class PeerClosed(Exception):
    """The consumer closed the ring."""


class ProtocolViolation(Exception):
    """The peer's memory contains an invalid value."""


def max_record_len(capacity):
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
    """The data, mapped twice in a row, so that each record is contiguous."""

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


class Connection:
    """How one side blocks, notifies its peer, and detects its end."""

    def __init__(self, socket, own, other, wake_method, registered, spins):
        self.socket = socket
        self.own = own
        self.other = other
        self.wake_method = wake_method
        self.registered = registered
        self.spins = spins
        self.wait_seq = 0
        self.notified_for = 0
        self.need_fence = 0
        self.hung_up = False
        socket.setblocking(False)

    def wait_until(self, ready):
        """Waits until `ready()`; returns False if the peer has closed or died before that."""
        for _ in range(self.spins):
            if ready():
                return True
        while not ready():
            if self.is_closed():
                return ready()
            self._sleep(ready)
        return True

    def is_closed(self):
        # An orderly close sets `closed` before the socket hangs up, so the socket is read first.
        hung_up = self.is_hung_up()
        return self.other.closed.load_acquire() != 0 or hung_up

    def is_hung_up(self):
        """Also reads the wake-up messages, because the socket would otherwise stay readable."""
        try:
            while not self.hung_up:
                self.hung_up = self.socket.recv(16) == b""
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.hung_up = True
        return self.hung_up

    def _sleep(self, ready):
        if self.registered and not self.need_fence:
            self.need_fence = NEED_FENCE
            self.own.wait_flags.store(NEED_FENCE)
            barrier()
        wake_seq = self.other.wake_seq.load()
        self.wait_seq = (self.wait_seq + WAIT_SEQ) % (1 << 32)
        self.own.wait_flags.store(self.wake_method | self.need_fence | self.wait_seq)
        barrier()
        if not ready() and not self.other.closed.load():
            if self.wake_method & WAKE_FD:
                select.select([self.socket], [], [])
            else:
                futex_wait(self.other.wake_seq.address, wake_seq, HANG_UP_CHECK_INTERVAL)
        self.own.wait_flags.store(self.need_fence)

    def notify(self):
        if not self.registered:
            barrier()
        wait_flags = self.other.wait_flags.load()
        if wait_flags & NEED_FENCE:
            barrier()
            wait_flags = self.other.wait_flags.load()
        if not wait_flags & (WAKE_FUTEX | WAKE_FD) or wait_flags == self.notified_for:
            return
        self.notified_for = wait_flags
        self.own.wake_seq.store((self.own.wake_seq.load() + 1) % (1 << 32))
        if wait_flags & WAKE_FUTEX:
            futex_wake(self.own.wake_seq.address)
        if wait_flags & WAKE_FD:
            try:
                self.socket.send(b"\0", sockets.MSG_NOSIGNAL)
            except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                pass

    def close(self):
        self.own.closed.store_release(1)
        self.notify()
        self.socket.close()


class Producer:
    def __init__(self, socket, capacity, wake_method=WAKE_FUTEX, registered=True, spins=0, tampering=Tampering()):
        fd = make_file("interop-producer", PAGE + capacity)
        own, self.data = map_ring(fd, PAGE, capacity, PROT_READ | PROT_WRITE)
        hello, other = Handshake(PRODUCER, registered, tampering, PAGE, capacity).exchange(socket, fd)
        use_membarrier = registered and bool(hello.flags & F_MEMBARRIER)
        self.connection = Connection(socket, own, map_side(other, PROT_READ), wake_method, use_membarrier, spins)
        self.max_record_len = max_record_len(capacity)
        self.position = 0
        self.released = 0
        os.close(fd)
        os.close(other)

    def send(self, record):
        self.send_batch([record])

    def send_batch(self, records):
        """Publishes all records at once: the consumer sees none before the last is written."""
        starts = [self.position]
        for record in records:
            if len(record) > self.max_record_len:
                raise ValueError(f"a record of {len(record)} bytes; at most {self.max_record_len} fit")
            starts.append(end_of(starts[-1], len(record)))
        end = starts[-1]
        if end == self.position:
            return
        if end + HEADER - self.position > self.data.capacity:
            raise ValueError("the batch is longer than the ring")
        self._wait_for_room(end)
        for start, record in zip(starts, records):
            self.data.length(start).store(len(record))
            self.data.put(start, record)
            if start != self.position:
                self.data.state(start).store(1)
        self.data.state(end).store(0)
        self.data.state(self.position).store_release(1)
        self.position = end
        self.connection.own.pos.store(end)
        self.connection.notify()

    def _wait_for_room(self, end):
        if not self.connection.wait_until(lambda: self._has_room(end)) or self.connection.is_closed():
            raise PeerClosed("the consumer closed the ring") if self.connection.other.closed.load() else PeerDied("the consumer died")

    def _has_room(self, end):
        if end + HEADER - self.released > self.data.capacity:
            released = self.connection.other.pos.load_acquire()
            if released % 8 or not self.released <= released <= self.position:
                raise ProtocolViolation(f"position {released} after {self.released}, with {self.position} sent")
            self.released = released
        return end + HEADER - self.released <= self.data.capacity

    def close(self):
        self.connection.close()


class Consumer:
    def __init__(self, socket, wake_method=WAKE_FUTEX, registered=True, spins=0, tampering=Tampering()):
        fd = make_file("interop-consumer", CTRL_SIZE)
        own = map_side(fd, PROT_READ | PROT_WRITE)
        hello, peer_fd = Handshake(CONSUMER, registered, tampering).exchange(socket, fd)
        other, self.data = map_ring(peer_fd, hello.data, hello.capacity, PROT_READ)
        if os.fstatvfs(peer_fd).f_bsize > PAGE:
            # Accessing a missing huge page later would raise SIGBUS.
            populate(self.data.address - hello.data, hello.data + 2 * hello.capacity)
        use_membarrier = registered and bool(hello.flags & F_MEMBARRIER)
        self.connection = Connection(socket, own, other, wake_method, use_membarrier, spins)
        self.max_record_len = max_record_len(hello.capacity)
        self.position = 0
        os.close(fd)
        os.close(peer_fd)

    def receive(self):
        """Returns the next record, or None after the last one of a producer that has closed."""
        records = self.receive_batch(1)
        return records[0] if records else None

    def receive_batch(self, most):
        """Returns at least one record, up to `most` that are available, and releases them; none at the end of the stream."""
        if not self.connection.wait_until(self._has_record):
            if self.connection.other.closed.load():
                return []
            raise PeerDied("the producer died")
        records = []
        while len(records) < most and self._has_record():
            length = self.data.length(self.position).load()
            if length > self.max_record_len:
                raise ProtocolViolation(f"length {length}, with {self.max_record_len} the most")
            records.append(self.data.get(self.position, length))
            self.position = end_of(self.position, length)
        self.connection.own.pos.store_release(self.position)
        self.connection.notify()
        return records

    def _has_record(self):
        state = self.data.state(self.position).load_acquire()
        if state > 1:
            raise ProtocolViolation(f"state {state}")
        return state == 1

    def close(self):
        self.connection.close()
