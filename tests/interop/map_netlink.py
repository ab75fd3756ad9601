#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Maps over generic netlink, with the YNL library of the kernel's tree and spec/sluice.yaml.

map_netlink.py YNL-DIRECTORY [CHECK …]: runs these checks, or all, and prints their names. YNL-DIRECTORY is tools/net/ynl
of a kernel source.
"""

import copy
import errno
import fcntl
import functools
import pathlib
import struct
import sys
import time

import yaml

TREE = pathlib.Path(__file__).resolve().parents[2]
SPEC = TREE / "spec/sluice.yaml"

READ, WRITE, CREATE, EXCL, PERSIST = 1, 2, 4, 8, 16
GET, SET, DELETE = 0, 1, 2
CREATED, UPDATED, DELETED, EXPIRED = 1, 2, 3, 4
NOW = 2**64 - 1
VALUE_MAX = 16384
KIND_MAP = 5
NAME = "netlink"

checks = {}


def check(function):
    checks[function.__name__] = function
    return function


def expect(what, seen, expected):
    if seen != expected:
        raise AssertionError(f"{what}: expected {expected!r}, saw {seen!r}")


class Socket:
    """One netlink socket of the family, closed at the end of the check."""

    opened = []

    def __init__(self):
        self.family = YnlFamily(str(SPEC), schema="")
        Socket.opened.append(self)

    @classmethod
    def close_all(cls):
        while cls.opened:
            cls.opened.pop().family.sock.close()

    def call(self, command, **attributes):
        names = {name.replace("_", "-"): value for name, value in attributes.items()}
        return self.family.do(command, names) or {}

    def fails(self, expected, command, **attributes):
        """Returns the text of the extended acknowledgement."""
        try:
            reply = self.call(command, **attributes)
        except NlError as error:
            expect(f"{command} {attributes}", errno.errorcode[error.error], errno.errorcode[expected])
            return error.nl_msg.extack.get("msg", "") if error.nl_msg.extack else ""
        raise AssertionError(f"{command} {attributes}: expected {errno.errorcode[expected]}, saw {reply}")

    def dump(self, **attributes):
        names = {name.replace("_", "-"): value for name, value in attributes.items()}
        return self.family.dump("map-dump", names)

    def open(self, name=NAME, flags=READ | WRITE | CREATE, **attributes):
        return self.call("map-open", name=name, flags=flags, **attributes)["handle"]

    def events(self, count, timeout=10):
        """Waits for so many events."""
        found, deadline = [], time.monotonic() + timeout
        while len(found) < count:
            if time.monotonic() > deadline:
                raise AssertionError(f"{count} events expected, saw {found}")
            self.family.check_ntf()
            while True:
                try:
                    found.append(self.family.async_msg_queue.pop(0)["msg"])
                except (IndexError, AttributeError):
                    break
            time.sleep(0.01)
        return found


def ctl(number, size, payload):
    """An ioctl of /dev/sluice/ctl."""
    with open("/dev/sluice/ctl", "rb", buffering=0) as file:
        request = (1 << 30) | (size << 16) | (0xC7 << 8) | number
        return fcntl.ioctl(file, request, bytearray(payload))


def unlink(name=NAME):
    ctl(0x11, 80, struct.pack("=IIIi64s", 80, KIND_MAP, 0, -1, name.encode()))


@check
def a_value_is_set_read_replaced_and_deleted():
    socket = Socket()
    handle = socket.open()
    on = dict(handle=handle, key=b"key\0\xff")
    socket.fails(errno.ENOENT, "map-get", **on)
    expect("a set", socket.call("map-set", value=b"one", **on), {"version": 1, "created": True})
    expect("a get", socket.call("map-get", **on), {"version": 1, "value": b"one"})
    expect("a set", socket.call("map-set", value=b"", **on), {"version": 2})
    expect("a get", socket.call("map-get", **on), {"version": 2, "value": b""})
    expect("a delete", socket.call("map-delete", **on), {"version": 3})
    socket.fails(errno.ENOENT, "map-delete", **on)


@check
def a_required_version_is_compared():
    socket = Socket()
    on = dict(handle=socket.open(), key=b"key")
    expect("a set", socket.call("map-set", value=b"1", if_version=0, **on)["version"], 1)
    text = socket.fails(errno.EEXIST, "map-set", value=b"2", if_version=0, **on)
    expect("its text", "there is an entry" in text, True)
    socket.fails(errno.ESTALE, "map-set", value=b"2", if_version=7, **on)
    socket.fails(errno.ESTALE, "map-delete", if_version=7, **on)
    expect("a set", socket.call("map-set", value=b"2", if_version=1, **on)["version"], 2)
    expect("a delete", socket.call("map-delete", if_version=2, **on)["version"], 3)


@check
def a_value_of_16_kib_is_the_longest():
    socket = Socket()
    on = dict(handle=socket.open(), key=b"k" * 4096)
    value = bytes(range(256)) * 64
    socket.call("map-set", value=value, **on)
    expect("the value", socket.call("map-get", **on)["value"], value)
    text = socket.fails(errno.EMSGSIZE, "map-set", value=value + b"1", **on)
    expect("its text", "/dev/sluice/ctl" in text, True)
    expect("unchanged", socket.call("map-get", **on)["value"], value)


@check
def a_name_needs_a_persistent_map():
    socket = Socket()
    handle = socket.open()
    text = socket.fails(errno.EINVAL, "map-get", name=NAME, key=b"key")
    expect("its text", "persistent" in text, True)
    socket.call("map-close", handle=handle)
    socket.fails(errno.ENOENT, "map-get", name=NAME, key=b"key")
    socket.call("map-close", handle=socket.open(flags=READ | WRITE | CREATE | PERSIST))
    socket.call("map-set", name=NAME, key=b"key", value=b"kept")
    expect("by name", Socket().call("map-get", name=NAME, key=b"key")["value"], b"kept")
    unlink()
    socket.fails(errno.ENOENT, "map-get", name=NAME, key=b"key")


@check
def a_handle_belongs_to_its_socket():
    first, second = Socket(), Socket()
    handle = first.open()
    second.fails(errno.ENOENT, "map-get", handle=handle, key=b"key")
    second.fails(errno.ENOENT, "map-close", handle=handle)
    second.fails(errno.ENOENT, "map-watch", handle=handle)
    first.call("map-close", handle=handle)
    first.fails(errno.ENOENT, "map-close", handle=handle)


@check
def a_closed_socket_leaves_nothing():
    socket = Socket()
    for _ in range(10):
        socket.open()
    socket.family.sock.close()
    Socket().fails(errno.ENOENT, "map-open", name=NAME, flags=READ)


@check
def a_socket_has_at_most_64_handles():
    socket = Socket()
    for _ in range(64):
        socket.open()
    socket.fails(errno.EMFILE, "map-open", name=NAME, flags=READ)
    Socket().open()


@check
def a_handle_permits_what_it_was_opened_for():
    socket = Socket()
    both = socket.open()
    reader, writer = socket.open(flags=READ), socket.open(flags=WRITE)
    socket.call("map-set", handle=writer, key=b"key", value=b"1")
    socket.call("map-get", handle=reader, key=b"key")
    socket.fails(errno.EBADF, "map-get", handle=writer, key=b"key")
    socket.fails(errno.EBADF, "map-set", handle=reader, key=b"key", value=b"2")
    socket.fails(errno.EBADF, "map-delete", handle=reader, key=b"key")
    socket.fails(errno.EBADF, "map-watch", handle=writer)
    socket.call("map-delete", handle=both, key=b"key")


@check
def incomplete_and_contradictory_requests_are_einval():
    socket = Socket()
    handle = socket.open()
    for command, attributes in [
        ("map-get", dict(key=b"key")),
        ("map-get", dict(handle=handle, name=NAME, key=b"key")),
        ("map-get", dict(handle=handle)),
        ("map-set", dict(handle=handle, key=b"key")),
        ("map-delete", dict(handle=handle)),
        ("map-open", dict(flags=READ)),
        ("map-open", dict(name="a/b", flags=READ | CREATE)),
        ("map-open", dict(name="..", flags=READ | CREATE)),
        ("map-open", dict(name=NAME, flags=EXCL | READ)),
        ("map-open", dict(name=NAME, flags=0)),
        ("map-close", {}),
        ("map-watch", {}),
        ("map-watch", dict(handle=handle, after=5)),
        ("map-batch", dict(handle=handle)),
        ("map-info", {}),
    ]:
        socket.fails(errno.EINVAL, command, **attributes)


@check
def a_batch_has_a_result_for_each_step():
    socket = Socket()
    handle = socket.open()
    steps = [{"command": SET, "key": bytes([n]), "value": bytes([n]) * 64} for n in range(63)]
    steps.append({"command": GET, "key": b"none"})
    seen = socket.call("map-batch", handle=handle, step=steps)["step"]
    expect("results", [one["result"] for one in seen], [1] * 63 + [-errno.ENOENT])
    steps = [{"command": GET, "key": bytes([n])} for n in range(63)]
    steps.append({"command": DELETE, "key": b"\0"})
    seen = socket.call("map-batch", handle=handle, step=steps)["step"]
    expect("values", [one.get("value") for one in seen], [bytes([n]) * 64 for n in range(63)] + [None])
    socket.fails(errno.EINVAL, "map-batch", handle=handle, step=steps + steps)


@check
def values_without_room_in_the_reply_have_their_length():
    socket = Socket()
    handle = socket.open()
    for n in range(4):
        socket.call("map-set", handle=handle, key=bytes([n]), value=bytes([n]) * VALUE_MAX)
    seen = socket.call("map-batch", handle=handle, step=[{"command": GET, "key": bytes([n])} for n in range(4)])
    results = [one["result"] for one in seen["step"]]
    expect("the first", results[0], 0)
    expect("the last", (results[-1], seen["step"][-1]["value-length"]), (-errno.EMSGSIZE, VALUE_MAX))


@check
def a_dump_returns_each_entry_once():
    socket = Socket()
    handle = socket.open(capacity=64 << 20)
    entries = {n.to_bytes(4, "big"): bytes([n % 256]) * (n * 7 % 3000) for n in range(1000)}
    for key, value in entries.items():
        socket.call("map-set", handle=handle, key=key, value=value)
    seen = socket.dump(handle=handle)
    expect("entries", len(seen), 1000)
    expect("the same", {one["key"]: one["value"] for one in seen} == entries, True)
    seen = socket.dump(handle=handle, keys=True)
    expect("keys", {one["key"] for one in seen} == set(entries), True)
    expect("values", [one for one in seen if "value" in one], [])


@check
def a_watch_sends_each_change():
    socket, other = Socket(), Socket()
    handle = socket.open(flags=READ | WRITE | CREATE | PERSIST)
    socket.call("map-watch", handle=handle)
    other.call("map-set", name=NAME, key=b"a", value=b"1")
    other.call("map-set", name=NAME, key=b"a", value=b"2")
    other.call("map-delete", name=NAME, key=b"a")
    other.call("map-set", name=NAME, key=b"b", value=b"", ttl_ns=1000)
    seen = socket.events(5)
    unlink()
    changes = [(one["change"], one["key"], one["sequence"]) for one in seen]
    expected = [(CREATED, b"a", 1), (UPDATED, b"a", 2), (DELETED, b"a", 3), (CREATED, b"b", 4), (EXPIRED, b"b", 5)]
    expect("changes", changes, expected)
    expect("missed", sum(one["missed"] for one in seen), 0)
    expect("of the other", other.family.async_msg_queue if hasattr(other.family, "async_msg_queue") else [], [])


@check
def the_state_is_that_of_the_map():
    socket = Socket()
    handle = socket.open(capacity=1 << 20, entries_max=10, events=64)
    for n in range(10):
        socket.call("map-set", handle=handle, key=bytes([n]), value=b"")
    text = socket.fails(errno.ENOSPC, "map-set", handle=handle, key=b"one more", value=b"")
    expect("its text", text, "the map or its store is full")
    seen = socket.call("map-info", handle=handle)
    expect("limits", (seen["capacity"], seen["entries-max"], seen["events"]), (1 << 20, 10, 64))
    expect("counts", (seen["entries"], seen["sequence"], seen["watchers"]), (10, 10, 0))


@functools.cache
def parsed(text):
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def main():
    # The library parses the specification for each socket, which takes seconds on a slow machine.
    yaml.safe_load = lambda stream: copy.deepcopy(parsed(stream.read()))
    for name in sys.argv[2:] or checks:
        print(name, flush=True)
        checks[name]()
        Socket.close_all()


if __name__ == "__main__":
    directory = pathlib.Path(sys.argv[1])
    sys.path[:0] = [str(directory), str(directory / "pyynl")]
    from lib import NlError, YnlFamily

    main()
