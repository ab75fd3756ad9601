# SPDX-License-Identifier: MIT OR Apache-2.0
"""vectors.py: reads spec/vectors.json: whether the bytes mean what their values say, by spec/abi.json and docs/abi/, and whether this
implementation of rings sends, receives and refuses them."""

import ctypes
import errno
import fcntl
import json
import os
import pathlib
import socket as sockets
import struct
import sys

import memfd
from handshake import CONSUMER, CTRL_SIZE, HELLO, PRODUCER, REPLY, SEALS, Handshake, Refused
from machine import PROT_READ, PROT_WRITE
from ring import PAGE, Connection, Consumer, PeerDied, Producer, ProtocolViolation, Side

SPEC = pathlib.Path(__file__).resolve().parents[3] / "spec"
ABI = json.loads((SPEC / "abi.json").read_text())
FILE = json.loads((SPEC / "vectors.json").read_text())
CAPACITY = 4096


def expect(what, seen, expected):
    if seen != expected:
        raise SystemExit(f"{what}: expected {expected!r}, saw {seen!r}")


# ---- structures ----

# The structure, the field with the place of the bytes after it (without one: its size), and these with the field of their length.
FORMS = {
    "bus-write": ("sluice_bus_frame", "size", {"message": "length"}),
    "bus-read": ("sluice_bus_frame", "size", {"message": "length"}),
    "map-events": ("sluice_map_event", None, {"key": "key_length"}),
    "map-records": ("sluice_map_record", "header", {"key": "key_length", "value": "value_length"}),
    "keeper-messages": ("sluice_keep_message", "header", {"key": "key_length", "value": "value_length"}),
    "feed-packet": ("sluice_feed_packet", None, {"bytes": None}),
}
KEEP_OPEN, KEEP_RESUME = 1, 2


def fields(structure, data):
    """The fields that are not reserved. An array of bytes is a name."""
    found = {}
    for field in ABI["structures"][structure]["fields"]:
        end = field["offset"] + int(field["type"][1:]) // 8 * field["count"]
        content = data[field["offset"] : end]
        if field["type"] == "u8":
            found[field["name"]] = content.split(b"\0")[0].decode()
        elif not field["name"].startswith("reserved"):
            found[field["name"]] = int.from_bytes(content, sys.byteorder)
    return found


def part(form, data, given):
    """The first structure with the bytes after it, and what follows them."""
    structure, begin, tails = FORMS[form]
    value = fields(structure, data)
    place = value[begin] if begin else ABI["structures"][structure]["size"]
    for name, length in tails.items():
        if name == "value" and given.get("keys"):
            continue
        end = place + value[length] if length else len(data)
        value[name] = data[place:end].hex()
        place = end
    if form == "keeper-messages" and value["type"] in (KEEP_OPEN, KEEP_RESUME):
        value["map"] = fields("sluice_keep_map", bytes.fromhex(value["key"]))
    # A frame counts itself in `size`; the others count all bytes up to the next one.
    end = value["size"] if begin != "size" and "size" in value else (place + 7) & ~7
    if end < place or begin and value[begin] < ABI["structures"][structure]["size"]:
        raise SystemExit(f"{structure}: the sizes are wrong: {value}")
    return value, data[end:]


def check_structures(vector, data):
    values = []
    while data and "value" in vector:
        value, data = part(vector["form"], data, vector.get("given", {}))
        values.append(value)
    expect(vector["name"], values, vector.get("value", []))


# ---- netlink ----

NUMBERS = {"u32": "=I", "s32": "=i", "u64": "=Q"}


def number_of(prefix, name):
    return ABI["constants"][prefix + name.upper().replace("-", "_")]


def attributes(described):
    data = b""
    for name, form, content in described:
        kind = number_of("SLUICE_NL_A_", name)
        if form in NUMBERS:
            payload = struct.pack(NUMBERS[form], content)
        elif form == "nest":
            kind, payload = kind | 0x8000, attributes(content)
        else:
            payload = {"binary": bytes.fromhex, "string": lambda text: text.encode() + b"\0", "flag": lambda _: b""}[form](content)
        data += struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)
    return data


def message(value):
    if "command" in value:
        content = struct.pack("=BBH", number_of("SLUICE_NL_CMD_", value["command"]), value["version"], 0) + attributes(value["attributes"])
    else:
        content = struct.pack("=i", value["error"]) + bytes.fromhex(value["request"])
    header = struct.pack("=IHHII", 16 + len(content), value["type"], value["flags"], value["seq"], value["pid"])
    expect("the length", value["length"], 16 + len(content))
    return header + content


def check_netlink(vector, data):
    if "value" in vector:
        expect(vector["name"], b"".join(map(message, vector["value"])).hex(), data.hex())


# ---- the memory of a ring ----


class Alone(Connection):
    """Of a side without a peer."""

    def __init__(self):
        self.memory = ctypes.create_string_buffer(2 * CTRL_SIZE)
        address = ctypes.addressof(self.memory)
        super().__init__(Side(address), Side(address + CTRL_SIZE), False, 0)

    def wait_until(self, ready):
        return ready()

    def has_ended(self):
        return False

    def notify(self):
        pass


def new_data():
    fd = memfd.make_file("vectors", PAGE + CAPACITY)
    _, data = memfd.map_ring(fd, PAGE, CAPACITY, PROT_READ | PROT_WRITE)
    os.close(fd)
    return data


def receive(position, content):
    consumer = Consumer(Alone(), new_data())
    consumer.position = position
    ctypes.memmove(consumer.data.at(position), content, len(content))
    records = []
    try:
        while consumer._has_record():
            records += consumer.receive_batch(1)
    except ProtocolViolation:
        return "violation"
    return {"records": [record.hex() for record in records], "end": consumer.position}


def send(position, records, length):
    producer = Producer(Alone(), new_data())
    producer.position = producer.released = position
    producer.send_batch(records)
    return ctypes.string_at(producer.data.at(position), length)


def check_data(vector, data):
    position = vector["given"]["position"]
    expect(vector["name"], receive(position, data), vector.get("value", vector.get("error")))
    if "value" in vector:
        records = [bytes.fromhex(record) for record in vector["value"]["records"]]
        expect(vector["name"], send(position, records, len(data)).hex(), data.hex())


def check_control(vector, data):
    if "value" in vector:
        expect(vector["name"], fields("sluice_ring_ctrl", data), vector["value"])
    if "given" not in vector:
        return
    producer = Producer(Alone(), new_data())
    producer.position, producer.released = vector["given"]["published"], vector["given"]["released"]
    ctypes.memmove(producer.connection.other.pos.address, data, len(data))
    try:
        producer._has_room(producer.position + CAPACITY)
        seen = None
    except ProtocolViolation:
        seen = "violation"
    expect(vector["name"], seen, vector.get("error"))


# ---- the handshake ----

ACCEPTED = next(vector for vector in FILE["vectors"] if vector["name"] == "memfd: the reply that accepts")
HELLO_OF_PRODUCER = next(vector for vector in FILE["vectors"] if vector["name"] == "memfd: hello of a producer")


def sealed_file(length):
    fd = memfd.make_file("vectors", length)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    return fd


def set_up(role, messages):
    """What a side of this role makes of these messages of its peer, and what it has sent."""
    own, peer = sockets.socketpair(sockets.AF_UNIX, sockets.SOCK_SEQPACKET)
    for vector, files in messages:
        capacity = vector.get("value", {}).get("capacity", CAPACITY)
        fd = sealed_file(CTRL_SIZE if role == PRODUCER else PAGE + capacity)
        content = bytes.fromhex(vector["bytes"])
        sockets.send_fds(peer, [content], [fd] * files) if files else peer.send(content)
        os.close(fd)
    data, capacity = (PAGE, CAPACITY) if role == PRODUCER else (0, 0)
    fd = memfd.make_file("vectors", data + capacity or CTRL_SIZE)
    result = 0
    try:
        Handshake(role, False, data, capacity).exchange(own, fd)
        own.close()
    except Refused as refused:
        result = refused.error
    except PeerDied:
        result = None
    os.close(fd)
    return result, all_from(peer)


def all_from(peer):
    sent = []
    while True:
        try:
            content = peer.recv(64)
        except ConnectionResetError:
            continue
        if not content:
            peer.close()
            return sent
        sent.append(content)


def check_first(vector, _):
    role, files = vector["given"]["receiver"], vector["given"]["files"]
    result, sent = set_up(role, [(vector, files), (ACCEPTED, 0)])
    expect(vector["name"], HELLO.unpack(sent[0])[3], role)
    refusal = vector.get("value", {}).get("error", 0)
    expected = getattr(errno, vector["error"]) if "error" in vector else refusal
    expect(vector["name"], result, expected)
    if not refusal:
        expect(vector["name"], REPLY.unpack(sent[1])[1], expected)


def check_second(vector, _):
    result, _ = set_up(CONSUMER, [(HELLO_OF_PRODUCER, 1), (vector, vector["given"]["files"])])
    expect(vector["name"], result, vector.get("value", {}).get("error"))


CHECKS = {
    "ring-data": check_data,
    "ring-control": check_control,
    "ring-first-message": check_first,
    "ring-second-message": check_second,
    "netlink": check_netlink,
}


def main():
    machine = {"byte_order": sys.byteorder, "page_size": PAGE}
    if machine != FILE["machine"]:
        print(f"not tested: the vectors are of another machine than {machine}")
        return
    for vector in FILE["vectors"]:
        CHECKS.get(vector["form"], check_structures)(vector, bytes.fromhex(vector["bytes"]))
    print(f"{len(FILE['vectors'])} vectors")


if __name__ == "__main__":
    main()
