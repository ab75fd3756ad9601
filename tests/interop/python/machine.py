# SPDX-License-Identifier: MIT OR Apache-2.0
"""What Python lacks: words in shared memory, barriers, futexes, mappings at a fixed address."""

import ctypes
import os
import platform

PROT_NONE, PROT_READ, PROT_WRITE = 0, 1, 2
MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS = 0x01, 0x02, 0x10, 0x20
MADV_POPULATE_READ = 22

FUTEX_WAIT, FUTEX_WAKE = 0, 1
MEMBARRIER_GLOBAL_EXPEDITED, MEMBARRIER_REGISTER_GLOBAL_EXPEDITED = 2, 4

# The numbers of futex and membarrier, which Python does not provide.
SYSTEM_CALLS = {"x86_64": (202, 324), "aarch64": (98, 283), "riscv64": (98, 283)}
if platform.machine() not in SYSTEM_CALLS:
    raise SystemExit(f"the numbers of system calls on {platform.machine()} are not in {__file__}; add them")
SYS_FUTEX, SYS_MEMBARRIER = SYSTEM_CALLS[platform.machine()]

# x86 keeps loads ordered with loads and stores with stores, which suffices for acquire and release.
KEEPS_ORDER = platform.machine() == "x86_64"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def _failed(what):
    error = ctypes.get_errno()
    return OSError(error, f"{what}: {os.strerror(error)}")


def _system_call(number, *arguments):
    result = _libc.syscall(ctypes.c_long(number), *arguments)
    return result if result >= 0 else -ctypes.get_errno()


def barrier():
    """Python has no fence; membarrier(2) is one for its caller in any case."""
    if _system_call(SYS_MEMBARRIER, MEMBARRIER_GLOBAL_EXPEDITED, 0, 0) < 0:
        raise _failed("membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)")


def register_for_barriers():
    if _system_call(SYS_MEMBARRIER, MEMBARRIER_REGISTER_GLOBAL_EXPEDITED, 0, 0) < 0:
        raise _failed("membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)")


def keep_order():
    if not KEEPS_ORDER:
        barrier()


def futex_wait(address, value, seconds):
    """May return for any reason; the caller checks its condition again."""
    limit = Timespec(int(seconds), int(seconds % 1 * 1e9))
    _system_call(SYS_FUTEX, ctypes.c_void_p(address), FUTEX_WAIT, ctypes.c_uint32(value), ctypes.byref(limit), None, 0)


def futex_wake(address):
    _system_call(SYS_FUTEX, ctypes.c_void_p(address), FUTEX_WAKE, 1, None, None, 0)


def map_memory(address, length, protection, flags, fd, offset):
    mapped = _libc.mmap(address, length, protection, flags, fd, offset)
    if mapped == ctypes.c_void_p(-1).value:
        raise _failed(f"mmap of {length} bytes")
    return mapped


def unmap_memory(address, length):
    if _libc.munmap(address, length) != 0:
        raise _failed(f"munmap of {length} bytes")


def populate(address, length):
    """Makes every page resident, or fails."""
    if _libc.madvise(address, length, MADV_POPULATE_READ) != 0:
        raise _failed("madvise(MADV_POPULATE_READ)")


class Word:
    """An aligned word in shared memory. ctypes accesses it with a single instruction."""

    def __init__(self, address, kind):
        self.address = address
        self._word = kind.from_address(address)

    def load(self):
        return self._word.value

    def store(self, value):
        self._word.value = value

    def load_acquire(self):
        value = self._word.value
        keep_order()
        return value

    def store_release(self, value):
        keep_order()
        self._word.value = value
