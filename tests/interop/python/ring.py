# SPDX-License-Identifier: MIT OR Apache-2.0
"""An independent implementation of rings, written from docs/abi/ alone, to show that the pages are complete.

This file has what both carriers have in common. memfd.py sets up rings over memfd, device.py device rings.
"""

import ctypes
import mmap

from machine import Word, barrier


WAKE_FUTEX, WAKE_FD, NEED_FENCE = 0x01, 0x02, 0x04
WAIT_SEQ = 0x08
F_MEMBARRIER = 0x01
CLOSED = 1

PAGE = mmap.PAGESIZE
HEADER = 8


class PeerClosed(Exception):
    """The consumer closed the ring."""


class PeerDied(Exception):
    """The peer's process ended without closing the ring."""


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
        self.wake_ack = Word(address + 140, ctypes.c_uint32)
        self.features = Word(address + 144, ctypes.c_uint32)


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


class Connection:
    """How one side blocks, notifies its peer, and detects its end. A carrier defines what raises NotImplementedError here."""

    def __init__(self, own, other, requests_fences, spins):
        self.own = own
        self.other = other
        # Whether this side calls membarrier(2) before it sleeps.
        self.requests_fences = requests_fences
        self.spins = spins
        self.wait_seq = 0
        self.answered = 0
        self.need_fence = 0

    def wait_until(self, ready):
        """Waits until `ready()`; returns False if the peer has closed or died before that."""
        for _ in range(self.spins):
            if ready():
                return True
        while not ready():
            if self.has_ended():
                return ready()
            self._sleep(ready)
        return True

    def has_ended(self):
        raise NotImplementedError

    def check_end(self, peer):
        """After has_ended(): raises an exception unless the peer, "producer" or "consumer", has closed the ring."""
        raise NotImplementedError

    def _sleep(self, ready):
        if self.requests_fences and not self.need_fence:
            self.need_fence = NEED_FENCE
            self.own.wait_flags.store(NEED_FENCE)
            barrier()
        wake_seq = self.other.wake_seq.load_acquire()
        self.before_sleep(wake_seq)
        self.wait_seq = (self.wait_seq + WAIT_SEQ) % (1 << 32)
        self.own.wait_flags.store(self.wake_method() | self.need_fence | self.wait_seq)
        barrier()
        if not ready() and not self.other.closed.load():
            self.block(wake_seq)
        self.own.wait_flags.store(self.need_fence)
        self.after_sleep()

    def wake_method(self):
        raise NotImplementedError

    def before_sleep(self, wake_seq):
        """`wake_seq` is that of the peer."""

    def block(self, wake_seq):
        """Sleeps while the peer's `wake_seq` is this one. May return for any reason."""
        raise NotImplementedError

    def after_sleep(self):
        pass

    def notify(self):
        if not self.may_omit_barrier():
            barrier()
        wait_flags = self.other.wait_flags.load()
        if wait_flags & NEED_FENCE:
            barrier()
            wait_flags = self.other.wait_flags.load()
        if not wait_flags & (WAKE_FUTEX | WAKE_FD) or wait_flags == self.answered:
            return
        self.answered = wait_flags
        self.own.wake_seq.store_release((self.own.wake_seq.load() + 1) % (1 << 32))
        self.wake(wait_flags)

    def may_omit_barrier(self):
        raise NotImplementedError

    def wake(self, wait_flags):
        raise NotImplementedError

    def close(self):
        raise NotImplementedError


class Producer:
    def __init__(self, connection, data):
        self.connection = connection
        self.data = data
        self.max_record_len = max_record_len(data.capacity)
        self.position = 0
        self.released = 0

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
        if not self.connection.wait_until(lambda: self._has_room(end)) or self.connection.has_ended():
            self.connection.check_end("consumer")
            raise PeerClosed("the consumer closed the ring")

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
    def __init__(self, connection, data):
        self.connection = connection
        self.data = data
        self.max_record_len = max_record_len(data.capacity)
        self.position = 0

    def receive(self):
        """Returns the next record, or None after the last one of a producer that has closed."""
        records = self.receive_batch(1)
        return records[0] if records else None

    def receive_batch(self, most):
        """Returns at least one record, up to `most` that are available, and releases them; none at the end of the stream."""
        if not self.connection.wait_until(self._has_record):
            self.connection.check_end("producer")
            return []
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
