# SPDX-License-Identifier: MIT OR Apache-2.0
"""Device rings. producer() and consumer() open their role of a channel by its name."""

import fcntl
import os
import select
import struct

from machine import MAP_SHARED, PROT_READ, PROT_WRITE, map_memory, register_for_barriers, unmap_memory
from ring import (
    F_MEMBARRIER, PAGE, WAKE_FD, Connection, Consumer, Data, PeerDied, Producer, ProtocolViolation, Side,
)

CTL = "/dev/sluice/ctl"
CTL_OPEN, CTL_UNLINK, CTL_DESTROY = 0x4068C710, 0x4050C711, 0x4050C715
RING_WAKE, RING_WAIT, RING_DETACH, RING_INFO = 0xC720, 0x4018C721, 0xC722, 0xC030C723

KIND_RING = 2
OPEN_READ, OPEN_WRITE, OPEN_CREATE, OPEN_EXCL, OPEN_PERSIST = 1, 2, 4, 8, 16
SCOPE_SELF = -1
MODE = 0o600

# size, kind, flags, scope_fd, name, mode, reserved, capacity, params
OPEN = struct.Struct("=IIIi64sIIQQ")
# size, kind, flags, scope_fd, name
UNLINK = struct.Struct("=IIIi64s")
# size, flags, seq, reserved, timeout_ns
WAIT = struct.Struct("=IIIIQ")
NO_TIMEOUT = (1 << 64) - 1
# size, role, producer, consumer, node, reserved, capacity, published, released
INFO = struct.Struct("=IIIIiIQQQ")

MMAP_PRODUCER, MMAP_CONSUMER, MMAP_DATA = 0x000000, 0x100000, 0x200000

DIED, DESTROYED = 2, 3


class Destroyed(Exception):
    """The channel was destroyed."""


def open_ring(name, flags, capacity):
    argument = bytearray(OPEN.pack(OPEN.size, KIND_RING, flags, SCOPE_SELF, name.encode(), MODE, 0, capacity, 0))
    with open(CTL, "rb") as ctl:
        return fcntl.ioctl(ctl, CTL_OPEN, argument)


def remove(name, command):
    with open(CTL, "rb") as ctl:
        fcntl.ioctl(ctl, command, UNLINK.pack(UNLINK.size, KIND_RING, 0, SCOPE_SELF, name.encode()))


def capacity_of(endpoint):
    info = bytearray(INFO.size)
    info[:4] = struct.pack("=I", INFO.size)
    fcntl.ioctl(endpoint, RING_INFO, info)
    return INFO.unpack(info)[6]


class EndpointConnection(Connection):
    def __init__(self, endpoint, mappings, own, other, how, registered, spins):
        super().__init__(own, other, registered, spins)
        self.endpoint = endpoint
        self.mappings = mappings
        self.polls = how == "poll"
        self.registered = registered
        if registered:
            register_for_barriers()
            own.features.store(F_MEMBARRIER)

    def has_ended(self):
        return self.other.closed.load_acquire() != 0 or self.own.closed.load_acquire() == DESTROYED

    def check_end(self, peer):
        closed = self.other.closed.load_acquire()
        if closed == DIED:
            raise PeerDied(f"the {peer} died")
        if closed in (0, DESTROYED):
            raise Destroyed("the channel was destroyed")

    def wake_method(self):
        return WAKE_FD

    def before_sleep(self, wake_seq):
        self.own.wake_ack.store(wake_seq)

    def block(self, wake_seq):
        ended = self._poll() if self.polls else self._wait(wake_seq)
        if ended and not self.other.closed.load_acquire() and not self.own.closed.load_acquire():
            raise ProtocolViolation("the peer hides its end")

    def _poll(self):
        """Returns whether the module reports an end."""
        poller = select.poll()
        poller.register(self.endpoint, select.POLLIN | select.POLLRDHUP)
        (_, events), = poller.poll()
        return events & (select.POLLRDHUP | select.POLLHUP)

    def _wait(self, wake_seq):
        """Returns whether the sleep ended without a wake-up."""
        try:
            fcntl.ioctl(self.endpoint, RING_WAIT, WAIT.pack(WAIT.size, 0, wake_seq, 0, NO_TIMEOUT))
        except InterruptedError:
            return False
        except BrokenPipeError:
            # The channel was destroyed, as the own `closed` says.
            return False
        return self.other.wake_seq.load() == wake_seq

    def after_sleep(self):
        if self.polls:
            self.own.wake_ack.store(self.other.wake_seq.load_acquire())

    def may_omit_barrier(self):
        return self.registered and self.other.features.load() & F_MEMBARRIER != 0

    def wake(self, wait_flags):
        if wait_flags & WAKE_FD:
            try:
                fcntl.ioctl(self.endpoint, RING_WAKE)
            except BrokenPipeError:
                pass

    def close(self):
        """Stores 1 in `closed` unless the module has stored another value, and wakes the peer."""
        try:
            fcntl.ioctl(self.endpoint, RING_DETACH)
        except BrokenPipeError:
            pass
        for address, length in self.mappings:
            unmap_memory(address, length)
        os.close(self.endpoint)


def set_up(endpoint, how, registered, spins, is_producer):
    capacity = capacity_of(endpoint)
    own_access, peers_access = PROT_READ | PROT_WRITE, PROT_READ
    producers, consumers = (own_access, peers_access) if is_producer else (peers_access, own_access)
    regions = ((MMAP_PRODUCER, PAGE, producers), (MMAP_CONSUMER, PAGE, consumers), (MMAP_DATA, 2 * capacity, producers))
    mappings = [
        (map_memory(None, length, access, MAP_SHARED, endpoint, offset), length) for offset, length, access in regions
    ]
    producer_side, consumer_side, data = (address for address, _ in mappings)
    own, other = (producer_side, consumer_side) if is_producer else (consumer_side, producer_side)
    connection = EndpointConnection(endpoint, mappings, Side(own), Side(other), how, registered, spins)
    return connection, Data(data, capacity)


def producer(name, capacity, flags, how="wait", registered=True, spins=0):
    return Producer(*set_up(open_ring(name, OPEN_WRITE | flags, capacity), how, registered, spins, True))


def consumer(name, capacity, flags, how="wait", registered=True, spins=0):
    return Consumer(*set_up(open_ring(name, OPEN_READ | flags, capacity), how, registered, spins, False))
