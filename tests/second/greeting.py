# SPDX-License-Identifier: MIT OR Apache-2.0
"""How a side of a ring over memfd comes to terms with the other: hello, memory, reply."""

import errno
import fcntl
import mmap
import os
import socket as sockets
import struct
from collections import namedtuple
from dataclasses import dataclass, field

from machine import register_for_barriers

MAGIC = 0x474E5253
VERSION = 1
PRODUCER, CONSUMER = 1, 2
F_MEMBARRIER, F_UNSEALED = 0x01, 0x02
COMMON = struct.Struct("=III")
HELLO = struct.Struct("=IIIIIIQ")
Hello = namedtuple("Hello", "magic size version role flags data capacity")
REPLY = struct.Struct("=II")

SIDE_BYTES = 256
SMALLEST, LARGEST = 4096, 1 << 28

F_SEAL_FUTURE_WRITE = 0x10
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL

# On a busy machine the other side may take long to start.
PATIENCE = 60


class Refused(Exception):
    """The greeting came to nothing. `error` is the reply; `ours` says whose."""

    def __init__(self, error, ours):
        super().__init__(f"{'refused' if ours else 'was refused'}: {errno.errorcode.get(error, error)}")
        self.error = error
        self.ours = ours


class Died(Exception):
    """The other side's process ended without closing the ring."""


def is_power_of_two(number):
    return number > 0 and number & (number - 1) == 0


@dataclass
class Tampering:
    """What a test wants to be wrong in this side's greeting."""

    say: dict = field(default_factory=dict)
    sealed: bool = True
    refuse: int = 0
    before_greeting: bool = False


class Greeting:
    """What this side says of itself, and how it comes to terms with the other."""

    def __init__(self, role, registered, tampering, data=0, capacity=0):
        self.role = role
        self.registered = registered
        self.tampering = tampering
        self.data = data
        self.capacity = capacity

    def exchange(self, socket, fd):
        """Returns the other's fields and its memfd, or raises Refused; then the socket is closed."""
        if self.tampering.sealed:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        if self.registered:
            register_for_barriers()
        socket.settimeout(PATIENCE)
        try:
            return self._settle(socket, fd)
        except BaseException:
            socket.close()
            raise

    def _settle(self, socket, fd):
        if self.tampering.before_greeting:
            self._decide(socket, self.tampering.refuse)
        say(lambda: sockets.send_fds(socket, [self._hello()], [fd]))
        message, files, flags, _ = hear(lambda: sockets.recv_fds(socket, 64, 4, sockets.MSG_CMSG_CLOEXEC))
        if len(message) == REPLY.size:
            raise Refused(judge_reply(message), ours=False)
        if not message:
            raise Died("the other side hung up before it greeted")
        truncated = flags & (sockets.MSG_TRUNC | sockets.MSG_CTRUNC)
        self._decide(socket, self.tampering.refuse or self.judge(message, files, truncated))
        error = judge_reply(hear(lambda: socket.recv(64)))
        if error:
            raise Refused(error, ours=False)
        return Hello._make(HELLO.unpack(message)), files[0]

    def _hello(self):
        flags = F_MEMBARRIER if self.registered else 0
        hello = Hello(MAGIC, HELLO.size, VERSION, self.role, flags, self.data, self.capacity)
        return HELLO.pack(*hello._replace(**self.tampering.say))

    def _decide(self, socket, error):
        say(lambda: socket.send(REPLY.pack(MAGIC, error)))
        if error:
            raise Refused(error, ours=True)

    def judge(self, message, files, truncated):
        """In the order of docs/abi.md: what every version has comes first."""
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
        judge = judge_consumer if hello.role == CONSUMER else judge_producer
        return judge(hello, files[0])


def say(send):
    """Who refuses at once has closed its end, and its reply is still to be read: hear tells."""
    try:
        send()
    except (BrokenPipeError, ConnectionResetError):
        pass


def hear(receive):
    """An end that was closed with something unread in it is told first, once, and what it had sent comes after that."""
    try:
        return receive()
    except ConnectionResetError:
        return receive()


def judge_reply(message):
    if len(message) != REPLY.size or REPLY.unpack(message)[0] != MAGIC:
        raise Died(f"the other side said {message!r} where its reply belongs")
    return REPLY.unpack(message)[1]


def judge_consumer(hello, fd):
    if hello.data or hello.capacity or hello.flags & F_UNSEALED:
        return errno.EPROTO
    return judge_file(fd, SIDE_BYTES)


def judge_producer(hello, fd):
    if not is_power_of_two(hello.data) or hello.data < mmap.PAGESIZE:
        return errno.EPROTO
    if not is_power_of_two(hello.capacity) or not max(SMALLEST, hello.data) <= hello.capacity <= LARGEST:
        return errno.ERANGE
    if hello.flags & F_UNSEALED or hello.data != os.fstatvfs(fd).f_bsize:
        return errno.EACCES
    return judge_file(fd, hello.data + hello.capacity)


def judge_file(fd, length):
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        return errno.EACCES
    sealed = seals & SEALS == SEALS
    return 0 if sealed and os.fstat(fd).st_size == length else errno.EACCES
