# SPDX-License-Identifier: MIT OR Apache-2.0
"""The handshake of a ring over memfd: hello, memory, reply."""

import errno
import fcntl
import mmap
import os
import select
import socket as sockets
import struct
from collections import namedtuple

from machine import register_for_barriers
from ring import F_MEMBARRIER, PeerDied

MAGIC = 0x474E5253
VERSION = 1
PRODUCER, CONSUMER = 1, 2
F_UNSEALED = 0x02
COMMON = struct.Struct("=III")
HELLO = struct.Struct("=IIIIIIQ")
Hello = namedtuple("Hello", "magic size version role flags data capacity")
REPLY = struct.Struct("=II")

CTRL_SIZE = 256
SMALLEST, LARGEST = 4096, 1 << 28

F_SEAL_FUTURE_WRITE = 0x10
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL

# In seconds; on a busy machine the peer may start slowly.
TIMEOUT = 60


class Refused(Exception):
    """The handshake was rejected with the errno `error`, by this side if `ours`."""

    def __init__(self, error, ours):
        super().__init__(f"{'refused' if ours else 'was refused'}: {errno.errorcode.get(error, error)}")
        self.error = error
        self.ours = ours


def is_power_of_two(number):
    return number > 0 and number & (number - 1) == 0


class Handshake:
    """One side of the handshake."""

    def __init__(self, role, registered, data=0, capacity=0):
        self.role = role
        self.registered = registered
        self.data = data
        self.capacity = capacity

    def exchange(self, socket, fd):
        """Returns the peer's hello and memfd, or closes the socket and raises Refused."""
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        if self.registered:
            register_for_barriers()
        socket.settimeout(TIMEOUT)
        try:
            return self._exchange(socket, fd)
        except BaseException:
            socket.close()
            raise

    def _exchange(self, socket, fd):
        send_message(lambda: sockets.send_fds(socket, [self._hello()], [fd]))
        message, files, flags, _ = receive_message(lambda: sockets.recv_fds(socket, 64, 4, sockets.MSG_CMSG_CLOEXEC))
        if is_reply(message) and REPLY.unpack(message)[1]:
            raise Refused(REPLY.unpack(message)[1], ours=False)
        if not message and not files and is_hung_up(socket):
            raise PeerDied("the other side hung up before its hello")
        truncated = flags & (sockets.MSG_TRUNC | sockets.MSG_CTRUNC)
        self._decide(socket, self.validate(message, files, truncated))
        error = receive_reply(socket)
        if error:
            raise Refused(error, ours=False)
        return Hello._make(HELLO.unpack(message)), files[0]

    def _hello(self):
        flags = F_MEMBARRIER if self.registered else 0
        return HELLO.pack(MAGIC, HELLO.size, VERSION, self.role, flags, self.data, self.capacity)

    def _decide(self, socket, error):
        send_message(lambda: socket.send(REPLY.pack(MAGIC, error)))
        if error:
            raise Refused(error, ours=True)

    def validate(self, message, files, truncated):
        """Checks in the order of docs/abi/ring-memfd.md: the fields common to all versions come first."""
        if len(message) < COMMON.size:
            return errno.EPROTO
        magic, size, version = COMMON.unpack_from(message)
        if magic != MAGIC:
            return errno.EPROTO
        if version != VERSION:
            return errno.EPROTONOSUPPORT
        if len(message) != HELLO.size or size != HELLO.size or len(files) != 1 or truncated:
            return errno.EPROTO
        hello = Hello._make(HELLO.unpack(message))
        if hello.flags & ~(F_MEMBARRIER | F_UNSEALED):
            return errno.EPROTO
        if hello.role == self.role:
            return errno.EALREADY
        if hello.role not in (PRODUCER, CONSUMER):
            return errno.EPROTO
        validate = validate_consumer if hello.role == CONSUMER else validate_producer
        return validate(hello, files[0])


def send_message(send):
    """A peer that rejects at once has closed its socket, but receive_message() still returns its reply."""
    try:
        send()
    except (BrokenPipeError, ConnectionResetError):
        pass


def receive_message(receive):
    """If the peer closed its socket with unread messages, the first recv() fails, and the next returns what the peer had sent."""
    try:
        return receive()
    except ConnectionResetError:
        return receive()


def is_hung_up(socket):
    """An empty message is received as the end is."""
    poller = select.poll()
    poller.register(socket, select.POLLRDHUP)
    return bool(poller.poll(0))


def is_reply(message):
    return len(message) == REPLY.size and REPLY.unpack(message)[0] == MAGIC


def receive_reply(socket):
    message, files, _, _ = receive_message(lambda: sockets.recv_fds(socket, 64, 4, sockets.MSG_CMSG_CLOEXEC))
    for file in files:
        os.close(file)
    if files or not is_reply(message):
        raise PeerDied(f"the other side sent {message!r} in place of its reply")
    return REPLY.unpack(message)[1]


def validate_consumer(hello, fd):
    if hello.data or hello.capacity or hello.flags & F_UNSEALED:
        return errno.EPROTO
    return validate_file(fd, CTRL_SIZE)


def validate_producer(hello, fd):
    if not is_power_of_two(hello.data) or hello.data < mmap.PAGESIZE:
        return errno.EPROTO
    if not is_power_of_two(hello.capacity) or not max(SMALLEST, hello.data) <= hello.capacity <= LARGEST:
        return errno.ERANGE
    if hello.flags & F_UNSEALED or hello.data != os.fstatvfs(fd).f_bsize:
        return errno.EACCES
    return validate_file(fd, hello.data + hello.capacity)


def validate_file(fd, length):
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        return errno.EACCES
    sealed = seals & SEALS == SEALS
    return 0 if sealed and os.fstat(fd).st_size == length else errno.EACCES
