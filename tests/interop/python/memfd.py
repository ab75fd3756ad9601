# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rings over memfd. producer() and consumer() do the handshake over a connected SOCK_SEQPACKET socket."""

import os
import select
import socket as sockets

from handshake import CONSUMER, PRODUCER, CTRL_SIZE, Handshake
from machine import (
    MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, MAP_SHARED, PROT_NONE, PROT_READ, PROT_WRITE,
    futex_wait, futex_wake, map_memory, populate,
)
from ring import CLOSED, F_MEMBARRIER, PAGE, WAKE_FD, WAKE_FUTEX, Connection, Consumer, Data, PeerDied, Producer, Side

# In seconds. A futex wait does not end when the socket hangs up, so the socket is checked at this interval.
HANG_UP_CHECK_INTERVAL = 0.05

WAKE_METHODS = {"futex": WAKE_FUTEX, "socket": WAKE_FD}


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


def has_hung_up(socket):
    asked = select.poll()
    asked.register(socket, select.POLLRDHUP)
    return bool(asked.poll(0))


class SocketConnection(Connection):
    def __init__(self, socket, own, other, how, asymmetric, spins):
        super().__init__(own, other, asymmetric, spins)
        self.socket = socket
        self.asymmetric = asymmetric
        self.method = WAKE_METHODS[how]
        self.hung_up = False
        socket.setblocking(False)

    def has_ended(self):
        # An orderly close sets `closed` before the socket hangs up, so the socket is read first.
        hung_up = self.is_hung_up()
        return self.other.closed.load_acquire() != 0 or hung_up

    def is_hung_up(self):
        """Also reads the wake-up messages, because the socket would otherwise stay readable."""
        try:
            while not self.hung_up:
                # No bytes are an empty message, or the hang-up.
                self.hung_up = self.socket.recv(16) == b"" and has_hung_up(self.socket)
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.hung_up = True
        return self.hung_up

    def check_end(self, peer):
        if not self.other.closed.load():
            raise PeerDied(f"the {peer} died")

    def wake_method(self):
        return self.method

    def block(self, wake_seq):
        if self.method == WAKE_FD:
            select.select([self.socket], [], [])
        else:
            futex_wait(self.other.wake_seq.address, wake_seq, HANG_UP_CHECK_INTERVAL)

    def may_omit_barrier(self):
        return self.asymmetric

    def wake(self, wait_flags):
        if not wait_flags & WAKE_FD:
            futex_wake(self.own.wake_seq.address)
            return
        try:
            self.socket.send(b"\0", sockets.MSG_NOSIGNAL)
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            pass

    def close(self):
        self.own.closed.store_release(CLOSED)
        self.notify()
        self.socket.close()


def producer(socket, capacity, how="futex", registered=True, spins=0):
    fd = make_file("interop-producer", PAGE + capacity)
    own, data = map_ring(fd, PAGE, capacity, PROT_READ | PROT_WRITE)
    hello, other = Handshake(PRODUCER, registered, PAGE, capacity).exchange(socket, fd)
    asymmetric = registered and bool(hello.flags & F_MEMBARRIER)
    connection = SocketConnection(socket, own, map_side(other, PROT_READ), how, asymmetric, spins)
    os.close(fd)
    os.close(other)
    return Producer(connection, data)


def consumer(socket, how="futex", registered=True, spins=0):
    fd = make_file("interop-consumer", CTRL_SIZE)
    own = map_side(fd, PROT_READ | PROT_WRITE)
    hello, peer_fd = Handshake(CONSUMER, registered).exchange(socket, fd)
    other, data = map_ring(peer_fd, hello.data, hello.capacity, PROT_READ)
    if os.fstatvfs(peer_fd).f_bsize > PAGE:
        # Accessing a missing huge page later would raise SIGBUS.
        populate(data.address - hello.data, hello.data + 2 * hello.capacity)
    asymmetric = registered and bool(hello.flags & F_MEMBARRIER)
    connection = SocketConnection(socket, own, other, how, asymmetric, spins)
    os.close(fd)
    os.close(peer_fd)
    return Consumer(connection, data)
