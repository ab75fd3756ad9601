# SPDX-License-Identifier: MIT OR Apache-2.0
"""The exceptions of the package."""

import errno


class Error(OSError):
    """A call of Sluice failed: errno, strerror (what failed and why), and hint (what to do about it)."""

    hint: str = ""

    def __str__(self) -> str:
        text = str(self.strerror)
        return f"{text}; {self.hint}" if self.hint else text


class WouldBlock(Error, BlockingIOError):
    """The call has the timeout 0, and would have to wait."""


class Timeout(Error, TimeoutError):
    """The call waited for its timeout."""


class Unacknowledged(Timeout):
    """A change of a durable map is made, and not known to be stored. Map.sync(number) waits for it again."""

    number: int


class Closed(Error, BrokenPipeError):
    """The other side has closed the channel, or the channel was destroyed."""


class PeerDied(Error, ConnectionResetError):
    """The other side ended without closing the channel."""


class Aborted(Error, ConnectionAbortedError):
    """The peer gave up the handshake, or a subscriber was evicted from its bus."""


class Refused(Error, ConnectionRefusedError):
    """No process listens at the path, or the peer rejected the handshake."""


class NotConnected(Error, ConnectionError):
    """The bus has no subscriber, or no server."""


class NotFound(Error, FileNotFoundError):
    """There is no such channel, or no such subscriber."""


class AlreadyExists(Error, FileExistsError):
    """The channel exists."""


class Conflict(Error):
    """The entry of a map does not have the required version: get it again, and repeat the change."""


class PermissionDenied(Error, PermissionError):
    """The permissions, the owner or the scope of the channel do not permit the call."""


class InvalidInput(Error, ValueError):
    """An argument is invalid, such as a record that is too long."""


class Unsupported(Error):
    """The module is not loaded, or is too old."""


class Full(Error):
    """A quota, or the capacity of a map, is used up."""


# Of an error that no system call has returned: the number that Python's class of it has.
_ERRNO = {
    "WouldBlock": errno.EAGAIN,
    "Timeout": errno.ETIMEDOUT,
    "Closed": errno.EPIPE,
    "PeerDied": errno.ECONNRESET,
    "Aborted": errno.ECONNABORTED,
    "Refused": errno.ECONNREFUSED,
    "NotConnected": errno.ENOTCONN,
    "NotFound": errno.ENOENT,
    "AlreadyExists": errno.EEXIST,
    "PermissionDenied": errno.EACCES,
    "InvalidInput": errno.EINVAL,
    "Unsupported": errno.EOPNOTSUPP,
}


def build(name: str, number: int | None, text: str, hint: str, change: int | None) -> Error:
    """The exception of a class, for the extension."""
    error: Error = globals()[name](number or _ERRNO.get(name, errno.EIO), text)
    error.hint = hint
    if isinstance(error, Unacknowledged) and change is not None:
        error.number = change
    return error
